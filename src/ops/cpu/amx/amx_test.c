/* Tiles: the arithmetic of one step, the products of the emulated table and of the real one,
 * against plain loops in the order that amx.h promises. Where the CPU has no tiles the real one's
 * instructions are trapped and executed, and counted. */
#include "base/base.h"
#include "base/cpu.h"
#include "base/test_cmocka.h"
#include "ops/cpu/amx/tiles.h"
#include "ops/ops.h"
#include "tools/tile_trap.h"

#include <stdio.h>
#include <stdlib.h>

extern const struct shoali_ops_table shoali_ops_cpu_amx_emulated;
#if defined(__x86_64__)
extern const struct shoali_ops_table shoali_ops_cpu_amx;
#define REAL (&shoali_ops_cpu_amx)
#else
#define REAL (&shoali_ops_cpu_amx_emulated)
#endif

struct random {
    uint64_t state;
};
static uint32_t next(struct random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}
static int64_t below(struct random *r, int64_t n)
{
    return (int64_t)(next(r) % (uint32_t)n);
}

/* ---- the oracle: no exponent is too small where everything is 2^64 times as large ---- */

static float zero_if_denormal(float x)
{
    return isfinite(x) && fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}
/* Products and sums of at most 2^-60 are scaled, so that rounding is to 24 bits whatever the
 * exponent; what is less than 2^-126 then was tiny after rounding. */
static float plain_fma(float x, float y, float z)
{
    const float r = fmaf(x, y, z);
    if (!(fabsf(r) < 0x1p-100f) || !(fabsf(z) < 0x1p-60f))
        return r;
    int ex, ey;
    const float mx = frexpf(x, &ex), my = frexpf(y, &ey);
    const float scaled = fmaf(mx, ldexpf(my, ex + ey + 64), ldexpf(z, 64));
    return fabsf(scaled) < 0x1p-62f ? copysignf(0.0f, r) : r;
}
static float widen(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return zero_if_denormal(value);
}
/* a and b: elements of k, `a_next` and `b_next` apart. */
static float plain_sum(const uint16_t *a, int64_t a_next, const uint16_t *b, int64_t b_next,
                       int64_t count)
{
    float sum = 0;
    for (int64_t k = 0; k < count; k += 32) {
        float part[2] = {0, 0};
        for (int64_t i = 0; i < 32; i++) {
            const bool there = k + i < count;
            const float x = there ? widen(a[(k + i) * a_next]) : 0;
            const float y = there ? widen(b[(k + i) * b_next]) : 0;
            part[i % 2] = plain_fma(x, y, part[i % 2]);
        }
        sum = zero_if_denormal(sum + zero_if_denormal(part[0] + part[1]));
    }
    return sum;
}

/* ---- numbers of many kinds ---- */

enum kind { ORDINARY, ANY, TINY, HUGE_ONES, INFINITIES, NANS, AT_THE_EDGE, KINDS };

static uint16_t number(struct random *r, enum kind kind)
{
    const uint32_t sign = next(r) & 0x8000, low = next(r) & 0x7f, dice = next(r);
    uint32_t exponent = 120 + dice % 16;
    if (kind == ANY)
        exponent = dice % 255;
    else if (kind == TINY)
        exponent = 52 + dice % 24;
    else if (kind == HUGE_ONES)
        exponent = 180 + dice % 24;
    else if (kind == INFINITIES && dice % 7 == 0)
        return (uint16_t)(sign | 0x7f80);
    else if (kind == NANS && dice % 97 == 0)
        return (uint16_t)(sign | 0x7f80 | (low > 0 ? low : 1));
    else if (kind == AT_THE_EDGE)
        return (uint16_t)(sign | (63 + dice % 2) << 7 | (0x7f & ~(low % 3)));
    return (uint16_t)(sign | exponent << 7 | low);
}

static bool same(float x, float y)
{
    return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
}

/* ---- one instruction ---- */

