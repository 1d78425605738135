/* gemm - the matrix product: plan, blocking, threads. amx.h has the layouts and the order of sums.
 *
 * Each thread's share is a rectangle of C. k is taken in equal blocks of at most BLOCK_STEPS,
 * between which sums are carried in fp32.
 *
 * A K of some blocks: within a share, columns are taken in blocks of nc and rows in blocks of mc,
 * so that their A, all of k, stays in the second-level cache while the panels of 32 columns pass;
 * some panels of such a block are the piece that a thread claims. A panel of B that is not packed
 * yet is when it is first used, and serves all row blocks, as a packed block of A serves its
 * pieces.
 *
 * A K of more (the dx of a vocabulary): rows would be too few for what a panel of B costs. A piece
 * is all rows of the share, or ROWS_AT_ONCE, by some panels; a block of k is outside, and both
 * operands' part of it is packed when it comes. Such pieces are long: a share is at least two of
 * them, so that who loses its core leaves work to others.
 */
#include "base/nontemporal.h"
#include "ops/cpu/amx/amx.h"

#define BLOCK_STEPS 32           /* of 32 elements */
#define BLOCK_A_BYTES (1 << 20)  /* of A that stays while panels pass */
#define BLOCK_B_BYTES (4 << 20)  /* of B that is packed at a time */
#if defined(SHOALI_AMX_EMULATED) /* so that small products have many blocks and pieces */
#define BLOCK_ROWS 64
#define BLOCK_COLUMNS 96
#define PIECE_WORK (1 << 16)
#define STEPS_AT_ONCE 64
#define ROWS_AT_ONCE 128
#define LONG_COLUMNS(in_place) ((in_place) ? 32 : 64)
#else
#define BLOCK_ROWS 256
#define BLOCK_COLUMNS 4096   /* of a B that is packed at a time, at most */
#define PIECE_WORK (1 << 26) /* multiply-adds of a piece: one or two hundred microseconds */
#define STEPS_AT_ONCE 128    /* where k is longer its blocks are outside */
#define ROWS_AT_ONCE 1024
#define LONG_COLUMNS(in_place) ((in_place) ? 256 : 1024) /* of a piece then */
#endif
#define SERIAL_WORK (64 << 10) /* multiply-adds below which a second thread does not pay */
#define PAGE_BYTES 4096        /* rows a multiple of it apart share cache sets */

struct plan {
    const struct shoali_gemm_args *args;
    struct gemm_source a, b;
    const uint32_t *packed_b;  /* NULL: packed on the way */
    bool in_place;             /* A is read where it lies */
    bool outside;              /* blocks of k are */
    int64_t steps, kc, mc, nc; /* kc: steps of a block of k */
    int64_t piece;             /* columns: whole panels */
    int32_t grid_m, grid_n;
};

/* One thread's buffers and its place. */
struct place {
    const struct plan *plan;
    struct amx_tiles tiles;
    uint32_t *a, *b; /* packed; of B the columns from b_block on */
    float *carry;    /* [panel][row][32] */
    int64_t i0, rows, j0, columns;
    int64_t step, end; /* the block of k */
    int64_t a_packed;  /* the first row of the block of A that is; -1: none */
    int64_t b_block;   /* the first column of the block whose panels are kept; -1: none */
    uint64_t b_packed[(BLOCK_COLUMNS / AMX_SQUARE + 63) / 64]; /* which of them are there */
};
_Static_assert(LONG_COLUMNS(false) <= BLOCK_COLUMNS, "b_packed has a bit for each panel");

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Steps that a packed unit of A or B holds. */
static int64_t packed_steps(const struct plan *plan)
{
    return plan->outside ? plan->kc : plan->steps;
}

/* Where A's rows from i on begin in the block of k; of the last step, if K ends within it, a copy.
 * `i` counts from the row block's first, `at->i0`. */
static void point_to_a(const struct place *at, int64_t i, int rows, uint32_t *last,
                       struct amx_block *block)
{
    const struct plan *plan = at->plan;
    const int64_t k = plan->args->k, done = AMX_STEP * (at->end - 1);
    block->a_last = NULL;
    if (!plan->in_place) {
        const int64_t unit = packed_steps(plan);
        block->a = (const char *)(at->a + (i / 16 * unit + (plan->outside ? 0 : at->step)) *
                                              AMX_TILE_WORDS);
        block->a_row = 64;
        block->a_half = unit * AMX_TILE_BYTES;
        block->a_step = AMX_TILE_BYTES;
        return;
    }
    const char *x = plan->a.x + 2 * (at->i0 + i) * plan->a.ld;
    block->a = x + 64 * at->step;
    block->a_row = 2 * plan->a.ld;
    block->a_half = 16 * block->a_row;
    block->a_step = 64;
    if (k >= AMX_STEP * at->end)
        return;
    const struct gemm_source rest = {x + 2 * done, plan->a.ld, SHOAL_BF16, true};
    SHOALI_CPU_SYMBOL(amx_pack_rows)(&rest, k - done, 0, rows, AMX_TILE_WORDS, last);
    block->a_last = (const char *)last;
}

