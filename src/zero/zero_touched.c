/* Which parameters got a gradient in this step, by any rank: part of the step's shared record. A
 * parameter's field counts ranks, so fields add up like the record's other words. */
#include "zero/zero_internal.h"

/* Bits of a field: it holds 0 .. world. */
static int32_t field_bits(const struct shoali_zero *zero)
{
    return shoali_zero_ceil_log2((int64_t)zero->world + 1);
}

static int32_t fields_per_word(const struct shoali_zero *zero)
{
    return 62 / field_bits(zero);
}

int32_t shoali_zero_touched_words(const struct shoali_zero *zero)
{
    const int32_t fields = fields_per_word(zero);
    return (zero->args.module->param_count + fields - 1) / fields;
}

void shoali_zero_pack_touched(const struct shoali_zero *zero, int64_t *words)
{
    const int32_t fields = fields_per_word(zero), bits = field_bits(zero);
    for (int32_t i = 0; i < shoali_zero_touched_words(zero); i++)
        words[i] = 0;
    for (int32_t i = 0; i < zero->args.module->param_count; i++)
        if (zero->args.module->param[i]->touched)
            words[i / fields] += (int64_t)1 << i % fields * bits;
}

void shoali_zero_unpack_touched(const struct shoali_zero *zero, const int64_t *words)
{
    const int32_t fields = fields_per_word(zero), bits = field_bits(zero);
    const int64_t mask = ((int64_t)1 << bits) - 1;
    for (int32_t i = 0; i < zero->args.module->param_count; i++)
        zero->args.module->param[i]->touched = (words[i / fields] >> i % fields * bits & mask) != 0;
}
