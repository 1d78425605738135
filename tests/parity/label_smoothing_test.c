/* Losses of smoothed labels against PyTorch's: shoal_cross_entropy_smoothed of logits, and the head
 * in tiles. The numbers come from tests/golden/make_label_smoothing_golden.py, which computed in
 * fp64 as this does; x, the weight and targets are the formulas below. */
#include "autograd/test_rig.h"

#include <math.h>

enum { ROWS_MAX = 8, INNER_MAX = 8, CLASSES_MAX = 2500, CASES = 7 };

struct golden {
    int rows, inner, classes;
    double smoothing, loss, dx[ROWS_MAX * INNER_MAX];
    double x[ROWS_MAX * INNER_MAX], weight[CLASSES_MAX * INNER_MAX];
    int32_t targets[ROWS_MAX];
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void fill(double *values, uint64_t stream, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        values[i] = 2 * ((double)(mix(stream * 1000003 + (uint64_t)i + 1) >> 40) / 8388608.0 - 1.0);
}

static void read_case(FILE *file, int32_t number, struct golden *golden)
{
    assert_int_equal(fscanf(file, "%d %d %d %lf %lf", &golden->rows, &golden->inner,
                            &golden->classes, &golden->smoothing, &golden->loss),
                     5);
    assert_in_range(golden->rows, 1, ROWS_MAX);
    assert_in_range(golden->inner, 1, INNER_MAX);
    assert_in_range(golden->classes, 2, CLASSES_MAX);
    for (int32_t i = 0; i < golden->rows * golden->inner; i++)
        assert_int_equal(fscanf(file, "%lf", &golden->dx[i]), 1);
    fill(golden->x, 2 * (uint64_t)number, golden->rows * golden->inner);
    fill(golden->weight, 2 * (uint64_t)number + 1, golden->classes * golden->inner);
    for (int32_t row = 0; row < golden->rows; row++)
        golden->targets[row] = row == 2 ? -1
                                        : (int32_t)(mix((uint64_t)number * 7919 + (uint64_t)row) %
                                                    (uint64_t)golden->classes);
}

static shoal_tensor *loss_of(struct shoal_tape *tape, const struct golden *golden, shoal_tensor *x,
                             struct shoal_param *weight, shoal_tensor *targets, bool tiled)
{
    if (tiled)
        return shoal_linear_cross_entropy_smoothed(tape, x, weight, targets, golden->smoothing);
    shoal_tensor *logits =
        shoal_linear(tape, x, weight, &(shoal_linear_args){.weight_out_in = true});
    return shoal_cross_entropy_smoothed(tape, logits, targets, golden->smoothing);
}

/* Sums of up to 2500 terms of some 10 at most, in another order than PyTorch's: 2500 x 10 x
 * 2^-53. */
static void check(const struct golden *golden, bool tiled)
{
    static struct rig rig;
    static struct shoal_param weight;
    const int64_t count = (int64_t)golden->rows * golden->inner;
    const shoal_shape shape = shoal_shape_2(golden->rows, golden->inner);
    const shoal_shape rows = shoal_shape_1(golden->rows);
    struct shoali_slot *slot;
    double loss, dx[ROWS_MAX * INNER_MAX];
    memset(&weight, 0, sizeof weight);
    rig_open(&rig, NULL);
    rig_ok(shoali_slot_create(rig.device, 0, &slot));
    struct shoal_tape *tape = rig_tape(&rig, slot, SHOAL_F64, NULL, NULL, 0);
    rig_param(&rig, &weight, "w", SHOAL_F64, shoal_shape_2(golden->classes, golden->inner));
    rig_write_values(&rig, SHOAL_F64, weight.data, golden->weight,
                     (int64_t)golden->classes * golden->inner);
    void *to = rig_alloc(&rig, (size_t)count * sizeof(double));
    rig_ok(
        shoali_tape_begin(tape, &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
    shoal_tensor *x = shoali_tape_add_input(tape, SHOAL_F64, &shape, golden->x, true);
    shoal_tensor *targets = shoali_tape_add_input(tape, SHOAL_I32, &rows, golden->targets, false);
    shoal_tensor *out = loss_of(tape, golden, x, &weight, targets, tiled);
    rig_ok(shoali_tape_status(tape));
    rig_ok(shoal_tensor_get_scalar(out, &loss));
    rig_ok(shoali_tape_backward(tape, &(struct shoali_backward){.outputs = &out,
                                                                .output_count = 1,
                                                                .seed_value = 1,
                                                                .inputs = &x,
                                                                .input_grads = &to,
                                                                .input_count = 1}));
    rig_read_values(&rig, SHOAL_F64, to, dx, count);
    if (!(fabs(loss - golden->loss) < 3e-12))
        fail_msg("%d classes, smoothing %g%s: loss %.17g, PyTorch's %.17g", golden->classes,
                 golden->smoothing, tiled ? ", tiled" : "", loss, golden->loss);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(dx[i] - golden->dx[i]) < 3e-12))
            fail_msg("%d classes, smoothing %g%s: dx[%d] %.17g, PyTorch's %.17g", golden->classes,
                     golden->smoothing, tiled ? ", tiled" : "", (int)i, dx[i], golden->dx[i]);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    rig_close(&rig);
}

static void test_pytorch(void **state)
{
    static struct golden golden;
    (void)state;
    FILE *file = fopen(GOLDEN_FOLDER "/label_smoothing.txt", "r");
    assert_non_null(file);
    for (int32_t number = 0; number < CASES; number++) {
        read_case(file, number, &golden);
        check(&golden, false);
        check(&golden, true);
    }
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
