/* loss - softmax rows and the cross entropy of logits. Threads split rows; a row's sums are in lane
 * order. */
#include "ops/cpu/loss.h"

static void cross_entropy_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_cross_entropy_args *args = block;
    for (int64_t row = begin; row < end; row++) {
        const int64_t first = row * args->stride;
        const int32_t target = args->targets[row];
        const float largest = row_largest(args->logits, first, args->columns, args->dtype);
        const float sum =
            row_exp_sum(args->logits, first, args->columns, args->dtype, v16_set1(largest),
                        row + 1 < end ? first + args->stride : first);
        const float lse = largest + v1_log(sum);
        float loss = 0;
        if (target >= args->columns)
            loss = NAN;
        else if (target >= 0 && args->labels.others > 0)
            loss = lse - expected_logit(&args->labels, args->logits, first, args->columns, target,
                                        args->dtype);
        else if (target >= 0)
            loss = lse - element(args->logits, first + target, args->dtype);
        args->lse[row] = lse;
        args->loss[row] = loss;
    }
}

void SHOALI_CPU_SYMBOL(cross_entropy)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_args *loss = args;
    range_run(context->threads, cross_entropy_range, loss, loss->rows, 1, loss->columns * 8);
}

struct backward {
    const struct shoali_cross_entropy_backward_args *args;
    bool streams; /* past the caches */
};

/* Columns [begin, end) of the row that begins at `first`. Inlined with constants. */
SHOALI_INLINE void backward_part(const struct shoali_cross_entropy_backward_args *args,
                                 int64_t first, int64_t begin, int64_t end, v16 lse, v16 factor,
                                 const bool streams, const shoal_dtype dtype)
{
    const v16 others = v16_set1((float)args->labels.others);
    int64_t c = begin;
    for (; c + 16 <= end; c += 16) {
        const v16 p = v16_exp(v16_sub(v16_load_as(args->logits, first + c, dtype), lse));
        const v16 d = v16_mul(v16_sub(p, others), factor);
        if (streams)
            lanes_stream(args->dlogits, first + c, d, dtype);
        else
            v16_store_as(args->dlogits, first + c, d, dtype);
    }
    if (c < end) {
        const v16 x = v16_load_as_n(args->logits, first + c, end - c, dtype);
        const v16 p = v16_exp(v16_sub(x, lse));
        v16_store_as_n(args->dlogits, first + c, end - c, v16_mul(v16_sub(p, others), factor),
                       dtype);
    }
}

/* Whole lines go past the caches, if at all; what is before and after them does not. */
SHOALI_INLINE void backward_columns(const struct backward *work, int64_t first, v16 lse, v16 factor,
                                    const shoal_dtype dtype)
{
    const struct shoali_cross_entropy_backward_args *args = work->args;
    int64_t begin = 0, end = 0;
    if (work->streams) {
        const int64_t bytes = (int64_t)shoal_dtype_bytes(dtype);
        const int64_t line = SHOALI_NONTEMPORAL_BYTES / bytes;
        begin = SHOALI_MIN(args->columns, (line - first % line) % line);
        end = begin + (args->columns - begin) / line * line;
        backward_part(args, first, begin, end, lse, factor, true, dtype);
    }
    backward_part(args, first, 0, begin, lse, factor, false, dtype);
    backward_part(args, first, end, args->columns, lse, factor, false, dtype);
}

