/* What a step leaves for people and scripts: DeepSpeed's lines, CSV and JSON events. */
#include "engine/engine.h"

enum { TIMER_WARM_UP = 2 }; /* steps */

/* What is called bwd_allreduce is what the step still had to reduce after backward; with
 * overlap_comm, and in stages 2 and 3, the rest is inside bwd_inner. It belongs to the last
 * micro-batch, like the step. */
static void print_lines(const struct shoal_engine *engine)
{
    const shoal_step_info *info = &engine->step.info;
    char text[512];
    const double lr = shoali_engine_lr(engine);
    SHOALI_INFO("engine", "%s",
                shoal_format_step_line(engine->step.global_steps, info->skipped_steps, lr,
                                       engine->optimizer.beta, 2, text, sizeof text));
    if (!engine->config.wall_clock_breakdown)
        return;
    const double gas = (double)engine->step.batch.accumulation;
    const shoal_timing micro[] = {{"fwd_microstep", info->forward_ms / gas},
                                  {"bwd_microstep", info->backward_ms / gas + info->reduce_ms},
                                  {"bwd_inner_microstep", info->backward_ms / gas},
                                  {"bwd_allreduce_microstep", info->reduce_ms},
                                  {"step_microstep", info->update_ms}};
    const shoal_timing whole[] = {{"fwd", info->forward_ms},
                                  {"bwd", info->backward_ms + info->reduce_ms},
                                  {"bwd_inner", info->backward_ms},
                                  {"bwd_allreduce", info->reduce_ms},
                                  {"step", info->update_ms}};
    SHOALI_INFO("engine", "%s", shoal_format_timing_line(micro, 5, text, sizeof text));
    SHOALI_INFO("engine", "%s", shoal_format_timing_line(whole, 5, text, sizeof text));
}

/* As DeepSpeed's throughput timer: this run's first two steps, which warm up, do not count. */
static void time_samples(struct shoal_engine *engine)
{
    char text[512];
    struct shoali_device_counters memory;
    const int64_t every = engine->config.steps_per_print;
    const double samples = (double)engine->step.batch.train;
    if (++engine->step.timed.steps <= TIMER_WARM_UP)
        return;
    engine->step.timed.ms += engine->step.info.step_ms;
    if (every <= 0 || engine->step.global_steps % every != 0)
        return;
    shoali_device_get_counters(engine->device, &memory);
    const double average_ms =
        engine->step.timed.ms / (double)(engine->step.timed.steps - TIMER_WARM_UP);
    const shoal_throughput line = {
        .micro_step = engine->step.timed.steps * engine->step.batch.accumulation,
        .global_step = engine->step.global_steps,
        .average_samples_per_s = samples / average_ms * 1e3,
        .current_samples_per_s = samples / engine->step.info.step_ms * 1e3,
        .allocated_bytes = (double)memory.allocated_bytes,
        .peak_bytes = (double)memory.peak_bytes};
    SHOALI_INFO("engine", "%s", shoal_format_throughput_line(&line, text, sizeof text));
}

shoal_status shoali_engine_report_step(struct shoal_engine *engine)
{
    const shoal_step_info *info = &engine->step.info;
    const int64_t every = engine->config.steps_per_print;
    struct shoali_device_counters memory;
    if (engine->meta)
        return SHOAL_OK;
    shoali_device_get_counters(engine->device, &memory);
    shoali_status_page_count_step(shoali_status_page_get(), engine->step.global_steps,
                                  memory.allocated_bytes);
    if (engine->place.rank != 0)
        return SHOAL_OK;
    if (every > 0 && engine->step.global_steps % every == 0)
        print_lines(engine);
    if (engine->config.timers.throughput.enabled)
        time_samples(engine);
    if (!shoal_monitor_enabled(engine->monitor))
        return SHOAL_OK;
    const shoal_event events[] = {
        {"Train/Samples/train_loss", info->loss},
        {"Train/Samples/lr", info->lr},
        {"Train/Samples/grad_norm", info->grad_norm},
        {"Train/Samples/loss_scale", info->loss_scale},
        {"Train/Samples/samples_per_second",
         (double)engine->step.batch.train / info->step_ms * 1e3},
        {"Train/Samples/device_bytes", (double)memory.allocated_bytes},
        {"Train/Samples/device_bytes_peak", (double)memory.peak_bytes},
        {"Train/Samples/elapsed_time_ms_forward", info->forward_ms},
        {"Train/Samples/elapsed_time_ms_backward", info->backward_ms + info->reduce_ms},
        {"Train/Samples/elapsed_time_ms_backward_inner", info->backward_ms},
        {"Train/Samples/elapsed_time_ms_backward_allreduce", info->reduce_ms},
        {"Train/Samples/elapsed_time_ms_step", info->update_ms},
    };
    const int32_t count =
        (int32_t)(sizeof events / sizeof events[0]) - (engine->config.wall_clock_breakdown ? 0 : 5);
    return shoal_monitor_write(engine->monitor, engine->step.global_steps,
                               shoal_engine_consumed_samples(engine), events, count);
}
