/* model_folder - folders of other programs that hold a model: configuration, tokenizer, weights.
 * The build writes the table. Without hub/ the table is empty. */
#ifndef SHOALI_MODEL_FOLDER_H
#define SHOALI_MODEL_FOLDER_H

#include "transformer/transformer.h"

struct shoal_tokenizer;
/* All results are owned by the caller. */
struct shoali_model_folder {
    const char *name;
    bool (*probe)(const char *dir);
    /* dtype: of the weights. allow_unknown_keys: what the reader does not know is ignored with a
     * warning, else it is an error. */
    shoal_status (*read_config)(const char *dir, bool allow_unknown_keys,
                                shoal_model_config **config, shoal_dtype *dtype);
    /* NULL: the folder has none. */
    shoal_status (*open_tokenizer)(const char *dir, struct shoal_tokenizer **tokenizer);
};
/* NULL-terminated; written by the build. */
extern const struct shoali_model_folder *const shoali_model_folders[];

#endif
