/* loss - a row's largest element, its sum of exponentials and one element: what softmax and the
 * losses share. */
#ifndef SHOALI_OPS_CPU_LOSS_H
#define SHOALI_OPS_CPU_LOSS_H

#include "ops/cpu/range.h"

static inline float row_largest(const void *x, int64_t first, int64_t columns, shoal_dtype dtype)
{
    const v16 low = v16_set1(-INFINITY);
    v16 largest[4] = {low, low, low, low};
    int64_t c = 0;
    for (; c + 64 <= columns; c += 64) {
        for (int u = 0; u < 4; u++)
            largest[u] = v16_max(v16_load_as(x, first + c + 16 * u, dtype), largest[u]);
    }
    for (; c < columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, columns - c);
        const v16 v = lanes_load(x, first + c, lanes, dtype);
        largest[0] = v16_max(v16_select(v16m_first(lanes), v, low), largest[0]);
    }
    largest[0] = v16_max(v16_max(largest[0], largest[1]), v16_max(largest[2], largest[3]));
    return v16_largest(largest[0]);
}

/* `next`: of a row that is fetched meanwhile, for this is arithmetic and what comes next is not. */
static inline float row_exp_sum(const void *x, int64_t first, int64_t columns, shoal_dtype dtype,
                                v16 largest, int64_t next)
{
    const int64_t bytes = (int64_t)shoal_dtype_bytes(dtype);
    v16 sum = v16_set1(0.0f);
    int64_t c = 0;
    for (; c + 16 <= columns; c += 16) {
        __builtin_prefetch((const char *)x + (next + c) * bytes);
        sum = v16_add(sum, v16_exp(v16_sub(v16_load_as(x, first + c, dtype), largest)));
    }
    if (c < columns) {
        const v16 e = v16_exp(v16_sub(v16_load_as_n(x, first + c, columns - c, dtype), largest));
        sum = v16_add(sum, v16_select(v16m_first(columns - c), e, v16_set1(0.0f)));
    }
    return v16_sum(sum);
}

static inline float row_sum(const void *x, int64_t first, int64_t columns, shoal_dtype dtype)
{
    v16 sum = v16_set1(0.0f);
    int64_t c = 0;
    for (; c + 16 <= columns; c += 16)
        sum = v16_add(sum, v16_load_as(x, first + c, dtype));
    if (c < columns)
        sum = v16_add(sum, v16_load_as_n(x, first + c, columns - c, dtype));
    return v16_sum(sum);
}

static inline float element(const void *x, int64_t i, shoal_dtype dtype)
{
    float lane[16];
    v16_store(lane, v16_load_as_n(x, i, 1, dtype));
    return lane[0];
}

/* What smoothed labels expect of [first, first + columns); target: there, or < 0. */
static inline float expected_logit(const struct shoali_label_probabilities *labels, const void *x,
                                   int64_t first, int64_t columns, int64_t target,
                                   shoal_dtype dtype)
{
    const float others = (float)labels->others, more = (float)labels->target - others;
    const float all = others * row_sum(x, first, columns, dtype);
    return target >= 0 ? v1_fma(more, element(x, first + target, dtype), all) : all;
}

/* The probability that the labels want of the target: zeros are labels that are not smoothed. */
static inline float target_probability(const struct shoali_label_probabilities *labels)
{
    return labels->others > 0 ? (float)labels->target : 1.0f;
}

#endif
