/* log.h - says where log messages go.
 *
 * The library does not print. It formats a line and passes it to a log sink. Without a log sink of
 * the caller, warnings, errors and rank 0's infos go to standard error.
 */
#ifndef SHOAL_LOG_H
#define SHOAL_LOG_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_log_level {
    SHOAL_LOG_TRACE = 0,
    SHOAL_LOG_DEBUG = 1,
    SHOAL_LOG_INFO = 2,
    SHOAL_LOG_WARNING = 3,
    SHOAL_LOG_ERROR = 4,
    SHOAL_LOG_OFF = 5
} shoal_log_level;

/* Receives one line without a newline. Called from any thread of the rank; must not call Shoal.
 * `subsystem` is the folder's name ("comm", "zero"). All strings are borrowed for the call. */
typedef void (*shoal_log_sink)(void *user, shoal_log_level level, const char *subsystem, int rank,
                               const char *text);

/* Sets the log sink and the level of the calling rank (thread). `spec` is a level, or a list such
 * as "warning,comm=debug". NULL reads the variable SHOAL_LOG. `sink` NULL is standard error. Not
 * collective. SHOAL_ECONFIG: a word is not a level; the error names it. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_log_configure(const char *spec, shoal_log_sink sink,
                                                         void *user);

#ifdef __cplusplus
}
#endif
#endif
