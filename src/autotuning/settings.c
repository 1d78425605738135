/* settings.c - the configuration, read once; the same with another layout. */
#include "autotuning/autotuning.h"

#include "base/json.h"

#include <jansson.h>

shoal_status shoali_settings_init(struct shoali_settings *settings, const shoal_engine_args *engine,
                                  const shoal_plan_args *plan)
{
    shoal_status status;
    const struct shoali_context context = *shoali_context_get();
    struct shoali_logger quiet = {.level = SHOAL_LOG_OFF};
    *settings = (struct shoali_settings){.engine = *engine, .plan = *plan};
    if (!engine->model)
        return SHOAL_FAIL(SHOAL_EINVAL, "a layout needs a model");
    shoali_context_get()->logger = &quiet; /* what there is to say, the run itself will say */
    shoali_context_get()->page = NULL;
    SHOAL_TRY(status,
              shoali_ds_config_init(&settings->config, engine->config_path, engine->config_text),
              done);
    settings->root = shoali_json_root(settings->config.document);
    if (plan->tensor == 0 && plan->pipeline == 0) {
        shoal_mesh_args mesh = {0};
        SHOAL_TRY(status, shoali_config_mesh(&settings->config, &mesh), done);
        /* 1 is what a key that is not given says, too */
        settings->plan.tensor = mesh.tensor > 1 ? mesh.tensor : 0;
        settings->plan.pipeline = mesh.pipeline > 1 ? mesh.pipeline : 0;
    }
done:
    *shoali_context_get() = context;
    return status;
}

void shoali_settings_fini(struct shoali_settings *settings)
{
    if (settings->root)
        shoali_ds_config_fini(&settings->config);
    settings->root = NULL;
}

/* Sizes that the layout has instead. */
static void delete_mesh(json_t *root)
{
    json_object_del(root, "data_parallel_size");
    json_object_del(json_object_get(root, "pipeline"), "stages");
    json_t *tensor = json_object_get(root, "tensor_parallel");
    json_object_del(tensor, "autotp_size");
    json_object_del(json_object_get(tensor, "tp"), "tp_size");
}

static int set_stage(json_t *root, int32_t stage)
{
    json_t *zero = json_object_get(root, "zero_optimization");
    if (json_is_object(zero))
        return json_object_set_new(zero, "stage", json_integer(stage));
    zero = json_object();
    return json_object_set_new(zero, "stage", json_integer(stage)) |
           json_object_set_new(root, "zero_optimization", zero);
}

shoal_status shoali_settings_write(const struct shoali_settings *settings, int32_t stage,
                                   const struct shoali_batch_sizes *batch, char **text)
{
    *text = NULL;
    json_t *root = json_deep_copy(settings->root);
    int failed = 0;
    delete_mesh(root);
    if (stage >= 0)
        failed |= set_stage(root, stage);
    failed |= json_object_set_new(root, "train_batch_size", json_integer(batch->train));
    failed |=
        json_object_set_new(root, "train_micro_batch_size_per_gpu", json_integer(batch->micro));
    failed |=
        json_object_set_new(root, "gradient_accumulation_steps", json_integer(batch->accumulation));
    const shoal_status status =
        shoali_json_write(failed ? NULL : root, JSON_REAL_PRECISION(17), "a layout", text);
    json_decref(root);
    return status;
}
