/* Included by norm.c for float and double, after real.h. */

static REAL R(norm_gamma)(const void *gamma, int64_t c, int32_t plus_one, shoal_dtype dtype)
{
    const REAL stored = R(load)(gamma, c, dtype);
    return plus_one ? stored + 1 : stored;
}

/* sum over a row of (x - mean), or of its square; lane order. */
static REAL R(row_sum)(const struct shoali_norm_args *args, int64_t first)
{
    REAL partial[16] = {0};
    for (int64_t c = 0; c < args->columns; c++)
        partial[c % 16] += R(load)(args->x, first + c, args->dtype);
    return R(lane_total)(partial);
}
static REAL R(row_squares)(const struct shoali_norm_args *args, int64_t first, REAL mean)
{
    REAL partial[16] = {0};
    for (int64_t c = 0; c < args->columns; c++) {
        const REAL d = R(load)(args->x, first + c, args->dtype) - mean;
        partial[c % 16] = R(fma)(d, d, partial[c % 16]);
    }
    return R(lane_total)(partial);
}

static void R(norm)(const struct shoali_norm_args *args)
{
    const REAL n = (REAL)args->columns;
    for (int64_t row = 0; row < args->rows; row++) {
        const int64_t first = shoali_norm_row(row, args->columns, args->group, args->group_stride);
        const REAL mean = args->rms ? 0 : R(row_sum)(args, first) / n;
        const REAL variance = R(row_squares)(args, first, mean) / n;
        const REAL rstd = 1 / R(sqrt)(variance + (REAL)args->eps);
        if (args->mean != NULL)
            ((REAL *)args->mean)[row] = mean;
        ((REAL *)args->rstd)[row] = rstd;
        for (int64_t c = 0; c < args->columns; c++) {
            const int64_t at = first + c;
            const REAL xhat = (R(load)(args->x, at, args->dtype) - mean) * rstd;
            const REAL gamma = R(norm_gamma)(args->gamma, c, args->gamma_plus_one, args->dtype);
            const REAL y = args->beta != NULL
                               ? R(fma)(xhat, gamma, R(load)(args->beta, c, args->dtype))
                               : xhat * gamma;
            R(store)(args->y, at, y, args->dtype);
        }
    }
}

static int64_t R(norm_first)(const struct shoali_norm_backward_args *args, int64_t row)
{
    return shoali_norm_row(row, args->columns, args->group, args->group_stride);
}
static REAL R(norm_xhat)(const struct shoali_norm_backward_args *args, int64_t row, int64_t c)
{
    const REAL mean = args->rms ? 0 : ((const REAL *)args->mean)[row];
    const REAL x = R(load)(args->x, R(norm_first)(args, row) + c, args->dtype);
    return (x - mean) * ((const REAL *)args->rstd)[row];
}
static REAL R(norm_h)(const struct shoali_norm_backward_args *args, int64_t row, int64_t c)
{
    return R(load)(args->dy, R(norm_first)(args, row) + c, args->dtype) *
           R(norm_gamma)(args->gamma, c, args->gamma_plus_one, args->dtype);
}

static void R(norm_dx)(const struct shoali_norm_backward_args *args, int64_t row)
{
    const REAL n = (REAL)args->columns;
    REAL sum_h[16] = {0}, sum_hx[16] = {0};
    for (int64_t c = 0; c < args->columns; c++) {
        const REAL h = R(norm_h)(args, row, c);
        sum_h[c % 16] += h;
        sum_hx[c % 16] = R(fma)(h, R(norm_xhat)(args, row, c), sum_hx[c % 16]);
    }
    const REAL a = args->rms ? 0 : R(lane_total)(sum_h) / n;
    const REAL b = R(lane_total)(sum_hx) / n;
    const REAL rstd = ((const REAL *)args->rstd)[row];
    for (int64_t c = 0; c < args->columns; c++) {
        const int64_t at = R(norm_first)(args, row) + c;
        const REAL inner = R(fma)(-R(norm_xhat)(args, row, c), b, R(norm_h)(args, row, c) - a);
        const REAL old = args->accumulate_dx ? R(load)(args->dx, at, args->dtype) : 0;
        const REAL dx = rstd * inner;
        R(store)(args->dx, at, args->accumulate_dx ? old + dx : dx, args->dtype);
    }
}

static void R(norm_backward)(const struct shoali_norm_backward_args *args)
{
    for (int64_t row = 0; args->dx != NULL && row < args->rows; row++)
        R(norm_dx)(args, row);
    REAL *dgamma = (REAL *)args->dgamma, *dbeta = (REAL *)args->dbeta;
    for (int64_t c = 0; c < args->columns; c++) {
        REAL gamma_sum = 0, beta_sum = 0;
        for (int64_t row = 0; row < args->rows; row++) {
            const REAL dy = R(load)(args->dy, R(norm_first)(args, row) + c, args->dtype);
            gamma_sum = R(fma)(dy, R(norm_xhat)(args, row, c), gamma_sum);
            beta_sum += dy;
        }
        if (dgamma != NULL)
            dgamma[c] = args->accumulate_params ? dgamma[c] + gamma_sum : gamma_sum;
        if (dbeta != NULL)
            dbeta[c] = args->accumulate_params ? dbeta[c] + beta_sum : beta_sum;
    }
}
