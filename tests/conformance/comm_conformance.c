/* Stamps the suite on every backend and N in {1, 2, 3, 4, 7, 8}; where that is slow, on fewer
 * (is_brief). One program per backend: COMM_KIND. That of mpi is started by mpirun (tests/mpi/run)
 * with one N, and its ranks run the same tests one after the other: SHOAL_TEST_SEED has to be the
 * same for all. */
#include "base/test_brief.h"
#include "base/test_cmocka.h"
#include "comm/hierarchical/hierarchical.h"
#include "comm_suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int32_t sizes[] = {1, 2, 3, 4, 7, 8};

enum { BRIEF_SIZE = 7, BRIEF_REPEATS = 3 };

struct stamp {
    bool (*run)(struct rank_seat *seat);
    int32_t smallest, largest; /* numbers of ranks; 0: no limit */
    double timeout_s;
    int repeats; /* with seeds of their own; 0: once */
    bool trees;  /* powers of two, too, whose ranks may be added up as a tree: BRIEF_SIZE is none */
};

/* Processes that start UCX, and two levels over what has a run of its own, do without some of the
 * repetition: the largest N of a test alone, which is that with the most hosts (of ucx itself also
 * the smallest, unless a deadline is waited for), and one order of the device's tasks. So does
 * AddressSanitizer, beside the optimised build that repeats all (base/test_brief.h).
 * SHOAL_TEST_FULL=1: all of them. */
static bool is_brief(void)
{
    const char *full = getenv("SHOAL_TEST_FULL");
    if (full && full[0])
        return false;
    if (test_repeats(2) == 1)
        return COMM_KIND != RANKS_MPI;
    return COMM_KIND == RANKS_UCX || (COMM_KIND != RANKS_MPI && shoali_hierarchical_is_pretended());
}

static bool is_stamped(const struct stamp *stamp, int32_t size)
{
    const int32_t smallest = stamp->smallest ? stamp->smallest : 1;
    const int32_t largest = stamp->largest ? stamp->largest : INT32_MAX;
    if (size < smallest || size > largest || (COMM_KIND == RANKS_SELF && size > 1))
        return false;
    if (COMM_KIND == RANKS_MPI)
        return size == ranks_job_size();
    if (stamp->trees && (size == 4 || (size == 8 && COMM_KIND != RANKS_UCX)))
        return true;
    return !is_brief() || size == (largest < BRIEF_SIZE ? largest : BRIEF_SIZE) ||
           (size == smallest && stamp->timeout_s == 0 && !shoali_hierarchical_is_pretended());
}

static void stamp(const struct stamp *stamp)
{
    const int repeats =
        is_brief() && stamp->repeats > BRIEF_REPEATS ? BRIEF_REPEATS : stamp->repeats;
    const char *given = getenv("SHOAL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct ranks ranks = {.kind = COMM_KIND,
                              .size = sizes[i],
                              .run = stamp->run,
                              .timeout_s = stamp->timeout_s,
                              .seed = seed};
        if (!is_stamped(stamp, ranks.size))
            continue;
        for (int repeat = 0; repeat == 0 || repeat < repeats; repeat++, ranks.seed++)
            if (!ranks_run(&ranks))
                fail_msg("%d ranks, SHOAL_TEST_SEED=%llu", (int)sizes[i],
                         (unsigned long long)ranks.seed);
    }
}

static void reductions(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_reductions, .trees = true});
}
static void all_sizes(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_sizes});
    stamp(&(struct stamp){.run = suite_algorithms});
}
static void random_programs(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_random});
}
static void requests(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_requests});
}
static void messages(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_messages});
}
static void split(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_split});
}
static void shared_memory(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_alloc});
}
/* 256 ranks that are threads; fewer processes, which are dearer, and fewer threads under
 * ThreadSanitizer, which are slow to start. */
#if defined(SHOALI_TSAN)
enum { MANY_THREADS = 96 };
#else
enum { MANY_THREADS = 256 };
#endif

