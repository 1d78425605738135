/* products.c - queues products of matrices: by the library of the GPU's maker where it takes them,
 * else by the own kernel. */
#include "ops/cuda/blas.h"

#include <math.h>

/* Of rows that go through the workspace: a piece begins at a multiple of 16 bytes. */
enum { ROWS_TOGETHER = 64, ROWS_AT_MOST = 8192 };

/* The same function as a kind of unary; -1: none. */
static int32_t activation_of(enum shoali_activation activation)
{
    static const int32_t kinds[] = {[SHOALI_ACT_NONE] = -1,
                                    [SHOALI_ACT_GELU_ERF] = SHOALI_GELU_ERF,
                                    [SHOALI_ACT_GELU_TANH] = SHOALI_GELU_TANH,
                                    [SHOALI_ACT_RELU] = SHOALI_RELU,
                                    [SHOALI_ACT_RELU_SQUARED] = SHOALI_RELU_SQUARED,
                                    [SHOALI_ACT_SILU] = SHOALI_SILU};
    return kinds[activation];
}

static int64_t tiles_of(const struct cuda_gemm_args *args, int64_t tile)
{
    return (args->m + tile - 1) / tile * ((args->n + tile - 1) / tile);
}

static void multiply_here(const struct shoali_gemm_args *given,
                          const struct shoali_kernel_context *context)
{
    const struct cuda_gemm_args own = {.a = given->a,
                                       .b = given->b,
                                       .c = given->c,
                                       .bias = given->bias,
                                       .residual = given->residual,
                                       .preact = given->preact,
                                       .before = given->before,
                                       .fixed = given->fixed,
                                       .flag = given->flag,
                                       .m = given->m,
                                       .n = given->n,
                                       .k = given->k,
                                       .lda = given->lda,
                                       .ldb = given->ldb,
                                       .ldc = given->ldc,
                                       .unit = ldexp(1.0, given->unit_log2),
                                       .limit = given->limit,
                                       .trans_a = given->trans_a,
                                       .trans_b = given->trans_b,
                                       .accumulate = given->accumulate,
                                       .activation = activation_of(given->activation),
                                       .dtype_ab = (int32_t)given->dtype_ab,
                                       .dtype_c = (int32_t)given->dtype_c,
                                       .dtype_bias = (int32_t)given->dtype_bias};
    const int64_t large = tiles_of(&own, CUDA_PRODUCT_LARGE_TILE);
    if (large >= shoali_cuda_multiprocessors(context))
        shoali_cuda_queue(context, CUDA_gemm_large, &own,
                          (struct shoali_cuda_grid){.blocks = large,
                                                    .threads = 256,
                                                    .shared_bytes = CUDA_PRODUCT_LARGE_SHARED});
    else
        shoali_cuda_queue(context, CUDA_gemm, &own,
                          (struct shoali_cuda_grid){.blocks = tiles_of(&own, CUDA_PRODUCT_TILE),
                                                    .threads = 256,
                                                    .shared_bytes = CUDA_PRODUCT_SHARED});
}

/* What the library leaves: the activation of what `from` has, and the residual. */
static void finish(const struct shoali_gemm_args *given, const void *from,
                   const struct shoali_kernel_context *context)
{
    const struct cuda_finish_args own = {.x = from,
                                         .residual = given->residual,
                                         .y = given->c,
                                         .rows = given->m,
                                         .columns = given->n,
                                         .stride = given->ldc,
                                         .activation = activation_of(given->activation),
                                         .dtype = (int32_t)given->dtype_c};
    shoali_cuda_queue_flat(context, CUDA_finish, &own, own.rows * own.columns);
}

