/* Matrix products of every built table this CPU can run, against one plain loop in the order of
 * sums. */
#include "base/base.h"
#include "base/caches.h"
#include "base/str.h"
#include "base/test_brief.h"
#include "base/test_cmocka.h"
#include "ops/ops.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the table multiplies this type, on this CPU. */
static bool multiplies(const struct shoali_ops_table *table, shoal_dtype dtype)
{
    return table->memory == NULL && table->probe() &&
           (shoali_ops_entry(table, &shoali_kernel_gemm)->dtypes & shoali_dtype_bit(dtype)) != 0;
}

/* One entry of a table, called. */
static void call(const struct shoali_ops_table *table, const struct shoali_kernel *kernel,
                 const void *args, struct shoali_pool *pool)
{
    const struct shoali_kernel_context context = {.threads = pool};
    shoali_ops_entry(table, kernel)->fn(args, &context);
}

struct random {
    uint64_t state;
};
static uint32_t next(struct random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33);
}
static int64_t below(struct random *r, int64_t n)
{
    return (int64_t)(next(r) % (uint32_t)n);
}

static float get(const void *x, int64_t i, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        return ((const float *)x)[i];
    uint16_t half = ((const uint16_t *)x)[i];
    return dtype == SHOAL_BF16 ? shoali_bf16_to_f32(half) : shoali_f16_to_f32(half);
}
static void put(void *x, int64_t i, shoal_dtype dtype, float value)
{
    if (dtype == SHOAL_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] =
            dtype == SHOAL_BF16 ? shoali_f32_to_bf16(value) : shoali_f32_to_f16(value);
}

/* A matrix inside guarded memory: exactly sized, so that the sanitizer sees any step outside. */
static void *matrix(struct random *r, int64_t rows, int64_t columns, int64_t ld, shoal_dtype dtype)
{
    int64_t count = rows > 0 ? (rows - 1) * ld + columns : 0;
    void *x = malloc((size_t)count * shoal_dtype_bytes(dtype) + 1);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        put(x, i, dtype, (float)((int32_t)(next(r) & 0xffff) - 32768) / 32768.0f);
    return x;
}

/* One element in the order the header promises; `magnitude` the sum of |products|. */
static float plain_sum(const struct shoali_gemm_args *g, int64_t m, int64_t n, float *magnitude)
{
    float sum = 0;
    *magnitude = 0;
    for (int64_t k = 0; k < g->k; k++) {
        float a = get(g->a, g->trans_a ? k * g->lda + m : m * g->lda + k, g->dtype_ab);
        float b = get(g->b, g->trans_b ? n * g->ldb + k : k * g->ldb + n, g->dtype_ab);
        sum = fmaf(a, b, sum);
        *magnitude += fabsf(a * b);
    }
    return sum;
}

/* What C, with what it was before, and preact should be, and how far off tables may be that sum in
 * another order. Of all tables alike: the sums take longer than they. */
struct element {
    float value, preact, tolerance;
};

static struct element plain_element(const struct shoali_gemm_args *g, const void *c_before,
                                    int64_t m, int64_t n)
{
    struct element e = {0};
    float magnitude, v = plain_sum(g, m, n, &magnitude);
    int64_t at = m * g->ldc + n;
    e.tolerance = magnitude * (float)(g->k + 2) * 0x1p-23f;
    if (g->accumulate)
        v = get(c_before, at, g->dtype_c) + v;
    if (g->bias)
        v += get(g->bias, n, g->dtype_bias);
    if (g->preact) {
        uint32_t stored;
        put(&stored, 0, g->dtype_c, v);
        v = e.preact = get(&stored, 0, g->dtype_c);
    }
    if (g->activation == SHOALI_ACT_RELU)
        v = v > 0 ? v : 0;
    if (g->residual)
        v = get(g->residual, at, g->dtype_c) + v;
    uint32_t stored;
    put(&stored, 0, g->dtype_c, v);
    e.value = get(&stored, 0, g->dtype_c);
    return e;
}

static struct element *expect(const struct shoali_gemm_args *g, const void *before)
{
    struct element *expected = malloc((size_t)(g->m * g->n) * sizeof *expected);
    assert_non_null(expected);
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++)
            expected[m * g->n + n] = plain_element(g, before, m, n);
    return expected;
}

