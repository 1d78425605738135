/* Pipelines that nobody runs: published bubbles and activations in flight, cuts, pictures. */
#include "autotuning/test_model.h"

struct subject {
    const char *schedule;
    int32_t stages, chunks, micro_batches;
};

static shoal_status draw(const shoal_model *model, const struct subject *subject,
                         const shoal_plan_rates *rates, const char *partition,
                         shoal_layout_pipeline *pipeline, shoal_layout_stage *stages, char **svg)
{
    char text[512];
    const shoal_engine_args engine = {
        .model = model,
        .config_text = test_config(text, sizeof text, subject->micro_batches, 1, ""),
        .pipeline_schedule = subject->schedule,
        .virtual_stages = subject->chunks,
        .partition_method = partition};
    const shoal_plan_args args = {.world_size = subject->stages, .pipeline = subject->stages};
    return shoal_layout_draw(&engine, &args, rates, pipeline, stages, subject->stages, svg);
}

static void test_bubbles_of_equal_stages(void **state)
{
    (void)state;
    shoal_model *model = test_gpt(16, 32, 4, 16, 50);
    const struct subject subjects[] = {
        {"gpipe", 4, 0, 8},  {"1f1b", 4, 0, 8},        {NULL, 2, 0, 16},
        {"zb-h1", 4, 0, 12}, {"interleaved", 4, 2, 8}, {NULL, 4, 4, 16},
    };
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        const struct subject *one = &subjects[i];
        const double chunks = one->chunks > 1 ? one->chunks : 1;
        const double parts = one->schedule && strcmp(one->schedule, "zb-h1") == 0 ? 3 : 1;
        shoal_layout_pipeline pipeline;
        assert_int_equal(draw(model, one, NULL, NULL, &pipeline, NULL, NULL), SHOAL_OK);
        const double published = (one->stages - 1) / (parts * chunks * one->micro_batches);
        assert_true(fabs(pipeline.equal_bubble - published) < 1e-12);
        assert_int_equal(pipeline.micro_batches, one->micro_batches);
        assert_int_equal(pipeline.chunks, (int32_t)chunks);
        assert_true(pipeline.bubble > 0 && !pipeline.seconds);
    }
    shoal_model_destroy(model);
}

/* Where the planned FLOPs of the stages are equal, so is the bubble: the head's stage is the busy
 * one here, and a layout that gives it as much as the others leaves the published number. */
static void test_planned_bubble_of_equal_stages(void **state)
{
    (void)state;
    shoal_layout_pipeline pipeline;
    shoal_layout_stage stage[4];
    const shoal_plan_rates rates = {.flops = 1e12};
    /* a head of 2 x 32 x 96 FLOPs a token weighs as 1/4 of a block of 24 x 32^2 + attention */
    shoal_model *model = test_gpt(12, 32, 4, 16, 8);
    const struct subject subject = {"1f1b", 4, 0, 8};
    assert_int_equal(
        draw(model, &subject, &rates, "layout:Ettt|ttt|ttt|tttL", &pipeline, stage, NULL),
        SHOAL_OK);
    assert_true(pipeline.seconds);
    for (int s = 1; s < 3; s++)
        assert_true(stage[s].forward == stage[1].forward && stage[s].layers == 3);
    /* the head's own time is all that differs from (p-1)/m */
    const double head =
        (stage[3].forward + stage[3].backward) / (stage[1].forward + stage[1].backward);
    assert_true(head > 1 && head < 1.1);
    assert_true(fabs(pipeline.bubble - 3.0 / 8) < 0.1 * 3.0 / 8);
    assert_true(fabs(pipeline.equal_bubble - 3.0 / 8) < 1e-12);
    shoal_model_destroy(model);
}

static void test_in_flight_is_what_is_published(void **state)
{
    (void)state;
    shoal_model *model = test_gpt(16, 32, 4, 16, 50);
    const struct subject subjects[] = {
        {"gpipe", 4, 0, 8},       {"1f1b", 4, 0, 8}, {"1f1b", 4, 0, 2}, {"zb-h1", 4, 0, 8},
        {"interleaved", 4, 2, 8}, {NULL, 4, 4, 16},  {NULL, 2, 4, 4},
    };
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        const struct subject *one = &subjects[i];
        shoal_layout_pipeline pipeline;
        shoal_layout_stage stage[4];
        enum shoali_pipeline_schedule schedule;
        struct shoali_pipeline_args args;
        assert_int_equal(draw(model, one, NULL, NULL, &pipeline, stage, NULL), SHOAL_OK);
        assert_int_equal(shoali_pipeline_schedule_find(pipeline.schedule, &schedule), SHOAL_OK);
        assert_int_equal(shoali_pipeline_complete(
                             &(struct shoali_pipeline_args){.schedule = schedule,
                                                            .stages = one->stages,
                                                            .chunks = one->chunks,
                                                            .micro_batches = one->micro_batches,
                                                            .training = true},
                             &args),
                         SHOAL_OK);
        int32_t layers = 0;
        for (int32_t s = 0; s < one->stages; s++) {
            assert_int_equal(stage[s].in_flight, shoali_virtual_stages_in_flight(&args, s));
            if (schedule == SHOALI_1F1B && one->micro_batches >= one->stages)
                assert_int_equal(stage[s].in_flight, one->stages - s);
            layers += stage[s].layers;
        }
        assert_int_equal(layers, model->layer_count);
    }
    shoal_model_destroy(model);
}

static void test_pictures(void **state)
{
    (void)state;
    shoal_model *model = test_gpt(16, 32, 4, 16, 50);
    const struct subject subjects[] = {
        {"gpipe", 4, 0, 8}, {"1f1b", 4, 0, 8}, {"zb-h1", 4, 0, 8}, {"interleaved", 4, 2, 8}};
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        shoal_layout_pipeline pipeline;
        char *svg = NULL;
        int boxes = 0, wanted = 4 * 8 * (i == 2 ? 3 : 2) * (i == 3 ? 2 : 1);
        assert_int_equal(draw(model, &subjects[i], NULL, NULL, &pipeline, NULL, &svg), SHOAL_OK);
        for (const char *at = svg; (at = strstr(at, "stroke=\"#fff\"")) != NULL; at++)
            boxes++;
        assert_int_equal(boxes, wanted);
        assert_non_null(strstr(svg, subjects[i].schedule));
        free(svg);
    }
    shoal_model_destroy(model);
}

static void test_mistakes(void **state)
{
    (void)state;
    shoal_model *model = test_gpt(2, 32, 4, 16, 50);
    shoal_layout_pipeline pipeline;
    char *svg = NULL;
    const struct {
        struct subject subject;
        const char *partition, *says;
    } cases[] = {
        {{"1f1b", 8, 0, 8}, NULL, "needs more than 4 layers"},
        {{"1f1f", 2, 0, 8}, NULL, "nearest is 1f1b"},
        {{"1f1b", 2, 2, 8}, NULL, "chunks are for the schedule interleaved"},
        {{NULL, 2, 2, 3}, NULL, "multiple of 2"},
        {{NULL, 2, 0, 8}, "evenly", "even"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(
            draw(model, &cases[i].subject, NULL, cases[i].partition, &pipeline, NULL, &svg) < 0);
        if (!strstr(shoal_error_message(), cases[i].says))
            fail_msg("%s: not \"%s\"", shoal_error_message(), cases[i].says);
        assert_null(svg);
    }
    shoal_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bubbles_of_equal_stages),
        cmocka_unit_test(test_planned_bubble_of_equal_stages),
        cmocka_unit_test(test_in_flight_is_what_is_published),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
