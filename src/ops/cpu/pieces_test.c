/* Arrays of many pieces, which threads claim in every order and write past the caches: the bits of
 * the reference, from each built table that this CPU can run. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "ops/kernel.h"
#include "ops/ops.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 150001, LINE = 64 };
#define COUNT_BYTES ((size_t)COUNT * 8)
static const uint64_t seeds[] = {0, 0x9e3779b97f4a7c15u, 12345678901234567u};

static float random_float(uint64_t *state, int32_t low_exponent, int32_t exponents)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = (uint32_t)(*state >> 32);
    const float m = 1 + (float)(bits & 0x7fffff) * 0x1p-23f;
    const int32_t e = low_exponent + (int32_t)((*state >> 20) % (uint32_t)exponents);
    return ldexpf(bits >> 31 ? -m : m, e);
}

static void *lines(size_t bytes)
{
    void *memory = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
    assert_non_null(memory);
    return memory;
}

/* Runs `args`, which write `bytes` at `result`, on the reference and then on every table, by one
 * thread and by three with each seed; `expected` has room for the result. */
static void all_agree(const struct shoali_kernel *kernel, const void *args, void *result,
                      size_t bytes, void *expected)
{
    const struct shoali_ops_table *const *tables = shoali_ops_all();
    const struct shoali_kernel_context alone = {.threads = NULL};
    struct shoali_pool *pool = NULL;
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    memset(result, 0, bytes);
    shoali_ops_entry(&shoali_ops_ref, kernel)->fn(args, &alone);
    memcpy(expected, result, bytes);
    for (int t = 0; tables[t] != &shoali_ops_ref; t++) {
        const struct shoali_ops_entry *entry = shoali_ops_entry(tables[t], kernel);
        if (!tables[t]->probe() || !entry ||
            (shoali_kernel_dtypes_of(kernel, args) & ~entry->dtypes) != 0)
            continue;
        for (size_t s = 0; s <= sizeof seeds / sizeof seeds[0]; s++) {
            const struct shoali_kernel_context context = {.threads = s ? pool : NULL};
            shoali_pool_shuffle(pool, s ? seeds[s - 1] : 0);
            memset(result, 0, bytes);
            entry->fn(args, &context);
            if (memcmp(expected, result, bytes) != 0)
                fail_msg("%s of %s, order %d, differs from the reference", kernel->type.name,
                         tables[t]->name, (int)s);
        }
    }
    shoali_pool_destroy(pool);
}

struct arrays {
    float *x;
    void *y, *expected;
    int64_t *fixed;
};

static int make(void **state)
{
    struct arrays *a = calloc(1, sizeof *a);
    assert_non_null(a);
    a->x = lines(COUNT_BYTES);
    a->y = lines(COUNT_BYTES);
    a->expected = lines(COUNT_BYTES);
    a->fixed = lines(COUNT_BYTES);
    *state = a;
    return 0;
}

static int drop(void **state)
{
    struct arrays *a = *state;
    free(a->x);
    free(a->y);
    free(a->expected);
    free(a->fixed);
    free(a);
    return 0;
}

static void test_conversions(void **state)
{
    struct arrays *a = *state;
    uint64_t random = 1;
    for (int64_t i = 0; i < COUNT; i++)
        a->x[i] = random_float(&random, -140, 260);
    a->x[COUNT / 2] = INFINITY;
    for (int64_t skip = 0; skip < 2; skip++) { /* on a line, and beside it */
        struct shoali_convert_args convert = {.x = a->x,
                                              .y = (uint16_t *)a->y + skip,
                                              .count = COUNT,
                                              .dtype = SHOAL_F32,
                                              .dtype_out = SHOAL_BF16};
        all_agree(&shoali_kernel_convert, &convert, convert.y, (size_t)COUNT * 2, a->expected);
        convert.dtype_out = SHOAL_F16;
        all_agree(&shoali_kernel_convert, &convert, convert.y, (size_t)COUNT * 2, a->expected);
        convert.dtype = SHOAL_F16;
        convert.dtype_out = SHOAL_F32;
        convert.y = (float *)a->y + skip;
        memset(a->x, 0x11, (size_t)COUNT); /* no NaN, whose payload is free */
        all_agree(&shoali_kernel_convert, &convert, convert.y, (size_t)COUNT * 4, a->expected);
    }
}

