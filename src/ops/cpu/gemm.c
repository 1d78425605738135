/* gemm - the matrix product: plan, blocking, threads. See gemm.h for the layouts.
 *
 * Each thread's share is a rectangle of C. Within one, rows are taken in blocks of mc, columns in
 * blocks of nc, and some panels of such a block are the piece that a thread claims; k is taken in
 * blocks of kc. A panel of B is packed just before its use, so that it is in the second-level cache
 * when the row tiles walk over it; where several row blocks need the same panels (A is packed, K is
 * one block) those of a block of columns are kept, and so is a block of A from piece to piece. When
 * K needs several blocks the sums are carried in fp32: in C itself if nothing else happens to it,
 * else in scratch.
 */
#include "ops/cpu/gemm.h"
#include "base/nontemporal.h"

#include <stdlib.h>

#define BLOCK_STEPS \
    1536 /* of k: a panel is at most 288 KiB, less than half of the second-level cache */
#define BLOCK_ROWS 512          /* when A is packed or sums are carried in scratch */
#define BLOCK_COLUMNS 1536      /* the same; whole panels */
#define DIRECT_ROWS 2048        /* when neither */
#define PIECE_WORK (1 << 24)    /* multiply-adds of a piece: some hundred microseconds */
#define PIECE_PANELS 16         /* at least, when A is packed anew for each piece */
#define COLUMNS_BYTES (2 << 20) /* of A: the caches give columns in place fast enough */
#define SERIAL_WORK 32768       /* multiply-adds below which a second thread does not pay */
#define STACK_STEPS 64          /* blocks when no scratch memory can be had */

/* A is read in place, by rows or, stored transposed, by columns; or it is packed. */
enum a_mode { A_DIRECT, A_COLUMNS, A_STRAIGHT, A_TILES };

struct plan {
    const struct shoali_gemm_args *args;
    struct gemm_source a, b;
    enum a_mode a_mode;
    bool pairs;
    const uint32_t *packed_b; /* NULL: panels are packed on the way */
    int64_t grain;            /* threads' columns begin at multiples of it */
    bool plain;               /* C is fp32 and takes the sum unchanged */
    bool carry_in_c;          /* plain, and no tile is narrower than a unit */
    bool keep_b;              /* packed panels serve the next row block, too */
    int64_t mc, nc, kc;
    int64_t piece; /* columns: whole panels */
    int32_t grid_m, grid_n;
};

/* One thread's buffers and its place. */
struct block {
    const struct plan *plan;
    uint32_t *a, *b;
    float *carry;
    int64_t carry_ld;
    int64_t i0, rows, j0, columns, k0, k;
    int64_t a_packed; /* the first row of the block of A that is; -1: none */
    int64_t b_block;  /* the first column of the block whose panels are kept */
    uint64_t b_packed[(BLOCK_COLUMNS / GEMM_COLUMNS + 63) / 64]; /* which of them are there */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return ceil_div(n, multiple) * multiple;
}

/* Words between rows of a straight copy of A: padded, since rows a power of two apart share cache
 * sets. */
static int64_t straight_ld(int64_t k, bool pairs)
{
    return round_up(gemm_steps(k, pairs), 16) + 16;
}

static void pack_a(const struct block *at)
{
    const struct plan *plan = at->plan;
    if (plan->a_mode == A_STRAIGHT) {
        SHOALI_CPU_SYMBOL(pack_straight)
        (&plan->a, at->k0, at->k, at->i0, at->rows, straight_ld(plan->kc, plan->pairs), at->a);
        return;
    }
    SHOALI_CPU_SYMBOL(pack_tiles)(&plan->a, at->k0, at->k, at->i0, at->rows, at->a);
}

/* Where A's rows from i on begin, as the plan has them. */
static const char *address_in_a(const struct block *at, int64_t i)
{
    const struct plan *plan = at->plan;
    if (plan->a_mode == A_DIRECT)
        return plan->a.x + (plan->pairs ? 2 : 4) * ((at->i0 + i) * plan->a.ld + at->k0);
    if (plan->a_mode == A_COLUMNS)
        return plan->a.x + 4 * (at->k0 * plan->a.ld + at->i0 + i);
    if (plan->a_mode == A_STRAIGHT)
        return (const char *)(at->a + i * straight_ld(plan->kc, plan->pairs));
    return (const char *)(at->a + i * gemm_steps(at->k, plan->pairs));
}

