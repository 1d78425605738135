/* quantize - blocks of integers with a scale, and back. */
#include "ops/ref/ref.h"
#include "ops/scalars.h"

#include <float.h>

/* The block's scale: NaN when an element is not finite, so that the receiver sees it. */
static float scale_of(const struct shoali_quantize_args *a, int64_t begin, int64_t end)
{
    float largest = 0;
    for (int64_t i = begin; i < end; i++) {
        const float x = fabsf((float)load_f64(a->x, i, a->dtype));
        if (!(x <= FLT_MAX))
            return NAN;
        largest = x > largest ? x : largest;
    }
    return largest / (float)((1 << (a->bits - 1)) - 1);
}

static int32_t code_of(float x, float scale, int32_t bits)
{
    const float top = (float)((1 << (bits - 1)) - 1);
    if (!(scale > 0))
        return 0;
    const float code = rintf(x / scale);
    return (int32_t)(code > top ? top : code < -top ? -top : code);
}

void shoali_ref_quantize(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_quantize_args *a = args;
    float *scales = a->message;
    uint8_t *codes = (uint8_t *)(scales + shoali_quantized_blocks(a->count));
    for (int64_t begin = 0, b = 0; begin < a->count; begin += SHOALI_QUANTIZE_BLOCK, b++) {
        const int64_t end =
            begin + SHOALI_QUANTIZE_BLOCK < a->count ? begin + SHOALI_QUANTIZE_BLOCK : a->count;
        scales[b] = scale_of(a, begin, end);
        for (int64_t i = begin; i < end; i++) {
            const int32_t code = code_of((float)load_f64(a->x, i, a->dtype), scales[b], a->bits);
            if (a->bits == 8)
                codes[i] = (uint8_t)code;
            else if (i % 2 == 0)
                codes[i / 2] = (uint8_t)(code & 15);
            else
                codes[i / 2] = (uint8_t)(codes[i / 2] | (code & 15) << 4);
        }
    }
}

void shoali_ref_dequantize(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_dequantize_args *a = args;
    const float *scales = a->message;
    const uint8_t *codes = (const uint8_t *)(scales + shoali_quantized_blocks(a->count));
    for (int64_t i = 0; i < a->count; i++) {
        const uint8_t nibble = (uint8_t)(a->bits == 4 ? codes[i / 2] >> (i % 2 * 4) & 15 : 0);
        const int32_t code = a->bits == 8 ? (int8_t)codes[i] : (nibble ^ 8) - 8;
        float y = (float)code * scales[i / SHOALI_QUANTIZE_BLOCK];
        if (a->accumulate)
            y = (float)load_f64(a->y, i, a->dtype) + y;
        store_f64(a->y, i, (double)y, a->dtype);
    }
}
