/* Arrays of numpy.save, byte by byte: versions, shapes, orders, types, and headers whose numbers
 * are at the limits or beyond them. Archives of such arrays are in formats_parity_test. */
#include "formats/formats.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"
enum { HEADER_MAX = 1 << 16, FILE_MAX = HEADER_MAX + 4096, NUMBERS_MAX = 64 };
#define HEADER(type, order, shape) \
    "{'descr': " type ", 'fortran_order': " order ", 'shape': " shape ", }"
#define F4(shape) HEADER("'<f4'", "False", shape)

struct array {
    int version;
    const char *header;
    int64_t padding;     /* blanks behind the header */
    int64_t more_header; /* what its length says too much */
    int64_t data;        /* bytes: the fp32 numbers 0, 1, ... */
    const char *sentence;
};

static unsigned char bytes[FILE_MAX];

/* The file's length. */
static int64_t fill(const struct array *array)
{
    const int64_t text = (int64_t)strlen(array->header), length = text + array->padding;
    const int64_t said = length + array->more_header;
    const int prefix = array->version == 1 ? 10 : 12;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char)array->version;
    bytes[7] = 0;
    for (int i = 0; i < prefix - 8; i++)
        bytes[8 + i] = (unsigned char)(said >> 8 * i);
    memcpy(bytes + prefix, array->header, (size_t)text);
    memset(bytes + prefix + text, ' ', (size_t)array->padding);
    for (int64_t i = 0; i < array->data / 4 + 1; i++) {
        const float number = (float)i;
        memcpy(bytes + prefix + length + 4 * i, &number, sizeof number);
    }
    return prefix + length + array->data;
}

static shoal_status open_bytes(int64_t count, struct shoali_tensor_file *file)
{
    char path[96];
    snprintf(path, sizeof path, "%s/array.npy", folder);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, (size_t)count, out), count);
    assert_int_equal(fclose(out), 0);
    return shoali_tensor_file_open(path, file);
}

static shoal_status open_array(const struct array *array, struct shoali_tensor_file *file)
{
    return open_bytes(fill(array), file);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void check(const struct array *array, const char *shape, const float *numbers, int64_t count)
{
    struct shoali_tensor_file file;
    char text[SHOALI_FILE_TENSOR_SHAPE_BYTES];
    float got[NUMBERS_MAX];
    if (open_array(array, &file) != SHOAL_OK)
        fail_msg("%s: %s", array->header, shoal_error_message());
    assert_int_equal(file.count, 1);
    assert_string_equal(shoali_file_tensor_shape_text(file.tensor, text), shape);
    assert_int_equal(file.tensor->count, count);
    assert_int_equal(shoali_tensor_file_read_f32(&file, file.tensor, 0, count, got), SHOAL_OK);
    for (int64_t i = 0; i < count; i++)
        if (got[i] != numbers[i])
            fail_msg("%s: number %d is %g, not %g", array->header, (int)i, (double)got[i],
                     (double)numbers[i]);
    shoali_tensor_file_close(&file);
}

static void test_versions(void **state)
{
    static const float numbers[] = {0, 1, 2, 3, 4, 5};
    (void)state;
    for (int version = 1; version <= 3; version++)
        check(&(struct array){.version = version, .header = F4("(2, 3)"), .data = 24}, "[2, 3]",
              numbers, 6);
}

/* The first dim runs fastest. */
static void test_columns(void **state)
{
    static const float matrix[] = {0, 2, 4, 1, 3, 5};
    static const float cube[] = {0, 4, 2, 6, 1, 5, 3, 7}, line[] = {0, 1, 2};
    (void)state;
    check(&(struct array){1, HEADER("'<f4'", "True", "(2, 3)"), .data = 24}, "[2, 3]", matrix, 6);
    check(&(struct array){1, HEADER("'<f4'", "True", "(2, 2, 2)"), .data = 32}, "[2, 2, 2]", cube,
          8);
    check(&(struct array){1, HEADER("'<f4'", "True", "(3,)"), .data = 12}, "[3]", line, 3);
}

static void test_shapes(void **state)
{
    static const float numbers[] = {0, 1, 2, 3, 4, 5};
    (void)state;
    check(&(struct array){1, F4("()"), .data = 4}, "[]", numbers, 1);
    check(&(struct array){1, F4("(3,)"), .data = 12}, "[3]", numbers, 3);
    check(&(struct array){1, F4("(2L, 3L)"), .data = 24}, "[2, 3]", numbers, 6);
    check(&(struct array){1, F4("(0,)"), .data = 0}, "[0]", numbers, 0);
    check(&(struct array){1,
                          F4("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                             "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2)"),
                          .data = 8},
          "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
          "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
          "1, 1, 1, 1, 1, 2]",
          numbers, 2);
}

/* The bytes of 1.0f and 2.0f as other types. */
static void test_types(void **state)
{
    static const struct {
        const char *header;
        int64_t data, count;
        const char *shape;
        float last;
    } cases[] = {
        {HEADER("'|u1'", "False", "(8,)"), 8, 8, "[8]", 63},
        {HEADER("'|i1'", "False", "(7,)"), 7, 7, "[7]", -128},
        {HEADER("'<u2'", "False", "(4,)"), 8, 4, "[4]", 16256},
        {HEADER("'<i4'", "False", "(2,)"), 8, 2, "[2]", 1065353216},
        {HEADER("\"=f4\"", "False", "(2,)"), 8, 2, "[2]", 1},
        {HEADER("'<f8'", "False", "(1,)"), 8, 1, "[1]", 0.0078125f},
        {HEADER("'<f2'", "False", "(4,)"), 8, 4, "[4]", 1.875f},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct shoali_tensor_file file;
        float got[NUMBERS_MAX];
        const struct array array = {1, cases[c].header, .data = cases[c].data};
        if (open_array(&array, &file) != SHOAL_OK)
            fail_msg("%s: %s", array.header, shoal_error_message());
        assert_int_equal(file.tensor->count, cases[c].count);
        assert_int_equal(shoali_tensor_file_read_f32(&file, file.tensor, 0, cases[c].count, got),
                         SHOAL_OK);
        if (got[cases[c].count - 1] != cases[c].last)
            fail_msg("%s: %g", array.header, (double)got[cases[c].count - 1]);
        shoali_tensor_file_close(&file);
    }
}

/* ---- headers --------------------------------------------------------------------------------- */

/* The longest one, and one that ends with the file. */
static void test_long_headers(void **state)
{
    static const float numbers[] = {0, 1, 2};
    const int64_t length = (int64_t)strlen(F4("(3,)"));
    struct array array = {2, F4("(3,)"), .padding = HEADER_MAX - length, .data = 12};
    struct shoali_tensor_file file;
    (void)state;
    check(&array, "[3]", numbers, 3);
    array.padding++;
    assert_int_equal(open_array(&array, &file), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "header has 65537 bytes, which cannot be"));
    shoali_tensor_file_close(&file);
}

