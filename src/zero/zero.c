/* Placement: flat buffers, shards, initial values. */
#include "zero/zero_internal.h"

#include <string.h>

#define PART_GRAIN \
    16 /* parts are multiples of this many elements, so that vectors never straddle two owners */

static bool sharded(const struct shoali_zero *zero)
{
    return zero->args.stage > 0 && zero->world > 1;
}

static void lay_out(struct shoali_zero *zero)
{
    const struct shoali_module *module = zero->args.module;
    int64_t at = 0;
    for (int32_t i = 0; i < module->param_count; i++) {
        zero->offset[i] = at;
        at += module->param[i]->count;
    }
    zero->flat_count = at;
    int64_t parts = sharded(zero) ? zero->world : 1;
    int64_t grain = parts * PART_GRAIN;
    zero->padded_count = (at + grain - 1) / grain * grain;
    zero->part_count = zero->padded_count / parts;
    int64_t first = sharded(zero) ? zero->rank * zero->part_count : 0;
    zero->own_begin = first < at ? first : at;
    zero->own_end = first + zero->part_count < at ? first + zero->part_count : at;
}

/* Merges neighbours with equal multipliers, so that a model of many small tensors updates in few
 * launches. */
static void cut_segments(struct shoali_zero *zero)
{
    const struct shoali_module *module = zero->args.module;
    for (int32_t i = 0; i < module->param_count; i++) {
        const struct shoal_param *param = module->param[i];
        int64_t begin = zero->offset[i], end = begin + param->count;
        begin = begin > zero->own_begin ? begin : zero->own_begin;
        end = end < zero->own_end ? end : zero->own_end;
        if (begin >= end || (param->tags & SHOAL_PARAM_FROZEN))
            continue;
        double decay = param->tags & SHOAL_PARAM_NO_DECAY ? 0.0 : 1.0;
        struct shoali_zero_segment *last =
            zero->segment_count ? &zero->segment[zero->segment_count - 1] : NULL;
        if (last && last->begin + last->count == begin && last->lr_multiplier == param->lr_mult &&
            last->weight_decay_multiplier == decay) {
            last->count += end - begin;
            continue;
        }
        zero->segment[zero->segment_count++] =
            (struct shoali_zero_segment){begin, end - begin, param->lr_mult, decay};
    }
}

static shoal_status alloc_shared(struct shoali_zero *zero, size_t bytes, void **address)
{
    if (zero->args.group && zero->world > 1)
        return shoali_comm_device_alloc(zero->args.group, zero->args.device, bytes, address);
    return shoali_device_alloc(zero->args.device, bytes, address);
}

static void free_shared(struct shoali_zero *zero, void *address)
{
    if (!address)
        return;
    if (zero->args.group && zero->world > 1)
        shoali_comm_device_free(zero->args.group, zero->args.device, address);
    else
        shoali_device_free(zero->args.device, address);
}

static shoal_status alloc_filled(struct shoali_zero *zero, size_t bytes, void **address)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_device_alloc(zero->args.device, bytes, address), done);
    SHOAL_TRY(status, shoali_fill(zero->args.exec.stream, *address, 0, bytes), done);
done:
    return status;
}

static shoal_status allocate_training(struct shoali_zero *zero)
{
    shoal_status status;
    const shoal_dtype gradient = zero->args.exact ? SHOAL_I64 : SHOAL_F32;
    zero->small_bytes = 12 + (size_t)zero->args.module->param_count * sizeof(uint32_t);
    const size_t all = (size_t)zero->padded_count, part = (size_t)zero->part_count;
    SHOAL_TRY(status, alloc_shared(zero, all * shoal_dtype_bytes(gradient), &zero->gradients),
              done);
    SHOAL_TRY(
        status,
        shoali_fill(zero->args.exec.stream, zero->gradients, 0, all * shoal_dtype_bytes(gradient)),
        done);
    if (sharded(zero))
        SHOAL_TRY(status,
                  alloc_filled(zero, part * shoal_dtype_bytes(gradient), &zero->part_gradients),
                  done);
    for (int32_t s = 0; s < zero->optimizer.state_count; s++)
        SHOAL_TRY(status, alloc_filled(zero, part * sizeof(float), (void **)&zero->state[s]), done);
    if (zero->args.exact)
        SHOAL_TRY(status,
                  alloc_filled(zero, SHOALI_ZERO_CHUNK * sizeof(float), (void **)&zero->chunk),
                  done);
    SHOAL_TRY(status, shoali_clip_init(&zero->clip, zero->args.device, zero->args.exec.stream),
              done);
    SHOAL_TRY(status, alloc_filled(zero, zero->small_bytes, (void **)&zero->loss_sum), done);
    zero->loss_flag = (uint32_t *)(zero->loss_sum + 1);
    zero->param_flag = zero->loss_flag + 1;
    SHOAL_TRY(status,
              shoali_device_host_alloc(zero->args.device, 64 + zero->small_bytes, &zero->record),
              done);
done:
    return status;
}

