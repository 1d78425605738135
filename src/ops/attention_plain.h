/* attention_plain - attention in plain loops that need no working memory, for host memory: what the
 * reference computes, and the last resort of kernels whose working memory cannot be had. */
#ifndef SHOALI_OPS_ATTENTION_PLAIN_H
#define SHOALI_OPS_ATTENTION_PLAIN_H

#include "ops/ops.h"

void shoali_attention_plain(const struct shoali_attention_args *args);
void shoali_attention_backward_plain(const struct shoali_attention_backward_args *args);

#endif
