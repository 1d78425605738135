/* What a few calls mean; all others stay opaque. */
#include "foreign/pickle.h"

#include <stdio.h>
#include <string.h>

#define FAIL(pickle, at, ...) shoali_input_fail((pickle)->input, (at), __VA_ARGS__)

/* ---- storages ---- */

/* torch.FloatStorage and the like; torch.storage.UntypedStorage has bytes. */
static bool storage_type(const struct shoali_value *value, struct shoali_storage *storage)
{
    if (!value || value->kind != SHOALI_VALUE_GLOBAL ||
        strncmp(value->as.global.module, "torch", 5) != 0)
        return false;
    storage->untyped = strcmp(value->as.global.name, "UntypedStorage") == 0;
    storage->type = storage->untyped
                        ? SHOALI_ELEMENT_U8
                        : shoali_element_find(SHOALI_NAMED_BY_STORAGE, value->as.global.name);
    return storage->type != SHOALI_ELEMENT_COUNT;
}

/* ("storage", type, key, device, elements) and, in the older form, (view key, offset, elements). */
shoal_status shoali_pickle_storage(struct shoali_pickle *pickle, int64_t at,
                                   const struct shoali_value *id, struct shoali_value **result)
{
    const struct shoali_value *view = shoali_value_at(id, 5);
    const char *word = shoali_value_text(shoali_value_at(id, 0));
    struct shoali_storage *storage = shoali_pickle_alloc(pickle, (int64_t)sizeof *storage);
    int64_t bytes;
    *result = shoali_pickle_value(pickle, SHOALI_VALUE_STORAGE, at);
    if (!storage || !*result)
        return SHOAL_ENOMEM;
    (*result)->as.storage = storage;
    if (!word || strcmp(word, "storage") != 0)
        return FAIL(pickle, at, "the pickle refers to an external object that is not a storage");
    if (!storage_type(shoali_value_at(id, 1), storage))
        return FAIL(pickle, at, "a storage of an unknown type");
    storage->key = shoali_value_text(shoali_value_at(id, 2));
    storage->at = -1;
    if (!storage->key || !shoali_value_int(shoali_value_at(id, 4), &storage->count) ||
        storage->count < 0 ||
        !shoali_mul(storage->count, (int64_t)shoali_element_bytes(storage->type), &bytes))
        return FAIL(pickle, at, "a storage without a name, or with an impossible size");
    if (view && view->kind != SHOALI_VALUE_NONE &&
        (!shoali_value_int(shoali_value_at(view, 1), &storage->view_offset) ||
         !shoali_value_int(shoali_value_at(view, 2), &storage->count) || storage->count < 0 ||
         storage->view_offset < 0 || storage->view_offset > INT64_MAX / 64 ||
         storage->count > INT64_MAX / 64))
        return FAIL(pickle, at, "an impossible part of storage %s", storage->key);
    if (pickle->last_storage)
        pickle->last_storage->next = storage;
    else
        pickle->storage = storage;
    pickle->last_storage = storage;
    return SHOAL_OK;
}

/* ---- tensors ---- */

/* Numbers of a tuple or list; *out NULL: they are none, or one is negative. */
static shoal_status take_numbers(struct shoali_pickle *pickle, const struct shoali_value *list,
                                 int64_t count, const int64_t **out)
{
    int64_t *numbers = shoali_pickle_alloc(pickle, count * (int64_t)sizeof *numbers);
    *out = NULL;
    if (!numbers)
        return SHOAL_ENOMEM;
    for (int64_t i = 0; i < count; i++)
        if (!shoali_value_int(shoali_value_at(list, i), &numbers[i]) || numbers[i] < 0)
            return SHOAL_OK;
    *out = numbers;
    return SHOAL_OK;
}

