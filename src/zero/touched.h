/* touched - which parameters got a gradient in this step, by any rank: the last words of the step's
 * message. A parameter's field counts ranks, so fields add up like the other words.
 */
#ifndef SHOALI_ZERO_TOUCHED_H
#define SHOALI_ZERO_TOUCHED_H

#include "zero/setup.h"

int32_t shoali_zero_touched_words(const struct shoali_zero_setup *setup);
void shoali_zero_pack_touched(const struct shoali_zero_setup *setup, int64_t *words);
void shoali_zero_unpack_touched(const struct shoali_zero_setup *setup, const int64_t *words);

#endif
