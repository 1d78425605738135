/* used_params - which parameters got a gradient in this step, by any rank. They are the last words
 * of the step's message. A parameter's field counts ranks, so fields add up like the other words.
 */
#ifndef SHOALI_ZERO_USED_PARAMS_H
#define SHOALI_ZERO_USED_PARAMS_H

#include "zero/setup.h"

int32_t shoali_zero_used_words(const struct shoali_zero_setup *setup);
void shoali_zero_pack_used(const struct shoali_zero_setup *setup, int64_t *words);
void shoali_zero_unpack_used(const struct shoali_zero_setup *setup, const int64_t *words);

#endif