static void check(const struct shoali_gemm_args *g, const struct element *expected, bool exact)
{
    const float unit = g->dtype_c == SHOAL_F32 ? 0 : g->dtype_c == SHOAL_BF16 ? 0x1p-7f : 0x1p-10f;
    for (int64_t m = 0; m < g->m; m++) {
        for (int64_t n = 0; n < g->n; n++) {
            const struct element *e = &expected[m * g->n + n];
            const float got = get(g->c, m * g->ldc + n, g->dtype_c);
            if (exact && memcmp(&got, &e->value, 4) != 0)
                fail_msg("element %d,%d is %a, expected %a", (int)m, (int)n, (double)got,
                         (double)e->value);
            if (fabsf(got - e->value) > e->tolerance + 2 * unit * (fabsf(e->value) + 1))
                fail_msg("element %d,%d is %g, expected %g", (int)m, (int)n, (double)got,
                         (double)e->value);
            if (g->preact && exact)
                assert_memory_equal((float *)g->preact + m * g->ldc + n, &e->preact, 4);
        }
    }
}

struct buffers {
    void *a, *b, *c, *before, *bias, *residual, *preact;
};

static void draw(struct random *r, struct shoali_gemm_args *g, struct buffers *x, int64_t most)
{
    *g = (struct shoali_gemm_args){
        .m = 1 + below(r, most), .n = 1 + below(r, most), .k = below(r, most)};
    g->trans_a = (int32_t)below(r, 2);
    g->trans_b = (int32_t)below(r, 2);
    g->accumulate = (int32_t)below(r, 2);
    if (below(r, 3) == 0)
        g->n = (g->n + 15) / 16 * 16;
    g->dtype_ab = (shoal_dtype)below(r, 3);
    g->dtype_c = below(r, 2) ? SHOAL_F32 : g->dtype_ab;
    g->dtype_bias = below(r, 2) ? g->dtype_ab : g->dtype_c;
    g->lda = (g->trans_a ? g->m : g->k) + below(r, 2) * below(r, 9);
    if (g->trans_a && g->k > 0 && below(r, 4) == 0) /* too large to be read in place */
        g->lda += (1 << 19) / g->k + 1;
    g->ldb = (g->trans_b ? g->k : g->n) + below(r, 2) * below(r, 9);
    g->ldc = g->n + below(r, 2) * below(r, 9);
    x->a = g->trans_a ? matrix(r, g->k, g->m, g->lda, g->dtype_ab)
                      : matrix(r, g->m, g->k, g->lda, g->dtype_ab);
    x->b = g->trans_b ? matrix(r, g->n, g->k, g->ldb, g->dtype_ab)
                      : matrix(r, g->k, g->n, g->ldb, g->dtype_ab);
    x->before = matrix(r, g->m, g->n, g->ldc, g->dtype_c);
    x->c = matrix(r, g->m, g->n, g->ldc, g->dtype_c);
    x->bias = below(r, 2) ? matrix(r, 1, g->n, g->n, g->dtype_bias) : NULL;
    x->residual = below(r, 3) == 0 ? matrix(r, g->m, g->n, g->ldc, g->dtype_c) : NULL;
    x->preact = below(r, 3) == 0 ? matrix(r, g->m, g->n, g->ldc, g->dtype_c) : NULL;
    g->activation = below(r, 3) == 0 ? SHOALI_ACT_RELU : SHOALI_ACT_NONE;
    g->a = g->k > 0 ? x->a : NULL;
    g->b = g->k > 0 ? x->b : NULL;
    g->c = x->c;
    g->bias = x->bias;
    g->residual = x->residual;
    g->preact = x->preact;
}

static void drop(struct buffers *x)
{
    free(x->a);
    free(x->b);
    free(x->c);
    free(x->before);
    free(x->bias);
    free(x->residual);
    free(x->preact);
}

