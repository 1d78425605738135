/* The trap: every instruction by several addresses and registers, its effect in memory, the counts,
 * and what it tells the rest of the program. */
#include "tools/tile_trap_test.h"

#include "base/cpu.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

/* Rows of 64 bytes, the first of 32 at row 16; no two words are the same. */
static uint8_t memory[80][64], out[16][64];

static void fill(void)
{
    for (int i = 0; i < 80 * 16; i++)
        memcpy(&memory[i / 16][4 * (i % 16)], &(uint32_t){(uint32_t)(i * 2654435761u) | 1}, 4);
}

/* What tile 3 holds: rows `step` apart, from that of memory on. */
static void expect_rows(const char *what, int first, int step)
{
    memset(out, 0, sizeof out);
    STORE(3, out);
    for (int r = 0; r < 16; r++)
        if (memcmp(out[r], memory[first + r * step], 64) != 0)
            fail_msg("%s: row %d is not row %d of memory", what, r, first + r * step);
}

/* Base and stride come in named registers; AT&T's order, as objdump prints it. */
#define LOAD_FORM(text, first, step, base_register, base_value, index_register, index_value) \
    do {                                                                                     \
        __asm__ volatile("tilezero %%tmm3\n\tmov %0, %%" base_register                       \
                         "\n\tmov %1, %%" index_register "\n\t" text                         \
                         :                                                                   \
                         : "r"(base_value), "r"((int64_t)(index_value))                      \
                         : base_register, index_register, "memory");                         \
        expect_rows(text, first, step);                                                      \
    } while (0)

static void test_addresses_of_loads(void **state)
{
    (void)state;
    LOAD_CONFIG(&full);
    LOAD_FORM("tileloadd (%%rax,%%rcx,1), %%tmm3", 16, 1, "rax", memory[16], "rcx", 64);
    LOAD_FORM("tileloadd (%%rdi,%%rsi,2), %%tmm3", 16, 1, "rdi", memory[16], "rsi", 32);
    LOAD_FORM("tileloadd (%%r8,%%r9,4), %%tmm3", 16, 2, "r8", memory[16], "r9", 32);
    LOAD_FORM("tileloadd (%%r15,%%rdx,8), %%tmm3", 16, 3, "r15", memory[16], "rdx", 24);
    /* Registers whose numbers have a meaning of their own in ModRM and SIB. */
    LOAD_FORM("tileloadd (%%r12,%%r10,1), %%tmm3", 16, 1, "r12", memory[16], "r10", 64);
    LOAD_FORM("tileloadd (%%r13,%%r11,1), %%tmm3", 16, 1, "r13", memory[16], "r11", 64);
    LOAD_FORM("tileloadd (%%rax,%%r12,1), %%tmm3", 16, 1, "rax", memory[16], "r12", 64);
    LOAD_FORM("tileloadd (%%rax,%%r13,1), %%tmm3", 16, 1, "rax", memory[16], "r13", 64);
    /* Displacements: of a byte, of four, negative ones. */
    LOAD_FORM("tileloadd 64(%%rax,%%rcx,1), %%tmm3", 17, 1, "rax", memory[16], "rcx", 64);
    LOAD_FORM("tileloadd -128(%%r14,%%r8,1), %%tmm3", 14, 1, "r14", memory[16], "r8", 64);
    LOAD_FORM("tileloadd 1024(%%r13,%%rcx,1), %%tmm3", 32, 1, "r13", memory[16], "rcx", 64);
    LOAD_FORM("tileloadd -960(%%rsi,%%rcx,1), %%tmm3", 1, 1, "rsi", memory[16], "rcx", 64);
    /* Strides: zero, in a register and by leaving it out, and negative. */
    LOAD_FORM("tileloadd (%%rax,%%rcx,1), %%tmm3", 16, 0, "rax", memory[16], "rcx", 0);
    LOAD_FORM("tileloadd (%%rax), %%tmm3", 16, 0, "rax", memory[16], "rcx", 64);
    LOAD_FORM("tileloadd (%%r12), %%tmm3", 16, 0, "r12", memory[16], "rcx", 64);
    LOAD_FORM("tileloadd (%%rax,%%rcx,1), %%tmm3", 47, -1, "rax", memory[47], "rcx", -64);
    LOAD_FORM("tileloadd 64(%%rax,%%rcx,4), %%tmm3", 47, -3, "rax", memory[46], "rcx", -48);
    LOAD_FORM("tileloaddt1 (%%r9,%%r14,1), %%tmm3", 16, 1, "r9", memory[16], "r14", 64);
    _tile_release();
}

