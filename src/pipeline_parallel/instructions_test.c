/* Lists of instructions, checked without running them. */
#include "pipeline_parallel/pipeline_parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 16 };

/* Runs a list on paper: slots are taken, used and given back in order, each micro-batch once. */
static void check_list(const struct shoali_instructions *made, int32_t micro_batches, bool training)
{
    int32_t holds[MOST], alive = 0, done = 0; /* holds[slot]: micro + 1 */
    bool forward[MOST] = {false}, stepped = false;
    for (int32_t s = 0; s < MOST; s++)
        holds[s] = 0;
    for (int32_t i = 0; i < made->count; i++) {
        const struct shoali_instruction *one = &made->list[i];
        assert_false(stepped);
        assert_in_range(one->slot, 0, made->slots - 1);
        switch (one->kind) {
        case SHOALI_DO_LOAD:
            assert_int_equal(holds[one->slot], 0);
            holds[one->slot] = one->micro + 1;
            forward[one->slot] = false;
            alive++;
            assert_true(alive <= made->slots);
            break;
        case SHOALI_DO_FORWARD:
            assert_int_equal(holds[one->slot], one->micro + 1);
            forward[one->slot] = true;
            break;
        case SHOALI_DO_BACKWARD:
            assert_int_equal(holds[one->slot], one->micro + 1);
            assert_true(training && forward[one->slot]);
            break;
        case SHOALI_DO_STEP:
            assert_int_equal(done, micro_batches);
            stepped = true;
            break;
        }
        if (one->kind == (training ? SHOALI_DO_BACKWARD : SHOALI_DO_FORWARD)) {
            assert_int_equal(one->micro, done++);
            holds[one->slot] = 0;
            alive--;
        }
    }
    assert_int_equal(done, micro_batches);
    assert_int_equal(stepped, training);
}

static void test_one_stage(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    for (int32_t m = 1; m <= 9; m++)
        for (int32_t training = 0; training < 2; training++) {
            struct shoali_instructions made;
            const struct shoali_instructions_args args = {m, training != 0};
            assert_int_equal(shoali_instructions_make(&args, &arena, &made), SHOAL_OK);
            assert_int_equal(made.slots, 1);
            check_list(&made, m, training != 0);
        }
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_stage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
