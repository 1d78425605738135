/* shoal diff RUN_A RUN_B */
#include "tool.h"

#include "shoal/diff.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: shoal diff [--rounding] RUN_A RUN_B\n\n"
    "Names the first step and tensor in which two runs differ, and whether rounding explains the\n"
    "difference. A run is a folder given to --save, or a hashes.jsonl file. Train with\n"
    "\"hashes\": true in the configuration. Folders without hashes are compared as checkpoints,\n"
    "element by element: DIR (the latest one) or DIR/TAG. Of Hugging Face folders and checkpoints\n"
    "of DeepSpeed the weights are compared, as fp32.\n\n"
    "  --rounding   count differences within rounding as equal\n\n"
    "Exit codes: 0 equal, 1 different, 2 wrong usage, nothing that can be compared, or\n"
    "the answer cannot be written.";

int tool_diff(int argc, char **argv)
{
    const char *runs[2] = {NULL, NULL};
    int count = 0, rounding = 0;
    char *text = NULL;
    shoal_diff_verdict verdict;
    if (tool_wants_help(argc, argv, NULL)) {
        puts(usage);
        return tool_flush();
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rounding") == 0) {
            rounding = 1;
        } else if (argv[i][0] == '-' && argv[i][1] == '-') {
            fprintf(stderr, "shoal diff: unknown flag %s; see shoal diff --help\n", argv[i]);
            return 2;
        } else {
            if (count < 2)
                runs[count] = argv[i];
            count++;
        }
    }
    if (count != 2) {
        fprintf(stderr, "shoal diff: give two runs, got %d; see shoal diff --help\n", count);
        return 2;
    }
    shoal_status status = shoal_diff(runs[0], runs[1], &text, &verdict);
    if (status < 0) {
        tool_fail(status);
        return 2; /* 1 says that they differ */
    }
    const int code = tool_print(text);
    if (code != 0)
        return code == 1 ? 2 : code;
    return verdict == SHOAL_DIFF_REAL || (verdict == SHOAL_DIFF_ROUNDING && !rounding);
}
