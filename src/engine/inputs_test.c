/* Models with many inputs and many tensors between layers; what is wrong with a batch or a boundary
 * is said. */
#include "base/test_cmocka.h"
#include "shoal/shoal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 20, SAMPLES = 3, WIDTH = 4, STEPS = 3 };

struct habits {
    int32_t asked;  /* the boundary tensor that the last layer asks for too; -1: none */
    int32_t left;   /* of MANY, that the first layer leaves */
    bool null, one; /* it leaves a NULL; one layer does it all */
};

static shoal_status declare_scale(const void *config, shoal_declaration *declaration)
{
    (void)config;
    return shoal_declare_param(declaration, &(shoal_param_spec){.name = "scale",
                                                                .shape = shoal_shape_1(WIDTH),
                                                                .init = SHOAL_INIT_NORMAL,
                                                                .init_b = 0.5});
}

static void make_many(const shoal_layer *layer, shoal_tape *tape, shoal_tensor **many)
{
    shoal_tensor *scale = shoal_param_tensor(tape, shoal_layer_param(layer, 0));
    for (int32_t i = 0; i < MANY; i++)
        many[i] = shoal_mul(tape, shoal_tape_input(tape, i), scale);
}

/* Each tensor has a weight of its own, so that two that changed places would show. */
static shoal_tensor *join(shoal_tape *tape, shoal_tensor *const *many, int32_t count)
{
    shoal_tensor *sum = shoal_scale(tape, many[0], 1);
    for (int32_t i = 1; i < count; i++)
        sum = shoal_add(tape, sum, shoal_scale(tape, many[i], 1.0 / (i + 1)));
    return shoal_mse(tape, sum, shoal_tape_input(tape, MANY));
}

static void forward_first(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct habits *habits = shoal_layer_config(layer);
    shoal_tensor *many[MANY];
    make_many(layer, tape, many);
    if (habits->one)
        many[0] = join(tape, many, MANY);
    if (habits->null)
        many[7] = NULL;
    shoal_boundary_set(tape, boundary, many, habits->one ? 1 : habits->left);
}

static void forward_last(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct habits *habits = shoal_layer_config(layer);
    const int32_t count = shoal_boundary_count(boundary);
    shoal_tensor *many[MANY] = {NULL};
    for (int32_t i = 0; i < count; i++)
        many[i] = shoal_boundary_get(tape, boundary, i);
    if (habits->asked >= 0)
        (void)shoal_boundary_get(tape, boundary, habits->asked);
    shoal_tensor *loss = join(tape, many, count);
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type first_type = {
    .name = "first", .declare = declare_scale, .forward = forward_first};
static const shoal_layer_type last_type = {.name = "last", .forward = forward_last};

struct source {
    int32_t missing; /* the input without an array; -1: none */
    float value[MANY + 1][SAMPLES * WIDTH];
};

static shoal_status fill(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct source *source = user;
    for (int32_t i = 0; i <= MANY; i++) {
        for (int32_t e = 0; e < SAMPLES * WIDTH; e++)
            source->value[i][e] = (float)((i * 31 + e * 7 + step * 5 + micro) % 17) / 17;
        assert_null(batch->data[i]);
        batch->data[i] = i == source->missing ? NULL : source->value[i];
    }
    return SHOAL_OK;
}

#define CONFIG                               \
    "{\"train_micro_batch_size_per_gpu\":3," \
    "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":0.05}}"

