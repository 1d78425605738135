/* Values of a pickle as JSON: dicts are objects, lists, tuples and sets are arrays, None is null.
 * What JSON does not have is an object of one or more members whose names begin with @:
 *   {"@tensor": "F32 [2, 3]"}
 *   {"@global": "torch.float32"}
 *   {"@object": "argparse.Namespace", "@arguments": [...], "@items": ..., "@state": {...}}
 *   {"@bytes": 12}
 *   {"@tensors": 17}    a dict, or an object's items, of nothing else
 * A container that was met before is {"@seen": byte of the file}. */
#include "inspect/inspect.h"

#include "base/plain.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 60, TEXT_MAX = 300, ITEMS_MAX = 64, SEEN = 2 };

json_t *shoali_inspect_text(const char *text, int64_t bytes)
{
    char clean[4 * TEXT_MAX + 64];
    size_t used = 0;
    const bool cut = bytes > TEXT_MAX;
    for (int64_t i = 0; i < (cut ? TEXT_MAX : bytes);) {
        uint32_t code_point;
        const int length = shoali_utf8_decode(text + i, (size_t)(bytes - i), &code_point);
        if (length > 0 && code_point >= 0x20 && (code_point < 0x7f || code_point > 0x9f)) {
            memcpy(clean + used, text + i, (size_t)length);
            used += (size_t)length;
            i += length;
        } else {
            used += (size_t)snprintf(clean + used, 5, "\\x%02x", (unsigned)(unsigned char)text[i]);
            i++;
        }
    }
    if (cut)
        used += (size_t)snprintf(clean + used, 48, "... (%lld bytes)", (long long)bytes);
    return json_stringn(clean, used);
}

static json_t *convert(struct shoali_value *value, int depth);

