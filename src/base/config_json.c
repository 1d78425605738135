/* JSON texts with comments, and the lines of their keys.
 *
 * Values forget where they stood; a second, shallow scan of the same text notes the line of every
 * key. The scan never fails but for memory: on a text that is not JSON it notes what it takes for
 * keys, which is enough to name both places of a duplicate.
 */
#include "base/config_internal.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 2048, LINE_UNKNOWN = 0 };

/* A key of an object, or a container inside a list. */
struct entry {
    int32_t parent; /* entry, 0 is the root */
    int32_t line;
    int32_t list_index; /* position in a list, -1: a key */
    const char *key;    /* raw, in the text */
    int32_t key_length;
    bool is_list;       /* what its value is */
    int32_t list_count; /* elements seen */
};

struct shoali_json {
    char *text; /* comments blanked */
    char *file_name;
    json_t *root;
    struct shoali_json *origin; /* optional: the file that messages speak of */
    struct entry *entries;
    int32_t entry_count, entry_capacity;
    bool no_memory; /* for an entry */
};

/* Overwrites comments by spaces; strings are left alone. */
static shoal_status blank_comments(char *text, const char *file_name)
{
    int line = 1;
    for (char *at = text; *at; at++) {
        if (*at == '\n') {
            line++;
        } else if (*at == '"') {
            for (at++; *at && *at != '"' && *at != '\n'; at++)
                if (*at == '\\' && at[1])
                    at++;
            if (*at != '"')
                return SHOAL_OK; /* not JSON: the parser says it better */
        } else if (*at == '/' && at[1] == '/') {
            size_t length = strcspn(at, "\n");
            memset(at, ' ', length);
            at += length - 1;
        } else if (*at == '/' && at[1] == '*') {
            char *end = strstr(at + 2, "*/");
            if (!end)
                return SHOAL_FAIL(SHOAL_ECONFIG,
                                  "%s:%d: the comment that begins here has no end; add */",
                                  file_name, line);
            for (; at < end + 2; at++) {
                line += *at == '\n';
                if (*at != '\n')
                    *at = ' ';
            }
            at--;
        }
    }
    return SHOAL_OK;
}

/* Index of the new entry, -1 when memory is exhausted. */
static int32_t add_entry(struct shoali_json *document, struct entry entry)
{
    if (document->entry_count == document->entry_capacity) {
        int32_t capacity = document->entry_capacity ? 2 * document->entry_capacity : 64;
        const size_t bytes = (size_t)capacity * sizeof(*document->entries);
        struct entry *entries = shoali_fault("alloc") ? NULL : realloc(document->entries, bytes);
        document->no_memory = document->no_memory || !entries;
        if (!entries)
            return -1;
        document->entries = entries;
        document->entry_capacity = capacity;
    }
    document->entries[document->entry_count] = entry;
    return document->entry_count++;
}

/* The state of the scan: where it stands in the tree of containers. */
struct scan {
    struct shoali_json *document;
    int32_t container, depth; /* innermost open container; 0 is the pseudo-entry of the text */
    int32_t value_of;         /* the entry that the next value belongs to */
    int32_t line;
    bool key_next;
};

static bool open_container(struct scan *scan, bool is_list)
{
    struct entry *entries = scan->document->entries;
    int32_t self = scan->value_of;
    if (entries[scan->container].is_list && scan->depth > 0) {
        self = add_entry(scan->document,
                         (struct entry){.parent = scan->container,
                                        .line = scan->line,
                                        .list_index = entries[scan->container].list_count});
        if (self < 0)
            return false;
    }
    scan->document->entries[self].is_list = is_list;
    scan->container = self;
    scan->key_next = !is_list;
    return ++scan->depth <= DEPTH_MAX;
}

static bool close_container(struct scan *scan)
{
    if (scan->depth == 0)
        return false;
    scan->container = scan->document->entries[scan->container].parent;
    scan->key_next = false;
    scan->depth--;
    return true;
}

