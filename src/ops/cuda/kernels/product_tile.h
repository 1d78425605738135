/* product_tile - a product with tiles of TILE x TILE elements, PART x PART of them in a thread's
 * registers, of which halves lie TILE / 2 apart. No include guard: products.cu includes it for each
 * size.
 *
 *   stage  DEPTH elements of each row of A and of each column of B ("line"), k by k behind each
 *          other. One of the two is multiplied while copies fill the other.
 *   warp   4 x 8 threads, so that its reads of a stage are 64 and 128 contiguous bytes
 *
 * Copies of fp32 arrive later. Elements of 2 bytes are widened, so they are read and stored. */

enum { PRODUCT(DEPTH) = 16, PRODUCT(THREADS) = TILE / PART * (TILE / PART) };
enum { PRODUCT(HALF) = PART / 2, PRODUCT(SIDE) = TILE / PART };
struct PRODUCT(product_stage) {
    float a[PRODUCT(DEPTH)][TILE + 4], b[PRODUCT(DEPTH)][TILE + 4];
};
struct PRODUCT(product_shared) {
    struct PRODUCT(product_stage) stage[2];
};
SAME(PRODUCT(THREADS), 256);
SAME(PRODUCT(SIDE), 16); /* two warps by four */
SAME(sizeof(struct PRODUCT(product_shared)),
     TILE == CUDA_PRODUCT_TILE ? CUDA_PRODUCT_SHARED : CUDA_PRODUCT_LARGE_SHARED);

/* Of a matrix whose k-neighbours lie side by side a warp brings 8 elements of 4 lines each time:
 * whole sectors of memory, and all banks of shared memory. */
DEVICE void PRODUCT(bring_along_k)(float to[PRODUCT(DEPTH)][TILE + 4], const struct operand *from,
                                   int64_t k, int32_t dtype)
{
    const int line = THREAD / WARP * 4 + THREAD % WARP / 8, d = THREAD % 8;
    UNROLL
    for (int i = 0; i < TILE / WARP; i++)
        UNROLL
    for (int j = 0; j < PRODUCT(DEPTH); j += 8)
        if (line + i * WARP < from->lines && d + j < from->depth - k)
            bring_element(&to[d + j][line + i * WARP], from,
                          (line + i * WARP) * from->stride + k + d + j, dtype);
}
/* Of one whose lines lie side by side a warp brings 32 lines of one k, or 128 of fp32 that are
 * aligned. */
DEVICE void PRODUCT(bring_along_lines)(float to[PRODUCT(DEPTH)][TILE + 4],
                                       const struct operand *from, int64_t k, int32_t dtype)
{
    const int d = THREAD / WARP, line = THREAD % WARP;
    UNROLL
    for (int j = 0; j < PRODUCT(DEPTH); j += 8)
        UNROLL
    for (int i = 0; i < TILE / WARP; i++)
        if (line + i * WARP < from->lines && d + j < from->depth - k)
            bring_element(&to[d + j][line + i * WARP], from,
                          (k + d + j) * from->stride + line + i * WARP, dtype);
}
DEVICE void PRODUCT(bring_fours)(float to[PRODUCT(DEPTH)][TILE + 4], const struct operand *from,
                                 int64_t k)
{
    const int d = THREAD / (TILE / 4), line = THREAD % (TILE / 4) * 4;
    UNROLL
    for (int j = 0; j < PRODUCT(DEPTH); j += PRODUCT(THREADS) / (TILE / 4))
        if (d + j < from->depth - k)
            copy16_later(&to[d + j][line],
                         (const float *)from->first + (k + d + j) * from->stride + line);
}
DEVICE void PRODUCT(bring)(float to[PRODUCT(DEPTH)][TILE + 4], const struct operand *from,
                           int64_t k, int32_t dtype)
{
    if (from->along_k)
        PRODUCT(bring_along_k)(to, from, k, dtype);
    else if (dtype == CUDA_F32 && from->fours && from->lines >= TILE)
        PRODUCT(bring_fours)(to, from, k);
    else
        PRODUCT(bring_along_lines)(to, from, k, dtype);
}
DEVICE void PRODUCT(bring_stage)(struct PRODUCT(product_stage) * stage, const struct operand *a,
                                 const struct operand *b, int64_t k, int32_t dtype)
{
    PRODUCT(bring)(stage->a, a, k, dtype);
    PRODUCT(bring)(stage->b, b, k, dtype);
    copies_commit();
}

