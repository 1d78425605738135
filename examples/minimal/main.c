/* A small network learns to multiply two numbers: a model of one's own, trained by the engine. */
#include <shoal/shoal.h>

#include <stdio.h>

enum { SAMPLES = 64, HIDDEN = 32, STEPS = 300 };

static const char config[] =
    "{ \"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 64, \"reduction\": "
    "\"exact\",\n"
    "  \"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": 0.01, \"weight_decay\": 0 } } }";

static shoal_status declare(const void *unused, shoal_declaration *declaration)
{
    const shoal_param_spec params[] = {
        {"in.weight", shoal_shape_2(2, HIDDEN), .init = SHOAL_INIT_NORMAL, .init_b = 1},
        {"in.bias", shoal_shape_1(HIDDEN), .init = SHOAL_INIT_ZEROS},
        {"out.weight", shoal_shape_2(HIDDEN, 1), .init = SHOAL_INIT_NORMAL, .init_b = 0.2},
        {"out.bias", shoal_shape_1(1), .init = SHOAL_INIT_ZEROS}};
    shoal_status status = SHOAL_OK;
    (void)unused;
    for (int i = 0; i < 4 && status >= 0; i++)
        status = shoal_declare_param(declaration, &params[i]);
    return status;
}

static void forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const shoal_linear_args in = {.bias = shoal_layer_param(layer, 1),
                                  .activation = SHOAL_ACTIVATION_GELU};
    const shoal_linear_args out = {.bias = shoal_layer_param(layer, 3)};
    shoal_tensor *x = shoal_tape_input(tape, 0); /* [samples, 2] */
    x = shoal_linear(tape, x, shoal_layer_param(layer, 0), &in);
    x = shoal_linear(tape, x, shoal_layer_param(layer, 2), &out);
    x = shoal_mse(tape, x, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* Points are a function of (step, micro-batch), never of the rank: any number of ranks sees the
 * same. */
static shoal_status fill(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static _Thread_local float x[SAMPLES][2], y[SAMPLES];
    uint64_t number = (uint64_t)step * 1000 + (uint64_t)micro + 1;
    (void)user;
    for (int i = 0; i < SAMPLES; i++) {
        for (int j = 0; j < 2; j++) {
            number = number * 6364136223846793005u + 1442695040888963407u;
            x[i][j] = (float)(number >> 40) / (float)(1 << 23) - 1;
        }
        y[i] = x[i][0] * x[i][1];
    }
    batch->data[0] = x;
    batch->data[1] = y;
    return SHOAL_OK;
}

int main(void)
{
    const shoal_layer_type type = {.name = "mlp", .declare = declare, .forward = forward};
    const shoal_layer_spec layer = {&type, "mlp", NULL};
    const shoal_input_spec inputs[] = {
        {.name = "x", .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(2)},
        {.name = "y", .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(1)}};
    const shoal_model model = {
        .name = "product", .layers = &layer, .layer_count = 1, .inputs = inputs, .input_count = 2};
    shoal_group *group = NULL;
    shoal_engine *engine = NULL;
    shoal_step_info info = {.loss = 1};
    shoal_status status = shoal_comm_init(&(shoal_comm_args){0}, &group);
    if (status >= 0)
        status = shoal_engine_create(
            &(shoal_engine_args){.model = &model, .config_text = config, .group = group}, &engine);
    for (int i = 0; i < STEPS && status >= 0; i++) {
        status = shoal_engine_train_batch(engine, fill, NULL, &info);
        if (status >= 0 && i % 50 == 49 && shoal_engine_rank(engine) == 0)
            printf("step %d  loss %.5f\n", i + 1, info.loss);
    }
    if (status < 0)
        fprintf(stderr, "%s\n", shoal_error_message());
    shoal_engine_destroy(engine);
    shoal_comm_destroy(group);
    return status < 0 || !(info.loss < 0.01); /* the targets vary by 1/9 */
}