/* A string that begins at `at`; returns its closing quote, or NULL. */
static const char *scan_string(struct scan *scan, const char *at)
{
    const char *begin = at + 1;
    for (at = begin; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    if (*at != '"' || at - begin > INT32_MAX)
        return NULL;
    if (scan->key_next && scan->depth > 0) {
        scan->value_of =
            add_entry(scan->document, (struct entry){.parent = scan->container,
                                                     .line = scan->line,
                                                     .list_index = -1,
                                                     .key = begin,
                                                     .key_length = (int32_t)(at - begin)});
        scan->key_next = false;
        if (scan->value_of < 0)
            return NULL;
    }
    return at;
}

/* Notes the keys of the text, as far as it can be followed. */
static void scan_keys(struct shoali_json *document)
{
    struct scan scan = {.document = document, .line = 1};
    if (add_entry(document, (struct entry){.list_index = -1, .line = 1}) < 0)
        return;
    bool follows = true;
    for (const char *at = document->text; follows && *at; at++) {
        switch (*at) {
        case '\n':
            scan.line++;
            break;
        case '"':
            at = scan_string(&scan, at);
            if (!at)
                return;
            break;
        case '{':
        case '[':
            follows = open_container(&scan, *at == '[');
            break;
        case '}':
        case ']':
            follows = close_container(&scan);
            break;
        case ',':
            scan.key_next = !document->entries[scan.container].is_list;
            document->entries[scan.container].list_count++;
            break;
        default:
            break;
        }
    }
}

static void append_path(const struct shoali_json *document, int32_t index, struct shoali_str *out)
{
    const struct entry *entry = &document->entries[index];
    if (entry->parent != 0) {
        append_path(document, entry->parent, out);
        shoali_str_append(out, ".");
    }
    if (entry->list_index >= 0)
        shoali_str_append(out, "%d", (int)entry->list_index);
    else
        shoali_str_append_bytes(out, entry->key, (size_t)entry->key_length);
}

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    if (a->list_index != b->list_index)
        return a->list_index < b->list_index ? -1 : 1;
    if (a->key_length != b->key_length)
        return a->key_length < b->key_length ? -1 : 1;
    /* the text itself and containers in lists have no key */
    int order = a->key && b->key ? memcmp(a->key, b->key, (size_t)a->key_length) : 0;
    return order ? order : (a->key > b->key) - (a->key < b->key);
}

/* Names the first key that is given twice; `line` is what the parser says of the second place. */
static shoal_status fail_duplicate(struct shoali_json *document, int line)
{
    struct entry *entries = document->entries;
    int32_t first = -1, second = -1, count = document->entry_count;
    struct entry *sorted = shoali_malloc((size_t)count * sizeof(*sorted) + 1, "keys");
    if (!sorted)
        return SHOAL_ENOMEM;
    if (count > 0)
        memcpy(sorted, entries, (size_t)count * sizeof(*sorted));
    qsort(sorted, (size_t)count, sizeof(*sorted), compare_entries);
    for (int32_t i = 2; i < count; i++) {
        const struct entry *a = &sorted[i - 1], *b = &sorted[i];
        bool same = a->parent == b->parent && a->key && b->key && a->key_length == b->key_length &&
                    memcmp(a->key, b->key, (size_t)a->key_length) == 0;
        if (same && (second < 0 || b->key < sorted[second].key)) {
            first = i - 1;
            second = i;
        }
    }
    shoal_status status;
    if (second < 0) {
        /* The two spellings differ by an escape. */
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s:%d: a key is given twice; remove one",
                            document->file_name, line);
    } else {
        struct shoali_str path = {0};
        struct entry *parent = &entries[sorted[second].parent];
        if (parent != entries) {
            append_path(document, sorted[second].parent, &path);
            shoali_str_append(&path, ".");
        }
        shoali_str_append_bytes(&path, sorted[second].key, (size_t)sorted[second].key_length);
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "%s:%d: %s: given twice, first on line %d; remove one of the two",
                            document->file_name, (int)sorted[second].line, shoali_str_get(&path),
                            (int)sorted[first].line);
        shoali_str_fini(&path);
    }
    shoali_free(sorted);
    return status;
}

static shoal_status parse_text(struct shoali_json *document, size_t bytes)
{
    struct shoali_json_error error;
    const shoal_status status = shoali_json_read(document->text, bytes, &document->root, &error);
    if (status == SHOAL_ENOMEM)
        return status;
    scan_keys(document);
    if (document->no_memory)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the keys of a JSON text");
    if (json_is_object(document->root))
        return SHOAL_OK;
    if (document->root)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s: the text is not a JSON object: begin it with {",
                          document->file_name);
    if (error.duplicate)
        return fail_duplicate(document, error.line);
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s:%d: not valid JSON at column %d: %s", document->file_name,
                      (int)error.line, (int)error.column, error.text);
}

