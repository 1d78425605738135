/* Counters of a pipeline's stage: the plan of each rank is its run's, message by message; nothing
 * is allocated after creation; the host waits for the device once a step. */
#include "engine/test_pipeline.h"
#include "shoal/plan.h"

static bool count_sent(struct gpt_seat *seat, struct shoali_comm_counters *counters)
{
    *counters = (struct shoali_comm_counters){0};
    EXPECT(shoali_engine_counters(seat->engine, counters) == SHOAL_OK);
    return true;
}

static const shoal_plan_traffic *find_traffic(const shoal_plan *plan, int32_t kind)
{
    static const shoal_plan_traffic none;
    for (int32_t i = 0; i < plan->traffic_count; i++)
        if (strcmp(plan->traffic[i].name, shoali_collective_name((enum shoali_collective)kind)) ==
            0)
            return &plan->traffic[i];
    return &none;
}

static bool compare_traffic(struct gpt_seat *seat, const shoal_plan *plan,
                            const struct shoali_comm_counters *before,
                            const struct shoali_comm_counters *after)
{
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        const shoal_plan_traffic *planned = find_traffic(plan, k);
        const int64_t calls = after->calls[k] - before->calls[k];
        const int64_t bytes = after->bytes[k] - before->bytes[k];
        if (planned->calls != calls || planned->bytes != bytes)
            fprintf(stderr, "%s: planned %lld calls, %lld bytes; were %lld, %lld\n",
                    shoali_collective_name((enum shoali_collective)k), (long long)planned->calls,
                    (long long)planned->bytes, (long long)calls, (long long)bytes);
        EXPECT(planned->calls == calls && planned->bytes == bytes);
    }
    return true;
}

static bool compare_memory(struct gpt_seat *seat, const shoal_plan *plan,
                           const shoal_memory_info *info)
{
    EXPECT(plan->weights_bytes == info->weights_bytes);
    EXPECT(plan->gradients_bytes == info->gradients_bytes);
    EXPECT(plan->master_bytes + plan->states_bytes == info->states_bytes);
    EXPECT(plan->activations_bytes == info->activations_bytes);
    EXPECT(plan->buffers_bytes == info->buffers_bytes);
    EXPECT(plan->packed_weights_bytes == info->packed_weights_bytes);
    EXPECT(plan->workspace_bytes == info->workspace_bytes && info->workspace_bytes > 0);
    EXPECT(plan->checkpoint_bytes == info->checkpoint_bytes && info->checkpoint_bytes > 0);
    EXPECT(plan->device_bytes >= info->device_peak_bytes &&
           plan->device_bytes - plan->device_bytes / 50 <= info->device_peak_bytes);
    return true;
}

static bool plan_and_run(struct gpt_seat *seat, struct cell *cell)
{
    char config[2 * OPTIONS];
    shoal_plan plan;
    struct shoali_comm_counters before, after;
    shoal_memory_info first, last;
    double loss;
    gpt_config_text(seat->run, config, sizeof config);
    const shoal_engine_args args = cell_args(seat, cell, config);
    EXPECT(shoal_plan_make(&args,
                           &(shoal_plan_args){.rank = seat->rank,
                                              .world_size = ranks_of(cell),
                                              .pipeline = cell->pipeline,
                                              .order = cell->backwards ? "pp-dp" : NULL},
                           &plan) == SHOAL_OK);
    EXPECT(count_sent(seat, &before));
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) == SHOAL_OK);
    EXPECT(count_sent(seat, &after));
    shoal_engine_get_memory_info(seat->engine, &first);
    EXPECT(compare_traffic(seat, &plan, &before, &after));
    EXPECT(compare_memory(seat, &plan, &first));
    for (int32_t step = 1; step < STEPS; step++)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &last);
    EXPECT(last.arena_growths == 0 && last.device_alloc_count == first.device_alloc_count);
    EXPECT(last.device_peak_bytes == first.device_peak_bytes);
    if (!cell->accelerator) /* host and device are one */
        return true;
    if (!strstr(cell->options, "offload")) /* which waits for copies */
        EXPECT(last.host_sync_count - first.host_sync_count == STEPS - 1);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 5, &loss) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &first);
    EXPECT(first.device_alloc_count == last.device_alloc_count);
    return true;
}

