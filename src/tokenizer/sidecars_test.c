/* Files next to a vocabulary: what is refused, and tokenizer.json with files next to it. Ids of
 * whole folders are compared in tests/parity. */
#include "tokenizer/tokenizer.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <string.h>
#include <sys/stat.h>

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text)
        ok(shoali_write_file_atomic(path, text, strlen(text)));
    else
        (void)remove(path);
}

static void clear(void)
{
    static const char *const names[] = {
        "vocab.json",     "merges.txt",        "vocab.txt",
        "spiece.model",   "config.json",       "tokenizer_config.json",
        "tokenizer.json", "added_tokens.json", "special_tokens_map.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        put(names[i], NULL);
}

static void put_gpt2(void)
{
    clear();
    put("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}");
    put("merges.txt", "#version: 0.2\na b\n");
}

static void put_bert(void)
{
    clear();
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
}

/* Five pieces of a unigram model, without scores. */
static void put_t5(void)
{
    clear();
    put("spiece.model", "\x0a\x09\x0a\x05<pad>\x18\x03"
                        "\x0a\x08\x0a\x04</s>\x18\x03"
                        "\x0a\x09\x0a\x05<unk>\x18\x02"
                        "\x0a\x05\x0a\x03\xe2\x96\x81"
                        "\x0a\x03\x0a\x01"
                        "a"
                        "\x12\x02\x18\x01");
}

static void refused(const char *words)
{
    shoal_tokenizer *tokenizer = NULL;
    const shoal_status status = shoal_tokenizer_open(folder, &tokenizer);
    if (status != SHOAL_ECONFIG)
        fail_msg("status %d instead of a refusal that says `%s`", (int)status, words);
    if (!strstr(shoal_error_message(), words))
        fail_msg("`%s` does not say `%s`", shoal_error_message(), words);
}

static void test_refused_keys(void **state)
{
    (void)state;
    static const char *const gpt2[][3] = {
        {"tokenizer_config.json", "{\"tokenizer_class\":\"CLIPTokenizer\"}",
         "tokenizer_config.json: tokenizer_class: the rules of CLIPTokenizer for vocab.json"},
        {"tokenizer_config.json", "{\"tokenizer_class\":\"WhisperTokenizerFast\"}",
         "the rules of WhisperTokenizer for vocab.json"},
        {"config.json", "{\"model_type\":\"deberta\"}",
         "config.json: model_type: the rules of DebertaTokenizer"},
        {"tokenizer_config.json", "{\"split_special_tokens\":true}",
         "tokenizer_config.json: split_special_tokens changes the ids"},
        {"tokenizer_config.json", "{\"sp_model_kwargs\":{\"enable_sampling\":true}}",
         "sp_model_kwargs.enable_sampling changes the ids"},
        {"tokenizer_config.json", "{\"add_prefix_space\":1}",
         "add_prefix_space: true or false is expected"},
        {"tokenizer_config.json", "{\"eos_token\":5}", "tokenizer_config.json: eos_token: a text"},
        {"special_tokens_map.json", "{\"eos_token\":{\"lstrip\":true}}",
         "special_tokens_map.json: eos_token: a text"},
        {"special_tokens_map.json", "{\"additional_special_tokens\":\"x\"}",
         "special_tokens_map.json: additional_special_tokens: a text"},
        {"special_tokens_map.json", "[]", "special_tokens_map.json: an object is expected"},
        {"special_tokens_map.json", "{\"image_token\":{\"content\":\"<i>\",\"lstrip\":5}}",
         "special_tokens_map.json: `lstrip` of the token `<i>`: true or false"},
        {"added_tokens.json", "{\"<x>\":\"4\"}", "added_tokens.json: the added token `<x>` needs"},
        {"added_tokens.json", "{\"<x>\":-1}", "added_tokens.json: the added token `<x>` needs"},
        {"added_tokens.json", "{\"<x>\":4,\"<y>\":4}", "`<x>` and `<y>` have the same number, 4"},
        {"added_tokens.json", "{\"ab\":7}", "`ab` has the number 7, and the vocabulary says 2"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"4\":\"<x>\"}}",
         "added_tokens_decoder: the added token `4` needs"},
        {"tokenizer_config.json",
         "{\"added_tokens_decoder\":{\"4\":{\"content\":\"<x>\",\"lstrip\":\"no\"}}}",
         "`lstrip` of the token `<x>`: true or false"},
        {"tokenizer_config.json", "{\"eos_token\":\"a\"", "tokenizer_config.json: line 1"},
    };
    for (size_t i = 0; i < sizeof gpt2 / sizeof gpt2[0]; i++) {
        put_gpt2();
        put(gpt2[i][0], gpt2[i][1]);
        refused(gpt2[i][2]);
    }
    static const char *const bert[][2] = {
        {"{\"never_split\":[\"a\"]}", "never_split changes the ids"},
        {"{\"do_basic_tokenize\":false}", "do_basic_tokenize changes the ids"},
        {"{\"unk_token\":\"<unk>\"}", "it has no [CLS], [SEP] or <unk>"},
        {"{\"tokenizer_class\":\"BertJapaneseTokenizer\"}",
         "the rules of BertJapaneseTokenizer for vocab.txt"},
    };
    for (size_t i = 0; i < sizeof bert / sizeof bert[0]; i++) {
        put_bert();
        put("tokenizer_config.json", bert[i][0]);
        refused(bert[i][1]);
    }
}

/* A pipe would be waited for; a folder cannot be read. */
static void test_no_plain_file(void **state)
{
    (void)state;
    char path[256];
    put_gpt2();
    snprintf(path, sizeof path, "%s/added_tokens.json", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused("added_tokens.json is no plain file");
}

/* T5's extra ids stand right behind the pieces, and other tokens behind them without a gap. */
static void test_t5_numbers(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"\"extra_ids\":2", "{\"<extra_id_1>\":5,\"<extra_id_0>\":6,\"<x>\":7}", NULL},
        {"\"extra_ids\":2", "{\"<x>\":7}", NULL},
        {"\"extra_ids\":0", "{\"<x>\":5}", NULL},
        {"\"extra_ids\":2", "{\"<x>\":5}", "T5 has its extra_ids right behind the pieces"},
        {"\"extra_ids\":2", "{\"<x>\":8}", "T5 has its extra_ids right behind the pieces"},
        {"\"extra_ids\":2", "{\"<extra_id_0>\":5}", "T5 has its extra_ids right behind the pieces"},
        {"\"x\":0", "{\"<x>\":5}", "T5 has its extra_ids right behind the pieces"},
        {"\"extra_ids\":-1", "{}", "extra_ids: a number from 0"},
        {"\"extra_ids\":2,\"additional_special_tokens\":[\"<extra_id_0>\"]", "{}",
         "additional_special_tokens has 1 of T5's 2 extra ids"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        shoal_tokenizer *tokenizer = NULL;
        char config[256];
        snprintf(config, sizeof config, "{\"tokenizer_class\":\"T5Tokenizer\",%s}", rows[i][0]);
        put_t5();
        put("tokenizer_config.json", config);
        put("added_tokens.json", rows[i][1]);
        if (rows[i][2]) {
            refused(rows[i][2]);
            continue;
        }
        ok(shoal_tokenizer_open(folder, &tokenizer));
        int32_t ids[8];
        int64_t count;
        ok(shoal_tokenizer_encode(tokenizer, "a<x>", 4, ids, 8, &count));
        assert_int_equal(ids[count - 1], i == 2 ? 5 : 7);
        assert_int_equal(shoal_tokenizer_vocab_size(tokenizer), i == 2 ? 6 : 8);
        shoal_tokenizer_destroy(tokenizer);
    }
}

/* Keys that transformers passes over for the class change nothing. */
static void test_other_keys(void **state)
{
    (void)state;
    shoal_tokenizer *bare = NULL, *tokenizer = NULL;
    put_gpt2();
    ok(shoal_tokenizer_open(folder, &bare));
    put("tokenizer_config.json",
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"legacy\":false,"
        "\"never_split\":[\"a\"],\"model_max_length\":8,"
        "\"pad_token\":null,\"sp_model_kwargs\":{},\"do_lower_case\":true}");
    ok(shoal_tokenizer_open(folder, &tokenizer));
    assert_int_equal(shoal_tokenizer_vocab_size(tokenizer), 4);
    assert_int_equal(shoal_tokenizer_eod(tokenizer), 3);
    int32_t ids[4];
    int64_t count;
    ok(shoal_tokenizer_encode(tokenizer, "ab<|endoftext|>", 15, ids, 4, &count));
    assert_int_equal(count, 2);
    assert_int_equal(ids[1], 3);
    shoal_tokenizer_destroy(bare);
    shoal_tokenizer_destroy(tokenizer);
}

/* Whichever list names a token, it is special. */
static void test_named_tokens(void **state)
{
    (void)state;
    static const char *const lists[] = {"{\"additional_special_tokens\":[\"<x>\"]}",
                                        "{\"extra_special_tokens\":[{\"content\":\"<x>\"}]}",
                                        "{\"sep_token\":\"<x>\"}", "{}"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        shoal_tokenizer *tokenizer = NULL;
        char *text = NULL;
        put_gpt2();
        put("added_tokens.json", "{\"<x>\":4}");
        put("special_tokens_map.json", lists[i]);
        ok(shoal_tokenizer_open(folder, &tokenizer));
        ok(shoal_tokenizer_describe(tokenizer, &text));
        assert_non_null(strstr(text, "  4 <x>"));
        if (!strstr(text, "  4 <x> (special)") != (i == 3))
            fail_msg("%s: %s", lists[i], text);
        free(text);
        shoal_tokenizer_destroy(tokenizer);
    }
}

/* tokenizer.json holds its rules, and may lack tokens that the files next to it add. */
static void test_tokenizer_json(void **state)
{
    (void)state;
    shoal_tokenizer *tokenizer = NULL;
    clear();
    put("tokenizer.json",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{"
        "\"type\":\"BertNormalizer\",\"lowercase\":true},\"pre_tokenizer\":{\"type\":"
        "\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{"
        "\"u\":0,\"a\":1,\"A\":2,\"<s>\":3}}}");
    put("tokenizer_config.json",
        "{\"tokenizer_class\":\"AlbertTokenizer\",\"do_lower_case\":false,\"eos_token\":\"<e>\","
        "\"added_tokens_decoder\":{\"3\":{\"content\":\"<s>\",\"special\":true,\"lstrip\":true},"
        "\"5\":{\"content\":\"<f>\",\"special\":true},"
        "\"4\":{\"content\":\"<e>\",\"special\":true}}}");
    ok(shoal_tokenizer_open(folder, &tokenizer));
    static const int32_t want[] = {2, 0, 3, 4, 5, 1};
    int32_t ids[8];
    int64_t count;
    ok(shoal_tokenizer_encode(tokenizer, "A B<s><e><f>a", 13, ids, 8, &count));
    assert_int_equal(count, 6);
    assert_memory_equal(ids, want, sizeof want);
    assert_int_equal(shoal_tokenizer_eod(tokenizer), 4);
    assert_int_equal(shoal_tokenizer_vocab_size(tokenizer), 6);
    shoal_tokenizer_destroy(tokenizer);
    put("added_tokens.json", "{\"<s>\":9}");
    put("tokenizer_config.json", "{\"eos_token\":\"<s>\"}");
    refused("`<s>` has the number 9, and the vocabulary says 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_keys), cmocka_unit_test(test_no_plain_file),
        cmocka_unit_test(test_t5_numbers),   cmocka_unit_test(test_other_keys),
        cmocka_unit_test(test_named_tokens), cmocka_unit_test(test_tokenizer_json),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
