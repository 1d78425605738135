/* report_run - `shoal report RUN -o FILE.html`: a run as an HTML page. */
#ifndef SHOAL_REPORT_RUN_H
#define SHOAL_REPORT_RUN_H

#include <stdbool.h>

/* Do the words name a run or a file to write? */
bool report_run_is_asked(int argc, char **argv);
/* The exit code. */
int report_run(int argc, char **argv);

#endif
