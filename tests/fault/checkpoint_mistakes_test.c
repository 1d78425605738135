/* What the user can get wrong: each has its status and its sentence. */
#include "base/test_cmocka.h"
#include "checkpoint_model.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(shoali_write_file_atomic(path, text, strlen(text)), SHOAL_OK);
}

/* ---- folders ---- */

static void test_folder_is_created(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/new/and/deep", fixture->dir);
    run->dir = dir;
    model_save_expect(run, SHOAL_OK);
    model_load_expect(run, SHOAL_OK);
}

static void test_folder_that_cannot_be_written(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/file/below", fixture->dir);
    write_text(fixture->dir, "file", "text");
    run->dir = dir;
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "choose another folder to save in");
    model_expect_text(run->message[1], "rank 0 could not save: ");
    run->tag = NULL;
    model_load_expect(run, SHOAL_EINVAL); /* to begin anew is not what was meant */
    model_expect_text(run->message[0], "Not a directory");
    run->tag = "one";
    run->dir = "";
    model_save_expect(run, SHOAL_EINVAL);
    run->dir = fixture->dir;
    const int64_t shard_bytes = fixture->model.max_shard_bytes;
    fixture->model.max_shard_bytes = -1;
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "max_shard_bytes is -1");
    fixture->model.max_shard_bytes = shard_bytes;
    if (geteuid() != 0) {
        assert_int_equal(chmod(fixture->dir, 0500), 0);
        model_save_expect(run, SHOAL_EINVAL);
        assert_int_equal(chmod(fixture->dir, 0700), 0);
    }
}

static void test_tags(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char path[128];
    static const char *const bad[] = {"", ".", "..", "a/b", "latest", "x.partial", "x.old", NULL};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        run->tag = bad[i];
        model_save_expect(run, SHOAL_EINVAL);
        model_expect_text(run->message[0], "cannot name a checkpoint");
    }
    /* Someone's own folder is never replaced. */
    snprintf(path, sizeof path, "%s/data", fixture->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(path, "precious", "text");
    run->tag = "data";
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "is not a checkpoint: choose another tag");
    size_t bytes;
    free(model_read_file(path, "precious", &bytes));
    assert_int_equal(bytes, 4);
}

/* ---- finding ---- */

static void open_expect(const char *dir, const char *tag, shoal_status status, const char *text)
{
    struct shoali_checkpoint_info info;
    assert_int_equal(shoali_checkpoint_open(dir, tag, &info), status);
    if (status == SHOAL_OK)
        assert_string_equal(info.tag, text);
    else
        model_expect_text(shoal_error_message(), text);
    shoali_checkpoint_info_fini(&info);
}

static void test_no_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    char text[256];
    snprintf(text, sizeof text, "there is no checkpoint in %s", fixture->dir);
    open_expect(fixture->dir, NULL, SHOAL_ENOENT, text);
    open_expect("no_such_folder", NULL, SHOAL_ENOENT, "there is no checkpoint in no_such_folder");
    open_expect("no_such_folder", "tag", SHOAL_ENOENT, "there is no checkpoint in no_such_folder");
    model_load_expect(&fixture->run, SHOAL_ENOENT);
    model_save_expect(&fixture->run, SHOAL_OK);
    open_expect(fixture->dir, "two", SHOAL_ENOENT, "there are: one");
    open_expect(fixture->dir, "../one", SHOAL_EINVAL, "not the name of a checkpoint's folder");
}

/* "one" of step 0, "nine" of step 9, "two" of step 2. */
static void save_three(struct fixture *fixture)
{
    static const char *const tags[] = {"one", "nine", "two"};
    fixture->run.override_existing = true;
    for (int i = 0; i < 3; i++) {
        fixture->run.tag = tags[i];
        fixture->run.step = i == 1 ? 9 : i;
        model_save_expect(&fixture->run, SHOAL_OK);
    }
    fixture->run.override_existing = false;
}

static void remove_latest(const struct fixture *fixture)
{
    char path[128];
    snprintf(path, sizeof path, "%s/latest", fixture->dir);
    assert_true(unlink(path) == 0 || rmdir(path) == 0);
}

