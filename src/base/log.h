/* log - levelled lines per subsystem, handed to a callback.
 *
 * A logger is an object (the engine or the tool owns it); a thread finds it through its context. A
 * line is formatted once and given to the sink with its level, subsystem, rank. The default sink
 * writes "[shoal] rank R: text" to standard error for warnings and errors and for rank 0's infos.
 * Levels per subsystem come from SHOAL_LOG, e.g. "warning,comm=debug,zero=trace".
 */
#ifndef SHOALI_LOG_H
#define SHOALI_LOG_H

#include "base/error.h"
#include "shoal/log.h"

struct shoali_logger {
    shoal_log_level level;  /* for subsystems not named below */
    char subsystem[16][16]; /* names with a level of their own */
    shoal_log_level subsystem_level[16];
    int32_t subsystem_count;
    shoal_log_sink sink; /* NULL: standard error */
    void *sink_user;     /* borrowed */
};

/* Sets defaults, then applies `spec` ("info", "comm=debug,..."; NULL: the variable SHOAL_LOG).
 * SHOAL_ECONFIG names a wrong word. */
SHOAL_CHECKED shoal_status shoali_logger_init(struct shoali_logger *logger, const char *spec);
/* True when a line of this level and subsystem would be shown: use before costly formatting. */
int shoali_log_enabled(shoal_log_level level, const char *subsystem);
void shoali_log(shoal_log_level level, const char *subsystem, const char *format, ...)
    SHOAL_PRINTF(3, 4);

#define SHOALI_ERROR(subsystem, ...) shoali_log(SHOAL_LOG_ERROR, subsystem, __VA_ARGS__)
#define SHOALI_WARN(subsystem, ...) shoali_log(SHOAL_LOG_WARNING, subsystem, __VA_ARGS__)
/* Of what every rank reads alike: rank 0 alone warns. */
#define SHOALI_WARN_FIRST(subsystem, ...)        \
    do {                                         \
        if (shoali_context_get()->rank == 0)     \
            SHOALI_WARN(subsystem, __VA_ARGS__); \
    } while (0)
#define SHOALI_INFO(subsystem, ...) shoali_log(SHOAL_LOG_INFO, subsystem, __VA_ARGS__)
#define SHOALI_DEBUG(subsystem, ...) shoali_log(SHOAL_LOG_DEBUG, subsystem, __VA_ARGS__)

#endif