/* Elements, and the last element's place; false: impossible. */
static bool measure(struct shoali_file_tensor *weight, int64_t *last)
{
    *last = 0;
    weight->count = 1;
    for (int32_t d = 0; d < weight->ndim; d++)
        if (weight->dim[d] == 0)
            weight->count = 0;
    for (int32_t d = 0; d < weight->ndim && weight->count > 0; d++) {
        int64_t far;
        if (!shoali_mul(weight->count, weight->dim[d], &weight->count) ||
            !shoali_mul(weight->dim[d] - 1, weight->stride[d], &far) ||
            !shoali_add(*last, far, last))
            return false;
    }
    if (weight->count > INT64_MAX / 64)
        return false;
    weight->bytes = weight->count * (int64_t)shoali_element_bytes(weight->type);
    return *last <= INT64_MAX / 64;
}

/* Row-major without gaps; a dim of one element may have any stride. */
static bool is_plain(const struct shoali_file_tensor *weight)
{
    int64_t want = 1;
    for (int32_t d = weight->ndim; d-- > 0;) {
        if (weight->dim[d] != 1 && weight->stride[d] != want)
            return false;
        want *= weight->dim[d];
    }
    return true;
}

/* (storage, offset, size, stride, ...); `dtype`: of an untyped storage's elements, else NULL. */
static shoal_status rebuild_tensor(struct shoali_pickle *pickle, int64_t at,
                                   const struct shoali_value *arguments,
                                   const struct shoali_value *dtype, struct shoali_value **result)
{
    const struct shoali_value *storage = shoali_value_at(arguments, 0),
                              *size = shoali_value_at(arguments, 2),
                              *stride = shoali_value_at(arguments, 3);
    struct shoali_value *value = shoali_pickle_value(pickle, SHOALI_VALUE_TENSOR, at);
    struct shoali_file_tensor *weight = shoali_pickle_alloc(pickle, (int64_t)sizeof *weight);
    int64_t first, last, room;
    if (!value || !weight)
        return SHOAL_ENOMEM;
    if (!storage || storage->kind != SHOALI_VALUE_STORAGE || !shoali_value_is_sequence(size) ||
        !shoali_value_is_sequence(stride) ||
        shoali_value_count(size) != shoali_value_count(stride) ||
        shoali_value_count(size) > SHOALI_FILE_TENSOR_MAX_DIMS ||
        !shoali_value_int(shoali_value_at(arguments, 1), &first) || first < 0 ||
        first > INT64_MAX / 64)
        return FAIL(pickle, at, "a tensor without a storage, or with an impossible shape");
    weight->ndim = (int32_t)shoali_value_count(size);
    if (take_numbers(pickle, size, weight->ndim, &weight->dim) < 0 ||
        take_numbers(pickle, stride, weight->ndim, &weight->stride) < 0)
        return SHOAL_ENOMEM;
    weight->type = storage->as.storage->type;
    if (dtype)
        weight->type = dtype->kind == SHOALI_VALUE_GLOBAL
                           ? shoali_element_find(SHOALI_NAMED_BY_TORCH, dtype->as.global.name)
                           : SHOALI_ELEMENT_COUNT;
    if (weight->type == SHOALI_ELEMENT_COUNT)
        return FAIL(pickle, at, "a tensor of an unknown element type");
    room = storage->as.storage->count * (int64_t)shoali_element_bytes(storage->as.storage->type) /
           (int64_t)shoali_element_bytes(weight->type);
    if (!weight->dim || !weight->stride || !measure(weight, &last) ||
        (weight->count > 0 && last + first >= room))
        return FAIL(pickle, at, "a tensor that does not lie inside its storage %s of %lld elements",
                    storage->as.storage->key, (long long)room);
    if (is_plain(weight))
        weight->stride = NULL;
    value->as.tensor.weight = weight;
    value->as.tensor.storage = storage->as.storage;
    value->as.tensor.first = first;
    *result = value;
    return SHOAL_OK;
}

/* ---- numpy ---- */

/* numpy.dtype("f4", ...) whose state has the byte order; COUNT: another type, or big-endian. */
static enum shoali_element numpy_type(const struct shoali_value *dtype)
{
    if (!dtype || dtype->kind != SHOALI_VALUE_OBJECT ||
        !shoali_value_is_global(dtype->type, "numpy", "dtype"))
        return SHOALI_ELEMENT_COUNT;
    const char *name = shoali_value_text(shoali_value_at(dtype, 0)),
               *order = shoali_value_text(shoali_value_at(dtype->state, 1));
    if (!name || (order && order[0] == '>'))
        return SHOALI_ELEMENT_COUNT;
    return shoali_element_find(SHOALI_NAMED_BY_NUMPY, name);
}