static void test_latest(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    static const char *const wrong[] = {"../one", "", "latest", "\n"};
    char path[128];
    save_three(fixture);
    open_expect(fixture->dir, NULL, SHOAL_OK, "two");
    /* Another checkpoint than the one that is asked for is no answer. */
    static const char *const missing[] = {"gone\n", "3", "nine2"};
    for (int i = 0; i < 3; i++) {
        write_text(fixture->dir, "latest", missing[i]);
        open_expect(fixture->dir, NULL, SHOAL_EINVAL, "write one of these into it: nine, two, one");
    }
    static const char *const blank[] = {"nine \n", " nine", "nine\t\r\n", "\xef\xbb\xbfnine\n"};
    for (int i = 0; i < 4; i++) {
        write_text(fixture->dir, "latest", blank[i]);
        open_expect(fixture->dir, NULL, SHOAL_OK, "nine");
    }
    for (int i = 0; i < 4; i++) {
        write_text(fixture->dir, "latest", wrong[i]);
        open_expect(fixture->dir, NULL, SHOAL_EINVAL, "write the name of a checkpoint's folder");
    }
    remove_latest(fixture);
    open_expect(fixture->dir, NULL, SHOAL_OK, "nine");
    run->tag = NULL;
    model_load_expect(run, SHOAL_OK);
    /* The best one is damaged: it may be what is meant, so the user chooses. */
    snprintf(path, sizeof path, "%s/nine", fixture->dir);
    write_text(path, "manifest.json", "{\"format\":\"shoal-checkpoint\"}");
    open_expect(fixture->dir, NULL, SHOAL_ECORRUPT, "nine/manifest.json, bytes 0 to");
    open_expect(fixture->dir, NULL, SHOAL_ECORRUPT, "can be read is two (step 2), by its tag");
    write_text(fixture->dir, "latest", "nine\n");
    open_expect(fixture->dir, NULL, SHOAL_ECORRUPT, "can be read is two (step 2), by its tag");
    open_expect(fixture->dir, "nine", SHOAL_ECORRUPT, "nine/manifest.json");
    open_expect(fixture->dir, "two", SHOAL_OK, "two");
}

/* Only what does not exist is absent: whatever else keeps a file from being read is an error that
 * names it, with and without `latest`, and no save goes on over it. */
static void test_unreadable(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char path[128], loop[128];
    save_three(fixture);
    remove_latest(fixture);
    snprintf(path, sizeof path, "%s/latest", fixture->dir);
    assert_int_equal(symlink("latest", path), 0);
    open_expect(fixture->dir, NULL, SHOAL_EINVAL, "latest: cannot open for reading: Too many");
    run->tag = "new";
    run->step = 10;
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[1], "latest: cannot open for reading: Too many");
    remove_latest(fixture);
    assert_int_equal(mkdir(path, 0700), 0);
    open_expect(fixture->dir, NULL, SHOAL_EINVAL, "latest is a folder");
    remove_latest(fixture);
    snprintf(loop, sizeof loop, "%s/nine/manifest.json", fixture->dir);
    assert_int_equal(unlink(loop), 0);
    assert_int_equal(symlink("manifest.json", loop), 0);
    open_expect(fixture->dir, NULL, SHOAL_EINVAL, "nine/manifest.json: cannot open for reading");
    model_save_expect(run, SHOAL_EINVAL);
    /* nor over the tag itself, whose step nobody can tell */
    write_text(fixture->dir, "latest", "two\n");
    run->tag = "nine";
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[1], "nine/manifest.json: cannot open for reading");
    write_text(fixture->dir, "latest", "nine\n");
    open_expect(fixture->dir, NULL, SHOAL_EINVAL, "can be read is two (step 2), by its tag");
    /* the disk fails, at `latest` and at the manifest */
    write_text(fixture->dir, "latest", "two\n");
    for (int pass = 0; pass < 2; pass++) {
        assert_true(shoali_fault_arm(pass ? "read_file:1" : "read_file"));
        open_expect(fixture->dir, NULL, SHOAL_EIO, pass ? "two/manifest.json" : "/latest");
        assert_true(shoali_fault_arm(NULL));
    }
    open_expect(fixture->dir, NULL, SHOAL_OK, "two");
    /* what `latest` names is gone, and nothing is left: not the same as an empty folder */
    write_text(fixture->dir, "latest", "gone\n");
    assert_int_equal(unlink(loop), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/manifest.json", fixture->dir, i ? "one" : "two");
        assert_int_equal(unlink(path), 0);
    }
    open_expect(fixture->dir, NULL, SHOAL_EINVAL,
                "no other checkpoint of Shoal: correct the file, or give another folder");
}

