/* JSON: the project's reader and jansson's agree on the values of a text, and a written value is
 * read as the same value again. The project's reader takes more: numbers of any size, Python's NaN
 * and Infinity, a byte order mark. */
#include "fuzz.h"

#include "base/json.h"

#include <jansson.h>
#include <string.h>

static bool has(const char *bytes, size_t size, const char *word)
{
    return size > 0 && memmem(bytes, size, word, strlen(word)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    char *text = NULL;
    json_t *value = NULL, *again = NULL;
    json_error_t their_error;
    struct shoali_json_error error;
    const shoal_status status = shoali_json_read(bytes, size, &value, &error);
    if (size > 0 && memchr(bytes, '\0', size)) { /* jansson takes some for the end of the text */
        FUZZ_CHECK(status == SHOAL_ECORRUPT && !value);
        return 0;
    }
    json_t *theirs =
        json_loadb(bytes, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &their_error);
    const bool more = !theirs && (json_error_code(&their_error) == json_error_numeric_overflow ||
                                  has(bytes, size, "NaN") || has(bytes, size, "Infinity") ||
                                  has(bytes, size, "\xef\xbb\xbf"));
    FUZZ_CHECK((status == SHOAL_OK) == (value != NULL));
    FUZZ_CHECK(more || (value != NULL) == (theirs != NULL));
    if (value) {
        FUZZ_CHECK(more || json_equal(value, theirs));
        FUZZ_CHECK(shoali_json_write(value, JSON_REAL_PRECISION(17), "a value", &text) == SHOAL_OK);
        FUZZ_CHECK(shoali_json_read(text, strlen(text), &again, NULL) == SHOAL_OK);
        FUZZ_CHECK(json_equal(value, again));
    } else {
        FUZZ_CHECK(status == SHOAL_ECORRUPT && error.line > 0 && error.column > 0 && *error.text);
        FUZZ_CHECK(more ||
                   error.duplicate == (json_error_code(&their_error) == json_error_duplicate_key));
    }
    free(text);
    json_decref(value);
    json_decref(again);
    json_decref(theirs);
    return 0;
}
