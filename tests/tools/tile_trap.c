/* tile_trap - decodes the instruction at a SIGILL, executes it, steps over it. */
#include "tools/tile_trap.h"

#include "base/cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- what the program asks the system; the linker sends its questions here ------------------- */

static atomic_bool trapping, permitted;

struct shoali_cpu __real_shoali_cpu_get(void);
struct shoali_cpu __wrap_shoali_cpu_get(void);
struct shoali_cpu __wrap_shoali_cpu_get(void)
{
    struct shoali_cpu cpu = __real_shoali_cpu_get();
    if (trapping)
        cpu.amx_tile = cpu.amx_bf16 = cpu.tiles_kept = true;
    return cpu;
}

bool __real_shoali_cpu_permit_tiles(void);
bool __wrap_shoali_cpu_permit_tiles(void);
bool __wrap_shoali_cpu_permit_tiles(void)
{
    if (!trapping)
        return __real_shoali_cpu_permit_tiles();
    tile_trap_permit();
    return true;
}

/* A fault whose signal is blocked ends the process, whatever handler there is. */
int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    sigset_t less;
    if (!trapping || set == NULL || how == SIG_UNBLOCK)
        return __real_pthread_sigmask(how, set, old);
    less = *set;
    sigdelset(&less, SIGILL);
    return __real_pthread_sigmask(how, &less, old);
}

void tile_trap_permit(void)
{
    permitted = true;
}

#if defined(__x86_64__)

#include "ops/cpu/amx/tiles.h"

#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum operation {
    LDTILECFG,
    STTILECFG,
    TILERELEASE,
    TILEZERO,
    TILELOADD,
    TILELOADDT1,
    TILESTORED,
    TDPBF16PS,
    OPERATIONS
};
static const char *const names[OPERATIONS] = {"LDTILECFG",  "STTILECFG", "TILERELEASE",
                                              "TILEZERO",   "TILELOADD", "TILELOADDT1",
                                              "TILESTORED", "TDPBF16PS"};

struct instruction {
    enum operation operation;
    int length;          /* bytes */
    int reg, rm, vvvv;   /* registers, 0 .. 15; the middle one where there is no memory */
    bool in_memory, sib; /* how rm is meant */
    bool w, l;           /* what has to be 0 */
    uintptr_t address;   /* of a tile's first row, else of what is in memory */
    int64_t stride;      /* bytes from a row to the next */
};

/* A thread's registers; each is zero beyond the rows and bytes that are configured. */
static _Thread_local struct amx_tiles tiles;

static _Atomic int64_t count[OPERATIONS], configured_threads;

/* ---- reading an instruction ------------------------------------------------------------------ */

/* Registers by their number in an instruction. */
static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};

enum { NO_PREFIX, PREFIX_66, PREFIX_F3, PREFIX_F2 }; /* of VEX.pp */

/* False: no tile instruction. */
static bool operation_of(int opcode, int prefix, int modrm, enum operation *operation)
{
    const bool in_memory = modrm >> 6 != 3;
    static const enum operation moves[4] = {OPERATIONS, TILELOADDT1, TILESTORED, TILELOADD};
    *operation = OPERATIONS;
    if (opcode == 0x49 && in_memory && (modrm >> 3 & 7) == 0 && prefix <= PREFIX_66)
        *operation = prefix == NO_PREFIX ? LDTILECFG : STTILECFG;
    else if (opcode == 0x49 && modrm == 0xc0 && prefix == NO_PREFIX)
        *operation = TILERELEASE;
    else if (opcode == 0x49 && (modrm & 0xc7) == 0xc0 && prefix == PREFIX_F2)
        *operation = TILEZERO;
    else if (opcode == 0x4b && in_memory)
        *operation = moves[prefix];
    else if (opcode == 0x5c && !in_memory && prefix == PREFIX_F3)
        *operation = TDPBF16PS;
    return *operation != OPERATIONS;
}