/* The frame's register and the stack's; AddressSanitizer would forbid what lies at the latter. */
__attribute__((no_sanitize("address"))) static void test_addresses_by_stack(void **state)
{
    (void)state;
    uint8_t top[64];
    LOAD_CONFIG(&full);
    __asm__ volatile("mov %%rbp, %%r8\n\tmov %0, %%rbp\n\ttileloadd (%%rbp,%1,1), %%tmm3\n\t"
                     "mov %%r8, %%rbp"
                     :
                     : "r"(memory[16]), "r"((int64_t)64)
                     : "r8", "memory");
    expect_rows("(%rbp,stride)", 16, 1);
    __asm__ volatile("vmovdqu64 (%%rsp), %%zmm0\n\tvmovdqu64 %%zmm0, (%0)\n\t"
                     "tileloadd (%%rsp,%1,1), %%tmm3"
                     :
                     : "r"(top), "r"((int64_t)0)
                     : "xmm0", "memory");
    STORE(3, out);
    assert_memory_equal(out[0], top, 64);
    assert_memory_equal(out[15], top, 64);
    _tile_release();
}

/* Without a base, below 2 GiB. */
static void test_absolute_address(void **state)
{
    (void)state;
    uint8_t *low = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (low != (void *)0x20000000) {
        print_message("skipped: the address is taken\n");
        skip();
    }
    memcpy(low + 64, memory[16], 1024);
    LOAD_CONFIG(&full);
    __asm__ volatile("tileloadd 0x20000040(,%0,2), %%tmm3" : : "r"((int64_t)32) : "memory");
    expect_rows("disp32(,stride,2)", 16, 1);
    _tile_release();
    munmap(low, 4096);
}

static void test_addresses_of_stores(void **state)
{
    (void)state;
    static uint8_t to[48][64];
    LOAD_CONFIG(&full);
    LOAD(5, memory[16]);
    __asm__ volatile("mov %0, %%r11\n\tmov %1, %%r13\n\ttilestored %%tmm5, 64(%%r11,%%r13,4)"
                     :
                     : "r"(to), "r"((int64_t)48)
                     : "r11", "r13", "memory");
    for (int r = 0; r < 16; r++)
        assert_memory_equal(to[1 + 3 * r], memory[16 + r], 64);
    assert_memory_equal(to[0], ((const uint8_t[64]){0}), 64);
    memset(to, 0, sizeof to);
    __asm__ volatile("tilestored %%tmm5, (%0,%1,1)" : : "r"(to[15]), "r"((int64_t)-64) : "memory");
    for (int r = 0; r < 16; r++)
        assert_memory_equal(to[15 - r], memory[16 + r], 64);
    _tile_release();
}

static const struct config several[3] = {
    {.palette = 1, .bytes = {16}, .rows = {1}},
    {.palette = 1, .bytes = {[7] = 64}, .rows = {[7] = 16}},
    {.palette = 1, .bytes = {[4] = 12}, .rows = {[4] = 5}},
};

static void test_configurations(void **state)
{
    (void)state;
    struct config got[3];
    __asm__ volatile("ldtilecfg %0" : : "m"(small)); /* from the instruction pointer on */
    STORE_CONFIG(&got[0]);
    assert_memory_equal(&got[0], &small, 64);
    __asm__ volatile("mov %0, %%r10\n\tmov %1, %%r14\n\tldtilecfg 64(%%r10,%%r14,8)"
                     :
                     : "r"(several), "r"((int64_t)8)
                     : "r10", "r14", "memory");
    __asm__ volatile("mov %0, %%r12\n\tsttilecfg 64(%%r12)" : : "r"(got) : "r12", "memory");
    assert_memory_equal(&got[1], &several[2], 64);
    __asm__ volatile("mov %0, %%r13\n\tldtilecfg 0x80(%%r13)" : : "r"(several) : "r13", "memory");
    __asm__ volatile("mov %0, %%r15\n\tsttilecfg (%%r15)" : : "r"(got) : "r15", "memory");
    assert_memory_equal(&got[0], &several[2], 64);
    _tile_release();
    STORE_CONFIG(&got[0]);
    assert_memory_equal(&got[0], &(struct config){0}, 64);
    LOAD_CONFIG(&full);
    LOAD_CONFIG(&(struct config){0}); /* palette 0 releases */
    STORE_CONFIG(&got[0]);
    assert_memory_equal(&got[0], &(struct config){0}, 64);
    assert_int_equal(tile_trap_counts().configured_threads, 0);
}

