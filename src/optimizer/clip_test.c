/* The exact norm over any cut and any number of ranks, clipping, overflow. */
#include "optimizer/clip.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SEED 77
#define COUNT 4099

static void ok(shoal_status status)
{
    if (status < 0)
        fail_msg("%s", shoal_error_message());
}

struct machine {
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_ops ops;
    struct shoali_exec exec;
    float host[COUNT], *grad;
};

static int make_machine(void **state)
{
    static struct machine machine;
    const struct shoali_accelerator *accelerator;
    void *address = NULL;
    memset(&machine, 0, sizeof(machine));
    ok(shoali_accelerator_select(NULL, &accelerator));
    ok(shoali_device_create(accelerator, 0, NULL, &machine.device));
    ok(shoali_stream_create(machine.device, &machine.stream));
    ok(shoali_ops_select(NULL, &machine.ops));
    machine.exec = (struct shoali_exec){&machine.ops, machine.stream};
    struct shoali_stream stream = shoali_stream_make(SEED, "test", "", 0);
    for (int i = 0; i < COUNT; i++)
        machine.host[i] = (float)shoali_random_normal(&stream, (uint64_t)i);
    ok(shoali_device_alloc(machine.device, sizeof(machine.host), &address));
    ok(shoali_upload(machine.stream, address, machine.host, sizeof(machine.host)));
    machine.grad = address;
    *state = &machine;
    return 0;
}

static int drop_machine(void **state)
{
    struct machine *machine = *state;
    shoali_device_free(machine->device, machine->grad);
    shoali_stream_destroy(machine->stream);
    shoali_device_destroy(machine->device);
    return 0;
}

static double true_norm(const struct machine *machine)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += (double)machine->host[i] * (double)machine->host[i];
    return sqrt(sum);
}

static void finish(struct machine *machine, struct shoali_clip *clip, double scale, double max_norm,
                   struct shoali_clip_result *result)
{
    ok(shoali_clip_finish(clip, &machine->exec, scale, max_norm));
    ok(shoali_clip_result(clip, result));
}

static void test_clip(void **state)
{
    struct machine *machine = *state;
    struct shoali_clip clip;
    struct shoali_clip_result result;
    double norm = true_norm(machine);
    print_message("seed %d\n", SEED);
    ok(shoali_clip_init(&clip, machine->device, machine->stream));
    for (int round = 0; round < 2; round++) { /* begin forgets the round before */
        ok(shoali_clip_begin(&clip));
        ok(shoali_clip_add(&clip, &machine->exec, machine->grad, COUNT));
        finish(machine, &clip, 1, 0, &result);
        assert_false(result.skip);
        assert_true(result.multiplier == 1);
        /* the integer sum is exact to COUNT * 2^-63; then one rounding to float */
        assert_true(fabs(result.norm - norm) <= norm * 0x1p-23);
    }
    finish(machine, &clip, 8, 0.5, &result);
    assert_true(fabs(result.norm - norm / 8) <= norm * 0x1p-23);
    assert_true(fabs(result.multiplier - 0.125 * 0.5 / (norm / 8 + 1e-6)) <= 0x1p-23);
    finish(machine, &clip, 8, norm, &result);
    assert_true(result.multiplier == 0.125f);
    shoali_clip_fini(&clip);
}

