/* The update, and access to what this rank holds. */
#include "zero/zero_internal.h"

#include <string.h>

static shoal_status step_segment(struct shoali_zero *zero, const struct shoali_optimizer_now *now,
                                 const struct shoali_zero_segment *segment)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = zero->args.module->dtype;
    const int64_t piece = shoali_zero_piece(zero), end = segment->begin + segment->count;
    for (int64_t at = segment->begin; at < end; at += piece < end - at ? piece : end - at) {
        const int64_t count = piece < end - at ? piece : end - at, own = at - zero->own_begin;
        struct shoali_optimizer_segment part = {
            .param = zero->master + own,
            .low = dtype == SHOAL_F32 ? NULL : shoali_zero_at(zero->weights, 0, at, dtype),
            .low_dtype = dtype,
            .count = count,
            .lr_multiplier = segment->lr_multiplier,
            .weight_decay_multiplier = segment->weight_decay_multiplier,
        };
        for (int32_t s = 0; s < zero->optimizer.state_count; s++)
            part.state[s] = zero->state[s] + own;
        SHOAL_TRY(status, shoali_zero_final_gradient(zero, at, count, &part.grad), done);
        SHOAL_TRY(status, shoali_optimizer_step(&zero->optimizer, now, &part), done);
    }
done:
    return status;
}

static shoal_status begin_writes(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < zero->args.module->param_count; i++)
        SHOAL_TRY(status, shoali_param_begin_write(zero->args.module->param[i]), done);
done:
    return status;
}

shoal_status shoali_zero_step(struct shoali_zero *zero, const struct shoali_zero_now *now)
{
    shoal_status status;
    struct shoali_optimizer_now shared = {.exec = &zero->args.exec,
                                          .control = zero->clip.control,
                                          .lr = now->lr,
                                          .t = now->t,
                                          .cycle_momentum = now->cycle_momentum,
                                          .momentum = now->momentum};
    SHOAL_TRY(status, begin_writes(zero), done);
    for (int32_t s = 0; s < zero->segment_count; s++)
        SHOAL_TRY(status, step_segment(zero, &shared, &zero->segment[s]), done);
    SHOAL_TRY(status, shoali_zero_gather_weights(zero), done);
done:
    return status;
}

shoal_status shoali_zero_gather_weights(struct shoali_zero *zero)
{
    if (zero->args.stage == 0 || zero->world == 1)
        return SHOAL_OK;
    const shoal_dtype dtype = zero->args.module->dtype;
    return shoali_comm_device(
        zero->args.group, zero->args.exec.stream,
        &(struct shoali_post){
            .kind = SHOALI_ALL_GATHER,
            .here = SHOAL_HERE,
            .in = shoali_zero_at(zero->weights, 0, zero->rank * zero->part_count, dtype),
            .out = zero->weights,
            .count = zero->part_count,
            .dtype = dtype});
}

shoal_status shoali_zero_masters_changed(struct shoali_zero *zero)
{
    shoal_status status;
    const shoal_dtype dtype = zero->args.module->dtype;
    const int64_t count = zero->own_end - zero->own_begin;
    SHOAL_TRY(status, begin_writes(zero), done);
    if (dtype != SHOAL_F32 && count > 0)
        SHOAL_TRY(
            status,
            shoali_op_convert(&zero->args.exec,
                              &(struct shoali_convert_args){
                                  .x = zero->master,
                                  .y = shoali_zero_at(zero->weights, 0, zero->own_begin, dtype),
                                  .count = count,
                                  .dtype = SHOAL_F32,
                                  .dtype_out = dtype}),
            done);
    SHOAL_TRY(status, shoali_zero_gather_weights(zero), done);
done:
    return status;
}

/* ---- what is held --------------------------------------------------------------------------- */

/* Kind 0 is the fp32 master (for fp32 models the weights themselves), then the states, then 16-bit
 * weights. */
int32_t shoali_zero_kind_count(const struct shoali_zero *zero)
{
    return 1 + (zero->args.optimizer ? zero->optimizer.state_count : 0) +
           (zero->args.module->dtype != SHOAL_F32);
}

