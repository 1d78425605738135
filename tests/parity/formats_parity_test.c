/* Files that PyTorch, numpy and safetensors wrote (tests/golden/make_torch_golden.py), whole, cut at
 * every byte and with every byte changed. */
#include "formats/pickle.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
        bool whole = false;
        for (int n = 0; !whole; n++) {
            struct shoali_tensor_file file;
            snprintf(spec, sizeof spec, "alloc:%d", n);
            assert_true(shoali_fault_arm(spec));
            const shoal_status status = shoali_tensor_file_open(path_of(files[f], path), &file);
            assert_true(shoali_fault_arm(NULL));
            assert_true(status == SHOAL_OK || status == SHOAL_ENOMEM || status == SHOAL_EINVAL);
            whole = status == SHOAL_OK;
            if (whole)
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
        {"big_endian.npy", "lowest byte first"},
        {"expected.txt", "begins like no file of tensors"},
        {"none.pt", "No such file"},
        {".", "give a plain file"},
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