/* Folders of another user, which root reads all the same. */
static void test_no_permission(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char path[128];
    int result = -1;
    save_three(fixture);
    snprintf(path, sizeof path, "%s/two", fixture->dir);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(fixture->dir, 0777), 0);
    const pid_t child = fork();
    if (child == 0) {
        bool good = geteuid() != 0 || setuid(65534) == 0;
        struct shoali_checkpoint_info info;
        for (int pass = 0; pass < 2; pass++) { /* with and without latest */
            const shoal_status status = shoali_checkpoint_open(fixture->dir, NULL, &info);
            good = good && status == SHOAL_EINVAL &&
                   strstr(shoal_error_message(), "two/manifest.json: cannot open") &&
                   strstr(shoal_error_message(), "Permission denied") &&
                   strstr(shoal_error_message(), "can be read is nine (step 9)");
            snprintf(path, sizeof path, "%s/latest", fixture->dir);
            good = good && (pass || unlink(path) == 0);
        }
        run->tag = "new";
        run->step = 10;
        run->ranks = 1;
        model_save(run);
        good = good && run->status[0] == SHOAL_EINVAL && strstr(run->message[0], "Permission");
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    snprintf(path, sizeof path, "%s/two", fixture->dir);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(result, 0);
}

/* ---- later steps ---- */

static void expect_latest(const struct fixture *fixture, const char *tag)
{
    size_t bytes;
    char *text = model_read_file(fixture->dir, "latest", &bytes);
    text[strcspn(text, "\n")] = '\0';
    assert_string_equal(text, tag);
    free(text);
}

static void test_later_steps(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    char text[256];
    run->tag = "nine";
    run->step = 9;
    model_save_expect(run, SHOAL_OK);
    run->step = 8;
    run->content = 2;
    model_save_expect(run, SHOAL_EEXIST);
    model_expect_text(run->message[0], "holds nine of step 9, and this run is at step 8");
    model_expect_text(run->message[1], "--override-existing-checkpoint");
    /* a tag that follows from the step */
    run->tag = "global_step8";
    run->default_tag = true;
    model_save_expect(run, SHOAL_EEXIST);
    model_expect_text(run->message[0], "holds nine of step 9, its latest,");
    expect_latest(fixture, "nine");
    snprintf(text, sizeof text, "%s/global_step8", fixture->dir);
    assert_int_equal(access(text, F_OK), -1);
    run->content = 1;
    run->tag = NULL;
    model_load_expect(run, SHOAL_OK);
    /* a fresh tag that was chosen is saved, `latest` stays; once it exists it is refused, too */
    run->tag = "branch";
    run->default_tag = false;
    model_save_expect(run, SHOAL_OK);
    model_load_expect(run, SHOAL_OK);
    expect_latest(fixture, "nine");
    model_save_expect(run, SHOAL_EEXIST);
    /* told to */
    run->override_existing = true;
    model_save_expect(run, SHOAL_OK);
    expect_latest(fixture, "branch");
    run->override_existing = false;
    run->step = 9; /* the same step is no later one */
    run->tag = "nine";
    model_save_expect(run, SHOAL_OK);
    expect_latest(fixture, "nine");
    /* a crash between the rename and `latest`: what it names is older, and saving goes on */
    write_text(fixture->dir, "latest", "branch\n");
    run->tag = "global_step9";
    run->default_tag = true;
    model_save_expect(run, SHOAL_OK);
    expect_latest(fixture, "global_step9");
}

