/* random - fills with uniform or normal numbers, sixteen elements side by side.
 *
 * Initial weights of a large model are hundreds of millions of normals, so the rule of base/rng.h
 * and the operations of base/mathx.c (ln, cos, in their order, for the range that occurs here) are
 * written again without branches, for the compiler to turn into vectors. The conformance test holds
 * them to the same bits. Without a hardware fma the emulated one would cost more than everything
 * else: then the elements are made one at a time.
 *
 * Most fp32 normals need less (Ziv's strategy): a shorter computation with an error bound decides
 * them, unless a rounding boundary is within the bound, which happens to one block in some hundred.
 */
#include "ops/cpu/range.h"
#include "ops/storage.h"

#define LANES 16
#define BLOCK 256 /* elements of the short computation */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define HAVE_FMA 1
#else
#define HAVE_FMA 0
#endif

#if HAVE_FMA
static void two_words(const struct shoali_stream *stream, uint64_t first, uint32_t word0[LANES],
                      uint32_t word1[LANES])
{
    v16i word[4];
    v16_random_block(stream, first, word);
    v16i_store(word0, word[0]);
    v16i_store(word1, word[1]);
}

/* An unevaluated sum. */
struct pair {
    double high, low;
};
SHOALI_INLINE struct pair two_sum(double a, double b)
{
    const double sum = a + b, b_part = sum - a;
    return (struct pair){sum, (a - (sum - b_part)) + (b - b_part)};
}
SHOALI_INLINE struct pair fast_two_sum(double a, double b)
{
    const double sum = a + b;
    return (struct pair){sum, b - (sum - a)};
}

/* x = m 2^k with m between the roots of 1/2 and 2; x is positive and normal. */
SHOALI_INLINE double split(double x, double *k)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t mantissa = bits & 0xfffffffffffffu;
    const uint64_t halved = mantissa >= 0x6a09e667f3bcdu ? 1 : 0;
    const uint64_t m_bits = mantissa | (1023 - halved) << 52;
    double m;
    memcpy(&m, &m_bits, sizeof m);
    *k = (double)((int32_t)(bits >> 52) - 1023 + (int32_t)halved);
    return m;
}

/* ln(x), 2^-33 <= x < 1. */
SHOALI_INLINE double ln(double x)
{
    double k;
    const double m = split(x, &k);
    const struct pair plus = two_sum(1.0, m);
    const double f = m - 1.0, s = f / plus.high;
    const double s_low = __builtin_fma(-s, plus.low, __builtin_fma(-s, plus.high, f)) / plus.high;
    const double z = s * s;
    double p = 2.0 / 23.0;
    p = __builtin_fma(p, z, 2.0 / 21.0);
    p = __builtin_fma(p, z, 2.0 / 19.0);
    p = __builtin_fma(p, z, 2.0 / 17.0);
    p = __builtin_fma(p, z, 2.0 / 15.0);
    p = __builtin_fma(p, z, 2.0 / 13.0);
    p = __builtin_fma(p, z, 2.0 / 11.0);
    p = __builtin_fma(p, z, 2.0 / 9.0);
    p = __builtin_fma(p, z, 2.0 / 7.0);
    p = __builtin_fma(p, z, 2.0 / 5.0);
    p = __builtin_fma(p, z, 2.0 / 3.0);
    const double rest = __builtin_fma(s * z, p, 2.0 * s_low);
    const struct pair sum = fast_two_sum(k * 0x1.62e42fefa3800p-1, 2.0 * s);
    return fast_two_sum(sum.high, sum.low + __builtin_fma(k, 0x1.ef35793c76730p-45, rest)).high;
}

SHOALI_INLINE double sin_kernel(struct pair r)
{
    const double z = r.high * r.high;
    double p = 1.0 / 355687428096000.0;
    p = __builtin_fma(p, z, -1.0 / 1307674368000.0);
    p = __builtin_fma(p, z, 1.0 / 6227020800.0);
    p = __builtin_fma(p, z, -1.0 / 39916800.0);
    p = __builtin_fma(p, z, 1.0 / 362880.0);
    p = __builtin_fma(p, z, -1.0 / 5040.0);
    p = __builtin_fma(p, z, 1.0 / 120.0);
    p = __builtin_fma(p, z, -1.0 / 6.0);
    const double low = __builtin_fma(-0.5 * z, r.low, r.low);
    return r.high + __builtin_fma(r.high * z, p, low);
}

