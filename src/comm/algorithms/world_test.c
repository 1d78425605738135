/* The first verdict stays, also when the rank that writes it has no core for a while; ranks part
 * that are on one core. */
#include "base/test_cmocka.h"
#include "comm/algorithms/slots.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int32_t dead = -1;

static int32_t find_dead(void *user)
{
    (void)user;
    return dead;
}

static const struct shoali_slots_host threads = {.any_address = true};
static const struct shoali_slots_host processes = {.find_dead = find_dead};

/* Has begun with the verdict and goes on later. */
static void *write_slowly(void *arg)
{
    struct shoali_world_shared *shared = arg;
    nanosleep(&(struct timespec){0, 600000000}, NULL);
    shared->verdict_status = SHOAL_EIO;
    shared->verdict_rank = 0;
    snprintf(shared->verdict_sentence, sizeof(shared->verdict_sentence), "the first");
    atomic_store(&shared->verdict, SHOALI_VERDICT_SET);
    return NULL;
}

static void test_a_slow_writer_is_awaited(void **state)
{
    (void)state;
    const struct shoali_slots_host *const hosts[] = {&threads, &processes};
    for (int i = 0; i < 2; i++) {
        static struct shoali_world_shared shared;
        struct shoali_slots_world world = {
            .host = hosts[i], .shared = &shared, .rank = 1, .size = 2};
        pthread_t thread;
        memset(&shared, 0, sizeof(shared));
        atomic_store(&shared.verdict, SHOALI_VERDICT_WRITING);
        assert_int_equal(pthread_create(&thread, NULL, write_slowly, &shared), 0);
        shoali_world_abort(&world, 1, SHOAL_ENOMEM, "the second");
        assert_int_equal(shoali_world_verdict(&world), SHOAL_EPEER);
        assert_string_equal(shoal_error_message(), "rank 0 failed: the first");
        pthread_join(thread, NULL);
    }
}

static void test_a_dead_writer_is_not(void **state)
{
    (void)state;
    static struct shoali_world_shared shared;
    struct shoali_slots_world world = {.host = &processes, .shared = &shared, .rank = 1, .size = 2};
    atomic_store(&shared.verdict, SHOALI_VERDICT_WRITING);
    dead = 0;
    shoali_world_abort(&world, 1, SHOAL_ENOMEM, "the second");
    dead = -1;
    assert_int_equal(shoali_world_verdict(&world), SHOAL_ENOMEM);
    assert_string_equal(shoal_error_message(), "the second");
}

/* A rank as of a process that may run on `cores`, and one below that has said `core`. */
static bool part(const cpu_set_t *cores, int32_t rank, int32_t core, bool takes_turns)
{
    static struct shoali_world_shared shared;
    struct shoali_slots_world world = {
        .shared = &shared, .rank = rank, .size = 2, .takes_turns = takes_turns};
    memset(&shared, 0, sizeof(shared));
    shared.seat[rank].cores = *cores;
    shared.seat[1 - rank].core = core + 1;
    const bool parted = shoali_world_part(&world);
    if (parted)
        assert_int_not_equal(shared.seat[rank].core, core + 1);
    return parted;
}

static void test_ranks_part(void **state)
{
    (void)state;
    cpu_set_t all, here, now;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    const int core = sched_getcpu();
    CPU_ZERO(&here);
    CPU_SET(core, &here);
    assert_int_equal(sched_setaffinity(0, sizeof here, &here), 0);
    assert_false(part(&here, 1, core, false)); /* bound to the core */
    assert_false(part(&all, 1, core, false));  /* since it joined */
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    /* The system may move this thread at any time, so that it is no longer there: seldom. */
    bool parted = false;
    for (int i = 0; i < 1000 && !parted; i++)
        parted = part(&all, 1, sched_getcpu(), false);
    assert_true(parted);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&all, &now));
    assert_false(part(&all, 1, -1, false));             /* not said */
    assert_false(part(&all, 0, sched_getcpu(), false)); /* the other one goes */
    assert_false(part(&all, 1, sched_getcpu(), true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_writer_is_awaited),
        cmocka_unit_test(test_a_dead_writer_is_not),
        cmocka_unit_test(test_ranks_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
