#include "inspect/inspect.h"

#include "shoal/indexed.h"
#include "shoal/tokenizer.h"

#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static shoal_status no_memory(const char *path)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "%s: cannot allocate its contents", path);
}

bool shoali_inspect_ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* name, kind, bytes; NULL: no memory. */
static json_t *begin_file(const char *name, const char *kind, int64_t bytes)
{
    json_t *object = json_object();
    int failed = object == NULL;
    if (!failed) {
        failed |=
            json_object_set_new(object, "name", shoali_inspect_text(name, (int64_t)strlen(name)));
        failed |= json_object_set_new(object, "kind", json_string(kind));
        failed |= json_object_set_new(object, "bytes", json_integer(bytes));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- files of tensors ---- */

static shoal_status add_tensor(const struct shoali_inspect *inspect,
                               struct shoali_tensor_file *file,
                               const struct shoali_file_tensor *tensor, json_t *list)
{
    shoal_status status = SHOAL_OK;
    json_t *statistics = NULL, *shape = json_array(), *row = json_object();
    int failed = !shape || !row;
    if (inspect->statistics)
        SHOAL_TRY(status, shoali_inspect_statistics(file, tensor, &statistics), done);
    for (int32_t d = 0; d < tensor->ndim && !failed; d++)
        failed = json_array_append_new(shape, json_integer(tensor->dim[d]));
    failed |= json_object_set_new(row, "name", json_string(tensor->name));
    failed |= json_object_set_new(row, "dtype", json_string(shoali_file_tensor_type(tensor)));
    failed |= json_object_set(row, "shape", shape);
    failed |= json_object_set_new(row, "bytes", json_integer(tensor->bytes));
    if (!tensor->memory)
        failed |= json_object_set_new(row, "offset", json_integer(tensor->at));
    if (statistics)
        failed |= json_object_set(row, "statistics", statistics);
    failed |= json_array_append(list, row);
    if (failed)
        status = no_memory(file->input.path);
done:
    json_decref(statistics);
    json_decref(shape);
    json_decref(row);
    return status;
}

static int add_imports(const struct shoali_tensor_file *file, json_t *object)
{
    json_t *list = json_array();
    char name[520];
    int failed = list == NULL;
    for (int32_t i = 0; i < file->global_count && !failed; i++) {
        snprintf(name, sizeof name, "%s.%s", file->global[i]->as.global.module,
                 file->global[i]->as.global.name);
        failed = json_array_append_new(list, shoali_inspect_text(name, (int64_t)strlen(name)));
    }
    if (file->global_count == 0 || failed) {
        json_decref(list);
        return failed;
    }
    return json_object_set_new(object, "imports", list);
}

/* Whether a tree has anything but tensors at its top. */
static bool only_tensors(const struct shoali_value *root)
{
    if (root->kind == SHOALI_VALUE_TENSOR)
        return true;
    for (int64_t i = 1; root->kind == SHOALI_VALUE_DICT && i < root->as.list.count; i += 2)
        if (root->as.list.item[i]->kind != SHOALI_VALUE_TENSOR)
            return false;
    return root->kind == SHOALI_VALUE_DICT;
}

static shoal_status describe_tensors(const struct shoali_inspect *inspect, const char *path,
                                     const char *name, json_t **out)
{
    shoal_status status;
    struct shoali_tensor_file file = {0};
    json_t *list = NULL, *values = NULL, *object = NULL;
    SHOAL_TRY(status, shoali_tensor_file_open(path, &file), done);
    object = begin_file(name, file.kind, file.input.bytes);
    list = json_array();
    if (!object || json_object_set(object, "tensors", list) != 0) {
        status = no_memory(path);
        goto done;
    }
    for (int32_t i = 0; i < file.count; i++)
        if (!inspect->pattern || fnmatch(inspect->pattern, file.tensor[i].name, 0) == 0)
            SHOAL_TRY(status, add_tensor(inspect, &file, &file.tensor[i], list), done);
    if (file.root && !inspect->pattern) {
        if (!only_tensors(file.root)) {
            SHOAL_TRY(status, shoali_inspect_values(file.root, &values), done);
            if (json_object_set(object, "values", values) != 0)
                status = no_memory(path);
        }
        if (add_imports(&file, object) != 0)
            status = no_memory(path);
    }
done:
    *out = status == SHOAL_OK ? json_incref(object) : NULL;
    json_decref(object);
    json_decref(list);
    json_decref(values);
    shoali_tensor_file_close(&file);
    return status;
}

/* ---- data files, tokenizers ---- */

shoal_status shoali_inspect_indexed(const char *prefix, const char *name, json_t **out)
{
    shoal_status status;
    shoal_indexed_info info = {0};
    json_t *facts = NULL;
    SHOAL_TRY(status, shoal_indexed_inspect(prefix, &info), done);
    *out = begin_file(name, "data files of Megatron", info.index_bytes + info.token_bytes);
    facts = json_pack("{s:I, s:I, s:I, s:s}", "documents", (json_int_t)info.document_count,
                      "sequences", (json_int_t)info.sequence_count, "tokens",
                      (json_int_t)info.token_count, "dtype", info.dtype);
    if (!*out || !facts || json_object_set(*out, "facts", facts) != 0)
        status = no_memory(prefix);
done:
    json_decref(facts);
    return status;
}

static bool is_tokenizer(const char *name)
{
    return strcmp(name, "tokenizer.json") == 0 || strcmp(name, "vocab.json") == 0 ||
           shoali_inspect_ends_with(name, ".model") || shoali_inspect_ends_with(name, ".tiktoken");
}

static shoal_status describe_tokenizer(const char *path, const char *name, int64_t bytes,
                                       json_t **out)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    json_t *facts = NULL;
    SHOAL_TRY(status, shoal_tokenizer_open(path, &tokenizer), done);
    *out = begin_file(name, "tokenizer", bytes);
    facts = json_pack("{s:s, s:I}", "model", shoal_tokenizer_name(tokenizer), "vocabulary",
                      (json_int_t)shoal_tokenizer_vocab_size(tokenizer));
    if (!*out || !facts || json_object_set(*out, "facts", facts) != 0)
        status = no_memory(path);
done:
    json_decref(facts);
    shoal_tokenizer_destroy(tokenizer);
    return status;
}

/* PREFIX of PREFIX.bin or PREFIX.idx, if both are there; owned; NULL: no. */
static char *indexed_prefix(const char *path)
{
    struct stat info;
    struct shoali_str other = {0};
    char *prefix = NULL;
    const bool bin = shoali_inspect_ends_with(path, ".bin");
    if (!bin && !shoali_inspect_ends_with(path, ".idx"))
        return NULL;
    shoali_str_append(&other, "%.*s%s", (int)strlen(path) - 4, path, bin ? ".idx" : ".bin");
    if (!other.failed && stat(shoali_str_get(&other), &info) == 0) {
        prefix = other.text;
        prefix[strlen(path) - 4] = '\0';
        return prefix;
    }
    shoali_str_fini(&other);
    return NULL;
}

shoal_status shoali_inspect_file(const struct shoali_inspect *inspect, const char *path,
                                 const char *name, json_t **out)
{
    struct stat info;
    char *prefix = indexed_prefix(path);
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    *out = NULL;
    if (prefix) {
        const shoal_status status = shoali_inspect_indexed(prefix, name, out);
        free(prefix);
        return status;
    }
    if (shoali_tensor_file_looks_known(path))
        return describe_tensors(inspect, path, name, out);
    const int64_t bytes = stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
    if (is_tokenizer(base))
        return describe_tokenizer(path, name, bytes, out);
    if (shoali_inspect_ends_with(path, ".safetensors") || shoali_inspect_ends_with(path, ".pt") ||
        shoali_inspect_ends_with(path, ".bin") || shoali_inspect_ends_with(path, ".npy") ||
        shoali_inspect_ends_with(path, ".npz") || shoali_inspect_ends_with(path, ".pth"))
        return describe_tensors(inspect, path, name, out); /* says what is wrong with it */
    *out = begin_file(name, shoali_inspect_ends_with(path, ".json") ? "JSON" : "other", bytes);
    return *out ? SHOAL_OK : no_memory(path);
}
