/* op_cases - the op of the recipe in docs/EXTENDING.md, for gradients_test.c. */
#ifndef EXTENDING_OP_CASES_H
#define EXTENDING_OP_CASES_H

#include "autograd/test_op_case.h"

#include "lerp_declaration.inc"

#include "lerp_case.inc"

static const struct op_case cases[] = {
#include "lerp_case_lines.inc"
};
#define CASES ((int32_t)(sizeof(cases) / sizeof(cases[0])))

#endif
