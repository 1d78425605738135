/* conformance - the frame of the suites that compare every built table with ref (ops_test.c,
 * ops_flat_test.c). For tests only.
 *
 * A case is a function that makes inputs, runs one kernel function on them and names the outputs.
 * It is a pure function of (dtype, variant): the frame runs it with ref's function and with each
 * table's on 1, 2 and 3 threads and compares the outputs. A kernel that a table lacks is skipped,
 * so a new kernel is tested as soon as its table has it.
 */
#ifndef SHOALI_OPS_CONFORMANCE_H
#define SHOALI_OPS_CONFORMANCE_H

#include "base/base.h"
#include "ops/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GUARD_BYTES 64
#define OUTPUTS_MAX 8
#define TRIALS_MAX 90

struct output {
    const void *data;
    int64_t count;
    shoal_dtype dtype;
    /* Absolute, plus one unit in the last place of a 16-bit type; 0: bit by bit. The second holds
     * for bf16 operands on a CPU that multiplies them in pairs. */
    double tolerance, pairs_tolerance;
};
struct trial {
    shoali_kernel_fn fn;
    struct shoali_pool *pool;
    shoal_dtype dtype;
    int64_t variant;
    struct shoali_arena arena;
    uint64_t streams;
    struct output output[OUTPUTS_MAX];
    int32_t outputs;
};
struct conformance_case {
    enum shoali_kernel kernel;
    void (*run)(struct trial *trial);
    int64_t variants;
    uint32_t dtypes;
    int64_t trials; /* at most so many variants, spread evenly; 0: TRIALS_MAX */
};
#define FLOATS32 ((1u << SHOAL_F32) | (1u << SHOAL_BF16) | (1u << SHOAL_F16))
#define ONLY_F32 (1u << SHOAL_F32)

/* The next digit of the variant, 0 .. n-1. */
static inline int64_t pick(struct trial *trial, int64_t n)
{
    const int64_t digit = trial->variant % n;
    trial->variant /= n;
    return digit;
}
/* Sizes around the lanes and the tiles. */
static inline int64_t pick_size(struct trial *trial)
{
    static const int64_t sizes[] = {1, 7, 15, 16, 17, 31, 33, 63, 65, 130};
    return sizes[pick(trial, 10)];
}

/* The same with a size that makes a backend use its threads. */
static inline int64_t pick_rows(struct trial *trial)
{
    static const int64_t sizes[] = {1, 7, 15, 16, 17, 31, 33, 63, 65, 1100};
    return sizes[pick(trial, 10)];
}
static inline int64_t pick_count(struct trial *trial)
{
    static const int64_t sizes[] = {1, 15, 16, 17, 33, 63, 65, 130, 1001, 66001};
    return sizes[pick(trial, 10)];
}

static inline void put_float(void *array, int64_t i, double x, shoal_dtype dtype)
{
    if (dtype == SHOAL_F64)
        ((double *)array)[i] = x;
    else if (dtype == SHOAL_F32)
        ((float *)array)[i] = (float)x;
    else if (dtype == SHOAL_BF16)
        ((uint16_t *)array)[i] = shoali_f32_to_bf16((float)x);
    else
        ((uint16_t *)array)[i] = shoali_f32_to_f16((float)x);
}
static inline double get_float(const void *array, int64_t i, shoal_dtype dtype)
{
    if (dtype == SHOAL_F64)
        return ((const double *)array)[i];
    if (dtype == SHOAL_F32)
        return (double)((const float *)array)[i];
    const uint16_t x = ((const uint16_t *)array)[i];
    return (double)(dtype == SHOAL_BF16 ? shoali_bf16_to_f32(x) : shoali_f16_to_f32(x));
}

static inline struct shoali_stream next_stream(struct trial *trial)
{
    return shoali_stream_make(20240607, "conformance", "", trial->streams++);
}
/* Memory with a filled guard behind it. */
static inline void *block(struct trial *trial, int64_t count, shoal_dtype dtype)
{
    const size_t bytes = (size_t)count * shoal_dtype_bytes(dtype);
    unsigned char *memory = shoali_arena_alloc(&trial->arena, bytes + GUARD_BYTES);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes + GUARD_BYTES);
    return memory;
}
static inline void *floats_between(struct trial *trial, int64_t count, shoal_dtype dtype,
                                   double low, double high)
{
    const struct shoali_stream random = next_stream(trial);
    void *array = block(trial, count, dtype);
    for (int64_t i = 0; i < count; i++) {
        const double u = (double)shoali_random_uniform(&random, (uint64_t)i);
        put_float(array, i, low + (high - low) * u, dtype);
    }
    return array;
}
static inline void *floats(struct trial *trial, int64_t count, shoal_dtype dtype)
{
    return floats_between(trial, count, dtype, -2, 2);
}
static inline int32_t *ints(struct trial *trial, int64_t count, int64_t low, int64_t high)
{
    const struct shoali_stream random = next_stream(trial);
    int32_t *array = block(trial, count, SHOAL_I32);
    for (int64_t i = 0; i < count; i++)
        array[i] = (int32_t)(low + (int64_t)shoali_random_below(&random, (uint64_t)i,
                                                                (uint64_t)(high - low)));
    return array;
}
/* Names an output that must be equal bit by bit. */
static inline struct output *give(struct trial *trial, const void *data, int64_t count,
                                  shoal_dtype dtype)
{
    assert_true(trial->outputs < OUTPUTS_MAX);
    struct output *output = &trial->output[trial->outputs++];
    *output = (struct output){data, count, dtype, 0, 0};
    return output;
}
static inline void give_within(struct trial *trial, const void *data, int64_t count,
                               shoal_dtype dtype, double tolerance, double pairs_tolerance)
{
    struct output *output = give(trial, data, count, dtype);
    output->tolerance = tolerance;
    output->pairs_tolerance = pairs_tolerance;
}

