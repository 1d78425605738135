/* Which files of a folder a dataset reads, and what it says of the others. */
#include "data/test_text.h"
#include "text_data/token_file.h"

#include <sys/socket.h>
#include <unistd.h>

static void link_to(const char *name, const char *target)
{
    assert_int_equal(symlink(target, path_of(name)), 0);
}

static void make(const char *name)
{
    assert_int_equal(mkdir(path_of(name), 0700), 0);
}

static void put(const char *name, const char *text)
{
    write_text(name, text, strlen(text));
}

/* Its whole text is `wanted`. */
static void expect(const shoal_dataset *dataset, const char *wanted)
{
    int32_t tokens[512];
    char text[512];
    int64_t at = 0;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        const int64_t count = shoal_dataset_token_count(dataset, (shoal_split)p);
        assert_true(at + count < 512);
        ok(shoal_dataset_read(dataset, (shoal_split)p, 0, count, tokens + at));
        at += count;
    }
    for (int64_t i = 0; i < at; i++)
        text[i] = (char)tokens[i];
    text[at] = '\0';
    assert_string_equal(text, wanted);
}

struct said {
    int count;
    char text[8][256];
};
static void collect(void *user, shoal_log_level level, const char *subsystem, int rank,
                    const char *text)
{
    struct said *said = user;
    (void)subsystem, (void)rank;
    if (level == SHOAL_LOG_WARNING && said->count < 8)
        snprintf(said->text[said->count++], sizeof said->text[0], "%.255s", text);
}

static bool says(const struct said *said, const char *name, const char *what)
{
    bool found = false;
    for (int i = 0; i < said->count; i++)
        found |= strstr(said->text[i], name) && strstr(said->text[i], what);
    return found;
}

/* ---- links and hidden entries ---- */

static void test_links(void **state)
{
    (void)state;
    static struct said said;
    ok(shoal_log_configure("warning", collect, &said));
    make("data");
    make("store");
    put("store/1", "one");
    put("store/2", "two");
    put("data/a.txt", "self");
    link_to("data/b.txt", "../store/1");
    link_to("data/folder", "../store");
    link_to("data/gone.txt", "nowhere");
    link_to("data/itself", "itself");
    link_to("data/loop", "../data");
    link_to("store/up", "../data"); /* the folder that leads here */
    const char *path = path_of("data");
    const shoal_dataset_args args = {.paths = &path, .path_count = 1};
    shoal_dataset *dataset = NULL;
    ok(shoal_dataset_create(&args, &dataset));
    expect(dataset, "self\none\none\ntwo");
    assert_string_equal(
        shoal_dataset_describe_files(dataset),
        "data files: 4 read (2 without an ending, 2 .txt); 4 skipped (2 links to nothing, 2 links "
        "back to folders above)\n");
    shoal_dataset_destroy(dataset);
    assert_int_equal(said.count, 4);
    assert_true(says(&said, "data/gone.txt", "leads nowhere: No such file"));
    assert_true(says(&said, "data/itself", "leads nowhere: Too many levels"));
    assert_true(says(&said, "data/loop", "leads back to"));
    assert_true(says(&said, "data/folder/up", "leads back to"));

    /* the cache is the target's: another file behind the link is another text */
    assert_int_equal(unlink(path_of("data/b.txt")), 0);
    link_to("data/b.txt", "../store/2");
    ok(shoal_dataset_create(&args, &dataset));
    expect(dataset, "self\ntwo\none\ntwo");
    shoal_dataset_destroy(dataset);
    put("store/2", "owt");
    ok(shoal_dataset_create(&args, &dataset));
    expect(dataset, "self\nowt\none\nowt");
    shoal_dataset_destroy(dataset);
    ok(shoal_log_configure(NULL, NULL, NULL));
}

static void test_hidden(void **state)
{
    (void)state;
    make(".git");
    make("sub");
    make("sub/.ipynb_checkpoints");
    put(".git/HEAD", "ref: refs/heads/main");
    put("sub/.ipynb_checkpoints/a.txt", "a copy");
    put("sub/.DS_Store", "x");
    put("sub/a.txt", "text");
    shoal_dataset *dataset = open_folder("byte");
    expect(dataset, "text");
    assert_string_equal(shoal_dataset_describe_files(dataset),
                        "data files: 1 read (1 .txt); 3 skipped (3 hidden)\n");
    shoal_dataset_destroy(dataset);
    /* what is named is read */
    const char *paths[] = {path_of("sub/.ipynb_checkpoints"), path_of(".git/HEAD")};
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = paths, .path_count = 2}, &dataset));
    expect(dataset, "a copy\nref: refs/heads/main");
    shoal_dataset_destroy(dataset);
}

