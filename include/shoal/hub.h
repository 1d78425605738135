/* hub.h - models as the Hugging Face Hub has them.
 *
 *   DIR/config.json               which model it is, in the words of transformers
 *   DIR/model.safetensors         its weights; or model.safetensors.index.json and several files
 *   DIR/tokenizer.json, ...       its tokenizer
 *
 * shoal_hub_read_config makes a configuration of the model table of such a folder,
 * shoal_engine_load_weights (engine.h) reads the weights, shoal_tokenizer_open the tokenizer. Each
 * checkpoint that `shoal pretrain` writes is such a folder. docs/HUGGING-FACE.md says which models
 * and keys are known.
 */
#ifndef SHOAL_HUB_H
#define SHOAL_HUB_H

#include "shoal/tokenizer.h"
#include "shoal/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether DIR has a config.json, and is no folder of checkpoints (has no `latest`). */
SHOAL_API bool shoal_hub_is_folder(const char *dir);
/* Whether an option of the model table may have another value than config.json says, with the same
 * weights: what only training needs. */
SHOAL_API bool shoal_hub_option_is_free(const char *option);
/* What DIR/config.json says. *config is owned (shoal_model_config_destroy); its seq-length, which is
 * not in such a file, is as long as the model reads, but at most 1024. *dtype (may be NULL): of its
 * torch_dtype, SHOAL_F32 where it says none. SHOAL_ENOENT: there is no such file. SHOAL_ECONFIG,
 * SHOAL_EUNSUPPORTED: "FILE:LINE: ..." with key and value: what is not computed is never ignored. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_read_config(const char *dir,
                                                           shoal_model_config **config,
                                                           shoal_dtype *dtype);
/* The same of a text; `name` is for messages. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_parse_config(const char *text, size_t bytes,
                                                            const char *name,
                                                            shoal_model_config **config,
                                                            shoal_dtype *dtype);

/* The tokenizer of a folder, owned; NULL where it has none. Statuses of shoal_tokenizer_open. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_open_tokenizer(const char *dir,
                                                              shoal_tokenizer **tokenizer);
/* Names of the files that a tokenizer may consist of; NULL behind the last. */
SHOAL_API const char *shoal_hub_tokenizer_file(int32_t index);

typedef struct shoal_hub_write_args {
    const shoal_model_config *config; /* complete: shoal_model_get_config of a model */
    shoal_dtype dtype;                /* of the weights */
    const shoal_tokenizer *tokenizer; /* says which token ends a text; NULL: none does */
    const char *source; /* folder that the model came from: its bos, eos and pad tokens, and its
                           generation_config.json, are taken over. NULL: none */
} shoal_hub_write_args;
/* The text of a config.json (owned, free()): the same bytes for the same arguments. vocab_size counts
 * the rows of a padded vocabulary, as the weights have them. SHOAL_EUNSUPPORTED: a model that
 * transformers does not have. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_hub_write_config(const shoal_hub_write_args *args,
                                                               char **json);
/* ... of a generation_config.json. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_hub_write_generation(const shoal_hub_write_args *args,
                                                                   char **json);

typedef struct shoal_convert_args {
    const char *in;  /* a folder as the Hub has it, or a folder of checkpoints */
    const char *tag; /* of those; NULL: the latest */
    const char *out; /* must not exist */
    const char
        *dtype; /* fp32, bf16, fp16; NULL: as in the files. fp32 takes a checkpoint's masters */
    int64_t max_shard_bytes; /* of one file; 0: 5 GB */
} shoal_convert_args;
/* Writes a folder as the Hub has it: config.json, generation_config.json, the tokenizer's files, and
 * weights under the names that transformers gives them, without padding of the vocabulary. Streams:
 * memory does not depend on the model's size. A failure, or a crash, leaves no `out`. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_convert(const shoal_convert_args *args);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_convert_sized(const shoal_convert_args *args,
                                                         size_t args_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_hub_write_config_sized(const shoal_hub_write_args *args,
                                                                  size_t args_size, char **json);
SHOAL_API SHOAL_CHECKED shoal_status
shoal_hub_write_generation_sized(const shoal_hub_write_args *args, size_t args_size, char **json);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_convert(const shoal_convert_args *args)
{
    return shoal_convert_sized(args, sizeof *args);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_hub_write_config(const shoal_hub_write_args *args,
                                                               char **json)
{
    return shoal_hub_write_config_sized(args, sizeof *args, json);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_hub_write_generation(const shoal_hub_write_args *args,
                                                                   char **json)
{
    return shoal_hub_write_generation_sized(args, sizeof *args, json);
}

#ifdef __cplusplus
}
#endif
#endif
