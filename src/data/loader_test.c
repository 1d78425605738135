/* Sampling as a pure function, sequential windows, the prefetch thread. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 424242

static shoal_dataset *make_mock(int64_t tokens, const char *split)
{
    shoal_dataset *dataset = NULL;
    ok(shoal_dataset_create(&(shoal_dataset_args){.mock = 1,
                                                  .mock_token_count = tokens,
                                                  .mock_vocab_size = 50000,
                                                  .split = split,
                                                  .seed = SEED},
                            &dataset));
    return dataset;
}

static shoal_loader *open_loader(const shoal_loader_args *args)
{
    shoal_loader *loader = NULL;
    ok(shoal_loader_create(args, &loader));
    return loader;
}

/* Offset of a sample in its part, by search: mock tokens of 50000 kinds make windows unique. */
static int64_t find_window(const int32_t *all, int64_t total, const int32_t *tokens, int64_t length)
{
    for (int64_t i = 0; i + length <= total; i++)
        if (memcmp(all + i, tokens, (size_t)length * sizeof(*all)) == 0)
            return i;
    return -1;
}

/* Samples are windows of the text, targets are shifted by one, both ends of the range are reached.
 */
static void test_samples(void **state)
{
    (void)state;
    enum { N = 40, T = 8, B = 3, M = 4 };
    shoal_dataset *dataset = make_mock(N, "1");
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = T, .micro_batch = B, .micro_batches = M, .seed = SEED};
    shoal_loader *loader = open_loader(&args);
    int32_t all[N], tokens[B * T], targets[B * T];
    int hits[N] = {0};
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, N, all));
    for (int64_t step = 0; step < 100; step++)
        for (int64_t m = 0; m < M; m++) {
            ok(shoal_loader_get(loader, step, m, tokens, targets));
            for (int b = 0; b < B; b++) {
                int64_t at = find_window(all, N, tokens + b * T, T);
                assert_in_range(at, 0, N - T - 1);
                assert_memory_equal(targets + b * T, all + at + 1, T * sizeof(int32_t));
                hits[at]++;
            }
        }
    /* 1200 draws over 32 offsets: 37.5 expected, sd 6; 0.1 % false alarms are beyond 5 sd each */
    for (int i = 0; i < N - T; i++)
        assert_in_range(hits[i], 8, 68);
    assert_int_equal(shoal_loader_step_count(loader), 0);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

/* The samples of a step do not depend on how they are cut into micro-batches. */
static void test_layout_does_not_matter(void **state)
{
    (void)state;
    enum { T = 5, ALL = 12 };
    shoal_dataset *dataset = make_mock(5000, "1");
    int32_t whole[ALL * T], whole_next[ALL * T], part[ALL * T], part_next[ALL * T];
    for (int sequential = 0; sequential < 2; sequential++) {
        shoal_loader_args args = {.dataset = dataset,
                                  .sequential = sequential,
                                  .seq_length = T,
                                  .micro_batch = ALL,
                                  .micro_batches = 1,
                                  .seed = SEED};
        shoal_loader *loader = open_loader(&args);
        ok(shoal_loader_get(loader, 7, 0, whole, whole_next));
        shoal_loader_destroy(loader);
        for (int64_t b = 1; b <= ALL; b++) {
            if (ALL % b != 0)
                continue;
            args.micro_batch = b;
            args.micro_batches = ALL / b;
            loader = open_loader(&args);
            for (int64_t m = ALL / b - 1; m >= 0; m--)
                ok(shoal_loader_get(loader, 7, m, part + m * b * T, part_next + m * b * T));
            assert_memory_equal(part, whole, sizeof(whole));
            assert_memory_equal(part_next, whole_next, sizeof(whole));
            shoal_loader_destroy(loader);
        }
    }
    shoal_dataset_destroy(dataset);
}

static void test_streams_differ(void **state)
{
    (void)state;
    enum { T = 16 };
    shoal_dataset *dataset = make_mock(4000, "1,1,1");
    int32_t first[T], other[T], next[T];
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = T, .micro_batch = 1, .micro_batches = 2, .seed = SEED};
    shoal_loader *loader = open_loader(&args);
    ok(shoal_loader_get(loader, 0, 0, first, next));
    ok(shoal_loader_get(loader, 0, 1, other, next));
    assert_memory_not_equal(first, other, sizeof(first));
    ok(shoal_loader_get(loader, 1, 0, other, next));
    assert_memory_not_equal(first, other, sizeof(first));
    ok(shoal_loader_get(loader, 0, 0, other, next));
    assert_memory_equal(first, other, sizeof(first));
    shoal_loader_destroy(loader);
    args.seed++;
    loader = open_loader(&args);
    ok(shoal_loader_get(loader, 0, 0, other, next));
    assert_memory_not_equal(first, other, sizeof(first));
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

