/* Headers of this format's safetensors files: padded with spaces so that the data starts at a page.
 */
#include "checkpoint/checkpoint_internal.h"
#include "formats/formats.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Readers refuse longer headers. */
static const size_t header_bytes_max = 100000000;
static const int64_t default_shard_bytes = 5000000000;
enum { LENGTH_BYTES = 8 };

int64_t shoali_checkpoint_flat_count(const shoal_shape *shapes, int32_t count)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elements = shoal_shape_count(&shapes[i]);
        /* In bytes too, of the widest type, everything stays an int64_t. */
        if (elements < 0 || !shoali_add(sum, elements, &sum) || sum > INT64_MAX / 16)
            return -1;
    }
    return sum;
}

const shoal_shape *shoali_checkpoint_shapes(const struct shoali_checkpoint_args *args,
                                            const struct shoali_checkpoint_kind *kind)
{
    return kind->shapes ? kind->shapes : args->shapes;
}

static shoal_status append_name(struct shoali_str *text, const char *name)
{
    shoal_status status;
    char *quoted = NULL;
    json_t *value = NULL;
    if (shoali_utf8_check(name, strlen(name)) < strlen(name))
        return SHOAL_FAIL(SHOAL_EINVAL, "the tensor name \"%s\" cannot be stored: it is not UTF-8",
                          name);
    value = json_string(name);
    SHOAL_TRY(status, shoali_json_write(value, 0, "a tensor's name", &quoted), done);
    shoali_str_append(text, "%s", quoted);
done:
    free(quoted);
    json_decref(value);
    return status;
}

static void append_shape(struct shoali_str *text, const shoal_shape *shape)
{
    shoali_str_append(text, "[");
    for (int32_t i = 0; i < shape->ndim; i++)
        shoali_str_append(text, "%s%lld", i > 0 ? "," : "", (long long)shape->dim[i]);
    shoali_str_append(text, "]");
}

/* Length word and padded JSON of one file. The metadata is what loaders of PyTorch weights ask for.
 */
static shoal_status make_head(const struct shoali_checkpoint_args *args,
                              const struct shoali_checkpoint_kind *kind, struct shoali_arena *arena,
                              struct shoali_checkpoint_file *file)
{
    const shoal_dtype dtype = kind->dtype;
    const shoal_shape *shapes = shoali_checkpoint_shapes(args, kind);
    shoal_status status = SHOAL_OK;
    struct shoali_str text = {0};
    const int64_t item = (int64_t)shoal_dtype_bytes(dtype);
    int64_t at = 0;
    shoali_str_append(&text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int32_t i = file->first_tensor; i < file->first_tensor + file->tensor_count; i++) {
        const int64_t end = at + shoal_shape_count(&shapes[i]) * item;
        shoali_str_append(&text, ",");
        SHOAL_TRY(status, append_name(&text, args->names[i]), done);
        shoali_str_append(&text, ":{\"dtype\":\"%s\",\"shape\":", shoal_dtype_name(dtype));
        append_shape(&text, &shapes[i]);
        shoali_str_append(&text, ",\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)end);
        at = end;
    }
    shoali_str_append(&text, "}");
    const size_t page = SHOALI_SAFETENSORS_ALIGN;
    const size_t bytes = (LENGTH_BYTES + text.length + page - 1) / page * page;
    if (!text.failed && bytes - LENGTH_BYTES > header_bytes_max) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%d tensors need a header of %zu bytes, readers of safetensors accept "
                            "%zu: give a smaller max_shard_bytes",
                            file->tensor_count, bytes, header_bytes_max);
        goto done;
    }
    char *head = text.failed ? NULL : shoali_arena_alloc(arena, bytes);
    if (!head) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the header of %s", file->name);
        goto done;
    }
    for (int i = 0; i < LENGTH_BYTES; i++)
        head[i] = (char)(((uint64_t)(bytes - LENGTH_BYTES) >> (8 * i)) & 0xffu);
    memcpy(head + LENGTH_BYTES, text.text, text.length);
    memset(head + LENGTH_BYTES + text.length, ' ', bytes - LENGTH_BYTES - text.length);
    file->head = head;
    file->data_start = (int64_t)bytes;
    file->bytes = (int64_t)bytes + at;
done:
    shoali_str_fini(&text);
    return status;
}

/* Tensor indices at which files begin; `starts` NULL only counts. A tensor that does not fit into
 * the current file begins the next one, unless the current one has none yet. */
static int32_t cut(const struct shoali_checkpoint_args *args,
                   const struct shoali_checkpoint_kind *kind, int32_t *starts)
{
    const shoal_shape *shapes = shoali_checkpoint_shapes(args, kind);
    const int64_t item = (int64_t)shoal_dtype_bytes(kind->dtype);
    const int64_t limit = args->max_shard_bytes > 0 ? args->max_shard_bytes : default_shard_bytes;
    int32_t files = 0;
    int64_t used = 0;
    for (int32_t i = 0; i < args->tensor_count; i++) {
        const int64_t bytes = shoal_shape_count(&shapes[i]) * item;
        if (i == 0 || (bytes > 0 && bytes > limit - used)) {
            if (starts)
                starts[files] = i;
            files++;
            used = 0;
        }
        used = bytes > limit - used ? limit : used + bytes;
    }
    if (files == 0 && starts)
        starts[0] = 0;
    return files > 0 ? files : 1; /* a model without tensors has one file without any */
}