static void test_step(void **state)
{
    (void)state;
    struct random r = {20261122};
    for (int trial = 0; trial < 700; trial++) {
        const enum kind kind = (enum kind)(trial % KINDS);
        struct amx_tile a, b, c, before;
        uint16_t x[512], y[512];
        float sums[16][16];
        for (int i = 0; i < 512; i++) {
            x[i] = number(&r, kind);
            y[i] = number(&r, kind);
        }
        for (int i = 0; i < 256; i++)
            sums[i / 16][i % 16] = kind == TINY || kind == AT_THE_EDGE
                                       ? ldexpf((float)(next(&r) & 0xffff), -140)
                                       : (float)(next(&r) & 0xffff);
        memcpy(&a, x, sizeof a);
        memcpy(&b, y, sizeof b);
        memcpy(&c, sums, sizeof c);
        before = c;
        const int rows = 1 + (int)below(&r, 16);
        amx_emulated_multiply(&c, &a, &b, rows);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++) {
                float got, c0, part[2] = {0, 0};
                memcpy(&got, &c.row[m][4 * n], 4);
                memcpy(&c0, &before.row[m][4 * n], 4);
                for (int i = 0; i < 32; i++)
                    part[i % 2] = plain_fma(widen(x[m * 32 + i]),
                                            widen(y[i / 2 * 32 + 2 * n + i % 2]), part[i % 2]);
                float want =
                    zero_if_denormal(zero_if_denormal(c0) + zero_if_denormal(part[0] + part[1]));
                if (m >= rows)
                    want = 0;
                if (!same(got, want))
                    fail_msg("kind %d row %d column %d is %a, not %a", (int)kind, m, n, (double)got,
                             (double)want);
                const float plain = amx_plain_step(c0, x + m * 32, y + 2 * n, 32);
                assert_true(m >= rows || memcmp(&plain, &got, 4) == 0);
            }
    }
}

static void test_config(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct amx_config), 64);
    static const int rows[] = {1, 16, 17, 32};
    for (int i = 0; i < 4; i++) {
        const struct amx_config config = amx_config_of(rows[i]);
        assert_int_equal(config.palette, 1);
        for (int t = 0; t < 8; t++) {
            const bool b = t >= 6, lower = t == 2 || t == 3 || t == 5;
            const int upper_rows = rows[i] < 16 ? rows[i] : 16;
            const int want = b ? 16 : lower ? rows[i] - upper_rows : upper_rows;
            assert_int_equal(config.rows[t], want);
            assert_int_equal(config.row_bytes[t], want > 0 ? 64 : 0);
        }
    }
}

/* ---- products ---- */

static bool memory_fails;
void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return memory_fails ? NULL : __real_aligned_alloc(align, bytes);
}

struct shape {
    int64_t m, n, k, pad;
    int32_t trans_a, trans_b;
    enum kind kind;
};
static const struct shape shapes[] = {
    {1, 1, 1, 0, 0, 0, ORDINARY},
    {5, 7, 0, 0, 0, 0, ORDINARY},
    {17, 33, 31, 3, 0, 1, ORDINARY},
    {33, 16, 65, 0, 1, 0, ORDINARY},
    {64, 64, 64, 0, 1, 1, ANY},
    {40, 50, 2048, 0, 0, 0, ORDINARY}, /* rows a page apart: A is packed */
    {40, 20, 2050, 1, 0, 0, ORDINARY}, /* K in blocks, the last step incomplete, A in place */
    {70, 64, 70, 0, 1, 0,
     ORDINARY}, /* whole lines of C, which a pool that shuffles writes past the caches */
    {1, 70, 100, 0, 0, 1, ORDINARY}, /* few rows: B in place, the last step and block incomplete */
    {16, 300, 64, 3, 0, 1, ANY},
    {3, 33, 40, 0, 0, 1, NANS},
    {40, 35, 4200, 0, 1, 1,
     ORDINARY}, /* blocks of K outside, in both tables; the last incomplete */
    {140, 40, 2100, 0, 1, 0, ORDINARY}, /* the same of the emulation, and rows in blocks */
    {40, 100, 2080, 2, 0, 1, ORDINARY}, /* A in place, several pieces */
    {300, 35, 70, 0, 1, 0, ORDINARY},   /* rows in blocks */
    {300, 500, 70, 0, 1, 1, ORDINARY},  /* columns, too, and pieces of both */
    {300, 9, 96, 2, 0, 1, TINY},
    {31, 40, 40, 0, 0, 0, HUGE_ONES},
    {31, 40, 40, 0, 1, 0, INFINITIES},
    {31, 40, 40, 0, 0, 1, NANS},
    {20, 20, 33, 0, 0, 0, AT_THE_EDGE},
};

