/* test_arguments - argument blocks of the tests' kernels, for the host's text and the GPU's. */
#ifndef SHOALI_ACCELERATOR_TEST_ARGUMENTS_H
#define SHOALI_ACCELERATOR_TEST_ARGUMENTS_H

#include <stdint.h>

/* out[i] = 3 a[i] + b[i] + value in wrapping integers; a and b may be NULL (zeros). */
struct mix_args {
    uint32_t *out;
    const uint32_t *a, *b;
    int64_t count;
    uint32_t value;
};
/* out[i] = the sum of input[..][i] */
struct sum_args {
    int64_t count;
    uint32_t *out;
    int32_t input_count;
    const uint32_t *input[5];
};
/* Products d = a b + c of a warp each, by fragments: [product][lane][register]. */
struct products_args {
    const uint32_t *a, *b;
    const float *c;
    float *d;
    int32_t f16;
};
/* 32 rows of 8 elements as fragments [lane][12]: four matrices, the same transposed, two, two
 * transposed. */
struct fragments_args {
    const uint16_t *rows;
    uint32_t *out;
};

#endif
