/* gemm_plan - the cost of a product's blocks, and the choice. */
#include "ops/cpu/gemm_plan.h"
#include "base/caches.h"
#include "base/str.h"

#define DIRECT_ROWS 2048        /* of a block in place, which the caches need not keep */
#define COPIED_ROWS 1024        /* of a copied one, at most */
#define PIECE_WORK (1 << 24)    /* multiply-adds of a piece: some hundred microseconds */
#define COPIED_COLUMNS 512      /* of a piece, at least, when its A is copied for it alone */
#define KEPT_BLOCKS 4           /* of rows that share the panels that a piece has packed */
#define COLUMNS_BYTES (2 << 20) /* of A: the caches give columns in place fast enough */
#define SERIAL_WORK 32768       /* multiply-adds below which a second thread does not pay */

/* Cycles, as a core with two fused multiply-adds a cycle has them. They are fitted to measurements
 * on Zen 4, CYCLES_MISS and HIDDEN to those on Zen 3. */
#define CYCLES_STEP ((double)GEMM_ROWS * GEMM_UNITS * VEC_PER_UNIT / 2) /* of a register tile */
#define CYCLES_ENDS (100 + 4.0 * GEMM_ROWS * GEMM_UNITS * VEC_PER_UNIT) /* its sums in and out */
#define CYCLES_A 0.005    /* a byte of A in place, from the last level */
#define CYCLES_B 0.04     /* a byte of B, from the last level */
#define CYCLES_LINE 0.5   /* a line of A in place by columns, from a near cache; four from others */
#define CYCLES_CARRY 0.25 /* a sum that is carried to the next block of k */
#define CYCLES_COPY 1.2   /* a word of A that is copied */
#define CYCLES_PACK 0.3   /* a word of B that is packed from rows; from columns twice that */
#define CYCLES_MISS 14    /* a line of A that left the first level */
#define HIDDEN 0.6        /* of the arithmetic, which goes on beside such misses */

/* A thread's share, in register tiles, panels and steps of k. */
struct share {
    int64_t rows, columns, steps;
    double tiles, panels;
};

/* Cycles of a step of a tile that misses of A in place cost: where its rows and their next lines,
 * more than the ways of the first level, all fall into one set. On Zen 3 (32 KiB, 8 ways) products
 * in tiles of 6 rows by 16 columns took 1.5 times as long then. A wide tile waits for nothing. */
static double miss_cycles(const struct gemm_plan *plan)
{
    const struct shoali_cache *l1 = &shoali_caches_get()->l1;
    const int64_t way = l1->bytes / SHOALI_MAX(l1->ways, 1);
    const int64_t stride = plan->a.ld * (plan->pairs ? 2 : 4);
    const double cycles = GEMM_ROWS / 16.0 * CYCLES_MISS - HIDDEN * CYCLES_STEP;
    if (plan->a_mode >= A_STRAIGHT || way <= 0 || stride % way != 0 || 2 * GEMM_ROWS <= l1->ways)
        return 0;
    return SHOALI_MAX(cycles, 0.0);
}

static double blocks_of(int64_t n, int64_t block)
{
    return (double)gemm_ceil_div(n, SHOALI_MAX(block, 1));
}

/* Cycles beside the arithmetic that A costs: where it lies, or for its copies. */
static double cost_of_a(const struct gemm_plan *plan, const struct share *share,
                        const struct shoali_caches *caches)
{
    const double walks = share->tiles * share->panels * (double)share->steps;
    const double missed = walks * miss_cycles(plan);
    const double words = (double)share->rows * (double)share->steps;
    if (plan->a_mode == A_DIRECT)
        return missed + walks * 4 * GEMM_ROWS * CYCLES_A;
    if (plan->a_mode == A_COLUMNS) {
        const bool near = 4 * words <= (double)shoali_cache_share(caches, &caches->l2) / 2;
        return missed + walks * (near ? 1 : 4) * CYCLES_LINE;
    }
    const double block = 4.0 * (double)plan->mc * (double)gemm_steps(plan->kc, plan->pairs);
    const bool near = block <= (double)shoali_cache_share(caches, &caches->l2) / 2;
    const bool stays = plan->kc >= plan->args->k && plan->rows <= plan->mc;
    return words * CYCLES_COPY * (stays ? 1 : blocks_of(share->columns, plan->columns)) +
           (near ? 0 : walks * 4 * GEMM_ROWS * CYCLES_A);
}

