/* numpy.save's format: magic, version, length of a header that is a Python dict of three keys, the
 * header, the numbers (numpy.lib.format). */
#include "formats/formats_internal.h"

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
    const struct shoali_foreign *input = &file->input;
    if (!read_type(find_key(header, "'descr'"), &weight->type))
        return shoali_foreign_fail(input, at,
                                   "an array of elements that are not read: plain numbers, lowest "
                                   "byte first, are");
    if (!read_shape(find_key(header, "'shape'"), dims, &weight->ndim) || !order ||
        (strncmp(order, "True", 4) != 0 && strncmp(order, "False", 5) != 0))
        return shoali_foreign_fail(input, at, "the header of an array cannot be read");
    const bool columns = order[0] == 'T' && weight->ndim > 1;
    int64_t *own = shoali_arena_alloc(&file->arena, 2 * sizeof dims);
    if (!own)
        return SHOAL_ENOMEM;
    memcpy(own, dims, (size_t)weight->ndim * sizeof *dims);
    weight->dim = own;
    weight->stride = columns ? own + SHOALI_FILE_TENSOR_MAX_DIMS : NULL;
    if (!lay_out(weight, dims, columns ? own + SHOALI_FILE_TENSOR_MAX_DIMS : NULL))
        return shoali_foreign_fail(input, at, "an array of an impossible shape");
    if (weight->bytes != bytes)
        return shoali_foreign_fail(
            input, at,
            "an array that needs %lld bytes, and %lld are there: the file is "
            "cut or damaged",
            (long long)weight->bytes, (long long)bytes);
    return SHOAL_OK;
}

shoal_status shoali_npy_header(struct shoali_tensor_file *file, int64_t at, int64_t bytes,
                               struct shoali_file_tensor *weight)
{
    shoal_status status;
    unsigned char head[12] = {0};
    char *header = NULL;
    const struct shoali_foreign *input = &file->input;
    SHOAL_TRY(status, shoali_foreign_read(input, at, bytes < 12 ? bytes : 12, head), done);
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return shoali_foreign_fail(input, at, "no array of numpy.save begins here");
    const int64_t prefix = head[6] == 1 ? 10 : 12;
    int64_t length = head[8] | head[9] << 8;
    if (head[6] > 1)
        length |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
    if (length > HEADER_MAX || prefix + length > bytes)
        return shoali_foreign_fail(input, at, "an array's header of %lld bytes", (long long)length);
    header = shoali_calloc((size_t)length + 1, 1, "an array's header");
    if (!header)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_foreign_read(input, at + prefix, length, header), done);
    weight->at = at + prefix + length;
    SHOAL_TRY(status, describe(file, header, at, bytes - prefix - length, weight), done);
done:
    shoali_free(header);
    return status;
}
