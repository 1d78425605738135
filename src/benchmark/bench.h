/* bench.h - speed of the parts and of the whole, each beside the machine's limit of the same run.
 *
 * Machines change their speed from one minute to the next, so a figure alone says little: every
 * function here takes `repeats` samples of a figure and, between them, of the limit it runs
 * against. The ratio of the medians is what can be compared. A figure goes to a callback; the
 * `shoal` program prints it (shoal bench, shoal tune). No part of libshoal: only the program has
 * it.
 *
 * gemm, attention, adam, stream and step measure the accelerator that is chosen. Where its memory
 * is not the host's they time kernels by the device's events, on arrays of which several sets take
 * turns, so that no cache holds them. The limits are then the device's own: a copy within its
 * memory, and a square product. A kernel that the device does not have is named and not timed.
 *
 *   gemm, attention, step   fused multiply-adds of independent registers, per thread
 *   generate                the same for the prompt; for a token a loop that only reads
 *   adam, stream            x[i] += a y[i] over memory that no cache holds ("axpy"); of a kernel
 *                           that streams also a loop that moves the same lines
 *   comm                    axpy by all ranks at once; a cache line sent to and fro between cores
 *   io                      a loop of reads or writes of one thread, past the page cache
 *   checkpoint              such a loop by each rank at once
 */
#ifndef SHOALI_BENCH_H
#define SHOALI_BENCH_H

#include "shoal/engine.h"
#include "shoal/tensor.h"
#include "shoal/transformer.h"

typedef struct shoali_bench_value {
    const char *name, *unit;
    double value;
} shoali_bench_value;

/* One figure. All borrowed for the call of the sink. */
typedef struct shoali_bench_result {
    const char *bench; /* "gemm" */
    const char *name;  /* what was measured: "fc1 forward NN 1024x3072x768" */
    const char *unit;  /* "GFLOP/s"; times: "us", "ms", smaller is better */
    double median, min, max;
    int32_t repeats;
    const char *limit_name;
    double limit, ratio; /* in `unit`; ratio 1 is at the limit, below is slower; 0: none known */
    const shoali_bench_value *values; /* more numbers of the same figure */
    int32_t value_count;
    const char *untimed; /* not NULL: why there is no figure, only a name */
    const char *note;    /* more to say of it, or NULL */
    int32_t emulated;    /* the device is no hardware: its times mean nothing */
} shoali_bench_result;
typedef shoal_status (*shoali_bench_sink)(void *user, const shoali_bench_result *result);

/* The device that is measured, before its first figure. "": not known. */
typedef struct shoali_bench_device {
    const char *bench, *accelerator, *name, *capability, *driver;
    int32_t index, emulated;
} shoali_bench_device;

/* What all of them take. Zero-initialise, set the sink. */
typedef struct shoali_bench_run {
    int32_t repeats; /* samples of a figure; 0: 5 */
    double seconds;  /* of a figure, all its samples, at least one call each; 0: 0.5 */
    int32_t threads; /* 0: SHOAL_NUM_THREADS, else the cores */
    const char *ops; /* kernels; NULL: SHOAL_OPS, else the best */
    shoali_bench_sink sink;
    void *user;
    const char *accelerator; /* of those that measure one; NULL: the environment's, else cpu */
    int32_t device;          /* its index; of step LOCAL_RANK says it */
    /* NULL: nothing. Not called for the cpu. */
    shoal_status (*on_device)(void *user, const shoali_bench_device *device);
    /* Of step, generate, checkpoint: called by rank 0 before each sample, NULL: nothing. For
     * someone who measures other programs between the samples. */
    shoal_status (*before_sample)(void *user);
} shoali_bench_run;

/* Measures matrix products: those of a GPT-2 124M step of 4 x 256 tokens and their sum ("124m"),
 * those of a small GPT ("tiny"), those of the layers of a Llama of 1B parameters ("llama-1b"), or
 * one of m, n, k. Not collective. SHOAL_EINVAL names what is wrong. */
typedef struct shoali_bench_gemm_args {
    shoali_bench_run run;
    shoal_dtype dtype;
    const char *set; /* NULL: "124m" */
    int64_t m, n, k; /* all > 0: this one instead of a set */
    int32_t trans_a, trans_b;
    int32_t prepacked; /* b is packed before the clock runs, as weights are in a step */
    int32_t explain;   /* each figure's note is how the CPU's kernels cut the product */
} shoali_bench_gemm_args;
SHOAL_CHECKED shoal_status shoali_bench_gemm(const shoali_bench_gemm_args *args);

/* Measures attention, forward and backward, causal; only products of visible keys count. Shapes
 * left 0 give a list of shapes. Not collective. */
typedef struct shoali_bench_attention_args {
    shoali_bench_run run;
    shoal_dtype dtype;
    int64_t batch, heads, seq_length, head_size; /* all > 0: this shape alone */
    int64_t kv_heads;                            /* of that shape; 0: as many as heads */
} shoali_bench_attention_args;
SHOAL_CHECKED shoal_status shoali_bench_attention(const shoali_bench_attention_args *args);

/* Measures kernels that read and write memory once. `adam_only`: the optimizer's update with the
 * bf16 copy of the weights (30 bytes per element) and without (28). Not collective. */
typedef struct shoali_bench_stream_args {
    shoali_bench_run run;
    int64_t count; /* elements; 0: 16 Mi, with adam_only 64 Mi */
    int32_t adam_only;
} shoali_bench_stream_args;
SHOAL_CHECKED shoal_status shoali_bench_stream(const shoali_bench_stream_args *args);

