/* Blocks against a model that keeps the global index of every element. */
#include "base/test_cmocka.h"
#include "tensor/test_block.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

struct random {
    struct shoali_stream stream;
    uint64_t next;
};

static int64_t below(struct random *random, int64_t bound)
{
    return (int64_t)shoali_random_below(&random->stream, random->next++, (uint64_t)bound);
}

static int64_t element_count(const struct shoali_block *block)
{
    int64_t count = 1;
    for (int32_t d = 0; d < block->ndim; d++)
        count *= block->count[d];
    return count;
}

/* The global index of every element, by definition. */
static void indices(const struct shoali_block *block, int64_t *index)
{
    const int64_t count = element_count(block);
    for (int64_t i = 0; i < count; i++) {
        uint64_t at = 0, stride = 1;
        int64_t rest = i;
        for (int32_t d = block->ndim - 1; d >= 0; d--) {
            at += (uint64_t)(block->offset[d] + rest % block->count[d]) * stride;
            stride *= (uint64_t)block->global[d];
            rest /= block->count[d];
        }
        index[i] = (int64_t)(at & INT64_MAX);
    }
}

static void check_runs(const struct shoali_block *block, const int64_t *index)
{
    struct shoali_runs runs;
    const int64_t count = element_count(block), first = shoali_block_runs(block, &runs);
    int64_t covered = 1;
    for (int32_t d = 0; d < runs.ndim; d++)
        covered *= runs.count[d];
    assert_int_equal(covered, count);
    assert_true(runs.ndim == 0 || runs.stride[runs.ndim - 1] == 1);
    for (int64_t i = 0, length; i < count; i += length) {
        const int64_t at = shoali_runs_at(&runs, i, &length);
        assert_true(length > 0);
        for (int64_t k = 0; k < length && i + k < count; k++)
            assert_int_equal(index[i + k], (uint64_t)(first + at + k) & INT64_MAX);
        if (length > count - i)
            length = count - i;
    }
}

static shoal_shape random_shape(struct random *random)
{
    shoal_shape shape = {.ndim = 1 + (int32_t)below(random, 4)};
    for (int32_t d = 0; d < shape.ndim; d++)
        shape.dim[d] = 1 + below(random, 6);
    return shape;
}

static struct shoali_block random_block(struct random *random, shoal_shape *shape)
{
    shoal_shape global;
    int64_t offset[SHOAL_MAX_DIMS];
    *shape = random_shape(random);
    global = *shape;
    for (int32_t d = 0; d < shape->ndim; d++) {
        const int64_t parts = 1 + below(random, 3);
        global.dim[d] = below(random, 2) ? shape->dim[d] : shape->dim[d] * parts;
        offset[d] = below(random, global.dim[d] / shape->dim[d]) * shape->dim[d];
        if (global.dim[d] > shape->dim[d] && below(random, 2))
            offset[d] = below(random, global.dim[d] - shape->dim[d] + 1);
    }
    if (below(random, 2)) {
        global.dim[0] = SHOALI_BLOCK_OPEN;
        offset[0] = 3 * shape->dim[0];
    }
    return block_at(shape, &global, offset);
}

/* Another shape of as many elements: dims are multiplied together or taken apart. */
static shoal_shape reshaped(struct random *random, const shoal_shape *shape)
{
    shoal_shape other = *shape;
    for (int32_t turn = 0; turn < 4; turn++) {
        const int32_t d = (int32_t)below(random, other.ndim);
        if (below(random, 2) && d > 0) {
            other.dim[d - 1] *= other.dim[d];
            for (int32_t i = d; i + 1 < other.ndim; i++)
                other.dim[i] = other.dim[i + 1];
            other.ndim--;
        } else if (other.ndim < SHOAL_MAX_DIMS) {
            int64_t factor = 1 + below(random, 5);
            while (other.dim[d] % factor != 0)
                factor--;
            for (int32_t i = other.ndim++; i > d; i--)
                other.dim[i] = other.dim[i - 1];
            other.dim[d] = factor;
            other.dim[d + 1] /= factor;
        }
    }
    return other;
}

static uint64_t seed_of(const char *test)
{
    const char *given = getenv("SHOAL_TEST_SEED");
    const uint64_t seed =
        given != NULL ? strtoull(given, NULL, 10) : (uint64_t)shoali_now_ns() & 0xFFFFFF;
    print_message("%s: SHOAL_TEST_SEED=%llu\n", test, (unsigned long long)seed);
    return seed;
}

