/* mathx_internal - how mathx uses the hardware's fma without changing a bit.
 *
 * fma() is exact by definition, in hardware or emulated, so both give the same bits; the first is
 * some fifty times faster. Each function's body is inlined twice: once into a function that may use
 * the instruction, chosen when the processor has it, and once without. No product meets a sum
 * outside an explicit fma() unless the product is exact, so that contraction by a compiler changes
 * nothing.
 */
#ifndef SHOALI_MATHX_INTERNAL_H
#define SHOALI_MATHX_INTERNAL_H

#include <stdbool.h>

#define MATHX_BODY static inline __attribute__((always_inline))
#if defined(__x86_64__) && !defined(__FMA__)
#define MATHX_FMA __attribute__((target("fma")))

static inline bool has_fma(void)
{
    return __builtin_cpu_supports("fma");
}
#else
#define MATHX_FMA

static inline bool has_fma(void)
{
    return true;
}
#endif

#endif