/* ModRM's memory operand: base, index and displacement. `at` is behind ModRM. */
static const uint8_t *read_address(const uint8_t *at, int modrm, int x, int b, const greg_t *values,
                                   struct instruction *to)
{
    const int mod = modrm >> 6;
    int base = modrm & 7, bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    uint64_t index = 0;
    bool from_next = false, no_base = false;
    int32_t displacement = 0;
    to->sib = base == 4;
    if (to->sib) {
        const int sib = *at++, number = (sib >> 3 & 7) | x;
        base = sib & 7;
        no_base = base == 5 && mod == 0;
        if (number != 4) /* of the stack pointer: none */
            index = (uint64_t)values[places[number]] << (sib >> 6);
    } else {
        from_next = base == 5 && mod == 0;
    }
    if (no_base || from_next)
        bytes = 4;
    if (bytes == 1)
        displacement = (int8_t)*at;
    else if (bytes == 4)
        memcpy(&displacement, at, sizeof displacement);
    at += bytes;
    uint64_t address = (uint64_t)(int64_t)displacement;
    if (from_next)
        address += (uintptr_t)at;
    else if (!no_base)
        address += (uint64_t)values[places[base | b]];
    const bool of_a_tile = to->operation >= TILELOADD;
    to->address = (uintptr_t)(of_a_tile ? address : address + index);
    to->stride = (int64_t)index;
    return at;
}

/* C4, then inverted R X B and the map, then W, inverted vvvv, L and pp, opcode, ModRM. False:
 * another instruction. */
static bool decode(const uint8_t *code, const greg_t *values, struct instruction *to)
{
    *to = (struct instruction){.length = 0};
    if (code[0] != 0xc4 || (code[1] & 31) != 2)
        return false;
    const int r = code[1] & 128 ? 0 : 8, x = code[1] & 64 ? 0 : 8, b = code[1] & 32 ? 0 : 8;
    const int modrm = code[4];
    const uint8_t *end = code + 5;
    if (!operation_of(code[3], code[2] & 3, modrm, &to->operation))
        return false;
    to->w = code[2] & 128;
    to->l = code[2] & 4;
    to->vvvv = ~(code[2] >> 3) & 15;
    to->reg = (modrm >> 3 & 7) | r;
    to->rm = (modrm & 7) | b;
    to->in_memory = modrm >> 6 != 3;
    if (to->in_memory)
        end = read_address(end, modrm, x, b, values, to);
    to->length = (int)(end - code);
    return true;
}

/* ---- rules: NULL, or which one is broken ----------------------------------------------------- */

static const char *check_encoding(const struct instruction *x)
{
    if (x->w || x->l)
        return "VEX.W and VEX.L are 0 (#UD)";
    if (x->operation != TDPBF16PS && x->vvvv != 0)
        return "VEX.vvvv names no register here (#UD)";
    if (x->operation >= TILELOADD && x->in_memory && !x->sib)
        return "a tile's address needs a SIB byte (#UD)";
    if (x->reg > 7 || (!x->in_memory && x->rm > 7) || x->vvvv > 7)
        return "there are 8 tile registers (#UD)";
    return NULL;
}

static bool is_zero(const void *memory, size_t bytes)
{
    const uint8_t *byte = memory;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i] != 0)
            return false;
    return true;
}

static const char *check_config(const struct amx_config *config)
{
    if (config->palette == 0)
        return NULL;
    if (config->palette != 1)
        return "the palette is 0 or 1 (#GP)";
    if (!is_zero(config->reserved, sizeof config->reserved))
        return "reserved bytes are zero (#GP)";
    if (!is_zero(&config->row_bytes[8], 16) || !is_zero(&config->rows[8], 8))
        return "palette 1 has no registers 8 to 15 (#GP)";
    for (int t = 0; t < 8; t++) {
        if (config->rows[t] > 16)
            return "a tile has at most 16 rows (#GP)";
        if (config->row_bytes[t] > 64)
            return "a row has at most 64 bytes (#GP)";
        if ((config->rows[t] == 0) != (config->row_bytes[t] == 0))
            return "rows and bytes of a tile are zero together (#GP)";
    }
    return NULL;
}