/* The same bits from a packed B, by one thread and by the pool; B itself is not read. */
static void run_packed(const struct shoali_ops_table *table, const struct shoali_gemm_args *g,
                       const struct buffers *x, struct shoali_pool *pool, const void *expected)
{
    const size_t bytes = (size_t)((g->m - 1) * g->ldc + g->n) * shoal_dtype_bytes(g->dtype_c);
    const size_t packed_bytes = table->packed_b_bytes(g->n, g->k, g->dtype_ab);
    void *packed = malloc(packed_bytes + 1);
    assert_non_null(packed);
    for (uint64_t threads = 2 - test_repeats(2); threads < 2; threads++) {
        memset(packed, 0x7f, packed_bytes);
        const struct shoali_pack_b_args pack = {.b = g->b,
                                                .packed = packed,
                                                .n = g->n,
                                                .k = g->k,
                                                .ldb = g->ldb,
                                                .trans_b = g->trans_b,
                                                .dtype = g->dtype_ab};
        call(table, &shoali_kernel_pack_b, &pack, threads ? pool : NULL);
        struct shoali_gemm_args product = *g;
        product.b = NULL;
        product.packed_b = packed;
        memcpy(x->c, x->before, bytes);
        call(table, &shoali_kernel_gemm, &product, threads ? pool : NULL);
        assert_memory_equal(expected, x->c, bytes);
    }
    free(packed);
}

/* Caches of five machines: of Zen 3, Emerald Rapids, Skylake's clients, a small ARM core, and one
 * so small that everything is cut. */
static const char *const machines[] = {"32K,512K,16M,8", "48K,2M,3M,12", "32K,256K,2M,8",
                                       "64K,1M,1M,4", "4K,8K,16K,2"};

/* The same bits with the blocks of other machines, in a brief test with those of one. */
static void run_machines(const struct shoali_ops_table *table, const struct shoali_gemm_args *g,
                         const struct buffers *x, struct shoali_pool *pool, const void *expected)
{
    const size_t bytes = (size_t)((g->m - 1) * g->ldc + g->n) * shoal_dtype_bytes(g->dtype_c);
    enum { MACHINES = sizeof machines / sizeof machines[0] };
    const uint64_t first = (uint64_t)(g->m + g->n);
    for (uint64_t i = 0; i < test_repeats(MACHINES); i++) {
        assert_true(shoali_caches_pretend(machines[(first + i) % MACHINES]));
        memcpy(x->c, x->before, bytes);
        call(table, &shoali_kernel_gemm, g, pool);
        assert_memory_equal(expected, x->c, bytes);
        run_packed(table, g, x, pool, expected);
    }
    shoali_caches_pretend(NULL);
}

static void run_all(const struct shoali_gemm_args *g, const struct buffers *x,
                    struct shoali_pool *pool)
{
    const struct shoali_ops_table *const *tables = shoali_ops_all();
    size_t bytes = (size_t)((g->m - 1) * g->ldc + g->n) * shoal_dtype_bytes(g->dtype_c);
    struct element *expected = expect(g, x->before);
    for (int t = 0; tables[t] != &shoali_ops_ref; t++) {
        if (!multiplies(tables[t], g->dtype_ab))
            continue;
        bool pairs = strstr(tables[t]->name, "bf16") != NULL && g->dtype_ab == SHOAL_BF16;
        memcpy(x->c, x->before, bytes);
        call(tables[t], &shoali_kernel_gemm, g, NULL);
        check(g, expected, g->dtype_ab == SHOAL_F32 && !pairs);
        void *alone = malloc(bytes);
        assert_non_null(alone);
        memcpy(alone, x->c, bytes);
        for (uint64_t seed = 0; seed < test_repeats(3);
             seed++) { /* pieces claimed in order, and in others */
            shoali_pool_shuffle(pool, seed * 0x9e3779b97f4a7c15u);
            memcpy(x->c, x->before, bytes);
            call(tables[t], &shoali_kernel_gemm, g, pool);
            assert_memory_equal(alone, x->c, bytes);
        }
        run_packed(tables[t], g, x, pool, alone);
        run_machines(tables[t], g, x, pool, alone);
        free(alone);
    }
    free(expected);
}

