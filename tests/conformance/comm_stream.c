/* Posts on streams of a device: of `cpu`, where they are made at once, and of `sim`, whose memory
 * the host cannot touch. */
#include "comm_data.h"
#include "comm_suite.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAMS = 2, COUNT = 3000 };

/* A rank's device. */
struct rig {
    struct shoali_device *device;
    struct shoali_device_stream *stream[STREAMS];
    struct shoali_event *event;
};

static bool open_rig(struct rank_seat *seat, const char *name, struct rig *rig)
{
    const struct shoali_accelerator *accelerator = NULL;
    *rig = (struct rig){0};
    EXPECT(shoali_accelerator_select(name, &accelerator) == SHOAL_OK);
    EXPECT(shoali_device_create(accelerator, 0, NULL, &rig->device) == SHOAL_OK);
    for (int i = 0; i < STREAMS; i++)
        EXPECT(shoali_stream_create(rig->device, &rig->stream[i]) == SHOAL_OK);
    EXPECT(shoali_event_create(rig->device, &rig->event) == SHOAL_OK);
    return true;
}

static void close_rig(struct rig *rig)
{
    shoali_event_destroy(rig->event);
    for (int i = 0; i < STREAMS; i++)
        shoali_stream_destroy(rig->stream[i]);
    shoali_device_destroy(rig->device);
}

static struct shoali_device_counters counters_of(const struct rig *rig)
{
    struct shoali_device_counters counters;
    shoali_device_get_counters(rig->device, &counters);
    return counters;
}

/* The second stream goes on after the first, or the first after the second. */
static shoal_status join_streams(struct rig *rig, int from)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_event_record(rig->event, rig->stream[from]), done);
    SHOAL_TRY(status, shoali_stream_wait_event(rig->stream[1 - from], rig->event), done);
done:
    return status;
}

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static bool takes_device_memory(const struct rank_seat *seat)
{
    return strcmp(shoal_comm_backend(seat->group), "hierarchical") != 0 &&
           (seat->ranks->kind == RANKS_SELF || seat->ranks->kind == RANKS_THREAD ||
            seat->ranks->kind == RANKS_APART || seat->ranks->kind == RANKS_MPI ||
            seat->ranks->kind == RANKS_UCX);
}

/* ---- memory -------------------------------------------------------------------------------- */

static bool check_memory(struct rank_seat *seat, const char *name)
{
    enum { LARGE = 30000 };
    struct rig rig;
    void *memory[2];
    float *host = malloc(sizeof(float) * LARGE);
    EXPECT(host && open_rig(seat, name, &rig));
    for (int i = 0; i < 2; i++)
        EXPECT(shoali_comm_device_alloc(SHOAL_HERE, seat->group, rig.stream[0],
                                        sizeof(float) * LARGE, &memory[i]) == SHOAL_OK);
    EXPECT(counters_of(&rig).allocated_bytes == 2 * (int64_t)sizeof(float) * LARGE);
    EXPECT(shoali_download(rig.stream[0], host, memory[0], sizeof(float) * LARGE) == SHOAL_OK);
    for (int32_t i = 0; i < LARGE; i++)
        EXPECT(host[i] == 0);
    data_fill(SHOAL_F32, 3, seat->rank, 0, LARGE, host);
    EXPECT(shoali_upload(rig.stream[0], memory[0], host, sizeof(float) * LARGE) == SHOAL_OK);
    const struct shoali_post post = {.kind = SHOALI_ALL_REDUCE,
                                     .here = SHOAL_HERE,
                                     .in = memory[0],
                                     .out = memory[1],
                                     .count = LARGE,
                                     .dtype = SHOAL_F32,
                                     .op = SHOAL_SUM};
    EXPECT(shoali_comm_post_on(seat->group, rig.stream[0], &post) == SHOAL_OK);
    EXPECT(shoali_download(rig.stream[0], host, memory[1], sizeof(float) * LARGE) == SHOAL_OK);
    if (!suite_is_reduction(seat, SHOAL_F32, SHOAL_SUM, 3, 0, LARGE, host))
        return false;
    for (int i = 0; i < 2; i++)
        shoali_comm_device_free(seat->group, rig.device, memory[i]);
    EXPECT(counters_of(&rig).allocated_bytes == 0);
    close_rig(&rig);
    free(host);
    return true;
}

