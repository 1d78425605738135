#include "base/lend.h"

#include "base/clock.h"
#include "base/pool.h"
#include "base/test_cmocka.h"

#include <sys/resource.h>
#include <unistd.h>

/* Ends a wait that would last for ever. */
#define PATIENCE_NS INT64_C(60000000000)
enum { TRIES = 6 };

struct scene {
    struct shoali_borrower borrower;
    _Atomic int32_t ready, stop, done;
    _Atomic int32_t lent_core; /* -1: not yet */
    int32_t core, ended_moved, core_after;
    cpu_set_t both, after;
};

static void only(cpu_set_t *set, int32_t core)
{
    CPU_ZERO(set);
    CPU_SET(core, set);
}

/* Another program. */
static void *burn(void *arg)
{
    struct scene *scene = arg;
    cpu_set_t set;
    only(&set, scene->core);
    (void)sched_setaffinity(0, sizeof set, &set);
    atomic_fetch_add(&scene->ready, 1);
    while (!atomic_load(&scene->stop))
        ;
    return NULL;
}

/* Comes to the same core, where whoever computes is preferred, and works until it is elsewhere. */
static void *borrow(void *arg)
{
    struct scene *scene = arg;
    const int64_t deadline = shoali_deadline_ns(PATIENCE_NS);
    cpu_set_t set;
    only(&set, scene->core);
    (void)sched_setaffinity(0, sizeof set, &set);
    (void)sched_setaffinity(0, sizeof scene->both, &scene->both);
    (void)sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
    shoali_borrower_begin(&scene->borrower);
    atomic_fetch_add(&scene->ready, 1);
    while (atomic_load(&scene->lent_core) < 0 && !shoali_deadline_passed(deadline))
        shoali_pause_core();
    scene->ended_moved = shoali_borrower_end(&scene->borrower);
    const int32_t here = sched_getcpu();
    if (scene->ended_moved)
        shoali_borrower_leave(&scene->borrower, false);
    scene->core_after = here == atomic_load(&scene->lent_core) ? sched_getcpu() : -1;
    (void)sched_getaffinity(0, sizeof scene->after, &scene->after);
    atomic_store(&scene->done, 1);
    return NULL;
}

/* Two cores of this process; false: there is one. */
static bool two_cores(struct scene *scene, int32_t *first)
{
    cpu_set_t all;
    int found = 0;
    CPU_ZERO(&scene->both);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int32_t i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &scene->both);
            *(found++ == 0 ? first : &scene->core) = i;
        }
    return found == 2;
}

/* The calling thread never leaves its core idle, so that it is not the system that moves the
 * borrower. True: the lender has found it. */
static bool play(struct scene *scene, int32_t first)
{
    pthread_t burner, borrower;
    cpu_set_t mine, before;
    (void)sched_getaffinity(0, sizeof before, &before);
    only(&mine, first);
    assert_int_equal(sched_setaffinity(0, sizeof mine, &mine), 0);
    assert_int_equal(pthread_create(&burner, NULL, burn, scene), 0);
    assert_int_equal(pthread_create(&borrower, NULL, borrow, scene), 0);
    const int64_t deadline = shoali_deadline_ns(PATIENCE_NS);
    struct shoali_lend_sample sample = {0};
    bool lent = false;
    while (!lent && !shoali_deadline_passed(deadline)) {
        const int64_t next = shoali_now_ns() + 200000;
        while (shoali_now_ns() < next)
            shoali_pause_core();
        if (atomic_load(&scene->ready) == 2)
            lent = shoali_lend(&scene->borrower, &sample, false);
    }
    /* On a busy machine an idle thread would not come to its end. */
    (void)sched_setscheduler(scene->borrower.tid, SCHED_OTHER, &(struct sched_param){0});
    atomic_store(&scene->lent_core, sched_getcpu());
    while (!atomic_load(&scene->done) && !shoali_deadline_passed(deadline))
        usleep(1000);
    atomic_store(&scene->stop, 1);
    pthread_join(borrower, NULL);
    pthread_join(burner, NULL);
    (void)sched_setaffinity(0, sizeof before, &before);
    return lent;
}

static void test_a_thread_without_a_core_gets_the_one_of_who_waits(void **state)
{
    bool left = false;
    (void)state;
    /* The lender sleeps by then. The system may bring the borrower back to that idle core between
     * the two calls that give it its set again and ask where it is: a few times in a hundred. */
    for (int i = 0; i < TRIES && !left; i++) {
        struct scene scene = {.lent_core = -1};
        int32_t first = 0;
        if (!two_cores(&scene, &first))
            skip();
        assert_true(play(&scene, first));
        assert_true(scene.ended_moved);
        assert_true(CPU_EQUAL(&scene.after, &scene.both));
        assert_false(shoali_borrower_works(&scene.borrower));
        assert_true(scene.core_after == scene.core || scene.core_after == first);
        left = scene.core_after == scene.core;
    }
    assert_true(left);
}

static int64_t spent_ns(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
}

/* The calling thread gets on and so is never moved; a set of cores is not left. The lender's sample
 * is compared with this test's own around it: the part of the time that the thread had a core. */
static void test_who_gets_on_stays(void **state)
{
    (void)state;
    struct shoali_borrower self = {0};
    struct shoali_lend_sample sample = {0};
    assert_false(shoali_lend(&self, &sample, false));
    shoali_borrower_begin(&self);
    assert_true(shoali_borrower_works(&self));
    for (int i = 0; i < 20; i++) {
        const int64_t begin = shoali_now_ns();
        sample = (struct shoali_lend_sample){0};
        assert_false(shoali_lend(&self, &sample, false)); /* a first look compares with nothing */
        const int64_t first = spent_ns();
        while (shoali_now_ns() < begin + 100000)
            ;
        const int64_t had = spent_ns() - first;
        const bool lent = shoali_lend(&self, &sample, false);
        if (had > (shoali_now_ns() - begin) / 2)
            assert_false(lent);
        if (lent) { /* others had the core all the time */
            assert_true(shoali_borrower_end(&self));
            shoali_borrower_leave(&self, true);
            shoali_borrower_begin(&self);
        }
    }
    assert_false(shoali_borrower_end(&self));
    assert_false(shoali_lend(&self, &sample, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_without_a_core_gets_the_one_of_who_waits),
        cmocka_unit_test(test_who_gets_on_stays),
    };
    return cmocka_run_group_tests_name("lend", tests, NULL, NULL);
}
