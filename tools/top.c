/* shoal top [JOB] */
#include "tool.h"

#include "base/str.h"
#include "shoal/launcher.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: shoal top [--once] [--json] [--interval SECONDS] [JOB]\n\n"
    "Shows what the ranks of a running job do: steps done, tokens per second, the shares of time\n"
    "spent on computing, waiting for other ranks and file I/O, and memory of device and process.\n"
    "It names the straggler, the rank that comes last to collectives. Control-C ends it.\n\n"
    "JOB is the process id of `shoal run` or of a rank, a folder of the job (its working folder,\n"
    "or one that its command line names, as --save), or the job's id. Without JOB the running job\n"
    "is shown. For a job on several hosts, call it on the host where `shoal run` was called.\n\n"
    "  --once               print one table and exit\n"
    "  --json               print one JSON object per line\n"
    "  --interval SECONDS   time between two updates (default 1)\n";

struct options {
    const char *job;
    double seconds;
    bool once, json;
};

static int wrong(const char *what, const char *word)
{
    fprintf(stderr, "shoal top: %s \"%s\"; see shoal top --help\n", what, word);
    return 2;
}

static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--once") == 0) {
            options->once = true;
        } else if (strcmp(word, "--json") == 0) {
            options->json = true;
        } else if (strncmp(word, "--interval", 10) == 0) {
            const char *value = word[10] == '=' ? word + 11 : i + 1 < argc ? argv[++i] : "";
            if (!shoali_parse_f64(value, &options->seconds) || !(options->seconds > 0))
                return wrong("--interval needs a number of seconds, not", value);
        } else if (word[0] == '-') {
            return wrong("unknown flag", word);
        } else if (options->job) {
            return wrong("only one job can be shown; unexpected", word);
        } else {
            options->job = word;
        }
    }
    return 0;
}

int tool_top(int argc, char **argv)
{
    struct options options = {.seconds = 1};
    char *text = NULL;
    const bool rewrites = isatty(STDOUT_FILENO);
    if (tool_wants_help(argc, argv, NULL)) {
        puts(usage);
        return tool_flush();
    }
    int code = read_options(argc, argv, &options);
    for (int64_t looks = 0; code == 0; looks++) {
        const shoal_status status = shoal_top(options.job, options.seconds, options.json, &text);
        if (status == SHOAL_ENOENT && looks > 0)
            return tool_flush(); /* it has ended */
        if (status < 0)
            return tool_fail(status);
        if (rewrites && !options.once && !options.json)
            fputs("\x1b[H\x1b[J", stdout);
        code = tool_print(text);
        if (options.once)
            break;
    }
    return code;
}