SHOALI_INLINE double cos_kernel(struct pair r)
{
    const double z = r.high * r.high, z_low = __builtin_fma(r.high, r.high, -z);
    double p = -1.0 / 6402373705728000.0;
    p = __builtin_fma(p, z, 1.0 / 20922789888000.0);
    p = __builtin_fma(p, z, -1.0 / 87178291200.0);
    p = __builtin_fma(p, z, 1.0 / 479001600.0);
    p = __builtin_fma(p, z, -1.0 / 3628800.0);
    p = __builtin_fma(p, z, 1.0 / 40320.0);
    p = __builtin_fma(p, z, -1.0 / 720.0);
    p = __builtin_fma(p, z, 1.0 / 24.0);
    const struct pair head = fast_two_sum(1.0, -0.5 * z);
    const double low = __builtin_fma(-r.high, r.low, __builtin_fma(-0.5, z_low, head.low));
    return head.high + __builtin_fma(z * z, p, low);
}

/* cos(x), 0 <= x <= 2 pi. */
SHOALI_INLINE double cosine(double x)
{
    const double k = __builtin_rint(x * 0x1.45f306dc9c883p-1);
    const struct pair first =
        two_sum(__builtin_fma(-k, 0x1.921fb54400000p+0, x), -(k * 0x1.0b4611a600000p-34));
    const struct pair second = two_sum(first.high, -(k * 0x1.3198a2e000000p-69));
    const double rest = __builtin_fma(-k, 0x1.b839a252049c1p-104, first.low + second.low);
    const struct pair r = fast_two_sum(second.high, rest);
    const double c = cos_kernel(r), s = sin_kernel(r);
    const int32_t quadrant = ((int32_t)k + 1) & 3;
    const double value = quadrant & 1 ? c : s;
    return quadrant & 2 ? -value : value;
}

static void normals(const struct shoali_random_fill_args *args, uint64_t first, double v[LANES])
{
    uint32_t word0[LANES], word1[LANES];
    two_words(&args->random, first, word0, word1);
    for (int j = 0; j < LANES; j++) {
        const double radius = ((double)word0[j] + 0.5) * 0x1p-32, turn = (double)word1[j] * 0x1p-32;
        const double normal =
            __builtin_sqrt(-2.0 * ln(radius)) * cosine(turn * 0x1.921fb54442d18p+2);
        v[j] = args->a + args->b * normal;
    }
}

/* Relative error 2^-49: the series ends at z^9 / 19, z < 0.0295, and nothing cancels, because
 * ln m <= 0 where k = 0. */
SHOALI_INLINE double short_ln(double x)
{
    double k;
    const double m = split(x, &k);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 2.0 / 17.0;
    p = __builtin_fma(p, z, 2.0 / 15.0);
    p = __builtin_fma(p, z, 2.0 / 13.0);
    p = __builtin_fma(p, z, 2.0 / 11.0);
    p = __builtin_fma(p, z, 2.0 / 9.0);
    p = __builtin_fma(p, z, 2.0 / 7.0);
    p = __builtin_fma(p, z, 2.0 / 5.0);
    p = __builtin_fma(p, z, 2.0 / 3.0);
    return __builtin_fma(k, 0x1.62e42fefa39efp-1, s * __builtin_fma(p, z, 2.0));
}

/* cos(2 pi turn / 2^32) as the sine of what is left to a quarter, absolute error 2^-50: the series
 * ends at (pi/2)^21 / 21!. */
SHOALI_INLINE double short_cosine(uint32_t turn)
{
    const uint32_t away = (int32_t)turn < 0 ? 0u - turn : turn;
    const double y = (double)(int32_t)(0x40000000u - away) * 0x1p-30, z = y * y;
    double p = -0x1.8a404211f9547p-45;
    p = __builtin_fma(p, z, 0x1.aaec32af93359p-38);
    p = __builtin_fma(p, z, -0x1.6fadb9f155744p-31);
    p = __builtin_fma(p, z, 0x1.e8f434d018d63p-25);
    p = __builtin_fma(p, z, -0x1.e3074fde8871fp-19);
    p = __builtin_fma(p, z, 0x1.50783487ee782p-13);
    p = __builtin_fma(p, z, -0x1.32d2cce62bd86p-8);
    p = __builtin_fma(p, z, 0x1.466bc6775aae2p-4);
    p = __builtin_fma(p, z, -0x1.4abbce625be53p-1);
    return y * __builtin_fma(p, z, 0x1.921fb54442d18p+0);
}

