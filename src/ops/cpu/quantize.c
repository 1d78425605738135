/* quantize - blocks of integers with a scale, and back; a thread has whole blocks. The loops over a
 * block's floats are left to the compiler, which makes vectors of them. */
#include "ops/cpu/range.h"

#include <float.h>

enum { BLOCK = SHOALI_QUANTIZE_BLOCK };

static void load_block(const void *array, int64_t begin, int64_t count, shoal_dtype dtype,
                       float to[BLOCK])
{
    for (int64_t i = 0; i < count; i += 16)
        v16_store_as_n(to, i, count - i < 16 ? count - i : 16,
                       lanes_load(array, begin + i, count - i, dtype), SHOAL_F32);
}

/* NaN when an element is not finite. */
static float scale_of(const float x[BLOCK], float top)
{
    float largest = 0;
    int32_t bad = 0;
    for (int32_t i = 0; i < BLOCK; i++) {
        const float size = __builtin_fabsf(x[i]);
        bad |= !(size <= FLT_MAX);
        largest = size > largest ? size : largest;
    }
    return bad ? __builtin_nanf("") : largest / top;
}

static void codes_of(const float x[BLOCK], float scale, float top, int8_t code[BLOCK])
{
    if (!(scale > 0)) {
        memset(code, 0, BLOCK);
        return;
    }
    for (int32_t i = 0; i < BLOCK; i++) {
        float value = __builtin_rintf(x[i] / scale);
        value = value > top ? top : value;
        value = value < -top ? -top : value;
        code[i] = (int8_t)value;
    }
}

static int64_t elements_of(int64_t block, int64_t count)
{
    return count - block * BLOCK < BLOCK ? count - block * BLOCK : BLOCK;
}

static void quantize_range(const void *args, int64_t begin, int64_t end)
{
    const struct shoali_quantize_args *a = args;
    const float top = (float)((1 << (a->bits - 1)) - 1);
    float *scales = a->message;
    uint8_t *codes = (uint8_t *)(scales + shoali_quantized_blocks(a->count));
    for (int64_t b = begin; b < end; b++) {
        const int64_t count = elements_of(b, a->count);
        float x[BLOCK] = {0};
        int8_t code[BLOCK];
        load_block(a->x, b * BLOCK, count, a->dtype, x);
        scales[b] = scale_of(x, top);
        codes_of(x, scales[b], top, code);
        if (a->bits == 8) {
            memcpy(codes + b * BLOCK, code, (size_t)count);
            continue;
        }
        uint8_t *to = codes + b * (BLOCK / 2);
        for (int64_t i = 0; i < (count + 1) / 2; i++)
            to[i] = (uint8_t)((code[2 * i] & 15) | (code[2 * i + 1] & 15) << 4);
    }
}

void SHOALI_CPU_SYMBOL(quantize)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_quantize_args *a = args;
    range_run(context->threads, quantize_range, a, shoali_quantized_blocks(a->count), 1, BLOCK * 5);
}

/* A block's values, without the scale's rounding to the type. */
static void values_of(const uint8_t *codes, float scale, int32_t bits, int64_t count,
                      float y[BLOCK])
{
    if (bits == 8)
        for (int64_t i = 0; i < count; i++)
            y[i] = (float)(int8_t)codes[i] * scale;
    else
        for (int64_t i = 0; i < (count + 1) / 2; i++) {
            y[2 * i] = (float)(((codes[i] & 15) ^ 8) - 8) * scale;
            y[2 * i + 1] = (float)((codes[i] >> 4 ^ 8) - 8) * scale;
        }
}

static void dequantize_range(const void *args, int64_t begin, int64_t end)
{
    const struct shoali_dequantize_args *a = args;
    const float *scales = a->message;
    const uint8_t *codes = (const uint8_t *)(scales + shoali_quantized_blocks(a->count));
    for (int64_t b = begin; b < end; b++) {
        const int64_t count = elements_of(b, a->count), first = b * BLOCK;
        float y[BLOCK], old[BLOCK];
        values_of(codes + first * a->bits / 8, scales[b], a->bits, count, y);
        if (a->accumulate) {
            load_block(a->y, first, count, a->dtype, old);
            for (int64_t i = 0; i < count; i++)
                y[i] = old[i] + y[i];
        }
        for (int64_t i = 0; i < count; i += 16)
            lanes_store(a->y, first + i, count - i,
                        v16_load_as_n(y, i, count - i < 16 ? count - i : 16, SHOAL_F32), a->dtype);
    }
}

void SHOALI_CPU_SYMBOL(dequantize)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_dequantize_args *a = args;
    range_run(context->threads, dequantize_range, a, shoali_quantized_blocks(a->count), 1,
              BLOCK * 5);
}
