/* attention.c - queues attention and its gradients: by tensor cores where they take it, else by the
 * kernels with the bits of `ref`. */
#include "ops/cuda/blas.h"

#include <string.h>

/* What both passes have in common. */
#define COMMON(given)                                                                            \
    .q = (given)->q, .k = (given)->k, .v = (given)->v, .key_count = (given)->key_count,          \
    .batch = (given)->batch, .q_len = (given)->q_len, .kv_len = (given)->kv_len,                 \
    .heads = (given)->heads, .kv_heads = (given)->kv_heads, .head_size = (given)->head_size,     \
    .q_stride = (given)->q_stride, .kv_stride = (given)->kv_stride,                              \
    .out_stride = (given)->out_stride, .window = (given)->window,                                \
    .threshold = shoali_dropout_threshold((given)->dropout), .scale = (float)(given)->scale,     \
    .keep_scale = (given)->dropout > 0 ? (float)(1.0 / (1.0 - (double)(given)->dropout)) : 0.0f, \
    .causal = (given)->causal, .dtype = (int32_t)(given)->dtype

static void set_mask(struct cuda_attention_args *own, const struct shoali_attention_mask *given,
                     const struct shoali_stream *random)
{
    const struct shoali_attention_mask mask =
        shoali_attention_mask_of(given, own->heads, own->q_len, own->kv_len);
    own->first_sample = mask.first_sample;
    own->mask_heads = mask.heads;
    own->first_head = mask.first_head;
    own->mask_queries = mask.queries;
    own->first_query = mask.first_query;
    own->mask_keys = mask.keys;
    own->first_key = mask.first_key;
    memcpy(&own->random, random, sizeof own->random);
}

static int64_t tiles_of(int64_t vectors, int64_t tile)
{
    return (vectors + tile - 1) / tile;
}

static void queue(const struct shoali_kernel_context *context, enum cuda_kernel kernel,
                  const struct cuda_attention_args *own, int64_t blocks, int32_t shared_bytes)
{
    if (blocks > 0)
        shoali_cuda_queue(context, kernel, own,
                          (struct shoali_cuda_grid){.blocks = blocks,
                                                    .threads = CUDA_ATTENTION_THREADS,
                                                    .shared_bytes = shared_bytes});
}

/* ---- tensor cores ---- */

/* Copies of 16 bytes need addresses and strides that are multiples of it. */
static bool is_aligned(const void *array, int64_t stride)
{
    return (uintptr_t)array % 16 == 0 && stride % 8 == 0;
}

/* The kernels count tokens in 32 bits, and divide by the scale. */
static bool takes_matrices(const struct cuda_attention_args *own)
{
    return own->dtype != CUDA_F32 && (own->head_size == 64 || own->head_size == 128) &&
           is_aligned(own->q, own->q_stride) && is_aligned(own->k, own->kv_stride) &&
           is_aligned(own->v, own->kv_stride) && own->scale > 0 && own->q_len < INT32_MAX / 4 &&
           own->kv_len < INT32_MAX / 4 && own->window < INT32_MAX / 4 && !shoali_blas_is_off();
}

/* Which of the kernels: those for bf16, each with both sizes, then those for fp16. */
static int kernel_of(const struct cuda_attention_args *own)
{
    return 2 * (own->dtype == CUDA_F16) + (own->head_size == 128);
}

static bool attend_by_matrices(const struct cuda_attention_args *own,
                               const struct shoali_kernel_context *context)
{
    static const enum cuda_kernel kernels[] = {CUDA_attention_bf16_64, CUDA_attention_bf16_128,
                                               CUDA_attention_f16_64, CUDA_attention_f16_128};
    if (!takes_matrices(own) || !is_aligned(own->o, own->out_stride))
        return false;
    queue(context, kernels[kernel_of(own)], own,
          own->batch * own->heads * tiles_of(own->q_len, CUDA_ATTENTION_QUERIES),
          CUDA_ATTENTION_FORWARD_SHARED((int32_t)own->head_size));
    return true;
}

static bool differentiate_by_matrices(const struct cuda_attention_args *own,
                                      const struct shoali_kernel_context *context)
{
    static const enum cuda_kernel kernels[][2] = {
        {CUDA_attention_dq_bf16_64, CUDA_attention_dkv_bf16_64},
        {CUDA_attention_dq_bf16_128, CUDA_attention_dkv_bf16_128},
        {CUDA_attention_dq_f16_64, CUDA_attention_dkv_f16_64},
        {CUDA_attention_dq_f16_128, CUDA_attention_dkv_f16_128}};
    if (!takes_matrices(own) || !is_aligned(own->out, own->out_stride) ||
        !is_aligned(own->dout, own->out_stride) || !is_aligned(own->dq, own->q_stride) ||
        !is_aligned(own->dk, own->kv_stride) || !is_aligned(own->dv, own->kv_stride))
        return false;
    queue(context, kernels[kernel_of(own)][0], own,
          own->batch * own->heads * tiles_of(own->q_len, CUDA_ATTENTION_OWN),
          CUDA_ATTENTION_DQ_SHARED((int32_t)own->head_size));
    queue(context, kernels[kernel_of(own)][1], own,
          own->batch * own->kv_heads * tiles_of(own->kv_len, CUDA_ATTENTION_OWN),
          CUDA_ATTENTION_DKV_SHARED((int32_t)own->head_size));
    return true;
}

/* ---- table ---- */

void shoali_cuda_attention(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_attention_args *given = args;
    struct cuda_attention_args own = {COMMON(given), .o = given->out, .lse = given->lse};
    set_mask(&own, &given->mask, &given->random);
    if (!attend_by_matrices(&own, context))
        queue(context, CUDA_attention, &own,
              own.batch * own.heads * tiles_of(own.q_len, CUDA_ATTENTION_FEW),
              CUDA_ATTENTION_SHARED);
}

void shoali_cuda_attention_backward(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_attention_backward_args *given = args;
    struct cuda_attention_args own = {COMMON(given),         .out = given->out,
                                      .dout = given->dout,   .lse = (float *)(uintptr_t)given->lse,
                                      .delta = given->delta, .dq = given->dq,
                                      .dk = given->dk,       .dv = given->dv};
    set_mask(&own, &given->mask, &given->random);
    if (differentiate_by_matrices(&own, context))
        return;
    queue(context, CUDA_attention_dq, &own,
          own.batch * own.heads * tiles_of(own.q_len, CUDA_ATTENTION_FEW), CUDA_ATTENTION_SHARED);
    queue(context, CUDA_attention_dkv, &own,
          own.batch * own.kv_heads * tiles_of(own.kv_len, CUDA_ATTENTION_FEW),
          CUDA_ATTENTION_SHARED);
}
