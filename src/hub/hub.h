/* hub - models as the Hugging Face Hub has them: config.json and the model table, both ways;
 * folders made of folders. Level L8, beside engine, which knows nothing of it.
 *
 *   read.c        config.json -> a configuration of the model table
 *   write.c       back, and generation_config.json
 *   families.c    the table of families, and keys that all of them have
 *   gpt2.c llama.c bert.c   one family each, or several that are nearly the same
 *   dense.c       other decoders, each as one row;  falcon.c  those of Falcon
 *   decoder.c     what rows of decoders have in common: heads, activation, window
 *   positions.c   rotary positions
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
 * without knowing. `allow_unknown_keys` makes a warning of it. A known key with a value
 * that is not computed is an error in any case. On the way back a model that transformers has no
 * words for has no config.json. A key that only others read, and one that nobody knows, is copied
 * from the folder that the model came from. keys_test.c tries all keys.
 *
 * A VOCABULARY that is padded here has all its rows in the file, so `vocab_size` in config.json
 * counts them all: every reader compares it with the tensor. How many of them are tokens stands in
 * a member of our own, `"shoal": {"vocab_size": N, "make_vocab_size_divisible_by": M}`, which
 * others carry along unread; generation_config.json suppresses the other ones (`suppress_tokens`).
 */
#ifndef SHOALI_HUB_H
#define SHOALI_HUB_H

#include "base/base.h"
#include "shoal/hub.h"
#include "transformer/model_folder.h"
#include "transformer/transformer.h"

struct json_t;

