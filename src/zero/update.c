/* The step. */
#include "zero/update.h"

/* measure -1: the step. */
static shoal_status pass_segment(struct shoali_zero_masters *masters,
                                 const struct shoali_optimizer_now *now, int32_t measure,
                                 const struct shoali_zero_segment *segment)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = masters->setup;
    const shoal_dtype dtype = shoali_zero_dtype(setup);
    const int64_t whole = shoali_zero_piece(masters->gradients);
    const int64_t kept = shoali_zero_snapshot_piece(masters->snapshot);
    const int64_t piece = whole < kept ? whole : kept;
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
        for (int32_t s = 0; s < shoali_zero_state_rows(setup) - 1; s++)
            part.state[s] = masters->state[s] + local;
        shoali_zero_tensors_point(masters->tensors, measure, segment->param, segment->begin + at,
                                  false, &part);
        SHOAL_TRY(status, shoali_zero_final_gradient(masters->gradients, local, count, &part.grad),
                  done);
        SHOAL_TRY(status, shoali_zero_snapshot_guard(masters->snapshot, local, count), done);
        SHOAL_TRY(status, shoali_zero_update_piece(segment->optimizer, now, measure, &part), done);
        at += count;
    }
done:
    return status;
}

static shoal_status pass_all(struct shoali_zero_masters *masters,
                             const struct shoali_optimizer_now *now, int32_t measure)
{
    shoal_status status = SHOAL_OK;
    for (int32_t s = 0; s < masters->layout->segment_count; s++)
        SHOAL_TRY(status, pass_segment(masters, now, measure, &masters->layout->segment[s]), done);
done:
    return status;
}

static shoal_status round_all(struct shoali_zero_masters *masters)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = shoali_zero_dtype(masters->setup);
    const struct shoali_zero_layout *layout = masters->layout;
    if (dtype == SHOAL_F32 || !shoali_zero_keeps_masters(masters->setup))
        return SHOAL_OK;
    for (int32_t r = 0; r < layout->bucket_count; r++) {
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

/* All measures, then the step. What a measure concludes is decided on the host, so a step that is
 * skipped ends here, as it does with offload. */
static shoal_status step_all(struct shoali_zero_masters *masters, const struct shoali_zero_now *now)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = masters->setup;
    const int32_t measures = setup->optimizer.type->measure_count;
    struct shoali_optimizer_now shared = {.exec = &setup->args.exec,
                                          .control = masters->clip->norm.control,
                                          .lr = now->lr,
                                          .t = now->t,
                                          .cycle_momentum = now->cycle_momentum,
                                          .momentum = now->momentum};
    float control[3];
    shoali_pinned_read(setup->args.device, control, shoali_zero_host_control(masters->clip),
                       sizeof control);
    shared.multiplier = control[1];
    if (control[2] != 0.0f && (measures > 0 || setup->offloads))
        return SHOAL_OK;
    for (int32_t m = 0; m <= measures; m++) {
        const int32_t measure = m < measures ? m : -1;
        if (measure >= 0)
            SHOAL_TRY(status, shoali_zero_tensors_begin(masters->tensors, measure), done);
        if (setup->offloads)
            SHOAL_TRY(status, shoali_zero_offload_pass(masters, &shared, measure), done);
        else
            SHOAL_TRY(status, pass_all(masters, &shared, measure), done);
        if (measure >= 0)
            SHOAL_TRY(status, shoali_zero_tensors_conclude(masters->tensors, measure, &shared),
                      done);
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
    if (now)
        SHOAL_TRY(status, step_all(masters, now), done);
    else if (masters->setup->offloads)
        SHOAL_TRY(status, shoali_zero_offload_pass(masters, NULL, -1), done);
    else
        SHOAL_TRY(status, round_all(masters), done);
    SHOAL_TRY(status, shoali_zero_weights_changed(masters->weights), done);
done:
    return status;
}
