#include "formats/formats.h"

#include <math.h>
#include <string.h>

/* A name is NULL where the format has none. */
static const struct {
    const char *name[4]; /* by enum shoali_element_naming */
    size_t bytes;
    shoal_dtype dtype;
} types[SHOALI_ELEMENT_COUNT] = {
    [SHOALI_ELEMENT_F64] = {{"F64", "DoubleStorage", "float64", "f8"}, 8, SHOAL_F64},
    [SHOALI_ELEMENT_F32] = {{"F32", "FloatStorage", "float32", "f4"}, 4, SHOAL_F32},
    [SHOALI_ELEMENT_F16] = {{"F16", "HalfStorage", "float16", "f2"}, 2, SHOAL_F16},
    [SHOALI_ELEMENT_BF16] = {{"BF16", "BFloat16Storage", "bfloat16", NULL}, 2, SHOAL_BF16},
    [SHOALI_ELEMENT_F8_E4M3] = {{"F8_E4M3", NULL, "float8_e4m3fn", NULL}, 1, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_F8_E5M2] = {{"F8_E5M2", NULL, "float8_e5m2", NULL}, 1, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_I64] = {{"I64", "LongStorage", "int64", "i8"}, 8, SHOAL_I64},
    [SHOALI_ELEMENT_I32] = {{"I32", "IntStorage", "int32", "i4"}, 4, SHOAL_I32},
    [SHOALI_ELEMENT_I16] = {{"I16", "ShortStorage", "int16", "i2"}, 2, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_I8] = {{"I8", "CharStorage", "int8", "i1"}, 1, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_U64] = {{"U64", NULL, "uint64", "u8"}, 8, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_U32] = {{"U32", NULL, "uint32", "u4"}, 4, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_U16] = {{"U16", NULL, "uint16", "u2"}, 2, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_U8] = {{"U8", "ByteStorage", "uint8", "u1"}, 1, SHOAL_U8},
    [SHOALI_ELEMENT_BOOL] = {{"BOOL", "BoolStorage", "bool", "b1"}, 1, SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_C64] = {{"C64", "ComplexFloatStorage", "complex64", "c8"},
                            8,
                            SHOAL_DTYPE_COUNT},
    [SHOALI_ELEMENT_C128] = {{"C128", "ComplexDoubleStorage", "complex128", "c16"},
                             16,
                             SHOAL_DTYPE_COUNT},
};

enum shoali_element shoali_element_find(enum shoali_element_naming naming, const char *name)
{
    for (int i = 0; i < SHOALI_ELEMENT_COUNT; i++)
        if (types[i].name[naming] && strcmp(types[i].name[naming], name) == 0)
            return (enum shoali_element)i;
    return SHOALI_ELEMENT_COUNT;
}

const char *shoali_element_name(enum shoali_element type)
{
    return types[type].name[SHOALI_NAMED_BY_SAFETENSORS];
}

size_t shoali_element_bytes(enum shoali_element type)
{
    return types[type].bytes;
}

shoal_dtype shoali_element_dtype(enum shoali_element type)
{
    return types[type].dtype;
}

static double small_float(uint8_t bits, int mantissa_bits)
{
    const int exponent_bits = 7 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits & 0x7f) >> mantissa_bits, top = (1 << exponent_bits) - 1;
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits & 0x80 ? -1 : 1;
    if (mantissa_bits == 3 && (bits & 0x7f) == 0x7f)
        return (double)NAN;
    if (mantissa_bits == 2 && exponent == top)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static double integer_at(enum shoali_element type, const char *from)
{
    uint64_t bits = 0;
    const size_t bytes = types[type].bytes;
    memcpy(&bits, from, bytes);
    switch (type) {
    case SHOALI_ELEMENT_I64:
        return (double)(int64_t)bits;
    case SHOALI_ELEMENT_I32:
        return (double)(int32_t)(uint32_t)bits;
    case SHOALI_ELEMENT_I16:
        return (double)(int16_t)(uint16_t)bits;
    case SHOALI_ELEMENT_I8:
        return (double)(int8_t)(uint8_t)bits;
    default:
        return (double)bits;
    }
}

static double number_at(enum shoali_element type, const char *from)
{
    double wide;
    float real;
    uint16_t half;
    switch (type) {
    case SHOALI_ELEMENT_F64:
        memcpy(&wide, from, sizeof wide);
        return wide;
    case SHOALI_ELEMENT_F32:
        memcpy(&real, from, sizeof real);
        return (double)real;
    case SHOALI_ELEMENT_F16:
        memcpy(&half, from, sizeof half);
        return (double)shoali_f16_to_f32(half);
    case SHOALI_ELEMENT_BF16:
        memcpy(&half, from, sizeof half);
        return (double)shoali_bf16_to_f32(half);
    case SHOALI_ELEMENT_F8_E4M3:
        return small_float((uint8_t)*from, 3);
    case SHOALI_ELEMENT_F8_E5M2:
        return small_float((uint8_t)*from, 2);
    default:
        return integer_at(type, from);
    }
}

bool shoali_element_to_f64(enum shoali_element type, const void *from, int64_t count, double *to)
{
    const char *at = from;
    if (type == SHOALI_ELEMENT_C64 || type == SHOALI_ELEMENT_C128)
        return false;
    for (int64_t i = 0; i < count; i++)
        to[i] = number_at(type, at + (size_t)i * types[type].bytes);
    return true;
}

bool shoali_element_to_f32(enum shoali_element type, const void *from, int64_t count, float *to)
{
    const char *at = from;
    if (type == SHOALI_ELEMENT_C64 || type == SHOALI_ELEMENT_C128)
        return false;
    if (type == SHOALI_ELEMENT_F32)
        memcpy(to, from, (size_t)count * sizeof *to);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)number_at(type, at + (size_t)i * types[type].bytes);
    return true;
}
