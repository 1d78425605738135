/* bench - `shoal bench` and `shoal tune`: flags in, figures out.
 *
 *   bench.c    the subjects of `shoal bench`
 *   options.c  flags of both commands
 *   model.c    the model of --model and its batch
 *   start.c    from starting a program to its first step
 *   print.c    a figure as text or JSON
 *   tune.c     `shoal tune`
 *
 * Terms. A *subject* is what a command measures: gemm, comm, io, step, ...
 *
 * Invariant. The measurements themselves are in src/benchmark, but for that of start.c.
 */
#ifndef SHOAL_BENCH_TOOL_H
#define SHOAL_BENCH_TOOL_H

#include "base/config_table.h"
#include "benchmark/bench.h"
#include "flags/mesh.h"
#include "flags/model.h"

struct bench_options {
    /* all */
    double seconds;
    int64_t repeats, threads;
    const char *ops, *accelerator;
    int64_t device;
    bool json, paced;
    int32_t dtype; /* index into bench_dtypes */
    /* gemm */
    const char *set;
    int64_t m, n, k;
    bool trans_a, trans_b, prepacked, explain;
    /* attention, model */
    int64_t batch, heads, kv_heads, seq_length, head_size;
    const char *model, *deepspeed_config, *first_step_file;
    struct mesh_flags mesh; /* of step */
    int64_t accumulation;
    int64_t micro_batch, num_gpus, prompt_length, sequences;
    struct model_flags model_flags; /* of --model, where there is that flag */
    /* adam, stream */
    int64_t count;
    /* comm */
    const char *op, *min_bytes, *max_bytes;
    int64_t step_factor, ranks;
    bool unshared;
    /* io */
    const char *output; /* of tune comm */
    const char *folder, *size, *block_size, *backend;
    int64_t queue_depth;
    bool single_submit, sequential, buffered, read, write;
    int64_t local_rank;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

/* A table's flags; SHOAL_END: help was asked for and printed. */
SHOAL_CHECKED shoal_status bench_parse(const struct shoali_section *section, const char *command,
                                       const char *about, struct bench_options *options, int argc,
                                       char **argv, struct shoali_arena *arena);
extern const struct shoali_section bench_gemm_flags, bench_attention_flags, bench_stream_flags,
    bench_comm_flags, bench_step_flags, bench_generate_flags, bench_start_flags, bench_io_flags,
    bench_checkpoint_flags, tune_io_flags, tune_comm_flags;

shoal_dtype bench_dtype(const struct bench_options *options);
/* "400M", "1GiB" as bytes; NULL leaves *bytes. SHOAL_ECONFIG names the flag. */
SHOAL_CHECKED shoal_status bench_bytes(const char *flag, const char *text, int64_t *bytes);
shoali_bench_run bench_run(const struct bench_options *options);
SHOAL_CHECKED shoal_status bench_io_args(const struct bench_options *options,
                                         shoali_bench_io_args *args);
/* The model of --model, changed by the flags that were given, and its batch. */
SHOAL_CHECKED shoal_status bench_model(const struct shoali_section *section,
                                       const struct bench_options *options, int64_t *micro_batch);

SHOAL_CHECKED shoal_status bench_start(const struct bench_options *options);

/* Sinks; `user` is unused. */
shoal_status bench_print_text(void *user, const shoali_bench_result *result);
shoal_status bench_print_json(void *user, const shoali_bench_result *result);
/* What is measured, before the first figure. */
shoal_status bench_print_device_text(void *user, const shoali_bench_device *device);
shoal_status bench_print_device_json(void *user, const shoali_bench_device *device);
/* Prints "ready" and waits for a line of standard input. */
shoal_status bench_wait_for_line(void *user);

#endif
