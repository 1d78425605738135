/* JSON lines to data files: what they hold, the same bytes for any number of threads and after any
 * interruption, and mistakes. */
#include "base/fault.h"
#include "data/test_text.h"
#include "preprocess/preprocess.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static shoal_status preprocess(const char *input, const char *prefix, int32_t workers,
                               shoal_preprocess_info *info)
{
    return shoal_preprocess(&(shoal_preprocess_args){.inputs = &input,
                                                     .input_count = 1,
                                                     .output_prefix = path_of(prefix),
                                                     .workers = workers},
                            info);
}

static void assert_same(const char *wanted_name, const char *got_name)
{
    char *wanted = NULL, *got = NULL;
    size_t wanted_bytes, got_bytes;
    ok(shoali_read_file(path_of(wanted_name), &wanted, &wanted_bytes));
    ok(shoali_read_file(path_of(got_name), &got, &got_bytes));
    if (wanted_bytes != got_bytes || memcmp(wanted, got, wanted_bytes) != 0)
        fail_msg("%s (%zu bytes) is not %s (%zu bytes)", got_name, got_bytes, wanted_name,
                 wanted_bytes);
    free(wanted);
    free(got);
}

static void assert_same_files(const char *wanted, const char *got)
{
    static const char *const suffixes[] = {"bin", "idx", "tokens.json"};
    for (int i = 0; i < 3; i++) {
        char a[64], b[64];
        snprintf(a, sizeof a, "%s_text_document.%s", wanted, suffixes[i]);
        snprintf(b, sizeof b, "%s_text_document.%s", got, suffixes[i]);
        assert_same(a, b);
    }
}

/* Nothing but what a finished run leaves. */
static void assert_clean(const char *prefix, int wanted)
{
    char command[256];
    int count = -1;
    snprintf(command, sizeof command, "ls %s | grep -c '^%s[._]'", folder, prefix);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    assert_int_equal(count, wanted);
}

/* Several pieces of records of many lengths. */
static void write_large(const char *name)
{
    FILE *file = fopen(path_of(name), "w");
    uint32_t draw = 12345;
    assert_non_null(file);
    for (int i = 0; i < 9000; i++) {
        draw = draw * 1664525u + 1013904223u;
        fprintf(file, "{\"id\":%d,\"text\":\"", i);
        for (uint32_t k = draw >> 20; k > 0; k--)
            fputc('a' + (int)(k * 7 % 26), file);
        fprintf(file, "\"}\n");
    }
    assert_int_equal(fclose(file), 0);
}

static const char small[] = "{\"text\":\"ab\",\"title\":\"\"}\n"
                            "\n"
                            "{\"text\":\"\",\"title\":\"x\"}\r\n"
                            "{\"text\":[\"c\",\"\",\"def\"],\"title\":[]}";

/* Documents, sequences, tokens; two keys; a token at the end of documents that have any. */
static void test_content(void **state)
{
    static const char *const keys[] = {"text", "title"};
    static const int64_t boundaries[] = {0, 1, 1, 3};
    const char *input = path_of("small.jsonl");
    struct shoali_indexed *file = NULL;
    int32_t tokens[16];
    int64_t got, starts[4];
    shoal_preprocess_info info;
    (void)state;
    write_text("small.jsonl", small, sizeof small - 1);
    ok(shoal_preprocess(&(shoal_preprocess_args){.inputs = &input,
                                                 .input_count = 1,
                                                 .output_prefix = path_of("p"),
                                                 .json_keys = keys,
                                                 .json_key_count = 2,
                                                 .append_eod = true,
                                                 .eod_given = true,
                                                 .eod_token = 9},
                        &info));
    assert_int_equal(info.documents, 3);
    assert_int_equal(info.tokens, 2 + 1 + 1 + 3 + 1 + 1 + 1);
    assert_int_equal(info.text_bytes, sizeof small - 1);
    ok(shoali_indexed_open(path_of("p_text_document"), &file));
    assert_int_equal(file->type, 8);
    assert_int_equal(file->sequence_count, 3);
    assert_int_equal(file->boundary_count, 4);
    ok(shoali_indexed_boundaries(file, 0, 4, starts));
    assert_memory_equal(starts, boundaries, sizeof starts);
    ok(shoali_indexed_read(file, 0, 0, -1, 256, 16, tokens, &got));
    assert_int_equal(got, 3);
    assert_int_equal(tokens[0], 'a');
    assert_int_equal(tokens[2], 9);
    ok(shoali_indexed_read(file, 1, 0, -1, 256, 16, tokens, &got));
    assert_int_equal(got, 1);
    ok(shoali_indexed_read(file, 2, 0, -1, 256, 16, tokens, &got));
    assert_int_equal(got, 4);
    assert_int_equal(tokens[3], 9);
    shoali_indexed_close(file);
    ok(shoali_indexed_open(path_of("p_title_document"), &file));
    assert_int_equal(file->sequence_count, 1);
    assert_int_equal(file->token_count, 2);
    assert_int_equal(file->boundary_count, 4);
    shoali_indexed_close(file);
    assert_clean("p", 6);
    /* the description is enough to train */
    const char *path = path_of("p_text_document");
    shoal_dataset *dataset = NULL;
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1, .split = "1"},
                            &dataset));
    assert_int_equal(shoal_dataset_vocab_size(dataset), 256);
    assert_string_equal(shoal_tokenizer_name(shoal_dataset_tokenizer(dataset)), "byte");
    shoal_dataset_destroy(dataset);
}

