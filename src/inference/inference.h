/* inference - generation from a checkpoint: weights through zero and checkpoint, math through the
 * op fronts. Level L8, beside engine.
 *
 *   generator.c  opening: client JSON -> model and tokenizer -> module, weights, buffers
 *   gpt_cache.c  the model's rows with a KV cache: layer i keeps K and V as [max positions, C]
 *   sample.c     logits to a token
 */
#ifndef SHOALI_INFERENCE_H
#define SHOALI_INFERENCE_H

#include "autograd/autograd.h"
#include "shoal/inference.h"
#include "transformer/transformer.h"
#include "zero/zero.h"

/* Device addresses of one block's weights; biases NULL when the model has none. */
struct shoali_block_weights {
    const void *ln_1[2], *attn[2], *attn_proj[2], *ln_2[2], *fc[2], *proj[2]; /* weight, bias */
};

struct shoal_generator {
    shoal_model *model;
    const shoal_gpt_config *config;
    shoal_tokenizer *tokenizer;
    int64_t step;
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_ops ops;
    struct shoali_exec exec;
    struct shoali_module module;
    struct shoali_zero *zero;

    struct shoali_block_weights *block;
    const void *wte, *wpe, *ln_f[2], *head;
    float **key, **value; /* [layers], device [max positions, C] */
    void *memory;         /* device: all buffers below and the caches */
    float *x, *y, *qkv, *wide, *logits, *mean, *rstd, *lse;
    int32_t *ids;
    int64_t *bad_id;
    float *host_logits;
    int64_t cached; /* positions in the cache */
};

/* Runs `count` tokens at positions cached .. cached+count-1 and leaves the last row's logits in
 * host_logits. */
SHOAL_CHECKED shoal_status shoali_generator_append(shoal_generator *generator,
                                                   const int32_t *tokens, int64_t count);
/* Places buffers and finds the weights. */
SHOAL_CHECKED shoal_status shoali_generator_prepare(shoal_generator *generator);
/* Draws the index-th token from `logits[count]` (changed). */
int32_t shoali_sample_token(float *logits, int64_t count, const shoal_sample_args *args,
                            uint64_t index);

#endif
