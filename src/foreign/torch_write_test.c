/* What is written as torch.save's archive is read back: tensors larger than the writer's buffer, in
 * pieces of any size, at aligned places. The directory of the archive says the same as its members,
 * and a disk that is full is an error when it is noticed. */
#include "foreign/torch_write.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "formats/formats.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path_of(const char *name)
{
    static char path[2][128];
    static int next;
    next = !next;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

enum { COUNT = 300000, TENSORS = 3 }; /* 1.2 MB each */

static void write_archive(const char *path, const float *numbers)
{
    static const char *const names[TENSORS] = {"a", "longer.name", "c"};
    static const int64_t pieces[TENSORS] = {1, 4099, COUNT};
    const shoal_shape shape = {.ndim = 1, .dim = {COUNT}};
    struct shoali_pickling pickling = {0};
    struct shoali_torch_writer writer = {0};
    shoali_pickling_begin(&pickling);
    shoali_pickling_dict(&pickling);
    for (int t = 0; t < TENSORS; t++) {
        shoali_pickling_text(&pickling, names[t]);
        shoali_pickling_tensor(&pickling, SHOAL_F32, &shape);
        shoali_pickling_item(&pickling);
    }
    shoali_pickling_end(&pickling);
    ok(shoali_torch_writer_open(&writer, path, &pickling));
    shoali_pickling_fini(&pickling);
    for (int t = 0; t < TENSORS; t++) {
        ok(shoali_torch_writer_begin(&writer, COUNT * (int64_t)sizeof(float)));
        for (int64_t at = 0, count; at < COUNT; at += count) {
            count = COUNT - at < pieces[t] ? COUNT - at : pieces[t];
            ok(shoali_torch_writer_put(&writer, numbers + t + at, count * (int64_t)sizeof(float)));
        }
    }
    ok(shoali_torch_writer_finish(&writer));
    shoali_torch_writer_close(&writer);
}

static void test_round_trip(void **state)
{
    const char *path = path_of("large");
    struct shoali_tensor_file file;
    struct stat info;
    (void)state;
    float *numbers = malloc((COUNT + TENSORS) * sizeof *numbers);
    float *got = malloc(COUNT * sizeof *got);
    assert_non_null(numbers);
    assert_non_null(got);
    for (int i = 0; i < COUNT + TENSORS; i++)
        numbers[i] = (float)i;
    write_archive(path, numbers);
    ok(shoali_tensor_file_open(path, &file));
    assert_string_equal(file.kind, "torch.save archive");
    assert_int_equal(file.count, TENSORS);
    for (int32_t t = 0; t < TENSORS; t++) {
        assert_int_equal(file.tensor[t].at % 64, 0); /* as PyTorch maps it */
        ok(shoali_tensor_file_read(&file, &file.tensor[t], 0, COUNT, got));
        assert_memory_equal(got, numbers + t, COUNT * sizeof *got);
    }
    shoali_tensor_file_close(&file);
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size < TENSORS * COUNT * (off_t)sizeof *got + 4096);
    unlink(path);
    free(numbers);
    free(got);
}

/* ---- the directory ---- */

enum { END64 = 56, LOCATOR = 20, END = 22, ENTRY = 46, WIDE = 28 };

static int64_t number_at(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | at[bytes];
    return (int64_t)number;
}

static void put_number(unsigned char *at, int64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)((uint64_t)number >> (8 * i));
}

/* An archive of one tensor of four numbers. */
static void write_small(const char *path)
{
    static const float numbers[] = {1, 2, 3, 4};
    const shoal_shape shape = {.ndim = 1, .dim = {4}};
    struct shoali_pickling pickling = {0};
    struct shoali_torch_writer writer;
    (void)unlink(path);
    shoali_pickling_begin(&pickling);
    shoali_pickling_tensor(&pickling, SHOAL_F32, &shape);
    shoali_pickling_end(&pickling);
    ok(shoali_torch_writer_open(&writer, path, &pickling));
    ok(shoali_torch_writer_begin(&writer, sizeof numbers));
    ok(shoali_torch_writer_put(&writer, numbers, sizeof numbers));
    ok(shoali_torch_writer_finish(&writer));
    shoali_torch_writer_close(&writer);
    shoali_pickling_fini(&pickling);
}

