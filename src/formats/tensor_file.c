#include "formats/formats_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = 16,
    DEPTH_MAX = 200,
    NAME_BYTES = 1000,
    WINDOW_BYTES = 1 << 16,
    TENSORS_MAX = 1 << 22
};
/* What readers of safetensors accept. */
static const uint64_t header_bytes_max = 100000000;

const char *shoali_tensor_file_kind_name(enum shoali_tensor_file_kind kind)
{
    static const char *const names[] = {
        [SHOALI_TENSOR_FILE_SAFETENSORS] = "safetensors",
        [SHOALI_TENSOR_FILE_TORCH] = "torch.save archive",
        [SHOALI_TENSOR_FILE_TORCH_LEGACY] = "torch.save before 1.6",
        [SHOALI_TENSOR_FILE_PICKLE] = "pickle",
        [SHOALI_TENSOR_FILE_NPY] = "numpy array",
        [SHOALI_TENSOR_FILE_NPZ] = "numpy archive",
    };
    return names[kind];
}

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

/* ---- names of tensors in a tree of values ---- */

struct walk {
    struct shoali_tensor_file *file;
    struct shoali_file_tensor *found; /* owned until it is moved */
    int64_t capacity;
    char name[NAME_BYTES + 64];
    size_t length;
    int32_t depth;
};

/* What a terminal would obey, and what is no text, is spelled out. */
static void append_printable(struct walk *walk, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && walk->length < NAME_BYTES;) {
        uint32_t code_point;
        const int length = shoali_utf8_decode(text + i, (size_t)(bytes - i), &code_point);
        const bool plain = length > 0 && code_point >= 0x20 && code_point != 0x7f &&
                           (code_point < 0x80 || code_point > 0x9f);
        if (plain) {
            memcpy(walk->name + walk->length, text + i, (size_t)length);
            walk->length += (size_t)length;
            i += length;
        } else {
            walk->length += (size_t)snprintf(walk->name + walk->length, 5, "\\x%02x",
                                             (unsigned)(unsigned char)text[i]);
            i++;
        }
    }
    walk->name[walk->length] = '\0';
}

static void append_key(struct walk *walk, const struct shoali_value *key, int64_t index)
{
    int64_t number = index;
    char text[32];
    if (walk->length > 0)
        append_printable(walk, ".", 1);
    if (key && key->kind == SHOALI_VALUE_TEXT) {
        append_printable(walk, key->as.text.data, key->as.text.bytes);
    } else if (!key || shoali_value_int(key, &number)) {
        snprintf(text, sizeof text, "%lld", (long long)number);
        append_printable(walk, text, (int64_t)strlen(text));
    } else {
        append_printable(walk, "?", 1);
    }
}

