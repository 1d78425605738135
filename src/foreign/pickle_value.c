/* Values of a pickle: made, and looked at. */
#include "foreign/pickle.h"

#include <string.h>

/* ---- making ---- */

void *shoali_pickle_alloc(struct shoali_pickle *pickle, int64_t bytes)
{
    if (bytes < 0 || (uint64_t)bytes > SHOALI_PICKLE_MEMORY_MAX - pickle->arena->used_bytes) {
        const shoal_status failed = shoali_input_fail(
            pickle->input, -1, "the contents of its pickle need more than %zu MiB of memory",
            SHOALI_PICKLE_MEMORY_MAX >> 20);
        (void)failed;
        return NULL;
    }
    return shoali_arena_alloc(pickle->arena, (size_t)bytes);
}

struct shoali_value *shoali_pickle_value(struct shoali_pickle *pickle, enum shoali_value_kind kind,
                                         int64_t at)
{
    struct shoali_value *value = shoali_pickle_alloc(pickle, (int64_t)sizeof *value);
    if (value) {
        value->kind = kind;
        value->at = at;
    }
    return value;
}

shoal_status shoali_pickle_push_item(struct shoali_pickle *pickle, struct shoali_value *list,
                                     struct shoali_value *item)
{
    if (list->as.list.count == list->as.list.capacity) {
        const int64_t capacity = list->as.list.capacity > 0 ? 2 * list->as.list.capacity : 4;
        struct shoali_value **items =
            shoali_pickle_alloc(pickle, capacity * (int64_t)sizeof(struct shoali_value *));
        if (!items)
            return SHOAL_ENOMEM;
        if (list->as.list.count > 0)
            memcpy(items, list->as.list.item, (size_t)list->as.list.count * sizeof *items);
        list->as.list.item = items;
        list->as.list.capacity = capacity;
    }
    list->as.list.item[list->as.list.count++] = item;
    return SHOAL_OK;
}

shoal_status shoali_pickle_global(struct shoali_pickle *pickle, int64_t at, const char *module,
                                  const char *name, struct shoali_value **result)
{
    enum { GLOBALS_MAX = 4096 };
    for (int32_t i = pickle->global_count; i-- > 0;) {
        *result = pickle->global[i];
        if (shoali_value_is_global(*result, module, name))
            return SHOAL_OK;
    }
    if (pickle->global_count == GLOBALS_MAX)
        return shoali_input_fail(
            pickle->input, at, "the pickle names more than %d classes and functions", GLOBALS_MAX);
    if (!pickle->global)
        pickle->global =
            shoali_pickle_alloc(pickle, GLOBALS_MAX * (int64_t)sizeof(struct shoali_value *));
    *result = shoali_pickle_value(pickle, SHOALI_VALUE_GLOBAL, at);
    if (!pickle->global || !*result)
        return SHOAL_ENOMEM;
    (*result)->as.global.module = shoali_arena_strdup(pickle->arena, module);
    (*result)->as.global.name = shoali_arena_strdup(pickle->arena, name);
    if (!(*result)->as.global.module || !(*result)->as.global.name)
        return SHOAL_ENOMEM;
    pickle->global[pickle->global_count++] = *result;
    return SHOAL_OK;
}

/* ---- looking at values ---- */

static const struct shoali_value *get_item(const struct shoali_value *dict, const char *key)
{
    for (int64_t i = dict->as.list.count; i >= 2; i -= 2) {
        const char *text = shoali_value_text(dict->as.list.item[i - 2]);
        if (text && strcmp(text, key) == 0)
            return dict->as.list.item[i - 1];
    }
    return NULL;
}

const struct shoali_value *shoali_value_get(const struct shoali_value *value, const char *key)
{
    if (value && value->kind == SHOALI_VALUE_DICT)
        return get_item(value, key);
    if (!value || value->kind != SHOALI_VALUE_OBJECT)
        return NULL;
    if (value->state && value->state->kind == SHOALI_VALUE_DICT)
        return get_item(value->state, key);
    return value->items && value->items->kind == SHOALI_VALUE_DICT ? get_item(value->items, key)
                                                                   : NULL;
}

bool shoali_value_is_sequence(const struct shoali_value *value)
{
    return value && (value->kind == SHOALI_VALUE_LIST || value->kind == SHOALI_VALUE_TUPLE ||
                     value->kind == SHOALI_VALUE_SET);
}

const struct shoali_value *shoali_value_at(const struct shoali_value *value, int64_t i)
{
    const bool list =
        shoali_value_is_sequence(value) || (value && value->kind == SHOALI_VALUE_OBJECT);
    return list && i >= 0 && i < value->as.list.count ? value->as.list.item[i] : NULL;
}

int64_t shoali_value_count(const struct shoali_value *value)
{
    if (shoali_value_is_sequence(value))
        return value->as.list.count;
    return value && value->kind == SHOALI_VALUE_DICT ? value->as.list.count / 2 : 0;
}

bool shoali_value_int(const struct shoali_value *value, int64_t *integer)
{
    if (!value || (value->kind != SHOALI_VALUE_INT && value->kind != SHOALI_VALUE_BOOL))
        return false;
    *integer = value->kind == SHOALI_VALUE_BOOL ? value->as.truth : value->as.integer;
    return true;
}

bool shoali_value_real(const struct shoali_value *value, double *real)
{
    int64_t integer;
    if (value && value->kind == SHOALI_VALUE_FLOAT) {
        *real = value->as.real;
        return true;
    }
    if (!shoali_value_int(value, &integer))
        return false;
    *real = (double)integer;
    return true;
}

const char *shoali_value_text(const struct shoali_value *value)
{
    if (!value || value->kind != SHOALI_VALUE_TEXT ||
        strlen(value->as.text.data) != (size_t)value->as.text.bytes)
        return NULL;
    return value->as.text.data;
}

const struct shoali_file_tensor *shoali_value_tensor(const struct shoali_value *value)
{
    return value && value->kind == SHOALI_VALUE_TENSOR ? value->as.tensor.weight : NULL;
}

bool shoali_value_is_global(const struct shoali_value *value, const char *module, const char *name)
{
    return value && value->kind == SHOALI_VALUE_GLOBAL &&
           strcmp(value->as.global.module, module) == 0 && strcmp(value->as.global.name, name) == 0;
}
