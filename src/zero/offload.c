/* What is where, and memory. */
#include "zero/offload.h"

#include "base/log.h"

/* Sub-groups are no longer than this many elements: more would only make the buffers larger. */
#define SUB_GROUP_MAX ((int64_t)1 << 22)
#define GRAIN 16 /* as parts */

/* ---- what is where -------------------------------------------------------------------------- */

static int64_t sub_group_count(const struct shoali_zero_outside *outside)
{
    const int64_t length = outside->sub_group;
    return (outside->layout->part_count + length - 1) / length;
}

/* The number of buffers is too small: one that somebody gave deserves a warning. */
static void say_raised(const struct shoali_zero_outside *outside, int64_t needed, const char *why)
{
    const int64_t given = outside->setup->args.offload.optimizer_buffers;
    if (outside->meta)
        return;
    if (given > 0)
        SHOALI_WARN_FIRST("zero", "offload_optimizer.buffer_count %lld is raised to %lld: %s",
                          (long long)given, (long long)needed, why);
    else
        SHOALI_INFO("zero", "offload_optimizer.buffer_count, which is not given, is %lld: %s",
                    (long long)needed, why);
}

/* How many buffers: of the store, and of stages. A given number that is too small is raised. */
static void plan_buffers(struct shoali_zero_outside *outside)
{
    const struct shoali_zero_offload *offload = &outside->setup->args.offload;
    const int64_t buffers = offload->optimizer_buffers ? offload->optimizer_buffers : 4;
    const int32_t rows = shoali_zero_state_rows(outside->setup);
    int32_t *sets = &outside->set_count, *stages = &outside->stage_limit;
    if (offload->optimizer == SHOALI_ZERO_NVME) {
        *sets = 1 + offload->pipeline_read + offload->pipeline_write;
        *stages = 1 + offload->pipeline_read;
        if (buffers < *sets * (rows + 1))
            say_raised(outside, *sets * (rows + 1),
                       "a sub-group takes one for its gradient, one for master weights and one "
                       "per state, once more each for pipeline_read and pipeline_write");
        return;
    }
    *stages =
        buffers / 2 < SHOALI_ZERO_MAX_STAGES ? (int32_t)(buffers / 2) : SHOALI_ZERO_MAX_STAGES;
    if (offload->optimizer == SHOALI_ZERO_DEVICE)
        *stages = 1;
    if (*stages < 1) {
        *stages = 1;
        say_raised(outside, 2, "a sub-group takes one for its gradient and one for new weights");
    }
}

static shoal_status check_folders(const struct shoali_zero_offload *offload)
{
    shoal_status status = SHOAL_OK;
    if (offload->optimizer == SHOALI_ZERO_NVME)
        SHOAL_TRY(status, shoali_swap_check_folder(offload->optimizer_path), done);
    if (offload->param == SHOALI_ZERO_NVME)
        SHOAL_TRY(status, shoali_swap_check_folder(offload->param_path), done);
done:
    return status;
}

shoal_status shoali_zero_outside_plan(struct shoali_zero_outside *outside,
                                      const struct shoali_zero_setup *setup,
                                      const struct shoali_zero_layout *layout)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_offload *offload = &setup->args.offload;
    const int64_t part = layout->part_count, wanted = setup->args.sub_group_size;
    *outside = (struct shoali_zero_outside){
        .setup = setup, .layout = layout, .device_count = layout->part_count};
    if (!setup->offloads)
        return SHOAL_OK;
    outside->meta = shoali_device_is_meta(setup->args.device);
    SHOAL_ASSERT(setup->args.stage > 0);
    SHOAL_ASSERT(offload->param == SHOALI_ZERO_DEVICE || setup->fetches);
    int64_t length = wanted > 0 && wanted < SUB_GROUP_MAX ? wanted : SUB_GROUP_MAX;
    length = length < part ? length : part;
    outside->sub_group = length > GRAIN ? length : GRAIN;

    const int64_t count = sub_group_count(outside);
    int64_t on_device = offload->optimizer == SHOALI_ZERO_DEVICE
                            ? count
                            : (int64_t)((1.0 - offload->ratio) * (double)count);
    on_device *= outside->sub_group;
    outside->device_count = on_device < part ? on_device : part;
    plan_buffers(outside);
    if (!outside->meta)
        SHOAL_TRY(status, check_folders(offload), done);