static const char *check_tile(int t)
{
    if (!tiles.configured)
        return "tiles are not configured (#UD)";
    if (tiles.config.rows[t] == 0)
        return "the tile register is not configured (#UD)";
    if (tiles.config.row_bytes[t] % 4 != 0)
        return "bytes of a row are a multiple of 4 (#UD)";
    return NULL;
}

static const char *check_move(int t)
{
    const char *broken = check_tile(t);
    if (broken == NULL && tiles.config.start_row >= tiles.config.rows[t])
        return "start_row is below the tile's rows (#UD)";
    return broken;
}

static const char *check_multiply(int c, int a, int b)
{
    const struct amx_config *config = &tiles.config;
    const int of[3] = {c, a, b};
    if (c == a || c == b || a == b)
        return "the three registers differ (#UD)";
    for (int i = 0; i < 3; i++) {
        const char *broken = check_tile(of[i]);
        if (broken != NULL)
            return broken;
    }
    if (config->rows[c] != config->rows[a])
        return "C has the rows of A (#UD)";
    if (config->row_bytes[c] != config->row_bytes[b])
        return "C has the bytes of B (#UD)";
    if (config->row_bytes[a] != 4 * config->rows[b])
        return "A has a word for each row of B (#UD)";
    return NULL;
}

/* ---- what the instructions do ---------------------------------------------------------------- */

static void configure(const struct amx_config *config)
{
    const bool now = config != NULL && config->palette != 0;
    if (now != tiles.configured)
        atomic_fetch_add(&configured_threads, now ? 1 : -1);
    memset(&tiles, 0, sizeof tiles);
    tiles.configured = now;
    if (now)
        tiles.config = *config;
}

static const char *load_config(uintptr_t address)
{
    struct amx_config config;
    memcpy(&config, (const void *)address, sizeof config);
    if (!permitted)
        return "the process has not asked for tiles (arch_prctl, ARCH_REQ_XCOMP_PERM)";
    const char *broken = check_config(&config);
    if (broken == NULL)
        configure(&config);
    return broken;
}

/* Rows `stride` bytes apart, from start_row on; behind the last one a tile is zero already. */
static const char *move(const struct instruction *x)
{
    const char *broken = check_move(x->reg);
    if (broken != NULL)
        return broken;
    struct amx_tile *tile = &tiles.tile[x->reg];
    const int rows = tiles.config.rows[x->reg];
    const size_t bytes = tiles.config.row_bytes[x->reg];
    const bool load = x->operation != TILESTORED;
    for (int r = tiles.config.start_row; r < rows; r++) {
        void *memory = (void *)(x->address + (uintptr_t)(r * x->stride));
        if (load)
            memcpy(tile->row[r], memory, bytes);
        else
            memcpy(memory, tile->row[r], bytes);
    }
    tiles.config.start_row = 0;
    return NULL;
}

/* Of tiles that are not full the definition, so that there is no sum of what is not there. */
static void multiply_part(struct amx_tile *c, const struct amx_tile *a, const struct amx_tile *b,
                          int rows, int columns, int pairs)
{
    struct amx_tile sum;
    memset(&sum, 0, sizeof sum);
    for (int m = 0; m < rows; m++)
        for (int n = 0; n < columns; n++) {
            float part[2] = {0, 0}, value;
            for (int p = 0; p < pairs; p++) {
                uint16_t x[2], y[2];
                memcpy(x, &a->row[m][4 * p], sizeof x);
                memcpy(y, &b->row[p][4 * n], sizeof y);
                for (int i = 0; i < 2; i++)
                    part[i] = amx_fma(amx_widen(x[i]), amx_widen(y[i]), part[i]);
            }
            memcpy(&value, &c->row[m][4 * n], sizeof value);
            value = amx_add(amx_without_denormal(value), amx_add(part[0], part[1]));
            memcpy(&sum.row[m][4 * n], &value, sizeof value);
        }
    *c = sum;
}

