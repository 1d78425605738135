/* shoal run [flags] PROGRAM [ARGUMENTS] */
#include "tool.h"

#include "shoal/launcher.h"
#include "shoal/log.h"

#include <stdio.h>
#include <stdlib.h>

/* The launcher is no rank: its lines carry its own name. */
static void show_line(void *user, shoal_log_level level, const char *subsystem, int rank,
                      const char *text)
{
    (void)user;
    (void)subsystem;
    (void)rank;
    const char *mark = level == SHOAL_LOG_WARNING ? "warning: " : "";
    fprintf(stderr, "[shoal run] %s%s\n", mark, text);
}

int tool_run(int argc, char **argv)
{
    int exit_code = 0;
    char *help = NULL;
    shoal_status status = shoal_log_configure("info", show_line, NULL);
    if (status >= 0)
        status = shoal_launch_command(argc, argv, &exit_code, &help);
    if (status < 0)
        return tool_fail(status);
    return help ? tool_print(help) : exit_code;
}
