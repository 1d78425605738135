/* pipeline - the object that tokenizer.json describes, the tables of its stages, and what one call
 * works with. tokenizer.h says which stage does what. */
#ifndef SHOALI_TOKENIZER_PIPELINE_H
#define SHOALI_TOKENIZER_PIPELINE_H

#include "tokenizer/regex.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

#include <pthread.h>

struct shoali_run;

/* ---- normalizers ---- */

/* A text on its way. `starts`: its first character is what the caller's text began with; what was
 * put before that counts as it. */
struct shoali_normal {
    struct shoali_str text;
    bool starts;
};
struct shoali_normalizer_kind {
    const char *type;
    /* Optional. State lives in the spec's arena. */
    shoal_status (*create)(const struct shoali_spec *spec, void **state);
    /* Appends the normalized text to `out`, which is empty; clears out->starts, which is the
     * text's, when the first character went away. The text is UTF-8. */
    shoal_status (*apply)(const void *state, struct shoali_run *run, const char *text, size_t bytes,
                          struct shoali_normal *out);
};
struct shoali_normalizer {
    const struct shoali_normalizer_kind *kind;
    void *state;
};
/* Rows of one file each; a row without type ends them. */
extern const struct shoali_normalizer_kind shoali_normalizers_unicode[], shoali_normalizers_text[],
    shoali_normalizers_precompiled[];
/* Appends to the pipeline's normalizers; `Sequence` becomes its parts. */
SHOAL_CHECKED shoal_status shoali_normalizers_create(const struct shoali_spec *spec, int depth);
/* All of them: `in` is replaced by the result, `spare` is used on the way. */
SHOAL_CHECKED shoal_status shoali_normalize(struct shoali_run *run, struct shoali_normal *in,
                                            struct shoali_normal *spare);

/* ---- pre-tokenizers ---- */

struct shoali_piece {
    const char *text;
    size_t bytes;
    bool starts; /* as of struct shoali_normal */
};
struct shoali_pretokenizer_kind {
    const char *type;
    shoal_status (*create)(const struct shoali_spec *spec, void **state); /* optional */
    /* Hands parts of the piece, in order, to shoali_emit(run, level + 1, part). */
    shoal_status (*apply)(const void *state, struct shoali_run *run, int32_t level,
                          const struct shoali_piece *piece);
};
struct shoali_pretokenizer {
    const struct shoali_pretokenizer_kind *kind;
    void *state;
};
extern const struct shoali_pretokenizer_kind shoali_pretokenizers_split[],
    shoali_pretokenizers_words[];
/* Appends to the pipeline's pre-tokenizers; `Sequence` becomes its parts. */
SHOAL_CHECKED shoal_status shoali_pretokenizers_create(const struct shoali_spec *spec, int depth);
/* A part for stage `level`; behind the last one it is a word for the model. Empty ones vanish. */
SHOAL_CHECKED shoal_status shoali_emit(struct shoali_run *run, int32_t level,
                                       const struct shoali_piece *piece);

/* What happens to the places where a pattern matches. */
enum shoali_behavior {
    SHOALI_REMOVED,
    SHOALI_ISOLATED,
    SHOALI_MERGED_WITH_PREVIOUS,
    SHOALI_MERGED_WITH_NEXT,
    SHOALI_CONTIGUOUS
};
extern const char *const shoali_behaviors[]; /* their names; NULL-terminated */
/* Takes matches and what is between them, in order, and emits by the behaviour. */
struct shoali_splitter {
    struct shoali_run *run;
    const struct shoali_piece *piece;
    int32_t level;
    enum shoali_behavior behavior;
    bool held, matched; /* a part waits for what follows; what came last was a match */
    size_t begin, end;  /* of the part that waits */
};
SHOAL_CHECKED shoal_status shoali_splitter_add(struct shoali_splitter *splitter, size_t begin,
                                               size_t end, bool match);
SHOAL_CHECKED shoal_status shoali_splitter_end(struct shoali_splitter *splitter);

/* -1: the character stands for no byte. */
int shoali_char_byte(uint32_t c);
void shoali_append_byte_chars(const char *bytes, size_t count, struct shoali_str *out);
/* The bytes that a string of such characters stands for; false when it is none. */
bool shoali_byte_chars_bytes(const char *text, size_t bytes, char *out, size_t *count);

/* ---- models ---- */

