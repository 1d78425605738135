/* Files of tensors: headers that are refused, tensors in file order, reads that jump, and what
 * happens without memory or when the file changes. */
#include "formats/formats.h"

#include "base/fault.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A safetensors file with this header and so many bytes 0, 1, 2, ... behind it. */
static const char *write_file(const char *header, int64_t data_bytes)
{
    const char *path = path_of("file.safetensors");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    const uint64_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 0xff), file);
    fputs(header, file);
    for (int64_t i = 0; i < data_bytes; i++)
        fputc((int)(i & 0xff), file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void refuses(const char *header, int64_t data_bytes, const char *wanted)
{
    struct shoali_tensor_file file;
    assert_int_equal(shoali_tensor_file_open(write_file(header, data_bytes), &file), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), wanted))
        fail_msg("%s: no \"%s\" in: %s", header, wanted, shoal_error_message());
}

static void test_headers(void **state)
{
    (void)state;
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "need 8 bytes");
    /* 2^62 elements of 8 bytes do not fit into 64 bits */
    refuses("{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,1]}}", 1,
            "need -1 bytes");
    refuses("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "entry `a` cannot be read");
    static const char *const shapes[] = {"[-1]", "[\"1\"]", "[1.0]", "1", "[1,-1]"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":%s,\"data_offsets\":[0,1]}}", shapes[i]);
        refuses(header, 1, "entry `a` cannot be read");
    }
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "without gaps");
}

/* Whatever the order of the header. */
static void test_order(void **state)
{
    static const char header[] = "{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[5,7]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]},"
                                 "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    static const unsigned char wanted[3] = {0, 1, 5};
    struct shoali_tensor_file file;
    (void)state;
    ok(shoali_tensor_file_open(write_file(header, 7), &file));
    assert_int_equal(file.count, 3);
    for (int32_t i = 0; i < 3; i++) {
        unsigned char first;
        assert_int_equal(file.tensor[i].name[0], 'a' + i);
        ok(shoali_tensor_file_read(&file, &file.tensor[i], 0, 1, &first));
        assert_int_equal(first, wanted[i]);
    }
    shoali_tensor_file_close(&file);
}

/* A transposed matrix that is larger than the part of the file that is kept. One element begins in
 * the kept part and ends behind it. */
static void test_strides(void **state)
{
    enum { ROWS = 150, COLUMNS = 301, COUNT = ROWS * COLUMNS };
    static const int64_t dim[] = {COLUMNS, ROWS}, stride[] = {1, COLUMNS};
    static int16_t number[COUNT], got[COUNT];
    struct shoali_tensor_file file;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        number[i] = (int16_t)i;
    ok(shoali_write_file_atomic(path_of("raw"), (const char *)number, sizeof number));
    memset(&file, 0, sizeof file);
    ok(shoali_input_open(path_of("raw"), &file.input));
    const struct shoali_file_tensor matrix = {.name = "matrix",
                                              .type = SHOALI_ELEMENT_I16,
                                              .ndim = 2,
                                              .dim = dim,
                                              .stride = stride,
                                              .count = COUNT,
                                              .bytes = sizeof number};
    assert_true(shoali_fault_arm("alloc"));
    assert_int_equal(shoali_tensor_file_read(&file, &matrix, 0, 1, got), SHOAL_ENOMEM);
    assert_true(shoali_fault_arm(NULL));
    ok(shoali_tensor_file_read(&file, &matrix, 0, COUNT, got));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(got[i], number[i % ROWS * COLUMNS + i / ROWS]);
    memset(got, 0, sizeof got);
    ok(shoali_tensor_file_read(&file, &matrix, ROWS - 1, 3,
                               got)); /* across a row's end, and no more */
    for (int i = 0; i < 5; i++)
        assert_int_equal(
            got[i], i < 3 ? number[(ROWS - 1 + i) % ROWS * COLUMNS + (ROWS - 1 + i) / ROWS] : 0);

    ok(shoali_tensor_file_read(&file, &matrix, 0, 1, got));
    const struct shoali_file_tensor wide = {.name = "wide",
                                            .type = SHOALI_ELEMENT_I64,
                                            .ndim = 1,
                                            .dim = (const int64_t[]){1},
                                            .stride = (const int64_t[]){1},
                                            .count = 1,
                                            .bytes = 8,
                                            .at = file.window_at + file.window_bytes - 2};
    int64_t eight;
    ok(shoali_tensor_file_read(&file, &wide, 0, 1, &eight));
    assert_memory_equal(&eight, (const char *)number + wide.at, 8);
    shoali_tensor_file_close(&file);
}

static void test_shape(void **state)
{
    static const int64_t dim[SHOAL_MAX_DIMS + 1] = {3, 2, 77};
    struct shoali_file_tensor tensor = {.ndim = 2, .dim = dim};
    shoal_shape shape;
    (void)state;
    assert_true(shoali_file_tensor_shape(&tensor, &shape));
    assert_int_equal(shape.ndim, 2);
    assert_true(shape.dim[0] == 3 && shape.dim[1] == 2 && shape.dim[2] == 0);
    tensor.ndim = SHOAL_MAX_DIMS + 1;
    assert_false(shoali_file_tensor_shape(&tensor, &shape));
}

