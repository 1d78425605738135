/* Counts calls, elements, bytes and waiting. Elements are what a rank sends in a ring:
 *   all_reduce                 2 * count * (N-1) / N
 *   reduce_scatter, all_gather, all_to_all   count * (N-1), count being one rank's block
 *   broadcast                  count (each rank passes it on)
 *   all_to_all_v               what goes to others;   send count, recv 0
 * and nothing for one rank, barrier, split and comm_alloc. */
#include "comm/wrap/wrap.h"

#include <stdatomic.h>

/* Read at any time, but added to by one thread after the other: the host, or the stream that runs
 * the group's post (comm.h, ORDER). */
struct record {
    struct shoali_wrap wrap;
    _Atomic int64_t calls[SHOALI_COLLECTIVE_COUNT], elements[SHOALI_COLLECTIVE_COUNT],
        bytes[SHOALI_COLLECTIVE_COUNT], shared_bytes, split_count, wait_ns;
};
_Static_assert(sizeof(struct record) <= sizeof(struct shoali_wrap_widest), "more room is needed");

static void add(_Atomic int64_t *sum, int64_t value)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

static int64_t elements_sent(const struct shoali_post *post, int32_t ranks, int32_t own)
{
    int64_t sum = 0;
    if (ranks == 1)
        return 0;
    switch (post->kind) {
    case SHOALI_ALL_REDUCE:
        return 2 * post->count * (ranks - 1) / ranks;
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_ALL_GATHER:
    case SHOALI_ALL_TO_ALL:
        return post->count * (ranks - 1);
    case SHOALI_BROADCAST:
    case SHOALI_SEND:
        return post->count;
    case SHOALI_ALL_TO_ALL_V:
        for (int32_t r = 0; r < ranks; r++)
            sum += r == own ? 0 : post->send_counts[r];
        return sum;
    default:
        return 0;
    }
}

static shoal_status post(void *object, const struct shoali_post *post, void **request)
{
    struct record *record = object;
    int64_t elements = elements_sent(post, shoali_wrap_size(object), shoali_wrap_rank(object));
    add(&record->calls[post->kind], 1);
    add(&record->elements[post->kind], elements);
    add(&record->bytes[post->kind], elements * (int64_t)shoal_dtype_bytes(post->dtype));
    return shoali_wrap_post(object, post, request);
}

static shoal_status wait(void *object, void *request)
{
    struct record *record = object;
    int64_t start_ns = shoali_now_ns();
    shoal_status status = shoali_wrap_wait(object, request);
    add(&record->wait_ns, shoali_now_ns() - start_ns);
    return status;
}

static shoal_status split(void *object, const struct shoali_split_args *args, void **child)
{
    struct record *record = object;
    add(&record->split_count, 1);
    return shoali_wrap_split(&shoali_comm_record, object, args, child);
}

static shoal_status alloc(void *object, size_t bytes, void **memory)
{
    struct record *record = object;
    add(&record->shared_bytes, (int64_t)bytes);
    return shoali_wrap_alloc(object, bytes, memory);
}

void shoali_record_read(const void *object, struct shoali_comm_counters *counters)
{
    const struct record *record = object;
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++) {
        counters->calls[kind] = atomic_load(&record->calls[kind]);
        counters->elements[kind] = atomic_load(&record->elements[kind]);
        counters->bytes[kind] = atomic_load(&record->bytes[kind]);
    }
    counters->shared_bytes = atomic_load(&record->shared_bytes);
    counters->split_count = atomic_load(&record->split_count);
    counters->wait_ns = atomic_load(&record->wait_ns);
}

const struct shoali_comm_ops shoali_comm_record = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "record",
    .probe = shoali_wrap_probe,
    .destroy = shoali_wrap_destroy,
    .rank = shoali_wrap_rank,
    .size = shoali_wrap_size,
    .post = post,
    .test = shoali_wrap_test,
    .wait = wait,
    .split = split,
    .alloc = alloc,
    .free = shoali_wrap_free,
    .abort = shoali_wrap_abort,
    .second_thread = shoali_wrap_second_thread,
    .set_name = shoali_wrap_set_name,
};
