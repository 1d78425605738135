/* tensor_test.c - dtypes, shapes, 16-bit conversions and shard maps. */
#include "tensor/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void test_dtypes(void **state)
{
    (void)state;
    static const size_t bytes[SHOAL_DTYPE_COUNT] = {4, 2, 2, 8, 4, 8, 1};
    static const char *const name[SHOAL_DTYPE_COUNT] = {"F32", "BF16", "F16", "F64",
                                                        "I32", "I64",  "U8"};
    for (int i = 0; i < SHOAL_DTYPE_COUNT; i++) {
        assert_int_equal(shoal_dtype_bytes((shoal_dtype)i), bytes[i]);
        assert_string_equal(shoal_dtype_name((shoal_dtype)i), name[i]);
    }
    assert_int_equal(shoal_dtype_bytes(SHOAL_DTYPE_COUNT), 0);
    assert_string_equal(shoal_dtype_name(SHOAL_DTYPE_COUNT), "?");
}

static void test_shapes(void **state)
{
    (void)state;
    const shoal_shape scalar = {0, {0}};
    const shoal_shape a = shoal_shape_3(12, 64, 128);
    shoal_shape b = a;
    assert_int_equal(shoal_shape_count(&scalar), 1);
    assert_int_equal(shoal_shape_count(&a), 12 * 64 * 128);
    b.dim[4] = 77; /* dims past ndim do not count */
    assert_true(shoali_shape_equal(&a, &b));
    b.dim[2] = 127;
    assert_false(shoali_shape_equal(&a, &b));
    b = shoal_shape_2(12, 64);
    assert_false(shoali_shape_equal(&a, &b));

    const shoal_shape huge = shoal_shape_3((int64_t)1 << 31, (int64_t)1 << 31, 2);
    const shoal_shape most = shoal_shape_2(INT64_MAX, 1);
    const shoal_shape negative = shoal_shape_2(-1, 0);
    const shoal_shape empty = shoal_shape_3((int64_t)1 << 40, (int64_t)1 << 40, 0);
    const shoal_shape wrong = {SHOAL_MAX_DIMS + 1, {1, 1, 1, 1, 1}};
    assert_int_equal(shoal_shape_count(&huge), -1);
    assert_true(shoal_shape_count(&most) == INT64_MAX);
    assert_int_equal(shoal_shape_count(&negative), -1);
    assert_int_equal(shoal_shape_count(&empty), 0);
    assert_int_equal(shoal_shape_count(&wrong), -1);

    char text[128];
    assert_string_equal(shoali_shape_format(&a, text), "[12, 64, 128]");
    assert_string_equal(shoali_shape_format(&scalar, text), "[]");
    const shoal_shape wide = {5, {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}};
    assert_int_equal(strlen(shoali_shape_format(&wide, text)), 5 * 20 + 4 * 2 + 2);
}

static void test_describe(void **state)
{
    (void)state;
    struct shoal_tensor tensor;
    memset(&tensor, 0xff, sizeof tensor);
    tensor.shape = shoal_shape_2(3, 5);
    shoali_tensor_describe(&tensor, SHOAL_BF16, &tensor.shape);
    assert_int_equal(shoal_tensor_dtype(&tensor), SHOAL_BF16);
    assert_int_equal(shoal_shape_count(shoal_tensor_shape(&tensor)), 15);
    const struct shoali_block whole = shoali_block_whole(&tensor.shape);
    assert_true(shoali_block_equal(&tensor.block, &whole));
    assert_int_equal(tensor.bound, 15);
    assert_int_equal(tensor.node, -1);
    assert_null(tensor.data);
    assert_null(tensor.stream);
    for (int i = 0; i < SHOAL_MAX_DIMS; i++)
        assert_int_equal(tensor.block.offset[i], 0);
}

static void test_f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const float x = shoali_f16_to_f32((uint16_t)i);
        const uint16_t back = shoali_f32_to_f16(x);
        const uint32_t exponent = (i >> 10) & 31, mantissa = i & 1023;
        if (exponent == 31 && mantissa != 0) {
            assert_true(isnan(x));
            assert_int_equal(back, i | 0x200u); /* quiet, payload and sign kept */
            continue;
        }
        double expected = exponent == 0 ? ldexp(mantissa, -24)
                                        : ldexp(1024 + (double)mantissa, (int)exponent - 25);
        if (exponent == 31)
            expected = INFINITY;
        if (i & 0x8000u)
            expected = -expected;
        assert_true((double)x == expected);
        assert_int_equal(signbit(x) != 0, i >> 15);
        assert_int_equal(back, i);
    }
}

static void test_bf16_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const float x = shoali_bf16_to_f32((uint16_t)i);
        assert_int_equal(bits_of(x), i << 16);
        const bool nan = (i & 0x7fffu) > 0x7f80u;
        assert_int_equal(shoali_f32_to_bf16(x), nan ? i | 0x40u : i);
    }
}

/* The nearest number with `digits` significand bits, smallest normal 2^least, largest exponent
 * `most`, ties to even: by scaling so that rint() of a double rounds at the right bit. */
static double round_oracle(double x, int digits, int least, int most)
{
    if (x == 0 || isinf(x))
        return x;
    int exponent;
    (void)frexp(x, &exponent);
    exponent -= 1; /* |x| in [2^exponent, 2^(exponent+1)) */
    if (exponent < least)
        exponent = least;
    const double y = ldexp(rint(ldexp(x, digits - 1 - exponent)), exponent - digits + 1);
    return fabs(y) >= ldexp(1, most + 1) ? copysign(INFINITY, x) : y;
}

