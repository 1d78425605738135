/* Records of JSON lines: what is taken, what is refused and with which sentence. */
#include "text_data/jsonl.h"

#include "base/test_folder.h"
#include "data/test_text.h"
#include "shoal/tokenizer.h"
#include "text_data/gzip.h"

static const char *const keys[] = {"text", "title"};

static shoal_status read_line(struct shoali_jsonl *jsonl, const char *line)
{
    return shoali_jsonl_read(jsonl, line, strlen(line));
}

static void takes(const char *line, const char *wanted, size_t bytes)
{
    struct shoali_jsonl jsonl = {.keys = keys, .key_count = 1};
    ok(read_line(&jsonl, line));
    assert_int_equal(jsonl.value[0].count, 1);
    assert_int_equal(jsonl.value[0].bytes, bytes);
    assert_memory_equal(jsonl.value[0].text, wanted, bytes);
    shoali_jsonl_fini(&jsonl);
}

static void refuses(const char *line, const char *wanted)
{
    struct shoali_jsonl jsonl = {.keys = keys, .key_count = 1};
    assert_int_equal(read_line(&jsonl, line), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), wanted))
        fail_msg("%s: no \"%s\" in: %s", line, wanted, shoal_error_message());
    shoali_jsonl_fini(&jsonl);
}

static void test_takes(void **state)
{
    (void)state;
    takes("{\"text\":\"a\"}", "a", 1);
    takes("  {\t\"text\" : \"\" } \r", "", 0);
    takes("{\"a\":{\"text\":[1,{\"b\":[]}]},\"text\":\"x\",\"c\":[{},[[]],-1.5e+3,true,null]}", "x",
          1);
    takes("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t", 8);
    takes("{\"text\":\"\\u00e9\\u20AC\\ud83d\\ude00\\u0000.\"}",
          "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
          "\0.",
          11);
    takes("{\"text\":\"\\u00Af\\u00fA\"}", "\xc2\xaf\xc3\xba", 4);
    takes("{\"te\\u0078t\":\"12345678\xc3\xa9 901234567\"}", "12345678\xc3\xa9 901234567", 20);
    takes("{\"x\":\"u\",\"x\":1,\"n\":123456789012345678901234567890,\"text\":\"\x7f\"}", "\x7f",
          1);
}

static void test_names(void **state)
{
    static const char names[] = "x.gz .jsonl.gz a.JSONL.GZ b.gzip .gz";
    char name[sizeof names];
    (void)state;
    strcpy(name, names); /* what is before and behind a name is no part of it */
    for (char *at = name; *at; at++)
        if (*at == ' ')
            *at = '\0';
    assert_true(shoali_gzip_is_name(name) && !shoali_jsonl_is_name(name));
    assert_true(shoali_gzip_is_name(name + 5) && !shoali_jsonl_is_name(name + 5));
    assert_true(shoali_gzip_is_name(name + 15) && shoali_jsonl_is_name(name + 15));
    assert_false(shoali_gzip_is_name(name + 26));
    assert_false(shoali_gzip_is_name(name + 33)); /* nothing before the suffix */
}

static void test_lists(void **state)
{
    struct shoali_jsonl jsonl = {.keys = keys, .key_count = 2};
    (void)state;
    ok(read_line(&jsonl, "{\"title\": [], \"text\": [ \"ab\" , \"\", \"c\"]}"));
    assert_int_equal(jsonl.value[0].count, 3);
    assert_int_equal(jsonl.value[0].end[0], 2);
    assert_int_equal(jsonl.value[0].end[1], 2);
    assert_int_equal(jsonl.value[0].end[2], 3);
    assert_memory_equal(jsonl.value[0].text, "abc", 3);
    assert_int_equal(jsonl.value[1].count, 0);
    assert_int_equal(read_line(&jsonl, " \t\r"), SHOAL_END);
    assert_int_equal(read_line(&jsonl, "{\"text\":\"x\"}"), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "there is no key `title`"));
    ok(read_line(&jsonl, "{\"text\":\"x\",\"title\":\"y\"}"));
    assert_int_equal(jsonl.value[1].count, 1);
    shoali_jsonl_fini(&jsonl);
}

