/* Kernels that reduce rows: norms and sums. */
#include "ops/cuda/kernels/lanes.h"

DEVICE float norm_gamma(const void *gamma, int64_t c, int32_t plus_one, int32_t dtype)
{
    const float stored = load_as(gamma, c, dtype);
    return plus_one ? stored + 1 : stored;
}

KERNEL_TOGETHER(norm_rows, struct cuda_norm_args, 256, 1)
{
    const float n = (float)args->columns;
    for (int64_t begin = FIRST_ROWS; begin < args->rows; begin += ROW_STEP) {
        const int64_t own = OWN_ROW(begin), row = least_i64(own, args->rows - 1);
        const int64_t first = norm_row(row, args->columns, args->group, args->group_stride);
        float mean = 0, sum = 0, squares = 0;
        for (int64_t c = ROW_LANE; c < args->columns && !args->rms; c += ROW_LANES)
            sum += load_as(args->x, first + c, args->dtype);
        const float total = lane_total(sum);
        if (!args->rms)
            mean = total / n;
        for (int64_t c = ROW_LANE; c < args->columns; c += ROW_LANES) {
            const float d = load_as(args->x, first + c, args->dtype) - mean;
            squares = v1_fma(d, d, squares);
        }
        const float variance = lane_total(squares) / n;
        const float rstd = 1.0f / v1_sqrt(variance + args->eps);
        if (own >= args->rows)
            continue;
        if (args->mean != 0 && ROW_LANE == 0)
            args->mean[row] = mean;
        if (ROW_LANE == 0)
            args->rstd[row] = rstd;
        for (int64_t c = ROW_LANE; c < args->columns; c += ROW_LANES) {
            const float xhat = (load_as(args->x, first + c, args->dtype) - mean) * rstd;
            const float gamma = norm_gamma(args->gamma, c, args->gamma_plus_one, args->dtype);
            const float y = args->beta != 0
                                ? v1_fma(xhat, gamma, load_as(args->beta, c, args->dtype))
                                : xhat * gamma;
            store_as(args->y, first + c, y, args->dtype);
        }
    }
}

KERNEL_TOGETHER(norm_backward_rows, struct cuda_norm_backward_args, 256, 1)
{
    const float n = (float)args->columns;
    for (int64_t begin = FIRST_ROWS; begin < args->rows; begin += ROW_STEP) {
        const int64_t own = OWN_ROW(begin), row = least_i64(own, args->rows - 1);
        const int64_t first = norm_row(row, args->columns, args->group, args->group_stride);
        const float mean = args->rms ? 0 : args->mean[row], rstd = args->rstd[row];
        float sum_h = 0, sum_hx = 0;
        for (int64_t c = ROW_LANE; c < args->columns; c += ROW_LANES) {
            const float h = load_as(args->dy, first + c, args->dtype) *
                            norm_gamma(args->gamma, c, args->gamma_plus_one, args->dtype);
            const float xhat = (load_as(args->x, first + c, args->dtype) - mean) * rstd;
            sum_h += h;
            sum_hx = v1_fma(h, xhat, sum_hx);
        }
        const float all_h = lane_total(sum_h), all_hx = lane_total(sum_hx);
        const float a = args->rms ? 0 : all_h / n, b = all_hx / n;
        for (int64_t c = ROW_LANE; c < args->columns && own < args->rows; c += ROW_LANES) {
            const float h = load_as(args->dy, first + c, args->dtype) *
                            norm_gamma(args->gamma, c, args->gamma_plus_one, args->dtype);
            const float xhat = (load_as(args->x, first + c, args->dtype) - mean) * rstd;
            const float inner = v1_fma(-xhat, b, h - a);
            put_as(args->dx, first + c, rstd * inner, args->accumulate_dx, args->dtype);
        }
    }
}

KERNEL(reduce_lanes, struct cuda_reduce_args, 256)
{
    for (int64_t begin = FIRST_ROWS; begin < args->outer; begin += ROW_STEP) {
        const int64_t own = OWN_ROW(begin), row = least_i64(own, args->outer - 1);
        float sum = 0;
        for (int64_t r = ROW_LANE; r < args->reduced; r += ROW_LANES)
            sum += load_as(args->x, row * args->reduced + r, args->dtype);
        const float total = lane_total(sum);
        if (own < args->outer && ROW_LANE == 0)
            put_as(args->y, row, args->factor * total, args->accumulate, args->dtype_out);
    }
}