/* An array of bytes that the pickle itself holds; result stays as it is where it is of another
 * kind. columns: Fortran's order. */
static shoal_status numpy_array(struct shoali_pickle *pickle, const struct shoali_value *shape,
                                enum shoali_element type, const struct shoali_value *bytes,
                                bool columns, struct shoali_value *result)
{
    int64_t last;
    if (type == SHOALI_ELEMENT_COUNT || !bytes || bytes->kind != SHOALI_VALUE_BYTES ||
        !shoali_value_is_sequence(shape) || shoali_value_count(shape) > SHOALI_FILE_TENSOR_MAX_DIMS)
        return SHOAL_OK;
    struct shoali_file_tensor *weight = shoali_pickle_alloc(pickle, (int64_t)sizeof *weight);
    int64_t *stride =
        shoali_pickle_alloc(pickle, SHOALI_FILE_TENSOR_MAX_DIMS * (int64_t)sizeof *stride);
    if (!weight || !stride)
        return SHOAL_ENOMEM;
    weight->type = type;
    weight->ndim = (int32_t)shoali_value_count(shape);
    if (take_numbers(pickle, shape, weight->ndim, &weight->dim) < 0)
        return SHOAL_ENOMEM;
    weight->stride = stride;
    if (!weight->dim)
        return SHOAL_OK;
    int64_t step = 1;
    for (int32_t i = 0; i < weight->ndim; i++) {
        const int32_t d = columns ? i : weight->ndim - 1 - i;
        stride[d] = step;
        if (!shoali_mul(step, weight->dim[d] > 0 ? weight->dim[d] : 1, &step))
            return SHOAL_OK;
    }
    if (!measure(weight, &last) || weight->bytes != bytes->as.text.bytes)
        return FAIL(pickle, result->at, "an array's bytes are not as many as its shape needs");
    if (is_plain(weight))
        weight->stride = NULL;
    weight->memory = bytes->as.text.data;
    result->kind = SHOALI_VALUE_TENSOR;
    result->as.tensor.weight = weight;
    result->as.tensor.storage = NULL;
    result->as.tensor.first = 0;
    return SHOAL_OK;
}

/* scalar(dtype, bytes) */
static void numpy_scalar(const struct shoali_value *arguments, struct shoali_value *result)
{
    const enum shoali_element type = numpy_type(shoali_value_at(arguments, 0));
    const struct shoali_value *bytes = shoali_value_at(arguments, 1);
    double number;
    if (type == SHOALI_ELEMENT_COUNT || !bytes || bytes->kind != SHOALI_VALUE_BYTES ||
        bytes->as.text.bytes != (int64_t)shoali_element_bytes(type) ||
        !shoali_element_to_f64(type, bytes->as.text.data, 1, &number))
        return;
    if (type <= SHOALI_ELEMENT_F8_E5M2) {
        result->kind = SHOALI_VALUE_FLOAT;
        result->as.real = number;
    } else {
        int64_t bits = 0;
        memcpy(&bits, bytes->as.text.data, (size_t)bytes->as.text.bytes);
        result->kind = SHOALI_VALUE_INT;
        result->as.integer = type == SHOALI_ELEMENT_I64 ? bits : (int64_t)number;
    }
}

/* ---- calls ---- */

/* Text whose characters are bytes. */
static shoal_status encode(struct shoali_pickle *pickle, const struct shoali_value *text,
                           struct shoali_value *result)
{
    if (!text || text->kind != SHOALI_VALUE_TEXT)
        return SHOAL_OK;
    char *bytes = shoali_pickle_alloc(pickle, text->as.text.bytes + 1);
    int64_t count = 0, at = 0;
    if (!bytes)
        return SHOAL_ENOMEM;
    while (at < text->as.text.bytes) {
        uint32_t code_point;
        const int length = shoali_utf8_decode(text->as.text.data + at,
                                              (size_t)(text->as.text.bytes - at), &code_point);
        if (length == 0 || code_point > 255)
            return FAIL(pickle, result->at, "bytes that are stored as text but are not valid text");
        bytes[count++] = (char)code_point;
        at += length;
    }
    result->kind = SHOALI_VALUE_BYTES;
    result->as.text.data = bytes;
    result->as.text.bytes = count;
    return SHOAL_OK;
}

