/* Compressed JSON lines: the same tokens as of their text, and what is wrong with a file. */
#include "base/fault.h"
#include "data/test_text.h"
#include "preprocess/preprocess.h"
#include "text_data/gzip.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void shell(const char *words)
{
    char command[512];
    snprintf(command, sizeof command, "cd %s && %s", folder, words);
    assert_int_equal(system(command), 0);
}

static void write_lines(const char *name, int count)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    for (int i = 0; i < count; i++)
        fprintf(file, "{\"id\":%d,\"text\":\"line %d of a text that repeats itself\"}\n", i,
                i * 7919);
    assert_int_equal(fclose(file), 0);
}

static shoal_status preprocess(const char *input, const char *prefix, shoal_preprocess_info *info)
{
    const char *in = path_of(input);
    return shoal_preprocess(
        &(shoal_preprocess_args){
            .inputs = &in, .input_count = 1, .output_prefix = path_of(prefix), .workers = 2},
        info);
}

/* One member, several with zeros behind the last, and the end of each block of input at any
 * byte. */
static void test_preprocess(void **state)
{
    shoal_preprocess_info info;
    (void)state;
    write_lines("a.jsonl", 60000);
    shell("gzip -c a.jsonl >one.gz && "
          "{ head -n 100 a.jsonl | gzip -1; tail -n +101 a.jsonl | gzip -9; "
          "head -c 700 /dev/zero; } >two.jsonl.GZ");
    ok(preprocess("a.jsonl", "a", &info));
    const int64_t bytes = info.text_bytes;
    ok(preprocess("one.gz", "one", &info));
    assert_int_equal(info.text_bytes, bytes);
    ok(preprocess("two.jsonl.GZ", "two", &info));
    shell("cmp a_text_document.bin one_text_document.bin && "
          "cmp a_text_document.idx two_text_document.idx && "
          "cmp a_text_document.bin two_text_document.bin");
}

/* What was read before is read over. */
static void test_killed(void **state)
{
    shoal_preprocess_info info;
    int code;
    (void)state;
    write_lines("a.jsonl", 60000);
    shell("gzip -k a.jsonl");
    ok(preprocess("a.jsonl", "a", &info));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        shoali_fault_arm("preprocess_journal:1,preprocess_piece:2=kill");
        _exit(preprocess("a.jsonl.gz", "k", NULL) == SHOAL_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    ok(preprocess("a.jsonl.gz", "k", &info));
    assert_true(info.resumed_documents > 0 && info.resumed_documents < 60000);
    assert_int_equal(info.documents, 60000);
    shell("cmp a_text_document.bin k_text_document.bin");
}

/* As a data set; in a folder, where other compressed files are no text. */
static void test_dataset(void **state)
{
    int64_t count[2];
    uint64_t fingerprint[2];
    (void)state;
    write_lines("a.jsonl", 3000);
    shell("mkdir plain packed && cp a.jsonl plain && gzip -c a.jsonl >packed/a.jsonl.gz && "
          "echo no JSON | gzip >packed/b.gz");
    for (int i = 0; i < 2; i++) {
        shoal_dataset *dataset = NULL;
        const char *path = path_of(i ? "packed" : "plain");
        ok(shoal_dataset_create(
            &(shoal_dataset_args){.paths = &path, .path_count = 1, .tokenizer = "char"}, &dataset));
        count[i] = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
        fingerprint[i] = shoal_dataset_fingerprint(dataset);
        shoal_dataset_destroy(dataset);
    }
    assert_true(count[0] > 3000 * 30);
    assert_int_equal(count[0], count[1]);
    assert_true(fingerprint[0] == fingerprint[1]);
}

static void refuses(const char *name, shoal_status wanted, const char *sentence)
{
    const shoal_status status = preprocess(name, "x", NULL);
    if (status != wanted || !strstr(shoal_error_message(), sentence))
        fail_msg("%s: %d: %s", name, (int)status, shoal_error_message());
}

static void test_mistakes(void **state)
{
    shoal_dataset *dataset = NULL;
    (void)state;
    write_lines("a.jsonl", 3000);
    shell("gzip -c a.jsonl >a.gz && head -c 5000 a.gz >short.jsonl.gz && cp a.jsonl plain.gz && "
          "{ head -c 3000 a.gz; printf xyz; tail -c +3004 a.gz; } >hurt.gz && "
          "{ cat a.gz; echo more; } >more.gz && : >empty.gz && printf '{}' | gzip >none.gz");
    refuses("short.jsonl.gz", SHOAL_EINVAL, "ends in the middle of its compressed data");
    refuses("plain.gz", SHOAL_EINVAL, "is not gzip data, or is damaged: incorrect header check");
    refuses("hurt.gz", SHOAL_EINVAL, "is not gzip data, or is damaged");
    refuses("more.gz", SHOAL_EINVAL, "is not gzip data, or is damaged");
    refuses("empty.gz", SHOAL_EINVAL, "there is no record in");
    refuses("none.gz", SHOAL_EINVAL, "none.gz:1: there is no key `text`");
    const char *path = path_of("short.jsonl.gz");
    assert_int_equal(
        shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset),
        SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "short.jsonl.gz ends in the middle"));
    shell("cp a.gz a.jsonl.gz");
    path = path_of("a.jsonl.gz");
    assert_true(shoali_fault_arm("data_read"));
    const shoal_status status =
        shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset);
    assert_true(shoali_fault_arm(NULL));
    assert_int_equal(status, SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "a.jsonl.gz: cannot read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_preprocess, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_killed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_dataset, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_mistakes, make_folder, remove_folder),
    };
    struct shoali_gzip *gzip = NULL;
    const shoal_status status = shoali_gzip_open(STDIN_FILENO, "standard input", &gzip);
    shoali_gzip_close(gzip);
    if (status == SHOAL_EUNSUPPORTED) {
        printf("skipped: %s\n", shoal_error_message());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