/* One row; the target's element is done a second time, from the logit as it was. */
static void cross_entropy_row(const struct backward *work, int64_t row, float g)
{
    const struct shoali_cross_entropy_backward_args *args = work->args;
    const int64_t first = row * args->stride;
    const int32_t target = args->targets[row];
    const v16 lse = v16_set1(args->lse[row]), factor = v16_set1(g);
    const bool hit = target >= 0 && target < args->columns;
    const float logit = hit ? element(args->logits, first + target, args->dtype) : 0;
    if (target < 0) {
        const size_t bytes = shoal_dtype_bytes(args->dtype);
        memset((char *)args->dlogits + (size_t)first * bytes, 0, (size_t)args->columns * bytes);
        return;
    }
    if (args->dtype == SHOAL_F32)
        backward_columns(work, first, lse, factor, SHOAL_F32);
    else if (args->dtype == SHOAL_BF16)
        backward_columns(work, first, lse, factor, SHOAL_BF16);
    else
        backward_columns(work, first, lse, factor, SHOAL_F16);
    if (hit) {
        const float p = v1_exp(logit - args->lse[row]);
        const float d = (p - target_probability(&args->labels)) * g;
        v16_store_as_n(args->dlogits, first + target, 1, v16_set1(d), args->dtype);
    }
}

static void cross_entropy_backward_range(const void *block, int64_t begin, int64_t end)
{
    const struct backward *work = block;
    const struct shoali_cross_entropy_backward_args *args = work->args;
    const float count = args->count[0], g = args->dloss[0] / (count > 1 ? count : 1);
    for (int64_t row = begin; row < end; row++)
        cross_entropy_row(work, row, g);
    if (work->streams)
        shoali_nontemporal_end();
}

void SHOALI_CPU_SYMBOL(cross_entropy_backward)(const void *args,
                                               const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_backward_args *loss = args;
    const int64_t bytes = 2 * (int64_t)shoal_dtype_bytes(loss->dtype);
    const struct backward work = {loss, range_streams(context->threads, loss->dlogits, loss->logits,
                                                      loss->rows * loss->columns, bytes)};
    range_run(context->threads, cross_entropy_backward_range, &work, loss->rows, 1,
              loss->columns * 8);
}

/* ---- softmax --------------------------------------------------------------------------------- */

SHOALI_INLINE void softmax_store(const struct shoali_softmax_args *args, int64_t at, int64_t lanes,
                                 v16 v)
{
    if (args->accumulate)
        v = v16_add(lanes_load(args->y, at, lanes, args->dtype), v);
    lanes_store(args->y, at, lanes, v, args->dtype);
}

static void softmax_row(const struct shoali_softmax_args *args, int64_t first)
{
    const v16 largest = v16_set1(row_largest(args->x, first, args->columns, args->dtype));
    const v16 sum =
        v16_set1(row_exp_sum(args->x, first, args->columns, args->dtype, largest, first));
    for (int64_t c = 0; c < args->columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, args->columns - c);
        const v16 e = v16_exp(v16_sub(lanes_load(args->x, first + c, lanes, args->dtype), largest));
        softmax_store(args, first + c, lanes, v16_div(e, sum));
    }
}

static void softmax_row_backward(const struct shoali_softmax_args *args, int64_t first)
{
    v16 sum = v16_set1(0.0f);
    for (int64_t c = 0; c < args->columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, args->columns - c);
        sum = v16_fma(lanes_load(args->x, first + c, lanes, args->dtype),
                      lanes_load(args->dy, first + c, lanes, args->dtype), sum);
    }
    sum = v16_set1(v16_sum(sum));
    for (int64_t c = 0; c < args->columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, args->columns - c);
        const v16 y = lanes_load(args->x, first + c, lanes, args->dtype);
        const v16 dy = lanes_load(args->dy, first + c, lanes, args->dtype);
        softmax_store(args, first + c, lanes, v16_mul(y, v16_sub(dy, sum)));
    }
}

static void softmax_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_softmax_args *args = block;
    for (int64_t row = begin; row < end; row++) {
        if (args->backward)
            softmax_row_backward(args, row * args->columns);
        else
            softmax_row(args, row * args->columns);
    }
}

void SHOALI_CPU_SYMBOL(softmax)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_softmax_args *softmax = args;
    range_run(context->threads, softmax_range, softmax, softmax->rows, 1, softmax->columns * 16);
}
