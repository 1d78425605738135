/* Mistakes and their sentences, bytes that are no UTF-8, threads, files, training. */
#include "tokenizer/tokenizer.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <jansson.h>
#include <pthread.h>
#include <string.h>

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
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":"
         "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[X]\"}},{\"Sequence\":{"
         "\"id\":\"A\"}}],\"special_tokens\":{}}}",
         "there is no `[X]`, which the template names"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":"
         "99999999,"
         "\"content\":\"x\"}]}",
         "added_tokens[0].id: an integer from 0 to"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"},\"model\":{}"
         "}",
         "this is not base64"},
        {"{\"model\":{\"type\":\"SentencePieceUnigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0,2],"
         "[\"a\",-1,5]]}}",
         "piece 1, `a`, is marked as unused"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i][0], cases[i][1]);
}

/* Only two hexadecimal digits name a byte; other pieces of that form are texts. Bytes that are
 * neither text nor a piece are refused. */
static void test_bytes_by_name(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,"
        "\"<0x4a>\":1,\"<0x4B>\":2,\"<0x4Z>\":3,\"<0xZ4>\":4,\"<0xZZ>\":5}},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"}]}}";
    static const int32_t ids[] = {1, 2, 3, 4, 5, 0};
    static const char expected[] = "JK<0x4Z><0xZ4><0xZZ>a";
    shoal_tokenizer *tokenizer = NULL;
    char text[64];
    size_t bytes;
    ok(shoal_tokenizer_from_json(json, strlen(json), &tokenizer));
    ok(shoal_tokenizer_decode(tokenizer, ids, 6, text, sizeof text, &bytes));
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(text, expected, strlen(expected));
    int32_t id;
    int64_t count;
    assert_int_equal(shoal_tokenizer_encode(tokenizer, "a\xff", 2, &id, 1, &count), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "not UTF-8 at byte 1 (0xff)"));
    shoal_tokenizer_destroy(tokenizer);
}

/* Bytes of a character that the vocabulary lacks, where they have tokens. */
static void test_byte_fallback(void **state)
{
    (void)state;
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],"
                               "\"vocab\":{\"a\":0,\"<0xC3>\":1,\"<0xA9>\":2}}}";
    static const int32_t wanted[] = {0, 1, 2, 0};
    shoal_tokenizer *tokenizer = NULL;
    int32_t ids[8];
    int64_t count;
    ok(shoal_tokenizer_from_json(json, strlen(json), &tokenizer));
    ok(shoal_tokenizer_encode(tokenizer,
                              "a\xc3\xa9\xc3\xbc"
                              "a",
                              6, ids, 8, &count));
    assert_int_equal(count, 4);
    assert_memory_equal(ids, wanted, sizeof wanted);
    shoal_tokenizer_destroy(tokenizer);
}

static const char small_json[] =
    "{\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":3,\"content\":\"<x>\","
    "\"special\":true}],\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,"
    "\"\xe2\x96\x81"
    "a\":1,\"b\":2}},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"\xe2\x96\x81\"}}";

/* Keys that are not given have their defaults. */
static void test_description(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 1, 2};
    shoal_tokenizer *tokenizer = NULL;
    char *description = NULL, text[16];
    size_t bytes;
    ok(shoal_tokenizer_from_json(small_json, strlen(small_json), &tokenizer));
    ok(shoal_tokenizer_describe(tokenizer, &description));
    assert_string_equal(description,
                        "model: WordLevel\nvocabulary: 4\nend of a document: none\n"
                        "normalizer: Lowercase\npre-tokenizer: none\npost-processor: TEXT\n"
                        "decoder: Metaspace\nadded tokens: 1\n  3 <x> (special)\n");
    free(description);
    ok(shoal_tokenizer_decode(tokenizer, ids, 3, text, sizeof text, &bytes));
    assert_int_equal(bytes, 4);
    assert_memory_equal(text, "a ab", 4);
    shoal_tokenizer_destroy(tokenizer);
}

