/* report_mesh - `shoal report --world N ...`: the groups of a mesh as a table. */
#ifndef SHOAL_REPORT_MESH_H
#define SHOAL_REPORT_MESH_H

#include "shoal/status.h"

struct shoali_help;

/* The exit code. */
int report_mesh(int argc, char **argv);
/* Prints `usage` and its flags: tool_print_flags. */
SHOAL_CHECKED shoal_status report_mesh_help(const char *usage, struct shoali_help *help);

#endif