/* An operand from element k0 on. */
static struct gemm_source source_from(const struct gemm_source *whole, bool columns, int64_t k0)
{
    struct gemm_source from = *whole;
    from.x += 2 * k0 * (columns ? whole->ld : 1);
    return from;
}

/* Packs columns [j, j+columns) of C: all of k, or its block. */
static void pack_panel(const struct place *at, int64_t j, int64_t columns, uint32_t *to)
{
    const struct plan *plan = at->plan;
    const int64_t k0 = plan->outside ? AMX_STEP * at->step : 0;
    const int64_t k = plan->outside ? SHOALI_MIN(plan->args->k, AMX_STEP * at->end) : plan->args->k;
    const struct gemm_source from = source_from(&plan->b, !plan->args->trans_b, k0);
    SHOALI_CPU_SYMBOL(amx_pack_b)
    (&from, plan->args->trans_b, k - k0, j, columns, packed_steps(plan) * AMX_TILE_WORDS, to);
}

/* The panel of columns [j, j+columns) of C from the block of k on; *unit: bytes to its second
 * unit. */
static const char *get_panel(struct place *at, int64_t j, int64_t columns, int64_t *unit)
{
    const struct plan *plan = at->plan;
    int64_t unit_words = plan->steps * AMX_TILE_WORDS, before = at->step * AMX_TILE_WORDS;
    const uint32_t *panel = plan->packed_b + j / 16 * unit_words;
    if (!plan->packed_b) {
        const int64_t number = (j - at->b_block) / AMX_SQUARE;
        const uint64_t bit = (uint64_t)1 << number % 64;
        unit_words = packed_steps(plan) * AMX_TILE_WORDS;
        before = plan->outside ? 0 : before;
        uint32_t *to = at->b + 2 * number * unit_words;
        if (!(at->b_packed[number / 64] & bit))
            pack_panel(at, j, columns, to);
        at->b_packed[number / 64] |= bit;
        panel = to;
    }
    *unit = 4 * unit_words;
    return (const char *)(panel + before);
}

/* All rows of the block against 32 columns, in the block of k. The lines of C are asked for before
 * the product that they wait for. */
static void run_panel(struct place *at, int64_t j, float *carry)
{
    const struct plan *plan = at->plan;
    const int64_t columns = SHOALI_MIN(AMX_SQUARE, at->columns - j);
    const bool last = at->end == plan->steps;
    uint32_t rest[2 * AMX_TILE_WORDS] __attribute__((aligned(64)));
    struct amx_block block = {
        .b_row = 64,
        .b_step = AMX_TILE_BYTES,
        .steps = at->end - at->step,
        .init_row = AMX_SQUARE,
        .out_row = AMX_SQUARE,
    };
    block.b = get_panel(at, at->j0 + j, columns, &block.b_half);
    for (int64_t i = 0; i < at->rows; i += AMX_SQUARE) {
        const int rows = (int)SHOALI_MIN(AMX_SQUARE, at->rows - i);
        float *sums = carry + i * AMX_SQUARE;
        point_to_a(at, i, rows, rest, &block);
        block.init = at->step > 0 ? sums : NULL;
        block.out = sums;
        if (last)
            SHOALI_CPU_SYMBOL(gemm_fetch)
        (plan->args, at->i0 + i, rows, at->j0 + j, columns);
        SHOALI_CPU_SYMBOL(amx_block)(&at->tiles, &block, rows, columns > 16 ? 2 : 1);
        if (last)
            SHOALI_CPU_SYMBOL(gemm_finish)
        (plan->args, sums, AMX_SQUARE, at->i0 + i, rows, at->j0 + j, columns);
    }
}

