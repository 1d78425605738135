/* table - the backend's one symbol per instruction set, and the question whether this CPU can run
 * it. */
#include "base/cpu.h"
#include "ops/cpu/isa.h"

extern const struct shoali_ops_table SHOALI_CPU_PASTE_TABLE(SHOALI_ISA);

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* The compiler's builtin also checks that the operating system keeps the wide registers. */
static bool probe(void)
{
#if defined(__AVX512F__)
    __builtin_cpu_init();
    bool able = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("fma");
#if defined(__AVX512BF16__)
    able = able && __builtin_cpu_supports("avx512bf16");
#endif
    return able;
#elif defined(__AVX2__)
    __builtin_cpu_init();
    /* F16C, which clang 14 cannot ask for, came earlier than AVX2 in every line of CPUs. */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif SHOALI_CPU_NEON
    const struct shoali_cpu cpu = shoali_cpu_get();
    return cpu.asimd && (cpu.bf16 || !SHOALI_CPU_BFDOT);
#else
    return true;
#endif
}

#define KERNEL(name, dtypes) {&shoali_kernel_##name, SHOALI_CPU_SYMBOL(name), dtypes, NULL, NULL},
#define SOME(name, dtypes, predicate) \
    {&shoali_kernel_##name, SHOALI_CPU_SYMBOL(name), dtypes, SHOALI_CPU_SYMBOL(predicate), NULL},
#define WORKING(name, dtypes)                                      \
    {&shoali_kernel_##name, SHOALI_CPU_SYMBOL(name), dtypes, NULL, \
     SHOALI_CPU_SYMBOL(name##_workspace)},
static const struct shoali_ops_entry entries[] = {SHOALI_CPU_KERNELS(KERNEL, SOME, WORKING)};

const struct shoali_ops_table SHOALI_CPU_PASTE_TABLE(SHOALI_ISA) = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
    .name = "cpu-" TEXT(SHOALI_ISA),
    .probe = probe,
    .entries = entries,
    .entry_count = sizeof entries / sizeof entries[0],
    .packed_b_bytes = SHOALI_CPU_SYMBOL(packed_b_bytes),
    .explain_gemm = SHOALI_CPU_SYMBOL(explain_gemm),
};
