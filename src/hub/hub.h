/* hub - models as the Hugging Face Hub has them: config.json and the model table, both ways; folders
 * made of folders. Level L8, beside engine, which knows nothing of it.
 *
 *   read.c        config.json -> a configuration of the model table
 *   write.c       back, and generation_config.json
 *   families.c    the table of families, and keys that all of them have
 *   gpt2.c llama.c bert.c   one family each, or several that are nearly the same
 *   convert.c     a folder into another: names, dtype, sizes of files
 *
 * A FAMILY is one value of `model_type`, and says
 *   row      the model of our table that computes it
 *   keys     what of config.json is which option, what must have one value because nothing else is
 *            computed, what has no influence on the forward pass
 *   options  options of ours that are not in config.json, and the value that they have for this
 *            family
 *   read, write   what a table cannot say
 *
 * STRICT. A key that is not in the table, and says more than null, false or an empty value, is an
 * error that names file, line, key and value: whoever ignored it would compute something else
 * without knowing. So is a known key with a value that is not computed. On the way back a model that
 * transformers has no words for has no config.json.
 *
 * A VOCABULARY that is padded here has all its rows in the file, so `vocab_size` in config.json
 * counts them all: every reader compares it with the tensor. How many of them are tokens stands in a
 * member of our own, `"shoal": {"vocab_size": N, "make_vocab_size_divisible_by": M}`, which others
 * carry along unread; generation_config.json suppresses the other ones (`suppress_tokens`).
 */
#ifndef SHOALI_HUB_H
#define SHOALI_HUB_H

#include "base/base.h"
#include "shoal/hub.h"
#include "transformer/transformer.h"

struct json_t;

enum shoali_hub_use {
    SHOALI_HUB_NEEDED, /* an option; must be there */
    SHOALI_HUB_TAKEN,  /* an option; `absent` where it is not there, or null */
    SHOALI_HUB_NOT,    /* a bool option that says the opposite; the same */
    SHOALI_HUB_ONLY,   /* a value of `only`, or nothing: no other is computed */
    SHOALI_HUB_OWN,    /* the family's own functions look at it */
    SHOALI_HUB_PASSED  /* without influence on the forward pass */
};
struct shoali_hub_key {
    const char *key, *alias; /* alias: a second name; NULL none */
    enum shoali_hub_use use;
    const char *option; /* of the model table */
    double absent;
    const char *only; /* JSON */
};
#define SHOALI_HUB_KEYS(array) (array), (int32_t)(sizeof(array) / sizeof((array)[0]))

/* An option that config.json does not have, and its value. */
struct shoali_hub_fixed {
    const char *option;
    double value;
};

struct shoali_hub_reader {
    struct shoali_json *document;
    struct json_t *root; /* borrowed from it */
    const struct shoali_hub_family *family;
    shoal_model_config *config;
};
struct shoali_hub_writer {
    struct json_t *root;
    const struct shoali_hub_family *family;
    const shoal_model_config *config;
    int failed; /* something could not be allocated */
};
struct shoali_hub_family {
    const char *type, *row, *architecture; /* "gpt2", "gpt", "GPT2LMHeadModel" */
    const struct shoali_hub_key *keys;
    int32_t key_count;
    const struct shoali_hub_fixed *fixed;
    int32_t fixed_count;
    const char *const *seen; /* options that only `read` and `write` handle; NULL-terminated */
    shoal_status (*read)(struct shoali_hub_reader *reader);
    void (*write)(struct shoali_hub_writer *writer);
    /* Of several families with one row: whether this one can say the configuration. NULL: yes. */
    bool (*says)(const shoal_model_config *config);
};
/* NULL-terminated; of several that can say a configuration the first is written. */
extern const struct shoali_hub_family *const shoali_hub_families[];
extern const struct shoali_hub_family shoali_hub_gpt2, shoali_hub_llama, shoali_hub_mistral,
    shoali_hub_qwen2, shoali_hub_qwen3, shoali_hub_gemma, shoali_hub_bert, shoali_hub_megatron_bert;

/* Keys that every configuration of transformers may have. */
extern const struct shoali_hub_key shoali_hub_common[];
extern const int32_t shoali_hub_common_count;
/* Options that training alone needs: the same weights are the same model with other values of them.
 * NULL-terminated. */
extern const char *const shoali_hub_training[];

/* ---- for families --------------------------------------------------------------------------- */

/* The value of a key; NULL: not there, or null. */
const struct json_t *shoali_hub_get(const struct shoali_hub_reader *reader, const char *key);
/* SHOAL_EUNSUPPORTED: "FILE:LINE: `KEY` is VALUE, WHY". key: a path, "rope_scaling.type". */
shoal_status shoali_hub_refuse(const struct shoali_hub_reader *reader, const char *key,
                               const struct json_t *value, const char *why);
/* Sets an option; an error names the key. */
SHOAL_CHECKED shoal_status shoali_hub_set(struct shoali_hub_reader *reader, const char *key,
                                          const char *option, double value);
/* Whether the model has an option, and its value; 0 where it has none. */
bool shoali_hub_has(const shoal_model_config *config, const char *option);
double shoali_hub_option(const shoal_model_config *config, const char *option);
/* Adds a member; the value is transferred. */
void shoali_hub_put(struct shoali_hub_writer *writer, const char *key, struct json_t *value);

/* The family that says a configuration: of the type `preferred` (NULL: any) if that one does.
 * SHOAL_EUNSUPPORTED: none does, and why. */
SHOAL_CHECKED shoal_status shoali_hub_family_of(const shoal_model_config *config,
                                                const char *preferred,
                                                const struct shoali_hub_family **family);
/* Rows of the token tables: vocab-size, padded. */
int64_t shoali_hub_vocab_rows(const shoal_model_config *config);
bool shoali_hub_has_file(const char *dir, const char *name);
/* DIR/NAME as an object, owned (json_decref); *object is NULL where there is no such file. */
SHOAL_CHECKED shoal_status shoali_hub_read_object(const char *dir, const char *name,
                                                  struct json_t **object);

#endif
