/* formats - files of other formats, turned into the JSON value that tokenizer.json would hold.
 *
 *   open.c                which format a path is
 *   gpt2_files.c          vocab.json and merges.txt; vocab.txt of BERT
 *   sentencepiece_file.c  NAME.model
 *   tiktoken_file.c       lines of ranks, and Megatron's JSON list
 *   sidecars.c            the files next to a vocabulary: tokenizer_config.json and others
 *   sidecar_classes.c     the classes that tokenizer_config.json names: defaults, refusals
 *   sidecar_tokens.c       added and special tokens of these files
 *   sidecar_rules.c        all other keys of these files
 *
 * SentencePiece models are read by a reader of our own instead of the sentencepiece library: the
 * file is a handful of protobuf fields, and what is needed of the library beyond that, Viterbi and
 * merging, is here anyway; so a build has one dependency less, and a checkpoint keeps such a model
 * as text like all others. */
#ifndef SHOALI_TOKENIZER_FORMATS_H
#define SHOALI_TOKENIZER_FORMATS_H

#include "base/base.h"
#include "shoal/tokenizer.h"

struct json_t;

/* *root is owned (json_decref). Sentences name the file. */
SHOAL_CHECKED shoal_status shoali_read_gpt2(const char *vocab_path, const char *merges_path,
                                            struct json_t **root);
/* strip_accents < 0: as lower_case. Names NULL: BERT's own. */
struct shoali_bert_args {
    const char *vocab_path;
    bool lower_case, chinese;
    int strip_accents;
    const char *unk, *cls, *sep;
};
SHOAL_CHECKED shoal_status shoali_read_bert(const struct shoali_bert_args *args,
                                            struct json_t **root);
SHOAL_CHECKED shoal_status shoali_read_sentencepiece(const char *path, const char *data,
                                                     size_t bytes, struct json_t **root);
/* `lines`, else the JSON list, of which `data` keeps what is used. */
SHOAL_CHECKED shoal_status shoali_read_tiktoken(const shoal_tokenizer_args *args, const char *path,
                                                char *data, size_t bytes, bool lines,
                                                struct json_t **root);
/* A JSON file; SHOAL_ECONFIG with its line. */
SHOAL_CHECKED shoal_status shoali_read_json_file(const char *path, struct json_t **root);

/* {"type": TYPE} */
struct json_t *shoali_typed(const char *type);
/* An entry of added_tokens that is special. */
struct json_t *shoali_added_entry(int64_t id, const char *content);

/* ---- files next to a vocabulary ---- */

/* What the vocabulary is in. */
enum shoali_vocabulary {
    SHOALI_VOCABULARY_JSON,       /* tokenizer.json, which holds all of its rules */
    SHOALI_VOCABULARY_BYTE_LEVEL, /* vocab.json and merges.txt */
    SHOALI_VOCABULARY_WORDPIECE,  /* vocab.txt */
    SHOALI_VOCABULARY_PIECES,     /* NAME.model of SentencePiece */
    SHOALI_VOCABULARY_RANKS       /* of tiktoken */
};
/* The special tokens that have a name, in the order in which transformers adds them. */
enum shoali_named {
    SHOALI_BOS,
    SHOALI_EOS,
    SHOALI_UNK,
    SHOALI_SEP,
    SHOALI_PAD,
    SHOALI_CLS,
    SHOALI_MASK,
    SHOALI_NAMED_COUNT
};
extern const char *const shoali_named_keys[SHOALI_NAMED_COUNT];
/* A class of transformers, as `tokenizer_class` names it. */
struct shoali_tokenizer_class {
    const char *name;
    enum shoali_vocabulary vocabulary;
    const char *named[SHOALI_NAMED_COUNT]; /* where the files give none */
    bool nfc_words;                        /* Qwen 2: NFC, and its own pattern for words */
    bool roberta_ends;                     /* a text stands between cls and sep */
    bool appends_eos;
};
struct shoali_sidecars {
    struct shoali_arena *arena;
    const char *folder;                        /* ends with '/' */
    struct json_t *config, *map, *added;       /* owned; NULL: there is no such file */
    const char *class_name;                    /* without "Fast"; NULL: nothing says it */
    const char *class_key;                     /* the file and key that say it */
    const struct shoali_tokenizer_class *kind; /* of the vocabulary; NULL: of tokenizer.json */
};
/* Reads the files of a folder. To be closed, also after a failure. */
SHOAL_CHECKED shoal_status shoali_sidecars_open(struct shoali_arena *arena, const char *folder,
                                                struct shoali_sidecars *sidecars);
void shoali_sidecars_close(struct shoali_sidecars *sidecars);
/* The value of a key as transformers takes it from the files, and the file; NULL: none, or null.
 * `present` (may be NULL): a file has the key. */
const struct json_t *shoali_sidecars_value(const struct shoali_sidecars *sidecars, const char *key,
                                           const char **file, bool *present);
SHOAL_CHECKED shoal_status shoali_sidecars_bool(const struct shoali_sidecars *sidecars,
                                                const char *key, bool otherwise, bool *value);
/* The text of a special token: of the files, else of the class; NULL: none. */
SHOAL_CHECKED shoal_status shoali_sidecars_named(const struct shoali_sidecars *sidecars,
                                                 enum shoali_named named, const char **text);
/* Sets the class for a vocabulary. Refuses a class that has other rules, and keys whose rules are
 * not here. `name`: the file of the vocabulary. */
SHOAL_CHECKED shoal_status shoali_sidecars_begin(struct shoali_sidecars *sidecars,
                                                 enum shoali_vocabulary vocabulary,
                                                 const char *name);
/* Puts what the files say into the JSON value of a tokenizer. */
SHOAL_CHECKED shoal_status shoali_sidecars_apply(const struct shoali_sidecars *sidecars,
                                                 enum shoali_vocabulary vocabulary,
                                                 struct json_t *root);
/* sidecar_tokens.c: added and special tokens, and the token that ends a document. *index is
 * {"string": number} of all tokens, owned. */
SHOAL_CHECKED shoal_status shoali_sidecars_tokens(const struct shoali_sidecars *sidecars,
                                                  enum shoali_vocabulary vocabulary,
                                                  struct json_t *root, struct json_t **index);
const struct shoali_tokenizer_class *shoali_class_find(const char *name,
                                                       enum shoali_vocabulary vocabulary);
/* The class that AutoTokenizer takes for the `model_type` of config.json; NULL: not known. */
const char *shoali_class_of_model(const char *model_type);

#endif
