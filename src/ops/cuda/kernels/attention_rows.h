/* attention_rows - rows of a head in shared memory and their fragments. No include guard:
 * attention_mma.cu includes it for each size and type. HEAD is the size of a head, SIZED(name)
 * gives names of their own, MULTIPLY, PAIR and WIDEN are functions for the type.
 *
 * Rows have 16 bytes behind them: eight rows then lie in eight different groups of banks. */

enum {
    SIZED(ROW) = HEAD + 8,
    SIZED(STEPS) = HEAD / 16,  /* of 16 elements */
    SIZED(COLUMNS) = HEAD / 8, /* of 8 elements */
    SIZED(TILE) = CUDA_ATTENTION_TILE(HEAD),
    SIZED(KEEPS) = HEAD == 64 /* whether a warp's own rows stay in registers */
};
typedef uint16_t SIZED(row)[SIZED(ROW)];

/* Rows of global memory that the block copies together: the thread's part of the next ones. */
struct SIZED(source) {
    const uint16_t *next;
    int64_t step; /* to its next row */
};
enum { SIZED(AT_ONCE) = MMA_THREADS / SIZED(COLUMNS) };
DEVICE struct SIZED(source) SIZED(source_at)(const void *array, int64_t at, int64_t stride)
{
    struct SIZED(source) source;
    const int row = THREAD / SIZED(COLUMNS), column = THREAD % SIZED(COLUMNS) * 8;
    source.next = (const uint16_t *)array + at + row * stride + column;
    source.step = SIZED(AT_ONCE) * stride;
    return source;
}
/* Brings the next `count` rows; zeros from row `there` on, where there is none. */
DEVICE void SIZED(fetch)(SIZED(row) * to, struct SIZED(source) * source, int count, int there)
{
    const int row = THREAD / SIZED(COLUMNS), column = THREAD % SIZED(COLUMNS) * 8;
    UNROLL
    for (int i = 0; i < count; i += SIZED(AT_ONCE), source->next += source->step)
        copy16_or_zero_later(&to[row + i][column], source->next, row + i < there);
}

/* An a: 16 rows and 16 elements of each. */
DEVICE void SIZED(load_a)(uint32_t a[4], SIZED(row) * rows, int element)
{
    load_matrices(a, &rows[LANE % 16][element + LANE / 16 * 8]);
}
/* Two b, one behind the other, of 16 rows that are columns of b. */
DEVICE void SIZED(load_b)(uint32_t b[4], SIZED(row) * rows, int element)
{
    load_matrices(b, &rows[LANE / 16 * 8 + LANE % 8][element + LANE / 8 % 2 * 8]);
}
/* Two b of 16 rows that are rows of b: the elements from `element` on, and from 8 behind them. */
DEVICE void SIZED(load_b_across)(uint32_t b[4], SIZED(row) * rows, int element)
{
    load_matrices_transposed(b, &rows[LANE % 16][element + LANE / 16 * 8]);
}

/* An a of two neighbouring d. */
DEVICE void SIZED(pack)(uint32_t a[4], float left[4], float right[4])
{
    a[0] = PAIR(left[0], left[1]);
    a[1] = PAIR(left[2], left[3]);
    a[2] = PAIR(right[0], right[1]);
    a[3] = PAIR(right[2], right[3]);
}

/* Writes 16 rows of sums, times a factor for each of the lane's two rows, through the warp's own 16
 * rows of shared memory: 16 bytes an access. */
DEVICE void SIZED(write)(void *to, int64_t at, int64_t stride, SIZED(row) * rows,
                         float sum[SIZED(COLUMNS)][4], const float factor[2], int there)
{
    warp_barrier();
    UNROLL
    for (int n = 0; n < SIZED(COLUMNS); n++)
        UNROLL
    for (int r = 0; r < 2; r++)
        ((struct words1 *)&rows[LANE_ROW + 8 * r][8 * n + LANE_COLUMN])->word =
            PAIR(sum[n][2 * r] * factor[r], sum[n][2 * r + 1] * factor[r]);
    warp_barrier();
    for (int i = LANE; i < 16 * SIZED(COLUMNS); i += WARP) {
        const int row = i / SIZED(COLUMNS), column = i % SIZED(COLUMNS) * 8;
        if (row < there)
            *(struct words4 *)((uint16_t *)to + at + row * stride + column) =
                *(const struct words4 *)&rows[row][column];
    }
}

/* ---- the backward pass ---- */

/* Fragments of the warp's 16 rows of two matrices. */
struct SIZED(own) {
    uint32_t a[SIZED(KEEPS) ? SIZED(STEPS) : 1][4], b[SIZED(KEEPS) ? SIZED(STEPS) : 1][4];
};
DEVICE void SIZED(load_own)(struct SIZED(own) * own, SIZED(row) * a, SIZED(row) * b)
{
    UNROLL
    for (int step = 0; step < SIZED(STEPS) && SIZED(KEEPS); step++) {
        SIZED(load_a)(own->a[step], a, step * 16);
        SIZED(load_a)(own->b[step], b, step * 16);
    }
}
/* Products of the warp's rows of a with 16 rows of c, and of b with d. */
DEVICE void SIZED(two_products)(float x[2][4], float y[2][4], struct SIZED(own) * own,
                                SIZED(row) * a, SIZED(row) * b, SIZED(row) * c, SIZED(row) * d)
{
    UNROLL
    for (int step = 0; step < SIZED(STEPS); step++) {
        uint32_t m[4];
        const int kept = SIZED(KEEPS) ? step : 0;
        if (!SIZED(KEEPS)) {
            SIZED(load_a)(own->a[0], a, step * 16);
            SIZED(load_a)(own->b[0], b, step * 16);
        }
        SIZED(load_b)(m, c, step * 16);
        MULTIPLY(x[0], own->a[kept], m);
        MULTIPLY(x[1], own->a[kept], m + 2);
        SIZED(load_b)(m, d, step * 16);
        MULTIPLY(y[0], own->b[kept], m);
        MULTIPLY(y[1], own->b[kept], m + 2);
    }
}
/* Adds the product of 16 x 16 numbers, as two d, and 16 rows. */
DEVICE void SIZED(add_product)(float sum[SIZED(COLUMNS)][4], float x[2][4], SIZED(row) * rows)
{
    uint32_t a[4];
    SIZED(pack)(a, x[0], x[1]);
    UNROLL
    for (int n = 0; n < SIZED(COLUMNS); n += 2) {
        uint32_t m[4];
        SIZED(load_b_across)(m, rows, n * 8);
        MULTIPLY(sum[n], a, m);
        MULTIPLY(sum[n + 1], a, m + 2);
    }
}
