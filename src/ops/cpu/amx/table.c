/* table - cpu-amx or cpu-amx-emulated, and the question whether this process can run it. */
#include "ops/cpu/amx/amx.h"

#include "base/cpu.h"

extern const struct shoali_ops_table SHOALI_CPU_PASTE_TABLE(SHOALI_ISA);

#define BF16 (1u << SHOAL_BF16)

/* The real one asks for the permission to use tiles, which is the whole process's: a table is
 * selected before there are threads that compute. */
static bool probe(void)
{
#if defined(SHOALI_AMX_EMULATED)
#if defined(__AVX2__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
#else
    const struct shoali_cpu cpu = shoali_cpu_get();
    __builtin_cpu_init();
    return cpu.amx_tile && cpu.amx_bf16 && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("avx512bf16") && shoali_cpu_permit_tiles();
#endif
}

#define WORKING(name)                                               \
    {                                                               \
        &shoali_kernel_##name, SHOALI_CPU_SYMBOL(name), BF16, NULL, \
            SHOALI_CPU_SYMBOL(name##_workspace)                     \
    }
static const struct shoali_ops_entry entries[] = {
    WORKING(gemm),
    {&shoali_kernel_pack_b, SHOALI_CPU_SYMBOL(pack_b), BF16, NULL, NULL},
    WORKING(attention),
    WORKING(attention_backward),
};

const struct shoali_ops_table SHOALI_CPU_PASTE_TABLE(SHOALI_ISA) = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
#if defined(SHOALI_AMX_EMULATED)
    .name = "cpu-amx-emulated",
    .by_name = true,
#else
    .name = "cpu-amx",
#endif
    .probe = probe,
    .entries = entries,
    .entry_count = sizeof entries / sizeof entries[0],
    .packed_b_bytes = SHOALI_CPU_SYMBOL(packed_b_bytes),
};
