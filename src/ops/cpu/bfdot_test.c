/* ARM's product of bf16 pairs: its description in plain C against the CPU's own arithmetic, and,
 * where the instruction is, products of cpu-neon_bf16 against the description, bit for bit. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "ops/cpu/bfdot.h"
#include "ops/ops.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>

struct random {
    uint64_t state;
};
static uint32_t next(struct random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

/* ---- the description ---- */

static float zero_if_denormal(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}
static float widen(uint16_t x)
{
    return bfdot_float((uint32_t)x << 16);
}
/* To odd from truncation and the flags that it leaves. Volatile, so that both stay where they
 * are. */
static float by_flags(float x, float y, bool product)
{
    volatile float a = zero_if_denormal(x), b = zero_if_denormal(y), r;
    fesetround(FE_TOWARDZERO);
    feclearexcept(FE_ALL_EXCEPT);
    r = product ? a * b : a + b;
    const int raised = fetestexcept(FE_INEXACT | FE_OVERFLOW);
    fesetround(FE_TONEAREST);
    if (isnan(r))
        return bfdot_float(BFDOT_NAN);
    if (raised & FE_OVERFLOW)
        return copysignf(INFINITY, r);
    if (fabsf(r) < 0x1p-126f)
        return copysignf(0.0f, r);
    return bfdot_float(raised & FE_INEXACT ? bfdot_bits(r) | 1 : bfdot_bits(r));
}

enum kind { ORDINARY, NEAR, ANY, TINY, DENORMALS, HUGE_ONES, INFINITIES, NANS, KINDS };

static uint16_t number(struct random *r, enum kind kind)
{
    const uint32_t sign = next(r) & 0x8000, low = next(r) & 0x7f, dice = next(r);
    uint32_t exponent = 120 + dice % 16;
    if (kind == NEAR)
        exponent = 126 + dice % 2;
    else if (kind == ANY)
        exponent = dice % 255;
    else if (kind == TINY)
        exponent = 52 + dice % 24;
    else if (kind == DENORMALS) /* and what would bring their products among the normal ones */
        exponent = dice % 3 == 0 ? 0 : dice % 3 == 1 ? 1 + dice % 4 : 126 + dice % 24;
    else if (kind == HUGE_ONES)
        exponent = 180 + dice % 24;
    else if (kind == INFINITIES && dice % 7 == 0)
        return (uint16_t)(sign | 0x7f80);
    else if (kind == NANS && dice % 97 == 0)
        return (uint16_t)(sign | 0x7f80 | (low > 0 ? low : 1));
    return (uint16_t)(sign | exponent << 7 | low);
}
/* A sum for it to be added to: now and then as large as a product, denormal, or what cancels it. */
static float number_before(struct random *r, enum kind kind)
{
    const uint32_t x = next(r), pair = number(r, kind);
    return bfdot_float(pair << 16 | (x % 3 == 0 ? 0 : x & 0xffff));
}

static void test_description(void **state)
{
    (void)state;
    struct random r = {20261123};
    for (int trial = 0; trial < 200000; trial++) {
        const enum kind kind = (enum kind)(trial % KINDS);
        const float c = number_before(&r, kind);
        const uint16_t a[2] = {number(&r, kind), number(&r, kind)};
        const uint16_t b[2] = {number(&r, kind), number(&r, kind)};
        const float first = by_flags(widen(a[0]), widen(b[0]), true);
        const float second = by_flags(widen(a[1]), widen(b[1]), true);
        const float want = by_flags(c, by_flags(first, second, false), false);
        const float got = bfdot_plain_step(c, a, b);
        if (bfdot_bits(got) != bfdot_bits(want))
            fail_msg("%a + (%04x %04x) (%04x %04x) is %a, not %a", (double)c, a[0], a[1], b[0],
                     b[1], (double)got, (double)want);
    }
}