static shoal_status fill_file(const struct shoali_checkpoint_args *args,
                              const struct shoali_checkpoint_kind *kind, struct shoali_arena *arena,
                              struct shoali_checkpoint_file *file)
{
    shoal_status status;
    SHOAL_TRY(status, make_head(args, kind, arena, file), done);
    const int64_t chunk = SHOALI_CHECKPOINT_CHUNK;
    file->flat_count = (file->bytes - file->data_start) / (int64_t)shoal_dtype_bytes(kind->dtype);
    file->chunk_count = (file->bytes + chunk - 1) / chunk;
    file->chunk = shoali_arena_alloc(arena, (size_t)file->chunk_count * sizeof *file->chunk);
    if (!file->chunk)
        status = SHOAL_ENOMEM;
done:
    return status;
}

shoal_status shoali_checkpoint_plan_make(const struct shoali_checkpoint_args *args,
                                         const struct shoali_checkpoint_kind *kind,
                                         struct shoali_arena *arena,
                                         struct shoali_checkpoint_plan *plan)
{
    shoal_status status = SHOAL_OK;
    const int32_t files = cut(args, kind, NULL);
    int32_t *starts = shoali_arena_alloc(arena, (size_t)files * sizeof *starts);
    plan->name = kind->name;
    plan->of = kind->of;
    plan->dtype = kind->dtype;
    plan->file_count = files;
    plan->file = shoali_arena_alloc(arena, (size_t)files * sizeof *plan->file);
    if (!starts || !plan->file)
        return SHOAL_ENOMEM;
    (void)cut(args, kind, starts);
    int64_t flat = 0;
    for (int32_t f = 0; f < files; f++) {
        struct shoali_checkpoint_file *file = &plan->file[f];
        const int32_t end = f + 1 < files ? starts[f + 1] : args->tensor_count;
        file->first_tensor = starts[f];
        file->tensor_count = end - starts[f];
        file->flat_begin = flat;
        file->name =
            shoali_arena_printf(arena, "%s-%05d-of-%05d.safetensors", kind->name, f + 1, files);
        if (!file->name)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, fill_file(args, kind, arena, file), done);
        flat += file->flat_count;
    }
done:
    return status;
}

/* ---- reading ---- */

/* What formats/ read, as far as this project has such tensors. */
static shoal_status narrow(const struct shoali_file_tensor *weight,
                           struct shoali_safetensors_entry *entry)
{
    entry->name = weight->name;
    entry->dtype = weight->type == SHOALI_ELEMENT_COUNT ? SHOAL_DTYPE_COUNT
                                                        : shoali_element_dtype(weight->type);
    entry->begin = weight->at;
    entry->end = weight->at + weight->bytes;
    if (entry->dtype == SHOAL_DTYPE_COUNT || !shoali_file_tensor_shape(weight, &entry->shape))
        return SHOAL_FAIL(SHOAL_ECORRUPT, "the header's entry `%s` cannot be read", weight->name);
    return SHOAL_OK;
}

/* Of a head's JSON text, before so many bytes of data. */
static shoal_status read_entries(const char *text, size_t text_bytes, int64_t data_bytes,
                                 struct shoali_arena *arena,
                                 struct shoali_safetensors_entry **entries, int32_t *count)
{
    shoal_status status;
    struct shoali_file_tensor *file = NULL;
    const struct shoali_safetensors_args args = {text, text_bytes, data_bytes, arena};
    SHOAL_TRY(status, shoali_safetensors_header(&args, &file, count), done);
    *entries = shoali_arena_alloc(arena, ((size_t)*count + 1) * sizeof **entries);
    if (!*entries)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < *count; i++)
        SHOAL_TRY(status, narrow(&file[i], &(*entries)[i]), done);
done:
    return status;
}

shoal_status shoali_checkpoint_read_head(struct shoali_checkpoint_file *file, int descriptor,
                                         struct shoali_arena *arena,
                                         struct shoali_safetensors_entry **entries, int32_t *count)
{
    shoal_status status;
    unsigned char word[8];
    uint64_t text_bytes = 0;
    const int64_t word_bytes = (int64_t)sizeof word;
    SHOAL_TRY(status, shoali_checkpoint_pread(descriptor, file->path, (char *)word, word_bytes, 0),
              done);
    for (size_t i = 0; i < sizeof word; i++)
        text_bytes |= (uint64_t)word[i] << (8 * i);
    if (text_bytes > (uint64_t)(file->bytes - word_bytes)) {
        status = SHOAL_FAIL(SHOAL_ECORRUPT, "the header claims %llu bytes",
                            (unsigned long long)text_bytes);
        goto done;
    }
    file->data_start = word_bytes + (int64_t)text_bytes;
    char *text = shoali_arena_alloc(arena, (size_t)text_bytes + 1);
    if (!text) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(
        status,
        shoali_checkpoint_pread(descriptor, file->path, text, (int64_t)text_bytes, word_bytes),
        done);
    SHOAL_TRY(status,
              read_entries(text, (size_t)text_bytes, file->bytes - file->data_start, arena, entries,
                           count),
              done);
done:
    return status;
}
