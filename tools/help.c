/* shoal help [SUBCOMMAND | config] */
#include "tool.h"

#include "base/config_table.h"
#include "base/str.h"
#include "shoal/report.h"

#include <stdio.h>
#include <string.h>

static int list_tools(void)
{
    size_t count;
    const struct tool *table = tool_table(&count);
    printf("usage: shoal SUBCOMMAND [arguments]\n"
           "       shoal SUBCOMMAND --help         the most used flags\n"
           "       shoal SUBCOMMAND --help-all     all flags\n"
           "       shoal SUBCOMMAND --help GROUP   one group of flags\n"
           "       shoal --version\n\n");
    for (size_t i = 0; i < count; i++)
        if (table[i].run)
            printf("  %-12s %s\n", table[i].name, table[i].summary);
    return tool_flush();
}

int tool_wants_help(int argc, char **argv, struct shoali_help *help)
{
    for (int i = 1; i < argc; i++) {
        const bool all = strcmp(argv[i], "--help-all") == 0;
        if (!all && strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0)
            continue;
        const char *next = !all && i + 1 < argc && argv[i + 1][0] != '-' ? argv[i + 1] : NULL;
        if (help)
            *help = (struct shoali_help){.all = all, .group = next};
        return 1;
    }
    return 0;
}

int tool_help(int argc, char **argv)
{
    if (argc > 2) {
        fprintf(stderr, "shoal help takes one name, got \"%s\" after \"%s\"\n", argv[2], argv[1]);
        return 2;
    }
    if (argc < 2 || tool_wants_help(2, argv, NULL) || strcmp(argv[1], "help") == 0)
        return list_tools();
    if (strcmp(argv[1], "config") == 0) {
        char *text = NULL;
        shoal_status status = shoal_config_help(&text);
        return status < 0 ? tool_fail(status) : tool_print(text);
    }
    const struct tool *tool = tool_find(argv[1]);
    char help[] = "--help";
    char *arguments[] = {argv[1], help, NULL};
    return tool ? tool->run(2, arguments) : 2;
}
