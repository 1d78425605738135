#include "base/pool.h"

#include "base/caches.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/test_cmocka.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 9 };
/* Ends a wait that would last for ever. */
#define PATIENCE_NS INT64_C(60000000000)

struct visit {
    int32_t count[THREADS_MAX], of[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    struct shoali_context context[THREADS_MAX];
    bool signals_blocked[THREADS_MAX];
};

static void visit(void *arg, int32_t index, int32_t count)
{
    struct visit *seen = arg;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    seen->count[index]++;
    seen->of[index] = count;
    seen->thread[index] = pthread_self();
    seen->context[index] = *shoali_context_get();
    seen->signals_blocked[index] = sigismember(&mask, SIGTERM) == 1;
}

static void test_every_thread_runs_once(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct shoali_pool *pool = NULL;
        assert_int_equal(shoali_pool_create(threads, &pool), SHOAL_OK);
        assert_int_equal(shoali_pool_threads(pool), threads);
        struct visit seen = {0};
        shoali_context_get()->step = 41;
        shoali_context_get()->scope = "layers.3";
        for (int32_t round = 1; round <= 50; round++) {
            shoali_pool_run(pool, visit, &seen);
            for (int32_t i = 0; i < threads; i++)
                assert_int_equal(seen.count[i], round);
        }
        assert_true(pthread_equal(seen.thread[0], pthread_self()));
        assert_false(seen.signals_blocked[0]);
        for (int32_t i = 0; i < threads; i++) {
            assert_int_equal(seen.of[i], threads);
            assert_int_equal(seen.context[i].step, 41);
            assert_string_equal(seen.context[i].scope, "layers.3");
            assert_int_equal(seen.signals_blocked[i], i > 0);
        }
        shoali_context_get()->step = -1;
        shoali_context_get()->scope = "";
        shoali_pool_destroy(pool);
    }
}

static void test_null_pool_runs_on_the_caller(void **state)
{
    (void)state;
    struct visit seen = {0};
    shoali_pool_run(NULL, visit, &seen);
    assert_int_equal(seen.count[0], 1);
    assert_int_equal(seen.of[0], 1);
    assert_int_equal(shoali_pool_threads(NULL), 1);
    shoali_pool_destroy(NULL);
}

struct sum {
    const int32_t *values;
    int64_t n;
    int64_t parts[THREADS_MAX][8]; /* one cache line each */
};

