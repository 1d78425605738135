/* Shards against a list of the global index of every local element. */
#include "base/test_cmocka.h"
#include "tensor/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, CASES = 3000 };
#define SEED 20251122u

struct random {
    struct shoali_stream stream;
    uint64_t next;
};

static int64_t below(struct random *random, int64_t bound)
{
    return (int64_t)shoali_random_below(&random->stream, random->next++, (uint64_t)bound);
}

static bool holds(const struct shoali_shard *shard, int32_t d, int64_t index)
{
    for (int32_t i = 0; i < shard->count[d]; i++)
        if (index >= shard->interval[d][i].begin &&
            index < shard->interval[d][i].begin + shard->interval[d][i].count)
            return true;
    return false;
}

/* By definition: global elements in order, those whose every index is held. */
static int64_t list_elements(const struct shoali_shard *shard, int64_t *global)
{
    const int64_t all = shoal_shape_count(&shard->global);
    int64_t count = 0;
    for (int64_t g = 0; g < all; g++) {
        bool held = true;
        int64_t rest = g;
        for (int32_t d = shard->global.ndim - 1; d >= 0; d--) {
            held = held && holds(shard, d, rest % shard->global.dim[d]);
            rest /= shard->global.dim[d];
        }
        if (held)
            global[count++] = g;
    }
    return count;
}

static void check_shard(const struct shoali_shard *shard)
{
    int64_t global[MOST], run;
    const int64_t count = list_elements(shard, global);
    assert_int_equal(count, shoal_shape_count(&shard->local));
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(shoali_shard_run(shard, i, &run), global[i]);
        assert_true(run >= 1 && i + run <= count);
        for (int64_t k = 0; k < run; k++)
            assert_int_equal(global[i + k], global[i] + k);
    }
    const int64_t all = shoal_shape_count(&shard->global);
    for (int64_t g = 0, local = 0; g <= all; g++) {
        while (local < count && global[local] < g)
            local++;
        assert_int_equal(shoali_shard_below(shard, g), local);
    }
}

static shoal_shape random_shape(struct random *random)
{
    shoal_shape shape = {.ndim = (int32_t)below(random, 4)};
    for (int32_t d = 0; d < shape.ndim; d++)
        shape.dim[d] = below(random, 12) + (below(random, 20) != 0);
    return shape;
}

/* Parts of a dim in units. */
static struct shoali_dim_partition random_cut(struct random *random, int32_t d, int64_t size)
{
    struct shoali_dim_partition cut = {.dim = d, .ways = 1 + (int32_t)below(random, 4)};
    cut.part_count = (int32_t)below(random, SHOALI_SHARD_INTERVALS + 1);
    int64_t left = size;
    for (int32_t p = 0; p < cut.part_count; p++) {
        cut.part[p] = p + 1 == cut.part_count ? left : below(random, left + 1);
        left -= cut.part[p];
        cut.unit[p] = cut.part[p] % 2 == 0 ? below(random, 3) : 0;
    }
    return cut;
}

/* What was told is what is held, and less is not understood. */
static void check_words(const struct shoali_shard *shard)
{
    int64_t words[SHOALI_SHARD_WORDS];
    struct shoali_shard told;
    const int32_t count = shoali_shard_pack(shard, words);
    assert_true(count > 0 && count <= SHOALI_SHARD_WORDS);
    assert_int_equal(shoali_shard_unpack(&shard->global, words, count, &told), count);
    assert_true(shoali_shard_equal(shard, &told));
    assert_int_equal(shoali_shard_unpack(&shard->global, words, count - 1, &told), 0);
    words[0] = SHOALI_SHARD_INTERVALS + 1;
    assert_int_equal(shoali_shard_unpack(&shard->global, words, count, &told), 0);
}

/* By definition. */
static bool share_an_element(const struct shoali_shard *a, const struct shoali_shard *b)
{
    int64_t in_a[MOST], in_b[MOST];
    const int64_t count_a = list_elements(a, in_a), count_b = list_elements(b, in_b);
    for (int64_t i = 0, k = 0; i < count_a; i++) {
        while (k < count_b && in_b[k] < in_a[i])
            k++;
        if (k < count_b && in_b[k] == in_a[i])
            return true;
    }
    return false;
}

static void check_pair(const struct shoali_shard *a, const struct shoali_shard *b)
{
    int64_t in_a[MOST], in_b[MOST];
    const int64_t count = list_elements(a, in_a);
    assert_int_equal(shoali_shard_overlap(a, b), share_an_element(a, b));
    assert_int_equal(shoali_shard_overlap(NULL, b), shoal_shape_count(&b->local) > 0);
    if (shoali_shard_equal(a, b)) {
        assert_int_equal(count, list_elements(b, in_b));
        assert_memory_equal(in_a, in_b, (size_t)count * sizeof *in_a);
    } else {
        assert_true(count == 0 || count != list_elements(b, in_b) ||
                    memcmp(in_a, in_b, (size_t)count * sizeof *in_a) != 0);
    }
}

/* Every element of the whole is in exactly one of the shards that a cut makes. */
static void check_cut(const struct shoali_shard *before, struct shoali_dim_partition cut)
{
    int64_t global[MOST];
    int32_t seen[MOST] = {0};
    int64_t total = 0;
    for (cut.index = 0; cut.index < cut.ways; cut.index++) {
        struct shoali_shard shard = *before;
        assert_int_equal(shoali_shard_partition(&shard, &cut), SHOAL_OK);
        check_shard(&shard);
        check_words(&shard);
        check_pair(&shard, &shard);
        check_pair(&shard, before);
        const int64_t count = list_elements(&shard, global);
        for (int64_t i = 0; i < count; i++)
            seen[global[i]]++;
        total += count;
    }
    assert_int_equal(total, shoal_shape_count(&before->local));
    for (int64_t i = list_elements(before, global) - 1; i >= 0; i--)
        assert_int_equal(seen[global[i]], 1);
}

