/* From logits to a token: temperature, top-k, a draw that is a function of (seed, index). */
#include "inference/inference.h"

#include <math.h>
#include <stdlib.h>

static int32_t argmax(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The k-th largest value; ties with it stay in. +inf when memory is short, which leaves the
 * largest. */
static float threshold(const float *logits, int64_t count, int64_t k)
{
    float *sorted = shoali_malloc((size_t)count * sizeof *sorted, "top-k");
    if (!sorted)
        return INFINITY;
    for (int64_t i = 0; i < count; i++)
        sorted[i] = logits[i];
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    const float value = sorted[k - 1];
    shoali_free(sorted);
    return value;
}

int32_t shoali_sample_token(float *logits, int64_t count, const shoal_sample_args *args,
                            uint64_t index)
{
    const int32_t best = argmax(logits, count);
    if (args->top_k == 1)
        return best;
    const float keep =
        args->top_k > 0 && args->top_k < count ? threshold(logits, count, args->top_k) : -INFINITY;
    const struct shoali_stream stream = shoali_stream_make(args->seed, "generate", "", 0);
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        if (logits[i] >= keep)
            total += shoali_exp(((double)logits[i] - (double)logits[best]) / args->temperature);
    double left = (double)shoali_random_uniform(&stream, index) * total;
    for (int64_t i = 0; i < count; i++) {
        if (logits[i] < keep)
            continue;
        left -= shoali_exp(((double)logits[i] - (double)logits[best]) / args->temperature);
        if (left < 0)
            return (int32_t)i;
    }
    return best;
}
