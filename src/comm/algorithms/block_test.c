/* Large blocks: the same bytes whatever the alignment, and not a byte beside them. */
#include "base/test_cmocka.h"
#include "comm/algorithms/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGE = 8 << 20, MARGIN = 256, MARK = 0xA5 };

static uint64_t seed;

static uint64_t draw(uint64_t most)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % (most + 1);
}

static unsigned char *make(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, MARK, bytes);
    return memory;
}

static void fill(unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        const uint32_t word = (uint32_t)draw(UINT32_MAX >> 1);
        memcpy(memory + i, &word, 4);
    }
}

static bool is_marked(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != MARK)
            return false;
    return true;
}

/* A block of a large whole, to two places of any alignment; one of them may be its own. */
static void test_copy(void **state)
{
    (void)state;
    enum { MOST = 20000, ROOM = MOST + 2 * MARGIN };
    unsigned char *from = make(ROOM), *first = make(ROOM), *second = make(ROOM);
    fill(from, ROOM);
    for (int trial = 0; trial < 500; trial++) {
        const size_t bytes = draw(trial % 2 ? 200 : MOST), skip = draw(100);
        const size_t at[2] = {MARGIN + draw(127), trial % 4 ? MARGIN + draw(127) : MARGIN};
        void *const to[3] = {first + at[0], from + skip, second + at[1]};
        memset(first, MARK, ROOM);
        memset(second, MARK, ROOM);
        shoali_copy_block(to, 3, from + skip, bytes, trial % 3 ? LARGE : bytes);
        assert_memory_equal(to[0], from + skip, bytes);
        assert_memory_equal(to[2], from + skip, bytes);
        assert_true(is_marked(first, at[0]) &&
                    is_marked(first + at[0] + bytes, ROOM - at[0] - bytes));
        assert_true(is_marked(second, at[1]) &&
                    is_marked(second + at[1] + bytes, ROOM - at[1] - bytes));
    }
    free(from);
    free(first);
    free(second);
}

struct reduction {
    struct shoali_ops ops;
    unsigned char *x[2], *y[2], *expected;
    size_t room;
};

/* Offsets in bytes of two destinations; `count` elements; the results are those of the kernel that
 * is not told to go past the caches. */
static void check_reduce(struct reduction *r, shoal_dtype dtype, int64_t count, size_t first,
                         size_t second)
{
    const size_t bytes = (size_t)count * shoal_dtype_bytes(dtype);
    struct shoali_reduce_sources_args args = {.x = {r->x[0], r->x[1]},
                                              .sources = 2,
                                              .y = {r->expected},
                                              .destinations = 1,
                                              .count = count,
                                              .op = SHOALI_SUM,
                                              .dtype = dtype};
    shoali_host_reduce(&r->ops, &args);
    args.y[0] = r->y[0] + first;
    args.y[1] = r->y[1] + second;
    args.destinations = 2;
    memset(r->y[0], MARK, r->room);
    memset(r->y[1], MARK, r->room);
    shoali_reduce_block(&r->ops, &args);
    for (int d = 0; d < 2; d++) {
        const size_t at = d == 0 ? first : second;
        assert_memory_equal(args.y[d], r->expected, bytes);
        assert_true(is_marked(r->y[d], at));
        assert_true(is_marked(r->y[d] + at + bytes, r->room - at - bytes));
    }
}

static void test_reduce(void **state)
{
    (void)state;
    struct reduction r = {.room = LARGE / 2 + 4096};
    assert_int_equal(shoali_ops_select(NULL, NULL, &r.ops), SHOAL_OK);
    for (int i = 0; i < 2; i++) {
        r.x[i] = make(r.room);
        r.y[i] = make(r.room);
        fill(r.x[i], r.room);
    }
    r.expected = make(r.room);
    for (size_t i = 0; i < r.room; i += 2) { /* finite, so that bits are compared */
        r.x[0][i + 1] &= 0x3F;
        r.x[1][i + 1] &= 0xBF;
    }
    check_reduce(&r, SHOAL_F32, LARGE / 8, 0, 0);
    check_reduce(&r, SHOAL_F32, LARGE / 8 + 3, 64, 128);
    check_reduce(&r, SHOAL_F32, LARGE / 8 + 67, 20, 84);
    check_reduce(&r, SHOAL_F32, LARGE / 8 + 5, 20, 24); /* lines of their own */
    check_reduce(&r, SHOAL_F32, 1000, 20, 84);
    check_reduce(&r, SHOAL_BF16, LARGE / 4 + 37, 6, 6);
    check_reduce(&r, SHOAL_F16, LARGE / 4 + 1, 0, 64);
    check_reduce(&r, SHOAL_F64, LARGE / 16 + 9, 8, 8);
    /* A destination that is a source is read before it is written. */
    struct shoali_reduce_sources_args own = {.x = {r.x[0], r.x[1]},
                                             .sources = 2,
                                             .y = {r.expected},
                                             .destinations = 1,
                                             .count = LARGE / 8,
                                             .op = SHOALI_SUM,
                                             .dtype = SHOAL_F32};
    shoali_host_reduce(&r.ops, &own);
    own.y[0] = r.x[0];
    own.y[1] = r.x[1];
    own.destinations = 2;
    shoali_reduce_block(&r.ops, &own);
    assert_memory_equal(r.x[0], r.expected, LARGE / 2);
    assert_memory_equal(r.x[1], r.expected, LARGE / 2);
    for (int i = 0; i < 2; i++) {
        free(r.x[i]);
        free(r.y[i]);
    }
    free(r.expected);
}

int main(void)
{
    const char *given = getenv("SHOAL_TEST_SEED");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy), cmocka_unit_test(test_reduce)};
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SHOAL_TEST_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
