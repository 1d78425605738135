/* Headers of safetensors files: 8 bytes length (little endian), JSON text, data without gaps.
 * Format: https://github.com/huggingface/safetensors. */
#include "formats/formats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* `dim` has room for the dims of the list, if they are not too many. */
static bool read_shape(const json_t *value, int64_t *dim, struct shoali_file_tensor *weight)
{
    const size_t dims = json_array_size(value);
    bool possible = true, empty = false;
    weight->count = 1;
    if (!json_is_array(value) || dims > SHOALI_FILE_TENSOR_MAX_DIMS)
        return false;
    weight->ndim = (int32_t)dims;
    weight->dim = dim;
    for (size_t i = 0; i < dims; i++) {
        const json_t *entry = json_array_get(value, i);
        dim[i] = json_integer_value(entry);
        if (!json_is_integer(entry) || dim[i] < 0)
            return false;
        empty = empty || dim[i] == 0;
        possible = possible && shoali_mul(weight->count, dim[i], &weight->count);
    }
    if (empty)
        weight->count = 0;
    return possible || empty;
}

static shoal_status read_entry(const char *name, json_t *value, struct shoali_arena *arena,
                               struct shoali_file_tensor *weight, int64_t *end)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *shape = json_object_get(value, "shape");
    const size_t dims = json_array_size(shape);
    const char *type = json_string_value(json_object_get(value, "dtype"));
    int64_t bytes = -1;
    weight->name = shoali_arena_strdup(arena, name);
    if (!weight->name)
        return SHOAL_ENOMEM;
    weight->type =
        type ? shoali_element_find(SHOALI_NAMED_BY_SAFETENSORS, type) : SHOALI_ELEMENT_COUNT;
    weight->type_name = shoali_arena_strdup(arena, type ? type : "");
    int64_t *dim = shoali_arena_alloc(
        arena, ((dims < SHOALI_FILE_TENSOR_MAX_DIMS ? dims : SHOALI_FILE_TENSOR_MAX_DIMS) + 1) *
                   sizeof *dim);
    if (!weight->type_name || !dim)
        return SHOAL_ENOMEM;
    if (!type || !read_shape(shape, dim, weight) || json_array_size(offsets) != 2 ||
        !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return SHOAL_FAIL(SHOAL_ECORRUPT, "the header's entry `%s` cannot be read", name);
    weight->at = json_integer_value(json_array_get(offsets, 0));
    *end = json_integer_value(json_array_get(offsets, 1));
    weight->bytes = *end - weight->at;
    if (weight->type == SHOALI_ELEMENT_COUNT)
        bytes = weight->bytes; /* what such an element has is not known */
    else if (!shoali_mul(weight->count, (int64_t)shoali_element_bytes(weight->type), &bytes))
        bytes = -1;
    if (weight->at < 0 || *end < weight->at || weight->bytes != bytes)
        return SHOAL_FAIL(SHOAL_ECORRUPT,
                          "the header's entry `%s` has data_offsets [%lld, %lld], its shape and "
                          "dtype need %lld bytes",
                          name, (long long)weight->at, (long long)*end, (long long)bytes);
    return SHOAL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct shoali_file_tensor *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Tensors in file order; empty ones at one place keep the header's order. */
static void sort_tensors(struct shoali_file_tensor *tensors, int32_t count)
{
    bool sorted = true;
    for (int32_t i = 1; i < count; i++)
        sorted = sorted && by_offset(&tensors[i - 1], &tensors[i]) <= 0;
    if (!sorted)
        qsort(tensors, (size_t)count, sizeof *tensors, by_offset);
}

shoal_status shoali_safetensors_header(const struct shoali_safetensors_args *args,
                                       struct shoali_file_tensor **tensors, int32_t *count)
{
    shoal_status status;
    struct shoali_json_error error;
    const char *name;
    json_t *value, *root = NULL;
    int64_t end;
    *count = 0;
    status = shoali_json_read(args->text, args->text_bytes, &root, &error);
    if (status == SHOAL_ENOMEM)
        goto done;
    if (!json_is_object(root)) {
        status = SHOAL_FAIL(SHOAL_ECORRUPT, "the header is not a JSON object: %s",
                            root ? "another value" : error.text);
        goto done;
    }
    *tensors = shoali_arena_alloc(args->arena, (json_object_size(root) + 1) * sizeof **tensors);
    if (!*tensors) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") != 0)
            SHOAL_TRY(status, read_entry(name, value, args->arena, &(*tensors)[(*count)++], &end),
                      done);
    }
    sort_tensors(*tensors, *count);
    int64_t at = 0;
    int32_t filled = 0;
    for (; filled < *count && (*tensors)[filled].at == at; filled++)
        at += (*tensors)[filled].bytes;
    if (at != args->data_bytes || filled < *count)
        status = SHOAL_FAIL(SHOAL_ECORRUPT,
                            "the header's tensors do not fill the %lld bytes after it without gaps "
                            "or overlaps: byte %lld",
                            (long long)args->data_bytes, (long long)at);
done:
    json_decref(root);
    return status;
}
