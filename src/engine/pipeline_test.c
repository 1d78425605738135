/* Pipelines: an engine whose layers are spread over stages is, to everybody outside, the engine of
 * one rank. With "reduction": "exact" losses, norms, weights, states, hashes and files are the same
 * bits for every schedule, cut, number of stages and data ranks, and ZeRO stage. */
#include "engine/test_pipeline.h"

static void test_schedules(void **state)
{
    static const struct cell cells[] = {
        {.pipeline = 2, .schedule = "gpipe"},
        {.pipeline = 2},
        {.pipeline = 2, .schedule = "zb-h1"},
        {.pipeline = 3, .schedule = "1f1b", .partition = "uniform"},
        {.pipeline = 3, .schedule = "zb-h1"},
        {.pipeline = 4, .schedule = "gpipe"},
        {.pipeline = 4, .schedule = "zb-h1"},
        {.pipeline = 2, .virtual_stages = 2},
        {.pipeline = 2, .virtual_stages = 2, .group = 4},
        {.pipeline = 2, .virtual_stages = 3, .partition = "uniform"},
        {.pipeline = 2, .partition = "even", .first_layers = 1, .last_layers = 3},
        {.pipeline = 3, .partition = "layout:E|tttt|L"},
        {.pipeline = 3, .partition = "type:block"},
    };
    (void)state;
    check_cells((struct cell){.options = HASHES EXACT ZERO(0, "")}, cells,
                sizeof cells / sizeof cells[0]);
    check_cells(
        (struct cell){
            .options = HASHES EXACT ZERO(0, ""), .untied = true, .dropout = 0.2, .samples = 2},
        cells, sizeof cells / sizeof cells[0]);
}

#define BESIDE(truth) "\"pipeline\":{\"overlap_p2p\":" truth "},"

/* Transfers beside the computations, and not. */
static void test_transfers(void **state)
{
    static const char *const beside = HASHES EXACT BESIDE("true") ZERO(0, "");
    static const char *const zero_3 = HASHES EXACT BESIDE("true") ZERO(3, FETCH OVERLAP);
    const struct cell cells[] = {
        {.pipeline = 2, .schedule = "gpipe", .options = beside},
        {.pipeline = 2, .options = beside},
        {.pipeline = 2, .schedule = "zb-h1", .options = beside},
        {.pipeline = 3, .options = beside},
        {.pipeline = 4, .schedule = "zb-h1", .options = beside},
        {.pipeline = 3, .virtual_stages = 2, .partition = "uniform", .options = beside},
        {.pipeline = 2, .data = 2, .options = zero_3},
        {.pipeline = 2, .virtual_stages = 2, .options = HASHES EXACT BESIDE("false") ZERO(0, "")},
        {.pipeline = 2, .virtual_stages = 2, .no_overlap_p2p = true},
    };
    (void)state;
    for (int64_t micro = 6; micro <= 18; micro += 12) /* more than a lane has room for */
        check_cells((struct cell){.options = HASHES EXACT ZERO(0, ""), .micro_batches = micro},
                    cells, sizeof cells / sizeof cells[0]);
}

static void test_few_micro_batches(void **state)
{
    static const struct cell cells[] = {{.pipeline = 3, .schedule = "gpipe"},
                                        {.pipeline = 4},
                                        {.pipeline = 4, .schedule = "zb-h1"}};
    (void)state;
    for (int64_t micro = 1; micro <= 2; micro++)
        check_cells((struct cell){.options = HASHES EXACT ZERO(0, ""), .micro_batches = micro},
                    cells, 3);
}

static void test_zero(void **state)
{
    static const struct cell cells[] = {
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(0, "")},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(1, SMALL)},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(2, SMALL), .backwards = true},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(3, FETCH SMALL)},
        {.pipeline = 2, .data = 2, .schedule = "zb-h1", .options = HASHES EXACT ZERO(2, SMALL)},
        {.pipeline = 2, .data = 2, .schedule = "zb-h1", .options = HASHES EXACT ZERO(3, FETCH)},
        {.pipeline = 2, .data = 2, .schedule = "gpipe", .options = HASHES EXACT ZERO(1, OVERLAP)},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(2, OVERLAP SMALL)},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(3, FETCH OVERLAP SMALL)},
        {.pipeline = 2,
         .data = 2,
         .virtual_stages = 2,
         .options = HASHES EXACT ZERO(3, FETCH OVERLAP)},
        {.pipeline = 3, .data = 2, .options = HASHES EXACT ZERO(3, ""), .recompute = "full"},
        {.pipeline = 4, .data = 2, .options = HASHES EXACT ZERO(2, OVERLAP)},
        {.pipeline = 2,
         .data = 2,
         .options = HASHES EXACT ZERO(2, CPU("optimizer") ",\"sub_group_size\":500")},
        {.pipeline = 2,
         .data = 2,
         .options = HASHES EXACT ZERO(3, FETCH CPU("optimizer") CPU("param"))},
        {.pipeline = 2,
         .data = 1,
         .options = HASHES EXACT ZERO(3, FETCH CPU("optimizer") CPU("param"))},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(3, FETCH ",\"mics_shard_size\":1")},
    };
    (void)state;
    check_cells((struct cell){.options = HASHES EXACT ZERO(0, "")}, cells,
                sizeof cells / sizeof cells[0]);
}

