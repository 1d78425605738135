/* P.idx: whatever is wrong with it is an error that names the file; nothing else happens. */
#include "base/fault.h"
#include "data/indexed/indexed.h"
#include "data/test_text.h"

#include <fcntl.h>
#include <unistd.h>

enum { INDEX_BYTES = 34 + 12 * 4 + 8 * 4 };

/* Documents of one, two and one sequences: 3, 1, 0 and 2 tokens. */
static void write_pair(const char *name, int64_t vocab_size)
{
    static const int32_t lengths[] = {3, 1, 0, 2}, tokens[] = {5, 6, 7};
    shoal_index_writer *writer = NULL;
    ok(shoal_index_writer_create(path_of(name), vocab_size, &writer));
    for (int q = 0; q < 4; q++) {
        ok(shoal_index_writer_add(writer, tokens, lengths[q]));
        if (q != 1)
            ok(shoal_index_writer_end_document(writer));
    }
    ok(shoal_index_writer_finish(writer));
    shoal_index_writer_destroy(writer);
}

static void read_index(const char *name, unsigned char bytes[INDEX_BYTES])
{
    char *data = NULL;
    size_t count;
    ok(shoali_read_file(path_of(name), &data, &count));
    assert_int_equal(count, INDEX_BYTES);
    memcpy(bytes, data, count);
    free(data);
}

/* Opens the pair "p" with these bytes as its index. */
static shoal_status open_bytes(const unsigned char *bytes, size_t count)
{
    shoal_indexed_info info;
    write_text("p.idx", (const char *)bytes, count);
    const shoal_status status = shoal_indexed_inspect(path_of("p"), &info);
    if (status < 0) {
        assert_int_equal(shoal_status_exit_code(status), 2);
        if (!strstr(shoal_error_message(), "/p."))
            fail_msg("no file in: %s", shoal_error_message());
    }
    return status;
}

static void test_every_cut(void **state)
{
    unsigned char bytes[INDEX_BYTES + 1] = {0};
    (void)state;
    write_pair("p", 100);
    read_index("p.idx", bytes);
    for (size_t count = 0; count < INDEX_BYTES; count++)
        assert_int_equal(open_bytes(bytes, count), SHOAL_EINVAL);
    ok(open_bytes(bytes, INDEX_BYTES));
    assert_int_equal(open_bytes(bytes, INDEX_BYTES + 1), SHOAL_EINVAL);
}

/* Each byte, changed: what still opens has numbers that fit. */
static void test_every_byte(void **state)
{
    unsigned char bytes[INDEX_BYTES];
    int refused = 0;
    (void)state;
    write_pair("p", 100);
    read_index("p.idx", bytes);
    for (size_t i = 0; i < INDEX_BYTES; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char)(1 << bit);
            refused += open_bytes(bytes, INDEX_BYTES) < 0;
            bytes[i] ^= (unsigned char)(1 << bit);
        }
    /* what may differ: a length and a boundary that are smaller, the type of as many bytes */
    assert_in_range(refused, INDEX_BYTES * 8 - 40, INDEX_BYTES * 8);
}

static void says(const unsigned char *good, size_t at, unsigned char value, const char *wanted)
{
    unsigned char bytes[INDEX_BYTES];
    memcpy(bytes, good, sizeof bytes);
    bytes[at] = value;
    assert_true(open_bytes(bytes, sizeof bytes) < 0);
    if (!strstr(shoal_error_message(), wanted))
        fail_msg("no \"%s\" in: %s", wanted, shoal_error_message());
}

