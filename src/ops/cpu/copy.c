/* copy - converting, filling, strided copies of the short floats. */
#include "ops/cpu/range.h"
#include "ops/storage.h"

/* ---- convert --------------------------------------------------------------------------------- */

struct conversion {
    const struct shoali_convert_args *args;
    bool streams;
};

/* Every 16-bit float is a float, so one rounding is all there is. Inlined with constant types. */
SHOALI_INLINE void convert_typed(const struct conversion *work, int64_t begin, int64_t end,
                                 const shoal_dtype from, const shoal_dtype to)
{
    const struct shoali_convert_args *args = work->args;
    const int64_t bytes = from == SHOAL_F32 ? 4 : 2;
    int64_t i = begin;
    for (; work->streams && i + 64 <= end; i += 64)
        for (int u = 0; u < 64; u += 16) {
            range_ahead((const char *)args->x + (i + u) * bytes);
            lanes_stream(args->y, i + u, v16_load_as(args->x, i + u, from), to);
        }
    for (; i + 16 <= end; i += 16)
        v16_store_as(args->y, i, v16_load_as(args->x, i, from), to);
    if (i < end)
        lanes_store(args->y, i, end - i, lanes_load(args->x, i, end - i, from), to);
    if (work->streams)
        shoali_nontemporal_end();
}

static void convert_range(const void *block, int64_t begin, int64_t end)
{
    const struct conversion *work = block;
    const shoal_dtype from = work->args->dtype, to = work->args->dtype_out;
    if (from == SHOAL_F32 && to == SHOAL_BF16)
        convert_typed(work, begin, end, SHOAL_F32, SHOAL_BF16);
    else if (from == SHOAL_BF16 && to == SHOAL_F32)
        convert_typed(work, begin, end, SHOAL_BF16, SHOAL_F32);
    else
        convert_typed(work, begin, end, from, to);
}

void SHOALI_CPU_SYMBOL(convert)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_convert_args *convert = args;
    const int64_t bytes =
        (int64_t)(shoal_dtype_bytes(convert->dtype) + shoal_dtype_bytes(convert->dtype_out));
    const struct conversion work = {
        convert, range_streams(context->threads, convert->y, convert->x, convert->count, bytes)};
    range_run(context->threads, convert_range, &work, convert->count, 64, 8);
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