/* Rows [i0, i0+rows) of A: all of k, or its block. */
static void pack_a(const struct place *at)
{
    const struct plan *plan = at->plan;
    const int64_t unit_words = packed_steps(plan) * AMX_TILE_WORDS;
    const int64_t k0 = plan->outside ? AMX_STEP * at->step : 0;
    const int64_t k = plan->outside ? SHOALI_MIN(plan->args->k, AMX_STEP * at->end) : plan->args->k;
    const struct amx_rows_to to = {at->a, unit_words, 16, AMX_TILE_WORDS};
    const struct gemm_source from = source_from(&plan->a, plan->args->trans_a, k0);
    if (plan->args->trans_a)
        SHOALI_CPU_SYMBOL(amx_pack_columns)(&from, 0, k - k0, at->i0, at->rows, &to);
    else
        SHOALI_CPU_SYMBOL(amx_pack_rows)(&from, k - k0, at->i0, at->rows, unit_words, at->a);
}

/* Panels outside, so that one column of sums is carried. */
static void run_piece(struct place *at)
{
    const struct plan *plan = at->plan;
    if (!plan->in_place && at->a_packed != at->i0)
        pack_a(at);
    at->a_packed = at->i0;
    for (int64_t j = 0; j < at->columns; j += AMX_SQUARE) {
        at->step = 0;
        do {
            at->end = SHOALI_MIN(at->step + plan->kc, plan->steps);
            run_panel(at, j, at->carry);
            at->step = at->end;
        } while (at->step < plan->steps);
    }
}

/* Blocks of k outside, and row blocks in them. */
static void run_long_piece(struct place *at)
{
    const struct plan *plan = at->plan;
    const int64_t i0 = at->i0, rows = at->rows;
    for (at->step = 0; at->step < plan->steps; at->step = at->end) {
        at->end = SHOALI_MIN(at->step + plan->kc, plan->steps);
        at->b_block = at->j0;
        memset(at->b_packed, 0, sizeof at->b_packed);
        for (int64_t i = 0; i < rows; i += BLOCK_ROWS) {
            at->i0 = i0 + i;
            at->rows = SHOALI_MIN(BLOCK_ROWS, rows - i);
            if (!plan->in_place)
                pack_a(at);
            for (int64_t j = 0; j < at->columns; j += AMX_SQUARE)
                run_panel(at, j, at->carry + (j / AMX_SQUARE * plan->mc + i) * AMX_SQUARE);
        }
    }
}

/* ---- without memory: element by element, the same bits ---- */

static uint16_t element(const struct gemm_source *x, int64_t row, int64_t column)
{
    return ((const uint16_t *)(const void *)x->x)[row * x->ld + column];
}

static void plain_element(const struct plan *plan, int64_t m, int64_t n)
{
    const struct shoali_gemm_args *args = plan->args;
    float sum[16] = {0};
    for (int64_t k = 0; k < args->k; k += AMX_STEP) {
        uint16_t a[AMX_STEP] = {0}, b[AMX_STEP] = {0};
        for (int64_t i = 0; i < SHOALI_MIN(AMX_STEP, args->k - k); i++) {
            a[i] = args->trans_a ? element(&plan->a, k + i, m) : element(&plan->a, m, k + i);
            if (plan->packed_b)
                memcpy(&b[i],
                       (const char *)plan->packed_b +
                           (n / 16 * plan->steps + k / AMX_STEP) * AMX_TILE_BYTES + i / 2 * 64 +
                           n % 16 * 4 + i % 2 * 2,
                       2);
            else
                b[i] = args->trans_b ? element(&plan->b, n, k + i) : element(&plan->b, k + i, n);
        }
        sum[0] = amx_plain_step(sum[0], a, b, 2);
    }
    SHOALI_CPU_SYMBOL(gemm_finish)(args, sum, 16, m, 1, n, 1);
}

