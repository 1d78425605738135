/* gemm - the matrix product: plan, blocking, threads. amx.h has the layouts and the order of sums.
 *
 * Threads get rectangles of C. Within one, columns are taken in blocks of nc, whose B is packed when
 * it is not yet; rows in blocks of mc, so that their A stays in the second-level cache while the
 * panels of 32 columns pass; k in blocks of BLOCK_STEPS, between which sums are carried in fp32.
 */
#include "ops/cpu/amx/amx.h"

#define BLOCK_STEPS 32 /* of 32 elements */
#define BLOCK_ROWS 256
#define BLOCK_A_BYTES (1 << 20) /* of A that stays while panels pass */
#define BLOCK_B_BYTES (4 << 20) /* of B that is packed at a time */
#define SERIAL_WORK (64 << 10)  /* multiply-adds below which a second thread does not pay */
#define PAGE_BYTES 4096         /* rows a multiple of it apart share cache sets */

struct plan {
    const struct shoali_gemm_args *args;
    struct gemm_source a, b;
    const uint32_t *packed_b; /* NULL: packed on the way */
    bool in_place;            /* A is read where it lies */
    int64_t steps, mc, nc;
    int32_t grid_m, grid_n;
};

/* One thread's buffers and its place. */
struct place {
    const struct plan *plan;
    struct amx_tiles tiles;
    uint32_t *a, *b; /* packed; of B the columns from j0 on */
    float *carry;    /* [mc][32] */
    int64_t i0, rows, j0, columns;
};

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Where A's rows from i on begin at a step; of the last step, if K ends within it, a copy. */
static void point_to_a(const struct place *at, int64_t i, int rows, int64_t step, int64_t end,
                       uint32_t *last, struct amx_block *block)
{
    const struct plan *plan = at->plan;
    const int64_t k = plan->args->k, done = AMX_STEP * (end - 1);
    block->a_last = NULL;
    if (!plan->in_place) {
        block->a = (const char *)(at->a + (i / 16 * plan->steps + step) * AMX_TILE_WORDS);
        block->a_row = 64;
        block->a_half = plan->steps * AMX_TILE_BYTES;
        block->a_step = AMX_TILE_BYTES;
        return;
    }
    const char *x = plan->a.x + 2 * (at->i0 + i) * plan->a.ld;
    block->a = x + 64 * step;
    block->a_row = 2 * plan->a.ld;
    block->a_half = 16 * block->a_row;
    block->a_step = 64;
    if (k >= AMX_STEP * end)
        return;
    const struct gemm_source rest = {x + 2 * done, plan->a.ld, SHOAL_BF16, true};
    SHOALI_CPU_SYMBOL(amx_pack_rows)(&rest, k - done, 0, rows, last);
    block->a_last = (const char *)last;
}

/* All rows of the block against 32 columns, from one step to another. */
static void run_panel(struct place *at, int64_t j, int64_t step, int64_t end)
{
    const struct plan *plan = at->plan;
    const int64_t columns = SHOALI_MIN(AMX_SQUARE, at->columns - j);
    const uint32_t *b =
        plan->packed_b ? plan->packed_b + at->j0 / 16 * plan->steps * AMX_TILE_WORDS : at->b;
    uint32_t last[2 * AMX_TILE_WORDS] __attribute__((aligned(64)));
    struct amx_block block = {
        .b = (const char *)(b + (j / 16 * plan->steps + step) * AMX_TILE_WORDS),
        .b_row = 64,
        .b_half = plan->steps * AMX_TILE_BYTES,
        .b_step = AMX_TILE_BYTES,
        .steps = end - step,
        .init_row = AMX_SQUARE,
        .out_row = AMX_SQUARE,
    };
    for (int64_t i = 0; i < at->rows; i += AMX_SQUARE) {
        const int rows = (int)SHOALI_MIN(AMX_SQUARE, at->rows - i);
        float *sums = at->carry + i * AMX_SQUARE;
        point_to_a(at, i, rows, step, end, last, &block);
        block.init = step > 0 ? sums : NULL;
        block.out = sums;
        SHOALI_CPU_SYMBOL(amx_block)(&at->tiles, &block, rows, columns > 16 ? 2 : 1);
        if (end == plan->steps)
            SHOALI_CPU_SYMBOL(gemm_finish)
        (plan->args, sums, AMX_SQUARE, at->i0 + i, rows, at->j0 + j, columns);
    }
}

static void run_block(struct place *at)
{
    const struct plan *plan = at->plan;
    for (int64_t j = 0; j < at->columns; j += AMX_SQUARE) {
        int64_t step = 0;
        do {
            const int64_t end = SHOALI_MIN(step + BLOCK_STEPS, plan->steps);
            run_panel(at, j, step, end);
            step = end;
        } while (step < plan->steps);
    }
}

