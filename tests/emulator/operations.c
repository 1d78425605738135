/* operations.c - what the lanes of a warp do together. */
#include "emulator.h"

#define EXCHANGE(name, type, value)                                                            \
    void name(const void *const in[32], void *const out[32], uint32_t mask)                    \
    {                                                                                          \
        for (int lane = 0; lane < 32; lane++) {                                                \
            const type *mine = in[lane];                                                       \
            if (!(mask >> lane & 1))                                                           \
                continue;                                                                      \
            const int other = lane ^ mine->lanes;                                              \
            if (other > 31 || !(mask >> other & 1))                                            \
                emulator_finding("lane %d takes the value of lane %d, which gives none", lane, \
                                 other);                                                       \
            *(value *)out[lane] = ((const type *)in[other])->x;                                \
        }                                                                                      \
    }
EXCHANGE(emulator_xor_f32, struct emulator_lane_f32, float)
EXCHANGE(emulator_xor_i64, struct emulator_lane_i64, int64_t)
EXCHANGE(emulator_xor_f64, struct emulator_lane_f64, double)

void emulator_ballot(const void *const in[32], void *const out[32], uint32_t mask)
{
    uint32_t bits = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            bits |= (uint32_t)(*(const int *)in[lane] != 0) << lane;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            *(uint32_t *)out[lane] = bits;
}