/* Rows and bytes of a tile, and what is behind them in memory. */
static void test_parts_of_tiles(void **state)
{
    (void)state;
    LOAD_CONFIG(&small);
    LOAD(2, memory[16]);
    memset(out, 0x55, sizeof out);
    STORE(2, out);
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 64; i++)
            assert_int_equal(out[r][i], r < 3 && i < 8 ? memory[16 + r][i] : 0x55);
    /* Another configuration has other registers, all zero. */
    LOAD_CONFIG(&full);
    STORE(2, out);
    for (int r = 0; r < 16; r++)
        assert_memory_equal(out[r], ((const uint8_t[64]){0}), 64);
    LOAD(2, memory[16]);
    _tile_zero(2);
    STORE(2, out);
    assert_memory_equal(out[3], ((const uint8_t[64]){0}), 64);
    _tile_release();
}

/* A load that was interrupted at row 5 goes on there. */
static void test_start_row(void **state)
{
    (void)state;
    struct config config = full, got;
    config.start_row = 5;
    LOAD_CONFIG(&config);
    LOAD(1, memory[16]);
    STORE(1, out);
    for (int r = 0; r < 16; r++)
        assert_memory_equal(out[r], r < 5 ? ((const uint8_t[64]){0}) : memory[16 + r], 64);
    STORE_CONFIG(&got);
    assert_memory_equal(&got, &full, 64);
    _tile_release();
}

/* ---- products: of whole numbers, whose sums have one value in any order ---- */

static void put(uint8_t *to, int value)
{
    uint32_t bits;
    memcpy(&bits, &(float){(float)value}, 4);
    const uint16_t half = (uint16_t)(bits >> 16);
    memcpy(to, &half, 2);
}

#define MULTIPLY(c, a, b)                                              \
    do {                                                               \
        LOAD(a, x);                                                    \
        LOAD(b, y);                                                    \
        LOAD(c, z);                                                    \
        __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #c); \
        memset(out, 0x55, sizeof out);                                 \
        STORE(c, out);                                                 \
    } while (0)

/* C of `rows` and `columns` in out, of pairs of bf16 in x and y, and of z. */
static void expect_product(int rows, int columns, int pairs)
{
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float got, want = (float)(m - n);
            for (int k = 0; k < 2 * pairs; k++)
                want += (float)((m * 7 + k) % 13 - 6) * (float)((n * 5 + k * 3) % 11 - 4);
            memcpy(&got, &out[m][4 * n], 4);
            if (m >= rows || n >= columns)
                memset(&want, 0x55, 4);
            if (got != want)
                fail_msg("%d x %d x %d: element %d,%d is %g, not %g", rows, columns, pairs, m, n,
                         (double)got, (double)want);
        }
}

static void test_products(void **state)
{
    (void)state;
    static uint8_t x[16][64], y[16][64], z[16][64];
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 32; k++)
            put(&x[m][2 * k], (m * 7 + k) % 13 - 6);
    for (int n = 0; n < 16; n++)
        for (int k = 0; k < 32; k++)
            put(&y[k / 2][4 * n + 2 * (k % 2)], (n * 5 + k * 3) % 11 - 4);
    for (int i = 0; i < 256; i++)
        memcpy(&z[i / 16][i % 16 * 4], &(float){(float)(i / 16 - i % 16)}, 4);
    LOAD_CONFIG(&full);
    MULTIPLY(0, 1, 2);
    expect_product(16, 16, 16);
    MULTIPLY(7, 3, 5);
    expect_product(16, 16, 16);
    MULTIPLY(2, 6, 4);
    expect_product(16, 16, 16);
    const struct config rows = {
        .palette = 1, .bytes = {64, 64, 64}, .rows = {5, 5, 16}}; /* as the last of a matrix */
    LOAD_CONFIG(&rows);
    MULTIPLY(0, 1, 2);
    expect_product(5, 16, 16);
    const struct config part = {.palette = 1, .bytes = {28, 24, 28}, .rows = {5, 5, 6}};
    LOAD_CONFIG(&part);
    MULTIPLY(0, 1, 2);
    expect_product(5, 7, 6);
    _tile_release();
}

