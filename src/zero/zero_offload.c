/* Masters, states and weights outside the device: what is where, memory, initial values. */
#include "zero/zero_internal.h"

/* Sub-groups are no longer than this many elements: more would only make the buffers larger. */
#define SUB_GROUP_MAX ((int64_t)1 << 22)
#define GRAIN 16 /* as parts */

int32_t shoali_zero_state_rows(const struct shoali_zero *zero)
{
    return 1 + (zero->args.optimizer ? zero->optimizer.state_count : 0);
}

/* ---- what is where -------------------------------------------------------------------------- */

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

static int64_t sub_group_count(const struct shoali_zero *zero)
{
    const int64_t length = zero->outside.sub_group;
    return (zero->part_count + length - 1) / length;
}

/* How many buffers: of the store, and of stages. */
static shoal_status plan_buffers(struct shoali_zero *zero)
{
    const struct shoali_zero_offload *offload = &zero->args.offload;
    const int64_t buffers = offload->optimizer_buffers;
    const int32_t rows = shoali_zero_state_rows(zero);
    int32_t *sets = &zero->outside.set_count, *stages = &zero->outside.stage_limit;
    if (offload->optimizer == SHOALI_ZERO_NVME) {
        *sets = 1 + offload->pipeline_read + offload->pipeline_write;
        *stages = 1 + offload->pipeline_read;
        if (buffers >= *sets * (rows + 1))
            return SHOAL_OK;
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "offload_optimizer.buffer_count is %lld, but a sub-group takes %d buffers "
            "(gradient, master, %d states) and %d are under way with pipeline_read %s "
            "and pipeline_write %s: set it to %d",
            (long long)buffers, (int)(rows + 1), (int)(rows - 1), (int)*sets,
            offload->pipeline_read ? "true" : "false", offload->pipeline_write ? "true" : "false",
            (int)(*sets * (rows + 1)));
    }
    *stages =
        buffers / 2 < SHOALI_ZERO_MAX_STAGES ? (int32_t)(buffers / 2) : SHOALI_ZERO_MAX_STAGES;
    if (offload->optimizer == SHOALI_ZERO_DEVICE)
        *stages = 1;
    if (*stages < 1)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "offload_optimizer.buffer_count is %lld, but a sub-group takes 2 buffers "
                          "(gradient, new weights): set it to 2, or to 4 to copy and update at the "
                          "same time",
                          (long long)buffers);
    return SHOAL_OK;
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

shoal_status shoali_zero_offload_plan(struct shoali_zero *zero)
{
    shoal_status status;
    struct shoali_zero_outside *outside = &zero->outside;
    const struct shoali_zero_offload *offload = &zero->args.offload;
    choose_homes(&zero->args);
    outside->active =
        offload->optimizer != SHOALI_ZERO_DEVICE || offload->param != SHOALI_ZERO_DEVICE;
    if (!outside->active)
        return SHOAL_OK;
    outside->meta = shoali_device_is_meta(zero->args.device);
    SHOAL_ASSERT(zero->args.stage > 0);
    SHOAL_ASSERT(offload->param == SHOALI_ZERO_DEVICE || zero->fetches);
    int64_t length = zero->args.sub_group_size > 0 ? zero->args.sub_group_size : SUB_GROUP_MAX;
    length = length < SUB_GROUP_MAX ? length : SUB_GROUP_MAX;
    length = length < zero->part_count ? length : zero->part_count;
    outside->sub_group = length > GRAIN ? length : GRAIN;

    const int64_t count = sub_group_count(zero);
    int64_t on_device = offload->optimizer == SHOALI_ZERO_DEVICE
                            ? count
                            : (int64_t)((1.0 - offload->ratio) * (double)count);
    on_device *= outside->sub_group;
    outside->device_count = on_device < zero->part_count ? on_device : zero->part_count;
    SHOAL_TRY(status, plan_buffers(zero), done);
    SHOAL_TRY(status, shoali_zero_offload_params_plan(zero), done);
    if (!outside->meta)
        SHOAL_TRY(status, check_folders(offload), done);
done:
    return status;
}

bool shoali_zero_offload_find(const struct shoali_zero *zero, int32_t kind, int64_t at,
                              int64_t *count, struct shoali_zero_place *place)
{
    const struct shoali_zero_outside *outside = &zero->outside;
    if (!outside->active)
        return false;
    if (kind >= shoali_zero_state_rows(zero)) {
        *place = (struct shoali_zero_place){outside->param, 0, at};
        return outside->param != NULL;
    }
    if (at < outside->device_count) {
        *count = *count < outside->device_count - at ? *count : outside->device_count - at;
        return false;
    }
    *place = (struct shoali_zero_place){outside->optimizer, kind, at - outside->device_count};
    return true;
}