static void point_to_a(const struct block *at, int64_t i, struct gemm_tile *tile)
{
    const struct plan *plan = at->plan;
    const int64_t next = i + GEMM_ROWS;
    tile->a = address_in_a(at, i);
    tile->a_next = address_in_a(at, next < at->rows ? next : 0);
    tile->a_step = 4;
    if (plan->a_mode == A_DIRECT) {
        tile->a_row = (plan->pairs ? 2 : 4) * plan->a.ld;
    } else if (plan->a_mode == A_COLUMNS) {
        tile->a_row = 4;
        tile->a_step = 4 * plan->a.ld;
    } else if (plan->a_mode == A_STRAIGHT) {
        tile->a_row = 4 * straight_ld(plan->kc, plan->pairs);
    } else {
        tile->a_row = 4;
        tile->a_step = 4 * GEMM_ROWS;
    }
}

/* Makes the panel of columns [j, j+columns) of the block available. */
static void point_to_b(struct block *at, int64_t j, int64_t columns, struct gemm_tile *tile)
{
    const struct plan *plan = at->plan;
    const int64_t width = round_up(columns, 16);
    tile->b_step = 4 * width;
    if (plan->packed_b) {
        const int64_t steps = gemm_steps(plan->args->k, plan->pairs);
        const int64_t before = gemm_steps(at->k0, plan->pairs);
        tile->b = (const char *)(plan->packed_b + (at->j0 + j) * steps + before * width);
        return;
    }
    uint32_t *panel = at->b;
    if (plan->keep_b) {
        const int64_t in_block = at->j0 + j - at->b_block, number = in_block / GEMM_COLUMNS;
        const uint64_t bit = (uint64_t)1 << number % 64;
        panel += in_block * gemm_steps(at->k, plan->pairs);
        tile->b = (const char *)panel;
        if (at->b_packed[number / 64] & bit)
            return;
        at->b_packed[number / 64] |= bit;
    }
    tile->b = (const char *)panel;
    if (plan->args->trans_b)
        SHOALI_CPU_SYMBOL(pack_transposed)
    (&plan->b, at->k0, at->k, at->j0 + j, columns, width, panel);
    else SHOALI_CPU_SYMBOL(pack_rows)(&plan->b, at->k0, at->k, at->j0 + j, columns, width, panel);
}

/* All row tiles of the block against one panel. */
static void run_panel(struct block *at, int64_t j)
{
    const struct plan *plan = at->plan;
    const struct shoali_gemm_args *args = plan->args;
    const bool first = at->k0 == 0, last = at->k0 + at->k >= args->k;
    const int64_t columns = SHOALI_MIN(GEMM_COLUMNS, at->columns - j);
    const int units = (int)((columns + 15) / 16);
    float sums[GEMM_ROWS * GEMM_COLUMNS] __attribute__((aligned(64)));
    struct gemm_tile tile = {.steps = gemm_steps(at->k, plan->pairs)};
    point_to_b(at, j, columns, &tile);
    for (int64_t i = 0; i < at->rows; i += GEMM_ROWS) {
        const int rows = (int)SHOALI_MIN(GEMM_ROWS, at->rows - i);
        float *kept = at->carry + i * at->carry_ld + j;
        int64_t kept_ld = at->carry_ld;
        bool direct = plan->plain && columns % 16 == 0;
        if (plan->carry_in_c) {
            kept_ld = args->ldc;
            kept = (float *)args->c + (at->i0 + i) * kept_ld + at->j0 + j;
        }
        point_to_a(at, i, &tile);
        tile.init = first ? NULL : kept;
        tile.init_row = kept_ld;
        tile.out = sums;
        tile.out_row = GEMM_COLUMNS;
        if (!last) {
            tile.out = kept;
            tile.out_row = kept_ld;
        } else if (direct) {
            tile.out_row = args->ldc;
            tile.out = (float *)args->c + (at->i0 + i) * args->ldc + at->j0 + j;
        }
        if (last)
            SHOALI_CPU_SYMBOL(gemm_fetch)(args, at->i0 + i, rows, at->j0 + j, columns);
        const int64_t after = SHOALI_MIN(GEMM_ROWS, at->rows - i - rows);
        if (!first && after > 0) /* the next tile begins with these */
            gemm_fetch_tile(kept, SHOAL_F32, kept_ld, GEMM_ROWS * kept_ld, (int)after, columns);
        SHOALI_CPU_SYMBOL(gemm_tile)(&tile, rows, units, plan->pairs);
        if (last && !direct)
            SHOALI_CPU_SYMBOL(gemm_finish)
        (args, sums, GEMM_COLUMNS, at->i0 + i, rows, at->j0 + j, columns);
    }
}