static void test_sequential(void **state)
{
    (void)state;
    enum { B = 2, M = 2 };
    print_message("seed %d\n", SEED);
    for (int64_t n = 2; n < 60; n++) {
        int64_t length = 1 + (int64_t)((uint64_t)n * SEED % 9);
        shoal_dataset *dataset = make_mock(n, "0,1");
        shoal_loader_args args = {.dataset = dataset,
                                  .split = SHOAL_SPLIT_VALID,
                                  .sequential = 1,
                                  .seq_length = length,
                                  .micro_batch = B,
                                  .micro_batches = M};
        shoal_loader *loader = open_loader(&args);
        int32_t all[60], tokens[B * 9], targets[B * 9];
        ok(shoal_dataset_read(dataset, SHOAL_SPLIT_VALID, 0, n, all));
        int64_t seen = 0, steps = shoal_loader_step_count(loader);
        for (int64_t step = 0; step <= steps; step++)
            for (int64_t m = 0; m < M; m++) {
                ok(shoal_loader_get(loader, step, m, tokens, targets));
                for (int64_t i = 0; i < B * length; i++) {
                    if (targets[i] < 0) {
                        assert_int_equal(targets[i], -1);
                        assert_int_equal(tokens[i], 0);
                        assert_int_equal(seen, n - 1);
                        continue;
                    }
                    assert_int_equal(tokens[i], all[seen]);
                    assert_int_equal(targets[i], all[seen + 1]);
                    assert_true(step < steps);
                    seen++;
                }
            }
        assert_int_equal(seen, n - 1); /* every target once */
        ok(shoal_loader_get(loader, INT64_MAX / 2, 0, tokens, targets));
        assert_int_equal(targets[0], -1);
        shoal_loader_destroy(loader);
        shoal_dataset_destroy(dataset);
    }
}

static void refused(const shoal_loader_args *args, const char *word)
{
    shoal_loader *loader = (void *)1;
    assert_int_equal(shoal_loader_create(args, &loader), SHOAL_EINVAL);
    assert_null(loader);
    if (!strstr(shoal_error_message(), word))
        fail_msg("`%s` does not say `%s`", shoal_error_message(), word);
}

static void test_refusals(void **state)
{
    (void)state;
    shoal_dataset *dataset = make_mock(100, "90,10");
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = 90, .micro_batch = 1, .micro_batches = 1};
    refused(&args, "has 90 tokens, but a sequence length of 90 needs at least 91");
    args.split = SHOAL_SPLIT_TEST;
    refused(&args, "the test part has 0 tokens");
    args.sequential = 1;
    refused(&args, "the test part has 0 tokens");
    args = (shoal_loader_args){.dataset = dataset, .seq_length = 8, .micro_batch = 1};
    refused(&args, "must be positive");
    args.micro_batches = 2;
    shoal_loader *loader = open_loader(&args);
    int32_t tokens[8], targets[8];
    assert_int_equal(shoal_loader_get(loader, 0, 2, tokens, targets), SHOAL_EINVAL);
    assert_int_equal(shoal_loader_get(loader, -1, 0, tokens, targets), SHOAL_EINVAL);
    assert_int_equal(shoal_loader_prefetch(loader, &(shoal_prefetch_args){.first = 1, .count = 2}),
                     SHOAL_EINVAL);
    assert_int_equal(shoal_loader_prefetch(loader, &(shoal_prefetch_args){.count = 0}),
                     SHOAL_EINVAL);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

