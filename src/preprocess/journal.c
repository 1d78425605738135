/* How far the files are complete, as a small JSON file. */
#include "preprocess/preprocess.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1

static bool take_int(const json_t *object, const char *key, int64_t *value)
{
    const json_t *found = json_object_get(object, key);
    *value = json_integer_value(found);
    return json_is_integer(found) && *value >= 0;
}

static bool take_mark(const json_t *object, struct shoali_index_mark *mark)
{
    return take_int(object, "token_bytes", &mark->token_bytes) &&
           take_int(object, "sequences", &mark->sequence_count) &&
           take_int(object, "documents", &mark->document_count);
}

static bool take_all(const json_t *root, struct shoali_journal *journal)
{
    const json_t *files = json_object_get(root, "files");
    const char *made_of = json_string_value(json_object_get(root, "made_of"));
    char wanted[32];
    int64_t version, file;
    snprintf(wanted, sizeof wanted, "%016" PRIx64, journal->made_of);
    if (!take_int(root, "version", &version) || version != VERSION || !made_of ||
        strcmp(made_of, wanted) != 0 || !take_int(root, "input", &file) || file > INT32_MAX ||
        !take_int(root, "offset", &journal->place.offset) ||
        !take_int(root, "lines", &journal->place.line) ||
        !take_int(root, "input_bytes", &journal->bytes) ||
        !take_int(root, "documents", &journal->documents) ||
        !take_int(root, "tokens", &journal->tokens) ||
        json_array_size(files) != (size_t)journal->key_count)
        return false;
    journal->place.file = (int32_t)file;
    for (int32_t k = 0; k < journal->key_count; k++)
        if (!take_mark(json_array_get(files, (size_t)k), &journal->mark[k]))
            return false;
    return true;
}

shoal_status shoali_journal_read(const char *path, struct shoali_journal *journal)
{
    shoal_status status;
    char *text = NULL;
    size_t bytes;
    json_t *root = NULL;
    status = shoali_read_file(path, &text, &bytes);
    if (status == SHOAL_ENOENT)
        return SHOAL_END;
    if (status < 0)
        return status;
    status = shoali_json_read(text, bytes, &root, NULL);
    if (status == SHOAL_ECORRUPT || (status == SHOAL_OK && !take_all(root, journal)))
        status = SHOAL_END;
    json_decref(root);
    free(text);
    return status;
}

shoal_status shoali_journal_write(const char *path, const struct shoali_journal *journal)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str text = {0};
    shoali_str_append(&text,
                      "{\"version\": %d, \"made_of\": \"%016" PRIx64 "\",\n \"input\": %d, "
                      "\"offset\": %lld, \"lines\": %lld, \"input_bytes\": %lld,\n \"documents\": "
                      "%lld, \"tokens\": %lld, \"files\": [",
                      VERSION, journal->made_of, (int)journal->place.file,
                      (long long)journal->place.offset, (long long)journal->place.line,
                      (long long)journal->bytes, (long long)journal->documents,
                      (long long)journal->tokens);
    for (int32_t k = 0; k < journal->key_count; k++)
        shoali_str_append(
            &text, "%s\n  {\"token_bytes\": %lld, \"sequences\": %lld, \"documents\": %lld}",
            k ? "," : "", (long long)journal->mark[k].token_bytes,
            (long long)journal->mark[k].sequence_count, (long long)journal->mark[k].document_count);
    shoali_str_append(&text, "]}\n");
    if (text.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of a journal");
    else
        status = shoali_write_file_atomic(path, shoali_str_get(&text), text.length);
    shoali_str_fini(&text);
    return status;
}
