/* tensors - sums of squares over tensors, rows and columns, and the updates that follow from them.
 *
 * A sum is an integer, so it is added up in pieces of any size and order: of up to BLOCK terms in
 * int64 lanes, then into the 192 bits of a thread, then of all threads. Element-wise arithmetic is
 * in the order of ops_flat.h. */
#include "ops/cpu/range.h"
#include "ops/limbs.h"

#define BLOCK 1024
#define MOST_THREADS 64
#define FAST_LIMIT 256.0f /* magnitudes below it fit the lanes */

typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));

/* ---- terms in lanes -------------------------------------------------------------------------- */

/* A sum of terms as high*2^66 + middle*2^33 + low. */
struct lanes {
    i64x8 high, middle, low;
};

/* Adds rint(x^2 2^98) of eight numbers below FAST_LIMIT in magnitude, lane by lane.
 *
 * v = x^2 2^98 < 2^114 is exact in a double (48 bits). Of h = rint(v 2^-66) < 2^48 the rest v - h
 * 2^66 is exact, and at most 2^65; of that m = rint(rest 2^-33) likewise; what is left is at most
 * 2^32. h 2^66 + m 2^33 is even, so rint(v) is it plus the rounded rest. Adding 1.5*2^52 leaves an
 * integer in a double's low bits, whose difference to the constant's is the integer. */
SHOALI_INLINE void square_eight(const float *x, struct lanes *sum)
{
    const f64x8 magic = {0x1.8p52, 0x1.8p52, 0x1.8p52, 0x1.8p52,
                         0x1.8p52, 0x1.8p52, 0x1.8p52, 0x1.8p52};
    f32x8 eight;
    memcpy(&eight, x, sizeof eight);
    const f64x8 value = __builtin_convertvector(eight, f64x8);
    const f64x8 v = value * value * 0x1p98;
    const f64x8 high = v * 0x1p-66 + magic;
    const f64x8 rest = v - (high - magic) * 0x1p66;
    const f64x8 middle = rest * 0x1p-33 + magic;
    const f64x8 low = (rest - (middle - magic) * 0x1p33) + magic;
    sum->high += (i64x8)high - (i64x8)magic;
    sum->middle += (i64x8)middle - (i64x8)magic;
    sum->low += (i64x8)low - (i64x8)magic;
}

/* limbs += high*2^66 + middle*2^33 + low, which is not negative: modulo 2^192. */
static void add_parts(uint64_t limbs[3], int64_t high, int64_t middle, int64_t low)
{
    const __int128 rest = (__int128)middle * ((int64_t)1 << 33) + low;
    const uint64_t sign = rest < 0 ? UINT64_MAX : 0;
    const uint64_t parts[3] = {(uint64_t)rest, (uint64_t)(rest >> 64) + ((uint64_t)high << 2),
                               sign};
    const uint64_t carry = parts[1] < ((uint64_t)high << 2);
    unsigned __int128 sum = 0;
    const uint64_t top = sign + ((uint64_t)high >> 62) + carry;
    const uint64_t add[3] = {parts[0], parts[1], top};
    for (int i = 0; i < 3; i++) {
        sum += (unsigned __int128)limbs[i] + add[i];
        limbs[i] = (uint64_t)sum;
        sum >>= 64;
    }
}

static bool all_small(const float *x, int64_t n)
{
    const v16 limit = v16_set1(FAST_LIMIT);
    for (int64_t i = 0; i < n; i += 16) {
        const v16m small =
            v16_lt(v16_abs(lanes_load(x, i, SHOALI_MIN(16, n - i), SHOAL_F32)), limit);
        if (v16m_any(v16m_not(small)))
            return false;
    }
    return true;
}

/* Adds the squares of n <= BLOCK numbers. */
static void add_block(uint64_t limbs[3], const float *x, int64_t n)
{
    struct lanes sum = {0};
    int64_t i = 0, high = 0, middle = 0, low = 0;
    if (n < 8 || !all_small(x, n)) {
        for (; i < n; i++)
            limbs_add_term(limbs, x[i]);
        return;
    }
    for (; i + 8 <= n; i += 8)
        square_eight(x + i, &sum);
    if (i < n) {
        float rest[8] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        square_eight(rest, &sum);
    }
    for (int j = 0; j < 8; j++) {
        high += sum.high[j];
        middle += sum.middle[j];
        low += sum.low[j];
    }
    add_parts(limbs, high, middle, low);
}

