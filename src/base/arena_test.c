#include "base/arena.h"

#include "base/fault.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <string.h>

static void test_memory_is_zero_aligned_and_apart(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    unsigned char *previous = NULL;
    size_t previous_bytes = 0;
    for (size_t i = 0; i < 3000; i++) {
        size_t bytes = i % 97;
        unsigned char *memory = shoali_arena_alloc(&arena, bytes);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 16, 0);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(memory[k], 0);
        memset(memory, 0xa5, bytes);
        if (previous_bytes > 0)
            assert_int_equal(previous[previous_bytes - 1], 0xa5);
        previous = memory;
        previous_bytes = bytes;
    }
    assert_in_range(arena.block_count, 2, 12);
    shoali_arena_fini(&arena);
}

static void test_reset_reuses_blocks(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    size_t blocks = 0;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++) {
            char *memory = shoali_arena_alloc(&arena, 700);
            assert_non_null(memory);
            assert_int_equal(memory[699], 0);
            memset(memory, 1, 700);
        }
        assert_int_equal(arena.used_bytes, 100 * 704);
        if (round == 0)
            blocks = arena.block_count;
        assert_int_equal(arena.block_count, blocks);
        shoali_arena_reset(&arena);
        assert_int_equal(arena.used_bytes, 0);
    }
    assert_non_null(shoali_arena_alloc(&arena, 1000000));
    assert_int_equal(arena.block_count, blocks + 1);
    shoali_arena_fini(&arena);
}

static void test_texts(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    char *copy = shoali_arena_strdup(&arena, "layers.0");
    assert_string_equal(copy, "layers.0");
    assert_string_equal(shoali_arena_printf(&arena, "%s.%d", copy, 7), "layers.0.7");
    assert_string_equal(shoali_arena_strdup(&arena, ""), "");
    shoali_arena_fini(&arena);
}

static void test_every_failure_is_reported(void **state)
{
    (void)state;
    for (int skip = 0; skip < 3; skip++) {
        struct shoali_arena arena;
        shoali_arena_init(&arena);
        char spec[32];
        snprintf(spec, sizeof(spec), "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        assert_int_equal(shoali_arena_alloc(&arena, 8) == NULL, skip == 0);
        assert_int_equal(shoali_arena_strdup(&arena, "x") == NULL, skip == 1);
        assert_int_equal(shoali_arena_printf(&arena, "x") == NULL, skip == 2);
        assert_true(shoali_fault_arm(NULL));
        assert_non_null(strstr(shoal_error_message(), "cannot allocate"));
        shoali_arena_fini(&arena);
    }
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    assert_null(shoali_arena_alloc(&arena, SIZE_MAX));
    assert_null(shoali_arena_alloc(&arena, SIZE_MAX - 64));
    shoali_arena_fini(&arena);
}

static void test_checked_heap(void **state)
{
    (void)state;
    int *numbers = shoali_calloc(5, sizeof(int), "numbers");
    assert_non_null(numbers);
    assert_int_equal(numbers[4], 0);
    shoali_free(numbers);
    void *empty = shoali_malloc(0, "nothing");
    assert_non_null(empty);
    shoali_free(empty);
    shoali_free(NULL);
    shoali_error_clear();
    assert_null(shoali_calloc(SIZE_MAX / 2, 3, "the world"));
    assert_non_null(strstr(shoal_error_message(), "for the world"));
    assert_true(shoali_fault_arm("alloc"));
    assert_null(shoali_malloc(10, "ten"));
    assert_string_equal(shoal_error_message(), "cannot allocate 10 bytes for ten");
    assert_true(shoali_fault_arm(NULL));
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    int64_t result = -7;
    assert_false(shoali_mul(INT64_MAX, 2, &result));
    assert_false(shoali_mul(-1, 2, &result));
    assert_false(shoali_add(INT64_MAX, 1, &result));
    assert_false(shoali_add(1, -1, &result));
    assert_int_equal(result, -7);
    assert_true(shoali_mul(3037000499, 3037000499, &result));
    assert_int_equal(result, 9223372030926249001);
    assert_true(shoali_add(INT64_MAX - 1, 1, &result));
    assert_true(result == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_zero_aligned_and_apart),
        cmocka_unit_test(test_reset_reuses_blocks),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_every_failure_is_reported),
        cmocka_unit_test(test_checked_heap),
        cmocka_unit_test(test_checked_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
