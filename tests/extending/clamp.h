/* clamp - the kernel of the recipe in docs/EXTENDING.md, as a header would have it. */
#ifndef EXTENDING_CLAMP_H
#define EXTENDING_CLAMP_H

#include "ops/cpu/isa.h"
#include "ops/ops.h"

#include "clamp_args.inc"

/* What a line of the lists of ref.h and isa.h declares. */
#define KERNEL(name) \
    void shoali_ref_##name(const void *args, const struct shoali_kernel_context *context);
#include "clamp_ref_line.inc"
#undef KERNEL
#define KERNEL(name, dtypes) \
    void SHOALI_CPU_SYMBOL(name)(const void *args, const struct shoali_kernel_context *context);
#include "clamp_fast_line.inc"
#undef KERNEL

#endif
