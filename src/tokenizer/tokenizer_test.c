/* Mistakes and their sentences, bytes that are no UTF-8, threads, files, training. */
#include "tokenizer/tokenizer.h"

#include "base/test_folder.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void ok(shoal_status status)
{
    if (status < 0)
        fail_msg("%s", shoal_error_message());
}

static const char *write_named(const char *name, const char *text, size_t bytes)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ok(shoali_write_file_atomic(path, text, bytes));
    return path;
}

static void refused(const char *json, const char *words)
{
    shoal_tokenizer *tokenizer = NULL;
    assert_true(shoal_tokenizer_from_json(json, strlen(json), &tokenizer) < 0);
    assert_null(tokenizer);
    if (!strstr(shoal_error_message(), words))
        fail_msg("`%s` does not say `%s`", shoal_error_message(), words);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"model\":{\"type\":\"Magic\"}}", "tokenizer: model: there is no model of type `Magic`"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "the list `merges` is missing"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "vocabulary is empty"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
         "model.merges: `b` of element 0 is not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
         "`ab`, which element 0 makes"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
         "`a` and `b` have the same number, 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "the number of `a`"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
         "model.dropout: dropout makes another encoding"},
        {"{\"normalizer\":{\"type\":\"Nfx\"},\"model\":{}}",
         "normalizer: there is no normalizer of type `Nfx`"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{}]},"
         "\"model\":{}}",
         "normalizer.normalizers[1]: the text `type` is missing"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
         "\"Isolated\"},\"model\":{}}",
         "pre_tokenizer.pattern: the pattern `(` cannot be read"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
         "\"Both\"},\"model\":{}}",
         "`behavior` is `Both`; known are Removed"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",-1]]}}",
         "`unk_id` is 5, outside the vocabulary of 1"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"decoder\":{\"type\":\"Odd\"}}",
         "decoder: there is no decoder of type `Odd`"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":"
         "\"Odd\"}}",
         "no post-processor of type `Odd`"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":"
         "99999999,"
         "\"content\":\"x\"}]}",
         "added_tokens[0].id: an integer from 0 to"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"},\"model\":{}"
         "}",
         "this is not base64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i][0], cases[i][1]);
}

static void test_paths(void **state)
{
    (void)state;
    shoal_tokenizer *tokenizer = NULL;
    assert_int_equal(shoal_tokenizer_open("/nowhere/at/all", &tokenizer), SHOAL_ENOENT);
    assert_true(shoal_tokenizer_open(folder, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "has no tokenizer: tokenizer.json"));
    assert_true(shoal_tokenizer_open(write_named("x.model", "\n\x05hello", 7), &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "x.model: piece 0 is damaged"));
    assert_true(shoal_tokenizer_open(write_named("r", "QQ== 0\nQg==\n", 12), &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "/r:2: \"base64 rank\" is expected here"));
    (void)write_named("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}", 20);
    assert_true(shoal_tokenizer_open(folder, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "needs merges.txt beside it"));
    (void)write_named("merges.txt", "#version: 0.2\na b\nab\n", 21);
    assert_true(shoal_tokenizer_open(folder, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "merges.txt:3: `ab` is not two strings"));
    (void)write_named("merges.txt", "#version: 0.2\na b\n", 18);
    ok(shoal_tokenizer_open(folder, &tokenizer));
    int32_t ids[4];
    int64_t count;
    ok(shoal_tokenizer_encode(tokenizer, "abab", 4, ids, 4, &count));
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 2);
    shoal_tokenizer_destroy(tokenizer);
    assert_true(shoal_tokenizer_load(&(shoal_tokenizer_args){.type = "GPT3"}, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "there is no tokenizer type `GPT3`; known are"));
    assert_true(
        shoal_tokenizer_load(&(shoal_tokenizer_args){.type = "GPT2BPETokenizer"}, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "needs --vocab-file and --merge-file"));
}

