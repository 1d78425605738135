/* A save that fails or is killed at any point leaves the older checkpoint as it was. */
#include "checkpoint_model.h"

#include "base/str.h"
#include "base/test_cmocka.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const points[] = {"ckpt.create",   "ckpt.write",  "ckpt.fsync",
                                     "ckpt.manifest", "ckpt.rename", "write_file"};
enum { POINTS = sizeof points / sizeof points[0], PASSES_MAX = 40 };

static void small_model(struct model *model)
{
    *model = (struct model){.max_shard_bytes = 4000};
    model_add(model, "a", shoal_shape_2(30, 40));
    model_add(model, "b", shoal_shape_1(500));
    model_add_kind(model, "model", SHOAL_F32, false);
    model_add_kind(model, "master", SHOAL_BF16, true);
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* The step of the checkpoint that is found without a tag; its bytes are verified. */
static int64_t load_latest(struct model_run run)
{
    struct shoali_checkpoint_info info;
    assert_int_equal(shoali_checkpoint_open(run.dir, NULL, &info), SHOAL_OK);
    const int64_t step = info.step;
    run.tag = NULL;
    run.fault = NULL;
    run.refusing_rank = -1;
    run.content = (uint64_t)step; /* these tests save content `step` at step `step` */
    model_load_expect(&run, SHOAL_OK);
    shoali_checkpoint_info_fini(&info);
    return step;
}

static struct model_run start(const struct model *model, const char *dir, int32_t ranks)
{
    struct model_run run = {.model = model,
                            .dir = dir,
                            .tag = "first",
                            .ranks = ranks,
                            .layout = 4,
                            .content = 1,
                            .step = 1,
                            .refusing_rank = -1};
    model_save_expect(&run, SHOAL_OK);
    run.step = 2;
    run.content = 2;
    return run;
}

/* Fails the 1st, 2nd, ... pass of a point on a rank until a save has fewer passes there. Returns
 * how many failed. */
static int fail_each_pass(struct model_run *run, const char *point, int32_t rank)
{
    char who[64];
    snprintf(who, sizeof who, "rank %d could not save: ", rank);
    for (int skip = 0; skip < PASSES_MAX; skip++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s:%d@%d", point, skip, rank);
        run->fault = fault;
        model_save(run);
        run->fault = NULL;
        if (!run->fired[rank]) {
            assert_int_equal(run->status[rank], SHOAL_OK);
            return skip;
        }
        for (int32_t r = 0; r < run->ranks; r++) {
            assert_int_equal(run->status[r], run->status[rank]);
            assert_true(r == rank || strstr(run->message[r], who));
            assert_non_null(strstr(run->message[r], run->message[rank]));
        }
        assert_int_equal(run->status[rank], SHOAL_EIO);
        assert_int_equal(count_entries(run->dir), 2); /* the old checkpoint and `latest` */
        assert_int_equal(load_latest(*run), 1);
    }
    fail_msg("%s never stops failing", point);
    return -1;
}

/* Files are written by whoever has their chunks, everything else by rank 0. With one more save that
 * succeeds for each rank, the tag is new only for the first. */
static void fail_everywhere(int point, int32_t ranks, int passes)
{
    char dir[64];
    struct model model;
    int failed = 0, elsewhere = 0;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, ranks);
    for (int32_t rank = 0; rank < ranks; rank++) {
        char tag[16];
        snprintf(tag, sizeof tag, "second%d", rank);
        run.tag = tag;
        const int count = fail_each_pass(&run, points[point], rank);
        failed += count;
        elsewhere += rank > 0 ? count : 0;
        assert_int_equal(load_latest(run), 2);
        assert_int_equal(count_entries(dir), 3);
        model_folder_remove(dir);
        assert_int_equal(mkdir(dir, 0700), 0);
        run.tag = "first";
        run.step = run.content = 1;
        model_save_expect(&run, SHOAL_OK);
        run.step = run.content = 2;
    }
    const bool of_files =
        strcmp(points[point], "ckpt.write") == 0 || strcmp(points[point], "ckpt.fsync") == 0;
    assert_int_equal(failed, passes);
    assert_true(of_files && ranks > 1 ? elsewhere > 0 : elsewhere == 0);
    model_folder_remove(dir);
}

/* A call between the ranks that fails on one of them: the others are told by what, and do not
 * wait. */
static void test_calls(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    int count = 0;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 3);
    run.tag = "second";
    for (bool failed = true; failed; count += failed) {
        char fault[64];
        snprintf(fault, sizeof fault, "comm.post:%d@1", count);
        run.fault = fault;
        model_save(&run);
        run.fault = NULL;
        failed = run.fired[1];
        for (int32_t r = 0; r < run.ranks && failed; r++) {
            assert_int_equal(run.status[r], r == 1 ? SHOAL_EIO : SHOAL_EPEER);
            assert_non_null(strstr(run.message[r], "fault point comm.post"));
        }
        /* the last words of all come after the commit */
        const int64_t step = load_latest(run);
        assert_true(step == 2 || (failed && step == 1));
    }
    assert_true(count > 5);
    model_folder_remove(dir);
}

