/* The ranks of an elastic job on the hosts that answer. */
#include "launcher/elastic/elastic.h"

#include "base/fault.h"
#include "base/test_cmocka.h"

#include <stdbool.h>
#include <string.h>

enum { HOSTS = 3 };

static struct shoali_arena arena;
static int64_t slots[] = {0, 1, 2, 3};
static struct shoali_node nodes[HOSTS] = {{.name = "a", .slots = {slots, 4}},
                                          {.name = "b", .slots = {slots, 2}},
                                          {.name = "c", .slots = {slots, 3}}};
static const struct shoali_world all = {.node = nodes, .nodes = HOSTS};

static int setup(void **state)
{
    (void)state;
    shoali_arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shoali_arena_fini(&arena);
    return 0;
}

/* Jobs of 1, 2, 4 and 6 models. */
static struct shoali_agent agent_of(int64_t ranks_of_a_model, int32_t least_nodes,
                                    int32_t most_nodes)
{
    static int64_t counts[] = {1, 2, 4, 6};
    return (struct shoali_agent){.config = {.model_parallel_size = ranks_of_a_model},
                                 .sizes = {.counts = {counts, 4}},
                                 .least_nodes = least_nodes,
                                 .most_nodes = most_nodes};
}

static void test_choice(void **state)
{
    (void)state;
    static const struct {
        int32_t model, least, most;
        bool here[HOSTS];
        const char *wanted; /* NULL: too few */
    } cases[] = {
        {1, 1, 0, {true, true, true}, "a:0,1,2,3@b:0,1"},
        {1, 1, 0, {true, false, true}, "a:0,1,2,3@c:0,1"},
        {1, 1, 0, {false, false, true}, "c:0,1"},
        {1, 1, 1, {true, true, true}, "a:0,1,2,3"},
        {1, 3, 0, {true, true, true}, "a:0,1,2,3@b:0,1"},
        {1, 3, 0, {true, true, false}, NULL},
        {2, 1, 0, {true, true, true}, "a:0,1,2,3@b:0,1@c:0,1"},
        {4, 1, 0, {false, false, true}, NULL},
        {1, 1, 0, {false, false, false}, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct shoali_agent agent = agent_of(cases[i].model, cases[i].least, cases[i].most);
        struct shoali_world world;
        ok(shoali_agent_choose(&agent, &all, cases[i].here, &arena, &world));
        if (!cases[i].wanted) {
            assert_int_equal(world.ranks, 0);
            continue;
        }
        int32_t ranks = 0;
        for (int32_t k = 0; k < world.nodes; ranks += world.node[k++].slots.count)
            assert_int_equal(world.node[k].first_rank, ranks);
        assert_int_equal(world.ranks, ranks);
        assert_string_equal(shoali_world_print(&world, &arena), cases[i].wanted);
    }
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    static const bool here[HOSTS] = {true, true, true};
    const struct shoali_agent agent = agent_of(1, 1, 0);
    struct shoali_world world;
    assert_true(shoali_fault_arm("alloc"));
    const shoal_status status = shoali_agent_choose(&agent, &all, here, &arena, &world);
    const bool fired = shoali_fault_left() < 0;
    shoali_fault_arm(NULL);
    assert_true(fired);
    assert_int_equal(status, SHOAL_ENOMEM);
    assert_int_equal(world.ranks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_choice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_runs_out, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
