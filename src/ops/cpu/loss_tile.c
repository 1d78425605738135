/* loss_tile - the cross entropy of logits that pass by in tiles of the vocabulary. Threads split
 * rows; a row's sums are in lane order within a tile and in the tiles' order across them. */
#include "ops/cpu/loss.h"

static void finish_row(const struct shoali_cross_entropy_tile_args *args, int64_t row, float sum)
{
    const int32_t target = args->targets[row];
    const float lse = args->largest[row] + v1_log(sum);
    float loss = 0;
    if (target >= args->vocabulary)
        loss = NAN;
    else if (target >= 0)
        loss = lse - args->loss[row];
    args->lse[row] = lse;
    args->loss[row] = loss;
}

static void tile_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_cross_entropy_tile_args *args = block;
    const bool last = args->first + args->columns == args->vocabulary;
    for (int64_t row = begin; row < end; row++) {
        const int64_t at = row * args->stride;
        const int64_t column = args->targets[row] - args->first;
        float largest = row_largest(args->logits, at, args->columns, args->dtype);
        float sum =
            row_exp_sum(args->logits, at, args->columns, args->dtype, v16_set1(largest), at);
        if (args->first > 0) {
            const float before = args->largest[row], here = largest;
            largest = v1_max(before, here);
            sum = v1_fma(args->lse[row], v1_exp(before - largest), sum * v1_exp(here - largest));
        }
        const bool hit = column >= 0 && column < args->columns;
        if (args->labels.others > 0)
            args->loss[row] = expected_logit(&args->labels, args->logits, at, args->columns,
                                             hit ? column : -1, args->dtype) +
                              (args->first > 0 ? args->loss[row] : 0);
        else if (hit)
            args->loss[row] = element(args->logits, at + column, args->dtype);
        args->largest[row] = largest;
        args->lse[row] = sum;
        if (last)
            finish_row(args, row, sum);
    }
}

void SHOALI_CPU_SYMBOL(cross_entropy_tile)(const void *args,
                                           const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_tile_args *tile = args;
    range_run(context->threads, tile_range, tile, tile->rows, 1, tile->columns * 8);
}

/* One row; the target's element is done a second time, from the logit as it was. */
static void backward_row(const struct shoali_cross_entropy_tile_backward_args *args, int64_t row,
                         float g)
{
    const int64_t from = row * args->stride, to = row * args->stride_out;
    const int64_t target = args->targets[row], column = target - args->first;
    const bool hit = target >= 0 && column >= 0 && column < args->columns;
    const float logit = hit ? element(args->logits, from + column, args->dtype) : 0;
    const v16 lse = v16_set1(args->lse[row]), factor = v16_set1(g), zero = v16_set1(0.0f);
    const v16 others = v16_set1((float)args->labels.others);
    for (int64_t c = 0; c < args->columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, args->columns - c);
        v16 d = zero;
        if (target >= 0) {
            const v16 x = lanes_load(args->logits, from + c, lanes, args->dtype);
            d = v16_mul(v16_sub(v16_exp(v16_sub(x, lse)), others), factor);
        }
        lanes_store(args->dlogits, to + c, lanes, d, args->dtype_out);
    }
    if (hit) {
        const float p = v1_exp(logit - args->lse[row]);
        const float d = (p - target_probability(&args->labels)) * g;
        v16_store_as_n(args->dlogits, to + column, 1, v16_set1(d), args->dtype_out);
    }
}

static void backward_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_cross_entropy_tile_backward_args *args = block;
    const float count = args->count[0], g = args->dloss[0] / (count > 1 ? count : 1);
    for (int64_t row = begin; row < end; row++)
        backward_row(args, row, g);
}

void SHOALI_CPU_SYMBOL(cross_entropy_tile_backward)(const void *args,
                                                    const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_tile_backward_args *tile = args;
    range_run(context->threads, backward_range, tile, tile->rows, 1, tile->columns * 8);
}
