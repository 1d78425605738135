/* arguments - argument blocks of the kernels for GPUs, for their text and for the functions that
 * queue them. Types of elements are numbers of shoal_dtype, kinds those of ops/ops.h. */
#ifndef SHOALI_OPS_CUDA_ARGUMENTS_H
#define SHOALI_OPS_CUDA_ARGUMENTS_H

#include <stdint.h>

enum { CUDA_F32, CUDA_BF16, CUDA_F16 };
/* Bytes of shared memory of a block: the kernels' own structs are as large. */
enum {
    CUDA_ATTENTION_SHARED =
        4 * (128 * 65 + 8 * 64 + 2 * 8 * 128 + 8 + 2 * 8) + 8 * (2 * 8 + 2 * 128 + 2 * 128),
    CUDA_COLUMN_TILE = 64 * 32 * 4,
    CUDA_REDUCE_SHARED = 4 * CUDA_COLUMN_TILE,
    CUDA_NORM_COLUMNS_SHARED = 5 * (2 * CUDA_COLUMN_TILE + 2 * 64 * 4) + 2 * CUDA_COLUMN_TILE,
    CUDA_EMBEDDING_SHARED = 256 * 4 + 8 * 4,
    CUDA_NORM2_SHARED = 256 * 3 * 8,
    CUDA_PRODUCT_SHARED = 4 * 16 * (64 + 4) * 4,
    CUDA_PRODUCT_LARGE_SHARED = 4 * 16 * (128 + 4) * 4
};
enum {
    CUDA_ATTENTION_THREADS = 128,
    CUDA_ATTENTION_FEW = 8,
    CUDA_ATTENTION_QUERIES = 128, /* by tensor cores: of a block of the forward pass, */
    CUDA_ATTENTION_OWN = 64,      /* and queries or keys of a block of the backward pass */
    CUDA_COLUMN_THREADS = 128,
    CUDA_STRIP = 32,
    CUDA_PRODUCT_TILE = 64,
    CUDA_PRODUCT_LARGE_TILE = 128,
    CUDA_TABLE_ROWS = 128
};

/* Attention by tensor cores: rows of the other side in a tile, and bytes of shared memory. */
#define CUDA_ATTENTION_TILE(head) ((head) == 64 ? 64 : 32)
#define CUDA_ATTENTION_FORWARD_SHARED(head)                                        \
    (((head) + 8) * 2 * (CUDA_ATTENTION_QUERIES + 4 * CUDA_ATTENTION_TILE(head)) + \
     16 * CUDA_ATTENTION_QUERIES + 16)
#define CUDA_ATTENTION_BACKWARD_ROWS(head) \
    (((head) + 8) * 2 * (2 * CUDA_ATTENTION_OWN + 4 * CUDA_ATTENTION_TILE(head)))
#define CUDA_ATTENTION_DQ_SHARED(head) \
    (CUDA_ATTENTION_BACKWARD_ROWS(head) + 20 * CUDA_ATTENTION_OWN)
#define CUDA_ATTENTION_DKV_SHARED(head) \
    (CUDA_ATTENTION_BACKWARD_ROWS(head) + 8 * CUDA_ATTENTION_OWN + 24 * CUDA_ATTENTION_TILE(head))

struct cuda_axpy_args {
    const void *x; /* 0: y = 0 */
    void *y;
    int64_t count;
    float a;
    int32_t accumulate, dtype;
};
struct cuda_binary_args {
    const void *a, *b;
    void *y;
    int64_t count, b_count;
    int32_t kind, accumulate, dtype;
};
struct cuda_unary_args {
    const void *x, *dy;
    void *y;
    int64_t count;
    float alpha;
    int32_t kind, backward, accumulate, dtype;
};
struct cuda_glu_args {
    const void *x, *dy;
    void *y;
    int64_t rows, columns;
    int32_t kind, backward, accumulate, dtype;
};
struct cuda_convert_args {
    const void *x;
    void *y;
    int64_t count;
    int32_t dtype, dtype_out; /* floats */
};
struct cuda_set_args {
    void *y;
    int64_t count;
    uint64_t bits; /* of an element */
    int32_t bytes; /* of an element: 1, 2, 4 or 8 */
};
enum { CUDA_MAX_DIMS = 5 };
struct cuda_copy_strided_args {
    const void *x;
    void *y;
    int32_t ndim, bytes, accumulate, dtype;
    int64_t count; /* the product of dim */
    int64_t dim[CUDA_MAX_DIMS], x_stride[CUDA_MAX_DIMS], y_stride[CUDA_MAX_DIMS];
};