done:
    return status;
}

void shoali_zero_outside_memory(const struct shoali_zero_outside *outside,
                                const struct shoali_zero_param_store *params,
                                struct shoali_zero_memory *memory)
{
    const int64_t weight = (int64_t)shoal_dtype_bytes(shoali_zero_dtype(outside->setup));
    const struct shoali_swap *const store[] = {outside->optimizer, params->swap};
    const struct shoali_zero_offload *offload = &outside->setup->args.offload;
    const int64_t stages = outside->stage_count * outside->sub_group * (4 + weight);
    for (int32_t i = 0; i < 2; i++) {
        struct shoali_swap_counters counters = {0};
        if (store[i])
            shoali_swap_get_counters(store[i], &counters);
        memory->host_bytes += counters.host_bytes;
        if (i == 0 ? offload->optimizer_pin : offload->param_pin)
            memory->pinned_bytes += counters.host_bytes;
        memory->states_read_bytes += i == 0 ? counters.read_bytes : 0;
        memory->states_written_bytes += i == 0 ? counters.written_bytes : 0;
        memory->nvme_bytes += counters.file_bytes;
    }
    memory->host_bytes += stages;
    memory->pinned_bytes += offload->optimizer_pin ? stages : 0;
    memory->buffers_bytes += outside->device_low ? outside->sub_group * weight : 0;
}

/* ---- creation ------------------------------------------------------------------------------- */

/* The host's kernels run on the device itself when it is the processor: its pool serves one device
 * at a time. In a plan nothing runs, and the host has no substance either. */
static shoal_status open_host(struct shoali_zero_outside *outside)
{
    shoal_status status = SHOAL_OK;
    struct shoali_device *device = outside->setup->args.device;
    const struct shoali_accelerator *accelerator = shoali_device_accelerator(device);
    const bool same = outside->meta || accelerator == &shoali_accelerator_cpu;
    outside->exec = outside->setup->args.exec;
    if (outside->setup->args.host_ops != NULL)
        outside->exec.ops = outside->setup->args.host_ops;
    if (!same)
        SHOAL_TRY(
            status,
            shoali_pool_create(shoali_pool_threads(shoali_device_pool(device)), &outside->pool),
            done);
    SHOAL_TRY(status,
              shoali_device_create(outside->meta ? accelerator : &shoali_accelerator_cpu, 0,
                                   outside->pool, &outside->host),
              done);
    if (!same) {
        outside->exec.stream = NULL;
        SHOAL_TRY(status, shoali_stream_create(outside->host, &outside->exec.stream), done);
    }
    SHOAL_TRY(status, shoali_stream_create(device, &outside->upload), done);
done:
    return status;
}

static shoal_status host_alloc(struct shoali_zero_outside *outside, size_t bytes, void **memory)
{
    return outside->setup->args.offload.optimizer_pin
               ? shoali_device_host_alloc(outside->setup->args.device, bytes, memory)
               : shoali_device_alloc(outside->host, bytes, memory);
}

static void host_free(struct shoali_zero_outside *outside, void *memory)
{
    if (outside->setup->args.offload.optimizer_pin)
        shoali_device_host_free(outside->setup->args.device, memory);
    else
        shoali_device_free(outside->host, memory);
}

static shoal_status make_stages(struct shoali_zero_outside *outside)
{
    shoal_status status = SHOAL_OK;
    const size_t length = (size_t)outside->sub_group;
    const size_t weight = shoal_dtype_bytes(shoali_zero_dtype(outside->setup));
    const int64_t sub_groups = sub_group_count(outside);
    const int32_t count =
        sub_groups < outside->stage_limit ? (int32_t)sub_groups : outside->stage_limit;
    for (int32_t i = 0; i < count; i++) {
        struct shoali_zero_stage *stage = &outside->stage[i];
        outside->stage_count++;
        SHOAL_TRY(status, host_alloc(outside, length * sizeof(float), (void **)&stage->gradient),
                  done);
        SHOAL_TRY(status, host_alloc(outside, length * weight, &stage->low), done);
        SHOAL_TRY(status, shoali_event_create(outside->setup->args.device, &stage->arrived), done);
        SHOAL_TRY(status, shoali_event_create(outside->setup->args.device, &stage->sent), done);
    }
    if (outside->setup->args.offload.param != SHOALI_ZERO_DEVICE && outside->device_count > 0)
        SHOAL_TRY(
            status,
            shoali_device_alloc(outside->setup->args.device, length * weight, &outside->device_low),
            done);
done:
    return status;
}