/* Within `tolerance` of max(1, |want|). */
static inline void assert_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("%s is %.15g, not %.15g", what, got, want);
}

static inline double ulp_of(double x, shoal_dtype dtype)
{
    int exponent;
    (void)frexp(x, &exponent);
    if (dtype == SHOAL_BF16)
        return ldexp(1.0, exponent - 8);
    return dtype == SHOAL_F16 ? ldexp(1.0, (exponent > -13 ? exponent : -13) - 11) : 0.0;
}
enum strictness { EXACT, WITHIN, PAIRS };
/* Equal bits, or both NaN, or within the tolerance. */
static inline bool same_element(const struct output *a, const struct output *b, int64_t i,
                                enum strictness strictness)
{
    const size_t bytes = shoal_dtype_bytes(a->dtype);
    if (memcmp((const char *)a->data + (size_t)i * bytes, (const char *)b->data + (size_t)i * bytes,
               bytes) == 0)
        return true;
    if (a->dtype == SHOAL_I32 || a->dtype == SHOAL_I64 || a->dtype == SHOAL_U8)
        return false;
    const double x = get_float(a->data, i, a->dtype), y = get_float(b->data, i, b->dtype);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    const double allowed = strictness == PAIRS    ? fmax(a->tolerance, a->pairs_tolerance)
                           : strictness == WITHIN ? a->tolerance
                                                  : 0;
    return allowed > 0 && fabs(x - y) <= allowed + ulp_of(fmax(fabs(x), fabs(y)), a->dtype);
}

static inline void compare(const struct trial *want, const struct trial *got,
                           enum strictness strictness, const char *table, const char *kernel,
                           int64_t variant)
{
    assert_int_equal(want->outputs, got->outputs);
    for (int32_t o = 0; o < want->outputs; o++) {
        const struct output *a = &want->output[o], *b = &got->output[o];
        for (int64_t i = 0; i < a->count; i++)
            if (!same_element(a, b, i, strictness))
                fail_msg("%s %s %s variant %lld: output %d element %lld of %lld is %.9g, not %.9g",
                         table, kernel, shoal_dtype_name(want->dtype), (long long)variant, (int)o,
                         (long long)i, (long long)a->count, get_float(b->data, i, b->dtype),
                         get_float(a->data, i, a->dtype));
        const size_t end = (size_t)a->count * shoal_dtype_bytes(a->dtype);
        if (memcmp((const char *)a->data + end, (const char *)b->data + end, GUARD_BYTES) != 0)
            fail_msg("%s %s %s variant %lld: output %d: written past its end", table, kernel,
                     shoal_dtype_name(want->dtype), (long long)variant, (int)o);
    }
}

static inline void run_trial(const struct conformance_case *c, struct trial *trial,
                             shoali_kernel_fn fn, struct shoali_pool *pool, shoal_dtype dtype,
                             int64_t variant)
{
    memset(trial, 0, sizeof *trial);
    shoali_arena_init(&trial->arena);
    trial->fn = fn;
    trial->pool = pool;
    trial->dtype = dtype;
    trial->variant = variant;
    c->run(trial);
}

/* One variant on all tables and thread counts. */
static inline void check_variant(const struct conformance_case *c, shoal_dtype dtype,
                                 int64_t variant, struct shoali_pool *const *pools)
{
    const char *name = shoali_kernel_rows[c->kernel].type.name;
    struct trial want, first, other;
    run_trial(c, &want, shoali_kernel_in(&shoali_ops_ref, c->kernel, 0), NULL, dtype, variant);
    for (int i = 0; shoali_ops_all()[i] != NULL; i++) {
        const struct shoali_ops_table *table = shoali_ops_all()[i];
        const shoali_kernel_fn fn = shoali_kernel_in(table, c->kernel, shoali_dtype_bit(dtype));
        if (fn == NULL || table == &shoali_ops_ref || !table->probe())
            continue;
        const bool pairs = dtype == SHOAL_BF16 && strstr(table->name, "bf16") != NULL;
        run_trial(c, &first, fn, pools[0], dtype, variant);
        compare(&want, &first, pairs ? PAIRS : WITHIN, table->name, name, variant);
        for (int t = 1; t < 3; t++) {
            run_trial(c, &other, fn, pools[t], dtype, variant);
            compare(&first, &other, EXACT, table->name, name, variant);
            shoali_arena_fini(&other.arena);
        }
        shoali_arena_fini(&first.arena);
    }
    shoali_arena_fini(&want.arena);
}

/* Runs all variants of a case, or TRIALS_MAX of them spread evenly. */
static inline void check_case(const struct conformance_case *c)
{
    struct shoali_pool *pools[3];
    for (int t = 0; t < 3; t++)
        assert_int_equal(shoali_pool_create(t + 1, &pools[t]), SHOAL_OK);
    const int64_t most = c->trials > 0 ? c->trials : TRIALS_MAX;
    const int64_t trials = c->variants < most ? c->variants : most;
    for (int dtype = 0; dtype < SHOAL_DTYPE_COUNT; dtype++)
        for (int64_t i = 0; (c->dtypes >> dtype & 1u) != 0 && i < trials; i++) {
            /* A prime step visits all digits; without wrapping it would stay in the low ones. */
            const int64_t variant = trials == c->variants ? i : i * 1000003 % c->variants;
            check_variant(c, (shoal_dtype)dtype, variant, pools);
        }
    for (int t = 0; t < 3; t++)
        shoali_pool_destroy(pools[t]);
}

#endif