bool suite_stream_memory(struct rank_seat *seat)
{
    return check_memory(seat, "cpu") && check_memory(seat, "sim");
}

/* ---- a random program ---------------------------------------------------------------------- */

enum { STEPS = 14 };

/* One post, its data on the way to the device and back. */
struct step {
    enum shoali_collective kind;
    shoal_dtype dtype;
    int64_t count, in_count, out_count;
    uint64_t seed;
    int32_t root;
    int64_t send[64], recv[64];
    char *pinned_in, *pinned_out;
};

static int64_t uneven(uint64_t seed, int32_t from, int32_t to, int64_t count)
{
    const uint64_t bits = data_mix(seed * 64 + (uint64_t)from * 8 + (uint64_t)to);
    return bits % 4 == 0 ? 0 : (int64_t)(bits / 4 % (uint64_t)(count + 1));
}

static void draw_step(const struct rank_seat *seat, uint64_t number, struct step *step)
{
    static const enum shoali_collective kinds[] = {
        SHOALI_ALL_REDUCE,   SHOALI_REDUCE_SCATTER, SHOALI_ALL_GATHER, SHOALI_BROADCAST,
        SHOALI_ALL_TO_ALL_V, SHOALI_ALL_TO_ALL,     SHOALI_BARRIER};
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_I64, SHOAL_U8};
    const uint64_t bits = data_mix(seat->ranks->seed * 1000 + number);
    const int32_t n = seat->size;
    *step = (struct step){.kind = kinds[bits % 7],
                          .dtype = dtypes[bits / 7 % 4],
                          .count = (int64_t)(bits >> 16) % COUNT + 1,
                          .seed = bits >> 8,
                          .root = (int32_t)((bits >> 40) % (uint64_t)n)};
    for (int32_t r = 0; r < n; r++) {
        step->send[r] = uneven(step->seed, seat->rank, r, step->count);
        step->recv[r] = uneven(step->seed, r, seat->rank, step->count);
    }
    const struct shoali_post post = {.kind = step->kind,
                                     .count = step->count,
                                     .dtype = SHOAL_U8,
                                     .send_counts = step->send,
                                     .recv_counts = step->recv};
    step->in_count = (int64_t)shoali_post_in_bytes(&post, n);
    step->out_count = (int64_t)shoali_post_out_bytes(&post, n);
}

/* Sends: element i of what rank r is given is element r * count + i of the sender. */
static bool check_step(struct rank_seat *seat, const struct step *step)
{
    const size_t bytes = shoal_dtype_bytes(step->dtype);
    const int64_t count = step->count;
    int64_t at = 0;
    switch (step->kind) {
    case SHOALI_ALL_REDUCE:
        return suite_is_reduction(seat, step->dtype, SHOAL_SUM, step->seed, 0, count,
                                  step->pinned_out);
    case SHOALI_REDUCE_SCATTER:
        return suite_is_reduction(seat, step->dtype, SHOAL_SUM, step->seed, seat->rank * count,
                                  count, step->pinned_out);
    case SHOALI_BROADCAST:
        return suite_is_data(seat, step->dtype, step->seed, step->root, 0, count, step->pinned_out);
    case SHOALI_BARRIER:
        return true;
    default:
        break;
    }
    for (int32_t r = 0; r < seat->size; r++) {
        int64_t first = step->kind == SHOALI_ALL_GATHER ? 0 : seat->rank * count, n = count;
        if (step->kind == SHOALI_ALL_TO_ALL_V) {
            n = step->recv[r];
            first = 0;
            for (int32_t to = 0; to < seat->rank; to++)
                first += uneven(step->seed, r, to, count);
        }
        if (!suite_is_data(seat, step->dtype, step->seed, r, first, n,
                           step->pinned_out + (size_t)at * bytes))
            return false;
        at += n;
    }
    return true;
}

