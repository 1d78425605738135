/* Any bytes as the file of a tokenizer: tokenizer.json, a SentencePiece model, tiktoken ranks, and,
 * behind a first '#', merges.txt. What is read encodes and decodes texts of any kind without harm,
 * twice with the same ids, and is made again from its own JSON. */
#include "fuzz.h"

#include "tokenizer/formats.h"
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const texts[] = {
    "Hello, world! It's 12345.\n\n  x",
    "\xe4\xbd\xa0\xe5\xa5\xbd e\xcc\x81 \xd9\x85\xd8\xb1 \xed\x95\x9c", "\xff\xfe text \xc3",
    "<s>[MASK] \xe2\x96\x81 ab ba aab", ""};

static void check_text(const shoal_tokenizer *tokenizer, const char *text)
{
    int32_t ids[512], again[512];
    int64_t count = 0, count_again = 0;
    char back[64];
    size_t bytes;
    if (shoal_tokenizer_encode(tokenizer, text, strlen(text), ids, 512, &count) < 0 || count > 512)
        return;
    FUZZ_CHECK(shoal_tokenizer_encode(tokenizer, text, strlen(text), again, 512, &count_again) ==
               SHOAL_OK);
    FUZZ_CHECK(count == count_again && memcmp(ids, again, (size_t)count * sizeof *ids) == 0);
    for (int64_t i = 0; i < count; i++)
        FUZZ_CHECK(ids[i] >= 0 && ids[i] < shoal_tokenizer_vocab_size(tokenizer));
    if (shoal_tokenizer_decode(tokenizer, ids, count, back, sizeof back, &bytes) == SHOAL_OK)
        FUZZ_CHECK(bytes < 1 << 24);
    FUZZ_CHECK(shoal_tokenizer_post_process(tokenizer, ids, count, again, 512, &count_again) ==
               SHOAL_OK);
}

static void check(shoal_tokenizer *tokenizer)
{
    shoal_tokenizer *again = NULL;
    char *text = NULL;
    const char *json = shoal_tokenizer_json(tokenizer);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_text(tokenizer, texts[i]);
    FUZZ_CHECK(shoal_tokenizer_describe(tokenizer, &text) == SHOAL_OK);
    free(text);
    FUZZ_CHECK(shoal_tokenizer_from_json(json, strlen(json), &again) == SHOAL_OK);
    FUZZ_CHECK(strcmp(json, shoal_tokenizer_json(again)) == 0);
    shoal_tokenizer_destroy(again);
    shoal_tokenizer_destroy(tokenizer);
}

/* A vocabulary for the merges: a file of this process. */
static const char *vocabulary(void)
{
    static const char text[] = "{\"a\":0,\"b\":1,\"ab\":2,\"aa\":3,\"aab\":4,\"ba\":5}";
    static char path[40];
    if (!*path) {
        const int descriptor = memfd_create("vocab", 0);
        FUZZ_CHECK(descriptor >= 0 && write(descriptor, text, sizeof text - 1) == sizeof text - 1);
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    }
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    shoal_tokenizer *tokenizer = NULL;
    shoal_tokenizer_args args = {0};
    fuzz_be_silent();
    if (size > 0 && data[0] == '#') {
        args = (shoal_tokenizer_args){.type = "GPT2BPETokenizer",
                                      .vocab_file = vocabulary(),
                                      .merge_file = fuzz_file(data, size)};
    } else {
        args.path = fuzz_file(data, size);
    }
    if (shoal_tokenizer_load(&args, &tokenizer) == SHOAL_OK)
        check(tokenizer);
    else
        FUZZ_CHECK(tokenizer == NULL && *shoal_error_message());
    return 0;
}
