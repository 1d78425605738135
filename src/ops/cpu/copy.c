/* copy - converting, filling, strided copies of the short floats. */
#include "ops/cpu/range.h"
#include "ops/storage.h"

/* ---- convert --------------------------------------------------------------------------------- */

/* Every 16-bit float is a float, so one rounding is all there is. */
static void convert_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_convert_args *args = block;
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t lanes = SHOALI_MIN(16, end - i);
        lanes_store(args->y, i, lanes, lanes_load(args->x, i, lanes, args->dtype), args->dtype_out);
    }
}

void SHOALI_CPU_SYMBOL(convert)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_convert_args *convert = args;
    range_run(context->threads, convert_range, convert, convert->count, 64, 8);
}

/* ---- set ------------------------------------------------------------------------------------- */

struct fill {
    char *y;
    uint32_t pattern; /* one F32 or two 16-bit elements */
};

static void fill_range(const void *block, int64_t begin, int64_t end)
{
    const struct fill *fill = block;
    for (int64_t i = begin; i < end; i++)
        memcpy(fill->y + 4 * i, &fill->pattern, 4);
}

void SHOALI_CPU_SYMBOL(set)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_set_args *set = args;
    const int64_t per_word = set->dtype == SHOAL_F32 ? 1 : 2, words = set->count / per_word;
    struct fill fill = {.y = set->y};
    for (int64_t i = 0; i < per_word; i++)
        store_f64(&fill.pattern, i, set->value, set->dtype);
    range_run(context->threads, fill_range, &fill, words, 64, 4);
    if (words * per_word < set->count)
        memcpy(fill.y + 4 * words, &fill.pattern, 2);
}

/* ---- strided copies -------------------------------------------------------------------------- */

/* Runs of the last dim; `begin` .. `end` count the elements of all dims before it. */
static void copy_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_copy_strided_args *args = block;
    const int32_t last = args->ndim - 1;
    const int64_t n = args->dim[last], xs = args->x_stride[last], ys = args->y_stride[last];
    const size_t bytes = shoal_dtype_bytes(args->dtype);
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, from = 0, to = 0;
        for (int32_t d = last - 1; d >= 0; d--) {
            from += rest % args->dim[d] * args->x_stride[d];
            to += rest % args->dim[d] * args->y_stride[d];
            rest /= args->dim[d];
        }
        const char *x = (const char *)args->x + from * (int64_t)bytes;
        char *y = (char *)args->y + to * (int64_t)bytes;
        if (xs == 1 && ys == 1)
            memcpy(y, x, (size_t)n * bytes);
        else if (bytes == 4)
            for (int64_t c = 0; c < n; c++)
                memcpy(y + 4 * c * ys, x + 4 * c * xs, 4);
        else
            for (int64_t c = 0; c < n; c++)
                memcpy(y + 2 * c * ys, x + 2 * c * xs, 2);
    }
}

bool SHOALI_CPU_SYMBOL(copy_strided_supports)(const void *args)
{
    const struct shoali_copy_strided_args *copy = args;
    return !copy->accumulate && copy->ndim > 0;
}

void SHOALI_CPU_SYMBOL(copy_strided)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_copy_strided_args *copy = args;
    int64_t runs = 1;
    for (int32_t d = 0; d + 1 < copy->ndim; d++)
        runs *= copy->dim[d];
    if (copy->dim[copy->ndim - 1] > 0)
        range_run(context->threads, copy_range, copy, runs, 1, 8 * copy->dim[copy->ndim - 1]);
}
