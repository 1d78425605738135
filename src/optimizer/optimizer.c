/* The table of optimizers, looking them up and configuring them; the front of the step. */
#include "optimizer/names.h"
#include "optimizer/param_groups.h"
#include "optimizer/types.h"

#include <stdio.h>
#include <string.h>

static const struct shoali_optimizer_type *const types[] = {
    &shoali_optimizer_adam, &shoali_optimizer_adamw,     &shoali_optimizer_sgd,
    &shoali_optimizer_lamb, &shoali_optimizer_adafactor, NULL};

/* Names a DeepSpeed or torch.optim user may bring; matched after `types`. */
static const char *const known_names[] = {
    "onebitadam", "zerooneadam", "onebitlamb", "lion",     "adagrad", "muadam",
    "muadamw",    "musgd",       "muon",       "adadelta", "nadam",   "radam",
    "adamax",     "sparseadam",  "asgd",       "rmsprop",  "rprop",   "lbfgs"};

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

/* Keys of params that published files have outside of them. */
#define OUTSIDE(key_)                                                \
    {                                                                \
        .key = #key_, .type = SHOALI_JSON, .state = SHOALI_NOEFFECT, \
        .help = "DeepSpeed reads it in params only."                 \
    }

static const struct shoali_option section_rows[] = {
    {.key = "type",
     .type = SHOALI_STRING,
     .offset = offsetof(struct shoali_optimizer_config, type),
     .help = "Name of the optimizer: Adam, AdamW, SGD, Lamb or Adafactor; upper and "
             "lower case are equal."},
    {.key = "params",
     .type = SHOALI_JSON,
     .offset = offsetof(struct shoali_optimizer_config, params),
     .variant = variant_at,
     .help = "Its parameters, such as lr, betas, eps, weight_decay: tables below."},
    {.key = "no_decay",
     .type = SHOALI_STRINGS,
     .offset = offsetof(struct shoali_optimizer_config, no_decay),
     .flags = SHOALI_OPTION_TRAINING,
     .help = "Parameters without weight decay: names or patterns such as *.bias; \"1-D\" means all "
             "tensors of one dimension and names ending in .bias. Not given: every parameter "
             "decays, as in DeepSpeed; --weight-decay as a flag makes it [\"1-D\"], as in Megatron "
             "(Shoal's own)."},
    {.key = "param_groups",
     .type = SHOALI_JSON,
     .offset = offsetof(struct shoali_optimizer_config, param_groups),
     .flags = SHOALI_OPTION_LIST | SHOALI_OPTION_TRAINING,
     .variant = group_at,
     .help = "Groups of parameters with values of their own: a list of tables as below (Shoal's "
             "own)."},
    {.key = "legacy_fusion",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct shoali_optimizer_config, legacy_fusion),
     .state = SHOALI_NOEFFECT,
     .help = "There is one fused kernel per optimizer."},
    OUTSIDE(adam_w_mode),
    OUTSIDE(betas),
    OUTSIDE(eps),
    OUTSIDE(lr),
    OUTSIDE(weight_decay),
};
const struct shoali_section shoali_optimizer_section = {
    .name = "optimizer",
    .help = "The update rule.",
    .rows = section_rows,
    .row_count = sizeof(section_rows) / sizeof(section_rows[0]),
    .struct_bytes = sizeof(struct shoali_optimizer_config),
    .given_offset = offsetof(struct shoali_optimizer_config, given),
};

/* Looks a type up, upper and lower case equal. A torch or DeepSpeed name that is not built yet
 * (lion, adagrad, muon, onebitadam, ...) is SHOAL_EUNSUPPORTED; another SHOAL_ECONFIG with
 * the nearest name. */