/* A product of tiny numbers is a zero of its sign, and stays one: nothing is added for the pairs
 * that there are not. */
static void test_signs_of_short_products(void **state)
{
    (void)state;
    const struct config part = {.palette = 1, .bytes = {4, 8, 4}, .rows = {1, 1, 2}};
    const uint16_t tiny[4] = {0x0d80, 0x0d80, 0x0d80, 0x0d80}; /* 2^-100 */
    const uint16_t minus[4] = {0x8d80, 0x8d80, 0x8d80, 0x8d80};
    const uint32_t zero = 0x80000000u;
    uint32_t got = 1;
    LOAD_CONFIG(&part);
    _tile_loadd(0, &zero, 4);
    _tile_loadd(1, tiny, 4);
    _tile_loadd(2, minus, 4);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, &got, 4);
    assert_int_equal(got, zero);
    _tile_release();
}

/* ---- threads and counts ---- */

static void *run_thread(void *user)
{
    struct config *got = user;
    STORE_CONFIG(&got[0]);
    LOAD_CONFIG(&small);
    STORE_CONFIG(&got[1]);
    got[2].rows[0] = (uint8_t)tile_trap_counts().configured_threads;
    _tile_release();
    return NULL;
}

/* A thread has tiles of its own, also one that was told to block all signals. */
static void test_threads(void **state)
{
    (void)state;
    struct config got[3] = {0}, mine;
    pthread_t thread;
    sigset_t all, saved;
    LOAD_CONFIG(&full);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    assert_int_equal(pthread_create(&thread, NULL, run_thread, got), 0);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_join(thread, NULL);
    STORE_CONFIG(&mine);
    assert_memory_equal(&mine, &full, 64);
    assert_memory_equal(&got[0], &(struct config){0}, 64);
    assert_memory_equal(&got[1], &small, 64);
    assert_int_equal(got[2].rows[0], 2);
    assert_int_equal(tile_trap_counts().configured_threads, 1);
    _tile_release();
    assert_int_equal(tile_trap_counts().configured_threads, 0);
}

static void test_counts(void **state)
{
    (void)state;
    const struct tile_trap_counts before = tile_trap_counts();
    LOAD_CONFIG(&full);
    for (int i = 0; i < 2; i++) {
        LOAD(1, memory);
        _tile_stream_loadd(2, memory, 64);
        _tile_zero(0);
    }
    for (int i = 0; i < 3; i++)
        _tile_dpbf16ps(0, 1, 2);
    STORE(0, out);
    _tile_release();
    _tile_release();
    const struct tile_trap_counts after = tile_trap_counts();
    assert_int_equal(after.configures - before.configures, 1);
    assert_int_equal(after.loads - before.loads, 4);
    assert_int_equal(after.zeros - before.zeros, 2);
    assert_int_equal(after.multiplies - before.multiplies, 3);
    assert_int_equal(after.stores - before.stores, 1);
    assert_int_equal(after.releases - before.releases, 2);
    assert_int_equal(after.configured_threads, 0);
}

static void test_what_the_program_is_told(void **state)
{
    (void)state;
    struct shoali_cpu cpu = shoali_cpu_get();
    assert_true(cpu.amx_tile && cpu.amx_bf16 && cpu.tiles_kept);
    assert_true(shoali_cpu_permit_tiles());
    tile_trap_end();
    cpu = shoali_cpu_get();
    assert_false(cpu.amx_tile && cpu.tiles_kept);
    assert_false(shoali_cpu_permit_tiles());
    assert_null(tile_trap_begin());
    tile_trap_permit();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRAPPED(test_addresses_of_loads),
        TRAPPED(test_addresses_by_stack),
        TRAPPED(test_absolute_address),
        TRAPPED(test_addresses_of_stores),
        TRAPPED(test_configurations),
        TRAPPED(test_parts_of_tiles),
        TRAPPED(test_start_row),
        TRAPPED(test_products),
        TRAPPED(test_signs_of_short_products),
        TRAPPED(test_threads),
        TRAPPED(test_counts),
        TRAPPED(test_what_the_program_is_told),
    };
    fill();
    return run_trapped_tests("tile_trap", tests, sizeof tests / sizeof tests[0]);
}
