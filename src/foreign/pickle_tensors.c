/* The tensors in a pickle's tree of values, each named by the keys on the way to it. */
#include "foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 200, TENSORS_MAX = 1 << 22 };

void shoali_printable_append(struct shoali_printable *name, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && name->length < SHOALI_PRINTABLE_BYTES;) {
        uint32_t code_point;
        const int length = shoali_utf8_decode(text + i, (size_t)(bytes - i), &code_point);
        const bool plain = length > 0 && code_point >= 0x20 && code_point != 0x7f &&
                           (code_point < 0x80 || code_point > 0x9f);
        if (plain) {
            memcpy(name->text + name->length, text + i, (size_t)length);
            name->length += (size_t)length;
            i += length;
        } else {
            name->length += (size_t)snprintf(name->text + name->length, 5, "\\x%02x",
                                             (unsigned)(unsigned char)text[i]);
            i++;
        }
    }
    name->text[name->length] = '\0';
}

struct walk {
    struct shoali_tensor_file *file;
    struct shoali_file_tensor *found; /* owned until it is moved */
    int64_t capacity;
    struct shoali_printable name;
    int32_t depth;
};

static void append_key(struct walk *walk, const struct shoali_value *key, int64_t index)
{
    int64_t number = index;
    char text[32];
    if (walk->name.length > 0)
        shoali_printable_append(&walk->name, ".", 1);
    if (key && key->kind == SHOALI_VALUE_TEXT) {
        shoali_printable_append(&walk->name, key->as.text.data, key->as.text.bytes);
    } else if (!key || shoali_value_int(key, &number)) {
        snprintf(text, sizeof text, "%lld", (long long)number);
        shoali_printable_append(&walk->name, text, (int64_t)strlen(text));
    } else {
        shoali_printable_append(&walk->name, "?", 1);
    }
}

static shoal_status add_tensor(struct walk *walk, const struct shoali_value *value)
{
    struct shoali_tensor_file *file = walk->file;
    const struct shoali_storage *storage = value->as.tensor.storage;
    if (file->count == TENSORS_MAX || file->arena.used_bytes > SHOALI_PICKLE_MEMORY_MAX)
        return shoali_input_fail(&file->input, value->at,
                                 "more than %d tensors, or names that are too long for them",
                                 (int)file->count);
    if (file->count == walk->capacity) {
        const int64_t capacity = walk->capacity > 0 ? 2 * walk->capacity : 64;
        struct shoali_file_tensor *larger = realloc(walk->found, (size_t)capacity * sizeof *larger);
        if (!larger)
            return SHOAL_FAIL(SHOAL_ENOMEM, "%s: cannot allocate %lld tensors", file->input.path,
                              (long long)capacity);
        walk->found = larger;
        walk->capacity = capacity;
    }
    struct shoali_file_tensor *weight = value->as.tensor.weight;
    if (storage && storage->at < 0)
        return shoali_input_fail(
            &file->input, value->at,
            "the tensor `%s` lies in storage `%s`, which the file does not have", walk->name.text,
            storage->key);
    if (storage)
        weight->at =
            storage->at + value->as.tensor.first * (int64_t)shoali_element_bytes(weight->type);
    walk->found[file->count] = *weight;
    walk->found[file->count].name =
        shoali_arena_strdup(&file->arena, walk->name.length > 0 ? walk->name.text : "tensor");
    if (!walk->found[file->count].name)
        return SHOAL_ENOMEM;
    file->count++;
    return SHOAL_OK;
}

static shoal_status visit(struct walk *walk, struct shoali_value *value);

static shoal_status visit_items(struct walk *walk, const struct shoali_value *value)
{
    shoal_status status = SHOAL_OK;
    const size_t length = walk->name.length;
    const bool pairs = value->kind == SHOALI_VALUE_DICT;
    for (int64_t i = 0; i < value->as.list.count; i += pairs ? 2 : 1) {
        append_key(walk, pairs ? value->as.list.item[i] : NULL, i);
        SHOAL_TRY(status, visit(walk, value->as.list.item[pairs ? i + 1 : i]), done);
        walk->name.length = length;
        walk->name.text[length] = '\0';
    }
done:
    return status;
}

static shoal_status visit(struct walk *walk, struct shoali_value *value)
{
    shoal_status status = SHOAL_OK;
    if (value->kind == SHOALI_VALUE_TENSOR)
        return add_tensor(walk, value);
    if (value->kind < SHOALI_VALUE_LIST || value->kind > SHOALI_VALUE_OBJECT ||
        value->kind == SHOALI_VALUE_GLOBAL || value->seen)
        return SHOAL_OK;
    if (walk->depth == DEPTH_MAX)
        return shoali_input_fail(&walk->file->input, value->at,
                                 "values are nested deeper than %d levels", DEPTH_MAX);
    value->seen = 1;
    walk->depth++;
    SHOAL_TRY(status, visit_items(walk, value), done);
    if (value->kind == SHOALI_VALUE_OBJECT && value->items)
        SHOAL_TRY(status, visit(walk, value->items), done);
    if (value->kind == SHOALI_VALUE_OBJECT && value->state)
        SHOAL_TRY(status, visit(walk, (struct shoali_value *)(uintptr_t)value->state), done);
    walk->depth--;
done:
    return status;
}

shoal_status shoali_pickle_list_tensors(struct shoali_tensor_file *file)
{
    shoal_status status;
    struct walk walk = {.file = file};
    SHOAL_TRY(status, visit(&walk, (struct shoali_value *)(uintptr_t)file->root), done);
    file->tensor =
        shoali_arena_alloc(&file->arena, ((size_t)file->count + 1) * sizeof *file->tensor);
    if (!file->tensor)
        status = SHOAL_ENOMEM;
    else if (file->count > 0)
        memcpy(file->tensor, walk.found, (size_t)file->count * sizeof *walk.found);
done:
    free(walk.found);
    return status;
}
