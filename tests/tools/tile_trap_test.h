/* tile_trap_test - what the tests of the trap share: instructions by hand, and a test within the
 * trap. */
#ifndef TILE_TRAP_TEST_H
#define TILE_TRAP_TEST_H

#include "base/test_cmocka.h"
#include "tools/tile_trap.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};
/* All registers full. */
static const struct config full = {
    .palette = 1,
    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Register 2 alone, 3 rows of 8 bytes. */
static const struct config small = {.palette = 1, .bytes = {[2] = 8}, .rows = {[2] = 3}};

/* The compilers' own do not say that they read memory. */
/* clang-format off */
#define LOAD_CONFIG(from) __asm__ volatile("ldtilecfg (%0)" : : "r"(from) : "memory")
#define STORE_CONFIG(to) __asm__ volatile("sttilecfg (%0)" : : "r"(to) : "memory")
#define LOAD(tile, from) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)64) : "memory")
#define STORE(tile, to) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)64) : "memory")
#define TRAPPED(test) {#test, run_trapped, NULL, NULL, &(void (*[1])(void **)){test}}
/* clang-format on */

/* cmocka handles SIGILL during a test, so the trap begins in each. */
static inline void run_trapped(void **state)
{
    void (*const *test)(void **) = *state;
    assert_null(tile_trap_begin());
    tile_trap_permit();
    (*test)(NULL);
    tile_trap_end();
}

/* Exit code 77 where instructions are not trapped. */
static inline int run_trapped_tests(const char *name, const struct CMUnitTest *tests, size_t count)
{
    const char *reason = tile_trap_begin();
    if (reason != NULL) {
        printf("skipped: %s\n", reason);
        return 77;
    }
    tile_trap_end();
    return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

#endif