/* Of many added tokens 32 have a line. */
static void test_long_description(void **state)
{
    (void)state;
    for (int count = 32; count <= 34; count++) {
        shoal_tokenizer *tokenizer = NULL;
        struct shoali_str json = {0};
        char *text = NULL, more[32];
        shoali_str_append(&json, "{\"added_tokens\":[");
        for (int i = 0; i < count; i++)
            shoali_str_append(&json, "%s{\"id\":%d,\"content\":\"<x%d>\"}", i ? "," : "", i + 1, i);
        shoali_str_append(&json, "],\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}");
        ok(shoal_tokenizer_from_json(json.text, json.length, &tokenizer));
        ok(shoal_tokenizer_describe(tokenizer, &text));
        snprintf(more, sizeof more, "\n  and %d more\n", count - 32);
        assert_non_null(strstr(text, "<x31>"));
        assert_null(strstr(text, "<x32>"));
        assert_int_equal(strstr(text, "more") != NULL, count > 32);
        assert_true(count == 32 || strstr(text, more));
        free(text);
        shoali_str_fini(&json);
        shoal_tokenizer_destroy(tokenizer);
    }
}

/* Each allocation of the call that makes it fails once. */
static void test_made_without_memory(void **state)
{
    (void)state;
    shoal_status status = SHOAL_ENOMEM;
    for (int skip = 0; status < 0; skip++) {
        shoal_tokenizer *tokenizer = NULL;
        char spec[32];
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        assert_true(skip < 200 && shoali_fault_arm(spec));
        status = shoal_tokenizer_from_json(small_json, strlen(small_json), &tokenizer);
        const bool fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        assert_true((tokenizer == NULL) == fired && (skip > 0 || fired));
        shoal_tokenizer_destroy(tokenizer);
    }
}

/* Each allocation of the first call fails once: an error, or nothing is lost. */
static void test_without_memory(void **state)
{
    (void)state;
    static const int32_t encoded[] = {2, 3}, decoded[] = {1, 1, 3};
    for (int decodes = 0; decodes < 2; decodes++) {
        bool fired = true;
        for (int skip = 0; fired; skip++) {
            shoal_tokenizer *tokenizer = NULL;
            int32_t ids[4];
            int64_t count = 0;
            size_t bytes = 0;
            char spec[32], text[8];
            ok(shoal_tokenizer_from_json(small_json, strlen(small_json), &tokenizer));
            snprintf(spec, sizeof spec, "alloc:%d", skip);
            assert_true(skip < 100 && shoali_fault_arm(spec));
            const shoal_status status =
                decodes ? shoal_tokenizer_decode(tokenizer, decoded, 3, text, sizeof text, &bytes)
                        : shoal_tokenizer_encode(tokenizer, "B<x>", 4, ids, 4, &count);
            fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            assert_true(status == SHOAL_OK || (fired && status == SHOAL_ENOMEM));
            assert_true(skip > 0 || status < 0);
            if (status == SHOAL_OK && decodes) {
                assert_int_equal(bytes, 6);
                assert_memory_equal(text, "a a<x>", 6);
            } else if (status == SHOAL_OK) {
                assert_int_equal(count, 2);
                assert_memory_equal(ids, encoded, sizeof encoded);
            }
            shoal_tokenizer_destroy(tokenizer);
        }
    }
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
    static const char map[] = "\n\x09\n\x05<unk>\x18\x02\x1a\x07\x12\x05\0\0\0\0x";
    assert_true(shoal_tokenizer_open(write_named("y.model", map, sizeof map - 1), &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "does not end with a NUL"));
    assert_true(shoal_tokenizer_open(write_named("r", "QQ== 0\nQg==\n", 12), &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "/r:2: \"base64 rank\" is expected here"));
    (void)write_named("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}", 20);
    assert_true(shoal_tokenizer_open(folder, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "needs merges.txt in the same folder"));
    (void)write_named("merges.txt", "#version: 0.2\na b\nab\n", 21);
    assert_true(shoal_tokenizer_open(folder, &tokenizer) < 0);
    assert_non_null(strstr(shoal_error_message(), "merges.txt:3: `ab` is not two strings"));
    /* a byte order mark is no part of a file */
    (void)write_named("vocab.json", "\xef\xbb\xbf{\"a\":0,\"b\":1,\"ab\":2}", 23);
    (void)write_named("merges.txt", "\xef\xbb\xbf#version: 0.2\na b\n", 21);
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

/* A list of tokens: the element that is wrong is named, also where it is the last. */
static void test_token_list(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"[{\"rank\":0,\"token_bytes\":\"?\"},{\"rank\":1,\"token_bytes\":\"QQ==\"}]",
         "/list.json: element 0: `?` is not base64"},
        {"[{\"rank\":0,\"token_bytes\":\"QQ==\"},{\"rank\":1,\"token_bytes\":\"QQ==\"}]",
         "/list.json: element 1: this token occurs here a second time"},
        {"[{\"rank\":1,\"token_bytes\":\"QQ==\"}]", "/list.json: element 0 is not {\"rank\": 0,"},
        {"[{\"rank\":0,\"token_bytes\":\"QQ==\"}]",
         "/list.json: model: there is no token for the byte 0x00"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        shoal_tokenizer *tokenizer = NULL;
        const shoal_tokenizer_args args = {
            .type = "TikTokenizer",
            .path = write_named("list.json", rows[i][0], strlen(rows[i][0]))};
        assert_int_equal(shoal_tokenizer_load(&args, &tokenizer), SHOAL_ECONFIG);
        if (!strstr(shoal_error_message(), rows[i][1]))
            fail_msg("`%s` does not say `%s`", shoal_error_message(), rows[i][1]);
    }
}