/* With any list, depth and order of questions, get returns what it returns without a prefetcher. */
static void test_prefetch(void **state)
{
    (void)state;
    enum { T = 33, B = 2, M = 12 };
    print_message("seed %d\n", SEED);
    shoal_dataset *dataset = make_mock(3000, "1");
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = T, .micro_batch = B, .micro_batches = M, .seed = SEED};
    shoal_loader *plain = open_loader(&args), *ahead = open_loader(&args);
    int32_t want[2][B * T], got[2][B * T];
    for (uint64_t k = 0; k < 60; k++) {
        struct shoali_stream stream = shoali_stream_make(SEED, "test", "", k);
        shoal_prefetch_args list = {
            .first_step = (int64_t)shoali_random_below(&stream, 0, 5),
            .first = (int64_t)shoali_random_below(&stream, 1, 3),
            .count = 1 + (int64_t)shoali_random_below(&stream, 2, 3),
            .stride = 1 + (int64_t)shoali_random_below(&stream, 3, 4),
            .depth = (int32_t)shoali_random_below(&stream, 4, 9),
        };
        ok(shoal_loader_prefetch(ahead, &list));
        for (uint64_t q = 0; q < 40; q++) {
            uint64_t way = shoali_random_below(&stream, 10 + 3 * q, 8);
            int64_t step = list.first_step + (int64_t)q / list.count;
            int64_t micro = list.first + (int64_t)q % list.count * list.stride;
            if (way == 0) /* anything, also off the list, behind and far ahead */
                micro = (int64_t)shoali_random_below(&stream, 11 + 3 * q, M);
            if (way == 1)
                step = (int64_t)shoali_random_below(&stream, 12 + 3 * q, 50);
            ok(shoal_loader_get(plain, step, micro, want[0], want[1]));
            ok(shoal_loader_get(ahead, step, micro, got[0], got[1]));
            assert_memory_equal(want, got, sizeof(want));
        }
    }
    shoal_loader_destroy(plain);
    shoal_loader_destroy(ahead);
    shoal_dataset_destroy(dataset);
}

/* Sample n is the same whatever came before it, and whatever micro-batch it is in. It is so ahead
 * of time, too, where the steps before had another size. */
static void test_numbers(void **state)
{
    (void)state;
    enum { T = 7, COUNT = 60, MOST = 4 };
    shoal_dataset *dataset = make_mock(3000, "1");
    int32_t all[2][COUNT * T], got[2][MOST * T];
    for (int sequential = 0; sequential < 2; sequential++) {
        shoal_loader_args args = {.dataset = dataset,
                                  .sequential = sequential,
                                  .seq_length = T,
                                  .micro_batch = 1,
                                  .micro_batches = 1,
                                  .seed = SEED};
        shoal_loader *loader = open_loader(&args);
        for (int64_t n = 0; n < COUNT; n++)
            ok(shoal_loader_get(loader, n, 0, all[0] + n * T, all[1] + n * T));
        shoal_loader_destroy(loader);
        for (int64_t b = 1; b <= MOST; b++)
            for (int64_t before = 0; before < 30; before += 7) {
                const shoal_prefetch_args list = {
                    .first = 1, .count = 2, .per_step = 3, .samples_before = before};
                args.micro_batch = b;
                args.micro_batches = 5;
                loader = open_loader(&args);
                ok(shoal_loader_prefetch(loader, &list));
                for (int64_t first = before + b; first + b <= COUNT; first += b) {
                    ok(shoal_loader_get_samples(loader, first, (int32_t *[]){got[0], got[1]}));
                    for (int i = 0; i < 2; i++)
                        assert_memory_equal(got[i], all[i] + first * T,
                                            (size_t)(b * T) * sizeof(int32_t));
                }
                int32_t *arrays[] = {got[0], got[1]};
                assert_int_equal(shoal_loader_get_samples(loader, -1, arrays), SHOAL_EINVAL);
                assert_int_equal(shoal_loader_get_samples(loader, INT64_MAX, arrays), SHOAL_EINVAL);
                assert_int_equal(
                    shoal_loader_prefetch(loader,
                                          &(shoal_prefetch_args){.count = 1, .samples_before = -1}),
                    SHOAL_EINVAL);
                assert_int_equal(
                    shoal_loader_prefetch(
                        loader, &(shoal_prefetch_args){.count = 1, .first_step = INT64_MAX / 2}),
                    SHOAL_EINVAL);
                shoal_loader_destroy(loader);
            }
    }
    shoal_dataset_destroy(dataset);
}

/* Skipping far ahead while an entry is being made drops that entry: nothing between is worked off.
 */
static void test_skip_far(void **state)
{
    (void)state;
    enum { T = 1024, B = 32 };
    static int32_t want[2][B * T], got[2][B * T];
    shoal_dataset *dataset = make_mock(5000, "1");
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = T, .micro_batch = B, .micro_batches = 1, .seed = SEED};
    shoal_loader *plain = open_loader(&args), *ahead = open_loader(&args);
    for (int64_t k = 1; k <= 20; k++) {
        ok(shoal_loader_prefetch(ahead, &(shoal_prefetch_args){.count = 1, .depth = 30}));
        ok(shoal_loader_get(ahead, 0, 0, got[0], got[1]));
        ok(shoal_loader_get(ahead, k * 1000000000, 0, got[0], got[1]));
        ok(shoal_loader_get(plain, k * 1000000000, 0, want[0], want[1]));
        assert_memory_equal(want, got, sizeof(want));
    }
    shoal_loader_destroy(plain);
    shoal_loader_destroy(ahead);
    shoal_dataset_destroy(dataset);
}

