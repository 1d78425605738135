/* A section read from a JSON document. */
#include "base/config_internal.h"

#include "base/log.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS_LISTED = 24 };

struct reader {
    struct shoali_json *document;
    struct shoali_arena *arena;
};

static shoal_status read_object(const struct reader *reader, const struct shoali_section *section,
                                json_t *object, const char *path, void *config);

static const char *nearest_key(const struct shoali_section *section, const char *key)
{
    const char *candidates[2 * 64 * SHOALI_GIVEN_WORDS];
    size_t count = 0;
    for (int32_t i = 0; i < section->row_count && i < 64 * SHOALI_GIVEN_WORDS; i++) {
        const struct shoali_option *row = &section->rows[i];
        if (row->state == SHOALI_DEAD || row->state == SHOALI_RENAMED)
            continue;
        candidates[count++] = row->key;
        if (row->alias)
            candidates[count++] = row->alias;
    }
    return shoali_nearest(key, candidates, count);
}

static void list_keys(const struct shoali_section *section, struct shoali_str *keys)
{
    int32_t count = 0;
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        if (row->state != SHOALI_SUPPORTED || row->flags & SHOALI_OPTION_HIDDEN)
            continue;
        if (count++ < KEYS_LISTED)
            shoali_str_append(keys, "%s%s", count > 1 ? ", " : "", row->key);
    }
    if (count > KEYS_LISTED)
        shoali_str_append(keys, " and %d more", (int)(count - KEYS_LISTED));
}

static shoal_status fail_unknown(const struct reader *reader, const struct shoali_section *section,
                                 const char *key, const char *path)
{
    const char *nearest = nearest_key(section, key);
    struct shoali_str keys = {0};
    if (!nearest)
        list_keys(section, &keys);
    shoal_status status =
        nearest ? SHOAL_FAIL(SHOAL_ECONFIG, "%s: unknown key; nearest key is `%s`", path, nearest)
        : keys.length
            ? SHOAL_FAIL(SHOAL_ECONFIG, "%s: unknown key; the keys of this section are %s", path,
                         shoali_str_get(&keys))
            : SHOAL_FAIL(SHOAL_ECONFIG,
                         "%s: unknown key, and no key of this section has an effect; "
                         "remove it",
                         path);
    shoali_str_fini(&keys);
    return shoali_json_locate(reader->document, path, status);
}

static bool has_choice(const struct shoali_option *row, const char *text)
{
    for (int32_t i = 0; row->type == SHOALI_ENUM && row->choices[i]; i++)
        if (strcmp(row->choices[i], text) == 0)
            return true;
    return false;
}

/* "auto" that is no value of the row's own. */
static bool is_auto(const struct shoali_option *row, const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strcmp(text, "auto") == 0 && row->type != SHOALI_JSON && !has_choice(row, text);
}

/* null leaves the default, and so does "auto". */
static bool leaves_default(const struct shoali_option *row, json_t *value)
{
    return row->state != SHOALI_DEAD && (json_is_null(value) || is_auto(row, value));
}

static bool is_number(const struct shoali_option *row)
{
    return row->type == SHOALI_INT || row->type == SHOALI_FLOAT;
}

/* Whether the row is a number that may have this value. */
static bool takes_number(const struct shoali_option *row, double value)
{
    const bool unbounded = row->min == 0.0 && row->max == 0.0;
    return is_number(row) && (unbounded || (row->min <= value && row->max >= value));
}

/* A boolean where a number or an object is asked for: a new 0 or 1, as Python counts them, or null
 * as if false were not given; NULL without memory. */
static json_t *read_bool(const struct shoali_option *row, const json_t *value, const char *path)
{
    const int on = json_is_true(value);
    if (takes_number(row, on)) {
        SHOALI_WARN_FIRST("config", "%s is %s: it is taken as %d", path, on ? "true" : "false", on);
        return json_integer(on);
    }
    SHOALI_WARN_FIRST("config", "%s is false: it is left out", path);
    return json_null();
}

/* Whether read_bool is for the value: any false, and a true that means 1 whether it is read as a
 * number or as "on", which is the default. */
static bool is_bool(const struct shoali_option *row, const json_t *value)
{
    const bool section = row->type == SHOALI_SECTION && row->section && !row->section->bare_key;
    if (row->state != SHOALI_SUPPORTED || !json_is_boolean(value))
        return false;
    return json_is_true(value) ? row->default_number == 1 && takes_number(row, 1)
                               : section || is_number(row) || row->type == SHOALI_JSON;
}

