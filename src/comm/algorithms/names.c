/* What a rank is called besides its number, and what it does: said by itself, for messages of
 * others.
 *
 * Both stand in the world's shared memory as words of eight characters, each of them atomic:
 * whoever reads while they are written gets a text, of which a part may be the next one's. That is
 * enough for a sentence about a rank that is dead, and costs a post a few stores to a line of its
 * own. */
#include "comm/algorithms/slots.h"

#include <stdio.h>
#include <string.h>

static void put_text(_Atomic uint64_t *words, int32_t count, const char *text)
{
    for (int32_t i = 0; i < count; i++) {
        uint64_t word = 0;
        char *at = (char *)&word;
        for (size_t c = 0; c < sizeof(word) && *text; c++)
            at[c] = *text++;
        atomic_store_explicit(&words[i], word, memory_order_relaxed);
    }
}

/* text has room for 8 * count + 1 characters. */
static void get_text(const _Atomic uint64_t *words, int32_t count, char *text)
{
    for (int32_t i = 0; i < count; i++) {
        const uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        memcpy(text + (size_t)i * sizeof(word), &word, sizeof(word));
    }
    text[(size_t)count * sizeof(uint64_t)] = '\0';
}

void shoali_world_say_place(struct shoali_slots_world *world)
{
    struct shoali_seat_shared *seat = &world->shared->seat[world->rank];
    const struct shoali_context *context = shoali_context_get();
    if (!context->instruction) {
        atomic_store_explicit(&seat->doing[0], 0, memory_order_relaxed);
        return;
    }
    put_text(seat->doing, SHOALI_DOING_WORDS, context->instruction);
    atomic_store_explicit(&seat->micro, context->micro, memory_order_relaxed);
    atomic_store_explicit(&seat->step, context->step, memory_order_relaxed);
}

void shoali_slots_set_name(void *backend, const char *name)
{
    const struct shoali_slots_group *group = backend;
    put_text(group->world->shared->seat[group->world->rank].name, SHOALI_NAME_WORDS, name);
}

void shoali_slots_say_place(void *backend)
{
    const struct shoali_slots_group *group = backend;
    shoali_world_say_place(group->world);
}

const char *shoali_seat_name(const struct shoali_seat_shared *seat, const char *before, char *text)
{
    char name[SHOALI_NAME_WORDS * 8 + 1] = "";
    if (seat)
        get_text(seat->name, SHOALI_NAME_WORDS, name);
    snprintf(text, SHOALI_PLACE_BYTES, "%s%s", name[0] ? before : "", name);
    return text;
}

const char *shoali_seat_doing(const struct shoali_seat_shared *seat, const char *before, char *text)
{
    char doing[SHOALI_DOING_WORDS * 8 + 1] = "";
    text[0] = '\0';
    if (seat)
        get_text(seat->doing, SHOALI_DOING_WORDS, doing);
    if (!doing[0])
        return text;
    const int64_t micro = atomic_load_explicit(&seat->micro, memory_order_relaxed);
    const int64_t step = atomic_load_explicit(&seat->step, memory_order_relaxed);
    int at = snprintf(text, SHOALI_PLACE_BYTES, "%s%s", before, doing);
    if (micro >= 0 && at < SHOALI_PLACE_BYTES)
        at += snprintf(text + at, (size_t)(SHOALI_PLACE_BYTES - at), " of micro-batch %lld",
                       (long long)micro);
    if (step >= 0 && at < SHOALI_PLACE_BYTES)
        snprintf(text + at, (size_t)(SHOALI_PLACE_BYTES - at), " of step %lld",
                 (long long)step + 1);
    return text;
}

const char *shoali_rank_format(const struct shoali_seat *seat, char *text)
{
    char name[SHOALI_NAME_WORDS * 8 + 1] = "";
    if (seat->shared)
        get_text(seat->shared->name, SHOALI_NAME_WORDS, name);
    snprintf(text, SHOALI_PLACE_BYTES, "rank %d%s%s%s", (int)seat->world_rank, name[0] ? " (" : "",
             name, name[0] ? ")" : "");
    return text;
}
