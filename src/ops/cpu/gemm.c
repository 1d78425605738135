/* gemm - the matrix product: blocks and threads. See gemm.h for the layouts, gemm_plan.h for the
 * blocks.
 *
 * A panel of B is packed just before its use, so that it is in a near cache when the row tiles walk
 * over it; where a piece has several blocks of rows its panels are kept for the later ones. A block
 * of A that is copied is kept from piece to piece when it is all of the piece's rows and of k. When
 * K needs several blocks the sums are carried in fp32: in C itself if nothing else happens to it,
 * else in scratch.
 */
#include "base/nontemporal.h"
#include "ops/cpu/gemm_plan.h"

#include <stdlib.h>

#define STACK_STEPS 64 /* blocks when no scratch memory can be had */

/* One thread's buffers and its place. */
struct block {
    const struct gemm_plan *plan;
    uint32_t *a, *b;
    float *carry;
    int64_t carry_ld;
    int64_t i0, rows, j0, columns; /* the piece */
    int64_t top, height;           /* the block of rows in it */
    int64_t k0, k;
    int64_t a_packed; /* the first row of the piece whose A is copied whole; -1: none */
    uint64_t b_packed[(GEMM_PIECE_COLUMNS / GEMM_COLUMNS + 63) / 64]; /* panels that are kept */
};

static void pack_a(const struct block *at)
{
    const struct gemm_plan *plan = at->plan;
    const int64_t i = at->i0 + at->top;
    if (plan->a_mode == A_STRAIGHT) {
        SHOALI_CPU_SYMBOL(pack_straight)
        (&plan->a, at->k0, at->k, i, at->height, gemm_straight_ld(plan->kc, plan->pairs), at->a);
        return;
    }
    SHOALI_CPU_SYMBOL(pack_tiles)(&plan->a, at->k0, at->k, i, at->height, at->a);
}

/* Where A's rows from i of the block on begin, as the plan has them. */
static const char *address_in_a(const struct block *at, int64_t i)
{
    const struct gemm_plan *plan = at->plan;
    const int64_t row = at->i0 + at->top + i;
    if (plan->a_mode == A_DIRECT)
        return plan->a.x + (plan->pairs ? 2 : 4) * (row * plan->a.ld + at->k0);
    if (plan->a_mode == A_COLUMNS)
        return plan->a.x + 4 * (at->k0 * plan->a.ld + row);
    if (plan->a_mode == A_STRAIGHT)
        return (const char *)(at->a + i * gemm_straight_ld(plan->kc, plan->pairs));
    return (const char *)(at->a + i * gemm_steps(at->k, plan->pairs));
}

static void point_to_a(const struct block *at, int64_t i, struct gemm_tile *tile)
{
    const struct gemm_plan *plan = at->plan;
    const int64_t next = i + GEMM_ROWS;
    tile->a = address_in_a(at, i);
    tile->a_next = address_in_a(at, next < at->height ? next : 0);
    tile->a_step = 4;
    if (plan->a_mode == A_DIRECT) {
        tile->a_row = (plan->pairs ? 2 : 4) * plan->a.ld;
    } else if (plan->a_mode == A_COLUMNS) {
        tile->a_row = 4;
        tile->a_step = 4 * plan->a.ld;
    } else if (plan->a_mode == A_STRAIGHT) {
        tile->a_row = 4 * gemm_straight_ld(plan->kc, plan->pairs);
    } else {
        tile->a_row = 4;
        tile->a_step = 4 * GEMM_ROWS;
    }
}