/* Reads the value of one key; *given is false when it leaves the default. */
static shoal_status read_value(const struct reader *reader, const struct shoali_option *row,
                               json_t *value, const char *path, void *config, bool *given)
{
    *given = !leaves_default(row, value);
    if (row->type == SHOALI_SECTION && row->state == SHOALI_SUPPORTED) {
        void *member = (char *)config + row->offset; /* variables may set what the file does not */
        return read_object(reader, row->section, *given ? value : NULL, path, member);
    }
    if (!*given) {
        struct shoali_option as_auto = *row;
        as_auto.default_number = row->auto_number;
        return row->auto_help && is_auto(row, value)
                   ? shoali_config_store_default(&as_auto, (char *)config + row->offset,
                                                 reader->arena)
                   : SHOAL_OK;
    }
    struct shoali_config_input input = {.json = value};
    shoal_status status = shoali_config_take(row, path, &input, config, reader->arena);
    return status < 0 ? shoali_json_locate(reader->document, path, status) : status;
}

/* The key of `row` by which the object gives it, when it is not `key`: a key and its alias. */
static const char *other_spelling(const struct shoali_option *row, json_t *object, const char *key)
{
    const char *other = strcmp(key, row->key) == 0 ? row->alias : row->key;
    return other && json_object_get(object, other) ? other : NULL;
}

static const char *join(const struct reader *reader, const char *path, const char *key)
{
    return shoali_arena_printf(reader->arena, "%s%s%s", path, *path ? "." : "", key);
}

/* JSON has no comments: people write them as keys. */
static bool is_note(const char *key)
{
    return key[0] == '_' || key[0] == '#' || strncmp(key, "//", 2) == 0 ||
           strcmp(key, "comment") == 0;
}

/* An unknown key that asks for nothing: a note, or what is off and no misspelling. */
static bool is_idle(const struct shoali_section *section, const json_t *object, const char *key,
                    const char *path)
{
    const bool note = is_note(key);
    if (!note && (!shoali_config_is_off(json_object_get(object, key)) || nearest_key(section, key)))
        return false;
    if (!note)
        SHOALI_INFO("config", "%s is ignored: no such key is known, and it is off", path);
    return true;
}

/* The row whose member a key fills: of an older name that of the key in use, which may stand beside
 * it with the same value. */
static shoal_status find_member(const struct reader *reader, const struct shoali_section *section,
                                json_t *object, const char *key, const char *path, int32_t *index)
{
    const struct shoali_option *row = &section->rows[*index];
    if (row->state != SHOALI_RENAMED || !row->instead)
        return SHOAL_OK;
    *index = shoali_config_find(section, row->instead, NULL);
    SHOAL_ASSERT(*index >= 0);
    const json_t *modern = json_object_get(object, row->instead);
    if (!modern || json_is_null(modern) || json_equal(modern, json_object_get(object, key)))
        return SHOAL_OK;
    return shoali_json_locate(
        reader->document, path,
        SHOAL_FAIL(SHOAL_ECONFIG, "%s: is an old name of `%s`, which has another value; remove %s",
                   path, row->instead, key));
}

/* A number outside its range in a section that says `"enabled": false`: templates write 0 for what
 * they do not use. */
static bool is_idle_number(const struct shoali_section *section, const json_t *object,
                           const struct shoali_option *row, const json_t *value)
{
    return row->state == SHOALI_SUPPORTED && shoali_config_find(section, "enabled", NULL) >= 0 &&
           json_is_false(json_object_get(object, "enabled")) && is_number(row) &&
           json_is_number(value) && !takes_number(row, json_number_value(value));
}