/* A container of the values of the first argument, if that is one; without arguments an empty one.
 */
static shoal_status container(struct shoali_pickle *pickle, enum shoali_value_kind kind,
                              const struct shoali_value *from, struct shoali_value *result)
{
    shoal_status status = SHOAL_OK;
    struct shoali_value made = {.kind = kind, .at = result->at};
    if (from && !shoali_value_is_sequence(from))
        return SHOAL_OK;
    for (int64_t i = 0; i < shoali_value_count(from); i++) {
        struct shoali_value *item = from->as.list.item[i];
        const bool pair = shoali_value_is_sequence(item) && item->as.list.count == 2;
        if (kind == SHOALI_VALUE_DICT && !pair)
            return SHOAL_OK;
        if (kind == SHOALI_VALUE_DICT)
            SHOAL_TRY(status, shoali_pickle_push_item(pickle, &made, item->as.list.item[0]), done);
        SHOAL_TRY(status,
                  shoali_pickle_push_item(pickle, &made,
                                          kind == SHOALI_VALUE_DICT ? item->as.list.item[1] : item),
                  done);
    }
    *result = made;
done:
    return status;
}

enum meaning {
    OPAQUE,
    TENSOR,       /* _rebuild_tensor, _v2 */
    TENSOR_DTYPE, /* _v3: the type is argument 6 */
    PARAMETER,    /* its first argument */
    TYPED,        /* (function, type, arguments, state) */
    TUPLE,
    LIST,
    SET,
    DICT,
    DEFAULT_DICT,
    ENCODE,
    BYTES,
    NUMPY_SCALAR,
    NUMPY_BUFFER
};
static const struct {
    const char *module, *name;
    enum meaning meaning;
} calls[] = {
    {"torch._utils", "_rebuild_tensor", TENSOR},
    {"torch._utils", "_rebuild_tensor_v2", TENSOR},
    {"torch._utils", "_rebuild_tensor_v3", TENSOR_DTYPE},
    {"torch._utils", "_rebuild_parameter", PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", PARAMETER},
    {"torch._tensor", "_rebuild_from_type_v2", TYPED},
    {"torch", "Size", TUPLE},
    {"collections", "OrderedDict", DICT},
    {"collections", "defaultdict", DEFAULT_DICT},
    {"collections", "deque", LIST},
    {"_codecs", "encode", ENCODE},
    {"builtins", "bytearray", BYTES},
    {"builtins", "bytes", BYTES},
    {"builtins", "set", SET},
    {"builtins", "frozenset", SET},
    {"builtins", "list", LIST},
    {"builtins", "tuple", TUPLE},
    {"builtins", "dict", DICT},
    {"__builtin__", "bytearray", BYTES},
    {"__builtin__", "bytes", BYTES},
    {"__builtin__", "set", SET},
    {"__builtin__", "frozenset", SET},
    {"__builtin__", "list", LIST},
    {"__builtin__", "tuple", TUPLE},
    {"__builtin__", "dict", DICT},
    {"numpy.core.multiarray", "scalar", NUMPY_SCALAR},
    {"numpy._core.multiarray", "scalar", NUMPY_SCALAR},
    {"numpy.core.numeric", "_frombuffer", NUMPY_BUFFER},
    {"numpy._core.numeric", "_frombuffer", NUMPY_BUFFER},
};

static enum meaning meaning_of(const struct shoali_value *callee)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (shoali_value_is_global(callee, calls[i].module, calls[i].name))
            return calls[i].meaning;
    return OPAQUE;
}

/* (buffer, dtype, shape, "C" or "F") */
static shoal_status numpy_buffer(struct shoali_pickle *pickle, const struct shoali_value *arguments,
                                 struct shoali_value *result)
{
    const char *order = shoali_value_text(shoali_value_at(arguments, 3));
    return numpy_array(pickle, shoali_value_at(arguments, 2),
                       numpy_type(shoali_value_at(arguments, 1)), shoali_value_at(arguments, 0),
                       order && order[0] == 'F', result);
}

