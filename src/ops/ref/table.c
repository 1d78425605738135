/* table - the oracle's table: every kernel, for every dtype. */
#include "ops/ref/ref.h"

static bool probe(void)
{
    return true;
}

#define KERNEL(name) {&shoali_kernel_##name, shoali_ref_##name, SHOALI_ALL_DTYPES, NULL, NULL},
static const struct shoali_ops_entry entries[] = {SHOALI_REF_KERNELS(KERNEL)};

const struct shoali_ops_table shoali_ops_ref = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
    .name = "ref",
    .probe = probe,
    .entries = entries,
    .entry_count = sizeof entries / sizeof entries[0],
};
