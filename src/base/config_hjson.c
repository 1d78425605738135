/* Configuration files in Hjson, which DeepSpeed takes, written anew as JSON.
 *
 * Accepted beside JSON:
 *   comments that begin with #
 *   a comma after the last member, or none between members
 *   keys without quotes
 *   texts in single quotes, and texts without quotes, which end with the line
 * Not accepted: a file without outer braces, and texts of several lines.
 * Line ends stay where they are, so that errors name the line of the file.
 */
#include "base/config_internal.h"

#include "base/plain.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

struct hjson {
    const char *at;
    struct shoali_str *out;
    int depth;
};

/* Skips white space and comments but keeps line ends; false if a comment has no end. */
static bool skip_space(struct hjson *text)
{
    for (;;) {
        const char *end = text->at;
        if (*end == '#' || (end[0] == '/' && end[1] == '/'))
            end += strcspn(end, "\n");
        else if (end[0] == '/' && end[1] == '*')
            end = strstr(end + 2, "*/") ? strstr(end + 2, "*/") + 2 : NULL;
        else
            end += strspn(end, " \t\r\n");
        if (!end)
            return false;
        if (end == text->at)
            return true;
        for (; text->at < end; text->at++)
            shoali_str_append_bytes(text->out, *text->at == '\n' ? "\n" : " ", 1);
    }
}

/* Appends a text that stands without quotes as a JSON string. */
static void append_quoted(struct hjson *text, const char *begin, size_t length)
{
    shoali_str_append_bytes(text->out, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        if (begin[i] == '"' || begin[i] == '\\')
            shoali_str_append_bytes(text->out, "\\", 1);
        shoali_str_append_bytes(text->out, begin[i] == '\t' ? "\\t" : begin + i,
                                begin[i] == '\t' ? 2 : 1);
    }
    shoali_str_append_bytes(text->out, "\"", 1);
}

/* A string in double or single quotes. */
static bool read_string(struct hjson *text)
{
    const char quote = *text->at++;
    if (quote == '\'' && strncmp(text->at, "''", 2) == 0)
        return false;
    shoali_str_append_bytes(text->out, "\"", 1);
    for (; *text->at != quote; text->at++) {
        if (*text->at == '\\' && text->at[1] == '\'')
            text->at++;
        else if (*text->at == '\\')
            shoali_str_append_bytes(text->out, text->at++, 1);
        else if (*text->at == '"')
            shoali_str_append_bytes(text->out, "\\", 1);
        if (*text->at == '\0' || *text->at == '\n')
            return false;
        shoali_str_append_bytes(text->out, text->at, 1);
    }
    shoali_str_append_bytes(text->out, "\"", 1);
    text->at++;
    return true;
}

static bool skip_digits(const char **at)
{
    const size_t digits = strspn(*at, "0123456789");
    *at += digits;
    return digits > 0;
}

static bool is_number(const char *at, const char *end)
{
    at += *at == '-';
    if (*at == '0' && at[1] >= '0' && at[1] <= '9')
        return false;
    if (!skip_digits(&at))
        return false;
    if (*at == '.') {
        at++;
        if (!skip_digits(&at))
            return false;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        if (!skip_digits(&at))
            return false;
    }
    return at == end;
}

/* A number, true, false or null, which JSON writes in the same way. */
static bool is_plain(const char *begin, size_t length)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == length && memcmp(words[i], begin, length) == 0)
            return true;
    return is_number(begin, begin + length);
}

/* A value without quotes: plain up to the next mark, or else the text up to the end of the line. A
 * comma at its end would belong to the text, which nobody means. */
static bool read_bare(struct hjson *text)
{
    const char *begin = text->at;
    for (;; text->at += *text->at == '/' || strchr(",}]#", *text->at) != NULL) {
        text->at += strcspn(text->at, ",}]#/\r\n");
        const char *end = text->at;
        while (end > begin && shoali_ascii_space(end[-1]))
            end--;
        const size_t length = (size_t)(end - begin);
        if (is_plain(begin, length)) {
            shoali_str_append_bytes(text->out, begin, length);
            return true;
        }
        if (*text->at != '\0' && *text->at != '\r' && *text->at != '\n')
            continue;
        if (length == 0 || end[-1] == ',')
            return false;
        append_quoted(text, begin, length);
        return true;
    }
}

/* A key and its colon. */
static bool read_key(struct hjson *text)
{
    if (*text->at == '"' || *text->at == '\'') {
        if (!read_string(text))
            return false;
    } else {
        const size_t length = strcspn(text->at, ":,{}[]\"' \t\r\n");
        if (length == 0)
            return false;
        append_quoted(text, text->at, length);
        text->at += length;
    }
    if (!skip_space(text) || *text->at != ':')
        return false;
    shoali_str_append_bytes(text->out, text->at++, 1);
    return skip_space(text);
}

static bool read_container(struct hjson *text);

static bool read_value(struct hjson *text)
{
    switch (*text->at) {
    case '{':
    case '[':
        return read_container(text);
    case '"':
    case '\'':
        return read_string(text);
    case '}':
    case ']':
    case ',':
    case ':':
        return false;
    default:
        return read_bare(text);
    }
}

/* An object or a list. */
static bool read_container(struct hjson *text)
{
    const char *close = *text->at == '{' ? "}" : "]";
    if (text->depth++ == DEPTH_MAX)
        return false;
    shoali_str_append_bytes(text->out, text->at++, 1);
    for (bool first = true; skip_space(text); first = false) {
        if (*text->at == *close) {
            shoali_str_append_bytes(text->out, text->at++, 1);
            text->depth--;
            return true;
        }
        if (!first)
            shoali_str_append_bytes(text->out, ",", 1);
        if (*close == '}' && !read_key(text))
            return false;
        if (!read_value(text) || !skip_space(text))
            return false;
        text->at += *text->at == ',';
    }
    return false;
}

/* Whether the text is Hjson; *out becomes JSON. */
static bool convert(const char *at, struct shoali_str *out)
{
    struct hjson text = {.at = at, .out = out};
    return skip_space(&text) && *text.at == '{' && read_container(&text) && skip_space(&text) &&
           *text.at == '\0';
}

shoal_status shoali_json_load_config(const char *path, struct shoali_json **document)
{
    shoal_status status;
    struct shoali_str json = {0};
    char *text = NULL;
    size_t bytes;
    SHOAL_TRY(status, shoali_read_text(path, &text, &bytes), done);
    status = shoali_json_parse(text, bytes, path, document);
    /* the sentence about a text that is no JSON stays if the text is no Hjson either */
    if (status != SHOAL_ECONFIG || !convert(text + shoali_bom_bytes(text, bytes), &json))
        goto done;
    shoali_error_clear();
    status = json.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a JSON text")
                         : shoali_json_parse(json.text, json.length, path, document);
done:
    shoali_str_fini(&json);
    free(text);
    return status;
}
