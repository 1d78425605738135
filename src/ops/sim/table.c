/* table - kernels for the memory of the simulated device, for tests (SHOAL_OPS=sim): the oracle's.
 */
#include "ops/ref/ref.h"

static bool probe(void)
{
    return true;
}

static const struct shoali_ops_entry entries[] = {
    {&shoali_kernel_norm, shoali_ref_norm, SHOALI_ALL_DTYPES, NULL, NULL},
};

const struct shoali_ops_table shoali_ops_sim = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
    .name = "sim",
    .probe = probe,
    .entries = entries,
    .entry_count = sizeof entries / sizeof entries[0],
    .by_name = true,
    .memory = "sim",
};