static void add_slice(void *arg, int32_t index, int32_t count)
{
    struct sum *sum = arg;
    int64_t begin, end, total = 0;
    shoali_pool_slice(sum->n, 16, index, count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        total += sum->values[i];
    sum->parts[index][0] = total;
}

static void *use_a_pool(void *arg)
{
    int32_t values[1000];
    struct sum sum = {.values = values, .n = 1000};
    struct shoali_pool *pool = NULL;
    if (shoali_pool_create(3, &pool) != SHOAL_OK)
        return arg;
    void *failed = NULL;
    for (int32_t round = 0; round < 300; round++) {
        for (int32_t i = 0; i < 1000; i++)
            values[i] = i * round;
        shoali_pool_run(pool, add_slice, &sum);
        if (sum.parts[0][0] + sum.parts[1][0] + sum.parts[2][0] != INT64_C(499500) * round)
            failed = arg;
    }
    shoali_pool_destroy(pool);
    return failed;
}

static void test_eight_pools_at_once(void **state)
{
    pthread_t owners[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&owners[i], NULL, use_a_pool, state), 0);
    for (int i = 0; i < 8; i++) {
        void *failed = NULL;
        pthread_join(owners[i], &failed);
        assert_null(failed);
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

enum { SHARES_MAX = THREADS_MAX, PIECES_MAX = 40 };
struct claims {
    _Atomic int32_t taken[SHARES_MAX][PIECES_MAX];
    _Atomic int32_t threads;
    int64_t least;
};

/* Shares of different sizes, one of them empty. */
static int64_t uneven(const void *arg, int32_t share, int32_t shares)
{
    const struct claims *claims = arg;
    (void)shares;
    return share == 1 ? 0 : claims->least + 3 * share;
}

static void take(void *arg, struct shoali_claim *claim)
{
    struct claims *claims = arg;
    atomic_fetch_add(&claims->threads, 1);
    while (shoali_claim_next(claim))
        atomic_fetch_add(&claims->taken[claim->share][claim->piece], 1);
}

static void test_every_piece_is_claimed_once(void **state)
{
    (void)state;
    for (int32_t threads = 0; threads <= THREADS_MAX; threads++) {
        struct shoali_pool *pool = NULL;
        if (threads > 0)
            assert_int_equal(shoali_pool_create(threads, &pool), SHOAL_OK);
        for (int32_t round = 0; round < 60; round++) {
            struct claims claims = {.least = round % 12};
            const int32_t most = threads > 0 ? threads : 1;
            const struct shoali_pieces pieces = {
                .shares = round % (most + 1), .count = uneven, .work = take, .arg = &claims};
            if (pool)
                shoali_pool_shuffle(pool, (uint64_t)round / 20 * 0x9e3779b97f4a7c15u);
            shoali_pool_run_pieces(pool, &pieces);
            const int32_t shares = pieces.shares ? pieces.shares : most;
            for (int32_t s = 0; s < SHARES_MAX; s++)
                for (int64_t p = 0; p < PIECES_MAX; p++)
                    assert_int_equal(claims.taken[s][p],
                                     s < shares && p < uneven(&claims, s, shares));
            assert_true(claims.threads >= 1 && claims.threads <= most);
            /* Whoever was excused from that run takes part in this one. */
            struct visit seen = {0};
            shoali_pool_run(pool, visit, &seen);
            for (int32_t i = 0; i < most; i++)
                assert_int_equal(seen.count[i], 1);
        }
        shoali_pool_destroy(pool);
    }
}

struct held {
    _Atomic int32_t done, came;
    bool in_time;
};

static int64_t ten(const void *arg, int32_t share, int32_t shares)
{
    (void)arg, (void)share, (void)shares;
    return 10;
}

/* The worker stays in its first piece until all others are done, which the caller has to do. */
static void hold(void *arg, struct shoali_claim *claim)
{
    struct held *held = arg;
    const int64_t deadline = shoali_deadline_ns(PATIENCE_NS);
    bool first = true;
    while (shoali_claim_next(claim)) {
        if (claim->index == 1 && first) {
            atomic_store(&held->came, 1);
            while (atomic_load(&held->done) < 19 && !shoali_deadline_passed(deadline))
                usleep(100);
            held->in_time = atomic_load(&held->done) == 19;
        }
        while (claim->index == 0 && !atomic_load(&held->came) && !shoali_deadline_passed(deadline))
            usleep(100);
        first = false;
        atomic_fetch_add(&held->done, 1);
    }
}

static void test_others_do_the_work_of_a_thread_that_is_held_up(void **state)
{
    (void)state;
    struct shoali_pool *pool = NULL;
    struct held held = {0};
    const struct shoali_pieces pieces = {.count = ten, .work = hold, .arg = &held};
    assert_int_equal(shoali_pool_create(2, &pool), SHOAL_OK);
    shoali_pool_run_pieces(pool, &pieces);
    assert_true(held.in_time);
    assert_int_equal(held.done, 20);
    shoali_pool_destroy(pool);
}

/* Whether the kernel has the thread asleep: one that spins or yields never is. */
static bool sleeps(const char *tid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", tid);
    FILE *file = fopen(path, "r");
    const bool read = file && fgets(line, sizeof line, file);
    if (file)
        fclose(file);
    const char *name_end = strrchr(line, ')');
    return !read || (name_end && name_end[1] && name_end[2] == 'S');
}

/* How many threads beside the calling one have not been seen asleep, after as many looks as
 * needed. */
static int count_awake(void)
{
    const int64_t deadline = shoali_deadline_ns(PATIENCE_NS);
    const int own = (int)syscall(SYS_gettid);
    int awake = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return -1;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == own)
            continue;
        bool asleep;
        while (!(asleep = sleeps(entry->d_name)) && !shoali_deadline_passed(deadline))
            usleep(1000);
        awake += !asleep;
    }
    closedir(tasks);
    return awake;
}

struct sleepers {
    int32_t busy; /* the thread that works, while the others of its pool wait */
    int awake;
};

static void count_on_busy(void *arg, int32_t index, int32_t count)
{
    struct sleepers *sleepers = arg;
    (void)count;
    if (index == sleepers->busy)
        sleepers->awake = count_awake();
}

/* Workers wait for the caller and for the next run, the caller for a worker. */
static void test_waiting_threads_sleep(void **state)
{
    (void)state;
    struct shoali_pool *pools[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(shoali_pool_create(4, &pools[i]), SHOAL_OK);
    for (int i = 0; i < 6; i++) {
        struct sleepers sleepers = {.busy = i < 3 ? 0 : i - 2, .awake = -1};
        shoali_pool_run(pools[i % 3], count_on_busy, &sleepers);
        assert_int_equal(sleepers.awake, 0);
    }
    for (int i = 0; i < 3; i++)
        shoali_pool_destroy(pools[i]);
}

static void test_slices_cover_all_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 5, 16, 17, 100, 1000, 12345};
    static const int64_t grains[] = {1, 4, 16, 100000};
    for (int s = 0; s < 8; s++) {
        for (int32_t choice = 0; choice < 4 * THREADS_MAX; choice++) {
            int64_t n = sizes[s], grain = grains[choice % 4], expected = 0;
            int32_t count = choice / 4 + 1;
            for (int32_t i = 0; i < count; i++) {
                int64_t begin, end;
                shoali_pool_slice(n, grain, i, count, &begin, &end);
                assert_int_equal(begin, expected);
                assert_true(end >= begin && end - begin <= n / count + 2 * grain);
                assert_true(begin == n || begin % grain == 0);
                expected = end;
            }
            assert_int_equal(expected, n);
        }
    }
    int64_t begin, end;
    shoali_pool_slice(INT64_MAX, 64, 6, 7, &begin, &end);
    assert_true(end == INT64_MAX && begin > INT64_MAX / 7 * 5 && begin < INT64_MAX / 7 * 6 + 640);
}

