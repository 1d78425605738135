/* Conformance of every built table with ref: what optimizers do with flat arrays. */
#include "ops/conformance/conformance.h"

/* ---- updates ---- */

/* none; multiplier; a skipped step */
static float *control_of(struct trial *t, int64_t kind)
{
    float *control = block(t, 3, SHOAL_F32);
    control[0] = 1.5f;
    control[1] = 0.37f;
    control[2] = kind == 2 ? 1.0f : 0.0f;
    return kind == 0 ? NULL : control;
}
static shoal_dtype low_of(int64_t kind)
{
    return kind == 2 ? SHOAL_F16 : SHOAL_BF16;
}

static void adam(struct trial *t)
{
    const int64_t control = pick(t, 3), low = pick(t, 3), count = pick_count(t);
    const int32_t decoupled = (int32_t)pick(t, 2);
    const struct shoali_adam_args args = {
        .param = floats(t, count, SHOAL_F32),
        .exp_avg = floats(t, count, SHOAL_F32),
        .exp_avg_sq = floats_between(t, count, SHOAL_F32, 0, 1),
        .grad = floats(t, count, SHOAL_F32),
        .control = control_of(t, control),
        .low = low > 0 ? block(t, count, low_of(low)) : NULL,
        .count = count,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-8f,
        .weight_decay = 0.1f,
        .lr = 1e-2f,
        .step_size = 1.3e-2f,
        .inv_sqrt_c2 = 1.7f,
        .decoupled = decoupled,
        .low_dtype = low_of(low),
    };
    call(t, &args);
    give(t, args.param, count, SHOAL_F32);
    give(t, args.exp_avg, count, SHOAL_F32);
    give(t, args.exp_avg_sq, count, SHOAL_F32);
    if (args.low != NULL)
        give(t, args.low, count, low_of(low));
}

static void sgd(struct trial *t)
{
    const int64_t control = pick(t, 3), low = pick(t, 3);
    const float momentum = pick(t, 2) ? 0.9f : 0.0f;
    const int32_t nesterov = (int32_t)pick(t, 2), first = (int32_t)pick(t, 2);
    const int64_t count = pick_count(t);
    const struct shoali_sgd_args args = {
        .param = floats(t, count, SHOAL_F32),
        .momentum_buffer = momentum != 0 ? floats(t, count, SHOAL_F32) : NULL,
        .grad = floats(t, count, SHOAL_F32),
        .control = control_of(t, control),
        .low = low > 0 ? block(t, count, low_of(low)) : NULL,
        .count = count,
        .lr = 0.01f,
        .momentum = momentum,
        .dampening = 0.2f,
        .weight_decay = 0.1f,
        .nesterov = nesterov,
        .first = first,
        .low_dtype = low_of(low),
    };
    call(t, &args);
    give(t, args.param, count, SHOAL_F32);
    if (args.momentum_buffer != NULL)
        give(t, args.momentum_buffer, count, SHOAL_F32);
    if (args.low != NULL)
        give(t, args.low, count, low_of(low));
}

/* ---- whole tensors ---- */

/* A piece that begins and ends inside rows, of one or three matrices, or of a vector. */
struct piece {
    int64_t count, first, matrices, rows, columns;
    bool vector;
};
static struct piece pick_piece(struct trial *t)
{
    static const struct piece pieces[] = {
        {.count = 66001, .first = 0, .matrices = 1, .rows = 66001, .columns = 1, .vector = true},
        {.count = 35, .first = 7, .matrices = 1, .rows = 50, .columns = 1, .vector = true},
        {.count = 1, .first = 0, .matrices = 1, .rows = 1, .columns = 1},
        {.count = 19, .first = 5, .matrices = 1, .rows = 2, .columns = 17},
        {.count = 3 * 5 * 33 - 20, .first = 13, .matrices = 3, .rows = 5, .columns = 33},
        {.count = 7, .first = 90, .matrices = 1, .rows = 2, .columns = 100},
        {.count = 66001, .first = 1000, .matrices = 1, .rows = 300, .columns = 257},
        {.count = 30000, .first = 11, .matrices = 2, .rows = 5, .columns = 3005}};
    return pieces[pick(t, (int64_t)SHOALI_COUNT_OF(pieces))];
}

/* Sums that carry at the first addition. */
static uint64_t *sums_of(struct trial *t, int64_t count)
{
    uint64_t *limbs = block(t, 3 * count, SHOAL_I64);
    for (int64_t i = 0; i < count; i++) {
        limbs[3 * i] = limbs[3 * i + 1] = UINT64_MAX;
        limbs[3 * i + 2] = 3;
    }
    return limbs;
}

static void square_sums(struct trial *t)
{
    const struct piece piece = pick_piece(t);
    const int64_t control = pick(t, 3), bad = pick(t, 4);
    const bool tensor = pick(t, 2) != 0, row = pick(t, 2) != 0, column = pick(t, 2) || !row;
    const int64_t rows = piece.matrices * piece.rows, columns = piece.matrices * piece.columns;
    const struct shoali_square_sums_args args = {
        .x = wide_floats(t, piece.count, (int32_t[]){59, 7, -20}[pick(t, 3)], bad),
        .control = control_of(t, control),
        .tensor = tensor ? sums_of(t, 1) : NULL,
        .row = row ? sums_of(t, rows) : NULL,
        .column = column ? sums_of(t, columns) : NULL,
        .count = piece.count,
        .first = piece.first,
        .matrices = piece.matrices,
        .rows = piece.rows,
        .columns = piece.columns,
    };
    call(t, &args);
    if (tensor)
        give(t, args.tensor, 3, SHOAL_I64);
    if (row)
        give(t, args.row, 3 * rows, SHOAL_I64);
    if (column)
        give(t, args.column, 3 * columns, SHOAL_I64);
}