static void test_null(void **state)
{
    (void)state;
    shoal_tokenizer *tokenizer = NULL;
    int32_t ids[8];
    int64_t count;
    char text[32];
    size_t bytes;
    ok(shoal_tokenizer_load(&(shoal_tokenizer_args){.type = "NullTokenizer", .vocab_size = 100},
                            &tokenizer));
    ok(shoal_tokenizer_encode(tokenizer, "7 99\n0", 6, ids, 8, &count));
    assert_int_equal(count, 3);
    assert_int_equal(ids[1], 99);
    assert_int_equal(shoal_tokenizer_eod(tokenizer), 99);
    ok(shoal_tokenizer_decode(tokenizer, ids, count, text, sizeof text, &bytes));
    assert_int_equal(bytes, 6);
    assert_memory_equal(text, "7 99 0", 6);
    assert_true(shoal_tokenizer_encode(tokenizer, "1 100", 5, ids, 8, &count) < 0);
    assert_non_null(strstr(shoal_error_message(), "at byte 2 no number below 100"));
    assert_true(shoal_tokenizer_encode(tokenizer, "1 x", 3, ids, 8, &count) < 0);
    assert_true(shoal_tokenizer_encode(tokenizer, "1\0", 2, ids, 8, &count) < 0);
    shoal_tokenizer_destroy(tokenizer);
}

/* ---- training ---- */

static shoal_tokenizer *train(int32_t threads, int64_t vocab_size, const char *pattern)
{
    struct shoali_str text = {0};
    shoal_tokenizer *tokenizer = NULL;
    for (int i = 0; i < 3000; i++)
        shoali_str_append(&text,
                          "low lower lowest w%d \xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82%s",
                          i * 7 % 50, i % 5 ? " " : "\n\n");
    shoali_str_append_bytes(&text, "\xff\xfe low\xc3", 7);
    char path[128];
    snprintf(path, sizeof path, "%s", write_named("text", text.text, text.length));
    const char *const paths[] = {path}, *const special[] = {"<|endoftext|>"};
    ok(shoal_tokenizer_train(&(shoal_tokenizer_train_args){.paths = paths,
                                                           .path_count = 1,
                                                           .vocab_size = vocab_size,
                                                           .pattern = pattern,
                                                           .special_tokens = special,
                                                           .special_count = 1,
                                                           .threads = threads},
                             &tokenizer));
    shoali_str_fini(&text);
    return tokenizer;
}

static void test_training(void **state)
{
    (void)state;
    shoal_tokenizer *one = train(1, 300, "gpt2"), *again = NULL;
    for (int32_t threads = 2; threads <= 7; threads += 5) {
        shoal_tokenizer *many = train(threads, 300, "gpt2");
        assert_string_equal(shoal_tokenizer_json(one), shoal_tokenizer_json(many));
        shoal_tokenizer_destroy(many);
    }
    assert_int_equal(shoal_tokenizer_vocab_size(one), 300);
    assert_int_equal(shoal_tokenizer_eod(one), 0);
    /* " low" is in every word of three, so it is a token */
    assert_true(shoal_tokenizer_id(one, "\xc4\xa0low") > 256);
    ok(shoal_tokenizer_from_json(shoal_tokenizer_json(one), strlen(shoal_tokenizer_json(one)),
                                 &again));
    shoal_tokenizer_destroy(again);
    shoal_tokenizer_destroy(one);
    /* what does not occur twice ends it early */
    one = train(1, 100000, "llama3");
    assert_true(shoal_tokenizer_vocab_size(one) < 1000);
    shoal_tokenizer_destroy(one);
    const shoal_tokenizer_train_args small = {
        .paths = &(const char *){"x"}, .path_count = 1, .vocab_size = 255};
    assert_true(shoal_tokenizer_train(&small, &one) < 0);
    assert_non_null(strstr(shoal_error_message(), "give --vocab-size from 256"));
}

