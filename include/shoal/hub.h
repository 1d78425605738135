/* hub.h - reads and writes models in the layout of the Hugging Face Hub.
 *
 *   DIR/config.json               which model it is, in the terms of transformers
 *   DIR/model.safetensors         its weights; or model.safetensors.index.json and several files
 *   DIR/tokenizer.json, ...       its tokenizer
 *
 * Functions
 *   shoal_hub_read_config      makes a configuration of the model table from such a folder
 *   shoal_hub_open_tokenizer   opens its tokenizer
 *   shoal_engine_load_weights  loads its weights (engine.h)
 *   shoal_convert              writes such a folder
 *
 * Each checkpoint that `shoal pretrain` writes is such a folder. docs/HUGGING-FACE.md lists the
 * supported models and keys.
 */
#ifndef SHOAL_HUB_H
#define SHOAL_HUB_H

#include "shoal/tokenizer.h"
#include "shoal/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether DIR has a config.json and is not a folder of checkpoints (which has a
 * `latest`). */
SHOAL_API bool shoal_hub_is_folder(const char *dir);
/* Returns whether an option of the model table may differ from config.json with the same weights,
 * because only training needs it. */
SHOAL_API bool shoal_hub_option_is_free(const char *option);
/* Reads DIR/config.json. *config is owned by the caller (shoal_model_config_destroy). Its
 * seq-length, which the file does not have, is the model's maximum, but at most 1024. *dtype (may
 * be NULL) is the file's torch_dtype, SHOAL_F32 without one. SHOAL_ENOENT: there is no such file.
 * SHOAL_ECONFIG, SHOAL_EUNSUPPORTED: "FILE:LINE: ..." with key and value. A key that is
 * not known is never ignored. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_read_config(const char *dir,
                                                           shoal_model_config **config,
                                                           shoal_dtype *dtype);
/* As shoal_hub_read_config. With allow_unknown_keys, keys that are not known are ignored, and a
 * warning lists them. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_read(const char *dir, bool allow_unknown_keys,
                                                    shoal_model_config **config,
                                                    shoal_dtype *dtype);
/* Reads the text of a config.json. `name` is for errors. Otherwise as shoal_hub_read_config. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_parse_config(const char *text, size_t bytes,
                                                            const char *name,
                                                            shoal_model_config **config,
                                                            shoal_dtype *dtype);

/* Opens the tokenizer of a folder; *tokenizer is owned by the caller, NULL if the folder has none.
 * Statuses of shoal_tokenizer_open. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_open_tokenizer(const char *dir,
                                                              shoal_tokenizer **tokenizer);
/* Returns the names of the files that a tokenizer may consist of; NULL beyond the last. */
SHOAL_API const char *shoal_hub_tokenizer_file(int32_t index);

typedef struct shoal_hub_write_args {
    const shoal_model_config *config; /* complete: shoal_model_get_config of a model */
    shoal_dtype dtype;                /* of the weights */
    const shoal_tokenizer *tokenizer; /* gives the token that ends a text; NULL: none */
    /* Folder that the model came from. Its bos, eos and pad tokens and its generation_config.json
     * are copied. NULL: none. */
    const char *source;
} shoal_hub_write_args;
/* Writes the text of a config.json, owned by the caller: free(). Equal arguments give equal bytes.
 * vocab_size counts the rows of a padded vocabulary, as the weights have them. SHOAL_EUNSUPPORTED:
 * transformers does not have this model. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_write_config(const shoal_hub_write_args *args,
                                                            char **json);
/* Writes the text of a generation_config.json, as shoal_hub_write_config. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_write_generation(const shoal_hub_write_args *args,
                                                                char **json);

typedef struct shoal_convert_args {
    /* A folder in the Hub's layout, a folder of checkpoints, or a checkpoint of DeepSpeed. */
    const char *in;
    const char *tag; /* of a folder of checkpoints; NULL: the latest */
    const char *out; /* must not exist */
    /* fp32, bf16, fp16; NULL: as in the files. fp32 reads a checkpoint's masters. */
    const char *dtype;
    int64_t max_shard_bytes; /* of one file of weights; 0: 5 GB */
    /* Numbers that `dtype` does not hold become infinite, with a warning; otherwise they are
     * SHOAL_ENUMERIC, with their count and the names of their tensors. */
    bool allow_overflow;
    bool allow_unknown_keys; /* of config.json in `in`, as shoal_hub_read */
    /* Folder whose config.json and tokenizer are taken, for a checkpoint of DeepSpeed without them,
     * or for a folder of weights. NULL: `in`. */
    const char *model_config;
} shoal_convert_args;
/* Writes a folder in the Hub's layout: config.json, generation_config.json, the tokenizer's files,
 * and weights under the names of transformers, without padding of the vocabulary. Memory does not
 * depend on the model's size. A failure or a crash leaves no `out`. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_convert(const shoal_convert_args *args);

#ifdef __cplusplus
}
#endif
#endif
