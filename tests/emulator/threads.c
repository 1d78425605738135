/* threads.c - the threads of a launch as fibers of one thread of the host. */
#include "emulator.h"
#include "emulator_checks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_BYTES ((size_t)1 << 16)
#define MAX_THREADS 1024
#define MAX_COPIES 128

enum state { READY, AT_BARRIER, IN_WARP, OVER, STATES };
static const char *const state_names[STATES] = {"ready", "at a barrier", "in a warp operation",
                                                "over"};

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
    int group;
};
struct fiber {
    void *stack_pointer;
    enum state state;
    const char *where;
    /* in a warp operation */
    emulator_operation operation;
    uint32_t mask;
    const void *in;
    void *out;
    /* copies under way */
    struct copy copy[MAX_COPIES];
    int copies, groups;
};

struct emulator_place emulator_here;
unsigned emulator_threads, emulator_blocks, emulator_blocks_y;

static struct {
    const struct emulator_launch *launch;
    struct fiber *fiber;
    int order[MAX_THREADS];
    char *stacks, *shared;
    void *scheduler; /* its stack pointer */
    int current, over, at_barrier;
    uint32_t epoch[MAX_THREADS]; /* barriers of the block, and what orders a warp */
    uint64_t random;
    bool reverse, shuffle;
} run;

void emulator_finding(const char *format, ...)
{
    va_list list;
    fprintf(stderr, "emulator: block %u,%u thread %u: ", emulator_here.block, emulator_here.block_y,
            emulator_here.thread);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    abort();
}

/* ---- fibers ---- */

/* Pushes the registers that a function keeps, changes the stacks, and pops them. */

void emulator_switch(void **from, void *to);
#if defined(__x86_64__)
enum { SAVED_WORDS = 6, RETURN_WORD = 6 };
__asm__(".text\n"
        ".globl emulator_switch\n"
        ".hidden emulator_switch\n"
        "emulator_switch:\n"
        "push %rbp\n"
        "push %rbx\n"
        "push %r12\n"
        "push %r13\n"
        "push %r14\n"
        "push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\n"
        "pop %r14\n"
        "pop %r13\n"
        "pop %r12\n"
        "pop %rbx\n"
        "pop %rbp\n"
        "ret\n");
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20, RETURN_WORD = 11 };
__asm__(".text\n"
        ".globl emulator_switch\n"
        ".hidden emulator_switch\n"
        "emulator_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\n"
        "stp x21, x22, [sp, #16]\n"
        "stp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n"
        "stp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n"
        "stp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\n"
        "str x9, [x0]\n"
        "mov sp, x1\n"
        "ldp x19, x20, [sp]\n"
        "ldp x21, x22, [sp, #16]\n"
        "ldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n"
        "ldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\n"
        "ldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n"
        "ret\n");
#else
#error "emulator_switch is missing for this processor"
#endif

static uint32_t warp_epoch[MAX_THREADS / 32];
static int waiting[MAX_THREADS / 32]; /* of a warp, at warp operations */

static void stop_here(enum state state, const char *where)
{
    struct fiber *fiber = &run.fiber[run.current];
    fiber->state = state;
    fiber->where = where;
    emulator_switch(&fiber->stack_pointer, run.scheduler);
}

static void begin_fiber(void)
{
    run.launch->kernel->run(run.launch->args);
    if (run.fiber[run.current].copies > 0)
        emulator_finding("%d copies that nobody waited for", run.fiber[run.current].copies);
    run.over++;
    stop_here(OVER, "the end");
    abort();
}

static void prepare(int thread)
{
    struct fiber *fiber = &run.fiber[thread];
    /* Not all stacks begin in the same sets of the cache. */
    char *top = run.stacks + (size_t)(thread + 1) * STACK_BYTES - (size_t)(thread % 64) * 64;
    void **words = (void **)(void *)top - SAVED_WORDS - 4;
    /* As behind a call: 8 bytes short of a multiple of 16 on x86-64. */
    memset(words, 0, (SAVED_WORDS + 4) * sizeof *words);
    words[RETURN_WORD] = (void *)(uintptr_t)begin_fiber;
    fiber->stack_pointer = words;
    fiber->state = READY;
    fiber->copies = fiber->groups = 0;
}

/* ---- what a kernel calls ---- */

void *emulator_shared(size_t bytes, const char *where)
{
    if (bytes > run.launch->shared_bytes)
        emulator_finding("%s: %zu bytes of shared memory, launched with %zu", where, bytes,
                         run.launch->shared_bytes);
    return run.shared;
}

