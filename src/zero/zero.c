/* Memory and initial values. */
#include "zero/zero_internal.h"

/* Elements that a rank draws before they are exchanged. */
#define SHARE_MAX ((int64_t)1 << 22)

static shoal_status alloc_zeroed(struct shoali_zero *zero, size_t bytes, void **address)
{
    return shoali_device_alloc_zeroed(zero->args.exec.stream, bytes, address);
}

/* Gradients of the step, and what they are summed in. */
static shoal_status allocate_gradients(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const size_t item = shoal_dtype_bytes(shoali_zero_gradient_dtype(zero));
    const size_t all = (size_t)zero->whole_count * item, part = (size_t)zero->part_count * item;
    if (zero->stage < 2)
        SHOAL_TRY(status, shoali_zero_alloc_shared(zero, all, &zero->gradients), done);
    if (zero->stage > 0)
        SHOAL_TRY(status, alloc_zeroed(zero, part, &zero->part_gradients), done);
    const bool adds = zero->stage >= 2 && zero->args.gas > 1 && !zero->args.exact;
    for (int32_t b = 0; b < zero->bucket_count && adds; b++)
        if (zero->bucket[b].part > zero->arrival_count)
            zero->arrival_count = zero->bucket[b].part;
    if (zero->arrival_count > 0)
        SHOAL_TRY(status, alloc_zeroed(zero, (size_t)zero->arrival_count * item, &zero->arrival),
                  done);
    if (zero->args.exact) {
        zero->chunk_count =
            SHOALI_ZERO_CHUNK < zero->part_count ? SHOALI_ZERO_CHUNK : zero->part_count;
        SHOAL_TRY(
            status,
            alloc_zeroed(zero, (size_t)zero->chunk_count * sizeof(float), (void **)&zero->chunk),
            done);
    }
done:
    return status;
}

static shoal_status allocate_training(struct shoali_zero *zero)
{
    shoal_status status;
    zero->small_bytes = 12 + (size_t)zero->args.module->param_count * sizeof(uint32_t);
    SHOAL_TRY(status, allocate_gradients(zero), done);
    for (int32_t s = 0; s < zero->optimizer.state_count; s++)
        SHOAL_TRY(status,
                  alloc_zeroed(zero, (size_t)shoali_zero_device_count(zero) * sizeof(float),
                               (void **)&zero->state[s]),
                  done);
    SHOAL_TRY(status, shoali_clip_init(&zero->clip, zero->args.device, zero->args.exec.stream),
              done);
    SHOAL_TRY(status, alloc_zeroed(zero, zero->small_bytes, (void **)&zero->loss_sum), done);
    zero->loss_flag = (uint32_t *)(zero->loss_sum + 1);
    zero->param_flag = zero->loss_flag + 1;
    SHOAL_TRY(status,
              shoali_device_host_alloc(zero->args.device, 64 + zero->small_bytes, &zero->record),
              done);
    zero->words =
        shoali_calloc((size_t)(SHOALI_ZERO_RECORD_WORDS + shoali_zero_touched_words(zero)),
                      sizeof(int64_t), "the step's record");
    if (!zero->words)
        status = SHOAL_ENOMEM;
done:
    return status;
}

/* At stage 0 weights never travel after creation: memory of the rank's own has larger pages. */
static shoal_status allocate_weights(struct shoali_zero *zero, size_t bytes)
{
    return zero->stage == 0 ? alloc_zeroed(zero, bytes, &zero->weights)
                            : shoali_zero_alloc_shared(zero, bytes, &zero->weights);
}

static void free_weights(struct shoali_zero *zero)
{
    if (zero->stage > 0)
        shoali_zero_free_shared(zero, zero->weights);
    else if (zero->weights)
        shoali_device_free(zero->args.device, zero->weights);
}

static shoal_status allocate(struct shoali_zero *zero)
{
    shoal_status status;
    const shoal_dtype dtype = zero->args.module->dtype;
    const size_t bytes =
        (size_t)(zero->fetches ? zero->part_count : zero->whole_count) * shoal_dtype_bytes(dtype);
    if (zero->args.offload.param == SHOALI_ZERO_DEVICE)
        SHOAL_TRY(status, allocate_weights(zero, bytes), done);
    if (shoali_zero_master_is_weights(zero))
        zero->master = zero->weights;
    else
        SHOAL_TRY(status,
                  alloc_zeroed(zero, (size_t)shoali_zero_device_count(zero) * sizeof(float),
                               (void **)&zero->master),
                  done);
    if (zero->nearby) {
        const size_t second = (size_t)(zero->whole_count / zero->nearby) * shoal_dtype_bytes(dtype);
        SHOAL_TRY(status, shoali_zero_alloc_shared(zero, second, &zero->second), done);
    }
    SHOAL_TRY(status, shoali_zero_quantized_init(zero), done);
    if (zero->args.optimizer)
        SHOAL_TRY(status, allocate_training(zero), done);
    if (zero->outside.active)
        SHOAL_TRY(status, shoali_zero_offload_init(zero), done);
done:
    return status;
}