/* Where part i of a thread lies in the tile. */
DEVICE int PRODUCT(part_at)(int thread, int i)
{
    return thread * PRODUCT(HALF) + i % PRODUCT(HALF) + i / PRODUCT(HALF) * (TILE / 2);
}

DEVICE void PRODUCT(multiply_at)(float sum[PART][PART], const struct PRODUCT(product_stage) * stage,
                                 int m_thread, int n_thread, int d)
{
    float a[PART], b[PART];
    UNROLL
    for (int i = 0; i < PART; i++) {
        a[i] = stage->a[d][PRODUCT(part_at)(m_thread, i)];
        b[i] = stage->b[d][PRODUCT(part_at)(n_thread, i)];
    }
    UNROLL
    for (int i = 0; i < PART; i++)
        UNROLL
    for (int j = 0; j < PART; j++)
        sum[i][j] = v1_fma(a[i], b[j], sum[i][j]);
}
/* A k behind the last one adds nothing, not even zeros: they would change the sign of -0. */
DEVICE void PRODUCT(multiply)(float sum[PART][PART], const struct PRODUCT(product_stage) * stage,
                              int m_thread, int n_thread, int64_t left)
{
    if (left >= PRODUCT(DEPTH)) {
        UNROLL
        for (int d = 0; d < PRODUCT(DEPTH); d++)
            PRODUCT(multiply_at)(sum, stage, m_thread, n_thread, d);
        return;
    }
    UNROLL_BY_1
    for (int d = 0; d < left; d++)
        PRODUCT(multiply_at)(sum, stage, m_thread, n_thread, d);
}

/* The tile's sums pass through shared memory, so that neighbours finish what lies side by side. */
DEVICE void PRODUCT(finish_tile)(const struct cuda_gemm_args *args, const float sum[PART][PART],
                                 float row[PRODUCT(SIDE)][TILE + 4], int64_t m_first,
                                 int64_t n_first, int m_thread, int n_thread)
{
    UNROLL_BY_1
    for (int i = 0; i < PART; i++) {
        block_barrier();
        UNROLL
        for (int q = 0; q < PART; q++)
            UNROLL
        for (int j = 0; j < PART; j++)
            if (q == i)
                row[m_thread][PRODUCT(part_at)(n_thread, j)] = sum[q][j];
        block_barrier();
        UNROLL_BY_1
        for (int at = THREAD; at < PRODUCT(SIDE) * TILE; at += PRODUCT(THREADS)) {
            const int64_t m = m_first + PRODUCT(part_at)(at / TILE, i), n = n_first + at % TILE;
            if (m < args->m && n < args->n)
                finish_product(args, m, n, row[at / TILE][at % TILE]);
        }
    }
}

DEVICE void PRODUCT(add_products)(float sum[PART][PART], struct PRODUCT(product_shared) * s,
                                  const struct operand *a, const struct operand *b, int m_thread,
                                  int n_thread, int32_t dtype)
{
    int next = 0;
    PRODUCT(bring_stage)(&s->stage[0], a, b, 0, dtype);
    for (int64_t k = 0; k < a->depth; k += PRODUCT(DEPTH)) {
        const int now = next;
        next = 1 - now;
        copies_wait(0);
        block_barrier();
        PRODUCT(bring_stage)(&s->stage[next], a, b, k + PRODUCT(DEPTH), dtype);
        PRODUCT(multiply)(sum, &s->stage[now], m_thread, n_thread, a->depth - k);
    }
    copies_wait(0);
}

KERNEL_TOGETHER(PRODUCT_KERNEL, struct cuda_gemm_args, 256, 2)
{
    SHARED(struct PRODUCT(product_shared), s);
    int64_t m_first, n_first;
    tile_of_block(args, TILE, &m_first, &n_first);
    const struct operand a = operand_of(args, args->a, m_first, args->m, args->lda, !args->trans_a);
    const struct operand b = operand_of(args, args->b, n_first, args->n, args->ldb, args->trans_b);
    const int lane = THREAD % WARP, warp = THREAD / WARP;
    const int m_thread = warp / 2 * 4 + lane / 8, n_thread = warp % 2 * 8 + lane % 8;
    float sum[PART][PART] = {{0}};
    if (args->dtype_ab == CUDA_F32)
        PRODUCT(add_products)(sum, s, &a, &b, m_thread, n_thread, CUDA_F32);
    else
        PRODUCT(add_products)(sum, s, &a, &b, m_thread, n_thread, args->dtype_ab);
    PRODUCT(finish_tile)(args, sum, s->stage[0].a, m_first, n_first, m_thread, n_thread);
}
