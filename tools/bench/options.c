/* Flags of `shoal bench` and `shoal tune`. */
#include "bench/bench.h"

#include "base/str.h"
#include "flags/flags.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_names[] = {"fp32", "bf16", "fp16", "f32", "f16", NULL};
static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16, SHOAL_F32, SHOAL_F16};

#define O(member) offsetof(struct bench_options, member)
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct bench_options, key, type, member, __VA_ARGS__)
#define TEXT(flag, member, ...)                                              \
    {                                                                        \
        .key = flag, .type = SHOALI_STRING, .offset = O(member), __VA_ARGS__ \
    }
#define COUNT(flag, member, most, ...)                                                             \
    {                                                                                              \
        .key = flag, .type = SHOALI_INT, .offset = O(member), .min = 0, .max = (most), __VA_ARGS__ \
    }
/* 0 is no value of these: what is not given, `help` says. */
#define POSITIVE(flag, member, most, ...)                                                          \
    {                                                                                              \
        .key = flag, .type = SHOALI_INT, .offset = O(member), .min = 1, .max = (most), __VA_ARGS__ \
    }
#define SWITCH(flag, member, ...)                                          \
    {                                                                      \
        .key = flag, .type = SHOALI_BOOL, .offset = O(member), __VA_ARGS__ \
    }
#define SECTION(title, table)                                                                    \
    {                                                                                            \
        .name = title, .rows = SHOALI_ROWS(table), .struct_bytes = sizeof(struct bench_options), \
        .given_offset = O(given)                                                                 \
    }

#define COMMON .flags = SHOALI_OPTION_COMMON
#define REPEATS COUNT("repeats", repeats, 1000, COMMON, .help = "samples per measurement; 0: 5")
#define SECONDS                                                                                    \
    {                                                                                              \
        .key = "seconds", .type = SHOALI_FLOAT, .offset = O(seconds), .min = 0, .max = 1e6,        \
        .unit = "s", COMMON, .help = "time for all samples of a measurement; 0: chosen by subject" \
    }
#define JSON SWITCH("json", json, COMMON, .help = "print a line of JSON for each measurement")
#define PACED                                             \
    SWITCH("paced", paced, .flags = SHOALI_OPTION_HIDDEN, \
           .help = "print \"ready\" before each sample and wait for a line of standard input")
#define THREADS                             \
    COUNT("threads", threads, 4096, COMMON, \
          .help = "number of threads; 0: SHOAL_NUM_THREADS if set, else one per core")
#define OPS \
    TEXT("ops", ops, COMMON, .help = "kernels to use; default: SHOAL_OPS if set, else the best")
#define ACCELERATOR                                                                         \
    TEXT("accelerator", accelerator, COMMON,                                                \
         .help = "accelerator to measure: cpu, cuda or sim; default: SHOAL_ACCELERATOR or " \
                 "DS_ACCELERATOR if set, else cpu")
#define DEVICE \
    COUNT("device", device, 1 << 20, COMMON, .help = "which of the accelerator's devices, from 0")
#define DTYPE                                                                                    \
    {                                                                                            \
        .key = "dtype", .type = SHOALI_ENUM, .offset = O(dtype), .choices = dtype_names, COMMON, \
        .help = "data type to compute in"                                                        \
    }
#define MODEL                                                                                  \
    TEXT("model", model, COMMON, .default_text = "gpt2-124m",                                  \
         .help = "name of a model: gpt, llama, gpt2-124m, tiny, llama-3.2-1b and others; the " \
                 "model's flags change it")

static const struct shoali_option gemm_rows[] = {
    TEXT("set", set, .default_text = "124m",
         .help = "products to measure; 124m: those of a GPT-2 124M step of 4x256 tokens, and "
                 "their sum; tiny: those of a small GPT; llama-1b: those of a Llama 1B's layers "
                 "at 4096 tokens"),
    POSITIVE("m", m, 1e9,
             .help = "rows of one product, measured instead of a set; needs --n and --k"),
    POSITIVE("n", n, 1e9, .help = "columns of that product"),
    POSITIVE("k", k, 1e9, .help = "length of that product's sums"),
    SWITCH("trans-a", trans_a, .help = "store the first matrix transposed"),
    SWITCH("trans-b", trans_b, .help = "store the second matrix transposed"),
    SWITCH("prepacked", prepacked,
           .help = "pack the second matrix before the measurement, as a training step packs "
                   "weights"),
    SWITCH("explain", explain,
           .help = "print how each product is cut for the caches: what is copied, blocks, pieces, "
                   "threads (of a CPU)"),
    DTYPE,
    THREADS,
    OPS,
    ACCELERATOR,
    DEVICE,
    REPEATS,
    SECONDS,
    JSON};