static shoal_status find_optimizer(const char *name, const struct shoali_optimizer_type **type)
{
    static const struct shoali_names names = {.what = "optimizer",
                                              .use = "adamw, adam, sgd, lamb or adafactor",
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

/* All params at their defaults. */
static shoal_status set_defaults(const char *name, struct shoali_arena *arena,
                                 struct shoali_optimizer *optimizer)
{
    shoal_status status;
    SHOAL_TRY(status, find_optimizer(name, &optimizer->type), done);
    SHOAL_TRY(status, shoali_config_defaults(optimizer->type->params, &optimizer->params, arena),
              done);
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
    status = set_defaults(config->type, arena, optimizer);
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

const char *shoali_optimizer_formula(const struct shoali_optimizer *optimizer)
{
    return optimizer->type->formula ? optimizer->type->formula(optimizer) : optimizer->type->name;
}

bool shoali_optimizer_is_state(const char *name)
{
    for (int32_t i = 0; types[i]; i++)
        for (int32_t s = 0; s < types[i]->state_count; s++)
            if (strcmp(types[i]->states[s].name, name) == 0)
                return true;
    return false;
}

int32_t shoali_optimizer_element_states(const struct shoali_optimizer *optimizer)
{
    int32_t count = 0;
    while (count < optimizer->state_count &&
           optimizer->type->states[count].kind == SHOALI_STATE_ELEMENT)
        count++;
    return count;
}

shoal_status shoali_optimizer_check_betas(const struct shoali_floats *betas)
{
    if (betas->count != 2)
        return SHOAL_FAIL(SHOAL_ECONFIG, "betas: got %d numbers, give two such as [0.9, 0.999]",
                          betas->count);
    for (int i = 0; i < 2; i++)
        if (!(betas->value[i] >= 0 && betas->value[i] < 1))
            return SHOAL_FAIL(SHOAL_ECONFIG, "betas: %g is outside [0, 1)", betas->value[i]);
    return SHOAL_OK;
}

/* ---- whole tensors -------------------------------------------------------------------------- */

shoal_shape shoali_state_shape(enum shoali_state_kind kind, const shoal_shape *param)
{
    shoal_shape shape = *param;
    if (kind == SHOALI_STATE_TENSOR)
        return shoal_shape_1(1);
    if (kind == SHOALI_STATE_COLUMN && param->ndim < 2)
        return shoal_shape_1(0);
    if (kind == SHOALI_STATE_ELEMENT || param->ndim < 2)
        return shape;
    shape.ndim--;
    if (kind == SHOALI_STATE_COLUMN)
        shape.dim[shape.ndim - 1] = param->dim[shape.ndim];
    shape.dim[shape.ndim] = 0;
    return shape;
}

void shoali_optimizer_tensor_init(struct shoali_optimizer_tensor *tensor, const shoal_shape *shape)
{
    *tensor = (struct shoali_optimizer_tensor){
        .count = shoal_shape_count(shape), .matrices = 1, .is_matrix = shape->ndim >= 2};
    tensor->rows = tensor->is_matrix ? shape->dim[shape->ndim - 2] : tensor->count;
    tensor->columns = tensor->is_matrix ? shape->dim[shape->ndim - 1] : 1;
    for (int32_t i = 0; i < shape->ndim - 2; i++)
        tensor->matrices *= shape->dim[i];
}

/* ---- the step ------------------------------------------------------------------------------- */

static shoal_status check_segment(const struct shoali_optimizer *optimizer,
                                  const struct shoali_optimizer_now *now,
                                  const struct shoali_optimizer_segment *segment)
{
    const struct shoali_optimizer_tensor *tensor = segment->tensor;
    if (now->t < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s step: t is %lld, but the first applied update has t = 1",
                          optimizer->type->name, (long long)now->t);
    if (segment->count < 0 || !segment->param || !segment->grad)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s step: a segment of %lld elements needs param and grad",
                          optimizer->type->name, (long long)segment->count);
    for (int32_t s = 0; s < shoali_optimizer_element_states(optimizer); s++)
        if (!segment->state[s])
            return SHOAL_FAIL(SHOAL_EINVAL, "%s step: the state `%s` of a segment is missing",
                              optimizer->type->name, optimizer->type->states[s].name);
    if (optimizer->type->measure_count > 0 &&
        (!tensor || segment->first < 0 || segment->first > tensor->count - segment->count))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s step: a segment of %lld elements from %lld on is not inside its "
                          "tensor",
                          optimizer->type->name, (long long)segment->count,
                          (long long)segment->first);
    return SHOAL_OK;
}

shoal_status shoali_optimizer_measure(const struct shoali_optimizer *optimizer, int32_t index,
                                      const struct shoali_optimizer_now *now,
                                      const struct shoali_optimizer_segment *segment)
{
    shoal_status status = SHOAL_OK;
    if (segment->count == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, check_segment(optimizer, now, segment), done);
    SHOAL_TRY(status, optimizer->type->measures[index].add(optimizer, now, segment), done);
done:
    return status;
}

shoal_status shoali_optimizer_step(const struct shoali_optimizer *optimizer,
                                   const struct shoali_optimizer_now *now,
                                   const struct shoali_optimizer_segment *segment)
{
    shoal_status status = SHOAL_OK;
    if (segment->count == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, check_segment(optimizer, now, segment), done);
    SHOAL_TRY(status, optimizer->type->step(optimizer, now, segment), done);
done:
    return status;
}