/* Everything of a step goes into the stream; the host waits for nothing. What the post points to is
 * gone when it runs. */
static shoal_status run_step(struct rank_seat *seat, struct shoali_device_stream *stream,
                             struct step *step, char *in, char *out)
{
    shoal_status status = SHOAL_OK;
    const size_t bytes = shoal_dtype_bytes(step->dtype);
    char here[] = "a stream's program:1";
    int64_t send[64], recv[64];
    memcpy(send, step->send, sizeof send);
    memcpy(recv, step->recv, sizeof recv);
    struct shoali_post post = {.kind = step->kind,
                               .here = here,
                               .in = in,
                               .out = step->kind == SHOALI_BROADCAST ? in : out,
                               .count = step->kind == SHOALI_ALL_TO_ALL_V ? 0 : step->count,
                               .dtype = step->dtype,
                               .op = SHOAL_SUM,
                               .peer = step->root,
                               .send_counts = send,
                               .recv_counts = recv};
    if (step->kind != SHOALI_BROADCAST)
        post.peer = 0;
    if (step->in_count > 0)
        SHOAL_TRY(status,
                  shoali_copy(stream, in, step->pinned_in, (size_t)step->in_count * bytes,
                              SHOALI_HOST_TO_DEVICE),
                  done);
    SHOAL_TRY(status, shoali_comm_post_on(seat->group, stream, &post), done);
    memset(here, 'x', sizeof here);
    memset(send, 0xee, sizeof send);
    memset(recv, 0xee, sizeof recv);
    if (step->out_count > 0)
        SHOAL_TRY(status,
                  shoali_copy(stream, step->pinned_out, post.out, (size_t)step->out_count * bytes,
                              SHOALI_DEVICE_TO_HOST),
                  done);
done:
    return status;
}

static bool check_program(struct rank_seat *seat, const char *name)
{
    static _Thread_local struct step steps[STEPS];
    const size_t most = (size_t)COUNT * 8 * (size_t)seat->size;
    struct rig rig;
    void *device[STREAMS][2];
    int now = 0;
    EXPECT(open_rig(seat, name, &rig));
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < 2; i++)
            EXPECT(shoali_comm_device_alloc(SHOAL_HERE, seat->group, rig.stream[s], most,
                                            &device[s][i]) == SHOAL_OK);
    EXPECT(join_streams(&rig, 1) == SHOAL_OK); /* both have their memory cleared */
    int64_t pinned = 0;
    for (uint64_t i = 0; i < STEPS; i++) {
        void *memory[2];
        draw_step(seat, i, &steps[i]);
        for (int k = 0; k < 2; k++)
            EXPECT(shoali_device_host_alloc(rig.device, most, &memory[k]) == SHOAL_OK);
        steps[i].pinned_in = memory[0];
        steps[i].pinned_out = memory[1];
        pinned += 2 * (int64_t)most;
        data_fill(steps[i].dtype, steps[i].seed, seat->rank, 0, steps[i].in_count, memory[0]);
    }
    const struct shoali_device_counters before = counters_of(&rig);
    for (uint64_t i = 0; i < STEPS; i++) {
        if (data_mix(seat->ranks->seed + i) % 3 == 0) {
            EXPECT(join_streams(&rig, now) == SHOAL_OK);
            now = 1 - now;
        }
        EXPECT(run_step(seat, rig.stream[now], &steps[i], device[now][0], device[now][1]) ==
               SHOAL_OK);
    }
    EXPECT(counters_of(&rig).host_sync_count == before.host_sync_count);
    EXPECT(join_streams(&rig, now) == SHOAL_OK);
    EXPECT(shoali_stream_synchronize(rig.stream[1 - now]) == SHOAL_OK);
    for (int i = 0; i < STEPS; i++)
        if (!check_step(seat, &steps[i])) {
            fprintf(stderr, "%s of %lld %s, step %d of the program of seed %llu on %s\n",
                    shoali_collective_name(steps[i].kind), (long long)steps[i].count,
                    shoal_dtype_name(steps[i].dtype), i, (unsigned long long)seat->ranks->seed,
                    name);
            return false;
        }
    /* Copies through pinned memory where, and only where, the backend cannot reach the device's. */
    const bool staged = strcmp(name, "sim") == 0 && !takes_device_memory(seat);
    EXPECT((counters_of(&rig).host_peak_bytes > pinned) == staged);
    for (int i = 0; i < STEPS; i++) {
        shoali_device_host_free(rig.device, steps[i].pinned_in);
        shoali_device_host_free(rig.device, steps[i].pinned_out);
    }
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < 2; i++)
            shoali_comm_device_free(seat->group, rig.device, device[s][i]);
    close_rig(&rig);
    return true;
}