struct product {
    struct shoali_gemm_args args;
    uint16_t *a, *b;
    float *c;
    void *packed;
};

static void make(struct product *p, const struct shape *s, struct random *r)
{
    *p = (struct product){.args = {.m = s->m,
                                   .n = s->n,
                                   .k = s->k,
                                   .trans_a = s->trans_a,
                                   .trans_b = s->trans_b,
                                   .ldc = s->n,
                                   .dtype_ab = SHOAL_BF16,
                                   .dtype_c = SHOAL_F32,
                                   .dtype_bias = SHOAL_F32}};
    p->args.lda = (s->trans_a ? s->m : s->k) + s->pad;
    p->args.ldb = (s->trans_b ? s->k : s->n) + s->pad;
    const int64_t a_rows = s->trans_a ? s->k : s->m, b_rows = s->trans_b ? s->n : s->k;
    p->a = malloc((size_t)(a_rows * p->args.lda) * 2 + 1);
    p->b = malloc((size_t)(b_rows * p->args.ldb) * 2 + 1);
    assert_int_equal(posix_memalign((void **)&p->c, 64, (size_t)(s->m * s->n) * 4), 0);
    p->packed = malloc(shoali_ops_cpu_amx_emulated.packed_b_bytes(s->n, s->k, SHOAL_BF16) + 1);
    assert_true(p->a && p->b && p->c && p->packed);
    for (int64_t i = 0; i < a_rows * p->args.lda; i++)
        p->a[i] = number(r, s->kind);
    for (int64_t i = 0; i < b_rows * p->args.ldb; i++)
        p->b[i] = number(r, s->kind);
    p->args.a = p->a;
    p->args.b = p->b;
    p->args.c = p->c;
}

static void drop(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->packed);
}

static void check(const struct product *p, const char *what)
{
    const struct shoali_gemm_args *g = &p->args;
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++) {
            const float want =
                plain_sum(p->a + (g->trans_a ? m : m * g->lda), g->trans_a ? g->lda : 1,
                          p->b + (g->trans_b ? n * g->ldb : n), g->trans_b ? 1 : g->ldb, g->k);
            if (!same(p->c[m * g->n + n], want))
                fail_msg("%s, %d x %d x %d: element %d,%d is %a, not %a", what, (int)g->m,
                         (int)g->n, (int)g->k, (int)m, (int)n, (double)p->c[m * g->n + n],
                         (double)want);
        }
}

/* ---- what the trap counts ---- */

static bool trapped;

static int64_t tiles_of(int64_t rows)
{
    return rows > 16 ? 2 : 1;
}

/* gemm.c: of 32 steps of 32 elements. */
static int64_t blocks_of(int64_t k)
{
    return k > 1024 ? (k + 1023) / 1024 : 1;
}

/* block.c: of each 32 x 32 sums a step multiplies as many tiles as there are sums, and loads those
 * of A and of B once. Sums are zeros at first, are stored after each block of K and loaded again
 * before the next one. */
static struct tile_trap_counts expected_of(const struct shoali_gemm_args *g)
{
    struct tile_trap_counts want = {0};
    const int64_t steps = (g->k + 31) / 32, blocks = blocks_of(g->k);
    for (int64_t i = 0; i < g->m; i += 32)
        for (int64_t j = 0; j < g->n; j += 32) {
            const int64_t a = tiles_of(g->m - i), b = tiles_of(g->n - j);
            want.multiplies += a * b * steps;
            want.loads += (a + b) * steps + a * b * (blocks - 1);
            want.stores += a * b * blocks;
            want.zeros += a * b;
        }
    return want;
}

/* At most: once on each thread, and twice where a panel of 32 columns meets the last rows. */
static int64_t most_configures(const struct shoali_gemm_args *g, int32_t threads)
{
    const bool two = g->m > 32 && g->m % 32 != 0;
    const bool few = g->m <= 16 && g->trans_b && !g->trans_a; /* rows of tiles are columns of C */
    if (few)
        return threads + 2; /* a last block that is not whole may come before others */
    return threads + (two ? 2 * ((g->n + 31) / 32) * blocks_of(g->k) : 0);
}

