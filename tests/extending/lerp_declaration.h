/* lerp_declaration - where autograd.h would declare the op of the recipe. */
#include "autograd/autograd.h"

#include "lerp_declaration.inc"
