/* The rules of the trap, each broken in a process of its own, which says the rule and dies of
 * SIGILL. */
#include "tools/tile_trap_test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES(...) __asm__ volatile(".byte " __VA_ARGS__ : : : "memory")

static uint8_t memory[16][64];

static void with_config(struct config config)
{
    LOAD_CONFIG(&config);
}
static struct config with(int tile, int rows, int bytes)
{
    struct config config = full;
    config.rows[tile] = (uint8_t)rows;
    config.bytes[tile] = (uint16_t)bytes;
    return config;
}

static void unknown_instruction(void)
{
    __asm__ volatile("ud2");
}
static void sent_signal(void)
{
    kill(getpid(), SIGILL);
    pause();
}
static void without_permission(void)
{
    tile_trap_end();
    if (tile_trap_begin() == NULL)
        LOAD_CONFIG(&full);
}
static void unconfigured_zero(void)
{
    _tile_zero(0);
}
static void unconfigured_load(void)
{
    LOAD(0, memory);
}
static void unconfigured_store(void)
{
    STORE(0, memory);
}
static void unconfigured_multiply(void)
{
    _tile_dpbf16ps(0, 1, 2);
}
static void after_release(void)
{
    LOAD_CONFIG(&full);
    _tile_release();
    LOAD(0, memory);
}
static void another_register(void)
{
    LOAD_CONFIG(&small);
    LOAD(3, memory);
}
static void another_in_product(void)
{
    with_config(with(2, 0, 0));
    _tile_dpbf16ps(0, 1, 2);
}
/* tileloadd (%rax,%rcx,1) with VEX.R, W1, L1, a vvvv; then without SIB; the rules precede the
 * access. */
static void load_of_register_8(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0x62, 0x7b, 0x4b, 0x04, 0x08");
}
static void load_with_w(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0xfb, 0x4b, 0x04, 0x08");
}
static void load_with_l(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x7f, 0x4b, 0x04, 0x08");
}
static void load_with_vvvv(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x73, 0x4b, 0x04, 0x08");
}
static void load_without_sib(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x7b, 0x4b, 0x00");
}
/* tdpbf16ps %tmm2, %tmm1, %tmm0 with vvvv 10, then VEX.B; and with equal registers. */
static void product_of_register_10(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x2a, 0x5c, 0xc1");
}
static void product_of_register_9(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xc2, 0x6a, 0x5c, 0xc1");
}
static void product_into_a(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x6a, 0x5c, 0xc9");
}
static void product_into_b(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x6a, 0x5c, 0xd1");
}
static void product_of_one(void)
{
    LOAD_CONFIG(&full);
    BYTES("0xc4, 0xe2, 0x6a, 0x5c, 0xc2");
}
static void palette_2(void)
{
    struct config config = full;
    config.palette = 2;
    with_config(config);
}
static void reserved_byte(void)
{
    struct config config = full;
    config.reserved[13] = 1;
    with_config(config);
}
static void bytes_of_register_8(void)
{
    with_config(with(8, 0, 64));
}
static void rows_of_register_15(void)
{
    with_config(with(15, 1, 0));
}
static void rows_17(void)
{
    with_config(with(7, 17, 64));
}
static void bytes_65(void)
{
    with_config(with(0, 16, 65));
}
static void rows_alone(void)
{
    with_config(with(4, 1, 0));
}
static void bytes_alone(void)
{
    with_config(with(4, 0, 4));
}
static void start_behind_rows(void)
{
    struct config config = with(0, 5, 64);
    config.start_row = 5;
    LOAD_CONFIG(&config);
    LOAD(0, memory);
}
static void load_of_odd_bytes(void)
{
    with_config(with(0, 16, 6));
    LOAD(0, memory);
}
static void product_of_odd_bytes(void)
{
    with_config(with(1, 16, 62));
    _tile_dpbf16ps(0, 1, 2);
}
static void other_rows(void)
{
    with_config(with(1, 15, 64));
    _tile_dpbf16ps(0, 1, 2);
}
static void other_columns(void)
{
    with_config(with(0, 16, 60));
    _tile_dpbf16ps(0, 1, 2);
}
static void other_pairs(void)
{
    with_config(with(2, 15, 64));
    _tile_dpbf16ps(0, 1, 2);
}