static void test_random_shapes(void **state)
{
    (void)state;
    struct random r = {20240807};
    struct shoali_pool *pool = NULL;
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    for (int i = 0; i < 150; i++) {
        struct shoali_gemm_args g;
        struct buffers x;
        draw(&r, &g, &x, i % 10 == 0 ? 150 : 70);
        run_all(&g, &x, pool);
        drop(&x);
    }
    shoali_pool_destroy(pool);
}

/* K in several blocks, sums carried in C and in scratch; more than one block of rows and columns;
 * panels kept for later row blocks. */
static void test_blocks(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
        int32_t trans_a, accumulate;
        shoal_dtype dtype;
    } shape[] = {
        {9, 32, 2600, 0, 0, SHOAL_F32},
        {7, 33, 2600, 0, 0, SHOAL_F32},
        {13, 32, 4099, 1, 1, SHOAL_F32},
        {530, 17, 2100, 1, 1, SHOAL_F32},
        {3, 1600, 2000, 1, 1, SHOAL_F32},
        {5, 16, 5001, 0, 1, SHOAL_BF16},
        {17, 257, 1024, 0, 0, SHOAL_F32},
        {9, 260, 2048, 0, 1, SHOAL_BF16},
        {5, 18, 5001, 1, 0, SHOAL_BF16},
        {5, 18, 3001, 0, 0, SHOAL_F16},
        {1100, 3100, 9, 1, 0, SHOAL_F32},
        {1030, 100, 21, 1, 1, SHOAL_BF16},
        /* rows of A a page apart, where a copy may serve better; sums carried on both ways */
        {40, 600, 1024, 0, 0, SHOAL_F32},
        {70, 800, 2048, 0, 1, SHOAL_F32},
        /* several pieces of a share: of direct rows, of kept panels, of sums carried over K */
        {2500, 200, 90, 0, 0, SHOAL_F32},
        {1100, 700, 150, 1, 0, SHOAL_F32},
        {20, 1700, 2100, 1, 1, SHOAL_F32},
        {300, 700, 300, 0, 0, SHOAL_BF16},
    };
    struct random r = {7};
    struct shoali_pool *pool = NULL;
    assert_int_equal(shoali_pool_create(2, &pool), SHOAL_OK);
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        struct shoali_gemm_args g = {.m = shape[i].m,
                                     .n = shape[i].n,
                                     .k = shape[i].k,
                                     .trans_a = shape[i].trans_a,
                                     .accumulate = shape[i].accumulate,
                                     .dtype_ab = shape[i].dtype};
        g.lda = g.trans_a ? g.m : g.k;
        g.ldb = g.ldc = g.n;
        struct buffers x = {.a = matrix(&r, g.m * g.k, 1, 1, g.dtype_ab),
                            .b = matrix(&r, g.k, g.n, g.n, g.dtype_ab),
                            .c = matrix(&r, g.m, g.n, g.n, SHOAL_F32),
                            .before = matrix(&r, g.m, g.n, g.n, SHOAL_F32)};
        g.a = x.a;
        g.b = x.b;
        g.c = x.c;
        run_all(&g, &x, pool);
        drop(&x);
    }
    shoali_pool_destroy(pool);
}

/* A product of a few rows goes another way than one of many; a row has the same bits in both. */
static void compare_rows(const struct shoali_ops_table *table, const struct shoali_gemm_args *many,
                         struct shoali_pool *pool)
{
    const size_t item = shoal_dtype_bytes(many->dtype_c), in = shoal_dtype_bytes(many->dtype_ab);
    char *few = malloc((size_t)(many->m * many->ldc) * item);
    assert_non_null(few);
    call(table, &shoali_kernel_gemm, many, pool);
    for (int64_t rows = 1; rows <= 9; rows++)
        for (int threads = 0; threads < 2; threads++) {
            const int64_t first = many->m - rows;
            struct shoali_gemm_args part = *many;
            part.m = rows;
            part.a = (const char *)many->a + (size_t)(first * many->lda) * in;
            part.c = few;
            call(table, &shoali_kernel_gemm, &part, threads ? pool : NULL);
            for (int64_t i = 0; i < rows; i++)
                assert_memory_equal(few + (size_t)(i * many->ldc) * item,
                                    (char *)many->c + (size_t)((first + i) * many->ldc) * item,
                                    (size_t)many->n * item);
        }
    free(few);
}