/* A value is a function of (seed, parameter name, element), so every layout starts from the same
 * bits. */
static shoal_status initialise_range(const struct shoali_zero *zero, const struct shoali_exec *exec,
                                     const struct shoal_param *param, int64_t begin, int64_t end,
                                     float *to)
{
    if (param->init == SHOAL_INIT_ZEROS || param->init == SHOAL_INIT_ONES)
        return shoali_op_set(exec,
                             &(struct shoali_set_args){.y = to,
                                                       .count = end - begin,
                                                       .value = param->init == SHOAL_INIT_ONES,
                                                       .dtype = SHOAL_F32});
    return shoali_op_random_fill(
        exec, &(struct shoali_random_fill_args){
                  .y = to,
                  .count = end - begin,
                  .first_element = begin - zero->offset[param->index],
                  .a = param->init_a,
                  .b = param->init_b,
                  .uniform = param->init == SHOAL_INIT_UNIFORM,
                  .random = shoali_stream_make(zero->args.seed, "init", param->name, 0),
                  .dtype = SHOAL_F32});
}

/* The first parameter that reaches beyond flat element `index`. */
static int32_t first_param(const struct shoali_zero *zero, int64_t index)
{
    int32_t low = 0;
    for (int32_t high = zero->args.module->param_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (zero->offset[middle] + zero->args.module->param[middle]->count <= index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The own elements only: from stage 1 on no rank ever draws the whole model. */
static shoal_status initialise_bucket(struct shoali_zero *zero, const struct shoali_exec *exec,
                                      int32_t bucket, int64_t begin, int64_t end, float *base)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->args.module;
    const struct shoali_zero_range *part = &zero->part_range[bucket];
    const int64_t low = begin > part->at ? begin - part->at : 0;
    const int64_t high = end < part->at + part->count ? end - part->at : part->count;
    for (int32_t i = first_param(zero, part->begin + low); i < module->param_count; i++) {
        const int64_t from = zero->offset[i] - part->begin, to = from + module->param[i]->count;
        const int64_t first = from > low ? from : low, stop = to < high ? to : high;
        if (from >= high)
            break;
        if (first >= stop)
            continue;
        float *place = base ? base + (part->at + first - begin)
                            : shoali_zero_master(zero, part->at + first,
                                                 zero->weight_range[bucket].at + first);
        SHOAL_TRY(status,
                  initialise_range(zero, exec, module->param[i], part->begin + first,
                                   part->begin + stop, place),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_initialise(struct shoali_zero *zero, const struct shoali_exec *exec,
                                    int64_t begin, int64_t end, float *base)
{
    shoal_status status = SHOAL_OK;
    for (int32_t b = shoali_zero_first_part(zero, begin);
         b < zero->bucket_count && zero->part_range[b].at < end; b++) {
        if (zero->part_range[b].count > 0)
            SHOAL_TRY(status, initialise_bucket(zero, exec, b, begin, end, base), done);
    }
done:
    return status;
}

/* Stage 0: every rank needs every value, draws its share, and gets the others'. In pieces, because
 * a device that ranks cannot reach stages them; what is left over is drawn by all. */
static shoal_status initialise_together(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_exec *exec = &zero->args.exec;
    const int64_t world = zero->world, count = zero->part_count;
    int64_t share = 0;
    for (int64_t at = 0; at < count; at += share * world) {
        share = (count - at) / world < SHARE_MAX ? (count - at) / world : SHARE_MAX;
        if (share == 0)
            return shoali_zero_initialise(zero, exec, at, count, NULL);
        const int64_t own = at + zero->rank * share;
        SHOAL_TRY(status, shoali_zero_initialise(zero, exec, own, own + share, NULL), done);
        SHOAL_TRY(status,
                  shoali_comm_device(zero->args.group, exec->stream,
                                     &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                           .here = SHOAL_HERE,
                                                           .in = zero->master + own,
                                                           .out = zero->master + at,
                                                           .count = share,
                                                           .dtype = SHOAL_F32}),
                  done);
    }
done:
    return status;
}

static shoal_status initialise(struct shoali_zero *zero)
{
    shoal_status status;
    if (zero->stage == 0 && zero->world > 1)
        SHOAL_TRY(status, initialise_together(zero), done);
    else
        SHOAL_TRY(
            status,
            shoali_zero_initialise(zero, &zero->args.exec, 0, shoali_zero_device_count(zero), NULL),
            done);
    if (zero->outside.active)
        SHOAL_TRY(status, shoali_zero_offload_initialise(zero), done);
    SHOAL_TRY(status, shoali_zero_masters_changed(zero), done);
done:
    return status;
}

/* Where weights are fetched, parameters point at what is gathered, when it is. */
static void point_params(struct shoali_zero *zero)
{
    struct shoali_module *module = zero->args.module;
    for (int32_t i = 0; i < module->param_count; i++) {
        const struct shoali_zero_unit *unit = &zero->unit[zero->unit_of_param[i]];
        module->param[i]->data =
            zero->fetches
                ? NULL
                : shoali_zero_at(zero->weights, unit->whole + (zero->offset[i] - unit->begin),
                                 module->dtype);
    }
}

/* All of creation that is collective. */
static shoal_status place(struct shoali_zero *zero)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_zero_comm_init(zero), done);
    SHOAL_TRY(status, allocate(zero), done);
    point_params(zero);
    SHOAL_TRY(status, shoali_zero_watch(zero), done);
    SHOAL_TRY(status, initialise(zero), done);
done:
    return status;
}

static shoal_status check_groups(const struct shoali_zero *zero)
{
    const int32_t shard = zero->args.shard_size;
    if (zero->stage == 3 && shard > 0 && zero->world % shard)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "mics_shard_size: %d does not divide the number of ranks, %d", (int)shard,
                          (int)zero->world);
    if (zero->nearby && zero->world % zero->nearby)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "zero_hpz_partition_size: %d does not divide the number of ranks, %d",
                          (int)zero->nearby, (int)zero->world);
    return SHOAL_OK;
}

