/* arena - bump memory with one lifetime, and checked sizes.
 *
 * Everything allocated from an arena is freed together. For host metadata (names, tables, nodes),
 * never for tensor data. Blocks double from 4 KiB; allocation is O(1). Not thread-safe: one owner.
 * Fault point "alloc" can fail any allocation (tests fail the 1st, 2nd, ... one).
 */
#ifndef SHOALI_ARENA_H
#define SHOALI_ARENA_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shoali_arena_block;
struct shoali_arena {
    struct shoali_arena_block *first, *current;
    size_t used_bytes;  /* handed out since init or reset */
    size_t block_count; /* system allocations made, ever */
};

void shoali_arena_init(struct shoali_arena *arena);
void shoali_arena_fini(struct shoali_arena *arena);
/* Makes all memory available again, keeps the blocks. */
void shoali_arena_reset(struct shoali_arena *arena);
/* Zeroed, 16-byte aligned; NULL (with an error set) when memory is exhausted. */
void *shoali_arena_alloc(struct shoali_arena *arena, size_t bytes);
/* Copies; NULL when memory is exhausted. */
char *shoali_arena_strdup(struct shoali_arena *arena, const char *text);
char *shoali_arena_printf(struct shoali_arena *arena, const char *format, ...) SHOAL_PRINTF(2, 3);

/* malloc/calloc that set the error ("cannot allocate N bytes for WHAT"). */
void *shoali_malloc(size_t bytes, const char *what);
void *shoali_calloc(size_t count, size_t bytes, const char *what);
/* The same for memory that files move in and out of past the page cache: in huge pages as far as it
 * has whole ones and the system lends them. Many devices take one piece of real memory at a
 * time. */
void *shoali_malloc_for_files(size_t bytes, const char *what);
void shoali_free(void *memory);

/* a*b and a+b for non-negative operands; false on overflow (result untouched). */
bool shoali_mul(int64_t a, int64_t b, int64_t *result);
bool shoali_add(int64_t a, int64_t b, int64_t *result);

#endif
