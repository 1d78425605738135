/* Conformance of every built table with ref: losses and probabilities. */
#include "base/mathx.h"
#include "ops/conformance/conformance.h"

/* Of one loss in two, smoothed. */
static struct shoali_label_probabilities some_labels(struct trial *t, int64_t classes)
{
    const double smoothing = 0.1 + 0.2 * (double)pick(t, 3);
    if (pick(t, 2) == 0 || classes < 2)
        return (struct shoali_label_probabilities){0};
    return (struct shoali_label_probabilities){1 - smoothing, smoothing / (double)(classes - 1)};
}

static void cross_entropy(struct trial *t)
{
    const int64_t pad = pick(t, 2) * 5, rows = pick_rows(t), columns = pick_size(t);
    const struct shoali_cross_entropy_args args = {
        .logits = floats_between(t, rows * (columns + pad), t->dtype, -20, 20),
        .targets = ints(t, rows, -1, columns + 1), /* one class too many: NaN */
        .loss = block(t, rows, SHOAL_F32),
        .lse = block(t, rows, SHOAL_F32),
        .rows = rows,
        .columns = columns,
        .stride = columns + pad,
        .dtype = t->dtype,
        .labels = some_labels(t, columns),
    };
    call(t, &args);
    give(t, args.loss, rows, SHOAL_F32);
    give(t, args.lse, rows, SHOAL_F32);
}

static void loss_mean(struct trial *t)
{
    const int64_t rows = pick_count(t) - 1, ignored = pick(t, 2);
    const struct shoali_loss_mean_args args = {
        .loss = floats_between(t, rows, SHOAL_F32, 0, 10),
        .targets = ints(t, rows, -1, ignored ? 0 : 4),
        .mean = block(t, 1, SHOAL_F32),
        .count = block(t, 1, SHOAL_F32),
        .rows = rows,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.mean, 1, SHOAL_F32);
    give(t, args.count, 1, SHOAL_F32);
}

static void cross_entropy_backward(struct trial *t)
{
    const bool in_place = pick(t, 2) != 0;
    const int64_t pad = pick(t, 2) * 5, rows = pick_rows(t), columns = pick_size(t);
    const int64_t count = rows * (columns + pad);
    void *logits = floats_between(t, count, t->dtype, -8, 8);
    struct shoali_cross_entropy_backward_args args = {
        .logits = logits,
        .targets = ints(t, rows, -1, columns + 1),
        .lse = floats_between(t, rows, SHOAL_F32, 8, 12),
        .dloss = floats(t, 1, SHOAL_F32),
        .count = floats_between(t, 1, SHOAL_F32, 0, 40),
        .dlogits = in_place ? logits : block(t, count, t->dtype),
        .rows = rows,
        .columns = columns,
        .stride = columns + pad,
        .dtype = t->dtype,
        .labels = some_labels(t, columns),
    };
    call(t, &args);
    give(t, args.dlogits, count, t->dtype);
}

/* Three tiles, the last one narrow, of logits whose largest lies anywhere. */
static void cross_entropy_tile(struct trial *t)
{
    const int64_t pad = pick(t, 2) * 5, rows = pick_rows(t), columns = pick_size(t);
    const int64_t last = (columns + 1) / 2, vocabulary = 2 * columns + last;
    struct shoali_cross_entropy_tile_args args = {
        .targets = ints(t, rows, -1, vocabulary + 1), /* one class too many: NaN */
        .largest = block(t, rows, SHOAL_F32),
        .loss = block(t, rows, SHOAL_F32),
        .lse = block(t, rows, SHOAL_F32),
        .rows = rows,
        .stride = columns + pad,
        .vocabulary = vocabulary,
        .dtype = t->dtype,
        .labels = some_labels(t, vocabulary),
    };
    for (int32_t tile = 0; tile < 3; tile++) {
        args.first = tile * columns;
        args.columns = tile < 2 ? columns : last;
        args.logits = floats_between(t, rows * args.stride, t->dtype, -20, 20);
        call(t, &args);
    }
    give(t, args.loss, rows, SHOAL_F32);
    give(t, args.lse, rows, SHOAL_F32);
}

