/* Megatron's line about a step, which its users' programs parse (docs/MEGATRON.md). */
#include "pretrain/pretrain.h"

#include <math.h>
#include <time.h>

bool pretrain_logs_megatron(const struct pretrain_options *options)
{
    if (options->log_format == PRETRAIN_LOG_AUTO)
        return options->log_interval_given || options->log_throughput;
    return options->log_format == PRETRAIN_LOG_MEGATRON;
}

/* TFLOP/s of a rank in the steps that took `ms`; NaN: not wanted, or not known. */
static double tflops(const struct pretrain *run, double samples, double ms)
{
    double flops;
    if (!run->options.log_throughput || ms <= 0)
        return (double)NAN;
    if (shoal_model_flops_per_token(run->model, &flops) < 0) {
        shoali_error_clear(); /* the line does without */
        return (double)NAN;
    }
    const double ranks = (double)shoal_engine_world_size(run->engine);
    return flops * samples * (double)run->options.seq_length / (ms * 1e-3 * 1e12 * ranks);
}

static void print(struct pretrain *run, const shoal_step_info *info)
{
    const struct pretrain_interval *interval = &run->interval;
    struct timespec now = {0};
    char text[512];
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t counted = interval->steps - interval->skipped - interval->nan;
    const bool pairs = pretrain_samples(&run->options) == SHOAL_SAMPLE_MASKED_PAIRS;
    const shoal_iteration_line line = {
        .time_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000,
        .iteration = info->step + 1,
        .total_iterations = run->options.train_iters,
        .consumed_samples = info->consumed_samples,
        .global_batch_size = info->train_batch_size,
        .ms_per_iteration = interval->ms / (double)interval->steps,
        .tflops_per_device = tflops(run, interval->samples, interval->ms),
        .learning_rate = info->lr,
        .loss_name = pairs ? "lm + sop loss" : NULL,
        .loss = counted > 0 ? interval->loss / (double)counted : (double)NAN,
        .loss_scale = info->loss_scale > 0 ? info->loss_scale : 1,
        .grad_norm = info->grad_norm,
        .skipped_iterations = interval->skipped,
        .nan_iterations = interval->nan};
    shoal_progress_message(run->progress, shoal_format_iteration_line(&line, text, sizeof text));
}

void pretrain_log_step(struct pretrain *run, const shoal_step_info *info, bool first)
{
    struct pretrain_interval *interval = &run->interval;
    if (!run->progress || !pretrain_logs_megatron(&run->options))
        return;
    interval->steps++;
    interval->ms += info->step_ms;
    interval->samples += (double)info->train_batch_size;
    if (!info->applied)
        interval->skipped++;
    else if (isnan(info->loss))
        interval->nan++;
    else
        interval->loss += info->loss;
    const bool due = (info->step + 1) % run->options.log_interval == 0;
    if (due || first)
        print(run, info);
    if (due)
        *interval = (struct pretrain_interval){0};
}
