/* shoal tune io: the settings of `aio` that are fastest on a disk. */
#include "bench.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

static int usage(void)
{
    puts("usage: shoal tune io --folder DIR [flags]\n"
         "       shoal tune io --help\n\n"
         "Finds the settings of a subsystem that are fastest on this machine.\n\n"
         "  io           block size, queue depth and threads of offloading to a disk");
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
        printf("\nthe least time to write and read, as a section of the configuration:\n");
    printf("{\"aio\": {\"block_size\": %lld, \"queue_depth\": %d, \"intra_op_parallelism\": %d, "
           "\"single_submit\": %s, \"overlap_events\": %s}}\n",
           (long long)best.block_bytes, (int)best.queue_depth, (int)best.run.threads,
           yes_or_no(best.single_submit), yes_or_no(!best.no_overlap));
done:
    return status;
}

int tool_tune(int argc, char **argv)
{
    struct shoali_arena arena;
    struct bench_options options;
    shoal_status status;
    if (argc < 2 || strcmp(argv[1], "io") != 0) {
        if (argc >= 2 && tool_wants_help(argc, argv))
            return usage();
        fprintf(stderr, "shoal tune: %s%s%s; what it tunes: io\n",
                argc < 2 ? "name a subject" : "there is no subject \"", argc < 2 ? "" : argv[1],
                argc < 2 ? "" : "\"");
        return 2;
    }
    memset(&options, 0, sizeof options);
    shoali_arena_init(&arena);
    SHOAL_TRY(status,
              bench_parse(&tune_io_flags, "shoal tune io",
                          "Writes and reads a file with many settings and names the fastest.",
                          &options, argc - 1, argv + 1, &arena),
              done);
    if (status != SHOAL_END)
        SHOAL_TRY(status, tune_io(&options), done);
done:;
    const int code = status < 0 && !ferror(stdout) ? tool_fail(status) : tool_flush();
    shoali_arena_fini(&arena);
    return code;
}
