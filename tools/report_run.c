/* shoal report RUN -o FILE.html */
#include "report_run.h"
#include "tool.h"

#include "base/str.h"
#include "shoal/plot.h"

#include <stdio.h>
#include <string.h>

bool report_run_is_asked(int argc, char **argv)
{
    bool output = argc > 1 && argv[1][0] != '-';
    for (int i = 1; i < argc; i++)
        output = output || strcmp(argv[i], "-o") == 0 || strncmp(argv[i], "--output", 8) == 0;
    return output;
}

struct words {
    const char *out, *smooth;
    shoal_run_page_args args;
};

static int wrong(const char *what, const char *word)
{
    fprintf(stderr, "shoal report: %s \"%s\"; see shoal report --help\n", what, word);
    return 2;
}

static bool take_flag(int argc, char **argv, int *at, struct words *words)
{
    const struct {
        const char *flag, **value;
    } known[] = {{"-o", &words->out},
                 {"--output", &words->out},
                 {"--lines", &words->args.lines},
                 {"--log", &words->args.log},
                 {"--smooth", &words->smooth}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *value = tool_take_value(argc, argv, at, known[i].flag);
        if (value) {
            *known[i].value = value;
            return true;
        }
    }
    return false;
}

static int check(struct words *words)
{
    const char *out = words->out;
    const size_t bytes = out ? strlen(out) : 0;
    if (!words->args.run)
        return wrong("a page needs a run: give a folder of --save, or a file of JSON lines, before",
                     "-o");
    if (bytes < 6 || strcmp(out + bytes - 5, ".html") != 0) {
        fprintf(stderr,
                "shoal report: a page about %s needs a file: give -o FILE.html; --load DIR lists "
                "checkpoints instead\n",
                words->args.run);
        return 2;
    }
    if (words->smooth && !(shoali_parse_f64(words->smooth, &words->args.smooth) &&
                           words->args.smooth >= 0 && words->args.smooth < 1))
        return wrong("--smooth needs a number from 0 to below 1, not", words->smooth);
    return 0;
}

int report_run(int argc, char **argv)
{
    struct words words = {0};
    char *html = NULL;
    for (int i = 1; i < argc; i++) {
        if (take_flag(argc, argv, &i, &words))
            continue;
        if (argv[i][0] == '-')
            return wrong("unknown flag", argv[i]);
        if (words.args.run)
            return wrong("a page describes one run; unexpected", argv[i]);
        words.args.run = argv[i];
    }
    const int code = check(&words);
    if (code != 0)
        return code;
    const shoal_status status = shoal_run_page(&words.args, &html);
    if (status < 0) {
        tool_fail(status);
        return 2;
    }
    return tool_write(words.out, html);
}