static void test_thread_count_from_environment(void **state)
{
    (void)state;
    struct shoali_pool *pool = NULL;
    setenv("OMP_NUM_THREADS", "3,2", 1);
    assert_int_equal(shoali_pool_create(0, &pool), SHOAL_OK);
    assert_int_equal(shoali_pool_threads(pool), 3);
    shoali_pool_destroy(pool);
    setenv("SHOAL_NUM_THREADS", "2", 1);
    assert_int_equal(shoali_pool_create(0, &pool), SHOAL_OK);
    assert_int_equal(shoali_pool_threads(pool), 2);
    shoali_pool_destroy(pool);
    setenv("SHOAL_NUM_THREADS", "many", 1);
    assert_int_equal(shoali_pool_create(0, &pool), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "SHOAL_NUM_THREADS=\"many\""));
    unsetenv("SHOAL_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(shoali_pool_create(0, &pool), SHOAL_OK);
    assert_int_equal(shoali_pool_threads(pool), shoali_core_count());
    shoali_pool_destroy(pool);
    assert_int_equal(shoali_pool_create(1 << 20, &pool), SHOAL_EINVAL);
}

/* As many caches as the threads fill, each of the size that one has; one begun counts. */
static void test_caches_of_its_threads(void **state)
{
    (void)state;
    const struct shoali_cache last = shoali_caches_get()->last;
    const struct {
        int32_t threads, caches;
    } pools[] = {{1, 1}, {last.cores, 1}, {last.cores + 1, 2}, {2 * last.cores, 2}};
    if (last.level < 3) {
        print_message("skipped: the system does not tell of a last-level cache\n");
        skip();
    }
    for (int i = 0; i < 4 && pools[i].threads <= 64; i++) {
        struct shoali_pool *pool;
        assert_int_equal(shoali_pool_create(pools[i].threads, &pool), SHOAL_OK);
        assert_int_equal(shoali_pool_cache_bytes(pool), last.bytes * pools[i].caches);
        shoali_pool_shuffle(pool, 1);
        assert_int_equal(shoali_pool_cache_bytes(pool), 0);
        shoali_pool_destroy(pool);
    }
    assert_true(shoali_pool_cache_bytes(NULL) > 0);
}

static void test_failures_leave_nothing_behind(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        shoal_status expected;
    } rows[] = {{"alloc", SHOAL_ENOMEM},
                {"alloc:1", SHOAL_ENOMEM},
                {"alloc:2", SHOAL_ENOMEM},
                {"thread", SHOAL_EIO},
                {"thread:2", SHOAL_EIO}};
    for (int i = 0; i < 5; i++) {
        struct shoali_pool *pool = NULL;
        assert_true(shoali_fault_arm(rows[i].spec));
        assert_int_equal(shoali_pool_create(4, &pool), rows[i].expected);
        assert_true(shoali_fault_arm(NULL));
        assert_null(pool);
        assert_true(shoal_error_message()[0] != '\0');
    }
}

static void test_floating_point_control(void **state)
{
    (void)state;
    volatile double tiny = 0x1p-1022, third = 1.0;
    uint32_t outer = shoali_fp_enter();
    assert_true(tiny / 2.0 > 0.0);
    double quotient = third / 3.0;
    shoali_fp_leave(outer);
    assert_true(quotient == 0x1.5555555555555p-2);
#if defined(__x86_64__)
    uint32_t flushing = outer | 0x8040;
    __builtin_ia32_ldmxcsr(flushing);
    assert_true(tiny / 2.0 == 0.0);
    uint32_t saved = shoali_fp_enter();
    assert_true(tiny / 2.0 > 0.0);
    shoali_fp_leave(saved);
    assert_true(tiny / 2.0 == 0.0);
    shoali_fp_leave(outer);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_runs_once),
        cmocka_unit_test(test_every_piece_is_claimed_once),
        cmocka_unit_test(test_others_do_the_work_of_a_thread_that_is_held_up),
        cmocka_unit_test(test_null_pool_runs_on_the_caller),
        cmocka_unit_test(test_eight_pools_at_once),
        cmocka_unit_test(test_waiting_threads_sleep),
        cmocka_unit_test(test_slices_cover_all_once),
        cmocka_unit_test(test_thread_count_from_environment),
        cmocka_unit_test(test_caches_of_its_threads),
        cmocka_unit_test(test_failures_leave_nothing_behind),
        cmocka_unit_test(test_floating_point_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
