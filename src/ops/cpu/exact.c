/* exact - integer sums that no order can change: fixed point, and the 192-bit sum of squares. */
#include "base/nontemporal.h"
#include "ops/cpu/fixed.h"
#include "ops/cpu/range.h"
#include "ops/limbs.h"

#include <stdatomic.h>

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define HAVE_FMA 1
#else
#define HAVE_FMA 0
#endif

static bool is_power_of_two(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x > 0 && (bits & 0xfffffffffffffu) == 0;
}

/* ---- fixed point ----------------------------------------------------------------------------- */

struct fixed_work {
    const void *args;
    bool streams;
};

static void to_fixed_range(const void *block, int64_t begin, int64_t end)
{
    const struct fixed_work *work = block;
    const struct shoali_to_fixed_args *args = work->args;
    const double unit = fixed_unit(args->unit_log2), limit = args->limit;
    bool bad = false;
    int64_t i = begin;
    for (; work->streams && i + 16 <= end; i += 16) {
        range_ahead(args->x + i);
        bad |= fixed_eight(args->x + i, args->fixed + i, unit, limit, FIXED_STREAM);
        bad |= fixed_eight(args->x + i + 8, args->fixed + i + 8, unit, limit, FIXED_STREAM);
    }
    for (; args->accumulate && i + 8 <= end; i += 8)
        bad |= fixed_eight(args->x + i, args->fixed + i, unit, limit, FIXED_ADD);
    for (; i + 8 <= end; i += 8)
        bad |= fixed_eight(args->x + i, args->fixed + i, unit, limit, FIXED_STORE);
    if (i < end)
        bad |= fixed_rest(args->x + i, end - i, args->fixed + i, unit, limit,
                          args->accumulate ? FIXED_ADD : FIXED_STORE);
    if (work->streams)
        shoali_nontemporal_end();
    if (bad)
        __atomic_fetch_or(args->flag, 1u, __ATOMIC_RELAXED);
}

void SHOALI_CPU_SYMBOL(to_fixed)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_to_fixed_args *fixed = args;
    const struct fixed_work work = {
        fixed, !fixed->accumulate && range_streams(context->threads, fixed->fixed, fixed->x,
                                                   fixed->count, sizeof(int64_t) + sizeof(float))};
    range_run(context->threads, to_fixed_range, &work, fixed->count, 64, 20);
}

/* Numbers divided by one, each correctly rounded, where that can be had without a division, which
 * takes more than all else: `inverse` + `inverse_low` is 1 / divisor to twice the precision, so
 * the first quotient is at most one unit off, and a step with the exact remainder rounds it right
 * (Markstein 1990, "Computation of elementary functions on the IBM RISC System/6000 processor"). */
struct divisor {
    double unit, divisor, inverse, inverse_low;
    bool exact; /* a power of two */
    bool steps; /* or nothing here can underflow */
};

static struct divisor divisor_of(double unit, int32_t unit_log2, double divisor)
{
    struct divisor by = {.unit = unit, .divisor = divisor, .inverse = 1 / divisor};
    by.exact = is_power_of_two(divisor);
#if HAVE_FMA
    const double rest = __builtin_fma(-divisor, by.inverse, 1.0);
    by.inverse_low = rest / divisor;
    by.steps = unit_log2 > -400 && unit_log2 < 400 && divisor > 0x1p-300 && divisor < 0x1p300;
#else
    (void)unit_log2;
#endif
    return by;
}

#if defined(__AVX2__) && !defined(__AVX512DQ__)
/* Four integers as doubles, rounded once, without AVX-512's instruction. The upper 48 bits get the
 * exponent of 3 * 2^67, the lower 16 that of 2^52. */
SHOALI_INLINE __m256d doubles_of(const int64_t *fixed)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)fixed);
    const __m256d both = _mm256_set1_pd(0x1.8p68 + 0x1p52);
    __m256i high = _mm256_blend_epi16(_mm256_srai_epi32(x, 16), _mm256_setzero_si256(), 0x33);
    high = _mm256_add_epi64(high, _mm256_castpd_si256(_mm256_set1_pd(0x1.8p68)));
    const __m256i low = _mm256_blend_epi16(x, _mm256_castpd_si256(_mm256_set1_pd(0x1p52)), 0x88);
    return _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), both), _mm256_castsi256_pd(low));
}

