#include "base/rng.h"

#include "base/hash.h"
#include "base/test_cmocka.h"

#include <math.h>
#include <stdlib.h>

enum { DRAW_COUNT = 200000 };

/* The known answers published with the algorithm: zeros, ones, digits of pi. */
static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        struct shoali_stream stream = {.key = {rows[i].key[0], rows[i].key[1]},
                                       .high = {rows[i].counter[2], rows[i].counter[3]}};
        uint64_t index = (uint64_t)rows[i].counter[1] << 32 | rows[i].counter[0];
        uint32_t out[4];
        shoali_philox(&stream, index, out);
        assert_memory_equal(out, rows[i].out, sizeof(out));
        assert_int_equal(shoali_random_u32(&stream, index), rows[i].out[0]);
    }
}

static uint64_t identity(struct shoali_stream stream)
{
    return shoali_hash64(&stream, sizeof(stream));
}

static void test_every_part_of_the_tuple_matters(void **state)
{
    (void)state;
    uint64_t base = identity(shoali_stream_make(1, "init", "layers.0.weight", 5));
    assert_true(base == identity(shoali_stream_make(1, "init", "layers.0.weight", 5)));
    assert_true(base != identity(shoali_stream_make(2, "init", "layers.0.weight", 5)));
    assert_true(base != identity(shoali_stream_make(1, "dropout", "layers.0.weight", 5)));
    assert_true(base != identity(shoali_stream_make(1, "init", "layers.1.weight", 5)));
    assert_true(base != identity(shoali_stream_make(1, "init", "layers.0.weight", 6)));
    assert_true(base != identity(shoali_stream_make(5, "init", "layers.0.weight", 1)));
    assert_true(base != identity(shoali_stream_make(1, "layers.0.weight", "init", 5)));
}

/* Old checkpoints and recorded runs depend on these bits. */
static void test_stream_bits_are_fixed(void **state)
{
    (void)state;
    struct shoali_stream stream = shoali_stream_make(1234, "init", "wte.weight", 0);
    double values[1024];
    for (int i = 0; i < 1024; i++)
        values[i] = shoali_random_normal(&stream, (uint64_t)i);
    assert_int_equal(shoali_hash64(values, sizeof(values)), 0x53e581750399dc3du);
}

/* Words of one group are the words of its blocks, each once; the next group has other blocks. */
static void test_dense_words(void **state)
{
    (void)state;
    const struct shoali_stream stream = shoali_stream_make(1234, "dropout", "layers.0", 7);
    for (uint64_t group = 0; group < 3; group++)
        for (uint64_t block = 0; block < 16; block++) {
            uint32_t words[4];
            shoali_philox(&stream, 16 * group + block, words);
            for (uint64_t w = 0; w < 4; w++)
                assert_int_equal(shoali_random_dense_u32(&stream, 64 * group + 16 * w + block),
                                 words[w]);
        }
    uint32_t last[4];
    shoali_philox(&stream, UINT64_MAX / 4, last);
    assert_int_equal(shoali_random_dense_u32(&stream, UINT64_MAX), last[3]);
}

static void test_uniform(void **state)
{
    (void)state;
    struct shoali_stream stream = shoali_stream_make(7, "dropout", "", 3);
    double sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < DRAW_COUNT; i++) {
        double value = (double)shoali_random_uniform(&stream, i);
        assert_true(value >= 0.0 && value < 1.0);
        sum += value;
        squares += value * value;
    }
    /* Five standard deviations of the mean of n draws. */
    assert_true(fabs(sum / DRAW_COUNT - 0.5) < 5.0 * sqrt(1.0 / 12.0 / DRAW_COUNT));
    assert_true(fabs(squares / DRAW_COUNT - 1.0 / 3.0) < 5.0 * sqrt(4.0 / 45.0 / DRAW_COUNT));
}

static void test_normal(void **state)
{
    (void)state;
    struct shoali_stream stream = shoali_stream_make(8, "init", "w", 0);
    double moments[5] = {0};
    for (uint64_t i = 0; i < DRAW_COUNT; i++) {
        double value = shoali_random_normal(&stream, i), power = 1.0;
        assert_true(fabs(value) < 7.0);
        for (int k = 1; k < 5; k++)
            moments[k] += (power *= value);
    }
    /* Variances of z, z^2, z^3, z^4: 1, 2, 15, 96. */
    static const double expected[5] = {0, 0, 1, 0, 3}, variance[5] = {0, 1, 2, 15, 96};
    for (int k = 1; k < 5; k++)
        assert_true(fabs(moments[k] / DRAW_COUNT - expected[k]) <
                    5.0 * sqrt(variance[k] / DRAW_COUNT));
}

static void test_below(void **state)
{
    (void)state;
    struct shoali_stream stream = shoali_stream_make(9, "data", "", 0);
    int64_t counts[7] = {0};
    for (uint64_t i = 0; i < DRAW_COUNT; i++) {
        uint64_t value = shoali_random_below(&stream, i, 7);
        assert_true(value < 7);
        counts[value]++;
        assert_true(shoali_random_below(&stream, i, UINT64_C(1) << 63) < UINT64_C(1) << 63);
        assert_int_equal(shoali_random_below(&stream, i, 1), 0);
    }
    double chi_squared = 0.0, each = DRAW_COUNT / 7.0;
    for (int i = 0; i < 7; i++)
        chi_squared += ((double)counts[i] - each) * ((double)counts[i] - each) / each;
    assert_true(chi_squared < 35.0); /* 6 degrees of freedom: p < 1e-5 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_every_part_of_the_tuple_matters),
        cmocka_unit_test(test_stream_bits_are_fixed),
        cmocka_unit_test(test_dense_words),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
