/* Which files with NUL bytes are text. */
#include "base/test_cmocka.h"
#include "text_data/text_kind.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 4096 };

/* In two pieces, the second of which begins at an odd offset. */
static enum shoali_text_kind kind_of(const char *bytes, size_t count)
{
    struct shoali_text_counts counts = {0};
    const size_t half = count / 2 - (count / 2) % 2 + (count > 2);
    shoali_text_count(&counts, bytes, half);
    shoali_text_count(&counts, bytes + half, count - half);
    return shoali_text_kind_of(&counts);
}

static void test_text(void **state)
{
    char bytes[BYTES];
    (void)state;
    assert_int_equal(kind_of("a\0b\n", 4), SHOALI_KIND_TEXT);
    assert_int_equal(kind_of("\0abc", 4), SHOALI_KIND_TEXT);
    memset(bytes, 'x', sizeof bytes);
    bytes[BYTES - 1] = '\0';
    assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_TEXT);
    memset(bytes, 0, sizeof bytes); /* what a crash leaves behind the last line */
    memcpy(bytes, "line\n", 5);
    assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_TEXT);
    for (size_t i = 0; i < sizeof bytes; i++) /* Cyrillic letters in eight bits, one NUL */
        bytes[i] = i % 7 == 6 ? ' ' : (char)(0xc0 + i % 64);
    bytes[77] = '\0';
    assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_TEXT);
}

static void test_binary(void **state)
{
    char bytes[BYTES];
    uint32_t random = 1;
    (void)state;
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_BINARY);
    for (size_t i = 0; i < sizeof bytes; i++) /* as compressed data are */
        bytes[i] = (char)((random = random * 1664525u + 1013904223u) >> 24);
    bytes[5] = '\0';
    assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_BINARY);
    for (size_t i = 0; i + 4 <= sizeof bytes; i += 4) /* small numbers of four bytes */
        memcpy(bytes + i, (char[4]){(char)(i % 128), 1, 0, 0}, 4);
    assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_BINARY);
}

/* UTF-16 without a mark, in both byte orders. */
static void test_wide(void **state)
{
    char bytes[BYTES];
    (void)state;
    for (size_t order = 0; order < 2; order++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = i % 2 == order ? '\0' : (char)('a' + i % 26);
        assert_int_equal(kind_of(bytes, sizeof bytes), SHOALI_KIND_WIDE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
