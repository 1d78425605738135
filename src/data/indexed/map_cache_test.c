/* Maps of an order in files: made once, remade, damaged; without memory or disk; users'
 * mistakes. */
#include "base/fault.h"
#include "data/indexed/test_numbered.h"

#include <glob.h>
#include <jansson.h>
#include <pthread.h>

static int64_t count_files(const char *suffix)
{
    char command[160];
    int count = 0;
    snprintf(command, sizeof command, "ls %s/cache 2>/dev/null | grep -c '%s$'", folder, suffix);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static void *open_one(void *path)
{
    int32_t tokens[8], targets[8];
    shoal_dataset *dataset = NULL;
    shoal_loader *loader = NULL;
    const char *paths[] = {path};
    const shoal_status made = create_split(paths, 1, "1", &dataset);
    shoal_status status = made < 0 ? made
                                   : shoal_loader_create(&(shoal_loader_args){.dataset = dataset,
                                                                              .seq_length = 8,
                                                                              .micro_batch = 1,
                                                                              .micro_batches = 1,
                                                                              .seed = SEED,
                                                                              .sample_count = 100},
                                                         &loader);
    if (status >= 0)
        status = shoal_loader_get(loader, 99, 0, tokens, targets);
    const int64_t sum = status < 0 ? -1 : tokens[0] * 1000 + targets[7];
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
    return (void *)(intptr_t)sum;
}

/* Many open at once: one makes, all see the same. Other data under the same name get other maps. */
static void test_cache(void **state)
{
    enum { THREADS = 6 };
    pthread_t thread[THREADS];
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/shared", folder);
    write_many("shared", 100);
    ok(shoali_make_dirs(path_of("cache")));
    for (int round = 0; round < 3; round++) {
        void *sum[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, open_one, path), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(thread[i], &sum[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            assert_true((intptr_t)sum[i] >= 0);
            assert_ptr_equal(sum[i], sum[0]);
        }
        assert_int_equal(count_files("npy"), round < 2 ? 3 : 6);
        if (round == 1)
            write_many("shared", 101);
    }
}

/* A map that is damaged is noticed when it is read, and remade when it is gone. */
static void test_damaged_map(void **state)
{
    char command[512];
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/damaged", folder);
    write_many("damaged", 100);
    const void *right = open_one(path);
    snprintf(command, sizeof command,
             "cd %s/cache && chmod u+w *sample_index.npy && for f in *sample_index.npy; do printf "
             "'\\377\\377\\377\\377' | dd of=$f bs=1 seek=800 conv=notrunc 2>/dev/null; done",
             folder);
    assert_int_equal(system(command), 0);
    /* that is no place in the document index: the samples before and behind it show it */
    int32_t tokens[8], targets[8];
    shoal_dataset *dataset = open_pair("damaged", "1");
    shoal_loader *loader = open_loader(&(shoal_loader_args){.dataset = dataset,
                                                            .seq_length = 8,
                                                            .micro_batch = 1,
                                                            .micro_batches = 1,
                                                            .seed = SEED,
                                                            .sample_count = 100});
    const int64_t samples = (shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN) - 1) / 8;
    int failed = 0;
    for (int64_t i = 0; i < samples; i++)
        if (shoal_loader_get(loader, i, 0, tokens, targets) < 0) {
            assert_non_null(strstr(shoal_error_message(), "sample_index.npy"));
            failed++;
        }
    assert_in_range(failed, 1, 2);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
    snprintf(command, sizeof command, "rm -f %s/cache/*sample_index.npy", folder);
    assert_int_equal(system(command), 0);
    assert_ptr_equal(open_one(path), right);
}

/* Without memory, or when files cannot be read, made or renamed: an error, no crash, no leak, and
 * no file that is half made. */
static void test_faults(void **state)
{
    static const char *const points[] = {"alloc", "data_open", "data_read", "data_write",
                                         "data_rename"};
    char spec[64], path[128], clean[128];
    (void)state;
    snprintf(path, sizeof path, "%s/faulty", folder);
    snprintf(clean, sizeof clean, "rm -rf %s/cache", folder);
    write_many("faulty", 50);
    const void *right = open_one(path);
    for (int p = 0; p < 5; p++)
        for (int skip = 0;; skip++) {
            assert_int_equal(system(clean), 0);
            snprintf(spec, sizeof spec, "%s:%d", points[p], skip);
            assert_true(shoali_fault_arm(spec));
            const void *sum = open_one(path);
            const bool fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            assert_int_equal(count_files("tmp"), 0);
            assert_true(sum == right || (fired && (intptr_t)sum == -1));
            assert_true(skip > 0 || (intptr_t)sum == -1);
            assert_true(skip < 1000);
            if (!fired)
                break;
        }
}

/* What the hash in a map's name stands for: JSON, that of a blend with those of its parts. */
static void test_descriptions(void **state)
{
    char left[128], right[128], pattern[128];
    shoal_dataset *dataset = NULL;
    glob_t found;
    int parts = 0, blends = 0;
    (void)state;
    snprintf(left, sizeof left, "%s/left", folder);
    snprintf(right, sizeof right, "%s/right", folder);
    write_many("left", 50);
    write_many("right", 60);
    ok(create_split((const char *[]){"1", left, "2", right}, 4, "1", &dataset));
    shoal_loader *loader = open_loader(&(shoal_loader_args){.dataset = dataset,
                                                            .seq_length = 8,
                                                            .micro_batch = 1,
                                                            .micro_batches = 1,
                                                            .seed = SEED,
                                                            .sample_count = 10});
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
    snprintf(pattern, sizeof pattern, "%s/cache/*-description.txt", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        json_t *root = json_load_file(found.gl_pathv[i], 0, NULL);
        assert_non_null(root);
        const char *class = json_string_value(json_object_get(root, "class"));
        assert_non_null(class);
        parts += strcmp(class, "GPTDataset") == 0;
        if (strcmp(class, "BlendedDataset") == 0) {
            const json_t *list = json_object_get(root, "datasets");
            blends++;
            assert_int_equal(json_array_size(list), 2);
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(list, 1), "dataset_path")), right);
        }
        json_decref(root);
    }
    globfree(&found);
    assert_int_equal(parts, 2);
    assert_int_equal(blends, 1);
}