struct shoali_word_model;
struct shoali_word_model_kind {
    const char *type;
    shoal_status (*create)(const struct shoali_spec *spec, struct shoali_word_model *model);
    void (*destroy)(struct shoali_word_model *model); /* optional */
    /* `bytes` > 0. */
    shoal_status (*encode)(const struct shoali_word_model *model, struct shoali_run *run,
                           const char *word, size_t bytes, struct shoali_ids *ids);
    /* A byte that belongs to no UTF-8; -1: it has no token. NULL: none has. */
    int32_t (*byte_id)(const struct shoali_word_model *model, unsigned char byte);
    bool takes_bytes; /* behind ByteLevel it works on the bytes themselves */
};
struct shoali_word_model {
    const struct shoali_word_model_kind *kind;
    struct shoali_vocab vocab; /* strings as the model meets them: bytes where `raw` */
    bool raw;                  /* ByteLevel stands before it, and it takes bytes */
    void *state;
};
extern const struct shoali_word_model_kind shoali_word_model_bpe, shoali_word_model_tiktoken,
    shoali_word_model_sentencepiece_bpe, shoali_word_model_wordpiece, shoali_word_model_wordlevel,
    shoali_word_model_unigram, shoali_word_model_sentencepiece_unigram;
SHOAL_CHECKED shoal_status shoali_word_model_create(const struct shoali_spec *spec,
                                                    struct shoali_word_model *model);
/* vocab {"string": id}: fills the model's vocabulary and the pipeline's strings. */
SHOAL_CHECKED shoal_status shoali_word_model_read_vocab(const struct shoali_spec *spec,
                                                        struct shoali_word_model *model);
/* The same of [["string", score], ...] or ["string", ...]: ids are places. *score: of each id, NULL
 * where there are none. */
SHOAL_CHECKED shoal_status shoali_word_model_read_scores(const struct shoali_spec *spec,
                                                         struct shoali_word_model *model,
                                                         double **score);
/* Ids of <0x00> ... <0xFF> in the vocabulary, -1 where one is missing. */
void shoali_word_model_byte_tokens(const struct shoali_word_model *model, int32_t id[256]);

/* ---- added tokens, post-processors, decoders ---- */

struct shoali_added_token {
    const char *text, *normal; /* as written, and as the normalizer makes it */
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
};
struct shoali_added {
    struct shoali_added_token *token;
    int32_t count;
    struct shoali_trie trie[2]; /* [normalized] */
    bool begins[2][256];        /* bytes that a token begins with */
    bool any[2];
};
SHOAL_CHECKED shoal_status shoali_added_create(const struct shoali_spec *spec);
/* The next token in text[at, bytes). false: none. *begin and *end include spaces that it takes. */
bool shoali_added_find(const struct shoali_pipeline *pipeline, bool normalized, const char *text,
                       size_t bytes, size_t from, size_t *at, size_t *begin, size_t *end,
                       int32_t *id);

/* Ids that the post-processor puts around those of a text. */
struct shoali_around {
    int32_t *before, *after;
    int32_t before_count, after_count;
};
SHOAL_CHECKED shoal_status shoali_post_create(const struct shoali_spec *spec, int depth);

/* Texts in order, one after the other in memory. */
struct shoali_parts {
    struct shoali_str text;
    size_t *end; /* of each part */
    int64_t count, capacity;
    bool failed;
};
void shoali_parts_add(struct shoali_parts *parts, const char *text, size_t bytes);
void shoali_parts_fini(struct shoali_parts *parts);
static inline const char *shoali_part(const struct shoali_parts *parts, int64_t i, size_t *bytes)
{
    const size_t begin = i > 0 ? parts->end[i - 1] : 0;
    *bytes = parts->end[i] - begin;
    return shoali_str_get(&parts->text) + begin;
}
struct shoali_decoder_kind {
    const char *type;
    shoal_status (*create)(const struct shoali_spec *spec, void **state); /* optional */
    shoal_status (*apply)(const void *state, const struct shoali_pipeline *pipeline,
                          const struct shoali_parts *in, struct shoali_parts *out);
};
struct shoali_decoder {
    const struct shoali_decoder_kind *kind;
    void *state;
};
SHOAL_CHECKED shoal_status shoali_decoders_create(const struct shoali_spec *spec, int depth);

/* ---- the object ---- */

enum { SHOALI_STAGES_MAX = 16, SHOALI_DEPTH_MAX = 8 };
enum { SHOALI_TOKEN_ADDED = 1, SHOALI_TOKEN_SPECIAL = 2 };

