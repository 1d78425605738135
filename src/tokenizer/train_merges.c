#include "tokenizer/train.h"

#include <stdlib.h>
#include <string.h>

/* Words that hold a pair, increasing. */
struct places {
    int32_t *word;
    int32_t count, capacity;
};
struct pair {
    uint64_t key; /* left << 32 | right; UINT64_MAX: free */
    int64_t count;
    struct places found; /* by the merge at work */
    bool changed;
};
/* A pair as it stood when it was found; its count may be smaller by now. */
struct candidate {
    int64_t count;
    uint64_t key;
    struct places places;
};
struct learner {
    struct shoali_trained *trained;
    int64_t word_count;
    int32_t *symbol;    /* of all words */
    int64_t *start;     /* of each word in it */
    int32_t *length;    /* of each word now */
    int64_t *frequency; /* of each word */
    struct pair *pair;  /* open addressing */
    uint64_t mask, used;
    struct candidate *heap;
    int64_t heap_count, heap_capacity;
    uint64_t *changed; /* keys of the merge at work */
    int64_t changed_count, changed_capacity;
};

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the pairs of a vocabulary");
}

/* Room for one more of `size` bytes; NULL: no memory, and the old one stays. */
static void *more(void *memory, int64_t count, int64_t *capacity, size_t size)
{
    if (count < *capacity)
        return memory;
    const int64_t larger = *capacity ? 2 * *capacity : 64;
    void *made = realloc(memory, (size_t)larger * size);
    if (made)
        *capacity = larger;
    return made;
}

static bool add_place(struct places *places, int32_t word)
{
    if (places->count > 0 && places->word[places->count - 1] == word)
        return true;
    int64_t capacity = places->capacity;
    if (places->count == places->capacity) {
        capacity = capacity ? 2 * capacity : 2;
        int32_t *made = realloc(places->word, (size_t)capacity * sizeof *made);
        if (!made)
            return false;
        places->word = made;
        places->capacity = (int32_t)capacity;
    }
    places->word[places->count++] = word;
    return true;
}

/* ---- the table of pairs ---- */

static struct pair *find(const struct learner *learner, uint64_t key)
{
    uint64_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 20;
    for (;; at++) {
        struct pair *pair = &learner->pair[at & learner->mask];
        if (pair->key == key || pair->key == UINT64_MAX)
            return pair;
    }
}

static bool grow_pairs(struct learner *learner)
{
    struct pair *old = learner->pair;
    const uint64_t old_slots = old ? learner->mask + 1 : 0;
    const uint64_t slots = old ? 2 * old_slots : 4096;
    struct pair *made = malloc(slots * sizeof *made);
    if (!made)
        return false;
    for (uint64_t i = 0; i < slots; i++)
        made[i] = (struct pair){.key = UINT64_MAX};
    learner->pair = made;
    learner->mask = slots - 1;
    for (uint64_t i = 0; i < old_slots; i++)
        if (old[i].key != UINT64_MAX)
            *find(learner, old[i].key) = old[i];
    free(old);
    return true;
}

/* Counts a pair of a word; what appears there is offered as a candidate afterwards. */
static shoal_status change(struct learner *learner, int32_t left, int32_t right, int32_t word,
                           int64_t by)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (2 * learner->used >= learner->mask && !grow_pairs(learner))
        return no_memory();
    struct pair *pair = find(learner, key);
    learner->used += pair->key == UINT64_MAX;
    pair->key = key;
    pair->count += by * learner->frequency[word];
    if (by < 0)
        return SHOAL_OK;
    if (!add_place(&pair->found, word))
        return no_memory();
    if (pair->changed)
        return SHOAL_OK;
    uint64_t *changed =
        more(learner->changed, learner->changed_count, &learner->changed_capacity, sizeof *changed);
    if (!changed)
        return no_memory();
    learner->changed = changed;
    changed[learner->changed_count++] = key;
    pair->changed = true;
    return SHOAL_OK;
}

