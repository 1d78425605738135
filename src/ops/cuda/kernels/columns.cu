/* Sums over rows, one for each column, in row order: a sum is one chain of additions downward, so a
 * row takes the four cycles of an addition at least. All else has to fit beside the chain.
 *
 *   strip   the 32 columns of a block: a lane has a column
 *   tile    64 rows of a strip, in shared memory as they are stored
 *   ring    the tiles that are added, prepared and under way, each in a slot of its own
 *
 * Tiles arrive by copies that run three tiles ahead. Warp 0 adds the rows of a tile. With norms it
 * adds the gradient of gamma and warp 1 that of beta, while the other warps turn the next tile of x
 * into xhat. One barrier for each tile separates these.
 *
 * Copies take 16 bytes, so rows have to begin at multiples of 16 bytes. Other arrays are read
 * element by element. */
#include "ops/cuda/kernels/lanes.h"

enum { STRIP = CUDA_STRIP, TILE_ROWS = 64, TILE_AHEAD = 3 };
enum { REDUCE_RING = TILE_AHEAD + 1, NORM_RING = TILE_AHEAD + 2 };
/* Of elements of 2 bytes half of it is used. */
struct column_tile {
    float x[TILE_ROWS * STRIP];
};
struct reduce_shared {
    struct column_tile x[REDUCE_RING];
};
struct norm_columns_shared {
    struct column_tile dy[NORM_RING], x[NORM_RING], xhat[2];
    float mean[NORM_RING][TILE_ROWS], rstd[NORM_RING][TILE_ROWS];
};
SAME(sizeof(struct reduce_shared), CUDA_REDUCE_SHARED);
SAME(sizeof(struct norm_columns_shared), CUDA_NORM_COLUMNS_SHARED);

/* An array of which a block has a strip; rows lie as norm_row says. */
struct strip {
    const void *from;
    int64_t rows, columns, group, stride, first_column;
};
DEVICE int64_t strip_at(const struct strip *strip, int64_t row)
{
    return norm_row(row, strip->columns, strip->group, strip->stride) + strip->first_column;
}
DEVICE int is_aligned(const struct strip *strip, int bytes)
{
    const int64_t strides = strip->columns | (strip->group > 0 ? strip->stride : 0);
    return ((int64_t)(uintptr_t)strip->from | strides * bytes) % 16 == 0;
}

/* A tile by threads that have numbers from 0. */
DEVICE void bring_chunks(struct column_tile *tile, const struct strip *strip, int64_t first_row,
                         int bytes, int thread, int threads)
{
    const int in_chunk = 16 / bytes, chunks = STRIP / in_chunk, c = thread % chunks * in_chunk;
    const int step = threads / chunks;
    const int64_t left = strip->rows - first_row;
    if (strip->first_column + c >= strip->columns)
        return;
    char *to = (char *)tile->x + c * bytes;
    const char *from = (const char *)strip->from + c * bytes;
    if (strip->group > 0) {
        UNROLL_BY_1
        for (int r = thread / chunks; r < TILE_ROWS && r < left; r += step)
            copy16_later(to + r * STRIP * bytes, from + strip_at(strip, first_row + r) * bytes);
        return;
    }
    from += strip_at(strip, first_row + thread / chunks) * bytes;
    UNROLL
    for (int i = 0; i < TILE_ROWS / step; i++) {
        const int r = thread / chunks + i * step;
        if (r < left)
            copy16_later(to + r * STRIP * bytes, from + i * step * strip->columns * bytes);
    }
}
DEVICE void bring_elements(struct column_tile *tile, const struct strip *strip, int64_t first_row,
                           int bytes, int thread, int threads)
{
    const int c = thread % STRIP;
    UNROLL_BY_1
    for (int r = thread / STRIP; r < TILE_ROWS; r += threads / STRIP) {
        if (first_row + r >= strip->rows || strip->first_column + c >= strip->columns)
            continue;
        const int64_t at = strip_at(strip, first_row + r) + c;
        if (bytes == 4)
            tile->x[r * STRIP + c] = ((const float *)strip->from)[at];
        else
            ((uint16_t *)tile->x)[r * STRIP + c] = ((const uint16_t *)strip->from)[at];
    }
}
DEVICE void bring_tile(struct column_tile *tile, const struct strip *strip, int64_t first_row,
                       int32_t dtype, int thread, int threads)
{
    const int bytes = dtype == CUDA_F32 ? 4 : 2;
    if (is_aligned(strip, bytes))
        bring_chunks(tile, strip, first_row, bytes, thread, threads);
    else
        bring_elements(tile, strip, first_row, bytes, thread, threads);
}

DEVICE int64_t tiles_of(int64_t rows)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS;
}
DEVICE int rows_of_tile(int64_t rows, int64_t tile)
{
    return (int)least_i64(rows - tile * TILE_ROWS, TILE_ROWS);
}

/* ---- sums ---- */

/* A full tile is read ahead of the chain. */
DEVICE float add_rows(float sum, const struct column_tile *tile, int rows, int32_t dtype)
{
    const int lane = THREAD % WARP;
    if (rows == TILE_ROWS) {
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++)
            sum += load_as(tile->x, r * STRIP + lane, dtype);
        return sum;
    }
    for (int r = 0; r < rows; r++)
        sum += load_as(tile->x, r * STRIP + lane, dtype);
    return sum;
}

