/* Groups of more ranks than exchange all with all. Ranks are threads, and messages go from one to
 * the other through mailboxes in this process, which count them. */
#include "comm_mailboxes.h"

#include "base/test_cmocka.h"
#include "comm/p2p/large.h"
#include "comm/wrap/wrap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(SHOALI_TSAN)
enum { MANY = 300 }; /* it watches every pair of threads */
#else
enum { MANY = 1000 };
#endif
enum { MOST = MAILBOXES_MOST, GONE = 80, WATCHDOG_S = 120 };

static const struct shoali_comm_ops table = SHOALI_P2P_TABLE("mailboxes", NULL);

/* ---- ranks ---------------------------------------------------------------------------------- */

struct seat {
    int32_t rank, size;
    void *group; /* with check around it */
    void (*run)(struct seat *seat);
    double timeout_s;
    pthread_t thread;
    shoal_status status;
    char sentence[512];
    bool failed;
    int64_t sent;
};
static struct seat seats[MOST];

#define EXPECT(condition)                                                                         \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "rank %d: line %d: %s (%s)\n", (int)seat->rank, __LINE__, #condition, \
                    shoal_error_message());                                                       \
            seat->failed = true;                                                                  \
        }                                                                                         \
    } while (0)

static struct shoali_p2p_group *group_of(const struct seat *seat)
{
    return ((const struct shoali_wrap *)seat->group)->inner;
}

static shoal_status post(struct seat *seat, struct shoali_post post)
{
    void *request = NULL;
    if (seat->status < 0)
        return seat->status;
    if (!post.here)
        post.here = "comm_large.c:1";
    seat->status = shoali_comm_check.post(seat->group, &post, &request);
    if (seat->status == SHOAL_OK && request)
        seat->status = shoali_comm_check.wait(seat->group, request);
    snprintf(seat->sentence, sizeof seat->sentence, "%s",
             seat->status < 0 ? shoal_error_message() : "");
    return seat->status;
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    struct shoali_p2p_world *world = NULL;
    void *group = NULL;
    const struct shoali_p2p_world_args args = {.p2p = &mailboxes,
                                               .comm = port_comm(&ports[seat->rank]),
                                               .rank = seat->rank,
                                               .size = seat->size,
                                               .largest_tag = INT32_MAX,
                                               .timeout_s = seat->timeout_s};
    EXPECT(shoali_p2p_world_create(&args, &world) == SHOAL_OK);
    EXPECT(shoali_p2p_open_all(world, &group) == SHOAL_OK);
    EXPECT(shoali_wrap_create(&shoali_comm_check, &table, group, &seat->group) == SHOAL_OK);
    atomic_store(&ports[seat->rank].sent, 0);
    seat->run(seat);
    if (atomic_load(&ports[seat->rank].dead))
        return NULL; /* as a killed process leaves */
    shoali_comm_check.destroy(seat->group);
    shoali_p2p_world_release(world);
    return NULL;
}

static void run(int32_t size, double timeout_s, void (*program)(struct seat *seat))
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    ports_open(0, size);
    for (int32_t r = 0; r < size; r++) {
        seats[r] = (struct seat){.rank = r, .size = size, .run = program, .timeout_s = timeout_s};
        assert_int_equal(pthread_create(&seats[r].thread, &attributes, sit, &seats[r]), 0);
    }
    bool failed = false;
    for (int32_t r = 0; r < size; r++) {
        pthread_join(seats[r].thread, NULL);
        failed |= seats[r].failed;
    }
    ports_close(0, size);
    pthread_attr_destroy(&attributes);
    assert_false(failed);
}

/* ---- what is computed ----------------------------------------------------------------------- */

static float value_of(int32_t rank, int64_t index)
{
    return (float)((rank * 131 + (int32_t)index * 17) % 1009) / 7.0f;
}

