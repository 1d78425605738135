#include "comm_data.h"

#include <string.h>

uint64_t data_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t bits_of(uint64_t seed, int32_t rank, int64_t index)
{
    return data_mix(seed * 0xff51afd7ed558ccdu ^ ((uint64_t)rank << 48) ^ (uint64_t)index);
}

/* Sums of these are inexact in every float type, so that the order of a sum shows. */
static double real_value(uint64_t bits)
{
    double magnitude = (double)((bits & 0xfffff) + 1) / 262144.0 + 0.1;
    return bits >> 63 ? -magnitude : magnitude;
}

void data_store(shoal_dtype dtype, uint64_t seed, int32_t rank, int64_t index, void *to)
{
    uint64_t bits = bits_of(seed, rank, index);
    float real = (float)real_value(bits);
    double wide = real_value(bits);
    uint16_t half = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(real) : shoali_f32_to_f16(real);
    switch (dtype) {
    case SHOAL_F32:
        memcpy(to, &real, 4);
        return;
    case SHOAL_F64:
        memcpy(to, &wide, 8);
        return;
    case SHOAL_BF16:
    case SHOAL_F16:
        memcpy(to, &half, 2);
        return;
    default:
        memcpy(to, &bits, shoal_dtype_bytes(dtype));
    }
}

void data_fill(shoal_dtype dtype, uint64_t seed, int32_t rank, int64_t first, int64_t count,
               void *to)
{
    size_t bytes = shoal_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++)
        data_store(dtype, seed, rank, first + i, (char *)to + (size_t)i * bytes);
}

static float load_float(shoal_dtype dtype, const void *from)
{
    uint16_t half;
    float real;
    if (dtype == SHOAL_F32) {
        memcpy(&real, from, 4);
        return real;
    }
    memcpy(&half, from, 2);
    return dtype == SHOAL_BF16 ? shoali_bf16_to_f32(half) : shoali_f16_to_f32(half);
}

static float combine_float(shoal_reduce op, float a, float b)
{
    switch (op) {
    case SHOAL_MIN:
        return b < a ? b : a;
    case SHOAL_MAX:
        return b > a ? b : a;
    case SHOAL_PROD:
        return a * b;
    default:
        return a + b;
    }
}

static double combine_double(shoal_reduce op, double a, double b)
{
    switch (op) {
    case SHOAL_MIN:
        return b < a ? b : a;
    case SHOAL_MAX:
        return b > a ? b : a;
    case SHOAL_PROD:
        return a * b;
    default:
        return a + b;
    }
}

static int64_t load_integer(shoal_dtype dtype, const void *from)
{
    int64_t wide = 0;
    int32_t narrow;
    if (dtype == SHOAL_I32) {
        memcpy(&narrow, from, 4);
        return narrow;
    }
    memcpy(&wide, from, shoal_dtype_bytes(dtype));
    return wide;
}

