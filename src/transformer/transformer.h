/* transformer - layers and models from autograd's ops; names of the stored tensors. Level L7.
 *
 * Only the public autograd interface is used: a model here is what a user could write.
 */
#ifndef SHOALI_TRANSFORMER_H
#define SHOALI_TRANSFORMER_H

#include "base/base.h"
#include "shoal/transformer.h"

/* One GPT model: everything behind the public shoal_model. */
struct shoali_gpt {
    shoal_model model; /* first: the public handle is its address */
    shoal_gpt_config config;
    int64_t padded_vocab;
    struct shoali_arena arena;
};
static inline const struct shoali_gpt *shoali_gpt_of(const shoal_model *model)
{
    return (const struct shoali_gpt *)(const void *)model;
}
/* The layer kinds, in order of use. Config of each: struct shoali_gpt. */
extern const shoal_layer_type shoali_gpt_embedding, shoali_gpt_block, shoali_gpt_head;

#endif
