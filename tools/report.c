/* shoal report */
#include "report_mesh.h"
#include "tool.h"

#include "base/str.h"
#include "shoal/report.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: shoal report [--load DIR | --world N [flags]]\n\n"
    "Shows version, machine, limits, devices, communication (with the MPIs that there is a\n"
    "plug-in for, and, under mpirun or srun, which rank this is and what connects it), how\n"
    "files are read and written, and which kernels serve which operation.\n\n"
    "  --load DIR   shows the checkpoints in DIR instead: step, size, whether the manifest\n"
    "               verifies and the files are there with their sizes; and what saves that\n"
    "               died have left\n\n"
    "With --world it prints which ranks work together in a job of that size:\n";

/* Any flag but --load is one of the mesh's. */
static bool asks_for_mesh(int argc, char **argv)
{
    return argc > 1 && strncmp(argv[1], "--", 2) == 0 && strncmp(argv[1], "--load", 6) != 0;
}

int tool_report(int argc, char **argv)
{
    char *text = NULL;
    if (tool_wants_help(argc, argv)) {
        struct shoali_str flags = {0};
        report_mesh_help(&flags);
        printf("%s\n%s", usage, shoali_str_get(&flags));
        shoali_str_fini(&flags);
        return tool_flush();
    }
    if (asks_for_mesh(argc, argv))
        return report_mesh(argc, argv);
    const char *equals = argc == 2 && strncmp(argv[1], "--load=", 7) == 0 ? argv[1] + 7 : NULL;
    const char *dir = argc == 3 && strcmp(argv[1], "--load") == 0 ? argv[2] : equals;
    if (!dir && argc > 1) {
        fprintf(stderr,
                "shoal report takes --load DIR, --world N with flags, or nothing, got \"%s\"\n",
                argv[1]);
        return 2;
    }
    const shoal_status status = dir ? shoal_report_checkpoints(dir, &text) : shoal_report(&text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}