/* Cycles that a thread takes for its share with these blocks. B comes from the last level once per
 * block of rows, and from then on from the second. */
static double cost_of(const struct gemm_plan *plan, const struct share *share,
                      const struct shoali_caches *caches)
{
    const double tiles = share->tiles * share->panels, steps = (double)share->steps;
    const double blocks_k = blocks_of(plan->args->k, plan->kc);
    const double words_b = share->panels * GEMM_COLUMNS * steps;
    double cycles = tiles * (steps * CYCLES_STEP + blocks_k * CYCLES_ENDS);
    cycles += cost_of_a(plan, share, caches);
    cycles += 4 * words_b * CYCLES_B * blocks_of(share->rows, plan->mc);
    if (!plan->packed_b)
        cycles += words_b * CYCLES_PACK * (plan->args->trans_b ? 2 : 1) *
                  blocks_of(share->rows, plan->rows);
    return cycles + (blocks_k - 1) * (double)share->rows * (double)share->columns * CYCLES_CARRY;
}

/* Whether A can be read in place by rows: it is not transposed, widened or short of half a
 * pair. */
static bool rows_in_place(const struct gemm_plan *plan)
{
    const struct shoali_gemm_args *args = plan->args;
    return !args->trans_a && (args->dtype_ab == SHOAL_F32 || (plan->pairs && args->k % 2 == 0));
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Cycles of one step of k over all panels that cover `units` of columns: a narrow panel at the end
 * has less to do than loads and latencies allow for. */
static double row_cycles(double units)
{
    const double rest = units - GEMM_UNITS * floor(units / GEMM_UNITS);
    return GEMM_ROWS * units + (GEMM_UNITS > 1 && rest > 0 ? 4 - rest : 0);
}

/* Splits the threads into a grid so that the slowest has least to do, packing counted. */
static void choose_grid(struct gemm_plan *plan, int32_t threads)
{
    const struct shoali_gemm_args *args = plan->args;
    const double tiles = (double)gemm_ceil_div(args->m, GEMM_ROWS);
    const double grains = (double)gemm_ceil_div(args->n, plan->grain);
    const double per_b = plan->packed_b  ? 0
                         : args->trans_b ? 6
                                         : 2; /* in steps of 16 multiply-adds, per unit */
    /* per tile */
    const double per_a = plan->a_mode >= A_STRAIGHT || miss_cycles(plan) > 0 ? 2 : 0;
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

static void find_share(const struct gemm_plan *plan, struct share *share)
{
    int64_t i0, i1, j0, j1;
    shoali_pool_slice(plan->args->m, GEMM_ROWS, 0, plan->grid_m, &i0, &i1);
    shoali_pool_slice(plan->args->n, plan->grain, 0, plan->grid_n, &j0, &j1);
    *share = (struct share){
        .rows = i1 - i0, .columns = j1 - j0, .steps = gemm_steps(plan->args->k, plan->pairs)};
    share->tiles = (double)gemm_ceil_div(share->rows, GEMM_ROWS);
    share->panels = (double)gemm_ceil_div(share->columns, GEMM_COLUMNS);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The least multiple of `grain` that cuts n into as few blocks as `most` does. */
static int64_t equal_blocks(int64_t n, int64_t most, int64_t grain)
{
    if (n <= most)
        return gemm_round_up(SHOALI_MAX(n, 1), grain);
    return gemm_round_up(gemm_ceil_div(n, gemm_ceil_div(n, most)), grain);
}

/* Pieces of `blocks` blocks of mc rows. They are many, so that a thread whose core is taken holds
 * up little; but A that is copied for a piece alone must meet many panels. */
static void set_pieces(struct gemm_plan *plan, const struct share *share, int64_t blocks)
{
    const bool copied = plan->a_mode >= A_STRAIGHT;
    const int64_t most = GEMM_PIECE_COLUMNS / GEMM_COLUMNS * GEMM_COLUMNS;
    plan->mc = equal_blocks(share->rows, plan->mc, GEMM_ROWS);
    plan->rows = SHOALI_MIN(blocks, gemm_ceil_div(share->rows, plan->mc)) * plan->mc;
    plan->keep_b = !plan->packed_b && plan->rows > plan->mc;
    const double panel = (double)plan->rows * (double)plan->args->k * GEMM_COLUMNS;
    int64_t columns =
        panel < PIECE_WORK ? (int64_t)ceil(PIECE_WORK / SHOALI_MAX(panel, 1.0)) * GEMM_COLUMNS : 0;
    columns = SHOALI_MAX(columns, GEMM_COLUMNS);
    if (copied && (plan->kc < plan->args->k || plan->rows > plan->mc))
        columns = SHOALI_MAX(columns, COPIED_COLUMNS);
    plan->columns = equal_blocks(share->columns, SHOALI_MIN(columns, most), GEMM_COLUMNS);
}

/* The best plan so far, and its cost. */
struct choice {
    struct gemm_plan plan;
    double cost;
};

static void consider(struct gemm_plan plan, const struct share *share, int64_t blocks,
                     struct choice *best)
{
    set_pieces(&plan, share, blocks);
    const double cost = cost_of(&plan, share, shoali_caches_get());
    if (best->cost <= 0 || cost < best->cost)
        *best = (struct choice){plan, cost};
}

/* Rows of a copied block that takes half of a core's share of a cache. */
static int64_t rows_within(const struct shoali_caches *caches, const struct shoali_cache *cache,
                           int64_t steps)
{
    const int64_t rows = shoali_cache_share(caches, cache) / 2 / (4 * steps);
    return SHOALI_MIN(SHOALI_MAX(rows / GEMM_ROWS, 2), COPIED_ROWS / GEMM_ROWS) * GEMM_ROWS;
}

/* A read in one way, k in blocks of at most so many steps. A panel and two tiles' rows of A take at
 * most 3/8 of the second level; a copied block of A stays there or in the last. */
static void consider_mode(struct gemm_plan plan, enum gemm_a_mode mode, int64_t most,
                          const struct share *share, struct choice *best)
{
    const struct shoali_caches *caches = shoali_caches_get();
    plan.a_mode = mode;
    plan.kc = equal_blocks(plan.args->k, most * (plan.pairs ? 2 : 1), 16);
    const int64_t steps = gemm_steps(plan.kc, plan.pairs);
    const int64_t room = shoali_cache_share(caches, &caches->l2) * 3 / 8;
    if (4 * steps * (GEMM_COLUMNS + 2 * GEMM_ROWS) > room && best->cost > 0)
        return;
    if (mode < A_STRAIGHT) {
        plan.mc = DIRECT_ROWS / GEMM_ROWS * GEMM_ROWS;
        consider(plan, share, 1, best);
        return;
    }
    const struct shoali_cache *const homes[] = {&caches->l2, &caches->last};
    for (int i = 0; i < 2; i++) {
        plan.mc = rows_within(caches, homes[i], steps);
        consider(plan, share, 1, best);
        if (!plan.packed_b && plan.mc < share->rows)
            consider(plan, share, KEPT_BLOCKS, best);
    }
}

/* Copies and pieces of many kinds against each other; of equal ones the first. */
static void choose_blocks(struct gemm_plan *plan)
{
    static const int64_t most[] = {256, 384, 512, 768, 1024, 1536, 2048, 3072};
    const struct shoali_gemm_args *args = plan->args;
    const bool wide = args->dtype_ab == SHOAL_F32;
    struct choice best = {.cost = 0};
    struct share share;
    find_share(plan, &share);
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        if (i > 0 && most[i - 1] >= share.steps) /* the last one had all of them */
            break;
        if (args->trans_a && wide && 4 * args->k * args->lda <= COLUMNS_BYTES)
            consider_mode(*plan, A_COLUMNS, most[i], &share, &best);
        if (rows_in_place(plan))
            consider_mode(*plan, A_DIRECT, most[i], &share, &best);
        consider_mode(*plan, args->trans_a ? A_TILES : A_STRAIGHT, most[i], &share, &best);
    }
    *plan = best.plan;
}

void SHOALI_CPU_SYMBOL(gemm_plan)(const struct shoali_gemm_args *args, int32_t threads,
                                  struct gemm_plan *plan)
{
    const bool pairs = gemm_pairs(args->dtype_ab);
    *plan = (struct gemm_plan){.args = args, .pairs = pairs, .packed_b = args->packed_b};
    plan->grain = plan->packed_b ? GEMM_COLUMNS : 16;
    plan->a = (struct gemm_source){args->a, args->lda, args->dtype_ab, pairs};
    plan->b = (struct gemm_source){args->b, args->ldb, args->dtype_ab, pairs};
    plan->a_mode = rows_in_place(plan) ? A_DIRECT : A_TILES; /* until it is chosen */
    plan->plain = args->c && args->dtype_c == SHOAL_F32 && !args->accumulate && !args->before &&
                  !args->bias && !args->preact && !args->residual &&
                  args->activation == SHOALI_ACT_NONE;
    plan->carry_in_c = plan->plain && args->n % 16 == 0;
    choose_grid(plan, threads);
    choose_blocks(plan);
}

void SHOALI_CPU_SYMBOL(gemm_plan_words)(const struct gemm_plan *plan, int64_t words[3])
{
    const int64_t steps = gemm_steps(plan->kc, plan->pairs);
    words[0] = 0;
    if (plan->a_mode == A_STRAIGHT)
        words[0] = plan->mc * gemm_straight_ld(plan->kc, plan->pairs);
    else if (plan->a_mode == A_TILES)
        words[0] = gemm_round_up(plan->mc, GEMM_ROWS) * steps;
    words[1] = (plan->keep_b ? plan->columns : GEMM_COLUMNS) * steps;
    if (plan->packed_b)
        words[1] = 0;
    words[2] = 0;
    if (plan->kc < plan->args->k && !plan->carry_in_c)
        words[2] = plan->rows * gemm_round_up(plan->columns, 16);
    for (int i = 0; i < 3; i++)
        words[i] = gemm_round_up(words[i], 16);
}

void SHOALI_CPU_SYMBOL(explain_gemm)(const void *args, int32_t threads, struct shoali_str *text)
{
    static const char *const modes[] = {"A in place by rows", "A in place by columns",
                                        "A copied by rows", "A copied as tiles"};
    const struct shoali_gemm_args *gemm = args;
    struct gemm_plan plan;
    int64_t words[3];
    if (gemm->m <= 0 || gemm->n <= 0)
        return;
    if (SHOALI_CPU_SYMBOL(gemv_takes)(gemm)) {
        shoali_str_append(text, "few rows: B in place, nothing packed");
        return;
    }
    SHOALI_CPU_SYMBOL(gemm_plan)(gemm, threads, &plan);
    SHOALI_CPU_SYMBOL(gemm_plan_words)(&plan, words);
    shoali_str_append(
        text,
        "%s, tiles of %dx%d, k by %lld, rows by %lld, pieces of %lldx%lld%s, grid %dx%d, "
        "scratch %lld bytes",
        modes[plan.a_mode], GEMM_ROWS, GEMM_COLUMNS, (long long)plan.kc, (long long)plan.mc,
        (long long)plan.rows, (long long)plan.columns, plan.keep_b ? " that keep panels" : "",
        (int)plan.grid_m, (int)plan.grid_n, 4 * (long long)(words[0] + words[1] + words[2]));
}