static const struct violation {
    void (*run)(void);
    const char *says; /* "": nothing, for it is none of the trap's business */
} violations[] = {
    {unknown_instruction, ""},
    {sent_signal, ""},
    {without_permission, "LDTILECFG: the process has not asked for tiles"},
    {unconfigured_zero, "TILEZERO: tiles are not configured"},
    {unconfigured_load, "TILELOADD: tiles are not configured"},
    {unconfigured_store, "TILESTORED: tiles are not configured"},
    {unconfigured_multiply, "TDPBF16PS: tiles are not configured"},
    {after_release, "TILELOADD: tiles are not configured"},
    {another_register, "TILELOADD: the tile register is not configured"},
    {another_in_product, "TDPBF16PS: the tile register is not configured"},
    {load_of_register_8, "TILELOADD: there are 8 tile registers"},
    {load_with_w, "TILELOADD: VEX.W and VEX.L are 0"},
    {load_with_l, "TILELOADD: VEX.W and VEX.L are 0"},
    {load_with_vvvv, "TILELOADD: VEX.vvvv names no register here"},
    {load_without_sib, "TILELOADD: a tile's address needs a SIB byte"},
    {product_of_register_10, "TDPBF16PS: there are 8 tile registers"},
    {product_of_register_9, "TDPBF16PS: there are 8 tile registers"},
    {product_into_a, "TDPBF16PS: the three registers differ"},
    {product_into_b, "TDPBF16PS: the three registers differ"},
    {product_of_one, "TDPBF16PS: the three registers differ"},
    {palette_2, "LDTILECFG: the palette is 0 or 1"},
    {reserved_byte, "LDTILECFG: reserved bytes are zero"},
    {bytes_of_register_8, "LDTILECFG: palette 1 has no registers 8 to 15"},
    {rows_of_register_15, "LDTILECFG: palette 1 has no registers 8 to 15"},
    {rows_17, "LDTILECFG: a tile has at most 16 rows"},
    {bytes_65, "LDTILECFG: a row has at most 64 bytes"},
    {rows_alone, "LDTILECFG: rows and bytes of a tile are zero together"},
    {bytes_alone, "LDTILECFG: rows and bytes of a tile are zero together"},
    {start_behind_rows, "TILELOADD: start_row is below the tile's rows"},
    {load_of_odd_bytes, "TILELOADD: bytes of a row are a multiple of 4"},
    {product_of_odd_bytes, "TDPBF16PS: bytes of a row are a multiple of 4"},
    {other_rows, "TDPBF16PS: C has the rows of A"},
    {other_columns, "TDPBF16PS: C has the bytes of B"},
    {other_pairs, "TDPBF16PS: A has a word for each row of B"},
};

/* What a child that runs it writes to stderr; its wait status. */
static int run_child(void (*run)(void), char *text, size_t bytes)
{
    int ends[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(60);
        run();
        _exit(0);
    }
    assert_true(child > 0);
    close(ends[1]);
    for (ssize_t got = 1; got > 0 && length + 1 < bytes; length += got > 0 ? (size_t)got : 0)
        got = read(ends[0], text + length, bytes - 1 - length);
    text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof violations / sizeof violations[0]; i++) {
        char text[512];
        const struct violation *v = &violations[i];
        const int status = run_child(v->run, text, sizeof text);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGILL)
            fail_msg("'%s' (%zu): status %x instead of SIGILL, said '%s'", v->says, i,
                     (unsigned)status, text);
        if (v->says[0] == '\0' ? text[0] != '\0' : strstr(text, v->says) == NULL)
            fail_msg("expected '%s', got '%s'", v->says, text);
    }
    assert_int_equal(tile_trap_counts().configured_threads, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TRAPPED(test_rules)};
    return run_trapped_tests("tile_trap_rules", tests, 1);
}
