/* What a step leaves for people and scripts: DeepSpeed's lines, CSV and JSON events. */
#include "engine/engine.h"

static void print_lines(const struct shoal_engine *engine)
{
    const shoal_step_info *info = &engine->info;
    char text[512];
    const double lr = shoali_schedule_lr(&engine->schedule, engine->applied_steps - 1);
    SHOALI_INFO("engine", "%s",
                shoal_format_step_line(engine->global_steps, info->skipped_steps, lr,
                                       engine->optimizer.beta, 2, text, sizeof text));
    if (!engine->config.wall_clock_breakdown)
        return;
    const shoal_timing micro[] = {
        {"fwd_microstep", info->forward_ms / (double)engine->batch.accumulation},
        {"bwd_microstep", info->backward_ms / (double)engine->batch.accumulation}};
    const shoal_timing whole[] = {{"fwd", info->forward_ms},
                                  {"bwd", info->backward_ms},
                                  {"bwd_allreduce", info->reduce_ms},
                                  {"step", info->update_ms}};
    SHOALI_INFO("engine", "%s", shoal_format_timing_line(micro, 2, text, sizeof text));
    SHOALI_INFO("engine", "%s", shoal_format_timing_line(whole, 4, text, sizeof text));
}

shoal_status shoali_engine_report_step(struct shoal_engine *engine)
{
    const shoal_step_info *info = &engine->info;
    const int64_t every = engine->config.steps_per_print;
    if (engine->rank != 0 || engine->meta)
        return SHOAL_OK;
    if (every > 0 && engine->global_steps % every == 0)
        print_lines(engine);
    if (!shoal_monitor_enabled(engine->monitor))
        return SHOAL_OK;
    const shoal_event events[] = {
        {"Train/Samples/train_loss", info->loss},
        {"Train/Samples/lr", info->lr},
        {"Train/Samples/grad_norm", info->grad_norm},
        {"Train/Samples/loss_scale", info->loss_scale},
        {"Train/Samples/elapsed_time_ms_forward", info->forward_ms},
        {"Train/Samples/elapsed_time_ms_backward", info->backward_ms},
        {"Train/Samples/elapsed_time_ms_backward_allreduce", info->reduce_ms},
        {"Train/Samples/elapsed_time_ms_step", info->update_ms},
    };
    const int32_t count =
        (int32_t)(sizeof events / sizeof events[0]) - (engine->config.wall_clock_breakdown ? 0 : 4);
    return shoal_monitor_write(engine->monitor, engine->global_steps,
                               engine->global_steps * engine->batch.train, events, count);
}