static void test_newer_version(void **state)
{
    struct fixture *fixture = *state;
    char path[128], text[256];
    static const char body[] = "{\"format\":\"shoal-checkpoint\",\"version\":2";
    model_save_expect(&fixture->run, SHOAL_OK);
    snprintf(path, sizeof path, "%s/one", fixture->dir);
    snprintf(text, sizeof text, "%s,\"hash\":\"%016llx\"}\n", body,
             (unsigned long long)shoali_hash64(body, strlen(body)));
    write_text(path, "manifest.json", text);
    open_expect(fixture->dir, NULL, SHOAL_EUNSUPPORTED, "has version 2");
}

/* ---- another model ---- */

static void test_other_tensors(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    struct model other = {0};
    model_save_expect(run, SHOAL_OK);
    model_add(&other, "a", shoal_shape_2(40, 30));
    model_add(&other, "c", shoal_shape_1(5));
    model_add(&other, "d", shoal_shape_1(6));
    model_add_kind(&other, "model", SHOAL_F32, false);
    run->model = &other;
    model_load_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0],
                      "of another shape `a` (is [30, 40], the model has [40, 30])");
    model_expect_text(run->message[0], "missing `d`");
    model_expect_text(run->message[1], "extra `b`");
    struct model turned = {0};
    model_add(&turned, "b", shoal_shape_1(500));
    model_add(&turned, "a", shoal_shape_2(30, 40));
    model_add(&turned, "c", shoal_shape_1(5));
    model_add_kind(&turned, "model", SHOAL_F32, false);
    run->model = &turned;
    model_load_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "in another order");
}

/* Second names: a model that calls a tensor by one finds it; one that has both apart does not. */
static void test_aliases(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    fixture->model.aliases[0] = (struct shoali_checkpoint_alias){"second", "b"};
    fixture->model.alias_count = 1;
    model_save_expect(run, SHOAL_OK);
    model_load_expect(run, SHOAL_OK);
    struct model other = {0};
    model_add(&other, "a", shoal_shape_2(30, 40));
    model_add(&other, "second", shoal_shape_1(500));
    model_add(&other, "c", shoal_shape_1(5));
    model_add_kind(&other, "model", SHOAL_F32, false);
    run->model = &other;
    model_load_expect(run, SHOAL_OK); /* asserts every byte */
    other.shapes[1] = shoal_shape_1(501);
    other.flat_count++;
    model_load_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "of another shape `second` (is [500], the model has [501])");
    struct model both = {0};
    model_add(&both, "a", shoal_shape_2(30, 40));
    model_add(&both, "b", shoal_shape_1(500));
    model_add(&both, "c", shoal_shape_1(5));
    model_add(&both, "second", shoal_shape_1(500));
    model_add_kind(&both, "model", SHOAL_F32, false);
    run->model = &both;
    model_load_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[1], "missing `second` (the checkpoint ties it to `b`)");
    model_save_expect(run, SHOAL_OK);
    run->model = &fixture->model;
    model_load_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "extra `second` (the model ties it to `b`)");
}

static void test_impossible_aliases(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    struct shoali_checkpoint_alias *alias = fixture->model.aliases;
    fixture->model.alias_count = 1;
    alias[0] = (struct shoali_checkpoint_alias){"c", "b"};
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "\"c\" cannot be a second name");
    alias[0] = (struct shoali_checkpoint_alias){"d", "e"};
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[1], "\"d\" is tied to \"e\", which is no tensor");
    alias[0] = (struct shoali_checkpoint_alias){"\xff\xfe", "b"};
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "of a tied tensor is not UTF-8");
    fixture->model.alias_count = 2;
    alias[0] = alias[1] = (struct shoali_checkpoint_alias){"d", "b"};
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "same second name");
}

static void test_impossible_models(void **state)
{
    struct fixture *fixture = *state;
    struct model_run *run = &fixture->run;
    struct model model = fixture->model;
    run->model = &model;
    for (int i = 0; i < 3; i++)
        model.names[i] = model.name_text[i];
    model.names[2] = "a";
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "two tensors are named \"a\"");
    model.names[2] = "\xff\xfe";
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[1], "not UTF-8");
    model.names[2] = "__metadata__";
    model_save_expect(run, SHOAL_EINVAL);
    model.names[2] = "c";
    model.kinds[0].name = "../x";
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "letters, digits or underscores");
    model.kinds[0].name = "model";
    run->client_json = "[1]";
    model_save_expect(run, SHOAL_EINVAL);
    model_expect_text(run->message[0], "client_json is not the text of a JSON object");
    run->client_json = "{";
    model_save_expect(run, SHOAL_EINVAL);
    open_expect(fixture->dir, NULL, SHOAL_ENOENT, "there is no checkpoint in ");
}