static void test_failures(void **state)
{
    (void)state;
    static const int passes[POINTS] = {3, 3, 3, 1, 2, 3};
    for (int p = 0; p < POINTS; p++)
        for (int32_t ranks = 1; ranks <= 3; ranks++)
            fail_everywhere(p, ranks, passes[p]);
}

/* The same where the tag exists. */
static void test_failures_of_one_tag(void **state)
{
    (void)state;
    static const int passes[POINTS] = {3, 3, 3, 1, 3, 3};
    for (int p = 0; p < POINTS; p++) {
        char dir[64];
        struct model model;
        small_model(&model);
        model_folder_make(dir);
        struct model_run run = start(&model, dir, 1);
        run.tag = "first";
        assert_int_equal(fail_each_pass(&run, points[p], 0), passes[p]);
        assert_int_equal(load_latest(run), 2);
        assert_int_equal(count_entries(dir), 2);
        model_folder_remove(dir);
    }
}

static void test_full_disk_sentence(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 2);
    run.fault = "ckpt.create:1@0";
    model_save_expect(&run, SHOAL_EIO);
    /* the first file, of 1200 elements, was created: 500 are left, and 1700 of the other kind */
    const long long need = 500 * 4 + 1700 * 2 + 2 * 4096;
    char text[64];
    snprintf(text, sizeof text, "needs %lld more bytes", need);
    assert_non_null(strstr(run.message[0], "the disk is full"));
    if (!strstr(run.message[0], text))
        fail_msg("no \"%s\" in: %s", text, run.message[0]);
    assert_non_null(strstr(run.message[1], "are free; make room"));
    model_folder_remove(dir);
}

/* Saves in a child that dies at a pass of a point; false: the save had fewer passes. */
static bool killed_at(struct model_run *run, const char *point, int skip)
{
    char fault[64];
    int status = 0;
    snprintf(fault, sizeof fault, "%s:%d=kill", point, skip);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run->fault = fault;
        model_save(run);
        _exit(run->status[0] == SHOAL_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

static void test_kills(void **state)
{
    (void)state;
    for (int same_tag = 0; same_tag < 2; same_tag++) {
        char dir[64];
        struct model model;
        small_model(&model);
        model_folder_make(dir);
        int64_t step = 1;
        struct model_run run = start(&model, dir, 1);
        for (int p = 0; p < POINTS; p++) {
            for (int skip = 0;; skip++) {
                assert_true(skip < PASSES_MAX);
                run.step = step + 1;
                run.content = (uint64_t)run.step;
                run.tag = same_tag ? "first" : run.step % 2 ? "odd" : "even";
                const bool killed = killed_at(&run, points[p], skip);
                const int64_t found = load_latest(run);
                /* Before its manifest is complete the new one does not count. */
                if (killed && p < 4)
                    assert_int_equal(found, step);
                else if (!killed)
                    assert_int_equal(found, run.step);
                else
                    assert_true(found == step || found == run.step);
                step = found;
                if (!killed)
                    break;
            }
            assert_int_equal(count_entries(dir), same_tag ? 2 : p == 0 ? 3 : 4);
        }
        model_folder_remove(dir);
    }
}

/* Killed between the two renames: there is no TAG, only TAG.partial (complete) and TAG.old. Neither
 * a save that fails nor one that succeeds may lose both. */
static void test_after_a_kill_between_renames(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 1);
    assert_true(killed_at(&run, "ckpt.rename", 1));
    assert_int_equal(count_entries(dir), 3);
    assert_int_equal(load_latest(run), 2);
    run.step = 3;
    run.content = 3;
    run.fault = "ckpt.write";
    model_save_expect(&run, SHOAL_EIO);
    assert_int_equal(load_latest(run), 2);
    run.fault = NULL;
    model_save_expect(&run, SHOAL_OK);
    assert_int_equal(load_latest(run), 3);
    assert_int_equal(count_entries(dir), 2);
    model_folder_remove(dir);
}

/* Another job is saving in the same folder: this one waits until it is done. */
static void test_two_jobs(void **state)
{
    (void)state;
    char dir[64], mark[80], letter;
    int ends[2];
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 2);
    snprintf(mark, sizeof mark, "%s/.other", dir);
    assert_int_equal(pipe(ends), 0);
    const pid_t other = fork();
    if (other == 0) {
        const int folder = open(dir, O_RDONLY | O_DIRECTORY);
        const bool locked = folder >= 0 && flock(folder, LOCK_EX) == 0;
        const bool told = write(ends[1], "x", 1) == 1;
        nanosleep(&(struct timespec){0, 400000000}, NULL);
        _exit(locked && told && mkdir(mark, 0700) == 0 ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &letter, 1), 1);
    model_save_expect(&run, SHOAL_OK);
    assert_int_equal(access(mark, F_OK), 0);
    int result = -1;
    assert_int_equal(waitpid(other, &result, 0), other);
    assert_int_equal(result, 0);
    assert_int_equal(load_latest(run), 2);
    assert_int_equal(rmdir(mark), 0);
    close(ends[0]);
    close(ends[1]);
    model_folder_remove(dir);
}