/* Those of a multiple of four that are quick; returns how many. */
static int64_t divide_fours(const int64_t *restrict fixed, float *restrict y, int64_t n,
                            const struct divisor *by)
{
    const __m256d scale = _mm256_set1_pd(by->exact ? by->unit / by->divisor : by->unit);
    const __m256d inverse = _mm256_set1_pd(by->inverse), low = _mm256_set1_pd(by->inverse_low);
    const __m256d divisor = _mm256_set1_pd(by->divisor);
    if (!by->exact && !by->steps)
        return 0;
    for (int64_t i = 0; i + 4 <= n; i += 4) {
        __m256d x = _mm256_mul_pd(doubles_of(fixed + i), scale);
        if (!by->exact) {
            const __m256d quotient = _mm256_fmadd_pd(x, inverse, _mm256_mul_pd(x, low));
            const __m256d rest = _mm256_fnmadd_pd(divisor, quotient, x);
            x = _mm256_fmadd_pd(rest, inverse, quotient);
        }
        _mm_storeu_ps(y + i, _mm256_cvtpd_ps(x));
    }
    return n / 4 * 4;
}
#else
static int64_t divide_fours(const int64_t *restrict fixed, float *restrict y, int64_t n,
                            const struct divisor *by)
{
    (void)fixed, (void)y, (void)n, (void)by;
    return 0;
}
#endif

static void divide(const int64_t *restrict fixed, float *restrict y, int64_t n,
                   const struct divisor *by)
{
    const double unit = by->unit, divisor = by->divisor;
    const int64_t done = divide_fours(fixed, y, n, by);
    fixed += done, y += done, n -= done;
    if (by->exact) { /* then the product is exact, too */
        const double scale = unit / divisor;
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((double)fixed[i] * scale);
        return;
    }
#if HAVE_FMA
    if (by->steps) {
        const double inverse = by->inverse, low = by->inverse_low;
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)fixed[i] * unit;
            const double quotient = __builtin_fma(x, inverse, x * low);
            const double rest = __builtin_fma(-divisor, quotient, x);
            y[i] = (float)__builtin_fma(rest, inverse, quotient);
        }
        return;
    }
#endif
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)fixed[i] * unit / divisor);
}

static void from_fixed_range(const void *block, int64_t begin, int64_t end)
{
    enum { PART = 64 };
    const struct fixed_work *work = block;
    const struct shoali_from_fixed_args *args = work->args;
    const struct divisor by =
        divisor_of(fixed_unit(-args->unit_log2), args->unit_log2, args->divisor);
    int64_t i = begin;
    for (; work->streams && i + PART <= end; i += PART) {
        float y[PART];
        for (int j = 0; j < PART; j += 8)
            range_ahead(args->fixed + i + j);
        divide(args->fixed + i, y, PART, &by);
        shoali_nontemporal_copy(args->y + i, y, sizeof y);
    }
    divide(args->fixed + i, args->y + i, end - i, &by);
    if (work->streams)
        shoali_nontemporal_end();
}

void SHOALI_CPU_SYMBOL(from_fixed)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_from_fixed_args *fixed = args;
    const struct fixed_work work = {fixed,
                                    range_streams(context->threads, fixed->y, fixed->fixed,
                                                  fixed->count, sizeof(int64_t) + sizeof(float))};
    range_run(context->threads, from_fixed_range, &work, fixed->count, 64, 12);
}

/* ---- sum of squares -------------------------------------------------------------------------- */

#define MOST_THREADS 64
/* Sums side by side, of one run of lines: enough to hide the latency of an addition, and no more
 * than registers hold. Runs side by side are fetched later, and lines that are asked for come no
 * sooner. */
#if defined(__AVX2__) && !defined(__AVX512F__)
#define CHAINS 2
#else
#define CHAINS 4
#endif
#define BLOCK (4096 * CHAINS)

/* Eight lanes in the compiler's own vectors, which it splits where the CPU's are narrower. */
typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef uint64_t u64x8 __attribute__((vector_size(64)));

struct norm2 {
    struct range_cut cut;
    const struct shoali_norm2_args *args;
    uint64_t limbs[MOST_THREADS][3];
    atomic_uint flag;
};

/* Sums of lanes as doubles that stay within a factor of two, so that their last bits stay what they
 * are: HIGH plus multiples of 2^-20, LOW plus multiples of 2^-62. */
struct square_sums {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256d high[2], low[2]; /* the compiler keeps wider ones on the stack */
#else
    f64x8 high, low;
#endif
};
#define HIGH 0x1p32
#define LOW 0x1.8p-10
#define HIGH_UNIT_LOG2 42 /* in units of 2^-62 */

/* Adds rint(x^2 2^62) of eight numbers.
 *
 * v = x^2 is exact in a double (48 bits). What of it does not go into `high` is v - q, exact since
 * q is what went there and v has no lower bits, at most 2^-21 in size, and goes into `low`, rounded
 * to a multiple of 2^-62. That is rint's own choice whatever the sum is at: it would depend on it
 * for a tie only, and the square of a float is never an odd multiple of 2^-63, whose exponent is
 * odd. A fused operation gives the same numbers as two.
 *
 * BLOCK / (8 CHAINS) = 512 numbers are added to a lane, so `low` stays within 2^-11 of its start.
 * `high` only grows: if it is below 2 HIGH at the end it always was. A NaN or infinity stays and
 * shows. */
