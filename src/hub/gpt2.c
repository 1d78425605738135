/* GPT-2. */
#include "hub/hub.h"

#include <jansson.h>
#include <string.h>

static const struct shoali_hub_key keys[] = {
    {"n_layer", "num_hidden_layers", SHOALI_HUB_NEEDED, "num-layers", 0, NULL},
    {"n_embd", "hidden_size", SHOALI_HUB_NEEDED, "hidden-size", 0, NULL},
    {"n_head", "num_attention_heads", SHOALI_HUB_NEEDED, "num-attention-heads", 0, NULL},
    {"n_positions", "max_position_embeddings", SHOALI_HUB_TAKEN, "max-position-embeddings", 1024,
     NULL},
    {"n_inner", NULL, SHOALI_HUB_TAKEN, "ffn-hidden-size", 0, NULL},
    {"vocab_size", NULL, SHOALI_HUB_NEEDED, "vocab-size", 0, NULL},
    {"attn_pdrop", NULL, SHOALI_HUB_TAKEN, "attention-dropout", 0.1, NULL},
    {"resid_pdrop", NULL, SHOALI_HUB_TAKEN, "hidden-dropout", 0.1, NULL},
    {"initializer_range", NULL, SHOALI_HUB_TAKEN, "init-method-std", 0.02, NULL},
    {"layer_norm_epsilon", NULL, SHOALI_HUB_TAKEN, "norm-epsilon", 1e-5, NULL},
    {"tie_word_embeddings", NULL, SHOALI_HUB_NOT, "untie-embeddings-and-output-weights", 1, NULL},
    {"activation_function", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"scale_attn_weights", NULL, SHOALI_HUB_ONLY, NULL, 0, "true"},
    {"scale_attn_by_inverse_layer_idx", NULL, SHOALI_HUB_TAKEN, "scale-attn-by-inverse-layer-idx",
     0, NULL},
    {"embd_pdrop", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"reorder_and_upcast_attn", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL}, /* we always do */
    {"n_ctx", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"n_special", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"predict_special_tokens", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"afn", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"summary_type", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"summary_use_proj", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"summary_activation", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"summary_proj_to_labels", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"summary_first_dropout", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
};
static const struct shoali_hub_fixed fixed[] = {{"add-bias-linear", 1}};
static const char *const seen[] = {"openai-gelu", "relu", NULL};

/* Embeddings and layers drop with one probability. */
static shoal_status check_dropout(const struct shoali_hub_reader *reader)
{
    const json_t *value = shoali_hub_get(reader, "embd_pdrop");
    if (value && (!json_is_number(value) ||
                  json_number_value(value) != shoali_hub_option(reader->config, "hidden-dropout")))
        return shoali_hub_refuse(reader, "embd_pdrop", value,
                                 "and only the value of `resid_pdrop` is computed: write the same "
                                 "number there");
    return SHOAL_OK;
}

static shoal_status read_activation(struct shoali_hub_reader *reader)
{
    static const char *const tanh_names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
    static const char *const erf_names[] = {"gelu", "gelu_python", NULL};
    const json_t *value = shoali_hub_get(reader, "activation_function");
    const char *name = value ? json_string_value(value) : "gelu_new";
    if (name && strcmp(name, "relu") == 0)
        return shoali_hub_set(reader, "activation_function", "relu", 1);
    for (int32_t i = 0; name && tanh_names[i]; i++)
        if (strcmp(name, tanh_names[i]) == 0)
            return shoali_hub_set(reader, "activation_function", "openai-gelu", 1);
    for (int32_t i = 0; name && erf_names[i]; i++)
        if (strcmp(name, erf_names[i]) == 0)
            return shoali_hub_set(reader, "activation_function", "openai-gelu", 0);
    return shoali_hub_refuse(reader, "activation_function", value,
                             "and only gelu_new, gelu_pytorch_tanh, gelu and relu are computed");
}

static shoal_status read(struct shoali_hub_reader *reader)
{
    const shoal_status status = check_dropout(reader);
    return status < 0 ? status : read_activation(reader);
}

static void write(struct shoali_hub_writer *writer)
{
    const bool tanh_form = shoali_hub_option(writer->config, "openai-gelu") != 0;
    const bool relu = shoali_hub_option(writer->config, "relu") != 0;
    shoali_hub_put(writer, "activation_function",
                   json_string(relu        ? "relu"
                               : tanh_form ? "gelu_new"
                                           : "gelu"));
    shoali_hub_put(writer, "embd_pdrop",
                   json_real(shoali_hub_option(writer->config, "hidden-dropout")));
}

const struct shoali_hub_family shoali_hub_gpt2 = {
    .type = "gpt2",
    .row = "gpt",
    .architecture = "GPT2LMHeadModel",
    .keys = SHOALI_HUB_KEYS(keys),
    .fixed = SHOALI_HUB_KEYS(fixed),
    .seen = seen,
    .read = read,
    .write = write,
};