static shoal_status read_key(const struct reader *reader, const struct shoali_section *section,
                             json_t *object, const char *path, const char *key, void *config)
{
    shoal_status status;
    const char *key_path = join(reader, path, key);
    int32_t index = shoali_config_find(section, key, NULL);
    if (!key_path)
        return SHOAL_ENOMEM;
    if (index < 0 && is_idle(section, object, key, key_path))
        return SHOAL_OK;
    if (index < 0)
        return fail_unknown(reader, section, key, key_path);
    const struct shoali_option *row = &section->rows[index];
    const char *other = other_spelling(row, object, key);
    if (other) {
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "%s: means the same as `%s`, which is given too; "
                            "remove one of the two",
                            key_path, other);
        return shoali_json_locate(reader->document, key_path, status);
    }
    bool given;
    json_t *value = json_incref(json_object_get(object, key));
    if (is_idle_number(section, object, row, value)) {
        SHOALI_INFO("config", "%s is ignored: it is out of range, and its section is off",
                    key_path);
        json_decref(value);
        value = json_null();
    }
    if (is_bool(row, value)) { /* a singleton, which needs no release */
        value = read_bool(row, value, key_path);
        if (!value)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the value of %s", key_path);
    }
    SHOAL_TRY(status, find_member(reader, section, object, key, key_path, &index), done);
    SHOAL_TRY(status, read_value(reader, row, value, key_path, config, &given), done);
    if (given)
        shoali_config_mark(section, config, index);
done:
    json_decref(value);
    return status;
}

static shoal_status check_required(const struct reader *reader,
                                   const struct shoali_section *section, json_t *object,
                                   const char *path)
{
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        json_t *value = json_object_get(object, row->key);
        if (!value && row->alias)
            value = json_object_get(object, row->alias);
        /* "auto" and null ask for a default, which only some required rows have */
        const bool has_default =
            row->default_text || (row->auto_help && value && is_auto(row, value));
        const bool empty = value && leaves_default(row, value) && !has_default;
        if (!(row->flags & SHOALI_OPTION_REQUIRED) || (value && !empty) ||
            shoali_config_env_text(row))
            continue;
        const char *key_path = join(reader, path, row->key);
        shoal_status status =
            SHOAL_FAIL(SHOAL_ECONFIG, "%s: must be given%s: %s", key_path ? key_path : row->key,
                       !empty                ? ""
                       : json_is_null(value) ? ", null is no value of it"
                                             : ", \"auto\" has no meaning here",
                       row->help);
        return shoali_json_locate(reader->document, path, status);
    }
    return SHOAL_OK;
}

/* `true` or `false` in place of a section, as in DeepSpeed's first versions. */
static shoal_status read_bare(const struct reader *reader, const struct shoali_section *section,
                              const json_t *value, const char *path, void *config)
{
    const int on = json_is_true(value);
    json_t *object = json_pack("{s:i}", section->bare_key, on);
    if (!object)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the section %s", path);
    SHOALI_WARN_FIRST("config", "%s is no section: it is taken as {\"%s\": %d}", path,
                      section->bare_key, on);
    const shoal_status status = read_object(reader, section, object, path, config);
    json_decref(object);
    return status;
}

static shoal_status read_object(const struct reader *reader, const struct shoali_section *section,
                                json_t *object, const char *path, void *config)
{
    shoal_status status;
    const char *key;
    json_t *value;
    if (!object)
        return shoali_config_read_env(section, config, reader->arena);
    if (section->bare_key && json_is_boolean(object))
        return read_bare(reader, section, object, path, config);
    if (!json_is_object(object)) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: must be a section, { ... }", path);
        return shoali_json_locate(reader->document, path, status);
    }
    json_object_foreach(object, key, value)
    {
        SHOAL_TRY(status, read_key(reader, section, object, path, key, config), done);
    }
    SHOAL_TRY(status, check_required(reader, section, object, path), done);
    SHOAL_TRY(status, shoali_config_read_env(section, config, reader->arena), done);
    if (section->validate && (status = section->validate(config)) < 0) {
        if (*path)
            shoali_error_prefix(status, "%s", path);
        shoali_json_locate(reader->document, path, status);
    }
done:
    return status;
}

/* The value at a path of keys without dots, and of numbers in lists; NULL none. */
static json_t *value_at(json_t *root, const char *path)
{
    char key[256];
    while (root && *path) {
        size_t length = strcspn(path, ".");
        if (length >= sizeof(key))
            return NULL;
        memcpy(key, path, length);
        key[length] = '\0';
        root = json_is_array(root) ? json_array_get(root, (size_t)strtoul(key, NULL, 10))
                                   : json_object_get(root, key);
        path += length + (path[length] == '.');
    }
    return root;
}

shoal_status shoali_config_read_json(const struct shoali_section *section,
                                     struct shoali_json *document, const char *path, void *config,
                                     struct shoali_arena *arena)
{
    shoal_status status;
    struct reader reader = {.document = document, .arena = arena};
    json_t *object = value_at(shoali_json_root(document), path);
    SHOAL_TRY(status, read_object(&reader, section, object, path, config), done);
done:
    return status;
}
