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
    "Shows what the ranks of a running job do: steps done, tokens a second, the shares of time "
    "that\n"
    "they compute, wait for other ranks, and read or write files, memory of the device and of the\n"
    "process; and names the straggler: the rank that comes last to collectives. JOB is the "
    "process\n"
    "number of `shoal run` or of a rank, a folder of the job (its current one, or one that its\n"
    "command line names, as --save), or its id; without JOB it is the one that runs. A job of\n"
    "several hosts is looked at where its `shoal run` was called. Control-C ends it.\n\n"
    "  --once               one table, and ends\n"
    "  --json               the same as one JSON object a line\n"
    "  --interval SECONDS   between two looks, default 1\n";

struct options {
    const char *job;
    double seconds;
    bool once, json;
};

static int wrong(const char *what, const char *word)
{
    fprintf(stderr, "shoal top: %s \"%s\"; shoal top --help\n", what, word);
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
            return wrong("there is no flag", word);
        } else if (options->job) {
            return wrong("only one job can be shown, got also", word);
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
    if (tool_wants_help(argc, argv)) {
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
