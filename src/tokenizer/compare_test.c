/* Which tokenizers give the same ids. */
#include "base/test_cmocka.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

static shoal_tokenizer *make(const char *json)
{
    shoal_tokenizer *tokenizer = NULL;
    ok(shoal_tokenizer_from_json(json, strlen(json), &tokenizer));
    return tokenizer;
}

/* In both orders; `why` is of the first. */
static void compares(const char *a, const char *b, shoal_tokenizer_likeness want, const char *words)
{
    char why[200];
    shoal_tokenizer_likeness likeness;
    shoal_tokenizer *left = make(a), *right = make(b);
    ok(shoal_tokenizer_compare(right, left, &likeness, NULL, 0));
    assert_int_equal(likeness, want);
    ok(shoal_tokenizer_compare(left, right, &likeness, why, sizeof why));
    if (likeness != want)
        fail_msg("%s and %s: %d", a, b, (int)likeness);
    assert_string_equal(why, words);
    shoal_tokenizer_destroy(left);
    shoal_tokenizer_destroy(right);
}

#define BPE(vocab, merges, more) \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}" more "}"
#define LETTERS "\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4"
#define WORDS(vocab, normalizer)                                                        \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{" vocab "}}}"

static void test_pipelines(void **state)
{
    (void)state;
    static const char first[] = BPE(LETTERS, "\"a b\",\"b c\"", "");
    compares(first, first, SHOAL_TOKENIZER_SAME, "");
    compares(first, BPE(LETTERS, "[\"a\",\"b\"],[\"b\",\"c\"]", ",\"version\":\"1.0\""),
             SHOAL_TOKENIZER_SAME, "");
    compares(first, BPE(LETTERS, "\"b c\",\"a b\"", ""), SHOAL_TOKENIZER_OTHER,
             "the tokens are the same, merges or other rules are not");
    compares(first, BPE("\"a\":0,\"b\":1,\"c\":2,\"bc\":3,\"ab\":4", "\"a b\",\"b c\"", ""),
             SHOAL_TOKENIZER_OTHER, "token 3 is `ab` and `bc`");
    compares(first,
             BPE(LETTERS, "\"a b\",\"b c\"",
                 ",\"added_tokens\":[{\"id\":5,\"content\":\"<x>\",\"special\":true}]"),
             SHOAL_TOKENIZER_EXTENDED, "");
    /* numbers without a string stand for nothing */
    compares(BPE(LETTERS ",\"d\":7", "", ""),
             BPE(LETTERS ",\"d\":7", "", ",\"added_tokens\":[{\"id\":5,\"content\":\"<x>\"}]"),
             SHOAL_TOKENIZER_EXTENDED, "");
    compares(first, BPE(LETTERS ",\"d\":9", "\"a b\",\"b c\"", ""), SHOAL_TOKENIZER_OTHER,
             "only one has token 9, `d`");
    compares(BPE(LETTERS ",\"d\":9", "", ""), BPE(LETTERS ",\"d\":9,\"e\":7", "", ""),
             SHOAL_TOKENIZER_OTHER, "only one has token 7, `e`");
    /* only the normalizer differs */
    compares(WORDS("\"u\":0,\"the\":1,\"quick\":2", "null"),
             WORDS("\"u\":0,\"the\":1,\"quick\":2", "{\"type\":\"Lowercase\"}"),
             SHOAL_TOKENIZER_OTHER, "the tokens are the same, merges or other rules are not");
    /* other formats of the same strings */
    compares(
        WORDS("\"u\":0,\"the\":1", "null"),
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"the\":1}}}",
        SHOAL_TOKENIZER_SAME, "");
}

static void test_plain(void **state)
{
    (void)state;
    static const char byte[] = "{\"type\":\"byte\",\"version\":1}";
    static const char chars[] = "{\"type\":\"char\",\"version\":1,\"code_points\":[97,98,100]}";
    static const char null[] = "{\"type\":\"null\",\"version\":1,\"vocab_size\":9}";
    compares(byte, byte, SHOAL_TOKENIZER_SAME, "");
    compares(byte, chars, SHOAL_TOKENIZER_OTHER, "`byte` and `char`");
    compares(byte, BPE(LETTERS, "", ""), SHOAL_TOKENIZER_OTHER, "`byte` and `BPE`");
    compares(chars, "{\"type\":\"char\",\"version\":1,\"code_points\":[97,98,99]}",
             SHOAL_TOKENIZER_OTHER, "token 2 is not the same character");
    compares(chars, "{\"type\":\"char\",\"version\":1,\"code_points\":[97,98,100,101]}",
             SHOAL_TOKENIZER_EXTENDED, "");
    compares(null, "{\"type\":\"null\",\"version\":1,\"vocab_size\":8}", SHOAL_TOKENIZER_UNKNOWN,
             "");
    compares(null, byte, SHOAL_TOKENIZER_UNKNOWN, "");
    compares(null, null, SHOAL_TOKENIZER_SAME, "");
}

/* A string that does not fit is cut between characters. */
static void test_long_string(void **state)
{
    (void)state;
    char a[400], why[300], expected[120];
    shoal_tokenizer_likeness likeness;
    char text[121] = "";
    for (int i = 0; i < 40; i++)
        memcpy(text + 3 * i, "\xe4\xbd\xa0", 4);
    snprintf(a, sizeof a, BPE("\"%s\":0", "", ""), text);
    shoal_tokenizer *left = make(a), *right = make(BPE("\"x\":0", "", ""));
    ok(shoal_tokenizer_compare(left, right, &likeness, why, sizeof why));
    snprintf(expected, sizeof expected, "token 0 is `%.39s` and `x`", text);
    assert_string_equal(why, expected);
    shoal_tokenizer_destroy(left);
    shoal_tokenizer_destroy(right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_long_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
