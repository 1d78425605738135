/* bpe - byte-pair encoding: the symbols of a word are joined pair by pair, the pair of the lowest
 * rank first, of equal ones the leftmost.
 *
 *   BPE               ranks are places in the list of merges: a table of pairs of ids
 *   TikToken          the rank of a pair is the number of the joined string
 *   SentencePieceBPE  the rank of a pair is the place of the joined string's score
 *
 * The merging is the same for all. Short words search the lowest rank in a small array, which is
 * what most words are; long ones use a heap. */
#ifndef SHOALI_TOKENIZER_BPE_H
#define SHOALI_TOKENIZER_BPE_H

#include "tokenizer/pipeline.h"

enum {
    SHOALI_SYMBOL_FROZEN = 1 << 30, /* takes part in no merge */
    SHOALI_SYMBOL_UNKNOWN = 1 << 29 /* its string has no id */
};
#define SHOALI_RANK_NONE UINT32_MAX

struct shoali_pair {
    uint64_t key; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
    int32_t id;
};
struct shoali_bpe {
    struct shoali_pair *pair; /* open addressing; NULL: ranks are of strings */
    uint32_t mask;
    const struct shoali_vocab *vocab;
    const uint32_t *rank; /* of each id, SHOALI_RANK_NONE: never joined; where pair is NULL */
    int32_t byte_id[256]; /* raw: of each byte; else of <0xXX>; -1 none */
    bool byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;                 /* -1 none */
    const char *prefix, *suffix; /* of parts that go on, and of the last part; "" none */
};
struct shoali_symbol {
    uint32_t rank;  /* of this and the next one */
    int32_t joined; /* what both become */
    int32_t id;
    uint32_t start; /* in the word */
};
/* Joins what can be joined; returns the new count. symbol[count].start is the word's length. There
 * is room for 5 * count + 1 symbols, which long words use. */
int64_t shoali_bpe_merge(const struct shoali_bpe *bpe, const char *word,
                         struct shoali_symbol *symbol, int64_t count);

#endif
