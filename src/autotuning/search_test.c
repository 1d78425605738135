/* The search: formulas against plans, long pipelines against their timelines, what it names and
 * what it refuses; how much work it is. */
#include "autotuning/test_model.h"
#include "base/test_count.h"

enum { LAYOUTS = 24 };

static shoal_plan_limit limit_of(int64_t bytes)
{
    shoal_plan_limit limit;
    shoal_plan_set_limit(bytes, &limit);
    return limit;
}

static const shoal_plan_rates rates = {.flops = 1e12,
                                       .memory_bytes = 1e11,
                                       .network_bytes = 1e9,
                                       .node_bytes = 1e10,
                                       .latency_s = 1e-6,
                                       .ranks_per_node = 8};

static shoal_status search(const shoal_model *model, const char *text, shoal_plan_args args,
                           int64_t memory, shoal_layout *layouts, int32_t capacity, int32_t *count)
{
    const shoal_engine_args engine = {.model = model, .config_text = text};
    const shoal_plan_limit limit = limit_of(memory);
    return shoal_layout_search(&engine, &args, &rates, &limit, layouts, capacity, count);
}

/* ---- against plans -------------------------------------------------------------------------- */

/* ZeRO's formulas: a rank's memory by a plan is what they say plus the activations, its buffers and
 * its rounding. */
static void compare_states(const shoal_model *model, const char *more, int32_t data, int32_t stage)
{
    char text[512], stages[256];
    struct shoali_arena arena;
    struct shoali_settings settings;
    struct shoali_costs costs;
    shoal_plan plan;
    shoali_arena_init(&arena);
    snprintf(stages, sizeof stages,
             "%s, \"packed_weights\": false, \"zero_optimization\": {\"stage\": %d, "
             "\"overlap_comm\": false%s}",
             more, (int)stage,
             stage == 3 && data > 1
                 ? ", \"stage3_param_persistence_threshold\": 0, \"stage3_max_reuse_distance\": 0"
                 : "");
    const shoal_engine_args engine = {
        .model = model, .config_text = test_config(text, sizeof text, data, 1, stages)};
    const shoal_plan_args args = {.world_size = data};
    assert_int_equal(shoali_settings_init(&settings, &engine, &args), SHOAL_OK);
    assert_int_equal(shoali_costs_make(&settings,
                                       &(struct shoali_costs_args){.tensor = 1, .micro_batch = 1},
                                       &arena, &costs),
                     SHOAL_OK);
    assert_int_equal(shoal_plan_make(&engine, &args, &plan), SHOAL_OK);
    struct shoali_state state = {.parameters = costs.parameters, .data = data, .stage = stage};
    for (int32_t l = 0; l < costs.layer_count; l++)
        if (costs.layer[l].parameters > state.largest_layer)
            state.largest_layer = costs.layer[l].parameters;
    const double planned = (double)(plan.device_bytes - plan.activations_bytes);
    const double formula = shoali_state_bytes(&costs, &state);
    if (fabs(formula / planned - 1) > 0.1)
        fail_msg("stage %d of %d ranks%s: %.0f by formula, %.0f planned", (int)stage, (int)data,
                 more, formula, planned);
    shoali_settings_fini(&settings);
    shoali_arena_fini(&arena);
}

static void test_formulas_against_plans(void **state)
{
    (void)state;
    shoal_model *model = test_gpt(24, 256, 4, 32, 500);
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t data = 1; data <= 8; data *= 2) {
            compare_states(model, "", data, stage);
            compare_states(model, ", \"bf16\": {\"enabled\": true}", data, stage);
        }
    shoal_model_destroy(model);
}

/* ---- what it names -------------------------------------------------------------------------- */

/* As fast as any: what it names first is at least as fast as every other, fits, and is what a plan
 * says. */
static void test_layouts_are_planned_and_ordered(void **state)
{
    (void)state;
    char text[512];
    shoal_layout layouts[LAYOUTS];
    int32_t count;
    shoal_model *model = test_gpt(6, 64, 4, 32, 200);
    const int64_t memory = 64 << 20;
    assert_int_equal(search(model, test_config(text, sizeof text, 16, 1, ""),
                            (shoal_plan_args){.world_size = 4, .tensor = 1, .pipeline = 1}, memory,
                            layouts, LAYOUTS, &count),
                     SHOAL_OK);
    assert_true(count >= 8);
    for (int32_t i = 0; i < count; i++) {
        const shoal_layout *one = &layouts[i];
        shoal_plan plan;
        char more[128], own[512];
        assert_int_equal(one->tensor * one->pipeline * one->data, 4);
        assert_int_equal(one->micro_batch * one->accumulation * one->data, 16);
        assert_true(one->planned && one->memory_bytes <= memory && one->step_s > 0);
        assert_true(i == 0 || one->step_s >= layouts[i - 1].step_s);
        assert_true(fabs(one->tokens_per_second * one->step_s - 16 * 32) < 1e-6);
        snprintf(more, sizeof more, ", \"zero_optimization\": {\"stage\": %d}", (int)one->stage);
        const shoal_engine_args engine = {
            .model = model,
            .config_text = test_config(own, sizeof own, 16, one->micro_batch, more),
            .recompute_granularity = one->recompute};
        assert_int_equal(shoal_plan_make(&engine, &(shoal_plan_args){.world_size = 4}, &plan),
                         SHOAL_OK);
        assert_int_equal(plan.device_bytes, one->memory_bytes);
    }
    shoal_model_destroy(model);
}

