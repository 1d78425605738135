/* Text of the log lines that DeepSpeed and Megatron print; scripts parse them, so the wording is
 * theirs. */
#include "monitor/monitor.h"

#include "base/plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GIB 1073741824.0

/* Copies a finished line to the caller's buffer and frees it. */
static const char *deliver(struct shoali_str *line, char *text, size_t bytes)
{
    if (bytes > 0)
        snprintf(text, bytes, "%s", shoali_str_get(line));
    shoali_str_fini(line);
    return text;
}

void shoali_append_number(struct shoali_str *line, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        shoali_snprintf(text, sizeof(text), "%.*g", digits, value);
        if (shoali_strtod(text, NULL) == value)
            break;
    }
    double size = fabs(value);
    if (size >= 1e-4 && size < 1e16 && strchr(text, 'e'))
        shoali_snprintf(text, sizeof(text), "%.0f", value);
    bool whole = isfinite(value) && !strpbrk(text, ".e");
    shoali_str_append(line, "%s%s", text, whole ? ".0" : "");
}

const char *shoal_format_step_line(int64_t step, int64_t skipped, double lr, const double *momentum,
                                   int32_t momentum_count, char *text, size_t bytes)
{
    struct shoali_str line = {0};
    shoali_str_append(&line, "step=%lld, skipped=%lld, lr=[", (long long)step, (long long)skipped);
    shoali_append_number(&line, lr);
    shoali_str_append(&line, momentum_count > 1 ? "], mom=[[" : "], mom=[");
    for (int32_t i = 0; i < momentum_count; i++) {
        if (i > 0)
            shoali_str_append_bytes(&line, ", ", 2);
        shoali_append_number(&line, momentum[i]);
    }
    shoali_str_append(&line, momentum_count > 1 ? "]]" : "]");
    return deliver(&line, text, bytes);
}

const char *shoal_format_timing_line(const shoal_timing *timings, int32_t count, char *text,
                                     size_t bytes)
{
    struct shoali_str line = {0};
    shoali_str_append(&line, "time (ms)");
    for (int32_t i = 0; i < count; i++)
        shoali_str_append(&line, " | %s: %.2f", timings[i].name, timings[i].milliseconds);
    return deliver(&line, text, bytes);
}

const char *shoal_format_throughput_line(const shoal_throughput *given, char *text, size_t bytes)
{
    const shoal_throughput values = *given;
    struct shoali_str line = {0};
    shoali_str_append(
        &line, "epoch=%lld/micro_step=%lld/global_step=%lld, RunningAvgSamplesPerSec=",
        (long long)values.epoch, (long long)values.micro_step, (long long)values.global_step);
    shoali_append_number(&line, values.average_samples_per_s);
    shoali_str_append(&line, ", CurrSamplesPerSec=");
    shoali_append_number(&line, values.current_samples_per_s);
    shoali_str_append(&line, ", MemAllocated=%.2fGB, MaxMemAllocated=%.2fGB",
                      values.allocated_bytes / GIB, values.peak_bytes / GIB);
    return deliver(&line, text, bytes);
}

static void append_time(struct shoali_str *line, int64_t time_us)
{
    time_t seconds = (time_t)(time_us / 1000000);
    struct tm local;
    char text[32];
    localtime_r(&seconds, &local);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
    shoali_str_append(line, " [%s.%06d]", text, (int)(time_us % 1000000));
}

const char *shoal_format_iteration_line(const shoal_iteration_line *given, char *text, size_t bytes)
{
    const shoal_iteration_line values = *given;
    struct shoali_str line = {0};
    append_time(&line, values.time_us);
    shoali_str_append(&line, " iteration %8lld/%8lld |", (long long)values.iteration,
                      (long long)values.total_iterations);
    shoali_str_append(&line, " consumed samples: %12lld |", (long long)values.consumed_samples);
    if (values.skipped_samples > 0)
        shoali_str_append(&line, " skipped samples: %12lld |", (long long)values.skipped_samples);
    shoali_str_append(&line, " elapsed time per iteration (ms): %.1f |", values.ms_per_iteration);
    if (!isnan(values.tflops_per_device))
        shoali_str_append(&line, " throughput per GPU (TFLOP/s/GPU): %.1f |",
                          values.tflops_per_device);
    shoali_str_append(&line, " learning rate: %.6E |", values.learning_rate);
    shoali_str_append(&line, " global batch size: %5lld |", (long long)values.global_batch_size);
    if (values.loss >= 0)
        shoali_str_append(&line, " %s: %.6E |", values.loss_name ? values.loss_name : "lm loss",
                          values.loss);
    shoali_str_append(&line, " loss scale: %.1f |", values.loss_scale);
    if (!isnan(values.grad_norm))
        shoali_str_append(&line, " grad norm: %.3f |", values.grad_norm);
    shoali_str_append(&line, " number of skipped iterations: %3lld |",
                      (long long)values.skipped_iterations);
    shoali_str_append(&line, " number of nan iterations: %3lld |",
                      (long long)values.nan_iterations);
    return deliver(&line, text, bytes);
}

const char *shoal_format_validation_line(const char *where, const char *loss_name, double loss,
                                         char *text, size_t bytes)
{
    struct shoali_str line = {0};
    const char *name = loss_name ? loss_name : "lm loss";
    shoali_str_append(&line, " validation loss at %s | %s value: %.6E | %s PPL: %.6E | ", where,
                      name, loss, name, shoali_exp(fmin(20, loss)));
    return deliver(&line, text, bytes);
}