DEVICE void reduce_strip(struct reduce_shared *s, const struct strip *strip, float *sum,
                         int32_t dtype)
{
    const int64_t tiles = tiles_of(strip->rows);
    for (int64_t t = -TILE_AHEAD; t < tiles; t++) {
        const int64_t next = t + TILE_AHEAD;
        copies_wait(TILE_AHEAD - 1);
        block_barrier();
        bring_tile(&s->x[next % REDUCE_RING], strip, next * TILE_ROWS, dtype, THREAD, THREADS);
        copies_commit();
        if (t >= 0 && THREAD < WARP)
            *sum = add_rows(*sum, &s->x[t % REDUCE_RING], rows_of_tile(strip->rows, t), dtype);
    }
}

KERNEL(reduce_columns, struct cuda_reduce_args, CUDA_COLUMN_THREADS)
{
    SHARED(struct reduce_shared, s);
    const int64_t strips = (args->inner + STRIP - 1) / STRIP, outer = BLOCK / strips;
    const int64_t bytes = args->dtype == CUDA_F32 ? 4 : 2;
    const char *from = (const char *)args->x + outer * args->reduced * args->inner * bytes;
    const struct strip strip = {from, args->reduced, args->inner, 0, 0, BLOCK % strips * STRIP};
    const int64_t c = strip.first_column + THREAD;
    float sum = 0;
    BY_TYPE(args->dtype, reduce_strip, s, &strip, &sum);
    if (THREAD < STRIP && c < args->inner)
        put_as(args->y, outer * args->inner + c, args->factor * sum, args->accumulate,
               args->dtype_out);
}

/* ---- gradients of a norm's parameters ---- */

/* The threads behind the first two warps bring and prepare tiles. */
#define PREPARER (THREAD - 2 * WARP)
#define PREPARERS (CUDA_COLUMN_THREADS - 2 * WARP)
SAME(PREPARERS, TILE_ROWS);

DEVICE void bring_norm(const struct cuda_norm_backward_args *args, struct norm_columns_shared *s,
                       int64_t tile, int32_t dtype)
{
    const int64_t first_row = tile * TILE_ROWS, slot = tile % NORM_RING, row = first_row + PREPARER;
    struct strip strip = {args->dy,    args->rows,         args->columns,
                          args->group, args->group_stride, BLOCK * STRIP};
    bring_tile(&s->dy[slot], &strip, first_row, dtype, PREPARER, PREPARERS);
    strip.from = args->x;
    bring_tile(&s->x[slot], &strip, first_row, dtype, PREPARER, PREPARERS);
    if (row < args->rows && !args->rms)
        copy4_later(&s->mean[slot][PREPARER], &args->mean[row]);
    if (row < args->rows)
        copy4_later(&s->rstd[slot][PREPARER], &args->rstd[row]);
    copies_commit();
}

/* Four columns of a row at once; what lies behind the last row or column is not used. */
DEVICE void make_xhat(struct norm_columns_shared *s, int64_t tile, int32_t rms, int32_t dtype)
{
    const int64_t slot = tile % NORM_RING;
    const int c = PREPARER % (STRIP / 4) * 4;
    UNROLL
    for (int i = 0; i < TILE_ROWS * STRIP / 4 / PREPARERS; i++) {
        const int r = PREPARER / (STRIP / 4) + i * (PREPARERS / (STRIP / 4));
        const struct four_f32 x = load_four_as(s->x[slot].x, r * STRIP + c, dtype);
        const float mean = rms ? 0 : s->mean[slot][r], rstd = s->rstd[slot][r];
        struct four_f32 xhat;
        UNROLL
        for (int j = 0; j < 4; j++)
            xhat.x[j] = (x.x[j] - mean) * rstd;
        *(struct four_f32 *)&s->xhat[tile % 2].x[r * STRIP + c] = xhat;
    }
}

DEVICE float add_gamma(float sum, const struct column_tile *dy, const struct column_tile *xhat,
                       int rows, int32_t dtype)
{
    const int lane = THREAD % WARP;
    if (rows == TILE_ROWS) {
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++)
            sum = v1_fma(load_as(dy->x, r * STRIP + lane, dtype), xhat->x[r * STRIP + lane], sum);
        return sum;
    }
    for (int r = 0; r < rows; r++)
        sum = v1_fma(load_as(dy->x, r * STRIP + lane, dtype), xhat->x[r * STRIP + lane], sum);
    return sum;
}

/* In turn t tile t is added, tile t + 1 prepared, and tile t + 4 sets out. */
DEVICE void norm_strip(const struct cuda_norm_backward_args *args, struct norm_columns_shared *s,
                       float *sum, int32_t dtype)
{
    const int64_t tiles = tiles_of(args->rows);
    for (int64_t t = -NORM_RING + 1; t < tiles; t++) {
        const int rows = rows_of_tile(args->rows, t);
        copies_wait(TILE_AHEAD - 1);
        block_barrier();
        if (PREPARER >= 0) {
            bring_norm(args, s, t + NORM_RING - 1, dtype);
            if (t >= -1)
                make_xhat(s, t + 1, args->rms, dtype);
        } else if (t >= 0 && THREAD < WARP) {
            *sum = add_gamma(*sum, &s->dy[t % NORM_RING], &s->xhat[t % 2], rows, dtype);
        } else if (t >= 0) {
            *sum = add_rows(*sum, &s->dy[t % NORM_RING], rows, dtype);
        }
    }
}

KERNEL(norm_backward_columns, struct cuda_norm_backward_args, CUDA_COLUMN_THREADS)
{
    SHARED(struct norm_columns_shared, s);
    float sum = 0;
    BY_TYPE(args->dtype, norm_strip, args, s, &sum);
    const int64_t c = BLOCK * STRIP + THREAD % WARP;
    float *to = THREAD < WARP ? args->dgamma : PREPARER < 0 ? args->dbeta : 0;
    if (to != 0 && c < args->columns)
        to[c] = args->accumulate_params ? to[c] + sum : sum;
}
