/* The models that have a name. */
#include "transformer/transformer.h"

const struct shoali_model_row *const shoali_model_rows[] = {
    &shoali_model_gpt,
    &shoali_model_llama,
    &shoali_model_bert,
    NULL,
};
