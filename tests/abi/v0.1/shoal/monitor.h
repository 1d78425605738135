/* monitor.h - where the numbers of a run go: CSV files, JSON lines, the terminal.
 *
 * Sinks for {name, value} pairs per step, as DeepSpeed's monitor; one live line for people; and the
 * text of the log lines that DeepSpeed and Megatron print, because scripts parse them. Only one
 * rank (0) writes. Nothing here touches tensors: the engine hands over plain numbers it has already
 * read. Everything is written to the files configured or to the FILE* given; no output happens
 * otherwise.
 *
 * Event names are DeepSpeed's: "Train/Samples/train_loss", "Train/Samples/lr",
 * "Train/Samples/loss_scale", "Train/Samples/elapsed_time_ms_forward", ...; their x axis is the
 * number of samples consumed.
 */
#ifndef SHOAL_MONITOR_H
#define SHOAL_MONITOR_H

#include "shoal/status.h"

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- event sinks ----------------------------------------------------------------------------- */

typedef struct shoal_monitor shoal_monitor;

typedef struct shoal_monitor_args {
    /* One file per event: PATH/JOB/<name with '/' and ' ' as '_'>.csv, header "step,<last part of
     * the name>", lines "x,value", appended. Opened, written, closed per batch. */
    bool csv_enabled;
    const char *csv_output_path, *csv_job_name; /* NULL: "" and "DeepSpeedJobName" */
    /* PATH/JOB.jsonl: one line {"step":..,"samples":..,"<name>":value,...} per batch, appended; a
     * value that is not finite becomes null. */
    bool jsonl_enabled;
    const char *jsonl_output_path, *jsonl_job_name;
} shoal_monitor_args;

typedef struct shoal_event {
    const char *name; /* borrowed for the call */
    double value;
} shoal_event;

/* Makes the folders. With nothing enabled it is a monitor that does nothing. *monitor is owned. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_monitor_create(const shoal_monitor_args *args,
                                                             shoal_monitor **monitor);
SHOAL_API void shoal_monitor_destroy(shoal_monitor *monitor);       /* NULL is fine */
SHOAL_API bool shoal_monitor_enabled(const shoal_monitor *monitor); /* false for NULL */
/* Writes one batch of events of a step. Not collective; blocking. SHOAL_EIO names the file. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_monitor_write(shoal_monitor *monitor, int64_t step,
                                                         int64_t samples, const shoal_event *events,
                                                         int32_t count);

/* ---- the live line --------------------------------------------------------------------------- */

typedef struct shoal_progress shoal_progress;

typedef enum shoal_progress_style {
    SHOAL_PROGRESS_ASK = 0,  /* whether `out` is a terminal, and TERM what it can do */
    SHOAL_PROGRESS_LIVE = 1, /* one line that is rewritten */
    SHOAL_PROGRESS_PLAIN = 2 /* line by line */
} shoal_progress_style;

typedef struct shoal_progress_args {
    FILE *out; /* borrowed */
    shoal_progress_style style;
    int32_t columns;     /* width of the line; 0: ask the terminal, then COLUMNS, else 80 */
    int64_t total_steps; /* 0: unknown */
    int64_t plain_every; /* plain lines: every this many steps and the last; 0: 10 */
} shoal_progress_args;

/* Values that are NaN are left out of the line. */
typedef struct shoal_progress_values {
    int64_t step; /* updates done, 1-based */
    double loss, lr, grad_norm, tokens_per_s;
    double seconds_per_step; /* gives the ETA */
    int64_t skipped;         /* skipped steps so far; shown when > 0 */
    double loss_scale;       /* shown when not 1 */
    int64_t batch_size;      /* samples of the step; 0: not shown */
} shoal_progress_values;

/* Makes the line; *progress is owned. Not collective; SHOAL_ENOMEM only. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_progress_create(const shoal_progress_args *args,
                                                              shoal_progress **progress);
/* Finishes. NULL is fine. */
SHOAL_API void shoal_progress_destroy(shoal_progress *progress);
/* "step 120/1000  loss 2.3456  lr 3.00e-04  grad 1.23  45.6k tok/s  ETA 1:02:03"; in a narrow
 * window as much of it as fits, the step and the loss last. */
SHOAL_INLINE void shoal_progress_update(shoal_progress *progress,
                                        const shoal_progress_values *values);
/* Prints a whole line above the live one (warnings, evaluation results). */
SHOAL_API void shoal_progress_message(shoal_progress *progress, const char *text);
/* Leaves the last step's line where it is, printed if it was not yet; messages then stand below it.
 */