/* The sentences of the header, one by one. */
static void test_corners(void **state)
{
    (void)state;
    const uint16_t one = 0x3f80, minus = 0xbf80, zero = 0, least = 0x0080, denormal = 0x007f;
    const uint16_t infinity = 0x7f80, huge = 0x7f7f, half = 0x3f00;
    const struct {
        uint32_t c;
        uint16_t a[2], b[2];
        uint32_t want;
    } known[] = {
        {0x3f800000, {0x3300, zero}, {one, one}, 0x3f800001}, /* 1 + 2^-25: to odd */
        {0x3f800001, {0x3300, zero}, {one, one}, 0x3f800001}, /* odd already */
        {0x3f800001, {0xb300, zero}, {one, one}, 0x3f800001}, /* truncated to even, then odd */
        {0x3f800002, {0xb300, zero}, {one, one}, 0x3f800001},
        {0x3f800000, {denormal, zero}, {one, one}, 0x3f800000},  /* read as 0 */
        {0, {denormal, zero}, {0x4b80, one}, 0},                 /* whatever the factor */
        {0x007fffff, {least, zero}, {one, one}, 0x00800000},     /* the sum, too */
        {0, {least, zero}, {half, one}, 0},                      /* 2^-127 is 0 */
        {0x80000000, {0x8080, 0x8000}, {half, one}, 0x80000000}, /* of its sign */
        {0, {huge, huge}, {one, one}, 0x7f800000},               /* 2^129 is infinite */
        {0x7f7fffff, {one, zero}, {one, one}, 0x7f7fffff},       /* no infinity by rounding */
        {0x7f800000, {one, one}, {minus, one}, 0x7f800000},
        {0, {infinity, zero}, {zero, one}, BFDOT_NAN},
        {0x7f800000, {infinity, zero}, {minus, one}, BFDOT_NAN},
        {0xffc12345, {one, one}, {one, one}, BFDOT_NAN},
        {0x80000000, {one, one}, {one, minus}, 0}, /* -0 and what cancels */
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (bfdot_bits(bfdot_plain_step(bfdot_float(known[i].c), known[i].a, known[i].b)) !=
            known[i].want)
            fail_msg("case %d is not %08x", (int)i, (unsigned)known[i].want);
}

/* ---- the table ---- */

static const struct shoali_ops_table *table_of_pairs(void)
{
    const struct shoali_ops_table *const *tables = shoali_ops_all();
    while (*tables != NULL && strcmp((*tables)->name, "cpu-neon_bf16") != 0)
        tables++;
    return *tables != NULL && (*tables)->probe() ? *tables : NULL;
}

struct shape {
    int64_t m, n, k, pad;
    int32_t trans_a, trans_b;
    enum kind kind;
};
static const struct shape shapes[] = {
    {1, 1, 1, 0, 0, 0, ORDINARY},      {6, 50, 33, 3, 0, 0, ORDINARY},
    {3, 40, 129, 0, 0, 1, NEAR},       {7, 16, 64, 0, 0, 0, NEAR},
    {17, 33, 31, 3, 0, 1, ORDINARY},   {33, 16, 65, 0, 1, 0, ORDINARY},
    {64, 64, 64, 0, 1, 1, ANY},        {13, 20, 5001, 1, 0, 0, NEAR}, /* K in blocks */
    {30, 35, 70, 0, 1, 0, TINY},       {4, 35, 71, 0, 0, 0, DENORMALS},
    {31, 40, 40, 0, 0, 0, DENORMALS},  {31, 40, 40, 0, 0, 0, HUGE_ONES},
    {31, 40, 40, 0, 1, 0, INFINITIES}, {31, 40, 40, 0, 0, 1, NANS},
    {5, 40, 40, 0, 0, 0, NANS},
};

struct product {
    struct shoali_gemm_args args;
    uint16_t *a, *b;
    float *c;
    void *packed;
};

static void make(struct product *p, const struct shape *s, const struct shoali_ops_table *table,
                 struct random *r)
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
    const int64_t a_count = (s->trans_a ? s->k : s->m) * p->args.lda;
    const int64_t b_count = (s->trans_b ? s->n : s->k) * p->args.ldb;
    p->a = malloc((size_t)a_count * 2);
    p->b = malloc((size_t)b_count * 2);
    p->c = malloc((size_t)(s->m * s->n) * 4);
    p->packed = malloc(table->packed_b_bytes(s->n, s->k, SHOAL_BF16));
    assert_true(p->a && p->b && p->c && p->packed);
    for (int64_t i = 0; i < a_count; i++)
        p->a[i] = number(r, s->kind);
    for (int64_t i = 0; i < b_count; i++)
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

static float plain_sum(const struct product *p, int64_t m, int64_t n)
{
    const struct shoali_gemm_args *g = &p->args;
    float sum = 0;
    for (int64_t k = 0; k < g->k; k += 2) {
        uint16_t a[2] = {0, 0}, b[2] = {0, 0};
        for (int64_t i = 0; i < 2 && k + i < g->k; i++) {
            a[i] = p->a[g->trans_a ? (k + i) * g->lda + m : m * g->lda + k + i];
            b[i] = p->b[g->trans_b ? n * g->ldb + k + i : (k + i) * g->ldb + n];
        }
        sum = bfdot_plain_step(sum, a, b);
    }
    return sum;
}

static void check(const struct product *p, const char *what)
{
    const struct shoali_gemm_args *g = &p->args;
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++) {
            const uint32_t want = bfdot_bits(plain_sum(p, m, n));
            const uint32_t got = bfdot_bits(p->c[m * g->n + n]);
            if (got != want)
                fail_msg("%s, %d x %d x %d: element %d,%d is %08x, not %08x", what, (int)g->m,
                         (int)g->n, (int)g->k, (int)m, (int)n, (unsigned)got, (unsigned)want);
        }
}