struct shoali_kept_regex {
    struct shoali_regex *regex;
    struct shoali_kept_regex *next;
};
struct shoali_pipeline {
    struct shoali_arena arena;
    struct shoali_classes *classes;
    struct shoali_kept_regex *regexes;
    struct shoali_string *string; /* of each id, model's and added ones; `size` of them */
    uint8_t *flags;               /* SHOALI_TOKEN_*, of each id */
    int32_t size;
    struct shoali_added added;
    struct shoali_normalizer normalizer[SHOALI_STAGES_MAX];
    int32_t normalizer_count;
    struct shoali_pretokenizer pretokenizer[SHOALI_STAGES_MAX];
    int32_t pretokenizer_count;
    bool raw; /* the last pre-tokenizer is ByteLevel, and its characters are not written out */
    struct shoali_word_model model;
    struct shoali_trie user_trie;   /* SentencePiece: strings that are pieces wherever they stand */
    const struct shoali_trie *user; /* that, NULL: there are none */
    struct shoali_around around;
    struct shoali_decoder decoder[SHOALI_STAGES_MAX];
    int32_t decoder_count;
    bool has_decoder;
    pthread_mutex_t mutex; /* of `idle` */
    struct shoali_scratch *idle;
};
/* `json` is borrowed for the call; `text` is what shoal_tokenizer_json will say, taken over. */
SHOAL_CHECKED shoal_status shoali_pipeline_create(const char *file, const struct json_t *json,
                                                  shoal_tokenizer **tokenizer);
/* Keeps a string under its id in the pipeline. */
SHOAL_CHECKED shoal_status shoali_pipeline_name(struct shoali_pipeline *pipeline, int32_t id,
                                                const char *text, size_t bytes);
/* {"Regex": "..."} or {"String": "..."} or "..." (a text). */
SHOAL_CHECKED shoal_status shoali_pipeline_pattern(const struct shoali_spec *spec, const char *key,
                                                   const struct shoali_regex **regex);
/* {"pattern": ..., "content": "..."}; replace.c. *beheaded: the text lost its beginning. */
SHOAL_CHECKED shoal_status shoali_replace_create(const struct shoali_spec *spec, void **state);
SHOAL_CHECKED shoal_status shoali_replace_apply(const void *state, struct shoali_matcher *matcher,
                                                const char *text, size_t bytes,
                                                struct shoali_str *out, bool *beheaded);
/* The id of a token's string, added or the model's; -1 none. */
int32_t shoali_pipeline_id(const struct shoali_pipeline *pipeline, const char *text);

/* ---- one call ---- */

/* What a word became. Longer words, and those of more ids, are made anew each time. */
enum { SHOALI_CACHE_KEY = 24, SHOALI_CACHE_IDS = 9, SHOALI_CACHE_SIZE = 1 << 15 };
struct shoali_cached {
    char key[SHOALI_CACHE_KEY]; /* the last byte is the length, 0: free */
    int32_t count;
    int32_t id[SHOALI_CACHE_IDS];
};
struct shoali_scratch {
    struct shoali_scratch *next;
    struct shoali_matcher *matcher;
    struct shoali_normal normal[2];
    struct shoali_str level[SHOALI_STAGES_MAX]; /* of pre-tokenizers that write text */
    struct shoali_str bytes[SHOALI_STAGES_MAX]; /* of ByteLevel: words in its characters */
    struct shoali_str work;                     /* of a normalizer */
    struct shoali_cached *cache;
    void *symbols; /* of the model; grows */
    size_t symbols_bytes;
};
struct shoali_run {
    const struct shoali_pipeline *pipeline;
    struct shoali_scratch *scratch;
    struct shoali_ids *ids;
};
SHOAL_CHECKED shoal_status shoali_scratch_take(const struct shoali_pipeline *pipeline,
                                               struct shoali_scratch **scratch);
void shoali_scratch_give(const struct shoali_pipeline *pipeline, struct shoali_scratch *scratch);
void shoali_scratches_destroy(struct shoali_pipeline *pipeline);
/* At least `bytes` for the model; NULL: no memory. */
void *shoali_scratch_symbols(struct shoali_scratch *scratch, size_t bytes);
/* A word through cache and model. */
SHOAL_CHECKED shoal_status shoali_encode_word(struct shoali_run *run, const char *word,
                                              size_t bytes);

#endif
