/* test_op_case - an op as gradients_test.c differentiates it: a function of inputs and parameters
 * of odd sizes. A list of them, `cases` with CASES entries, is in test_ops.h.
 */
#ifndef SHOALI_AUTOGRAD_TEST_OP_CASE_H
#define SHOALI_AUTOGRAD_TEST_OP_CASE_H

#include "autograd/test_rig.h"

enum { MAX_INPUTS = 6, MAX_PARAMS = 6, MAX_ELEMENTS = 4096 };

typedef shoal_tensor *(*build_fn)(shoal_tape *tape, shoal_tensor *const *in,
                                  shoal_param *const *param);

/* One op with inputs of odd sizes. Inputs with ids_below > 0 are I32 in [ids_low, ids_below). */
struct op_case {
    const char *name;
    build_fn build;
    shoal_shape in[MAX_INPUTS];
    int32_t inputs;
    int32_t ids_below[MAX_INPUTS], ids_low;
    shoal_shape param[MAX_PARAMS];
    int32_t params;
    double low, high; /* of values; 0, 0: -1, 1 */
};

#define R2(a, b) \
    {            \
        2,       \
        {        \
            a, b \
        }        \
    }
#define R3(a, b, c) \
    {               \
        3,          \
        {           \
            a, b, c \
        }           \
    }
#define R1(a) \
    {         \
        1,    \
        {     \
            a \
        }     \
    }

#endif
