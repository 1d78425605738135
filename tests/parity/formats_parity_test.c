/* Files that PyTorch, numpy and safetensors wrote (tests/golden/make_torch_golden.py), whole, cut
 * at every byte and with every byte changed. */
#include "base/test_cmocka.h"
#include "foreign/pickle.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const files[] = {"every.pt",    "views.pt",         "views_legacy.pt",
                                    "nested.pt",   "nested_legacy.pt", "nested_protocol5.pt",
                                    "tensor.pt",   "module.pt",        "evil.pt",
                                    "evil.pkl",    "unsigned.pt",      "array.npy",
                                    "columns.npy", "arrays.npz",       "every.safetensors"};
enum { FILES = sizeof files / sizeof files[0] };

static const char *path_of(const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/torch/%s", GOLDEN_FOLDER, name);
    return path;
}

static void open_golden(const char *name, struct shoali_tensor_file *view)
{
    char path[4096];
    if (shoali_tensor_file_open(path_of(name, path), view) < 0)
        fail_msg("%s", shoal_error_message());
}

/* One line of expected.txt against the file's tensor number *at. */
static void check_line(char *line, struct shoali_tensor_file *view, int32_t *at)
{
    char *rest = NULL, shape[SHOALI_FILE_TENSOR_SHAPE_BYTES], raw[16];
    const char *file = strtok_r(line, "\t", &rest), *name = strtok_r(NULL, "\t", &rest),
               *dtype = strtok_r(NULL, "\t", &rest);
    const char *ending = strrchr(view->input.path ? view->input.path : "/", '/') + 1;
    if (strcmp(ending, file) != 0) {
        assert_int_equal(*at, view->count);
        shoali_tensor_file_close(view);
        open_golden(file, view);
        *at = 0;
    }
    assert_true(*at < view->count);
    const struct shoali_file_tensor *weight = &view->tensor[(*at)++];
    assert_string_equal(weight->name, name);
    assert_string_equal(shoali_element_name(weight->type), dtype);
    (void)shoali_file_tensor_shape_text(weight, shape);
    char *number = strchr(rest, '\t'), *wanted = rest;
    *number++ = '\0';
    for (int32_t d = 0; d < weight->ndim; d++)
        assert_int_equal(strtoll(wanted, &wanted, 10), weight->dim[d]);
    assert_true(*wanted == '\0');
    for (int64_t i = 0; i < weight->count; i++) {
        double value;
        char *end;
        assert_int_equal(shoali_tensor_file_read(view, weight, i, 1, raw), SHOAL_OK);
        assert_true(shoali_element_to_f64(weight->type, raw, 1, &value));
        assert_true(value == strtod(number, &end) && end > number);
        number = end;
    }
    assert_true(*number == '\n' || *number == '\0');
}

static void test_every_number(void **state)
{
    (void)state;
    struct shoali_tensor_file view = {0};
    char path[4096], *line = NULL;
    size_t capacity = 0;
    int32_t at = 0, lines = 0;
    FILE *expected = fopen(path_of("expected.txt", path), "r");
    assert_non_null(expected);
    for (; getline(&line, &capacity, expected) > 0; lines++)
        check_line(line, &view, &at);
    assert_int_equal(at, view.count);
    assert_true(lines > 50);
    shoali_tensor_file_close(&view);
    free(line);
    fclose(expected);
}

