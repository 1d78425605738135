/* Whether a text is JSON lines, whatever its file is called. */
#include "base/json.h"

#include <string.h>

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* Behind a string's closing quote; NULL: there is no string. */
static const char *skip_string(const char *at, const char *end)
{
    if (at == end || *at++ != '"')
        return NULL;
    for (; at < end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\' && ++at == end)
            return NULL;
    }
    return NULL;
}

/* {} or {"KEY":, the beginning of an object. */
static bool begins_object(const char *at, const char *end)
{
    if (at == end || *at != '{')
        return false;
    at = skip_blanks(at + 1, end);
    if (at < end && *at == '}')
        return true;
    at = skip_string(at, end);
    at = at ? skip_blanks(at, end) : end;
    return at < end && *at == ':';
}

bool shoali_json_is_lines(const char *text, size_t bytes)
{
    static const char mark[] = "\xef\xbb\xbf";
    const char *at = text, *end = text + bytes;
    if (bytes >= 3 && memcmp(at, mark, 3) == 0)
        at += 3;
    while (at < end && (*at == '\n' || *at == '\r' || *at == ' ' || *at == '\t'))
        at++;
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    const char *last = newline ? newline : end;
    while (newline && last > at && (last[-1] == ' ' || last[-1] == '\t' || last[-1] == '\r'))
        last--;
    return begins_object(at, last) && (!newline || last[-1] == '}');
}
