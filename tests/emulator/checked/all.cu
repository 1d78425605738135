/* The kernels, for the build that checks each access. */
#include "ops/cuda/kernels/all.cu"