static void test_values(void **state)
{
    (void)state;
    static const char *const names[] = {"nested.pt", "nested_legacy.pt", "nested_protocol5.pt"};
    for (size_t i = 0; i < 3; i++) {
        struct shoali_tensor_file view;
        int64_t integer = 0;
        double real = 0;
        open_golden(names[i], &view);
        assert_string_equal(view.kind, i == 1 ? "torch.save before 1.6" : "torch.save archive");
        const struct shoali_value *root = view.root;
        assert_true(shoali_value_int(shoali_value_get(root, "step"), &integer) && integer == 12);
        assert_true(shoali_value_real(shoali_value_get(root, "lr"), &real) && real == 1e-3);
        assert_true(shoali_value_real(shoali_value_get(root, "number"), &real) && real == 0.25);
        assert_string_equal(shoali_value_text(shoali_value_get(root, "name")), "a\x1b[31mred");
        assert_int_equal(shoali_value_get(root, "big")->kind, SHOALI_VALUE_LONG);
        assert_int_equal(shoali_value_get(root, "set")->kind, SHOALI_VALUE_SET);
        const struct shoali_value *bytes = shoali_value_get(root, "bytes");
        assert_int_equal(bytes->kind, SHOALI_VALUE_BYTES);
        assert_memory_equal(bytes->as.text.data, "\0\1", 2);
        const struct shoali_value *args = shoali_value_get(root, "args");
        assert_true(shoali_value_is_global(args->type, "argparse", "Namespace"));
        assert_true(shoali_value_int(shoali_value_get(args, "hidden"), &integer) && integer == 8);
        assert_true(shoali_value_is_global(shoali_value_get(root, "dtype"), "torch", "bfloat16"));
        assert_int_equal(shoali_value_count(shoali_value_get(root, "size")), 2);
        const struct shoali_value *level = shoali_value_get(root, "level");
        assert_int_equal(level->kind, SHOALI_VALUE_OBJECT);
        assert_true(shoali_value_int(shoali_value_at(level, 0), &integer) && integer == 1);
        shoali_tensor_file_close(&view);
    }
}

static void test_nothing_is_run(void **state)
{
    (void)state;
    static const char *const names[] = {"evil.pt", "evil.pkl"};
    for (size_t i = 0; i < 2; i++) {
        struct shoali_tensor_file view;
        bool named = false;
        open_golden(names[i], &view);
        for (int32_t g = 0; g < view.global_count; g++)
            named = named || shoali_value_is_global(view.global[g], "posix", "system");
        assert_true(named);
        assert_int_not_equal(access("shoal-was-here", F_OK), 0);
        shoali_tensor_file_close(&view);
    }
}

/* ---- damage ---- */

struct copy {
    char path[64];
    unsigned char bytes[8192];
    size_t count;
};

static void copy_init(struct copy *copy, const char *name)
{
    char path[4096];
    FILE *file = fopen(path_of(name, path), "rb");
    assert_non_null(file);
    copy->count = fread(copy->bytes, 1, sizeof copy->bytes, file);
    assert_true(copy->count > 0 && copy->count < sizeof copy->bytes);
    fclose(file);
    snprintf(copy->path, sizeof copy->path, "formats_parity.%d", (int)getpid());
}

static void copy_write(const struct copy *copy, size_t count)
{
    FILE *file = fopen(copy->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(copy->bytes, 1, count, file), count);
    fclose(file);
}

/* Whatever it says, it must be readable or refused with the file's name. */
static shoal_status read_all(const char *path)
{
    struct shoali_tensor_file file;
    char raw[16];
    shoal_status status = shoali_tensor_file_open(path, &file);
    if (status < 0) {
        assert_true(status == SHOAL_EINVAL || status == SHOAL_ENOMEM);
        assert_memory_equal(shoal_error_message(), path, strlen(path));
        return status;
    }
    for (int32_t t = 0; t < file.count; t++) {
        const struct shoali_file_tensor *weight = &file.tensor[t];
        if (weight->count > 0) {
            status = shoali_tensor_file_read(&file, weight, weight->count - 1, 1, raw);
            assert_int_equal(status,

                             weight->type == SHOALI_ELEMENT_COUNT ? SHOAL_EUNSUPPORTED : SHOAL_OK);
        }
    }
    shoali_tensor_file_close(&file);
    return SHOAL_OK;
}

static void test_cut_anywhere(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++) {
        struct copy copy;
        copy_init(&copy, files[f]);
        copy_write(&copy, copy.count);
        for (size_t count = copy.count; count-- > 0;) {
            assert_int_equal(truncate(copy.path, (off_t)count), 0);
            if (read_all(copy.path) == SHOAL_OK)
                fail_msg("%s cut to %zu bytes is read", files[f], count);
        }
        unlink(copy.path);
    }
}

static void test_changed_anywhere(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++) {
        struct copy copy;
        copy_init(&copy, files[f]);
        copy_write(&copy, copy.count);
        const int file = open(copy.path, O_WRONLY);
        assert_true(file >= 0);
        for (size_t at = 0; at < copy.count; at++) {
            const unsigned char was = copy.bytes[at],
                                other[] = {was ^ 0xff, (unsigned char)(was + 1), was ^ 0x80, was};
            for (int change = 0; change < 4; change++) {
                assert_int_equal(pwrite(file, &other[change], 1, (off_t)at), 1);
                if (change < 3)
                    (void)read_all(copy.path);
            }
        }
        close(file);
        unlink(copy.path);
    }
}

