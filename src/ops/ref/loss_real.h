/* Included by loss.c for float and double, after real.h. */

/* Largest value of a row and the sum of exp(x - largest) in lane order. */
static REAL R(row_largest)(const void *x, int64_t first, int64_t columns, shoal_dtype dtype)
{
    REAL largest = -(REAL)INFINITY;
    for (int64_t c = 0; c < columns; c++)
        largest = R(max)(R(load)(x, first + c, dtype), largest);
    return largest;
}
static REAL R(row_exp_sum)(const void *x, int64_t first, int64_t columns, shoal_dtype dtype,
                           REAL largest)
{
    REAL partial[16] = {0};
    for (int64_t c = 0; c < columns; c++)
        partial[c % 16] += R(exp)(R(load)(x, first + c, dtype) - largest);
    return R(lane_total)(partial);
}

static REAL R(row_sum)(const void *x, int64_t first, int64_t columns, shoal_dtype dtype)
{
    REAL partial[16] = {0};
    for (int64_t c = 0; c < columns; c++)
        partial[c % 16] += R(load)(x, first + c, dtype);
    return R(lane_total)(partial);
}

/* What the labels expect of [first, first + columns); target: there, or < 0. */
static REAL R(expected_logit)(const struct shoali_label_probabilities *labels, const void *x,
                              int64_t first, int64_t columns, int64_t target, shoal_dtype dtype)
{
    const REAL others = (REAL)labels->others, more = (REAL)labels->target - others;
    const REAL all = others * R(row_sum)(x, first, columns, dtype);
    return target >= 0 ? R(fma)(more, R(load)(x, first + target, dtype), all) : all;
}

/* The probability that the labels want of the target: zeros are labels that are not smoothed. */
static REAL R(target_probability)(const struct shoali_label_probabilities *labels)
{
    return labels->others > 0 ? (REAL)labels->target : (REAL)1;
}

static void R(cross_entropy)(const struct shoali_cross_entropy_args *args)
{
    for (int64_t row = 0; row < args->rows; row++) {
        const int64_t first = row * args->stride;
        const REAL largest = R(row_largest)(args->logits, first, args->columns, args->dtype);
        const REAL sum = R(row_exp_sum)(args->logits, first, args->columns, args->dtype, largest);
        const REAL lse = largest + R(log)(sum);
        const int32_t target = args->targets[row];
        REAL loss = 0;
        if (target >= args->columns)
            loss = (REAL)NAN; /* a target outside the vocabulary must not go unseen */
        else if (target >= 0 && args->labels.others > 0)
            loss = lse - R(expected_logit)(&args->labels, args->logits, first, args->columns,
                                           target, args->dtype);
        else if (target >= 0)
            loss = lse - R(load)(args->logits, first + target, args->dtype);
        ((REAL *)args->lse)[row] = lse;
        ((REAL *)args->loss)[row] = loss;
    }
}

static void R(loss_mean)(const struct shoali_loss_mean_args *args)
{
    double partial[16] = {0};
    int64_t count = 0;
    for (int64_t row = 0; row < args->rows; row++) {
        partial[row % 16] += (double)((const REAL *)args->loss)[row];
        count += args->targets[row] >= 0;
    }
    const double divisor = count > 1 ? (double)count : 1.0;
    ((REAL *)args->mean)[0] = (REAL)(lane_total_f64(partial) / divisor);
    ((REAL *)args->count)[0] = (REAL)count;
}

static void R(cross_entropy_backward)(const struct shoali_cross_entropy_backward_args *args)
{
    const REAL count = ((const REAL *)args->count)[0];
    const REAL g = ((const REAL *)args->dloss)[0] / (count > 1 ? count : 1);
    for (int64_t row = 0; row < args->rows; row++) {
        const int32_t target = args->targets[row];
        const REAL lse = ((const REAL *)args->lse)[row];
        const REAL wanted = R(target_probability)(&args->labels);
        const REAL others = (REAL)args->labels.others;
        for (int64_t c = 0; c < args->columns; c++) {
            const int64_t at = row * args->stride + c;
            const REAL p = R(exp)(R(load)(args->logits, at, args->dtype) - lse);
            const REAL d = (p - (c == target ? wanted : others)) * g;
            R(store)(args->dlogits, at, target >= 0 ? d : 0, args->dtype);
        }
    }
}

static void R(tile_finish)(const struct shoali_cross_entropy_tile_args *args, int64_t row)
{
    REAL *loss = (REAL *)args->loss, *lse = (REAL *)args->lse;
    const int32_t target = args->targets[row];
    lse[row] = ((const REAL *)args->largest)[row] + R(log)(lse[row]);
    if (target >= args->vocabulary)
        loss[row] = (REAL)NAN;
    else
        loss[row] = target >= 0 ? lse[row] - loss[row] : 0;
}

