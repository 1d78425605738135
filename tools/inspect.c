/* shoal inspect FILE|DIR */
#include "tool.h"

#include "shoal/inspect.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: shoal inspect FILE|DIR [--tensor PATTERN] [--statistics] [--json]\n\n"
    "Shows the contents of a file or folder: tensors with types, shapes and sizes, and other\n"
    "values. Reads safetensors, PyTorch's .pt and .bin (the format before 1.6 too), pickles, .npy\n"
    "and .npz, checkpoints of Shoal and of DeepSpeed, Hugging Face folders, data files (PREFIX,\n"
    "PREFIX.bin or PREFIX.idx) and tokenizers. Nothing in a file is executed: the names that\n"
    "unpickling would import are listed.\n\n"
    "  --tensor PATTERN   show only tensors whose names match a shell pattern: *, ?, [a-c]\n"
    "  --statistics       compute min, max, mean and standard deviation of the finite numbers,\n"
    "                     and count zeros, NaNs and infinities\n"
    "  --json             print one line of JSON";

/* The value of --tensor; NULL: another flag. *at goes behind it. */
static const char *take_pattern(int argc, char **argv, int *at)
{
    if (strncmp(argv[*at], "--tensor=", 9) == 0)
        return argv[*at] + 9;
    if (strcmp(argv[*at], "--tensor") == 0 && *at + 1 < argc)
        return argv[++*at];
    return NULL;
}

int tool_inspect(int argc, char **argv)
{
    const char *path = NULL, *pattern = NULL;
    char *text = NULL;
    unsigned flags = 0;
    if (tool_wants_help(argc, argv, NULL)) {
        puts(usage);
        return tool_flush();
    }
    for (int i = 1; i < argc; i++) {
        const char *given = take_pattern(argc, argv, &i);
        if (given) {
            pattern = given;
        } else if (strcmp(argv[i], "--statistics") == 0) {
            flags |= SHOAL_INSPECT_STATISTICS;
        } else if (strcmp(argv[i], "--json") == 0) {
            flags |= SHOAL_INSPECT_JSON;
        } else if (strcmp(argv[i], "--tensor") == 0) {
            fprintf(stderr, "shoal inspect: --tensor needs a value: give a pattern of names, "
                            "such as '*.weight'\n");
            return 2;
        } else if (argv[i][0] == '-' && argv[i][1] == '-') {
            fprintf(stderr, "shoal inspect: unknown flag %s; see shoal inspect --help\n", argv[i]);
            return 2;
        } else if (path) {
            fprintf(stderr, "shoal inspect: give one file or folder, got %s and %s\n", path,
                    argv[i]);
            return 2;
        } else {
            path = argv[i];
        }
    }
    if (!path) {
        fprintf(stderr, "shoal inspect: give a file or folder; see shoal inspect --help\n");
        return 2;
    }
    const shoal_status status = shoal_inspect(path, pattern, flags, &text);
    if (status == SHOAL_ECORRUPT) {
        tool_fail(status);
        return 2; /* as of any other file that is damaged */
    }
    return status < 0 ? tool_fail(status) : tool_print(text);
}