/* What another job takes is nobody's delay: the other ranks' deadline is much shorter. */
static void test_waiting_is_no_timeout(void **state)
{
    (void)state;
    char dir[64], letter;
    int ends[2], result = -1;
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 3);
    run.timeout_s = 2;
    assert_int_equal(pipe(ends), 0);
    const pid_t other = fork();
    if (other == 0) {
        const int folder = open(dir, O_RDONLY | O_DIRECTORY);
        const bool locked = folder >= 0 && flock(folder, LOCK_EX) == 0;
        const bool told = write(ends[1], "x", 1) == 1;
        nanosleep(&(struct timespec){4, 500000000}, NULL);
        _exit(locked && told ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &letter, 1), 1);
    model_save_expect(&run, SHOAL_OK);
    assert_int_equal(waitpid(other, &result, 0), other);
    assert_int_equal(result, 0);
    assert_int_equal(load_latest(run), 2);
    close(ends[0]);
    close(ends[1]);
    model_folder_remove(dir);
}

static void make_file(const char *dir, const char *sub, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, sub);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/%s/%s", dir, sub, name);
    assert_int_equal(shoali_write_file_atomic(path, "text", 4), SHOAL_OK);
}

static bool is_there(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* What a save of another tag left is gone, or in place where it was whole, after the next one; what
 * is not ours stays. */
static void test_leftovers(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    struct shoali_str text = {0};
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 1);
    run.tag = "dead";
    assert_true(killed_at(&run, "ckpt.write", 1)); /* dead.partial, not whole */
    assert_true(is_there(dir, "dead.partial"));
    run.tag = "first";
    assert_true(killed_at(&run, "ckpt.rename", 2)); /* first of step 2, and first.old of step 1 */
    assert_true(is_there(dir, "first.old") && !is_there(dir, "dead.partial"));
    run.tag = "whole";
    run.step = run.content = 3;
    assert_true(killed_at(&run, "ckpt.rename", 0)); /* whole.partial lacks its rename */
    assert_true(is_there(dir, "whole.partial") && !is_there(dir, "first.old"));
    make_file(dir, "notes.old", "diary");
    make_file(dir, "notes.partial", "diary");
    make_file(dir, "notes", "diary");
    make_file(dir, "alone.old", "diary");
    assert_int_equal(shoali_checkpoint_list(dir, &text), SHOAL_OK);
    assert_non_null(strstr(text.text, "  whole.partial "));
    assert_non_null(strstr(text.text, "left by a failed save, whole; the next save"));
    run.tag = "next";
    run.step = run.content = 4;
    model_save_expect(&run, SHOAL_OK);
    assert_true(is_there(dir, "whole/manifest.json") && !is_there(dir, "whole.partial"));
    assert_true(is_there(dir, "first/manifest.json"));
    assert_true(is_there(dir, "notes.old/diary") && is_there(dir, "notes.partial/diary"));
    assert_true(is_there(dir, "alone.old/diary"));
    assert_int_equal(load_latest(run), 4);
    run.tag = "whole";
    run.content = 3;
    model_load_expect(&run, SHOAL_OK);
    shoali_str_fini(&text);
    model_folder_remove(dir);
}

/* A save beyond ulimit -f is an error, not a signal, and the older checkpoint is whole. */
static void test_file_size_limit(void **state)
{
    (void)state;
    char dir[64];
    int result = -1;
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 1);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit tight = {.rlim_cur = 6144, .rlim_max = RLIM_INFINITY};
        bool good = setrlimit(RLIMIT_FSIZE, &tight) == 0;
        model_save(&run);
        good = good && run.status[0] == SHOAL_EIO && strstr(run.message[0], "ulimit -f is 6.0 KiB");
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(count_entries(dir), 2);
    assert_int_equal(load_latest(run), 1);
    model_folder_remove(dir);
}