static void test_less_memory_costs_time(void **state)
{
    (void)state;
    char text[512];
    shoal_layout wide[1], narrow[1];
    int32_t count;
    shoal_model *model = test_gpt(6, 64, 4, 32, 200);
    const char *config = test_config(text, sizeof text, 16, 1, "");
    const shoal_plan_args args = {.world_size = 4, .tensor = 1, .pipeline = 1};
    assert_int_equal(search(model, config, args, INT64_MAX, wide, 1, &count), SHOAL_OK);
    /* nothing fits: the least is named, and a little more is enough for it */
    assert_int_equal(search(model, config, args, 1 << 16, narrow, 1, &count), SHOAL_END);
    assert_int_equal(count, 1);
    const int64_t least = narrow->memory_bytes;
    assert_true(least > 1 << 16 && least < wide->memory_bytes);
    assert_int_equal(search(model, config, args, least + least / 8, narrow, 1, &count), SHOAL_OK);
    assert_true(narrow->memory_bytes <= least + least / 8 && narrow->step_s > wide->step_s);
    shoal_model_destroy(model);
}

static void test_nothing_divides(void **state)
{
    (void)state;
    char text[512];
    shoal_layout layout;
    int32_t count;
    shoal_model *model = test_gpt(2, 64, 4, 32, 200);
    assert_true(search(model, test_config(text, sizeof text, 9, 1, ""),
                       (shoal_plan_args){.world_size = 7, .tensor = 1}, INT64_MAX, &layout, 1,
                       &count) < 0);
    assert_int_equal(count, 0);
    assert_non_null(strstr(shoal_error_message(), "no layout of 7 ranks"));
    shoal_model_destroy(model);
}

/* ---- work ----------------------------------------------------------------------------------- */

/* 175 billion parameters on 1024 ranks. */
static void test_large_searches_run_one_layer_of_a_kind(void **state)
{
    (void)state;
    char text[512];
    shoal_layout layouts[8];
    shoal_plan_rates cluster;
    shoal_plan_limit limit;
    int32_t count;
    shoal_model *model = test_gpt(96, 12288, 96, 2048, 50257);
    const shoal_engine_args engine = {
        .model = model,
        .config_text = test_config(text, sizeof text, 1536, 1, ", \"bf16\": {\"enabled\": true}")};
    assert_int_equal(shoal_cluster_find("a100", &cluster, &limit), SHOAL_OK);
    /* blocks that are alike are one kind, of which the search runs one */
    for (int32_t l = 2; l <= 96; l++)
        assert_ptr_equal(model->layers[l].config, model->layers[1].config);
    count_begin();
    assert_int_equal(shoal_layout_search(&engine, &(shoal_plan_args){.world_size = 1024}, &cluster,
                                         &limit, layouts, 8, &count),
                     SHOAL_OK);
    const int64_t allocations = count_end();
    assert_true(count == 8 && layouts[0].memory_bytes <= (int64_t)80 << 30);
    assert_true(layouts[0].pipeline > 1 && layouts[0].data > 1);
    /* 2.0 million; 5.3 million, and 50 times the time, where each layer is a kind of its own */
    print_message("the search made %lld allocations\n", (long long)allocations);
    assert_true(allocations < 3000000);
    shoal_model_destroy(model);
}

static void test_clusters(void **state)
{
    (void)state;
    shoal_plan_rates found;
    shoal_plan_limit limit;
    for (int32_t i = 0; shoal_cluster_name(i); i++) {
        assert_int_equal(shoal_cluster_find(shoal_cluster_name(i), &found, &limit), SHOAL_OK);
        assert_true(found.flops > 0 && found.memory_bytes > 0 && found.node_bytes > 0 &&
                    found.network_bytes > 0 && found.ranks_per_node > 0 && limit.device_bytes > 0);
    }
    assert_int_equal(shoal_cluster_find("a10", &found, &limit), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "nearest is a100"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas_against_plans),
        cmocka_unit_test(test_layouts_are_planned_and_ordered),
        cmocka_unit_test(test_less_memory_costs_time),
        cmocka_unit_test(test_nothing_divides),
        cmocka_unit_test(test_large_searches_run_one_layer_of_a_kind),
        cmocka_unit_test(test_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