/* Stopping with a full ring, an empty one, and before the first question. */
static void test_shutdown(void **state)
{
    (void)state;
    shoal_dataset *dataset = make_mock(3000, "1");
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = 64, .micro_batch = 4, .micro_batches = 4};
    int32_t tokens[256], targets[256];
    for (int k = 0; k < 100; k++) {
        shoal_loader *loader = open_loader(&args);
        ok(shoal_loader_prefetch(loader, &(shoal_prefetch_args){.count = 4, .depth = 1 + k % 7}));
        for (int q = 0; q < k % 5; q++)
            ok(shoal_loader_get(loader, 0, q % 4, tokens, targets));
        shoal_loader_destroy(loader);
    }
    shoal_dataset_destroy(dataset);
}

static void test_error_is_delivered(void **state)
{
    (void)state;
    shoal_dataset *dataset = make_mock(3000, "1");
    shoal_loader_args args = {
        .dataset = dataset, .seq_length = 64, .micro_batch = 1, .micro_batches = 4};
    int32_t tokens[64], targets[64];
    shoal_loader *loader = open_loader(&args);
    /* the prefetch thread arms itself from the environment at its first pass */
    assert_int_equal(setenv("SHOAL_FAULT", "data_prefetch:2", 1), 0);
    ok(shoal_loader_prefetch(loader, &(shoal_prefetch_args){.count = 4}));
    ok(shoal_loader_get(loader, 0, 0, tokens, targets));
    ok(shoal_loader_get(loader, 0, 1, tokens, targets));
    assert_int_equal(shoal_loader_get(loader, 0, 2, tokens, targets), SHOAL_EIO);
    assert_string_equal(shoal_error_message(), "the samples from 2 on could not be read");
    ok(shoal_loader_get(loader, 0, 3, tokens, targets));
    shoal_loader_destroy(loader);
    assert_int_equal(unsetenv("SHOAL_FAULT"), 0);
    shoal_dataset_destroy(dataset);
}

/* Each allocation fails once. */
static void test_without_memory(void **state)
{
    (void)state;
    shoal_dataset *whole = make_mock(3000, "1"), *dataset = NULL;
    const shoal_loader_args args = {
        .dataset = whole, .seq_length = 64, .micro_batch = 1, .micro_batches = 4};
    shoal_loader *loader = open_loader(&args);
    int32_t tokens[64], targets[64];
    char spec[32];
    shoal_status status = SHOAL_ENOMEM;
    for (int skip = 0; status < 0; skip++) {
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        status = shoal_loader_prefetch(loader, &(shoal_prefetch_args){.count = 4});
        assert_true(shoali_fault_arm(NULL));
        assert_true(skip < 20 && (status == SHOAL_OK || status == SHOAL_ENOMEM));
        assert_true(skip > 0 || status < 0);
    }
    ok(shoal_loader_get(loader, 0, 0, tokens, targets));
    shoal_loader_destroy(loader);
    status = SHOAL_ENOMEM;
    for (int skip = 0; status < 0; skip++) {
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        status = shoal_dataset_create(&(shoal_dataset_args){.mock = 1,
                                                            .mock_token_count = 3000,
                                                            .mock_vocab_size = 50000,
                                                            .split = "1",
                                                            .seed = SEED},
                                      &dataset);
        assert_true(shoali_fault_arm(NULL));
        assert_true(skip < 20 && (status == SHOAL_OK || status == SHOAL_ENOMEM));
        assert_true(skip > 0 || status < 0);
    }
    assert_true(shoal_dataset_fingerprint(dataset) == shoal_dataset_fingerprint(whole));
    shoal_dataset_destroy(dataset);
    shoal_dataset_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),        cmocka_unit_test(test_layout_does_not_matter),
        cmocka_unit_test(test_streams_differ), cmocka_unit_test(test_sequential),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_numbers),        cmocka_unit_test(test_skip_far),
        cmocka_unit_test(test_shutdown),       cmocka_unit_test(test_error_is_delivered),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
