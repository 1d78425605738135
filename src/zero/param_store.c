/* One chunk per unit. */
#include "zero/param_store.h"

shoal_status shoali_zero_param_store_plan(struct shoali_zero_param_store *store,
                                          const struct shoali_zero_setup *setup,
                                          const struct shoali_zero_layout *layout)
{
    const struct shoali_zero_offload *offload = &setup->args.offload;
    *store = (struct shoali_zero_param_store){
        .setup = setup, .layout = layout, .resident_count = layout->unit_count};
    if (offload->param != SHOALI_ZERO_NVME)
        return SHOAL_OK;
    for (int32_t u = layout->unit_count; u > 0; u--) {
        const struct shoali_zero_unit *unit = &layout->unit[u - 1];
        store->resident_count = u;
        if (unit->local + unit->part <= offload->param_max_in_cpu)
            return SHOAL_OK;
        if (unit->part > offload->param_buffer_size)
            return SHOAL_FAIL(
                SHOAL_ECONFIG,
                "offload_param.buffer_size is %lld elements, but this rank's part of "
                "one layer (the layer of `%s`) has %lld: raise buffer_size to at least "
                "that",
                (long long)offload->param_buffer_size,
                layout->args.module->param[unit->first_param]->name, (long long)unit->part);
    }
    store->resident_count = 0;
    return SHOAL_OK;
}

shoal_status shoali_zero_param_store_init(struct shoali_zero_param_store *store,
                                          struct shoali_device *host, bool meta)
{
    shoal_status status = SHOAL_ENOMEM;
    static const char *const names[] = {"model"};
    const struct shoali_zero_layout *layout = store->layout;
    const struct shoali_zero_args *args = &store->setup->args;
    const struct shoali_zero_offload *offload = &args->offload;
    int64_t *cut = shoali_calloc((size_t)layout->unit_count + 1, sizeof *cut, "offloaded weights");
    if (!cut)
        goto done;
    for (int32_t u = 0; u < layout->unit_count; u++)
        cut[u + 1] = layout->unit[u].local + layout->unit[u].part;
    SHOAL_TRY(status,
              shoali_swap_create(
                  &(struct shoali_swap_args){.device = args->device,
                                             .host = host,
                                             .pin = offload->param_pin,
                                             .meta = meta,
                                             .label = "weights",
                                             .rank = store->setup->rank,
                                             .row_count = 1,
                                             .row_name = names,
                                             .item_bytes =
                                                 shoal_dtype_bytes(shoali_zero_dtype(store->setup)),
                                             .chunk_count = layout->unit_count,
                                             .resident_count = store->resident_count,
                                             .cut = cut,
                                             .path = offload->param_path,
                                             .buffer_count = (int32_t)offload->param_buffers,
                                             .write_behind = true,
                                             .io = offload->io},
                  &store->swap),
              done);
done:
    shoali_free(cut);
    return status;
}

void shoali_zero_param_store_fini(struct shoali_zero_param_store *store)
{
    shoali_swap_destroy(store->swap);
}

shoal_status shoali_zero_param_store_load(struct shoali_zero_param_store *store, int32_t index,
                                          void *buffer)
{
    shoal_status status;
    void *row[SHOALI_SWAP_MAX_ROWS];
    const struct shoali_zero_layout *layout = store->layout;
    const struct shoali_zero_unit *unit = &layout->unit[index];
    const shoal_dtype dtype = shoali_zero_dtype(store->setup);
    struct shoali_device_stream *stream = store->setup->args.exec.stream;
    const int64_t seat = layout->group[unit->group].seat;
    SHOAL_TRY(status, shoali_swap_get(store->swap, index, SHOALI_SWAP_ROW(0), row), done);
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        const int64_t place = bucket->whole - unit->whole + seat * bucket->part;
        SHOAL_TRY(status,
                  shoali_copy(stream, shoali_zero_at(buffer, place, dtype),
                              shoali_zero_at(row[0], bucket->local - unit->local, dtype),
                              (size_t)bucket->part * shoal_dtype_bytes(dtype),
                              SHOALI_HOST_TO_DEVICE),
                  done);
    }
    SHOAL_TRY(status, shoali_swap_put(store->swap, index, 0, stream), done);
done:
    return status;
}

shoal_status shoali_zero_param_store_prefetch(struct shoali_zero_param_store *store, int32_t unit)
{
    return shoali_swap_prefetch(store->swap, unit, SHOALI_SWAP_ROW(0));
}
