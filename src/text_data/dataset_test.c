/* Finding files, tokenizers, split, entropy. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "shoal/tokenizer.h"
#include "text_data/token_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED 8675309

static void refused(shoal_status status, shoal_status expected, const char *word)
{
    assert_int_equal(status, expected);
    if (!strstr(shoal_error_message(), word))
        fail_msg("`%s` does not say `%s`", shoal_error_message(), word);
}

/* ---- a folder of files for one test ---- */

struct folder {
    char root[64], path[3][128];
};

static void write_text(const char *root, const char *name, const char *data, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static shoal_dataset *open_path(const char *path, const char *tokenizer, const char *split)
{
    shoal_dataset *dataset = NULL;
    ok(shoal_dataset_create(
        &(shoal_dataset_args){
            .paths = &path, .path_count = 1, .tokenizer = tokenizer, .split = split},
        &dataset));
    return dataset;
}

static void expect_text(const shoal_dataset *dataset, const char *expected)
{
    int32_t tokens[256];
    char text[1024];
    size_t bytes;
    int64_t count = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, count, tokens));
    ok(shoal_tokenizer_decode(shoal_dataset_tokenizer(dataset), tokens, count, text, sizeof(text),
                              &bytes));
    text[bytes] = '\0';
    assert_string_equal(text, expected);
}

static void collect_warning(void *user, shoal_log_level level, const char *subsystem, int rank,
                            const char *text)
{
    (void)level, (void)subsystem, (void)rank;
    int *count = user;
    *count += strstr(text, "skipped") != NULL;
}

static void test_folder_order(void **state)
{
    const char *root = *state;
    char sub[128];
    int warnings = 0;
    ok(shoal_log_configure("warning", collect_warning, &warnings));
    snprintf(sub, sizeof(sub), "%s/b", root);
    assert_int_equal(mkdir(sub, 0700), 0);
    write_text(root, "c.txt", "third", 5);
    write_text(root, "a.txt", "first", 5);
    write_text(root, "b/z.txt", "second", 6);
    write_text(root, "empty", "", 0);
    write_text(root, "binary", "x\0\1\2y", 5);
    char link[128], target[128];
    snprintf(link, sizeof(link), "%s/d-link", root);
    snprintf(target, sizeof(target), "%s/a.txt", root);
    assert_int_equal(symlink(target, link), 0);

    shoal_dataset *dataset = open_path(root, "byte", "1,0");
    assert_int_equal(shoal_dataset_file_count(dataset), 4);
    assert_int_equal(shoal_dataset_vocab_size(dataset), 256);
    expect_text(dataset, "first\nsecond\nthird\nfirst");
    assert_int_equal(warnings, 1);
    shoal_dataset_destroy(dataset);

    /* paths keep the caller's order */
    snprintf(sub, sizeof(sub), "%s/c.txt", root);
    const char *paths[] = {sub, link};
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = paths, .path_count = 2, .split = "1"},
                            &dataset));
    expect_text(dataset, "third\nfirst");
    shoal_dataset_destroy(dataset);
    ok(shoal_log_configure(NULL, NULL, NULL));
}

static void test_unreadable_is_skipped(void **state)
{
    const char *root = *state;
    int warnings = 0;
    ok(shoal_log_configure("warning", collect_warning, &warnings));
    write_text(root, "a", "one", 3);
    write_text(root, "b", "two", 3);
    assert_true(shoali_fault_arm("data_open"));
    shoal_dataset *dataset = open_path(root, "byte", "1");
    assert_true(shoali_fault_arm(NULL));
    expect_text(dataset, "two");
    assert_int_equal(warnings, 1);
    shoal_dataset_destroy(dataset);
    ok(shoal_log_configure(NULL, NULL, NULL));
}

static void test_no_data(void **state)
{
    const char *root = *state;
    shoal_dataset *dataset = (void *)1;
    shoal_dataset_args args = {.paths = &root, .path_count = 1};
    refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL, "there is no text in");
    assert_null(dataset);
    write_text(root, "binary", "\0\1\2\3\4\0\5\6", 8);
    refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL, "there is no text in");
    char named[128];
    const char *binary = named;
    snprintf(named, sizeof named, "%s/binary", root);
    args.paths = &binary;
    refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL,
            "binary is no text: byte 1 is NUL");
    const char *missing = "/nonexistent/corpus.txt";
    args.paths = &missing;
    refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL, missing);
    args.path_count = 0;
    refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL, "no data path");
}

