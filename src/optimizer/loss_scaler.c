#include "optimizer/loss_scaler.h"

#include <math.h>
#include <string.h>

#define AT(member) offsetof(struct shoali_fp16_config, member)
static const struct shoali_option fp16_rows[] = {
    {.key = "enabled",
     .type = SHOALI_BOOL,
     .offset = AT(enabled),
     .help = "Compute in fp16 with fp32 master weights and loss scaling."},
    {.key = "auto_cast",
     .type = SHOALI_BOOL,
     .offset = AT(auto_cast),
     .state = SHOALI_NOEFFECT,
     .help = "Inputs are token ids; there is nothing to cast."},
    {.key = "loss_scale",
     .type = SHOALI_FLOAT,
     .offset = AT(loss_scale),
     .max = 0x1p126,
     .help = "Fixed loss scale; 0 makes it dynamic."},
    {.key = "initial_scale_power",
     .type = SHOALI_INT,
     .offset = AT(initial_scale_power),
     .default_number = 16,
     .min = -64,
     .max = 64,
     .help = "The dynamic scale begins at 2 to this power."},
    {.key = "loss_scale_window",
     .type = SHOALI_INT,
     .offset = AT(loss_scale_window),
     .default_number = 1000,
     .min = 1,
     .max = 1e15,
     .unit = "steps",
     .help = "Steps without overflow after which the dynamic scale doubles."},
    {.key = "hysteresis",
     .type = SHOALI_INT,
     .offset = AT(hysteresis),
     .default_number = 2,
     .min = 1,
     .max = 1e15,
     .help = "Overflows that are forgiven, less one, before the scale is halved."},
    {.key = "consecutive_hysteresis",
     .type = SHOALI_BOOL,
     .offset = AT(consecutive_hysteresis),
     .help = "Refill the hysteresis at every step without overflow."},
    {.key = "min_loss_scale",
     .type = SHOALI_FLOAT,
     .offset = AT(min_loss_scale),
     .default_number = 1,
     .max = 0x1p126,
     .help = "The dynamic scale never falls below; an overflow there is an error."},
    {.key = "fp16_master_weights_and_grads",
     .type = SHOALI_BOOL,
     .offset = AT(fp16_master_weights_and_grads),
     .state = SHOALI_PENDING,
     .help = "Keep master weights and gradients in fp16."},
};

static shoal_status fp16_validate(void *config)
{
    const struct shoali_fp16_config *fp16 = config;
    if (fp16->loss_scale == 0 && !(fp16->min_loss_scale > 0))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "min_loss_scale: must be above 0 with a dynamic loss scale, got %g",
                          fp16->min_loss_scale);
    return SHOAL_OK;
}

const struct shoali_section shoali_fp16_section = {
    .name = "fp16",
    .help = "16-bit floats with loss scaling.",
    .rows = fp16_rows,
    .row_count = sizeof(fp16_rows) / sizeof(fp16_rows[0]),
    .struct_bytes = sizeof(struct shoali_fp16_config),
    .given_offset = offsetof(struct shoali_fp16_config, given),
    .validate = fp16_validate,
};

void shoali_loss_scaler_init_none(struct shoali_loss_scaler *scaler)
{
    memset(scaler, 0, sizeof(*scaler));
    scaler->scale = 1;
    scaler->min_scale = 1;
    scaler->last_overflow = -1;
}

void shoali_loss_scaler_init(struct shoali_loss_scaler *scaler,
                             const struct shoali_fp16_config *config)
{
    shoali_loss_scaler_init_none(scaler);
    if (!config->enabled)
        return;
    if (config->loss_scale != 0) {
        scaler->scale = config->loss_scale;
        return;
    }
    scaler->dynamic = true;
    scaler->scale = ldexp(1.0, (int)config->initial_scale_power);
    scaler->min_scale = config->min_loss_scale;
    scaler->window = config->loss_scale_window;
    scaler->hysteresis = config->hysteresis;
    scaler->hysteresis_left = config->hysteresis;
    scaler->consecutive_hysteresis = config->consecutive_hysteresis;
}

