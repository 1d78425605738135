#include "base/arena.h"

#include "base/fault.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

enum { FIRST_BLOCK_BYTES = 4096, ALIGNMENT = 16 };

struct shoali_arena_block {
    struct shoali_arena_block *next;
    size_t capacity, used; /* of data, in bytes */
    _Alignas(ALIGNMENT) unsigned char data[];
};

void shoali_arena_init(struct shoali_arena *arena)
{
    *arena = (struct shoali_arena){0};
}

void shoali_arena_fini(struct shoali_arena *arena)
{
    struct shoali_arena_block *block = arena->first;
    while (block) {
        struct shoali_arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (struct shoali_arena){0};
}

void shoali_arena_reset(struct shoali_arena *arena)
{
    for (struct shoali_arena_block *block = arena->first; block; block = block->next)
        block->used = 0;
    arena->current = arena->first;
    arena->used_bytes = 0;
}

/* Appends a block that holds at least `bytes` behind the last one; NULL when memory is exhausted.
 */
static struct shoali_arena_block *add_block(struct shoali_arena *arena, size_t bytes)
{
    struct shoali_arena_block *last = arena->current;
    size_t capacity = FIRST_BLOCK_BYTES - sizeof(*last);
    if (last && last->capacity <= PTRDIFF_MAX / 4)
        capacity = 2 * (last->capacity + sizeof(*last)) - sizeof(*last);
    if (capacity < bytes)
        capacity = bytes;
    struct shoali_arena_block *block = malloc(sizeof(*block) + capacity);
    if (!block)
        return NULL;
    *block = (struct shoali_arena_block){.capacity = capacity};
    if (last)
        last->next = block;
    else
        arena->first = block;
    arena->block_count++;
    return block;
}

void *shoali_arena_alloc(struct shoali_arena *arena, size_t bytes)
{
    struct shoali_arena_block *block = arena->current;
    if (bytes > PTRDIFF_MAX - ALIGNMENT || shoali_fault("alloc"))
        goto exhausted;
    size_t rounded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (rounded == 0)
        rounded = ALIGNMENT; /* distinct addresses for empty allocations */
    while (block && block->capacity - block->used < rounded && block->next) {
        block = block->next;
        arena->current = block;
    }
    if (!block || block->capacity - block->used < rounded) {
        block = add_block(arena, rounded);
        if (!block)
            goto exhausted;
        arena->current = block;
    }
    void *memory = block->data + block->used;
    block->used += rounded;
    arena->used_bytes += rounded;
    return memset(memory, 0, rounded);
exhausted:
    SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes in an arena that holds %zu bytes", bytes,
               arena->used_bytes);
    return NULL;
}

char *shoali_arena_strdup(struct shoali_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = shoali_arena_alloc(arena, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *shoali_arena_printf(struct shoali_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = shoali_vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : shoali_arena_alloc(arena, (size_t)length + 1);
    if (text)
        shoali_vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

static void *allocated_or_fail(void *memory, size_t bytes, const char *what)
{
    if (!memory)
        SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes for %s", bytes, what);
    return memory;
}

/* Empty requests take one byte, so that NULL always means failure. */
void *shoali_malloc(size_t bytes, const char *what)
{
    void *memory = shoali_fault("alloc") ? NULL : malloc(bytes ? bytes : 1);
    return allocated_or_fail(memory, bytes, what);
}

void *shoali_malloc_for_files(size_t bytes, const char *what)
{
    void *memory = NULL;
    if (bytes < HUGE_PAGE)
        return shoali_malloc(bytes, what);
    if (shoali_fault("alloc") || posix_memalign(&memory, HUGE_PAGE, bytes) != 0)
        return allocated_or_fail(NULL, bytes, what);
    (void)madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* works without */
    return memory;
}

void *shoali_calloc(size_t count, size_t bytes, const char *what)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return allocated_or_fail(NULL, SIZE_MAX, what);
    void *memory = shoali_fault("alloc") ? NULL : calloc(1, total ? total : 1);
    return allocated_or_fail(memory, total, what);
}

void shoali_free(void *memory)
{
    free(memory);
}

bool shoali_mul(int64_t a, int64_t b, int64_t *result)
{
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
        return false;
    *result = product;
    return true;
}

bool shoali_add(int64_t a, int64_t b, int64_t *result)
{
    int64_t sum;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum))
        return false;
    *result = sum;
    return true;
}