bool suite_stream_program(struct rank_seat *seat)
{
    return check_program(seat, "cpu") && check_program(seat, "sim");
}

/* ---- order --------------------------------------------------------------------------------- */

static shoal_status add_up(struct rank_seat *seat, struct shoali_device_stream *stream, int32_t *x,
                           shoal_group *group)
{
    (void)seat;
    return shoali_comm_post_on(group, stream,
                               &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                     .here = SHOAL_HERE,
                                                     .in = x,
                                                     .out = x,
                                                     .count = COUNT,
                                                     .dtype = SHOAL_I32,
                                                     .op = SHOAL_SUM});
}

/* One group's posts on two streams that nothing else orders, and the host's own among them; the
 * second stream is waited for first. */
bool suite_stream_order(struct rank_seat *seat)
{
    struct rig rig;
    int32_t *x[STREAMS], sum = seat->rank, value[COUNT];
    shoal_group *child = NULL;
    void *memory;
    EXPECT(open_rig(seat, "sim", &rig));
    for (int s = 0; s < STREAMS; s++) {
        EXPECT(shoali_device_alloc(rig.device, sizeof value, &memory) == SHOAL_OK);
        EXPECT(shoali_fill(rig.stream[s], memory, 0, sizeof value) == SHOAL_OK);
        EXPECT(shoali_fill(rig.stream[s], memory, (uint8_t)(s + 1), 1) == SHOAL_OK);
        x[s] = memory;
    }
    for (int i = 0; i < 6; i++) {
        EXPECT(add_up(seat, rig.stream[i % 2], x[i % 2], seat->group) == SHOAL_OK);
        if (i == 3) { /* of the host, which waits for those before */
            EXPECT(shoal_all_reduce(seat->group, &sum, &sum, 1, SHOAL_I32, SHOAL_SUM, NULL) ==
                   SHOAL_OK);
            EXPECT(shoal_comm_split(seat->group, 0, seat->rank, &child) == SHOAL_OK);
        }
        if (child)
            EXPECT(add_up(seat, rig.stream[i % 2], x[i % 2], child) == SHOAL_OK);
    }
    EXPECT(sum == seat->size * (seat->size - 1) / 2);
    for (int s = STREAMS - 1; s >= 0; s--) {
        int32_t expected = s + 1, times = s == 0 ? 4 : 5;
        EXPECT(shoali_download(rig.stream[s], value, x[s], sizeof value) == SHOAL_OK);
        for (int i = 0; i < times; i++)
            expected = (int32_t)((uint32_t)expected * (uint32_t)seat->size);
        EXPECT(value[0] == expected && value[1] == 0 && value[COUNT - 1] == 0);
        shoali_device_free(rig.device, x[s]);
    }
    shoal_comm_destroy(child);
    close_rig(&rig);
    return true;
}

/* ---- beside -------------------------------------------------------------------------------- */