/* Measures a collective over message sizes. Joins the ranks that the environment names (shoal run)
 * and is collective over them, or makes `ranks` threads of this process. Data are checked first:
 * SHOAL_ECORRUPT says where they are wrong. A size is that of the larger of a rank's two buffers.
 * Rank 0 calls the sink. nccl-tests, ds_bench. */
typedef struct shoali_bench_comm_args {
    shoali_bench_run run;
    const char *op; /* all_reduce, reduce_scatter, all_gather, broadcast, all_to_all; NULL: first */
    int64_t min_bytes, max_bytes; /* 0: 4 KiB and 64 MiB */
    int64_t step_factor;          /* 0: 4 */
    shoal_dtype dtype;
    int32_t ranks;    /* 0: from the environment */
    int32_t unshared; /* 1: buffers outside of the group's own memory */
} shoali_bench_comm_args;
SHOAL_CHECKED shoal_status shoali_bench_comm(const shoali_bench_comm_args *args);

/* Measures training steps of a model with random weights on random tokens: forward, backward,
 * clipping, AdamW. Joins the ranks that the environment names and is collective over them; rank 0
 * calls the sink. The limit is the FMA peak of all ranks over shoal_model_flops_per_token. With
 * offload_optimizer on nvme the sink is called a second time, with the update: its limit is the
 * larger of the time to read and then write as many bytes at the speed of a file in that folder
 * (shoali_bench_io with its defaults) and of the same update with the states in host memory, for
 * which another engine is made after the first one is gone. */
typedef struct shoali_bench_step_args {
    shoali_bench_run run;            /* threads are those of one rank */
    const shoal_model_config *model; /* vocab-size included */
    int64_t micro_batch;             /* samples; without a configuration */
    shoal_dtype dtype;       /* SHOAL_F32, SHOAL_BF16 or SHOAL_F16; without a configuration */
    const char *config_path; /* NULL: AdamW with clipping */
    /* Not NULL: only one step is made, and rank 0 writes the monotonic clock before and after it,
     * in ns, a line each. */
    const char *first_step_file;
    int64_t accumulation; /* micro-batches of a rank and step, without a configuration; 0: 1, with a
                             pipeline four times as many as stages */
    /* What ranks divide; NULL: the samples alone. `group` is not used, and of `engine` what says
     * what ranks along tp and pp do. */
    const shoal_mesh_args *mesh;
    const shoal_engine_args *engine;
} shoali_bench_step_args;
SHOAL_CHECKED shoal_status shoali_bench_step(const shoali_bench_step_args *args);

/* Measures generation by a model with random weights: reading a prompt, in tokens per second beside
 * the multiply-add peak; and a token after it, in milliseconds beside the time that memory takes to
 * give the weights that a token passes through. Not collective. */
typedef struct shoali_bench_generate_args {
    shoali_bench_run run;
    const shoal_model_config *model; /* vocab-size included */
    shoal_dtype dtype;               /* SHOAL_F32, SHOAL_BF16 or SHOAL_F16 */
    int64_t prompt_length;           /* 0: 128, or half of the model's positions if that is less */
    int32_t sequences;               /* that get a token each at once; 0: 1 */
} shoali_bench_generate_args;
SHOAL_CHECKED shoal_status shoali_bench_generate(const shoali_bench_generate_args *args);

/* Measures reading and writing of a file, checked byte by byte. ds_io. Not collective. */
typedef struct shoali_bench_io_args {
    shoali_bench_run run;  /* threads: of the backend "posix"; 0: 1 */
    const char *folder;    /* where the file is made and removed */
    int64_t bytes;         /* of the file; 0: 512 MiB */
    int64_t block_bytes;   /* 0: 1 MiB */
    int32_t queue_depth;   /* 0: 32 */
    const char *backend;   /* NULL: SHOAL_IO, else the best */
    int32_t single_submit; /* 1: one system call per block */
    int32_t no_overlap;    /* 1: batch by batch */
    int32_t buffered;      /* 1: through the page cache */
    int32_t read, write;   /* both 0: both */
} shoali_bench_io_args;
SHOAL_CHECKED shoal_status shoali_bench_io(const shoali_bench_io_args *args);

/* Measures saving and loading a checkpoint of three kinds of fp32 numbers in host memory, of which
 * each rank holds an equal part: files, checksums, flushes and renames, checked element by element.
 * The limit is what the same ranks write (with an fsync) and read in a plain loop past the page
 * cache. Joins the ranks that the environment names and is collective over them; rank 0 calls the
 * sink. */
typedef struct shoali_bench_checkpoint_args {
    shoali_bench_run run;
    const char *folder; /* where the checkpoint is made and removed */
    int64_t bytes;      /* of it; 0: 1 GiB */
} shoali_bench_checkpoint_args;
SHOAL_CHECKED shoal_status shoali_bench_checkpoint(const shoali_bench_checkpoint_args *args);

/* Measures many settings of shoali_bench_io, each with the sink, and copies the one that reads and
 * writes the file in the least time to *best. `args` gives folder, bytes, backend and run.
 * ds_nvme_tune. Not collective. */
SHOAL_CHECKED shoal_status shoali_tune_io(const shoali_bench_io_args *args,
                                          shoali_bench_io_args *best);

/* Finds the algorithm that is fastest for each collective and size between the ranks that the
 * environment names, and writes the table that SHOAL_COMM_TUNING names in later jobs of such ranks.
 * Collective; rank
 * 0 prints the figures and writes the file. */
typedef struct shoali_tune_comm_args {
    const char *path;
    int64_t max_bytes;
    int32_t repeats; /* 0: 5 */
} shoali_tune_comm_args;
SHOAL_CHECKED shoal_status shoali_tune_comm(const shoali_tune_comm_args *args);

#endif