static const struct array wrong[] = {
    {0, F4("(3,)"), .data = 12, .sentence = "this is not an array of numpy.save"},
    {4, F4("(3,)"), .data = 12, .sentence = "this is not an array of numpy.save"},
    {1, F4("(3,)"), .data = 0, .more_header = 1, .sentence = "bytes, which cannot be"},
    {3, F4("(3,)"), .data = 0, .more_header = 1, .sentence = "bytes, which cannot be"},
    {2, F4("(3,)"), .data = 12, .more_header = 1 << 24, .sentence = "bytes, which cannot be"},
    {1, F4("(3,)"), .data = 11, .sentence = "an array needs 12 bytes, but there are 11"},
    {1, F4("(3,)"), .data = 13, .sentence = "an array needs 12 bytes, but there are 13"},
    {1, F4("(-3,)"), .data = 12, .sentence = "the header of an array cannot be read"},
    {1, F4("(3"), .data = 12, .sentence = "the header of an array cannot be read"},
    {1, F4("3"), .data = 12, .sentence = "the header of an array cannot be read"},
    {1, F4("(x,)"), .data = 12, .sentence = "the header of an array cannot be read"},
    {1,
     F4("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3)"),
     .data = 12, .sentence = "the header of an array cannot be read"},
    {1, HEADER("'<f4'", "Maybe", "(3,)"), .data = 12,
     .sentence = "the header of an array cannot be read"},
    {1, "{'descr': '<f4', 'shape': (3,), }", .data = 12,
     .sentence = "the header of an array cannot be read"},
    {1, "{'descr': '<f4', 'fortran_order': False, }", .data = 12,
     .sentence = "the header of an array cannot be read"},
    {1, "{'fortran_order': False, 'shape': (3,), }", .data = 12,
     .sentence = "an array of unsupported elements"},
    {1, HEADER("'>f4'", "False", "(3,)"), .data = 12,
     .sentence = "an array of unsupported elements"},
    {1, HEADER("'|O'", "False", "(3,)"), .data = 12,
     .sentence = "an array of unsupported elements"},
    {1, HEADER("'<f4", "False", "(3,)"), .data = 12,
     .sentence = "an array of unsupported elements"},
    {1, HEADER("'<f44444'", "False", "(3,)"), .data = 12,
     .sentence = "an array of unsupported elements"},
    {1, HEADER("[('a', '<f4')]", "False", "(3,)"), .data = 12,
     .sentence = "an array of unsupported elements"},
    {1, F4("(4611686018427387904, 4)"), .data = 12, .sentence = "an array of an impossible shape"},
    {1, F4("(4611686018427387904,)"), .data = 12, .sentence = "an array of an impossible shape"},
    {1, F4("(576460752303423488, 2)"), .data = 12, .sentence = "an array of an impossible shape"},
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
        struct shoali_tensor_file file;
        const shoal_status status = open_array(&wrong[w], &file);
        if (status != SHOAL_EINVAL || !strstr(shoal_error_message(), wrong[w].sentence))
            fail_msg("%d: %s: %s: \"%s\", not \"%s\"", (int)w, wrong[w].header,
                     shoal_status_name(status), shoal_error_message(), wrong[w].sentence);
        shoali_tensor_file_close(&file);
    }
}

/* Cut at each byte: a sentence, and never an array. */
static void test_cut(void **state)
{
    const int64_t count = fill(&(struct array){3, F4("(3,)"), .data = 12});
    (void)state;
    for (int64_t cut = 0; cut < count; cut++) {
        struct shoali_tensor_file file;
        fill(&(struct array){3, F4("(3,)"), .data = 12});
        assert_int_equal(open_bytes(cut, &file), SHOAL_EINVAL);
        shoali_tensor_file_close(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),     cmocka_unit_test(test_columns),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_types),
        cmocka_unit_test(test_long_headers), cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
