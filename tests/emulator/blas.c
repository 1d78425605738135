/* blas.c - stands in for cuBLASLt: products in dot order, in the order of the stream. */
#include "ops/cuda/blas.h"

#include "emulator.h"
#include "emulator_queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define DECLARE(member, symbol, parameters) API unsigned symbol parameters;
SHOALI_BLAS_FUNCTIONS(DECLARE)
#undef DECLARE

enum { NOT_SUPPORTED = 15, SPLIT_COLUMNS = 40 };
struct description {
    int32_t trans_a, trans_b;
    uint32_t epilogue, bias_type;
    const void *bias;
};
struct layout {
    unsigned type;
    uint64_t rows, columns;
    int64_t stride;
};

/* Ends a function with the code that SHOAL_EMULATOR_FAIL has for it. */
#define FAIL                                            \
    do {                                                \
        const unsigned fault = emulator_fail(__func__); \
        if (fault != 0)                                 \
            return fault;                               \
    } while (0)

/* 13.1.0; SHOAL_EMULATOR_BLAS is another. */
API size_t cublasLtGetVersion(void);
API size_t cublasLtGetVersion(void)
{
    const char *text = getenv("SHOAL_EMULATOR_BLAS");
    return text != NULL ? (size_t)atoll(text) : 130100;
}
API unsigned cublasLtCreate(void **handle)
{
    FAIL;
    *handle = malloc(1);
    return *handle == NULL;
}
API unsigned cublasLtMatmulDescCreate(void **product, unsigned compute, unsigned scale)
{
    FAIL;
    *product = calloc(1, sizeof(struct description));
    return *product == NULL || compute != SHOALI_BLAS_COMPUTE_F32 || scale != SHOALI_BLAS_F32;
}
API unsigned cublasLtMatmulDescDestroy(void *product)
{
    free(product);
    return 0;
}
API unsigned cublasLtMatmulDescSetAttribute(void *product, unsigned attribute, const void *value,
                                            size_t bytes)
{
    FAIL;
    struct description *d = product;
    const struct {
        unsigned attribute;
        void *to;
        size_t bytes;
    } members[] = {{SHOALI_BLAS_TRANS_A, &d->trans_a, sizeof d->trans_a},
                   {SHOALI_BLAS_TRANS_B, &d->trans_b, sizeof d->trans_b},
                   {SHOALI_BLAS_EPILOGUE, &d->epilogue, sizeof d->epilogue},
                   {SHOALI_BLAS_BIAS_TYPE, &d->bias_type, sizeof d->bias_type},
                   {SHOALI_BLAS_BIAS, &d->bias, sizeof d->bias}};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (members[i].attribute == attribute && members[i].bytes == bytes) {
            memcpy(members[i].to, value, bytes);
            return 0;
        }
    return 1;
}
API unsigned cublasLtMatrixLayoutCreate(void **layout, unsigned type, uint64_t rows,
                                        uint64_t columns, int64_t stride)
{
    FAIL;
    struct layout *made = malloc(sizeof *made);
    if (made == NULL || stride < (int64_t)rows) {
        free(made);
        return 1;
    }
    *made = (struct layout){type, rows, columns, stride};
    *layout = made;
    return 0;
}
API unsigned cublasLtMatrixLayoutDestroy(void *layout)
{
    free(layout);
    return 0;
}
API unsigned cublasLtMatmulPreferenceCreate(void **preference)
{
    FAIL;
    *preference = calloc(1, 64); /* room for struct preference */
    return *preference == NULL;
}
API unsigned cublasLtMatmulPreferenceDestroy(void *preference)
{
    free(preference);
    return 0;
}
struct preference {
    uint32_t align[4], sums;
    uint64_t workspace;
};
API unsigned cublasLtMatmulPreferenceSetAttribute(void *preference, unsigned attribute,
                                                  const void *value, size_t bytes)
{
    FAIL;
    struct preference *wanted = preference;
    const bool aligns = attribute >= SHOALI_BLAS_ALIGN_A && attribute < SHOALI_BLAS_ALIGN_A + 4;
    void *to = aligns ? (void *)&wanted->align[attribute - SHOALI_BLAS_ALIGN_A]
               : attribute == SHOALI_BLAS_SUMS      ? (void *)&wanted->sums
               : attribute == SHOALI_BLAS_WORKSPACE ? (void *)&wanted->workspace
                                                    : NULL;
    if (to == NULL || bytes != (attribute == SHOALI_BLAS_WORKSPACE ? 8 : 4))
        return 1;
    memcpy(to, value, bytes);
    return 0;
}
API unsigned cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *layout_a,
                                            void *layout_b, void *layout_c, void *layout_d,
                                            void *preference, int count,
                                            struct shoali_blas_choice *choice, int *found)
{
    FAIL;
    const struct preference *wanted = preference;
    const uint32_t *align = wanted->align;
    const struct layout *d = layout_d;
    (void)handle, (void)product, (void)layout_a, (void)layout_b, (void)layout_c;
    memset(choice, 0, sizeof *choice);
    *found = count > 0 && (align[0] >= 16 && align[1] >= 16 && align[2] >= 16 && align[3] >= 16);
    /* Few tiles: two parts of the sum, of which one waits in the workspace. */
    const uint64_t bytes = 4 * d->rows * d->columns;
    choice->algorithm.data[0] = cublasLtGetVersion();
    if (d->columns <= SPLIT_COLUMNS && bytes <= wanted->workspace &&
        (wanted->sums & SHOALI_BLAS_SUMS_IN_WORKSPACE) != 0)
        choice->workspace_bytes = choice->algorithm.data[1] = bytes;
    return *found ? 0 : NOT_SUPPORTED;
}