static void run(const struct shoali_ops_table *table, const struct product *p,
                struct shoali_pool *pool, bool packed, const char *what)
{
    const struct shoali_kernel_context context = {.threads = pool};
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
    check(p, what);
}

static void test_products(void **state)
{
    (void)state;
    const struct shoali_ops_table *table = table_of_pairs();
    struct random r = {7};
    struct shoali_pool *pool = NULL;
    if (table == NULL) {
        print_message("skipped: no cpu-neon_bf16 on this machine\n");
        skip();
    }
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct product p;
        make(&p, &shapes[i], table, &r);
        run(table, &p, NULL, false, "one thread");
        run(table, &p, pool, false, "threads");
        run(table, &p, NULL, true, "packed");
        drop(&p);
    }
    shoali_pool_destroy(pool);
}

/* Sums go to bf16 by nearest even, and numbers below 2^-126 stay (pairs.h). */
static void test_rounding(void **state)
{
    (void)state;
    const struct shoali_ops_table *table = table_of_pairs();
    const struct shoali_kernel_context context = {.threads = NULL};
    struct random r = {8};
    if (table == NULL)
        skip();
    for (int trial = 0; trial < 200; trial++) {
        const uint16_t a[2] = {0, 0}, b[2 * 64] = {0};
        uint16_t c[64];
        float before[64];
        for (int i = 0; i < 64; i++)
            before[i] = bfdot_float(next(&r) & (trial % 2 ? 0x80ffffffu : 0xffffffffu));
        const struct shoali_gemm_args args = {.a = a,
                                              .b = b,
                                              .c = c,
                                              .before = before,
                                              .m = 1,
                                              .n = 64,
                                              .k = 2,
                                              .lda = 2,
                                              .ldb = 64,
                                              .ldc = 64,
                                              .dtype_ab = SHOAL_BF16,
                                              .dtype_c = SHOAL_BF16,
                                              .dtype_bias = SHOAL_BF16};
        shoali_ops_entry(table, &shoali_kernel_gemm)->fn(&args, &context);
        for (int i = 0; i < 64; i++)
            if (c[i] != shoali_f32_to_bf16(before[i] + 0.0f) && !isnan(before[i]))
                fail_msg("%08x is rounded to %04x", (unsigned)bfdot_bits(before[i]), c[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_corners),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
