/* table - the backend's one symbol per instruction set, and the question whether this CPU can run
 * it. */
#include "ops/cpu/isa.h"

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
#else
    return true;
#endif
}

const struct shoali_ops_table SHOALI_CPU_PASTE_TABLE(SHOALI_ISA) = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
    .name = "cpu-" TEXT(SHOALI_ISA),
    .probe = probe,
    .dtypes = 1u << SHOAL_F32 | 1u << SHOAL_BF16 | 1u << SHOAL_F16,
    .reduce_dtypes = 1u << SHOAL_F32 | 1u << SHOAL_BF16 | 1u << SHOAL_F16 | 1u << SHOAL_I64,
    .packed_b_bytes = SHOALI_CPU_SYMBOL(packed_b_bytes),
    .gemm = SHOALI_CPU_SYMBOL(gemm),
    .pack_b = SHOALI_CPU_SYMBOL(pack_b),
    .attention = SHOALI_CPU_SYMBOL(attention),
    .attention_backward = SHOALI_CPU_SYMBOL(attention_backward),
    .norm = SHOALI_CPU_SYMBOL(norm),
    .norm_backward = SHOALI_CPU_SYMBOL(norm_backward),
    .embedding = SHOALI_CPU_SYMBOL(embedding),
    .embedding_backward = SHOALI_CPU_SYMBOL(embedding_backward),
    .cross_entropy = SHOALI_CPU_SYMBOL(cross_entropy),
    .cross_entropy_backward = SHOALI_CPU_SYMBOL(cross_entropy_backward),
    .cross_entropy_tile = SHOALI_CPU_SYMBOL(cross_entropy_tile),
    .cross_entropy_tile_backward = SHOALI_CPU_SYMBOL(cross_entropy_tile_backward),
    .softmax = SHOALI_CPU_SYMBOL(softmax),
    .dropout = SHOALI_CPU_SYMBOL(dropout),
    .unary = SHOALI_CPU_SYMBOL(unary),
    .binary = SHOALI_CPU_SYMBOL(binary),
    .axpy = SHOALI_CPU_SYMBOL(axpy),
    .reduce = SHOALI_CPU_SYMBOL(reduce),
    .broadcast = SHOALI_CPU_SYMBOL(broadcast),
    .copy_strided = SHOALI_CPU_SYMBOL(copy_strided),
    .convert = SHOALI_CPU_SYMBOL(convert),
    .set = SHOALI_CPU_SYMBOL(set),
    .random_fill = SHOALI_CPU_SYMBOL(random_fill),
    .to_fixed = SHOALI_CPU_SYMBOL(to_fixed),
    .from_fixed = SHOALI_CPU_SYMBOL(from_fixed),
    .norm2 = SHOALI_CPU_SYMBOL(norm2),
    .adam = SHOALI_CPU_SYMBOL(adam),
    .sgd = SHOALI_CPU_SYMBOL(sgd),
    .reduce_sources = SHOALI_CPU_SYMBOL(reduce_sources),
    .quantize = SHOALI_CPU_SYMBOL(quantize),
    .dequantize = SHOALI_CPU_SYMBOL(dequantize),
};
