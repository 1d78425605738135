/* Which part gives output i. Doubles are multiplied and subtracted as Megatron's helper does it:
 * the choice between near equals is part of the order. */
#include "data/indexed/indexed.h"

#include <math.h>
#include <string.h>

/* The order of numpy.sum: eight sums side by side, halves above 128 numbers. */
static double sum_pairwise(const double *value, int32_t count)
{
    double part[8], sum = 0;
    if (count > 128) {
        const int32_t half = count / 2 - count / 2 % 8;
        return sum_pairwise(value, half) + sum_pairwise(value + half, count - half);
    }
    const int32_t whole = count < 8 ? 0 : count - count % 8;
    for (int32_t i = 0; i < whole; i++)
        part[i % 8] = i < 8 ? value[i] : part[i % 8] + value[i];
    if (whole > 0)
        sum = ((part[0] + part[1]) + (part[2] + part[3])) +
              ((part[4] + part[5]) + (part[6] + part[7]));
    for (int32_t i = whole; i < count; i++)
        sum += value[i];
    return sum;
}

shoal_status shoali_blend_normalize(double *weight, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (!(weight[i] > 0) || !isfinite(weight[i]))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "weight %d of the data blend is %g: weights must be positive numbers",
                              i + 1, weight[i]);
    const double sum = sum_pairwise(weight, count);
    if (!isfinite(sum))
        return SHOAL_FAIL(SHOAL_EINVAL, "the weights of the data blend are too large");
    for (int32_t i = 0; i < count; i++)
        weight[i] /= sum;
    return SHOAL_OK;
}

int64_t shoali_blend_share(int64_t size, double weight, double surplus)
{
    return (int64_t)ceil(ceil((double)size * weight) * (1 + surplus));
}

shoal_status shoali_blend_init(struct shoali_blend *blend, const double *weight,
                               const int64_t *room, int32_t count)
{
    int64_t total = 0;
    *blend = (struct shoali_blend){.count = count, .exhaustive = room != NULL};
    blend->weight = shoali_calloc((size_t)count, sizeof *blend->weight, "blend weights");
    blend->taken = shoali_calloc((size_t)count, sizeof *blend->taken, "a blend");
    blend->room = shoali_calloc((size_t)count, sizeof *blend->room, "a blend");
    if (!blend->weight || !blend->taken || !blend->room) {
        shoali_blend_fini(blend);
        return SHOAL_ENOMEM;
    }
    for (int32_t i = 0; i < count && room; i++)
        total += room[i];
    for (int32_t i = 0; i < count; i++) {
        blend->weight[i] = room ? (double)room[i] / (double)total : weight[i];
        blend->room[i] = room ? room[i] : INT64_MAX;
    }
    return SHOAL_OK;
}

void shoali_blend_fini(struct shoali_blend *blend)
{
    shoali_free(blend->weight);
    shoali_free(blend->taken);
    shoali_free(blend->room);
    *blend = (struct shoali_blend){0};
}

int32_t shoali_blend_next(struct shoali_blend *blend, int64_t *number)
{
    const double at = blend->output > 1 ? (double)blend->output : 1.0;
    double largest = -INFINITY;
    int32_t chosen = -1;
    for (int32_t k = 0; k < blend->count; k++) {
        const double error = blend->weight[k] * at - (double)blend->taken[k];
        if (error > largest && blend->taken[k] < blend->room[k]) {
            largest = error;
            chosen = k;
        }
    }
    SHOAL_ASSERT(chosen >= 0); /* callers take no more than there is */
    *number = blend->taken[chosen]++;
    blend->output++;
    return chosen;
}
