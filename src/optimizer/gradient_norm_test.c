/* The exact norm over any cut and any number of ranks, clipping, overflow. */
#include "base/test_cmocka.h"
#include "optimizer/gradient_norm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEED 77
#define COUNT 4099

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
    ok(shoali_ops_select(NULL, NULL, &machine.ops));
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

struct result {
    float norm, multiplier, skip;
};

static void take(const struct machine *machine, const struct shoali_gradient_norm *norm,
                 int64_t words[SHOALI_GRADIENT_NORM_WORDS])
{
    uint64_t limbs[3];
    uint32_t flag;
    ok(shoali_download(machine->stream, limbs, norm->limbs, sizeof(limbs)));
    ok(shoali_download(machine->stream, &flag, norm->flag, sizeof(flag)));
    shoali_gradient_norm_split(limbs, flag, words);
}

static struct result decide(const struct machine *machine,
                            const int64_t words[SHOALI_GRADIENT_NORM_WORDS], double scale,
                            double max_norm)
{
    float control[3];
    uint64_t limbs[3];
    uint32_t flag;
    shoali_gradient_norm_join(words, limbs, &flag);
    shoali_ops_run(&machine->ops, &shoali_kernel_clip,
                   &(struct shoali_clip_args){.limbs = limbs,
                                              .flag = &flag,
                                              .out = control,
                                              .loss_scale = scale,
                                              .max_norm = max_norm});
    return (struct result){control[0], control[1], control[2]};
}

static struct result finish(const struct machine *machine, const struct shoali_gradient_norm *norm,
                            double scale, double max_norm)
{
    int64_t words[SHOALI_GRADIENT_NORM_WORDS];
    take(machine, norm, words);
    return decide(machine, words, scale, max_norm);
}

static void test_clip(void **state)
{
    struct machine *machine = *state;
    struct shoali_gradient_norm norm;
    struct result result;
    double wanted = true_norm(machine);
    print_message("seed %d\n", SEED);
    ok(shoali_gradient_norm_init(&norm, machine->device, machine->stream));
    for (int round = 0; round < 2; round++) { /* begin forgets the round before */
        ok(shoali_gradient_norm_begin(&norm));
        ok(shoali_gradient_norm_add(&norm, &machine->exec, machine->grad, COUNT));
        result = finish(machine, &norm, 1, 0);
        assert_true(result.skip == 0);
        assert_true(result.multiplier == 1);
        /* the integer sum is exact to COUNT * 2^-63; then one rounding to float */
        assert_true(fabs(result.norm - wanted) <= wanted * 0x1p-23);
    }
    result = finish(machine, &norm, 8, 0.5);
    assert_true(fabs(result.norm - wanted / 8) <= wanted * 0x1p-23);
    assert_true(fabs(result.multiplier - 0.125 * 0.5 / (wanted / 8 + 1e-6)) <= 0x1p-23);
    result = finish(machine, &norm, 8, wanted);
    assert_true(result.multiplier == 0.125f);
    shoali_gradient_norm_fini(&norm);
}

static shoal_status fail_at_once(void *user, void *const *buffers, bool may_wait)
{
    (void)user, (void)buffers, (void)may_wait;
    return SHOAL_FAIL(SHOAL_EIO, "the device is gone");
}

static void drop_nothing(void *user, shoal_status status, const char *sentence)
{
    (void)user, (void)status, (void)sentence;
}

/* A device that has failed still allocates, but clears nothing: an error, and nothing is left. */
static void test_failed_device(void **state)
{
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_gradient_norm norm;
    (void)state;
    ok(shoali_device_create(&shoali_accelerator_sim, 0, NULL, &device));
    ok(shoali_stream_create(device, &stream));
    ok(shoali_launch_host(stream, &(struct shoali_host_task){
                                      .name = "end", .poll = fail_at_once, .drop = drop_nothing}));
    assert_int_equal(shoali_stream_synchronize(stream), SHOAL_EIO);
    assert_int_equal(shoali_gradient_norm_init(&norm, device, stream), SHOAL_EIO);
    assert_null(norm.memory);
    shoali_stream_destroy(stream);
    shoali_device_destroy(device);
}

