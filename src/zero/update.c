/* The step. */
#include "zero/update.h"

static shoal_status step_segment(struct shoali_zero_masters *masters,
                                 const struct shoali_optimizer_now *now,
                                 const struct shoali_zero_segment *segment)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = masters->setup;
    const shoal_dtype dtype = shoali_zero_dtype(setup);
    const int64_t piece = shoali_zero_piece(masters->gradients);
    for (int64_t at = 0; at < segment->count;) {
        const int64_t count = piece < segment->count - at ? piece : segment->count - at;
        const int64_t local = segment->local + at, weight = segment->weight + at;
        struct shoali_optimizer_segment part = {
            .param = shoali_zero_master(masters, local, weight),
            .low =
                dtype == SHOAL_F32 ? NULL : shoali_zero_at(masters->weights->data, weight, dtype),
            .low_dtype = dtype,
            .count = count,
            .lr_multiplier = segment->lr_multiplier,
            .weight_decay_multiplier = segment->weight_decay_multiplier,
        };
        for (int32_t s = 0; s < setup->optimizer.state_count; s++)
            part.state[s] = masters->state[s] + local;
        SHOAL_TRY(status, shoali_zero_final_gradient(masters->gradients, local, count, &part.grad),
                  done);
        SHOAL_TRY(status, shoali_optimizer_step(segment->optimizer, now, &part), done);
        at += count;
    }
done:
    return status;
}

static shoal_status step_all(struct shoali_zero_masters *masters, const struct shoali_zero_now *now)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_optimizer_now shared = {.exec = &masters->setup->args.exec,
                                                .control = masters->judge->clip.control,
                                                .lr = now->lr,
                                                .t = now->t,
                                                .cycle_momentum = now->cycle_momentum,
                                                .momentum = now->momentum};
    for (int32_t s = 0; s < masters->layout->segment_count; s++)
        SHOAL_TRY(status, step_segment(masters, &shared, &masters->layout->segment[s]), done);
done:
    return status;
}

static shoal_status round_all(struct shoali_zero_masters *masters)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = shoali_zero_dtype(masters->setup);
    const struct shoali_zero_layout *layout = masters->layout;
    for (int32_t r = 0; r < layout->bucket_count && dtype != SHOAL_F32; r++) {
        const struct shoali_zero_range *part = &layout->part_range[r];
        const struct shoali_convert_args args = {
            .x = masters->master + part->at,
            .y = shoali_zero_at(masters->weights->data, layout->weight_range[r].at, dtype),
            .count = part->count,
            .dtype = SHOAL_F32,
            .dtype_out = dtype};
        if (part->count > 0)
            SHOAL_TRY(status, shoali_op_convert(&masters->setup->args.exec, &args), done);
    }
done:
    return status;
}

shoal_status shoali_zero_masters_step(struct shoali_zero_masters *masters,
                                      const struct shoali_zero_now *now)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = masters->setup->args.module;
    for (int32_t i = 0; i < module->param_count; i++)
        SHOAL_TRY(status, shoali_param_begin_write(module->param[i]), done);
    if (masters->setup->offloads)
        SHOAL_TRY(status, shoali_zero_offload_step(masters, now), done);
    else
        SHOAL_TRY(status, now ? step_all(masters, now) : round_all(masters), done);
    SHOAL_TRY(status, shoali_zero_weights_changed(masters->weights), done);
done:
    return status;
}
