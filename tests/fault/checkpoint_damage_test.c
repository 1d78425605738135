/* Damage of a disk or of a hand is seen, named and refused, and takes no good checkpoint along. */
#include "checkpoint_model.h"

#include "base/str.h"
#include "base/test_cmocka.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_there(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(shoali_write_file_atomic(path, text, strlen(text)), SHOAL_OK);
}

static void change_byte(const char *path, int64_t at, int bit)
{
    unsigned char byte;
    const int file = open(path, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
    byte = (unsigned char)(byte ^ (1u << bit));
    assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
    close(file);
}

static void test_flipped_bits(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    static const char *const names[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors", "manifest.json"};
    const struct shoali_stream stream = shoali_stream_make(77, "test", "flips", 0);
    model_save_expect(run, SHOAL_OK);
    for (uint64_t i = 0; i < 150; i++) {
        struct stat info;
        char path[256];
        const uint64_t file = shoali_random_below(&stream, 4 * i, 3);
        snprintf(path, sizeof path, "%s/one/%s", fixture->dir, names[file]);
        assert_int_equal(stat(path, &info), 0);
        /* Half of them near the front, where the header is. */
        const uint64_t room = i % 2 && info.st_size > 200 ? 200 : (uint64_t)info.st_size;
        const int64_t at = (int64_t)shoali_random_below(&stream, 4 * i + 1, room);
        const int bit = (int)shoali_random_below(&stream, 4 * i + 2, 8);
        change_byte(path, at, bit);
        model_load(run);
        if (run->status[0] != SHOAL_ECORRUPT || run->status[1] != SHOAL_ECORRUPT)
            fail_msg("seed 77, %s, byte %lld, bit %d: %s", path, (long long)at, bit,
                     run->message[0]);
        model_expect_text(run->message[0], path);
        model_expect_text(run->message[1], ", bytes ");
        change_byte(path, at, bit);
    }
    model_load_expect(run, SHOAL_OK);
}

/* Of kinds that every rank holds, too, whichever rank reads the chunk: each file, from its first
 * number to its last. */
static void test_flipped_bits_of_what_all_hold(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    model_add_kind(&fixture->model, "exp_avg", SHOAL_F32, true);
    for (int32_t ranks = 1; ranks <= 3; ranks++) {
        char dir[128], path[256];
        snprintf(dir, sizeof dir, "%s/%d", fixture->dir, (int)ranks);
        run->dir = dir;
        run->ranks = ranks;
        model_save_expect(run, SHOAL_OK);
        for (int file = 1; file <= 2; file++) {
            struct stat info;
            snprintf(path, sizeof path, "%s/one/exp_avg-0000%d-of-00002.safetensors", dir, file);
            assert_int_equal(stat(path, &info), 0);
            const int64_t places[] = {8, 4096, info.st_size / 2, info.st_size - 1};
            for (int i = 0; i < 4; i++) {
                change_byte(path, places[i], i);
                model_load(run);
                for (int32_t r = 0; r < ranks; r++) {
                    if (run->status[r] != SHOAL_ECORRUPT)
                        fail_msg("%s, byte %lld, rank %d: status %d", path, (long long)places[i],
                                 (int)r, (int)run->status[r]);
                    model_expect_text(run->message[r], path);
                }
                change_byte(path, places[i], i);
            }
        }
        model_load_expect(run, SHOAL_OK);
    }
}

/* The same manifest with another name of a file, and with the hash that belongs to it. */
static void rename_in_manifest(const struct fixture *fixture, const char *from, const char *to)
{
    char path[128];
    size_t bytes;
    struct shoali_str text = {0};
    snprintf(path, sizeof path, "%s/one", fixture->dir);
    char *whole = model_read_file(path, "manifest.json", &bytes);
    char *tail = strstr(whole, ",\"hash\":\""), *at = strstr(whole, from);
    for (char *next = tail; next; next = strstr(next + 1, ",\"hash\":\""))
        tail = next; /* the last one is the manifest's own */
    assert_true(tail && at && at < tail);
    *tail = '\0';
    shoali_str_append(&text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    const uint64_t hash = shoali_hash64(text.text, text.length);
    shoali_str_append(&text, ",\"hash\":\"%016llx\"}\n", (unsigned long long)hash);
    write_text(path, "manifest.json", text.text);
    shoali_str_fini(&text);
    free(whole);
}

/* A manifest's files are in its folder, even where a whole one is elsewhere. */
static void test_files_of_other_folders(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    static const char name[] = "model-00001-of-00002.safetensors";
    char absolute[256];
    model_save_expect(run, SHOAL_OK);
    run->tag = "two";
    model_save_expect(run, SHOAL_OK);
    run->tag = "one";
    snprintf(absolute, sizeof absolute, "%s/two/%s", fixture->dir, name);
    const char *const others[] = {"../two/model-00001-of-00002.safetensors",
                                  "./model-00001-of-00002.safetensors",
                                  absolute,
                                  "..",
                                  ".",
                                  ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        rename_in_manifest(fixture, name, others[i]);
        model_load_expect(run, SHOAL_ECORRUPT);
        model_expect_text(run->message[0], "one/manifest.json");
        model_save_expect(run, SHOAL_OK);
    }
    rename_in_manifest(fixture, name, name); /* which the hash is right for */
    model_load_expect(run, SHOAL_OK);
}

/* Each member of a manifest that is missing, or of another type. */
static void test_manifests_that_lack_something(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    static const char *const edits[][2] = {
        {"\"step\":", "\"step\":0.5,\"other\":"},
        {"\"step\":", "\"other\":"},
        {"\"engine\":", "\"other\":"},
        {"\"engine\":", "\"engine\":[],\"other\":"},
        {"\"kinds\":", "\"other\":"},
        {"\"kinds\":", "\"kinds\":{},\"other\":"},
        {"\"tensors\":", "\"other\":"},
        {"\"tensors\":", "\"tensors\":{},\"other\":"},
        {"\"aliases\":", "\"other\":"},
        {"\"aliases\":", "\"aliases\":[],\"other\":"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        model_save_expect(run, SHOAL_OK);
        rename_in_manifest(fixture, edits[i][0], edits[i][1]);
        model_load_expect(run, SHOAL_ECORRUPT);
        model_expect_text(run->message[0], "a member is missing or of another type");
    }
}

/* The type of numbers is a text, which this program need not know. */
static void test_unknown_type(void **state)
{
    struct fixture *fixture = *state;
    char path[128];
    struct shoali_checkpoint_info info;
    model_save_expect(&fixture->run, SHOAL_OK);
    snprintf(path, sizeof path, "%s/one", fixture->dir);
    ok(shoali_checkpoint_peek_folder(path, &info));
    assert_int_equal(info.kind_count, 1);
    shoali_checkpoint_info_fini(&info);
    rename_in_manifest(fixture, "\"F32\"", "\"F33\"");
    assert_int_equal(shoali_checkpoint_peek_folder(path, &info), SHOAL_ECORRUPT);
    model_expect_text(shoal_error_message(), "names the unknown dtype F33");
    shoali_checkpoint_info_fini(&info);
    assert_int_equal(shoali_checkpoint_open(fixture->dir, "one", &info), SHOAL_ECORRUPT);
    shoali_checkpoint_info_fini(&info);
}

static shoal_status diff_one_two(const struct fixture *fixture, struct shoali_str *text,
                                 bool *equal)
{
    const char *const dirs[2] = {fixture->dir, fixture->dir}, *const tags[2] = {"one", "two"};
    *text = (struct shoali_str){0};
    *equal = false;
    return shoali_checkpoint_diff(dirs, tags, text, equal);
}

/* Where two checkpoints differ, from the first element on; what cannot be read is no difference. */
static void test_differences(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    struct shoali_str text;
    char path[256];
    bool equal;
    model_save_expect(run, SHOAL_OK);
    run->tag = "two";
    model_save_expect(run, SHOAL_OK);
    ok(diff_one_two(fixture, &text, &equal));
    assert_true(equal);
    shoali_str_fini(&text);
    run->content = 2; /* other values everywhere */
    model_save_expect(run, SHOAL_OK);
    ok(diff_one_two(fixture, &text, &equal));
    assert_false(equal);
    model_expect_text(shoali_str_get(&text), "first difference in `a`, element 0; ");
    shoali_str_fini(&text);
    snprintf(path, sizeof path, "%s/two/model-00002-of-00002.safetensors", fixture->dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(diff_one_two(fixture, &text, &equal), SHOAL_ECORRUPT);
    model_expect_text(shoal_error_message(), "is missing, the manifest lists it");
    shoali_str_fini(&text);
}

static void test_truncated_and_missing_files(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char path[256];
    model_save_expect(run, SHOAL_OK);
    snprintf(path, sizeof path, "%s/one/model-00002-of-00002.safetensors", fixture->dir);
    assert_int_equal(truncate(path, 5000), 0);
    model_load_expect(run, SHOAL_ECORRUPT);
    model_expect_text(run->message[0], "has 5000 bytes, the manifest says");
    assert_int_equal(unlink(path), 0);
    model_load_expect(run, SHOAL_ECORRUPT);
    model_expect_text(run->message[1], "is missing, the manifest lists it");
}

/* ---- the older one ---- */

static void save_killed_before_latest(struct model_run *run)
{
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run->fault = "ckpt.rename:2=kill";
        model_save(run);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* TAG is damaged, and TAG.old, which it was to replace, is whole: no save may take the good one
 * away before there is another. */
static void test_a_good_old_one(void **state)
{
    struct fixture *fixture = *state;
    struct model_run run = fixture->run;
    const char *dir = fixture->dir;
    char path[128], old[128];
    run.ranks = 1;
    model_save_expect(&run, SHOAL_OK);
    run.step = run.content = 2;
    save_killed_before_latest(&run); /* one of step 2, and one.old of step 1 */
    assert_true(is_there(dir, "one/manifest.json") && is_there(dir, "one.old/manifest.json"));
    write_text(dir, "one/manifest.json", "damaged");
    run.tag = "next"; /* of another tag, which clears up what others have left */
    run.step = run.content = 3;
    model_save_expect(&run, SHOAL_OK);
    assert_true(is_there(dir, "one.old/manifest.json"));
    run.tag = "one"; /* of the same tag, at each of its renames */
    run.step = run.content = 4;
    for (int skip = 0; skip < 2; skip++) {
        run.fault = skip ? "ckpt.rename:1" : "ckpt.rename";
        model_save_expect(&run, SHOAL_EIO);
        assert_true(is_there(dir, "one.old/manifest.json") || is_there(dir, "one/manifest.json"));
    }
    run.fault = NULL;
    snprintf(path, sizeof path, "%s/one", dir);
    snprintf(old, sizeof old, "%s/one.old", dir);
    if (is_there(dir, "one.old/manifest.json")) {
        model_folder_remove(path);
        assert_int_equal(rename(old, path), 0);
    }
    run.content = 1;
    model_load_expect(&run, SHOAL_OK);
    run.content = 4;
    model_save_expect(&run, SHOAL_OK);
    model_load_expect(&run, SHOAL_OK);
    assert_true(!is_there(dir, "one.old"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flipped_bits, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_flipped_bits_of_what_all_hold, model_set_up,
                                        model_tear_down),
        cmocka_unit_test_setup_teardown(test_files_of_other_folders, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_manifests_that_lack_something, model_set_up,
                                        model_tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_type, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_differences, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_truncated_and_missing_files, model_set_up,
                                        model_tear_down),
        cmocka_unit_test_setup_teardown(test_a_good_old_one, model_set_up, model_tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