/* Where two threads of one text are; mostly it is one string. */
static bool same_place(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0;
}

static void wait_in_warp(const char *where)
{
    waiting[run.current / 32]++;
    stop_here(IN_WARP, where);
}

static void release_barrier(void)
{
    const char *where = run.fiber[run.current].where;
    for (unsigned t = 0; t < emulator_threads; t++) {
        struct fiber *fiber = &run.fiber[t];
        if (!same_place(fiber->where, where))
            emulator_finding("a barrier that it reaches at %s, and another thread at %s", where,
                             fiber->where);
        fiber->state = READY;
        run.epoch[t]++;
    }
    run.at_barrier = 0;
}

void emulator_barrier(const char *where)
{
    run.fiber[run.current].where = where;
    if (++run.at_barrier == (int)emulator_threads)
        release_barrier();
    else
        stop_here(AT_BARRIER, where);
}

void emulator_warp(emulator_operation operation, uint32_t mask, const void *in, void *out,
                   const char *where)
{
    const int lane = run.current & 31, first = run.current - lane;
    struct fiber *me = &run.fiber[run.current];
    const void *ins[32] = {NULL};
    void *outs[32] = {NULL};
    me->operation = operation;
    me->mask = mask;
    me->in = in;
    me->out = out;
    me->where = where;
    if (!(mask >> lane & 1))
        emulator_finding("%s: a lane that its own mask %08x leaves out", where, mask);
    const int lanes = mask == ~0u ? 32 : __builtin_popcount(mask);
    if (waiting[run.current / 32] + 1 < lanes) {
        wait_in_warp(where);
        return;
    }
    for (int i = 0; i < 32; i++) {
        const struct fiber *other = &run.fiber[first + i];
        if (!(mask >> i & 1))
            continue;
        if (first + i >= (int)emulator_threads)
            emulator_finding("%s: the mask %08x names lanes that the block does not have", where,
                             mask);
        if (i != lane && (other->state != IN_WARP || other->operation != operation ||
                          other->mask != mask || !same_place(other->where, where))) {
            wait_in_warp(where);
            return;
        }
        ins[i] = other->in;
        outs[i] = other->out;
    }
    operation(ins, outs, mask);
    waiting[run.current / 32] -= lanes - 1;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            run.fiber[first + i].state = READY;
            warp_epoch[(first + i) / 32]++;
        }
}

/* ---- for the checks of accesses ---- */

bool emulator_is_private(const void *address, size_t bytes)
{
    const char *at = address;
    const char *args = run.launch->args;
    return (at >= run.stacks && at + bytes <= run.stacks + MAX_THREADS * STACK_BYTES) ||
           (at >= args && at + bytes <= args + run.launch->kernel->args_bytes);
}

bool emulator_is_shared(const void *address, size_t bytes)
{
    const char *at = address;
    return at >= run.shared && at + bytes <= run.shared + run.launch->shared_bytes;
}

struct emulator_time emulator_now(void)
{
    return (struct emulator_time){.block =
                                      emulator_here.block + emulator_here.block_y * emulator_blocks,
                                  .thread = (uint32_t)run.current,
                                  .barriers = run.epoch[run.current],
                                  .warp_steps = warp_epoch[run.current / 32]};
}

void emulator_lane_reads(int lane, const void *address, size_t bytes)
{
    const int last = run.current;
    run.current = (last & ~31) + lane;
    emulator_here.thread = (unsigned)run.current;
    const char *where = run.fiber[run.current].where;
    if (!emulator_is_shared(address, bytes) || (uintptr_t)address % bytes != 0)
        emulator_finding("%s: reads %zu bytes at %p, not aligned or not in shared memory", where,
                         bytes, address);
    if (emulator_check_access)
        emulator_check_access(address, bytes, false, where);
    run.current = last;
    emulator_here.thread = (unsigned)last;
}

static void arrive_later(void *to, const void *from, size_t bytes, const char *where)
{
    struct fiber *me = &run.fiber[run.current];
    if (me->copies == MAX_COPIES)
        emulator_finding("%s: more than %d copies under way", where, MAX_COPIES);
    if (!emulator_is_shared(to, bytes) || (uintptr_t)to % bytes != 0)
        emulator_finding("%s: copies %zu bytes to %p, not aligned or not in shared memory", where,
                         bytes, to);
    if (emulator_check_access)
        emulator_check_access(to, bytes, true, where);
    memset(to, 0xff, bytes); /* what is read before the wait is NaN */
    me->copy[me->copies++] = (struct copy){to, from, bytes, me->groups};
}