void shoali_zero_get_kind(const struct shoali_zero *zero, int32_t index,
                          struct shoali_zero_kind *kind)
{
    const bool low = zero->args.module->dtype != SHOAL_F32;
    const int32_t states = zero->args.optimizer ? zero->optimizer.state_count : 0;
    const bool replicated = zero->args.stage == 0 || zero->world == 1;
    *kind = (struct shoali_zero_kind){.dtype = SHOAL_F32,
                                      .begin = zero->own_begin,
                                      .count = zero->own_end - zero->own_begin,
                                      .replicated = replicated};
    if (index == 0) {
        kind->name = low ? "master" : "model";
        kind->data = zero->master;
    } else if (index <= states) {
        kind->name = zero->optimizer.type->states[index - 1].name;
        kind->data = zero->state[index - 1];
    } else {
        *kind = (struct shoali_zero_kind){.name = "model",
                                          .dtype = zero->args.module->dtype,
                                          .data = zero->weights,
                                          .begin = 0,
                                          .count = zero->flat_count,
                                          .replicated = true};
    }
}

int64_t shoali_zero_param_offset(const struct shoali_zero *zero, int32_t param)
{
    return zero->offset[param];
}

void shoali_zero_own_range(const struct shoali_zero *zero, int64_t *begin, int64_t *end)
{
    *begin = zero->own_begin;
    *end = zero->own_end;
}

int64_t shoali_zero_flat_count(const struct shoali_zero *zero)
{
    return zero->flat_count;
}

static shoal_status locate(struct shoali_zero *zero, int32_t index, int64_t first, int64_t count,
                           char **address, size_t *bytes)
{
    struct shoali_zero_kind kind;
    shoali_zero_get_kind(zero, index, &kind);
    if (first < kind.begin || count < 0 || first + count > kind.begin + kind.count)
        return SHOAL_FAIL(
            SHOAL_EINTERNAL,
            "elements [%lld, %lld) of %s are not held by rank %d, which has [%lld, %lld)",
            (long long)first, (long long)(first + count), kind.name, (int)zero->rank,
            (long long)kind.begin, (long long)(kind.begin + kind.count));
    *address = shoali_zero_at(kind.data, kind.begin, first, kind.dtype);
    *bytes = (size_t)count * shoal_dtype_bytes(kind.dtype);
    return SHOAL_OK;
}

shoal_status shoali_zero_read(struct shoali_zero *zero, int32_t kind, int64_t first, int64_t count,
                              void *out)
{
    shoal_status status;
    char *address = NULL;
    size_t bytes = 0;
    SHOAL_TRY(status, locate(zero, kind, first, count, &address, &bytes), done);
    SHOAL_TRY(status, shoali_download(zero->args.exec.stream, out, address, bytes), done);
done:
    return status;
}

shoal_status shoali_zero_write(struct shoali_zero *zero, int32_t kind, int64_t first, int64_t count,
                               const void *in)
{
    shoal_status status;
    char *address = NULL;
    size_t bytes = 0;
    SHOAL_TRY(status, locate(zero, kind, first, count, &address, &bytes), done);
    SHOAL_TRY(status, shoali_upload(zero->args.exec.stream, address, in, bytes), done);
done:
    return status;
}

shoal_status shoali_zero_read_gradient(struct shoali_zero *zero, int32_t param, int64_t first,
                                       int64_t count, float *out)
{
    shoal_status status = SHOAL_OK;
    const int64_t piece = shoali_zero_piece(zero), begin = zero->offset[param] + first;
    for (int64_t done_count = 0; done_count < count;) {
        const int64_t part = piece < count - done_count ? piece : count - done_count;
        const float *gradient;
        SHOAL_TRY(status, shoali_zero_final_gradient(zero, begin + done_count, part, &gradient),
                  done);
        SHOAL_TRY(status,
                  shoali_download(zero->args.exec.stream, out + done_count, gradient,
                                  (size_t)part * sizeof(float)),
                  done);
        done_count += part;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((double)out[i] / zero->divisor);
done:
    return status;
}

void shoali_zero_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory)
{
    const bool low = zero->args.module->dtype != SHOAL_F32, trains = zero->args.optimizer != NULL;
    const int64_t gradient = zero->args.exact ? 8 : 4;
    const int64_t weight = (int64_t)shoal_dtype_bytes(zero->args.module->dtype);
    *memory = (struct shoali_zero_memory){
        .weights_bytes = zero->padded_count * weight,
        .gradients_bytes = trains ? zero->padded_count * gradient : 0,
        .states_bytes = zero->part_count * 4 * (low + (trains ? zero->optimizer.state_count : 0)),
        .buffers_bytes = (zero->part_gradients ? zero->part_count * gradient : 0) +
                         (zero->chunk ? SHOALI_ZERO_CHUNK * 4 : 0),
    };
}
