/* plants - mistakes that are built into kernels, for the tests of the emulator. */
#ifndef SHOAL_TEST_PLANTS_H
#define SHOAL_TEST_PLANTS_H

#include <stdint.h>

enum { PLANT_THREADS = 64, PLANT_STRIDE = 8 };
enum plant {
    PLANT_NONE,
    PLANT_NO_BARRIER,
    PLANT_HALF_BARRIER,
    PLANT_BEHIND_END,
    PLANT_NO_WAIT,
    PLANT_TWO_BLOCKS,
    PLANT_LANES_AWAY,
    PLANT_BANKS,
    PLANT_SECTORS
};
struct plant_args {
    const float *in;
    float *out;
    int64_t *sum;
    int32_t plant;
};

#endif