/* What eight bits stand for, as their definition says: sign, exponent, mantissa. */
static double eight_bits(int bits, int mantissa_bits, int bias, bool has_infinity)
{
    const int exponent = (bits & 0x7f) >> mantissa_bits, ones = (1 << mantissa_bits) - 1;
    const double part = (double)(bits & ones) / (ones + 1), sign = bits & 0x80 ? -1 : 1;
    const bool on_top = exponent == 0x7f >> mantissa_bits;
    if (has_infinity && on_top)
        return bits & ones ? (double)NAN : sign * (double)INFINITY;
    if (on_top && (bits & ones) == ones)
        return (double)NAN;
    return sign * (exponent ? pow(2, exponent - bias) * (1 + part) : pow(2, 1 - bias) * part);
}

static void test_small_floats(void **state)
{
    (void)state;
    for (int bits = 0; bits < 256; bits++) {
        const unsigned char byte = (unsigned char)bits;
        const double wanted[] = {eight_bits(bits, 3, 7, false), eight_bits(bits, 2, 15, true)};
        for (int e = 0; e < 2; e++) {
            const enum shoali_element type = e ? SHOALI_ELEMENT_F8_E5M2 : SHOALI_ELEMENT_F8_E4M3;
            double wide;
            float real;
            assert_true(shoali_element_to_f64(type, &byte, 1, &wide));
            assert_true(shoali_element_to_f32(type, &byte, 1, &real));
            assert_true(isnan(wanted[e]) ? isnan(wide) && isnan(real)
                                         : wide == wanted[e] && real == (float)wanted[e]);
        }
    }
}

/* A complex number is no number of one column. */
static void test_complex(void **state)
{
    static const enum shoali_element types[] = {SHOALI_ELEMENT_C64, SHOALI_ELEMENT_C128};
    static const char bytes[16] = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double wide = 7;
        float real = 7;
        assert_false(shoali_element_to_f64(types[i], bytes, 1, &wide));
        assert_false(shoali_element_to_f32(types[i], bytes, 1, &real));
        assert_true(wide == 7 && real == 7);
    }
}

/* Each allocation fails once: it is said to be that, and nothing else. */
static void test_without_memory(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"Odd\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    const char *path = write_file(header, 1);
    shoal_status status = SHOAL_ENOMEM;
    (void)state;
    for (int skip = 0; status < 0; skip++) {
        char spec[32];
        struct shoali_tensor_file file;
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        status = shoali_tensor_file_open(path, &file);
        assert_true(shoali_fault_arm(NULL));
        assert_true(skip < 20 && (status == SHOAL_OK || status == SHOAL_ENOMEM));
        assert_true(skip > 0 || status < 0);
        if (status == SHOAL_OK)
            assert_string_equal(shoali_file_tensor_type(&file.tensor[0]), "Odd");
        shoali_tensor_file_close(&file);
    }
}

/* ---- the file under it ---- */

static void test_shorter(void **state)
{
    struct shoali_input input;
    char bytes[10];
    (void)state;
    ok(shoali_write_file_atomic(path_of("ten"), "0123456789", 10));
    ok(shoali_input_open(path_of("ten"), &input));
    static const int64_t outside[][2] = {{2, 9}, {11, 0}, {-1, 1}, {0, -1}};
    for (int i = 0; i < 4; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "/ten: bytes %lld to %lld are needed, but it has 10",
                 (long long)outside[i][0], (long long)(outside[i][0] + outside[i][1] - 1));
        assert_int_equal(shoali_input_read(&input, outside[i][0], outside[i][1], bytes),
                         SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), wanted));
    }
    ok(shoali_input_read(&input, 10, 0, bytes)); /* nothing, behind the last */
    assert_int_equal(truncate(path_of("ten"), 6), 0);
    assert_int_equal(shoali_input_read(&input, 2, 8, bytes), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "byte 6: it became shorter"));
    shoali_input_close(&input);
}

static void test_unreadable(void **state)
{
    char path[] = "some", bytes[4];
    (void)state;
    ok(shoali_write_file_atomic(path_of("four"), "0123", 4));
    const struct shoali_input input = {
        .path = path, .bytes = 4, .descriptor = open(path_of("four"), O_WRONLY)};
    assert_true(input.descriptor >= 0);
    assert_int_equal(shoali_input_read(&input, 1, 3, bytes), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "byte 1: cannot read"));
    close(input.descriptor);
}

/* A folder is no file of tensors; nothing of the process is closed instead of it. */
static void test_folder(void **state)
{
    struct shoali_input input;
    const int standard = fcntl(STDIN_FILENO, F_GETFD);
    (void)state;
    assert_int_equal(shoali_input_open(folder, &input), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), ": not a plain file: give a file of tensors"));
    assert_int_equal(shoali_input_open(path_of("nowhere"), &input), SHOAL_ENOENT);
    shoali_input_close(&input);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), standard);
}

/* What a terminal would obey is no part of a sentence. */
static void test_sentences(void **state)
{
    char path[] = "file";
    const struct shoali_input input = {.path = path};
    (void)state;
    assert_int_equal(shoali_input_fail(&input, 7, "`%s`", "a\x1b[31m\x7f\n\xc3\xa9"), SHOAL_EINVAL);
    assert_string_equal(shoal_error_message(), "file, byte 7: `a?[31m??\xc3\xa9`");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),        cmocka_unit_test(test_order),
        cmocka_unit_test(test_strides),        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_without_memory), cmocka_unit_test(test_shorter),
        cmocka_unit_test(test_unreadable),     cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_small_floats),   cmocka_unit_test(test_complex),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
