#include "formats/formats.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 16, WINDOW_BYTES = 1 << 16 };
/* What readers of safetensors accept. */
static const uint64_t header_bytes_max = 100000000;

const char *shoali_file_tensor_type(const struct shoali_file_tensor *tensor)
{
    return tensor->type == SHOALI_ELEMENT_COUNT ? tensor->type_name
                                                : shoali_element_name(tensor->type);
}

const char *shoali_file_tensor_shape_text(const struct shoali_file_tensor *weight, char *buffer)
{
    size_t used = (size_t)snprintf(buffer, SHOALI_FILE_TENSOR_SHAPE_BYTES, "[");
    for (int32_t d = 0; d < weight->ndim; d++)
        used += (size_t)snprintf(buffer + used, SHOALI_FILE_TENSOR_SHAPE_BYTES - used,
                                 d > 0 ? ", %lld" : "%lld", (long long)weight->dim[d]);
    (void)snprintf(buffer + used, SHOALI_FILE_TENSOR_SHAPE_BYTES - used, "]");
    return buffer;
}

bool shoali_file_tensor_shape(const struct shoali_file_tensor *weight, shoal_shape *shape)
{
    *shape = (shoal_shape){.ndim = weight->ndim};
    if (weight->ndim > SHOAL_MAX_DIMS)
        return false;
    for (int32_t d = 0; d < weight->ndim; d++)
        shape->dim[d] = weight->dim[d];
    return true;
}

/* ---- opening ---- */

static shoal_status open_safetensors(struct shoali_tensor_file *file)
{
    shoal_status status;
    unsigned char head[8];
    uint64_t length = 0;
    char *text = NULL;
    file->kind = "safetensors";
    SHOAL_TRY(status, shoali_input_read(&file->input, 0, sizeof head, head), done);
    for (int i = 8; i-- > 0;)
        length = length << 8 | head[i];
    if (length > header_bytes_max || (int64_t)length > file->input.bytes - 8)
        return shoali_input_fail(&file->input, 0, "the header claims %llu bytes",
                                 (unsigned long long)length);
    text = shoali_malloc((size_t)length + 1, "a safetensors header");
    if (!text)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_input_read(&file->input, 8, (int64_t)length, text), done);
    const struct shoali_safetensors_args args = {
        text, (size_t)length, file->input.bytes - 8 - (int64_t)length, &file->arena};
    status = shoali_safetensors_header(&args, &file->tensor, &file->count);
    if (status == SHOAL_ECORRUPT) {
        shoali_error_prefix(status, "%s", file->input.path);
        status = SHOAL_EINVAL;
    }
    for (int32_t i = 0; status == SHOAL_OK && i < file->count; i++)
        file->tensor[i].at += 8 + (int64_t)length;
done:
    shoali_free(text);
    return status;
}

/* A length word of a file has zeros on top, and a brace behind it. */
static bool is_safetensors(const unsigned char *head, int64_t bytes)
{
    return bytes >= 10 && head[8] == '{' && memcmp(head + 4, "\0\0\0", 4) == 0;
}

const struct shoali_tensor_format shoali_format_safetensors = {
    .name = "safetensors",
    .probe = is_safetensors,
    .open = open_safetensors,
};

/* *format is NULL where the beginning is of none. */
static shoal_status find_format(const struct shoali_input *input,
                                const struct shoali_tensor_format **format)
{
    unsigned char head[HEAD_BYTES] = {0};
    const int64_t bytes = input->bytes < HEAD_BYTES ? input->bytes : HEAD_BYTES;
    const shoal_status status = shoali_input_read(input, 0, bytes, head);
    *format = NULL;
    for (int32_t i = 0; status == SHOAL_OK && shoali_tensor_formats[i] && !*format; i++)
        if (shoali_tensor_formats[i]->probe(head, bytes))
            *format = shoali_tensor_formats[i];
    return status;
}

bool shoali_tensor_file_looks_known(const char *path)
{
    struct shoali_input input;
    const struct shoali_tensor_format *format;
    const bool known = shoali_input_open(path, &input) == SHOAL_OK &&
                       find_format(&input, &format) == SHOAL_OK && format;
    shoali_input_close(&input);
    return known;
}

/* Names what this build reads. */
static shoal_status refuse(const struct shoali_input *input)
{
    shoal_status status;
    struct shoali_str names = {0};
    for (int32_t i = 0; shoali_tensor_formats[i]; i++)
        shoali_str_append(&names, "%s%s", i > 0 ? ", " : "", shoali_tensor_formats[i]->name);
    shoali_str_append(&names, "%s",
                      shoali_tensor_formats[1]
                          ? " are supported"
                          : " is supported; this build has no reader of torch, "
                            "pickle and numpy files (SHOAL_WITH_FOREIGN=OFF)");
    status = shoali_input_fail(input, 0, "its beginning is of no known format: %s",
                               shoali_str_get(&names));
    shoali_str_fini(&names);
    return status;
}