const struct shoali_section bench_gemm_flags = SECTION("gemm", gemm_rows);

static const struct shoali_option attention_rows[] = {
    POSITIVE("batch", batch, 1e6,
             .help = "samples of one shape, measured instead of a list of "
                     "shapes; needs --heads, --seq-length and --head-size"),
    POSITIVE("heads", heads, 1e6, .help = "attention heads"),
    COUNT("kv-heads", kv_heads, 1e6, .help = "heads of keys and values; 0: as many as --heads"),
    POSITIVE("seq-length", seq_length, 1e7, .unit = "tokens", .help = "length of queries and keys"),
    POSITIVE("head-size", head_size, 4096, .help = "size of a head"),
    DTYPE,
    THREADS,
    OPS,
    ACCELERATOR,
    DEVICE,
    REPEATS,
    SECONDS,
    JSON};
const struct shoali_section bench_attention_flags = SECTION("attention", attention_rows);

static const struct shoali_option stream_rows[] = {COUNT("count", count, 1e12, .unit = "elements",
                                                         .help = "elements of each array; 0: more "
                                                                 "than the caches hold"),
                                                   THREADS,
                                                   OPS,
                                                   ACCELERATOR,
                                                   DEVICE,
                                                   REPEATS,
                                                   SECONDS,
                                                   JSON};
const struct shoali_section bench_stream_flags = SECTION("stream", stream_rows);

static const struct shoali_option comm_rows[] = {
    TEXT("op", op, .default_text = "all_reduce",
         .help = "collective: all_reduce, reduce_scatter, all_gather, broadcast or all_to_all"),
    TEXT("min-bytes", min_bytes, .default_text = "4K", .help = "smallest message"),
    TEXT("max-bytes", max_bytes, .default_text = "64M", .help = "largest message"),
    POSITIVE("step-factor", step_factor, 1e9, .default_number = 4,
             .help = "factor between message "
                     "sizes"),
    DTYPE,
    COUNT("ranks", ranks, 1024,
          .help = "ranks to start as threads of this process; 0: the ranks of `shoal run`"),
    SWITCH("unshared", unshared, .help = "use buffers outside of the group's shared memory"),
    REPEATS,
    SECONDS,
    JSON,
    OPTION("local_rank", INT, local_rank, .default_number = -1, .flags = SHOALI_OPTION_HIDDEN,
           .help = "given by launchers; ignored")};
const struct shoali_section bench_comm_flags = SECTION("comm", comm_rows);

#define MODEL_ROWS                                                                             \
    MODEL,                                                                                     \
        POSITIVE("micro-batch", micro_batch, 1e9, .unit = "samples",                           \
                 .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_NO_DEFAULT,                     \
                 .help = "samples of each rank in a step; default: chosen for the model"),     \
        DTYPE,                                                                                 \
        TEXT("deepspeed_config", deepspeed_config, COMMON, .alias = "deepspeed-config",        \
             .help = "JSON configuration, instead of --micro-batch, --dtype and plain AdamW"), \
        COUNT("threads", threads, 4096, COMMON,                                                \
              .help = "threads of each rank; 0: its share of the cores")

static const struct shoali_option step_rows[] = {
    MODEL_ROWS,
    COUNT("gradient-accumulation-steps", accumulation, 1e6, COMMON, .unit = "micro-batches",
          .help = "micro-batches of each rank in a step; 0: 1, with a pipeline four per stage"),
    OPS,
    ACCELERATOR,
    REPEATS,
    SECONDS,
    JSON,
    PACED,
    TEXT("first-step-file", first_step_file, .flags = SHOALI_OPTION_HIDDEN,
         .help = "file for the time of the first step, the only one"),
    OPTION("local_rank", INT, local_rank, .default_number = -1, .flags = SHOALI_OPTION_HIDDEN,
           .help = "given by launchers; ignored")};