static void many_ranks(void **state)
{
    (void)state;
    struct ranks ranks = {.kind = COMM_KIND,
                          .size = COMM_KIND == RANKS_SHM ? 80 : MANY_THREADS,
                          .run = suite_many,
                          .timeout_s = 60,
                          .seed = 1};
    if (COMM_KIND != RANKS_THREAD && COMM_KIND != RANKS_APART && COMM_KIND != RANKS_SHM)
        skip();
    assert_true(ranks_run(&ranks));
}
static void counters(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_counters});
}
static void arguments(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_arguments});
}
/* Ranks read the mode when they make their device. */
static void stamp_streams(const struct stamp *of)
{
    static const char *const modes[] = {"random", "late", "thread"};
    for (size_t m = 0; m < (is_brief() ? 1 : sizeof(modes) / sizeof(modes[0])); m++) {
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", modes[m], 1), 0);
        stamp(of);
    }
    assert_int_equal(unsetenv("SHOAL_SIM_STREAMS"), 0);
}
static void stream_memory(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_memory});
}
static void stream_programs(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_program});
}
static void stream_order(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_order});
}
static void stream_beside(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_beside});
}
static void stream_elsewhere(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_elsewhere, .smallest = 2});
}
static void stream_arguments(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_arguments});
}
static void stream_abort(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_abort, .smallest = 2});
}
static void stream_timeout(void **state)
{
    (void)state;
    stamp_streams(
        &(struct stamp){.run = suite_stream_timeout, .smallest = 2, .largest = 2, .timeout_s = 1});
}
static void stream_mismatch(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_mismatch, .smallest = 2, .largest = 4});
}
static void stream_fault_points(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_fault_points, .smallest = 2, .largest = 4});
}
static void stream_leaves(void **state)
{
    (void)state;
    stamp_streams(&(struct stamp){.run = suite_stream_leaves});
}
static void abort_reaches_all(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_abort, .smallest = 2});
}
static void abort_leaves_what_is_complete(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_abort_with_pending, .smallest = 2});
}
static void abandoned_requests(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_abandon, .smallest = 2, .largest = 4});
}
static void random_aborts(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_random_abort, .smallest = 2, .repeats = 10});
}
static void late_rank(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_timeout, .smallest = 2, .largest = 3, .timeout_s = 2});
}
static void silent_sender(void **state)
{
    (void)state;
    stamp(
        &(struct stamp){.run = suite_message_timeout, .smallest = 2, .largest = 3, .timeout_s = 1});
}
static void other_call(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_mismatch_kind, .smallest = 2});
}
static void other_op(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_mismatch_op, .smallest = 2});
}
static void other_matrix(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_mismatch_matrix, .smallest = 2});
}
static void other_message(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_mismatch_message, .smallest = 2});
    stamp(&(struct stamp){.run = suite_mismatch_data, .smallest = 2});
}
static void early_leaver(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_mismatch_destroy, .smallest = 2});
}
static void fault_points(void **state)
{
    (void)state;
    stamp(&(struct stamp){.run = suite_fault_points, .smallest = 2});
}
/* A rank that writes to one that is gone lives on to say so. */
static void broken_pipes(void **state)
{
    struct sigaction now;
    (void)state;
    if (COMM_KIND != RANKS_MPI)
        skip();
    assert_int_equal(sigaction(SIGPIPE, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_IGN);
}

/* The parts of the suite. Each is a test of its own, so that no core waits for a long one at the
 * end. `clock` waits for deadlines (docs/TESTING.md). */
static const struct CMUnitTest values[] = {
    cmocka_unit_test(reductions),         cmocka_unit_test(all_sizes),
    cmocka_unit_test(random_programs),    cmocka_unit_test(requests),
    cmocka_unit_test(messages),           cmocka_unit_test(split),
    cmocka_unit_test(shared_memory),      cmocka_unit_test(many_ranks),
    cmocka_unit_test(counters),           cmocka_unit_test(arguments),
    cmocka_unit_test(abort_reaches_all),  cmocka_unit_test(abort_leaves_what_is_complete),
    cmocka_unit_test(abandoned_requests), cmocka_unit_test(random_aborts),
    cmocka_unit_test(other_call),         cmocka_unit_test(other_op),
    cmocka_unit_test(other_matrix),       cmocka_unit_test(other_message),
    cmocka_unit_test(early_leaver),       cmocka_unit_test(fault_points),
    cmocka_unit_test(broken_pipes),
};
static const struct CMUnitTest streams[] = {
    cmocka_unit_test(stream_memory),       cmocka_unit_test(stream_programs),
    cmocka_unit_test(stream_order),        cmocka_unit_test(stream_beside),
    cmocka_unit_test(stream_elsewhere),    cmocka_unit_test(stream_arguments),
    cmocka_unit_test(stream_abort),        cmocka_unit_test(stream_mismatch),
    cmocka_unit_test(stream_fault_points), cmocka_unit_test(stream_leaves),
};
static const struct CMUnitTest deadlines[] = {
    cmocka_unit_test(stream_timeout),
    cmocka_unit_test(silent_sender),
};
static const struct CMUnitTest late[] = {
    cmocka_unit_test(late_rank),
};

static int run_part(const char *part)
{
    if (strcmp(part, "values") == 0)
        return cmocka_run_group_tests(values, NULL, NULL);
    if (strcmp(part, "streams") == 0)
        return cmocka_run_group_tests(streams, NULL, NULL);
    if (strcmp(part, "clock") == 0)
        return cmocka_run_group_tests(deadlines, NULL, NULL);
    if (strcmp(part, "late") == 0)
        return cmocka_run_group_tests(late, NULL, NULL);
    fprintf(stderr, "there is no part %s: values, streams, clock, late\n", part);
    return 1;
}

/* Without arguments all parts. */
int main(int argc, char **argv)
{
    static char *all[] = {"", "values", "streams", "clock", "late"};
    if (!ranks_kind_is_there(COMM_KIND))
        return 77;
    if (argc < 2) {
        argv = all;
        argc = 5;
    }
    int failed = 0;
    signal(SIGPIPE, SIG_DFL); /* whatever has started the test */
    for (int i = 1; i < argc; i++)
        failed += run_part(argv[i]);
    return failed;
}