static void pack_a(const struct place *at)
{
    const struct plan *plan = at->plan;
    const struct amx_rows_to to = {at->a, plan->steps * AMX_TILE_WORDS, 16, AMX_TILE_WORDS};
    if (plan->args->trans_a)
        SHOALI_CPU_SYMBOL(amx_pack_columns)(&plan->a, 0, plan->args->k, at->i0, at->rows, &to);
    else
        SHOALI_CPU_SYMBOL(amx_pack_rows)(&plan->a, plan->args->k, at->i0, at->rows, at->a);
}

static void pack_b_block(const struct place *at)
{
    const struct plan *plan = at->plan;
    for (int64_t j = 0; j < at->columns; j += 16)
        SHOALI_CPU_SYMBOL(amx_pack_b)
    (&plan->b, plan->args->trans_b, plan->args->k, at->j0 + j, SHOALI_MIN(16, at->columns - j),
     at->b + j / 16 * plan->steps * AMX_TILE_WORDS);
}

static void run_rectangle(struct place *at, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    const struct plan *plan = at->plan;
    for (at->j0 = j0; at->j0 < j1; at->j0 += plan->nc) {
        at->columns = SHOALI_MIN(plan->nc, j1 - at->j0);
        if (!plan->packed_b)
            pack_b_block(at);
        for (at->i0 = i0; at->i0 < i1; at->i0 += plan->mc) {
            at->rows = SHOALI_MIN(plan->mc, i1 - at->i0);
            if (!plan->in_place)
                pack_a(at);
            run_block(at);
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

static void plain_rectangle(const struct plan *plan, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++)
            plain_element(plan, i, j);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void work(void *arg, int32_t index, int32_t count)
{
    const struct plan *shared = arg;
    struct plan plan = *shared;
    int64_t i0, i1, j0, j1;
    (void)count;
    if (index >= plan.grid_m * plan.grid_n)
        return;
    shoali_pool_slice(plan.args->m, AMX_SQUARE, index / plan.grid_n, plan.grid_m, &i0, &i1);
    shoali_pool_slice(plan.args->n, AMX_SQUARE, index % plan.grid_n, plan.grid_n, &j0, &j1);
    if (i0 >= i1 || j0 >= j1)
        return;
    plan.mc = SHOALI_MIN(plan.mc, round_up(i1 - i0, AMX_SQUARE));
    plan.nc = SHOALI_MIN(plan.nc, round_up(j1 - j0, AMX_SQUARE));
    const int64_t step_words = plan.steps * AMX_TILE_WORDS;
    const int64_t a_words = plan.in_place ? 0 : plan.mc / 16 * step_words;
    const int64_t b_words = plan.packed_b ? 0 : plan.nc / 16 * step_words;
    const int64_t carry_words = plan.mc * AMX_SQUARE;
    uint32_t *memory = shoali_scratch((size_t)(carry_words + a_words + b_words) * sizeof *memory);
    if (!memory) {
        plain_rectangle(&plan, i0, i1, j0, j1);
        return;
    }
    struct place at = {.plan = &plan,
                       .carry = (float *)(void *)memory,
                       .a = memory + carry_words,
                       .b = memory + carry_words + a_words};
    run_rectangle(&at, i0, i1, j0, j1);
    AMX_RELEASE(&at.tiles);
}

/* Splits the threads into a grid so that the slowest has least to do; packing an element costs about
 * as much as eight products of it. */
static void choose_grid(struct plan *plan, int32_t threads)
{
    const double m = ceil((double)plan->args->m / AMX_SQUARE);
    const double n = ceil((double)plan->args->n / AMX_SQUARE);
    const double per_a = plan->in_place ? 0 : 0.25, per_b = plan->packed_b ? 0 : 0.25;
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

void SHOALI_CPU_SYMBOL(gemm)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_gemm_args *gemm = args;
    const int32_t threads = shoali_pool_threads(context->threads);
    if (gemm->m <= 0 || gemm->n <= 0)
        return;
    struct plan plan = {.args = gemm, .packed_b = gemm->packed_b, .steps = amx_steps(gemm->k)};
    plan.a = (struct gemm_source){gemm->a, gemm->lda, SHOAL_BF16, true};
    plan.b = (struct gemm_source){gemm->b, gemm->ldb, SHOAL_BF16, true};
    plan.in_place = !gemm->trans_a && (2 * gemm->lda % PAGE_BYTES != 0 || gemm->n <= AMX_SQUARE);
    plan.mc = SHOALI_MIN(BLOCK_ROWS, fitting(BLOCK_A_BYTES, plan.steps));
    plan.nc = plan.packed_b ? round_up(gemm->n, AMX_SQUARE) : fitting(BLOCK_B_BYTES, plan.steps);
    choose_grid(&plan, threads);
    if (plan.grid_m * plan.grid_n == 1)
        work(&plan, 0, 1);
    else
        shoali_pool_run(context->threads, work, &plan);
}