const struct shoali_section bench_step_flags = SECTION("step", step_rows);

static const struct shoali_option generate_rows[] = {
    MODEL,
    COUNT("prompt-length", prompt_length, 1 << 24, COMMON, .unit = "tokens",
          .help = "length of the prompt; 0: 128, or half of --seq-length if that is less"),
    COUNT("sequences", sequences, 4096, COMMON,
          .help = "sequences that each get a token in one pass; 0: 1"),
    DTYPE,
    THREADS,
    OPS,
    REPEATS,
    SECONDS,
    JSON,
    PACED};
const struct shoali_section bench_generate_flags = SECTION("generate", generate_rows);

static const struct shoali_option start_rows[] = {
    MODEL_ROWS,
    OPTION("num_gpus", INT, num_gpus, .default_number = 1, .min = 1, .max = 1024, COMMON,
           .help = "number of ranks to start"),
    REPEATS, SECONDS, JSON};
const struct shoali_section bench_start_flags = SECTION("start", start_rows);

#define IO_ROWS                                                                  \
    TEXT("folder", folder, .alias = "nvme_dir", .flags = SHOALI_OPTION_REQUIRED, \
         .help = "folder for the test file, which is removed at the end"),       \
        TEXT("size", size, .alias = "io_size", .default_text = "512M",           \
             .help = "size of the file"),                                        \
        TEXT("backend", backend,                                                 \
             .help = "backend: uring or posix; default: SHOAL_IO "               \
                     "if set, else the best")

static const struct shoali_option io_rows[] = {
    IO_ROWS,
    TEXT("block-size", block_size, .alias = "block_size", .default_text = "1M",
         .help = "size of a system call's request"),
    POSITIVE("queue-depth", queue_depth, 32768, .alias = "queue_depth", .default_number = 32,
             .help = "blocks in flight"),
    POSITIVE("threads", threads, 1024, .alias = "io_parallel", .default_number = 1,
             .help = "threads of the backend posix"),
    SWITCH("single-submit", single_submit, .alias = "single_submit",
           .help = "submit each block with a system call of its own"),
    SWITCH("sequential", sequential, .alias = "sequential_requests",
           .help = "wait for all blocks in flight before the next"),
    SWITCH("buffered", buffered, .help = "read and write through the page cache"),
    SWITCH("read", read, .help = "measure only reading"),
    SWITCH("write", write, .help = "measure only writing"),
    REPEATS,
    SECONDS,
    JSON};
const struct shoali_section bench_io_flags = SECTION("io", io_rows);

static const struct shoali_option checkpoint_rows[] = {
    TEXT("folder", folder, .flags = SHOALI_OPTION_REQUIRED,
         .help = "folder for the checkpoint, which is removed at the end"),
    TEXT("size", size, .default_text = "1G",
         .help = "size of the checkpoint of all ranks "
                 "together"),
    REPEATS,
    SECONDS,
    JSON,
    PACED,
    OPTION("local_rank", INT, local_rank, .default_number = -1, .flags = SHOALI_OPTION_HIDDEN,
           .help = "given by launchers; ignored")};
const struct shoali_section bench_checkpoint_flags = SECTION("checkpoint", checkpoint_rows);

static const struct shoali_option tune_io_rows[] = {IO_ROWS, REPEATS, SECONDS, JSON};
const struct shoali_section tune_io_flags = SECTION("io", tune_io_rows);

static const struct shoali_option tune_comm_rows[] = {
    TEXT("output", output, .default_text = "comm.tuning",
         .help = "file for the table of "
                 "algorithms"),
    TEXT("max-bytes", max_bytes, .default_text = "64M", .help = "largest message"), REPEATS,
    OPTION("local_rank", INT, local_rank, .default_number = -1, .flags = SHOALI_OPTION_HIDDEN,
           .help = "given by launchers; ignored")};
const struct shoali_section tune_comm_flags = SECTION("comm", tune_comm_rows);

/* What --model says; it decides which flags there are. */
static const char *model_word(const char *standard, int argc, char **argv)
{
    static const char flag[] = "--model";
    const size_t length = sizeof flag - 1;
    for (int i = argc - 1; i > 0; i--) {
        if (strncmp(argv[i], flag, length) == 0 && argv[i][length] == '=')
            return argv[i] + length + 1;
        if (strcmp(argv[i], flag) == 0 && i + 1 < argc)
            return argv[i + 1];
    }
    return standard;
}

