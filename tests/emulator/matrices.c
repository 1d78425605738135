/* matrices.c - what a warp does with matrices: mma.sync and ldmatrix.
 *
 * LAYOUT, by PTX's documentation of m16n8k16 with 16-bit elements. Lane 4 g + t has
 *   of A [16 x 16]  register i: row g + 8 (i & 1), columns 2 t and 2 t + 1, + 8 from i = 2 on
 *   of B [16 x 8]   register i: rows 2 t and 2 t + 1, + 8 for i = 1, column g
 *   of C, D         register i: row g + 8 (i >> 1), column 2 t + (i & 1)
 *
 * ROUNDING, by what an H100 gave (tests/golden/gpu): the 16 exact products and c are aligned to the
 * largest exponent among them, which of a product is the sum of its factors' exponents. Each keeps
 * 25 bits below that exponent and loses the rest. The sum of these is exact, and rounded toward
 * zero. Zeros do not count for the largest exponent. NaN has one pattern. For fp16 the same rule is
 * taken, with no GPU's numbers to compare it with. */
#include "emulator.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

enum { ROWS = 16, DEPTH = 16, COLUMNS = 8, KEPT = 25, NO_EXPONENT = -4096 };

/* A 16-bit type: bits of the fraction, largest exponent field, bias. */
struct type {
    int fraction, special, bias;
};
static const struct type bf16 = {7, 255, 127}, f16 = {10, 31, 15};

struct number {
    int32_t exponent, significand, sign; /* sign: 0 or -1 */
};
/* One number for each column. */
typedef int32_t columns __attribute__((vector_size(4 * COLUMNS)));
/* The operands, B with its columns side by side. */
struct operands {
    struct number a[ROWS][DEPTH];
    columns exponent[DEPTH], significand[DEPTH], sign[DEPTH];
    uint16_t a_bits[ROWS][DEPTH], b_bits[DEPTH][COLUMNS];
    uint32_t c[ROWS][COLUMNS];
    int special; /* one of them is infinite or NaN */
};

static struct number number_of(uint32_t bits, int fraction, int special, int bias)
{
    const int32_t exponent = (int32_t)(bits >> fraction) & special;
    const int32_t low = (int32_t)(bits & ((1u << fraction) - 1));
    const struct number x = {(exponent > 0 ? exponent : 1) - bias,
                             exponent > 0 ? low | 1 << fraction : low, 0};
    return x.significand != 0 ? x : (struct number){NO_EXPONENT, 0, 0};
}

static struct number short_number(uint16_t bits, const struct type *type)
{
    struct number x = number_of(bits, type->fraction, type->special, type->bias);
    x.sign = -(bits >> 15);
    return x;
}

static struct number float_number(uint32_t bits)
{
    struct number x = number_of(bits, 23, 255, 127);
    x.sign = -(int32_t)(bits >> 31);
    return x;
}

static void gather(struct operands *all, const void *const in[32], void *const out[32],
                   const struct type *type)
{
    const uint32_t mask = (uint32_t)type->special << type->fraction;
    all->special = 0;
    for (int lane = 0; lane < 32; lane++) {
        const struct emulator_mma *mine = in[lane];
        const int g = lane >> 2, t = lane & 3;
        for (int i = 0; i < 8; i++) {
            const uint16_t x = (uint16_t)(mine->a[i >> 1] >> 16 * (i & 1));
            const int row = g + 8 * (i >> 1 & 1), k = 2 * t + (i & 1) + 8 * (i >> 2);
            all->a_bits[row][k] = x;
            all->a[row][k] = short_number(x, type);
            all->special |= (x & mask) == mask;
        }
        for (int i = 0; i < 4; i++) {
            const uint16_t x = (uint16_t)(mine->b[i >> 1] >> 16 * (i & 1));
            const int k = 2 * t + (i & 1) + 8 * (i >> 1);
            const struct number b = short_number(x, type);
            all->b_bits[k][g] = x;
            all->exponent[k][g] = b.exponent;
            all->significand[k][g] = b.significand;
            all->sign[k][g] = b.sign;
            all->special |= (x & mask) == mask;
        }
        for (int i = 0; i < 4; i++) {
            uint32_t x;
            memcpy(&x, (const float *)out[lane] + i, sizeof x);
            all->c[g + 8 * (i >> 1)][2 * t + (i & 1)] = x;
            all->special |= (x >> 23 & 255) == 255;
        }
    }
}

/* Puts the smaller one of each column into a. By address: vectors by value have no fixed ABI. */
static inline __attribute__((always_inline)) void take_smaller(columns *a, const columns *b)
{
    const columns less = *a < *b;
    *a = (*a & less) | (*b & ~less);
}

