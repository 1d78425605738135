/* declarations.c - Shoal's own declarations of NVIDIA's driver and of cuBLASLt beside NVIDIA's
 * headers, where these are installed. It compiles when they agree; nothing calls it. */
#include <cublasLt.h>
#include <cuda.h>

#include "accelerator/cuda/driver.h"
#include "ops/cuda/blas.h"

#include <stddef.h>

#define SAME(a, b) _Static_assert((a) == (b), #a " is " #b)

#define SIGNATURE(member, symbol, parameters)                                                      \
    _Static_assert(__builtin_types_compatible_p(                                                   \
                       __typeof__(((struct shoali_cuda_driver *)0)->member), __typeof__(&symbol)), \
                   #symbol);
SHOALI_CUDA_FUNCTIONS(SIGNATURE)

#define PLACE(own, theirs) \
    SAME(offsetof(struct shoali_cuda_launch_config, own), offsetof(CUlaunchConfig, theirs))
SAME(sizeof(struct shoali_cuda_launch_config), sizeof(CUlaunchConfig));
PLACE(grid, gridDimX);
PLACE(block, blockDimX);
PLACE(shared_bytes, sharedMemBytes);
PLACE(stream, hStream);
PLACE(attributes, attrs);
PLACE(attribute_count, numAttrs);

SAME((int)SHOALI_CUDA_OUT_OF_MEMORY, (int)CUDA_ERROR_OUT_OF_MEMORY);
SAME((int)SHOALI_CUDA_NOT_READY, (int)CUDA_ERROR_NOT_READY);
SAME((int)SHOALI_CUDA_NOT_SUPPORTED, (int)CUDA_ERROR_NOT_SUPPORTED);
SAME((int)SHOALI_CUDA_MULTIPROCESSORS, (int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME((int)SHOALI_CUDA_L2_BYTES, (int)CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME((int)SHOALI_CUDA_CAPABILITY_MAJOR, (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME((int)SHOALI_CUDA_CAPABILITY_MINOR, (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME((int)SHOALI_CUDA_DYNAMIC_SHARED, (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME((int)SHOALI_CUDA_HOST_PORTABLE, (int)CU_MEMHOSTALLOC_PORTABLE);
SAME((int)SHOALI_CUDA_STREAM_NON_BLOCKING, (int)CU_STREAM_NON_BLOCKING);
SAME((int)SHOALI_CUDA_EVENT_DISABLE_TIMING, (int)CU_EVENT_DISABLE_TIMING);
SAME((int)SHOALI_CUDA_WAIT_GREATER_OR_EQUAL, (int)CU_STREAM_WAIT_VALUE_GEQ);

SAME(sizeof(struct shoali_blas_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct shoali_blas_choice), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct shoali_blas_choice, workspace_bytes),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct shoali_blas_choice, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME((int)SHOALI_BLAS_F32, (int)CUDA_R_32F);
SAME((int)SHOALI_BLAS_F16, (int)CUDA_R_16F);
SAME((int)SHOALI_BLAS_BF16, (int)CUDA_R_16BF);
SAME((int)SHOALI_BLAS_COMPUTE_F32, (int)CUBLAS_COMPUTE_32F);
SAME((int)SHOALI_BLAS_TRANS_A, (int)CUBLASLT_MATMUL_DESC_TRANSA);
SAME((int)SHOALI_BLAS_TRANS_B, (int)CUBLASLT_MATMUL_DESC_TRANSB);
SAME((int)SHOALI_BLAS_EPILOGUE, (int)CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME((int)SHOALI_BLAS_BIAS, (int)CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME((int)SHOALI_BLAS_BIAS_TYPE, (int)CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME((int)SHOALI_BLAS_WITH_BIAS, (int)CUBLASLT_EPILOGUE_BIAS);
SAME((int)SHOALI_BLAS_WORKSPACE, (int)CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME((int)SHOALI_BLAS_SUMS, (int)CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME((int)SHOALI_BLAS_ALIGN_A, (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME((int)SHOALI_BLAS_SUMS_IN_WORKSPACE, (int)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(sizeof(cublasLtGetVersion()), sizeof(((struct shoali_blas *)0)->version()));
