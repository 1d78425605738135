/* What the sections `pipeline` and `tensor_parallel` say of a mesh: it is made by them, or compared
 * with them. */
#include "engine/config/rows.h"

#include "base/plain.h"
#include "engine/engine.h"

#include <string.h>

/* A size that a key gives, and the mesh's. */
struct axis_key {
    const char *path;
    int64_t size; /* 0: not given */
    shoal_axes axis;
};
enum { KEYS = 4 };

static void list_keys(const struct shoali_ds_config *config, struct axis_key keys[KEYS])
{
    const struct shoali_tensor_parallel_config *tensor = &config->tensor_parallel;
    /* autotp_size 0 and 1 are off alike, and say nothing of a mesh that was made otherwise */
    const int64_t whole = tensor->autotp_size > 1 ? tensor->autotp_size : 0;
    const int64_t inner = tensor->tp.tp_size > 1 ? tensor->tp.tp_size : 0;
    const struct axis_key all[KEYS] = {
        {"tensor_parallel.autotp_size", whole, SHOAL_AXIS_TP},
        {"tensor_parallel.tp.tp_size", inner, SHOAL_AXIS_TP},
        {"pipeline.stages", config->pipeline.stages, SHOAL_AXIS_PP},
        {"data_parallel_size", config->data_parallel_size, SHOAL_AXIS_DP}};
    memcpy(keys, all, sizeof all);
}

static shoal_status check_tensor(const struct shoali_ds_config *config)
{
    const int64_t whole = config->tensor_parallel.autotp_size;
    const int64_t inner = config->tensor_parallel.tp.tp_size;
    if (inner <= 1 || whole <= 1 || inner == whole)
        return SHOAL_OK;
    return shoali_json_locate(config->document, "tensor_parallel.tp.tp_size",
                              SHOAL_FAIL(SHOAL_ECONFIG,
                                         "tensor_parallel.tp.tp_size is %lld, but "
                                         "tensor_parallel.autotp_size is %lld: give one of them, "
                                         "or the same value",
                                         (long long)inner, (long long)whole));
}

shoal_status shoali_config_mesh(const struct shoali_ds_config *config, shoal_mesh_args *args)
{
    shoal_status status;
    const int64_t whole = config->tensor_parallel.autotp_size;
    const int64_t inner = config->tensor_parallel.tp.tp_size;
    SHOAL_TRY(status, check_tensor(config), done);
    args->tensor = (int32_t)(whole > 1 ? whole : inner);
    args->pipeline = (int32_t)config->pipeline.stages;
done:
    return status;
}

shoal_status shoali_config_check_mesh(const struct shoali_ds_config *config, const shoal_mesh *mesh)
{
    shoal_status status;
    struct axis_key keys[KEYS];
    SHOAL_TRY(status, check_tensor(config), done);
    list_keys(config, keys);
    for (int32_t k = 0; k < KEYS; k++) {
        const int32_t size = shoal_mesh_size(mesh, keys[k].axis);
        if (keys[k].size == 0 || keys[k].size == size)
            continue;
        status = shoali_json_locate(
            config->document, keys[k].path,
            SHOAL_FAIL(SHOAL_ECONFIG,
                       "%s is %lld, but the mesh has %d rank%s along that axis: give one of both, "
                       "or the same value",
                       keys[k].path, (long long)keys[k].size, (int)size, size == 1 ? "" : "s"));
        goto done;
    }
done:
    return status;
}

shoal_status shoali_config_partition(const struct shoali_ds_config *config,
                                     const shoal_engine_args *args, const char **method)
{
    const char *key = config->pipeline.partition, *given = args->partition_method;
    if (key && shoali_strcasecmp(key, "best") == 0)
        key = NULL;
    *method = given ? given : key ? key : "flops";
    if (!given || !key || shoali_strcasecmp(given, key) == 0)
        return SHOAL_OK;
    return shoali_json_locate(config->document, "pipeline.partition",
                              SHOAL_FAIL(SHOAL_ECONFIG,
                                         "pipeline.partition is \"%s\", but the engine's "
                                         "arguments have the partition method \"%s\": give one of "
                                         "both, or the same",
                                         key, given));
}

bool shoali_config_overlap_p2p(const struct shoali_ds_config *config, const shoal_engine_args *args,
                               int32_t chunks)
{
    if (args->no_overlap_p2p)
        return false;
    if (shoali_config_given(&shoali_pipeline_section, &config->pipeline, "overlap_p2p"))
        return config->pipeline.overlap_p2p;
    return chunks > 1;
}

bool shoali_config_tensor_overlap(const struct shoali_ds_config *config,
                                  const shoal_engine_args *args)
{
    const struct shoali_tensor_parallel_config *tensor = &config->tensor_parallel;
    const bool off =
        shoali_config_given(&shoali_tensor_parallel_section, tensor, "tp_overlap_comm") &&
        !tensor->tp_overlap_comm;
    return !args->no_async_tensor_parallel && !off;
}
