/* Products of matrices in dot order: one accumulator for each element, k upward, by fma. Two sizes of
 * tiles: the large one where there is work for all multiprocessors. */
#include "ops/cuda/kernels/activation.h"
#include "ops/cuda/kernels/lanes.h"

DEVICE void finish_product(const struct cuda_gemm_args *args, int64_t m, int64_t n, float v)
{
    const int64_t at = m * args->ldc + n;
    if (args->before != 0)
        v = args->k > 0 ? args->before[at] + v : args->before[at];
    if (args->fixed != 0) {
        const double x = (double)v;
        int64_t contribution = 0;
        if (fabs(x) < args->limit)
            contribution = (int64_t)rint(x * args->unit);
        else
            atomic_or_u32(args->flag, 1);
        args->fixed[at] = args->accumulate
                              ? (int64_t)((uint64_t)args->fixed[at] + (uint64_t)contribution)
                              : contribution;
        return;
    }
    if (args->accumulate)
        v = load_as(args->c, at, args->dtype_c) + v;
    if (args->bias != 0)
        v += load_as(args->bias, n, args->dtype_bias);
    if (args->preact != 0) {
        store_as(args->preact, at, v, args->dtype_c);
        v = load_as(args->preact, at, args->dtype_c);
    }
    if (args->activation >= 0)
        v = function_of(args->activation, v, 0);
    if (args->residual != 0)
        v = load_as(args->residual, at, args->dtype_c) + v;
    store_as(args->c, at, v, args->dtype_c);
}

/* Some lines of a matrix: rows of A or columns of B. */
struct operand {
    const void *first;
    int64_t lines, depth, stride;
    int along_k, fours; /* fours: 4 elements of fp32 begin at multiples of 16 bytes */
};
DEVICE struct operand operand_of(const struct cuda_gemm_args *args, const void *matrix,
                                 int64_t first, int64_t end, int64_t stride, int along_k)
{
    const int64_t at = along_k ? first * stride : first;
    const char *begin = (const char *)matrix + at * (args->dtype_ab == CUDA_F32 ? 4 : 2);
    const struct operand operand = {begin,  end - first, args->k,
                                    stride, along_k,     ((uintptr_t)begin | 4 * stride) % 16 == 0};
    return operand;
}
DEVICE void bring_element(float *to, const struct operand *from, int64_t at, int32_t dtype)
{
    if (dtype == CUDA_F32)
        copy4_later(to, (const float *)from->first + at);
    else
        *to = load_as(from->first, at, dtype);
}

/* Blocks that run together share few lines of A and few of B: eight tiles down, then to the right. */
enum { TILES_DOWN = 8 };
DEVICE void tile_of_block(const struct cuda_gemm_args *args, int tile, int64_t *m_first,
                          int64_t *n_first)
{
    const int64_t tiles_m = (args->m + tile - 1) / tile, tiles_n = (args->n + tile - 1) / tile;
    const int64_t band = BLOCK / (TILES_DOWN * tiles_n), in_band = BLOCK % (TILES_DOWN * tiles_n);
    const int64_t down = least_i64(tiles_m - band * TILES_DOWN, TILES_DOWN);
    *m_first = (band * TILES_DOWN + in_band % down) * tile;
    *n_first = in_band / down * tile;
}

#define TILE CUDA_PRODUCT_TILE
#define PART 4
#define PRODUCT(name) name##_small
#define PRODUCT_KERNEL gemm
#include "ops/cuda/kernels/product_tile.h"
#undef TILE
#undef PART
#undef PRODUCT
#undef PRODUCT_KERNEL

#define TILE CUDA_PRODUCT_LARGE_TILE
#define PART 8
#define PRODUCT(name) name##_large
#define PRODUCT_KERNEL gemm_large
#include "ops/cuda/kernels/product_tile.h"
#undef TILE
#undef PART
#undef PRODUCT
#undef PRODUCT_KERNEL

KERNEL(finish, struct cuda_finish_args, 256)
{
    for (int64_t i = FIRST; i < args->rows * args->columns; i += STEP) {
        const int64_t row = i / args->columns, at = row * args->stride + (i - row * args->columns);
        float v = load_as(args->x, at, args->dtype);
        if (args->activation >= 0)
            v = function_of(args->activation, v, 0);
        if (args->residual != 0)
            v = load_as(args->residual, at, args->dtype) + v;
        store_as(args->y, at, v, args->dtype);
    }
}
