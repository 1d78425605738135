/* blas - products of bf16 and fp16 matrices by NVIDIA's cuBLASLt, which is opened at run time.
 *
 * One algorithm serves each shape, and is chosen when the shape is first met. It adds in one pass,
 * or adds parts of a sum in working memory in one order. None adds by atomics, so two runs have the
 * same bits. These are not the bits of `ref`: tensor cores round in steps of their own. An
 * algorithm may depend on the shape alone, so arrays and strides have to be multiples of 16 bytes.
 * Other products run on the own kernel.
 *
 * WORKSPACE. Each stream has one (shoali_stream_workspace): the first part is the library's, the
 * second has the sums of products that become integers (products.c).
 *
 * SHOAL_CUDA_BLAS names the library; "off" leaves such products to the own kernel, which widens the
 * operands and has the bits of `ref`. With SHOAL_CUDA_DRIVER set, that library has the functions.
 */
#ifndef SHOALI_OPS_CUDA_BLAS_H
#define SHOALI_OPS_CUDA_BLAS_H

#include "ops/cuda/launch.h"

/* D = A B (+ C) (+ bias), row-major: of the steps of a gemm those that the library takes. */
struct shoali_blas_product {
    const void *a, *b, *bias,
        *add; /* bias and add are optional; add has D's strides and may be D */
    void *d;
    int64_t m, n, k, lda, ldb, ldd;
    bool trans_a, trans_b;
    shoal_dtype dtype_ab, dtype_d, dtype_bias;
};
/* Whether SHOAL_CUDA_BLAS is "off": products of 16-bit matrices then have the bits of `ref`. */
bool shoali_blas_is_off(void);
enum { SHOALI_BLAS_WORKSPACE_BYTES = 16 << 20, SHOALI_BLAS_SUMS_BYTES = 16 << 20 };
enum { SHOALI_BLAS_STREAM_BYTES = SHOALI_BLAS_WORKSPACE_BYTES + SHOALI_BLAS_SUMS_BYTES };
/* Whether the library is there and takes products of such operands. No device is needed. */
bool shoali_blas_takes(const struct shoali_blas_product *product);
/* The table's members of these names. */
void shoali_blas_describe(struct shoali_str *text);
uint64_t shoali_blas_digest(void);
/* Queues a product that shoali_blas_takes, with the stream's workspace. False: the library has no
 * algorithm for the shape, and nothing is queued. Any other error of the library is the launch's:
 * the own kernel has other bits, so it does not step in for a call that failed. */
bool shoali_blas_multiply(const struct shoali_kernel_context *context,
                          const struct shoali_blas_product *product, void *workspace);

/* The library's functions, by own declarations: F(result, member, symbol, parameters). */
struct shoali_blas_algorithm {
    uint64_t data[8];
};
struct shoali_blas_choice {
    struct shoali_blas_algorithm algorithm;
    size_t workspace_bytes;
    unsigned state;
    float waves;
    int reserved[4];
};
enum {
    SHOALI_BLAS_F32 = 0,
    SHOALI_BLAS_F16 = 2,
    SHOALI_BLAS_BF16 = 14,
    SHOALI_BLAS_COMPUTE_F32 = 68,
    /* of a product */
    SHOALI_BLAS_TRANS_A = 3,
    SHOALI_BLAS_TRANS_B = 4,
    SHOALI_BLAS_EPILOGUE = 7,
    SHOALI_BLAS_BIAS = 8,
    SHOALI_BLAS_BIAS_TYPE = 26,
    SHOALI_BLAS_WITH_BIAS = 4,
    /* of what is wanted */
    SHOALI_BLAS_WORKSPACE = 1,
    SHOALI_BLAS_SUMS = 3,
    SHOALI_BLAS_ALIGN_A = 5,
    SHOALI_BLAS_SUMS_IN_WORKSPACE = 2, /* beside those in one pass */
    /* what a function returns */
    SHOALI_BLAS_NOT_SUPPORTED = 15
};
struct CUstream_st;
/* clang-format off */
#define SHOALI_BLAS_FUNCTIONS(F)                                                                   \
    F(create, cublasLtCreate, (void **handle))                                                     \
    F(multiply, cublasLtMatmul,                                                                    \
      (void *handle, void *product, const void *alpha, const void *a, void *layout_a,              \
       const void *b, void *layout_b, const void *beta, const void *c, void *layout_c, void *d,    \
       void *layout_d, const struct shoali_blas_algorithm *algorithm, void *workspace,             \
       size_t workspace_bytes, struct CUstream_st *stream))                                        \
    F(choose, cublasLtMatmulAlgoGetHeuristic,                                                      \
      (void *handle, void *product, void *layout_a, void *layout_b, void *layout_c,                \
       void *layout_d, void *preference, int count, struct shoali_blas_choice *choice,             \
       int *found))                                                                                \
    F(product_create, cublasLtMatmulDescCreate,                                                    \
      (void **product, unsigned compute, unsigned scale))                                          \
    F(product_destroy, cublasLtMatmulDescDestroy, (void *product))                                 \
    F(product_set, cublasLtMatmulDescSetAttribute,                                                 \
      (void *product, unsigned attribute, const void *value, size_t bytes))                        \
    F(layout_create, cublasLtMatrixLayoutCreate,                                                   \
      (void **layout, unsigned type, uint64_t rows, uint64_t columns, int64_t stride))             \
    F(layout_destroy, cublasLtMatrixLayoutDestroy, (void *layout))                                 \
    F(preference_create, cublasLtMatmulPreferenceCreate, (void **preference))                      \
    F(preference_destroy, cublasLtMatmulPreferenceDestroy, (void *preference))                     \
    F(preference_set, cublasLtMatmulPreferenceSetAttribute,                                        \
      (void *preference, unsigned attribute, const void *value, size_t bytes))
/* clang-format on */
#define SHOALI_BLAS_MEMBER(member, symbol, parameters) unsigned(*member) parameters;
struct shoali_blas {
    SHOALI_BLAS_FUNCTIONS(SHOALI_BLAS_MEMBER)
    size_t (*version)(void); /* cublasLtGetVersion */
};

#endif
