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
            row_exp_sum(args->logits, first, args->columns, args->dtype, v16_set1(largest));
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

/* One row; the target's element is done a second time, from the logit as it was. */
static void cross_entropy_row(const struct shoali_cross_entropy_backward_args *args, int64_t row,
                              float g)
{
    const int64_t first = row * args->stride;
    const int32_t target = args->targets[row];
    const v16 lse = v16_set1(args->lse[row]), factor = v16_set1(g), zero = v16_set1(0.0f);
    const v16 others = v16_set1((float)args->labels.others);
    const bool hit = target >= 0 && target < args->columns;
    const float logit = hit ? element(args->logits, first + target, args->dtype) : 0;
    for (int64_t c = 0; c < args->columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, args->columns - c);
        v16 d = zero;
        if (target >= 0) {
            const v16 p =
                v16_exp(v16_sub(lanes_load(args->logits, first + c, lanes, args->dtype), lse));
            d = v16_mul(v16_sub(p, others), factor);
        }
        lanes_store(args->dlogits, first + c, lanes, d, args->dtype);
    }
    if (hit) {
        const float p = v1_exp(logit - args->lse[row]);
        const float d = (p - target_probability(&args->labels)) * g;
        v16_store_as_n(args->dlogits, first + target, 1, v16_set1(d), args->dtype);
    }
}

static void cross_entropy_backward_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_cross_entropy_backward_args *args = block;
    const float count = args->count[0], g = args->dloss[0] / (count > 1 ? count : 1);
    for (int64_t row = begin; row < end; row++)
        cross_entropy_row(args, row, g);
}

void SHOALI_CPU_SYMBOL(cross_entropy_backward)(const void *args,
                                               const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_backward_args *loss = args;
    range_run(context->threads, cross_entropy_backward_range, loss, loss->rows, 1,
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
    const v16 sum = v16_set1(row_exp_sum(args->x, first, args->columns, args->dtype, largest));
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