static void test_sentences(void **state)
{
    unsigned char good[INDEX_BYTES];
    (void)state;
    write_pair("p", 100);
    read_index("p.idx", good);
    says(good, 0, 'X', "does not begin with MMIDIDX");
    says(good, 9, 2, "version 2");
    says(good, 17, 0, "no token type 0");
    says(good, 17, 9, "no token type 9");
    says(good, 17, 6, "holds float64 numbers");
    says(good, 18, 5, "truncated, or data was appended");
    says(good, 25, 1, "do not fit into its");
    says(good, 33, 1, "do not fit into its");
    says(good, 37, 0x80, "negative length");
    says(good, 34, 200, "truncated, or they do not belong together");
    says(good, 34 + 16 + 8, 4, "begins inside the one before");
    says(good, 34 + 16 + 8, 7, "inside a token");
    says(good, 34 + 48, 1, "begin at 0");
    says(good, 34 + 48 + 8, 9, "never decrease");
    says(good, 34 + 48 + 24, 3, "does not end where");
    write_text("p.idx", (const char *)good, sizeof good);
    write_text("p.bin", "12345678901", 11);
    shoal_indexed_info info;
    assert_int_equal(shoal_indexed_inspect(path_of("p"), &info), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "p.bin, which has 11"));
    assert_int_equal(shoal_indexed_inspect(path_of("p.bin"), &info), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "give the prefix"));
    assert_int_equal(shoal_indexed_inspect(path_of("nothing"), &info), SHOAL_ENOENT);
    assert_int_equal(unlink(path_of("p.bin")), 0);
    assert_int_equal(shoal_indexed_inspect(path_of("p"), &info), SHOAL_ENOENT);
    assert_non_null(strstr(shoal_error_message(), "p.bin"));
}

/* All token types; what is outside the vocabulary is never given. */
static void test_types(void **state)
{
    static const struct {
        unsigned char code;
        int64_t value; /* of bytes 0xfe 0xff ... */
    } types[] = {{1, 254}, {2, -2}, {3, -2}, {4, -2}, {5, -2}, {8, 65534}};
    (void)state;
    for (int i = 0; i < 6; i++) {
        unsigned char bytes[34 + 12 + 16] = "MMIDIDX";
        const size_t width = shoali_index_type_bytes(types[i].code);
        struct shoali_indexed *file = NULL;
        int32_t tokens[2];
        int64_t got;
        char data[16] = {3};
        bytes[9] = bytes[18] = 1;
        bytes[17] = types[i].code;
        bytes[26] = 2;
        bytes[34] = 2;
        bytes[34 + 12 + 8] = 1;
        memset(data + width, 0xff, width);
        data[width] = (char)0xfe;
        write_text("t.idx", (const char *)bytes, sizeof bytes);
        write_text("t.bin", data, 2 * width);
        ok(shoali_indexed_open(path_of("t"), &file));
        ok(shoali_indexed_read(file, 0, 0, 1, 4, 2, tokens, &got));
        assert_int_equal(tokens[0], 3);
        assert_int_equal(shoali_indexed_read(file, 0, 0, 1, 3, 2, tokens, &got), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), "outside the vocabulary of 3"));
        const shoal_status status = shoali_indexed_read(file, 0, 1, -1, INT32_MAX, 2, tokens, &got);
        assert_int_equal(status, types[i].value < 0 ? SHOAL_EINVAL : SHOAL_OK);
        if (status == SHOAL_OK)
            assert_int_equal(tokens[0], types[i].value);
        assert_int_equal(shoali_indexed_read(file, 1, 0, 1, 9, 2, tokens, &got), SHOAL_EIO);
        assert_int_equal(truncate(path_of("t.bin"), 1), 0); /* while it is open */
        assert_int_equal(shoali_indexed_read(file, 0, 0, 2, 9, 2, tokens, &got), SHOAL_EIO);
        shoali_indexed_close(file);
    }
}

