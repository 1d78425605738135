/* What a rank may use, and whether a plan keeps to it. */
#include "shoal/plan.h"

#include "accelerator/accelerator.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

shoal_status shoal_plan_get_limit(const char *name, int32_t ranks_per_machine,
                                  shoal_plan_limit *limit)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    struct shoali_device *device = NULL;
    struct shoali_host_room room;
    int64_t total, available;
    SHOAL_TRY(status, shoali_accelerator_select(name, &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, 0, NULL, &device), done);
    shoali_device_memory(device, &total, &available);
    shoali_host_room(ranks_per_machine, &room);
    *limit = (shoal_plan_limit){
        .device_bytes = accelerator->host_accessible ? smaller(total, room.free_bytes) : available,
        .host_bytes = room.free_bytes,
        .device_is_host = accelerator->host_accessible,
        .data_bytes = room.data_bytes,
        .address_space_bytes = room.address_space_bytes,
        .what = accelerator->host_accessible ? "its share of this machine's free memory"
                                             : "this machine's device",
    };
done:
    shoali_device_destroy(device);
    return status;
}

void shoal_plan_set_limit(int64_t bytes, shoal_plan_limit *limit)
{
    *limit = (shoal_plan_limit){.device_bytes = bytes,
                                .host_bytes = INT64_MAX,
                                .data_bytes = INT64_MAX,
                                .address_space_bytes = INT64_MAX,
                                .what = "the given limit"};
}

int64_t shoal_plan_missing_bytes(const shoal_plan *plan, const shoal_plan_limit *limit,
                                 int64_t *need, int64_t *have)
{
    const int64_t both = plan->device_bytes + plan->host_bytes;
    const int64_t own = limit->device_is_host ? both : plan->host_bytes;
    const struct {
        int64_t need, have;
    } kinds[] = {
        {limit->device_is_host ? both : plan->device_bytes, limit->device_bytes},
        {own, limit->host_bytes},
        {own - (limit->device_is_host ? plan->shared_bytes : 0), limit->data_bytes},
        /* a rank maps what the others share */
        {own + (plan->world_size - 1) * (limit->device_is_host ? plan->shared_bytes : 0),
         limit->address_space_bytes},
    };
    size_t tightest = 0;
    for (size_t i = 1; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].need - kinds[i].have > kinds[tightest].need - kinds[tightest].have)
            tightest = i;
    if (need)
        *need = kinds[tightest].need;
    if (have)
        *have = kinds[tightest].have;
    return kinds[tightest].need - kinds[tightest].have;
}