/* Wraps like the type when its low bytes are kept. */
static int64_t combine_integer(shoal_reduce op, int64_t a, int64_t b)
{
    switch (op) {
    case SHOAL_MIN:
        return b < a ? b : a;
    case SHOAL_MAX:
        return b > a ? b : a;
    case SHOAL_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SHOAL_BOR:
        return a | b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* Neighbours become one until one is left: values of `ranks`, a power of two. */
static double tree_sum(double *value, int32_t ranks, bool narrow)
{
    for (int32_t stride = 1; stride < ranks; stride *= 2)
        for (int32_t i = 0; i < ranks; i += 2 * stride)
            value[i] = narrow ? (double)((float)value[i] + (float)value[i + stride])
                              : value[i] + value[i + stride];
    return value[0];
}

static void reduce_float(shoal_dtype dtype, shoal_reduce op, uint64_t seed, int32_t ranks,
                         int64_t index, void *to)
{
    unsigned char element[8];
    float sum = 0;
    double each[256];
    for (int32_t r = 0; r < ranks; r++) {
        data_store(dtype, seed, r, index, element);
        float value = load_float(dtype, element);
        each[r] = (double)value;
        sum = r == 0 ? value : combine_float(op, sum, value);
    }
    if (op == SHOAL_AVG)
        sum = sum * (1.0f / (float)ranks);
    if (op == SHOAL_SUM_TREE)
        sum = (float)tree_sum(each, ranks, true);
    uint16_t half = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(sum) : shoali_f32_to_f16(sum);
    if (dtype == SHOAL_F32)
        memcpy(to, &sum, 4);
    else
        memcpy(to, &half, 2);
}

void data_reduce(shoal_dtype dtype, shoal_reduce op, uint64_t seed, int32_t ranks, int64_t index,
                 void *to)
{
    unsigned char element[8];
    double real = 0, each[256];
    int64_t integer = 0;
    if (dtype == SHOAL_F32 || dtype == SHOAL_BF16 || dtype == SHOAL_F16) {
        reduce_float(dtype, op, seed, ranks, index, to);
        return;
    }
    for (int32_t r = 0; r < ranks; r++) {
        data_store(dtype, seed, r, index, element);
        if (dtype == SHOAL_F64) {
            double value;
            memcpy(&value, element, 8);
            each[r] = value;
            real = r == 0 ? value : combine_double(op, real, value);
        } else {
            int64_t value = load_integer(dtype, element);
            integer = r == 0 ? value : combine_integer(op, integer, value);
        }
    }
    if (op == SHOAL_AVG)
        real = real * (1.0 / ranks);
    if (op == SHOAL_SUM_TREE && dtype == SHOAL_F64)
        real = tree_sum(each, ranks, false);
    if (dtype == SHOAL_F64)
        memcpy(to, &real, 8);
    else
        memcpy(to, &integer, shoal_dtype_bytes(dtype));
}

/* One element into another, both stored in the type. */
static void combine_stored(shoal_dtype dtype, shoal_reduce op, void *to, const void *from)
{
    if (dtype == SHOAL_F64) {
        double a, b;
        memcpy(&a, to, 8);
        memcpy(&b, from, 8);
        a = combine_double(op, a, b);
        memcpy(to, &a, 8);
        return;
    }
    const float sum = combine_float(op, load_float(dtype, to), load_float(dtype, from));
    memcpy(to, &sum, 4);
}

static void round_stored(shoal_dtype dtype, void *to)
{
    float sum;
    if (dtype == SHOAL_F32 || dtype == SHOAL_F64)
        return;
    memcpy(&sum, to, 4);
    const uint16_t half = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(sum) : shoali_f32_to_f16(sum);
    memcpy(to, &half, 2);
}

static void widen_stored(shoal_dtype dtype, void *at)
{
    if (dtype == SHOAL_F64)
        return;
    const float value = load_float(dtype, at);
    memcpy(at, &value, 4);
}

/* The sum of one host's ranks, rounded. */
static void reduce_host(shoal_dtype dtype, shoal_reduce op, uint64_t seed, const int32_t *host,
                        int32_t ranks, int32_t first, int64_t index, void *to)
{
    const shoal_dtype wide = dtype == SHOAL_F64 ? SHOAL_F64 : SHOAL_F32;
    unsigned char element[8];
    data_store(dtype, seed, first, index, to);
    widen_stored(dtype, to);
    for (int32_t r = first + 1; r < ranks; r++) {
        if (host[r] != host[first])
            continue;
        data_store(dtype, seed, r, index, element);
        widen_stored(dtype, element);
        combine_stored(wide, op, to, element);
    }
    round_stored(dtype, to);
}

void data_reduce_by_host(shoal_dtype dtype, shoal_reduce op, uint64_t seed, const int32_t *host,
                         int32_t ranks, int64_t index, void *to)
{
    const shoal_dtype wide = dtype == SHOAL_F64 ? SHOAL_F64 : SHOAL_F32;
    unsigned char sum[8] = {0}, element[8] = {0};
    if (dtype > SHOAL_F64 || (op != SHOAL_SUM && op != SHOAL_PROD)) {
        data_reduce(dtype, op, seed, ranks, index, to);
        return;
    }
    for (int32_t first = 0; first < ranks; first++) {
        int32_t earlier = 0;
        while (host[earlier] != host[first])
            earlier++;
        if (earlier < first)
            continue;
        reduce_host(dtype, op, seed, host, ranks, first, index, first == 0 ? sum : element);
        widen_stored(dtype, first == 0 ? sum : element);
        if (first > 0)
            combine_stored(wide, op, sum, element);
    }
    round_stored(dtype, sum);
    memcpy(to, sum, shoal_dtype_bytes(dtype));
}