bool suite_stream_beside(struct rank_seat *seat)
{
    enum { POSTS = SHOALI_COMM_SIDE_DEPTH, ROUNDS = 3 };
    static const char *const names[] = {"cpu", "sim"};
    for (int a = 0; a < 2; a++) {
        struct rig rig;
        struct shoali_comm_side side = {0};
        struct shoali_comm_pending pending[POSTS + 1] = {{0}};
        char *memory;
        uint8_t value[POSTS][2];
        EXPECT(open_rig(seat, names[a], &rig));
        EXPECT(shoali_device_alloc(rig.device, sizeof value, (void **)&memory) == SHOAL_OK);
        for (int round = 0; round < ROUNDS; round++) {
            EXPECT(shoali_fill(rig.stream[0], memory, 1, sizeof value) == SHOAL_OK);
            for (int i = 0; i < POSTS; i++) {
                struct shoali_post post = {.kind = SHOALI_ALL_REDUCE,
                                           .here = SHOAL_HERE,
                                           .in = memory + i * 2,
                                           .out = memory + i * 2 + 1,
                                           .count = 1,
                                           .dtype = SHOAL_U8,
                                           .op = SHOAL_SUM};
                EXPECT(shoali_comm_post_beside(seat->group, rig.stream[0], &side, &post,
                                               &pending[i]) == SHOAL_OK);
                EXPECT(shoali_comm_pending_test(&pending[i]) >= 0);
                if (i < POSTS - 1 || a == 0)
                    continue;
                EXPECT(shoali_comm_post_beside(seat->group, rig.stream[0], &side, &post,
                                               &pending[POSTS]) == SHOAL_EINVAL);
                EXPECT(says("16 posts outside the stream are pending"));
            }
            for (int i = POSTS - 1; i >= 0; i--) {
                EXPECT(shoali_comm_pending_wait(&pending[i], rig.stream[0]) == SHOAL_OK);
                EXPECT(shoali_comm_pending_wait(&pending[i], rig.stream[0]) == SHOAL_OK);
            }
            EXPECT(shoali_download(rig.stream[0], value, memory, sizeof value) == SHOAL_OK);
            for (int i = 0; i < POSTS; i++)
                EXPECT(value[i][0] == 1 && value[i][1] == seat->size);
        }
        shoali_comm_side_fini(&side);
        shoali_device_free(rig.device, memory);
        close_rig(&rig);
    }
    return true;
}

/* ---- a host that is elsewhere -------------------------------------------------------------- */

/* Rank 0 looks at the result before it comes to the barrier; the others come to the barrier before
 * they look. Legal, because a device's streams go on while its host waits for something else. */
bool suite_stream_elsewhere(struct rank_seat *seat)
{
    struct rig rig;
    shoal_group *child = NULL;
    int32_t *x, value[COUNT];
    void *memory;
    EXPECT(open_rig(seat, "sim", &rig));
    EXPECT(shoal_comm_split(seat->group, 0, seat->rank, &child) == SHOAL_OK);
    EXPECT(shoali_device_alloc(rig.device, sizeof value, &memory) == SHOAL_OK);
    x = memory;
    EXPECT(shoali_fill(rig.stream[0], x, 1, sizeof value) == SHOAL_OK);
    EXPECT(add_up(seat, rig.stream[0], x, seat->group) == SHOAL_OK);
    if (seat->rank > 0)
        EXPECT(shoal_barrier(child) == SHOAL_OK);
    EXPECT(shoali_download(rig.stream[0], value, x, sizeof value) == SHOAL_OK);
    EXPECT(value[COUNT - 1] == 0x01010101 * seat->size);
    if (seat->rank == 0)
        EXPECT(shoal_barrier(child) == SHOAL_OK);
    shoali_device_free(rig.device, x);
    shoal_comm_destroy(child);
    close_rig(&rig);
    return true;
}

/* ---- mistakes and failures ------------------------------------------------------------------ */

