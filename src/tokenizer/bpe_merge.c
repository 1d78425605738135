#include "tokenizer/bpe.h"

#include <string.h>

enum { SHORT_MAX = 96 };

static void look_up(const struct shoali_bpe *bpe, const char *word, struct shoali_symbol *left,
                    const struct shoali_symbol *right, uint32_t end)
{
    left->rank = SHOALI_RANK_NONE;
    if ((left->id | right->id) & SHOALI_SYMBOL_FROZEN)
        return;
    if (!bpe->pair) {
        const int32_t id = shoali_vocab_find(bpe->vocab, word + left->start, end - left->start);
        if (id >= 0) {
            left->rank = bpe->rank[id];
            left->joined = id;
        }
        return;
    }
    const uint64_t key = (uint64_t)(uint32_t)left->id << 32 | (uint32_t)right->id;
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
    for (;; at++) {
        const struct shoali_pair *pair = &bpe->pair[at & bpe->mask];
        if (pair->key == key) {
            left->rank = pair->rank;
            left->joined = pair->id;
            return;
        }
        if (pair->key == UINT64_MAX)
            return;
    }
}

static int64_t merge_short(const struct shoali_bpe *bpe, const char *word,
                           struct shoali_symbol *symbol, int64_t count)
{
    for (;;) {
        int64_t best = 0;
        for (int64_t i = 1; i < count - 1; i++)
            best = symbol[i].rank < symbol[best].rank ? i : best;
        if (count < 2 || symbol[best].rank == SHOALI_RANK_NONE)
            return count;
        symbol[best].id = symbol[best].joined;
        /* with the end behind the last one */
        memmove(&symbol[best + 1], &symbol[best + 2], (size_t)(count - best - 1) * sizeof *symbol);
        count--;
        if (best > 0)
            look_up(bpe, word, &symbol[best - 1], &symbol[best], symbol[best + 1].start);
        if (best < count - 1)
            look_up(bpe, word, &symbol[best], &symbol[best + 1], symbol[best + 2].start);
    }
}

/* ---- long words ---- */

/* Neighbours, and the heap of pairs that may be joined; those that changed since are passed over:
 * `stamp` counts the changes of a place. */
struct link {
    int32_t before, after;
    uint32_t stamp;
    uint32_t unused;
};
struct entry {
    uint32_t rank, at, stamp;
    uint32_t unused;
};
_Static_assert(sizeof(struct link) == sizeof(struct shoali_symbol) &&
                   sizeof(struct entry) == sizeof(struct shoali_symbol),
               "they lie behind the symbols");

struct heap {
    struct entry *entry;
    int64_t count;
};

static bool is_before(const struct entry *a, const struct entry *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct heap *heap, struct entry entry)
{
    int64_t at = heap->count++;
    while (at > 0 && is_before(&entry, &heap->entry[(at - 1) / 2])) {
        heap->entry[at] = heap->entry[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entry[at] = entry;
}

static struct entry pop(struct heap *heap)
{
    const struct entry top = heap->entry[0], last = heap->entry[--heap->count];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        child += child + 1 < heap->count && is_before(&heap->entry[child + 1], &heap->entry[child]);
        if (!is_before(&heap->entry[child], &last))
            break;
        heap->entry[at] = heap->entry[child];
        at = child;
    }
    heap->entry[at] = last;
    return top;
}

static void offer(struct heap *heap, const struct shoali_symbol *symbol, struct link *link,
                  int32_t at)
{
    link[at].stamp++;
    if (symbol[at].rank != SHOALI_RANK_NONE)
        push(heap,
             (struct entry){.rank = symbol[at].rank, .at = (uint32_t)at, .stamp = link[at].stamp});
}

static int64_t merge_long(const struct shoali_bpe *bpe, const char *word,
                          struct shoali_symbol *symbol, int64_t count)
{
    const uint32_t bytes = symbol[count].start;
    struct link *link = (struct link *)(symbol + count + 1);
    /* count - 1 pairs at first; each of at most count - 1 merges takes one and offers at most two,
     * so that there are never more than 2 * count. */
    struct heap heap = {.entry = (struct entry *)(link + count)};
    for (int32_t i = 0; i < count; i++) {
        link[i] = (struct link){.before = i - 1, .after = i + 1 < count ? i + 1 : -1};
        if (i + 1 < count)
            offer(&heap, symbol, link, i);
    }
    while (heap.count > 0) {
        const struct entry top = pop(&heap);
        const int32_t at = (int32_t)top.at;
        if (top.stamp != link[at].stamp)
            continue;
        const int32_t gone = link[at].after, next = link[gone].after, before = link[at].before;
        symbol[at].id = symbol[at].joined;
        link[gone].stamp++;
        link[at].after = next;
        link[at].stamp++;
        symbol[gone].id = -1;
        if (next >= 0) {
            const int32_t behind = link[next].after;
            link[next].before = at;
            look_up(bpe, word, &symbol[at], &symbol[next],
                    behind >= 0 ? symbol[behind].start : bytes);
            offer(&heap, symbol, link, at);
        }
        if (before >= 0) {
            look_up(bpe, word, &symbol[before], &symbol[at],
                    next >= 0 ? symbol[next].start : bytes);
            offer(&heap, symbol, link, before);
        }
    }
    int64_t kept = 0;
    for (int32_t i = 0; i >= 0; i = link[i].after)
        symbol[kept++] = symbol[i];
    symbol[kept].start = bytes;
    return kept;
}

int64_t shoali_bpe_merge(const struct shoali_bpe *bpe, const char *word,
                         struct shoali_symbol *symbol, int64_t count)
{
    for (int64_t i = 0; i + 1 < count; i++)
        look_up(bpe, word, &symbol[i], &symbol[i + 1], symbol[i + 2].start);
    if (count > 0)
        symbol[count - 1].rank = SHOALI_RANK_NONE;
    return count > SHORT_MAX ? merge_long(bpe, word, symbol, count)
                             : merge_short(bpe, word, symbol, count);
}
