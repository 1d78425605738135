/* exact - integer sums that no order can change: fixed point, and the 192-bit sum of squares. */
#include "ops/cpu/range.h"
#include "ops/limbs.h"

#include <stdatomic.h>

/* 2^n for -1022 <= n <= 1023. */
static double power_of_two(int32_t n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool is_power_of_two(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x > 0 && (bits & 0xfffffffffffffu) == 0;
}

/* ---- fixed point ----------------------------------------------------------------------------- */

/* Eight elements; a lane that is not below the limit gives 0. Returns whether there was one. */
SHOALI_INLINE bool fix_eight(const float *x, int64_t *fixed, double unit, double limit,
                             const bool accumulate)
{
#if defined(__AVX512DQ__)
    const __m512d value = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    const __mmask8 good =
        _mm512_cmp_pd_mask(_mm512_abs_pd(value), _mm512_set1_pd(limit), _CMP_LT_OQ);
    __m512i sum = _mm512_maskz_cvtpd_epi64(good, _mm512_mul_pd(value, _mm512_set1_pd(unit)));
    if (accumulate)
        sum = _mm512_add_epi64(_mm512_loadu_si512(fixed), sum);
    _mm512_storeu_si512(fixed, sum);
    return good != 0xff;
#else
    bool bad = false;
    for (int j = 0; j < 8; j++) {
        const double value = (double)x[j];
        const bool good = __builtin_fabs(value) < limit;
        const int64_t add = (int64_t)__builtin_rint(good ? value * unit : 0.0);
        bad |= !good;
        fixed[j] = accumulate ? (int64_t)((uint64_t)fixed[j] + (uint64_t)add) : add;
    }
    return bad;
#endif
}

static void to_fixed_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_to_fixed_args *args = block;
    const double unit = power_of_two(args->unit_log2), limit = args->limit;
    bool bad = false;
    int64_t i = begin;
    for (; args->accumulate && i + 8 <= end; i += 8)
        bad |= fix_eight(args->x + i, args->fixed + i, unit, limit, true);
    for (; i + 8 <= end; i += 8)
        bad |= fix_eight(args->x + i, args->fixed + i, unit, limit, false);
    if (i < end) {
        float x[8] = {0};
        int64_t fixed[8] = {0};
        memcpy(x, args->x + i, (size_t)(end - i) * sizeof x[0]);
        memcpy(fixed, args->fixed + i, (size_t)(end - i) * sizeof fixed[0]);
        bad |= fix_eight(x, fixed, unit, limit, args->accumulate);
        memcpy(args->fixed + i, fixed, (size_t)(end - i) * sizeof fixed[0]);
    }
    if (bad)
        __atomic_fetch_or(args->flag, 1u, __ATOMIC_RELAXED);
}

void SHOALI_CPU_SYMBOL(to_fixed)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_to_fixed_args *fixed = args;
    range_run(context->threads, to_fixed_range, fixed, fixed->count, 64, 20);
}

static void from_fixed_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_from_fixed_args *args = block;
    const double unit = power_of_two(-args->unit_log2), divisor = args->divisor;
    const int64_t *restrict fixed = args->fixed;
    float *restrict y = args->y;
    if (is_power_of_two(divisor)) { /* then the product is exact, too, and takes a tenth */
        const double scale = unit / divisor;
        for (int64_t i = begin; i < end; i++)
            y[i] = (float)((double)fixed[i] * scale);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        y[i] = (float)((double)fixed[i] * unit / divisor);
}

void SHOALI_CPU_SYMBOL(from_fixed)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_from_fixed_args *fixed = args;
    range_run(context->threads, from_fixed_range, fixed, fixed->count, 64, 12);
}

/* ---- sum of squares -------------------------------------------------------------------------- */

#define BLOCK 1024
#define MOST_THREADS 64

/* Eight lanes in the compiler's own vectors, which it splits where the CPU's are narrower. */
typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef uint64_t u64x8 __attribute__((vector_size(64)));

struct norm2 {
    const struct shoali_norm2_args *args;
    uint64_t limbs[MOST_THREADS][3];
    atomic_uint flag;
};

/* Sums of lanes, each of numbers to which the bits of MAGIC were added as often. */
struct square_sums {
    u64x8 high, low;
    u64x8 any; /* bits that some `high` has */
};
#define MAGIC 0x1.8p52
/* Bits of MAGIC plus an integer that say whether it is below 2^47: they are MAGIC's own. */
#define LARGE_BITS 0xffff800000000000u

