#include "base/fault.h"

#include "base/error.h"
#include "base/log.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINT_COUNT_MAX = 16, NAME_BYTES = 48, EXIT_CODE = 7 };

enum action { ACTION_ERROR, ACTION_KILL, ACTION_STOP, ACTION_EXIT };

struct point {
    char name[NAME_BYTES];
    int64_t passes_left; /* passes that still do nothing; -1: has fired */
    int64_t rank;        /* -1: every rank */
    enum action action;
};

/* UNREAD: the environment was not looked at yet. */
enum armed_state { UNREAD, UNARMED, ARMED };

static _Thread_local enum armed_state state;
static _Thread_local struct point points[POINT_COUNT_MAX];
static _Thread_local int32_t point_count;

/* Reads a decimal number at *cursor and moves behind it. */
static bool take_number(const char **cursor, int64_t *value)
{
    if (**cursor < '0' || **cursor > '9')
        return false;
    int64_t number = 0;
    for (; **cursor >= '0' && **cursor <= '9'; ++*cursor)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, **cursor - '0', &number))
            return false;
    *value = number;
    return true;
}

static bool take_action(const char **cursor, enum action *action)
{
    static const char *const names[] = {"error", "kill", "stop", "exit"};
    size_t length = strcspn(*cursor, ",");
    for (int i = 0; i < 4; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], *cursor, length) == 0) {
            *action = (enum action)i;
            *cursor += length;
            return true;
        }
    }
    return false;
}

/* One "name[:skip][@rank][=action]" at *cursor; moves to the ',' or end behind it. */
static bool take_point(const char **cursor, struct point *point)
{
    size_t length = strcspn(*cursor, ":@=,");
    if (length == 0 || length >= NAME_BYTES)
        return false;
    *point = (struct point){.rank = -1, .action = ACTION_ERROR};
    memcpy(point->name, *cursor, length);
    *cursor += length;
    if (**cursor == ':' && (++*cursor, !take_number(cursor, &point->passes_left)))
        return false;
    if (**cursor == '@' && (++*cursor, !take_number(cursor, &point->rank)))
        return false;
    if (**cursor == '=' && (++*cursor, !take_action(cursor, &point->action)))
        return false;
    return **cursor == ',' || **cursor == '\0';
}

bool shoali_fault_arm(const char *spec)
{
    state = UNARMED;
    point_count = 0;
    for (const char *cursor = spec ? spec : ""; *cursor;) {
        if (point_count == POINT_COUNT_MAX || !take_point(&cursor, &points[point_count])) {
            point_count = 0;
            return false;
        }
        point_count++;
        if (*cursor == ',')
            cursor++;
    }
    if (point_count > 0)
        state = ARMED;
    return true;
}

int64_t shoali_fault_left(void)
{
    return point_count > 0 ? points[0].passes_left : -1;
}

/* Does what the point says; returns only for ACTION_ERROR. */
static bool fire(const struct point *point)
{
    switch (point->action) {
    case ACTION_KILL:
        raise(SIGKILL);
        break;
    case ACTION_STOP:
        for (;;)
            pause();
    case ACTION_EXIT:
        _exit(EXIT_CODE);
    case ACTION_ERROR:
        break;
    }
    return true;
}

static bool pass(const char *name)
{
    if (state == UNREAD) {
        const char *spec = getenv("SHOAL_FAULT");
        if (!shoali_fault_arm(spec))
            SHOALI_WARN("base",
                        "SHOAL_FAULT=\"%s\" is ignored: it must be a list of "
                        "name[:skip][@rank][=error|kill|stop|exit], at most %d points",
                        spec, POINT_COUNT_MAX);
    }
    bool fails = false;
    for (int32_t i = 0; i < point_count; i++) {
        struct point *point = &points[i];
        bool here = point->rank < 0 || point->rank == shoali_context_get()->rank;
        if (!here || point->passes_left < 0 || strcmp(point->name, name) != 0)
            continue;
        if (point->passes_left-- == 0)
            fails |= fire(point);
    }
    return fails;
}

bool shoali_fault(const char *name)
{
    return state != UNARMED && pass(name);
}