/* The sums of a row, in units of 2^(largest exponent - KEPT). Eight products fit 32 bits. */
WIDE static void add_row(const struct operands *all, int row, int fraction, int64_t sum[COLUMNS],
                         int32_t largest[COLUMNS])
{
    const int up = KEPT - 2 * fraction;
    const columns most_away = {31, 31, 31, 31, 31, 31, 31, 31};
    columns part[2] = {{0}}, sign, exponent, c, top, away;
    for (int j = 0; j < COLUMNS; j++) {
        const struct number x = float_number(all->c[row][j]);
        exponent[j] = x.exponent;
        c[j] = x.significand << (KEPT - 23);
        sign[j] = x.sign;
    }
    top = -exponent;
    for (int k = 0; k < DEPTH; k++) {
        away = -(all->a[row][k].exponent + all->exponent[k]);
        take_smaller(&top, &away);
    }
    top = -top;
    for (int k = 0; k < DEPTH; k++) {
        const struct number a = all->a[row][k];
        away = top - a.exponent - all->exponent[k];
        take_smaller(&away, &most_away);
        const columns kept = a.significand * all->significand[k] << up >> away;
        const columns s = a.sign ^ all->sign[k];
        part[k / 8] += (kept ^ s) - s;
    }
    away = top - exponent;
    take_smaller(&away, &most_away);
    c = ((c >> away) ^ sign) - sign;
    for (int j = 0; j < COLUMNS; j++) {
        largest[j] = top[j];
        sum[j] = (int64_t)part[0][j] + part[1][j] + c[j];
    }
}

/* sum 2^unit, rounded toward zero. Doubles have its range, with bits to spare: cutting off the low
 * ones of a double leaves what a float has, unless that is subnormal. */
static float rounded(int64_t sum, int unit)
{
    const uint64_t power_bits = (uint64_t)(unit + 1023) << 52;
    double power, exact;
    uint64_t bits;
    memcpy(&power, &power_bits, sizeof power);
    exact = (double)sum * power;
    if (fabs(exact) < 0x1p-126)
        return (float)trunc(exact * 0x1p149) * 0x1p-149f;
    memcpy(&bits, &exact, sizeof bits);
    bits &= ~((UINT64_C(1) << 29) - 1);
    memcpy(&exact, &bits, sizeof bits);
    return (float)exact; /* infinite from 2^128 on */
}

/* The value behind a 16-bit pattern, as far as a product's being infinite or NaN needs it. */
static float kind_of(uint16_t bits, const struct type *type)
{
    const uint32_t magnitude = bits & 0x7fffu, infinite = (uint32_t)type->special << type->fraction;
    const float size = magnitude > infinite ? NAN : magnitude == infinite ? INFINITY : 1;
    return (bits >> 15 ? -1.0f : 1.0f) * (magnitude == 0 ? 0 : size);
}

/* Where infinity or NaN takes part in an element's sum, the sum is one of them. */
static bool is_special(const struct operands *all, const struct type *type, int row, int column,
                       uint32_t *bits)
{
    float sum;
    memcpy(&sum, &all->c[row][column], sizeof sum);
    sum = isfinite(sum) ? 0 : sum;
    for (int k = 0; k < DEPTH; k++) {
        const float term =
            kind_of(all->a_bits[row][k], type) * kind_of(all->b_bits[k][column], type);
        sum += isfinite(term) ? 0 : term;
    }
    *bits = isnan(sum) ? 0x7fffffffu : sum > 0 ? 0x7f800000u : 0xff800000u;
    return !isfinite(sum);
}

static void multiply(const void *const in[32], void *const out[32], const struct type *type)
{
    struct operands all;
    gather(&all, in, out, type);
    for (int row = 0; row < ROWS; row++) {
        int64_t sum[COLUMNS];
        int32_t largest[COLUMNS];
        add_row(&all, row, type->fraction, sum, largest);
        for (int j = 0; j < COLUMNS; j++) {
            float *d = (float *)out[4 * (row & 7) + j / 2] + 2 * (row >> 3) + (j & 1);
            uint32_t bits;
            *d = sum[j] != 0 ? rounded(sum[j], largest[j] - KEPT) : 0;
            if (all.special && is_special(&all, type, row, j, &bits))
                memcpy(d, &bits, sizeof bits);
        }
    }
}

void emulator_mma_bf16(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)mask;
    multiply(in, out, &bf16);
}
void emulator_mma_f16(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)mask;
    multiply(in, out, &f16);
}

/* Matrices of 8 x 8: lane 8 i + r names row r of matrix i. Lane l gets elements 2 (l % 4) and the
 * next one of row l / 4; transposed, of column l / 4. */
static void load(const void *const in[32], void *const out[32], int matrices, bool transposed)
{
    for (int lane = 0; lane < 8 * matrices; lane++)
        emulator_lane_reads(lane, in[lane], 16);
    for (int i = 0; i < matrices; i++)
        for (int lane = 0; lane < 32; lane++) {
            uint32_t pair = 0;
            for (int half = 0; half < 2; half++) {
                const int along = 2 * (lane & 3) + half, across = lane >> 2;
                const uint16_t *row = in[8 * i + (transposed ? along : across)];
                pair |= (uint32_t)row[transposed ? across : along] << 16 * half;
            }
            ((uint32_t *)out[lane])[i] = pair;
        }
}

void emulator_matrices4(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)mask;
    load(in, out, 4, false);
}
void emulator_matrices4_transposed(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)mask;
    load(in, out, 4, true);
}
void emulator_matrices2(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)mask;
    load(in, out, 2, false);
}
void emulator_matrices2_transposed(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)mask;
    load(in, out, 2, true);
}
void emulator_nothing(const void *const in[32], void *const out[32], uint32_t mask)
{
    (void)in, (void)out, (void)mask;
}
