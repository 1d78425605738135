/* The table of optimizers, looking them up and configuring them; the front of the step. */
#include "optimizer/names.h"
#include "optimizer/param_groups.h"
#include "optimizer/types.h"

#include <stdio.h>
#include <string.h>

static const struct shoali_optimizer_type *const types[] = {
    &shoali_optimizer_adam, &shoali_optimizer_adamw, &shoali_optimizer_sgd, NULL};

/* Names a DeepSpeed or torch.optim user may bring; matched after `types`. */
static const char *const known_names[] = {
    "lamb",       "onebitadam", "zerooneadam", "onebitlamb", "lion",  "adagrad",  "muadam",
    "muadamw",    "musgd",      "muon",        "adadelta",   "nadam", "radam",    "adamax",
    "sparseadam", "asgd",       "rmsprop",     "rprop",      "lbfgs", "adafactor"};

static bool variant_at(int32_t index, struct shoali_variant *variant)
{
    if (!types[index])
        return false;
    *variant = (struct shoali_variant){types[index]->name, types[index]->params};
    return true;
}

static bool group_at(int32_t index, struct shoali_variant *variant)
{
    *variant = (struct shoali_variant){"each group", &shoali_param_group_section};
    return index == 0;
}

static const struct shoali_option section_rows[] = {
    {.key = "type",
     .type = SHOALI_STRING,
     .offset = offsetof(struct shoali_optimizer_config, type),
     .help = "Name of the optimizer: Adam, AdamW or SGD; upper and lower case are equal."},
    {.key = "params",
     .type = SHOALI_JSON,
     .offset = offsetof(struct shoali_optimizer_config, params),
     .variant = variant_at,
     .help = "Its parameters, such as lr, betas, eps, weight_decay: tables below."},
    {.key = "no_decay",
     .type = SHOALI_STRINGS,
     .offset = offsetof(struct shoali_optimizer_config, no_decay),
     .help = "Parameters without weight decay: names or patterns such as *.bias; \"1-D\" means all "
             "tensors of one dimension and names ending in .bias. Not given: every parameter "
             "decays, as in DeepSpeed; --weight-decay as a flag makes it [\"1-D\"], as in Megatron "
             "(Shoal's own)."},
    {.key = "param_groups",
     .type = SHOALI_JSON,
     .offset = offsetof(struct shoali_optimizer_config, param_groups),
     .flags = SHOALI_OPTION_LIST,
     .variant = group_at,
     .help = "Groups of parameters with values of their own: a list of tables as below (Shoal's "
             "own)."},
    {.key = "legacy_fusion",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct shoali_optimizer_config, legacy_fusion),
     .state = SHOALI_NOEFFECT,
     .help = "There is one fused kernel per optimizer."},
};
const struct shoali_section shoali_optimizer_section = {
    .name = "optimizer",
    .help = "The update rule.",
    .rows = section_rows,
    .row_count = sizeof(section_rows) / sizeof(section_rows[0]),
    .struct_bytes = sizeof(struct shoali_optimizer_config),
    .given_offset = offsetof(struct shoali_optimizer_config, given),
};

const struct shoali_optimizer_type *const *shoali_optimizer_all(void)
{
    return types;
}

shoal_status shoali_optimizer_find(const char *name, const struct shoali_optimizer_type **type)
{
    static const struct shoali_names names = {.what = "optimizer",
                                              .use = "adamw, adam or sgd",
                                              .variant = variant_at,
                                              .known = known_names,
                                              .known_count =
                                                  sizeof(known_names) / sizeof(known_names[0])};
    shoal_status status;
    int32_t index;
    SHOAL_TRY(status, shoali_names_find(&names, name, &index), done);
    *type = types[index];
done:
    return status;
}

void shoali_optimizer_configure(struct shoali_optimizer *optimizer)
{
    optimizer->type->configure(optimizer);
}

shoal_status shoali_optimizer_default(const char *name, struct shoali_arena *arena,
                                      struct shoali_optimizer *optimizer)
{
    shoal_status status;
    memset(optimizer, 0, sizeof(*optimizer));
    SHOAL_TRY(status, shoali_optimizer_find(name, &optimizer->type), done);
    SHOAL_TRY(status, shoali_config_defaults(optimizer->type->params, &optimizer->params, arena),
              done);
    shoali_optimizer_configure(optimizer);
done:
    return status;
}

shoal_status shoali_optimizer_make(const struct shoali_optimizer_config *config,
                                   struct shoali_json *document, const char *path,
                                   struct shoali_arena *arena, struct shoali_optimizer *optimizer)
{
    shoal_status status = SHOAL_OK;
    char key[256];
    memset(optimizer, 0, sizeof(*optimizer));
    if (!config->type)
        return SHOAL_OK;
    snprintf(key, sizeof(key), "%s.type", path);
    status = shoali_optimizer_default(config->type, arena, optimizer);
    if (status < 0)
        return shoali_json_locate(document, key, shoali_error_prefix(status, "%s", key));
    snprintf(key, sizeof(key), "%s.params", path);
    SHOAL_TRY(
        status,
        shoali_config_read_json(optimizer->type->params, document, key, &optimizer->params, arena),
        done);
    shoali_optimizer_configure(optimizer);
done:
    return status;
}

shoal_status shoali_optimizer_step(const struct shoali_optimizer *optimizer,
                                   const struct shoali_optimizer_now *now,
                                   const struct shoali_optimizer_segment *segment)
{
    if (segment->count == 0)
        return SHOAL_OK;
    if (now->t < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s step: t is %lld, but the first applied update has t = 1",
                          optimizer->type->name, (long long)now->t);
    if (segment->count < 0 || !segment->param || !segment->grad)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s step: a segment of %lld elements needs param and grad",
                          optimizer->type->name, (long long)segment->count);
    for (int32_t s = 0; s < optimizer->state_count; s++)
        if (!segment->state[s])
            return SHOAL_FAIL(SHOAL_EINVAL, "%s step: the state `%s` of a segment is missing",
                              optimizer->type->name, optimizer->type->states[s].name);
    return optimizer->type->step(optimizer, now, segment);
}
