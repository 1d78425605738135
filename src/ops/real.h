/* real - sets REAL and R() for the next inclusion of an x_real.h: float first, double the second
 * time. No include guard: meant to be included twice. */
#ifndef REAL
#include "ops/scalars.h"
#define REAL float
#define R(name) name##_f32
#else
#undef REAL
#undef R
#define REAL double
#define R(name) name##_f64
#endif
