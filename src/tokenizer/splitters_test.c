/* The patterns by hand against the same patterns through PCRE2, on random text. */
#include "base/test_cmocka.h"
#include "tokenizer/regex.h"
#include "tokenizer/splitters.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXTS = 4000, CHARACTERS = 60 };

static uint64_t seed;
static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Characters of every class; blocks that all versions of the tables in use know. */
static uint32_t character(void)
{
    static const uint32_t often[] = {
        ' ',  ' ',  '\n',   '\r',   '\t',  '\'', 's',    'S',   't',  'l',    'L',    'r',
        'e',  'v',  'E',    'm',    'd',   'D',  '1',    '2',   '.',  ',',    0x17f,  0x212a,
        0xa0, 0x85, 0x2003, 0x3000, 0x301, 0xe9, 0x4e2d, 0x663, 0xbd, 0x2167, 0x1f642};
    static const uint32_t blocks[][2] = {
        {0x20, 0x7e},     {0xa0, 0x24f},    {0x370, 0x377},   {0x400, 0x52f},   {0x5d0, 0x5ea},
        {0x621, 0x669},   {0x905, 0x939},   {0xe01, 0xe3a},   {0x2000, 0x200a}, {0x2010, 0x205f},
        {0x2150, 0x2188}, {0x3041, 0x3096}, {0x4e00, 0x4fff}, {0xac00, 0xd7a3}, {0x1f600, 0x1f64f}};
    if (draw() % 3)
        return often[draw() % (sizeof often / sizeof often[0])];
    const uint32_t *block = blocks[draw() % (sizeof blocks / sizeof blocks[0])];
    return block[0] + (uint32_t)(draw() % (block[1] - block[0] + 1));
}

static void compare(const struct shoali_classes *classes, const char *pattern)
{
    struct shoali_regex *regex = NULL;
    struct shoali_matcher *matcher = NULL;
    const shoali_split_fn split = shoali_splitter_of(pattern);
    assert_non_null(split);
    assert_int_equal(shoali_regex_create(pattern, false, &regex), SHOAL_OK);
    assert_int_equal(shoali_matcher_create(&matcher), SHOAL_OK);
    for (int n = 0; n < TEXTS; n++) {
        struct shoali_str text = {0};
        const uint64_t first = seed;
        for (int i = (int)(draw() % CHARACTERS); i >= 0; i--)
            shoali_append_code_point(character(), &text);
        for (size_t at = 0, begin, end; at < text.length; at = end) {
            struct shoali_matches matches = {.at = at};
            assert_int_equal(
                shoali_regex_next(regex, matcher, text.text, text.length, &matches, &begin, &end),
                SHOAL_OK);
            const size_t fast = split(classes, text.text, text.length, at);
            if (begin != at || fast != end)
                fail_msg("seed %llu: in `%s` at %zu the pattern ends at %zu, by hand at %zu",
                         (unsigned long long)first, text.text, at, end, fast);
        }
        shoali_str_fini(&text);
    }
    shoali_matcher_destroy(matcher);
    shoali_regex_destroy(regex);
}

static void test_patterns(void **state)
{
    (void)state;
    struct shoali_classes *classes = NULL;
    const char *given = getenv("SHOAL_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
    print_message("SHOAL_TEST_SEED=%llu\n", (unsigned long long)seed);
    assert_int_equal(shoali_classes_create(&classes), SHOAL_OK);
    compare(classes, SHOALI_PATTERN_GPT2);
    compare(classes, SHOALI_PATTERN_LLAMA3);
    compare(classes, SHOALI_PATTERN_QWEN2);
    assert_null(shoali_splitter_of("\\w+"));
    shoali_free(classes);
}

/* NFC that passes over what is safe against NFC of the whole. */
static void test_nfc(void **state)
{
    (void)state;
    static const uint32_t parts[] = {'a',    'e',   's',    'A',    0x301,  0x323,  0x307,  0x308,
                                     0x30a,  0xe9,  0x1e69, 0x212b, 0x1112, 0x1161, 0x11ab, 0xd55c,
                                     0x915,  0x93c, 0x958,  0x344,  0x3b9,  0x345,  ' ',    0x4e2d,
                                     0xfb1d, 0x5d9, 0x5b4,  0x9c7,  0x9be,  0x1100, 0xac00, 0x11a8};
    struct shoali_classes *classes = NULL;
    struct shoali_classes *none = calloc(1, sizeof *none);
    assert_non_null(none);
    memset(none->of, SHOALI_NFC_UNSAFE, sizeof none->of); /* nothing is passed over */
    seed = (uint64_t)time(NULL) * 2654435761u + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    assert_int_equal(shoali_classes_create(&classes), SHOAL_OK);
    for (int n = 0; n < 4 * TEXTS; n++) {
        struct shoali_str text = {0}, fast = {0}, whole = {0};
        const uint64_t first = seed;
        for (int i = (int)(draw() % 12); i >= 0; i--)
            shoali_append_code_point(parts[draw() % (sizeof parts / sizeof parts[0])], &text);
        assert_int_equal(shoali_normal_form(SHOALI_NFC, classes, text.text, text.length, &fast),
                         SHOAL_OK);
        assert_int_equal(shoali_normal_form(SHOALI_NFC, none, text.text, text.length, &whole),
                         SHOAL_OK);
        if (strcmp(fast.text, whole.text) != 0)
            fail_msg("seed %llu: `%s` becomes `%s` instead of `%s`", (unsigned long long)first,
                     text.text, fast.text, whole.text);
        shoali_str_fini(&text);
        shoali_str_fini(&fast);
        shoali_str_fini(&whole);
    }
    free(none);
    shoali_free(classes);
}

/* Only the text that was given is decomposed. */
static void test_nfd(void **state)
{
    (void)state;
    static const char text[] = "e\xc3\xa9\xc3\xa9";
    struct shoali_classes *classes = NULL;
    struct shoali_str out = {0};
    assert_int_equal(shoali_classes_create(&classes), SHOAL_OK);
    assert_int_equal(shoali_normal_form(SHOALI_NFD, classes, text, 3, &out), SHOAL_OK);
    assert_string_equal(shoali_str_get(&out), "ee\xcc\x81");
    shoali_str_fini(&out);
    shoali_free(classes);
}

/* Circled and squared letters are parts of words, numbers and symbols around them are not. */
static void test_words(void **state)
{
    (void)state;
    static const uint32_t ranges[][2] = {
        {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    struct shoali_classes *classes = NULL;
    assert_int_equal(shoali_classes_create(&classes), SHOAL_OK);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        for (uint32_t c = ranges[i][0] - 1; c <= ranges[i][1] + 1; c++)
            if (!(classes->of[c] & SHOALI_WORD) != (c < ranges[i][0] || c > ranges[i][1]))
                fail_msg("U+%04X", (unsigned)c);
    shoali_free(classes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_nfd),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