/* Words of scratch for A, B and carried sums of the largest block. */
static void scratch_words(const struct plan *plan, int64_t words[3])
{
    const int64_t steps = gemm_steps(plan->kc, plan->pairs);
    words[0] = 0;
    if (plan->a_mode == A_STRAIGHT)
        words[0] = plan->mc * straight_ld(plan->kc, plan->pairs);
    else if (plan->a_mode == A_TILES)
        words[0] = round_up(plan->mc, GEMM_ROWS) * steps;
    words[1] = (plan->keep_b ? round_up(plan->nc, GEMM_COLUMNS) : GEMM_COLUMNS) * steps;
    if (plan->packed_b)
        words[1] = 0;
    words[2] = 0;
    if (plan->kc < plan->args->k && !plan->carry_in_c)
        words[2] = plan->mc * round_up(plan->piece, 16);
    for (int i = 0; i < 3; i++)
        words[i] = round_up(words[i], 16);
}

/* One block of C, k from first to last. */
static void run_block(struct block *at)
{
    const struct plan *plan = at->plan;
    const int64_t k_total = plan->args->k;
    const bool whole = plan->kc >= k_total;
    at->k0 = 0;
    do {
        at->k = SHOALI_MIN(plan->kc, k_total - at->k0);
        if (plan->a_mode >= A_STRAIGHT && (!whole || at->a_packed != at->i0)) {
            pack_a(at);
            at->a_packed = at->i0;
        }
        for (int64_t panel = 0; panel < at->columns; panel += GEMM_COLUMNS)
            run_panel(at, panel);
        at->k0 += plan->kc;
    } while (at->k0 < k_total);
}

/* A share of C, and the blocks in it. */
struct rectangle {
    int64_t i0, i1, j0, j1;
    int64_t in_m, in_n, in_block; /* blocks, and pieces of one */
};

static void rectangle_of(const struct plan *plan, int32_t share, struct rectangle *r)
{
    shoali_pool_slice(plan->args->m, GEMM_ROWS, share / plan->grid_n, plan->grid_m, &r->i0, &r->i1);
    shoali_pool_slice(plan->args->n, plan->grain, share % plan->grid_n, plan->grid_n, &r->j0,
                      &r->j1);
    r->in_m = ceil_div(r->i1 - r->i0, plan->mc);
    r->in_n = ceil_div(r->j1 - r->j0, plan->nc);
    r->in_block = ceil_div(plan->nc, plan->piece);
}

static int64_t pieces_of(const void *arg, int32_t share, int32_t shares)
{
    struct rectangle r;
    (void)shares;
    rectangle_of(arg, share, &r);
    return r.in_m * r.in_n * r.in_block;
}

/* Rows inside columns when panels are kept, else columns inside rows. */
static void enter_piece(const struct plan *plan, const struct shoali_claim *claim, struct block *at)
{
    struct rectangle r;
    rectangle_of(plan, claim->share, &r);
    const int64_t block = claim->piece / r.in_block;
    const int64_t down = plan->keep_b ? block % r.in_m : block / r.in_n;
    const int64_t across = plan->keep_b ? block / r.in_m : block % r.in_n;
    const int64_t j0 = r.j0 + across * plan->nc, j1 = SHOALI_MIN(r.j1, j0 + plan->nc);
    at->i0 = r.i0 + down * plan->mc;
    at->rows = SHOALI_MIN(plan->mc, r.i1 - at->i0);
    at->j0 = j0 + claim->piece % r.in_block * plan->piece;
    at->columns = SHOALI_MIN(plan->piece, j1 - at->j0);
    if (plan->keep_b && at->b_block != j0) {
        at->b_block = j0;
        memset(at->b_packed, 0, sizeof at->b_packed);
    }
}

