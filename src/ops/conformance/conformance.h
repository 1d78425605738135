/* conformance - the frame of the suite that compares every built table with ref. For tests only.
 *
 * A case is a function that makes inputs, calls one kernel on them and names the outputs. It is a
 * pure function of (dtype, variant): the frame runs it with ref's function and with each table's on
 * 1, 2 and 3 threads and compares the outputs. Arguments that a table does not support are skipped
 * for it, so a new kernel is tested as soon as its table has it. The kernel's description is tested
 * on the way: each call must pass its checks, arrays that it only reads may not change, and no
 * output may be longer than the case says that it is.
 */
#ifndef SHOALI_OPS_CONFORMANCE_H
#define SHOALI_OPS_CONFORMANCE_H

#include "base/base.h"
#include "base/scratch.h"
#include "base/test_brief.h"
#include "base/test_cmocka.h"
#include "ops/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64
#define OUTPUTS_MAX 8
#define TRIALS_MAX 90
#define SHOALI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct output {
    const void *data;
    int64_t count;
    shoal_dtype dtype;
    /* Absolute, plus one unit in the last place of a 16-bit type; 0: bit by bit. The second holds
     * for bf16 operands on a CPU that multiplies them in pairs. */
    double tolerance, pairs_tolerance;
};
/* What the description says of an array that the kernel writes. */
struct written {
    const void *data;
    size_t bytes;
    unsigned char behind[GUARD_BYTES]; /* what stood behind it before the call */
};
struct trial {
    const struct shoali_ops_table *table;
    const struct shoali_ops_entry *entry; /* of the case's kernel */
    struct shoali_kernel_context context;
    bool unsupported; /* the table does not take these arguments */
    shoal_dtype dtype;
    int64_t variant;
    struct shoali_arena arena;
    uint64_t streams;
    struct output output[OUTPUTS_MAX];
    int32_t outputs;
    struct written written[SHOALI_KERNEL_MAX_POINTERS];
};
struct conformance_case {
    const struct shoali_kernel *kernel;
    void (*run)(struct trial *trial);
    int64_t variants;
    uint32_t dtypes;
    int64_t trials; /* at most so many variants, spread evenly; 0: TRIALS_MAX */
};
/* shaped.c, losses.c, flat.c, updates.c */
extern const struct conformance_case shaped_cases[], loss_cases[], flat_cases[], update_cases[];
extern const size_t shaped_case_count, loss_case_count, flat_case_count, update_case_count;
#define CONFORMANCE_TRIALS(function, kernel, variants, dtypes, trials) \
    {                                                                  \
        &shoali_kernel_##kernel, function, variants, dtypes, trials    \
    }
#define CONFORMANCE_CASE(function, kernel, variants, dtypes) \
    CONFORMANCE_TRIALS(function, kernel, variants, dtypes, 40)
#define FLOATS32 SHOALI_SHORT_FLOATS
#define FLOATS16 (1u << SHOAL_BF16 | 1u << SHOAL_F16)
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
/* Magnitudes from 2^-70 to 2^(high) and, when asked, one value that must raise the flag. */
static inline float *wide_floats(struct trial *trial, int64_t count, int32_t high, int64_t bad)
{
    const struct shoali_stream random = next_stream(trial);
    float *array = block(trial, count, SHOAL_F32);
    for (int64_t i = 0; i < count; i++) {
        const int32_t span = high + 70;
        const uint64_t exponent = shoali_random_below(&random, (uint64_t)i, (uint64_t)span);
        const double u = (double)shoali_random_uniform(&random, (uint64_t)(i + count)) - 0.5;
        array[i] = (float)ldexp(2 * u, (int)exponent - 69);
    }
    const float bads[] = {0, NAN, -INFINITY, 0x1p61f};
    if (bad > 0)
        array[count / 2] = bads[bad];
    return array;
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
static inline bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}
/* Notes what the description says is written, and copies what it says is only read; an input that
 * is an output's memory, too, is left out. */