/* What the library does of a product of 16-bit operands, and what is left. False: nothing. */
struct split {
    struct shoali_blas_product product;
    bool to_finish; /* an activation, or a residual behind one */
};
static bool split(const struct shoali_gemm_args *given, struct split *split)
{
    const bool active = given->activation != SHOALI_ACT_NONE || given->preact != NULL;
    const bool adds_residual = given->residual != NULL && !active && !given->accumulate;
    const bool exact = given->fixed != NULL;
    split->to_finish = active || (given->residual != NULL && !adds_residual);
    if (given->dtype_ab == SHOAL_F32 || given->before != NULL || given->k == 0 ||
        (given->accumulate && split->to_finish) ||
        (exact && given->ldc * 4 > SHOALI_BLAS_SUMS_BYTES / ROWS_TOGETHER))
        return false;
    split->product = (struct shoali_blas_product){.a = given->a,
                                                  .b = given->b,
                                                  .bias = given->bias,
                                                  .add = adds_residual ? given->residual
                                                         : given->accumulate && !exact ? given->c
                                                                                       : NULL,
                                                  .d = exact ? NULL /* sums in the workspace */
                                                       : given->preact != NULL ? given->preact
                                                                               : given->c,
                                                  .m = given->m,
                                                  .n = given->n,
                                                  .k = given->k,
                                                  .lda = given->lda,
                                                  .ldb = given->ldb,
                                                  .ldd = given->ldc,
                                                  .trans_a = given->trans_a != 0,
                                                  .trans_b = given->trans_b != 0,
                                                  .dtype_ab = given->dtype_ab,
                                                  .dtype_d = exact ? SHOAL_F32 : given->dtype_c,
                                                  .dtype_bias = given->dtype_bias};
    return shoali_blas_takes(&split->product);
}

static bool multiply_in_library(const struct shoali_blas_product *product, char *workspace,
                                const struct shoali_kernel_context *context)
{
    const int64_t begin = shoali_cuda_time_begin(context);
    if (!shoali_blas_multiply(context, product, workspace))
        return false;
    shoali_cuda_time_end(context, "cublasLtMatmul", begin);
    return true;
}

static void add_fixed(const struct shoali_gemm_args *given, const void *sums,
                      const struct shoali_kernel_context *context)
{
    const struct cuda_to_fixed_args own = {.x = sums,
                                           .fixed = given->fixed,
                                           .flag = given->flag,
                                           .count = given->m * given->n,
                                           .columns = given->n,
                                           .stride = given->ldc,
                                           .unit = ldexp(1.0, given->unit_log2),
                                           .limit = given->limit,
                                           .accumulate = given->accumulate};
    shoali_cuda_queue_flat(context, CUDA_to_fixed, &own, own.count);
}

/* Sums as integers: fp32 sums of some rows at a time go through the workspace. */
static void multiply_exactly(const struct shoali_gemm_args *given,
                             const struct shoali_blas_product *product, char *workspace,
                             const struct shoali_kernel_context *context)
{
    const int64_t room = SHOALI_BLAS_SUMS_BYTES / (4 * given->ldc) / ROWS_TOGETHER * ROWS_TOGETHER;
    const int64_t fit = room < ROWS_AT_MOST ? room : ROWS_AT_MOST;
    const size_t step = shoal_dtype_bytes(given->dtype_ab);
    for (int64_t first = 0; first < given->m; first += fit) {
        struct shoali_gemm_args some = *given;
        struct shoali_blas_product piece = *product;
        some.m = piece.m = given->m - first < fit ? given->m - first : fit;
        some.a = piece.a =
            (const char *)given->a + (size_t)(given->trans_a ? first : first * given->lda) * step;
        some.fixed = given->fixed + first * given->ldc;
        piece.d = workspace + SHOALI_BLAS_WORKSPACE_BYTES;
        if (multiply_in_library(&piece, workspace, context))
            add_fixed(&some, piece.d, context);
        else
            multiply_here(&some, context);
    }
}

size_t shoali_cuda_stream_workspace(const struct shoali_kernel *kernel, const void *args)
{
    struct split parts;
    return kernel == &shoali_kernel_gemm && split(args, &parts) ? SHOALI_BLAS_STREAM_BYTES : 0;
}

void shoali_cuda_gemm(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_gemm_args *given = args;
    struct split parts;
    if (!split(given, &parts)) {
        multiply_here(given, context);
        return;
    }
    char *workspace = shoali_cuda_workspace(context, SHOALI_BLAS_STREAM_BYTES);
    if (workspace == NULL)
        return; /* the launch fails */
    if (given->fixed != NULL)
        multiply_exactly(given, &parts.product, workspace, context);
    else if (!multiply_in_library(&parts.product, workspace, context))
        multiply_here(given, context);
    else if (parts.to_finish)
        finish(given, parts.product.d, context);
}
