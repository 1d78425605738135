/* shoal report */
#include "report_mesh.h"
#include "report_run.h"
#include "tool.h"

#include "base/config_table.h"
#include "shoal/report.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: shoal report [--load DIR | --world N [flags]]\n"
    "       shoal report RUN -o FILE.html [--lines FILE] [--log FILE] [--smooth X]\n\n"
    "Shows version, machine, limits, devices, communication, file I/O backends, and the kernels\n"
    "of each operation. Communication includes the MPI plug-ins that were built. Under mpirun or\n"
    "srun it also shows the rank of this process and how it is connected.\n\n"
    "  --load DIR   list the checkpoints in DIR instead: step, size, whether the manifest "
    "verifies\n"
    "               and all files are complete, and leftover files of interrupted saves\n\n"
    "With RUN it writes one HTML page about a run instead: figures, curves, memory, checkpoints,\n"
    "configuration and failure report. RUN is a folder given to --save, or a file of JSON lines,\n"
    "as jsonl_monitor writes. The page needs no network.\n\n"
    "  -o, --output FILE   write the page to this file, which ends in .html (required)\n"
    "  --lines FILE        JSON lines of the run; default: the one file *.jsonl in RUN\n"
    "  --log FILE          output of the run; default: the one file *.log in RUN\n"
    "  --smooth X          draw exponential means too; X is the weight of the past, 0 to below "
    "1\n\n"
    "--world N lists the groups of ranks in a job of N ranks instead:\n\n";

/* Any flag but --load is one of the mesh's. */
static bool asks_for_mesh(int argc, char **argv)
{
    return argc > 1 && strncmp(argv[1], "--", 2) == 0 && strncmp(argv[1], "--load", 6) != 0;
}

int tool_report(int argc, char **argv)
{
    char *text = NULL;
    struct shoali_help help = {0};
    if (tool_wants_help(argc, argv, &help)) {
        const shoal_status status = report_mesh_help(usage, &help);
        return status < 0 ? tool_fail(status) : tool_flush();
    }
    if (report_run_is_asked(argc, argv))
        return report_run(argc, argv);
    if (asks_for_mesh(argc, argv))
        return report_mesh(argc, argv);
    const char *equals = argc == 2 && strncmp(argv[1], "--load=", 7) == 0 ? argv[1] + 7 : NULL;
    const char *dir = argc == 3 && strcmp(argv[1], "--load") == 0 ? argv[2] : equals;
    if (!dir && argc > 1) {
        fprintf(stderr,
                "shoal report: unexpected \"%s\": give --load DIR, --world N with flags, or "
                "nothing\n",
                argv[1]);
        return 2;
    }
    const shoal_status status = dir ? shoal_report_checkpoints(dir, &text) : shoal_report(&text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}
