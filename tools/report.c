/* shoal report */
#include "tool.h"

#include "shoal/report.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: shoal report [--load DIR]\n\n"
    "Shows version, machine, limits, devices, communication, how files are read and written,\n"
    "and which kernels serve which operation.\n\n"
    "  --load DIR   shows the checkpoints in DIR instead: step, size, whether the manifest\n"
    "               verifies and the files are there with their sizes; and what saves that\n"
    "               died have left";

int tool_report(int argc, char **argv)
{
    char *text = NULL;
    if (tool_wants_help(argc, argv)) {
        puts(usage);
        return tool_flush();
    }
    const char *equals = argc == 2 && strncmp(argv[1], "--load=", 7) == 0 ? argv[1] + 7 : NULL;
    const char *dir = argc == 3 && strcmp(argv[1], "--load") == 0 ? argv[2] : equals;
    if (!dir && argc > 1) {
        fprintf(stderr, "shoal report takes --load DIR or nothing, got \"%s\"\n", argv[1]);
        return 2;
    }
    const shoal_status status = dir ? shoal_report_checkpoints(dir, &text) : shoal_report(&text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}