enum shoali_hub_use {
    SHOALI_HUB_NEEDED,  /* an option; must be there */
    SHOALI_HUB_TAKEN,   /* an option; `absent` where it is not there, or null */
    SHOALI_HUB_NOT,     /* a bool option that says the opposite; the same */
    SHOALI_HUB_INVERSE, /* an option that is 1 divided by the key; the same */
    SHOALI_HUB_DROPOUT, /* a dropout that is computed with the probability of `option`; passed */
    SHOALI_HUB_ONLY,    /* a value of `only`, or nothing: no other is computed */
    SHOALI_HUB_OWN,     /* the family's own functions look at it */
    SHOALI_HUB_PASSED,  /* without influence on the forward pass; written back as it is */
    SHOALI_HUB_NOTE     /* the same, and a line names it: no key of the family's own */
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

/* What rows of decoders say in the same way. */
struct shoali_hub_decoder {
    const char *heads;      /* key of the number of key and value heads; NULL: the family's own */
    const char *activation; /* key */
    const char *activation_absent;
    bool gated;    /* has a gate */
    bool rope;     /* has rope_theta, rope_scaling, rope_parameters, partial_rotary_factor */
    bool window;   /* has sliding_window; without the key there is none */
    int32_t names; /* weight-names: index of a choice */
    double rotary_base, rotary_percent; /* without keys; 0: 10000, 1 */
};

struct shoali_hub_reader {
    const char *name; /* of the file, for lines of the log */
    struct shoali_json *document;
    struct json_t *root; /* borrowed from it */
    const struct shoali_hub_family *family;
    shoal_model_config *config;
    bool allow_unknown_keys;
};
struct shoali_hub_writer {
    struct json_t *root;
    const struct shoali_hub_family *family;
    const shoal_model_config *config;
    const struct json_t *source; /* config.json of the same family that it came from; NULL: none */
    int failed;                  /* something could not be allocated */
};
struct shoali_hub_family {
    const char *type, *row, *architecture; /* "gpt2", "gpt", "GPT2LMHeadModel" */
    const struct shoali_hub_key *keys;
    int32_t key_count;
    const struct shoali_hub_fixed *fixed;
    int32_t fixed_count;
    const char *const *seen; /* options that only `read` and `write` handle; NULL-terminated */
    const struct shoali_hub_decoder *decoder; /* NULL: the family's own functions do it all */
    shoal_status (*read)(struct shoali_hub_reader *reader);
    void (*write)(struct shoali_hub_writer *writer);
    /* Of several families with one row: whether this one can say the configuration. NULL: yes. */
    bool (*says)(const shoal_model_config *config);
};
/* NULL-terminated; of several that can say a configuration the first is written. */
extern const struct shoali_hub_family *const shoali_hub_families[];
extern const struct shoali_hub_family shoali_hub_gpt2, shoali_hub_llama, shoali_hub_mistral,
    shoali_hub_qwen2, shoali_hub_qwen3, shoali_hub_gemma, shoali_hub_bert, shoali_hub_megatron_bert,
    shoali_hub_falcon;
/* dense.c */
extern const struct shoali_hub_family shoali_hub_nemotron, shoali_hub_phi, shoali_hub_phi3,
    shoali_hub_olmo, shoali_hub_olmo2, shoali_hub_granite, shoali_hub_stablelm, shoali_hub_smollm3,
    shoali_hub_cohere, shoali_hub_gpt_neox, shoali_hub_gptj, shoali_hub_opt, shoali_hub_starcoder2,
    shoali_hub_internlm2, shoali_hub_gpt_bigcode, shoali_hub_arcee, shoali_hub_helium,
    shoali_hub_ernie4_5;

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
/* Sets an option to the number of object.KEY; `place` is the object's path. Without the key, or
 * with null, it stays. */
SHOAL_CHECKED shoal_status shoali_hub_read_number(struct shoali_hub_reader *reader,
                                                  const struct json_t *object, const char *place,
                                                  const char *key, const char *option);
/* keys: NULL-terminated. */
bool shoali_hub_is_one_of(const char *key, const char *const *keys);
/* decoder.c */
SHOAL_CHECKED shoal_status shoali_hub_read_decoder(struct shoali_hub_reader *reader);
void shoali_hub_write_decoder(struct shoali_hub_writer *writer);
/* Whether a decoder's row can say the configuration. */
bool shoali_hub_decoder_says(const struct shoali_hub_family *family,
                             const shoal_model_config *config);
/* Whether the row of a decoder says an option without the family's keys. */
bool shoali_hub_decoder_sees(const struct shoali_hub_decoder *decoder, const char *option);
/* Heads of keys and values. Without the key, or with null, each query head has its own. */
SHOAL_CHECKED shoal_status shoali_hub_read_heads(struct shoali_hub_reader *reader, const char *key);
/* The activation; `absent` is the word where the key is not there. */
SHOAL_CHECKED shoal_status shoali_hub_read_activation(struct shoali_hub_reader *reader,
                                                      const char *key, const char *absent,
                                                      bool gated);
const char *shoali_hub_activation_name(const shoal_model_config *config);
/* layer_types, if it is there, to whether layers have a window: all, or none. */
SHOAL_CHECKED shoal_status shoali_hub_read_layer_types(struct shoali_hub_reader *reader,
                                                       bool *sliding);
/* Refuses layer_types with windows. */
SHOAL_CHECKED shoal_status shoali_hub_refuse_sliding(struct shoali_hub_reader *reader,
                                                     const char *why);
/* Sets the window: that of sliding_window, or none. */
SHOAL_CHECKED shoal_status shoali_hub_read_window(struct shoali_hub_reader *reader, bool sliding);
/* A number, or null. */
struct json_t *shoali_hub_window(const shoal_model_config *config);
/* positions.c: rope's base and scaling. */
SHOAL_CHECKED shoal_status shoali_hub_read_positions(struct shoali_hub_reader *reader);
void shoali_hub_write_positions(struct shoali_hub_writer *writer);
/* The value of an option; 0 where the model has none. */
double shoali_hub_option(const shoal_model_config *config, const char *option);
/* Adds a member; the value is transferred. */
void shoali_hub_put(struct shoali_hub_writer *writer, const char *key, struct json_t *value);

/* Whether the family has a place for the option: a key, a fixed value, or functions. */
bool shoali_hub_mentions(const struct shoali_hub_family *family, const char *option);
/* Whether the key stands in the family's table or the common one. */
bool shoali_hub_knows(const struct shoali_hub_family *family, const char *key);

/* Rows of the token tables: vocab-size, padded. */
int64_t shoali_hub_vocab_rows(const shoal_model_config *config);

#endif