static shoal_status add_model(struct bench_options *options, int argc, char **argv,
                              struct shoali_arena *arena)
{
    const shoal_status status =
        model_flags_init(&options->model_flags, model_word(options->model, argc, argv), arena);
    return status < 0 ? shoali_error_prefix(status, "--model") : status;
}

/* The configuration's say, and what contradicts the model of the length that is measured. */
static shoal_status check_mesh(const struct shoali_section *section, struct bench_options *options,
                               struct shoali_arena *arena)
{
    shoal_status status;
    int64_t micro_batch;
    struct mesh_flags *mesh = &options->mesh;
    SHOAL_TRY(status, mesh_flags_take_config(mesh, options->deepspeed_config, arena), done);
    SHOAL_TRY(status, bench_model(section, options, &micro_batch), done);
    SHOAL_TRY(status, mesh_flags_check(mesh, options->model_flags.config, arena), done);
done:
    return status;
}

shoal_status bench_parse(const struct shoali_section *section, const char *command,
                         const char *about, struct bench_options *options, int argc, char **argv,
                         struct shoali_arena *arena)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_config_defaults(section, options, arena), done);
    if (options->model)
        SHOAL_TRY(status, add_model(options, argc, argv, arena), done);
    const struct shoali_flags tables[] = {
        {section, options}, options->model_flags.table, {&mesh_flags_section, &options->mesh}};
    const bool meshed = section == &bench_step_flags;
    if (meshed)
        SHOAL_TRY(status, shoali_config_defaults(&mesh_flags_section, &options->mesh, arena), done);
    struct shoali_help help = {0};
    const struct shoali_flag_args args = {.command = command,
                                          .tables = tables,
                                          .table_count = meshed           ? 3
                                                         : options->model ? 2
                                                                          : 1,
                                          .help = &help};
    status = shoali_flags_parse(&args, argc, argv, arena, NULL);
    if (status == SHOAL_END) {
        struct shoali_str usage = {0};
        shoali_str_append(&usage, "usage: %s [flags]\n\n%s\n\n", command, about);
        status = tool_print_flags(shoali_str_get(&usage), &args);
        shoali_str_fini(&usage);
    }
    if (status == SHOAL_OK && options->model)
        SHOAL_TRY(status, model_flags_take(&options->model_flags), done);
    if (status == SHOAL_OK && meshed)
        SHOAL_TRY(status, check_mesh(section, options, arena), done);
done:
    return status;
}

shoal_dtype bench_dtype(const struct bench_options *options)
{
    return dtypes[options->dtype];
}

shoal_status bench_bytes(const char *flag, const char *text, int64_t *bytes)
{
    if (text && !shoali_parse_bytes(text, bytes))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--%s \"%s\" is not a size: give bytes, or a number with a unit such "
                          "as 64K or 1GiB",
                          flag, text);
    return SHOAL_OK;
}

shoali_bench_run bench_run(const struct bench_options *options)
{
    return (shoali_bench_run){.repeats = (int32_t)options->repeats,
                              .seconds = options->seconds,
                              .threads = (int32_t)options->threads,
                              .ops = options->ops,
                              .accelerator = options->accelerator,
                              .device = (int32_t)options->device,
                              .on_device =
                                  options->json ? bench_print_device_json : bench_print_device_text,
                              .sink = options->json ? bench_print_json : bench_print_text,
                              .before_sample = options->paced ? bench_wait_for_line : NULL};
}

shoal_status bench_io_args(const struct bench_options *options, shoali_bench_io_args *args)
{
    shoal_status status;
    *args = (shoali_bench_io_args){.run = bench_run(options),
                                   .folder = options->folder,
                                   .queue_depth = (int32_t)options->queue_depth,
                                   .backend = options->backend,
                                   .single_submit = options->single_submit,
                                   .no_overlap = options->sequential,
                                   .buffered = options->buffered,
                                   .read = options->read,
                                   .write = options->write};
    SHOAL_TRY(status, bench_bytes("size", options->size, &args->bytes), done);
    SHOAL_TRY(status, bench_bytes("block-size", options->block_size, &args->block_bytes), done);
done:
    return status;
}
