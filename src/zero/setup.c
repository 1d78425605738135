/* What the arguments say before anything exists. */
#include "zero/setup.h"

/* Without training nothing but rounding touches the masters: they are not worth device memory. */
static void choose_homes(struct shoali_zero_args *args)
{
    struct shoali_zero_offload *offload = &args->offload;
    if (args->optimizer || offload->param == SHOALI_ZERO_DEVICE ||
        offload->optimizer != SHOALI_ZERO_DEVICE)
        return;
    offload->optimizer = offload->param;
    offload->optimizer_path = offload->param_path;
    offload->optimizer_buffers = 2;
    offload->optimizer_pin = offload->param_pin;
    offload->pipeline_read = offload->pipeline_write = false;
    offload->ratio = 1.0;
}

/* A pipeline's stage has as many as it has micro-batches and chunks of layers. */
static int64_t count_passes(const struct shoali_zero_args *args)
{
    int64_t count = 0;
    for (int32_t i = 0; i < args->pipeline.pass_count; i++)
        count += args->pipeline.pass[i].kind == SHOALI_ZERO_BACKWARD ||
                 args->pipeline.pass[i].kind == SHOALI_ZERO_BACKWARD_INPUT;
    return count > 0 ? count : args->gas;
}

static shoal_status check_sizes(const struct shoali_zero_setup *setup)
{
    const struct shoali_zero_args *args = &setup->args;
    for (int32_t g = 0; g <= args->cut_count && setup->stage == 3; g++) {
        const shoal_group *group = g == 0 ? args->group : args->cuts[g - 1];
        const int32_t size = group ? shoal_comm_size(group) : 1;
        if (args->shard_size > 0 && (g == 0 || args->shard_size < size) && size % args->shard_size)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "mics_shard_size: %d does not divide the number of ranks, %d",
                              (int)args->shard_size, (int)size);
        if (args->hpz_size > 1 && (g == 0 || args->hpz_size < size) && size % args->hpz_size)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "zero_hpz_partition_size: %d does not divide the number of ranks, %d",
                              (int)args->hpz_size, (int)size);
    }
    return SHOAL_OK;
}

shoal_status shoali_zero_setup_init(struct shoali_zero_setup *setup,
                                    const struct shoali_zero_args *args)
{
    *setup = (struct shoali_zero_setup){.args = *args};
    setup->everyone = args->everyone ? args->everyone : args->group;
    setup->rank = setup->everyone ? shoal_comm_rank(setup->everyone) : 0;
    setup->world = setup->everyone ? shoal_comm_size(setup->everyone) : 1;
    setup->data_ranks = args->group ? shoal_comm_size(args->group) : 1;
    setup->most_ranks = setup->data_ranks;
    for (int32_t g = 0; g < args->cut_count; g++) {
        const int32_t size = args->cuts[g] ? shoal_comm_size(args->cuts[g]) : 1;
        setup->most_ranks = size > setup->most_ranks ? size : setup->most_ranks;
    }
    setup->stage = setup->most_ranks > 1 ? args->stage : 0;
    setup->args.pipeline.stages = args->pipeline.stages > 0 ? args->pipeline.stages : 1;
    setup->passes = count_passes(args);
    setup->micro_batches = setup->mean_of = args->gas * setup->data_ranks;
    setup->fetches = args->stage == 3 && (setup->stage == 3 || args->offload.param);
    if (args->optimizer) {
        setup->optimizer = *args->optimizer;
        setup->args.optimizer = &setup->optimizer;
    }
    choose_homes(&setup->args);
    setup->offloads = setup->args.offload.optimizer != SHOALI_ZERO_DEVICE ||
                      setup->args.offload.param != SHOALI_ZERO_DEVICE;
    return check_sizes(setup);
}

shoal_status shoali_zero_share_failure(const struct shoali_zero_setup *setup, shoal_status status)
{
    if (status < 0 && setup->world > 1)
        shoal_comm_abort(setup->everyone, status);
    return status;
}
