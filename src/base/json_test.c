#include "base/json.h"

#include "base/fault.h"
#include "base/test_cmocka.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void expect_error(const char *text, size_t bytes, const char *message)
{
    json_t *value = NULL;
    struct shoali_json_error error;
    assert_int_equal(shoali_json_read(text, bytes, &value, &error), SHOAL_ECORRUPT);
    assert_null(value);
    assert_string_equal(shoal_error_message(), message);
    assert_non_null(strstr(message, error.text));
}

static void test_errors_say_where_and_what(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1, column 1: expected a value, got the end of the text"},
        {"{\n \"a\": 1\n \"b\": 2}", "line 3, column 2: expected , or }, got `\"b\":`"},
        {"[1,\n2,]", "line 2, column 3: expected a value, got `]`"},
        {"{a: 1}", "line 1, column 2: expected a key in quotes, got `a:`"},
        {"{\"a\" 1}", "line 1, column 6: expected :, got `1}`"},
        {"[1] x", "line 1, column 5: expected nothing more, got `x`"},
        {"[01]", "line 1, column 2: expected a number as in JSON, got `01]`"},
        {"[1.]", "line 1, column 2: expected a number as in JSON, got `1.]`"},
        {"\"abc", "line 1, column 1: expected a string that ends with a quote, got `\"abc`"},
        {"\"a\\x\"", "line 1, column 3: expected one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r "
                     "\\t \\u, got `\\x\"`"},
        {"\"\\ud800\"",
         "line 1, column 2: expected a pair of surrogates, not one alone, got `\\ud800\"`"},
        {"\"\\u0000\"", "line 1, column 2: expected no character U+0000, got `\\u0000\"`"},
        {"\"\\u12g4\"",
         "line 1, column 2: expected \\u and four hexadecimal digits, got `\\u12g4\"`"},
        {"\"a\xff\"", "line 1, column 3: expected UTF-8, got a byte that is not printable"},
        {"\"a\nb\"", "line 1, column 3: expected an escape such as \\n instead of a control "
                     "character, got a space"},
        {"{\"a\": 1,\n\"\\u0061\": 2}",
         "line 2, column 1: expected no key twice, got `\"\\u0061\":`"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_error(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    expect_error("1\0", 2,
                 "line 1, column 2: expected nothing more, got a byte that is not printable");
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    enum { LEVELS = 2048 };
    char text[2 * LEVELS + 2];
    json_t *value = NULL;
    memset(text, '[', LEVELS);
    memset(text + LEVELS, ']', LEVELS);
    assert_int_equal(shoali_json_read(text, 2 * LEVELS, &value, NULL), SHOAL_OK);
    json_decref(value);
    memset(text, '[', LEVELS + 1);
    assert_int_equal(shoali_json_read(text, LEVELS + 1, &value, NULL), SHOAL_ECORRUPT);
    assert_null(value);
}

/* transformers writes 1e30 as an integer for "no limit", Rust 2^64 - 1, Python NaN. */
static void test_numbers_beyond(void **state)
{
    (void)state;
    static const char text[] = "[1000000000000000019884624838656, 18446744073709551615, "
                               "-9223372036854775809, 1e999, NaN, Infinity, -Infinity]";
    json_t *value = NULL;
    assert_int_equal(shoali_json_read(text, sizeof text - 1, &value, NULL), SHOAL_OK);
    assert_true(json_real_value(json_array_get(value, 0)) == 1e30);
    assert_true(json_real_value(json_array_get(value, 1)) == 0x1p64);
    assert_true(json_real_value(json_array_get(value, 2)) == -0x1p63);
    static const char *const texts[] = {"1e999", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_array_get(value, 3 + i)), texts[i]);
    json_decref(value);
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] =
        " {\"s\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20AC\\ud83d\\ude00\", \"i\": "
        "-9223372036854775808,\n\"r\": [0.1, 1E2, -0.0, 1e-999], \"w\": [true, false, null], "
        "\"\": {}} ";
    json_t *value = NULL;
    assert_int_equal(shoali_json_read(text, sizeof text - 1, &value, NULL), SHOAL_OK);
    assert_string_equal(json_string_value(json_object_get(value, "s")),
                        "\"\\/\b\f\n\r\t\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_true(json_integer_value(json_object_get(value, "i")) == INT64_MIN);
    const json_t *reals = json_object_get(value, "r");
    assert_true(json_real_value(json_array_get(reals, 0)) == 0.1);
    assert_true(json_real_value(json_array_get(reals, 1)) == 100);
    assert_true(json_is_true(json_array_get(json_object_get(value, "w"), 0)));
    assert_true(json_is_null(json_array_get(json_object_get(value, "w"), 2)));
    assert_int_equal(json_object_size(json_object_get(value, "")), 0);
    json_decref(value);
}

/* ---- without memory ---- */

static int64_t allocations_left;

static void *limited_malloc(size_t bytes)
{
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

/* A token as long as each of jansson's and of our buffers may grow to, of every kind. */
static const char text[] =
    "{\"a key of more than sixty-four bytes, so that the buffer of a token grows once at least\": "
    "\"and a value that is longer than that; \\u20ac and \\ud83d\\ude00 and \\\\ are in it, too, "
    "so that no character is where it was in the text\", \"list\": [1, -2.5e-3, "
    "12345678901234567, 1.23456789012345678901234567890123456789e10, true, null, {\"b\": []}, "
    "\"c\", [[]], 1, 2, 3, 4, 5, 6, 7], \"k1\": 1, \"k2\": 2, \"k3\": 3, \"k4\": 4, \"k5\": 5, "
    "\"k6\": 6, \"k7\": 7, \"k8\": 8, \"k9\": 9}";

/* Reads and writes with the nth allocation, and all later ones or just that one, failing: of
 * jansson's, or of ours. Returns whether it went well. */
static bool read_and_write(const json_t *whole, const char *written, int32_t nth, bool ours)
{
    json_t *value = NULL;
    char *out = NULL, fault[32];
    snprintf(fault, sizeof fault, "alloc:%d", nth);
    allocations_left = ours ? INT64_MAX : nth;
    assert_true(shoali_fault_arm(ours ? fault : NULL));
    const shoal_status read = shoali_json_read(text, sizeof text - 1, &value, NULL);
    const shoal_status wrote =
        read < 0 ? read : shoali_json_write(value, JSON_COMPACT, "a test", &out);
    allocations_left = INT64_MAX;
    assert_true(!ours || (shoali_fault_left() < 0) == (wrote < 0));
    assert_true(shoali_fault_arm(NULL));
    assert_true(read == SHOAL_OK || read == SHOAL_ENOMEM);
    assert_true(wrote == SHOAL_OK || wrote == SHOAL_ENOMEM);
    assert_true((value != NULL) == (read == SHOAL_OK) && (out != NULL) == (wrote == SHOAL_OK));
    if (value)
        assert_true(json_equal(value, whole));
    if (out)
        assert_string_equal(out, written);
    free(out);
    json_decref(value);
    return wrote == SHOAL_OK;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    json_t *whole = NULL;
    char *written = NULL;
    json_set_alloc_funcs(limited_malloc, free);
    allocations_left = INT64_MAX;
    assert_int_equal(shoali_json_read(text, sizeof text - 1, &whole, NULL), SHOAL_OK);
    assert_int_equal(shoali_json_write(whole, JSON_COMPACT, "a test", &written), SHOAL_OK);
    for (int ours = 0; ours < 2; ours++) {
        int32_t nth = 0;
        while (!read_and_write(whole, written, nth, ours))
            nth++;
        assert_true(nth > 10); /* it did fail, and more than once */
    }
    json_decref(whole);
    free(written);
    json_set_alloc_funcs(malloc, free);
}

static void test_what_could_not_be_made_cannot_be_written(void **state)
{
    (void)state;
    char *out = NULL;
    assert_int_equal(shoali_json_write(NULL, 0, "the plan", &out), SHOAL_ENOMEM);
    assert_string_equal(shoal_error_message(), "cannot allocate the text of the plan");
    assert_null(out);
}

/* ---- in a program of others ---- */

enum { HEADER = 64 };

static void *foreign_malloc(size_t bytes)
{
    char *block = malloc(bytes + HEADER);
    return block ? block + HEADER : NULL;
}

static void foreign_free(void *memory)
{
    if (memory)
        free((char *)memory - HEADER);
}

/* A program may give jansson its own functions; they stay, and free() is right for our texts. */
static void test_allocator_of_the_program_is_left_alone(void **state)
{
    (void)state;
    json_t *value = NULL;
    char *out = NULL;
    json_malloc_t now_malloc;
    json_free_t now_free;
    json_set_alloc_funcs(foreign_malloc, foreign_free);
    assert_int_equal(shoali_json_read(text, sizeof text - 1, &value, NULL), SHOAL_OK);
    assert_int_equal(shoali_json_write(value, JSON_COMPACT, "a test", &out), SHOAL_OK);
    free(out);
    json_decref(value);
    json_get_alloc_funcs(&now_malloc, &now_free);
    assert_true(now_malloc == foreign_malloc && now_free == foreign_free);
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_say_where_and_what),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_numbers_beyond),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_what_could_not_be_made_cannot_be_written),
        cmocka_unit_test(test_allocator_of_the_program_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
