/* What is saved under one layout is read under any other; the bytes depend on the model alone. */
#include "base/test_cmocka.h"
#include "checkpoint_model.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- an independent look at the files ---- */

/* Item size by the format's own names; deliberately not the library's table. */
static int64_t item_bytes(const char *dtype)
{
    if (strcmp(dtype, "F64") == 0 || strcmp(dtype, "I64") == 0)
        return 8;
    if (strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0)
        return 4;
    return strcmp(dtype, "U8") == 0 ? 1 : 2;
}

/* Asserts that a file is what the safetensors format asks for; returns how many tensors it has. */
static size_t check_safetensors(const char *dir, const char *name)
{
    size_t bytes, tensors = 0;
    unsigned char *data = (unsigned char *)model_read_file(dir, name, &bytes);
    assert_true(bytes >= 8);
    uint64_t head = 0;
    for (int i = 7; i >= 0; i--)
        head = head << 8 | data[i];
    assert_true(head <= bytes - 8);
    assert_int_equal((head + 8) % 4096, 0);
    assert_int_equal(data[8], '{');
    json_t *root = json_loadb((char *)data + 8, (size_t)head, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const char *key;
    json_t *value;
    json_int_t at = 0;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        json_int_t begin, end, count = 1;
        const char *dtype;
        json_t *shape;
        size_t d;
        json_t *dim;
        assert_int_equal(json_unpack(value, "{s:s, s:o, s:[I,I!]!}", "dtype", &dtype, "shape",
                                     &shape, "data_offsets", &begin, &end),
                         0);
        json_array_foreach(shape, d, dim)
        {
            count *= json_integer_value(dim);
        }
        assert_true(begin == at); /* no holes, file order */
        assert_true(end - begin == count * item_bytes(dtype));
        at = end;
        tensors++;
    }
    assert_true((uint64_t)at + head + 8 == bytes);
    json_decref(root);
    free(data);
    return tensors;
}

/* Every file of a checkpoint's folder; returns the tensors of all kinds. */
static size_t check_folder(const char *dir, const char *tag)
{
    char path[256];
    size_t tensors = 0;
    snprintf(path, sizeof path, "%s/%s", dir, tag);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        const size_t length = strlen(entry->d_name);
        if (length > 12 && strcmp(entry->d_name + length - 12, ".safetensors") == 0)
            tensors += check_safetensors(path, entry->d_name);
    }
    closedir(folder);
    return tensors;
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

/* Same names, same bytes. */
static void check_same_folders(const char *a, const char *b)
{
    DIR *folder = opendir(a);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        size_t bytes_a, bytes_b;
        if (entry->d_name[0] == '.')
            continue;
        char *data_a = model_read_file(a, entry->d_name, &bytes_a);
        char *data_b = model_read_file(b, entry->d_name, &bytes_b);
        assert_int_equal(bytes_a, bytes_b);
        assert_memory_equal(data_a, data_b, bytes_a);
        free(data_a);
        free(data_b);
    }
    closedir(folder);
    assert_int_equal(count_entries(a), count_entries(b));
}

/* ---- tests ---- */

static void test_layouts(void **state)
{
    (void)state;
    char dir[64], first[128], path[128];
    struct model model;
    model_random(&model, 11, 40);
    model_folder_make(dir);
    for (int32_t saved = 1; saved <= 4; saved++) {
        char tag[16];
        snprintf(tag, sizeof tag, "n%d", saved);
        struct model_run run = {.model = &model,
                                .dir = dir,
                                .tag = tag,
                                .ranks = saved,
                                .layout = (uint64_t)saved,
                                .content = 5,
                                .step = 3,
                                .refusing_rank = -1};
        model_save_expect(&run, SHOAL_OK);
        assert_int_equal(check_folder(dir, tag), 3 * model.tensor_count);
        snprintf(first, sizeof first, "%s/n1", dir);
        snprintf(path, sizeof path, "%s/%s", dir, tag);
        check_same_folders(first, path);
        for (int32_t loaded = 1; loaded <= 4; loaded++) {
            run.ranks = loaded;
            run.layout = (uint64_t)(10 * saved + loaded);
            run.pieces = loaded;
            model_load_expect(&run, SHOAL_OK);
        }
    }
    model_folder_remove(dir);
}

static void test_random_models(void **state)
{
    (void)state;
    char dir[64];
    model_folder_make(dir);
    for (uint64_t seed = 1; seed <= 25; seed++) {
        struct model model;
        model_random(&model, seed, 1 + (int64_t)seed);
        print_message("seed %d: %d tensors, %lld elements\n", (int)seed, model.tensor_count,
                      (long long)model.flat_count);
        struct model_run run = {.model = &model,
                                .dir = dir,
                                .tag = "same",
                                .ranks = 1 + (int32_t)(seed % 4),
                                .pieces = (int32_t)(seed % 3),
                                .layout = seed,
                                .content = seed,
                                .step = (int64_t)seed,
                                .refusing_rank = -1};
        model_save_expect(&run, SHOAL_OK);
        assert_int_equal(check_folder(dir, "same"), 3 * model.tensor_count);
        run.ranks = 1 + (int32_t)(seed / 4 % 4);
        run.layout = seed + 1000;
        run.tag = NULL;
        model_load_expect(&run, SHOAL_OK);
    }
    assert_int_equal(count_entries(dir), 2); /* `same` and `latest`: nothing was left behind */
    model_folder_remove(dir);
}