/* Of one product: no instruction too many, and tiles that nobody keeps. */
static void check_counts(const struct shoali_gemm_args *g, const struct tile_trap_counts *before,
                         int32_t threads, const char *what)
{
    const struct tile_trap_counts now = tile_trap_counts(), want = expected_of(g);
    const int64_t multiplies = now.multiplies - before->multiplies;
    const int64_t loads = now.loads - before->loads, stores = now.stores - before->stores;
    const int64_t zeros = now.zeros - before->zeros;
    if (multiplies != want.multiplies || loads != want.loads || stores != want.stores ||
        zeros != want.zeros)
        fail_msg(
            "%s, %d x %d x %d: %d multiplies, %d loads, %d stores, %d zeros, not %d, %d, %d, %d",
            what, (int)g->m, (int)g->n, (int)g->k, (int)multiplies, (int)loads, (int)stores,
            (int)zeros, (int)want.multiplies, (int)want.loads, (int)want.stores, (int)want.zeros);
    assert_int_equal(now.configured_threads, 0);
    assert_in_range(now.configures - before->configures, 1, most_configures(g, threads));
}

static void run(const struct shoali_ops_table *table, const struct product *p,
                struct shoali_pool *pool, bool packed, const char *what)
{
    const struct shoali_kernel_context context = {.threads = pool};
    const struct tile_trap_counts before = tile_trap_counts();
    struct shoali_gemm_args args = p->args;
    memset(p->c, 0x7f, (size_t)(args.m * args.n) * 4);
    if (packed) {
        const struct shoali_pack_b_args pack = {.b = p->b,
                                                .packed = p->packed,
                                                .n = args.n,
                                                .k = args.k,
                                                .ldb = args.ldb,
                                                .trans_b = args.trans_b,
                                                .dtype = SHOAL_BF16};
        shoali_ops_entry(table, &shoali_kernel_pack_b)->fn(&pack, &context);
        args.packed_b = p->packed;
        args.b = NULL;
    }
    shoali_ops_entry(table, &shoali_kernel_gemm)->fn(&args, &context);
    if (trapped)
        check_counts(&args, &before, shoali_pool_threads(pool), what);
    check(p, what);
}

static void run_shapes(const struct shoali_ops_table *table)
{
    struct random r = {7};
    struct shoali_pool *pool = NULL;
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct product p;
        make(&p, &shapes[i], &r);
        run(table, &p, NULL, false, "one thread");
        run(table, &p, NULL, true, "packed");
        for (uint64_t seed = 0; seed < 4; seed++) { /* orders in which pieces are claimed */
            shoali_pool_shuffle(pool, seed * UINT64_C(0x9e3779b97f4a7c15));
            run(table, &p, pool, false, "threads");
            run(table, &p, pool, true, "packed, threads");
        }
        drop(&p);
    }
    shoali_pool_destroy(pool);
}

/* ---- attention: two tables, or one by other numbers of threads, give the same bits ---- */

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, SIZE = 40, LENGTH = 150 };
#define Q_COUNT (BATCH * LENGTH * HEADS * SIZE)
#define KV_COUNT (BATCH * LENGTH * KV_HEADS * SIZE)
struct attended {
    uint16_t out[Q_COUNT], dq[Q_COUNT], dk[KV_COUNT], dv[KV_COUNT];
    float lse[BATCH * HEADS * LENGTH], delta[BATCH * HEADS * LENGTH];
};