/* Adds rint(x^2 2^62) of eight numbers below 256 in magnitude as high*2^31 + low.
 *
 * v = x^2 < 2^16 is exact in a double (48 bits). h = rint(v 2^31) < 2^47 and the rest l = v - h 2^-31,
 * |l| <= 2^-32, are exact too, and rint(v 2^62) = h 2^31 + rint(l 2^62) since h 2^31 is even. Adding
 * MAGIC leaves an integer in a double's low bits, whose difference to MAGIC's is the integer: sums of
 * those are plain words, that wrap. Products by powers of two are exact, so a fused operation gives
 * the same number as two. */
SHOALI_INLINE void square_eight(const float *x, struct square_sums *sums)
{
#if defined(__AVX512F__)
    const __m512d magic = _mm512_set1_pd(MAGIC);
    const __m512d value = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    const __m512d v = _mm512_mul_pd(value, value);
    const __m512d high = _mm512_fmadd_pd(v, _mm512_set1_pd(0x1p31), magic);
    const __m512d rest = _mm512_fmadd_pd(_mm512_sub_pd(magic, high), _mm512_set1_pd(0x1p-31), v);
    sums->high += (u64x8)high;
    sums->low += (u64x8)_mm512_fmadd_pd(rest, _mm512_set1_pd(0x1p62), magic);
    sums->any |= (u64x8)high;
#else
    const f64x8 magic = {MAGIC, MAGIC, MAGIC, MAGIC, MAGIC, MAGIC, MAGIC, MAGIC};
    f32x8 eight;
    memcpy(&eight, x, sizeof eight);
    const f64x8 value = __builtin_convertvector(eight, f64x8);
    const f64x8 v = value * value;
    const f64x8 high = v * 0x1p31 + magic;
    const f64x8 rest = (magic - high) * 0x1p-31 + v;
    sums->high += (u64x8)high;
    sums->low += (u64x8)(rest * 0x1p62 + magic);
    sums->any |= (u64x8)high;
#endif
}

/* The same of n <= BLOCK numbers, into the limbs. False: some number is too large, and nothing was
 * added. */
static bool add_small(const float *x, int64_t n, uint64_t limbs[3])
{
    enum { SIDE_BY_SIDE = 4 };
    struct square_sums sums[SIDE_BY_SIDE] = {{{0}}};
    int64_t i = 0, added = 0;
    for (; i + 8 * SIDE_BY_SIDE <= n; i += 8 * SIDE_BY_SIDE, added += SIDE_BY_SIDE)
        for (int u = 0; u < SIDE_BY_SIDE; u++)
            square_eight(x + i + 8 * u, &sums[u]);
    for (; i < n; i += 8, added++) {
        float eight[8] = {0};
        memcpy(eight, x + i, (size_t)SHOALI_MIN(8, n - i) * sizeof x[0]);
        square_eight(eight, &sums[0]);
    }
    for (int u = 1; u < SIDE_BY_SIDE; u++) {
        sums[0].high += sums[u].high;
        sums[0].low += sums[u].low;
        sums[0].any |= sums[u].any;
    }
    const double magic = MAGIC;
    uint64_t bits;
    memcpy(&bits, &magic, sizeof bits);
    for (int j = 0; j < 8; j++)
        if ((sums[0].any[j] & LARGE_BITS) != bits)
            return false;
    const uint64_t offset = bits * (uint64_t)added;
    __int128 total = 0;
    for (int j = 0; j < 8; j++)
        total += (__int128)(int64_t)(sums[0].high[j] - offset) * ((int64_t)1 << 31) +
                 (int64_t)(sums[0].low[j] - offset);
    limbs_add_at(limbs, 0, (uint64_t)total);
    limbs_add_at(limbs, 1, (uint64_t)(total >> 64));
    return true;
}

static void norm2_thread(void *arg, int32_t index, int32_t count)
{
    struct norm2 *work = arg;
    const struct shoali_norm2_args *args = work->args;
    int64_t begin, end;
    uint32_t flag = 0;
    if (index >= MOST_THREADS)
        return;
    shoali_pool_slice(args->count, BLOCK, index, SHOALI_MIN(count, MOST_THREADS), &begin, &end);
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        if (add_small(args->x + i, n, work->limbs[index]))
            continue;
        for (int64_t j = 0; j < n; j++)
            flag |= limbs_add_square(work->limbs[index], args->x[i + j]);
    }
    if (flag)
        atomic_fetch_or(&work->flag, flag);
}

void SHOALI_CPU_SYMBOL(norm2)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm2_args *norm2 = args;
    struct norm2 work = {.args = norm2};
    if (norm2->count * 4 < RANGE_SERIAL_BYTES)
        norm2_thread(&work, 0, 1);
    else
        shoali_pool_run(context->threads, norm2_thread, &work);
    for (int t = 0; t < MOST_THREADS; t++) {
        for (int i = 0; i < 3; i++)
            limbs_add_at(norm2->limbs, i, work.limbs[t][i]);
    }
    *norm2->flag |= atomic_load(&work.flag);
}
