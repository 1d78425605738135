/* tiles - AMX's tile registers: the instructions, or their emulation behind the same names.
 *
 * Numbers of registers are constants of the instruction, so these are macros. Registers 0 1 / 2 3
 * hold sums (upper / lower 16 rows), 4 and 5 rows of A, 6 and 7 columns of B. The state of the
 * emulation is a variable of the caller's; the registers' own is none.
 */
#ifndef SHOALI_OPS_AMX_TILES_H
#define SHOALI_OPS_AMX_TILES_H

#include "ops/cpu/amx/emulated.h"

#if !defined(SHOALI_AMX_EMULATED)
#include <immintrin.h>
#endif

/* What LDTILECFG loads: palette 1, then bytes of a row and rows of each register; 0: not in use. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Rows of registers 0, 1, 4 (upper) and 2, 3, 5 (lower); those of B always have 16. */
static inline struct amx_config amx_config_of(int rows)
{
    struct amx_config config = {.palette = 1};
    const int upper = rows < 16 ? rows : 16, lower = rows - upper;
    const int of[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int t = 0; t < 8; t++) {
        config.rows[t] = (uint8_t)of[t];
        config.row_bytes[t] = of[t] > 0 ? 64 : 0;
    }
    return config;
}

#if defined(SHOALI_AMX_EMULATED)

struct amx_tiles {
    struct amx_config config;
    struct amx_tile tile[8];
    int configured; /* rows; 0: not yet */
};
#define AMX_MEMORY() ((void)0)
#define AMX_LOAD_CONFIG(tiles, from) amx_emulated_configure((tiles), (from))
#define AMX_RELEASE(tiles) ((void)(tiles))
#define AMX_ZERO(tiles, t) memset(&(tiles)->tile[t], 0, sizeof(struct amx_tile))
#define AMX_LOAD(tiles, t, base, stride) \
    amx_emulated_load(&(tiles)->tile[t], (tiles)->config.rows[t], (base), (stride))
#define AMX_STORE(tiles, t, base, stride) \
    amx_emulated_store(&(tiles)->tile[t], (tiles)->config.rows[t], (base), (stride))
#define AMX_MULTIPLY(tiles, c, a, b)                                               \
    amx_emulated_multiply(&(tiles)->tile[c], &(tiles)->tile[a], &(tiles)->tile[b], \
                          (tiles)->config.rows[c])

static inline void amx_emulated_configure(struct amx_tiles *tiles, const struct amx_config *config)
{
    memset(tiles->tile, 0, sizeof tiles->tile);
    tiles->config = *config;
}

#else

struct amx_tiles {
    int configured; /* rows; 0: not yet */
};
/* Of what is in memory the compiler's own definition names the first eight bytes alone. */
#define AMX_LOAD_CONFIG(tiles, from)                   \
    do {                                               \
        (void)(tiles);                                 \
        __asm__ volatile("" : : "r"(from) : "memory"); \
        _tile_loadconfig(from);                        \
    } while (0)
/* Nor does the compiler know that loads and stores of tiles touch memory at all: what was written
 * before is there, and what is read afterwards has not been read earlier. */
#define AMX_MEMORY() __asm__ volatile("" : : : "memory")
/* The compilers' own are statements. */
#define AMX_DO(tiles, statement) \
    do {                         \
        (void)(tiles);           \
        statement;               \
    } while (0)
#define AMX_RELEASE(tiles) AMX_DO(tiles, _tile_release())
#define AMX_ZERO(tiles, t) AMX_DO(tiles, _tile_zero(t))
#define AMX_LOAD(tiles, t, base, stride) AMX_DO(tiles, _tile_loadd(t, (base), (stride)))
#define AMX_STORE(tiles, t, base, stride) AMX_DO(tiles, _tile_stored(t, (base), (stride)))
#define AMX_MULTIPLY(tiles, c, a, b) AMX_DO(tiles, _tile_dpbf16ps(c, a, b))

#endif

/* 1 .. 32 rows from here on. What registers held is lost when the number changes. */
static inline void amx_configure(struct amx_tiles *tiles, int rows)
{
    if (tiles->configured == rows)
        return;
    const struct amx_config config = amx_config_of(rows);
    AMX_LOAD_CONFIG(tiles, &config);
    tiles->configured = rows;
}

#endif
