/* attention_backward_soft - of attention's gradients what lies between the products: P =
 * exp(S*scale - lse) with its dropout and dS = P (dP - delta), two queries at a time, rounded and
 * laid out as the products read them.
 */
#include "ops/cpu/attention_backward.h"

/* Two queries, whose P and dS may share words. */
struct two_rows {
    int64_t row; /* in the tile */
    struct shoali_attention_keys seen[2];
    const float *s[2], *dp[2];
    v16 shift[2], delta[2];
    uint64_t keeps[2]; /* with dropout */
};

/* P with dropout and dS of sixteen keys of row i. */
SHOALI_INLINE void soft_unit(const struct backward_head *head, const struct two_rows *two, int i,
                             int64_t at, bool full, bool dropout, v16 *p, v16 *ds)
{
    const int64_t begin = full ? 0 : two->seen[i].begin - at;
    const int64_t end = full ? 16 : two->seen[i].end - at;
    v16 dp = v16_load(two->dp[i] + at);
    *p = v16_fma(v16_load(two->s[i] + at), v16_set1(head->shared->scale), two->shift[i]);
    *p = att_lanes(att_exp2(*p, head->shared->pairs), begin, end, 0.0f);
    v16 dropped = *p;
    if (dropout) {
        const v16 kept = att_kept(two->keeps[i], at, head->shared->args->dropout);
        dropped = v16_mul(*p, kept);
        dp = v16_mul(dp, kept);
    }
    *ds = att_lanes(v16_mul(*p, v16_sub(dp, two->delta[i])), begin, end, 0.0f);
    *p = dropped;
}

/* Thirty-two keys of both rows, to where the products read them. */
SHOALI_INLINE void store_two(const struct backward_head *head, int64_t row, int64_t at, v16 p[2][2],
                             v16 ds[2][2], bool pairs)
{
    const int64_t bytes = pairs ? 2 : 4;
    SHOALI_UNROLL
    for (int i = 0; i < 2; i++) {
        att_store(head->ds_rows + ((row + i) * ATT_TILE + at) * bytes, ds[i][0], ds[i][1], pairs);
        if (pairs) {
            const int64_t word = row / 2 * ATT_TILE + at + 16 * i;
            att_store_pair(head->p + 4 * word, p[0][i], p[1][i]);
            att_store_pair(head->ds + 4 * word, ds[0][i], ds[1][i]);
        } else {
            att_store(head->p + ((row + i) * ATT_TILE + at) * bytes, p[i][0], p[i][1], false);
        }
    }
}

SHOALI_INLINE void soft_two(const struct backward_head *head, const struct two_rows *two, bool full,
                            bool pairs, bool dropout)
{
    const int64_t seen = full ? ATT_TILE : SHOALI_MAX(two->seen[0].end, two->seen[1].end);
    v16 p[2][2], ds[2][2];
    int64_t at = 0;
    for (; at < seen; at += 32) {
        SHOALI_UNROLL
        for (int i = 0; i < 4; i++)
            soft_unit(head, two, i / 2, at + 16 * (i % 2), full, dropout, &p[i / 2][i % 2],
                      &ds[i / 2][i % 2]);
        store_two(head, two->row, at, p, ds, pairs);
    }
    for (int i = 0; i < 4; i++)
        p[i / 2][i % 2] = ds[i / 2][i % 2] = v16_set1(0.0f);
    for (; at < ATT_TILE; at += 32)
        store_two(head, two->row, at, p, ds, pairs);
}

/* Scores and dP of a group become P and dS; what is not seen becomes zeros. */
SHOALI_INLINE void soft_rows(const struct backward_head *head, const struct att_group *g,
                             bool pairs, bool dropout)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    for (int64_t r = 0; r < g->rows; r += 2) {
        struct two_rows two = {.row = g->at + r};
        for (int i = 0; i < 2; i++) {
            const bool there = r + i < g->rows;
            const int64_t t = g->t0 + two.row + (there ? i : 0);
            if (there)
                two.seen[i] = att_seen(&head->sight, t, g->j);
            two.s[i] = head->s + (r + i) * ATT_TILE;
            two.dp[i] = head->dp + (r + i) * ATT_TILE;
            two.shift[i] = v16_set1(head->shift[t - g->t0]);
            two.delta[i] = v16_set1(head->delta[t]);
            const uint64_t random =
                head->random_base + (uint64_t)t * head->random_row + (uint64_t)g->j;
            if (dropout)
                two.keeps[i] = att_keeps(&args->random, random, two.seen[i].end, args->dropout);
        }
        if (two.seen[0].begin == 0 && two.seen[0].end == ATT_TILE && two.seen[1].begin == 0 &&
            two.seen[1].end == ATT_TILE)
            soft_two(head, &two, true, pairs, dropout);
        else
            soft_two(head, &two, false, pairs, dropout);
    }
    if (!SHOALI_CPU_TILES)
        return;
    for (int64_t r = (g->rows + 1) / 2 * 2; r < ATT_GROUP; r += 2) { /* to the end of a step */
        const int64_t word = (g->at + r) / 2 * ATT_TILE;
        memset(head->p + 4 * word, 0, 4 * ATT_TILE);
        memset(head->ds + 4 * word, 0, 4 * ATT_TILE);
    }
}

void SHOALI_CPU_SYMBOL(att_soft_gradients)(const struct backward_head *head,
                                           const struct att_group *g)
{
    const bool dropout = head->shared->args->dropout > 0;
#if SHOALI_CPU_PAIRS
    if (head->shared->pairs) {
        if (dropout)
            soft_rows(head, g, true, true);
        else
            soft_rows(head, g, true, false);
        return;
    }
#endif
    if (dropout)
        soft_rows(head, g, false, true);
    else
        soft_rows(head, g, false, false);
}