static void test_characters(void **state)
{
    static const char lines[] = "{\"text\":\"z\xc3\xa9\"}\n{\"text\":\"az\"}\n";
    struct shoali_indexed *file = NULL;
    int32_t tokens[4];
    int64_t got;
    (void)state;
    const char *input = path_of("c.jsonl");
    write_text("c.jsonl", lines, sizeof lines - 1);
    ok(shoal_preprocess(
        &(shoal_preprocess_args){
            .inputs = &input, .input_count = 1, .output_prefix = path_of("c"), .tokenizer = "char"},
        NULL));
    ok(shoali_indexed_open(path_of("c_text_document"), &file));
    ok(shoali_indexed_read(file, 0, 0, -1, 3, 4, tokens, &got));
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], 2);
    ok(shoali_indexed_read(file, 1, 0, -1, 3, 4, tokens, &got));
    assert_int_equal(tokens[0], 0);
    shoali_indexed_close(file);
}

static void test_workers(void **state)
{
    static const int32_t workers[] = {2, 3, 8, 0};
    shoal_preprocess_info info;
    (void)state;
    write_large("large.jsonl");
    ok(preprocess(path_of("large.jsonl"), "one", 1, &info));
    assert_int_equal(info.documents, 9000);
    for (int i = 0; i < 4; i++) {
        ok(preprocess(path_of("large.jsonl"), "many", workers[i], &info));
        assert_same_files("one", "many");
        assert_clean("many", 3);
    }
    /* in two files, by a pattern, and as a stream: the same documents */
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && head -n 4000 large.jsonl >part-1 && tail -n 5000 large.jsonl >part-2",
             folder);
    assert_int_equal(system(command), 0);
    ok(preprocess(path_of("part-[12]"), "parts", 2, &info));
    assert_same_files("one", "parts");
    const int input = open(path_of("large.jsonl"), O_RDONLY), kept = dup(STDIN_FILENO);
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    const shoal_status status = preprocess("-", "stream", 2, &info);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    close(input);
    ok(status);
    assert_same_files("one", "stream");
}