static void test_random(void **state)
{
    (void)state;
    struct random random = {shoali_stream_make(SEED, "shards", "", 0), 0};
    for (int32_t i = 0; i < CASES; i++) {
        const shoal_shape shape = random_shape(&random);
        struct shoali_shard shard = shoali_shard_whole(&shape), twin = shard;
        check_shard(&shard);
        for (int32_t d = 0; d < shape.ndim; d++) {
            struct shoali_dim_partition cut = random_cut(&random, d, shape.dim[d]);
            check_cut(&shard, cut);
            cut.index = (int32_t)below(&random, cut.ways);
            assert_int_equal(shoali_shard_partition(&shard, &cut), SHOAL_OK);
            cut.index = (int32_t)below(&random, cut.ways);
            assert_int_equal(shoali_shard_partition(&twin, &cut), SHOAL_OK);
            check_pair(&shard, &twin);
        }
    }
    printf("seed %u\n", SEED);
}

/* Query, key and value heads of 3 groups with 2 query heads each, over 2 ranks. */
static void test_heads(void **state)
{
    (void)state;
    enum { D = 4 };
    const shoal_shape shape = shoal_shape_2(5, (6 + 3 + 3) * D);
    struct shoali_dim_partition cut = {
        .dim = 1, .ways = 2, .part_count = 3, .part = {6 * D, 3 * D, 3 * D}, .unit = {2 * D, D, D}};
    struct shoali_shard first = shoali_shard_whole(&shape), second = first;
    assert_int_equal(shoali_shard_partition(&first, &cut), SHOAL_OK);
    cut.index = 1;
    assert_int_equal(shoali_shard_partition(&second, &cut), SHOAL_OK);
    assert_int_equal(first.local.dim[1], (4 + 2 + 2) * D);
    assert_int_equal(second.local.dim[1], (2 + 1 + 1) * D);
    assert_int_equal(second.interval[1][0].begin, 4 * D);
    assert_int_equal(second.interval[1][1].begin, (6 + 2) * D);
    int64_t run;
    assert_int_equal(shoali_shard_run(&second, 8, &run), (6 + 2) * D); /* row 0, first k */
    assert_int_equal(run, D);
    assert_int_equal(shoali_shard_run(&second, 17, &run), 12 * D + 4 * D + 1);
    assert_int_equal(run, 2 * D - 1);
}

/* A rank that has none of a tensor says so, of any number of dims. */
static void test_nothing(void **state)
{
    (void)state;
    for (int32_t ndim = 0; ndim <= 3; ndim++) {
        const shoal_shape shape = {.ndim = ndim, .dim = {4, 3, 2}};
        const struct shoali_shard whole = shoali_shard_whole(&shape);
        const struct shoali_shard nothing = shoali_shard_nothing(&shape);
        struct shoali_shard read;
        int64_t words[SHOALI_SHARD_WORDS];
        assert_true(shoali_shard_is_nothing(&nothing));
        assert_false(shoali_shard_is_nothing(&whole) || shoali_shard_is_nothing(NULL));
        assert_int_equal(shoal_shape_count(&nothing.local), 0);
        assert_int_equal(shoali_shard_below(&nothing, shoal_shape_count(&shape)), 0);
        assert_int_equal(shoali_shard_below(&whole, 1), 1);
        assert_false(shoali_shard_equal(&nothing, &whole) || shoali_shard_equal(&nothing, NULL));
        assert_false(shoali_shard_overlap(&nothing, &whole) ||
                     shoali_shard_overlap(NULL, &nothing));
        for (int32_t i = 0; i < 2; i++) {
            const struct shoali_shard *said = i == 0 ? &nothing : &whole;
            const int32_t count = shoali_shard_pack(said, words);
            assert_int_equal(shoali_shard_unpack(&shape, words, count, &read), count);
            assert_true(count > 0 && shoali_shard_equal(&read, said));
            assert_int_equal(shoali_shard_unpack(&shape, words, count - 1, &read), 0);
        }
    }
}

static void refused(const struct shoali_dim_partition *cut, const char *sentence)
{
    const shoal_shape shape = shoal_shape_2(6, 8);
    struct shoali_shard shard = shoali_shard_whole(&shape);
    assert_int_equal(shoali_shard_partition(&shard, cut), SHOAL_EINVAL);
    if (strstr(shoal_error_message(), sentence) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", sentence, shoal_error_message());
}

static void test_mistakes(void **state)
{
    (void)state;
    refused(&(struct shoali_dim_partition){.dim = 2, .ways = 2},
            "dim 2 of shape [6, 8] cannot be partitioned");
    refused(&(struct shoali_dim_partition){.dim = 0, .ways = 2, .index = 2}, "this is number 2");
    refused(&(struct shoali_dim_partition){.dim = 1, .ways = 2, .part_count = 2, .part = {4, 3}},
            "its parts add up to 7");
    refused(
        &(struct shoali_dim_partition){
            .dim = 1, .ways = 2, .part_count = 1, .part = {8}, .unit = {3}},
        "not made of units of 3");
    const shoal_shape shape = shoal_shape_1(6);
    struct shoali_shard shard = shoali_shard_whole(&shape);
    assert_int_equal(shoali_shard_partition(&shard, &(struct shoali_dim_partition){.ways = 2}),
                     SHOAL_OK);
    assert_int_equal(shoali_shard_partition(&shard, &(struct shoali_dim_partition){.ways = 2}),
                     SHOAL_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