/* In halving's order: what exceeds a power of two in pairs, then at half of it, a quarter, ... */
static float sum_of(int32_t size, int64_t index)
{
    float x[MOST];
    int32_t power = 1;
    while (power * 2 <= size)
        power *= 2;
    const int32_t rest = size - power;
    for (int32_t i = 0; i < power; i++)
        x[i] = i < rest ? value_of(2 * i, index) + value_of(2 * i + 1, index)
                        : value_of(i + rest, index);
    for (int32_t distance = power / 2; distance > 0; distance /= 2)
        for (int32_t i = 0; i < distance; i++)
            x[i] += x[i + distance];
    return x[0];
}

static void check_sums(struct seat *seat)
{
    enum { COUNT = 700 };
    float x[COUNT], y[COUNT];
    int64_t few[3];
    int32_t many[3000];
    for (int i = 0; i < COUNT; i++)
        x[i] = value_of(seat->rank, i);
    for (int i = 0; i < 3; i++)
        few[i] = seat->rank * (i + 1);
    for (int i = 0; i < 3000; i++)
        many[i] = seat->rank + i;
    const int64_t ranks = (int64_t)seat->size * (seat->size - 1) / 2;
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                           .in = few,
                                           .out = few,
                                           .count = 3,
                                           .dtype = SHOAL_I64}) == SHOAL_OK);
    EXPECT(few[0] == ranks && few[2] == 3 * ranks);
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                           .in = many,
                                           .out = many,
                                           .count = 3000,
                                           .dtype = SHOAL_I32}) == SHOAL_OK);
    EXPECT(many[0] == ranks && many[2999] == ranks + 2999 * seat->size);
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                           .in = x,
                                           .out = y,
                                           .count = COUNT,
                                           .dtype = SHOAL_F32}) == SHOAL_OK);
    EXPECT(y[0] == sum_of(seat->size, 0) && y[333] == sum_of(seat->size, 333) &&
           y[COUNT - 1] == sum_of(seat->size, COUNT - 1));
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                           .in = x,
                                           .out = y,
                                           .count = 5,
                                           .dtype = SHOAL_F32,
                                           .op = SHOAL_AVG}) == SHOAL_OK);
    EXPECT(y[4] == sum_of(seat->size, 4) * (1.0f / (float)seat->size));
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                           .in = x,
                                           .out = y,
                                           .count = 1,
                                           .dtype = SHOAL_F32,
                                           .op = SHOAL_SUM_TREE}) == SHOAL_EUNSUPPORTED ||
           seat->status == SHOAL_EPEER);
}

static void check_sums_but_trees(struct seat *seat)
{
    check_sums(seat);
    EXPECT(strstr(seat->sentence, "groups of at most 256 ranks") != NULL);
}

static void check_blocks(struct seat *seat)
{
    const int32_t size = seat->size, rank = seat->rank;
    int32_t *in = calloc((size_t)size * 4, sizeof *in),
            *out = calloc((size_t)size * 4, sizeof *out);
    float *x = calloc((size_t)size * 2, sizeof *x), y[2];
    for (int64_t i = 0; i < 2 * size; i++)
        x[i] = value_of(rank, i);
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_REDUCE_SCATTER,
                                           .in = x,
                                           .out = y,
                                           .count = 2,
                                           .dtype = SHOAL_F32}) == SHOAL_OK);
    EXPECT(y[0] == sum_of(size, 2 * rank) && y[1] == sum_of(size, 2 * rank + 1));
    for (int ring = 0; ring < 2; ring++) {
        group_of(seat)->world->forced = ring ? SHOALI_P2P_RING : -1;
        const int32_t own[2] = {rank, -rank};
        EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                               .in = own,
                                               .out = out,
                                               .count = 2,
                                               .dtype = SHOAL_I32}) == SHOAL_OK);
        for (int32_t r = 0; r < size; r++)
            EXPECT(out[2 * r] == r && out[2 * r + 1] == -r);
        memset(out, 0, (size_t)size * 4 * sizeof *out);
    }
    for (int32_t r = 0; r < size; r++)
        in[r] = rank * 1000 + r;
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_TO_ALL,
                                           .in = in,
                                           .out = out,
                                           .count = 1,
                                           .dtype = SHOAL_I32}) == SHOAL_OK);
    for (int32_t r = 0; r < size; r++)
        EXPECT(out[r] == r * 1000 + rank);
    free(in);
    free(out);
    free(x);
}