shoal_status shoali_json_parse(const char *text, size_t bytes, const char *file_name,
                               struct shoali_json **document_out)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_json *document = shoali_calloc(1, sizeof(*document), "a JSON document");
    if (!document)
        goto done;
    size_t name_bytes = strlen(file_name) + 1;
    document->text = shoali_malloc(bytes + 1, "a JSON text");
    document->file_name = shoali_malloc(name_bytes, "a file name");
    if (!document->text || !document->file_name)
        goto done;
    if (bytes > 0)
        memcpy(document->text, text, bytes);
    document->text[bytes] = '\0';
    memcpy(document->file_name, file_name, name_bytes);
    memset(document->text, ' ', shoali_bom_bytes(text, bytes));
    SHOAL_TRY(status, blank_comments(document->text, file_name), done);
    SHOAL_TRY(status, parse_text(document, bytes), done);
    *document_out = document;
    document = NULL;
done:
    shoali_json_close(document);
    return status;
}

shoal_status shoali_json_load(const char *path, struct shoali_json **document)
{
    shoal_status status;
    char *text = NULL;
    size_t bytes;
    SHOAL_TRY(status, shoali_read_text(path, &text, &bytes), done);
    SHOAL_TRY(status, shoali_json_parse(text, bytes, path, document), done);
done:
    free(text);
    return status;
}

void shoali_json_close(struct shoali_json *document)
{
    if (!document)
        return;
    shoali_json_close(document->origin);
    json_decref(document->root);
    free(document->entries);
    shoali_free(document->text);
    shoali_free(document->file_name);
    shoali_free(document);
}

json_t *shoali_json_root(struct shoali_json *document)
{
    return document->root;
}

/* The length of the entry's name if `path` begins with it, else -1. */
static int32_t match(const struct entry *entry, const char *path)
{
    if (entry->list_index < 0) {
        bool same = strncmp(path, entry->key, (size_t)entry->key_length) == 0;
        return same ? entry->key_length : -1;
    }
    char number[16];
    int length = snprintf(number, sizeof(number), "%d", (int)entry->list_index);
    return strncmp(path, number, (size_t)length) == 0 ? length : -1;
}

/* Keys may hold dots themselves, so every child that fits is tried. */
static int32_t find_line(const struct shoali_json *document, int32_t parent, const char *path)
{
    for (int32_t i = 1; i < document->entry_count; i++) {
        const struct entry *entry = &document->entries[i];
        int32_t length = entry->parent == parent ? match(entry, path) : -1;
        if (length < 0)
            continue;
        int32_t line = LINE_UNKNOWN;
        if (path[length] == '\0')
            line = entry->line;
        else if (path[length] == '.')
            line = find_line(document, i, path + length + 1);
        if (line != LINE_UNKNOWN)
            return line;
    }
    return LINE_UNKNOWN;
}

int32_t shoali_json_line(const struct shoali_json *document, const char *path)
{
    return find_line(document->origin ? document->origin : document, 0, path);
}

void shoali_json_set_origin(struct shoali_json *document, struct shoali_json *original)
{
    shoali_json_close(document->origin);
    document->origin = original;
}

shoal_status shoali_json_locate(const struct shoali_json *document, const char *path,
                                shoal_status status)
{
    const char *file = document->origin ? document->origin->file_name : document->file_name;
    int32_t line = *path ? shoali_json_line(document, path) : 1;
    if (line > 0)
        return shoali_error_prefix(status, "%s:%d", file, (int)line);
    if (document->origin && find_line(document, 0, path) > 0)
        return shoali_error_prefix(status, "the command line");
    return shoali_error_prefix(status, "%s", file);
}

shoal_status shoali_json_load_object(const char *dir, const char *name, json_t **object)
{
    shoal_status status;
    struct shoali_str path = {0};
    struct shoali_json *document = NULL;
    struct stat info;
    *object = NULL;
    shoali_str_append(&path, "%s/%s", dir, name);
    if (path.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
        goto done;
    }
    status = SHOAL_OK;
    if (stat(path.text, &info) != 0 && errno == ENOENT)
        goto done;
    SHOAL_TRY(status, shoali_json_load(path.text, &document), done);
    *object = json_incref(shoali_json_root(document));
done:
    shoali_json_close(document);
    shoali_str_fini(&path);
    return status;
}