static void test_fixed_point(void **state)
{
    static const double divisors[] = {1, 3, 7, 10, 0.1, 65535, 1e9 + 7, 1e-20};
    static const int32_t units[] = {40, 62, -30, 500};
    struct arrays *a = *state;
    uint64_t random = 2;
    for (int64_t i = 0; i < COUNT; i++) {
        const float x = random_float(&random, -60, 75);
        a->x[i] = i % 1000 == 7 ? 4 * x : x;
        a->fixed[i] = (int64_t)random >> (random % 63);
    }
    uint32_t flag = 0;
    const struct shoali_to_fixed_args to = {
        .x = a->x, .fixed = a->y, .flag = &flag, .count = COUNT, .unit_log2 = 45, .limit = 16384};
    all_agree(&shoali_kernel_to_fixed, &to, a->y, (size_t)COUNT * 8, a->expected);
    assert_int_equal(flag, 1);
    for (size_t i = 0; i < sizeof divisors / sizeof divisors[0] * 4; i++) {
        const struct shoali_from_fixed_args from = {.fixed = a->fixed,
                                                    .y = a->y,
                                                    .count = COUNT,
                                                    .unit_log2 = units[i % 4],
                                                    .divisor = divisors[i / 4]};
        all_agree(&shoali_kernel_from_fixed, &from, a->y, (size_t)COUNT * 4, a->expected);
    }
}

/* Sums as integers: rows of whole lines, with and without a gap between them, and rows that are
 * none. */
static void test_fixed_products(void **state)
{
    static const int64_t shapes[][4] = {{70, 64, 64, 90}, {9, 200, 208, 90}, {33, 50, 50, 90},
                                        {40, 48, 49, 90}, {7, 24, 24, 0},    {9, 40, 40, 3000}};
    struct arrays *a = *state;
    uint64_t random = 8;
    uint32_t flag = 0;
    for (int64_t i = 0; i < COUNT; i++)
        a->x[i] = random_float(&random, -6, 7);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t m = shapes[s][0], n = shapes[s][1], ldc = shapes[s][2], k = shapes[s][3];
        const struct shoali_gemm_args product = {.a = a->x,
                                                 .b = a->x + m * k,
                                                 .fixed = a->y,
                                                 .flag = &flag,
                                                 .m = m,
                                                 .n = n,
                                                 .k = k,
                                                 .lda = m,
                                                 .ldb = n,
                                                 .ldc = ldc,
                                                 .trans_a = 1,
                                                 .unit_log2 = 44,
                                                 .limit = 0x1p15};
        all_agree(&shoali_kernel_gemm, &product, a->y, (size_t)(m * ldc) * 8, a->expected);
        assert_int_equal(flag, 0);
    }
}

static void test_squares(void **state)
{
    /* below and around 2^-62 in the square, usual, and too large for the fast way */
    static const int32_t range[][2] = {{-149, 140}, {-36, 12}, {-20, 24}, {-3, 12}, {10, 20}};
    struct arrays *a = *state;
    uint64_t random = 3;
    for (size_t r = 0; r < sizeof range / sizeof range[0]; r++) {
        for (int64_t i = 0; i < COUNT; i++)
            a->x[i] = random_float(&random, range[r][0], range[r][1]);
        a->x[COUNT / 3] = r % 2 ? 0x1p40f : 0.0f;
        a->x[COUNT / 5] = r == 2 ? NAN : 1e-42f;
        for (int64_t short_by = 0; short_by < 40; short_by += 13) {
            struct {
                uint64_t limbs[3];
                uint32_t flag, unused;
            } sum;
            const struct shoali_norm2_args norm2 = {
                .x = a->x, .limbs = sum.limbs, .flag = &sum.flag, .count = COUNT - short_by};
            all_agree(&shoali_kernel_norm2, &norm2, &sum, sizeof sum, a->expected);
            assert_int_equal(sum.flag != 0, r == 2);
        }
    }
}

