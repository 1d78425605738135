/* Which checkpoints stay when a newer one is there, and that none is lost that should, or is left
 * in pieces. */
#include "checkpoint_model.h"

#include "base/str.h"
#include "base/test_cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* One rank, which saves under the tag that follows from the step. */
static int set_up(void **state)
{
    const int made = model_set_up(state);
    struct model_run *run = &((struct fixture *)*state)->run;
    *run = (struct model_run){.model = run->model,
                              .dir = run->dir,
                              .ranks = 1,
                              .layout = 4,
                              .default_tag = true,
                              .refusing_rank = -1};
    return made;
}

static const char *tag_of(int64_t step, char tag[32])
{
    snprintf(tag, 32, "global_step%lld", (long long)step);
    return tag;
}

static void save(struct model_run *run, int64_t step)
{
    char tag[32];
    run->step = step;
    run->content = (uint64_t)step;
    run->tag = tag_of(step, tag);
    model_save_expect(run, SHOAL_OK);
}

/* The folder holds exactly these words, which the caller gives by name. */
static void expect_entries(const char *dir, const char *want)
{
    int found = 0, wanted = 0;
    char text[512], *rest = NULL;
    snprintf(text, sizeof text, "%s", want);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, word);
        if (access(path, F_OK) != 0)
            fail_msg("%s is not there", word);
        wanted++;
    }
    DIR *folder = opendir(dir);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        found += entry->d_name[0] != '.';
    closedir(folder);
    assert_int_equal(found, wanted);
}

static void expect_whole(struct model_run run, int64_t step)
{
    char tag[32];
    run.tag = tag_of(step, tag);
    run.content = (uint64_t)step;
    run.fault = NULL;
    model_load_expect(&run, SHOAL_OK);
}

static void test_last_and_every(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    run->ranks = 2;
    run->keep = (struct shoali_checkpoint_keep){.last = 2, .every = 4};
    for (int64_t step = 1; step <= 10; step++)
        save(run, step);
    expect_entries(run->dir, "latest global_step4 global_step8 global_step9 global_step10");
    for (int64_t step = 8; step <= 10; step++)
        expect_whole(*run, step);
    run->keep = (struct shoali_checkpoint_keep){.every = 8}; /* and the last one */
    save(run, 11);
    expect_entries(run->dir, "latest global_step8 global_step11");
    run->keep = (struct shoali_checkpoint_keep){0};
    save(run, 12);
    save(run, 13);
    expect_entries(run->dir, "latest global_step8 global_step11 global_step12 global_step13");
    run->keep = (struct shoali_checkpoint_keep){.last = 1};
    save(run, 14);
    expect_entries(run->dir, "latest global_step14");
}

/* What the user named, what does not verify, what is of a later step: nobody said it is of no
 * use. */
static void test_what_is_not_ours_to_remove(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char path[160];
    for (int64_t step = 1; step <= 6; step++)
        save(run, step);
    run->tag = "mine";
    run->default_tag = false;
    model_save_expect(run, SHOAL_OK);
    run->tag = "global_step007"; /* of step 6, and no name that we give */
    model_save_expect(run, SHOAL_OK);
    run->default_tag = true;
    snprintf(path, sizeof path, "%s/global_step2/manifest.json", run->dir);
    assert_int_equal(shoali_write_file_atomic(path, "damaged", 7), SHOAL_OK);
    /* back to step 3 */
    run->override_existing = true;
    run->keep = (struct shoali_checkpoint_keep){.last = 1};
    save(run, 3);
    expect_entries(run->dir, "latest mine global_step007 global_step2 global_step3 global_step4 "
                             "global_step5 global_step6");
    expect_whole(*run, 3);
}