static shoal_status make_store(struct shoali_zero_outside *outside)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_zero_offload *offload = &outside->setup->args.offload;
    const bool nvme = offload->optimizer == SHOALI_ZERO_NVME;
    const int64_t length = outside->layout->part_count - outside->device_count;
    const int64_t chunks = (length + outside->sub_group - 1) / outside->sub_group;
    int64_t *cut = shoali_calloc((size_t)chunks + 1, sizeof *cut, "sub-groups");
    if (!cut)
        goto done;
    for (int64_t c = 0; c <= chunks; c++)
        cut[c] = c * outside->sub_group < length ? c * outside->sub_group : length;
    outside->row_name[0] = "master";
    for (int32_t s = 1; s < shoali_zero_state_rows(outside->setup); s++)
        outside->row_name[s] = outside->setup->optimizer.type->states[s - 1].name;
    SHOAL_TRY(status,
              shoali_swap_create(
                  &(struct shoali_swap_args){.device = outside->setup->args.device,
                                             .host = outside->host,
                                             .pin = offload->optimizer_pin,
                                             .meta = outside->meta,
                                             .label = "optimizer",
                                             .rank = outside->setup->rank,
                                             .row_count = shoali_zero_state_rows(outside->setup),
                                             .row_name = outside->row_name,
                                             .item_bytes = sizeof(float),
                                             .chunk_count = (int32_t)chunks,
                                             .resident_count = nvme ? 0 : (int32_t)chunks,
                                             .cut = cut,
                                             .path = offload->optimizer_path,
                                             .buffer_count = outside->set_count,
                                             .write_behind = offload->pipeline_write,
                                             .io = offload->io},
                  &outside->optimizer),
              done);
done:
    shoali_free(cut);
    return status;
}

shoal_status shoali_zero_outside_init(struct shoali_zero_outside *outside)
{
    shoal_status status = SHOAL_OK;
    if (!outside->setup->offloads)
        return SHOAL_OK;
    SHOAL_TRY(status, open_host(outside), done);
    SHOAL_TRY(status, make_stages(outside), done);
    if (outside->device_count < outside->layout->part_count)
        SHOAL_TRY(status, make_store(outside), done);
done:
    return status;
}

static void wait_for_copies(struct shoali_device_stream *stream)
{
    if (stream && shoali_stream_synchronize(stream) < 0)
        SHOALI_WARN("zero", "%s", shoal_error_message()); /* the memory goes in any case */
}

void shoali_zero_outside_stop(struct shoali_zero_outside *outside)
{
    if (!outside->setup || !outside->setup->offloads)
        return;
    wait_for_copies(outside->setup->args.exec.stream);
    wait_for_copies(outside->upload);
}

void shoali_zero_outside_fini(struct shoali_zero_outside *outside)
{
    if (!outside->setup || !outside->setup->offloads)
        return;
    shoali_zero_outside_stop(outside);
    for (int32_t i = 0; i < outside->stage_count; i++) {
        struct shoali_zero_stage *stage = &outside->stage[i];
        host_free(outside, stage->gradient);
        host_free(outside, stage->low);
        shoali_event_destroy(stage->arrived);
        shoali_event_destroy(stage->sent);
    }
    shoali_swap_destroy(outside->optimizer);
    shoali_device_free(outside->setup->args.device, outside->device_low);
    shoali_stream_destroy(outside->upload);
    if (outside->exec.stream != outside->setup->args.exec.stream)
        shoali_stream_destroy(outside->exec.stream);
    shoali_device_destroy(outside->host);
    shoali_pool_destroy(outside->pool);
}