/* ---- made by hand: what no writer of today makes, and what only damage makes ---- */

static void copy_add(struct copy *copy, const void *bytes, size_t count)
{
    assert_true(copy->count + count < sizeof copy->bytes);
    memcpy(copy->bytes + copy->count, bytes, count);
    copy->count += count;
}
#define ADD(copy, literal) copy_add(copy, literal, sizeof(literal) - 1)

static void copy_empty(struct copy *copy)
{
    copy->count = 0;
    snprintf(copy->path, sizeof copy->path, "formats_parity.%d", (int)getpid());
}

/* BININT is signed, BININT1 and BININT2 are not; LONG1 is of any length. */
static void test_integers(void **state)
{
    (void)state;
    static const struct {
        char text[12];
        size_t bytes;
        int64_t value;
    } cases[] = {
        {"J\xff\xff\xff\xff", 5, -1},
        {"J\x00\x00\x00\x80", 5, INT32_MIN},
        {"J\xff\xff\xff\x7f", 5, INT32_MAX},
        {"K\xff", 2, 255},
        {"M\xff\xff", 3, 65535},
        {"\x8a\x01\xff", 3, -1},
        {"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", 10, INT64_MIN},
        {"\x8a\x05\xff\xff\xff\xff\x00", 7, 0xffffffff},
        {"\x8a\x00", 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct copy copy;
        struct shoali_tensor_file file;
        int64_t value = 77;
        copy_empty(&copy);
        ADD(&copy, "\x80\x02");
        copy_add(&copy, cases[i].text, cases[i].bytes);
        ADD(&copy, ".");
        copy_write(&copy, copy.count);
        if (shoali_tensor_file_open(copy.path, &file) < 0)
            fail_msg("%s", shoal_error_message());
        assert_true(shoali_value_int(file.root, &value));
        assert_true(value == cases[i].value);
        shoali_tensor_file_close(&file);
        unlink(copy.path);
    }
}

/* A file as before PyTorch 1.6: a tensor of two numbers, in a part of a storage of four. */
static void copy_with_view(struct copy *copy, char offset, char count)
{
    static const unsigned char magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19};
    static const float numbers[] = {1, 2, 3, 4, 5};
    const int64_t elements = 4;
    copy_empty(copy);
    ADD(copy, "\x80\x02\x8a\x0a");
    copy_add(copy, magic, sizeof magic);
    ADD(copy, ".\x80\x02M\xe9\x03.\x80\x02}.");
    ADD(copy, "\x80\x02"
              "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage"
              "ctorch\nFloatStorage\nX\x01\0\0\0"
              "0X\x03\0\0\0cpuK\x04(X\x01\0\0\0vK");
    copy_add(copy, &offset, 1);
    ADD(copy, "K");
    copy_add(copy, &count, 1);
    ADD(copy, "ttQK\0K\x02\x85K\x01\x85\x89}tR.");
    ADD(copy, "\x80\x02]X\x01\0\0\0"
              "0a.");
    copy_add(copy, &elements, sizeof elements);
    copy_add(copy, numbers, sizeof numbers); /* one more than the storage has */
}

static void test_views(void **state)
{
    (void)state;
    for (char offset = 0; offset <= 4; offset++) {
        struct copy copy;
        struct shoali_tensor_file file;
        float numbers[2];
        copy_with_view(&copy, offset, 2);
        copy_write(&copy, copy.count);
        const shoal_status status = shoali_tensor_file_open(copy.path, &file);
        if (offset > 2) {
            assert_int_equal(status, SHOAL_EINVAL);
            assert_non_null(strstr(shoal_error_message(), "has 16 bytes, its pickle says"));
        } else {
            assert_int_equal(status, SHOAL_OK);
            assert_int_equal(shoali_tensor_file_read(&file, &file.tensor[0], 0, 2, numbers),
                             SHOAL_OK);
            assert_true(numbers[0] == (float)(offset + 1) && numbers[1] == (float)(offset + 2));
            shoali_tensor_file_close(&file);
        }
        unlink(copy.path);
    }
}

static uint32_t number_at(const unsigned char *at, int bytes)
{
    uint32_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | at[bytes];
    return number;
}

