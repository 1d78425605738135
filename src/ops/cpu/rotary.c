/* rotary - rotary positions. Threads split positions: the sines of one serve all samples and heads.
 */
#include "base/mathx.h"
#include "ops/cpu/range.h"

/* Of one position: a value for each pair, and zeros up to whole vectors. */
struct turn {
    float c[SHOALI_ROTARY_PAIRS + 16], s[SHOALI_ROTARY_PAIRS + 16];
};

static void make_turn(const struct shoali_rotary_args *args, int64_t position, struct turn *turn)
{
    for (int64_t i = 0; i < args->rotary_size / 2; i++) {
        const double angle = (double)((float)position * args->inverse_frequency[i]);
        turn->c[i] = (float)shoali_cos(angle);
        turn->s[i] = (float)shoali_sin(args->inverse ? -angle : angle);
    }
}

SHOALI_INLINE void put(const struct shoali_rotary_args *args, int64_t at, int64_t lanes, v16 v,
                       const shoal_dtype dtype)
{
    if (args->accumulate)
        v = v16_add(lanes_load(args->y, at, lanes, dtype), v);
    lanes_store(args->y, at, lanes, v, dtype);
}

SHOALI_INLINE void copy(const struct shoali_rotary_args *args, int64_t begin, int64_t end,
                        const shoal_dtype dtype)
{
    for (int64_t at = begin; at < end; at += 16) {
        const int64_t lanes = SHOALI_MIN(16, end - at);
        put(args, at, lanes, lanes_load(args->x, at, lanes, dtype), dtype);
    }
}

SHOALI_INLINE void turn_pairs(v16 *a, v16 *b, v16 c, v16 s)
{
    const v16 first = v16_fma(*a, c, v16_neg(v16_mul(*b, s)));
    *b = v16_fma(*b, c, v16_mul(*a, s));
    *a = first;
}

SHOALI_INLINE void turn_halves(const struct shoali_rotary_args *args, int64_t head,
                               const struct turn *turn, const shoal_dtype dtype)
{
    const int64_t half = args->rotary_size / 2;
    for (int64_t i = 0; i < half; i += 16) {
        const int64_t lanes = SHOALI_MIN(16, half - i);
        v16 a = lanes_load(args->x, head + i, lanes, dtype);
        v16 b = lanes_load(args->x, head + half + i, lanes, dtype);
        turn_pairs(&a, &b, v16_load(turn->c + i), v16_load(turn->s + i));
        put(args, head + i, lanes, a, dtype);
        put(args, head + half + i, lanes, b, dtype);
    }
}

/* Sixteen pairs of neighbours. */
SHOALI_INLINE void turn_neighbours(const struct shoali_rotary_args *args, int64_t head,
                                   const struct turn *turn, const shoal_dtype dtype)
{
    const int64_t size = args->rotary_size;
    for (int64_t i = 0; i < size; i += 32) {
        const int64_t low = SHOALI_MIN(16, size - i), high = SHOALI_MIN(16, size - i - low);
        float both[32] = {0}, first[16], second[16];
        v16_store(both, lanes_load(args->x, head + i, low, dtype));
        if (high > 0)
            v16_store(both + 16, lanes_load(args->x, head + i + 16, high, dtype));
        for (int k = 0; k < 16; k++) {
            first[k] = both[2 * k];
            second[k] = both[2 * k + 1];
        }
        v16 a = v16_load(first), b = v16_load(second);
        turn_pairs(&a, &b, v16_load(turn->c + i / 2), v16_load(turn->s + i / 2));
        v16_store(first, a);
        v16_store(second, b);
        for (int k = 0; k < 16; k++) {
            both[2 * k] = first[k];
            both[2 * k + 1] = second[k];
        }
        put(args, head + i, low, v16_load(both), dtype);
        if (high > 0)
            put(args, head + i + 16, high, v16_load(both + 16), dtype);
    }
}

/* Inlined with a constant dtype. */
SHOALI_INLINE void rotary_typed(const struct shoali_rotary_args *args, int64_t begin, int64_t end,
                                const shoal_dtype dtype)
{
    const int64_t size = args->head_size, turned = args->heads * size;
    struct turn turn = {{0}, {0}};
    for (int64_t t = begin; t < end; t++) {
        make_turn(args, args->first_position + t, &turn);
        for (int64_t b = 0; b < args->batch; b++) {
            const int64_t row = (b * args->length + t) * args->columns;
            for (int64_t head = row; head < row + turned; head += size) {
                if (args->interleaved)
                    turn_neighbours(args, head, &turn, dtype);
                else
                    turn_halves(args, head, &turn, dtype);
                copy(args, head + args->rotary_size, head + size, dtype);
            }
            copy(args, row + turned, row + args->columns, dtype);
        }
    }
}

static void rotary_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_rotary_args *args = block;
    switch (args->dtype) {
    case SHOAL_F32:
        rotary_typed(args, begin, end, SHOAL_F32);
        break;
    case SHOAL_BF16:
        rotary_typed(args, begin, end, SHOAL_BF16);
        break;
    default:
        rotary_typed(args, begin, end, SHOAL_F16);
        break;
    }
}

void SHOALI_CPU_SYMBOL(rotary)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_rotary_args *rotary = args;
    /* a sine and a cosine take as long as moving some hundred bytes */
    const int64_t bytes = rotary->batch * rotary->columns * 8 + rotary->rotary_size * 128;
    range_run(context->threads, rotary_range, rotary, rotary->length, 1, bytes);
}