void emulator_copy_later(void *to, const void *from, size_t bytes, const char *where)
{
    if ((uintptr_t)from % bytes != 0)
        emulator_finding("%s: copies %zu bytes from %p, which is not aligned", where, bytes, from);
    if (emulator_check_access)
        emulator_check_access(from, bytes, false, where);
    arrive_later(to, from, bytes, where);
}

void emulator_zeros_later(void *to, size_t bytes, const char *where)
{
    arrive_later(to, NULL, bytes, where);
}

void emulator_commit(void)
{
    run.fiber[run.current].groups++;
}

void emulator_wait(int groups)
{
    struct fiber *me = &run.fiber[run.current];
    int left = 0;
    for (int i = 0; i < me->copies; i++) {
        const struct copy copy = me->copy[i];
        if (copy.group < me->groups - groups && copy.from != NULL)
            memcpy(copy.to, copy.from, copy.bytes);
        else if (copy.group < me->groups - groups)
            memset(copy.to, 0, copy.bytes);
        else
            me->copy[left++] = copy;
    }
    me->copies = left;
}

/* ---- the scheduler ---- */

static void shuffle_order(void)
{
    for (int t = (int)emulator_threads - 1; t > 0; t--) {
        run.random = run.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int other = (int)((run.random >> 33) % (uint64_t)(t + 1)), swap = run.order[t];
        run.order[t] = run.order[other];
        run.order[other] = swap;
    }
}

static void say_stuck(void)
{
    char text[400] = "";
    size_t length = 0;
    for (int state = AT_BARRIER; state < STATES; state++) {
        int count = 0, first = -1;
        for (int t = 0; t < (int)emulator_threads; t++)
            if ((int)run.fiber[t].state == state && count++ == 0)
                first = t;
        if (count > 0 && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%d %s (%d: %s)",
                                       length > 0 ? ", " : "", count, state_names[state], first,
                                       run.fiber[first].where);
    }
    emulator_finding("threads wait for each other: %s", text);
}

static bool run_each(void)
{
    bool moved = false;
    if (run.shuffle)
        shuffle_order();
    for (unsigned i = 0; i < emulator_threads; i++) {
        run.current = run.order[i];
        if (run.fiber[run.current].state != READY)
            continue;
        moved = true;
        emulator_here.thread = (unsigned)run.current;
        emulator_switch(&run.scheduler, run.fiber[run.current].stack_pointer);
    }
    return moved;
}

static void run_block(unsigned block, unsigned block_y)
{
    emulator_here.block = block;
    emulator_here.block_y = block_y;
    run.over = run.at_barrier = 0;
    memset(run.shared, 0xff, run.launch->shared_bytes);
    memset(run.epoch, 0, sizeof run.epoch);
    memset(warp_epoch, 0, sizeof warp_epoch);
    memset(waiting, 0, sizeof waiting);
    if (emulator_check_block)
        emulator_check_block();
    for (int t = 0; t < (int)emulator_threads; t++)
        prepare(t);
    while (run.over < (int)emulator_threads)
        if (!run_each())
            say_stuck();
}

static void read_order(void)
{
    const char *order = getenv("SHOAL_EMULATOR_ORDER");
    run.reverse = order != NULL && strcmp(order, "reverse") == 0;
    run.shuffle = order != NULL && strcmp(order, "random") == 0;
    for (int t = 0; t < (int)emulator_threads; t++)
        run.order[t] = run.reverse ? (int)emulator_threads - 1 - t : t;
}

static void *take(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

void emulator_run(const struct emulator_launch *launch)
{
    const unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    if (run.stacks == NULL) {
        run.stacks = take(MAX_THREADS * STACK_BYTES);
        run.shared = take((size_t)256 << 10);
        run.fiber = take(MAX_THREADS * sizeof *run.fiber);
    }
    run.launch = launch;
    emulator_threads = threads;
    emulator_blocks = launch->grid[0];
    emulator_blocks_y = launch->grid[1];
    read_order();
    if (emulator_check_launch)
        emulator_check_launch(launch->kernel);
    for (unsigned y = 0; y < launch->grid[1]; y++)
        for (unsigned x = 0; x < launch->grid[0]; x++)
            run_block(x, y);
}
