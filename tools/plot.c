/* shoal plot RUN... -o FILE.svg */
#include "tool.h"

#include "base/str.h"
#include "shoal/plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MAX = 64, NAMES_MAX = 16 };

static const char usage[] =
    "usage: shoal plot RUN... -o FILE.svg [flags]\n\n"
    "Draws numbers of runs as an SVG picture, one curve a run. A run is a file of JSON lines, as\n"
    "jsonl_monitor writes, or a folder given to --save that holds such a file. A last line that a\n"
    "stopped run left unfinished is ignored.\n\n"
    "  -o, --output FILE   write the picture to this file, which ends in .svg (required)\n"
    "  --y SCALAR          draw this number, such as lr or grad_norm (default train_loss);\n"
    "                      repeat the flag for several, one below the other\n"
    "  --x NAME            the x axis; time counts seconds in steps (step|tokens|time; default "
    "step)\n"
    "  --smooth X          draw exponential means too; X is the weight of the past, 0 to below 1\n"
    "  --seq-length N      tokens of a sample, for --x tokens; default: as the run's newest\n"
    "                      checkpoint says\n"
    "  --title TEXT        title of the picture (default: the names of --y)\n\n"
    "Exit codes: 0 done; 2 wrong usage, a run that cannot be read, or a picture that cannot be\n"
    "written.";

struct options {
    const char *run[RUNS_MAX], *name[NAMES_MAX], *out, *x, *smooth, *seq_length;
    shoal_plot_args args;
};

static int wrong(const char *what, const char *word)
{
    fprintf(stderr, "shoal plot: %s \"%s\"; see shoal plot --help\n", what, word);
    return 2;
}

/* Takes a flag that has one value. */
static bool take_single(int argc, char **argv, int *at, struct options *options)
{
    const struct {
        const char *flag, **value;
    } known[] = {{"-o", &options->out},
                 {"--output", &options->out},
                 {"--x", &options->x},
                 {"--smooth", &options->smooth},
                 {"--seq-length", &options->seq_length},
                 {"--seq_length", &options->seq_length},
                 {"--title", &options->args.title}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *value = tool_take_value(argc, argv, at, known[i].flag);
        if (value) {
            *known[i].value = value;
            return true;
        }
    }
    return false;
}

static int read_words(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *name = tool_take_value(argc, argv, &i, "--y");
        if (name && options->args.name_count == NAMES_MAX)
            return wrong("a picture has at most 16 scalars; unexpected", name);
        if (name && !*name)
            return wrong("give the name of a scalar to", "--y");
        if (name)
            options->name[options->args.name_count++] = name;
        else if (take_single(argc, argv, &i, options))
            continue;
        else if (argv[i][0] == '-')
            return wrong("unknown flag", argv[i]);
        else if (options->args.run_count == RUNS_MAX)
            return wrong("a picture has at most 64 runs; unexpected", argv[i]);
        else
            options->run[options->args.run_count++] = argv[i];
    }
    options->args.runs = options->run;
    options->args.names = options->name;
    return 0;
}

static int read_numbers(struct options *options)
{
    static const char *const axes[] = {"step", "tokens", "time"};
    shoal_plot_args *args = &options->args;
    for (size_t i = 0; options->x && i < 3; i++)
        if (strcmp(options->x, axes[i]) == 0) {
            args->x = (shoal_plot_x)i;
            options->x = NULL;
        }
    if (options->x)
        return wrong("--x is step, tokens or time, not", options->x);
    if (options->smooth && !(shoali_parse_f64(options->smooth, &args->smooth) &&
                             args->smooth >= 0 && args->smooth < 1))
        return wrong("--smooth needs a number from 0 to below 1, not", options->smooth);
    if (options->seq_length &&
        !(shoali_parse_i64(options->seq_length, &args->seq_length) && args->seq_length > 0))
        return wrong("--seq-length needs a whole number above 0, not", options->seq_length);
    return 0;
}

static int check_output(const struct options *options)
{
    const char *out = options->out;
    const size_t bytes = out ? strlen(out) : 0;
    if (options->args.run_count == 0) {
        fputs("shoal plot: give a run: a file of JSON lines or a folder of --save; see shoal plot "
              "--help\n",
              stderr);
        return 2;
    }
    if (bytes == 0) {
        fputs("shoal plot: no file to write: give -o FILE.svg\n", stderr);
        return 2;
    }
    if (bytes < 5 || strcmp(out + bytes - 4, ".svg") != 0) {
        fprintf(stderr,
                "shoal plot: -o %s: SVG is the only format: give a name that ends in .svg, and "
                "convert it with a tool such as rsvg-convert\n",
                out);
        return 2;
    }
    return 0;
}

int tool_plot(int argc, char **argv)
{
    struct options options = {0};
    char *svg = NULL;
    if (tool_wants_help(argc, argv, NULL)) {
        puts(usage);
        return tool_flush();
    }
    int code = read_words(argc, argv, &options);
    code = code ? code : read_numbers(&options);
    code = code ? code : check_output(&options);
    if (code != 0)
        return code;
    const shoal_status status = shoal_plot(&options.args, &svg);
    if (status < 0) {
        tool_fail(status);
        return 2;
    }
    return tool_write(options.out, svg);
}
