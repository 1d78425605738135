/* tokenizer - text to token numbers and back. Level L1, knows base alone; the interface is
 * shoal/tokenizer.h.
 *
 * A tokenizer is one of two things: a kind that needs no file (byte, char, null: plain.c), or a
 * pipeline, which is what the format tokenizer.json describes. All files that others have are read
 * as pipelines: vocab.json and merges.txt, SentencePiece models and tiktoken ranks are turned into
 * the JSON values that tokenizer.json would hold, and one builder reads those.
 *
 *   text
 *    | added tokens     added.c: strings that are tokens whatever the rest would make of them; those
 *    |                  that are not `normalized` are looked for first, the others after
 *    | normalizer       normalizers.c: text -> text
 *    | added tokens     the normalized ones
 *    | pre-tokenizer    pretokenizers.c: text -> words
 *    | model            models.c: word -> ids; what a word became is kept in a cache
 *    | post-processor   post.c: ids -> ids with [CLS], <s>, ... ; only when asked for
 *   ids
 *    | decoder          decoders.c: strings of tokens -> text
 *   text
 *
 * Each stage is a table of rows {type, create, apply}: a new kind is a row and its functions. A
 * type that has no row is an error that names the file and the type; so is a member of a known type
 * that has another type or range than expected. Nothing is skipped.
 *
 *   unicode.h      classes of code points (utf8proc), normal forms
 *   regex.h        patterns of the format through PCRE2, as their own engine reads them
 *   splitters.h    the patterns of GPT-2, Llama 3 and Qwen 2 by hand; regex.h is their oracle
 *   vocab.h        strings <-> ids; a trie over strings
 *   spec.h         members of a JSON value, with sentences that name file and place
 *   pipeline.h     the object, the stages' tables, and what one call of encode works with
 *   formats.h      files of other formats -> the JSON value of a pipeline
 *   train.c        byte-level BPE from text
 *
 * Text that is not UTF-8: each run of bytes that is none is a word of its own, which passes no
 * normalizer and no pre-tokenizer. A byte-level vocabulary, or one with a token per byte, gives it
 * ids that decode to the same bytes; others refuse it with its offset.
 *
 * Unicode: classes and normal forms are those of the installed utf8proc and PCRE2. Characters that
 * a later Unicode assigned may fall into other classes than in a program with newer tables.
 *
 * Threads: a tokenizer is immutable; what a call needs (buffers, the cache of words, match data) is
 * a scratch, taken from a list in the tokenizer and given back. There are as many scratches as
 * there were calls at one time, each of bounded size.
 */
#ifndef SHOALI_TOKENIZER_H
#define SHOALI_TOKENIZER_H

#include "base/base.h"
#include "shoal/tokenizer.h"

#include <stdatomic.h>

/* Ids on their way to the caller's memory: what is beyond its capacity is only counted. */
struct shoali_ids {
    int32_t *token;
    int64_t capacity, count;
};
static inline void shoali_ids_add(struct shoali_ids *ids, int32_t id)
{
    if (ids->count < ids->capacity)
        ids->token[ids->count] = id;
    ids->count++;
}

/* ---- kinds ---- */

struct shoali_tokenizer_kind {
    const char *name; /* of the kind; pipelines say the name of their model */
    /* `offset` is that of the text in what sentences talk about. */
    shoal_status (*encode)(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                           int64_t offset, struct shoali_ids *ids);
    shoal_status (*decode)(const shoal_tokenizer *tokenizer, const int32_t *tokens, int64_t count,
                           struct shoali_str *text);
    void (*destroy)(shoal_tokenizer *tokenizer); /* optional: the kind's own parts */
    bool any_cut; /* text may be cut between any two characters without another result */
};
extern const struct shoali_tokenizer_kind shoali_tokenizer_null;

struct shoali_pipeline;
struct shoal_tokenizer {
    const struct shoali_tokenizer_kind *kind;
    atomic_int references;
    int32_t vocab_size; /* largest id + 1 */
    int32_t eod;        /* end of a document, -1 none */
    struct shoali_str json;
    uint32_t *code_point; /* char: of each token, increasing */
    int32_t ascii[128];   /* char: token of an ASCII code point, -1 none; the fast path of encode */
    struct shoali_pipeline *pipeline;
};

/* plain.c */
#define SHOALI_CODE_POINTS 0x110000u
/* "char" with the code points of a set, a bit each. */
SHOAL_CHECKED shoal_status shoali_tokenizer_from_set(const uint8_t *seen,
                                                     struct shoal_tokenizer **tokenizer);
SHOAL_CHECKED shoal_status shoali_tokenizer_make_byte(shoal_tokenizer **tokenizer);
SHOAL_CHECKED shoal_status shoali_tokenizer_make_char(const char *text, size_t bytes,
                                                      shoal_tokenizer **tokenizer);
/* From the JSON form {"type": "char", "version": 1, ...}. */
SHOAL_CHECKED shoal_status shoali_tokenizer_plain(const char *json, size_t bytes,
                                                  shoal_tokenizer **tokenizer);
SHOAL_CHECKED shoal_status shoali_tokenizer_make_null(int64_t vocab_size,
                                                      shoal_tokenizer **tokenizer);

/* tokenizer.c */
/* Another reference to the same tokenizer; to be destroyed too. */
SHOAL_CHECKED shoal_status shoali_tokenizer_copy(const struct shoal_tokenizer *from,
                                                 struct shoal_tokenizer **to);
/* shoal_tokenizer_encode of a piece that begins at byte `offset` of what sentences talk about. */
SHOAL_CHECKED shoal_status shoali_tokenizer_encode_at(const struct shoal_tokenizer *tokenizer,
                                                      const char *text, size_t bytes,
                                                      int64_t offset, int32_t *tokens,
                                                      int64_t capacity, int64_t *count);
int64_t shoali_tokenizer_host_bytes(const struct shoal_tokenizer *tokenizer);
/* Where a long text that is read piece by piece is cut for encoding: the bytes of the first block
 * of `text`, which holds at least SHOALI_BLOCK_BYTES bytes or ends the text (`end`). 0: more text
 * is needed. A function of the text alone: blocks end behind a newline that stands between two
 * characters that are no spaces, which is no place inside a word of the patterns in use. */
#define SHOALI_BLOCK_BYTES ((size_t)1 << 15)
#define SHOALI_BLOCK_BYTES_MAX ((size_t)1 << 18)
size_t shoali_tokenizer_block(const struct shoal_tokenizer *tokenizer, const char *text,
                              size_t bytes, bool end);

#endif
