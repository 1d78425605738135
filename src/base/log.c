#include "base/log.h"

#include "base/plain.h"
#include "base/status_page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, SUBSYSTEM_MAX = 16, SUBSYSTEM_BYTES = 16 };

static const char *const level_names[] = {"trace", "debug", "info", "warning", "error", "off"};
static const struct shoali_logger default_logger = {.level = SHOAL_LOG_INFO};

/* The logger that shoal_log_configure sets up for its thread. */
static _Thread_local struct shoali_logger thread_logger;

static bool parse_level(const char *word, size_t length, shoal_log_level *level)
{
    for (int i = 0; i <= SHOAL_LOG_OFF; i++) {
        if (strlen(level_names[i]) == length && memcmp(level_names[i], word, length) == 0) {
            *level = (shoal_log_level)i;
            return true;
        }
    }
    return false;
}

/* Applies one word of a spec: "level" or "subsystem=level". */
static shoal_status apply_word(struct shoali_logger *logger, const char *word, size_t length)
{
    const char *equal = memchr(word, '=', length);
    size_t name_length = equal ? (size_t)(equal - word) : 0;
    const char *level_word = equal ? equal + 1 : word;
    shoal_log_level level;
    if (!parse_level(level_word, (size_t)(word + length - level_word), &level))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "log level \"%.*s\" is not known: give one of trace, debug, info, "
                          "warning, error, off, alone or as subsystem=level",
                          (int)length, word);
    if (!equal) {
        logger->level = level;
        return SHOAL_OK;
    }
    if (name_length == 0 || name_length >= SUBSYSTEM_BYTES)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "log level \"%.*s\" names no subsystem: the name before '=' has 1 to %d "
                          "letters",
                          (int)length, word, SUBSYSTEM_BYTES - 1);
    if (logger->subsystem_count == SUBSYSTEM_MAX)
        return SHOAL_FAIL(SHOAL_ECONFIG, "log spec names more than %d subsystems at \"%.*s\"",
                          SUBSYSTEM_MAX, (int)length, word);
    char *name = logger->subsystem[logger->subsystem_count];
    memset(name, 0, SUBSYSTEM_BYTES);
    memcpy(name, word, name_length);
    logger->subsystem_level[logger->subsystem_count++] = level;
    return SHOAL_OK;
}

shoal_status shoali_logger_init(struct shoali_logger *logger, const char *spec)
{
    shoal_status status = SHOAL_OK;
    *logger = default_logger;
    if (!spec)
        spec = getenv("SHOAL_LOG");
    while (spec && *spec) {
        size_t length = strcspn(spec, ",");
        if (length > 0)
            SHOAL_TRY(status, apply_word(logger, spec, length), done);
        spec += length + (spec[length] == ',');
    }
done:
    return status;
}

shoal_status shoal_log_configure(const char *spec, shoal_log_sink sink, void *user)
{
    shoal_status status;
    struct shoali_logger logger;
    SHOAL_TRY(status, shoali_logger_init(&logger, spec), done);
    thread_logger = logger;
    thread_logger.sink = sink;
    thread_logger.sink_user = user;
    shoali_context_get()->logger = &thread_logger;
done:
    return status;
}

static const struct shoali_logger *current_logger(void)
{
    const struct shoali_logger *logger = shoali_context_get()->logger;
    return logger ? logger : &default_logger;
}

int shoali_log_enabled(shoal_log_level level, const char *subsystem)
{
    const struct shoali_logger *logger = current_logger();
    shoal_log_level least = logger->level;
    /* The last mention wins, as on a command line. */
    for (int32_t i = 0; i < logger->subsystem_count; i++)
        if (strcmp(logger->subsystem[i], subsystem) == 0)
            least = logger->subsystem_level[i];
    if (level < least)
        return false;
    /* On standard error N ranks would say the same thing N times. */
    return logger->sink || level != SHOAL_LOG_INFO || shoali_context_get()->rank == 0;
}

/* One write() per line, so that lines of several processes do not mix. */
static void write_stderr(shoal_log_level level, int rank, const char *text, size_t text_length)
{
    static const char *const marks[] = {"trace: ", "debug: ", "", "warning: ", "error: ", ""};
    char head[64];
    int head_length = snprintf(head, sizeof(head), "[shoal] rank %d: %s", rank, marks[level]);
    size_t length = (size_t)head_length + text_length + 1;
    char small[LINE_BYTES + 64];
    char *line = length <= sizeof(small) ? small : malloc(length);
    if (!line) {
        line = small;
        text_length = sizeof(small) - (size_t)head_length - 1;
        length = sizeof(small);
    }
    memcpy(line, head, (size_t)head_length);
    memcpy(line + head_length, text, text_length);
    line[length - 1] = '\n';
    for (size_t at = 0; at < length;) {
        ssize_t written = write(STDERR_FILENO, line + at, length - at);
        if (written < 0 && errno != EINTR)
            break; /* nobody is left to tell */
        at += written > 0 ? (size_t)written : 0;
    }
    if (line != small)
        free(line);
}

void shoali_log(shoal_log_level level, const char *subsystem, const char *format, ...)
{
    if (!shoali_log_enabled(level, subsystem))
        return;
    int saved_errno = errno;
    char small[LINE_BYTES];
    char *text = small;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int wanted = shoali_vsnprintf(small, sizeof(small), format, args);
    if (wanted >= (int)sizeof(small)) {
        char *large = malloc((size_t)wanted + 1);
        if (large) {
            shoali_vsnprintf(large, (size_t)wanted + 1, format, again);
            text = large;
        }
    }
    va_end(again);
    va_end(args);
    size_t length = wanted < 0 ? 0 : strlen(text);
    if (length > 0 && text[length - 1] == '\n')
        text[--length] = '\0';
    const struct shoali_logger *logger = current_logger();
    int rank = shoali_context_get()->rank;
    shoali_status_page_log(shoali_status_page_get(), text);
    if (logger->sink)
        logger->sink(logger->sink_user, level, subsystem, rank, text);
    else
        write_stderr(level, rank, text, length);
    if (text != small)
        free(text);
    errno = saved_errno;
}