#define SPACE "\xe2\x96\x81"
/* Where a piece of a byte pair model has a space behind another character, no text is cut at its
 * spaces. */
static void test_space_inside_a_piece(void **state)
{
    (void)state;
    static const char unknown[] = "\x0a\x09\x0a\x05<unk>\x18\x02", trainer[] = "\x12\x02\x18\x02";
    static const char *const last[] = {"a" SPACE "b", "ab" SPACE "b"};
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        const char *const pieces[] = {SPACE, "a", "b", "ab", "a" SPACE, "ab" SPACE, last[i]};
        shoal_tokenizer *tokenizer = NULL;
        struct shoali_str model = {0};
        int32_t ids[8];
        int64_t count;
        shoali_str_append_bytes(&model, unknown, sizeof unknown - 1);
        for (size_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
            const char length = (char)strlen(pieces[k]);
            const char begin[] = {0x0a, (char)(length + 2), 0x0a, length};
            shoali_str_append_bytes(&model, begin, sizeof begin);
            shoali_str_append_bytes(&model, pieces[k], (size_t)length);
        }
        shoali_str_append_bytes(&model, trainer, sizeof trainer - 1);
        ok(shoal_tokenizer_open(write_named("inner.model", model.text, model.length), &tokenizer));
        ok(shoal_tokenizer_encode(tokenizer, i == 1 ? "ab b" : "a b", i == 1 ? 4 : 3, ids, 8,
                                  &count));
        assert_int_equal(count, 2);
        assert_int_equal(ids[0], 1);
        assert_int_equal(ids[1], 7);
        shoali_str_fini(&model);
        shoal_tokenizer_destroy(tokenizer);
    }
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
    assert_non_null(strstr(shoal_error_message(), "at byte 2 is not a number below 100"));
    assert_true(shoal_tokenizer_encode(tokenizer, "1 x", 3, ids, 8, &count) < 0);
    assert_true(shoal_tokenizer_encode(tokenizer, "1\0", 2, ids, 8, &count) < 0);
    shoal_tokenizer_destroy(tokenizer);
}

/* ---- models ---- */

static shoal_tokenizer *from_json(const char *json)
{
    shoal_tokenizer *tokenizer = NULL;
    ok(shoal_tokenizer_from_json(json, strlen(json), &tokenizer));
    return tokenizer;
}

/* The lowest rank first, of equal ones the leftmost. merge[r]: the two that rank r joins, and what
 * they become. */
static int plain_merge(const int32_t (*merge)[3], int merges, int32_t *id, int count)
{
    for (int rank = 0; rank < merges;) {
        int at = 0;
        while (at + 1 < count && (id[at] != merge[rank][0] || id[at + 1] != merge[rank][1]))
            at++;
        if (at + 1 >= count) {
            rank++;
            continue;
        }
        id[at] = merge[rank][2];
        for (int i = at + 1; i + 1 < count; i++)
            id[i] = id[i + 1];
        count--;
        rank = 0;
    }
    return count;
}

/* Words of many symbols are joined with a heap, short ones by looking at all pairs: both as the
 * definition says, on both sides of the length between them. */
