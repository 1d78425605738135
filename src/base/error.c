/* The last error is a fixed buffer per thread: reporting that memory ran out must not need
 * memory. */
#include "base/error.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 2048, FRAMES_BYTES = 4096 };

struct last_error {
    char message[MESSAGE_BYTES];
    char frames[FRAMES_BYTES];
    size_t frames_length;
    char trace[MESSAGE_BYTES + FRAMES_BYTES + 1]; /* made when asked for */
};

static _Thread_local struct last_error last;
static _Thread_local struct shoali_context context = {
    .rank = 0, .world = 1, .step = -1, .scope = "", .micro = -1};

struct shoali_context *shoali_context_get(void)
{
    return &context;
}

/* Cuts the build machine's folders off __FILE__: "/any/where/src/base/str.c:3" ->
 * "src/base/str.c:3". */
static const char *short_place(const char *here)
{
    const char *place = here;
    for (const char *at = strstr(here, "/src/"); at; at = strstr(at + 1, "/src/"))
        place = at + 1;
    return place;
}

const char *shoali_here_end(const char *here, size_t bytes)
{
    const char *place = short_place(here);
    const size_t length = strlen(place);
    if (length < bytes)
        return place;
    const char *end = place + length - bytes + 1;
    const char *slash = end > place ? memchr(end - 1, '/', strcspn(end - 1, ": ")) : NULL;
    return slash ? slash + 1 : end;
}

static void add_frame(const char *here, const char *call)
{
    size_t room = FRAMES_BYTES - last.frames_length;
    int length = snprintf(last.frames + last.frames_length, room, "\n  at %s%s%s",
                          short_place(here), *call ? " " : "", call);
    if (length < 0 || (size_t)length >= room) {
        /* Full: the innermost frames, already there, matter most. */
        last.frames[last.frames_length] = '\0';
        return;
    }
    last.frames_length += (size_t)length;
}

shoal_status shoali_fail(const char *here, shoal_status code, const char *format, ...)
{
    /* Formatted aside because an argument may be the last error's own text. */
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    shoali_vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    memcpy(last.message, message, sizeof(message));
    last.frames[0] = '\0';
    last.frames_length = 0;
    add_frame(here, "");
    return code;
}

void shoali_error_frame(const char *here, const char *call)
{
    add_frame(here, call);
}

shoal_status shoali_error_prefix(shoal_status code, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int length = shoali_vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (length < 0 || (size_t)length + 2 >= sizeof(message))
        return code; /* no room for the sentence itself, which matters more */
    size_t at = (size_t)length;
    message[at++] = ':';
    message[at++] = ' ';
    size_t rest = sizeof(message) - 1 - at;
    size_t old = strlen(last.message);
    memcpy(message + at, last.message, old < rest ? old : rest);
    message[at + (old < rest ? old : rest)] = '\0';
    memcpy(last.message, message, sizeof(message));
    return code;
}

void shoali_error_clear(void)
{
    last.message[0] = '\0';
    last.frames[0] = '\0';
    last.frames_length = 0;
}

void shoali_assert_failed(const char *here, const char *condition)
{
    fprintf(stderr, "[shoal] rank %d: bug in Shoal: %s: assertion failed: %s\n", (int)context.rank,
            short_place(here), condition);
    abort();
}

const char *shoal_error_message(void)
{
    return last.message;
}

const char *shoal_error_trace(void)
{
    snprintf(last.trace, sizeof(last.trace), "%s%s", last.message, last.frames);
    return last.trace;
}

const char *shoal_status_name(shoal_status status)
{
    switch (status) {
    case SHOAL_OK:
        return "SHOAL_OK";
    case SHOAL_IN_PROGRESS:
        return "SHOAL_IN_PROGRESS";
    case SHOAL_END:
        return "SHOAL_END";
    case SHOAL_SKIPPED:
        return "SHOAL_SKIPPED";
    case SHOAL_EINVAL:
        return "SHOAL_EINVAL";
    case SHOAL_ECONFIG:
        return "SHOAL_ECONFIG";
    case SHOAL_EUNSUPPORTED:
        return "SHOAL_EUNSUPPORTED";
    case SHOAL_EIO:
        return "SHOAL_EIO";
    case SHOAL_ENOMEM:
        return "SHOAL_ENOMEM";
    case SHOAL_EPEER:
        return "SHOAL_EPEER";
    case SHOAL_ETIMEOUT:
        return "SHOAL_ETIMEOUT";
    case SHOAL_EMISMATCH:
        return "SHOAL_EMISMATCH";
    case SHOAL_ENUMERIC:
        return "SHOAL_ENUMERIC";
    case SHOAL_ECORRUPT:
        return "SHOAL_ECORRUPT";
    case SHOAL_EINTERRUPTED:
        return "SHOAL_EINTERRUPTED";
    case SHOAL_EINTERNAL:
        return "SHOAL_EINTERNAL";
    case SHOAL_ENOENT:
        return "SHOAL_ENOENT";
    case SHOAL_EEXIST:
        return "SHOAL_EEXIST";
    }
    return "unknown status";
}

int shoal_status_exit_code(shoal_status status)
{
    if (status >= 0)
        return 0;
    bool users_mistake = status == SHOAL_EINVAL || status == SHOAL_ECONFIG ||
                         status == SHOAL_EUNSUPPORTED || status == SHOAL_ENOENT ||
                         status == SHOAL_EEXIST;
    return users_mistake ? 2 : 1;
}