void shoali_zero_offload_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory)
{
    const struct shoali_zero_outside *outside = &zero->outside;
    const int64_t weight = (int64_t)shoal_dtype_bytes(zero->args.module->dtype);
    const struct shoali_swap *const store[] = {outside->optimizer, outside->param};
    const struct shoali_zero_offload *offload = &zero->args.offload;
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
static shoal_status open_host(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_outside *outside = &zero->outside;
    struct shoali_device *device = zero->args.device;
    const struct shoali_accelerator *accelerator = shoali_device_accelerator(device);
    const bool same = outside->meta || accelerator == &shoali_accelerator_cpu;
    outside->exec = zero->args.exec;
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

static shoal_status host_alloc(struct shoali_zero *zero, size_t bytes, void **memory)
{
    return zero->args.offload.optimizer_pin
               ? shoali_device_host_alloc(zero->args.device, bytes, memory)
               : shoali_device_alloc(zero->outside.host, bytes, memory);
}

static void host_free(struct shoali_zero *zero, void *memory)
{
    if (zero->args.offload.optimizer_pin)
        shoali_device_host_free(zero->args.device, memory);
    else
        shoali_device_free(zero->outside.host, memory);
}

static shoal_status make_stages(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_outside *outside = &zero->outside;
    const size_t length = (size_t)outside->sub_group;
    const size_t weight = shoal_dtype_bytes(zero->args.module->dtype);
    const int64_t sub_groups = sub_group_count(zero);
    const int32_t count =
        sub_groups < outside->stage_limit ? (int32_t)sub_groups : outside->stage_limit;
    for (int32_t i = 0; i < count; i++) {
        struct shoali_zero_stage *stage = &outside->stage[i];
        outside->stage_count++;
        SHOAL_TRY(status, host_alloc(zero, length * sizeof(float), (void **)&stage->gradient),
                  done);
        SHOAL_TRY(status, host_alloc(zero, length * weight, &stage->low), done);
        SHOAL_TRY(status, shoali_event_create(zero->args.device, &stage->arrived), done);
        SHOAL_TRY(status, shoali_event_create(zero->args.device, &stage->sent), done);
    }
    if (zero->args.offload.param != SHOALI_ZERO_DEVICE && outside->device_count > 0)
        SHOAL_TRY(status,
                  shoali_device_alloc(zero->args.device, length * weight, &outside->device_low),
                  done);
done:
    return status;
}

static shoal_status make_store(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_zero_outside *outside = &zero->outside;
    const struct shoali_zero_offload *offload = &zero->args.offload;
    const bool nvme = offload->optimizer == SHOALI_ZERO_NVME;
    const int64_t length = zero->part_count - outside->device_count;
    const int64_t chunks = (length + outside->sub_group - 1) / outside->sub_group;
    int64_t *cut = shoali_calloc((size_t)chunks + 1, sizeof *cut, "sub-groups");
    if (!cut)
        goto done;
    for (int64_t c = 0; c <= chunks; c++)
        cut[c] = c * outside->sub_group < length ? c * outside->sub_group : length;
    outside->row_name[0] = "master";
    for (int32_t s = 1; s < shoali_zero_state_rows(zero); s++)
        outside->row_name[s] = zero->optimizer.type->states[s - 1].name;
    SHOAL_TRY(
        status,
        shoali_swap_create(&(struct shoali_swap_args){.device = zero->args.device,
                                                      .host = outside->host,
                                                      .pin = offload->optimizer_pin,
                                                      .meta = outside->meta,
                                                      .label = "optimizer",
                                                      .rank = zero->rank,
                                                      .row_count = shoali_zero_state_rows(zero),
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

shoal_status shoali_zero_offload_init(struct shoali_zero *zero)
{
    shoal_status status;
    SHOAL_TRY(status, open_host(zero), done);
    SHOAL_TRY(status, make_stages(zero), done);
    if (zero->outside.device_count < zero->part_count)
        SHOAL_TRY(status, make_store(zero), done);
    if (zero->args.offload.param != SHOALI_ZERO_DEVICE)
        SHOAL_TRY(status, shoali_zero_offload_params_init(zero), done);
done:
    return status;
}

shoal_status shoali_zero_offload_initialise(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_outside *outside = &zero->outside;
    int32_t chunk = 0;
    for (int64_t at = outside->device_count; at < zero->part_count; at += outside->sub_group) {
        void *row[SHOALI_SWAP_MAX_ROWS];
        const int64_t left = zero->part_count - at;
        const int64_t end = at + (left < outside->sub_group ? left : outside->sub_group);
        SHOAL_TRY(status, shoali_swap_get(outside->optimizer, chunk, SHOALI_SWAP_ROW(0), row),
                  done);
        SHOAL_TRY(status, shoali_zero_initialise(zero, &outside->exec, at, end, row[0]), done);
        SHOAL_TRY(status, shoali_swap_put(outside->optimizer, chunk, SHOALI_SWAP_ROW(0), NULL),
                  done);
        chunk++;
    }
done:
    return status;
}

/* Memory of the host does not wait for copies as the device's does. */
static void wait_for_copies(struct shoali_device_stream *stream)
{
    if (stream && shoali_stream_synchronize(stream) < 0)
        SHOALI_WARN("zero", "%s", shoal_error_message()); /* the memory goes in any case */
}

void shoali_zero_offload_fini(struct shoali_zero *zero)
{
    struct shoali_zero_outside *outside = &zero->outside;
    if (!outside->active)
        return;
    wait_for_copies(zero->args.exec.stream);
    wait_for_copies(outside->upload);
    for (int32_t i = 0; i < outside->stage_count; i++) {
        struct shoali_zero_stage *stage = &outside->stage[i];
        host_free(zero, stage->gradient);
        host_free(zero, stage->low);
        shoali_event_destroy(stage->arrived);
        shoali_event_destroy(stage->sent);
    }
    shoali_swap_destroy(outside->optimizer);
    shoali_swap_destroy(outside->param);
    shoali_device_free(zero->args.device, outside->device_low);
    shoali_stream_destroy(outside->upload);
    if (outside->exec.stream != zero->args.exec.stream)
        shoali_stream_destroy(outside->exec.stream);
    shoali_device_destroy(outside->host);
    shoali_pool_destroy(outside->pool);
}
