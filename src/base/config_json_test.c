#include "base/config_table.h"
#include "base/test_cmocka.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct shoali_json *parse(const char *text)
{
    struct shoali_json *document = NULL;
    shoal_status status = shoali_json_parse(text, strlen(text), "f.json", &document);
    if (status != SHOAL_OK)
        fail_msg("%s", shoal_error_message());
    return document;
}

static void expect_error(const char *text, const char *message)
{
    struct shoali_json *document = NULL;
    assert_int_equal(shoali_json_parse(text, strlen(text), "f.json", &document), SHOAL_ECONFIG);
    assert_null(document);
    assert_string_equal(shoal_error_message(), message);
}

static void test_comments_and_lines(void **state)
{
    (void)state;
    struct shoali_json *document = parse("// head\n"
                                         "{ /* two\n"
                                         "     lines */ \"a\": 1, // \"no\": 1\n"
                                         "  \"url\": \"http://x/*y*/\",\n"
                                         "  \"b\": {\n"
                                         "    \"c\\\"{\": [1, {\"x\": 1},\n"
                                         "      {\"x\": 2}],\n"
                                         "    \"d.e\": {\"f\": true}\n"
                                         "  },\n"
                                         "  \"last\": [ ]\n"
                                         "}");
    json_t *root = shoali_json_root(document);
    assert_string_equal(json_string_value(json_object_get(root, "url")), "http://x/*y*/");
    assert_int_equal(json_object_size(root), 4);
    assert_int_equal(shoali_json_line(document, "a"), 3);
    assert_int_equal(shoali_json_line(document, "url"), 4);
    assert_int_equal(shoali_json_line(document, "b"), 5);
    assert_int_equal(shoali_json_line(document, "b.c\\\"{"), 6);
    assert_int_equal(shoali_json_line(document, "b.c\\\"{.1.x"), 6);
    assert_int_equal(shoali_json_line(document, "b.c\\\"{.2.x"), 7);
    assert_int_equal(shoali_json_line(document, "b.d.e.f"), 8);
    assert_int_equal(shoali_json_line(document, "last"), 10);
    assert_int_equal(shoali_json_line(document, "no"), 0);
    assert_int_equal(shoali_json_line(document, "b.last"), 0);
    assert_int_equal(shoali_json_line(document, ""), 0);
    shoali_json_close(document);
}

static void test_duplicates_name_both_lines(void **state)
{
    (void)state;
    expect_error("{\n\"a\": {\"b\": 1,\n\"c\": [2],\n\"b\": 3}}",
                 "f.json:4: a.b: given twice, first on line 2; remove one of the two");
    expect_error("{\"a\": 1,\n\"a\": 1}",
                 "f.json:2: a: given twice, first on line 1; remove one of the two");
    expect_error("{\"l\": [{}, {\"k\": 1,\n \"k\": 2}]}",
                 "f.json:2: l.1.k: given twice, first on line 1; remove one of the two");
    expect_error("{\"a\": 1,\n\"\\u0061\": 1}", "f.json:2: a key is given twice; remove one");
    /* the same key in two objects is none */
    shoali_json_close(
        parse("{\"a\": {\"x\": 1}, \"b\": {\"x\": 1}, \"c\": [{\"x\": 1}, {\"x\": 1}]}"));
}

static void test_broken_texts(void **state)
{
    (void)state;
    expect_error("[1]", "f.json: the text is not a JSON object: begin it with {");
    expect_error("{\n\"a\": 1 /* never\nclosed",
                 "f.json:2: the comment that begins here has no end; add */");
    static const char *const broken[] = {
        "",          "{",    "{\"a\" 1}", "{\"a\": 1,}", "{\"a\": \"x\n\"}",
        "{\"a\"}}}", "]]]{", "\"",        "/",           "{\"a\": 01}"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        struct shoali_json *document = NULL;
        assert_int_equal(shoali_json_parse(broken[i], strlen(broken[i]), "f.json", &document),
                         SHOAL_ECONFIG);
        assert_memory_equal(shoal_error_message(), "f.json:", 7);
        assert_null(document);
    }
    struct shoali_json *document = NULL;
    assert_int_equal(shoali_json_parse("{\"a\0b\": 1}", 10, "f.json", &document), SHOAL_ECONFIG);
    assert_int_equal(shoali_json_load("/nowhere/f.json", &document), SHOAL_ENOENT);
}

