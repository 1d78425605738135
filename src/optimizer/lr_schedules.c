/* The table of schedules, looking them up and configuring them. */
#include "optimizer/names.h"
#include "optimizer/schedule_types.h"

#include <stdio.h>
#include <string.h>

static const struct shoali_schedule_type *const types[] = {&shoali_schedule_warmup,
                                                           &shoali_schedule_warmup_decay,
                                                           &shoali_schedule_warmup_cosine,
                                                           &shoali_schedule_range_test,
                                                           &shoali_schedule_one_cycle,
                                                           &shoali_schedule_megatron,
                                                           NULL};

/* Names of torch.optim.lr_scheduler; matched after `types`. */
static const char *const known_names[] = {"LambdaLR",
                                          "MultiplicativeLR",
                                          "StepLR",
                                          "MultiStepLR",
                                          "ConstantLR",
                                          "LinearLR",
                                          "ExponentialLR",
                                          "PolynomialLR",
                                          "CosineAnnealingLR",
                                          "CosineAnnealingWarmRestarts",
                                          "ChainedScheduler",
                                          "SequentialLR",
                                          "ReduceLROnPlateau",
                                          "CyclicLR",
                                          "OneCycleLR"};

static bool variant_at(int32_t index, struct shoali_variant *variant)
{
    if (!types[index])
        return false;
    *variant = (struct shoali_variant){types[index]->name, types[index]->params};
    return true;
}

static const struct shoali_option section_rows[] = {
    {.key = "type",
     .type = SHOALI_STRING,
     .offset = offsetof(struct shoali_scheduler_config, type),
     .help = "WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle or Megatron."},
    {.key = "params",
     .type = SHOALI_JSON,
     .offset = offsetof(struct shoali_scheduler_config, params),
     .variant = variant_at,
     .help = "Its parameters: tables below."},
};
const struct shoali_section shoali_scheduler_section = {
    .name = "scheduler",
    .help = "The learning rate as a function of the step.",
    .rows = section_rows,
    .row_count = sizeof(section_rows) / sizeof(section_rows[0]),
    .struct_bytes = sizeof(struct shoali_scheduler_config),
    .given_offset = offsetof(struct shoali_scheduler_config, given),
};

/* SHOAL_EUNSUPPORTED for names of torch.optim.lr_scheduler; SHOAL_ECONFIG with the nearest
 * otherwise. */
static shoal_status find_schedule(const char *name, const struct shoali_schedule_type **type)
{
    static const struct shoali_names names = {
        .what = "scheduler",
        .use = "WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle or Megatron",
        .variant = variant_at,
        .known = known_names,
        .known_count = sizeof(known_names) / sizeof(known_names[0])};
    shoal_status status;
    int32_t index;
    SHOAL_TRY(status, shoali_names_find(&names, name, &index), done);
    *type = types[index];
done:
    return status;
}

/* All params at their defaults. */
static shoal_status set_defaults(const char *name, struct shoali_arena *arena,
                                 struct shoali_schedule *schedule)
{
    shoal_status status;
    SHOAL_TRY(status, find_schedule(name, &schedule->type), done);
    SHOAL_TRY(status, shoali_config_defaults(schedule->type->params, &schedule->params, arena),
              done);
done:
    return status;
}

shoal_status shoali_schedule_make(const struct shoali_scheduler_config *config,
                                  struct shoali_json *document, const char *path, double base_lr,
                                  struct shoali_arena *arena, struct shoali_schedule *schedule)
{
    shoal_status status = SHOAL_OK;
    char key[256];
    memset(schedule, 0, sizeof(*schedule));
    schedule->base_lr = base_lr;
    if (!config->type && config->params)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s.params without %s.type: name the schedule that they "
                          "are for, such as WarmupLR",
                          path, path);
    if (!config->type)
        return SHOAL_OK;
    snprintf(key, sizeof(key), "%s.type", path);
    status = set_defaults(config->type, arena, schedule);
    if (status < 0)
        return shoali_json_locate(document, key, shoali_error_prefix(status, "%s", key));
    snprintf(key, sizeof(key), "%s.params", path);
    SHOAL_TRY(
        status,
        shoali_config_read_json(schedule->type->params, document, key, &schedule->params, arena),
        done);
    if (schedule->type->configure)
        status = schedule->type->configure(schedule);
    if (status < 0)
        return shoali_json_locate(document, key, shoali_error_prefix(status, "%s", key));
done:
    return status;
}

double shoali_schedule_lr(const struct shoali_schedule *schedule, int64_t i)
{
    return schedule->type ? schedule->type->lr(schedule, i) : schedule->base_lr;
}

double shoali_schedule_lr_at(const struct shoali_schedule *schedule, int64_t i, double n)
{
    return schedule->type && schedule->type->lr_at ? schedule->type->lr_at(schedule, n)
                                                   : shoali_schedule_lr(schedule, i);
}

bool shoali_schedule_momentum(const struct shoali_schedule *schedule, int64_t i, double *momentum)
{
    if (!schedule->type || !schedule->type->momentum)
        return false;
    double value = schedule->type->momentum(schedule, i);
    if (value < 0)
        return false;
    *momentum = value;
    return true;
}