/* ---- mistakes ---- */

static void refuses(const char *const *paths, int32_t count, const char *split, const char *wanted)
{
    shoal_dataset *dataset = NULL;
    const shoal_status status = create_split(paths, count, split, &dataset);
    if (status >= 0 || shoal_status_exit_code(status) != 2)
        fail_msg("%s: status %d: %s", wanted, (int)status, shoal_error_message());
    if (!strstr(shoal_error_message(), wanted))
        fail_msg("no \"%s\" in: %s", wanted, shoal_error_message());
}

static void test_mistakes(void **state)
{
    char pair[128], bin[132], text[128], none[128];
    (void)state;
    snprintf(pair, sizeof pair, "%s/pair", folder);
    snprintf(bin, sizeof bin, "%s/pair.bin", folder);
    snprintf(text, sizeof text, "%s/text", folder);
    snprintf(none, sizeof none, "%s/none", folder);
    write_many("pair", 50);
    write_text("text", "some text", 9);
    refuses((const char *[]){bin}, 1, NULL, "give the prefix");
    refuses((const char *[]){pair, text}, 2, NULL, "is text, but other data paths");
    refuses((const char *[]){"1", pair, "2", text}, 4, NULL, "has no weight");
    refuses((const char *[]){"1", pair, "2", none}, 4, NULL, "none.idx: no such file");
    refuses((const char *[]){"1", pair, "x", pair}, 4, NULL, "the weight of");
    refuses((const char *[]){"0", pair, "1", pair}, 4, NULL, "weights are positive");
    refuses((const char *[]){pair}, 1, "0,0", "no weight is positive");
    refuses((const char *[]){pair}, 1, "1,2,3,4", "three weights");
    /* a text file that is called like a weight is no weight, and one beside an .idx no pair */
    snprintf(none, sizeof none, "%s/1", folder);
    write_text("1", "more text", 9);
    write_text("text.idx", "mine", 4);
    bool indexed = true;
    ok(shoali_indexed_recognize(
        &(shoal_dataset_args){.paths = (const char *[]){none, text}, .path_count = 2}, &indexed));
    assert_false(indexed);
    shoal_dataset *dataset = open_pair("pair", "99,1,0");
    shoal_loader *loader = NULL;
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = 8, .micro_batch = 1, .micro_batches = 1, .seed = SEED};
    args.split = SHOAL_SPLIT_TEST;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "no test part"));
    args.split = SHOAL_SPLIT_VALID;
    args.seq_length = 1000000;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    args.split = SHOAL_SPLIT_TRAIN;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "sequence length of 1000000 needs at least"));
    args.seq_length = 8;
    args.sample_count = INT64_MAX;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    args.sample_count = INT64_C(1) << 40;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "passes over"));
    args.sample_count = 10;
    args.seed = INT64_C(1) << 32;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "2^32"));
    shoal_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cache, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_damaged_map, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_faults, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_descriptions, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_mistakes, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
