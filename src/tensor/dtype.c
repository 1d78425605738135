/* dtype.c - element types, shapes and the half-precision conversions. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtype_table[SHOAL_DTYPE_COUNT] = {
    [SHOAL_F32] = {"F32", 4}, [SHOAL_BF16] = {"BF16", 2}, [SHOAL_F16] = {"F16", 2},
    [SHOAL_F64] = {"F64", 8}, [SHOAL_I32] = {"I32", 4},   [SHOAL_I64] = {"I64", 8},
    [SHOAL_U8] = {"U8", 1},
};

static bool dtype_known(shoal_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < (int)SHOAL_DTYPE_COUNT;
}

size_t shoal_dtype_bytes(shoal_dtype dtype)
{
    return dtype_known(dtype) ? dtype_table[dtype].bytes : 0;
}

const char *shoal_dtype_name(shoal_dtype dtype)
{
    return dtype_known(dtype) ? dtype_table[dtype].name : "?";
}

int64_t shoal_shape_count(const shoal_shape *shape)
{
    if (shape->ndim < 0 || shape->ndim > SHOAL_MAX_DIMS)
        return -1;
    bool empty = false;
    for (int32_t i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0)
            return -1;
        empty = empty || shape->dim[i] == 0;
    }
    /* A zero anywhere makes the product zero, even when the other dims alone would overflow. */
    if (empty)
        return 0;
    int64_t count = 1;
    for (int32_t i = 0; i < shape->ndim; i++)
        if (!shoali_mul(count, shape->dim[i], &count))
            return -1;
    return count;
}

bool shoali_shape_equal(const shoal_shape *a, const shoal_shape *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

const char *shoali_shape_format(const shoal_shape *shape, char *buffer)
{
    const size_t capacity = 128; /* 5 dims of at most 20 characters fit */
    size_t used = (size_t)snprintf(buffer, capacity, "[");
    for (int32_t i = 0; i < shape->ndim && i < SHOAL_MAX_DIMS; i++)
        used += (size_t)snprintf(buffer + used, capacity - used, i > 0 ? ", %lld" : "%lld",
                                 (long long)shape->dim[i]);
    (void)snprintf(buffer + used, capacity - used, "]");
    return buffer;
}

shoal_dtype shoal_tensor_dtype(const shoal_tensor *tensor)
{
    return tensor->dtype;
}

const shoal_shape *shoal_tensor_shape(const shoal_tensor *tensor)
{
    return &tensor->shape;
}

void shoali_tensor_describe(struct shoal_tensor *tensor, shoal_dtype dtype,
                            const shoal_shape *shape)
{
    const shoal_shape copy = *shape; /* `shape` may lie in the tensor itself */
    memset(tensor, 0, sizeof *tensor);
    tensor->dtype = dtype;
    tensor->shape = copy;
    tensor->block = shoali_block_whole(&copy);
    tensor->node = -1;
    tensor->bound = shoal_shape_count(&copy);
}

float shoali_f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t exponent = (x >> 10) & 0x1fu;
    const uint32_t mantissa = x & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } v;
    if (exponent == 0) {
        v.f = (float)mantissa * 0x1p-24f; /* zero or subnormal: exact in float */
        v.u |= sign;
    } else if (exponent == 0x1f) {
        v.u = sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u);
    } else {
        v.u = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    }
    return v.f;
}

uint16_t shoali_f32_to_f16(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    const uint32_t sign = (v.u >> 16) & 0x8000u;
    const uint32_t magnitude = v.u & 0x7fffffffu;
    uint32_t result;
    if (magnitude > 0x7f800000u) {
        result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) { /* 65520, half way past the largest, and above */
        result = 0x7c00u;
    } else if (magnitude >= 0x38800000u) { /* 2^-14, the smallest normal */
        result = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else if (magnitude <= 0x33000000u) { /* 2^-25 is a tie with 0, and 0 is even */
        result = 0;
    } else {
        /* The value is significand * 2^(exponent-150); a subnormal counts in units of 2^-24. */
        const uint32_t shift = 126u - (magnitude >> 23); /* 14 ... 24 */
        const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
        const uint32_t odd = (significand >> shift) & 1u;
        result = (significand + (1u << (shift - 1)) - 1u + odd) >> shift;
    }
    return (uint16_t)(sign | result);
}