static void test_char(void **state)
{
    const char *root = *state;
    write_text(root, "a", "b\xc3\xa9", 3);         /* b, e with acute accent */
    write_text(root, "b", "a\xf0\x9f\x90\x9f", 5); /* a, a fish */
    shoal_dataset *dataset = open_path(root, "char", "1,0,0");
    assert_int_equal(shoal_dataset_vocab_size(dataset), 5); /* newline a b e-acute fish */
    int32_t tokens[5];
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, 5, tokens));
    assert_memory_equal(tokens, ((int32_t[]){2, 3, 0, 1, 4}), sizeof(tokens));
    expect_text(dataset, "b\xc3\xa9\na\xf0\x9f\x90\x9f");

    /* its JSON gives an equal tokenizer, which another dataset can use */
    const char *json = shoal_tokenizer_json(shoal_dataset_tokenizer(dataset));
    shoal_tokenizer *again = NULL;
    ok(shoal_tokenizer_from_json(json, strlen(json), &again));
    assert_string_equal(shoal_tokenizer_json(again), json);
    char path[128];
    snprintf(path, sizeof(path), "%s/a", root);
    const char *paths[] = {path};
    shoal_dataset_args args = {.paths = paths, .path_count = 1, .use_tokenizer = again};
    shoal_dataset *second = NULL;
    ok(shoal_dataset_create(&args, &second));
    assert_int_equal(shoal_dataset_vocab_size(second), 5);
    shoal_dataset_destroy(second);

    write_text(root, "a", "abz", 3);
    refused(shoal_dataset_create(&args, &second), SHOAL_EINVAL, "U+007A at byte 2");
    assert_non_null(strstr(shoal_error_message(), path));
    shoal_tokenizer_destroy(again);
    shoal_dataset_destroy(dataset);
}

static void test_invalid_utf8(void **state)
{
    const char *root = *state;
    static const struct {
        const char *text;
        size_t bytes, offset;
    } cases[] = {
        {"ab\xff", 3, 2},           {"\x80", 1, 0},         {"a\xc3", 2, 1},
        {"\xc0\xaf", 2, 0},         {"\xed\xa0\x80", 3, 0}, {"\xe0\x80\x80", 3, 0},
        {"\xf4\x90\x80\x80", 4, 0}, {"xyz\xe2\x82", 5, 3},  {"\xf8\x88\x80\x80\x80", 5, 0},
    };
    write_text(root, "a", "fine", 4);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        char place[64];
        shoal_dataset *dataset = NULL;
        assert_int_equal(shoali_utf8_check(cases[k].text, cases[k].bytes), cases[k].offset);
        write_text(root, "b", cases[k].text, cases[k].bytes);
        shoal_dataset_args args = {.paths = &root, .path_count = 1, .tokenizer = "char"};
        snprintf(place, sizeof(place), "/b is not UTF-8 at byte %zu", cases[k].offset);
        refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL, place);
        assert_non_null(strstr(shoal_error_message(), "`byte`"));
    }
}

/* Every scalar value survives; a long random text in 16-bit tokens crosses encoding pieces. */
static void test_char_property(void **state)
{
    const char *root = *state;
    print_message("seed %d\n", SEED);
    for (uint32_t c = 0; c < 0x110000; c++) {
        char out[4];
        uint32_t back = 0;
        int length = shoali_utf8_encode(c, out);
        bool surrogate = c >= 0xd800 && c < 0xe000;
        assert_int_equal(shoali_utf8_decode(out, 4, &back), surrogate ? 0 : length);
        assert_true(surrogate || back == c);
    }
    struct shoali_stream stream = shoali_stream_make(SEED, "test", "", 0);
    struct shoali_str text = {0};
    uint32_t largest = 1000;
    for (uint64_t i = 0; i < 60000; i++) {
        char out[4];
        if (i == 30000)
            largest = 0xd000;
        uint32_t c = 1 + (uint32_t)shoali_random_below(&stream, i, largest);
        shoali_str_append_bytes(&text, out, (size_t)shoali_utf8_encode(c, out));
    }
    write_text(root, "random", text.text, text.length);
    shoal_dataset *dataset = open_path(root, "char", "1");
    assert_int_equal(shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN), 60000);
    assert_true(shoal_dataset_vocab_size(dataset) > 256);
    int32_t *tokens = malloc(60000 * sizeof(*tokens));
    char *back = malloc(text.length);
    size_t bytes;
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, 60000, tokens));
    ok(shoal_tokenizer_decode(shoal_dataset_tokenizer(dataset), tokens, 60000, back, text.length,
                              &bytes));
    assert_int_equal(bytes, text.length);
    assert_memory_equal(back, text.text, bytes);
    free(tokens);
    free(back);
    shoali_str_fini(&text);
    shoal_dataset_destroy(dataset);
}