static void test_refuses(void **state)
{
    static const struct {
        const char *line, *wanted;
    } cases[] = {
        {"[1]", "column 1: a record is an object in braces"},
        {"{", "column 2: a key in quotes should stand here, but the line ends"},
        {"{\"text\" \"a\"}", "column 9: a colon should follow the key, but there is `\"`"},
        {"{\"text\":\"a}", "column 12: a string should end with a quote, but the line ends"},
        {"{\"text\":\"a\tb\"}", "column 11: a string should end with a quote, but there is byte "
                                "0x09"},
        {"{\"text\":\"a\xff\"}", "column 11: a string should be UTF-8, but there is byte 0xff"},
        {"{\"text\":\"\\x\"}", "column 11: an escape should be one of"},
        {"{\"text\":\"\\u12g4\"}", "four hexadecimal digits"},
        {"{\"text\":\"\\ud800x\"}", "surrogate should be one of a pair"},
        {"{\"text\":\"\\udc00\"}", "surrogate should be one of a pair"},
        {"{\"text\":\"\\ud800\\u0041\"}", "surrogate should be one of a pair"},
        {"{\"text\":\"a\",}", "a key in quotes should stand here, but there is `}`"},
        {"{\"text\":\"a\"} x", "column 14: a record should end with its brace, but there is `x`"},
        {"{\"text\":5}", "column 9: the value of `text` should be a string or a list of strings"},
        {"{\"text\":null}", "should be a string"},
        {"{\"text\":[\"a\",1]}", "should be a string"},
        {"{\"text\":[\"a\"", "a comma or ] should follow"},
        {"{\"text\":\"a\",\"text\":\"b\"}", "the key `text` is given twice"},
        {"{\"txt\":\"a\"}", "there is no key `text`; nearest is `txt`"},
        {"{\"body\":\"a\"}", "there is no key `text`; the first is `body`"},
        {"{}", "there is no key `text`, the record is empty"},
        {"{\"a\":01,\"text\":\"\"}", "a number begins with 0"},
        {"{\"a\":1.,\"text\":\"\"}", "digits should follow the point"},
        {"{\"a\":1e,\"text\":\"\"}", "digits should follow the exponent"},
        {"{\"a\":+1,\"text\":\"\"}", "a value should stand here, but there is `+`"},
        {"{\"a\":tru,\"text\":\"\"}", "a value should stand here"},
        {"{\"a\":[1 2],\"text\":\"\"}", "a comma or ] should follow, but there is `2`"},
        {"{\"a\":[1},\"text\":\"\"}", "a comma or ] should follow, but there is `}`"},
        {"{\"a\":{\"b\":1],\"text\":\"\"}", "a comma or } should follow, but there is `]`"},
        {"{\"a\":{\"b\"},\"text\":\"\"}", "a colon should follow the key"},
        {"{\"a\":[,1],\"text\":\"\"}", "a value should stand here"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuses(cases[i].line, cases[i].wanted);
}

static void test_depth(void **state)
{
    char line[3 * 2100 + 64];
    struct shoali_jsonl jsonl = {.keys = keys, .key_count = 1};
    (void)state;
    for (int depth = 2047; depth <= 2049; depth++) {
        int at = snprintf(line, sizeof line, "{\"a\":");
        for (int i = 0; i < depth; i++)
            line[at++] = '[';
        for (int i = 0; i < depth; i++)
            line[at++] = ']';
        snprintf(line + at, 32, ",\"text\":\"\"}");
        assert_int_equal(read_line(&jsonl, line), depth <= 2048 ? SHOAL_OK : SHOAL_EINVAL);
    }
    shoali_jsonl_fini(&jsonl);
}

/* As a data set: the texts, one below the other; and text beside them. */
static void test_dataset(void **state)
{
    static const char lines[] = "{\"id\":1,\"text\":\"one\\ntwo\",\"title\":\"T\"}\n\n"
                                "{\"text\":[\"three\",\"four\"],\"title\":[]}\n"
                                "{\"title\":\"\",\"text\":\"f\xc3\xbcnf\"}";
    static const char *const wanted[] = {"one\ntwo\nthree\nfour\nf\xc3\xbcnf\nplain",
                                         "one\ntwo\nT\nthree\nfour\nf\xc3\xbcnf\n\nplain"};
    int32_t tokens[64];
    char text[64];
    (void)state;
    write_text("a.jsonl", lines, sizeof lines - 1);
    write_text("b.txt", "plain", 5);
    for (int k = 0; k < 2; k++) {
        const char *paths[] = {folder};
        shoal_dataset *dataset = NULL;
        size_t bytes;
        ok(shoal_dataset_create(&(shoal_dataset_args){.paths = paths,
                                                      .path_count = 1,
                                                      .split = "1",
                                                      .json_keys = keys,
                                                      .json_key_count = k + 1,
                                                      .tokenizer = k ? "char" : "byte"},
                                &dataset));
        const int64_t count = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
        assert_true(count < 64);
        ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, count, tokens));
        ok(shoal_tokenizer_decode(shoal_dataset_tokenizer(dataset), tokens, count, text,
                                  sizeof text, &bytes));
        assert_int_equal(bytes, strlen(wanted[k]));
        assert_memory_equal(text, wanted[k], bytes);
        shoal_dataset_destroy(dataset);
    }
}

