/* shoal bench SUBJECT [flags] */
#include "bench/bench.h"

#include "base/started.h"
#include "base/str.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shoal_status run_gemm(const struct bench_options *options)
{
    return shoali_bench_gemm(&(shoali_bench_gemm_args){.run = bench_run(options),
                                                       .dtype = bench_dtype(options),
                                                       .set = options->set,
                                                       .m = options->m,
                                                       .n = options->n,
                                                       .k = options->k,
                                                       .trans_a = options->trans_a,
                                                       .trans_b = options->trans_b,
                                                       .prepacked = options->prepacked,
                                                       .explain = options->explain});
}

static shoal_status run_attention(const struct bench_options *options)
{
    return shoali_bench_attention(&(shoali_bench_attention_args){.run = bench_run(options),
                                                                 .dtype = bench_dtype(options),
                                                                 .batch = options->batch,
                                                                 .heads = options->heads,
                                                                 .kv_heads = options->kv_heads,
                                                                 .seq_length = options->seq_length,
                                                                 .head_size = options->head_size});
}

static shoal_status run_adam(const struct bench_options *options)
{
    return shoali_bench_stream(&(shoali_bench_stream_args){
        .run = bench_run(options), .count = options->count, .adam_only = 1});
}

static shoal_status run_stream(const struct bench_options *options)
{
    return shoali_bench_stream(
        &(shoali_bench_stream_args){.run = bench_run(options), .count = options->count});
}

static shoal_status run_comm(const struct bench_options *options)
{
    shoal_status status;
    shoali_bench_comm_args args = {.run = bench_run(options),
                                   .op = options->op,
                                   .step_factor = options->step_factor,
                                   .dtype = bench_dtype(options),
                                   .ranks = (int32_t)options->ranks,
                                   .unshared = options->unshared};
    if (options->ranks > 0 && shoali_started_get().rank >= 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--ranks starts ranks as threads, and `shoal run` has "
                                        "started ranks already: leave one of them out");
    SHOAL_TRY(status, bench_bytes("min-bytes", options->min_bytes, &args.min_bytes), done);
    SHOAL_TRY(status, bench_bytes("max-bytes", options->max_bytes, &args.max_bytes), done);
    SHOAL_TRY(status, shoali_bench_comm(&args), done);
done:
    return status;
}

static shoal_status run_step(const struct bench_options *options)
{
    shoal_status status;
    shoali_bench_step_args args = {.run = bench_run(options),
                                   .dtype = bench_dtype(options),
                                   .config_path = options->deepspeed_config,
                                   .first_step_file = options->first_step_file};
    if (!(options->seconds > 0))
        args.run.seconds = 10;
    args.model = options->model_flags.config;
    shoal_engine_args engine = {0};
    const shoal_mesh_args mesh = mesh_flags_args(&options->mesh);
    mesh_flags_fill(&options->mesh, &engine);
    if (mesh_flags_any(&options->mesh)) {
        args.mesh = &mesh;
        args.engine = &engine;
    }
    args.accumulation = options->accumulation;
    SHOAL_TRY(status, bench_model(&bench_step_flags, options, &args.micro_batch), done);
    SHOAL_TRY(status, shoali_bench_step(&args), done);
done:
    return status;
}

static shoal_status run_generate(const struct bench_options *options)
{
    shoali_bench_generate_args args = {.run = bench_run(options),
                                       .model = options->model_flags.config,
                                       .dtype = bench_dtype(options),
                                       .prompt_length = options->prompt_length,
                                       .sequences = (int32_t)options->sequences};
    if (!(options->seconds > 0))
        args.run.seconds = 5;
    return shoali_bench_generate(&args);
}

static shoal_status run_io(const struct bench_options *options)
{
    shoal_status status;
    shoali_bench_io_args args;
    SHOAL_TRY(status, bench_io_args(options, &args), done);
    SHOAL_TRY(status, shoali_bench_io(&args), done);
done:
    return status;
}

static shoal_status run_checkpoint(const struct bench_options *options)
{
    shoal_status status;
    shoali_bench_checkpoint_args args = {.run = bench_run(options), .folder = options->folder};
    SHOAL_TRY(status, bench_bytes("size", options->size, &args.bytes), done);
    SHOAL_TRY(status, shoali_bench_checkpoint(&args), done);
done:
    return status;
}