/* Rows of `columns` elements; with group > 0 in groups of so many, group_stride apart. */
struct cuda_norm_args {
    const void *x, *gamma, *beta;
    void *y;
    float *mean, *rstd; /* mean may be 0 */
    int64_t rows, columns, group, group_stride;
    float eps;
    int32_t rms, gamma_plus_one, dtype;
};
struct cuda_norm_backward_args {
    const void *x, *gamma, *dy;
    const float *mean, *rstd;
    void *dx;
    float *dgamma, *dbeta;
    int64_t rows, columns, group, group_stride;
    int32_t rms, gamma_plus_one, accumulate_dx, accumulate_params, dtype;
};
struct cuda_reduce_args {
    const void *x;
    void *y;
    int64_t outer, reduced, inner;
    float factor;
    int32_t accumulate, lanes, dtype, dtype_out; /* lanes: a contiguous row in lane order */
};

/* Losses. A target's probability and each other class's; others 0: labels are not smoothed. */
struct cuda_cross_entropy_args {
    const void *logits;
    const int32_t *targets;
    float *loss, *lse;
    int64_t rows, columns, stride;
    float target, others;
    int32_t dtype;
};
struct cuda_cross_entropy_tile_args {
    const void *logits;
    const int32_t *targets;
    float *largest, *loss, *lse;
    int64_t rows, columns, stride, first, vocabulary;
    float target, others;
    int32_t dtype;
};
struct cuda_cross_entropy_backward_args {
    const void *logits;
    const int32_t *targets;
    const float *lse, *dloss, *count;
    void *dlogits;
    int64_t rows, columns, stride, stride_out, first;
    float wanted, others; /* wanted: of the target, 1 without smoothing */
    int32_t dtype, dtype_out;
};
struct cuda_loss_mean_args {
    const float *loss;
    const int32_t *targets;
    float *mean, *count;
    int64_t rows;
};

struct cuda_random {
    uint32_t key[2], high[2];
};
enum { CUDA_RUN_DIMS = 8 };
struct cuda_dropout_args {
    const void *x, *residual;
    void *y;
    int64_t count, first_element;
    int64_t run_count[CUDA_RUN_DIMS], run_stride[CUDA_RUN_DIMS];
    struct cuda_random random;
    uint32_t threshold;
    float scale;
    int32_t run_dims, accumulate, dtype;
};
enum { CUDA_ROTARY_PAIRS = 128 };
struct cuda_rotary_args {
    const void *x;
    void *y;
    int64_t rows, length, columns, heads, head_size, rotary_size, first_position;
    int32_t interleaved, inverse, accumulate, dtype;
    float inverse_frequency[CUDA_ROTARY_PAIRS];
};
struct cuda_embedding_args {
    const int32_t *ids;
    const void *table, *positions;
    void *out;
    int64_t *bad_id;
    int64_t rows, columns, table_rows, period, first_position, first_row, whole_rows;
    int32_t dtype;
};
struct cuda_embedding_backward_args {
    const int32_t *ids;
    const void *dout;
    float *dtable, *dpositions;
    int64_t rows, columns, table_rows, period, first_position, first_row;
    int32_t dtype;
};

struct cuda_to_fixed_args {
    const float *x;
    int64_t *fixed;
    uint32_t *flag;
    int64_t count, columns, stride; /* of rows: count is those times columns */
    double unit, limit;
    int32_t accumulate;
};
struct cuda_from_fixed_args {
    const int64_t *fixed;
    float *y;
    int64_t count;
    double unit, divisor;
};
struct cuda_norm2_args {
    const float *x;
    uint64_t *limbs;
    uint32_t *flag;
    int64_t count;
};
struct cuda_adam_args {
    float *param, *exp_avg, *exp_avg_sq;
    const float *grad, *control;
    void *low;
    int64_t count;
    float beta1, beta2, rest1, rest2, eps, weight_decay, decay, step_size, inv_sqrt_c2;
    int32_t decoupled, low_dtype;
};

struct cuda_gemm_args {
    const void *a, *b;
    void *c;
    const void *bias, *residual;
    void *preact;
    const float *before;
    int64_t *fixed;
    uint32_t *flag;
    int64_t m, n, k, lda, ldb, ldc;
    double unit, limit;                               /* with fixed */
    int32_t trans_a, trans_b, accumulate, activation; /* activation: a kind of unary, or -1 */
    int32_t dtype_ab, dtype_c, dtype_bias;
};

/* y = act(x) + residual, each of `rows` rows with this stride; x may be y. */
struct cuda_finish_args {
    const void *x, *residual;
    void *y;
    int64_t rows, columns, stride;
    int32_t activation, dtype;
};

struct cuda_attention_args {
    const void *q, *k, *v, *out, *dout;
    const int32_t *key_count;
    void *o; /* of the forward pass */
    float *lse, *delta;
    void *dq, *dk, *dv;
    int64_t batch, q_len, kv_len, heads, kv_heads, head_size;
    int64_t q_stride, kv_stride, out_stride, window;
    /* of the dropout mask: extents, and where the call's own begin */
    int64_t first_sample, mask_heads, first_head, mask_queries, first_query, mask_keys, first_key;
    struct cuda_random random;
    uint32_t threshold;
    float scale, keep_scale; /* keep_scale 0: no dropout */
    int32_t causal, dtype;
};

#endif