SHOALI_INLINE void square_eight(const float *x, struct square_sums *sums)
{
#if defined(__AVX512F__)
    const __m512d value = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    const __m512d sum = _mm512_fmadd_pd(value, value, (__m512d)sums->high);
    const __m512d went = _mm512_sub_pd(sum, (__m512d)sums->high);
    sums->low = (f64x8)_mm512_add_pd((__m512d)sums->low, _mm512_fmsub_pd(value, value, went));
    sums->high = (f64x8)sum;
#elif defined(__AVX2__)
    SHOALI_UNROLL
    for (int half = 0; half < 2; half++) {
        const __m256d value = _mm256_cvtps_pd(_mm_loadu_ps(x + 4 * half));
        const __m256d sum = _mm256_fmadd_pd(value, value, sums->high[half]);
        const __m256d went = _mm256_sub_pd(sum, sums->high[half]);
        sums->low[half] = _mm256_add_pd(sums->low[half], _mm256_fmsub_pd(value, value, went));
        sums->high[half] = sum;
    }
#else
    f32x8 eight;
    memcpy(&eight, x, sizeof eight);
    const f64x8 value = __builtin_convertvector(eight, f64x8);
    const f64x8 v = value * value;
    const f64x8 sum = sums->high + v;
    sums->low += v - (sum - sums->high);
    sums->high = sum;
#endif
}

static void begin_sums(struct square_sums *sums)
{
    double lanes[16];
    for (int j = 0; j < 16; j++)
        lanes[j] = j < 8 ? HIGH : LOW;
    memcpy(sums, lanes, sizeof *sums);
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The same of n <= BLOCK numbers, into the limbs. False: they are too large, and nothing was
 * added. */
static bool add_small(const float *x, int64_t n, uint64_t limbs[3])
{
    struct square_sums sums[CHAINS];
    int64_t i = 0;
    for (int u = 0; u < CHAINS; u++)
        begin_sums(&sums[u]);
    for (; i + 16 * CHAINS <= n; i += 16 * CHAINS) {
        SHOALI_UNROLL
        for (int u = 0; u < CHAINS; u++) {
            square_eight(x + i + 16 * u, &sums[u]);
            square_eight(x + i + 16 * u + 8, &sums[u]);
        }
    }
    for (; i < n; i += 8) {
        float eight[8] = {0};
        memcpy(eight, x + i, (size_t)SHOALI_MIN(8, n - i) * sizeof x[0]);
        square_eight(eight, &sums[0]);
    }
    u64x8 high = {0}, low = {0}, beyond = {0};
    for (int u = 0; u < CHAINS; u++) {
        u64x8 bits[2];
        memcpy(bits, &sums[u], sizeof bits);
        const u64x8 grown = bits[0] - bits_of(HIGH);
        high += grown;
        beyond |= grown >> 52;
        low += bits[1] - bits_of(LOW);
    }
    uint64_t all_high = 0, all_low = 0, all_beyond = 0;
    for (int j = 0; j < 8; j++) {
        all_high += high[j];
        all_low += low[j];
        all_beyond |= beyond[j];
    }
    if (all_beyond)
        return false;
    const __int128 total = (__int128)all_high * ((int64_t)1 << HIGH_UNIT_LOG2) + (int64_t)all_low;
    limbs_add_at(limbs, 0, (uint64_t)total);
    limbs_add_at(limbs, 1, (uint64_t)(total >> 64));
    return true;
}

static void norm2_range(struct norm2 *work, int32_t thread, int64_t begin, int64_t end)
{
    const struct shoali_norm2_args *args = work->args;
    uint32_t flag = 0;
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        if (add_small(args->x + i, n, work->limbs[thread]))
            continue;
        for (int64_t j = 0; j < n; j++)
            flag |= limbs_add_square(work->limbs[thread], args->x[i + j]);
    }
    if (flag)
        atomic_fetch_or(&work->flag, flag);
}

static void norm2_thread(void *arg, struct shoali_claim *claim)
{
    struct norm2 *work = arg;
    int64_t begin, end;
    while (claim->index < MOST_THREADS && range_next(&work->cut, claim, &begin, &end))
        norm2_range(work, claim->index, begin, end);
}

void SHOALI_CPU_SYMBOL(norm2)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm2_args *norm2 = args;
    struct norm2 work = {.cut = {norm2->count, 64, 4 * BLOCK}, .args = norm2};
    const struct shoali_pieces pieces = {
        .shares = SHOALI_MIN(shoali_pool_threads(context->threads), MOST_THREADS),
        .count = range_pieces,
        .work = norm2_thread,
        .arg = &work};
    if (norm2->count * 4 < RANGE_SERIAL_BYTES)
        norm2_range(&work, 0, 0, norm2->count);
    else
        shoali_pool_run_pieces(context->threads, &pieces);
    for (int t = 0; t < MOST_THREADS; t++) {
        for (int i = 0; i < 3; i++)
            limbs_add_at(norm2->limbs, i, work.limbs[t][i]);
    }
    *norm2->flag |= atomic_load(&work.flag);
}
