/* An optimizer of DeepSpeed's files: which one it is, and its numbers. */
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/pickle.h"

#include <math.h>

/* ---- which one ---- */

/* Behind one of the names that the optimizers of ZeRO's stages have for torch's dictionary, or
 * there itself. */
static const struct shoali_value *groups_of(const struct shoali_value *optimizer)
{
    static const char *const inner[] = {"optimizer_state_dict", "base_optimizer_state"};
    for (int i = 0; i < 2; i++) {
        const struct shoali_value *groups =
            shoali_value_get(shoali_value_get(optimizer, inner[i]), "param_groups");
        if (shoali_value_count(groups) > 0)
            return groups;
    }
    return shoali_value_get(optimizer, "param_groups");
}

/* No file names it; the hyperparameters of a group do. */
static const char *name_of(const struct shoali_value *group)
{
    if (shoali_value_get(group, "max_coeff") && shoali_value_get(group, "min_coeff"))
        return "lamb";
    if (shoali_value_get(group, "momentum") && shoali_value_get(group, "dampening"))
        return "sgd";
    if (shoali_value_get(group, "beta2_decay"))
        return "adafactor";
    return shoali_value_get(group, "betas") && shoali_value_get(group, "eps") ? "adam" : NULL;
}

/* Newer versions of torch say how Adam decays. Without decay both ways are the same. */
static void find_optimizer(const struct shoali_value *optimizer,
                           struct shoali_deepspeed *checkpoint)
{
    struct shoali_deepspeed_numbers *numbers = &checkpoint->numbers;
    const char *formula = shoali_value_text(shoali_value_get(optimizer, SHOALI_DEEPSPEED_FORMULA));
    const struct shoali_value *groups = groups_of(optimizer);
    int64_t decoupled;
    double decay;
    if (formula)
        numbers->formula = shoali_arena_strdup(&checkpoint->arena, formula);
    for (int64_t g = 0; g < shoali_value_count(groups); g++) {
        const struct shoali_value *group = shoali_value_at(groups, g);
        if (!numbers->optimizer)
            numbers->optimizer = name_of(group);
        if (shoali_value_real(shoali_value_get(group, "weight_decay"), &decay) && decay > 0 &&
            shoali_value_int(shoali_value_get(group, "decoupled_weight_decay"), &decoupled))
            numbers->decoupled = decoupled != 0;
    }
}

/* ---- numbers ---- */

void shoali_deepspeed_optimizer_numbers(struct shoali_deepspeed *checkpoint,
                                        const struct shoali_value *optimizer)
{
    struct shoali_deepspeed_numbers *numbers = &checkpoint->numbers;
    const struct shoali_value *scaler = shoali_value_get(optimizer, "loss_scaler");
    int64_t dynamic = 0;
    /* older optimizers keep the scaler's numbers themselves */
    const struct shoali_value *from = scaler ? scaler : optimizer;
    (void)shoali_value_real(shoali_value_get(from, "cur_scale"), &numbers->loss_scale);
    shoali_deepspeed_take_int(from, scaler ? "dynamic" : "dynamic_loss_scale", &dynamic);
    numbers->dynamic_loss_scale = dynamic != 0;
    shoali_deepspeed_take_int(from, "cur_iter", &numbers->scaler_iteration);
    shoali_deepspeed_take_int(from, "last_overflow_iter", &numbers->scaler_last_overflow);
    shoali_deepspeed_take_int(from, "cur_hysteresis", &numbers->scaler_hysteresis_left);
    find_optimizer(optimizer, checkpoint);
}

shoal_status shoali_deepspeed_step(struct shoali_deepspeed *checkpoint,
                                   struct shoali_tensor_file *file, const struct shoali_value *step)
{
    shoal_status status = SHOAL_OK;
    double number = -1;
    float single;
    const struct shoali_file_tensor *tensor = shoali_value_tensor(step);
    if (tensor && tensor->count == 1) {
        SHOAL_TRY(status, shoali_tensor_file_read_f32(file, tensor, 0, 1, &single), done);
        number = (double)single;
    } else if (!shoali_value_real(step, &number)) {
        return SHOAL_OK;
    }
    if (!(number >= 0 && number < 1e15) || floor(number) != number)
        return shoali_input_fail(&file->input, step->at,
                                 "an optimizer's step is %g, which is not a count", number);
    const int64_t own = (int64_t)number;
    int64_t *known = &checkpoint->numbers.optimizer_step;
    if (*known >= 0 && *known != own)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "%s: some parameters were updated %lld times, others %lld times: Shoal "
                          "supports one number for all",
                          file->input.path, (long long)*known, (long long)own);
    *known = own;
done:
    return status;
}
