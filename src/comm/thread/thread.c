/* Ranks as threads of one process: the control memory is on the heap and a pointer is a place. */
#include "comm/thread/thread.h"

#include "base/waiting.h"
#include "comm/algorithms/slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LARGE_BYTES = 16 << 20 };

struct heap_segment {
    struct heap_segment *next;
    void *base;
    size_t bytes;
    uint64_t number;
    int32_t users;
};

/* Segments are found by number, so that a rank that comes late to an aborted world finds nothing
 * instead of freed memory. */
struct shoal_thread_world {
    int32_t ranks;
    const struct shoali_slots_host *host;
    pthread_mutex_t lock;
    struct heap_segment *first;
    uint64_t last_number;
    struct shoali_segment shared; /* world and group of all; held until the world is destroyed */
    struct shoal_thread_world *nearer, *next; /* worlds within this one, which go with it */
};

static shoal_status create_segment(void *user, size_t bytes, struct shoali_segment *segment)
{
    struct shoal_thread_world *threads = user;
    struct heap_segment *heap = shoali_calloc(1, sizeof(*heap), "memory of several ranks");
    if (!heap)
        return SHOAL_ENOMEM;
    heap->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heap->base == MAP_FAILED) {
        shoali_free(heap);
        char size[32];
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot share %s among the ranks: %s",
                          shoali_format_bytes((double)bytes, size), strerror(errno));
    }
    if (bytes >= LARGE_BYTES)
        madvise(heap->base, bytes, MADV_HUGEPAGE);
    heap->bytes = bytes;
    heap->users = 1;
    pthread_mutex_lock(&threads->lock);
    heap->number = ++threads->last_number;
    heap->next = threads->first;
    threads->first = heap;
    pthread_mutex_unlock(&threads->lock);
    *segment = (struct shoali_segment){
        .base = heap->base, .bytes = bytes, .address = heap->number, .fd = -1};
    return SHOAL_OK;
}

static shoal_status attach_segment(void *user, struct shoali_segment *segment)
{
    struct shoal_thread_world *threads = user;
    pthread_mutex_lock(&threads->lock);
    struct heap_segment *heap = threads->first;
    while (heap && heap->number != segment->address)
        heap = heap->next;
    if (heap)
        heap->users++;
    pthread_mutex_unlock(&threads->lock);
    if (!heap)
        return SHOAL_FAIL(SHOAL_EPEER, "the rank that shared memory has given up");
    segment->base = heap->base;
    return SHOAL_OK;
}

static void seal_segment(struct shoali_segment *segment)
{
    (void)segment;
}

static void detach_segment(void *user, struct shoali_segment *segment)
{
    struct shoal_thread_world *threads = user;
    struct heap_segment *gone = NULL;
    pthread_mutex_lock(&threads->lock);
    struct heap_segment **link = &threads->first;
    while (*link && (*link)->number != segment->address)
        link = &(*link)->next;
    SHOAL_ASSERT(*link);
    if (--(*link)->users == 0) {
        gone = *link;
        *link = gone->next;
    }
    pthread_mutex_unlock(&threads->lock);
    segment->base = NULL;
    if (!gone)
        return;
    munmap(gone->base, gone->bytes);
    shoali_free(gone);
}

static void close_user(void *user)
{
    (void)user; /* the world is the caller's */
}

static const struct shoali_slots_host host = {
    .any_address = true,
    .create = create_segment,
    .attach = attach_segment,
    .seal = seal_segment,
    .detach = detach_segment,
    .find_dead = NULL,
    .close = close_user,
};

static const struct shoali_slots_host host_apart = {
    .any_address = false,
    .create = create_segment,
    .attach = attach_segment,
    .seal = seal_segment,
    .detach = detach_segment,
    .find_dead = NULL,
    .close = close_user,
};

static shoal_status create_world(int32_t ranks, const struct shoali_slots_host *world_host,
                                 struct shoal_thread_world **out)
{
    shoal_status status = SHOAL_OK;
    struct shoal_thread_world *threads = NULL;
    int32_t world_rank[SHOALI_MAX_RANKS];
    *out = NULL;
    if (ranks < 1 || ranks > SHOALI_MAX_RANKS)
        return SHOAL_FAIL(SHOAL_EINVAL, "shoal_thread_world takes 1 to %d ranks, not %d",
                          SHOALI_MAX_RANKS, (int)ranks);
    threads = shoali_calloc(1, sizeof(*threads), "a shoal_thread_world");
    if (!threads)
        return SHOAL_ENOMEM;
    threads->ranks = ranks;
    threads->host = world_host;
    pthread_mutex_init(&threads->lock, NULL);
    SHOAL_TRY(
        status,
        create_segment(threads, shoali_world_bytes() + shoali_group_bytes(ranks), &threads->shared),
        done);
    for (int32_t r = 0; r < ranks; r++)
        world_rank[r] = r;
    shoali_group_format((unsigned char *)threads->shared.base + shoali_world_bytes(), ranks, 0,
                        world_rank);
    *out = threads;
    threads = NULL;
done:
    shoal_thread_world_destroy(threads);
    return status;
}

shoal_status shoal_thread_world_create(int32_t ranks, struct shoal_thread_world **world)
{
    return create_world(ranks, &host, world);
}

shoal_status shoali_thread_world_create_apart(int32_t ranks, struct shoal_thread_world **world)
{
    return create_world(ranks, &host_apart, world);
}

