/* What one layer of each kind says of all layers: the same as the whole model, run. */
#include "autotuning/test_model.h"

/* Costs of a model of `layers`, from runs of one layer of each kind. */
static struct shoali_costs costs_of(const shoal_model *model, int64_t micro, const char *recompute,
                                    const char *more, struct shoali_arena *arena)
{
    char text[512];
    struct shoali_settings settings;
    struct shoali_costs costs;
    const shoal_engine_args engine = {
        .model = model, .config_text = test_config(text, sizeof text, micro, micro, more)};
    assert_int_equal(shoali_settings_init(&settings, &engine, &(shoal_plan_args){.world_size = 1}),
                     SHOAL_OK);
    assert_int_equal(
        shoali_costs_make(
            &settings,
            &(struct shoali_costs_args){.tensor = 1, .micro_batch = micro, .recompute = recompute},
            arena, &costs),
        SHOAL_OK);
    shoali_settings_fini(&settings);
    return costs;
}

/* The whole model's plan. */
static shoal_plan plan_of(const shoal_model *model, int64_t micro, const char *recompute,
                          const char *more)
{
    char text[512];
    shoal_plan plan;
    const shoal_engine_args engine = {.model = model,
                                      .config_text =
                                          test_config(text, sizeof text, micro, micro, more),
                                      .recompute_granularity = recompute};
    assert_int_equal(shoal_plan_make(&engine, &(shoal_plan_args){.world_size = 1}, &plan),
                     SHOAL_OK);
    return plan;
}

static void compare(const char *recompute, const char *more)
{
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    shoal_model *model = test_gpt(9, 64, 4, 32, 500);
    const struct shoali_costs costs = costs_of(model, 2, recompute, more, &arena);
    const shoal_plan plan = plan_of(model, 2, recompute, more);
    double forward = 0, backward = 0, replay = 0, weight = 0, bytes = 0;
    int64_t parameters = 0;
    assert_int_equal(costs.layer_count, model->layer_count);
    for (int32_t l = 0; l < costs.layer_count; l++) {
        const struct shoali_layer_cost *layer = &costs.layer[l];
        forward += layer->flops_forward;
        backward += layer->flops_backward;
        replay += layer->flops_replay;
        weight += layer->flops_weight;
        bytes += layer->bytes;
        parameters += layer->parameters;
        assert_true(layer->kept_bytes >= 0 && layer->work_bytes >= 0 && layer->bytes > 0);
        assert_string_equal(layer->type, model->layers[l].type->name);
    }
    assert_int_equal((int64_t)forward, plan.flops_forward);
    assert_int_equal((int64_t)backward, plan.flops_backward);
    assert_int_equal((int64_t)replay, plan.flops_replay);
    assert_int_equal((replay > 0), recompute != NULL);
    assert_true(weight > 0.3 * backward && weight < 0.6 * backward);
    assert_true(bytes > 0);
    assert_int_equal(parameters, plan.parameters);
    assert_int_equal(costs.parameters, plan.parameters);
    assert_int_equal(costs.layer[costs.layer_count - 1].tied_parameters, 500 * 64);
    /* hidden states of 2 x 32 tokens go from layer to layer, the loss leaves the last */
    assert_int_equal(costs.layer[3].boundary_bytes, 2 * 32 * 64 * (int64_t)costs.weight_bytes);
    shoal_model_destroy(model);
    shoali_arena_fini(&arena);
}

static void test_sums_are_those_of_the_whole(void **state)
{
    (void)state;
    compare(NULL, "");
    compare("full", "");
    compare(NULL, ", \"bf16\": {\"enabled\": true}");
    compare("full", ", \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2}");
}

/* The slot of a stage of all layers is that of the run; a replay leaves gaps between what it finds
 * and what it makes. */
static void test_slots(void **state)
{
    (void)state;
    static const char *const recompute[] = {NULL, "full"};
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    shoal_model *model = test_gpt(12, 64, 4, 32, 500);
    for (int i = 0; i < 2; i++) {
        const struct shoali_costs costs = costs_of(model, 4, recompute[i], "", &arena);
        const shoal_plan plan = plan_of(model, 4, recompute[i], "");
        int32_t begin[] = {0, costs.layer_count};
        const struct shoali_virtual_stages stages = {.count = 1, .begin = begin};
        const double slot = (double)shoali_virtual_stages_slot_bytes(&costs, &stages, 0, false);
        assert_true(slot <= (double)plan.activations_bytes);
        assert_true(slot >= (i == 0 ? 1 : 0.9) * (double)plan.activations_bytes);
    }
    shoal_model_destroy(model);
    shoali_arena_fini(&arena);
}

static void test_recomputed_layers_keep_their_inputs_alone(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    shoal_model *model = test_gpt(4, 64, 4, 32, 500);
    const struct shoali_costs all = costs_of(model, 2, NULL, "", &arena);
    const struct shoali_costs full = costs_of(model, 2, "full", "", &arena);
    assert_int_equal(full.layer[2].kept_bytes, full.layer[2].boundary_bytes);
    assert_true(all.layer[2].kept_bytes > 8 * full.layer[2].kept_bytes);
    assert_true(full.layer[2].work_bytes > all.layer[2].work_bytes);
    assert_int_equal((int64_t)full.layer[2].flops_replay, (int64_t)full.layer[2].flops_forward);
    shoal_model_destroy(model);
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_the_whole),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_recomputed_layers_keep_their_inputs_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