SHOAL_API void shoal_progress_finish(shoal_progress *progress);

/* ---- text of log lines ----------------------------------------------------------------------- */
/* Each fills `text` (NUL-terminated, cut to `bytes`) without a newline and returns `text`. */

/* DeepSpeed's steps_per_print line: "step=10, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]". */
SHOAL_API const char *shoal_format_step_line(int64_t step, int64_t skipped, double lr,
                                             const double *momentum, int32_t momentum_count,
                                             char *text, size_t bytes);
/* DeepSpeed's wall_clock_breakdown line: "time (ms) | fwd: 1.23 | bwd: 4.56". */
typedef struct shoal_timing {
    const char *name;
    double milliseconds;
} shoal_timing;
SHOAL_API const char *shoal_format_timing_line(const shoal_timing *timings, int32_t count,
                                               char *text, size_t bytes);
/* DeepSpeed's throughput line: "epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=..,
 * CurrSamplesPerSec=.., MemAllocated=..GB, MaxMemAllocated=..GB". */
typedef struct shoal_throughput {
    int64_t epoch, micro_step, global_step;
    double average_samples_per_s, current_samples_per_s;
    double allocated_bytes, peak_bytes;
} shoal_throughput;
SHOAL_INLINE const char *shoal_format_throughput_line(const shoal_throughput *values, char *text,
                                                      size_t bytes);
/* Megatron's training line: " [2025-01-31 12:00:00.123456] iteration       10/     100 | consumed
 * samples: 320 | elapsed time per iteration (ms): 12.3 | ...". */
typedef struct shoal_iteration_line {
    int64_t time_us; /* since the epoch, shown as local time */
    int64_t iteration, total_iterations, consumed_samples, skipped_samples, global_batch_size;
    double ms_per_iteration, tflops_per_device; /* tflops NaN: left out */
    double learning_rate;
    const char *loss_name;        /* NULL: "lm loss" */
    double loss;                  /* negative or NaN: left out */
    double loss_scale, grad_norm; /* norm NaN: left out */
    int64_t skipped_iterations, nan_iterations;
} shoal_iteration_line;
SHOAL_INLINE const char *shoal_format_iteration_line(const shoal_iteration_line *values, char *text,
                                                     size_t bytes);
/* Megatron's validation line: " validation loss at iteration 100 | lm loss value: 1.0E+00 | lm loss
 * PPL: 2.7E+00 | "; PPL = exp(min(20, loss)). */
SHOAL_API const char *shoal_format_validation_line(const char *where, const char *loss_name,
                                                   double loss, char *text, size_t bytes);

/* ---- structs that grow ----------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_monitor_create_sized(const shoal_monitor_args *args,
                                                                size_t args_size,
                                                                shoal_monitor **monitor);
SHOAL_API SHOAL_CHECKED shoal_status shoal_progress_create_sized(const shoal_progress_args *args,
                                                                 size_t args_size,
                                                                 shoal_progress **progress);
SHOAL_API void shoal_progress_update_sized(shoal_progress *progress,
                                           const shoal_progress_values *values, size_t values_size);
SHOAL_API const char *shoal_format_throughput_line_sized(const shoal_throughput *values,
                                                         size_t values_size, char *text,
                                                         size_t bytes);
SHOAL_API const char *shoal_format_iteration_line_sized(const shoal_iteration_line *values,
                                                        size_t values_size, char *text,
                                                        size_t bytes);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_monitor_create(const shoal_monitor_args *args,
                                                             shoal_monitor **monitor)
{
    return shoal_monitor_create_sized(args, sizeof *args, monitor);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_progress_create(const shoal_progress_args *args,
                                                              shoal_progress **progress)
{
    return shoal_progress_create_sized(args, sizeof *args, progress);
}
SHOAL_INLINE void shoal_progress_update(shoal_progress *progress,
                                        const shoal_progress_values *values)
{
    shoal_progress_update_sized(progress, values, sizeof *values);
}
SHOAL_INLINE const char *shoal_format_throughput_line(const shoal_throughput *values, char *text,
                                                      size_t bytes)
{
    return shoal_format_throughput_line_sized(values, sizeof *values, text, bytes);
}
SHOAL_INLINE const char *shoal_format_iteration_line(const shoal_iteration_line *values, char *text,
                                                     size_t bytes)
{
    return shoal_format_iteration_line_sized(values, sizeof *values, text, bytes);
}

#ifdef __cplusplus
}
#endif
#endif
