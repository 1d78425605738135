/* json - JSON texts to jansson's values and back, so that no failure passes unseen.
 *
 * All of the project's JSON goes through these calls; jansson's own json_load* and json_dump*
 * are not used (scripts/check-layers sees to it).
 *
 * Reading: jansson's reader ignores an allocation that fails inside a token, so that characters of
 * a string get lost or an assertion ends the process. Watching it from its allocation functions
 * would not do: they are the whole process's, of which Shoal may be a small part, and the
 * assertions come first. Values are therefore built here, with calls that all report failure.
 *
 * Writing: the text is collected in memory of our own, so that free() is right for it also where
 * the program has given jansson other allocation functions.
 *
 * Building: every json_*_set_new, json_*_append_new of jansson releases what it was given and says
 * -1 when the value or the room for it could not be made. Callers collect that:
 *     failed |= json_object_set_new(object, "step", json_integer(step));
 */
#ifndef SHOALI_JSON_H
#define SHOALI_JSON_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct json_t;

/* Where and why a text is not JSON. */
struct shoali_json_error {
    int32_t line, column; /* from 1; column: in bytes */
    bool duplicate;       /* a key is given twice in one object */
    char text[128];       /* what was expected and what stands there */
};
/* Reads a whole text of any JSON value (RFC 8259): UTF-8, at most 2048 levels, no key twice in an
 * object, no character U+0000. An integer beyond 64 bits becomes a real. A number beyond a double,
 * and Python's NaN, Infinity and -Infinity, become strings of their text: a key that needs a number
 * then refuses them, and a key that nothing reads does not matter. *value is owned (json_decref),
 * NULL on an error. SHOAL_ECORRUPT: "line 3, column 7: ..."; error may be NULL. SHOAL_ENOMEM. */
SHOAL_CHECKED shoal_status shoali_json_read(const char *text, size_t bytes, struct json_t **value,
                                            struct shoali_json_error *error);
/* Writes a value with jansson's flags (JSON_COMPACT, ...; any kind of value); *text is owned
 * (free()). SHOAL_ENOMEM says "cannot allocate the text of WHAT", also for a value that is NULL
 * because it could not be made. */
SHOAL_CHECKED shoal_status shoali_json_write(const struct json_t *value, size_t flags,
                                             const char *what, char **text);
/* Is the text JSON lines, by its first line that is not blank? A line whose end is not in `text`
 * counts by its beginning, {"KEY":. No value is made, nothing fails. */
bool shoali_json_is_lines(const char *text, size_t bytes);

#endif
