#include "tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Tables have at least twice as many slots as entries. */
static uint32_t slots_for(int64_t count)
{
    uint32_t slots = 16;
    while ((int64_t)slots < 2 * count)
        slots *= 2;
    return slots;
}

shoal_status shoali_vocab_init(struct shoali_vocab *vocab, int64_t count, int64_t size,
                               struct shoali_arena *arena)
{
    const uint32_t slots = slots_for(count);
    *vocab = (struct shoali_vocab){.size = (int32_t)size, .mask = slots - 1};
    vocab->string = shoali_arena_alloc(arena, ((size_t)size + 1) * sizeof *vocab->string);
    vocab->slot = shoali_arena_alloc(arena, slots * sizeof *vocab->slot);
    if (!vocab->string || !vocab->slot)
        return SHOAL_ENOMEM;
    for (uint32_t i = 0; i < slots; i++)
        vocab->slot[i].id = -1;
    return SHOAL_OK;
}

/* The slot of a string: its own, or the free one where it belongs. */
static struct shoali_slot *slot_of(const struct shoali_vocab *vocab, const char *text, size_t bytes,
                                   uint32_t *tag)
{
    const uint64_t hash = shoali_hash64(text, bytes);
    *tag = (uint32_t)(hash >> 32);
    for (uint32_t at = (uint32_t)hash;; at++) {
        struct shoali_slot *slot = &vocab->slot[at & vocab->mask];
        if (slot->id < 0)
            return slot;
        const struct shoali_string *string = &vocab->string[slot->id];
        if (slot->tag == *tag && string->bytes == bytes && memcmp(string->text, text, bytes) == 0)
            return slot;
    }
}

void shoali_vocab_add(struct shoali_vocab *vocab, int32_t id, const char *text, size_t bytes)
{
    uint32_t tag;
    struct shoali_slot *slot = slot_of(vocab, text, bytes, &tag);
    vocab->count += slot->id < 0;
    vocab->string[id] = (struct shoali_string){.text = text, .bytes = (uint32_t)bytes};
    *slot = (struct shoali_slot){.tag = tag, .id = id};
}

int32_t shoali_vocab_find(const struct shoali_vocab *vocab, const char *text, size_t bytes)
{
    uint32_t tag;
    return slot_of(vocab, text, bytes, &tag)->id;
}

/* ---- trie ---- */

enum { FIRST_NODES = 256 };

shoal_status shoali_trie_init(struct shoali_trie *trie)
{
    const uint32_t slots = slots_for(FIRST_NODES);
    *trie = (struct shoali_trie){.mask = slots - 1, .node_count = 1, .node_capacity = FIRST_NODES};
    trie->edge = shoali_calloc(slots, sizeof *trie->edge, "a trie");
    return trie->edge ? SHOAL_OK : SHOAL_ENOMEM;
}

void shoali_trie_fini(struct shoali_trie *trie)
{
    shoali_free(trie->edge);
    *trie = (struct shoali_trie){0};
}

/* The slot of an edge: its own, or the free one where it belongs. */
static struct shoali_trie_edge *edge_of(struct shoali_trie *trie, uint32_t node, unsigned char byte)
{
    const struct shoali_trie_edge *edge = shoali_trie_step(trie, node, byte);
    return node == 0 ? &trie->root[byte] : &trie->edge[edge - trie->edge];
}

static shoal_status grow(struct shoali_trie *trie)
{
    const struct shoali_trie old = *trie;
    const uint32_t slots = 2 * (old.mask + 1);
    struct shoali_trie_edge *edge = shoali_calloc(slots, sizeof *edge, "a trie");
    if (!edge)
        return SHOAL_ENOMEM;
    trie->node_capacity *= 2;
    trie->edge = edge;
    trie->mask = slots - 1;
    for (uint32_t i = 0; i <= old.mask; i++) {
        const uint64_t key = old.edge[i].key - 1;
        if (old.edge[i].key)
            *edge_of(trie, (uint32_t)(key >> 8), (unsigned char)key) = old.edge[i];
    }
    shoali_free(old.edge);
    return SHOAL_OK;
}

shoal_status shoali_trie_add(struct shoali_trie *trie, const char *text, size_t bytes,
                             int32_t value)
{
    shoal_status status = SHOAL_OK;
    uint32_t node = 0, before = 0;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (node > 0)
            edge_of(trie, before, (unsigned char)text[i - 1])->goes_on = true;
        if (trie->node_count == trie->node_capacity)
            SHOAL_TRY(status, grow(trie), done);
        struct shoali_trie_edge *edge = edge_of(trie, node, byte);
        if (!edge->target)
            *edge =
                (struct shoali_trie_edge){.key = shoali_trie_key(node, byte) & (UINT64_MAX >> 1),
                                          .target = trie->node_count++,
                                          .value = -1};
        if (i + 1 == bytes)
            edge->value = value;
        before = node;
        node = edge->target;
    }
done:
    return status;
}

int32_t shoali_trie_longest_from(const struct shoali_trie *trie, uint32_t node, const char *text,
                                 size_t bytes, size_t *length)
{
    int32_t found = -1;
    for (size_t i = 0; i < bytes; i++) {
        const struct shoali_trie_edge *edge = shoali_trie_step(trie, node, (unsigned char)text[i]);
        node = edge->target;
        if (node && edge->value >= 0) {
            found = edge->value;
            *length = i + 1;
        }
        if (!edge->goes_on)
            break;
    }
    return found;
}

int32_t shoali_trie_longest(const struct shoali_trie *trie, const char *text, size_t bytes,
                            size_t *length)
{
    return shoali_trie_longest_from(trie, 0, text, bytes, length);
}

uint32_t shoali_trie_node(const struct shoali_trie *trie, const char *text, size_t bytes)
{
    uint32_t node = 0;
    for (size_t i = 0; i < bytes && (i == 0 || node != 0); i++)
        node = shoali_trie_step(trie, node, (unsigned char)text[i])->target;
    return node;
}