static shoal_status shrink(struct shoali_loss_scaler *scaler)
{
    if (scaler->hysteresis != 1 && scaler->hysteresis_left != 1) {
        scaler->hysteresis_left--;
        return SHOAL_OK;
    }
    if (scaler->scale == scaler->min_scale)
        return SHOAL_FAIL(
            SHOAL_ENUMERIC,
            "gradients overflowed at step %lld although the loss scale is at its minimum %g: "
            "the training diverges; lower the learning rate, clip gradients or use bf16",
            (long long)scaler->iteration, scaler->min_scale);
    scaler->scale = fmax(scaler->scale / 2, scaler->min_scale);
    return SHOAL_OK;
}

shoal_status shoali_loss_scaler_update(struct shoali_loss_scaler *scaler, bool overflow)
{
    shoal_status status = SHOAL_OK;
    if (!scaler->dynamic)
        return SHOAL_OK;
    if (overflow) {
        SHOAL_TRY(status, shrink(scaler), done);
        scaler->last_overflow = scaler->iteration;
    } else {
        int64_t clean = scaler->iteration - scaler->last_overflow - 1;
        bool grow = clean > 0 && clean % scaler->window == 0;
        if (scaler->consecutive_hysteresis || grow)
            scaler->hysteresis_left = scaler->hysteresis;
        /* the scale is a float on the device: stop before it would be infinite there */
        if (grow && scaler->scale < 0x1p126)
            scaler->scale *= 2;
    }
    scaler->iteration++;
done:
    return status;
}

static bool power_of_two(double x)
{
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

static double power_below(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(0.5, exponent);
}

shoal_status shoali_loss_scaler_check_exact(const struct shoali_loss_scaler *scaler)
{
    if (!power_of_two(scaler->scale))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "fp16.loss_scale: exact reduction needs a power of two, got %g; use %g",
                          scaler->scale, power_below(scaler->scale));
    if (scaler->dynamic && !power_of_two(scaler->min_scale))
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "fp16.min_loss_scale: exact reduction needs a power of two, got %g; use %g",
            scaler->min_scale, power_below(scaler->min_scale));
    return SHOAL_OK;
}

void shoali_loss_scaler_save(const struct shoali_loss_scaler *scaler,
                             struct shoali_loss_scaler_state *state)
{
    state->scale = scaler->scale;
    state->iteration = scaler->iteration;
    state->last_overflow = scaler->last_overflow;
    state->hysteresis_left = scaler->hysteresis_left;
}

shoal_status shoali_loss_scaler_restore(struct shoali_loss_scaler *scaler,
                                        const struct shoali_loss_scaler_state *state)
{
    const bool was_dynamic = state->iteration > 0 || state->hysteresis_left > 0;
    if (!scaler->dynamic || !was_dynamic)
        return SHOAL_OK;
    if (!(state->scale > 0 && isfinite(state->scale)))
        return SHOAL_FAIL(SHOAL_ECORRUPT, "loss scaler state: the scale %g is no positive number",
                          state->scale);
    if (state->iteration < 0 || state->last_overflow < -1 ||
        state->last_overflow >= state->iteration)
        return SHOAL_FAIL(
            SHOAL_ECORRUPT,
            "loss scaler state: last overflow %lld does not lie before iteration %lld",
            (long long)state->last_overflow, (long long)state->iteration);
    if (state->hysteresis_left < 1)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "loss scaler state: hysteresis %lld is below 1",
                          (long long)state->hysteresis_left);
    scaler->scale = state->scale;
    scaler->iteration = state->iteration;
    scaler->last_overflow = state->last_overflow;
    /* a run continued with a lower hysteresis keeps to it */
    scaler->hysteresis_left =
        state->hysteresis_left < scaler->hysteresis ? state->hysteresis_left : scaler->hysteresis;
    return SHOAL_OK;
}