/* A process that is killed at a piece. `spec`: when it writes a journal, and when it dies. */
static int run_killed(const char *spec)
{
    int code;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        shoali_fault_arm(spec);
        _exit(preprocess(path_of("large.jsonl"), "killed", 2, NULL) == SHOAL_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    return code;
}

static void test_killed(void **state)
{
    shoal_preprocess_info info;
    char spec[96];
    (void)state;
    write_large("large.jsonl");
    ok(preprocess(path_of("large.jsonl"), "one", 1, NULL));
    for (int piece = 0; piece < 8; piece += 2) {
        snprintf(spec, sizeof spec, "preprocess_journal:%d,preprocess_piece:%d=kill", piece,
                 piece + piece % 3);
        assert_true(WIFSIGNALED(run_killed(spec)));
        assert_int_equal(access(path_of("killed_text_document.idx"), F_OK), -1);
        ok(preprocess(path_of("large.jsonl"), "killed", 3, &info));
        assert_true(info.resumed_documents > 0 && info.resumed_documents < 9000);
        assert_int_equal(info.documents, 9000);
        assert_same_files("one", "killed");
        assert_clean("killed", 3);
        assert_int_equal(unlink(path_of("killed_text_document.idx")), 0);
    }
    /* killed twice, and then told to make something else */
    (void)run_killed("preprocess_journal:1,preprocess_piece:2=kill");
    (void)run_killed("preprocess_journal:2,preprocess_piece:3=kill");
    ok(preprocess(path_of("large.jsonl"), "killed", 1, &info));
    assert_int_equal(info.documents, 9000);
    assert_same_files("one", "killed");
    assert_int_equal(unlink(path_of("killed_text_document.idx")), 0);
    (void)run_killed("preprocess_journal:1,preprocess_piece:2=kill");
    write_large("large.jsonl"); /* the same text, but who knows */
    ok(preprocess(path_of("large.jsonl"), "killed", 1, &info));
    assert_int_equal(info.resumed_documents, 0);
    assert_same_files("one", "killed");
}

/* Whatever fails: a sentence, and the next call makes the files. */
static void test_faults(void **state)
{
    static const char *const points[] = {"alloc",       "data_write", "data_sync",
                                         "data_rename", "write_file", "thread"};
    char spec[64];
    (void)state;
    write_text("small.jsonl", small, sizeof small - 1);
    ok(preprocess(path_of("small.jsonl"), "one", 1, NULL));
    for (int p = 0; p < 6; p++)
        for (int skip = 0;; skip++) {
            snprintf(spec, sizeof spec, "%s:%d", points[p], skip);
            assert_true(shoali_fault_arm(spec));
            const shoal_status status = preprocess(path_of("small.jsonl"), "faulty", 1, NULL);
            assert_true(shoali_fault_arm(NULL));
            if (status == SHOAL_OK) {
                assert_true(skip > 0);
                break;
            }
            assert_true(skip < 200);
            assert_true(status == SHOAL_EIO || status == SHOAL_ENOMEM);
        }
    ok(preprocess(path_of("small.jsonl"), "faulty", 1, NULL));
    assert_same_files("one", "faulty");
}

/* A disk that is full for a moment, while records are still read: no file with a hole. */
static void test_full_meanwhile(void **state)
{
    (void)state;
    write_large("large.jsonl");
    ok(preprocess(path_of("large.jsonl"), "one", 1, NULL));
    assert_true(shoali_fault_arm("data_write"));
    assert_int_equal(preprocess(path_of("large.jsonl"), "full", 1, NULL), SHOAL_EIO);
    assert_true(shoali_fault_arm(NULL));
    assert_int_equal(access(path_of("full_text_document.idx"), F_OK), -1);
    ok(preprocess(path_of("large.jsonl"), "full", 1, NULL));
    assert_same_files("one", "full");
}

static void refuses(const shoal_preprocess_args *args, const char *wanted)
{
    const shoal_status status = shoal_preprocess(args, NULL);
    if (status >= 0 || shoal_status_exit_code(status) != 2)
        fail_msg("%s: status %d: %s", wanted, (int)status, shoal_error_message());
    if (!strstr(shoal_error_message(), wanted))
        fail_msg("no \"%s\" in: %s", wanted, shoal_error_message());
}

static void test_mistakes(void **state)
{
    static const char *const twice[] = {"a", "a"}, *const slash[] = {"a/b"};
    char inputs[8][96];
    const char *in[8];
    static const char *const names[] = {"good", "bad",    "dark", "x.gz",
                                        "none", "*.none", "",     "blank"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        snprintf(inputs[i], sizeof inputs[i], "%s/%s", folder, names[i]);
        in[i] = inputs[i];
    }
    write_text("good", "{\"text\":\"a\"}\n", 13);
    write_text("bad", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":", 34);
    write_text("dark", "{\"text\":\"\xff\"}\n", 13);
    write_text("x.gz", "no gzip", 7);
    write_text("blank", "\n\n", 2);
    shoal_preprocess_args args = {.inputs = in, .input_count = 1, .output_prefix = path_of("m")};
    char prefix[96], nowhere[96];
    snprintf(prefix, sizeof prefix, "%s/m", folder);
    snprintf(nowhere, sizeof nowhere, "%s/no/where", folder);
    args.output_prefix = prefix;
    args.inputs = in + 1;
    refuses(&args, "/bad:3: column 9: the value of `text`");
    assert_clean("m", 0);
    args.inputs = in + 2;
    refuses(&args, "/dark:1: column 10: a string should be UTF-8");
    args.inputs = in + 3;
    refuses(&args, "is not gzip data");
    args.inputs = in + 4;
    refuses(&args, "cannot read the input");
    args.inputs = in + 5;
    refuses(&args, "no file matches");
    args.inputs = in + 6;
    refuses(&args, "is a folder");
    args.inputs = in + 7;
    refuses(&args, "there is no record in");
    args.inputs = in;
    args.append_eod = true;
    refuses(&args, "has no end-of-document token");
    args.eod_given = true;
    args.eod_token = 256;
    refuses(&args, "outside the vocabulary of 256");
    args.append_eod = false;
    refuses(&args, "--eod-id without --append-eod");
    args.eod_given = false;
    args.json_keys = twice;
    args.json_key_count = 2;
    refuses(&args, "given twice");
    args.json_keys = slash;
    args.json_key_count = 1;
    refuses(&args, "cannot be part of a file name");
    args.json_key_count = 0;
    args.tokenizer = "words";
    refuses(&args, "there is no tokenizer `words`");
    args.tokenizer = NULL;
    args.output_prefix = nowhere;
    refuses(&args, "--output-prefix");
    args.output_prefix = "";
    refuses(&args, "--output-prefix");
    args.output_prefix = prefix;
    args.input_count = 0;
    refuses(&args, "no input given");
    assert_clean("m", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_content, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_characters, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_workers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_killed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_faults, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_full_meanwhile, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_mistakes, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
