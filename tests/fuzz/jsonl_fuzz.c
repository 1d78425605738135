/* A record of JSON lines: what the project's JSON reader takes, and has the text, is taken with the
 * same text; what it takes and has no such text is refused; what is refused names a reason. */
#include "fuzz.h"

#include "base/json.h"
#include "base/str.h"
#include "text_data/jsonl.h"

#include <jansson.h>
#include <string.h>

static const char *const keys[] = {"text"};

/* The strings of a value, one after the other; false: it is neither string nor list of them. */
static bool same_texts(const json_t *value, const struct shoali_jsonl_value *texts)
{
    size_t at = 0;
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if ((size_t)texts->count != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *string = json_is_array(value) ? json_array_get(value, i) : value;
        const size_t bytes = json_string_length(string);
        if (texts->end[i] != at + bytes ||
            (bytes && memcmp(texts->text + at, json_string_value(string), bytes) != 0))
            return false;
        at = texts->end[i];
    }
    return at == texts->bytes;
}

static bool has_texts(const json_t *value)
{
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++)
        if (!json_is_string(json_array_get(value, i)))
            return false;
    return json_is_string(value) || json_is_array(value);
}

static bool is_blank(const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!memchr(" \t\r\n", line[i], 4))
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data;
    struct shoali_jsonl jsonl = {.keys = keys, .key_count = 1};
    json_t *value = NULL;
    fuzz_be_silent();
    const shoal_status status = shoali_jsonl_read(&jsonl, line, size);
    FUZZ_CHECK(status == SHOAL_OK || status == SHOAL_EINVAL || status == SHOAL_END);
    FUZZ_CHECK((status == SHOAL_END) == is_blank(line, size));
    if (status == SHOAL_EINVAL)
        FUZZ_CHECK(*shoal_error_message());
    if (status == SHOAL_OK) {
        FUZZ_CHECK(jsonl.value[0].found);
        FUZZ_CHECK(shoali_utf8_check(jsonl.value[0].text, jsonl.value[0].bytes) ==
                   jsonl.value[0].bytes);
    }
    /* A byte order mark is for the reader of a file to skip, not for that of a record. */
    if (shoali_bom_bytes(line, size) == 0 &&
        shoali_json_read(line, size, &value, NULL) == SHOAL_OK) {
        const json_t *texts = json_object_get(value, "text");
        FUZZ_CHECK((status == SHOAL_OK) == (texts && has_texts(texts)));
        if (status == SHOAL_OK)
            FUZZ_CHECK(same_texts(texts, &jsonl.value[0]));
    }
    json_decref(value);
    shoali_jsonl_fini(&jsonl);
    return 0;
}