bool suite_stream_arguments(struct rank_seat *seat)
{
    struct rig rig;
    shoal_request *request = NULL;
    void *memory;
    float data = 1;
    EXPECT(open_rig(seat, "sim", &rig));
    EXPECT(shoali_device_alloc(rig.device, 40, &memory) == SHOAL_OK);
    struct shoali_post post = {.kind = SHOALI_ALL_REDUCE,
                               .here = "a.c:1",
                               .in = memory,
                               .out = NULL,
                               .count = 4,
                               .dtype = SHOAL_F32};
    EXPECT(shoali_comm_post_on(seat->group, rig.stream[0], &post) == SHOAL_EINVAL);
    EXPECT(says("all_reduce at a.c:1") && says("the receiving buffer is NULL"));
    if (seat->size > 1) {
        post.out = memory;
        const int32_t to = (seat->rank + seat->size - 1) % seat->size;
        EXPECT(shoal_recv(seat->group, &data, 1, SHOAL_F32, (seat->rank + 1) % seat->size,
                          &request) == SHOAL_OK);
        EXPECT(shoali_comm_post_on(seat->group, rig.stream[0], &post) == SHOAL_EINVAL);
        EXPECT(says("all_reduce at a.c:1 goes into a stream while a request of this group"));
        EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        EXPECT(shoal_send(seat->group, &(float){3}, 1, SHOAL_F32, to, NULL) == SHOAL_OK);
        EXPECT(shoal_request_wait(&request) == SHOAL_OK && data == 3);
    }
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    /* The others would wait for a post that was refused on its way. */
    post.in = post.out = memory;
    post.count = 11;
    EXPECT(shoali_comm_post_on(seat->group, rig.stream[0], &post) == SHOAL_EINVAL);
    EXPECT(takes_device_memory(seat) ? says("task all_reduce: its first buffer needs 44 bytes")
                                     : says("44 bytes of the source"));
    shoali_device_free(rig.device, memory);
    close_rig(&rig);
    return true;
}

/* Two posts; every call to the device says what became of them. */
static bool fails(struct rank_seat *seat, struct rig *rig, int32_t *x, shoal_status expected,
                  const char *sentence)
{
    (void)!add_up(seat, rig->stream[0], x, seat->group);
    (void)!add_up(seat, rig->stream[0], x, seat->group);
    EXPECT(shoali_stream_synchronize(rig->stream[0]) == expected && says(sentence));
    shoali_error_clear();
    EXPECT(shoali_fill(rig->stream[1], x, 0, 4) == expected && says(sentence));
    shoali_error_clear();
    EXPECT(shoali_stream_synchronize(rig->stream[1]) == expected && says(sentence));
    shoali_error_clear();
    EXPECT(add_up(seat, rig->stream[0], x, seat->group) == expected && says(sentence));
    shoali_error_clear();
    EXPECT(shoal_barrier(seat->group) < 0);
    shoali_device_free(rig->device, x);
    return true;
}

static bool open_failing(struct rank_seat *seat, struct rig *rig, int32_t **x)
{
    void *memory;
    EXPECT(open_rig(seat, "sim", rig));
    EXPECT(shoali_device_alloc(rig->device, sizeof(int32_t) * COUNT, &memory) == SHOAL_OK);
    EXPECT(shoali_fill(rig->stream[0], memory, 0, sizeof(int32_t) * COUNT) == SHOAL_OK);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    *x = memory;
    return true;
}

bool suite_stream_abort(struct rank_seat *seat)
{
    const int32_t last = seat->size - 1;
    struct rig rig;
    int32_t *x;
    char expected[64];
    snprintf(expected, sizeof(expected), "rank %d failed: the disk of x%d is full", (int)last, 7);
    if (!open_failing(seat, &rig, &x))
        return false;
    if (seat->rank == last) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        shoal_comm_abort(seat->group, SHOAL_FAIL(SHOAL_EIO, "the disk of x%d is full", 7));
        if (!fails(seat, &rig, x, SHOAL_EIO, "the disk of x7 is full"))
            return false;
    } else if (!fails(seat, &rig, x, SHOAL_EPEER, expected)) {
        return false;
    }
    close_rig(&rig);
    return true;
}

