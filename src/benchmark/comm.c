/* comm.c - collectives over message sizes, by the ranks of a job or by threads. */
#include "benchmark/comm.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages that caches hold cost round trips, larger ones cost bandwidth. */
#define CACHED_BYTES ((double)(1 << 20))
#define AXPY_COUNT ((int64_t)32 << 20) /* elements of each array, all ranks together */

static const struct shoali_bench_op ops[] = {
    {"all_reduce", SHOALI_BENCH_ALL_REDUCE}, {"reduce_scatter", SHOALI_BENCH_REDUCE_SCATTER},
    {"all_gather", SHOALI_BENCH_ALL_GATHER}, {"broadcast", SHOALI_BENCH_BROADCAST},
    {"all_to_all", SHOALI_BENCH_ALL_TO_ALL},
};

static shoal_status find_op(const char *name, const struct shoali_bench_op **op)
{
    *op = &ops[0];
    if (!name)
        return SHOAL_OK;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        *op = &ops[i];
        if (strcmp(ops[i].name, name) == 0)
            return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "bench comm: unknown op \"%s\": give all_reduce, reduce_scatter, "
                      "all_gather, broadcast or all_to_all",
                      name);
}

/* What moves through memory when all ranks do their part, every byte once: bytes is what
 * shoali_bench_comm_args calls the size. */
static double traffic_bytes(enum shoali_bench_collective kind, double bytes, double ranks)
{
    switch (kind) {
    case SHOALI_BENCH_ALL_REDUCE:
    case SHOALI_BENCH_ALL_TO_ALL:
        return 2 * ranks * bytes;
    case SHOALI_BENCH_REDUCE_SCATTER:
    case SHOALI_BENCH_ALL_GATHER:
        return (ranks + 1) * bytes;
    default:
        return ranks * bytes;
    }
}

/* Of nccl-tests: busbw = algbw * factor is comparable over numbers of ranks. */
static double bus_factor(enum shoali_bench_collective kind, double ranks)
{
    switch (kind) {
    case SHOALI_BENCH_ALL_REDUCE:
        return 2 * (ranks - 1) / ranks;
    case SHOALI_BENCH_BROADCAST:
        return 1;
    default:
        return (ranks - 1) / ranks;
    }
}

/* Microseconds of one pass of axpy by this rank, all ranks at once. */
static shoal_status axpy_pass(const struct shoali_bench_rank *self, double *us)
{
    shoal_status status;
    SHOAL_TRY(status, shoal_barrier(self->group), done);
    *us = 12e-3 * (double)self->axpy_count /
          shoali_limit_axpy(NULL, self->x, self->y, self->axpy_count);
done:
    return status;
}

/* How many calls fill a sample: rank 0's word. */
static shoal_status agree_on_calls(const struct shoali_bench_rank *self,
                                   const struct shoali_bench_message *message, int32_t *calls)
{
    shoal_status status;
    double each = INFINITY;
    for (int i = 0; i < 3;
         i++) { /* the shortest: another process may have had the core meanwhile */
        SHOAL_TRY(status, shoal_barrier(self->group), done);
        const double start = shoali_seconds();
        SHOAL_TRY(status, shoali_bench_collect(self, message), done);
        each = fmin(each, shoali_seconds() - start);
    }
    const double fit = self->run->seconds / self->run->repeats / (each > 1e-7 ? each : 1e-7);
    *calls = fit < 1 ? 1 : fit > 1e6 ? 1000000 : (int32_t)fit;
    SHOAL_TRY(status, shoal_broadcast(self->group, calls, 1, SHOAL_I32, 0, NULL), done);
done:
    return status;
}

/* times[i]: microseconds of a call in sample i; times[repeats + i]: of a pass of axpy. */
static shoal_status take_samples(const struct shoali_bench_rank *self,
                                 const struct shoali_bench_message *message, double *times)
{
    const int32_t repeats = self->run->repeats;
    int32_t calls;
    shoal_status status;
    SHOAL_TRY(status, agree_on_calls(self, message, &calls), done);
    for (int32_t i = 0; i < repeats; i++) {
        SHOAL_TRY(status, axpy_pass(self, &times[repeats + i]), done);
        SHOAL_TRY(status, shoal_barrier(self->group), done);
        const double start = shoali_seconds();
        for (int32_t call = 0; call < calls; call++)
            SHOAL_TRY(status, shoali_bench_collect(self, message), done);
        times[i] = (shoali_seconds() - start) * 1e6 / calls;
    }
    SHOAL_TRY(status,
              shoal_all_reduce(self->group, times, times, 2 * repeats, SHOAL_F64, SHOAL_MAX, NULL),
              done);
done:
    return status;
}

