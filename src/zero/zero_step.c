/* The update. */
#include "zero/zero_internal.h"

static shoal_status step_segment(struct shoali_zero *zero, const struct shoali_optimizer_now *now,
                                 const struct shoali_zero_segment *segment)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = zero->args.module->dtype;
    const int64_t piece = shoali_zero_piece(zero);
    for (int64_t at = 0; at < segment->count;) {
        const int64_t count = piece < segment->count - at ? piece : segment->count - at;
        const int64_t local = segment->local + at, weight = segment->weight + at;
        struct shoali_optimizer_segment part = {
            .param = shoali_zero_master(zero, local, weight),
            .low = dtype == SHOAL_F32 ? NULL : shoali_zero_at(zero->weights, weight, dtype),
            .low_dtype = dtype,
            .count = count,
            .lr_multiplier = segment->lr_multiplier,
            .weight_decay_multiplier = segment->weight_decay_multiplier,
        };
        for (int32_t s = 0; s < zero->optimizer.state_count; s++)
            part.state[s] = zero->state[s] + local;
        SHOAL_TRY(status, shoali_zero_final_gradient(zero, local, count, &part.grad), done);
        SHOAL_TRY(status, shoali_optimizer_step(segment->optimizer, now, &part), done);
        at += count;
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
    if (zero->outside.active)
        SHOAL_TRY(status, shoali_zero_offload_step(zero, now), done);
    for (int32_t s = 0; s < zero->segment_count && !zero->outside.active; s++)
        SHOAL_TRY(status, step_segment(zero, &shared, &zero->segment[s]), done);
    SHOAL_TRY(status, shoali_zero_gather_weights(zero), done);
done:
    return shoali_zero_tell(zero, status);
}

static shoal_status round_range(struct shoali_zero *zero, int32_t range)
{
    const shoal_dtype dtype = zero->args.module->dtype;
    const struct shoali_zero_range *part = &zero->part_range[range];
    if (part->count == 0)
        return SHOAL_OK;
    return shoali_op_convert(
        &zero->args.exec,
        &(struct shoali_convert_args){
            .x = zero->master + part->at,
            .y = shoali_zero_at(zero->weights, zero->weight_range[range].at, dtype),
            .count = part->count,
            .dtype = SHOAL_F32,
            .dtype_out = dtype});
}

shoal_status shoali_zero_masters_changed(struct shoali_zero *zero)
{
    shoal_status status;
    const bool low = zero->args.module->dtype != SHOAL_F32 && !zero->outside.active;
    SHOAL_TRY(status, begin_writes(zero), done);
    if (zero->outside.active)
        SHOAL_TRY(status, shoali_zero_offload_step(zero, NULL), done);
    for (int32_t r = 0; low && r < zero->bucket_count; r++)
        SHOAL_TRY(status, round_range(zero, r), done);
    SHOAL_TRY(status, shoali_zero_gather_weights(zero), done);
done:
    return shoali_zero_tell(zero, status);
}