static void test_tokenizer_refusals(void **state)
{
    (void)state;
    shoal_tokenizer *t = NULL;
    refused(shoal_tokenizer_create("bpe", "", 0, &t), SHOAL_EINVAL, "byte or char");
    refused(shoal_tokenizer_create("char", "", 0, &t), SHOAL_EINVAL, "text to learn");
    static const char *const bad[] = {
        "{\"type\": \"bpe\"}",
        "{\"type\": \"char\"}",
        "{}",
        "nonsense",
        "{\"type\": \"char\", \"code_points\": [5, 5]}",
        "{\"type\": \"char\", \"code_points\": [-1]}",
        "{\"type\": \"char\", \"code_points\": [55296]}",
        "{\"type\": \"char\", \"code_points\": [1114112]}",
        "{\"type\": \"byte\", \"version\": 2}",
    };
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        if (shoal_tokenizer_from_json(bad[k], strlen(bad[k]), &t) != SHOAL_ECONFIG)
            fail_msg("%s was not refused", bad[k]);
        assert_null(t);
    }
    ok(shoal_tokenizer_from_json("{\"type\": \"byte\", \"version\": 1}", 30, &t));
    int32_t tokens[2] = {0, 256};
    char text[8];
    size_t bytes;
    int64_t count;
    refused(shoal_tokenizer_decode(t, tokens, 2, text, 8, &bytes), SHOAL_EINVAL, "256");
    ok(shoal_tokenizer_encode(t, "\xff\x01z", 3, tokens, 2, &count));
    assert_int_equal(count, 3); /* too much for the room: only counted */
    assert_int_equal(tokens[1], 256);
    ok(shoal_tokenizer_encode(t, "\xff\x01", 2, tokens, 2, &count));
    assert_true(tokens[0] == 255 && tokens[1] == 1);
    shoal_tokenizer_destroy(t);
}

static void test_split(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t train, valid, test;
    } good[] = {
        {NULL, 900, 100, 0},
        {"90,10", 900, 100, 0},
        {"969,30,1", 969, 30, 1},
        {"1", 1000, 0, 0},
        {"0,1", 0, 1000, 0},
        {"1,1,1", 333, 334, 333},
        {"0.5,0.25,0.25", 500, 250, 250},
    };
    shoal_dataset *dataset = NULL;
    shoal_dataset_args args = {.mock = 1, .mock_token_count = 1000};
    for (size_t k = 0; k < sizeof(good) / sizeof(good[0]); k++) {
        args.split = good[k].spec;
        ok(shoal_dataset_create(&args, &dataset));
        assert_int_equal(shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN), good[k].train);
        assert_int_equal(shoal_dataset_token_count(dataset, SHOAL_SPLIT_VALID), good[k].valid);
        assert_int_equal(shoal_dataset_token_count(dataset, SHOAL_SPLIT_TEST), good[k].test);
        shoal_dataset_destroy(dataset);
    }
    static const char *const bad[] = {"", "a,b", "1,2,3,4", "-1,2", "0,0", "1,,2", "nan,1", "inf"};
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        args.split = bad[k];
        refused(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL, "969,30,1");
    }
}

/* The three parts are the whole, in order. */
static void test_parts_are_contiguous(void **state)
{
    (void)state;
    shoal_dataset *whole = NULL, *parts = NULL;
    shoal_dataset_args args = {.mock = 1, .mock_token_count = 997, .split = "1", .seed = SEED};
    int32_t all[997], joined[997];
    int64_t at = 0;
    ok(shoal_dataset_create(&args, &whole));
    args.split = "5,3,2";
    ok(shoal_dataset_create(&args, &parts));
    ok(shoal_dataset_read(whole, SHOAL_SPLIT_TRAIN, 0, 997, all));
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        int64_t count = shoal_dataset_token_count(parts, (shoal_split)p);
        ok(shoal_dataset_read(parts, (shoal_split)p, 0, count, joined + at));
        at += count;
        refused(shoal_dataset_read(parts, (shoal_split)p, 1, count, joined), SHOAL_EINVAL,
                "outside");
    }
    assert_int_equal(at, 997);
    assert_memory_equal(all, joined, sizeof(all));
    assert_true(shoal_dataset_fingerprint(whole) != shoal_dataset_fingerprint(parts));
    shoal_dataset_destroy(whole);
    shoal_dataset_destroy(parts);
}

