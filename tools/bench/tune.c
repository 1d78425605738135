/* shoal tune: the fastest settings of `aio` on a drive, and the fastest algorithms of collectives
 * between the ranks of a job. */
#include "bench/bench.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

static int usage(void)
{
    puts("usage: shoal tune io --folder DIR [flags]\n"
         "       shoal run -H HOSTFILE shoal tune comm [flags]\n"
         "       shoal tune io|comm --help\n\n"
         "Finds the fastest settings of a subsystem on this machine.\n\n"
         "  io           block size, queue depth and threads for offloading to a drive\n"
         "  comm         algorithms of collectives between the ranks of a job");
    return tool_flush();
}

static const char *yes_or_no(int32_t yes)
{
    return yes ? "true" : "false";
}

static shoal_status tune_io(const struct bench_options *options)
{
    shoali_bench_io_args args, best;
    shoal_status status;
    SHOAL_TRY(status, bench_io_args(options, &args), done);
    SHOAL_TRY(status, shoali_tune_io(&args, &best), done);
    if (!options->json)
        printf("\n"
               "the fastest settings to write and read, as a section of the configuration:\n");
    printf("{\"aio\": {\"block_size\": %lld, \"queue_depth\": %d, \"intra_op_parallelism\": %d, "
           "\"single_submit\": %s, \"overlap_events\": %s}}\n",
           (long long)best.block_bytes, (int)best.queue_depth, (int)best.run.threads,
           yes_or_no(best.single_submit), yes_or_no(!best.no_overlap));
done:
    return status;
}

static shoal_status tune_comm(const struct bench_options *options)
{
    shoal_status status;
    shoali_tune_comm_args args = {.path = options->output, .repeats = (int32_t)options->repeats};
    SHOAL_TRY(status, bench_bytes("max-bytes", options->max_bytes, &args.max_bytes), done);
    SHOAL_TRY(status, shoali_tune_comm(&args), done);
done:
    return status;
}

static const struct subject {
    const char *name, *command, *about;
    const struct shoali_section *flags;
    shoal_status (*run)(const struct bench_options *options);
} subjects[] = {
    {"io", "shoal tune io", "Writes and reads a file with many settings and names the fastest.",
     &tune_io_flags, tune_io},
    {"comm", "shoal tune comm",
     "Times the algorithms of each collective between the ranks of `shoal run` and writes the "
     "fastest\n"
     "into a file. A job on such ranks uses the file with SHOAL_COMM_TUNING=FILE.",
     &tune_comm_flags, tune_comm},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

int tool_tune(int argc, char **argv)
{
    struct shoali_arena arena;
    struct bench_options options;
    const struct subject *subject = NULL;
    shoal_status status;
    for (int i = 0; i < SUBJECTS; i++)
        if (argc >= 2 && strcmp(argv[1], subjects[i].name) == 0)
            subject = &subjects[i];
    if (!subject) {
        if (tool_wants_help(argc, argv, NULL))
            return usage();
        fprintf(stderr, "shoal tune: %s%s%s; the subjects are io and comm\n",
                argc < 2 ? "name a subject" : "there is no subject \"", argc < 2 ? "" : argv[1],
                argc < 2 ? "" : "\"");
        return 2;
    }
    memset(&options, 0, sizeof options);
    shoali_arena_init(&arena);
    SHOAL_TRY(status,
              bench_parse(subject->flags, subject->command, subject->about, &options, argc - 1,
                          argv + 1, &arena),
              done);
    if (status != SHOAL_END)
        SHOAL_TRY(status, subject->run(&options), done);
done:;
    const int code = status < 0 && !ferror(stdout) ? tool_fail(status) : tool_flush();
    shoali_arena_fini(&arena);
    return code;
}