static void attend(const struct shoali_ops_table *table, struct shoali_pool *pool, int32_t causal,
                   int64_t window, struct attended *to)
{
    const struct shoali_kernel_context context = {.threads = pool};
    struct random r = {99};
    uint16_t *in = malloc(2 * (2 * Q_COUNT + 2 * KV_COUNT));
    assert_non_null(in);
    for (int64_t i = 0; i < 2 * Q_COUNT + 2 * KV_COUNT; i++)
        in[i] = number(&r, ORDINARY);
    const struct shoali_attention_args forward = {.q = in,
                                                  .k = in + 2 * Q_COUNT,
                                                  .v = in + 2 * Q_COUNT + KV_COUNT,
                                                  .out = to->out,
                                                  .lse = to->lse,
                                                  .batch = BATCH,
                                                  .q_len = LENGTH,
                                                  .kv_len = LENGTH,
                                                  .heads = HEADS,
                                                  .kv_heads = KV_HEADS,
                                                  .head_size = SIZE,
                                                  .q_stride = HEADS * SIZE,
                                                  .kv_stride = KV_HEADS * SIZE,
                                                  .out_stride = HEADS * SIZE,
                                                  .window = window,
                                                  .causal = causal,
                                                  .scale = 0.001,
                                                  .dropout = 0.1f,
                                                  .random = shoali_stream_make(1, "amx", "", 0),
                                                  .dtype = SHOAL_BF16};
    const struct shoali_attention_backward_args backward = {.q = forward.q,
                                                            .k = forward.k,
                                                            .v = forward.v,
                                                            .out = to->out,
                                                            .dout = in + Q_COUNT,
                                                            .lse = to->lse,
                                                            .delta = to->delta,
                                                            .dq = to->dq,
                                                            .dk = to->dk,
                                                            .dv = to->dv,
                                                            .batch = BATCH,
                                                            .q_len = LENGTH,
                                                            .kv_len = LENGTH,
                                                            .heads = HEADS,
                                                            .kv_heads = KV_HEADS,
                                                            .head_size = SIZE,
                                                            .q_stride = forward.q_stride,
                                                            .kv_stride = forward.kv_stride,
                                                            .out_stride = forward.out_stride,
                                                            .window = window,
                                                            .causal = causal,
                                                            .scale = forward.scale,
                                                            .dropout = forward.dropout,
                                                            .random = forward.random,
                                                            .dtype = SHOAL_BF16};
    memset(to, 0x7f, sizeof *to);
    shoali_ops_entry(table, &shoali_kernel_attention)->fn(&forward, &context);
    shoali_ops_entry(table, &shoali_kernel_attention_backward)->fn(&backward, &context);
    free(in);
}

static void compare_attention(const struct shoali_ops_table *table)
{
    static const struct {
        int32_t causal;
        int64_t window;
    } sights[] = {{0, 0}, {1, 0}, {1, 40}};
    struct attended *want = malloc(sizeof *want), *got = malloc(sizeof *got);
    struct shoali_pool *pool = NULL;
    assert_true(want && got);
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    for (int i = 0; i < 3; i++) {
        attend(&shoali_ops_cpu_amx_emulated, NULL, sights[i].causal, sights[i].window, want);
        attend(table, pool, sights[i].causal, sights[i].window, got);
        assert_memory_equal(want, got, sizeof *want);
        assert_int_equal(tile_trap_counts().configured_threads, 0);
    }
    shoali_pool_destroy(pool);
    free(want);
    free(got);
}

/* The first of the tests: later the thread has its scratch memory. */
static void test_without_memory(void **state)
{
    (void)state;
    struct random r = {11};
    if (!shoali_ops_cpu_amx_emulated.probe())
        skip();
    for (size_t i = 0; i < 5; i++) {
        struct product p;
        make(&p, &shapes[i], &r);
        memory_fails = true;
        run(&shoali_ops_cpu_amx_emulated, &p, NULL, false, "without memory");
        run(&shoali_ops_cpu_amx_emulated, &p, NULL, true, "without memory, packed");
        memory_fails = false;
        drop(&p);
    }
}

static void test_emulated(void **state)
{
    (void)state;
    if (!shoali_ops_cpu_amx_emulated.probe())
        skip();
    run_shapes(&shoali_ops_cpu_amx_emulated);
    compare_attention(&shoali_ops_cpu_amx_emulated);
}

/* Where there are tiles: the same oracle, and attention with the bits of the emulation. */
static void test_real(void **state)
{
    (void)state;
    if (REAL == &shoali_ops_cpu_amx_emulated || !REAL->probe()) {
        const struct shoali_cpu cpu = shoali_cpu_get();
        print_message("skipped: AMX tiles: %s\n",
                      shoali_cpu_describe_tiles(&cpu, shoali_cpu_permit_tiles()));
        skip();
    }
    run_shapes(REAL);
    compare_attention(REAL);
}

/* The same where there are none. */
static void test_trapped(void **state)
{
    (void)state;
    const char *reason = tile_trap_begin();
    if (reason != NULL) {
        print_message("skipped: %s\n", reason);
        skip();
    }
    trapped = true;
    assert_true(REAL->probe());
    run_shapes(REAL);
    compare_attention(REAL);
    assert_true(tile_trap_counts().multiplies > 0);
    trapped = false;
    tile_trap_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_memory), cmocka_unit_test(test_step),
        cmocka_unit_test(test_config),         cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_real),           cmocka_unit_test(test_trapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