static void R(cross_entropy_tile)(const struct shoali_cross_entropy_tile_args *args)
{
    REAL *largest = (REAL *)args->largest, *sum = (REAL *)args->lse, *loss = (REAL *)args->loss;
    for (int64_t row = 0; row < args->rows; row++) {
        const int64_t at = row * args->stride;
        const int64_t column = args->targets[row] - args->first;
        const REAL here = R(row_largest)(args->logits, at, args->columns, args->dtype);
        const REAL part = R(row_exp_sum)(args->logits, at, args->columns, args->dtype, here);
        if (args->first == 0) {
            largest[row] = here;
            sum[row] = part;
        } else {
            const REAL before = largest[row], both = R(max)(before, here);
            largest[row] = both;
            sum[row] = R(fma)(sum[row], R(exp)(before - both), part * R(exp)(here - both));
        }
        const bool hit = column >= 0 && column < args->columns;
        if (args->labels.others > 0)
            loss[row] = R(expected_logit)(&args->labels, args->logits, at, args->columns,
                                          hit ? column : -1, args->dtype) +
                        (args->first > 0 ? loss[row] : 0);
        else if (hit)
            loss[row] = R(load)(args->logits, at + column, args->dtype);
        if (args->first + args->columns == args->vocabulary)
            R(tile_finish)(args, row);
    }
}

static void
R(cross_entropy_tile_backward)(const struct shoali_cross_entropy_tile_backward_args *args)
{
    const REAL count = ((const REAL *)args->count)[0];
    const REAL g = ((const REAL *)args->dloss)[0] / (count > 1 ? count : 1);
    for (int64_t row = 0; row < args->rows; row++) {
        const int64_t target = args->targets[row];
        const REAL lse = ((const REAL *)args->lse)[row];
        const REAL wanted = R(target_probability)(&args->labels);
        const REAL others = (REAL)args->labels.others;
        for (int64_t c = 0; c < args->columns; c++) {
            const REAL x = R(load)(args->logits, row * args->stride + c, args->dtype);
            const REAL one = args->first + c == target ? wanted : others;
            const REAL d = (R(exp)(x - lse) - one) * g;
            R(store)
            (args->dlogits, row * args->stride_out + c, target >= 0 ? d : 0, args->dtype_out);
        }
    }
}

static void R(cross_entropy_join)(const struct shoali_cross_entropy_join_args *args)
{
    const REAL *parts = (const REAL *)args->parts;
    const int64_t rows = args->rows;
    for (int64_t row = 0; row < rows; row++) {
        REAL largest = -(REAL)INFINITY, sum = 0, logit = 0;
        for (int64_t p = 0; p < args->ways; p++)
            largest = R(max)(parts[3 * p * rows + row], largest);
        for (int64_t p = 0; p < args->ways; p++) {
            const REAL *part = parts + 3 * p * rows + row;
            sum = R(fma)(part[rows], R(exp)(part[0] - largest), sum);
            logit += part[2 * rows];
        }
        const REAL lse = largest + R(log)(sum);
        const int32_t target = args->targets[row];
        REAL loss = target >= 0 ? lse - logit : 0;
        if (target >= args->vocabulary)
            loss = (REAL)NAN;
        ((REAL *)args->lse)[row] = lse;
        ((REAL *)args->loss)[row] = loss;
    }
}

static void R(softmax_store)(const struct shoali_softmax_args *args, int64_t at, REAL v)
{
    if (args->accumulate)
        v = R(load)(args->y, at, args->dtype) + v;
    R(store)(args->y, at, v, args->dtype);
}

static void R(softmax_row)(const struct shoali_softmax_args *args, int64_t first)
{
    const REAL largest = R(row_largest)(args->x, first, args->columns, args->dtype);
    const REAL sum = R(row_exp_sum)(args->x, first, args->columns, args->dtype, largest);
    for (int64_t c = 0; c < args->columns; c++) {
        const REAL e = R(exp)(R(load)(args->x, first + c, args->dtype) - largest);
        R(softmax_store)(args, first + c, e / sum);
    }
}

static void R(softmax_row_backward)(const struct shoali_softmax_args *args, int64_t first)
{
    REAL partial[16] = {0};
    for (int64_t c = 0; c < args->columns; c++) {
        const REAL y = R(load)(args->x, first + c, args->dtype);
        partial[c % 16] = R(fma)(y, R(load)(args->dy, first + c, args->dtype), partial[c % 16]);
    }
    const REAL sum = R(lane_total)(partial);
    for (int64_t c = 0; c < args->columns; c++) {
        const REAL y = R(load)(args->x, first + c, args->dtype);
        const REAL dy = R(load)(args->dy, first + c, args->dtype);
        R(softmax_store)(args, first + c, y * (dy - sum));
    }
}

static void R(softmax)(const struct shoali_softmax_args *args)
{
    for (int64_t row = 0; row < args->rows; row++) {
        if (args->backward)
            R(softmax_row_backward)(args, row * args->columns);
        else
            R(softmax_row)(args, row * args->columns);
    }
}