static inline void watch(struct trial *trial, const void *args,
                         void *copies[SHOALI_KERNEL_MAX_POINTERS])
{
    const struct shoali_kernel_pointer *at = trial->entry->kernel->type.pointers;
    for (int i = 0; at[i].name != NULL; i++)
        if (at[i].use != SHOALI_READS && shoali_kernel_pointer_value(&at[i], args) != NULL) {
            struct written *written = &trial->written[i];
            written->data = shoali_kernel_pointer_value(&at[i], args);
            written->bytes = shoali_kernel_pointer_bytes(&at[i], args);
            memcpy(written->behind, (const char *)written->data + written->bytes, GUARD_BYTES);
        }
    for (int i = 0; at[i].name != NULL; i++) {
        const void *data = shoali_kernel_pointer_value(&at[i], args);
        const size_t bytes = shoali_kernel_pointer_bytes(&at[i], args);
        bool only_read = at[i].use == SHOALI_READS && data != NULL && bytes > 0;
        for (int j = 0; j < SHOALI_KERNEL_MAX_POINTERS; j++)
            only_read =
                only_read && !overlap(data, bytes, trial->written[j].data, trial->written[j].bytes);
        if (!only_read)
            continue;
        copies[i] = malloc(bytes);
        assert_non_null(copies[i]);
        memcpy(copies[i], data, bytes);
    }
}
/* Nothing was written behind the end that the description gives an array. (Of a packed layout it
 * says the least; the case of pack_b watches its end.) */