/* Bytes in flight are those of the schedule: stage r of p has p - r micro-batches. */
static bool count_slots(struct gpt_seat *seat, struct cell *cell)
{
    const struct shoal_engine *engine = seat->engine;
    const int64_t gas = engine->step.batch.accumulation;
    int64_t want = cell->pipeline - engine->stages.index;
    if (strcmp(cell->schedule, "zb-h1") == 0)
        want = cell->pipeline;
    if (strcmp(cell->schedule, "gpipe") == 0 || want > gas)
        want = gas;
    EXPECT(engine->step.micro_count == want);
    return true;
}

static void test_slots(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    (void)state;
    for (int32_t p = 2; p <= 4; p++)
        for (int32_t s = 0; s < 3; s++)
            for (int64_t micro = 2; micro <= 8; micro += 6) {
                struct cell cell = {.pipeline = p,
                                    .schedule = schedules[s],
                                    .micro_batches = micro,
                                    .options = ZERO(0, ""),
                                    .follow = count_slots};
                run(&cell);
            }
}

static const struct cell cells[] = {
    {.pipeline = 2, .options = ZERO(0, "")},
    {.pipeline = 2, .data = 2, .options = BF16 ZERO(1, SMALL)},
    {.pipeline = 3, .schedule = "gpipe", .options = EXACT ZERO(0, ""), .recompute = "full"},
    {.pipeline = 3, .data = 2, .options = ZERO(2, ",\"overlap_comm\":false"), .untied = true},
    {.pipeline = 2, .data = 2, .options = EXACT BF16 ZERO(3, FETCH), .schedule = "zb-h1"},
    {.pipeline = 2, .data = 2, .options = ZERO(3, FETCH OVERLAP), .micro_batches = 40},
    {.pipeline = 4, .data = 2, .virtual_stages = 1, .options = ZERO(2, OVERLAP)},
    {.pipeline = 2, .virtual_stages = 2, .options = EXACT ZERO(0, ""), .micro_batches = 12},
    {.pipeline = 2, .data = 2, .virtual_stages = 2, .options = ZERO(3, FETCH), .micro_batches = 24},
    {.pipeline = 3,
     .data = 2,
     .schedule = "zb-h1",
     .options = EXACT ZERO(2, ""),
     .micro_batches = 12},
    {.pipeline = 2,
     .data = 2,
     .options = ZERO(3, FETCH CPU("optimizer") CPU("param")),
     .backwards = true},
};

static void plan_all(const char *accelerator)
{
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        struct cell cell = cells[i];
        cell.accelerator = accelerator;
        cell.follow = plan_and_run;
        run(&cell);
    }
}

static void test_cpu(void **state)
{
    (void)state;
    plan_all(NULL);
}

static void test_sim(void **state)
{
    (void)state;
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    plan_all("sim");
}

/* The block method drops the first layers of every stage, not of the first one alone. */
static void test_block(void **state)
{
    static const char config[] = "{\"train_batch_size\":8,\"train_micro_batch_size_per_gpu\":1,"
                                 "\"optimizer\":{\"type\":\"AdamW\"}}";
    const struct gpt_run run = {.layers = 8};
    shoal_model *model = NULL;
    (void)state;
    assert_int_equal(gpt_make_model(&run, &model), SHOAL_OK);
    for (int32_t stage = 0; stage < 2; stage++) {
        shoal_plan plan[3];
        for (int32_t dropped = 0; dropped < 3; dropped++)
            assert_int_equal(
                shoal_plan_make(
                    &(shoal_engine_args){.model = model,
                                         .config_text = config,
                                         .recompute_granularity = dropped ? "full" : NULL,
                                         .recompute_method = dropped ? "block" : NULL,
                                         .recompute_num_layers = dropped},
                    &(shoal_plan_args){.rank = stage, .world_size = 2, .pipeline = 2},
                    &plan[dropped]),
                SHOAL_OK);
        assert_true(plan[1].activations_bytes < plan[0].activations_bytes);
        assert_true(plan[2].activations_bytes < plan[1].activations_bytes);
        assert_int_equal(plan[2].flops_replay, 2 * plan[1].flops_replay);
        assert_true(plan[0].flops_replay == 0 && plan[1].flops_replay > 0);
    }
    shoal_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slots), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_sim), cmocka_unit_test(test_block)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
