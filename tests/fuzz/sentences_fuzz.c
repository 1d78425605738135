/* Any bytes as a text of sentences (the reader of records takes UTF-8 alone; more is asked for
 * here): with the space between them they are the text, without it they are in it, in order, and
 * what is left out is space. */
#include "fuzz.h"

#include "preprocess/preprocess.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t begin, end, at = 0;
    fuzz_be_silent();
    const bool valid = shoali_utf8_check(text, size) == size;
    struct shoali_sentences kept = {.text = text, .bytes = size, .keep_space = true};
    while (shoali_sentence_next(&kept, &begin, &end)) {
        FUZZ_CHECK(begin == at && end > begin && end <= size);
        FUZZ_CHECK(!valid || shoali_utf8_check(text + begin, end - begin) == end - begin);
        at = end;
    }
    FUZZ_CHECK(at == size || at == 0); /* 0: nothing but space */
    struct shoali_sentences cut = {.text = text, .bytes = size};
    for (at = 0; shoali_sentence_next(&cut, &begin, &end); at = end) {
        FUZZ_CHECK(begin >= at && end > begin && end <= size);
        for (size_t i = at; i < begin; i++)
            FUZZ_CHECK((text[i] & 0x80) || memchr(" \t\n\v\f\r", text[i], 6));
    }
    return 0;
}
