/* The kernels of tests, for the build that checks each access. */
#include "../test_kernels.cu"