static void test_few_rows(void **state)
{
    (void)state;
    struct random r = {20251122};
    struct shoali_pool *pool = NULL;
    const struct shoali_ops_table *const *tables = shoali_ops_all();
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    for (int i = 0; i < 60; i++) {
        struct shoali_gemm_args g = {.m = 20,
                                     .n = 1 + below(&r, i % 5 ? 90 : 1500),
                                     .k = 1 + below(&r, i % 3 ? 400 : 90),
                                     .trans_b = i % 2,
                                     .dtype_ab = (shoal_dtype)below(&r, 3)};
        if (below(&r, 2))
            g.k = (g.k + 31) / 32 * 32;
        g.dtype_c = below(&r, 2) ? SHOAL_F32 : g.dtype_ab;
        g.lda = g.k + below(&r, 3);
        g.ldb = (g.trans_b ? g.k : g.n) + below(&r, 2) * below(&r, 40);
        g.ldc = g.n;
        struct buffers x = {.a = matrix(&r, g.m, g.k, g.lda, g.dtype_ab),
                            .b = g.trans_b ? matrix(&r, g.n, g.k, g.ldb, g.dtype_ab)
                                           : matrix(&r, g.k, g.n, g.ldb, g.dtype_ab),
                            .c = matrix(&r, g.m, g.n, g.ldc, g.dtype_c)};
        g.a = x.a;
        g.b = x.b;
        g.c = x.c;
        for (int t = 0; tables[t] != &shoali_ops_ref; t++)
            if (multiplies(tables[t], g.dtype_ab))
                compare_rows(tables[t], &g, pool);
        drop(&x);
    }
    shoali_pool_destroy(pool);
}

/* How one product is cut by a table, on a machine with such caches. The table's own instructions
 * cut it, so a CPU without them is left out. */
static void explain(const struct shoali_ops_table *table, const char *machine, int64_t n, int64_t k,
                    const char *wanted)
{
    if (!multiplies(table, SHOAL_F32)) {
        print_message("skipped: this CPU does not run %s\n", table->name);
        return;
    }
    const struct shoali_gemm_args g = {
        .m = 1024, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .dtype_ab = SHOAL_F32};
    struct shoali_str text = {0};
    assert_true(shoali_caches_pretend(machine));
    table->explain_gemm(&g, 2, &text);
    if (strstr(shoali_str_get(&text), wanted) == NULL)
        fail_msg("%s, %lld: \"%s\" without \"%s\"", machine, (long long)k, shoali_str_get(&text),
                 wanted);
    shoali_str_fini(&text);
    shoali_caches_pretend(NULL);
}

/* Narrow tiles copy an A whose rows share a set of the first level, if enough panels use the copy;
 * blocks of k follow the second level. */
static void test_choice(void **state)
{
    (void)state;
    const struct shoali_ops_table *const *tables = shoali_ops_all(), *narrow = NULL, *wide = NULL;
    for (int t = 0; tables[t] != NULL; t++) {
        narrow = strcmp(tables[t]->name, "cpu-avx2") == 0 ? tables[t] : narrow;
        wide = strcmp(tables[t]->name, "cpu-avx512") == 0 ? tables[t] : wide;
    }
    if (narrow == NULL || wide == NULL) {
        print_message("skipped: these kernels are not built here\n");
        skip();
    }
    explain(narrow, "32K,512K,16M,8", 768, 1024, "A copied by rows");
    explain(narrow, "32K,512K,16M,8", 768, 1040, "A in place by rows");
    explain(narrow, "32K,512K,16M,8", 16, 1024, "A in place by rows");
    explain(narrow, "48K,512K,16M,12", 768, 1024, "A in place by rows"); /* twelve lines fit */
    explain(wide, "32K,1M,16M,8", 768, 1024, "A in place by rows");
    explain(wide, "32K,1M,16M,8", 768, 3072, "k by 1536,");
    explain(wide, "32K,512K,16M,8", 768, 3072, "k by 768,");
    explain(wide, "48K,2M,16M,12", 768, 3072, "k by 3072,");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