/* Threads with sums of their own, which are added when all have ended. */
struct summing {
    struct range_cut cut;
    const void *args;
    void (*range)(const void *args, int64_t begin, int64_t end, uint64_t (*limbs)[3]);
    uint64_t limbs[MOST_THREADS][2][3];
};

static void summing_thread(void *arg, struct shoali_claim *claim)
{
    struct summing *work = arg;
    int64_t begin, end;
    while (claim->index < MOST_THREADS && range_next(&work->cut, claim, &begin, &end))
        work->range(work->args, begin, end, work->limbs[claim->index]);
}

static void summing_run(struct shoali_pool *threads, struct summing *work, int64_t bytes,
                        uint64_t *first, uint64_t *second)
{
    const struct shoali_pieces pieces = {.shares =
                                             SHOALI_MIN(shoali_pool_threads(threads), MOST_THREADS),
                                         .count = range_pieces,
                                         .work = summing_thread,
                                         .arg = work};
    work->cut.grain = BLOCK;
    work->cut.piece = 16 * BLOCK;
    if ((double)work->cut.count * (double)bytes < RANGE_SERIAL_BYTES)
        work->range(work->args, 0, work->cut.count, work->limbs[0]);
    else
        shoali_pool_run_pieces(threads, &pieces);
    for (int t = 0; t < MOST_THREADS; t++) {
        limbs_add(first, work->limbs[t][0]);
        if (second)
            limbs_add(second, work->limbs[t][1]);
    }
}

/* ---- square_sums ----------------------------------------------------------------------------- */

/* x times the multiplier, of n <= BLOCK elements. */
static const float *scaled(const struct shoali_square_sums_args *args, int64_t i, int64_t n,
                           float *buffer)
{
    const v16 multiplier = v16_set1(args->control ? args->control[1] : 1.0f);
    if (!args->control)
        return args->x + i;
    for (int64_t j = 0; j < n; j += 16) {
        const int64_t lanes = SHOALI_MIN(16, n - j);
        lanes_store(buffer, j, lanes,
                    v16_mul(lanes_load(args->x, i + j, lanes, SHOAL_F32), multiplier), SHOAL_F32);
    }
    return buffer;
}

static void sum_tensor(const void *block, int64_t begin, int64_t end, uint64_t (*limbs)[3])
{
    float buffer[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        add_block(limbs[0], scaled(block, i, n, buffer), n);
    }
}

/* Elements of the piece that lie in rows [first, end) of the tensor, row by row. */
static void sum_rows(const void *block, int64_t first, int64_t end)
{
    const struct shoali_square_sums_args *args = block;
    const int64_t base = args->first / args->columns;
    float buffer[BLOCK];
    for (int64_t row = base + first; row < base + end; row++) {
        int64_t i = row * args->columns - args->first, stop = i + args->columns;
        stop = SHOALI_MIN(stop, args->count);
        for (i = SHOALI_MAX(i, 0); i < stop; i += BLOCK) {
            const int64_t n = SHOALI_MIN(BLOCK, stop - i);
            add_block(args->row + 3 * row, scaled(args, i, n, buffer), n);
        }
    }
}

/* Columns [begin, end) of all matrices that the piece touches: eight sums side by side. */
static void sum_columns(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_square_sums_args *args = block;
    const int64_t columns = args->columns;
    const float multiplier = args->control ? args->control[1] : 1.0f;
    const int64_t first_row = args->first / columns;
    const int64_t last_row = (args->first + args->count - 1) / columns;
    for (int64_t c = begin; c < end; c += 8) {
        const int64_t n = SHOALI_MIN(8, end - c);
        struct lanes sum = {0};
        int64_t matrix = first_row / args->rows, terms = 0;
        for (int64_t row = first_row; row <= last_row + 1; row++) {
            if (row > last_row || row / args->rows != matrix || terms == BLOCK) {
                for (int64_t j = 0; j < n; j++)
                    add_parts(args->column + 3 * (matrix * columns + c + j), sum.high[j],
                              sum.middle[j], sum.low[j]);
                sum = (struct lanes){0};
                matrix = row / args->rows;
                terms = 0;
            }
            if (row > last_row)
                break;
            float eight[8] = {0};
            const int64_t at = row * columns + c - args->first;
            for (int64_t j = 0; j < n; j++)
                if (at + j >= 0 && at + j < args->count)
                    eight[j] = args->x[at + j] * multiplier;
            bool small = true;
            for (int64_t j = 0; j < n; j++)
                small = small && __builtin_fabsf(eight[j]) < FAST_LIMIT;
            if (small)
                square_eight(eight, &sum);
            for (int64_t j = 0; j < n && !small; j++)
                if (at + j >= 0 && at + j < args->count)
                    limbs_add_term(args->column + 3 * (matrix * columns + c + j), eight[j]);
            terms++;
        }
    }
}