/* ---- what is said ---- */

static void test_report(void **state)
{
    (void)state;
    const char *path = folder;
    put("a.TXT", "one");
    put("b.csv", "x,y");
    put("c", "plain");
    put("d.jsonl", "{\"text\": \"record\"}\n");
    put("e", "");
    write_text("f.bin", "\0", 1);
    put(".g", "hidden");
    assert_int_equal(mkfifo(path_of("h"), 0600), 0);
    shoal_dataset *dataset = NULL;
    const shoal_dataset_args args = {.paths = &path, .path_count = 1, .list_files = true};
    for (int start = 0; start < 2; start++) { /* the second finds the cache */
        ok(shoal_dataset_create(&args, &dataset));
        expect(dataset, "one\nx,y\nplain\nrecord");
        const char *report = shoal_dataset_describe_files(dataset);
        const char *line = strstr(report, "data files: ");
        assert_string_equal(line, "data files: 4 read (1 without an ending, 1 .csv, 1 .jsonl as "
                                  "JSON lines, 1 .txt); 4 skipped (1 empty, 1 binary, 1 hidden, 1 "
                                  "device or pipe)\n");
        assert_non_null(strstr(report, "/a.TXT: read as text, 3 bytes\n"));
        assert_non_null(strstr(report, "/d.jsonl: read as JSON lines, 19 bytes\n"));
        assert_non_null(strstr(report, "/e: skipped, empty\n"));
        assert_non_null(strstr(report, "/f.bin: skipped, binary\n"));
        assert_non_null(strstr(report, "/.g: skipped, hidden\n"));
        shoal_dataset_destroy(dataset);
    }
    /* one text file by its name: nothing to say, except of an ending that tells nothing */
    path = path_of("a.TXT");
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset));
    assert_string_equal(shoal_dataset_describe_files(dataset), "");
    shoal_dataset_destroy(dataset);
    path = path_of("b.csv");
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset));
    assert_string_equal(shoal_dataset_describe_files(dataset),
                        "data files: 1 read (1 .csv); 0 skipped\n");
    shoal_dataset_destroy(dataset);
}

/* ---- JSON under another name ---- */

static void test_json(void **state)
{
    (void)state;
    static const char *const names[] = {"x.json", "x.txt", "x", "x.JSON"};
    const char *path = folder;
    shoal_dataset *dataset = NULL;
    shoal_dataset_args args = {.paths = &path, .path_count = 1};
    put("a.txt", "text");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        put(names[i], "{\"text\": \"record\"}\n{\"text\": \"another\"}\n");
        assert_int_equal(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), path_of(names[i])));
        assert_non_null(strstr(shoal_error_message(), "call it *.jsonl"));
        assert_non_null(strstr(shoal_error_message(), "--data-text"));
        args.data_text = true;
        ok(shoal_dataset_create(&args, &dataset));
        expect(dataset, "text\n{\"text\": \"record\"}\n{\"text\": \"another\"}\n");
        shoal_dataset_destroy(dataset);
        args.data_text = false; /* the cache of the run before is not taken */
        assert_int_equal(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL);
        assert_int_equal(unlink(path_of(names[i])), 0);
    }
    put("x.json", "{\n  \"a\": 1\n}\n");
    assert_int_equal(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "x.json is JSON"));
    assert_int_equal(rename(path_of("x.json"), path_of("x.txt")), 0);
    ok(shoal_dataset_create(&args, &dataset)); /* a text that begins with a brace */
    shoal_dataset_destroy(dataset);
}

static void test_report_without_memory(void **state)
{
    char *text = "";
    (void)state;
    assert_true(shoali_fault_arm("alloc:0"));
    assert_int_equal(shoali_files_report(&(struct shoali_files){0}, NULL, false, &text),
                     SHOAL_ENOMEM);
    assert_true(shoali_fault_arm(NULL));
    assert_null(text);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
int main(void)
{
    const struct CMUnitTest tests[] = {IN_FOLDER(test_links), IN_FOLDER(test_hidden),
                                       IN_FOLDER(test_report), IN_FOLDER(test_json),
                                       cmocka_unit_test(test_report_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
