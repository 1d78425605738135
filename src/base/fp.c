/* fp - the floating-point control word that everything computes with. */
#include "base/pool.h"

/* Round to nearest, denormals kept, no traps. */
#if defined(__x86_64__)
enum { FP_CONTROL = 0x1f80 };

uint32_t shoali_fp_enter(void)
{
    uint32_t saved = __builtin_ia32_stmxcsr();
    if (saved != FP_CONTROL)
        __builtin_ia32_ldmxcsr(FP_CONTROL);
    return saved;
}

void shoali_fp_leave(uint32_t saved)
{
    __builtin_ia32_ldmxcsr(saved);
}
#elif defined(__aarch64__)
uint32_t shoali_fp_enter(void)
{
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return (uint32_t)saved;
}

void shoali_fp_leave(uint32_t saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)saved));
}
#else
#include <fenv.h>

uint32_t shoali_fp_enter(void)
{
    int saved = fegetround();
    fesetround(FE_TONEAREST);
    return (uint32_t)saved;
}

void shoali_fp_leave(uint32_t saved)
{
    fesetround((int)saved);
}
#endif
