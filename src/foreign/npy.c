/* numpy.save's format: magic, version, length of a header that is a Python dict of three keys, the
 * header, the numbers (numpy.lib.format). */
#include "foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 1 << 16 };

/* Behind 'KEY': and blanks; NULL: no such key. */
static const char *find_key(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':')
        at++;
    return at;
}

/* '<f4' and the like. */
static bool read_type(const char *at, enum shoali_element *type)
{
    char name[4] = {0};
    if (!at || (at[0] != '\'' && at[0] != '"'))
        return false;
    const char *end = strchr(at + 1, at[0]);
    if (!end || end - at < 4 || end - at > 5 || !strchr("<|=", at[1]))
        return false;
    memcpy(name, at + 2, (size_t)(end - at - 2));
    *type = shoali_element_find(SHOALI_NAMED_BY_NUMPY, name);
    return *type != SHOALI_ELEMENT_COUNT;
}

/* (3, 4) or (3,) or () */
static bool read_shape(const char *at, int64_t dims[SHOALI_FILE_TENSOR_MAX_DIMS], int32_t *ndim)
{
    *ndim = 0;
    if (!at || *at++ != '(')
        return false;
    while (true) {
        char *end;
        while (*at == ' ' || *at == ',')
            at++;
        if (*at == ')')
            return true;
        const long long dim = strtoll(at, &end, 10);
        if (end == at || dim < 0 || *ndim == SHOALI_FILE_TENSOR_MAX_DIMS)
            return false;
        dims[(*ndim)++] = dim;
        at = *end == 'L' ? end + 1 : end;
    }
}

/* Elements, and strides where the first dim runs fastest; false: impossible. */
static bool lay_out(struct shoali_file_tensor *weight, const int64_t *dims, int64_t *stride)
{
    weight->count = 1;
    for (int32_t d = 0; d < weight->ndim; d++) {
        if (stride)
            stride[d] = weight->count;
        if (!shoali_mul(weight->count, dims[d], &weight->count))
            return false;
    }
    return shoali_mul(weight->count, (int64_t)shoali_element_bytes(weight->type), &weight->bytes) &&
           weight->bytes <= INT64_MAX / 4;
}

static shoal_status describe(struct shoali_tensor_file *file, const char *header, int64_t at,
                             int64_t bytes, struct shoali_file_tensor *weight)
{
    int64_t dims[SHOALI_FILE_TENSOR_MAX_DIMS];
    const char *order = find_key(header, "'fortran_order'");
    const struct shoali_input *input = &file->input;
    if (!read_type(find_key(header, "'descr'"), &weight->type))
        return shoali_input_fail(
            input, at,
            "an array of unsupported elements: plain little-endian numbers are supported");
    if (!read_shape(find_key(header, "'shape'"), dims, &weight->ndim) || !order ||
        (strncmp(order, "True", 4) != 0 && strncmp(order, "False", 5) != 0))
        return shoali_input_fail(input, at, "the header of an array cannot be read");
    const bool columns = order[0] == 'T' && weight->ndim > 1;
    int64_t *own = shoali_arena_alloc(&file->arena, 2 * sizeof dims);
    if (!own)
        return SHOAL_ENOMEM;
    memcpy(own, dims, (size_t)weight->ndim * sizeof *dims);
    weight->dim = own;
    weight->stride = columns ? own + SHOALI_FILE_TENSOR_MAX_DIMS : NULL;
    if (!lay_out(weight, dims, columns ? own + SHOALI_FILE_TENSOR_MAX_DIMS : NULL))
        return shoali_input_fail(input, at, "an array of an impossible shape");
    if (weight->bytes != bytes)
        return shoali_input_fail(
            input, at,
            "an array needs %lld bytes, but there are %lld: the file is truncated or damaged",
            (long long)weight->bytes, (long long)bytes);
    return SHOAL_OK;
}

/* One array whose header begins at byte `at` of the file, of `bytes` in all. */
static shoal_status read_header(struct shoali_tensor_file *file, int64_t at, int64_t bytes,
                                struct shoali_file_tensor *weight)
{
    shoal_status status;
    unsigned char head[12] = {0};
    char *header = NULL;
    const struct shoali_input *input = &file->input;
    SHOAL_TRY(status, shoali_input_read(input, at, bytes < 12 ? bytes : 12, head), done);
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return shoali_input_fail(input, at, "this is not an array of numpy.save");
    const int64_t prefix = head[6] == 1 ? 10 : 12;
    int64_t length = head[8] | head[9] << 8;
    if (head[6] > 1)
        length |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
    if (length > HEADER_MAX || prefix + length > bytes)
        return shoali_input_fail(input, at, "an array's header has %lld bytes, which cannot be",
                                 (long long)length);
    header = shoali_calloc((size_t)length + 1, 1, "an array's header");
    if (!header)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_input_read(input, at + prefix, length, header), done);
    weight->at = at + prefix + length;
    SHOAL_TRY(status, describe(file, header, at, bytes - prefix - length, weight), done);
done:
    shoali_free(header);
    return status;
}

static shoal_status open_npy(struct shoali_tensor_file *file)
{
    file->kind = "numpy array";
    file->tensor = shoali_arena_alloc(&file->arena, sizeof *file->tensor);
    if (!file->tensor)
        return SHOAL_ENOMEM;
    file->tensor->name = "array";
    file->count = 1;
    return read_header(file, 0, file->input.bytes, file->tensor);
}

static bool is_npy(const unsigned char *head, int64_t bytes)
{
    return bytes >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

const struct shoali_tensor_format shoali_format_npy = {
    .name = ".npy and .npz", /* archives begin as those of torch.save do */
    .probe = is_npy,
    .open = open_npy,
};

/* ---- archives of numpy.savez ---- */

bool shoali_npz_has(const struct shoali_zip_entry *entry)
{
    const size_t length = strlen(entry->name);
    return length >= 4 && strcmp(entry->name + length - 4, ".npy") == 0;
}

shoal_status shoali_npz_open(struct shoali_tensor_file *file, const struct shoali_zip *zip)
{
    shoal_status status = SHOAL_OK;
    int64_t at;
    file->kind = "numpy archive";
    file->tensor =
        shoali_arena_alloc(&file->arena, ((size_t)zip->count + 1) * sizeof *file->tensor);
    if (!file->tensor)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < zip->count; i++) {
        struct shoali_file_tensor *weight = &file->tensor[file->count];
        const struct shoali_zip_entry *entry = &zip->entry[i];
        struct shoali_printable name = {0};
        if (!shoali_npz_has(entry))
            continue;
        shoali_printable_append(&name, entry->name, (int64_t)strlen(entry->name) - 4);
        weight->name = shoali_arena_strdup(&file->arena, name.text);
        if (!weight->name)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, shoali_zip_locate(zip, entry, &at), done);
        SHOAL_TRY(status, read_header(file, at, entry->bytes, weight), done);
        file->count++;
    }
done:
    return status;
}