static const char *multiply(int c, int a, int b)
{
    const char *broken = check_multiply(c, a, b);
    if (broken != NULL)
        return broken;
    struct amx_tile *tile = tiles.tile;
    const int rows = tiles.config.rows[c], pairs = tiles.config.rows[b];
    const int columns = tiles.config.row_bytes[c] / 4;
    if (pairs == 16 && columns == 16)
        amx_emulated_multiply(&tile[c], &tile[a], &tile[b], rows);
    else
        multiply_part(&tile[c], &tile[a], &tile[b], rows, columns, pairs);
    tiles.config.start_row = 0;
    return NULL;
}

static const char *zero(int t)
{
    const char *broken = check_tile(t);
    if (broken != NULL)
        return broken;
    memset(&tiles.tile[t], 0, sizeof tiles.tile[t]);
    tiles.config.start_row = 0;
    return NULL;
}

static const char *execute(const struct instruction *x)
{
    const char *broken = check_encoding(x);
    if (broken != NULL)
        return broken;
    switch (x->operation) {
    case LDTILECFG:
        return load_config(x->address);
    case STTILECFG: /* zeros where nothing is configured */
        memcpy((void *)x->address, &tiles.config, sizeof tiles.config);
        return NULL;
    case TILERELEASE:
        configure(NULL);
        return NULL;
    case TILEZERO:
        return zero(x->reg);
    case TDPBF16PS:
        return multiply(x->reg, x->rm, x->vvvv);
    default:
        return move(x);
    }
}

/* ---- the signal ------------------------------------------------------------------------------ */

static char *append(char *to, const char *text)
{
    while (*text != '\0')
        *to++ = *text++;
    return to;
}

/* With what a signal handler may call. */
static void say(enum operation operation, const char *rule, uintptr_t at)
{
    char line[256], *end = append(line, "tile_trap: ");
    end = append(end, names[operation]);
    end = append(end, ": ");
    end = append(end, rule);
    end = append(end, ", at 0x");
    for (int shift = 60; shift >= 0; shift -= 4)
        *end++ = "0123456789abcdef"[at >> shift & 15];
    *end++ = '\n';
    const ssize_t written = write(STDERR_FILENO, line, (size_t)(end - line));
    (void)written;
}

static struct sigaction before;

/* The signal that is raised here comes when the handler returns. */
static void die(void)
{
    signal(SIGILL, SIG_DFL);
    raise(SIGILL);
}

static void on_illegal(int number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    greg_t *values = at->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)(uintptr_t)values[REG_RIP];
    struct instruction x;
    (void)number;
    if (info->si_code <= 0 || !decode(code, values, &x)) {
        die();
        return;
    }
    const char *broken = execute(&x);
    if (broken != NULL) {
        say(x.operation, broken, (uintptr_t)code);
        die();
        return;
    }
    atomic_fetch_add_explicit(&count[x.operation], 1, memory_order_relaxed);
    values[REG_RIP] += x.length;
}

const char *tile_trap_begin(void)
{
    const struct shoali_cpu cpu = __real_shoali_cpu_get();
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    if (cpu.amx_tile && cpu.tiles_kept)
        return "this CPU has tiles, so none of their instructions is trapped";
    /* Of the table's own question all but the tiles. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("avx512bf16"))
        return "this CPU has no AVX-512 with products of bf16, which the kernels of tiles use, too";
    action.sa_sigaction = on_illegal;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGILL, &action, &before) != 0)
        return "the system installs no handler of SIGILL";
    permitted = false;
    trapping = true;
    return NULL;
}

void tile_trap_end(void)
{
    trapping = permitted = false;
    sigaction(SIGILL, &before, NULL);
}

struct tile_trap_counts tile_trap_counts(void)
{
    return (struct tile_trap_counts){
        .configures = count[LDTILECFG],
        .releases = count[TILERELEASE],
        .zeros = count[TILEZERO],
        .loads = count[TILELOADD] + count[TILELOADDT1],
        .stores = count[TILESTORED],
        .multiplies = count[TDPBF16PS],
        .configured_threads = configured_threads,
    };
}

#else

const char *tile_trap_begin(void)
{
    return "this is no x86-64, which alone has tiles";
}

void tile_trap_end(void)
{
}

struct tile_trap_counts tile_trap_counts(void)
{
    return (struct tile_trap_counts){0};
}

#endif