/* Each entry is what its member says, and the entries fill the directory. */
static void test_directory(void **state)
{
    unsigned char *data = NULL;
    size_t bytes;
    (void)state;
    write_small(path_of("small"));
    ok(shoali_read_file(path_of("small"), (char **)&data, &bytes));
    const unsigned char *end64 = data + bytes - END - LOCATOR - END64;
    const int64_t count = number_at(end64 + 32, 8), at = number_at(end64 + 48, 8);
    assert_int_equal(count, 4); /* data.pkl, byteorder, data/0, version */
    assert_int_equal(number_at(end64 + END64 + 8, 8), end64 - data);
    const unsigned char *entry = data + at;
    for (int64_t i = 0; i < count; i++) {
        const int64_t name = number_at(entry + 28, 2), extra = number_at(entry + 30, 2);
        const unsigned char *wide = entry + ENTRY + name;
        assert_int_equal(number_at(entry, 4), 0x02014b50);
        assert_int_equal(number_at(entry + 14, 2), 0x21); /* the first of January 1980 */
        assert_int_equal(extra, WIDE);
        assert_int_equal(number_at(wide, 4), 1 | 24 << 16);
        const unsigned char *local = data + number_at(wide + 20, 8);
        assert_int_equal(number_at(local, 4), 0x04034b50);
        /* from the version to the length of the name; the name; both sizes */
        assert_memory_equal(local + 4, entry + 6, 24);
        assert_memory_equal(local + 30, entry + ENTRY, name);
        assert_memory_equal(local + 30 + name + 4, wide + 4, 16);
        entry = wide + extra;
    }
    assert_int_equal(entry - data, at + number_at(end64 + 40, 8));
    assert_ptr_equal(entry, end64);
    free(data);
}

/* Other programs put other extra fields in front of the sizes. */
static void test_other_fields(void **state)
{
    enum { MORE = 12 };
    static const unsigned char other[MORE] = {0x55, 0x54, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    struct shoali_tensor_file file;
    unsigned char *data = NULL;
    float got[4];
    size_t bytes;
    (void)state;
    write_small(path_of("small"));
    ok(shoali_read_file(path_of("small"), (char **)&data, &bytes));
    data = realloc(data, bytes + MORE);
    assert_non_null(data);
    unsigned char *end64 = data + bytes - END - LOCATOR - END64;
    unsigned char *entry = data + number_at(end64 + 48, 8);
    unsigned char *wide = entry + ENTRY + number_at(entry + 28, 2);
    put_number(entry + 30, WIDE + MORE, 2);
    put_number(end64 + 40, number_at(end64 + 40, 8) + MORE, 8);
    put_number(end64 + END64 + 8, end64 - data + MORE, 8);
    memmove(wide + MORE, wide, (size_t)(data + bytes - wide));
    memcpy(wide, other, MORE);
    ok(shoali_write_file_atomic(path_of("other"), (const char *)data, bytes + MORE));
    ok(shoali_tensor_file_open(path_of("other"), &file));
    ok(shoali_tensor_file_read(&file, &file.tensor[0], 0, 4, got));
    assert_true(got[0] == 1 && got[3] == 4);
    shoali_tensor_file_close(&file);
    free(data);
}

/* ---- what fails ---- */

static void test_no_pickle(void **state)
{
    const struct shoali_pickling pickling = {.text.failed = true};
    struct shoali_torch_writer writer;
    (void)state;
    assert_int_equal(shoali_torch_writer_open(&writer, path_of("none"), &pickling), SHOAL_ENOMEM);
    assert_int_equal(writer.descriptor, -1); /* `close` closes nothing of anybody else's */
    shoali_torch_writer_close(&writer);
    assert_int_not_equal(access(path_of("none"), F_OK), 0);
}

/* With room for so many bytes: the call that brings more of them to the disk fails. */
static void test_full(void **state)
{
    static char zeros[4096];
    const shoal_shape shape = {.ndim = 1, .dim = {sizeof zeros / sizeof(float)}};
    struct shoali_pickling pickling = {0};
    struct shoali_torch_writer writer;
    struct rlimit was, small;
    (void)state;
    shoali_pickling_begin(&pickling);
    shoali_pickling_tensor(&pickling, SHOAL_F32, &shape);
    shoali_pickling_end(&pickling);
    ok(shoali_torch_writer_open(&writer, path_of("full"), &pickling));
    ok(shoali_torch_writer_begin(&writer, sizeof zeros));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){.rlim_cur = 2048, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const shoal_status status = shoali_torch_writer_put(&writer, zeros, sizeof zeros);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_true(status < 0);
    assert_non_null(strstr(shoal_error_message(), "/full: cannot write"));
    assert_non_null(strstr(shoal_error_message(), "(ulimit -f)"));
    shoali_torch_writer_close(&writer);
    shoali_pickling_fini(&pickling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_directory),
        cmocka_unit_test(test_other_fields), cmocka_unit_test(test_no_pickle),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
