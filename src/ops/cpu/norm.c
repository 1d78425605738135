/* norm - layer norm and RMS norm. Rows are taken four at a time, so that their lane-ordered sums,
 * each a chain of dependent additions, run side by side. Threads split rows; parameter gradients
 * are column sums and split columns.
 */
#include "ops/cpu/range.h"

#define ROWS 4

/* gamma of columns c .. */
SHOALI_INLINE v16 gamma_at(const void *gamma, int64_t c, int64_t lanes, bool plus_one,
                           const shoal_dtype dtype)
{
    const v16 stored = lanes_load(gamma, c, lanes, dtype);
    return plus_one ? v16_add(stored, v16_set1(1.0f)) : stored;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Inlined with constant rows and dtype. */
SHOALI_INLINE void norm_rows(const struct shoali_norm_args *args, int64_t row, const int rows,
                             const shoal_dtype dtype)
{
    const int64_t columns = args->columns, whole = columns & ~(int64_t)15, rest = columns - whole;
    const float n = (float)columns;
    int64_t at[ROWS];
    v16 sum[ROWS], mean[ROWS], rstd[ROWS];
    for (int r = 0; r < rows; r++) {
        at[r] = shoali_norm_row(row + r, columns, args->group, args->group_stride);
        sum[r] = v16_set1(0.0f);
    }
    for (int64_t c = 0; !args->rms && c < columns; c += 16) {
        for (int r = 0; r < rows; r++)
            sum[r] =
                v16_add(sum[r], lanes_load(args->x, at[r] + c, SHOALI_MIN(16, columns - c), dtype));
    }
    for (int r = 0; r < rows; r++) {
        mean[r] = v16_set1(args->rms ? 0.0f : v16_sum(sum[r]) / n);
        sum[r] = v16_set1(0.0f);
    }
    for (int64_t c = 0; c < whole; c += 16) {
        for (int r = 0; r < rows; r++) {
            const v16 d = v16_sub(v16_load_as(args->x, at[r] + c, dtype), mean[r]);
            sum[r] = v16_fma(d, d, sum[r]);
        }
    }
    for (int r = 0; rest && r < rows; r++) {
        v16 d = v16_sub(lanes_load(args->x, at[r] + whole, rest, dtype), mean[r]);
        d = v16_select(v16m_first(rest), d, v16_set1(0.0f));
        sum[r] = v16_fma(d, d, sum[r]);
    }
    for (int r = 0; r < rows; r++) {
        const float one = 1 / sqrtf(v16_sum(sum[r]) / n + (float)args->eps);
        rstd[r] = v16_set1(one);
        args->rstd[row + r] = one;
        float lanes[16];
        v16_store(lanes, mean[r]);
        if (args->mean)
            args->mean[row + r] = lanes[0];
    }
    for (int64_t c = 0; c < columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, columns - c);
        const v16 gamma = gamma_at(args->gamma, c, lanes, args->gamma_plus_one, dtype);
        for (int r = 0; r < rows; r++) {
            const v16 x = lanes_load(args->x, at[r] + c, lanes, dtype);
            const v16 xhat = v16_mul(v16_sub(x, mean[r]), rstd[r]);
            const v16 y = args->beta ? v16_fma(xhat, gamma, lanes_load(args->beta, c, lanes, dtype))
                                     : v16_mul(xhat, gamma);
            lanes_store(args->y, at[r] + c, lanes, y, dtype);
        }
    }
}

SHOALI_INLINE void norm_typed(const struct shoali_norm_args *args, int64_t begin, int64_t end,
                              const shoal_dtype dtype)
{
    int64_t row = begin;
    for (; row + ROWS <= end; row += ROWS)
        norm_rows(args, row, ROWS, dtype);
    for (; row < end; row++)
        norm_rows(args, row, 1, dtype);
}

static void norm_range(const void *args, int64_t begin, int64_t end)
{
    const struct shoali_norm_args *norm = args;
    switch (norm->dtype) {
    case SHOAL_F32:
        norm_typed(norm, begin, end, SHOAL_F32);
        break;
    case SHOAL_BF16:
        norm_typed(norm, begin, end, SHOAL_BF16);
        break;
    default:
        norm_typed(norm, begin, end, SHOAL_F16);
        break;
    }
}

void SHOALI_CPU_SYMBOL(norm)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm_args *norm = args;
    range_run_wide(context->threads, norm_range, norm, norm->rows, 1, ROWS, norm->columns * 8);
}

/* ---- backward -------------------------------------------------------------------------------- */

SHOALI_INLINE v16 xhat_at(const struct shoali_norm_backward_args *args, int64_t at, int64_t lanes,
                          v16 mean, v16 rstd, const shoal_dtype dtype)
{
    return v16_mul(v16_sub(lanes_load(args->x, at, lanes, dtype), mean), rstd);
}