struct subject {
    const char *name, *about;
    const struct shoali_section *flags;
    shoal_status (*run)(const struct bench_options *options);
};
#define ON_A_GPU                                                                                  \
    "\nOf a GPU (--accelerator cuda) the limits are its own: a matrix product and a copy within " \
    "its memory."
static const struct subject subjects[] = {
    {"gemm", "Measures matrix products against the multiply-add peak." ON_A_GPU, &bench_gemm_flags,
     run_gemm},
    {"attention", "Measures causal attention against the multiply-add peak." ON_A_GPU,
     &bench_attention_flags, run_attention},
    {"adam", "Measures the optimizer's update against the bandwidth of axpy." ON_A_GPU,
     &bench_stream_flags, run_adam},
    {"stream", "Measures kernels that touch memory once against the bandwidth of axpy." ON_A_GPU,
     &bench_stream_flags, run_stream},
    {"comm",
     "Measures a collective at several message sizes and checks its data.\n"
     "Start it alone with --ranks N, or: shoal run --num_gpus N shoal bench comm [flags]",
     &bench_comm_flags, run_comm},
    {"step",
     "Measures whole training steps on random tokens against the multiply-add peak." ON_A_GPU "\n"
     "With offload_optimizer on nvme it also measures the optimizer's update, against the drive "
     "and\n"
     "against the same update in memory.\n"
     "Start it alone, or: shoal run --num_gpus N shoal bench step [flags]",
     &bench_step_flags, run_step},
    {"generate",
     "Measures generation with random weights.\n"
     "The limit of a prompt is the multiply-add peak. The limit of a token is the time to read "
     "all\n"
     "weights from memory.",
     &bench_generate_flags, run_generate},
    {"start",
     "Measures the time from program start to the start and end of the first training step.",
     &bench_start_flags, bench_start},
    {"io", "Measures writing and reading a file against a plain loop, and checks the data.",
     &bench_io_flags, run_io},
    {"checkpoint",
     "Measures saving and loading a checkpoint against a plain loop of all ranks.\n"
     "Checksums are included. Start it alone, or: shoal run --num_gpus N shoal bench checkpoint "
     "[flags]",
     &bench_checkpoint_flags, run_checkpoint},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

static int list_subjects(void)
{
    printf(
        "usage: shoal bench SUBJECT [flags]\n"
        "       shoal bench SUBJECT --help\n\n"
        "Measures a part of Shoal, or a whole step, and the machine's limit in the same run. "
        "Each line has\n"
        "the median, the minimum and the maximum of the samples, and the ratio to the limit.\n\n");
    for (int i = 0; i < SUBJECTS; i++)
        printf("  %-12s %.*s\n", subjects[i].name, (int)strcspn(subjects[i].about, "\n"),
               subjects[i].about);
    return tool_flush();
}

static const struct subject *find_subject(const char *name)
{
    const char *names[SUBJECTS];
    for (int i = 0; i < SUBJECTS; i++) {
        names[i] = subjects[i].name;
        if (strcmp(name, names[i]) == 0)
            return &subjects[i];
    }
    const char *nearest = shoali_nearest(name, names, SUBJECTS);
    fprintf(stderr, "shoal bench: there is no subject \"%s\"", name);
    if (nearest)
        fprintf(stderr, "; nearest is \"%s\"", nearest);
    fprintf(stderr, "\nshoal bench --help lists them\n");
    return NULL;
}

static int measure(const struct subject *subject, int argc, char **argv)
{
    struct shoali_arena arena;
    struct bench_options options;
    char command[48];
    shoal_status status;
    memset(&options, 0, sizeof options); /* each subject has its own flags */
    shoali_arena_init(&arena);
    snprintf(command, sizeof command, "shoal bench %s", subject->name);
    SHOAL_TRY(status,
              bench_parse(subject->flags, command, subject->about, &options, argc, argv, &arena),
              done);
    if (status != SHOAL_END)
        SHOAL_TRY(status, subject->run(&options), done);
done:;
    const int code = status < 0 && !ferror(stdout) ? tool_fail(status) : tool_flush();
    model_flags_fini(&options.model_flags);
    shoali_arena_fini(&arena);
    return code;
}

int tool_bench(int argc, char **argv)
{
    if (argc < 2 || tool_wants_help(2, argv, NULL)) {
        const int code = list_subjects();
        return argc < 2 ? 2 : code;
    }
    const struct subject *subject = find_subject(argv[1]);
    return subject ? measure(subject, argc - 1, argv + 1) : 2;
}