static void lamb(struct trial *t)
{
    const int64_t control = pick(t, 3), count = pick_count(t);
    const struct shoali_lamb_args args = {
        .param = floats(t, count, SHOAL_F32),
        .grad = floats(t, count, SHOAL_F32),
        .control = control_of(t, control),
        .exp_avg = floats(t, count, SHOAL_F32),
        .exp_avg_sq = floats_between(t, count, SHOAL_F32, 0, 1),
        .param_sum = sums_of(t, 1),
        .update_sum = sums_of(t, 1),
        .count = count,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-6f,
        .weight_decay = 0.1f,
        .eps_inside = (int32_t)pick(t, 2),
    };
    call(t, &args);
    give(t, args.exp_avg, count, SHOAL_F32);
    give(t, args.exp_avg_sq, count, SHOAL_F32);
    give(t, args.param_sum, 3, SHOAL_I64);
    give(t, args.update_sum, 3, SHOAL_I64);
}

static float *factor_of(struct trial *t)
{
    float *factor = block(t, 1, SHOAL_F32);
    *factor = 0.013f;
    return factor;
}

static void lamb_apply(struct trial *t)
{
    const int64_t control = pick(t, 3), low = pick(t, 3), count = pick_count(t);
    const struct shoali_lamb_apply_args args = {
        .param = floats(t, count, SHOAL_F32),
        .exp_avg = floats(t, count, SHOAL_F32),
        .exp_avg_sq = floats_between(t, count, SHOAL_F32, 0, 1),
        .factor = factor_of(t),
        .control = control_of(t, control),
        .low = low > 0 ? block(t, count, low_of(low)) : NULL,
        .count = count,
        .eps = 1e-6f,
        .weight_decay = 0.1f,
        .eps_inside = (int32_t)pick(t, 2),
        .low_dtype = low_of(low),
    };
    call(t, &args);
    give(t, args.param, count, SHOAL_F32);
    if (args.low != NULL)
        give(t, args.low, count, low_of(low));
}

static void adafactor(struct trial *t)
{
    const struct piece piece = pick_piece(t);
    const int64_t control = pick(t, 3);
    const struct shoali_adafactor_args args = {
        .grad = floats(t, piece.count, SHOAL_F32),
        .control = control_of(t, control),
        .row = floats_between(t, piece.matrices * piece.rows, SHOAL_F32, 0, 1),
        .column = piece.vector ? NULL
                               : floats_between(t, piece.matrices * piece.columns, SHOAL_F32, 0, 1),
        .sum = sums_of(t, 1),
        .count = piece.count,
        .first = piece.first,
        .matrices = piece.matrices,
        .rows = piece.rows,
        .columns = piece.columns,
        .floor = 0.01f,
    };
    call(t, &args);
    give(t, args.sum, 3, SHOAL_I64);
}

static void adafactor_apply(struct trial *t)
{
    const struct piece piece = pick_piece(t);
    const int64_t control = pick(t, 3), low = pick(t, 3);
    const struct shoali_adafactor_apply_args args = {
        .param = floats(t, piece.count, SHOAL_F32),
        .grad = floats(t, piece.count, SHOAL_F32),
        .control = control_of(t, control),
        .row = floats_between(t, piece.matrices * piece.rows, SHOAL_F32, 0, 1),
        .column = piece.vector ? NULL
                               : floats_between(t, piece.matrices * piece.columns, SHOAL_F32, 0, 1),
        .factor = factor_of(t),
        .low = low > 0 ? block(t, piece.count, low_of(low)) : NULL,
        .count = piece.count,
        .first = piece.first,
        .matrices = piece.matrices,
        .rows = piece.rows,
        .columns = piece.columns,
        .floor = 0.01f,
        .decay = 0.002f,
        .low_dtype = low_of(low),
    };
    call(t, &args);
    give(t, args.param, piece.count, SHOAL_F32);
    if (args.low != NULL)
        give(t, args.low, piece.count, low_of(low));
}

const struct conformance_case update_cases[] = {
    CONFORMANCE_CASE(adam, adam, 180, ONLY_F32),
    CONFORMANCE_CASE(sgd, sgd, 720, ONLY_F32),
    CONFORMANCE_CASE(square_sums, square_sums, 2304, ONLY_F32),
    CONFORMANCE_CASE(lamb, lamb, 60, ONLY_F32),
    CONFORMANCE_CASE(lamb_apply, lamb_apply, 180, ONLY_F32),
    CONFORMANCE_CASE(adafactor, adafactor, 24, ONLY_F32),
    CONFORMANCE_CASE(adafactor_apply, adafactor_apply, 72, ONLY_F32),
};
const size_t update_case_count = SHOALI_COUNT_OF(update_cases);