/* ---- products ---- */

struct product {
    struct description description;
    struct layout a, b, c, d;
    const void *at_a, *at_b, *at_c;
    void *at_d;
    float beta;
    float *workspace; /* NULL: in one pass */
};

static float load(const void *array, int64_t i, unsigned type)
{
    if (type == SHOALI_BLAS_F32)
        return ((const float *)array)[i];
    const uint16_t bits = ((const uint16_t *)array)[i];
    if (type == SHOALI_BLAS_BF16)
        return shoali_bf16_to_f32(bits);
    return emulator_f16_to_f32(bits);
}
static void store(void *array, int64_t i, float x, unsigned type)
{
    if (type == SHOALI_BLAS_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] =
            type == SHOALI_BLAS_BF16 ? shoali_f32_to_bf16(x) : emulator_f32_to_f16(x);
}
static float element(const void *array, const struct layout *layout, uint64_t row, uint64_t column)
{
    return load(array, (int64_t)row + (int64_t)column * layout->stride, layout->type);
}

static float add_products(const struct product *p, uint64_t row, uint64_t column, uint64_t begin,
                          uint64_t end, float sum)
{
    const struct description *d = &p->description;
    for (uint64_t k = begin; k < end; k++)
        sum = fmaf(
            d->trans_b ? element(p->at_b, &p->b, column, k) : element(p->at_b, &p->b, k, column),
            d->trans_a ? element(p->at_a, &p->a, k, row) : element(p->at_a, &p->a, row, k), sum);
    return sum;
}

static void finish(const struct product *p, uint64_t row, uint64_t column, float sum)
{
    const struct description *d = &p->description;
    const int64_t at = (int64_t)row + (int64_t)column * p->d.stride;
    if (p->beta != 0)
        sum += load(p->at_c, at, p->c.type);
    if (d->epilogue == SHOALI_BLAS_WITH_BIAS)
        sum += load(d->bias, (int64_t)row, d->bias_type);
    store(p->at_d, at, sum, p->d.type);
}

/* With a workspace half of each sum waits there for the other half, which goes on with it. */
static void run(const void *argument)
{
    const struct product *p = argument;
    const uint64_t depth = p->description.trans_a ? p->a.rows : p->a.columns;
    const uint64_t half = p->workspace != NULL ? depth / 2 : 0;
    for (uint64_t i = 0; i < p->d.rows * p->d.columns && p->workspace != NULL; i++)
        p->workspace[i] = add_products(p, i % p->d.rows, i / p->d.rows, 0, half, 0);
    for (uint64_t i = 0; i < p->d.rows * p->d.columns; i++) {
        const uint64_t row = i % p->d.rows, column = i / p->d.rows;
        const float before = p->workspace != NULL ? p->workspace[i] : 0;
        finish(p, row, column, add_products(p, row, column, half, depth, before));
    }
}

API unsigned cublasLtMatmul(void *handle, void *product, const void *alpha, const void *a,
                            void *layout_a, const void *b, void *layout_b, const void *beta,
                            const void *c, void *layout_c, void *d, void *layout_d,
                            const struct shoali_blas_algorithm *algorithm, void *workspace,
                            size_t workspace_bytes, struct CUstream_st *stream)
{
    FAIL;
    struct product made = {.description = *(struct description *)product,
                           .a = *(struct layout *)layout_a,
                           .b = *(struct layout *)layout_b,
                           .c = *(struct layout *)layout_c,
                           .d = *(struct layout *)layout_d,
                           .at_a = a,
                           .at_b = b,
                           .at_c = c,
                           .at_d = d,
                           .beta = *(const float *)beta,
                           .workspace = algorithm->data[1] > 0 ? workspace : NULL};
    (void)handle;
    if (*(const float *)alpha != 1 || algorithm->data[1] > workspace_bytes ||
        (algorithm->data[1] > 0 && workspace == NULL))
        return NOT_SUPPORTED;
    return emulator_queue(stream, run, &made, sizeof made);
}
