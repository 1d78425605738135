/* Tokenizers against what other packages made of the same texts
 * (tests/golden/make_tokenizer_golden.py). */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "shoal/tokenizer.h"
#include "tokenizer/spec.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *read_golden(const char *name)
{
    char path[512], *data = NULL;
    size_t bytes;
    json_t *root = NULL;
    snprintf(path, sizeof path, "%s/%s", GOLDEN_FOLDER, name);
    ok(shoali_read_file(path, &data, &bytes));
    ok(shoali_json_read(data, bytes, &root, NULL));
    free(data);
    return root;
}

/* Ids as the golden file has them. */
static void same_ids(const char *what, size_t text_index, const int32_t *got, int64_t count,
                     const json_t *want)
{
    int64_t at = 0;
    while (at < count && at < (int64_t)json_array_size(want) &&
           got[at] == json_integer_value(json_array_get(want, (size_t)at)))
        at++;
    if (at != count || count != (int64_t)json_array_size(want))
        fail_msg(
            "%s, text %zu: of %zu ids, %lld came, the first other one at %lld: %d instead of %d",
            what, text_index, json_array_size(want), (long long)count, (long long)at,
            at < count ? got[at] : -1, (int)json_integer_value(json_array_get(want, (size_t)at)));
}

static int32_t *encode(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                       int64_t *count)
{
    ok(shoal_tokenizer_encode(tokenizer, text, bytes, NULL, 0, count));
    int32_t *ids = malloc((size_t)*count * sizeof *ids + 1);
    int64_t again = 0;
    assert_non_null(ids);
    ok(shoal_tokenizer_encode(tokenizer, text, bytes, ids, *count, &again));
    assert_int_equal(again, *count);
    return ids;
}

/* Twice: the second time words come from the cache. */
static void check_texts(const char *what, const shoal_tokenizer *tokenizer, const json_t *texts,
                        const json_t *ids, const char *behind)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < json_array_size(texts); i++) {
            char text[8192];
            int64_t count;
            snprintf(text, sizeof text, "%s%s", json_string_value(json_array_get(texts, i)),
                     behind);
            int32_t *got = encode(tokenizer, text, strlen(text), &count);
            same_ids(what, i, got, count, json_array_get(ids, i));
            free(got);
        }
}

static shoal_tokenizer *from_value(const json_t *value)
{
    shoal_tokenizer *tokenizer = NULL;
    char *text = NULL;
    ok(shoali_json_write(value, JSON_COMPACT, "a tokenizer", &text));
    ok(shoal_tokenizer_from_json(text, strlen(text), &tokenizer));
    free(text);
    return tokenizer;
}

static void test_stages(void **state)
{
    (void)state;
    json_t *golden = read_golden("tokenizer_stages.json"), *entry;
    size_t i;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 60);
    json_array_foreach(json_object_get(golden, "cases"), i, entry)
    {
        char what[600];
        json_t *root =
            json_pack("{s:O,s:O,s:O,s:O}", "normalizer", json_object_get(entry, "normalizer"),
                      "pre_tokenizer", json_object_get(entry, "pre_tokenizer"), "model",
                      json_object_get(golden, "model"), "added_tokens",
                      json_object_get(golden, "added_tokens"));
        char *n = json_dumps(json_object_get(entry, "normalizer"), JSON_ENCODE_ANY);
        char *p = json_dumps(json_object_get(entry, "pre_tokenizer"), JSON_ENCODE_ANY);
        snprintf(what, sizeof what, "case %zu, %s, %s", i, n, p);
        shoal_tokenizer *tokenizer = from_value(root);
        check_texts(what, tokenizer, json_object_get(golden, "texts"),
                    json_object_get(entry, "ids"), "");
        shoal_tokenizer_destroy(tokenizer);
        json_decref(root);
        free(n);
        free(p);
    }
    json_decref(golden);
}