/* Rank 0 sends a cache line to and fro; the others sleep in the barrier. */
static shoal_status round_trip(const struct shoali_bench_rank *self, double *us)
{
    *us = self->rank == 0 ? shoali_limit_round_trip() : 0;
    return shoal_barrier(self->group);
}

static shoal_status emit(const struct shoali_bench_rank *self,
                         const struct shoali_bench_message *message, const double *times,
                         const double *trips)
{
    const int32_t repeats = self->run->repeats;
    const double bytes = (double)message->bytes, ranks = self->ranks;
    const double traffic = traffic_bytes(self->op->kind, bytes, ranks);
    struct shoali_samples figure = {.count = 0}, limit = {.count = 0};
    char name[128];
    for (int32_t i = 0; i < repeats; i++) {
        const double axpy = 12 * (double)self->axpy_count * ranks / times[repeats + i];
        shoali_samples_add(&figure, times[i]);
        shoali_samples_add(&limit, traffic > CACHED_BYTES ? traffic / axpy
                                   : trips[0] < trips[1]  ? trips[0]
                                                          : trips[1]);
    }
    const double algbw = bytes * 1e-3 / shoali_samples_median(&figure);
    const shoali_bench_value values[] = {
        {"size", "B", bytes},
        {"algbw", "GB/s", algbw},
        {"busbw", "GB/s", algbw * bus_factor(self->op->kind, ranks)},
        {"round trip before", "us", trips[0]},
        {"round trip after", "us", trips[1]}};
    snprintf(name, sizeof name, "%s %s %lld B, %d ranks (%s)", self->op->name,
             shoal_dtype_name(self->args->dtype), (long long)message->bytes, (int)self->ranks,
             shoal_comm_backend(self->group));
    shoali_bench_result result = {.bench = "comm",
                                  .name = name,
                                  .unit = "us",
                                  .limit_name = traffic > CACHED_BYTES
                                                    ? "bytes through memory at axpy speed"
                                                    : "cache-line round trip",
                                  .values = values,
                                  .value_count = 5};
    return shoali_bench_emit(self->run, &result, &figure, &limit);
}

static shoal_status measure(const struct shoali_bench_rank *self, int64_t bytes)
{
    struct shoali_bench_message message;
    double times[2 * SHOALI_SAMPLES_MAX] = {0}, trips[2];
    shoal_status status;
    shoali_bench_message_init(self, bytes, &message);
    SHOAL_TRY(status, shoali_bench_check(self, &message), done);
    SHOAL_TRY(status, round_trip(self, &trips[0]), done);
    SHOAL_TRY(status, take_samples(self, &message, times), done);
    SHOAL_TRY(status, round_trip(self, &trips[1]), done);
    if (self->rank == 0)
        SHOAL_TRY(status, emit(self, &message, times, trips), done);
done:
    return status;
}

static shoal_status allocate(struct shoali_bench_rank *self, int64_t max_bytes)
{
    const int64_t element = (int64_t)shoal_dtype_bytes(self->args->dtype);
    const int64_t count = max_bytes / element + self->ranks; /* at least an element per rank */
    void *x = NULL, *y = NULL;
    shoal_status status;
    if (self->args->unshared) {
        SHOAL_TRY(status, shoali_bench_numbers(count, self->args->dtype, &self->in), done);
        SHOAL_TRY(status, shoali_bench_numbers(count, self->args->dtype, &self->out), done);
    } else {
        const size_t bytes = (size_t)(count * element);
        SHOAL_TRY(status, shoal_comm_alloc(self->group, bytes, &self->in), done);
        SHOAL_TRY(status, shoal_comm_alloc(self->group, bytes, &self->out), done);
    }
    /* Where only round trips are the limit, axpy need not be slow. */
    const bool cached =
        traffic_bytes(self->op->kind, (double)max_bytes, self->ranks) <= CACHED_BYTES;
    self->axpy_count = (cached ? AXPY_COUNT / 1024 : AXPY_COUNT) / self->ranks;
    SHOAL_TRY(status, shoali_bench_numbers(self->axpy_count, SHOAL_F32, &x), done);
    self->x = x;
    SHOAL_TRY(status, shoali_bench_numbers(self->axpy_count, SHOAL_F32, &y), done);
    self->y = y;
done:
    return status;
}

