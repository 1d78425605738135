/* Training on AMX's instructions has the bits of training on their emulation, in whatever layout.
 * Where the CPU has none they are trapped and executed, so that every machine with the vectors that
 * cpu-amx is compiled for runs the table as an engine does: chosen, permitted, on threads that come
 * and go. */
#include "engine/test_gpt.h"
#include "ops/cpu_rules.h"
#include "tools/tile_trap.h"

static struct gpt_seat seats[GPT_RANKS_MAX], others[GPT_RANKS_MAX];

#define BF16 "\"bf16\":{\"enabled\":true}"

/* cpu-amx, trapped or not, within a test: cmocka has a handler of its own around each. */
static bool begin_tiles(void)
{
    struct shoali_ops ops;
    const char *reason = tile_trap_begin();
    if (reason == NULL)
        return true;
    if (shoali_ops_select("cpu-amx", NULL, &ops) != SHOAL_OK) {
        print_message("skipped: %s\n", reason);
        skip();
    }
    return false;
}

/* Which tables serve, and that those behind the first are the same: else bits could differ by
 * them. */
static void test_choice(void **state)
{
    struct shoali_ops tiles, emulated, best;
    (void)state;
    const bool trapped = begin_tiles();
    unsetenv("SHOAL_OPS");
    assert_int_equal(shoali_ops_select("cpu-amx", NULL, &tiles), SHOAL_OK);
    assert_int_equal(shoali_ops_select("cpu-amx-emulated", NULL, &emulated), SHOAL_OK);
    assert_int_equal(shoali_ops_select(NULL, NULL, &best), SHOAL_OK);
    assert_string_equal(best.name, "cpu-amx");
    assert_string_equal(tiles.chain[0]->name, "cpu-amx");
    assert_string_equal(emulated.chain[0]->name, "cpu-amx-emulated");
    int t = 0;
    while (tiles.chain[++t] != NULL)
        assert_ptr_equal(tiles.chain[t], emulated.chain[t]);
    assert_true(t > 1 && emulated.chain[t] == NULL);
    assert_ptr_equal(shoali_ops_table_for(&tiles, &shoali_kernel_gemm, SHOAL_BF16), tiles.chain[0]);
    if (trapped)
        tile_trap_end();
}

static void compare(struct gpt_run run, const char *what)
{
    const bool trapped = begin_tiles();
    const int64_t before = tile_trap_counts().multiplies;
    run.steps = 3;
    run.ops = "cpu-amx-emulated";
    gpt_run_ranks(run, others);
    assert_int_equal(tile_trap_counts().multiplies, before);
    run.ops = "cpu-amx";
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, run.ranks ? run.ranks : 1, &others[0], what);
    assert_true(!trapped || tile_trap_counts().multiplies > before);
    assert_int_equal(tile_trap_counts().configured_threads, 0);
    if (trapped)
        tile_trap_end();
}

static void test_threads(void **state)
{
    (void)state;
    compare((struct gpt_run){.options = BF16}, "one thread");
    compare((struct gpt_run){.options = BF16, .threads = 2, .dropout = 0.1}, "two threads");
    compare(
        (struct gpt_run){.options = BF16 ",\"packed_weights\":false", .threads = 3, .samples = 2},
        "three threads, weights as they are");
}

static void test_ranks(void **state)
{
    (void)state;
    compare((struct gpt_run){.options = BF16 ",\"zero_optimization\":{\"stage\":2}", .ranks = 2},
            "two ranks, stage 2");
    compare((struct gpt_run){.options = BF16 ",\"zero_optimization\":{\"stage\":3}",
                             .ranks = 2,
                             .threads = 2,
                             .recompute = "full",
                             .dropout = 0.1},
            "two ranks of two threads, stage 3, recomputed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