/* ---- the heap: the largest count, then the lowest pair ---- */

static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static shoal_status push(struct learner *learner, struct candidate candidate)
{
    struct candidate *heap =
        more(learner->heap, learner->heap_count, &learner->heap_capacity, sizeof *heap);
    if (!heap) {
        free(candidate.places.word);
        return no_memory();
    }
    learner->heap = heap;
    int64_t at = learner->heap_count++;
    while (at > 0 && is_before(&candidate, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = candidate;
    return SHOAL_OK;
}

static struct candidate pop(struct learner *learner)
{
    struct candidate *heap = learner->heap;
    const struct candidate top = heap[0], last = heap[--learner->heap_count];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= learner->heap_count)
            break;
        child += child + 1 < learner->heap_count && is_before(&heap[child + 1], &heap[child]);
        if (!is_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* The pairs that appeared become candidates. */
static shoal_status offer(struct learner *learner)
{
    shoal_status status = SHOAL_OK;
    for (int64_t i = 0; i < learner->changed_count; i++) {
        struct pair *pair = find(learner, learner->changed[i]);
        const struct candidate candidate = {
            .count = pair->count, .key = pair->key, .places = pair->found};
        pair->found = (struct places){0};
        pair->changed = false;
        if (candidate.count <= 0)
            free(candidate.places.word);
        else
            SHOAL_TRY(status, push(learner, candidate), done);
    }
    learner->changed_count = 0;
done:
    return status;
}

/* ---- words ---- */

static shoal_status begin(struct learner *learner, const struct shoali_word_counts *counts,
                          const int32_t byte_id[256])
{
    shoal_status status = SHOAL_OK;
    size_t bytes = 0;
    for (uint32_t i = 0; counts->slot && i <= counts->mask; i++)
        bytes += counts->slot[i].text ? counts->slot[i].bytes : 0;
    const size_t words = (size_t)counts->used;
    learner->symbol = malloc((bytes + 1) * sizeof *learner->symbol);
    learner->start = malloc((words + 1) * sizeof *learner->start);
    learner->length = malloc((words + 1) * sizeof *learner->length);
    learner->frequency = malloc((words + 1) * sizeof *learner->frequency);
    if (!learner->symbol || !learner->start || !learner->length || !learner->frequency ||
        words > INT32_MAX || !grow_pairs(learner))
        return no_memory();
    int64_t at = 0;
    for (uint32_t i = 0; counts->slot && i <= counts->mask; i++) {
        const struct shoali_word_count *slot = &counts->slot[i];
        const int32_t word = (int32_t)learner->word_count;
        if (!slot->text)
            continue;
        learner->start[word] = at;
        learner->length[word] = (int32_t)slot->bytes;
        learner->frequency[word] = slot->count;
        for (uint32_t b = 0; b < slot->bytes; b++)
            learner->symbol[at++] = byte_id[(unsigned char)slot->text[b]];
        learner->word_count++;
        for (uint32_t b = 0; b + 1 < slot->bytes; b++) {
            const int32_t *symbol = &learner->symbol[learner->start[word]];
            SHOAL_TRY(status, change(learner, symbol[b], symbol[b + 1], word, 1), done);
        }
    }
    SHOAL_TRY(status, offer(learner), done);
done:
    return status;
}

/* Joins a pair in one word, from left to right. */
static shoal_status join(struct learner *learner, int32_t word, int32_t left, int32_t right,
                         int32_t id)
{
    shoal_status status = SHOAL_OK;
    int32_t *symbol = &learner->symbol[learner->start[word]];
    int32_t *length = &learner->length[word];
    for (int32_t i = 0; i + 1 < *length; i++) {
        if (symbol[i] != left || symbol[i + 1] != right)
            continue;
        if (i > 0) {
            SHOAL_TRY(status, change(learner, symbol[i - 1], left, word, -1), done);
            SHOAL_TRY(status, change(learner, symbol[i - 1], id, word, 1), done);
        }
        symbol[i] = id;
        memmove(&symbol[i + 1], &symbol[i + 2], (size_t)(*length - i - 2) * sizeof *symbol);
        (*length)--;
        if (i + 1 < *length) {
            SHOAL_TRY(status, change(learner, right, symbol[i + 1], word, -1), done);
            SHOAL_TRY(status, change(learner, id, symbol[i + 1], word, 1), done);
        }
    }
done:
    return status;
}

/* The id of the joined string: its own where it is a token already. */
static shoal_status token_of(struct shoali_trained *trained, int32_t left, int32_t right,
                             int32_t *id)
{
    const struct shoali_string a = trained->vocab.string[left], b = trained->vocab.string[right];
    char *text = shoali_arena_alloc(trained->arena, (size_t)a.bytes + b.bytes + 1);
    if (!text)
        return SHOAL_ENOMEM;
    memcpy(text, a.text, a.bytes);
    memcpy(text + a.bytes, b.text, b.bytes);
    *id = shoali_vocab_find(&trained->vocab, text, (size_t)a.bytes + b.bytes);
    if (*id >= 0)
        return SHOAL_OK;
    *id = trained->size++;
    shoali_vocab_add(&trained->vocab, *id, text, (size_t)a.bytes + b.bytes);
    return SHOAL_OK;
}

static shoal_status merge(struct learner *learner, const struct candidate *top)
{
    shoal_status status;
    struct shoali_trained *trained = learner->trained;
    struct shoali_merge made = {.left = (int32_t)(top->key >> 32),
                                .right = (int32_t)(top->key & UINT32_MAX)};
    SHOAL_TRY(status, token_of(trained, made.left, made.right, &made.id), done);
    trained->merge[trained->merge_count++] = made;
    for (int32_t i = 0; i < top->places.count; i++)
        SHOAL_TRY(status, join(learner, top->places.word[i], made.left, made.right, made.id), done);
    SHOAL_TRY(status, offer(learner), done);
done:
    return status;
}

static shoal_status learn(struct learner *learner, int64_t vocab_size, int64_t min_frequency,
                          int64_t merge_capacity)
{
    shoal_status status = SHOAL_OK;
    while (learner->trained->size < vocab_size && learner->heap_count > 0 &&
           learner->trained->merge_count < merge_capacity) {
        struct candidate top = pop(learner);
        const int64_t count = find(learner, top.key)->count;
        if (top.count != count) {
            top.count = count;
            SHOAL_TRY(status, push(learner, top), done);
            continue;
        }
        if (count < 1 || count < min_frequency) {
            free(top.places.word);
            break;
        }
        status = merge(learner, &top);
        free(top.places.word);
        SHOAL_TRY(status, status, done);
    }
done:
    return status;
}

shoal_status shoali_learn_merges(const struct shoali_word_counts *counts,
                                 const int32_t byte_id[256], int64_t vocab_size,
                                 int64_t min_frequency, struct shoali_trained *trained)
{
    shoal_status status;
    struct learner learner = {.trained = trained};
    /* a token may be made of several pairs */
    const int64_t capacity = 2 * vocab_size + 1024;
    trained->merge = shoali_arena_alloc(trained->arena, (size_t)capacity * sizeof *trained->merge);
    if (!trained->merge)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, begin(&learner, counts, byte_id), done);
    SHOAL_TRY(status, learn(&learner, vocab_size, min_frequency, capacity), done);
done:
    for (int64_t i = 0; i < learner.heap_count; i++)
        free(learner.heap[i].places.word);
    for (uint64_t i = 0; learner.pair && i <= learner.mask; i++)
        free(learner.pair[i].found.word);
    free(learner.symbol);
    free(learner.start);
    free(learner.length);
    free(learner.frequency);
    free(learner.pair);
    free(learner.heap);
    free(learner.changed);
    return status;
}