static shoal_status make_plain(struct shoali_pickle *pickle, enum meaning meaning,
                               const struct shoali_value *arguments, struct shoali_value *result)
{
    const struct shoali_value *first = shoali_value_at(arguments, 0);
    switch (meaning) {
    case TUPLE:
        return container(pickle, SHOALI_VALUE_TUPLE, first, result);
    case LIST:
        return container(pickle, SHOALI_VALUE_LIST, first, result);
    case SET:
        return container(pickle, SHOALI_VALUE_SET, first, result);
    case DICT:
        return container(pickle, SHOALI_VALUE_DICT, first, result);
    case DEFAULT_DICT:
        return container(pickle, SHOALI_VALUE_DICT, shoali_value_at(arguments, 1), result);
    case ENCODE:
        return encode(pickle, first, result);
    case NUMPY_BUFFER:
        return numpy_buffer(pickle, arguments, result);
    case NUMPY_SCALAR:
        numpy_scalar(arguments, result);
        return SHOAL_OK;
    case BYTES:
        if (first && first->kind == SHOALI_VALUE_BYTES)
            *result = *first;
        return SHOAL_OK;
    default:
        return SHOAL_OK;
    }
}

/* A tensor in whatever wrapping; *result NULL: none. */
static shoal_status make_tensor(struct shoali_pickle *pickle, int64_t at, enum meaning meaning,
                                const struct shoali_value *arguments, struct shoali_value **result)
{
    *result = NULL;
    if (meaning == TYPED) {
        const struct shoali_value *inner = shoali_value_at(arguments, 2);
        meaning = meaning_of(shoali_value_at(arguments, 0));
        if (!inner || inner->kind != SHOALI_VALUE_TUPLE)
            return SHOAL_OK;
        arguments = inner;
    }
    struct shoali_value *first = arguments->as.list.count > 0 ? arguments->as.list.item[0] : NULL;
    if (meaning == PARAMETER && first && first->kind == SHOALI_VALUE_TENSOR)
        *result = first;
    if (meaning == TENSOR)
        return rebuild_tensor(pickle, at, arguments, NULL, result);
    if (meaning == TENSOR_DTYPE && shoali_value_at(arguments, 6))
        return rebuild_tensor(pickle, at, arguments, shoali_value_at(arguments, 6), result);
    return SHOAL_OK;
}

shoal_status shoali_pickle_call(struct shoali_pickle *pickle, int64_t at,
                                struct shoali_value *callee, struct shoali_value *arguments,
                                struct shoali_value **result)
{
    shoal_status status;
    const enum meaning meaning = meaning_of(callee);
    SHOAL_TRY(status, make_tensor(pickle, at, meaning, arguments, result), done);
    if (*result)
        return SHOAL_OK;
    struct shoali_value *value = shoali_pickle_value(pickle, SHOALI_VALUE_OBJECT, at);
    if (!value)
        return SHOAL_ENOMEM;
    value->type = callee;
    value->as.list = arguments->as.list;
    *result = value;
    SHOAL_TRY(status, make_plain(pickle, meaning, arguments, value), done);
done:
    return status;
}

shoal_status shoali_pickle_set_state(struct shoali_pickle *pickle, int64_t at,
                                     struct shoali_value *target, struct shoali_value *state)
{
    int64_t columns = 0;
    (void)at;
    target->state = state;
    if (target->kind != SHOALI_VALUE_OBJECT ||
        !(shoali_value_is_global(target->type, "numpy.core.multiarray", "_reconstruct") ||
          shoali_value_is_global(target->type, "numpy._core.multiarray", "_reconstruct")))
        return SHOAL_OK;
    /* (version, shape, dtype, Fortran's order, bytes) */
    (void)shoali_value_int(shoali_value_at(state, 3), &columns);
    return numpy_array(pickle, shoali_value_at(state, 1), numpy_type(shoali_value_at(state, 2)),
                       shoali_value_at(state, 4), columns != 0, target);
}
