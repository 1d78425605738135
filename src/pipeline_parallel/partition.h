/* partition - which layers belong to which virtual stage. Level L6; pure functions.
 *
 * A model's layers are an array {first, ..., last}; a partition is the index at which each
 * virtual stage begins, in the order of virtual stages (chunk * p + stage): layers stay in order.
 * The first layer is the embedding (E), the last the head with the loss (L), those between are
 * Megatron's decoder layers (t).
 *
 *   uniform        as many layers on each, of all; the first ones get what is left
 *   parameters     the largest and the smallest sum of weights differ least; of equal ones
 *                  that whose last boundary is latest (the default of DeepSpeed's pipeline modules)
 *   flops          the same for the FLOPs of forward: stages take equally long (ours; the default)
 *   type:REGEX     the same for the number of layers whose type matches (POSIX extended, any case)
 *   even           decoder layers alone: the same number on each (Megatron's default). `first` and
 *                  `last` give those stages another number; `embedding` and `loss` count E and L as
 *                  a decoder layer
 *   layout:TEXT    "Et*3|(tt|)*2tL": E, t and L as they follow, | between virtual stages, x*N and
 *                  (...)*N repeat, commas and spaces mean nothing. Stages may be empty
 *
 * Sources: deepspeed.runtime.utils (uniform, balanced), Megatron-LM's pipeline layout.
 */
#ifndef SHOALI_PARTITION_H
#define SHOALI_PARTITION_H

#include "base/base.h"

enum shoali_partition_method {
    SHOALI_PARTITION_UNIFORM,
    SHOALI_PARTITION_PARAMETERS,
    SHOALI_PARTITION_FLOPS,
    SHOALI_PARTITION_TYPE,
    SHOALI_PARTITION_EVEN,
    SHOALI_PARTITION_LAYOUT
};
struct shoali_partition_layer {
    const char *type; /* "gpt_block" */
    double weight;    /* what the method balances: parameters or FLOPs */
};
struct shoali_partition_args {
    int32_t stages, chunks;
    const struct shoali_partition_layer *layers;
    int32_t layer_count;
    enum shoali_partition_method method;
    const char *text;     /* of TYPE and LAYOUT: what is behind the colon */
    int32_t first, last;  /* of EVEN: decoder layers of these stages; 0: as the others */
    bool embedding, loss; /* of EVEN: they count as a layer */
};
/* "uniform", "parameters", "flops", "type:REGEX", "even", "layout:TEXT", in any case. *text is
 * behind the colon. SHOAL_EINVAL names the nearest; `profile` is not one of them, and that is
 * said. */
SHOAL_CHECKED shoal_status shoali_partition_parse(const char *method,
                                                  enum shoali_partition_method *parsed,
                                                  const char **text);
/* begin: [stages * chunks + 1], the last is layer_count. SHOAL_EINVAL, with a sentence: more
 * virtual stages than layers, counts that do not divide, a regex that matches nothing, a layout
 * that is not one of this model. */
SHOAL_CHECKED shoal_status shoali_partition_make(const struct shoali_partition_args *args,
                                                 int32_t *begin);

/* Virtual stages that a layout has; of a model of so many layers, which the text must not
 * exceed. */
SHOAL_CHECKED shoal_status shoali_partition_layout_parts(const char *text, int32_t layer_count,
                                                         int32_t *parts);
/* Layers per virtual stage by a layout; counts[stages * chunks] of all symbols. Decoder layers and
 * virtual stages must be as many as args says. */
SHOAL_CHECKED shoal_status shoali_partition_layout(const struct shoali_partition_args *args,
                                                   int32_t *counts);

#endif
