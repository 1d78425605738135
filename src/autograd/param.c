/* What layers and their callers may know of a parameter and of a layer. */
#include "autograd/autograd.h"

shoal_status shoali_param_begin_write(struct shoal_param *param)
{
    if (param->reader_tapes > 0)
        return SHOAL_FAIL(SHOAL_EINTERNAL,
                          "parameter %s is written while %d live tape(s) read it; end those tapes "
                          "first",
                          param->name, (int)param->reader_tapes);
    param->version++;
    return SHOAL_OK;
}

shoal_status shoali_param_refuse_exact_splits(const struct shoal_param *param, int32_t part)
{
    const struct shoali_columns *columns = &param->columns;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "parameter %s: exact_splits.tensor is %d, but the parameter has only %lld "
                      "units (%s): give at most that many splits",
                      param->name, (int)columns->splits,
                      (long long)(columns->whole[part] / columns->unit[part]),
                      columns->fine[part] > 0 ? "groups of query heads" : "such as heads");
}

const char *shoal_param_name(const shoal_param *param)
{
    return param->name;
}

const shoal_shape *shoal_param_shape(const shoal_param *param)
{
    return param->shard != NULL ? &param->shard->global : &param->shape;
}

const shoal_shape *shoal_param_local_shape(const shoal_param *param)
{
    return &param->shape;
}

int64_t shoal_param_count(const shoal_param *param)
{
    return shoal_shape_count(shoal_param_shape(param));
}

const void *shoal_layer_config(const shoal_layer *layer)
{
    return layer->config;
}

shoal_param *shoal_layer_param(const shoal_layer *layer, int32_t index)
{
    return index >= 0 && index < layer->param_count ? layer->param[index] : NULL;
}