static shoal_status add_tensor(struct walk *walk, const struct shoali_value *value)
{
    struct shoali_tensor_file *file = walk->file;
    const struct shoali_storage *storage = value->as.tensor.storage;
    if (file->count == TENSORS_MAX || file->arena.used_bytes > SHOALI_PICKLE_MEMORY_MAX)
        return shoali_foreign_fail(&file->input, value->at,
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
        return shoali_foreign_fail(
            &file->input, value->at,
            "the tensor `%s` lies in storage `%s`, which the file does not have", walk->name,
            storage->key);
    if (storage)
        weight->at =
            storage->at + value->as.tensor.first * (int64_t)shoali_element_bytes(weight->type);
    walk->found[file->count] = *weight;
    walk->found[file->count].name =
        shoali_arena_strdup(&file->arena, walk->length > 0 ? walk->name : "tensor");
    if (!walk->found[file->count].name)
        return SHOAL_ENOMEM;
    file->count++;
    return SHOAL_OK;
}

static shoal_status visit(struct walk *walk, struct shoali_value *value);

static shoal_status visit_items(struct walk *walk, const struct shoali_value *value)
{
    shoal_status status = SHOAL_OK;
    const size_t length = walk->length;
    const bool pairs = value->kind == SHOALI_VALUE_DICT;
    for (int64_t i = 0; i < value->as.list.count; i += pairs ? 2 : 1) {
        append_key(walk, pairs ? value->as.list.item[i] : NULL, i);
        SHOAL_TRY(status, visit(walk, value->as.list.item[pairs ? i + 1 : i]), done);
        walk->length = length;
        walk->name[length] = '\0';
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
        return shoali_foreign_fail(&walk->file->input, value->at,
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

static shoal_status list_tensors(struct shoali_tensor_file *file)
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

/* ---- opening ---- */

static shoal_status open_safetensors(struct shoali_tensor_file *file, const unsigned char *head)
{
    shoal_status status;
    uint64_t length = 0;
    char *text = NULL;
    for (int i = 8; i-- > 0;)
        length = length << 8 | head[i];
    file->kind = SHOALI_TENSOR_FILE_SAFETENSORS;
    if (length > header_bytes_max || (int64_t)length > file->input.bytes - 8)
        return shoali_foreign_fail(&file->input, 0, "the header claims %llu bytes",
                                   (unsigned long long)length);
    text = shoali_malloc((size_t)length + 1, "a safetensors header");
    if (!text)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_foreign_read(&file->input, 8, (int64_t)length, text), done);
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

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

static shoal_status open_npz(struct shoali_tensor_file *file, const struct shoali_zip *zip)
{
    shoal_status status = SHOAL_OK;
    int64_t at;
    file->kind = SHOALI_TENSOR_FILE_NPZ;
    file->tensor =
        shoali_arena_alloc(&file->arena, ((size_t)zip->count + 1) * sizeof *file->tensor);
    if (!file->tensor)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < zip->count; i++) {
        struct shoali_file_tensor *weight = &file->tensor[file->count];
        const struct shoali_zip_entry *entry = &zip->entry[i];
        struct walk name = {0};
        if (!ends_with(entry->name, ".npy"))
            continue;
        append_printable(&name, entry->name, (int64_t)strlen(entry->name) - 4);
        weight->name = shoali_arena_strdup(&file->arena, name.name);
        if (!weight->name)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, shoali_zip_locate(zip, entry, &at), done);
        SHOAL_TRY(status, shoali_npy_header(file, at, entry->bytes, weight), done);
        file->count++;
    }
done:
    return status;
}

static shoal_status open_zip(struct shoali_tensor_file *file)
{
    shoal_status status;
    struct shoali_zip zip;
    const struct shoali_zip_entry *pickle = NULL;
    bool arrays = false;
    SHOAL_TRY(status, shoali_zip_open(&file->input, &file->arena, &zip), done);
    for (int32_t i = 0; i < zip.count; i++) {
        const char *name = zip.entry[i].name;
        const char *slash = strchr(name, '/');
        if (slash && strcmp(slash, "/data.pkl") == 0 && !pickle)
            pickle = &zip.entry[i];
        arrays = arrays || ends_with(name, ".npy");
    }
    if (pickle) {
        SHOAL_TRY(status, shoali_torch_open_archive(file, &zip, pickle), done);
        SHOAL_TRY(status, list_tensors(file), done);
    } else if (arrays) {
        SHOAL_TRY(status, open_npz(file, &zip), done);
    } else {
        status = shoali_foreign_fail(&file->input, -1,
                                     "an archive of neither torch.save nor numpy.savez");
    }
done:
    return status;
}

static shoal_status open_npy(struct shoali_tensor_file *file)
{
    file->kind = SHOALI_TENSOR_FILE_NPY;
    file->tensor = shoali_arena_alloc(&file->arena, sizeof *file->tensor);
    if (!file->tensor)
        return SHOAL_ENOMEM;
    file->tensor->name = "array";
    file->count = 1;
    return shoali_npy_header(file, 0, file->input.bytes, file->tensor);
}

enum content { UNKNOWN, ZIP, NPY, PICKLE, SAFETENSORS };

/* A length word of a safetensors file has zeros on top, and a brace behind it. */
static enum content look(const unsigned char *head, int64_t bytes)
{
    if (bytes >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return ZIP;
    if (bytes >= 6 && memcmp(head, "\x93NUMPY", 6) == 0)
        return NPY;
    if (bytes >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
        return PICKLE;
    return bytes >= 10 && head[8] == '{' && memcmp(head + 4, "\0\0\0", 4) == 0 ? SAFETENSORS
                                                                               : UNKNOWN;
}

static shoal_status read_head(const struct shoali_foreign *input, enum content *content,
                              unsigned char head[HEAD_BYTES])
{
    const int64_t bytes = input->bytes < HEAD_BYTES ? input->bytes : HEAD_BYTES;
    memset(head, 0, HEAD_BYTES);
    const shoal_status status = shoali_foreign_read(input, 0, bytes, head);
    *content = status == SHOAL_OK ? look(head, bytes) : UNKNOWN;
    return status;
}

bool shoali_tensor_file_looks_known(const char *path)
{
    struct shoali_foreign input;
    unsigned char head[HEAD_BYTES];
    enum content content = UNKNOWN;
    if (shoali_foreign_open(path, &input) == SHOAL_OK && read_head(&input, &content, head) < 0)
        content = UNKNOWN;
    shoali_foreign_close(&input);
    return content != UNKNOWN;
}

shoal_status shoali_tensor_file_open(const char *path, struct shoali_tensor_file *file)
{
    shoal_status status;
    unsigned char head[HEAD_BYTES];
    enum content content;
    memset(file, 0, sizeof *file);
    shoali_arena_init(&file->arena);
    SHOAL_TRY(status, shoali_foreign_open(path, &file->input), done);
    SHOAL_TRY(status, read_head(&file->input, &content, head), done);
    switch (content) {
    case ZIP:
        SHOAL_TRY(status, open_zip(file), done);
        break;
    case NPY:
        SHOAL_TRY(status, open_npy(file), done);
        break;
    case PICKLE:
        SHOAL_TRY(status, shoali_torch_open_stream(file), done);
        SHOAL_TRY(status, list_tensors(file), done);
        break;
    case SAFETENSORS:
        SHOAL_TRY(status, open_safetensors(file, head), done);
        break;
    default:
        status = shoali_foreign_fail(&file->input, 0,
                                     "it begins like no file of tensors: safetensors, torch.save, "
                                     "pickles of protocols 2 to 5, .npy and .npz are read");
    }
done:
    if (status < 0)
        shoali_tensor_file_close(file);
    return status;
}

void shoali_tensor_file_close(struct shoali_tensor_file *file)
{
    shoali_foreign_close(&file->input);
    shoali_arena_fini(&file->arena);
    shoali_free(file->window);
    memset(file, 0, sizeof *file);
}

const struct shoali_file_tensor *shoali_tensor_file_find(const struct shoali_tensor_file *file,
                                                         const char *name)
{
    for (int32_t i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0)
            return &file->tensor[i];
    return NULL;
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
        SHOAL_TRY(status, shoali_foreign_read(&file->input, at, part, file->window), done);
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
        status = shoali_foreign_read(&file->input, weight->at + first * item, count * item, out);
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
