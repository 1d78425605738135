/* inference.h - text from a trained checkpoint.
 *
 * One rank, fp32, KV cache: a token costs one row through the model. When the context is full
 * (max_position_embeddings) the last half of it is read again and generation goes on. The same
 * (checkpoint, prompt, options, kernels) gives the same text; the bits of the logits are not
 * promised to equal those of a training forward pass.
 */
#ifndef SHOAL_INFERENCE_H
#define SHOAL_INFERENCE_H

#include "shoal/data.h"
#include "shoal/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_generator shoal_generator;

typedef struct shoal_generator_args {
    const char *load, *tag; /* checkpoint folder as written by `shoal pretrain`; tag NULL: latest */
    const char *accelerator; /* NULL: environment, detection */
    const char *ops;
    int32_t threads; /* 0: all cores */
} shoal_generator_args;

/* Reads model, tokenizer and weights. Not collective. *generator is owned. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_create(const shoal_generator_args *args,
                                                            shoal_generator **generator);
SHOAL_API void shoal_generator_destroy(shoal_generator *generator); /* NULL is fine */
SHOAL_API const shoal_tokenizer *
shoal_generator_tokenizer(const shoal_generator *generator); /* borrowed */
SHOAL_API const shoal_gpt_config *
shoal_generator_config(const shoal_generator *generator); /* borrowed */
SHOAL_API int64_t
shoal_generator_step(const shoal_generator *generator); /* training step of the checkpoint */

/* Receives each new token as it comes; a negative return stops the generation with that status. */
typedef shoal_status (*shoal_token_sink)(void *user, int32_t token);

typedef struct shoal_sample_args {
    const int32_t *prompt; /* at least one token */
    int64_t prompt_count, num_tokens;
    double temperature; /* > 0; ignored with top_k 1 */
    int64_t top_k;      /* 0: all; 1: argmax */
    uint64_t seed;
} shoal_sample_args;
/* Generates num_tokens tokens. SHOAL_EINVAL for an empty prompt or values out of range. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generate(shoal_generator *generator,
                                                    const shoal_sample_args *args,
                                                    shoal_token_sink sink, void *user);

#ifdef __cplusplus
}
#endif
#endif
