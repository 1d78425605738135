/* Adafactor (Shazeer & Stern 2018) with the keys and the rule of torch.optim.Adafactor, which is
 * what a DeepSpeed configuration means by the name.
 *
 * The second moment of a matrix is kept as a number per row and one per column; that of a tensor of
 * one dim as it is, which is what the state of its rows is. In a step, with b = t^beta2_decay:
 *
 *   first measure    row += b (mean of g^2 over the row - row), column likewise;
 *                    alpha = max(eps2, rms(p)) min(lr, 1/sqrt(t))
 *   second measure   u = g / sqrt(max(row column / max(mean of rows, eps1), eps1^2)), rms(u)
 *   step             p -= lr weight_decay p; p -= alpha / max(1, rms(u)/d) u
 */
#include "optimizer/types.h"

#include <math.h>

enum { SUM_ROWS, SUM_COLUMNS, SUM_PARAM };         /* of the first measure */
enum { FACTOR_ROWS, FACTOR_COLUMNS, FACTOR_STEP }; /* of the second moment, of the update */
enum { STATE_ROWS, STATE_COLUMNS };

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_adafactor_params, key, type, member, __VA_ARGS__)
static const struct shoali_option adafactor_rows[] = {
    OPTION(
        "lr", FLOAT, lr, .default_number = 1e-2, .max = SHOALI_OPTIMIZER_LARGE,
        .help =
            "Upper bound of the relative step, which is 1/sqrt(t); a scheduler overrides it from "
            "the first step."),
    OPTION("beta2_decay", FLOAT, beta2_decay, .default_number = -0.8,
           .min = -SHOALI_OPTIMIZER_LARGE,
           .help = "The second moment of step t is mixed with weight t^beta2_decay; at most 0."),
    OPTION(
        "eps", FLOATS, eps, .default_text = "1.1920928955078125e-07,1e-3",
        .help =
            "Two lower bounds: of the mean of the rows' second moments (squared: of a second "
            "moment), and of the root mean square of a tensor's weights, which scales its step."),
    OPTION("d", FLOAT, d, .default_number = 1, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Updates of a tensor with a root mean square above this are scaled down to it."),
    OPTION("weight_decay", FLOAT, weight_decay, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Decoupled."),
    OPTION("foreach", BOOL, foreach, .state = SHOALI_NOEFFECT,
           .help = "Chooses between torch's implementations."),
    OPTION("maximize", BOOL, maximize, .state = SHOALI_PENDING,
           .help = "Ascend instead of descend."),
    SHOALI_OPTIMIZER_ROW_MAX_GRAD_NORM(shoali_adafactor_params),
};

static shoal_status adafactor_validate(void *config)
{
    const struct shoali_adafactor_params *params = config;
    if (params->eps.count != 2)
        return SHOAL_FAIL(SHOAL_ECONFIG, "eps: got %d numbers, give two such as [1e-7, 1e-3]",
                          params->eps.count);
    for (int i = 0; i < 2; i++)
        if (!(params->eps.value[i] > 0 && params->eps.value[i] < SHOALI_OPTIMIZER_LARGE))
            return SHOAL_FAIL(SHOAL_ECONFIG, "eps: %g is not a number above 0",
                              params->eps.value[i]);
    if (params->d <= 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "d: %g is not above 0", params->d);
    return SHOAL_OK;
}

static const struct shoali_section adafactor_section = {
    .name = "params",
    .help = "Parameters of Adafactor.",
    .rows = adafactor_rows,
    .row_count = sizeof(adafactor_rows) / sizeof(adafactor_rows[0]),
    .struct_bytes = sizeof(struct shoali_adafactor_params),
    .given_offset = offsetof(struct shoali_adafactor_params, given),
    .validate = adafactor_validate,
};

static const struct shoali_optimizer_state adafactor_states[] = {
    [STATE_ROWS] = {"exp_avg_sq_row", SHOALI_STATE_ROW, SHOAL_F32},
    [STATE_COLUMNS] = {"exp_avg_sq_col", SHOALI_STATE_COLUMN, SHOAL_F32},
};

static void adafactor_configure(struct shoali_optimizer *optimizer)
{
    const struct shoali_adafactor_params *params = &optimizer->params.adafactor;
    optimizer->lr = params->lr;
    optimizer->weight_decay = params->weight_decay;
    optimizer->beta[0] = optimizer->beta[1] = 0;
    optimizer->state_count = 2;
}

static void adafactor_take_group(struct shoali_optimizer *optimizer,
                                 const struct shoali_param_group_config *group)
{
    struct shoali_adafactor_params *params = &optimizer->params.adafactor;
    SHOALI_OPTIMIZER_TAKE(params, group, lr);
    SHOALI_OPTIMIZER_TAKE(params, group, weight_decay);
}

/* ---- second moments ------------------------------------------------------------------------- */

static shoal_status add_squares(const struct shoali_optimizer *optimizer,
                                const struct shoali_optimizer_now *now,
                                const struct shoali_optimizer_segment *segment)
{
    shoal_status status;
    const struct shoali_optimizer_tensor *tensor = segment->tensor;
    struct shoali_square_sums_args args = {
        .x = segment->grad,
        .control = now->control,
        .row = segment->sum[SUM_ROWS],
        .column = tensor->is_matrix ? segment->sum[SUM_COLUMNS] : NULL,
        .count = segment->count,
        .first = segment->first,
        .matrices = tensor->matrices,
        .rows = tensor->rows,
        .columns = tensor->columns,
    };
    (void)optimizer;
    SHOAL_TRY(status, shoali_op_square_sums(now->exec, &args), done);
    args.x = segment->param;
    args.control = NULL;
    args.row = args.column = NULL;
    args.tensor = segment->sum[SUM_PARAM];
    SHOAL_TRY(status, shoali_op_square_sums(now->exec, &args), done);
done:
    return status;
}

static void mix(float *state, const double *sum, int64_t count, int64_t terms, double weight)
{
    for (int64_t i = 0; i < count; i++) {
        const double old = (double)state[i];
        state[i] = (float)(old + weight * (sum[i] / (double)terms - old));
    }
}

static void conclude_squares(const struct shoali_optimizer *optimizer,
                             const struct shoali_optimizer_now *now,
                             const struct shoali_optimizer_tensor *tensor)
{
    const struct shoali_adafactor_params *params = &optimizer->params.adafactor;
    const double weight = shoali_pow((double)now->t, params->beta2_decay);
    const double lr = now->lr * tensor->lr_multiplier, relative = 1 / sqrt((double)now->t);
    const double rms = sqrt(*tensor->sum[SUM_PARAM] / (double)tensor->count);
    const int64_t rows = tensor->matrices * tensor->rows;
    const float *row = tensor->state[STATE_ROWS];
    mix(tensor->state[STATE_ROWS], tensor->sum[SUM_ROWS], rows, tensor->columns, weight);
    for (int64_t i = 0; i < rows; i += tensor->rows) {
        double mean = 0;
        for (int64_t r = 0; r < tensor->rows; r++)
            mean += (double)row[i + r];
        mean /= (double)tensor->rows;
        mean = !tensor->is_matrix ? 1 : mean > params->eps.value[0] ? mean : params->eps.value[0];
        for (int64_t r = 0; r < tensor->rows; r++)
            tensor->factor[FACTOR_ROWS][i + r] = (float)((double)row[i + r] / mean);
    }
    if (tensor->is_matrix) {
        const int64_t columns = tensor->matrices * tensor->columns;
        mix(tensor->state[STATE_COLUMNS], tensor->sum[SUM_COLUMNS], columns, tensor->rows, weight);
        for (int64_t c = 0; c < columns; c++)
            tensor->factor[FACTOR_COLUMNS][c] = tensor->state[STATE_COLUMNS][c];
    }
    *tensor->factor[FACTOR_STEP] =
        (float)((rms > params->eps.value[1] ? rms : params->eps.value[1]) *
                (lr < relative ? lr : relative));
}

/* ---- the update ----------------------------------------------------------------------------- */

static float floor_of(const struct shoali_optimizer *optimizer)
{
    const double eps = optimizer->params.adafactor.eps.value[0];
    return (float)(eps * eps);
}

static shoal_status add_update(const struct shoali_optimizer *optimizer,
                               const struct shoali_optimizer_now *now,
                               const struct shoali_optimizer_segment *segment)
{
    const struct shoali_optimizer_tensor *tensor = segment->tensor;
    const struct shoali_adafactor_args args = {
        .grad = segment->grad,
        .control = now->control,
        .row = segment->factor[FACTOR_ROWS],
        .column = tensor->is_matrix ? segment->factor[FACTOR_COLUMNS] : NULL,
        .sum = segment->sum[0],
        .count = segment->count,
        .first = segment->first,
        .matrices = tensor->matrices,
        .rows = tensor->rows,
        .columns = tensor->columns,
        .floor = floor_of(optimizer),
    };
    return shoali_op_adafactor(now->exec, &args);
}

static void conclude_update(const struct shoali_optimizer *optimizer,
                            const struct shoali_optimizer_now *now,
                            const struct shoali_optimizer_tensor *tensor)
{
    const double rms = sqrt(*tensor->sum[0] / (double)tensor->count);
    const double over = rms / optimizer->params.adafactor.d;
    (void)now;
    if (over > 1)
        *tensor->factor[FACTOR_STEP] = (float)((double)*tensor->factor[FACTOR_STEP] / over);
}

static shoal_status adafactor_step(const struct shoali_optimizer *optimizer,
                                   const struct shoali_optimizer_now *now,
                                   const struct shoali_optimizer_segment *segment)
{
    const struct shoali_optimizer_tensor *tensor = segment->tensor;
    const struct shoali_adafactor_apply_args args = {
        .param = segment->param,
        .grad = segment->grad,
        .control = now->control,
        .row = segment->factor[FACTOR_ROWS],
        .column = tensor->is_matrix ? segment->factor[FACTOR_COLUMNS] : NULL,
        .factor = segment->factor[FACTOR_STEP],
        .low = segment->low,
        .count = segment->count,
        .first = segment->first,
        .matrices = tensor->matrices,
        .rows = tensor->rows,
        .columns = tensor->columns,
        .floor = floor_of(optimizer),
        .decay = (float)(now->lr * segment->lr_multiplier * optimizer->weight_decay *
                         segment->weight_decay_multiplier),
        .low_dtype = segment->low_dtype,
    };
    return shoali_op_adafactor_apply(now->exec, &args);
}

static const struct shoali_optimizer_measure adafactor_measures[] = {
    {.sum = {[SUM_ROWS] = SHOALI_STATE_ROW,
             [SUM_COLUMNS] = SHOALI_STATE_COLUMN,
             [SUM_PARAM] = SHOALI_STATE_TENSOR},
     .sum_count = 3,
     .add = add_squares,
     .conclude = conclude_squares},
    {.sum = {SHOALI_STATE_TENSOR}, .sum_count = 1, .add = add_update, .conclude = conclude_update},
};

const struct shoali_optimizer_type shoali_optimizer_adafactor = {
    .name = "adafactor",
    .states = adafactor_states,
    .state_count = 2,
    .params = &adafactor_section,
    .measures = adafactor_measures,
    .measure_count = 2,
    .factor = {[FACTOR_ROWS] = SHOALI_STATE_ROW,
               [FACTOR_COLUMNS] = SHOALI_STATE_COLUMN,
               [FACTOR_STEP] = SHOALI_STATE_TENSOR},
    .factor_count = 3,
    .configure = adafactor_configure,
    .take_group = adafactor_take_group,
    .step = adafactor_step,
};