static void put_number(unsigned char *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

/* The member of one entry of an archive's directory, said to have this many bytes. */
static void expect_member(const struct copy *copy, size_t entry, uint32_t bytes, const char *words)
{
    struct copy changed = *copy;
    struct shoali_tensor_file file;
    put_number(changed.bytes + entry + 20, bytes);
    put_number(changed.bytes + entry + 24, bytes);
    copy_write(&changed, changed.count);
    assert_int_equal(shoali_tensor_file_open(changed.path, &file), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), words))
        fail_msg("`%s` does not say `%s`", shoal_error_message(), words);
    unlink(changed.path);
}

/* A member that ends behind the file, by one byte or by many, and one that is shorter than what is
 * in it. */
static void test_cut_members(void **state)
{
    (void)state;
    struct copy copy;
    int found = 0;
    copy_init(&copy, "tensor.pt");
    for (size_t at = 0; at + 46 < copy.count; at++) {
        if (memcmp(copy.bytes + at, "PK\1\2", 4) != 0)
            continue;
        const size_t length = number_at(copy.bytes + at + 28, 2);
        const char *name = (const char *)copy.bytes + at + 46;
        const size_t header = number_at(copy.bytes + at + 42, 4);
        const bool pickle = length > 9 && memcmp(name + length - 9, "/data.pkl", 9) == 0;
        const bool numbers = length > 7 && memcmp(name + length - 7, "/data/0", 7) == 0;
        if (!pickle && !numbers)
            continue;
        const size_t data = header + 30 + number_at(copy.bytes + header + 26, 2) +
                            number_at(copy.bytes + header + 28, 2);
        const uint32_t left = (uint32_t)(copy.count - data);
        expect_member(&copy, at, left + 1, "is not where the directory says");
        expect_member(&copy, at, (uint32_t)copy.count, "is not where the directory says");
        expect_member(&copy, at, number_at(copy.bytes + at + 24, 4) - 1,
                      pickle ? "ends" : "its pickle says");
        found++;
    }
    assert_int_equal(found, 2);
}

static void test_shrinking(void **state)
{
    (void)state;
    struct copy copy;
    struct shoali_tensor_file file;
    float numbers[24];
    copy_init(&copy, "tensor.pt");
    copy_write(&copy, copy.count);
    assert_int_equal(shoali_tensor_file_open(copy.path, &file), SHOAL_OK);
    assert_int_equal(truncate(copy.path, 700), 0);
    assert_int_equal(shoali_tensor_file_read(&file, &file.tensor[0], 0, 24, numbers), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "it became shorter while it was read"));
    assert_non_null(strstr(shoal_error_message(), "tensor `tensor`"));
    shoali_tensor_file_close(&file);
    unlink(copy.path);
}

/* The n-th allocation fails, for every n: an error, and nothing leaks (AddressSanitizer sees). */
static void test_without_memory(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++) {
        char path[4096], spec[32];
        bool fired = true;
        for (int n = 0; fired; n++) {
            struct shoali_tensor_file file;
            snprintf(spec, sizeof spec, "alloc:%d", n);
            assert_true(shoali_fault_arm(spec));
            const shoal_status status = shoali_tensor_file_open(path_of(files[f], path), &file);
            fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            if (fired ? status != SHOAL_ENOMEM && status != SHOAL_EINVAL : status != SHOAL_OK)
                fail_msg("%s, %s: status %d", path, spec, (int)status);
            if (status == SHOAL_OK)
                shoali_tensor_file_close(&file);
            assert_true(n < 3000);
        }
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *file, *sentence;
    } cases[] = {
        {"packed.npz", "is compressed"},
        {"big_endian.npy", "little-endian"},
        {"expected.txt", "its beginning is of no known format"},
        {"none.pt", "No such file"},
        {".", "not a plain file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shoali_tensor_file file;
        char path[4096];
        assert_true(shoali_tensor_file_open(path_of(cases[i].file, path), &file) < 0);
        if (!strstr(shoal_error_message(), cases[i].sentence))
            fail_msg("%s: %s", cases[i].file, shoal_error_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number),     cmocka_unit_test(test_values),
        cmocka_unit_test(test_nothing_is_run),   cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_changed_anywhere), cmocka_unit_test(test_shrinking),
        cmocka_unit_test(test_without_memory),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_integers),         cmocka_unit_test(test_views),
        cmocka_unit_test(test_cut_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
