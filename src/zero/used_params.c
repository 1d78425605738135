/* Counts of ranks in fields of words. */
#include "zero/used_params.h"

/* Bits of a field: it holds 0 .. world. */
static int32_t field_bits(const struct shoali_zero_setup *setup)
{
    return shoali_zero_ceil_log2((int64_t)setup->world + 1);
}

static int32_t fields_per_word(const struct shoali_zero_setup *setup)
{
    return 62 / field_bits(setup);
}

int32_t shoali_zero_used_words(const struct shoali_zero_setup *setup)
{
    const int32_t fields = fields_per_word(setup);
    return (setup->args.module->param_count + fields - 1) / fields;
}

void shoali_zero_pack_used(const struct shoali_zero_setup *setup, int64_t *words)
{
    const int32_t fields = fields_per_word(setup), bits = field_bits(setup);
    for (int32_t i = 0; i < shoali_zero_used_words(setup); i++)
        words[i] = 0;
    for (int32_t i = 0; i < setup->args.module->param_count; i++)
        if (setup->args.module->param[i]->has_gradient)
            words[i / fields] += (int64_t)1 << i % fields * bits;
}

void shoali_zero_unpack_used(const struct shoali_zero_setup *setup, const int64_t *words)
{
    const int32_t fields = fields_per_word(setup), bits = field_bits(setup);
    const int64_t mask = ((int64_t)1 << bits) - 1;
    for (int32_t i = 0; i < setup->args.module->param_count; i++)
        setup->args.module->param[i]->has_gradient =
            (words[i / fields] >> i % fields * bits & mask) != 0;
}
