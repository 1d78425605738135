/* report_mesh - `shoal report --world N ...`: the groups of a mesh as a table. */
#ifndef SHOAL_REPORT_MESH_H
#define SHOAL_REPORT_MESH_H

struct shoali_str;

/* The exit code. */
int report_mesh(int argc, char **argv);
/* Its flags. */
void report_mesh_help(struct shoali_str *text);

#endif