static int64_t count_of(int32_t from, int32_t to)
{
    return (from * 7 + to * 3) % 4;
}

static void check_uneven(struct seat *seat)
{
    const int32_t size = seat->size, rank = seat->rank;
    int64_t *counts = calloc(2 * (size_t)size, sizeof *counts), at = 0, *wanted = counts + size;
    int32_t *in = calloc((size_t)size * 4, sizeof *in),
            *out = calloc((size_t)size * 4, sizeof *out);
    for (int32_t r = 0; r < size; r++) {
        counts[r] = count_of(rank, r);
        wanted[r] = count_of(r, rank);
        for (int64_t i = 0; i < counts[r]; i++)
            in[at++] = rank * 10000 + r * 4 + (int32_t)i;
    }
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_TO_ALL_V,
                                           .in = in,
                                           .out = out,
                                           .dtype = SHOAL_I32,
                                           .send_counts = counts,
                                           .recv_counts = wanted}) == SHOAL_OK);
    at = 0;
    for (int32_t r = 0; r < size; r++)
        for (int64_t i = 0; i < wanted[r]; i++)
            EXPECT(out[at++] == r * 10000 + rank * 4 + (int32_t)i);
    free(counts);
    free(in);
    free(out);
}

static void check_broadcast(struct seat *seat)
{
    enum { COUNT = 50000 };
    int32_t *data = calloc(COUNT, sizeof *data);
    for (int i = 0; i < COUNT && seat->rank == seat->size - 3; i++)
        data[i] = i * 3;
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_BROADCAST,
                                           .in = data,
                                           .out = data,
                                           .count = COUNT,
                                           .peer = seat->size - 3,
                                           .dtype = SHOAL_I32}) == SHOAL_OK);
    EXPECT(data[1] == 3 && data[COUNT - 1] == 3 * (COUNT - 1));
    free(data);
}

/* Groups of a large one: three small ones, and a large one of the ranks in reverse. */
static void check_split(struct seat *seat)
{
    struct seat part = *seat;
    int32_t sum = 1, before = seat->rank;
    const int32_t next = (seat->rank + 1) % seat->size,
                  last = (seat->rank + seat->size - 1) % seat->size;
    EXPECT(shoali_comm_check.split(seat->group,
                                   &(struct shoali_split_args){
                                       .here = "comm_large.c:2", .color = seat->rank % 3, .key = 0},
                                   &part.group) == SHOAL_OK);
    EXPECT(post(&part, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                            .in = &sum,
                                            .out = &sum,
                                            .count = 1,
                                            .dtype = SHOAL_I32}) == SHOAL_OK);
    EXPECT(sum == (seat->size - seat->rank % 3 + 2) / 3);
    shoali_comm_check.destroy(part.group);
    EXPECT(shoali_comm_check.split(seat->group,
                                   &(struct shoali_split_args){
                                       .here = "comm_large.c:3", .color = 0, .key = -seat->rank},
                                   &part.group) == SHOAL_OK);
    EXPECT(shoali_comm_check.rank(part.group) == seat->size - 1 - seat->rank);
    EXPECT(post(&part, (struct shoali_post){.kind = SHOALI_BROADCAST,
                                            .in = &before,
                                            .out = &before,
                                            .count = 1,
                                            .dtype = SHOAL_I32}) == SHOAL_OK);
    EXPECT(before == seat->size - 1);
    shoali_comm_check.destroy(part.group);
    const struct shoali_post give = {.kind = SHOALI_SEND,
                                     .here = "comm_large.c:4",
                                     .in = &seat->rank,
                                     .count = 1,
                                     .peer = next,
                                     .dtype = SHOAL_I32};
    void *request = NULL;
    EXPECT(shoali_comm_check.post(seat->group, &give, &request) == SHOAL_OK);
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_RECV,
                                           .out = &before,
                                           .count = 1,
                                           .peer = last,
                                           .dtype = SHOAL_I32}) == SHOAL_OK);
    EXPECT(before == last);
    EXPECT(!request || shoali_comm_check.wait(seat->group, request) == SHOAL_OK);
}