static shoal_status train_as(const char *config, struct habits habits, struct source *source,
                             double *loss, float *scale)
{
    char names[MANY + 1][8];
    shoal_input_spec inputs[MANY + 1];
    const shoal_layer_spec layers[] = {{&first_type, "a", &habits}, {&last_type, "b", &habits}};
    shoal_engine *engine = NULL;
    shoal_step_info info;
    for (int32_t i = 0; i <= MANY; i++) {
        snprintf(names[i], sizeof names[i], "x%d", (int)i);
        inputs[i] = (shoal_input_spec){
            .name = names[i], .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(WIDTH)};
    }
    const shoal_model model = {.name = "many",
                               .layers = layers,
                               .layer_count = habits.one ? 1 : 2,
                               .inputs = inputs,
                               .input_count = MANY + 1};
    shoal_status status =
        shoal_engine_create(&(shoal_engine_args){.model = &model, .config_text = config}, &engine);
    for (int32_t step = 0; step < STEPS && status == SHOAL_OK; step++) {
        status = shoal_engine_train_batch(engine, fill, source, &info);
        loss[step] = info.loss;
    }
    if (status == SHOAL_OK)
        status = shoal_engine_get_param(engine, "a.scale", scale);
    shoal_engine_destroy(engine);
    return status;
}

static shoal_status train(struct habits habits, struct source *source, double *loss, float *scale)
{
    return train_as(CONFIG "}", habits, source, loss, scale);
}

/* Twenty tensors from layer to layer are the same bits as one layer with all of it. */
static void test_many(void **state)
{
    double one[STEPS], two[STEPS];
    float scale[2][WIDTH];
    struct source source = {.missing = -1};
    (void)state;
    assert_int_equal(train((struct habits){.asked = -1, .one = true}, &source, one, scale[0]),
                     SHOAL_OK);
    assert_int_equal(train((struct habits){.asked = -1, .left = MANY}, &source, two, scale[1]),
                     SHOAL_OK);
    assert_memory_equal(one, two, sizeof one);
    assert_memory_equal(scale[0], scale[1], sizeof scale[0]);
    assert_true(two[STEPS - 1] < two[0]);
    /* and each of them counts */
    assert_int_equal(train((struct habits){.asked = -1, .left = MANY - 1}, &source, one, scale[0]),
                     SHOAL_OK);
    assert_memory_not_equal(one, two, sizeof one);
}

/* Arrays of floats go into a model that computes in 16 bit: the loss is that of fp32 but for the
 * roundings, at most one of 2^-8 in each of MANY terms of a sum and a few beside. */
static void test_floats_are_rounded(void **state)
{
    static const char *const configs[] = {CONFIG ",\"bf16\":{\"enabled\":true}}",
                                          CONFIG ",\"fp16\":{\"enabled\":true,\"loss_scale\":64}}"};
    const struct habits usual = {.asked = -1, .left = MANY};
    struct source source = {.missing = -1};
    double exact[STEPS], loss[STEPS];
    float scale[WIDTH];
    (void)state;
    assert_int_equal(train(usual, &source, exact, scale), SHOAL_OK);
    for (int32_t c = 0; c < 2; c++) {
        assert_int_equal(train_as(configs[c], usual, &source, loss, scale), SHOAL_OK);
        assert_true(loss[0] != exact[0]);
        assert_true(fabs(loss[0] - exact[0]) < (MANY + 8) / 256.0 * exact[0]);
    }
}

static void refused(struct habits habits, struct source source, const char *word)
{
    double loss[STEPS];
    float scale[WIDTH];
    assert_int_equal(train(habits, &source, loss, scale), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), word))
        fail_msg("\"%s\" does not say \"%s\"", shoal_error_message(), word);
}

static void test_mistakes(void **state)
{
    const struct habits usual = {.asked = -1, .left = MANY};
    const struct source whole = {.missing = -1};
    (void)state;
    refused((struct habits){.asked = MANY, .left = MANY}, whole,
            "b asks for boundary tensor 20; the layer before it left 20");
    refused((struct habits){.asked = -1, .left = MANY, .null = true}, whole,
            "a leaves NULL as boundary tensor 7 of 20");
    refused((struct habits){.asked = -1, .left = -1}, whole, "a leaves -1 boundary tensors");
    refused(usual, (struct source){.missing = 19},
            "no array for input 19 of model `many`, `x19`: set shoal_batch.data[19]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_floats_are_rounded),
                                       cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
