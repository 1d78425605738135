/* monitor - sinks for a run's numbers. Level L1: knows only base. The interface is shoal/monitor.h.
 *
 *   monitor.c      CSV and JSON-lines sinks
 *   tensorboard.h  TensorBoard's event files
 *   append.h       files that grow batch by batch
 *   progress.c     the live line
 *   hashes.h       fingerprints per step and tensor, and comparing two runs by them
 *   lines.c        text of DeepSpeed's and Megatron's log lines
 *   run_read.h     numbers and checkpoints of a run, read back
 *   plot.h         curves as SVG, and a run as an HTML page (shoal/plot.h)
 *
 * This header adds the configuration sections of the JSON file; the engine puts them in its root
 * table. wandb and comet are known: enabling one says that nothing is sent.
 */
#ifndef SHOALI_MONITOR_H
#define SHOALI_MONITOR_H

#include "base/base.h"
#include "shoal/monitor.h"

/* csv_monitor, jsonl_monitor and tensorboard have the same keys. */
struct shoali_file_monitor_config {
    bool enabled;
    const char *output_path, *job_name;
};
struct shoali_wandb_config {
    bool enabled;
    const char *group, *team, *project;
};
struct shoali_comet_config {
    bool enabled, online;
    int64_t samples_log_interval;
    const char *project, *workspace, *api_key, *experiment_name, *experiment_key, *mode;
};
extern const struct shoali_section shoali_csv_monitor_section, shoali_jsonl_monitor_section,
    shoali_tensorboard_section;                          /* struct shoali_file_monitor_config */
extern const struct shoali_section shoali_wandb_section; /* struct shoali_wandb_config */
extern const struct shoali_section shoali_comet_section; /* struct shoali_comet_config */

/* In quotes, with JSON's escapes. */
void shoali_append_json_string(struct shoali_str *out, const char *text);
/* A double as Python prints it: the shortest text that reads back as the same value, "3.0" for 3.
 */
void shoali_append_number(struct shoali_str *out, double value);

#endif
