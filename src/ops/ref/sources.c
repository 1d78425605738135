/* sources - the arithmetic of collectives: element i of many arrays, in their order. */
#include "ops/ref/ref.h"
#include "ops/scalars.h"

static float combine_f32(enum shoali_reduce_op op, float a, float b)
{
    switch (op) {
    case SHOALI_MIN:
        return v1_min(a, b);
    case SHOALI_MAX:
        return v1_max(a, b);
    case SHOALI_PROD:
        return a * b;
    default:
        return a + b;
    }
}
static double combine_f64(enum shoali_reduce_op op, double a, double b)
{
    switch (op) {
    case SHOALI_MIN:
        return a < b ? a : b;
    case SHOALI_MAX:
        return a > b ? a : b;
    case SHOALI_PROD:
        return a * b;
    default:
        return a + b;
    }
}
/* In uint64: sums and products wrap, and keeping the low bits wraps narrower types alike. */
static int64_t combine_int(enum shoali_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case SHOALI_MIN:
        return a < b ? a : b;
    case SHOALI_MAX:
        return a > b ? a : b;
    case SHOALI_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SHOALI_BOR:
        return a | b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* Sources [first, first + count) as one, count a power of two. */
static float tree_f32(const struct shoali_reduce_sources_args *args, int64_t i, int32_t first,
                      int32_t count)
{
    const int32_t half = count / 2;
    if (count == 1)
        return load_f32(args->x[first], i, args->dtype);
    return tree_f32(args, i, first, half) + tree_f32(args, i, first + half, half);
}

static double tree_f64(const struct shoali_reduce_sources_args *args, int64_t i, int32_t first,
                       int32_t count)
{
    const int32_t half = count / 2;
    if (count == 1)
        return ((const double *)args->x[first])[i];
    return tree_f64(args, i, first, half) + tree_f64(args, i, first + half, half);
}

static void reduce_f32(const struct shoali_reduce_sources_args *args, int64_t i)
{
    float v = load_f32(args->x[0], i, args->dtype);
    for (int32_t s = 1; s < args->sources; s++)
        v = combine_f32(args->op, v, load_f32(args->x[s], i, args->dtype));
    if (args->op == SHOALI_AVG)
        v = v * (1.0f / (float)args->sources);
    if (args->op == SHOALI_SUM_TREE)
        v = tree_f32(args, i, 0, args->sources);
    for (int32_t d = 0; d < args->destinations; d++)
        store_f32(args->y[d], i, v, args->dtype);
}

static void reduce_f64(const struct shoali_reduce_sources_args *args, int64_t i)
{
    double v = ((const double *)args->x[0])[i];
    for (int32_t s = 1; s < args->sources; s++)
        v = combine_f64(args->op, v, ((const double *)args->x[s])[i]);
    if (args->op == SHOALI_AVG)
        v = v * (1.0 / (double)args->sources);
    if (args->op == SHOALI_SUM_TREE)
        v = tree_f64(args, i, 0, args->sources);
    for (int32_t d = 0; d < args->destinations; d++)
        ((double *)args->y[d])[i] = v;
}

static void reduce_int(const struct shoali_reduce_sources_args *args, int64_t i)
{
    int64_t v = load_int(args->x[0], i, args->dtype);
    for (int32_t s = 1; s < args->sources; s++)
        v = combine_int(args->op, v, load_int(args->x[s], i, args->dtype));
    for (int32_t d = 0; d < args->destinations; d++)
        store_int(args->y[d], i, v, args->dtype);
}

void shoali_ref_reduce_sources(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_reduce_sources_args *a = args;
    for (int64_t i = 0; i < a->count; i++) {
        if (a->dtype == SHOAL_F64)
            reduce_f64(a, i);
        else if (a->dtype == SHOAL_F32 || a->dtype == SHOAL_BF16 || a->dtype == SHOAL_F16)
            reduce_f32(a, i);
        else
            reduce_int(a, i);
    }
}