/* Ranks that hold parts, in any cut, sum words and get the bits of one rank that holds all. */
static void test_ranks(void **state)
{
    struct machine *machine = *state;
    float norm = 0;
    for (int ranks = 1; ranks <= 8; ranks++) {
        struct shoali_clip clip;
        struct shoali_clip_result result;
        int64_t sum[SHOALI_CLIP_WORDS] = {0}, words[SHOALI_CLIP_WORDS];
        ok(shoali_clip_init(&clip, machine->device, machine->stream));
        for (int r = 0; r < ranks; r++) {
            int64_t first = (int64_t)COUNT * r / ranks, end = (int64_t)COUNT * (r + 1) / ranks;
            ok(shoali_clip_begin(&clip));
            ok(shoali_clip_add(&clip, &machine->exec, machine->grad + first, (end - first) / 2));
            ok(shoali_clip_add(&clip, &machine->exec, machine->grad + first + (end - first) / 2,
                               end - first - (end - first) / 2));
            ok(shoali_clip_take(&clip, words));
            for (int w = 0; w < SHOALI_CLIP_WORDS; w++)
                sum[w] += words[w];
        }
        ok(shoali_clip_put(&clip, sum));
        finish(machine, &clip, 1, 1, &result);
        if (ranks == 1)
            norm = result.norm;
        assert_memory_equal(&norm, &result.norm, sizeof(norm));
        shoali_clip_fini(&clip);
    }
}

static void test_overflow(void **state)
{
    struct machine *machine = *state;
    static const float bad[] = {INFINITY, -INFINITY, NAN, 0x1p60f};
    struct shoali_clip clip;
    struct shoali_clip_result result;
    int64_t words[SHOALI_CLIP_WORDS];
    ok(shoali_clip_init(&clip, machine->device, machine->stream));
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        float *at = machine->grad + 1000 * k + 17;
        ok(shoali_upload(machine->stream, at, &bad[k], sizeof(float)));
        ok(shoali_clip_begin(&clip));
        ok(shoali_clip_add(&clip, &machine->exec, machine->grad, COUNT));
        ok(shoali_clip_take(&clip, words));
        assert_int_equal(words[SHOALI_CLIP_WORDS - 1], 1);
        finish(machine, &clip, 1, 1, &result);
        assert_true(result.skip && isnan(result.norm));
        ok(shoali_upload(machine->stream, at, &machine->host[1000 * k + 17], sizeof(float)));
    }
    ok(shoali_clip_begin(&clip));
    ok(shoali_clip_add(&clip, &machine->exec, machine->grad, COUNT));
    finish(machine, &clip, 1, 1, &result);
    assert_false(result.skip);
    ok(shoali_clip_mark(&clip));
    finish(machine, &clip, 1, 1, &result);
    assert_true(result.skip);
    ok(shoali_clip_begin(&clip));
    finish(machine, &clip, 1, 1, &result); /* nothing added: norm 0 */
    assert_true(!result.skip && result.norm == 0 && result.multiplier == 1);
    shoali_clip_fini(&clip);
    shoali_clip_fini(&clip);
}

/* 192-bit addition through words equals addition with carries. */
static void test_words(void **state)
{
    (void)state;
    struct shoali_stream stream = shoali_stream_make(SEED, "test", "words", 0);
    for (uint64_t k = 0; k < 2000; k++) {
        uint64_t expected[3] = {0}, joined[3];
        int64_t sum[SHOALI_CLIP_WORDS] = {0}, words[SHOALI_CLIP_WORDS];
        uint32_t any = 0, flag;
        for (uint64_t r = 0; r < 5; r++) {
            uint64_t limbs[3];
            for (uint64_t i = 0; i < 3; i++) {
                uint64_t x = shoali_random_below(&stream, 100 * k + 10 * r + i, UINT64_C(1) << 63);
                limbs[i] = k % 3 == 0 ? UINT64_MAX - (x & 3) : x * 2;
            }
            uint32_t mine = k % 7 == r;
            shoali_clip_split_words(limbs, mine, words);
            any |= mine;
            unsigned __int128 carry = 0;
            for (int i = 0; i < 3; i++) {
                carry += (unsigned __int128)expected[i] + limbs[i];
                expected[i] = (uint64_t)carry;
                carry >>= 64;
            }
            for (int w = 0; w < SHOALI_CLIP_WORDS; w++)
                sum[w] += words[w];
        }
        shoali_clip_join_words(sum, joined, &flag);
        assert_memory_equal(joined, expected, sizeof(joined));
        assert_int_equal(flag, any);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, make_machine, drop_machine);
}