void SHOALI_CPU_SYMBOL(square_sums)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_square_sums_args *sums = args;
    if ((sums->control && sums->control[2] != 0) || sums->count == 0)
        return;
    if (sums->tensor) {
        struct summing work = {.args = sums, .range = sum_tensor, .cut = {.count = sums->count}};
        summing_run(context->threads, &work, 4, sums->tensor, NULL);
    }
    const int64_t rows =
        (sums->first + sums->count - 1) / sums->columns - sums->first / sums->columns + 1;
    if (sums->row)
        range_run(context->threads, sum_rows, sums, rows, 1, 4 * sums->columns);
    if (sums->column)
        range_run_wide(context->threads, sum_columns, sums, sums->columns, 16, 64, 4 * rows);
}

/* ---- LAMB ------------------------------------------------------------------------------------ */

SHOALI_INLINE v16 lamb_update(v16 p, v16 m, v16 v, v16 eps, v16 weight_decay, bool inside)
{
    const v16 d = inside ? v16_sqrt(v16_add(v, eps)) : v16_add(v16_sqrt(v), eps);
    return v16_fma(weight_decay, p, v16_div(m, d));
}

static void lamb_range(const void *block, int64_t begin, int64_t end, uint64_t (*limbs)[3])
{
    const struct shoali_lamb_args *args = block;
    const v16 multiplier = v16_set1(args->control ? args->control[1] : 1.0f);
    const v16 beta1 = v16_set1(args->beta1), rest1 = v16_set1(1.0f - args->beta1);
    const v16 beta2 = v16_set1(args->beta2), rest2 = v16_set1(1.0f - args->beta2);
    const v16 eps = v16_set1(args->eps), weight_decay = v16_set1(args->weight_decay);
    float updates[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        for (int64_t j = 0; j < n; j += 16) {
            const int64_t at = i + j, lanes = SHOALI_MIN(16, n - j);
            const v16 p = lanes_load(args->param, at, lanes, SHOAL_F32);
            const v16 g = v16_mul(lanes_load(args->grad, at, lanes, SHOAL_F32), multiplier);
            const v16 m =
                v16_fma(beta1, lanes_load(args->exp_avg, at, lanes, SHOAL_F32), v16_mul(rest1, g));
            const v16 v = v16_fma(beta2, lanes_load(args->exp_avg_sq, at, lanes, SHOAL_F32),
                                  v16_mul(rest2, v16_mul(g, g)));
            lanes_store(args->exp_avg, at, lanes, m, SHOAL_F32);
            lanes_store(args->exp_avg_sq, at, lanes, v, SHOAL_F32);
            lanes_store(updates, j, lanes,
                        lamb_update(p, m, v, eps, weight_decay, args->eps_inside != 0), SHOAL_F32);
        }
        add_block(limbs[0], args->param + i, n);
        add_block(limbs[1], updates, n);
    }
}

void SHOALI_CPU_SYMBOL(lamb)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_lamb_args *lamb = args;
    struct summing work = {.args = lamb, .range = lamb_range, .cut = {.count = lamb->count}};
    if (lamb->control && lamb->control[2] != 0)
        return;
    summing_run(context->threads, &work, 24, lamb->param_sum, lamb->update_sum);
}

static void lamb_apply_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_lamb_apply_args *args = block;
    const v16 eps = v16_set1(args->eps), weight_decay = v16_set1(args->weight_decay);
    const v16 factor = v16_set1(-args->factor[0]);
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t lanes = SHOALI_MIN(16, end - i);
        v16 p = lanes_load(args->param, i, lanes, SHOAL_F32);
        const v16 u = lamb_update(p, lanes_load(args->exp_avg, i, lanes, SHOAL_F32),
                                  lanes_load(args->exp_avg_sq, i, lanes, SHOAL_F32), eps,
                                  weight_decay, args->eps_inside != 0);
        p = v16_fma(factor, u, p);
        lanes_store(args->param, i, lanes, p, SHOAL_F32);
        if (args->low)
            lanes_store(args->low, i, lanes, p, args->low_dtype);
    }
}

void SHOALI_CPU_SYMBOL(lamb_apply)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_lamb_apply_args *lamb = args;
    if (lamb->control && lamb->control[2] != 0)
        return;
    range_run(context->threads, lamb_apply_range, lamb, lamb->count, 64, 16);
}

/* ---- Adafactor ------------------------------------------------------------------------------- */