/* Tensors and parts that end inside, at and behind the 16 MiB chunks. */
static void test_several_chunks(void **state)
{
    (void)state;
    char dir[64];
    struct model model = {0};
    model_add(&model, "a", shoal_shape_1(4193280)); /* with the header exactly one chunk */
    model_add(&model, "b", shoal_shape_2(3, 1000));
    model_add(&model, "c", shoal_shape_1(4194304 + 1));
    model_add_kind(&model, "model", SHOAL_F32, false);
    model_add_kind(&model, "copy", SHOAL_BF16, true);
    model_folder_make(dir);
    struct model_run run = {.model = &model,
                            .dir = dir,
                            .tag = "t",
                            .ranks = 3,
                            .layout = 2,
                            .content = 9,
                            .refusing_rank = -1};
    model_save_expect(&run, SHOAL_OK);
    assert_int_equal(check_folder(dir, "t"), 6);
    run.ranks = 2;
    run.layout = 5;
    model_load_expect(&run, SHOAL_OK);
    model_folder_remove(dir);
}

static void test_files_are_cut_at_tensors(void **state)
{
    (void)state;
    char dir[64], path[128];
    size_t bytes;
    struct model model = {.max_shard_bytes = 400};
    model_add(&model, "small", shoal_shape_1(60));
    model_add(&model, "fits", shoal_shape_1(40));
    model_add(&model, "empty", shoal_shape_2(0, 5));
    model_add(&model, "larger_than_a_file", shoal_shape_1(500));
    model_add(&model, "last", shoal_shape_1(1));
    model_add_kind(&model, "model", SHOAL_F32, false);
    model_folder_make(dir);
    struct model_run run = {
        .model = &model, .dir = dir, .tag = "t", .ranks = 1, .refusing_rank = -1};
    model_save_expect(&run, SHOAL_OK);
    snprintf(path, sizeof path, "%s/t", dir);
    assert_int_equal(count_entries(path), 5); /* 3 files, index, manifest */
    assert_int_equal(check_safetensors(path, "model-00001-of-00003.safetensors"), 3);
    assert_int_equal(check_safetensors(path, "model-00002-of-00003.safetensors"), 1);
    assert_int_equal(check_safetensors(path, "model-00003-of-00003.safetensors"), 1);
    char *text = model_read_file(path, "model.safetensors.index.json", &bytes);
    json_t *index = json_loads(text, 0, NULL);
    const char *file;
    json_int_t total;
    assert_int_equal(json_unpack(index, "{s:{s:I}, s:{s:s}}", "metadata", "total_size", &total,
                                 "weight_map", "last", &file),
                     0);
    assert_string_equal(file, "model-00003-of-00003.safetensors");
    assert_int_equal(total, 601 * 4);
    json_decref(index);
    free(text);
    model_folder_remove(dir);
}

static void test_info_and_fewer_kinds(void **state)
{
    (void)state;
    char dir[64];
    struct model model = {0}, weights;
    struct shoali_checkpoint_info info;
    model_add(&model, "w", shoal_shape_2(7, 9));
    weights = model;
    weights.names[0] = weights.name_text[0];
    model_add_kind(&model, "master", SHOAL_F32, false);
    model_add_kind(&model, "model", SHOAL_BF16, true);
    model_add_kind(&weights, "model", SHOAL_BF16, false);
    model_folder_make(dir);
    struct model_run run = {.model = &model,
                            .dir = dir,
                            .tag = "global_step12",
                            .ranks = 2,
                            .layout = 1,
                            .step = 12,
                            .client_json = "{ \"epoch\" : [1, null] }",
                            .refusing_rank = -1};
    model_save_expect(&run, SHOAL_OK);
    assert_int_equal(shoali_checkpoint_open(dir, NULL, &info), SHOAL_OK);
    assert_string_equal(info.tag, "global_step12");
    assert_string_equal(info.client_json, "{\"epoch\":[1,null]}");
    json_t *engine = json_loads(info.engine_json, 0, NULL);
    assert_true(json_real_value(json_object_get(engine, "scale")) == 0.1);
    assert_int_equal(json_integer_value(json_object_get(engine, "seed")), 7);
    json_decref(engine);
    assert_int_equal(info.step, 12);
    assert_int_equal(info.kind_count, 2);
    assert_string_equal(info.kind_name[1], "model");
    assert_int_equal(info.kind_dtype[1], SHOAL_BF16);
    shoali_checkpoint_info_fini(&info);
    run.model = &weights;
    model_load_expect(&run, SHOAL_OK);
    weights.kinds[0].name = "exp_avg";
    model_load_expect(&run, SHOAL_EINVAL);
    assert_non_null(strstr(run.message[0], "has no `exp_avg`"));
    weights.kinds[0] = (struct model_kind){"model", SHOAL_F32, false};
    model_load_expect(&run, SHOAL_EINVAL);
    assert_non_null(strstr(run.message[1], "is BF16, this run has F32"));
    model_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_several_chunks), cmocka_unit_test(test_files_are_cut_at_tensors),
        cmocka_unit_test(test_info_and_fewer_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
