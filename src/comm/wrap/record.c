/* Counts calls, elements, bytes and waiting. Elements are what a rank sends in a ring:
 *   all_reduce                 2 * count * (N-1) / N
 *   reduce_scatter, all_gather, all_to_all   count * (N-1), count being one rank's block
 *   broadcast                  count (each rank passes it on)
 *   all_to_all_v               what goes to others;   send count, recv 0
 * and nothing for one rank, barrier, split and comm_alloc. The rank's status page
 * (base/status_page.h) learns where it is, and the log of a profiled group (comms_log.h) how long
 * each took. */
#include "comm/comms_log.h"
#include "comm/wrap/wrap.h"

#include <stdatomic.h>

/* Read at any time, but added to by one thread after the other: the host, or the stream that runs
 * the group's post (comm.h, ORDER). */
struct record {
    struct shoali_wrap wrap;
    uint64_t identity; /* the same for all ranks of the group, another for each group */
    uint64_t number;   /* of the next collective; send and recv have none */
    int32_t size;
    struct shoali_comms_log *log; /* NULL: nobody wants to know */
    struct open {
        const void *request; /* NULL: not used */
        int32_t ticket;      /* of the status page */
        struct shoali_comms_call call;
        int64_t begin_ns;
    } open[SHOALI_RECORD_OPEN];
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

/* ---- the status page
 * ------------------------------------------------------------------------------ */

static int32_t say_post(struct record *record, struct shoali_status_page *page,
                        const struct shoali_post *post)
{
    const bool message = shoali_post_is_message(post);
    if (!message)
        record->number++;
    if (!page || record->size == 1)
        return 0;
    shoali_status_page_say_step(page, shoali_context_get()->step);
    return shoali_status_page_post(page, &(struct shoali_status_page_post){
                                             .key = message ? 0 : record->identity + record->number,
                                             .name = shoali_collective_name(post->kind),
                                             .dtype = shoal_dtype_name(post->dtype),
                                             .here = post->here,
                                             .count = post->count});
}

/* What is no error, or has been told, changes nothing. */
static void say_over(const struct record *record, int32_t ticket, shoal_status status)
{
    struct shoali_status_page *page = shoali_status_page_get();
    if (!page || record->size == 1)
        return;
    if (status < 0)
        shoali_status_page_fail(page, status, shoal_error_message());
    else
        shoali_status_page_leave(page, ticket);
}

/* ---- calls that are not over ---------------------------------------------------------------- */

static struct open *find_open(struct record *record, const void *request)
{
    for (int i = 0; i < SHOALI_RECORD_OPEN; i++)
        if (record->open[i].request == request)
            return &record->open[i];
    return NULL;
}

static void begin_open(struct record *record, const struct shoali_post *post, struct open begun)
{
    struct open *open = begun.request ? find_open(record, NULL) : NULL;
    if (record->log)
        begun.call = (struct shoali_comms_call){.kind = post->kind,
                                                .bytes = shoali_comms_bytes(post, record->size),
                                                .ranks = record->size,
                                                .here = post->here};
    if (open)
        *open = begun;
    else if (!begun.request && record->log)
        shoali_comms_log_add(record->log, &begun.call, shoali_now_ns() - begun.begin_ns);
}

static void end_open(struct record *record, const void *request, shoal_status status)
{
    struct open *open = find_open(record, request);
    say_over(record, open ? open->ticket : 0, status);
    if (!open)
        return;
    if (record->log && status == SHOAL_OK)
        shoali_comms_log_add(record->log, &open->call, shoali_now_ns() - open->begin_ns);
    open->request = NULL;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int32_t size_of(struct record *record)
{
    if (record->size == 0)
        record->size = shoali_wrap_size(record);
    return record->size;
}

static shoal_status post(void *object, const struct shoali_post *post, void **request)
{
    struct record *record = object;
    int64_t elements = elements_sent(post, size_of(record), shoali_wrap_rank(object));
    const int64_t begin_ns = record->log ? shoali_now_ns() : 0;
    add(&record->calls[post->kind], 1);
    add(&record->elements[post->kind], elements);
    add(&record->bytes[post->kind], elements * (int64_t)shoal_dtype_bytes(post->dtype));
    const int32_t ticket = say_post(record, shoali_status_page_get(), post);
    const shoal_status status = shoali_wrap_post(object, post, request);
    if (status != SHOAL_OK || !*request)
        say_over(record, ticket, status);
    if (status == SHOAL_OK)
        begin_open(record, post,
                   (struct open){.request = *request, .ticket = ticket, .begin_ns = begin_ns});
    return status;
}

static shoal_status wait(void *object, void *request)
{
    struct record *record = object;
    struct shoali_status_page *page = shoali_status_page_get();
    int64_t start_ns = shoali_now_ns();
    const struct open *open = find_open(record, request);
    shoali_status_page_wait_begin(page, open ? open->ticket : 0);
    shoal_status status = shoali_wrap_wait(object, request);
    shoali_status_page_wait_end(page);
    add(&record->wait_ns, shoali_now_ns() - start_ns);
    end_open(record, request, status);
    return status;
}

static shoal_status test(void *object, void *request)
{
    struct record *record = object;
    const shoal_status status = shoali_wrap_test(object, request);
    if (status != SHOAL_IN_PROGRESS)
        end_open(record, request, status);
    return status;
}

static shoal_status split(void *object, const struct shoali_split_args *args, void **child)
{
    struct record *record = object;
    add(&record->split_count, 1);
    const shoal_status status = shoali_wrap_split(&shoali_comm_record, object, args, child);
    if (status == SHOAL_OK && *child) {
        struct record *made = *child;
        const uint64_t words[] = {record->identity, record->number, (uint64_t)args->color};
        made->identity = shoali_hash64(words, sizeof words);
        made->log = record->log;
    }
    return status;
}

static shoal_status alloc(void *object, const char *here, size_t bytes, void **memory)
{
    struct record *record = object;
    add(&record->shared_bytes, (int64_t)bytes);
    return shoali_wrap_alloc(object, here, bytes, memory);
}

void shoali_record_set_log(void *object, struct shoali_comms_log *log)
{
    ((struct record *)object)->log = log;
}

void shoali_record_read(const void *object, struct shoali_comm_counters *counters)
{
    const struct record *record = object;
    *counters = (struct shoali_comm_counters){0};
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
    .test = test,
    .wait = wait,
    .split = split,
    .alloc = alloc,
    .free = shoali_wrap_free,
    .abort = shoali_wrap_abort,
    .second_thread = shoali_wrap_second_thread,
    .set_name = shoali_wrap_set_name,
    .say_place = shoali_wrap_say_place,
};