/* A damaged file shows in the list. */
static void test_list(void **state)
{
    (void)state;
    char dir[64], path[128];
    struct model model;
    struct shoali_str text = {0};
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 1);
    run.tag = "second";
    model_save_expect(&run, SHOAL_OK);
    snprintf(path, sizeof path, "%s/first/master-00001-of-00001.safetensors", dir);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(shoali_checkpoint_list(dir, &text), SHOAL_OK);
    assert_non_null(strstr(text.text, "has 100 bytes, the manifest says"));
    assert_non_null(strstr(text.text, "whole, latest\n"));
    assert_true(strstr(text.text, "  first") < strstr(text.text, "  second"));
    shoali_str_fini(&text);
    assert_int_equal(shoali_checkpoint_list("/nowhere", &text), SHOAL_ENOENT);
    model_folder_remove(dir);
}

/* What is read ahead fails, too: the first failure is told. */
static void test_failing_drive(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    for (int32_t ranks = 1; ranks <= 2; ranks++) {
        struct model_run run = start(&model, dir, ranks);
        run.content = 1;
        run.fault = "io_read,io_read:1,io_read:2";
        model_load_expect(&run, SHOAL_EIO);
        for (int32_t r = 0; r < ranks; r++)
            assert_non_null(strstr(run.message[r], "Input/output error"));
        run.fault = NULL;
        assert_int_equal(load_latest(run), 1);
        model_folder_remove(dir);
        model_folder_make(dir);
    }
    model_folder_remove(dir);
}

static void test_failing_rank(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    struct model_run run = start(&model, dir, 3);
    for (int32_t rank = 0; rank < 3; rank++) {
        char text[64];
        const int32_t other = (rank + 1) % 3;
        run.refusing_rank = rank;
        run.layout = 21; /* every rank holds something */
        run.tag = "second";
        model_save_expect(&run, SHOAL_ENUMERIC);
        assert_string_equal(run.message[rank], "the device is on fire");
        snprintf(text, sizeof text, "rank %d could not save: the device is on fire", rank);
        assert_string_equal(run.message[other], text);
        assert_int_equal(load_latest(run), 1);
        run.tag = NULL;
        run.content = 1;
        model_load_expect(&run, SHOAL_ENUMERIC);
        snprintf(text, sizeof text, "rank %d could not load: the device is on fire", rank);
        assert_string_equal(run.message[other], text);
    }
    model_folder_remove(dir);
}

/* Memory runs out at the 1st, 2nd, ... allocation, on the writer or on another rank. */
static void test_allocations(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 2; ranks++) {
        char dir[64];
        struct model model;
        small_model(&model);
        model_folder_make(dir);
        struct model_run run = start(&model, dir, ranks);
        int failures = 0;
        run.tag = "second";
        for (int skip = 0; skip < 200; skip++) {
            char fault[64];
            snprintf(fault, sizeof fault, "alloc:%d@%d", skip, ranks - 1);
            run.fault = fault;
            model_save(&run);
            run.fault = NULL;
            if (!run.fired[ranks - 1])
                break;
            for (int32_t r = 0; r < ranks; r++)
                assert_int_equal(run.status[r], SHOAL_ENOMEM);
            assert_int_equal(load_latest(run), 1);
            assert_int_equal(count_entries(dir), 2);
            failures++;
        }
        assert_true(failures > 5 && failures < 200);
        model_folder_remove(dir);
    }
}

/* The same in a load, on the reader of the manifest and on a rank that is told of it. */
static void test_allocations_of_loads(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    small_model(&model);
    model_folder_make(dir);
    for (int32_t ranks = 1; ranks <= 2; ranks++) {
        struct model_run run = start(&model, dir, ranks);
        run.content = 1;
        for (int32_t rank = 0; rank < ranks; rank++) {
            int failures = 0;
            run.status[0] = SHOAL_ENOMEM;
            for (; failures < 200 && run.status[0] != SHOAL_OK; failures++) {
                char fault[64];
                snprintf(fault, sizeof fault, "alloc:%d@%d", failures, rank);
                run.fault = fault;
                model_load(&run);
                run.fault = NULL;
                for (int32_t r = 0; r < ranks && run.status[0] != SHOAL_OK; r++)
                    assert_int_equal(run.status[r], SHOAL_ENOMEM);
            }
            assert_true(failures > 5 && failures < 200);
        }
    }
    model_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_failures_of_one_tag),
                                       cmocka_unit_test(test_full_disk_sentence),
                                       cmocka_unit_test(test_kills),
                                       cmocka_unit_test(test_after_a_kill_between_renames),
                                       cmocka_unit_test(test_two_jobs),
                                       cmocka_unit_test(test_waiting_is_no_timeout),
                                       cmocka_unit_test(test_leftovers),
                                       cmocka_unit_test(test_file_size_limit),
                                       cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_failing_drive),
                                       cmocka_unit_test(test_failing_rank),
                                       cmocka_unit_test(test_allocations),
                                       cmocka_unit_test(test_allocations_of_loads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