/* Ranks that hold parts, in any cut, sum words and get the bits of one rank that holds all. */
static void test_ranks(void **state)
{
    struct machine *machine = *state;
    float whole = 0;
    for (int ranks = 1; ranks <= 8; ranks++) {
        struct shoali_gradient_norm norm;
        struct result result;
        int64_t sum[SHOALI_GRADIENT_NORM_WORDS] = {0}, words[SHOALI_GRADIENT_NORM_WORDS];
        ok(shoali_gradient_norm_init(&norm, machine->device, machine->stream));
        for (int r = 0; r < ranks; r++) {
            int64_t first = (int64_t)COUNT * r / ranks, end = (int64_t)COUNT * (r + 1) / ranks;
            ok(shoali_gradient_norm_begin(&norm));
            ok(shoali_gradient_norm_add(&norm, &machine->exec, machine->grad + first,
                                        (end - first) / 2));
            ok(shoali_gradient_norm_add(&norm, &machine->exec,
                                        machine->grad + first + (end - first) / 2,
                                        end - first - (end - first) / 2));
            take(machine, &norm, words);
            for (int w = 0; w < SHOALI_GRADIENT_NORM_WORDS; w++)
                sum[w] += words[w];
        }
        result = decide(machine, sum, 1, 1);
        if (ranks == 1)
            whole = result.norm;
        assert_memory_equal(&whole, &result.norm, sizeof(whole));
        shoali_gradient_norm_fini(&norm);
    }
}

static void test_overflow(void **state)
{
    struct machine *machine = *state;
    static const float bad[] = {INFINITY, -INFINITY, NAN, 0x1p60f};
    struct shoali_gradient_norm norm;
    struct result result;
    int64_t words[SHOALI_GRADIENT_NORM_WORDS];
    ok(shoali_gradient_norm_init(&norm, machine->device, machine->stream));
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        float *at = machine->grad + 1000 * k + 17;
        ok(shoali_upload(machine->stream, at, &bad[k], sizeof(float)));
        ok(shoali_gradient_norm_begin(&norm));
        ok(shoali_gradient_norm_add(&norm, &machine->exec, machine->grad, COUNT));
        take(machine, &norm, words);
        assert_int_equal(words[SHOALI_GRADIENT_NORM_WORDS - 1], 1);
        result = finish(machine, &norm, 1, 1);
        assert_true(result.skip == 1 && isnan(result.norm));
        ok(shoali_upload(machine->stream, at, &machine->host[1000 * k + 17], sizeof(float)));
    }
    ok(shoali_gradient_norm_begin(&norm));
    ok(shoali_gradient_norm_add(&norm, &machine->exec, machine->grad, COUNT));
    result = finish(machine, &norm, 1, 1);
    assert_true(result.skip == 0);
    take(machine, &norm, words);
    words[SHOALI_GRADIENT_NORM_WORDS - 1] = 3; /* ranks that mark the step */
    result = decide(machine, words, 1, 1);
    assert_true(result.skip == 1);
    ok(shoali_gradient_norm_begin(&norm));
    result = finish(machine, &norm, 1, 1); /* nothing added: norm 0 */
    assert_true(result.skip == 0 && result.norm == 0 && result.multiplier == 1);
    shoali_gradient_norm_fini(&norm);
    shoali_gradient_norm_fini(&norm);
}

/* 192-bit addition through words equals addition with carries. */
static void test_words(void **state)
{
    (void)state;
    struct shoali_stream stream = shoali_stream_make(SEED, "test", "words", 0);
    for (uint64_t k = 0; k < 2000; k++) {
        uint64_t expected[3] = {0}, joined[3];
        int64_t sum[SHOALI_GRADIENT_NORM_WORDS] = {0}, words[SHOALI_GRADIENT_NORM_WORDS];
        uint32_t any = 0, flag;
        for (uint64_t r = 0; r < 5; r++) {
            uint64_t limbs[3];
            for (uint64_t i = 0; i < 3; i++) {
                uint64_t x = shoali_random_below(&stream, 100 * k + 10 * r + i, UINT64_C(1) << 63);
                limbs[i] = k % 3 == 0 ? UINT64_MAX - (x & 3) : x * 2;
            }
            uint32_t mine = k % 7 == r;
            shoali_gradient_norm_split(limbs, mine, words);
            any |= mine;
            unsigned __int128 carry = 0;
            for (int i = 0; i < 3; i++) {
                carry += (unsigned __int128)expected[i] + limbs[i];
                expected[i] = (uint64_t)carry;
                carry >>= 64;
            }
            for (int w = 0; w < SHOALI_GRADIENT_NORM_WORDS; w++)
                sum[w] += words[w];
        }
        shoali_gradient_norm_join(sum, joined, &flag);
        assert_memory_equal(joined, expected, sizeof(joined));
        assert_int_equal(flag, any);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip),          cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_overflow),      cmocka_unit_test(test_words),
        cmocka_unit_test(test_failed_device),
    };
    return cmocka_run_group_tests(tests, make_machine, drop_machine);
}