static void check_decoded(const char *name, const shoal_tokenizer *tokenizer, const json_t *ids,
                          const char *want)
{
    int32_t tokens[4096];
    char text[16384];
    size_t bytes;
    const size_t count = json_array_size(ids);
    assert_true(count < 4096);
    for (size_t i = 0; i < count; i++)
        tokens[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    ok(shoal_tokenizer_decode(tokenizer, tokens, (int64_t)count, text, sizeof text - 1, &bytes));
    assert_true(bytes < sizeof text);
    text[bytes] = '\0';
    if (strcmp(text, want) != 0)
        fail_msg("%s: `%s` was decoded instead of `%s`", name, text, want);
}

static void check_post(const char *name, const shoal_tokenizer *tokenizer, const json_t *texts,
                       const json_t *post)
{
    for (size_t i = 0; i < json_array_size(post); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        int64_t count, all;
        int32_t around[4096];
        int32_t *ids = encode(tokenizer, text, strlen(text), &count);
        ok(shoal_tokenizer_post_process(tokenizer, ids, count, around, 4096, &all));
        same_ids(name, i, around, all, json_array_get(post, i));
        free(ids);
    }
}

static void test_models(void **state)
{
    (void)state;
    json_t *golden = read_golden("tokenizer_models.json"), *entry;
    const json_t *texts = json_object_get(golden, "texts");
    size_t i;
    assert_int_equal(json_array_size(json_object_get(golden, "models")), 8);
    json_array_foreach(json_object_get(golden, "models"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const json_t *ids = json_object_get(entry, "ids");
        shoal_tokenizer *first = from_value(json_object_get(entry, "tokenizer")), *again = NULL;
        /* what a checkpoint keeps is enough */
        ok(shoal_tokenizer_from_json(shoal_tokenizer_json(first),
                                     strlen(shoal_tokenizer_json(first)), &again));
        assert_string_equal(shoal_tokenizer_json(first), shoal_tokenizer_json(again));
        check_texts(name, again, texts, ids, "");
        check_post(name, again, texts, json_object_get(entry, "post"));
        for (size_t t = 0; t < json_array_size(ids); t++)
            check_decoded(name, again, json_array_get(ids, t),
                          json_string_value(json_array_get(json_object_get(entry, "decoded"), t)));
        shoal_tokenizer_destroy(first);
        shoal_tokenizer_destroy(again);
    }
    json_decref(golden);
}

static void test_files(void **state)
{
    (void)state;
    json_t *golden = read_golden("tokenizer_files.json"), *ids;
    const char *name;
    assert_int_equal(json_object_size(json_object_get(golden, "files")), 3);
    json_object_foreach(json_object_get(golden, "files"), name, ids)
    {
        char path[512];
        shoal_tokenizer *tokenizer = NULL, *again = NULL;
        snprintf(path, sizeof path, "%s/%s", GOLDEN_FOLDER, name);
        ok(shoal_tokenizer_open(path, &tokenizer));
        ok(shoal_tokenizer_from_json(shoal_tokenizer_json(tokenizer),
                                     strlen(shoal_tokenizer_json(tokenizer)), &again));
        check_texts(name, again, json_object_get(golden, "texts"), ids,
                    strstr(name, "ranks") ? " aaaaaaa" : "");
        shoal_tokenizer_destroy(tokenizer);
        shoal_tokenizer_destroy(again);
    }
    json_decref(golden);
}

/* ---- folders of slow tokenizers ---- */

static void write_file(const char *dir, const char *name, const json_t *value)
{
    char path[512], *text = NULL;
    const json_t *base64 = json_object_get(value, "base64");
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (base64) {
        size_t bytes;
        text = malloc(json_string_length(base64) + 4);
        assert_non_null(text);
        assert_true(
            shoali_base64(json_string_value(base64), json_string_length(base64), text, &bytes));
        ok(shoali_write_file_atomic(path, text, bytes));
    } else if (json_is_string(value)) {
        ok(shoali_write_file_atomic(path, json_string_value(value), json_string_length(value)));
    } else {
        ok(shoali_json_write(value, JSON_COMPACT, "a file", &text));
        ok(shoali_write_file_atomic(path, text, strlen(text)));
    }
    free(text);
}

static void write_files(const char *dir, const json_t *files)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)files, name, value) write_file(dir, name, value);
}

/* Texts without ids are those in which transformers 5 differs from SentencePiece. */
static json_t *with_ids(const json_t *texts, const json_t *ids, json_t **some)
{
    json_t *kept = json_array(), *entry;
    size_t i;
    *some = json_array();
    json_array_foreach(ids, i, entry)
    {
        if (json_is_null(entry))
            continue;
        json_array_append(kept, json_array_get(texts, i));
        json_array_append(*some, entry);
    }
    return kept;
}

static void check_folder(const char *name, const json_t *golden, const json_t *entry)
{
    char dir[256];
    shoal_tokenizer *tokenizer = NULL, *again = NULL;
    json_t *some, *posts;
    const json_t *texts = json_object_get(golden, "texts");
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    ok(shoali_make_dirs(dir));
    write_files(dir, json_object_get(json_object_get(golden, "shared"),
                                     json_string_value(json_object_get(entry, "vocabulary"))));
    write_files(dir, json_object_get(entry, "beside"));
    ok(shoal_tokenizer_open(dir, &tokenizer));
    ok(shoal_tokenizer_from_json(shoal_tokenizer_json(tokenizer),
                                 strlen(shoal_tokenizer_json(tokenizer)), &again));
    json_t *kept = with_ids(texts, json_object_get(entry, "ids"), &some);
    check_texts(name, again, kept, some, "");
    json_decref(kept);
    kept = with_ids(texts, json_object_get(entry, "post"), &posts);
    check_post(name, again, kept, posts);
    if (shoal_tokenizer_vocab_size(again) != json_integer_value(json_object_get(entry, "size")))
        fail_msg("%s: %d tokens", name, shoal_tokenizer_vocab_size(again));
    const json_t *eos = json_object_get(entry, "eos");
    if (json_is_integer(eos) && shoal_tokenizer_eod(again) != json_integer_value(eos))
        fail_msg("%s: a document ends with %d", name, shoal_tokenizer_eod(again));
    json_decref(kept);
    json_decref(some);
    json_decref(posts);
    shoal_tokenizer_destroy(tokenizer);
    shoal_tokenizer_destroy(again);
}

static void test_folders(void **state)
{
    (void)state;
    json_t *golden = read_golden("tokenizer_folders.json"), *entry;
    const char *name;
    assert_true(json_object_size(json_object_get(golden, "folders")) >= 12);
    json_object_foreach(json_object_get(golden, "folders"), name, entry)
        check_folder(name, golden, entry);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