/* ---- precision -------------------------------------------------------------------------------- */

/* Options without "reduction": "exact": a model without tied parameters adds gradients in the order
 * of one rank, whatever the stage. */
static void test_fast(void **state)
{
    static const char *const options[] = {ZERO(0, ""), BF16 ZERO(1, SMALL), FP16 ZERO(2, ""),
                                          BF16 ZERO(3, FETCH)};
    static const struct cell cells[] = {{.pipeline = 2, .schedule = "gpipe"},
                                        {.pipeline = 2, .data = 2},
                                        {.pipeline = 3, .schedule = "zb-h1"},
                                        {.pipeline = 2, .virtual_stages = 2, .data = 2}};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (size_t c = 0; c < 4; c++) {
            struct cell one = {
                .options = options[i], .end = STEPS, .untied = true, .data = cells[c].data};
            run(&one);
            const struct seen want = seen[0];
            struct cell cell = one;
            cell.pipeline = cells[c].pipeline;
            cell.schedule = cells[c].schedule;
            cell.virtual_stages = cells[c].virtual_stages;
            run(&cell);
            assert_seen(&cell, &want);
        }
}

static void test_16_bit(void **state)
{
    static const struct cell cells[] = {
        {.pipeline = 2},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT BF16 ZERO(1, OVERLAP)},
        {.pipeline = 3, .schedule = "zb-h1"},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT BF16 ZERO(3, FETCH CPU("optimizer"))}};
    static const struct cell halves[] = {
        {.pipeline = 2, .virtual_stages = 2},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT FP16 ZERO(2, OVERLAP)}};
    (void)state;
    check_cells((struct cell){.options = HASHES EXACT BF16 ZERO(0, "")}, cells, 4);
    check_cells((struct cell){.options = HASHES EXACT FP16 ZERO(0, ""), .dropout = 0.1}, halves, 2);
}

/* ---- optimizers that look at whole tensors ---------------------------------------------------- */

static void test_whole_tensors(void **state)
{
    static const char *const optimizers[] = {
        "{\"type\":\"Lamb\",\"params\":{\"lr\":0.01}}",
        "{\"type\":\"Adafactor\",\"params\":{\"weight_decay\":0.1}}"};
    static const struct cell cells[] = {
        {.pipeline = 2},
        {.pipeline = 3, .schedule = "zb-h1"},
        {.pipeline = 2, .data = 2, .options = HASHES EXACT ZERO(1, SMALL)},
        {.pipeline = 2,
         .data = 2,
         .virtual_stages = 2,
         .options = HASHES EXACT ZERO(3, FETCH CPU("optimizer"))}};
    (void)state;
    for (size_t i = 0; i < 2; i++)
        check_cells((struct cell){.options = HASHES EXACT ZERO(0, ""), .optimizer = optimizers[i]},
                    cells, 4);
}

/* ---- checkpoints ------------------------------------------------------------------------------ */

/* From every layout to every other, and on; the files of the half are those of one rank. */
static void test_any_layout_loads(void **state)
{
    static const struct cell all[] = {
        {.pipeline = 1, .data = 1},
        {.pipeline = 2, .data = 1, .options = EXACT BF16 ZERO(0, "")},
        {.pipeline = 3, .data = 1, .schedule = "zb-h1"},
        {.pipeline = 2, .data = 2, .virtual_stages = 2, .options = EXACT BF16 ZERO(3, FETCH)},
        {.pipeline = 1, .data = 3, .options = EXACT BF16 ZERO(2, "")},
        {.pipeline = 4,
         .data = 2,
         .options = EXACT BF16 ZERO(1, "") ",\"checkpoint\":{\"writer\":{\"decoupled\":true}}"}};
    enum { ALL = sizeof all / sizeof all[0] };
    (void)state;
    struct cell task = {.options = EXACT BF16 ZERO(0, ""), .end = STEPS, .micro_batches = 12};
    run(&task);
    const struct seen want = seen[0];
#if defined(SHOALI_TSAN)
    const size_t every = 3; /* the same code in the same threads */
#else
    const size_t every = 1;
#endif
    for (size_t from = 0; from < ALL; from += every) {
        struct cell half = all[from];
        half.options = half.options ? half.options : task.options;
        half.micro_batches = 12;
        half.end = 1;
        half.save = fresh(from == 0 ? "half" : "half-again");
        run(&half);
        if (from > 0)
            assert_same_file(path_of("half"), half.save);
        for (size_t to = 0; to < ALL; to++) {
            struct cell on = all[to];
            on.options = on.options ? on.options : task.options;
            on.micro_batches = 12;
            on.end = STEPS;
            on.load = half.save;
            run(&on);
            assert_seen(&on, &want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_few_micro_batches),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_16_bit),
        cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_any_layout_loads),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
