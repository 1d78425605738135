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
struct shoali_trie_edge {
    uint64_t key : 63;    /* (node << 8 | byte) + 1; 0: free */
    uint64_t goes_on : 1; /* the target has edges */
    uint32_t target;
    int32_t value; /* of the string that ends at the target; -1 none */
};
struct shoali_trie {
    struct shoali_trie_edge *edge;
    uint32_t mask;
    uint32_t node_count, node_capacity;
    struct shoali_trie_edge root[256]; /* target 0: none */
};
SHOAL_CHECKED shoal_status shoali_trie_init(struct shoali_trie *trie);
void shoali_trie_fini(struct shoali_trie *trie);
/* The last value of a string counts. */
SHOAL_CHECKED shoal_status shoali_trie_add(struct shoali_trie *trie, const char *text, size_t bytes,
                                           int32_t value);
static inline uint64_t shoali_trie_key(uint32_t node, unsigned char byte)
{
    return (((uint64_t)node << 8 | byte) + 1) & (UINT64_MAX >> 1);
}
/* The edge from `node` by a byte; its target is 0 where there is none. */
static inline const struct shoali_trie_edge *shoali_trie_step(const struct shoali_trie *trie,
                                                              uint32_t node, unsigned char byte)
{
    if (node == 0)
        return &trie->root[byte];
    const uint64_t key = shoali_trie_key(node, byte);
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    while (trie->edge[at & trie->mask].key != key && trie->edge[at & trie->mask].key != 0)
        at++;
    return &trie->edge[at & trie->mask];
}
/* Value and length of the longest string that the text begins with; -1: none. */
int32_t shoali_trie_longest(const struct shoali_trie *trie, const char *text, size_t bytes,
                            size_t *length);
/* The same of what follows the string that ends at `node`. */
int32_t shoali_trie_longest_from(const struct shoali_trie *trie, uint32_t node, const char *text,
                                 size_t bytes, size_t *length);
/* The node where a string ends, or would; 0: none begins with it, or it is empty. */
uint32_t shoali_trie_node(const struct shoali_trie *trie, const char *text, size_t bytes);

#endif
