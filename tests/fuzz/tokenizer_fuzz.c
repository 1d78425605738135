/* Any bytes as a text and as the JSON form of a tokenizer: what can be encoded is decoded to the
 * same bytes, and a tokenizer made from its own JSON is the same one. */
#include "fuzz.h"

#include "tokenizer/tokenizer.h"

#include <string.h>

static void round_trip(const shoal_tokenizer *tokenizer, const char *text, size_t bytes)
{
    int64_t count = 0;
    size_t decoded_bytes = 0;
    int32_t *tokens = malloc((bytes + 1) * sizeof *tokens);
    char *decoded = malloc(bytes + 1);
    FUZZ_CHECK(tokens && decoded);
    if (shoal_tokenizer_encode(tokenizer, text, bytes, tokens, (int64_t)bytes, &count) ==
        SHOAL_OK) {
        FUZZ_CHECK(count >= 0 && (size_t)count <= bytes);
        FUZZ_CHECK(shoal_tokenizer_decode(tokenizer, tokens, count, decoded, bytes,
                                          &decoded_bytes) == SHOAL_OK);
        FUZZ_CHECK(decoded_bytes == bytes && memcmp(decoded, text, bytes) == 0);
    }
    free(tokens);
    free(decoded);
}

static void json_round_trip(const shoal_tokenizer *tokenizer)
{
    shoal_tokenizer *again = NULL;
    const char *json = shoal_tokenizer_json(tokenizer);
    FUZZ_CHECK(shoal_tokenizer_from_json(json, strlen(json), &again) == SHOAL_OK);
    FUZZ_CHECK(strcmp(json, shoal_tokenizer_json(again)) == 0);
    shoal_tokenizer_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"byte", "char"};
    const char *text = (const char *)data;
    shoal_tokenizer *tokenizer;
    fuzz_be_silent();
    for (int i = 0; i < 2; i++) {
        if (shoal_tokenizer_create(names[i], text, size, &tokenizer) != SHOAL_OK)
            continue;
        round_trip(tokenizer, text, size);
        json_round_trip(tokenizer);
        shoal_tokenizer_destroy(tokenizer);
    }
    if (shoal_tokenizer_from_json(text, size, &tokenizer) == SHOAL_OK) {
        /* numbers and pipelines need not give the text back: tokenizer_files_fuzz.c */
        const char *name = shoal_tokenizer_name(tokenizer);
        if (strcmp(name, "byte") == 0 || strcmp(name, "char") == 0)
            round_trip(tokenizer, text, size);
        json_round_trip(tokenizer);
        shoal_tokenizer_destroy(tokenizer);
    }
    FUZZ_CHECK(shoali_utf8_check(text, size) <= size);
    return 0;
}
