/* Attention's memory is linear in the sequence length: planned, and at a length whose T x T scores
 * would take gigabytes. */
#include "autograd/test_rig.h"

#include <math.h>

enum { HEAD_SIZE = 64, WIDTH = 3 * HEAD_SIZE };

/* Forward and backward of one head; its input is made by an op so that its gradient is of the slot.
 */
static shoal_tensor *run_attention(struct shoal_tape *tape, shoal_dtype dtype, int64_t length,
                                   const float *host)
{
    const shoal_shape shape = shoal_shape_3(1, length, WIDTH);
    rig_ok(
        shoali_tape_begin(tape, &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
    shoal_tensor *qkv = shoali_tape_add_input(tape, dtype, &shape, host, true);
    shoal_scope_begin(tape, "attn");
    shoal_tensor *y =
        shoal_attention(tape, shoal_square(tape, qkv), &(shoal_attention_args){.heads = 1});
    shoal_tensor *loss = shoal_mean(tape, shoal_square(tape, y), SHOAL_ALL_DIMS);
    shoal_scope_end(tape, &loss, 1);
    rig_ok(shoali_tape_status(tape));
    rig_ok(shoali_tape_backward(
        tape, &(struct shoali_backward){.outputs = &loss, .output_count = 1, .seed_value = 1}));
    return loss;
}

static int64_t plan(shoal_dtype dtype, int64_t length)
{
    struct shoali_slot *slot;
    rig_ok(shoali_slot_create(NULL, 0, &slot));
    struct shoal_tape *tape = rig_tape(NULL, slot, dtype, NULL, NULL, 0);
    (void)run_attention(tape, dtype, length, NULL);
    const int64_t peak = (int64_t)shoali_slot_peak_bytes(slot);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return peak;
}

/* Every doubling of T doubles the peak, but for what does not depend on T: scalars, and the padding
 * of segments. */
static void test_planned_memory_is_linear(void **state)
{
    const int64_t fixed = 4096;
    (void)state;
    for (int32_t half = 0; half < 2; half++) {
        const shoal_dtype dtype = half ? SHOAL_BF16 : SHOAL_F32;
        int64_t before = plan(dtype, 1024);
        assert_in_range(before, 1024 * WIDTH * 2, 1024 * WIDTH * 4 * 6);
        for (int64_t length = 2048; length <= 32768; length *= 2) {
            const int64_t peak = plan(dtype, length);
            assert_in_range(peak, 2 * before - fixed, 2 * before + fixed);
            before = peak;
        }
        print_message("%s: %lld bytes at T = 32768\n", shoal_dtype_name(dtype), (long long)before);
    }
}

/* The instrumented kernels are slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LONG = 2048 };
#else
enum { LONG = 32768 };
#endif

/* All values are equal (v = 1), so attention gives 1 for every query whatever its keys weigh. */
static void test_long_run_fits_its_plan(void **state)
{
    static float host[LONG * WIDTH];
    const uint64_t seed = rig_seed("long attention");
    const struct shoali_stream stream = shoali_stream_make(seed, "qk", "", 0);
    struct rig rig;
    struct shoali_slot *slot;
    double loss;
    (void)state;
    for (int64_t i = 0; i < (int64_t)LONG * WIDTH; i++)
        host[i] = i % WIDTH >= 2 * HEAD_SIZE ? 1 : shoali_random_uniform(&stream, (uint64_t)i);
    rig_open(&rig, NULL);
    const int64_t need = plan(SHOAL_BF16, LONG);
    rig_ok(shoali_slot_create(rig.device, (size_t)need, &slot));
    struct shoal_tape *tape = rig_tape(&rig, slot, SHOAL_BF16, NULL, NULL, 0);
    const int64_t begin = shoali_now_ns();
    rig_ok(shoal_tensor_get_scalar(run_attention(tape, SHOAL_BF16, LONG, host), &loss));
    print_message("T = %d: %.2f s in %lld bytes\n", LONG, (double)(shoali_now_ns() - begin) * 1e-9,
                  (long long)need);
    /* Weights of a row add up to 1 within bf16's roundoff, and outputs are rounded to it. */
    assert_true(fabs(loss - 1) <= 4 * 0x1p-8);
    assert_int_equal(shoali_slot_growth_count(slot), 0);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_memory_is_linear),
        cmocka_unit_test(test_long_run_fits_its_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
