/* Own parts of the weights outside the device: one chunk per unit. */
#include "zero/zero_internal.h"

/* Of the part space; of the unit after the last one: the end. */
static int64_t unit_begin(const struct shoali_zero *zero, int32_t unit)
{
    const int32_t bucket =
        unit < zero->unit_count ? zero->unit[unit].first_bucket : zero->bucket_count;
    return bucket < zero->bucket_count ? zero->bucket[bucket].local : zero->part_count;
}

/* How many of the first units stay in host memory; the own part of any other must fit a buffer. */
shoal_status shoali_zero_offload_params_plan(struct shoali_zero *zero)
{
    const struct shoali_zero_offload *offload = &zero->args.offload;
    int32_t *resident = &zero->outside.resident_count;
    *resident = zero->unit_count;
    if (offload->param != SHOALI_ZERO_NVME)
        return SHOAL_OK;
    for (int32_t u = zero->unit_count; u > 0; u--) {
        const int64_t begin = unit_begin(zero, u - 1), end = unit_begin(zero, u);
        *resident = u;
        if (end <= offload->param_max_in_cpu)
            return SHOAL_OK;
        if (end - begin > offload->param_buffer_size)
            return SHOAL_FAIL(
                SHOAL_ECONFIG,
                "offload_param.buffer_size is %lld elements, but this rank's part of "
                "one layer (the layer of `%s`) has %lld: raise buffer_size to at least "
                "that",
                (long long)offload->param_buffer_size,
                zero->args.module->param[zero->unit[u - 1].first_param]->name,
                (long long)(end - begin));
    }
    *resident = 0;
    return SHOAL_OK;
}

shoal_status shoali_zero_offload_params_init(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_ENOMEM;
    static const char *const names[] = {"model"};
    const struct shoali_zero_offload *offload = &zero->args.offload;
    int64_t *cut = shoali_calloc((size_t)zero->unit_count + 1, sizeof *cut, "offloaded weights");
    if (!cut)
        goto done;
    for (int32_t u = 0; u <= zero->unit_count; u++)
        cut[u] = unit_begin(zero, u);
    SHOAL_TRY(
        status,
        shoali_swap_create(
            &(struct shoali_swap_args){.device = zero->args.device,
                                       .host = zero->outside.host,
                                       .pin = offload->param_pin,
                                       .meta = zero->outside.meta,
                                       .label = "weights",
                                       .rank = zero->rank,
                                       .row_count = 1,
                                       .row_name = names,
                                       .item_bytes = shoal_dtype_bytes(zero->args.module->dtype),
                                       .chunk_count = zero->unit_count,
                                       .resident_count = zero->outside.resident_count,
                                       .cut = cut,
                                       .path = offload->param_path,
                                       .buffer_count = (int32_t)offload->param_buffers,
                                       .write_behind = true,
                                       .io = offload->io},
            &zero->outside.param),
        done);
done:
    shoali_free(cut);
    return status;
}

shoal_status shoali_zero_load_own_parts(struct shoali_zero *zero, int32_t index)
{
    shoal_status status;
    void *row[SHOALI_SWAP_MAX_ROWS];
    const struct shoali_zero_unit *unit = &zero->unit[index];
    const shoal_dtype dtype = zero->args.module->dtype;
    struct shoali_device_stream *stream = zero->args.exec.stream;
    const int64_t begin = unit_begin(zero, index);
    SHOAL_TRY(status, shoali_swap_get(zero->outside.param, index, SHOALI_SWAP_ROW(0), row), done);
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        const int64_t place = bucket->whole - unit->whole + zero->seat * bucket->part;
        SHOAL_TRY(status,
                  shoali_copy(stream, shoali_zero_at(unit->weights, place, dtype),
                              shoali_zero_at(row[0], bucket->local - begin, dtype),
                              (size_t)bucket->part * shoal_dtype_bytes(dtype),
                              SHOALI_HOST_TO_DEVICE),
                  done);
    }
    SHOAL_TRY(status, shoali_swap_put(zero->outside.param, index, 0, stream), done);
done:
    return status;
}

shoal_status shoali_zero_prefetch_own_parts(struct shoali_zero *zero, int32_t unit)
{
    return shoali_swap_prefetch(zero->outside.param, unit, SHOALI_SWAP_ROW(0));
}