static void test_sums(void **state)
{
    (void)state;
    run(257, 60, check_sums_but_trees);
    if (MANY > 512)
        run(512, 60, check_sums_but_trees);
}

static void all_but_sums(struct seat *seat)
{
    check_blocks(seat);
    check_uneven(seat);
    check_broadcast(seat);
    check_split(seat);
}

static void test_data(void **state)
{
    (void)state;
    run(259, 60, all_but_sums);
}

/* ---- counted -------------------------------------------------------------------------------- */

static void count_messages(struct seat *seat)
{
    int64_t sum = seat->rank, all[MOST], before = atomic_load(&ports[seat->rank].sent);
    int64_t most = 0;
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_BARRIER, .dtype = SHOAL_U8}) == SHOAL_OK);
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                           .in = &sum,
                                           .out = &sum,
                                           .count = 1,
                                           .dtype = SHOAL_I64}) == SHOAL_OK);
    EXPECT(sum == (int64_t)seat->size * (seat->size - 1) / 2);
    before = atomic_load(&ports[seat->rank].sent) - before;
    most = before;
    EXPECT(post(seat, (struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                           .in = &before,
                                           .out = all,
                                           .count = 1,
                                           .dtype = SHOAL_I64}) == SHOAL_OK);
    for (int32_t r = 0; r < seat->size; r++)
        most = all[r] > most ? all[r] : most;
    seat->sent = most;
}

/* A barrier and a sum: two words up and log2 N down each, and log2 N + 2 partners of a sum. */
static void test_messages(void **state)
{
    (void)state;
    run(MANY, 100, count_messages);
    printf("%d ranks: at most %lld messages of a rank for a barrier and an all_reduce\n", MANY,
           (long long)seats[0].sent);
    assert_true(seats[0].sent > 0 && seats[0].sent <= 2 * (2 + 10) + 10 + 2);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void expect_sentence(int32_t size, const char *text, const char *other)
{
    for (int32_t r = 0; r < size; r++)
        if (r != GONE && (seats[r].status >= 0 || !strstr(seats[r].sentence, text) ||
                          !strstr(seats[r].sentence, other)))
            fail_msg("rank %d: %d, %s", (int)r, (int)seats[r].status, seats[r].sentence);
}

static _Atomic int32_t gave_up;

/* Until the others have given up. */
static void stay_away(struct seat *seat)
{
    const int64_t deadline = shoali_deadline_ns(INT64_C(100000000000));
    if (seat->rank != GONE) {
        post(seat, (struct shoali_post){.kind = SHOALI_BARRIER, .dtype = SHOAL_U8});
        atomic_fetch_add(&gave_up, 1);
        return;
    }
    while (atomic_load(&gave_up) < seat->size - 1 && !shoali_deadline_passed(deadline))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void test_absent(void **state)
{
    (void)state;
    atomic_store(&gave_up, 0);
    run(300, 1.5, stay_away);
    expect_sentence(300, "rank 80 did not come within 1.5 s",
                    "last call on this group was broadcast");
}

static void die(struct seat *seat)
{
    if (seat->rank != GONE)
        post(seat, (struct shoali_post){.kind = SHOALI_BARRIER, .dtype = SHOAL_U8});
    else
        atomic_store(&ports[GONE].dead, true);
}

static void test_dead(void **state)
{
    (void)state;
    run(300, 60, die);
    expect_sentence(300, "rank 80 is gone", "killed");
}

static void differ(struct seat *seat)
{
    float x = 1;
    post(seat, (struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                    .here = seat->rank == GONE ? "other.c:7" : "same.c:6",
                                    .in = &x,
                                    .out = &x,
                                    .count = seat->rank == GONE ? 0 : 1,
                                    .dtype = SHOAL_F32});
}

static void test_mismatch(void **state)
{
    (void)state;
    run(300, 60, differ);
    expect_sentence(300, "rank 80 posted all_reduce of 0 F32 at other.c:7",
                    "posted all_reduce of 1 F32 at same.c:6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),   cmocka_unit_test(test_data), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_absent), cmocka_unit_test(test_dead), cmocka_unit_test(test_mismatch),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
