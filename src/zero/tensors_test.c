/* Optimizers that look at whole tensors, on any number of ranks and in every stage: the same bits,
 * the promised memory and messages. */
#include "zero/test_ranks.h"

static const char *const optimizers[] = {"lamb", "adafactor"};

static void test_exact(void **state)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    (void)state;
    for (int32_t o = 0; o < 2; o++)
        for (int32_t d = 0; d < 3; d++) {
            struct run run = {.ranks = 1,
                              .dtype = dtypes[d],
                              .exact = true,
                              .micro_batches = 24,
                              .steps = 3,
                              .optimizer = optimizers[o]};
            go(run, &reference);
            assert_true(reference.verdict[2].loss < reference.verdict[0].loss);
            for (run.ranks = 1; run.ranks <= 8;
                 run.ranks = run.ranks < 4 ? run.ranks + 1 : 2 * run.ranks)
                for (run.stage = 0; run.stage <= 3; run.stage++) {
                    run.overlap = run.ranks > 2;
                    run.bucket = run.stage == 1 ? 300 : run.stage == 2 ? 1 : 0;
                    run.fetch.max_live = run.ranks == 2 ? 0 : INT64_MAX;
                    go(run, &other);
                    compare(&run, true);
                }
        }
}

/* Gradients that are summed in fp32 are the same bits in all stages, so all else is, too. */
static void test_fast(void **state)
{
    (void)state;
    for (int32_t o = 0; o < 2; o++)
        for (int32_t ranks = 2; ranks <= 4; ranks++) {
            struct run run = {.ranks = ranks,
                              .dtype = SHOAL_BF16,
                              .micro_batches = ranks,
                              .steps = 3,
                              .optimizer = optimizers[o]};
            go(run, &reference);
            for (run.stage = 1; run.stage <= 3; run.stage++) {
                run.bucket = ranks == 3 ? 300 : 0;
                go(run, &other);
                compare(&run, true);
            }
        }
}

/* Nothing of a step with an overflow is kept, the states neither. */
static void test_overflow(void **state)
{
    (void)state;
    for (int32_t o = 0; o < 2; o++)
        for (int32_t stage = 0; stage <= 3; stage++) {
            struct run run = {.ranks = 3,
                              .stage = stage,
                              .dtype = SHOAL_F16,
                              .exact = stage % 2,
                              .micro_batches = 3,
                              .steps = 1,
                              .optimizer = optimizers[o]};
            go(run, &reference);
            run.steps = 2;
            run.bad_step = 1;
            run.bad_rank = 1;
            go(run, &other);
            assert_true(other.verdict[1].overflow);
            assert_memory_equal(other.kind, reference.kind, sizeof reference.kind);
            assert_memory_equal(other.small, reference.small, sizeof reference.small);
        }
}

/* The second moments of a matrix are a number per row and per column: Adafactor's states are small,
 * and what it needs beside them is as zero.h says. */
static void test_memory(void **state)
{
    const int64_t width = large.width, vocab = large.vocab;
    /* two tables, two blocks (gate, weight, bias, unused), the neck */
    const int64_t rows = 2 * vocab + 2 * (3 * width + 5) + width + 1 + 1;
    const int64_t columns = 2 * width + 2 * width + 1 + width, tensors = 2 + 8 + 3 + 1;
    struct run run = {.ranks = 2,
                      .stage = 2,
                      .sizes = &large,
                      .dtype = SHOAL_BF16,
                      .micro_batches = 2,
                      .steps = 1,
                      .optimizer = "adamw"};
    (void)state;
    go(run, &reference);
    run.optimizer = "adafactor";
    go(run, &other);
    const struct shoali_zero_memory *adamw = &reference.memory[1], *now = &other.memory[1];
    const int64_t sums = rows + columns + tensors;
    assert_int_equal(3 * now->states_bytes, adamw->states_bytes);
    assert_int_equal(now->states_bytes, now->master_bytes);
    assert_int_equal(now->buffers_bytes - adamw->buffers_bytes, 24 * sums + 4 * sums);
    assert_int_equal(now->weights_bytes, adamw->weights_bytes);
    run.optimizer = "lamb";
    go(run, &other);
    assert_int_equal(now->states_bytes, adamw->states_bytes);
    assert_int_equal(now->buffers_bytes - adamw->buffers_bytes, (2 * 24 + 4) * tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