/* Steps behind `latest`, of a run that was given up, count neither as newer nor as old ones. */
static void test_a_run_that_was_given_up(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    for (int64_t step = 1; step <= 6; step++)
        save(run, step);
    run->override_existing = true;
    run->keep = (struct shoali_checkpoint_keep){.last = 2};
    save(run, 3);
    expect_entries(run->dir, "latest global_step2 global_step3 global_step4 global_step5 "
                             "global_step6");
    expect_whole(*run, 2);
    save(run, 4);
    expect_entries(run->dir, "latest global_step3 global_step4 global_step5 global_step6");
    save(run, 7);
    expect_entries(run->dir, "latest global_step6 global_step7");
}

/* A failure to remove is no failure of the save. */
static void test_failing_to_remove(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    run->keep = (struct shoali_checkpoint_keep){.last = 1};
    save(run, 1);
    run->fault = "ckpt.rename:2";
    save(run, 2);
    run->fault = NULL;
    expect_entries(run->dir, "latest global_step1 global_step2");
    save(run, 3);
    expect_entries(run->dir, "latest global_step3");
    expect_whole(*run, 3);
}

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
    assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return WIFSIGNALED(status);
}

/* Killed in front of each rename, and before and in the middle of each removal: every folder that
 * counts as a checkpoint is whole, and the next save clears the rest. */
static void test_kills(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    static const char *const points[] = {"ckpt.rename", "ckpt.remove", "ckpt.remove.rest"};
    int kills = 0;
    int64_t step = 0;
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (int skip = 0; skip < 8; skip++) {
            char tag[32];
            run->keep = (struct shoali_checkpoint_keep){0};
            save(run, ++step);
            save(run, ++step);
            save(run, ++step);
            run->keep = (struct shoali_checkpoint_keep){.last = 1};
            run->step = ++step;
            run->content = (uint64_t)step;
            run->tag = tag_of(step, tag);
            kills += killed_at(run, points[p], skip);
            struct shoali_checkpoint_info info;
            assert_int_equal(shoali_checkpoint_open(run->dir, NULL, &info), SHOAL_OK);
            assert_true(info.step == step || info.step == step - 1);
            shoali_checkpoint_info_fini(&info);
            for (int64_t s = 1; s <= step; s++)
                if (shoali_checkpoint_peek(run->dir, tag_of(s, tag), &info) == SHOAL_OK) {
                    shoali_checkpoint_info_fini(&info);
                    expect_whole(*run, s);
                }
            char want[64];
            save(run, ++step);
            snprintf(want, sizeof want, "latest global_step%lld", (long long)step);
            expect_entries(run->dir, want);
        }
    }
    assert_true(kills > 10);
}

static void test_prune(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    struct shoali_str text = {0};
    const struct shoali_checkpoint_keep keep = {.last = 1, .every = 2};
    for (int64_t step = 1; step <= 5; step++)
        save(run, step);
    assert_int_equal(shoali_checkpoint_prune(run->dir, &keep, true, &text), SHOAL_OK);
    assert_non_null(strstr(text.text, "global_step3                  would be removed\n"));
    assert_non_null(strstr(text.text, "global_step4                  kept\n"));
    expect_entries(run->dir,
                   "latest global_step1 global_step2 global_step3 global_step4 global_step5");
    const int lock = open(run->dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(shoali_checkpoint_prune(run->dir, &keep, false, &text), SHOAL_EEXIST);
    assert_non_null(strstr(shoal_error_message(), "a job is saving there: try again"));
    close(lock);
    assert_int_equal(shoali_checkpoint_prune(run->dir, &keep, false, &text), SHOAL_OK);
    expect_entries(run->dir, "latest global_step2 global_step4 global_step5");
    /* in a program without standard input, where the folder is opened as file 0 */
    const int input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    const shoal_status status = shoali_checkpoint_prune(run->dir, &keep, true, &text);
    if (input >= 0) {
        dup2(input, STDIN_FILENO);
        close(input);
    }
    assert_int_equal(status, SHOAL_OK);
    assert_int_equal(shoali_checkpoint_prune("/nowhere", &keep, false, &text), SHOAL_ENOENT);
    shoali_str_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_last_and_every, set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_ours_to_remove, set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_a_run_that_was_given_up, set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_failing_to_remove, set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_kills, set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_prune, set_up, model_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
