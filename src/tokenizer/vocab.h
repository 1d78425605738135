/* vocab - strings <-> ids, and a trie over strings. */
#ifndef SHOALI_TOKENIZER_VOCAB_H
#define SHOALI_TOKENIZER_VOCAB_H

#include "base/base.h"

/* Ids that a file may give: more would ask for memory that no vocabulary needs. */
#define SHOALI_ID_MAX ((1 << 24) - 1)

/* Strings are borrowed (of an arena), may hold any byte, and are found by open addressing. */
struct shoali_string {
    const char *text; /* NULL: the id has no string */
    uint32_t bytes;
};
struct shoali_slot {
    uint32_t tag; /* of the hash */
    int32_t id;   /* -1: free */
};
struct shoali_vocab {
    struct shoali_string *string; /* of each id, `size` of them */
    int32_t size;                 /* largest id + 1 */
    struct shoali_slot *slot;
    uint32_t mask;
    int32_t count; /* strings that are found */
};
/* Room for `count` strings with ids up to SIZE - 1. The arena owns all. */
SHOAL_CHECKED shoal_status shoali_vocab_init(struct shoali_vocab *vocab, int64_t count,
                                             int64_t size, struct shoali_arena *arena);
/* The string must stay. A string that is there already gets the new id; an id keeps its last
 * string. */
void shoali_vocab_add(struct shoali_vocab *vocab, int32_t id, const char *text, size_t bytes);
/* -1: not there. */
int32_t shoali_vocab_find(const struct shoali_vocab *vocab, const char *text, size_t bytes);

/* Nodes are numbered from the root, 0; edges are found by open addressing of (node, byte). */
struct shoali_trie {
    uint64_t *edge; /* (node << 8 | byte) + 1; 0: free */
    uint32_t *target;
    uint32_t mask;
    int32_t *value; /* of each node; -1 none */
    uint32_t node_count, node_capacity;
    uint32_t root[256]; /* 0: none */
};
SHOAL_CHECKED shoal_status shoali_trie_init(struct shoali_trie *trie);
void shoali_trie_fini(struct shoali_trie *trie);
/* The last value of a string counts. */
SHOAL_CHECKED shoal_status shoali_trie_add(struct shoali_trie *trie, const char *text, size_t bytes,
                                           int32_t value);
/* The node behind `node` and a byte; 0: there is none. */
static inline uint32_t shoali_trie_step(const struct shoali_trie *trie, uint32_t node,
                                        unsigned char byte)
{
    if (node == 0)
        return trie->root[byte];
    const uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    for (;; at++) {
        const uint64_t found = trie->edge[at & trie->mask];
        if (found == key)
            return trie->target[at & trie->mask];
        if (found == 0)
            return 0;
    }
}
/* Value and length of the longest string that the text begins with; -1: none. */
int32_t shoali_trie_longest(const struct shoali_trie *trie, const char *text, size_t bytes,
                            size_t *length);

#endif
