/* report.h - describes this build of Shoal, this machine, and the checkpoints of a folder. */
#ifndef SHOAL_REPORT_H
#define SHOAL_REPORT_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version, e.g. "0.1.0". Never NULL. Borrowed, static. */
SHOAL_API const char *shoal_version(void);

/* Describes build, machine, limits, devices, communication and file backends, and the kernels of
 * each operation, as lines of text. *text is owned by the caller: free(). Not collective. Probes
 * every backend, at little cost. DeepSpeed: ds_report. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_report(char **text);

/* Lists the checkpoints of folder DIR as lines of text: step, size, whether the manifest verifies
 * and all files exist with their sizes. Also lists leftover files of failed saves. *text is owned
 * by the caller: free(). Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_report_checkpoints(const char *dir, char **text);

/* Describes every key of the configuration file in Markdown: docs/CONFIG.md. *text is owned by the
 * caller: free(). Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_config_help(char **text);

#ifdef __cplusplus
}
#endif
#endif