shoal_status shoali_tensor_file_open(const char *path, struct shoali_tensor_file *file)
{
    shoal_status status;
    const struct shoali_tensor_format *format;
    memset(file, 0, sizeof *file);
    shoali_arena_init(&file->arena);
    SHOAL_TRY(status, shoali_input_open(path, &file->input), done);
    SHOAL_TRY(status, find_format(&file->input, &format), done);
    status = format ? format->open(file) : refuse(&file->input);
done:
    if (status < 0)
        shoali_tensor_file_close(file);
    return status;
}

void shoali_tensor_file_close(struct shoali_tensor_file *file)
{
    shoali_input_close(&file->input);
    shoali_arena_fini(&file->arena);
    shoali_free(file->window);
    memset(file, 0, sizeof *file);
}

/* ---- reading ---- */

/* Bytes that are read here and there: the part of the file around them is kept. */
static shoal_status read_near(struct shoali_tensor_file *file, int64_t at, int64_t bytes, char *out)
{
    shoal_status status = SHOAL_OK;
    if (at < file->window_at || at + bytes > file->window_at + file->window_bytes) {
        const int64_t left = file->input.bytes - at;
        if (!file->window)
            file->window = shoali_malloc(WINDOW_BYTES, "part of a tensor");
        if (!file->window)
            return SHOAL_ENOMEM;
        file->window_bytes = 0;
        const int64_t part = left < WINDOW_BYTES && left >= bytes ? left : WINDOW_BYTES;
        SHOAL_TRY(status, shoali_input_read(&file->input, at, part, file->window), done);
        file->window_at = at;
        file->window_bytes = part;
    }
    memcpy(out, file->window + (at - file->window_at), (size_t)bytes);
done:
    return status;
}

/* Element by element, each where its strides say. */
static shoal_status gather(struct shoali_tensor_file *file, const struct shoali_file_tensor *weight,
                           int64_t first, int64_t count, char *out)
{
    shoal_status status = SHOAL_OK;
    const int64_t item = (int64_t)shoali_element_bytes(weight->type);
    for (int64_t i = first; i < first + count; i++, out += item) {
        int64_t rest = i, place = 0;
        for (int32_t d = weight->ndim; d-- > 0;) {
            place += rest % weight->dim[d] * weight->stride[d];
            rest /= weight->dim[d];
        }
        if (weight->memory)
            memcpy(out, weight->memory + place * item, (size_t)item);
        else
            SHOAL_TRY(status, read_near(file, weight->at + place * item, item, out), done);
    }
done:
    return status;
}

shoal_status shoali_tensor_file_read(struct shoali_tensor_file *file,
                                     const struct shoali_file_tensor *weight, int64_t first,
                                     int64_t count, void *out)
{
    shoal_status status = SHOAL_OK;
    SHOAL_ASSERT(first >= 0 && count >= 0 && first <= weight->count - count);
    if (count == 0)
        return SHOAL_OK;
    if (weight->type == SHOALI_ELEMENT_COUNT)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "%s: the tensor `%s` has elements of type %s, which "
                          "cannot be read",
                          file->input.path, weight->name, weight->type_name);
    const int64_t item = (int64_t)shoali_element_bytes(weight->type);
    if (weight->stride)
        status = gather(file, weight, first, count, out);
    else if (weight->memory)
        memcpy(out, weight->memory + first * item, (size_t)(count * item));
    else
        status = shoali_input_read(&file->input, weight->at + first * item, count * item, out);
    if (status < 0)
        return shoali_error_prefix(status, "tensor `%s`", weight->name);
    return status;
}

shoal_status shoali_tensor_file_read_f32(struct shoali_tensor_file *file,
                                         const struct shoali_file_tensor *weight, int64_t first,
                                         int64_t count, float *out)
{
    enum { PART = 4096 };
    char raw[PART * sizeof(double)];
    shoal_status status = SHOAL_OK;
    if (weight->type == SHOALI_ELEMENT_F32)
        return shoali_tensor_file_read(file, weight, first, count, out);
    if (weight->type == SHOALI_ELEMENT_C64 || weight->type == SHOALI_ELEMENT_C128)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "%s: the tensor `%s` has complex numbers",
                          file->input.path, weight->name);
    for (int64_t at = 0; at < count; at += PART) {
        const int64_t part = count - at < PART ? count - at : PART;
        SHOAL_TRY(status, shoali_tensor_file_read(file, weight, first + at, part, raw), done);
        (void)shoali_element_to_f32(weight->type, raw, part, out + at);
    }
done:
    return status;
}