static void test_mock(void **state)
{
    (void)state;
    shoal_dataset *a = NULL, *b = NULL;
    int32_t tokens[5000], seen[300] = {0};
    shoal_dataset_args args = {
        .mock = 1, .mock_token_count = 5000, .mock_vocab_size = 300, .split = "1", .seed = 7};
    ok(shoal_dataset_create(&args, &a));
    ok(shoal_dataset_create(&args, &b));
    assert_true(shoal_dataset_fingerprint(a) == shoal_dataset_fingerprint(b));
    shoal_dataset_destroy(b);
    args.seed = 8;
    ok(shoal_dataset_create(&args, &b));
    assert_true(shoal_dataset_fingerprint(a) != shoal_dataset_fingerprint(b));
    assert_null(shoal_dataset_tokenizer(a));
    ok(shoal_dataset_read(a, SHOAL_SPLIT_TRAIN, 0, 5000, tokens));
    for (int i = 0; i < 5000; i++) {
        assert_in_range(tokens[i], 0, 299);
        seen[tokens[i]] = 1;
    }
    int distinct = 0;
    for (int i = 0; i < 300; i++)
        distinct += seen[i];
    assert_int_equal(distinct, 300);
    double nats;
    ok(shoal_dataset_unigram_entropy(a, SHOAL_SPLIT_TRAIN, &nats));
    /* at most ln V; below by about (V-1)/(2n) = 0.03 */
    assert_true(nats < log(300.0) && nats > log(300.0) - 0.06);
    shoal_dataset_destroy(a);
    shoal_dataset_destroy(b);
    args.mock_vocab_size = -1;
    refused(shoal_dataset_create(&args, &a), SHOAL_EINVAL, "mock");
}

static void test_entropy(void **state)
{
    const char *root = *state;
    double nats;
    write_text(root, "a", "aaabaaabaabb", 12); /* 8: aaabaaab, 4: aabb */
    shoal_dataset *dataset = open_path(root, "char", "8,4");
    ok(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_TRAIN, &nats));
    assert_true(fabs(nats - (-.75 * log(.75) - .25 * log(.25))) < 1e-14);
    ok(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_VALID, &nats));
    assert_true(fabs(nats - (-.5 * log(.75) - .5 * log(.25))) < 1e-14);
    refused(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_TEST, &nats), SHOAL_EINVAL, "test");
    shoal_dataset_destroy(dataset);

    write_text(root, "a", "aaabaaabaacc", 12); /* c never occurs in train: (count+1)/(n+V) */
    dataset = open_path(root, "char", "8,4");
    ok(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_VALID, &nats));
    assert_true(fabs(nats - (-.5 * log(7. / 11) - .5 * log(1. / 11))) < 1e-14);
    shoal_dataset_destroy(dataset);
}

/* Each allocation fails once: an error, no crash, no leak (address sanitizer). */
static void test_allocations(void **state)
{
    const char *root = *state;
    write_text(root, "a", "some text", 9);
    bool fired = true;
    for (int skip = 0; fired; skip++) {
        char spec[32];
        shoal_dataset *dataset = NULL;
        shoal_dataset_args args = {.paths = &root, .path_count = 1, .tokenizer = "char"};
        snprintf(spec, sizeof(spec), "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoal_dataset_create(&args, &dataset);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        assert_true((dataset == NULL) == fired);
        shoal_dataset_destroy(dataset);
        assert_true(skip < 100);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_folder_order),
        IN_FOLDER(test_unreadable_is_skipped),
        IN_FOLDER(test_no_data),
        IN_FOLDER(test_char),
        IN_FOLDER(test_invalid_utf8),
        IN_FOLDER(test_char_property),
        cmocka_unit_test(test_tokenizer_refusals),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_parts_are_contiguous),
        cmocka_unit_test(test_mock),
        IN_FOLDER(test_entropy),
        IN_FOLDER(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
