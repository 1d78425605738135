/* Ranks that UCX connects: those that are killed, that never come, and that do not belong together.
 * The others get a sentence, soon. */
#include "base/test_cmocka.h"
#include "comm_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 300000 };
/* The slowest of 20 runs on a busy machine took 0.72 s. */
#define SOON_NS INT64_C(5000000000)

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static void run(bool (*function)(struct rank_seat *seat), int32_t size, int32_t killed, bool bare,
                double timeout_s)
{
    struct ranks ranks = {.kind = RANKS_UCX,
                          .size = size,
                          .run = function,
                          .killed = killed,
                          .bare = bare,
                          .timeout_s = timeout_s};
    assert_true(ranks_run(&ranks));
}

/* The sentence names the dead rank, its process and its host, and every later call says the
 * same. */
static bool is_told(struct rank_seat *seat, int64_t start_ns)
{
    char name[128], host[64] = "";
    EXPECT(gethostname(host, sizeof(host) - 1) == 0);
    snprintf(name, sizeof(name), "rank %d (pid ", (int)seat->ranks->killed);
    EXPECT(shoali_now_ns() - start_ns < SOON_NS);
    EXPECT(says(name) && says(host) && says("is gone"));
    shoali_error_clear();
    EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER && says(name));
    return true;
}

static bool dies_in_all_reduce(struct rank_seat *seat)
{
    static float data[COUNT];
    for (int i = 0; i < 3; i++)
        EXPECT(shoal_all_reduce(seat->group, data, data, COUNT, SHOAL_F32, SHOAL_SUM, NULL) ==
               SHOAL_OK);
    if (seat->rank == seat->ranks->killed)
        raise(SIGKILL);
    const int64_t start_ns = shoali_now_ns();
    EXPECT(shoal_all_reduce(seat->group, data, data, COUNT, SHOAL_F32, SHOAL_SUM, NULL) ==
           SHOAL_EPEER);
    return is_told(seat, start_ns);
}

/* In the middle of a collective, whose data is on its way. */
static bool dies_amid_data(struct rank_seat *seat)
{
    enum { MANY = 32 << 20 };
    float *data = calloc(MANY, sizeof(float));
    EXPECT(data != NULL);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    if (seat->rank == seat->ranks->killed) {
        shoal_request *request = NULL;
        EXPECT(shoal_all_reduce(seat->group, data, data, MANY, SHOAL_F32, SHOAL_SUM, &request) ==
               SHOAL_OK);
        const int64_t end_ns = shoali_now_ns() + 20000000;
        while (shoali_now_ns() < end_ns)
            EXPECT(!request || shoal_request_test(&request) >= 0);
        raise(SIGKILL);
    }
    const int64_t start_ns = shoali_now_ns();
    EXPECT(shoal_all_reduce(seat->group, data, data, MANY, SHOAL_F32, SHOAL_SUM, NULL) ==
           SHOAL_EPEER);
    const bool told = is_told(seat, start_ns);
    free(data);
    return told;
}

static bool dies_as_sender(struct rank_seat *seat)
{
    static float data[COUNT];
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    if (seat->rank == seat->ranks->killed)
        raise(SIGKILL);
    const int64_t start_ns = shoali_now_ns();
    EXPECT(shoal_recv(seat->group, data, COUNT, SHOAL_F32, seat->ranks->killed, NULL) ==
           SHOAL_EPEER);
    return is_told(seat, start_ns);
}

/* A rank that leaves while another one waits for a third: it has left, and is not gone. */
static bool leaves_first(struct rank_seat *seat)
{
    shoal_group *pair = NULL;
    float one = 1;
    EXPECT(shoal_comm_split(seat->group, seat->rank == 0 ? -1 : 0, seat->rank, &pair) == SHOAL_OK);
    if (seat->rank > 0) {
        EXPECT(shoal_all_reduce(pair, &one, &one, 1, SHOAL_F32, SHOAL_SUM, NULL) == SHOAL_OK);
        EXPECT(one == 2);
    }
    shoal_comm_destroy(pair);
    return true;
}

static bool never_comes(struct rank_seat *seat)
{
    const shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    if (seat->rank == 2)
        return true;
    EXPECT(shoal_comm_init(&args, &seat->group) < 0);
    EXPECT(says("of 3 ranks these did not join within 4.0 s: 2") || says("rank 0 failed: of 3"));
    return true;
}

static bool has_another_size(struct rank_seat *seat)
{
    shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    args.world_size = seat->rank == 1 ? 3 : 2;
    EXPECT(shoal_comm_init(&args, &seat->group) < 0);
    EXPECT(says("WORLD_SIZE must be the same on all ranks"));
    return true;
}

static void test_killed_in_all_reduce(void **state)
{
    (void)state;
    run(dies_in_all_reduce, 2, 1, false, 60);
    run(dies_in_all_reduce, 4, 2, false, 60);
}
static void test_killed_amid_data(void **state)
{
    (void)state;
    run(dies_amid_data, 3, 1, false, 60);
}
static void test_killed_sender(void **state)
{
    (void)state;
    run(dies_as_sender, 2, 1, false, 60);
}
static void test_leaving_is_not_dying(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run(leaves_first, 3, 0, false, 60);
}
static void test_absent(void **state)
{
    (void)state;
    run(never_comes, 3, 0, true, 4);
}
static void test_sizes(void **state)
{
    (void)state;
    run(has_another_size, 2, 0, true, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_in_all_reduce),
        cmocka_unit_test(test_killed_amid_data),
        cmocka_unit_test(test_killed_sender),
        cmocka_unit_test(test_leaving_is_not_dying),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_sizes),
    };
    if (!ranks_kind_is_there(RANKS_UCX))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