/* Records longer than the pieces in which text is read, and many of them. */
static void test_long_records(void **state)
{
    enum { LONG = 2500000, MANY = 30000 };
    (void)state;
    char *text = malloc(LONG);
    FILE *file = fopen(path_of("long.jsonl"), "w");
    assert_non_null(text);
    assert_non_null(file);
    for (int i = 0; i < LONG; i++)
        text[i] = (char)('a' + i % 26);
    fprintf(file, "{\"text\":\"%.*s\"}\n", LONG, text);
    for (int i = 0; i < MANY; i++)
        fprintf(file, "{\"n\":%d,\"text\":\"%d\"}\n", i, i);
    fprintf(file, "{\"text\":\"%.*s\"}\n", LONG, text);
    fclose(file);
    char *wanted = malloc(2 * LONG + 8 * MANY);
    int32_t *tokens = malloc((2 * LONG + 8 * MANY) * sizeof *tokens);
    if (!wanted || !tokens)
        abort();
    int64_t bytes = 0;
    memcpy(wanted, text, LONG);
    bytes += LONG;
    for (int i = 0; i < MANY; i++)
        bytes += snprintf(wanted + bytes, 16, "\n%d", i);
    wanted[bytes++] = '\n';
    memcpy(wanted + bytes, text, LONG);
    bytes += LONG;
    const char *path = path_of("long.jsonl");
    shoal_dataset *dataset = NULL;
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1, .split = "1"},
                            &dataset));
    assert_int_equal(shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN), bytes);
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, bytes, tokens));
    for (int64_t i = 0; i < bytes; i++)
        assert_int_equal(tokens[i], wanted[i]);
    shoal_dataset_destroy(dataset);
    free(text);
    free(wanted);
    free(tokens);
}

static void test_dataset_mistakes(void **state)
{
    static const char lines[] = "{\"text\":\"one\"}\n\n{\"text\":1}\n";
    shoal_dataset *dataset = NULL;
    const char *path = path_of("bad.jsonl");
    (void)state;
    write_text("bad.jsonl", lines, sizeof lines - 1);
    assert_int_equal(
        shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset),
        SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "/bad.jsonl:3: column 9: the value of `text`"));
    write_text("bad.jsonl", "\n \n", 3);
    assert_int_equal(
        shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset),
        SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "there is no text in"));
}

/* Each allocation, then each reading, fails once: an error, or nothing is lost. */
static void test_faults(void **state)
{
    static const char *const points[] = {"alloc", "data_read"};
    (void)state;
    for (int p = 0; p < 2; p++) {
        bool fired = true;
        for (int skip = 0; fired; skip++) {
            char spec[32], lines[128];
            shoal_dataset *dataset = NULL;
            const char *path = path_of("few.jsonl");
            const int bytes =
                snprintf(lines, sizeof lines, "{\"text\":[\"%s\",\"%d\"]}\n", points[p], skip);
            write_text("few.jsonl", lines, (size_t)bytes); /* no cache knows it */
            snprintf(spec, sizeof spec, "%s:%d", points[p], skip);
            assert_true(skip < 1000 && shoali_fault_arm(spec));
            const shoal_status status = shoal_dataset_create(
                &(shoal_dataset_args){.paths = &path, .path_count = 1, .split = "1"}, &dataset);
            fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            assert_true(status == SHOAL_OK || (fired && status < 0));
            assert_true(p == 0 || fired == (status == SHOAL_EIO));
            assert_true(skip > 0 || status < 0);
            if (status == SHOAL_OK)
                assert_int_equal(shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN),
                                 snprintf(lines, sizeof lines, "%s\n%d", points[p], skip));
            shoal_dataset_destroy(dataset);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_depth),
        cmocka_unit_test_setup_teardown(test_dataset, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_long_records, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_dataset_mistakes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_faults, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