/* A writer that fails leaves nothing, whatever fails. */
static void test_writer_faults(void **state)
{
    static const char *const points[] = {"alloc", "data_write", "data_sync", "data_rename"};
    static const int32_t tokens[] = {1, 2, 70000};
    const int input = fcntl(STDIN_FILENO, F_GETFD);
    shoal_index_writer *writer = NULL;
    char spec[64];
    (void)state;
    for (int p = 0; p < 4; p++)
        for (int skip = 0;; skip++) {
            snprintf(spec, sizeof spec, "%s:%d", points[p], skip);
            assert_true(shoali_fault_arm(spec));
            shoal_status status = shoal_index_writer_create(path_of("w"), 100, &writer);
            if (status >= 0)
                status = shoal_index_writer_add(writer, tokens, 2);
            if (status >= 0)
                status = shoal_index_writer_end_document(writer);
            if (status >= 0)
                status = shoal_index_writer_finish(writer);
            shoal_index_writer_destroy(writer);
            writer = NULL;
            const bool fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            assert_int_equal(access(path_of("w.bin.tmp"), F_OK), -1);
            assert_int_equal(access(path_of("w.lengths.tmp"), F_OK), -1);
            assert_true(skip < 100 && (status < 0) == fired);
            if (fired && strcmp(points[p], "data_write") == 0) /* the disk is full */
                assert_non_null(strstr(shoal_error_message(), "left on device; make room there"));
            if (!fired) {
                assert_true(skip > 0);
                break;
            }
        }
    ok(shoal_index_writer_create(path_of("w"), 100, &writer));
    assert_int_equal(shoal_index_writer_add(writer, tokens, 3), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "70000"));
    shoal_index_writer_destroy(writer);
    assert_int_equal(shoal_index_writer_create(path_of("no/where"), 1, &writer), SHOAL_EINVAL);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), input); /* it closes its own files alone */
}

/* A folder under the name of a file. */
static void test_no_plain_file(void **state)
{
    static const char *const names[] = {"p.bin", "p.idx"};
    shoal_indexed_info info;
    (void)state;
    for (int i = 0; i < 2; i++) {
        write_pair("p", 100);
        assert_int_equal(unlink(path_of(names[i])), 0);
        assert_int_equal(mkdir(path_of(names[i]), 0700), 0);
        assert_int_equal(shoal_indexed_inspect(path_of("p"), &info), SHOAL_EINVAL);
        if (!strstr(shoal_error_message(), names[i]) ||
            !strstr(shoal_error_message(), "is no plain file"))
            fail_msg("%s: %s", names[i], shoal_error_message());
        assert_int_equal(rmdir(path_of(names[i])), 0);
    }
}

static void test_merge_mistakes(void **state)
{
    char whole[128], other[128];
    const char *const prefixes[] = {whole, other};
    shoal_indexed_info info;
    (void)state;
    snprintf(whole, sizeof whole, "%s", path_of("p"));
    snprintf(other, sizeof other, "%s", path_of("q"));
    write_pair("p", 100);
    write_pair("q", 100);
    assert_int_equal(shoal_indexed_merge(prefixes, 0, path_of("m")), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "nothing to merge"));
    assert_int_equal(shoal_indexed_merge(prefixes, 2, other), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "/q cannot be merged into itself"));
    ok(shoal_indexed_inspect(other, &info)); /* it is as it was */
    assert_int_equal(info.sequence_count, 4);
    ok(shoal_indexed_merge(prefixes, 2, path_of("m")));
    ok(shoal_indexed_inspect(path_of("m"), &info));
    assert_int_equal(info.sequence_count, 8);
}

/* A pair that is made again and not ended is no pair: never the old index beside new tokens. */
static void test_half_published(void **state)
{
    static const int32_t tokens[] = {1, 2};
    shoal_index_writer *writer = NULL;
    shoal_indexed_info info;
    (void)state;
    write_pair("p", 100);
    ok(shoal_index_writer_create(path_of("p"), 100, &writer));
    ok(shoal_index_writer_add(writer, tokens, 2));
    ok(shoal_index_writer_end_document(writer));
    assert_true(shoali_fault_arm("data_rename:1"));
    assert_int_equal(shoal_index_writer_finish(writer), SHOAL_EIO);
    assert_true(shoali_fault_arm(NULL));
    shoal_index_writer_destroy(writer);
    assert_int_equal(access(path_of("p.idx"), F_OK), -1);
    assert_true(shoal_indexed_inspect(path_of("p"), &info) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_cut, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_every_byte, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_sentences, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_types, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_writer_faults, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_plain_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_merge_mistakes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_half_published, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