/* Any bytes, and text in pieces, come back. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const patterns[] = {"gpt2", "llama3", "qwen2"};
    for (int p = 0; p < 3; p++) {
        shoal_tokenizer *tokenizer = train(1, 320, patterns[p]);
        uint64_t draw = 88172645463325252u + (uint64_t)p;
        for (int n = 0; n < 300; n++) {
            char text[200], back[800];
            int32_t ids[200];
            int64_t count;
            size_t bytes;
            const size_t length = (size_t)(draw % sizeof text);
            for (size_t i = 0; i < length; i++) {
                draw ^= draw << 13;
                draw ^= draw >> 7;
                draw ^= draw << 17;
                text[i] = n % 2 ? (char)draw : "low 1\n\xd0\xbf'"[draw % 9];
            }
            draw += 11;
            ok(shoal_tokenizer_encode(tokenizer, text, length, ids, 200, &count));
            assert_true(count <= (int64_t)length);
            ok(shoal_tokenizer_decode(tokenizer, ids, count, back, sizeof back, &bytes));
            assert_int_equal(bytes, length);
            assert_memory_equal(back, text, length);
        }
        shoal_tokenizer_destroy(tokenizer);
    }
}

struct worker {
    const shoal_tokenizer *tokenizer;
    int64_t count;
    bool same;
};

static void *encode_often(void *arg)
{
    struct worker *worker = arg;
    static const char text[] = "low lower lowest w7 w8 w9 unknown words too\n";
    int32_t first[64], ids[64];
    worker->same = true;
    for (int i = 0; i < 500; i++) {
        int64_t count = 0;
        if (shoal_tokenizer_encode(worker->tokenizer, text, sizeof text - 1, i ? ids : first, 64,
                                   &count) < 0)
            worker->same = false;
        worker->same =
            worker->same &&
            (i == 0 || (count == worker->count && memcmp(first, ids, (size_t)count * 4) == 0));
        worker->count = count;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    shoal_tokenizer *tokenizer = train(1, 300, "gpt2");
    struct worker worker[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        worker[i] = (struct worker){.tokenizer = tokenizer};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_often, &worker[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_true(worker[i].same);
        assert_int_equal(worker[i].count, worker[0].count);
    }
    shoal_tokenizer_destroy(tokenizer);
}

/* A long text, cut where blocks may be cut, has the same ids as the whole. */
static void test_blocks(void **state)
{
    (void)state;
    struct shoali_str text = {0};
    shoal_tokenizer *tokenizer = train(1, 300, "llama3");
    for (int i = 0; i < 20000; i++)
        shoali_str_append(&text, "low %d lower%s", i, i % 9 ? " " : i % 2 ? "\n" : " \n\n  ");
    int32_t *whole = malloc(text.length * sizeof *whole),
            *parts = malloc(text.length * sizeof *parts);
    int64_t count, sum = 0, some;
    ok(shoal_tokenizer_encode(tokenizer, text.text, text.length, whole, (int64_t)text.length,
                              &count));
    for (size_t at = 0, block; at < text.length; at += block) {
        block = shoali_tokenizer_block(tokenizer, text.text + at, text.length - at, true);
        assert_true(block > 0 && block <= SHOALI_BLOCK_BYTES_MAX);
        /* what follows does not move the cut */
        if (at + block < text.length)
            assert_int_equal(shoali_tokenizer_block(tokenizer, text.text + at, block + 1, false),
                             block);
        ok(shoal_tokenizer_encode(tokenizer, text.text + at, block, parts + sum,
                                  (int64_t)text.length - sum, &some));
        sum += some;
    }
    assert_int_equal(sum, count);
    assert_memory_equal(whole, parts, (size_t)count * sizeof *whole);
    assert_int_equal(shoali_tokenizer_block(tokenizer, text.text, 1000, false), 0);
    free(whole);
    free(parts);
    shoali_str_fini(&text);
    shoal_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),   cmocka_unit_test(test_paths),
        cmocka_unit_test(test_null),       cmocka_unit_test(test_training),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
