/* A program of MPI that trains: its ranks are Shoal's, and both talk over the same communicator.
 *     mpicc main.c -lshoal && mpirun -n 4 ./a.out */
#include <mpi.h>
#include <shoal/mpi.h>
#include <shoal/shoal.h>

#include <stdio.h>

enum { SAMPLES = 32, HIDDEN = 16, STEPS = 60 };

static const char config[] =
    "{ \"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 32, \"reduction\": "
    "\"exact\",\n"
    "  \"zero_optimization\": { \"stage\": 2 },\n"
    "  \"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": 0.02, \"weight_decay\": 0 } } }";

static shoal_status declare(const void *unused, shoal_declaration *declaration)
{
    const shoal_param_spec params[] = {
        {"in.weight", shoal_shape_2(1, HIDDEN), .init = SHOAL_INIT_NORMAL, .init_b = 1},
        {"in.bias", shoal_shape_1(HIDDEN), .init = SHOAL_INIT_ZEROS},
        {"out.weight", shoal_shape_2(HIDDEN, 1), .init = SHOAL_INIT_NORMAL, .init_b = 0.2}};
    shoal_status status = SHOAL_OK;
    (void)unused;
    for (int i = 0; i < 3 && status >= 0; i++)
        status = shoal_declare_param(declaration, &params[i]);
    return status;
}

static void forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const shoal_linear_args in = {.bias = shoal_layer_param(layer, 1),
                                  .activation = SHOAL_ACTIVATION_GELU};
    shoal_tensor *x = shoal_tape_input(tape, 0); /* [samples, 1] */
    x = shoal_linear(tape, x, shoal_layer_param(layer, 0), &in);
    x = shoal_linear(tape, x, shoal_layer_param(layer, 2), &(shoal_linear_args){0});
    x = shoal_mse(tape, x, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* The parabola, at points that depend on step and micro-batch alone: any number of ranks sees the
 * same. */
static shoal_status fill(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static float x[SAMPLES], y[SAMPLES];
    (void)user;
    for (int i = 0; i < SAMPLES; i++) {
        x[i] = (float)((step * 29 + micro * 17 + i * 7) % 101) / 50 - 1;
        y[i] = x[i] * x[i];
    }
    batch->data[0] = x;
    batch->data[1] = y;
    return SHOAL_OK;
}

static shoal_status train(shoal_group *group, double *loss)
{
    const shoal_layer_type type = {.name = "mlp", .declare = declare, .forward = forward};
    const shoal_layer_spec layer = {&type, "mlp", NULL};
    const shoal_input_spec inputs[] = {
        {.name = "x", .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(1)},
        {.name = "y", .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(1)}};
    const shoal_model model = {
        .name = "parabola", .layers = &layer, .layer_count = 1, .inputs = inputs, .input_count = 2};
    shoal_engine *engine = NULL;
    shoal_step_info info = {0};
    shoal_status status = shoal_engine_create(
        &(shoal_engine_args){.model = &model, .config_text = config, .group = group}, &engine);
    for (int i = 0; i < STEPS && status >= 0; i++)
        status = shoal_engine_train_batch(engine, fill, NULL, &info);
    shoal_engine_destroy(engine);
    *loss = info.loss;
    return status;
}

int main(int argc, char **argv)
{
    int level = 0, rank = 0;
    double loss = 1, largest = 1;
    shoal_group *group = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    shoal_status status = shoal_comm_from_mpi(MPI_COMM_WORLD, &group);
    if (status >= 0)
        status = train(group, &loss);
    if (status < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, shoal_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    shoal_comm_destroy(group);
    MPI_Allreduce(&loss, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); /* the program's own */
    if (rank == 0)
        printf("loss %.6f\n", largest);
    MPI_Finalize();
    return !(largest < 0.01); /* the targets vary by 0.09 */
}