static void losses(struct arrays *a, int64_t rows, int64_t columns, int64_t stride,
                   shoal_dtype dtype)
{
    int32_t targets[64];
    float lse[64], loss[64];
    const float mean_and_count[2] = {1, (float)rows};
    uint64_t random = (uint64_t)columns;
    for (int64_t i = 0; i < rows * stride; i++) {
        const float x = random_float(&random, -8, 11);
        const uint16_t half = shoali_f32_to_bf16(x);
        if (dtype == SHOAL_F32)
            a->x[i] = x;
        else
            memcpy((uint16_t *)a->x + i, &half, sizeof half);
    }
    for (int64_t row = 0; row < rows; row++)
        targets[row] = row % 5 == 4 ? -1 : (int32_t)(row * 7919 % columns);
    const struct shoali_cross_entropy_args forward = {.logits = a->x,
                                                      .targets = targets,
                                                      .loss = loss,
                                                      .lse = lse,
                                                      .rows = rows,
                                                      .columns = columns,
                                                      .stride = stride,
                                                      .dtype = dtype};
    all_agree(&shoali_kernel_cross_entropy, &forward, lse, (size_t)rows * 4, a->expected);
    const struct shoali_cross_entropy_backward_args back = {.logits = a->x,
                                                            .targets = targets,
                                                            .lse = lse,
                                                            .dloss = mean_and_count,
                                                            .count = mean_and_count + 1,
                                                            .dlogits = a->y,
                                                            .rows = rows,
                                                            .columns = columns,
                                                            .stride = stride,
                                                            .dtype = dtype};
    all_agree(&shoali_kernel_cross_entropy_backward, &back, a->y,
              (size_t)(rows * stride) * shoal_dtype_bytes(dtype), a->expected);
}

static void test_losses(void **state)
{
    losses(*state, 40, 3000, 3000, SHOAL_F32);
    losses(*state, 50, 2003, 2011, SHOAL_F32); /* rows begin anywhere in a line */
    losses(*state, 50, 2003, 2011, SHOAL_BF16);
    losses(*state, 64, 17, 21, SHOAL_F32); /* rows within a line */
}

static void test_random_numbers(void **state)
{
    struct arrays *a = *state;
    uint64_t random = 5;
    for (int64_t i = 0; i < COUNT; i++)
        a->x[i] = random_float(&random, -10, 20);
    for (int32_t kind = 0; kind < 4; kind++) {
        const struct shoali_random_fill_args fill = {
            .y = a->y,
            .count = COUNT,
            .a = kind & 2 ? 0.5 : 0,
            .b = 0.02,
            .uniform = kind & 1,
            .first_element = kind == 3 ? 0xfffffff0 : 99, /* the counter's upper half changes */
            .random = shoali_stream_make(7, "init", "w", (uint64_t)kind)};
        all_agree(&shoali_kernel_random_fill, &fill, a->y, (size_t)COUNT * 4, a->expected);
        const struct shoali_dropout_args dropout = {.x = a->x,
                                                    .residual = kind & 1 ? a->x : NULL,
                                                    .y = a->y,
                                                    .count = COUNT,
                                                    .probability = 0.3f,
                                                    .first_element = fill.first_element,
                                                    .random = fill.random};
        all_agree(&shoali_kernel_dropout, &dropout, a->y, (size_t)COUNT * 4, a->expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_conversions, make, drop),
        cmocka_unit_test_setup_teardown(test_fixed_point, make, drop),
        cmocka_unit_test_setup_teardown(test_fixed_products, make, drop),
        cmocka_unit_test_setup_teardown(test_squares, make, drop),
        cmocka_unit_test_setup_teardown(test_losses, make, drop),
        cmocka_unit_test_setup_teardown(test_random_numbers, make, drop),
    };
    shoali_fp_enter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