/* An object of one member; value is released. */
static json_t *tagged(const char *key, json_t *value)
{
    json_t *object = json_object();
    if (json_object_set_new(object, key, value) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *global_name(const struct shoali_value *value)
{
    char name[520];
    if (value->kind != SHOALI_VALUE_GLOBAL)
        return json_string("?");
    snprintf(name, sizeof name, "%s.%s", value->as.global.module, value->as.global.name);
    return shoali_inspect_text(name, (int64_t)strlen(name));
}

static json_t *tensor_line(const struct shoali_value *value)
{
    char shape[SHOALI_FILE_TENSOR_SHAPE_BYTES], line[SHOALI_FILE_TENSOR_SHAPE_BYTES + 16];
    const struct shoali_file_tensor *tensor = value->as.tensor.weight;
    snprintf(line, sizeof line, "%s %s", shoali_file_tensor_type(tensor),
             shoali_file_tensor_shape_text(tensor, shape));
    return tagged("@tensor", json_string(line));
}

static json_t *key_text(const struct shoali_value *key)
{
    char text[64];
    int64_t integer;
    double real;
    if (key->kind == SHOALI_VALUE_TEXT)
        return shoali_inspect_text(key->as.text.data, key->as.text.bytes);
    if (shoali_value_int(key, &integer))
        snprintf(text, sizeof text, "%" PRId64, integer);
    else if (shoali_value_real(key, &real))
        shoali_snprintf(text, sizeof text, "%.17g", real);
    else
        snprintf(text, sizeof text, "@key %" PRId64, key->at);
    return json_string(text);
}

static json_t *convert_dict(const struct shoali_value *value, int depth)
{
    json_t *object = json_object();
    int failed = object == NULL;
    for (int64_t i = 0; i + 1 < value->as.list.count && !failed; i += 2) {
        json_t *key = key_text(value->as.list.item[i]);
        failed = !key || json_object_set_new(object, json_string_value(key),
                                             convert(value->as.list.item[i + 1], depth)) != 0;
        json_decref(key);
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static bool is_plain(const struct shoali_value *value)
{
    return value->kind < SHOALI_VALUE_LIST;
}

/* All values of a dict are tensors, which are listed elsewhere; 0: no. */
static int64_t tensors_of(const struct shoali_value *value)
{
    for (int64_t i = 1; i < value->as.list.count; i += 2)
        if (value->as.list.item[i]->kind != SHOALI_VALUE_TENSOR)
            return 0;
    return value->as.list.count / 2;
}

/* A few plain values: shown wherever they are. */
static bool is_short(const struct shoali_value *value)
{
    if (value->kind == SHOALI_VALUE_OBJECT || value->as.list.count > ITEMS_MAX)
        return false;
    for (int64_t i = 0; i < value->as.list.count; i++)
        if (!is_plain(value->as.list.item[i]))
            return false;
    return true;
}

static json_t *convert_list(const struct shoali_value *value, int depth)
{
    json_t *array = json_array();
    char text[64];
    int64_t plain = 0;
    int failed = array == NULL;
    for (int64_t i = 0; i < value->as.list.count && !failed; i++) {
        plain += is_plain(value->as.list.item[i]);
        if (plain <= ITEMS_MAX || !is_plain(value->as.list.item[i]))
            failed = json_array_append_new(array, convert(value->as.list.item[i], depth));
    }
    if (plain > ITEMS_MAX && !failed) {
        snprintf(text, sizeof text, "... (%lld values)", (long long)plain);
        failed = json_array_append_new(array, json_string(text));
    }
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *convert_object(const struct shoali_value *value, int depth)
{
    json_t *object = tagged("@object", global_name(value->type));
    int failed = object == NULL;
    if (!failed && value->as.list.count > 0)
        failed |= json_object_set_new(object, "@arguments", convert_list(value, depth));
    if (!failed && value->items)
        failed |= json_object_set_new(object, "@items", convert(value->items, depth));
    if (!failed && value->state)
        failed |= json_object_set_new(
            object, "@state", convert((struct shoali_value *)(uintptr_t)value->state, depth));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *convert_plain(const struct shoali_value *value)
{
    char text[64];
    switch (value->kind) {
    case SHOALI_VALUE_NONE:
        return json_null();
    case SHOALI_VALUE_BOOL:
        return json_boolean(value->as.truth);
    case SHOALI_VALUE_INT:
        return json_integer(value->as.integer);
    case SHOALI_VALUE_FLOAT:
        shoali_snprintf(text, sizeof text, "%g", value->as.real);
        return isfinite(value->as.real) ? json_real(value->as.real) : json_string(text);
    case SHOALI_VALUE_TEXT:
        return shoali_inspect_text(value->as.text.data, value->as.text.bytes);
    case SHOALI_VALUE_LONG:
        snprintf(text, sizeof text, "integer of %lld bytes", (long long)value->as.text.bytes);
        return json_string(text);
    default:
        return tagged("@bytes", json_integer(value->as.text.bytes));
    }
}

static json_t *convert(struct shoali_value *value, int depth)
{
    if (is_plain(value))
        return convert_plain(value);
    if (value->kind == SHOALI_VALUE_TENSOR)
        return tensor_line(value);
    if (value->kind == SHOALI_VALUE_GLOBAL)
        return tagged("@global", global_name(value));
    if (value->kind == SHOALI_VALUE_STORAGE)
        return tagged("@storage", shoali_inspect_text(value->as.storage->key,
                                                      (int64_t)strlen(value->as.storage->key)));
    if (value->seen == SEEN || depth == DEPTH_MAX)
        return tagged("@seen", json_integer(value->at));
    if (!is_short(value))
        value->seen = SEEN;
    if (value->kind == SHOALI_VALUE_DICT && depth > 0 && tensors_of(value) > 0)
        return tagged("@tensors", json_integer(tensors_of(value)));
    if (value->kind == SHOALI_VALUE_DICT)
        return convert_dict(value, depth + 1);
    if (value->kind == SHOALI_VALUE_OBJECT)
        return convert_object(value, depth + 1);
    return convert_list(value, depth + 1);
}

shoal_status shoali_inspect_values(const struct shoali_value *root, json_t **out)
{
    *out = convert((struct shoali_value *)(uintptr_t)root, 0);
    return *out ? SHOAL_OK : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the values of a pickle");
}
