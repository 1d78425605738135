/* checks.c - what is done at each access of a kernel: emulator_checks.h. */
#include "emulator.h"
#include "emulator_checks.h"
#include "traffic.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- who used a byte last ---- */

struct use {
    struct emulator_time time;
    uint32_t launch; /* 0: nobody in this launch */
    bool atomic;
};
/* Of 4 bytes. */
struct word {
    uintptr_t address; /* 0: free */
    struct use written[4], read[4];
};
enum { WORDS_LOG2 = 18, WORDS = 1 << WORDS_LOG2 };
static struct word *table;
static uint32_t launch_number, used;

static struct word *find(uintptr_t address)
{
    const uint64_t hash = (uint64_t)(address >> 2) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t i = (uint32_t)(hash >> (64 - WORDS_LOG2));
    while (table[i].address != 0 && table[i].address != address)
        i = (i + 1) % WORDS;
    if (table[i].address == 0) {
        if (++used > WORDS / 2)
            return NULL; /* of a very large launch the rest is not compared */
        table[i].address = address;
    }
    return &table[i];
}

void emulator_check_launch(const void *kernel)
{
    emulator_traffic_launch(kernel);
    if (table == NULL && (table = calloc(WORDS, sizeof *table)) == NULL)
        abort();
    if (used > 0)
        memset(table, 0, WORDS * sizeof *table);
    used = 0;
    launch_number++;
}

/* Shared memory is another block's now. */
void emulator_check_block(void)
{
    emulator_traffic_block();
}

/* Whether something stands between the use and now. */
static bool is_ordered(const struct use *use, const struct emulator_time *now, bool shared)
{
    const struct emulator_time *then = &use->time;
    if (use->launch != launch_number || (shared && then->block != now->block))
        return true;
    if (then->block != now->block)
        return false;
    if (then->thread == now->thread || then->barriers != now->barriers)
        return true;
    return then->thread / 32 == now->thread / 32 && then->warp_steps != now->warp_steps;
}

static const char *place(const void *site, const char *where)
{
    Dl_info info;
    if (where != NULL)
        return where;
    return dladdr(site, &info) != 0 && info.dli_sname != NULL ? info.dli_sname : "a kernel";
}

static void check_byte(struct word *word, int byte, const struct emulator_time *now, bool writes,
                       bool atomic, bool shared, const void *site, const char *where)
{
    struct use *written = &word->written[byte], *read = &word->read[byte];
    if (!is_ordered(written, now, shared) && !(atomic && written->atomic))
        emulator_finding("%s: %s %p, which block %u thread %u has written, with nothing between",
                         place(site, where), writes ? "writes" : "reads",
                         (void *)(word->address + (uintptr_t)byte), written->time.block,
                         written->time.thread);
    if (writes && !is_ordered(read, now, shared) && !(atomic && read->atomic))
        emulator_finding("%s: writes %p, which block %u thread %u has read, with nothing between",
                         place(site, where), (void *)(word->address + (uintptr_t)byte),
                         read->time.block, read->time.thread);
    *(writes ? written : read) = (struct use){*now, launch_number, atomic};
}

static void check_races(uintptr_t address, size_t bytes, bool writes, bool atomic, bool shared,
                        const void *site, const char *where)
{
    const struct emulator_time now = emulator_now();
    struct word *word = NULL;
    for (size_t i = 0; i < bytes; i++) {
        const uintptr_t at = address + i;
        if (i == 0 || at % 4 == 0)
            word = find(at & ~(uintptr_t)3);
        if (word != NULL)
            check_byte(word, (int)(at % 4), &now, writes, atomic, shared, site, where);
    }
}

/* Constants of the text are nobody's. */
static bool is_constant(const void *address)
{
    Dl_info own, its;
    return dladdr((void *)(uintptr_t)is_constant, &own) != 0 && dladdr(address, &its) != 0 &&
           own.dli_fbase == its.dli_fbase;
}

static void check(const void *address, size_t bytes, bool writes, bool atomic, const void *site,
                  const char *where)
{
    const bool shared = emulator_is_shared(address, bytes);
    if (emulator_is_private(address, bytes))
        return;
    if (!shared && emulator_is_allocated && !emulator_is_allocated(address, bytes)) {
        if (!writes && is_constant(address))
            return;
        emulator_finding("%s: %s %zu bytes at %p, outside of all memory that it may use",
                         place(site, where), writes ? "writes" : "reads", bytes, address);
    }
    emulator_traffic_access(address, bytes, emulator_now().thread, shared,
                            where != NULL ? (const void *)where : site);
    check_races((uintptr_t)address, bytes, writes, atomic, shared, site, where);
}

void emulator_check_end(void)
{
    emulator_traffic_end();
}

void emulator_check_access(const void *address, size_t bytes, bool writes, const char *where)
{
    check(address, bytes, writes, false, NULL, where);
}

/* ---- the functions that gcc calls ---- */

#define CALLED __attribute__((visibility("default"), noinline))
#define SITE __builtin_return_address(0)
#define ACCESSES(bytes)                                       \
    CALLED void __tsan_read##bytes(void *address);            \
    CALLED void __tsan_read##bytes(void *address)             \
    {                                                         \
        check(address, bytes, false, false, SITE, NULL);      \
    }                                                         \
    CALLED void __tsan_write##bytes(void *address);           \
    CALLED void __tsan_write##bytes(void *address)            \
    {                                                         \
        check(address, bytes, true, false, SITE, NULL);       \
    }                                                         \
    CALLED void __tsan_unaligned_read##bytes(void *address);  \
    CALLED void __tsan_unaligned_read##bytes(void *address)   \
    {                                                         \
        check(address, bytes, false, false, SITE, NULL);      \
    }                                                         \
    CALLED void __tsan_unaligned_write##bytes(void *address); \
    CALLED void __tsan_unaligned_write##bytes(void *address)  \
    {                                                         \
        check(address, bytes, true, false, SITE, NULL);       \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

CALLED void __tsan_read_range(void *address, unsigned long bytes);
CALLED void __tsan_read_range(void *address, unsigned long bytes)
{
    check(address, bytes, false, false, SITE, NULL);
}
CALLED void __tsan_write_range(void *address, unsigned long bytes);
CALLED void __tsan_write_range(void *address, unsigned long bytes)
{
    check(address, bytes, true, false, SITE, NULL);
}
CALLED void __tsan_init(void);
CALLED void __tsan_init(void)
{
}
CALLED void __tsan_func_entry(void *from);
CALLED void __tsan_func_entry(void *from)
{
    (void)from;
}
CALLED void __tsan_func_exit(void *from);
CALLED void __tsan_func_exit(void *from)
{
    (void)from;
}
CALLED uint64_t __tsan_atomic64_fetch_add(uint64_t *x, uint64_t add, int order);
CALLED uint64_t __tsan_atomic64_fetch_add(uint64_t *x, uint64_t add, int order)
{
    (void)order;
    check(x, sizeof *x, true, true, SITE, NULL);
    const uint64_t old = *x;
    *x = old + add;
    return old;
}
CALLED uint32_t __tsan_atomic32_fetch_or(uint32_t *x, uint32_t bits, int order);
CALLED uint32_t __tsan_atomic32_fetch_or(uint32_t *x, uint32_t bits, int order)
{
    (void)order;
    check(x, sizeof *x, true, true, SITE, NULL);
    const uint32_t old = *x;
    *x = old | bits;
    return old;
}