static void plain_piece(const struct place *at)
{
    for (int64_t i = at->i0; i < at->i0 + at->rows; i++)
        for (int64_t j = at->j0; j < at->j0 + at->columns; j++)
            plain_element(at->plan, i, j);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A share of C, and the blocks in it. */
struct rectangle {
    int64_t i0, i1, j0, j1;
    int64_t in_m, in_n, in_block; /* blocks, and pieces of one */
};

static void rectangle_of(const struct plan *plan, int32_t share, struct rectangle *r)
{
    shoali_pool_slice(plan->args->m, AMX_SQUARE, share / plan->grid_n, plan->grid_m, &r->i0,
                      &r->i1);
    shoali_pool_slice(plan->args->n, AMX_SQUARE, share % plan->grid_n, plan->grid_n, &r->j0,
                      &r->j1);
    r->in_m = (r->i1 - r->i0 + plan->mc - 1) / plan->mc;
    r->in_n = (r->j1 - r->j0 + plan->nc - 1) / plan->nc;
    r->in_block = (plan->nc + plan->piece - 1) / plan->piece;
}

static int64_t pieces_of(const void *arg, int32_t share, int32_t shares)
{
    struct rectangle r;
    (void)shares;
    rectangle_of(arg, share, &r);
    return r.in_m * r.in_n * r.in_block;
}

/* Rows inside columns; with a B that is packed, unless blocks of k are outside, there is one block
 * of columns. */
static void enter_piece(const struct shoali_claim *claim, struct place *at)
{
    const struct plan *plan = at->plan;
    struct rectangle r;
    rectangle_of(plan, claim->share, &r);
    const int64_t block = claim->piece / r.in_block;
    const int64_t j0 = r.j0 + block / r.in_m * plan->nc, j1 = SHOALI_MIN(r.j1, j0 + plan->nc);
    at->i0 = r.i0 + block % r.in_m * plan->mc;
    at->rows = SHOALI_MIN(plan->mc, r.i1 - at->i0);
    at->j0 = j0 + claim->piece % r.in_block * plan->piece;
    at->columns = SHOALI_MIN(plan->piece, j1 - at->j0);
    if (at->b_block != j0 && !plan->outside) {
        at->b_block = j0;
        memset(at->b_packed, 0, sizeof at->b_packed);
    }
}

/* Words of scratch for carried sums, A and B. */
static void scratch_words(const struct plan *plan, int64_t words[3])
{
    const int64_t unit_words = packed_steps(plan) * AMX_TILE_WORDS;
    const int64_t a_rows = plan->outside ? SHOALI_MIN(BLOCK_ROWS, plan->mc) : plan->mc;
    const int64_t b_columns = plan->outside ? plan->piece : plan->nc;
    words[0] = plan->mc * (plan->outside ? plan->piece : AMX_SQUARE);
    words[1] = plan->in_place ? 0 : a_rows / 16 * unit_words;
    words[2] = plan->packed_b ? 0 : b_columns / 16 * unit_words;
}

static void work(void *arg, struct shoali_claim *claim)
{
    const struct plan *plan = arg;
    int64_t words[3];
    scratch_words(plan, words);
    uint32_t *memory = shoali_scratch((size_t)(words[0] + words[1] + words[2]) * sizeof *memory);
    struct place at = {.plan = plan, .a_packed = -1, .b_block = -1};
    if (memory) {
        at.carry = (float *)(void *)memory;
        at.a = memory + words[0];
        at.b = memory + words[0] + words[1];
    }
    while (shoali_claim_next(claim)) {
        enter_piece(claim, &at);
        if (at.columns <= 0)
            continue;
        if (!memory)
            plain_piece(&at);
        else if (plan->outside)
            run_long_piece(&at);
        else
            run_piece(&at);
    }
    if (plan->args->nontemporal)
        shoali_nontemporal_end();
    AMX_RELEASE(&at.tiles);
}

/* Splits the threads into a grid so that the slowest has least to do; packing an element costs
 * about as much as fifty products of it. */
static void choose_grid(struct plan *plan, int32_t threads)
{
    const double m = ceil((double)plan->args->m / AMX_SQUARE);
    const double n = ceil((double)plan->args->n / AMX_SQUARE);
    const double per_a = plan->in_place ? 0 : 1.5, per_b = plan->packed_b ? 0 : 1.5;
    double best = 0;
    plan->grid_m = plan->grid_n = 1;
    if (m * n * (double)plan->steps * (AMX_SQUARE * AMX_SQUARE * AMX_STEP) < SERIAL_WORK)
        return;
    for (int32_t rows = 1; rows <= threads; rows++) {
        if (threads % rows != 0)
            continue;
        const double tall = ceil(m / rows), wide = ceil(n / (threads / rows));
        const double cost = tall * wide + per_a * tall + per_b * wide;
        if (best == 0 || cost < best) {
            best = cost;
            plan->grid_m = rows;
            plan->grid_n = threads / rows;
        }
    }
}

/* How many rows or columns of K elements fit into so many bytes: whole squares, at least one. */
static int64_t fitting(int64_t bytes, int64_t steps)
{
    const int64_t rows = bytes / (64 * SHOALI_MAX(steps, 1)) / AMX_SQUARE * AMX_SQUARE;
    return SHOALI_MAX(rows, AMX_SQUARE);
}

/* A K of many blocks: all rows of a share, or as many as there is room for their sums. */
static void choose_long_pieces(struct plan *plan)
{
    struct rectangle r = {0};
    plan->mc = ROWS_AT_ONCE;
    plan->nc = plan->piece = LONG_COLUMNS(plan->in_place);
    rectangle_of(plan, 0, &r);
    const int64_t part = (r.j1 - r.j0) / 2;
    plan->mc = SHOALI_MIN(plan->mc, round_up(r.i1 - r.i0, AMX_SQUARE));
    plan->nc = plan->piece = SHOALI_MIN(plan->piece, round_up(SHOALI_MAX(part, 1), AMX_SQUARE));
}

/* Blocks that are no larger than the largest share, and how many columns of one are a piece. */
static void choose_pieces(struct plan *plan)
{
    struct rectangle r = {0};
    plan->mc = SHOALI_MIN(BLOCK_ROWS, fitting(BLOCK_A_BYTES, plan->steps));
    plan->nc = SHOALI_MIN(BLOCK_COLUMNS, fitting(BLOCK_B_BYTES, plan->steps));
    plan->piece = AMX_SQUARE;
    rectangle_of(plan, 0, &r);
    plan->mc = SHOALI_MIN(plan->mc, round_up(r.i1 - r.i0, AMX_SQUARE));
    if (plan->packed_b || r.j1 - r.j0 < plan->nc)
        plan->nc = round_up(r.j1 - r.j0, AMX_SQUARE);
    const int64_t panel = plan->mc * AMX_SQUARE * AMX_STEP * SHOALI_MAX(plan->steps, 1);
    plan->piece = SHOALI_MIN((PIECE_WORK + panel - 1) / panel * AMX_SQUARE, plan->nc);
}

/* Equal blocks of k, of at most BLOCK_STEPS. */
static int64_t equal_steps(int64_t steps)
{
    const int64_t blocks = (steps + BLOCK_STEPS - 1) / BLOCK_STEPS;
    return blocks > 0 ? (steps + blocks - 1) / blocks : 1;
}

static void make_plan(const struct shoali_gemm_args *args, int32_t threads, struct plan *plan)
{
    *plan = (struct plan){.args = args, .packed_b = args->packed_b, .steps = amx_steps(args->k)};
    plan->a = (struct gemm_source){args->a, args->lda, SHOAL_BF16, true};
    plan->b = (struct gemm_source){args->b, args->ldb, SHOAL_BF16, true};
    plan->in_place = !args->trans_a && (2 * args->lda % PAGE_BYTES != 0 || args->n <= AMX_SQUARE);
    plan->outside = plan->steps > STEPS_AT_ONCE;
    plan->kc = equal_steps(plan->steps);
    choose_grid(plan, threads);
    if (plan->outside)
        choose_long_pieces(plan);
    else
        choose_pieces(plan);
}

size_t SHOALI_CPU_SYMBOL(gemm_workspace)(const void *args, int32_t threads)
{
    const struct shoali_gemm_args *gemm = args;
    struct plan plan;
    int64_t words[3];
    if (gemm->m <= 0 || gemm->n <= 0)
        return 0;
    if (SHOALI_CPU_SYMBOL(amx_few_rows_takes)(gemm))
        return SHOALI_CPU_SYMBOL(amx_few_rows_workspace)(gemm);
    make_plan(gemm, threads, &plan);
    scratch_words(&plan, words);
    return (size_t)(words[0] + words[1] + words[2]) * sizeof(uint32_t);
}

void SHOALI_CPU_SYMBOL(gemm)(const void *args, const struct shoali_kernel_context *context)
{
    struct shoali_gemm_args gemm = *(const struct shoali_gemm_args *)args;
    struct plan plan;
    if (gemm.m <= 0 || gemm.n <= 0)
        return;
    gemm.nontemporal = 0;
    if (SHOALI_CPU_SYMBOL(amx_few_rows_takes)(&gemm) &&
        SHOALI_CPU_SYMBOL(amx_few_rows)(&gemm, context->threads))
        return;
    gemm.nontemporal = SHOALI_CPU_SYMBOL(gemm_streams)(&gemm, context->threads);
    make_plan(&gemm, cpu_threads(context), &plan);
    const struct shoali_pieces pieces = {
        .shares = plan.grid_m * plan.grid_n, .count = pieces_of, .work = work, .arg = &plan};
    shoali_pool_run_pieces(pieces.shares > 1 ? context->threads : NULL, &pieces);
}
