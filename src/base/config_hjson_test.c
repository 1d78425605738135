/* Hjson files that DeepSpeed takes: their JSON, the lines of their keys, and what is refused. */
#include "base/config_table.h"
#include "base/error.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <jansson.h>

static shoal_status load(const char *text, struct shoali_json **document)
{
    char path[512];
    snprintf(path, sizeof path, "%s/f.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *document = NULL;
    return shoali_json_load_config(path, document);
}

static void test_forms(void **state)
{
    static const char *const cases[][2] = {
        {"{\"a\": 1, /* c */ \"b\": [1, {}]} // end", "{\"a\":1,\"b\":[1,{}]}"},
        {"{\"a\": [1, 2,], \"b\": {\"c\": true,},}", "{\"a\":[1,2],\"b\":{\"c\":true}}"},
        {"# head\n{\"a\": 1, # tail }\n\"b\": null}", "{\"a\":1,\"b\":null}"},
        {"{\"a\": {}\n\"b\": \"x\"\n\"c\": [1\n2]\n}", "{\"a\":{},\"b\":\"x\",\"c\":[1,2]}"},
        {"{a: 1, b_c: -1.5e+3, d: false, e: 0}", "{\"a\":1,\"b_c\":-1500.0,\"d\":false,\"e\":0}"},
        {"{'a': 'x\"y\\'z', 'b': 'q\\\\'}", "{\"a\":\"x\\\"y'z\",\"b\":\"q\\\\\"}"},
        {"{a: x\nb: /n//m, k  \r\n c: 1e\nd: 01\n}",
         "{\"a\":\"x\",\"b\":\"/n//m, k\",\"c\":\"1e\",\"d\":\"01\"}"},
        {"{a: C:\\d \"q\"\tr\nb: 5 # five\n}", "{\"a\":\"C:\\\\d \\\"q\\\"\\tr\",\"b\":5}"},
        {"{\"a\": \"# no // comment\", b: 1/* c */}", "{\"a\":\"# no // comment\",\"b\":1}"},
        {"\xef\xbb\xbf{a: 1}\n\n", "{\"a\":1}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shoali_json *document;
        if (load(cases[i][0], &document) != SHOAL_OK)
            fail_msg("%s: %s", cases[i][0], shoal_error_message());
        char *text = json_dumps(shoali_json_root(document), JSON_COMPACT | JSON_REAL_PRECISION(6));
        assert_string_equal(text, cases[i][1]);
        free(text);
        shoali_json_close(document);
    }
}

static void test_lines(void **state)
{
    struct shoali_json *document;
    (void)state;
    assert_int_equal(
        load("# one\n{ /* two\n three */ a: 1\n  b: {\n    'c': 2,\n  },\n}", &document), SHOAL_OK);
    assert_int_equal(shoali_json_line(document, "a"), 3);
    assert_int_equal(shoali_json_line(document, "b"), 4);
    assert_int_equal(shoali_json_line(document, "b.c"), 5);
    shoali_json_close(document);
}

/* What is neither JSON nor Hjson keeps the sentence of the JSON reader. */
static void test_refused(void **state)
{
    static const char *const cases[][2] = {
        {"a: 1\nb: 2\n", "f.json:1: not valid JSON"},
        {"", "f.json:1: not valid JSON"},
        {"{\"a\": True, \"b\": 1,\n}", "got `True,`"},
        {"{\"a\": 1,,}", "f.json:1: not valid JSON"},
        {"{,}", "f.json:1: not valid JSON"},
        {"{\"a\" 1}", "f.json:1: not valid JSON"},
        {"{\"a\": }", "f.json:1: not valid JSON"},
        {"{\"a\": 1,} x", "f.json:1: not valid JSON"},
        {"{\"a\": 1,\n\"b\": [1,}", "f.json:2: not valid JSON"},
        {"{\"a\": 'x\n'}", "f.json:1: not valid JSON"},
        {"{\"a\": '''x'''}", "f.json:1: not valid JSON"},
        {"{\"a\": \"x\\", "f.json:1: not valid JSON"},
        {"{a: 1 /* open", "has no end"},
        {"{\"a\": 1,\n\"a\": 2,\n}", "f.json:2: a: given twice, first on line 1"},
        {"[1,]", "f.json:1: not valid JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shoali_json *document;
        assert_int_equal(load(cases[i][0], &document), SHOAL_ECONFIG);
        assert_null(document);
        if (!strstr(shoal_error_message(), cases[i][1]))
            fail_msg("%s: %s", cases[i][0], shoal_error_message());
    }
    char deep[1024];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{a:", 3);
    deep[sizeof deep - 1] = '\0';
    struct shoali_json *document;
    assert_int_equal(load(deep, &document), SHOAL_ECONFIG);
}

/* Any bytes give a document or a sentence; sanitizers see the rest. */
static void test_mutated_texts(void **state)
{
    static const char seed_text[] =
        "{a: [1, {'b': null}, \"s\\\"\"], # c\n d: {e: 1e9\n f: x y\n}, "
        "/* end */ \"a2\": -0.5,}";
    (void)state;
    srand(4321);
    for (int round = 0; round < 1000; round++) {
        char text[sizeof(seed_text)];
        memcpy(text, seed_text, sizeof(text));
        for (int i = 0; i <= round % 4; i++) {
            const char marks[] = "{}[]\"',:\\/*#\n";
            const size_t at = (size_t)rand() % (sizeof(text) - 1);
            text[at] = marks[(size_t)rand() % (sizeof(marks) - 1)];
        }
        struct shoali_json *document;
        if (load(text, &document) == SHOAL_OK)
            shoali_json_close(document);
        else
            assert_true(shoal_error_message()[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_mutated_texts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