void shoal_thread_world_destroy(struct shoal_thread_world *threads)
{
    if (!threads)
        return;
    while (threads->nearer) {
        struct shoal_thread_world *nearer = threads->nearer;
        threads->nearer = nearer->next;
        shoal_thread_world_destroy(nearer);
    }
    if (threads->shared.base)
        detach_segment(threads, &threads->shared);
    pthread_mutex_destroy(&threads->lock);
    shoali_free(threads);
}

static bool all_have_joined(const struct shoal_thread_world *threads)
{
    const struct shoali_world_shared *shared = threads->shared.base;
    for (int32_t r = 0; r < threads->ranks; r++)
        if (!atomic_load(&shared->seat[r].joined))
            return false;
    return true;
}

static shoal_status join(struct shoali_slots_world *world, struct shoal_thread_world *threads,
                         int32_t number)
{
    if (!shoali_world_join(world->shared, world->rank, -1, number))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rank %d of this shoal_thread_world has joined before: give every thread "
                          "a rank of its own, and every run a new shoal_thread_world",
                          (int)number);
    int64_t deadline_ns = shoali_deadline_ns(world->timeout_ns);
    struct shoali_waiting waiting = {0};
    while (!all_have_joined(threads)) {
        if (shoali_deadline_passed(deadline_ns))
            return SHOAL_FAIL(SHOAL_ETIMEOUT,
                              "not all of the %d threads called shoal_comm_init within %.1f s",
                              (int)threads->ranks, (double)world->timeout_ns * 1e-9);
        if (shoali_waiting_due(&waiting, NULL))
            SHOALI_WARN("comm",
                        "rank %d has waited for %.0f s: not all of the %d threads have called "
                        "shoal_comm_init",
                        (int)number, shoali_waiting_seconds(&waiting), (int)threads->ranks);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    shoali_world_ready(world);
    return SHOAL_OK;
}

static bool probe(void)
{
    return true;
}

static shoal_status open_group(struct shoal_thread_world *threads, int32_t rank, int32_t number,
                               double timeout_s, void **backend)
{
    struct shoali_slots_world *world = NULL;
    struct shoali_slots_group *group = NULL;
    shoal_status status = SHOAL_OK;
    struct shoali_world_args world_args = {.host = threads->host,
                                           .user = threads,
                                           .segment = threads->shared,
                                           .rank = rank,
                                           .size = threads->ranks,
                                           .timeout_s = timeout_s};
    SHOAL_TRY(status, attach_segment(threads, &world_args.segment), done);
    SHOAL_TRY(status, shoali_world_create(&world_args, &world), done);
    SHOAL_TRY(status, join(world, threads, number), done);
    status = shoali_group_open(world, (unsigned char *)world->segment.base + shoali_world_bytes(),
                               &(struct shoali_segment){0}, rank, &group);
    if (status < 0) /* the others know this rank, and would wait for it */
        (void)shoali_world_abort(world, rank, status, shoal_error_message());
    *backend = group;
done:
    if (world)
        shoali_world_release(world); /* the group holds its own reference */
    return status;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    struct shoal_thread_world *threads = args->threads;
    if (!threads || args->world_size != threads->ranks)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "backend thread needs shoal_comm_args.threads, made by "
                          "shoal_thread_world_create for the %d ranks",
                          (int)args->world_size);
    return open_group(threads, args->rank, args->rank, args->timeout_s, backend);
}

/* The first rank makes the world, which the larger one keeps. */
static shoal_status create_near(const struct shoali_near_args *args, void **backend)
{
    struct shoal_thread_world *threads = args->threads, *nearer = NULL;
    unsigned char own[SHOALI_NEAR_NOTE_BYTES] = {0};
    unsigned char *notes = shoali_calloc((size_t)args->size, sizeof own, "notes of a host's ranks");
    shoal_status status = SHOAL_OK;
    if (!notes)
        return SHOAL_ENOMEM;
    if (args->rank == 0)
        status = create_world(args->size, threads->host, &nearer);
    if (nearer) {
        pthread_mutex_lock(&threads->lock);
        nearer->next = threads->nearer;
        threads->nearer = nearer;
        pthread_mutex_unlock(&threads->lock);
    }
    memcpy(own, &nearer, sizeof nearer);
    const shoal_status met = args->exchange(args->user, own, notes);
    if (status == SHOAL_OK)
        status = met;
    if (status != SHOAL_OK)
        goto done;
    memcpy(&nearer, notes, sizeof nearer);
    if (!nearer)
        status = SHOAL_FAIL(SHOAL_EPEER, "the first rank of this host has given up");
    else
        status = open_group(nearer, args->rank, args->number, args->timeout_s, backend);
done:
    shoali_free(notes);
    return status;
}

const struct shoali_comm_ops shoali_comm_thread = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "thread",
    .probe = probe,
    .device_memory = true,
    .create = create,
    .destroy = shoali_slots_destroy,
    .rank = shoali_slots_rank,
    .size = shoali_slots_size,
    .post = shoali_slots_post,
    .test = shoali_slots_test,
    .wait = shoali_slots_wait,
    .split = shoali_slots_split,
    .alloc = shoali_slots_alloc,
    .free = shoali_slots_free,
    .abort = shoali_slots_abort,
    .second_thread = shoali_slots_second_thread,
    .set_name = shoali_slots_set_name,
    .say_place = shoali_slots_say_place,
    .verdict = shoali_slots_verdict,
    .relay = shoali_slots_relay,
    .create_near = create_near,
    .watch = shoali_slots_watch,
};