/* Where elements of a piece lie; both kernels of Adafactor have these members. */
struct place {
    const float *grad, *control, *row, *column;
    int64_t first, rows, columns;
    float floor;
};

/* u of elements [i, i + n) of the piece, which lie in one row. */
SHOALI_INLINE void updates_in_row(const struct place *place, int64_t i, int64_t n, float *u)
{
    const int64_t element = place->first + i, row = element / place->columns;
    const int64_t column = row / place->rows * place->columns + element % place->columns;
    const v16 multiplier = v16_set1(place->control ? place->control[1] : 1.0f);
    const v16 row_factor = v16_set1(place->row[row]), floor = v16_set1(place->floor);
    for (int64_t j = 0; j < n; j += 16) {
        const int64_t lanes = SHOALI_MIN(16, n - j);
        const v16 g = v16_mul(lanes_load(place->grad, i + j, lanes, SHOAL_F32), multiplier);
        v16 v = v16_mul(row_factor, lanes_load(place->column, column + j, lanes, SHOAL_F32));
        v = v16_select(v16_lt(v, floor), floor, v);
        lanes_store(u, j, lanes, v16_div(g, v16_sqrt(v)), SHOAL_F32);
    }
}

/* The same of a vector: each element is a row. */
SHOALI_INLINE void updates_of_vector(const struct place *place, int64_t i, int64_t n, float *u)
{
    const v16 multiplier = v16_set1(place->control ? place->control[1] : 1.0f);
    const v16 floor = v16_set1(place->floor);
    for (int64_t j = 0; j < n; j += 16) {
        const int64_t lanes = SHOALI_MIN(16, n - j);
        const v16 g = v16_mul(lanes_load(place->grad, i + j, lanes, SHOAL_F32), multiplier);
        v16 v = lanes_load(place->row, place->first + i + j, lanes, SHOAL_F32);
        v = v16_select(v16_lt(v, floor), floor, v);
        lanes_store(u, j, lanes, v16_div(g, v16_sqrt(v)), SHOAL_F32);
    }
}

/* u of n <= BLOCK elements from i on. */
static void updates_of(const struct place *place, int64_t i, int64_t n, float *u)
{
    if (!place->column) {
        updates_of_vector(place, i, n, u);
        return;
    }
    for (int64_t j = 0; j < n;) {
        const int64_t left = place->columns - (place->first + i + j) % place->columns;
        const int64_t run = SHOALI_MIN(left, n - j);
        updates_in_row(place, i + j, run, u + j);
        j += run;
    }
}

static void adafactor_range(const void *block, int64_t begin, int64_t end, uint64_t (*limbs)[3])
{
    const struct shoali_adafactor_args *args = block;
    const struct place place = {args->grad,  args->control, args->row,     args->column,
                                args->first, args->rows,    args->columns, args->floor};
    float u[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        updates_of(&place, i, n, u);
        add_block(limbs[0], u, n);
    }
}

void SHOALI_CPU_SYMBOL(adafactor)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_adafactor_args *adafactor = args;
    struct summing work = {
        .args = adafactor, .range = adafactor_range, .cut = {.count = adafactor->count}};
    if (adafactor->control && adafactor->control[2] != 0)
        return;
    summing_run(context->threads, &work, 8, adafactor->sum, NULL);
}

static void adafactor_apply_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_adafactor_apply_args *args = block;
    const struct place place = {args->grad,  args->control, args->row,     args->column,
                                args->first, args->rows,    args->columns, args->floor};
    const v16 decay = v16_set1(-args->decay), factor = v16_set1(-args->factor[0]);
    float u[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        updates_of(&place, i, n, u);
        for (int64_t j = 0; j < n; j += 16) {
            const int64_t lanes = SHOALI_MIN(16, n - j);
            v16 p = lanes_load(args->param, i + j, lanes, SHOAL_F32);
            p = v16_fma(decay, p, p);
            p = v16_fma(factor, lanes_load(u, j, lanes, SHOAL_F32), p);
            lanes_store(args->param, i + j, lanes, p, SHOAL_F32);
            if (args->low)
                lanes_store(args->low, i + j, lanes, p, args->low_dtype);
        }
    }
}

void SHOALI_CPU_SYMBOL(adafactor_apply)(const void *args,
                                        const struct shoali_kernel_context *context)
{
    const struct shoali_adafactor_apply_args *adafactor = args;
    if (adafactor->control && adafactor->control[2] != 0)
        return;
    range_run(context->threads, adafactor_apply_range, adafactor, adafactor->count, 64, 16);
}
