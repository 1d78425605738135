/* shoal report */
#include "tool.h"

#include "shoal/report.h"

#include <stdio.h>

int tool_report(int argc, char **argv)
{
    char *text = NULL;
    if (tool_wants_help(argc, argv)) {
        puts("usage: shoal report\n\n"
             "Shows version, machine, limits, devices, communication backends and which kernels\n"
             "serve which operation.");
        return tool_flush();
    }
    if (tool_no_arguments(argc, argv))
        return 2;
    shoal_status status = shoal_report(&text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}