/* Makes the panel of columns [j, j+columns) of the piece available. */
static void point_to_b(struct block *at, int64_t j, int64_t columns, struct gemm_tile *tile)
{
    const struct gemm_plan *plan = at->plan;
    const int64_t width = gemm_round_up(columns, 16);
    tile->b_step = 4 * width;
    if (plan->packed_b) {
        const int64_t steps = gemm_steps(plan->args->k, plan->pairs);
        const int64_t before = gemm_steps(at->k0, plan->pairs);
        tile->b = (const char *)(plan->packed_b + (at->j0 + j) * steps + before * width);
        return;
    }
    uint32_t *panel = at->b;
    if (plan->keep_b) {
        const int64_t number = j / GEMM_COLUMNS;
        const uint64_t bit = (uint64_t)1 << number % 64;
        panel += j * gemm_steps(at->k, plan->pairs);
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
    const struct gemm_plan *plan = at->plan;
    const struct shoali_gemm_args *args = plan->args;
    const bool first = at->k0 == 0, last = at->k0 + at->k >= args->k;
    const int64_t columns = SHOALI_MIN(GEMM_COLUMNS, at->columns - j);
    const int units = (int)((columns + 15) / 16);
    float sums[GEMM_ROWS * GEMM_COLUMNS] __attribute__((aligned(64)));
    struct gemm_tile tile = {.steps = gemm_steps(at->k, plan->pairs)};
    point_to_b(at, j, columns, &tile);
    for (int64_t i = 0; i < at->height; i += GEMM_ROWS) {
        const int rows = (int)SHOALI_MIN(GEMM_ROWS, at->height - i);
        const int64_t row = at->i0 + at->top + i;
        float *kept = at->carry + (at->top + i) * at->carry_ld + j;
        int64_t kept_ld = at->carry_ld;
        bool direct = plan->plain && columns % 16 == 0;
        if (plan->carry_in_c) {
            kept_ld = args->ldc;
            kept = (float *)args->c + row * kept_ld + at->j0 + j;
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
            tile.out = (float *)args->c + row * args->ldc + at->j0 + j;
        }
        if (last)
            SHOALI_CPU_SYMBOL(gemm_fetch)(args, row, rows, at->j0 + j, columns);
        const int64_t after = SHOALI_MIN(GEMM_ROWS, at->height - i - rows);
        if (!first && after > 0) /* the next tile begins with these */
            gemm_fetch_tile(kept, SHOAL_F32, kept_ld, GEMM_ROWS * kept_ld, (int)after, columns);
        SHOALI_CPU_SYMBOL(gemm_tile)(&tile, rows, units, plan->pairs);
        if (last && !direct)
            SHOALI_CPU_SYMBOL(gemm_finish)
        (args, sums, GEMM_COLUMNS, row, rows, at->j0 + j, columns);
    }
}

/* One piece of C, k from first to last. */
static void run_piece(struct block *at)
{
    const struct gemm_plan *plan = at->plan;
    const int64_t k_total = plan->args->k;
    const bool stays = plan->kc >= k_total && at->rows <= plan->mc;
    at->k0 = 0;
    do {
        at->k = SHOALI_MIN(plan->kc, k_total - at->k0);
        memset(at->b_packed, 0, sizeof at->b_packed);
        for (at->top = 0; at->top < at->rows; at->top += plan->mc) {
            at->height = SHOALI_MIN(plan->mc, at->rows - at->top);
            const bool copied = plan->a_mode >= A_STRAIGHT && at->k > 0; /* of no k A may be NULL */
            if (copied && (!stays || at->a_packed != at->i0)) {
                pack_a(at);
                at->a_packed = stays ? at->i0 : -1;
            }
            for (int64_t panel = 0; panel < at->columns; panel += GEMM_COLUMNS)
                run_panel(at, panel);
        }
        at->k0 += plan->kc;
    } while (at->k0 < k_total);
}

/* A share of C, and the pieces across it. */
struct rectangle {
    int64_t i0, i1, j0, j1;
    int64_t across;
};

static void rectangle_of(const struct gemm_plan *plan, int32_t share, struct rectangle *r)
{
    shoali_pool_slice(plan->args->m, GEMM_ROWS, share / plan->grid_n, plan->grid_m, &r->i0, &r->i1);
    shoali_pool_slice(plan->args->n, plan->grain, share % plan->grid_n, plan->grid_n, &r->j0,
                      &r->j1);
    r->across = gemm_ceil_div(r->j1 - r->j0, plan->columns);
}

static int64_t pieces_of(const void *arg, int32_t share, int32_t shares)
{
    const struct gemm_plan *plan = arg;
    struct rectangle r;
    (void)shares;
    rectangle_of(plan, share, &r);
    return gemm_ceil_div(r.i1 - r.i0, plan->rows) * r.across;
}

/* Columns inside rows, so that a copied block of A serves all pieces of its rows. */
static void enter_piece(const struct gemm_plan *plan, const struct shoali_claim *claim,
                        struct block *at)
{
    struct rectangle r;
    rectangle_of(plan, claim->share, &r);
    at->i0 = r.i0 + claim->piece / r.across * plan->rows;
    at->rows = SHOALI_MIN(plan->rows, r.i1 - at->i0);
    at->j0 = r.j0 + claim->piece % r.across * plan->columns;
    at->columns = SHOALI_MIN(plan->columns, r.j1 - at->j0);
}

/* The piece in pieces of the thread's own plan, which is one of smaller ones. */
static void run_small(struct block *at)
{
    const struct gemm_plan *plan = at->plan;
    const int64_t i0 = at->i0, i1 = i0 + at->rows, j0 = at->j0, j1 = j0 + at->columns;
    for (at->i0 = i0; at->i0 < i1; at->i0 += plan->rows) {
        at->rows = SHOALI_MIN(plan->rows, i1 - at->i0);
        for (at->j0 = j0; at->j0 < j1; at->j0 += plan->columns) {
            at->columns = SHOALI_MIN(plan->columns, j1 - at->j0);
            at->a_packed = -1;
            run_piece(at);
        }
    }
}

/* Packed blocks of so many words lie on the stack. */
#define SMALL_WORDS ((STACK_STEPS + 32) * (GEMM_COLUMNS + GEMM_ROWS) + GEMM_ROWS * GEMM_COLUMNS)

static void work(void *arg, struct shoali_claim *claim)
{
    const struct gemm_plan *shared = arg;
    struct gemm_plan plan = *shared;
    int64_t words[3];
    SHOALI_CPU_SYMBOL(gemm_plan_words)(&plan, words);
    uint32_t small[SMALL_WORDS] __attribute__((aligned(64)));
    uint32_t *memory = small;
    if (words[0] + words[1] + words[2] > SMALL_WORDS)
        memory = shoali_scratch((size_t)(words[0] + words[1] + words[2]) * sizeof *memory);
    const bool none = !memory;
    if (none) { /* slow, but never wrong: blocks that fit on the stack */
        memory = small;
        plan.mc = plan.rows = GEMM_ROWS;
        plan.columns = GEMM_COLUMNS;
        plan.kc = STACK_STEPS;
        plan.keep_b = false;
        SHOALI_CPU_SYMBOL(gemm_plan_words)(&plan, words);
    }
    struct block at = {.plan = &plan,
                       .a = memory,
                       .b = memory + words[0],
                       .carry = (float *)(void *)(memory + words[0] + words[1]),
                       .carry_ld = gemm_round_up(plan.columns, 16),
                       .a_packed = -1};
    while (shoali_claim_next(claim)) {
        enter_piece(shared, claim, &at);
        if (none)
            run_small(&at);
        else
            run_piece(&at);
    }
    if (plan.args->nontemporal)
        shoali_nontemporal_end();
}

size_t SHOALI_CPU_SYMBOL(gemm_workspace)(const void *args, int32_t threads)
{
    const struct shoali_gemm_args *gemm = args;
    struct gemm_plan plan;
    int64_t words[3];
    if (gemm->m <= 0 || gemm->n <= 0 || SHOALI_CPU_SYMBOL(gemv_takes)(gemm))
        return 0;
    SHOALI_CPU_SYMBOL(gemm_plan)(gemm, threads, &plan);
    SHOALI_CPU_SYMBOL(gemm_plan_words)(&plan, words);
    const int64_t sum = words[0] + words[1] + words[2];
    return sum > SMALL_WORDS ? (size_t)sum * sizeof(uint32_t) : 0;
}

void SHOALI_CPU_SYMBOL(gemm)(const void *args, const struct shoali_kernel_context *context)
{
    struct shoali_gemm_args gemm = *(const struct shoali_gemm_args *)args;
    struct gemm_plan plan;
    if (gemm.m <= 0 || gemm.n <= 0)
        return;
    gemm.nontemporal = 0;
    if (SHOALI_CPU_SYMBOL(gemv_takes)(&gemm)) {
        SHOALI_CPU_SYMBOL(gemv)(&gemm, context->threads);
        return;
    }
    /* C itself is written by register tiles. */
    gemm.nontemporal = gemm.fixed && SHOALI_CPU_SYMBOL(gemm_streams)(&gemm, context->threads);
    SHOALI_CPU_SYMBOL(gemm_plan)(&gemm, cpu_threads(context), &plan);
    const struct shoali_pieces pieces = {
        .shares = plan.grid_m * plan.grid_n, .count = pieces_of, .work = work, .arg = &plan};
    shoali_pool_run_pieces(pieces.shares > 1 ? context->threads : NULL, &pieces);
}
