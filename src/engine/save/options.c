/* Keys of the configuration that change how a run trains (SHOALI_OPTION_TRAINING, and the
 * parameters of optimizer and schedule): a checkpoint has their values, and a run that continues
 * with others says so. Lines of their own tell other rates, betas, decays and types of weights. */
#include "engine/save/checkpoint.h"

#include "base/str.h"

#include <jansson.h>
#include <string.h>

enum { VALUE_MOST = 60 }; /* characters of a value that a line has room for */

/* Compared by states.c, or by what they come to: a rate, gradient_clipping. */
static const char *const told[] = {"optimizer.params.lr", "optimizer.params.betas",
                                   "optimizer.params.momentum", "optimizer.params.weight_decay",
                                   "optimizer.params.max_grad_norm"};

struct options {
    const struct shoal_engine *engine;
    json_t *object;           /* written: the values; read: the checkpoint's */
    struct shoali_str *other; /* NULL: written */
    bool optimizer, failed;
};

static const char zero[] = "zero_optimization.", quantized[] = "zero_optimization.zero_quantized_";

static bool begins(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

/* Keys that this configuration has no use for. */
static bool is_idle(const struct shoal_engine *engine, const char *path)
{
    const struct shoali_ds_config *config = &engine->config;
    if (begins(path, "fp16."))
        return !config->fp16.enabled;
    if (strcmp(path, "exact_unit_log2") == 0)
        return config->reduction != SHOALI_REDUCTION_EXACT;
    if (begins(path, zero) && !begins(path, quantized))
        return config->zero_optimization.stage != 3 ||
               !config->zero_optimization.zero_quantized_gradients;
    return false;
}

/* Of the stages stage 3 alone quantizes. A checkpoint without it has no word of it, so that it has
 * the same bytes for every stage. */
static const char off[] = "false";

static const char *value_of(const struct shoal_engine *engine, const char *path, const char *value)
{
    return begins(path, quantized) && engine->config.zero_optimization.stage != 3 ? off : value;
}

static bool is_of_optimizer(const char *path)
{
    return begins(path, "optimizer.") || begins(path, "scheduler.");
}

static void compare(struct options *options, const char *path, const char *value)
{
    const char *stored = json_string_value(json_object_get(options->object, path));
    struct shoali_str *other = options->other;
    if (!stored && options->object && begins(path, quantized))
        stored = off;
    if (!stored || strcmp(stored, value) == 0 || (is_of_optimizer(path) && !options->optimizer))
        return;
    shoali_str_append(other, "%s%s", other->length ? ", " : "", path);
    if (strlen(stored) > VALUE_MOST || strlen(value) > VALUE_MOST)
        shoali_str_append(other, " (another value)");
    else
        shoali_str_append(other, " %s (not %s)", *value ? value : "none",
                          *stored ? stored : "none");
}

static void take(void *user, const char *path, const char *value)
{
    struct options *options = user;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        if (strcmp(path, told[i]) == 0)
            return;
    if (is_idle(options->engine, path))
        return;
    value = value_of(options->engine, path, value);
    if (options->other)
        compare(options, path, value);
    else if (begins(path, quantized) && strcmp(value, off) == 0)
        return;
    else if (json_object_set_new(options->object, path, json_string(value)) != 0)
        options->failed = true;
}

static shoal_status visit(struct options *options)
{
    shoal_status status;
    const struct shoal_engine *engine = options->engine;
    const struct shoali_optimizer *optimizer = &engine->optimizer;
    const struct shoali_schedule *schedule = &engine->step.schedule;
    SHOAL_TRY(status,
              shoali_config_visit(&shoali_ds_section, &engine->config, "", SHOALI_OPTION_TRAINING,
                                  take, options),
              done);
    SHOAL_TRY(status,
              shoali_config_visit(optimizer->type->params, &optimizer->params, "optimizer.params",
                                  0, take, options),
              done);
    take(options, "scheduler.type", schedule->type ? schedule->type->name : "");
    if (schedule->type)
        SHOAL_TRY(status,
                  shoali_config_visit(schedule->type->params, &schedule->params, "scheduler.params",
                                      0, take, options),
                  done);
    if (options->failed || (options->other && options->other->failed))
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the options of a training");
done:
    return status;
}

shoal_status shoali_engine_add_options(json_t *object, const struct shoal_engine *engine)
{
    struct options options = {.engine = engine, .object = json_object()};
    if (json_object_set_new(object, "options", options.object) != 0) /* takes it in any case */
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the options of a training");
    return visit(&options);
}

shoal_status shoali_engine_compare_options(const struct shoal_engine *engine, const json_t *object,
                                           bool optimizer, struct shoali_str *other)
{
    struct options options = {.engine = engine,
                              .object = json_object_get(object, "options"),
                              .other = other,
                              .optimizer = optimizer};
    return visit(&options);
}