static void check_rounding(uint32_t u)
{
    const float x = float_of(u);
    const float half = shoali_f16_to_f32(shoali_f32_to_f16(x));
    const float brain = shoali_bf16_to_f32(shoali_f32_to_bf16(x));
    if (isnan(x)) {
        assert_true(isnan(half) && isnan(brain));
        return;
    }
    const bool good = (double)half == round_oracle(x, 11, -14, 15) &&
                      (double)brain == round_oracle(x, 8, -126, 127) &&
                      !signbit(half) == !signbit(x) && !signbit(brain) == !signbit(x);
    if (!good)
        print_error("conversion of float bits %08x is wrong: f16 %a, bf16 %a\n", u, (double)half,
                    (double)brain);
    assert_true(good);
}

/* Every exponent and sign with the mantissas at and around each rounding boundary of both types,
 * and with pseudo-random ones. */
static void test_rounding(void **state)
{
    (void)state;
    uint32_t random = 12345;
    for (uint32_t top = 0; top < 512; top++) {
        for (uint32_t bit = 0; bit < 23; bit++)
            for (uint32_t other = 0; other < 23; other++)
                for (int32_t delta = -1; delta <= 1; delta++) {
                    const uint32_t mantissa = ((1u << bit) | (1u << other)) + (uint32_t)delta;
                    check_rounding((top << 23) | (mantissa & 0x7fffffu));
                }
        for (int i = 0; i < 500; i++) {
            random = random * 1664525u + 1013904223u;
            check_rounding((top << 23) | (random >> 9));
        }
    }
    assert_int_equal(shoali_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(shoali_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(shoali_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(shoali_f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(shoali_f32_to_f16(0x1.8p-24f), 2);
    assert_int_equal(shoali_f32_to_f16(0x1.ffcp-15f), 0x400); /* rounds up to the first normal */
    assert_int_equal(shoali_f32_to_bf16(float_of(0x7f7fffffu)), 0x7f80);
}

#define MAP_TENSORS 5
static const char *const map_name[MAP_TENSORS] = {"wte", "empty", "b", "w", "scalar"};
static const shoal_shape map_shape[MAP_TENSORS] = {
    {2, {4, 3}}, {2, {0, 7}}, {1, {5}}, {3, {2, 3, 2}}, {0, {0}}};
static const int64_t map_offset[MAP_TENSORS] = {0, 12, 12, 17, 29};
static const int64_t map_elements[MAP_TENSORS] = {12, 0, 5, 12, 1};

/* Every element of the flat space in [begin, end) must be named by exactly one shard. */
static void check_map(const struct shoali_shard_map *map, int64_t begin, int64_t end)
{
    int64_t at = begin, covered = 0;
    for (int32_t i = 0; i < map->count; i++) {
        const struct shoali_shard *shard = &map->shard[i];
        assert_true(shard->count > 0);
        assert_string_equal(shard->name, map_name[shard->param]);
        assert_ptr_not_equal(shard->name, map_name[shard->param]);
        assert_true(shoali_shape_equal(&shard->global, &map_shape[shard->param]));
        assert_int_equal(shard->global_offset, map_offset[shard->param]);
        assert_int_equal(shard->global_offset + shard->begin, at);
        assert_int_equal(shard->flat_offset, at - begin);
        assert_true(shard->begin + shard->count <= map_elements[shard->param]);
        at += shard->count;
        covered += shard->count;
    }
    const int64_t last = end < 30 ? end : 30;
    assert_int_equal(covered, last > begin ? last - begin : 0);
    assert_int_equal(map->elements, covered);
}

static void test_shard_map(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    for (int64_t begin = 0; begin <= 33; begin++)
        for (int64_t end = begin; end <= 34; end++) {
            struct shoali_shard_map map;
            assert_int_equal(
                shoali_shard_map_range(map_name, map_shape, MAP_TENSORS, begin, end, &arena, &map),
                SHOAL_OK);
            check_map(&map, begin, end);
            shoali_arena_reset(&arena);
        }
    shoali_arena_fini(&arena);
}

static void test_shard_map_errors(void **state)
{
    (void)state;
    struct shoali_arena arena;
    struct shoali_shard_map map;
    shoali_arena_init(&arena);
    assert_int_equal(shoali_shard_map_range(map_name, map_shape, 2, 5, 4, &arena, &map),
                     SHOAL_EINVAL);
    assert_int_equal(shoali_shard_map_range(map_name, map_shape, 2, -1, 4, &arena, &map),
                     SHOAL_EINVAL);
    const shoal_shape bad[2] = {shoal_shape_1(INT64_MAX), shoal_shape_1(1)};
    assert_int_equal(shoali_shard_map_range(map_name, bad, 2, 0, 4, &arena, &map), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "empty"));
    assert_int_equal(map.count, 0);

    /* No allocation may be lost or crash: fail the first, the second, ... one. */
    shoal_status status = SHOAL_ENOMEM;
    for (int skip = 0; status != SHOAL_OK; skip++) {
        char spec[32];
        assert_true(skip < 20);
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        shoali_arena_fini(&arena);
        shoali_arena_init(&arena);
        assert_true(shoali_fault_arm(spec));
        status = shoali_shard_map_range(map_name, map_shape, MAP_TENSORS, 0, 30, &arena, &map);
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(map.count, status == SHOAL_OK ? 4 : 0);
        if (status != SHOAL_OK)
            assert_int_equal(status, SHOAL_ENOMEM);
    }
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),          cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_describe),        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_bf16_round_trip), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_shard_map),       cmocka_unit_test(test_shard_map_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
