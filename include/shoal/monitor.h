/* monitor.h - writes the numbers of a run: CSV files, JSON lines, TensorBoard, the terminal.
 *
 * Contents
 *   event sinks   write {name, value} pairs per step, as DeepSpeed's monitor
 *   live line     one line in the terminal that is updated
 *   log lines     the text of DeepSpeed's and Megatron's log lines, because scripts parse them
 *
 * Only rank 0 writes. Functions get plain numbers and never touch tensors. Output goes only to the
 * configured files or to the given FILE*. Event names are DeepSpeed's: "Train/Samples/train_loss",
 * "Train/Samples/lr", "Train/Samples/loss_scale", "Train/Samples/elapsed_time_ms_forward", ...
 * Their x axis is the number of consumed samples.
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
    /* One file per event: PATH/JOB/<name with '/' and ' ' as '_'>.csv. The header is "step,<last
     * part of the name>"; lines "x,value" are appended. Each batch opens, writes and closes the
     * files. */
    bool csv_enabled;
    const char *csv_output_path, *csv_job_name; /* NULL: "" and "DeepSpeedJobName" */
    /* PATH/JOB.jsonl: one line {"step":..,"samples":..,"<name>":value,...} per batch is appended. A
     * value that is not finite becomes null. */
    bool jsonl_enabled;
    const char *jsonl_output_path, *jsonl_job_name;
    /* PATH/JOB/events.out.tfevents.*: TensorBoard's event file, begun by each monitor. Values are
     * 32-bit floats there. */
    bool tensorboard_enabled;
    const char *tensorboard_output_path, *tensorboard_job_name;
    /* A file that cannot be written costs one line of the log, and no write returns SHOAL_EIO. */
    bool goes_on;
} shoal_monitor_args;

typedef struct shoal_event {
    const char *name; /* borrowed for the call */
    double value;
} shoal_event;

/* Creates a monitor and its folders. A monitor with nothing enabled does nothing. *monitor is owned
 * by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_monitor_create(const shoal_monitor_args *args,
                                                          shoal_monitor **monitor);
SHOAL_API void shoal_monitor_destroy(shoal_monitor *monitor);       /* NULL is fine */
SHOAL_API bool shoal_monitor_enabled(const shoal_monitor *monitor); /* false for NULL */
/* Writes one batch of events of a step. Not collective; blocks. Each file has the batch as a whole
 * or not at all. SHOAL_EIO names the file; a later batch may succeed. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_monitor_write(shoal_monitor *monitor, int64_t step,
                                                         int64_t samples, const shoal_event *events,
                                                         int32_t count);
/* Writes a text (Markdown) by a name, for TensorBoard alone. Not collective; blocks. SHOAL_EIO
 * names the file. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_monitor_write_text(shoal_monitor *monitor,
                                                              int64_t samples, const char *name,
                                                              const char *text);

/* ---- the live line --------------------------------------------------------------------------- */

typedef struct shoal_progress shoal_progress;

typedef enum shoal_progress_style {
    SHOAL_PROGRESS_ASK = 0,  /* LIVE if `out` is a terminal and TERM is not "dumb" */
    SHOAL_PROGRESS_LIVE = 1, /* one line that is rewritten in place */
    SHOAL_PROGRESS_PLAIN = 2 /* line by line */
} shoal_progress_style;

typedef struct shoal_progress_args {
    FILE *out; /* borrowed */
    shoal_progress_style style;
    int32_t columns;     /* width of the line; 0: ask the terminal, then COLUMNS, else 80 */
    int64_t total_steps; /* 0: unknown */
    int64_t plain_every; /* plain lines: at every n-th step and the last; 0: 10 */
} shoal_progress_args;

/* The numbers of the line. A NaN is left out. */
typedef struct shoal_progress_values {
    int64_t step; /* updates done, 1-based */
    double loss, lr, grad_norm, tokens_per_s;
    double seconds_per_step; /* gives the ETA */
    int64_t skipped;         /* skipped steps so far; shown when > 0 */
    double loss_scale;       /* shown when not 1 */
    int64_t batch_size;      /* samples of the step; 0: not shown */
} shoal_progress_values;

/* Creates the line; *progress is owned by the caller. Not collective. SHOAL_ENOMEM only. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_progress_create(const shoal_progress_args *args,
                                                           shoal_progress **progress);
/* Finishes the line and frees it. NULL is fine. */
SHOAL_API void shoal_progress_destroy(shoal_progress *progress);
/* Updates the line: "step 120/1000  loss 2.3456  lr 3.00e-04  grad 1.23  45.6k tok/s  ETA 1:02:03".
 * A narrow window gets as much as fits; step and loss are dropped last. */
SHOAL_API void shoal_progress_update(shoal_progress *progress, const shoal_progress_values *values);
/* Prints a whole line above the live one (warnings, evaluation results). */
SHOAL_API void shoal_progress_message(shoal_progress *progress, const char *text);
/* Prints the last step's line if it is not printed, and leaves it there. Later messages are below
 * it. */
SHOAL_API void shoal_progress_finish(shoal_progress *progress);

/* ---- text of log lines ----------------------------------------------------------------------- */
/* Each function fills `text` without a newline and returns it. The text is NUL-terminated and
 * truncated to `bytes`. */

/* Formats DeepSpeed's steps_per_print line: "step=10, skipped=0, lr=[0.001], mom=[[0.9,
 * 0.999]]". */
SHOAL_API const char *shoal_format_step_line(int64_t step, int64_t skipped, double lr,
                                             const double *momentum, int32_t momentum_count,
                                             char *text, size_t bytes);
/* Formats DeepSpeed's wall_clock_breakdown line: "time (ms) | fwd: 1.23 | bwd: 4.56". */
typedef struct shoal_timing {
    const char *name;
    double milliseconds;
} shoal_timing;
SHOAL_API const char *shoal_format_timing_line(const shoal_timing *timings, int32_t count,
                                               char *text, size_t bytes);
/* Formats DeepSpeed's throughput line: "epoch=0/micro_step=20/global_step=10,
 * RunningAvgSamplesPerSec=.., CurrSamplesPerSec=.., MemAllocated=..GB, MaxMemAllocated=..GB". */
typedef struct shoal_throughput {
    int64_t epoch, micro_step, global_step;
    double average_samples_per_s, current_samples_per_s;
    double allocated_bytes, peak_bytes;
} shoal_throughput;
SHOAL_API const char *shoal_format_throughput_line(const shoal_throughput *values, char *text,
                                                   size_t bytes);
/* Formats Megatron's training line: " [2025-01-31 12:00:00.123456] iteration       10/     100 |
 * consumed samples: 320 | elapsed time per iteration (ms): 12.3 | ...". */
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
SHOAL_API const char *shoal_format_iteration_line(const shoal_iteration_line *values, char *text,
                                                  size_t bytes);
/* Formats Megatron's validation line: " validation loss at iteration 100 | lm loss value: 1.0E+00 |
 * lm loss PPL: 2.7E+00 | ". PPL = exp(min(20, loss)). */
SHOAL_API const char *shoal_format_validation_line(const char *where, const char *loss_name,
                                                   double loss, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