static void test_long_words(void **state)
{
    (void)state;
    enum { LONGEST = 210, MERGES = 5 };
    static const int32_t merge[MERGES][3] = {{0, 0, 2}, {1, 0, 3}, {2, 2, 4}, {2, 3, 5}, {4, 1, 6}};
    char text[LONGEST];
    int32_t want[LONGEST], got[LONGEST];
    shoal_tokenizer *tokenizer =
        from_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"aa\":2,\"ba\":3,"
                  "\"aaaa\":4,\"aaba\":5,\"aaaab\":6},\"merges\":[\"a a\",\"b a\",\"aa aa\","
                  "\"aa ba\",\"aaaa b\"]}}");
    for (uint64_t seed = 1; seed < 300; seed++) {
        const struct shoali_stream stream = shoali_stream_make(3, "test", "words", seed);
        const int length = seed < LONGEST ? (int)seed : LONGEST - 1;
        int64_t got_count;
        for (int i = 0; i < length; i++) {
            want[i] = seed % 3 && shoali_random_below(&stream, (uint64_t)i, 5) == 0;
            text[i] = want[i] ? 'b' : 'a';
        }
        const int count = plain_merge(merge, MERGES, want, length);
        ok(shoal_tokenizer_encode(tokenizer, text, (size_t)length, got, LONGEST, &got_count));
        assert_int_equal(got_count, count);
        for (int i = 0; i < count; i++)
            if (got[i] != want[i])
                fail_msg("%.*s: token %d is %d, not %d", length, text, i, (int)got[i],
                         (int)want[i]);
    }
    shoal_tokenizer_destroy(tokenizer);
}

static int64_t count_ids(const shoal_tokenizer *tokenizer, const char *text, int32_t first)
{
    int32_t ids[256];
    int64_t count;
    ok(shoal_tokenizer_encode(tokenizer, text, strlen(text), ids, 256, &count));
    assert_true(count > 0 && count < 256);
    assert_int_equal(ids[0], first);
    return count;
}

/* A word of as many characters as are allowed is cut, one of more is unknown. */
static void test_longest_word(void **state)
{
    (void)state;
#define PIECES "\"vocab\":{\"[UNK]\":0,\"a\":1,\"##a\":2,\"\xc3\xa9\":3,\"##\xc3\xa9\":4}}}"
    char word[128];
    shoal_tokenizer *five =
        from_json("{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":5," PIECES);
    shoal_tokenizer *usual = from_json("{\"model\":{\"type\":\"WordPiece\"," PIECES);
    assert_int_equal(count_ids(five, "aaaaa", 1), 5);
    assert_int_equal(count_ids(five, "aaaaaa", 0), 1);
    assert_int_equal(count_ids(five, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 3), 5);
    assert_int_equal(count_ids(five,
                               "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                               "a",
                               0),
                     1);
    memset(word, 'a', sizeof word);
    word[101] = '\0';
    assert_int_equal(count_ids(usual, word, 0), 1);
    word[100] = '\0';
    assert_int_equal(count_ids(usual, word, 1), 100);
    shoal_tokenizer_destroy(five);
    shoal_tokenizer_destroy(usual);
}

static void put_utf8(uint32_t c, char *to)
{
    if (c < 0x10000)
        snprintf(to, 8, "%c%c%c", (char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)),
                 (char)(0x80 | (c & 63)));
    else
        snprintf(to, 8, "%c%c%c%c", (char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)),
                 (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)));
}

/* The ranges in which BERT puts spaces around a character, at both edges. The gap behind U+2B81F is
 * Hugging Face's. */
static void test_chinese_ranges(void **state)
{
    (void)state;
    static const uint32_t ranges[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                         {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0x2f800, 0x2fa1f}};
    shoal_tokenizer *tokenizer = from_json(
        "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false,\"lowercase\":false},"
        "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}}}");
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        for (int edge = 0; edge < 2; edge++)
            for (int inside = 0; inside < 2; inside++) {
                const uint32_t c = ranges[i][edge] + (inside ? 0u : edge ? 1u : ~0u);
                char text[16] = "x", letter[8];
                put_utf8(c, letter);
                strcat(strcat(text, letter), "y");
                if (count_ids(tokenizer, text, 0) != (inside ? 3 : 1))
                    fail_msg("U+%04X is %sin a range", (unsigned)c, inside ? "not " : "");
            }
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
    /* a special token that no tokenizer.json can hold */
    const shoal_tokenizer_train_args odd = {
        .paths = &(const char *){write_named("text", "some text", 9)},
        .path_count = 1,
        .vocab_size = 300,
        .special_tokens = &(const char *){"<\xff>"},
        .special_count = 1};
    assert_true(shoal_tokenizer_train(&odd, &one) < 0);
    assert_non_null(strstr(shoal_error_message(), "special token 1 is not UTF-8 text"));
    assert_null(one);
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
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_bytes_by_name),
        cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_long_description),
        cmocka_unit_test(test_made_without_memory),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_token_list),
        cmocka_unit_test(test_space_inside_a_piece),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_longest_word),
        cmocka_unit_test(test_chinese_ranges),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