static void test_byte_order_mark(void **state)
{
    (void)state;
    struct shoali_json *document = parse("\xef\xbb\xbf{\n\"a\": 1}");
    assert_int_equal(shoali_json_line(document, "a"), 2);
    shoali_json_close(document);
    expect_error("{\xef\xbb\xbf}",
                 "f.json:1: not valid JSON at column 2: expected a key in quotes, "
                 "got a byte that is not printable");
}

/* Any bytes give a document or a sentence; sanitizers see the rest. */
static void test_mutated_texts(void **state)
{
    (void)state;
    static const char seed_text[] =
        "{\"a\": [1, {\"b\": null}, \"s\\\"\"], /* c */ \"d\": {\"e\": 1e9}, "
        "// end\n \"a2\": -0.5}";
    unsigned seed = 12345;
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        char text[sizeof(seed_text)];
        memcpy(text, seed_text, sizeof(text));
        for (int i = 0; i <= round % 4; i++) {
            size_t at = (size_t)rand() % (sizeof(text) - 1);
            const char marks[] = "{}[]\",:\\/*\n";
            text[at] = (char)(rand() % 2 ? marks[rand() % 11] : rand() % 256 - 128);
        }
        size_t bytes = round % 7 ? sizeof(text) - 1 : (size_t)rand() % sizeof(text);
        struct shoali_json *document = NULL;
        shoal_status status = shoali_json_parse(text, bytes, "f.json", &document);
        assert_true(status == SHOAL_OK || status == SHOAL_ECONFIG);
        assert_int_equal(status == SHOAL_OK, document != NULL);
        shoali_json_close(document);
    }
}

static void test_deep_texts(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(5 * DEPTH + 1);
    for (int i = 0; i < DEPTH; i++)
        memcpy(text + 5 * i, "{\"a\":", 5);
    struct shoali_json *document = NULL;
    assert_int_equal(shoali_json_parse(text, 5 * DEPTH, "f.json", &document), SHOAL_ECONFIG);
    free(text);
}

/* What was made from a file and from flags speaks of the file's lines. */
static void test_origin(void **state)
{
    (void)state;
    static const char file[] = "{\n\n\"a\": {\"b\": 1}}", made[] = "{\"a\": {\"b\": 1, \"c\": 2}}";
    struct shoali_json *original = NULL, *document = NULL;
    assert_int_equal(shoali_json_parse(file, strlen(file), "f.json", &original), SHOAL_OK);
    assert_int_equal(shoali_json_parse(made, strlen(made), "made", &document), SHOAL_OK);
    shoali_json_set_origin(document, original);
    static const char *const cases[][2] = {
        {"a.b", "f.json:3: wrong"}, {"a.c", "the command line: wrong"}, {"none", "f.json: wrong"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const shoal_status status = SHOAL_FAIL(SHOAL_ECONFIG, "wrong");
        assert_int_equal(shoali_json_locate(document, cases[i][0], status), SHOAL_ECONFIG);
        assert_string_equal(shoal_error_message(), cases[i][1]);
    }
    shoali_json_close(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comments_and_lines),
        cmocka_unit_test(test_duplicates_name_both_lines),
        cmocka_unit_test(test_broken_texts),
        cmocka_unit_test(test_byte_order_mark),
        cmocka_unit_test(test_mutated_texts),
        cmocka_unit_test(test_deep_texts),
        cmocka_unit_test(test_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