SHOALI_INLINE void dx_rows(const struct shoali_norm_backward_args *args, int64_t row,
                           const int rows, const shoal_dtype dtype)
{
    const int64_t columns = args->columns;
    int64_t first[ROWS];
    const float n = (float)columns;
    v16 sum_h[ROWS], sum_hx[ROWS], mean[ROWS], rstd[ROWS];
    for (int r = 0; r < rows; r++) {
        first[r] = shoali_norm_row(row + r, columns, args->group, args->group_stride);
        sum_h[r] = sum_hx[r] = v16_set1(0.0f);
        mean[r] = v16_set1(args->rms ? 0.0f : args->mean[row + r]);
        rstd[r] = v16_set1(args->rstd[row + r]);
    }
    for (int64_t c = 0; c < columns; c += 16) {
        /* lanes beyond the row have h = 0 and add nothing */
        const int64_t lanes = SHOALI_MIN(16, columns - c);
        const v16 gamma = gamma_at(args->gamma, c, lanes, args->gamma_plus_one, dtype);
        for (int r = 0; r < rows; r++) {
            const int64_t at = first[r] + c;
            const v16 h = v16_mul(lanes_load(args->dy, at, lanes, dtype), gamma);
            sum_h[r] = v16_add(sum_h[r], h);
            sum_hx[r] = v16_fma(h, xhat_at(args, at, lanes, mean[r], rstd[r], dtype), sum_hx[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        sum_h[r] = v16_set1(args->rms ? 0.0f : v16_sum(sum_h[r]) / n);
        sum_hx[r] = v16_set1(v16_sum(sum_hx[r]) / n);
    }
    for (int64_t c = 0; c < columns; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, columns - c);
        const v16 gamma = gamma_at(args->gamma, c, lanes, args->gamma_plus_one, dtype);
        for (int r = 0; r < rows; r++) {
            const int64_t at = first[r] + c;
            const v16 h = v16_mul(lanes_load(args->dy, at, lanes, dtype), gamma);
            const v16 xhat = xhat_at(args, at, lanes, mean[r], rstd[r], dtype);
            v16 dx = v16_mul(rstd[r], v16_fnma(xhat, sum_hx[r], v16_sub(h, sum_h[r])));
            if (args->accumulate_dx)
                dx = v16_add(lanes_load(args->dx, at, lanes, dtype), dx);
            lanes_store(args->dx, at, lanes, dx, dtype);
        }
    }
}

SHOALI_INLINE void dx_typed(const struct shoali_norm_backward_args *args, int64_t begin,
                            int64_t end, const shoal_dtype dtype)
{
    int64_t row = begin;
    for (; row + ROWS <= end; row += ROWS)
        dx_rows(args, row, ROWS, dtype);
    for (; row < end; row++)
        dx_rows(args, row, 1, dtype);
}

static void dx_range(const void *args, int64_t begin, int64_t end)
{
    const struct shoali_norm_backward_args *norm = args;
    switch (norm->dtype) {
    case SHOAL_F32:
        dx_typed(norm, begin, end, SHOAL_F32);
        break;
    case SHOAL_BF16:
        dx_typed(norm, begin, end, SHOAL_BF16);
        break;
    default:
        dx_typed(norm, begin, end, SHOAL_F16);
        break;
    }
}

SHOALI_INLINE void put_sum(float *to, int64_t c, int64_t lanes, v16 sum, bool accumulate)
{
    if (!to)
        return;
    if (accumulate)
        sum = v16_add(v16_load_n(to + c, lanes), sum);
    v16_store_n(to + c, lanes, sum);
}

/* Sixteen or, with `units` 4, sixty-four columns over all rows. */
SHOALI_INLINE void parameter_columns(const struct shoali_norm_backward_args *args, int64_t c,
                                     int64_t end, const int units, const shoal_dtype dtype)
{
    v16 sum_gamma[4], sum_beta[4];
    for (int u = 0; u < units; u++)
        sum_gamma[u] = sum_beta[u] = v16_set1(0.0f);
    for (int64_t row = 0; row < args->rows; row++) {
        const int64_t first = shoali_norm_row(row, args->columns, args->group, args->group_stride);
        const v16 mean = v16_set1(args->rms ? 0.0f : args->mean[row]),
                  rstd = v16_set1(args->rstd[row]);
        for (int u = 0; u < units; u++) {
            const int64_t at = first + c + 16 * u, lanes = SHOALI_MIN(16, end - c - 16 * u);
            const v16 dy = lanes_load(args->dy, at, lanes, dtype);
            sum_gamma[u] = v16_fma(dy, xhat_at(args, at, lanes, mean, rstd, dtype), sum_gamma[u]);
            sum_beta[u] = v16_add(sum_beta[u], dy);
        }
    }
    for (int u = 0; u < units; u++) {
        const int64_t at = c + 16 * u, lanes = SHOALI_MIN(16, end - at);
        put_sum(args->dgamma, at, lanes, sum_gamma[u], args->accumulate_params);
        put_sum(args->dbeta, at, lanes, sum_beta[u], args->accumulate_params);
    }
}

SHOALI_INLINE void parameters_typed(const struct shoali_norm_backward_args *args, int64_t begin,
                                    int64_t end, const shoal_dtype dtype)
{
    int64_t c = begin;
    for (; c + 64 <= end; c += 64)
        parameter_columns(args, c, end, 4, dtype);
    for (; c < end; c += 16)
        parameter_columns(args, c, end, 1, dtype);
}

static void parameters_range(const void *args, int64_t begin, int64_t end)
{
    const struct shoali_norm_backward_args *norm = args;
    switch (norm->dtype) {
    case SHOAL_F32:
        parameters_typed(norm, begin, end, SHOAL_F32);
        break;
    case SHOAL_BF16:
        parameters_typed(norm, begin, end, SHOAL_BF16);
        break;
    default:
        parameters_typed(norm, begin, end, SHOAL_F16);
        break;
    }
}

void SHOALI_CPU_SYMBOL(norm_backward)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm_backward_args *norm = args;
    if (norm->dgamma || norm->dbeta)
        range_run_wide(context->threads, parameters_range, norm, norm->columns, 16, 64,
                       norm->rows * 8);
    if (norm->dx)
        range_run_wide(context->threads, dx_range, norm, norm->rows, 1, ROWS, norm->columns * 12);
}
