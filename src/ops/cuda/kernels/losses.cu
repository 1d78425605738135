/* Losses of rows of logits. */
#include "ops/cuda/kernels/lanes.h"

/* The order of elements does not matter to the largest one. */
DEVICE float lane_largest(float x)
{
    x = v1_max(lane_xor_f32(x, 8), x);
    x = v1_max(lane_xor_f32(x, 4), x);
    x = v1_max(lane_xor_f32(x, 2), x);
    return v1_max(lane_xor_f32(x, 1), x);
}
DEVICE float row_largest(const void *x, int64_t first, int64_t columns, int32_t dtype)
{
    float largest = -__builtin_inff();
    for (int64_t c = ROW_LANE; c < columns; c += ROW_LANES)
        largest = v1_max(load_as(x, first + c, dtype), largest);
    return lane_largest(largest);
}
DEVICE float row_exp_sum(const void *x, int64_t first, int64_t columns, int32_t dtype,
                         float largest)
{
    float sum = 0;
    for (int64_t c = ROW_LANE; c < columns; c += ROW_LANES)
        sum += v1_exp(load_as(x, first + c, dtype) - largest);
    return lane_total(sum);
}
/* What smoothed labels expect; target < 0: it is not among the columns. */
DEVICE float expected_logit(float wanted, float others, const void *x, int64_t first,
                            int64_t columns, int64_t target, int32_t dtype)
{
    float sum = 0;
    for (int64_t c = ROW_LANE; c < columns; c += ROW_LANES)
        sum += load_as(x, first + c, dtype);
    const float all = others * lane_total(sum);
    return target >= 0 ? v1_fma(wanted - others, load_as(x, first + target, dtype), all) : all;
}

KERNEL(cross_entropy, struct cuda_cross_entropy_args, 256)
{
    for (int64_t begin = FIRST_ROWS; begin < args->rows; begin += ROW_STEP) {
        const int64_t own = OWN_ROW(begin), row = least_i64(own, args->rows - 1);
        const int64_t first = row * args->stride, columns = args->columns;
        const float largest = row_largest(args->logits, first, columns, args->dtype);
        const float sum = row_exp_sum(args->logits, first, columns, args->dtype, largest);
        const float lse = largest + v1_log(sum);
        const int64_t target = args->targets[row];
        const int64_t inside = target < columns ? target : -1;
        float loss = 0, expected = 0;
        if (args->others > 0)
            expected = expected_logit(args->target, args->others, args->logits, first, columns,
                                      inside, args->dtype);
        else if (inside >= 0)
            expected = load_as(args->logits, first + inside, args->dtype);
        if (target >= columns)
            loss = __builtin_nanf(""); /* a target outside the vocabulary must not go unseen */
        else if (target >= 0)
            loss = lse - expected;
        if (own < args->rows && ROW_LANE == 0) {
            args->lse[row] = lse;
            args->loss[row] = loss;
        }
    }
}

DEVICE void finish_tile(const struct cuda_cross_entropy_tile_args *args, int64_t row)
{
    const int64_t target = args->targets[row];
    const float lse = args->largest[row] + v1_log(args->lse[row]);
    args->lse[row] = lse;
    if (target >= args->vocabulary)
        args->loss[row] = __builtin_nanf("");
    else
        args->loss[row] = target >= 0 ? lse - args->loss[row] : 0;
}

DEVICE void add_tile(const struct cuda_cross_entropy_tile_args *args, int64_t row, float here,
                     float part)
{
    const float before = args->largest[row], both = v1_max(before, here);
    if (args->first == 0) {
        args->largest[row] = here;
        args->lse[row] = part;
    } else {
        args->largest[row] = both;
        args->lse[row] = v1_fma(args->lse[row], v1_exp(before - both), part * v1_exp(here - both));
    }
}

KERNEL_TOGETHER(cross_entropy_tile, struct cuda_cross_entropy_tile_args, 256, 1)
{
    for (int64_t begin = FIRST_ROWS; begin < args->rows; begin += ROW_STEP) {
        const int64_t own = OWN_ROW(begin), row = least_i64(own, args->rows - 1);
        const int64_t at = row * args->stride, column = args->targets[row] - args->first;
        const int hit = column >= 0 && column < args->columns;
        const float here = row_largest(args->logits, at, args->columns, args->dtype);
        const float part = row_exp_sum(args->logits, at, args->columns, args->dtype, here);
        float expected = 0;
        if (args->others > 0)
            expected = expected_logit(args->target, args->others, args->logits, at, args->columns,
                                      hit ? column : -1, args->dtype);
        if (own >= args->rows || ROW_LANE != 0)
            continue;
        add_tile(args, row, here, part);
        if (args->others > 0)
            args->loss[row] = expected + (args->first > 0 ? args->loss[row] : 0);
        else if (hit)
            args->loss[row] = load_as(args->logits, at + column, args->dtype);
        if (args->first + args->columns == args->vocabulary)
            finish_tile(args, row);
    }
}

/* A row's lanes go on in step: in place, narrower gradients are written over logits that have been
 * read. So one warp has a row, and reads 32 columns before it writes them. */
KERNEL(cross_entropy_backward, struct cuda_cross_entropy_backward_args, 256)
{
    const float count = args->count[0];
    const float g = args->dloss[0] / (count > 1 ? count : 1);
    const int64_t warps = THREADS / WARP, lane = THREAD % WARP;
    for (int64_t row = BLOCK * warps + THREAD / WARP; row < args->rows; row += BLOCKS * warps) {
        const int64_t target = args->targets[row];
        const float lse = args->lse[row];
        for (int64_t begin = 0; begin < args->columns; begin += WARP) {
            const int64_t c = begin + lane;
            const int inside = c < args->columns;
            const float x =
                inside ? load_as(args->logits, row * args->stride + c, args->dtype) : 0.0f;
            const float one = args->first + c == target ? args->wanted : args->others;
            const float d = (v1_exp(x - lse) - one) * g;
            (void)lanes_where(inside); /* all lanes have read */
            if (inside)
                store_as(args->dlogits, row * args->stride_out + c, target >= 0 ? d : 0,
                         args->dtype_out);
            (void)lanes_where(inside);
        }
    }
}

/* One warp, of which 16 lanes have the 16 partial sums. */
KERNEL(loss_mean, struct cuda_loss_mean_args, 32)
{
    double partial = 0;
    int64_t count = 0;
    for (int64_t row = THREAD; row < args->rows && THREAD < ROW_LANES; row += ROW_LANES) {
        partial += (double)args->loss[row];
        count += args->targets[row] >= 0;
    }
    for (int lanes = 8; lanes > 0; lanes /= 2) {
        partial += lane_xor_f64(partial, lanes);
        count += lane_xor_i64(count, lanes);
    }
    if (THREAD == 0) {
        const double divisor = count > 1 ? (double)count : 1.0;
        args->mean[0] = (float)(partial / divisor);
        args->count[0] = (float)count;
    }
}
