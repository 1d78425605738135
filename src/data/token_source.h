/* token_source - where tokens come from: one long array that is read in pieces and never held.
 *
 * A dataset reads ranges of a source; what is behind it (a file that Shoal made from text, tokens
 * drawn at random, later somebody else's indexed files) is a table of functions. A source is
 * immutable: `read` and `count_until` may be called by several threads at once, and the same range
 * gives the same tokens for as long as the source is open.
 *
 *   token_cache.c  a token file made from text (token_file.h)
 *   token_mock.c   random tokens, computed when they are read
 *
 * Tokens are read, not mapped. The pages are those of the system's cache in both cases, one copy
 * for all processes; but a file that somebody truncates is an error with a sentence here and would
 * be SIGBUS there, and a process that has read all of a large text still owns nothing of it. A
 * sample costs a system call, which is less than the embedding of its first token.
 */
#ifndef SHOALI_TOKEN_SOURCE_H
#define SHOALI_TOKEN_SOURCE_H

#include "base/base.h"

struct shoali_token_source;

/* All members are required unless marked optional. */
struct shoali_token_source_ops {
    const char *name;
    /* Tokens [first, first + count), which the caller knows to be inside, as 32-bit ids below
     * vocab_size. SHOAL_EIO when the bytes are gone or are none of a vocabulary's. */
    shoal_status (*read)(const struct shoali_token_source *source, int64_t first, int64_t count,
                         int32_t *tokens);
    /* Optional. Sets `counts` (vocab_size of them) to how often each token occurs in [0, *until),
     * *until <= end as near to it as the source knows without reading tokens. */
    shoal_status (*count_until)(const struct shoali_token_source *source, int64_t end,
                                int64_t *counts, int64_t *until);
    void (*close)(struct shoali_token_source *source);
};

/* The first member of every source. */
struct shoali_token_source {
    const struct shoali_token_source_ops *ops;
    int64_t count;      /* tokens */
    int32_t vocab_size; /* all are in [0, vocab_size) */
    size_t width;       /* of a token where it is stored: 1 (u8), 2 (u16) or 4 (i32) bytes */
    uint64_t hash;      /* of all tokens as they are stored: xxh3 */
    const char *path;   /* for people; NULL: no file. Borrowed until close */
    size_t host_bytes;  /* memory it holds */
};

/* Bytes that a token of such a vocabulary takes. */
size_t shoali_token_width(int32_t vocab_size);
/* 32-bit ids to and from `width` bytes. Reading gives false for an id outside the vocabulary. */
void shoali_token_pack(size_t width, const int32_t *from, int64_t count, void *to);
bool shoali_token_unpack(size_t width, const void *from, int64_t count, int32_t vocab_size,
                         int32_t *to);
void shoali_token_source_close(struct shoali_token_source *source); /* NULL is fine */
/* How often each token occurs in [first, first + count) is added to `counts`. */
SHOAL_CHECKED shoal_status shoali_token_source_count(const struct shoali_token_source *source,
                                                     int64_t first, int64_t count, int64_t *counts);

/* token_mock.c: uniform over the vocabulary, a pure function of seed and position. */
SHOAL_CHECKED shoal_status shoali_token_mock_open(uint64_t seed, int32_t vocab_size, int64_t count,
                                                  struct shoali_token_source **source);

#endif