shoal_status shoali_zero_create(const struct shoali_zero_args *args, struct shoali_zero **zero_out)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_zero *zero = shoali_calloc(1, sizeof *zero, "zero");
    if (!zero)
        return status;
    zero->args = *args;
    zero->rank = args->group ? shoal_comm_rank(args->group) : 0;
    zero->world = args->group ? shoal_comm_size(args->group) : 1;
    zero->stage = zero->world > 1 ? args->stage : 0;
    zero->fetches = args->stage == 3 && (zero->stage == 3 || args->offload.param);
    zero->divisor = 1.0;
    zero->parts = zero->stage > 0 ? zero->world : 1;
    if (zero->stage == 3 && args->shard_size > 0 && args->shard_size < zero->world)
        zero->parts = args->shard_size;
    zero->seat = zero->rank % zero->parts;
    zero->replicas = zero->world / zero->parts;
    zero->replica = zero->rank / zero->parts;
    zero->nearby = zero->stage == 3 && args->hpz_size > 1 ? args->hpz_size : 0;
    if (args->optimizer) {
        zero->optimizer = *args->optimizer;
        zero->args.optimizer = &zero->optimizer;
    }
    SHOAL_TRY(status, check_groups(zero), done);
    SHOAL_TRY(status, shoali_zero_lay_out(zero), done);
    SHOAL_TRY(status, shoali_zero_offload_plan(zero), done);
    SHOAL_TRY(status, shoali_zero_tell(zero, place(zero)), done);
done:
    if (status < 0) {
        shoali_zero_destroy(zero);
        zero = NULL;
    }
    *zero_out = zero;
    return status;
}

void shoali_zero_destroy(struct shoali_zero *zero)
{
    if (!zero)
        return;
    struct shoali_device *device = zero->args.device;
    shoali_zero_comm_stop(zero);
    for (int32_t u = zero->unit_count - 1; u >= 0; u--) /* found first in the group's list */
        if (zero->unit[u].persistent)
            shoali_zero_free_shared(zero, zero->unit[u].weights);
    shoali_zero_pool_fini(zero);
    shoali_zero_offload_fini(zero);
    if (zero->master && !shoali_zero_master_is_weights(zero))
        shoali_device_free(device, zero->master);
    free_weights(zero);
    shoali_zero_free_shared(zero, zero->gradients);
    shoali_zero_free_shared(zero, zero->second);
    shoali_zero_free_shared(zero, zero->message);
    void *plain[] = {zero->part_gradients, zero->chunk,    zero->loss_sum,
                     zero->state[0],       zero->state[1], zero->state[2],
                     zero->state[3],       zero->arrival,  zero->errors};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (plain[i])
            shoali_device_free(device, plain[i]);
    if (zero->record)
        shoali_device_host_free(device, zero->record);
    shoali_free(zero->words);
    shoali_clip_fini(&zero->clip);
    shoali_zero_comm_fini(zero);
    shoali_zero_layout_fini(zero);
    shoali_free(zero);
}

const struct shoali_observer *shoali_zero_observer(struct shoali_zero *zero)
{
    return &zero->observer;
}
