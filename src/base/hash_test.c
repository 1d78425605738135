#include "base/hash.h"
#include "base/test_cmocka.h"

/* The value for no bytes is published with the algorithm; stored checksums depend on all of them.
 */
static void test_known_values(void **state)
{
    (void)state;
    assert_true(shoali_hash64("", 0) == 0x2d06800538d394c2u);
    assert_true(shoali_hash64("", 0) == shoali_hash64_seeded("", 0, 0));
}

static void test_bytes_and_seed_matter(void **state)
{
    (void)state;
    unsigned char data[1000] = {0};
    for (size_t bytes = 1; bytes <= sizeof(data); bytes += 37) {
        uint64_t before = shoali_hash64(data, bytes);
        assert_true(before != shoali_hash64_seeded(data, bytes, 1));
        data[bytes - 1] ^= 1;
        assert_true(before != shoali_hash64(data, bytes));
        data[bytes - 1] ^= 1;
        assert_true(before == shoali_hash64(data, bytes));
        assert_true(before != shoali_hash64(data, bytes - 1));
    }
}

/* However the bytes are cut. */
static void test_stream(void **state)
{
    unsigned char data[5000];
    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 131 >> 3);
    for (size_t piece = 1; piece < sizeof(data); piece = piece * 3 + 1) {
        struct shoali_hash64_stream *stream = shoali_hash64_begin();
        for (size_t at = 0; at < sizeof(data); at += piece) {
            assert_true(shoali_hash64_get(stream) == shoali_hash64(data, at));
            shoali_hash64_add(stream, data + at,
                              sizeof(data) - at < piece ? sizeof(data) - at : piece);
        }
        assert_true(shoali_hash64_get(stream) == shoali_hash64(data, sizeof(data)));
        shoali_hash64_end(stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_bytes_and_seed_matter),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