/* ---- ranks that do not fit together ---- */

struct odd_rank {
    struct shoal_thread_world *world;
    const char *dir, *name;
    int64_t begin, count;
    int32_t rank;
    shoal_status status;
    char message[512];
};

static shoal_status read_zeros(void *user, int64_t first, int64_t count, void *out)
{
    (void)user;
    (void)first;
    memset(out, 0, (size_t)count * 4);
    return SHOAL_OK;
}

static void *odd_main(void *user)
{
    struct odd_rank *rank = user;
    shoal_group *group = NULL;
    const shoal_comm_args comm = {.rank = rank->rank,
                                  .world_size = 2,
                                  .backend = "thread",
                                  .threads = rank->world,
                                  .timeout_s = 60};
    const shoal_shape shape = shoal_shape_1(10);
    const struct shoali_checkpoint_kind kind = {.name = "model",
                                                .dtype = SHOAL_F32,
                                                .begin = rank->begin,
                                                .count = rank->count,
                                                .read = read_zeros};
    if (shoal_comm_init(&comm, &group) != SHOAL_OK)
        abort();
    rank->status = shoali_checkpoint_save(&(struct shoali_checkpoint_args){.dir = rank->dir,
                                                                           .tag = "t",
                                                                           .group = group,
                                                                           .names = &rank->name,
                                                                           .shapes = &shape,
                                                                           .tensor_count = 1,
                                                                           .kinds = &kind,
                                                                           .kind_count = 1,
                                                                           .engine_json = "{}"});
    snprintf(rank->message, sizeof rank->message, "%s", shoal_error_message());
    shoal_comm_destroy(group);
    return NULL;
}

static void odd_save(const char *dir, struct odd_rank ranks[2], shoal_status status,
                     const char *text)
{
    struct shoal_thread_world *world = NULL;
    pthread_t threads[2];
    assert_int_equal(shoal_thread_world_create(2, &world), SHOAL_OK);
    for (int32_t r = 0; r < 2; r++) {
        ranks[r].world = world;
        ranks[r].dir = dir;
        ranks[r].rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, odd_main, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    shoal_thread_world_destroy(world);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, status);
        if (status < 0)
            model_expect_text(ranks[r].message, text);
    }
}

static void test_ranks_disagree(void **state)
{
    struct fixture *fixture = *state;
    struct odd_rank ranks[2] = {{.name = "w", .begin = 0, .count = 6},
                                {.name = "v", .begin = 6, .count = 4}};
    odd_save(fixture->dir, ranks, SHOAL_EMISMATCH, "rank 1 names other tensors");
    ranks[1].name = "w";
    ranks[1].begin = 7;
    ranks[1].count = 3;
    odd_save(fixture->dir, ranks, SHOAL_EINVAL, "no rank holds element 6 of 10");
    ranks[1].begin = 5;
    ranks[1].count = 5;
    odd_save(fixture->dir, ranks, SHOAL_OK, ""); /* what both have one of them gives */
    ranks[1].count = 6;
    odd_save(fixture->dir, ranks, SHOAL_EINVAL, "this rank holds [5, 5 + 6)");
    ranks[1].begin = 6;
    ranks[1].count = 4;
    odd_save(fixture->dir, ranks, SHOAL_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder_is_created, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_folder_that_cannot_be_written, model_set_up,
                                        model_tear_down),
        cmocka_unit_test_setup_teardown(test_tags, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_no_checkpoint, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_latest, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_unreadable, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_no_permission, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_later_steps, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_newer_version, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_other_tensors, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_aliases, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_impossible_aliases, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_impossible_models, model_set_up, model_tear_down),
        cmocka_unit_test_setup_teardown(test_ranks_disagree, model_set_up, model_tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
