/* Where sentences end, and what becomes of them in data files. */
#include "data/test_text.h"
#include "preprocess/preprocess.h"

/* Sentences joined by '|'. */
static void assert_split(const char *text, bool keep_space, const char *wanted)
{
    struct shoali_sentences sentences = {
        .text = text, .bytes = strlen(text), .keep_space = keep_space};
    char got[512] = "";
    size_t begin, end;
    while (shoali_sentence_next(&sentences, &begin, &end)) {
        assert_true(begin < end && end <= strlen(text) && strlen(got) + end - begin + 2 < 512);
        if (*got)
            strcat(got, "|");
        strncat(got, text + begin, end - begin);
    }
    assert_false(shoali_sentence_next(&sentences, &begin, &end));
    assert_string_equal(got, wanted);
}

static void test_ends(void **state)
{
    (void)state;
    assert_split("", false, "");
    assert_split(" \n\t ", false, "");
    assert_split("One", false, "One");
    assert_split("  One. Two!  Three?\nFour", false, "One.|Two!|Three?|Four");
    assert_split("He said: \"Go.\" She went.", false, "He said: \"Go.\"|She went.");
    assert_split("\"Why?\" he asked. (Nobody knew.) \"Oh!\"", false,
                 "\"Why?\" he asked.|(Nobody knew.)|\"Oh!\"");
    assert_split("Pi is 3.14. See example.org. Yes", false, "Pi is 3.14.|See example.org.|Yes");
    assert_split("Well... maybe. Well... No.", false, "Well... maybe.|Well...|No.");
    assert_split("What?! Really", false, "What?!|Really");
    assert_split("A title\n\nThe text\nof it", false, "A title|The text\nof it");
    assert_split("Caf\xc3\xa9. \xc3\x9c"
                 "ber. \xc3\xbc"
                 "ber.",
                 false,
                 "Caf\xc3\xa9.|\xc3\x9c"
                 "ber. \xc3\xbc"
                 "ber.");
    assert_split("\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x82\xe5\x86\x8d\xe8\xa7\x81\xe3\x80\x82", false,
                 "\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x82|\xe5\x86\x8d\xe8\xa7\x81\xe3\x80\x82");
}

static void test_abbreviations(void **state)
{
    (void)state;
    assert_split("Dr. Smith met Mr. J. R. Doe. He left.", false,
                 "Dr. Smith met Mr. J. R. Doe.|He left.");
    assert_split("Cf. Knuth, e.g. No. 5 of vol. 3, p. 7. No. It is", false,
                 "Cf. Knuth, e.g. No. 5 of vol. 3, p. 7.|No.|It is");
    assert_split("The U.S. Senate (cf. Rome) met.", false, "The U.S. Senate (cf. Rome) met.");
    assert_split("1. Begin. 2. End.", false, "1. Begin.|2. End.");
    assert_split("It was in 1990. Then", false, "It was in 1990.|Then");
    assert_split("Is it Dr.? Yes", false, "Is it Dr.?|Yes");
}

static void test_keeps_space(void **state)
{
    (void)state;
    assert_split(" One.\n Two.\n\nThree \n", true, " One.\n |Two.\n\n|Three \n");
    assert_split(" \n ", true, "");
}

/* Any text: each byte that is no space is in one sentence, in order. */
static void test_loses_nothing(void **state)
{
    static const char *const parts[] = {"a",
                                        "B",
                                        ".",
                                        "!",
                                        "?",
                                        " ",
                                        "\n",
                                        "1",
                                        "Dr",
                                        "\"",
                                        "(",
                                        ")",
                                        "'",
                                        "\xe3\x80\x82",
                                        "\xe2\x80\xa6",
                                        "\xc3\xa9"};
    uint32_t draw = 1;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[256] = "", kept[256] = "", all[256] = "";
        for (int i = 0; i < 40; i++) {
            draw = draw * 1664525u + 1013904223u;
            strcat(text, parts[draw >> 28]);
        }
        for (int keeps = 0; keeps < 2; keeps++) {
            struct shoali_sentences sentences = {
                .text = text, .bytes = strlen(text), .keep_space = keeps};
            size_t begin, end, before = 0;
            while (shoali_sentence_next(&sentences, &begin, &end)) {
                for (size_t i = before; !keeps && i < begin; i++)
                    assert_true(text[i] == ' ' || text[i] == '\n');
                strncat(keeps ? all : kept, text + begin, end - begin);
                before = end;
            }
        }
        if (strspn(text, " \n") < strlen(text))
            assert_string_equal(all, text);
    }
}

/* Sequences are sentences, documents their texts; the files have their own name. */
static void test_files(void **state)
{
    static const char lines[] = "{\"text\":\"One. Two!\\n\\nThree\"}\n{\"text\":\" \"}\n"
                                "{\"text\":[\"Four. Five.\",\"Six\"]}\n";
    static const int64_t wanted[] = {0, 3, 3, 6};
    static const int32_t lengths[] = {4, 4, 5, 5, 5, 3}, spaced[] = {5, 6, 5, 6, 5, 3};
    char input[96], prefix[96];
    int64_t boundaries[4];
    int32_t got[6];
    (void)state;
    write_text("s.jsonl", lines, sizeof lines - 1);
    snprintf(input, sizeof input, "%s/s.jsonl", folder);
    snprintf(prefix, sizeof prefix, "%s/s", folder);
    const char *in = input;
    for (int keeps = 0; keeps < 2; keeps++) {
        struct shoali_indexed *file = NULL;
        ok(shoal_preprocess(&(shoal_preprocess_args){.inputs = &in,
                                                     .input_count = 1,
                                                     .output_prefix = prefix,
                                                     .split_sentences = true,
                                                     .keep_newlines = keeps},
                            NULL));
        ok(shoali_indexed_open(path_of("s_text_sentence"), &file));
        assert_int_equal(file->sequence_count, 6);
        assert_int_equal(file->boundary_count, 4);
        ok(shoali_indexed_boundaries(file, 0, 4, boundaries));
        assert_memory_equal(boundaries, wanted, sizeof wanted);
        ok(shoali_indexed_lengths(file, 0, 6, got));
        assert_memory_equal(got, keeps ? spaced : lengths, sizeof got);
        shoali_indexed_close(file);
    }
    assert_int_equal(shoal_preprocess(&(shoal_preprocess_args){.inputs = &in,
                                                               .input_count = 1,
                                                               .output_prefix = prefix,
                                                               .keep_newlines = true},
                                      NULL),
                     SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "--keep-newlines without --split-sentences"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_abbreviations),
        cmocka_unit_test(test_keeps_space),
        cmocka_unit_test(test_loses_nothing),
        cmocka_unit_test_setup_teardown(test_files, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