/* fp32 logits whose gradient, of any type, takes the beginning of their rows, or memory elsewhere.
 */
static void cross_entropy_tile_backward(struct trial *t)
{
    const bool in_place = pick(t, 2) != 0;
    const int64_t pad = pick(t, 2) * 5, rows = pick_rows(t), columns = pick_size(t);
    const int64_t stride = columns + pad, first = 100 * pick(t, 2);
    void *logits = floats_between(t, rows * stride, SHOAL_F32, -8, 8);
    const struct shoali_cross_entropy_tile_backward_args args = {
        .logits = logits,
        .targets = ints(t, rows, -1, first + columns + 50),
        .lse = floats_between(t, rows, SHOAL_F32, 8, 12),
        .dloss = floats(t, 1, SHOAL_F32),
        .count = floats_between(t, 1, SHOAL_F32, 0, 40),
        .dlogits = in_place ? logits : block(t, rows * stride, t->dtype),
        .rows = rows,
        .columns = columns,
        .stride = stride,
        .stride_out = in_place && t->dtype != SHOAL_F32 ? 2 * stride : stride,
        .first = first,
        .dtype = SHOAL_F32,
        .dtype_out = t->dtype,
        .labels = some_labels(t, first + columns + 50),
    };
    call(t, &args);
    if (in_place)
        give(t, logits, rows * stride, SHOAL_F32);
    else
        give(t, args.dlogits, rows * stride, t->dtype);
}

static void cross_entropy_join(struct trial *t)
{
    const int64_t rows = pick_rows(t), ways = 1 + pick(t, 4), vocabulary = 40;
    float *parts = floats_between(t, 3 * ways * rows, SHOAL_F32, 0, 20);
    const struct shoali_cross_entropy_join_args args = {
        .parts = parts,
        .targets = ints(t, rows, -1, vocabulary + 1), /* one class too many: NaN */
        .loss = block(t, rows, SHOAL_F32),
        .lse = block(t, rows, SHOAL_F32),
        .rows = rows,
        .ways = ways,
        .vocabulary = vocabulary,
        .dtype = SHOAL_F32,
    };
    call(t, &args);
    give(t, args.loss, rows, SHOAL_F32);
    give(t, args.lse, rows, SHOAL_F32);
}

static void softmax(struct trial *t)
{
    const int32_t backward = (int32_t)pick(t, 2), accumulate = (int32_t)pick(t, 2);
    const int64_t rows = pick_rows(t), columns = pick_size(t);
    const struct shoali_softmax_args args = {
        .x = floats_between(t, rows * columns, t->dtype, backward ? 0 : -30, backward ? 1 : 30),
        .dy = backward ? floats(t, rows * columns, t->dtype) : NULL,
        .y = floats(t, rows * columns, t->dtype),
        .rows = rows,
        .columns = columns,
        .backward = backward,
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, rows * columns, t->dtype);
}

const struct conformance_case loss_cases[] = {
    CONFORMANCE_TRIALS(cross_entropy, cross_entropy, 200, FLOATS32, 0),
    CONFORMANCE_TRIALS(loss_mean, loss_mean, 20, ONLY_F32, 0),
    CONFORMANCE_TRIALS(cross_entropy_backward, cross_entropy_backward, 400, FLOATS32, 0),
    CONFORMANCE_TRIALS(cross_entropy_tile, cross_entropy_tile, 200, FLOATS32, 0),
    CONFORMANCE_TRIALS(cross_entropy_tile_backward, cross_entropy_tile_backward, 800, FLOATS32, 0),
    CONFORMANCE_TRIALS(cross_entropy_join, cross_entropy_join, 80, ONLY_F32, 0),
    CONFORMANCE_TRIALS(softmax, softmax, 400, FLOATS32, 0),
};
const size_t loss_case_count = SHOALI_COUNT_OF(loss_cases);
