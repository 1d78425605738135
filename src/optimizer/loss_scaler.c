#include "optimizer/loss_scaler.h"

#include "base/log.h"

#include <math.h>
#include <string.h>

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_fp16_config, key, type, member, __VA_ARGS__)
/* Keys that published files have here and that nothing reads. */
#define UNREAD(key_, help_)                                                        \
    {                                                                              \
        .key = #key_, .type = SHOALI_JSON, .state = SHOALI_NOEFFECT, .help = help_ \
    }
static const struct shoali_option fp16_rows[] = {
    OPTION("enabled", BOOL, enabled,
           .help = "Compute in fp16 with fp32 master weights and loss scaling."),
    OPTION("auto_cast", BOOL, auto_cast, .state = SHOALI_NOEFFECT,
           .help = "Inputs are token ids; there is nothing to cast."),
    OPTION("loss_scale", FLOAT, loss_scale, .max = 0x1p126, .flags = SHOALI_OPTION_TRAINING,
           .help = "Fixed loss scale; 0 makes it dynamic."),
    OPTION("initial_scale_power", INT, initial_scale_power, .default_number = 16, .min = -64,
           .max = 64, .help = "The dynamic scale begins at 2 to this power."),
    OPTION("loss_scale_window", INT, loss_scale_window, .default_number = 1000, .min = 1,
           .max = 1e15, .unit = "steps", .flags = SHOALI_OPTION_TRAINING,
           .help = "Steps without overflow after which the dynamic scale doubles."),
    OPTION(
        "hysteresis", INT, hysteresis, .default_number = 2, .min = 0, .max = 1e15,
        .flags = SHOALI_OPTION_TRAINING,
        .help =
            "Number of overflows at which the scale is halved; earlier ones only skip the step."),
    OPTION("consecutive_hysteresis", BOOL, consecutive_hysteresis, .flags = SHOALI_OPTION_TRAINING,
           .help = "Refill the hysteresis at every step without overflow."),
    OPTION("min_loss_scale", FLOAT, min_loss_scale, .default_number = 1, .max = 0x1p126,
           .flags = SHOALI_OPTION_TRAINING,
           .help = "The dynamic scale never falls below; an overflow there is an error."),
    OPTION("fp16_master_weights_and_grads", BOOL, fp16_master_weights_and_grads,
           .state = SHOALI_IDLE,
           .help = "Master weights and gradient sums stay in fp32, which takes more memory."),
    UNREAD(fp16, "The key that switches fp16 on is enabled."),
    UNREAD(opt_level, "It is a level of NVIDIA Apex, which is not used."),
    UNREAD(fp16_opt_level, "It is a level of NVIDIA Apex, which is not used."),
    UNREAD(fp16_scale_tolerance, "DeepSpeed reads no key of this name."),
    UNREAD(dynamic_loss_scale, "DeepSpeed reads no key of this name: use loss_scale, where 0 means "
                               "dynamic."),
};

static shoal_status fp16_validate(void *config)
{
    struct shoali_fp16_config *fp16 = config;
    if (fp16->loss_scale == 0 && fp16->min_loss_scale == 0) {
        fp16->min_loss_scale = 0x1p-24;
        SHOALI_WARN_FIRST("config", "fp16.min_loss_scale 0 is taken as 2^-24");
    }
    if (fp16->hysteresis == 0) { /* with DeepSpeed's count below 1 the scale would never fall */
        fp16->hysteresis = 1;
        SHOALI_WARN_FIRST("config", "fp16.hysteresis 0 is taken as 1");
    }
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

void shoali_loss_scaler_init(struct shoali_loss_scaler *scaler,
                             const struct shoali_fp16_config *config)
{
    *scaler = (struct shoali_loss_scaler){.scale = 1, .min_scale = 1, .last_overflow = -1};
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
            (long long)scaler->iteration + 1, scaler->min_scale);
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