static shoal_status allocate(struct shoali_zero *zero)
{
    shoal_status status;
    const shoal_dtype dtype = zero->args.module->dtype;
    const size_t bytes = (size_t)zero->padded_count * shoal_dtype_bytes(dtype);
    SHOAL_TRY(status, alloc_shared(zero, bytes, &zero->weights), done);
    SHOAL_TRY(status, shoali_fill(zero->args.exec.stream, zero->weights, 0, bytes), done);
    if (dtype == SHOAL_F32)
        zero->master = (float *)zero->weights + (sharded(zero) ? zero->rank * zero->part_count : 0);
    else
        SHOAL_TRY(
            status,
            alloc_filled(zero, (size_t)zero->part_count * sizeof(float), (void **)&zero->master),
            done);
    if (zero->args.optimizer)
        SHOAL_TRY(status, allocate_training(zero), done);
done:
    return status;
}

/* A value is a function of (seed, parameter name, element), so every layout starts from the same
 * bits. */
static shoal_status initialise_range(struct shoali_zero *zero, const struct shoal_param *param,
                                     int64_t begin, int64_t end)
{
    float *to = zero->master + (begin - zero->own_begin);
    if (param->init == SHOAL_INIT_ZEROS || param->init == SHOAL_INIT_ONES)
        return shoali_op_set(&zero->args.exec,
                             &(struct shoali_set_args){.y = to,
                                                       .count = end - begin,
                                                       .value = param->init == SHOAL_INIT_ONES,
                                                       .dtype = SHOAL_F32});
    return shoali_op_random_fill(
        &zero->args.exec, &(struct shoali_random_fill_args){
                              .y = to,
                              .count = end - begin,
                              .first_element = begin - zero->offset[param->index],
                              .a = param->init_a,
                              .b = param->init_b,
                              .uniform = param->init == SHOAL_INIT_UNIFORM,
                              .random = shoali_stream_make(zero->args.seed, "init", param->name, 0),
                              .dtype = SHOAL_F32});
}

static shoal_status initialise(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->args.module;
    for (int32_t i = 0; i < module->param_count; i++) {
        int64_t begin = zero->offset[i], end = begin + module->param[i]->count;
        begin = begin > zero->own_begin ? begin : zero->own_begin;
        end = end < zero->own_end ? end : zero->own_end;
        if (begin < end)
            SHOAL_TRY(status, initialise_range(zero, module->param[i], begin, end), done);
    }
    SHOAL_TRY(status, shoali_zero_masters_changed(zero), done);
done:
    return status;
}

shoal_status shoali_zero_create(const struct shoali_zero_args *args, struct shoali_zero **zero_out)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_module *module = args->module;
    struct shoali_zero *zero = shoali_calloc(1, sizeof *zero, "zero");
    if (!zero)
        return SHOAL_ENOMEM;
    zero->args = *args;
    zero->rank = args->group ? shoal_comm_rank(args->group) : 0;
    zero->world = args->group ? shoal_comm_size(args->group) : 1;
    zero->divisor = 1.0;
    if (args->optimizer)
        zero->optimizer = *args->optimizer;
    zero->offset =
        shoali_calloc((size_t)module->param_count + 1, sizeof *zero->offset, "parameter offsets");
    zero->segment =
        shoali_calloc((size_t)module->param_count + 1, sizeof *zero->segment, "parameter segments");
    if (!zero->offset || !zero->segment)
        goto done;
    lay_out(zero);
    cut_segments(zero);
    SHOAL_TRY(status, allocate(zero), done);
    for (int32_t i = 0; i < module->param_count; i++)
        module->param[i]->data = shoali_zero_at(zero->weights, 0, zero->offset[i], module->dtype);
    SHOAL_TRY(status, initialise(zero), done);
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
    if (zero->master && zero->args.module->dtype != SHOAL_F32)
        shoali_device_free(device, zero->master);
    free_shared(zero, zero->weights);
    free_shared(zero, zero->gradients);
    void *plain[] = {zero->part_gradients, zero->chunk,    zero->loss_sum, zero->state[0],
                     zero->state[1],       zero->state[2], zero->state[3]};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (plain[i])
            shoali_device_free(device, plain[i]);
    if (zero->record)
        shoali_device_host_free(device, zero->record);
    shoali_clip_fini(&zero->clip);
    shoali_free(zero->offset);
    shoali_free(zero->segment);
    shoali_free(zero);
}

const struct shoali_observer *shoali_zero_observer(struct shoali_zero *zero)
{
    return &zero->observer;
}