/* The piece in blocks of the thread's own plan, when that is one of smaller blocks. */
static void run_small(struct block *at)
{
    const struct plan *plan = at->plan;
    const int64_t i0 = at->i0, i1 = i0 + at->rows, j0 = at->j0, j1 = j0 + at->columns;
    for (at->i0 = i0; at->i0 < i1; at->i0 += plan->mc) {
        at->rows = SHOALI_MIN(plan->mc, i1 - at->i0);
        for (at->j0 = j0; at->j0 < j1; at->j0 += plan->nc) {
            at->columns = SHOALI_MIN(plan->nc, j1 - at->j0);
            at->a_packed = -1;
            run_block(at);
        }
    }
}

/* Packed blocks of so many words lie on the stack. */
#define SMALL_WORDS ((STACK_STEPS + 32) * (GEMM_COLUMNS + GEMM_ROWS) + GEMM_ROWS * GEMM_COLUMNS)

static void work(void *arg, struct shoali_claim *claim)
{
    const struct plan *shared = arg;
    struct plan plan = *shared;
    int64_t words[3];
    scratch_words(&plan, words);
    uint32_t small[SMALL_WORDS] __attribute__((aligned(64)));
    uint32_t *memory = small;
    if (words[0] + words[1] + words[2] > SMALL_WORDS)
        memory = shoali_scratch((size_t)(words[0] + words[1] + words[2]) * sizeof *memory);
    const bool none = !memory;
    if (none) { /* slow, but never wrong: blocks that fit on the stack */
        memory = small;
        plan.mc = GEMM_ROWS;
        plan.nc = plan.piece = GEMM_COLUMNS;
        plan.kc = STACK_STEPS;
        plan.keep_b = false;
        scratch_words(&plan, words);
    }
    struct block at = {.plan = &plan,
                       .a = memory,
                       .b = memory + words[0],
                       .carry = (float *)(void *)(memory + words[0] + words[1]),
                       .carry_ld = round_up(plan.piece, 16),
                       .a_packed = -1,
                       .b_block = -1};
    while (shoali_claim_next(claim)) {
        enter_piece(shared, claim, &at);
        if (at.columns <= 0)
            continue;
        if (none)
            run_small(&at);
        else
            run_block(&at);
    }
    if (plan.args->nontemporal)
        shoali_nontemporal_end();
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* Cycles of one step of k over all panels that cover `units` of columns: a narrow panel at the end
 * has less to do than loads and latencies allow for. */
static double row_cycles(double units)
{
    const double rest = units - GEMM_UNITS * floor(units / GEMM_UNITS);
    return GEMM_ROWS * units + (GEMM_UNITS > 1 && rest > 0 ? 4 - rest : 0);
}

/* Splits the threads into a grid so that the slowest has least to do, packing counted. */
static void choose_grid(struct plan *plan, int32_t threads)
{
    const struct shoali_gemm_args *args = plan->args;
    const double tiles = (double)ceil_div(args->m, GEMM_ROWS);
    const double grains = (double)ceil_div(args->n, plan->grain);
    const double per_b = plan->packed_b  ? 0
                         : args->trans_b ? 6
                                         : 2; /* in steps of 16 multiply-adds, per unit */
    const double per_a = plan->a_mode >= A_STRAIGHT ? 2 : 0; /* per tile */
    double best = 0;
    plan->grid_m = plan->grid_n = 1;
    if ((double)args->m * (double)args->n * (double)args->k < SERIAL_WORK * 2.0)
        return;
    for (int32_t m = 1; m <= threads; m++) {
        if (threads % m)
            continue;
        const double t = ceil(tiles / m),
                     u = ceil(grains / (threads / m)) * ((double)plan->grain / 16);
        const double cost = t * row_cycles(u) + per_b * u + per_a * t;
        if (best == 0 || cost < best) {
            best = cost;
            plan->grid_m = m;
            plan->grid_n = threads / m;
        }
    }
}

/* Blocks that are no larger than the largest share, and how many columns of one are a piece. */
static void choose_pieces(struct plan *plan)
{
    int64_t i0, i1, j0, j1;
    shoali_pool_slice(plan->args->m, GEMM_ROWS, 0, plan->grid_m, &i0, &i1);
    shoali_pool_slice(plan->args->n, plan->grain, 0, plan->grid_n, &j0, &j1);
    plan->mc = SHOALI_MIN(plan->mc, i1 - i0);
    plan->nc = SHOALI_MIN(plan->nc, round_up(j1 - j0, GEMM_COLUMNS));
    plan->keep_b = plan->a_mode == A_TILES && plan->kc >= plan->args->k && plan->mc < i1 - i0 &&
                   !plan->packed_b;
    const double panel = (double)plan->mc * (double)plan->args->k * GEMM_COLUMNS;
    int64_t panels = panel < PIECE_WORK ? (int64_t)ceil(PIECE_WORK / SHOALI_MAX(panel, 1.0)) : 1;
    if (plan->a_mode >= A_STRAIGHT && plan->kc < plan->args->k)
        panels = SHOALI_MAX(panels, PIECE_PANELS);
    plan->piece = SHOALI_MIN(panels * GEMM_COLUMNS, plan->nc);
}

/* k in equal blocks; whole when it fits. */
static int64_t k_block(int64_t k, bool pairs)
{
    const int64_t most = pairs ? 2 * BLOCK_STEPS : BLOCK_STEPS;
    if (k <= most + most / 4)
        return SHOALI_MAX(k, 1);
    return round_up(ceil_div(k, ceil_div(k, most)), 16);
}

static void make_plan(const struct shoali_gemm_args *args, int32_t threads, struct plan *plan)
{
    const bool wide = args->dtype_ab == SHOAL_F32;
    const bool pairs = gemm_pairs(args->dtype_ab);
    *plan = (struct plan){.args = args, .pairs = pairs, .packed_b = args->packed_b};
    plan->grain = plan->packed_b ? GEMM_COLUMNS : 16;
    plan->a = (struct gemm_source){args->a, args->lda, args->dtype_ab, pairs};
    plan->b = (struct gemm_source){args->b, args->ldb, args->dtype_ab, pairs};
    if (args->trans_a)
        plan->a_mode = wide && 4 * args->k * args->lda <= COLUMNS_BYTES ? A_COLUMNS : A_TILES;
    else if (wide || (pairs && args->k % 2 == 0))
        plan->a_mode = A_DIRECT;
    else
        plan->a_mode = A_STRAIGHT;
    plan->plain = args->c && args->dtype_c == SHOAL_F32 && !args->accumulate && !args->before &&
                  !args->bias && !args->preact && !args->residual &&
                  args->activation == SHOALI_ACT_NONE;
    plan->carry_in_c = plan->plain && args->n % 16 == 0;
    plan->kc = k_block(args->k, pairs);
    const bool bounded = plan->a_mode >= A_STRAIGHT || (plan->kc < args->k && !plan->carry_in_c);
    plan->mc = round_up(bounded ? BLOCK_ROWS : DIRECT_ROWS, GEMM_ROWS);
    plan->nc = bounded ? BLOCK_COLUMNS : round_up(args->n, GEMM_COLUMNS);
    choose_grid(plan, threads);
    choose_pieces(plan);
}

size_t SHOALI_CPU_SYMBOL(gemm_workspace)(const void *args, int32_t threads)
{
    const struct shoali_gemm_args *gemm = args;
    struct plan plan;
    int64_t words[3];
    if (gemm->m <= 0 || gemm->n <= 0 || SHOALI_CPU_SYMBOL(gemv_takes)(gemm))
        return 0;
    make_plan(gemm, threads, &plan);
    scratch_words(&plan, words);
    const int64_t sum = words[0] + words[1] + words[2];
    return sum > SMALL_WORDS ? (size_t)sum * sizeof(uint32_t) : 0;
}

void SHOALI_CPU_SYMBOL(gemm)(const void *args, const struct shoali_kernel_context *context)
{
    struct shoali_gemm_args gemm = *(const struct shoali_gemm_args *)args;
    struct plan plan;
    if (gemm.m <= 0 || gemm.n <= 0)
        return;
    gemm.nontemporal = 0;
    if (SHOALI_CPU_SYMBOL(gemv_takes)(&gemm)) {
        SHOALI_CPU_SYMBOL(gemv)(&gemm, context->threads);
        return;
    }
    /* C itself is written by register tiles. */
    gemm.nontemporal = gemm.fixed && SHOALI_CPU_SYMBOL(gemm_streams)(&gemm, context->threads);
    make_plan(&gemm, cpu_threads(context), &plan);
    const struct shoali_pieces pieces = {
        .shares = plan.grid_m * plan.grid_n, .count = pieces_of, .work = work, .arg = &plan};
    shoali_pool_run_pieces(pieces.shares > 1 ? context->threads : NULL, &pieces);
}