/* With the defaults of what was left open. */
static shoal_status complete(const shoali_bench_comm_args *given, shoali_bench_comm_args *args)
{
    const struct shoali_bench_op *op;
    *args = *given;
    args->min_bytes = given->min_bytes ? given->min_bytes : 4096;
    args->max_bytes = given->max_bytes ? given->max_bytes : (int64_t)64 << 20;
    args->step_factor = given->step_factor ? given->step_factor : 4;
    if (args->ranks < 0 || args->ranks > 1024)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench comm: --ranks is %d: give 2 to 1024",
                          (int)args->ranks);
    if (args->min_bytes < 1 || args->max_bytes < args->min_bytes)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench comm: no message size lies from %lld to %lld bytes: give "
                          "--min-bytes of at least 1 and at most --max-bytes",
                          (long long)args->min_bytes, (long long)args->max_bytes);
    if (args->step_factor < 2)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench comm: --step-factor is %lld: give at least 2",
                          (long long)args->step_factor);
    if (args->dtype != SHOAL_F32 && args->dtype != SHOAL_BF16 && args->dtype != SHOAL_F16)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench comm: type %s is not supported: give f32, bf16 or "
                          "f16",
                          shoal_dtype_name(args->dtype));
    return find_op(args->op, &op);
}

static shoal_status bench_rank(const shoali_bench_comm_args *args, const shoali_bench_run *run,
                               shoal_group *group)
{
    const int64_t max = args->max_bytes, factor = args->step_factor;
    struct shoali_bench_rank self = {.args = args,
                                     .run = run,
                                     .group = group,
                                     .rank = shoal_comm_rank(group),
                                     .ranks = shoal_comm_size(group)};
    shoal_status status;
    SHOAL_TRY(status, find_op(args->op, &self.op), done);
    if (self.ranks < 2) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "bench comm: one rank sends nothing: give --ranks N, or "
                                          "start it with shoal run --num_gpus N");
        goto done;
    }
    SHOAL_TRY(status, allocate(&self, max), done);
    for (int64_t bytes = args->min_bytes; bytes <= max;
         bytes = bytes > max / factor ? max + 1 : bytes * factor)
        SHOAL_TRY(status, measure(&self, bytes), done);
done:
    if (args->unshared) {
        free(self.in);
        free(self.out);
    } /* else the group frees them */
    free(self.x);
    free(self.y);
    return status;
}

/* ---- ranks --------------------------------------------------------------------------------- */

struct seat {
    const shoali_bench_comm_args *args;
    const shoali_bench_run *run;
    struct shoal_thread_world *world;
    int32_t rank;
    shoal_status status;
    char message[512]; /* the last error is the thread's */
    pthread_t thread;
};

static shoal_status join_and_bench(const shoali_bench_comm_args *args, const shoali_bench_run *run,
                                   const shoal_comm_args *comm)
{
    shoal_group *group = NULL;
    shoal_status status;
    SHOAL_TRY(status, shoal_comm_init(comm, &group), done);
    SHOAL_TRY(status, bench_rank(args, run, group), done);
done:
    if (status < 0 && group)
        shoal_comm_abort(group, status);
    shoal_comm_destroy(group);
    return status;
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    seat->status = join_and_bench(seat->args, seat->run,
                                  &(shoal_comm_args){.rank = seat->rank,
                                                     .world_size = seat->args->ranks,
                                                     .backend = "thread",
                                                     .threads = seat->world});
    if (seat->status < 0)
        snprintf(seat->message, sizeof seat->message, "%s", shoal_error_message());
    return NULL;
}

/* Rank 0 is the caller. */
static shoal_status bench_threads(const shoali_bench_comm_args *args, const shoali_bench_run *run)
{
    struct shoal_thread_world *world = NULL;
    struct seat *seats = NULL;
    int32_t started = 1;
    shoal_status status;
    SHOAL_TRY(status, shoal_thread_world_create(args->ranks, &world), done);
    seats = shoali_calloc((size_t)args->ranks, sizeof *seats, "the ranks");
    if (!seats) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < args->ranks; i++)
        seats[i] = (struct seat){.args = args, .run = run, .world = world, .rank = i};
    while (started < args->ranks &&
           pthread_create(&seats[started].thread, NULL, sit, &seats[started]) == 0)
        started++;
    if (started == args->ranks)
        (void)sit(&seats[0]);
    else
        seats[0].status = SHOAL_ENOMEM;
    for (int32_t i = 1; i < started; i++)
        (void)pthread_join(seats[i].thread, NULL);
    if (started < args->ranks)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "bench comm: the system gave %d of %d threads",
                            (int)started, (int)args->ranks);
    else if (seats[0].status < 0)
        status = SHOAL_FAIL(seats[0].status, "%s", seats[0].message);
done:
    shoali_free(seats);
    shoal_thread_world_destroy(world);
    return status;
}

shoal_status shoali_bench_comm(const shoali_bench_comm_args *given)
{
    shoali_bench_run run;
    shoali_bench_comm_args args;
    shoal_status status;
    SHOAL_TRY(status, complete(given, &args), done);
    SHOAL_TRY(status, shoali_bench_run_init(&args.run, &run), done);
    if (args.ranks > 0)
        SHOAL_TRY(status, bench_threads(&args, &run), done);
    else
        SHOAL_TRY(status, join_and_bench(&args, &run, &(shoal_comm_args){0}), done);
done:
    return status;
}