/* BLOCK normals, or false: some may be wrong. The long computation itself is off by the rounding of
 * 2 pi turn, 2^-50 at most, so the bound is that of both: 2^-48 of the radius, here doubled, and
 * the two last roundings. One loop per stage: elements are independent, but one alone is a chain of
 * some hundred operations, and a processor looks ahead only so far. */
static bool short_normals(const struct shoali_random_fill_args *args, uint64_t first, float *y)
{
    uint32_t word0[BLOCK], word1[BLOCK], differ = 0;
    double radius[BLOCK];
    float low[BLOCK];
    const double a = args->a, b = args->b, scale = __builtin_fabs(b) * 0x1p-47;
    for (int j = 0; j < BLOCK; j += LANES)
        two_words(&args->random, first + (uint64_t)j, word0 + j, word1 + j);
    for (int j = 0; j < BLOCK; j++)
        radius[j] = __builtin_sqrt(-2.0 * short_ln(((double)word0[j] + 0.5) * 0x1p-32));
    for (int j = 0; j < BLOCK; j++) {
        const double v = a + b * (radius[j] * short_cosine(word1[j]));
        const double bound = __builtin_fma(radius[j], scale, __builtin_fabs(v) * 0x1p-50);
        low[j] = (float)(v - bound);
        y[j] = (float)(v + bound);
    }
    for (int j = 0; j < BLOCK; j++) {
        uint32_t bits[2];
        memcpy(&bits[0], &low[j], sizeof bits[0]);
        memcpy(&bits[1], &y[j], sizeof bits[1]);
        differ |= bits[0] ^ bits[1];
    }
    return differ == 0;
}

static void uniforms(const struct shoali_random_fill_args *args, uint64_t first, double v[LANES])
{
    uint32_t word[LANES];
    v16i_store(word, v16_random_u32(&args->random, first));
    for (int j = 0; j < LANES; j++)
        v[j] = args->a + (args->b - args->a) * ((double)(word[j] >> 8) * 0x1p-24);
}

static void long_run(const struct shoali_random_fill_args *args, int64_t begin, int64_t end,
                     uint64_t index)
{
    for (int64_t i = begin; i < end; i += LANES) {
        const int64_t n = SHOALI_MIN(LANES, end - i);
        double v[LANES];
        if (args->uniform)
            uniforms(args, index + (uint64_t)(i - begin), v);
        else
            normals(args, index + (uint64_t)(i - begin), v);
        if (args->dtype == SHOAL_F32)
            for (int64_t j = 0; j < n; j++)
                ((float *)args->y)[i + j] = (float)v[j];
        else
            for (int64_t j = 0; j < n; j++)
                store_f64(args->y, i + j, v[j], args->dtype);
    }
}

static void random_run(const struct shoali_random_fill_args *args, int64_t begin, int64_t end,
                       uint64_t index)
{
    const bool may_be_short = !args->uniform && args->dtype == SHOAL_F32;
    while (may_be_short && end - begin >= BLOCK) {
        if (!short_normals(args, index, (float *)args->y + begin))
            long_run(args, begin, begin + BLOCK, index);
        begin += BLOCK;
        index += BLOCK;
    }
    long_run(args, begin, end, index);
}
#else
static void random_run(const struct shoali_random_fill_args *args, int64_t begin, int64_t end,
                       uint64_t index)
{
    for (int64_t i = begin; i < end; i++, index++) {
        double v;
        if (args->uniform)
            v = args->a + (args->b - args->a) * (double)shoali_random_uniform(&args->random, index);
        else
            v = args->a + args->b * shoali_random_normal(&args->random, index);
        store_f64(args->y, i, v, args->dtype);
    }
}
#endif

static void random_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_random_fill_args *args = block;
    int64_t length;
    for (int64_t i = begin; i < end; i += length) {
        const int64_t at = shoali_runs_at(&args->runs, i, &length);
        length = SHOALI_MIN(length, end - i);
        random_run(args, i, i + length, (uint64_t)args->first_element + (uint64_t)at);
    }
}

void SHOALI_CPU_SYMBOL(random_fill)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_random_fill_args *fill = args;
    range_run(context->threads, random_range, fill, fill->count, 64, 256);
}
