/* attention_backward - what a call, a head and an operand of the gradients are
 * (attention_backward.c), and what lies between the products (attention_backward_soft.c). */
#ifndef SHOALI_OPS_CPU_ATTENTION_BACKWARD_H
#define SHOALI_OPS_CPU_ATTENTION_BACKWARD_H

#include "ops/cpu/attention.h"

#include <stdatomic.h>

/* Queries of a tile: the sums over queries are as long, and dK, dV are read and written as rarely.
 */
#define ATT_QUERIES (2 * ATT_TILE)

struct backward {
    const struct shoali_attention_backward_args *args;
    atomic_bool failed; /* a thread had no memory */
    bool pairs;
    bool a_direct; /* rows of Q and dO are broadcast from where they are */
    bool b_direct; /* rows of Q and dO are read as [k][columns] where they are */
    bool k_direct; /* and those of K */
    float scale;   /* with log2(e) in it */
    int64_t kv_tiles, d_width, d_steps, a_ld;
    int64_t keys_ld;                      /* of dk and dv when they are summed transposed */
    int64_t transposed_words, rows_words; /* of one packed tile */
};

/* An operand of a query tile: how it is read as A (rows) and as B (columns). */
struct operand {
    struct gemm_source source;
    uint32_t *a_copy, *b_copy;
    const char *a, *b;
    int64_t a_row, b_step;
};

struct backward_head {
    const struct backward *shared;
    struct operand q, dout;
    struct gemm_source k, v;
    struct att_fetches fetches;
    int64_t query_head, kv_head, kv_heads_end; /* of all samples; the thread's last one + 1 */
    int64_t first, started; /* keys [first, started): their dk and dv hold a sum */
    struct shoali_attention_sight sight;
    const char *out;
    char *dq;
    const float *lse;
    float *delta;
    uint64_t random_base, random_row;
    uint32_t *kt, *vt, *k_rows; /* tiles: K^T, V^T, K */
    float *dk, *dv, *dq_sum;    /* fp32 sums, rows d_width apart */
    float shift[ATT_QUERIES];   /* -lse of the query tile, in powers of two */
    float *s, *dp;              /* of a group: [ATT_GROUP][64] */
    char *p, *ds;               /* [128][64], or [64][64] words of two queries */
    char *ds_rows;              /* [128][64]: ds itself, or bf16 */
};

/* Scores s and dP of a group become P and dS in p, ds and ds_rows; what is not seen becomes
 * zeros. */
void SHOALI_CPU_SYMBOL(att_soft_gradients)(const struct backward_head *head,
                                           const struct att_group *g);

#endif
