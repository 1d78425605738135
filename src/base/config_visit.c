/* The values of a configuration as texts, for a comparison between ranks or with a checkpoint. */
#include "base/config_internal.h"

#include "base/json.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

struct visit {
    void (*call)(void *user, const char *path, const char *value);
    void *user;
    unsigned only; /* SHOALI_OPTION_* */
    bool failed;   /* memory of a path or value ran out: it was not told as it is */
};

static void tell(struct visit *visit, const char *path, const struct shoali_str *value)
{
    visit->failed |= value->failed;
    visit->call(visit->user, path, shoali_str_get(value));
}

/* ---- JSON of any shape ---------------------------------------------------------------------- */

/* 1, 1.0 and 1e0 are one value. */
static void append_plain(json_t *json, struct shoali_str *out)
{
    char *text = NULL;
    if (json_is_number(json))
        shoali_config_append_number(json_number_value(json), out);
    else if (json_is_string(json))
        shoali_str_append(out, "%s", json_string_value(json));
    else if (shoali_json_write(json, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS, "a value",
                               &text) == SHOAL_OK)
        shoali_str_append(out, "%s", text);
    else
        out->failed = true;
    free(text);
}

/* The first key behind `last` in the order of letters; NULL: none. */
static const char *next_key(json_t *object, const char *last)
{
    const char *key, *next = NULL;
    json_t *member;
    json_object_foreach(object, key, member)
    {
        if ((!last || strcmp(key, last) > 0) && (!next || strcmp(key, next) < 0))
            next = key;
    }
    return next;
}

/* Files may have the same keys in another order. */
static void visit_json(struct visit *visit, const char *path, json_t *json)
{
    struct shoali_str text = {0};
    if (json_is_object(json) && json_object_size(json) > 0) {
        for (const char *key = next_key(json, NULL); key; key = next_key(json, key)) {
            text.length = 0;
            shoali_str_append(&text, "%s.%s", path, key);
            visit->failed |= text.failed;
            visit_json(visit, shoali_str_get(&text), json_object_get(json, key));
        }
    } else {
        if (json)
            append_plain(json, &text);
        tell(visit, path, &text);
    }
    shoali_str_fini(&text);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void append_list(const struct shoali_option *row, const void *member, struct shoali_str *out)
{
    const struct shoali_floats *floats = member;
    const struct shoali_ints *ints = member;
    const struct shoali_strings *strings = member;
    const int32_t count = row->type == SHOALI_FLOATS ? floats->count
                          : row->type == SHOALI_INTS ? ints->count
                                                     : strings->count;
    for (int32_t i = 0; i < count; i++) {
        shoali_str_append(out, "%s", i > 0 ? " " : "");
        if (row->type == SHOALI_FLOATS)
            shoali_config_append_number(floats->value[i], out);
        else if (row->type == SHOALI_INTS)
            shoali_str_append(out, "%lld", (long long)ints->value[i]);
        else
            shoali_str_append(out, "%s", strings->value[i]);
    }
}

static void append_value(const struct shoali_option *row, const void *member,
                         struct shoali_str *out)
{
    const char *text;
    switch (row->type) {
    case SHOALI_BOOL:
        shoali_str_append(out, *(const bool *)member ? "true" : "false");
        break;
    case SHOALI_INT:
        shoali_str_append(out, "%lld", (long long)*(const int64_t *)member);
        break;
    case SHOALI_FLOAT:
        shoali_config_append_number(*(const double *)member, out);
        break;
    case SHOALI_ENUM:
        shoali_str_append(out, "%s", row->choices[*(const int32_t *)member]);
        break;
    case SHOALI_STRING:
        text = *(const char *const *)member;
        shoali_str_append(out, "%s", text ? text : "");
        break;
    default:
        append_list(row, member, out);
        break;
    }
}

static void visit_section(struct visit *visit, const struct shoali_section *section,
                          const void *config, const char *path);

static void visit_row(struct visit *visit, const struct shoali_option *row, const void *member,
                      const char *path)
{
    struct shoali_str text = {0};
    if (row->type == SHOALI_SECTION)
        visit_section(visit, row->section, member, path);
    else if (row->type == SHOALI_JSON)
        visit_json(visit, path, *(json_t *const *)member);
    else {
        append_value(row, member, &text);
        tell(visit, path, &text);
    }
    shoali_str_fini(&text);
}

static bool wants(const struct visit *visit, const struct shoali_option *row)
{
    return row->state == SHOALI_SUPPORTED && !(row->flags & SHOALI_OPTION_BY_RANK) &&
           (!visit->only || row->type == SHOALI_SECTION || (row->flags & visit->only));
}

static void visit_section(struct visit *visit, const struct shoali_section *section,
                          const void *config, const char *path)
{
    struct shoali_str below = {0};
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        if (!wants(visit, row))
            continue;
        below.length = 0;
        shoali_str_append(&below, "%s%s%s", path, *path ? "." : "", row->key);
        visit->failed |= below.failed;
        visit_row(visit, row, (const char *)config + row->offset, shoali_str_get(&below));
    }
    shoali_str_fini(&below);
}

shoal_status shoali_config_visit(const struct shoali_section *section, const void *config,
                                 const char *path, unsigned only,
                                 void (*call)(void *user, const char *path, const char *value),
                                 void *user)
{
    struct visit visit = {call, user, only, false};
    visit_section(&visit, section, config, path);
    return visit.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a configuration's value")
                        : SHOAL_OK;
}
