/* vmath_partial - the first n of sixteen numbers in memory, through a copy: for vectors without
 * masks. Included by those. */
#ifndef SHOALI_OPS_VMATH_PARTIAL_H
#define SHOALI_OPS_VMATH_PARTIAL_H

/* LOAD_n and STORE_n of functions for all sixteen. The other lanes are +0. */
#define SHOALI_PARTIAL(element, load, store)              \
    SHOALI_V v16 load##_n(const element *p, int64_t n)    \
    {                                                     \
        element all[16] = {0};                            \
        memcpy(all, p, (size_t)n * sizeof *p);            \
        return load(all);                                 \
    }                                                     \
    SHOALI_V void store##_n(element *p, int64_t n, v16 x) \
    {                                                     \
        element all[16];                                  \
        store(all, x);                                    \
        memcpy(p, all, (size_t)n * sizeof *p);            \
    }
SHOALI_PARTIAL(uint16_t, v16_load_bf16, v16_store_bf16)
SHOALI_PARTIAL(uint16_t, v16_load_f16, v16_store_f16)

#endif