static inline void check_ends(const struct trial *trial)
{
    const struct shoali_kernel *kernel = trial->entry->kernel;
    for (int i = 0; kernel->type.pointers[i].name != NULL; i++) {
        const struct written *written = &trial->written[i];
        const char *end = (const char *)written->data + written->bytes;
        bool own = written->data != NULL && kernel != &shoali_kernel_pack_b;
        for (int j = 0; j < SHOALI_KERNEL_MAX_POINTERS; j++)
            own = own && (j == i || !overlap(end, GUARD_BYTES, trial->written[j].data,
                                             trial->written[j].bytes));
        if (own && memcmp(end, written->behind, GUARD_BYTES) != 0)
            fail_msg("%s wrote to %s behind the %zu bytes that its description gives it",
                     kernel->type.name, kernel->type.pointers[i].name, written->bytes);
    }
}
/* The calling thread has taken as much working memory as the entry says. */
static inline void check_workspace(const struct trial *trial, const void *args, size_t asked)
{
    const int32_t threads = shoali_pool_threads(trial->context.threads);
    const size_t returned = trial->entry->workspace ? trial->entry->workspace(args, threads) : 0;
    if (asked != returned)
        fail_msg("%s of %s on %d threads took %zu bytes of working memory, and its entry says %zu",
                 trial->entry->kernel->type.name, trial->table->name, (int)threads, asked,
                 returned);
}
/* on_device.c: the same on copies in the memory of the table's device. */
void run_on_device(const struct trial *trial, const void *args);
/* Calls a function of the trial's table. */
static inline void run_entry(const struct trial *trial, const void *args)
{
    if (trial->table->memory != NULL)
        run_on_device(trial, args);
    else
        trial->entry->fn(args, &trial->context);
}
/* Calls the trial's function, when it takes these arguments. */
static inline void call(struct trial *trial, const void *args)
{
    const struct shoali_kernel *kernel = trial->entry->kernel;
    const uint32_t dtypes = shoali_kernel_dtypes_of(kernel, args);
    void *copies[SHOALI_KERNEL_MAX_POINTERS] = {NULL};
    bool empty;
    if (shoali_kernel_check(kernel, args, &empty) != SHOAL_OK)
        fail_msg("%s: its check refuses the case: %s", kernel->type.name, shoal_error_message());
    trial->unsupported = (dtypes & ~trial->entry->dtypes) != 0 ||
                         (trial->entry->supports != NULL && !trial->entry->supports(args));
    if (trial->unsupported)
        return;
    watch(trial, args, copies);
    shoali_scratch_forget_asked();
    run_entry(trial, args);
    if (trial->table->memory == NULL)
        check_workspace(trial, args, shoali_scratch_asked());
    for (int i = 0; kernel->type.pointers[i].name != NULL; i++) {
        const struct shoali_kernel_pointer *at = &kernel->type.pointers[i];
        if (copies[i] != NULL && memcmp(copies[i], shoali_kernel_pointer_value(at, args),
                                        shoali_kernel_pointer_bytes(at, args)) != 0)
            fail_msg("%s wrote to %s, which its description says it reads", kernel->type.name,
                     at->name);
        free(copies[i]);
    }
    check_ends(trial);
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

/* An output is not longer than the case says: guards stand behind that. */
static inline void check_extents(const struct trial *trial)
{
    const struct shoali_kernel_type *type = &trial->entry->kernel->type;
    assert_true(trial->outputs > 0);
    for (int32_t o = 0; o < trial->outputs; o++) {
        const struct output *output = &trial->output[o];
        const size_t bytes = (size_t)output->count * shoal_dtype_bytes(output->dtype);
        for (int i = 0; type->pointers[i].name != NULL; i++)
            if (trial->written[i].data == output->data && trial->written[i].bytes > bytes)
                fail_msg("%s: the description gives %s %zu bytes, the case %zu", type->name,
                         type->pointers[i].name, trial->written[i].bytes, bytes);
    }
}

/* False: the table does not take the arguments of this variant. */
static inline bool run_trial(const struct conformance_case *c, struct trial *trial,
                             const struct shoali_ops_table *table, struct shoali_pool *pool,
                             shoal_dtype dtype, int64_t variant)
{
    memset(trial, 0, sizeof *trial);
    shoali_arena_init(&trial->arena);
    trial->table = table;
    trial->entry = shoali_ops_entry(table, c->kernel);
    trial->context.threads = pool;
    trial->dtype = dtype;
    trial->variant = variant;
    c->run(trial);
    if (!trial->unsupported)
        check_extents(trial);
    return !trial->unsupported;
}

/* In which order an emulated GPU runs the threads of a block. */
static inline void choose_order(int repeat)
{
    static const char *const orders[] = {"forward", "reverse", "random"};
    (void)setenv("SHOAL_EMULATOR_ORDER", orders[repeat % 3], 1);
}

/* One variant on all tables and thread counts. The last table is the measure of the others. */
static inline void check_variant(const struct conformance_case *c,
                                 const struct shoali_ops_table *const *tables, shoal_dtype dtype,
                                 int64_t variant, struct shoali_pool *const *pools)
{
    const char *name = c->kernel->type.name;
    struct trial want, first, other;
    int last = 0;
    while (tables[last + 1] != NULL)
        last++;
    assert_true(run_trial(c, &want, tables[last], NULL, dtype, variant));
    for (int i = 0; i < last; i++) {
        const struct shoali_ops_table *table = tables[i];
        if (shoali_ops_entry(table, c->kernel) == NULL || !table->probe())
            continue;
        /* Who multiplies 16-bit operands in an order of its own. */
        const bool pairs = strcmp(table->name, "cuda") == 0
                               ? dtype != SHOAL_F32
                               : dtype == SHOAL_BF16 && (strstr(table->name, "bf16") != NULL ||
                                                         strstr(table->name, "amx") != NULL);
        choose_order(0);
        const bool supported = run_trial(c, &first, table, pools[0], dtype, variant);
        if (supported)
            compare(&want, &first, pairs ? PAIRS : WITHIN, table->name, name, variant);
        for (int t = 3 - (int)test_repeats(2); t < 3 && supported; t++) {
            /* Every second variant: pieces in any order, and stores past the caches. */
            choose_order(t);
            shoali_pool_shuffle(pools[t],
                                variant % 2 ? (uint64_t)variant * 0x9e3779b97f4a7c15u : 0);
            (void)run_trial(c, &other, table, pools[t], dtype, variant);
            compare(&first, &other, EXACT, table->name, name, variant);
            shoali_arena_fini(&other.arena);
        }
        shoali_arena_fini(&first.arena);
    }
    shoali_arena_fini(&want.arena);
}

/* Runs all variants of a case, or at most so many as it says, spread evenly. */
static inline void check_case(const struct conformance_case *c,
                              const struct shoali_ops_table *const *tables)
{
    struct shoali_pool *pools[3];
    for (int t = 0; t < 3; t++)
        assert_int_equal(shoali_pool_create(t + 1, &pools[t]), SHOAL_OK);
    const char *fewer = getenv("SHOAL_TEST_TRIALS");
    int64_t most = c->trials > 0 ? c->trials : TRIALS_MAX;
    if (fewer != NULL && atoi(fewer) > 0 && atoi(fewer) < most)
        most = atoi(fewer);
    const int64_t trials = c->variants < most ? c->variants : most;
    for (int dtype = 0; dtype < SHOAL_DTYPE_COUNT; dtype++)
        for (int64_t i = 0; (c->dtypes >> dtype & 1u) != 0 && i < trials; i++) {
            /* A prime step visits all digits; without wrapping it would stay in the low ones. */
            const int64_t variant = trials == c->variants ? i : i * 1000003 % c->variants;
            check_variant(c, tables, (shoal_dtype)dtype, variant, pools);
        }
    for (int t = 0; t < 3; t++)
        shoali_pool_destroy(pools[t]);
}

#endif
