/* One file as a stream: pieces that end with whole characters, and never have more than a piece has
 * room for; and tokens that are many more than the bytes of their text. */
#include "data/test_text.h"
#include "shoal/tokenizer.h"
#include "text_data/text_data.h"

static void test_whole(void **state)
{
    static const struct {
        const char *piece;
        size_t bytes, whole;
    } cases[] = {
        {"abc", 3, 3},
        {"ab\xc3", 3, 2},
        {"ab\xe2\x82", 4, 2},
        {"ab\xf0\x9f\x98", 5, 2},
        {"ab\xf0\x9f\x98\x80", 6, 2}, /* the last character may go on, as far as this says */
        {"ab\xf0\x9f\x98\x80!", 7, 7},
        {"\xc3", 1, 0},
        {"a\x80\x80\x80\x80", 5, 5}, /* no UTF-8 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char piece[16] = "xx";
        memcpy(piece + 2, cases[i].piece, cases[i].bytes + 1);
        struct shoali_text text = {.piece = piece + 2, .have = cases[i].bytes};
        assert_int_equal(shoali_text_whole(&text), cases[i].whole);
        text.end = true;
        assert_int_equal(shoali_text_whole(&text), cases[i].bytes);
    }
}

/* What was not used comes first in the next piece. */
static void test_pieces(void **state)
{
    enum { KEPT = 1000 };
    const size_t bytes = 2 * SHOALI_TEXT_BYTES + 77;
    struct shoali_files files;
    struct shoali_text text;
    const char *path = path_of("text");
    char *data = malloc(bytes);
    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)('a' + i % 23);
    write_text("text", data, bytes);
    ok(shoali_files_find(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &files));
    ok(shoali_text_init(&text, -1));
    ok(shoali_text_begin(&text, &files.file[0]));
    size_t at = 0, used = 0;
    do {
        at += used;
        ok(shoali_text_next(&text, used));
        assert_true(text.have <= SHOALI_TEXT_BYTES && at + text.have <= bytes);
        assert_memory_equal(text.piece, data + at, text.have);
        used = text.have - KEPT;
    } while (!text.end);
    assert_int_equal(at + text.have, bytes);
    shoali_text_fini(&text);
    shoali_files_fini(&files);
    free(data);
}

/* A ligature of three bytes that is 15 letters and three spaces: a block has more tokens than there
 * is room for at first. */
static void test_many_tokens(void **state)
{
    enum { COUNT = 200000, LETTERS = 15 };
    static const char json[] =
        "{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\xd8\xa7\":0,\"\xd8\xb3\":1,"
        "\"\xd8\xb5\":2,\"\xd8\xb9\":3,\"\xd9\x84\":4,\"\xd9\x85\":5,\"\xd9\x87\":6,\"\xd9\x88\":7,"
        "\"\xd9\x89\":8,\"\xd9\x8a\":9}}}";
    static const int32_t wanted[LETTERS] = {2, 4, 8, 0, 4, 4, 6, 3, 4, 9, 6, 7, 1, 4, 5};
    static char line[4 * COUNT];
    int32_t tokens[LETTERS];
    shoal_tokenizer *tokenizer = NULL;
    shoal_dataset *dataset = NULL;
    const char *path = path_of("ligatures");
    (void)state;
    for (int i = 0; i < COUNT; i++)
        memcpy(line + 4 * i, "\xef\xb7\xba ", 4);
    write_text("ligatures", line, sizeof line);
    ok(shoal_tokenizer_from_json(json, strlen(json), &tokenizer));
    ok(shoal_dataset_create(
        &(shoal_dataset_args){
            .paths = &path, .path_count = 1, .split = "1", .use_tokenizer = tokenizer},
        &dataset));
    const int64_t count = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
    assert_int_equal(count, COUNT * LETTERS);
    for (int64_t at = 0; at < count; at += LETTERS) {
        ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, at, LETTERS, tokens));
        assert_memory_equal(tokens, wanted, sizeof wanted);
    }
    shoal_dataset_destroy(dataset);
    shoal_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_many_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