/* Where a block can be cut at the dims of another shape, no element's index moves, and dims can be
 * narrowed and joined. */
static void test_align_slice_and_join_keep_every_index(void **state)
{
    (void)state;
    static int64_t before[MOST], after[MOST];
    struct random random = {shoali_stream_make(seed_of("block"), "block", "", 0), 0};
    int32_t cut = 0, sliced = 0, joined = 0, refused = 0;
    for (int32_t trial = 0; trial < 4000; trial++) {
        shoal_shape shape;
        int32_t first[SHOAL_MAX_DIMS + 1];
        struct shoali_block block = random_block(&random, &shape);
        indices(&block, before);
        check_runs(&block, before);
        shape = reshaped(&random, &shape);
        if (!shoali_block_align(&block, &shape, first)) {
            refused++;
            continue;
        }
        cut++;
        indices(&block, after);
        assert_memory_equal(before, after, (size_t)shoal_shape_count(&shape) * sizeof(int64_t));
        assert_int_equal(first[0], 0);
        assert_int_equal(first[shape.ndim], block.ndim);
        for (int32_t d = 0; d < shape.ndim; d++) {
            int64_t count = 1, global, offset;
            for (int32_t i = first[d]; i < first[d + 1]; i++)
                count *= block.count[i];
            assert_int_equal(count, shape.dim[d]);
            joined += shoali_block_join(&block, first[d], first[d + 1], &global, &offset);
        }
        const int32_t dim = (int32_t)below(&random, shape.ndim);
        const int64_t from = below(&random, shape.dim[dim]),
                      count = 1 + below(&random, shape.dim[dim] - from);
        int64_t inner = 1, at = 0;
        for (int32_t d = dim + 1; d < shape.ndim; d++)
            inner *= shape.dim[d];
        if (!shoali_block_slice(&block, first[dim], first[dim + 1], from, count))
            continue;
        sliced++;
        indices(&block, after);
        check_runs(&block, after);
        for (int64_t i = 0; i < shoal_shape_count(&shape); i++) {
            const int64_t digit = i / inner % shape.dim[dim];
            if (digit >= from && digit < from + count)
                assert_int_equal(after[at++], before[i]);
        }
        assert_int_equal(at, element_count(&block));
    }
    assert_true(cut > 1000 && sliced > 500 && joined > 1000 && refused > 20);
}

static void test_join_is_one_dim_of_the_whole(void **state)
{
    (void)state;
    const shoal_shape shape = shoal_shape_3(1, 2, 5), global = shoal_shape_3(4, 6, 5);
    const int64_t offset[] = {3, 2, 0};
    struct shoali_block block = block_at(&shape, &global, offset);
    int64_t whole, at;
    assert_true(shoali_block_join(&block, 0, 3, &whole, &at));
    assert_int_equal(whole, 4 * 6 * 5);
    assert_int_equal(at, (3 * 6 + 2) * 5);
    assert_true(shoali_block_join(&block, 1, 1, &whole, &at));
    assert_true(whole == 1 && at == 0);
    block.count[0] = 2;
    block.offset[0] = 1; /* rows 1 and 2, each with a part of the second dim: no range */
    assert_false(shoali_block_join(&block, 0, 2, &whole, &at));
}

static void test_empty_and_scalar(void **state)
{
    (void)state;
    const shoal_shape empty = shoal_shape_2(3, 0), scalar = {0};
    int32_t first[SHOAL_MAX_DIMS + 1];
    struct shoali_runs runs;
    struct shoali_block block = shoali_block_whole(&empty);
    assert_true(shoali_block_align(&block, &empty, first));
    assert_int_equal(first[2], 2);
    assert_int_equal(shoali_block_runs(&block, &runs), 0);
    block = shoali_block_whole(&scalar);
    assert_true(shoali_block_align(&block, &scalar, first));
    assert_int_equal(shoali_block_runs(&block, &runs), 0);
    assert_int_equal(runs.ndim, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_align_slice_and_join_keep_every_index),
        cmocka_unit_test(test_join_is_one_dim_of_the_whole),
        cmocka_unit_test(test_empty_and_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