bool suite_stream_timeout(struct rank_seat *seat)
{
    struct rig rig;
    int32_t *x;
    if (!open_failing(seat, &rig, &x))
        return false;
    if (seat->rank == 0 && !fails(seat, &rig, x, SHOAL_ETIMEOUT, "rank 1 did not come within 1.0"))
        return false;
    if (seat->rank == 1) {
        nanosleep(&(struct timespec){2, 0}, NULL);
        EXPECT(shoal_barrier(seat->group) == SHOAL_ETIMEOUT);
    }
    close_rig(&rig);
    return true;
}

/* Each post of one rank is another one's barrier. */
bool suite_stream_mismatch(struct rank_seat *seat)
{
    struct rig rig;
    int32_t *x;
    if (!open_failing(seat, &rig, &x))
        return false;
    if (seat->rank == 1)
        EXPECT(shoal_barrier(seat->group) == SHOAL_EMISMATCH);
    else if (!fails(seat, &rig, x, SHOAL_EMISMATCH,
                    seat->host ? " posted all_reduce of 3000 I32"
                               : "rank 0 posted all_reduce of 3000 I32"))
        return false;
    EXPECT(seat->rank != 1 || says("rank 1 posted barrier at"));
    close_rig(&rig);
    return true;
}

/* Faults are armed for a thread. In `thread` mode that is never the one that posts, else seldom:
 * when the host was away so long that the device's thread did it. */
bool suite_stream_fault_points(struct rank_seat *seat)
{
    const char *mode = getenv("SHOAL_SIM_STREAMS");
    static const char *const points[] = {"comm.post", "comm.wait"};
    struct rig rig;
    int32_t *x;
    const char *point = points[seat->ranks->seed % 2];
    char expected[96];
    if (mode && strcmp(mode, "thread") == 0)
        return true;
    if (!open_failing(seat, &rig, &x))
        return false;
    snprintf(expected, sizeof expected, "rank 1 failed: fault point %s", point);
    EXPECT(seat->rank != 1 || shoali_fault_arm(point));
    const char *of_1 = strchr(expected, ':') + 2;
    shoal_status status = SHOAL_OK;
    for (int i = 0; i < 100 && status == SHOAL_OK; i++) {
        (void)!add_up(seat, rig.stream[0], x, seat->group);
        status = shoali_stream_synchronize(rig.stream[0]);
    }
    if (!fails(seat, &rig, x, seat->rank == 1 ? SHOAL_EIO : SHOAL_EPEER,
               seat->rank == 1 ? of_1 : expected))
        return false;
    EXPECT(shoali_fault_arm(NULL));
    close_rig(&rig);
    return true;
}

/* The group is left, then the device; and the other way round. Each stream has memory of its
 * own. */
bool suite_stream_leaves(struct rank_seat *seat)
{
    for (int first = 0; first < 2; first++) {
        struct rig rig;
        shoal_group *child = NULL;
        int32_t *x;
        void *memory;
        EXPECT(open_rig(seat, "sim", &rig));
        EXPECT(shoal_comm_split(seat->group, 0, seat->rank, &child) == SHOAL_OK);
        EXPECT(shoali_device_alloc(rig.device, sizeof(int32_t) * 2 * COUNT, &memory) == SHOAL_OK);
        x = memory;
        for (int i = 0; i < 4; i++)
            EXPECT(add_up(seat, rig.stream[i % 2], x + i % 2 * COUNT, child) == SHOAL_OK);
        shoali_device_free(rig.device, x);
        if (first == 0)
            shoal_comm_destroy(child);
        close_rig(&rig);
        if (first == 1)
            shoal_comm_destroy(child);
    }
    return true;
}
