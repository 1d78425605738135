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
    trie->target = shoali_calloc(slots, sizeof *trie->target, "a trie");
    trie->value = shoali_malloc(FIRST_NODES * sizeof *trie->value, "a trie");
    if (!trie->edge || !trie->target || !trie->value) {
        shoali_trie_fini(trie);
        return SHOAL_ENOMEM;
    }
    trie->value[0] = -1;
    return SHOAL_OK;
}

void shoali_trie_fini(struct shoali_trie *trie)
{
    shoali_free(trie->edge);
    shoali_free(trie->target);
    shoali_free(trie->value);
    *trie = (struct shoali_trie){0};
}

static void put_edge(struct shoali_trie *trie, uint64_t key, uint32_t target)
{
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    while (trie->edge[at & trie->mask])
        at++;
    trie->edge[at & trie->mask] = key;
    trie->target[at & trie->mask] = target;
}

static shoal_status grow(struct shoali_trie *trie)
{
    struct shoali_trie old = *trie;
    const uint32_t slots = 2 * (old.mask + 1);
    int32_t *value = realloc(old.value, 2 * (size_t)old.node_capacity * sizeof *value);
    if (value)
        trie->value = value;
    uint64_t *edge = shoali_calloc(slots, sizeof *edge, "a trie");
    uint32_t *target = shoali_calloc(slots, sizeof *target, "a trie");
    if (!value || !edge || !target) {
        shoali_free(edge);
        shoali_free(target);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a trie of %u nodes", old.node_count);
    }
    trie->node_capacity *= 2;
    trie->edge = edge;
    trie->target = target;
    trie->mask = slots - 1;
    for (uint32_t i = 0; i <= old.mask; i++)
        if (old.edge[i])
            put_edge(trie, old.edge[i], old.target[i]);
    shoali_free(old.edge);
    shoali_free(old.target);
    return SHOAL_OK;
}

shoal_status shoali_trie_add(struct shoali_trie *trie, const char *text, size_t bytes,
                             int32_t value)
{
    shoal_status status = SHOAL_OK;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        uint32_t next = shoali_trie_step(trie, node, byte);
        if (!next) {
            if (trie->node_count == trie->node_capacity)
                SHOAL_TRY(status, grow(trie), done);
            next = trie->node_count++;
            trie->value[next] = -1;
            if (node == 0)
                trie->root[byte] = next;
            else
                put_edge(trie, ((uint64_t)node << 8 | byte) + 1, next);
        }
        node = next;
    }
    trie->value[node] = value;
done:
    return status;
}

int32_t shoali_trie_longest(const struct shoali_trie *trie, const char *text, size_t bytes,
                            size_t *length)
{
    int32_t found = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        node = shoali_trie_step(trie, node, (unsigned char)text[i]);
        if (!node)
            break;
        if (trie->value[node] >= 0) {
            found = trie->value[node];
            *length = i + 1;
        }
    }
    return found;
}
