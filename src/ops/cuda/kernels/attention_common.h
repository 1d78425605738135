/* attention_common - which keys a query of attention sees, and where its dropout mask begins, for
 * all kernels of attention. */
#ifndef SHOALI_OPS_CUDA_ATTENTION_COMMON_H
#define SHOALI_OPS_CUDA_ATTENTION_COMMON_H

#include "ops/cuda/kernels/random.h"

/* Numbers of heads, tiles and queries fit 32 bits: a division of 64 would be a call, which costs
 * registers. */
DEVICE int64_t quotient(int64_t a, int64_t b)
{
    return (int64_t)((uint32_t)a / (uint32_t)b);
}
DEVICE int64_t remainder_of(int64_t a, int64_t b)
{
    return (int64_t)((uint32_t)a % (uint32_t)b);
}

/* The keys of a sample that are not behind its count. */
DEVICE int64_t keys_of(const struct cuda_attention_args *args, int64_t b)
{
    if (args->key_count != 0 && args->key_count[b] < args->kv_len)
        return args->key_count[b] > 0 ? args->key_count[b] : 0;
    return args->kv_len;
}

/* Index of key 0 in the dropout mask. */
DEVICE uint64_t mask_at(const struct cuda_attention_args *args, int64_t b, int64_t h, int64_t t)
{
    uint64_t mask = (uint64_t)(args->first_sample + b) * (uint64_t)args->mask_heads;
    mask = (mask + (uint64_t)(args->first_head + h)) * (uint64_t)args->mask_queries;
    mask = (mask + (uint64_t)(args->first_query + t)) * (uint64_t)args->mask_keys;
    return mask + (uint64_t)args->first_key;
}

#endif
