/* What a rank may use, and whether a plan keeps to it. */
#include "shoal/plan.h"

#include "accelerator/accelerator.h"

static const char host_name[] = "its share of this machine's free memory";

shoal_status shoal_plan_get_limit(const char *name, int32_t ranks_per_machine,
                                  shoal_plan_limit *limit)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    struct shoali_device *device = NULL;
    struct shoali_host_room room;
    int64_t total, available;
    shoal_plan_limit found = {0};
    SHOAL_TRY(status, shoali_accelerator_select(name, &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, 0, NULL, &device), done);
    shoali_device_memory(device, &total, &available);
    shoali_host_room(ranks_per_machine, &room);
    const bool is_host = accelerator->host_accessible, is_share = room.free_bytes < total;
    found = (shoal_plan_limit){
        .device_bytes = !is_host   ? available
                        : is_share ? room.free_bytes
                                   : total,
        .host_bytes = room.free_bytes,
        .device_is_host = is_host,
        .data_bytes = room.data_bytes,
        .address_space_bytes = room.address_space_bytes,
        .device_name = is_host && is_share ? host_name : "the device's memory",
    };
done:
    if (limit)
        *limit = found;
    shoali_device_destroy(device);
    return status;
}

void shoal_plan_set_limit(int64_t bytes, shoal_plan_limit *limit)
{
    *limit = (shoal_plan_limit){.device_bytes = bytes,
                                .host_bytes = INT64_MAX,
                                .data_bytes = INT64_MAX,
                                .address_space_bytes = INT64_MAX,
                                .device_name = "the given limit"};
}

void shoal_plan_check(const shoal_plan *plan, const shoal_plan_limit *limit,
                      shoal_plan_verdict *verdict)
{
    const bool is_host = limit->device_is_host;
    const int64_t own = plan->host_bytes + (is_host ? plan->device_bytes : 0);
    const int64_t shared = is_host ? plan->shared_bytes + plan->comm_bytes : 0;
    const struct {
        int64_t need, have;
        const char *what;
    } kinds[] = {
        {is_host ? own : plan->device_bytes, limit->device_bytes, limit->device_name},
        {own, limit->host_bytes, host_name},
        {own - shared, limit->data_bytes, "the unused part of its data limit (ulimit -d)"},
        /* a rank maps what the others share */
        {own + (plan->world_size - 1) * shared, limit->address_space_bytes,
         "the unused part of its address space (ulimit -v)"},
    };
    size_t tightest = 0;
    for (size_t i = 1; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].need - kinds[i].have > kinds[tightest].need - kinds[tightest].have)
            tightest = i;
    *verdict = (shoal_plan_verdict){
        .need_bytes = kinds[tightest].need,
        .have_bytes = kinds[tightest].have,
        .missing_bytes = kinds[tightest].need - kinds[tightest].have,
        .what = kinds[tightest].what,
    };
}
