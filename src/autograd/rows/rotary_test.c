/* Rotary positions against their formula, and frequencies against those of published models. */
#include "autograd/test_rig.h"

#include <math.h>

enum { BATCH = 2, LENGTH = 5, HEADS = 2, KV = 1, SIZE = 6, COLUMNS = (HEADS + 2 * KV) * SIZE };

static void frequencies(const shoal_rope_args *rope, float *to)
{
    rig_ok(shoal_rope_frequencies(rope, to));
}

static void near(double got, double expected, const char *what)
{
    /* fp64, rounded to fp32 */
    if (!(fabs(got - expected) <= 0x1.1p-24 * fabs(expected)))
        fail_msg("%s is %.9g, not %.9g", what, got, expected);
}

static void test_frequencies(void **state)
{
    (void)state;
    float f[64];
    frequencies(&(shoal_rope_args){.rotary_size = 128}, f);
    for (int i = 0; i < 64; i++)
        near((double)f[i], pow(10000, -2.0 * i / 128), "inverse frequency");
    assert_true(f[0] == 1);
    frequencies(
        &(shoal_rope_args){
            .rotary_size = 10, .base = 500000, .scaling = SHOAL_ROPE_SCALING_LINEAR, .factor = 2.5},
        f);
    for (int i = 0; i < 5; i++)
        near((double)f[i], pow(500000, -2.0 * i / 10) / 2.5, "divided inverse frequency");
}

/* What transformers computes for Llama 3.2 1B (head size 64), as fp32: high frequencies as they
 * are, a blend, and low ones divided by the factor. Its fp32 arithmetic is off by a few units. */
static void test_llama3(void **state)
{
    (void)state;
    static const struct {
        int pair;
        double frequency;
    } expected[] = {{0, 1},
                    {1, 0.663601279},
                    {8, 0.0376060307},
                    {14, 0.00321144611},
                    {15, 0.00129054801},
                    {16, 0.000429556705},
                    {17, 9.70828623e-05},
                    {18, 1.94616387e-05},
                    {24, 1.66196742e-06},
                    {31, 9.41830649e-08}};
    float f[32];
    frequencies(&(shoal_rope_args){.rotary_size = 64,
                                   .base = 500000,
                                   .scaling = SHOAL_ROPE_SCALING_LLAMA3,
                                   .factor = 32,
                                   .low_freq_factor = 1,
                                   .high_freq_factor = 4,
                                   .original_max_position = 8192},
                f);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (!(fabs((double)f[expected[i].pair] / expected[i].frequency - 1) < 0x1p-20))
            fail_msg("frequency %d is %.9g, not %.9g", expected[i].pair,
                     (double)f[expected[i].pair], expected[i].frequency);
}

static void refuse(const shoal_rope_args *rope, const char *sentence)
{
    float f[256];
    assert_int_equal(shoal_rope_frequencies(rope, f), SHOAL_EINVAL);
    if (strstr(shoal_error_message(), sentence) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", shoal_error_message(), sentence);
}

static void test_mistakes(void **state)
{
    (void)state;
    refuse(&(shoal_rope_args){.rotary_size = 7}, "must be even");
    refuse(&(shoal_rope_args){.rotary_size = 258}, "at most 256");
    refuse(&(shoal_rope_args){.rotary_size = 8, .base = 0.5}, "base is 0.5");
    refuse(&(shoal_rope_args){.rotary_size = 8, .scaling = SHOAL_ROPE_SCALING_LINEAR}, "factor");
    refuse(&(shoal_rope_args){.rotary_size = 8, .scaling = (shoal_rope_scaling)9}, "is unknown");
    refuse(&(shoal_rope_args){.rotary_size = 8,
                              .scaling = SHOAL_ROPE_SCALING_LLAMA3,
                              .factor = 8,
                              .low_freq_factor = 4,
                              .high_freq_factor = 4,
                              .original_max_position = 8192},
           "low < high");
    shoal_rope_args llama3 = {.rotary_size = 8,
                              .scaling = SHOAL_ROPE_SCALING_LLAMA3,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4};
    float f[256];
    refuse(&llama3, "at least 1 position");
    llama3.original_max_position = 1;
    assert_int_equal(shoal_rope_frequencies(&llama3, f), SHOAL_OK);
}

/* Element i of a head's `size` turned elements at a position. */
static double turned(const double *x, int i, int size, double position, const float *f,
                     bool interleaved)
{
    const int half = size / 2, pair = interleaved ? i / 2 : i % half;
    const bool second = interleaved ? i % 2 != 0 : i >= half;
    const int a = interleaved ? 2 * pair : pair, b = interleaved ? 2 * pair + 1 : pair + half;
    const double angle = (double)((float)position * f[pair]);
    return second ? x[b] * cos(angle) + x[a] * sin(angle) : x[a] * cos(angle) - x[b] * sin(angle);
}

static void check_rotation(shoal_dtype dtype, double tolerance, int rotary_size, bool interleaved)
{
    static struct rig rig;
    struct shoali_slot *slot;
    const float f[3] = {1.0f, 0.31f, 0.02f};
    const shoal_shape shape = shoal_shape_3(BATCH, LENGTH, COLUMNS);
    double x[BATCH * LENGTH * COLUMNS], y[BATCH * LENGTH * COLUMNS];
    float narrow[BATCH * LENGTH * COLUMNS];
    rig_open(&rig, NULL);
    rig_ok(shoali_slot_create(rig.device, 0, &slot));
    struct shoal_tape *tape = rig_tape(&rig, slot, dtype, NULL, NULL, 0);
    rig_random(5, "x", -1, 1, x, BATCH * LENGTH * COLUMNS);
    for (int i = 0; i < BATCH * LENGTH * COLUMNS; i++)
        narrow[i] = (float)(x[i] = (double)(float)x[i]);
    rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){0}));
    const void *host = dtype == SHOAL_F64 ? (const void *)x : (const void *)narrow;
    shoal_tensor *out = shoal_rotary(tape, shoali_tape_add_input(tape, dtype, &shape, host, false),
                                     &(shoal_rotary_args){.heads = HEADS,
                                                          .kv_heads = KV,
                                                          .rotary_size = rotary_size,
                                                          .inverse_frequency = f,
                                                          .interleaved = interleaved});
    rig_ok(shoali_tape_status(tape));
    rig_read_values(&rig, dtype, out->data, y, BATCH * LENGTH * COLUMNS);
    for (int i = 0; i < BATCH * LENGTH * COLUMNS; i++) {
        const int column = i % COLUMNS, in_head = column % SIZE;
        const bool turns = column < (HEADS + KV) * SIZE && in_head < rotary_size;
        const double expected = turns ? turned(x + i - in_head, in_head, rotary_size,
                                               i / COLUMNS % LENGTH, f, interleaved)
                                      : x[i];
        if (!(fabs(y[i] - expected) <= (turns ? tolerance : 0)))
            fail_msg("element %d is %.17g, not %.17g", i, y[i], expected);
    }
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    rig_close(&rig);
}

/* Two products and a sum of numbers below 1, of a sine and a cosine that are rounded: 2^-22. */
static void test_rotation(void **state)
{
    (void)state;
    for (int interleaved = 0; interleaved < 2; interleaved++)
        for (int size = 0; size <= SIZE; size += 2) {
            check_rotation(SHOAL_F64, 1e-15, size, interleaved != 0);
            check_rotation(SHOAL_F32, 0x1p-22, size, interleaved != 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_rotation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
