/* kernels - the rows, the choice of a table, the launch, the checks. */
#include "ops/kernels.h"

#include <stddef.h>
#include <string.h>

#define TABLE_AT(kernel) offsetof(struct shoali_ops_table, kernel)
#define AT(kernel, member) (uint16_t) offsetof(struct shoali_##kernel##_args, member)
#define BYTES(kernel) (uint16_t)sizeof(struct shoali_##kernel##_args)

/* Pointer members of each argument block, for accelerators that translate addresses. */
const struct shoali_kernel_row shoali_kernel_rows[SHOALI_KERNEL_COUNT] = {
    [SHOALI_KERNEL_GEMM] = {TABLE_AT(gemm),
                            {"gemm",
                             BYTES(gemm),
                             7,
                             {AT(gemm, a), AT(gemm, b), AT(gemm, c), AT(gemm, bias),
                              AT(gemm, residual), AT(gemm, preact), AT(gemm, packed_b)},
                             0,
                             0}},
    [SHOALI_KERNEL_PACK_B] =
        {TABLE_AT(pack_b), {"pack_b", BYTES(pack_b), 2, {AT(pack_b, b), AT(pack_b, packed)}, 0, 0}},
    [SHOALI_KERNEL_NORM] = {TABLE_AT(norm),
                            {"norm",
                             BYTES(norm),
                             6,
                             {AT(norm, x), AT(norm, gamma), AT(norm, beta), AT(norm, y),
                              AT(norm, mean), AT(norm, rstd)},
                             0,
                             0}},
    [SHOALI_KERNEL_NORM_BACKWARD] = {TABLE_AT(norm_backward),
                                     {"norm_backward",
                                      BYTES(norm_backward),
                                      8,
                                      {AT(norm_backward, x), AT(norm_backward, gamma),
                                       AT(norm_backward, dy), AT(norm_backward, mean),
                                       AT(norm_backward, rstd), AT(norm_backward, dx),
                                       AT(norm_backward, dgamma), AT(norm_backward, dbeta)},
                                      0,
                                      0}},
    [SHOALI_KERNEL_ATTENTION] = {TABLE_AT(attention),
                                 {"attention",
                                  BYTES(attention),
                                  5,
                                  {AT(attention, q), AT(attention, k), AT(attention, v),
                                   AT(attention, out), AT(attention, lse)},
                                  0,
                                  0}},
    [SHOALI_KERNEL_ATTENTION_BACKWARD] =
        {TABLE_AT(attention_backward),
         {"attention_backward",
          BYTES(attention_backward),
          10,
          {AT(attention_backward, q), AT(attention_backward, k), AT(attention_backward, v),
           AT(attention_backward, out), AT(attention_backward, dout), AT(attention_backward, lse),
           AT(attention_backward, delta), AT(attention_backward, dq), AT(attention_backward, dk),
           AT(attention_backward, dv)},
          0,
          0}},
    [SHOALI_KERNEL_EMBEDDING] = {TABLE_AT(embedding),
                                 {"embedding",
                                  BYTES(embedding),
                                  5,
                                  {AT(embedding, ids), AT(embedding, table),
                                   AT(embedding, positions), AT(embedding, out),
                                   AT(embedding, bad_id)},
                                  0,
                                  0}},
    [SHOALI_KERNEL_EMBEDDING_BACKWARD] = {TABLE_AT(embedding_backward),
                                          {"embedding_backward",
                                           BYTES(embedding_backward),
                                           4,
                                           {AT(embedding_backward, ids),
                                            AT(embedding_backward, dout),
                                            AT(embedding_backward, dtable),
                                            AT(embedding_backward, dpositions)},
                                           0,
                                           0}},
    [SHOALI_KERNEL_CROSS_ENTROPY] = {TABLE_AT(cross_entropy),
                                     {"cross_entropy",
                                      BYTES(cross_entropy),
                                      4,
                                      {AT(cross_entropy, logits), AT(cross_entropy, targets),
                                       AT(cross_entropy, loss), AT(cross_entropy, lse)},
                                      0,
                                      0}},
    [SHOALI_KERNEL_LOSS_MEAN] = {TABLE_AT(loss_mean),
                                 {"loss_mean",
                                  BYTES(loss_mean),
                                  4,
                                  {AT(loss_mean, loss), AT(loss_mean, targets), AT(loss_mean, mean),
                                   AT(loss_mean, count)},
                                  0,
                                  0}},
    [SHOALI_KERNEL_CROSS_ENTROPY_BACKWARD] =
        {TABLE_AT(cross_entropy_backward),
         {"cross_entropy_backward",
          BYTES(cross_entropy_backward),
          6,
          {AT(cross_entropy_backward, logits), AT(cross_entropy_backward, targets),
           AT(cross_entropy_backward, lse), AT(cross_entropy_backward, dloss),
           AT(cross_entropy_backward, count), AT(cross_entropy_backward, dlogits)},
          0,
          0}},
    [SHOALI_KERNEL_CROSS_ENTROPY_TILE] = {TABLE_AT(cross_entropy_tile),
                                          {"cross_entropy_tile",
                                           BYTES(cross_entropy_tile),
                                           5,
                                           {AT(cross_entropy_tile, logits),
                                            AT(cross_entropy_tile, targets),
                                            AT(cross_entropy_tile, largest),
                                            AT(cross_entropy_tile, loss),
                                            AT(cross_entropy_tile, lse)},
                                           0,
                                           0}},
    [SHOALI_KERNEL_CROSS_ENTROPY_TILE_BACKWARD] =
        {TABLE_AT(cross_entropy_tile_backward),
         {"cross_entropy_tile_backward",
          BYTES(cross_entropy_tile_backward),
          6,
          {AT(cross_entropy_tile_backward, logits), AT(cross_entropy_tile_backward, targets),
           AT(cross_entropy_tile_backward, lse), AT(cross_entropy_tile_backward, dloss),
           AT(cross_entropy_tile_backward, count), AT(cross_entropy_tile_backward, dlogits)},
          0,
          0}},
    [SHOALI_KERNEL_SOFTMAX] =
        {TABLE_AT(softmax),
         {"softmax", BYTES(softmax), 3, {AT(softmax, x), AT(softmax, dy), AT(softmax, y)}, 0, 0}},
    [SHOALI_KERNEL_DROPOUT] = {TABLE_AT(dropout),
                               {"dropout",
                                BYTES(dropout),
                                3,
                                {AT(dropout, x), AT(dropout, residual), AT(dropout, y)},
                                0,
                                0}},
    [SHOALI_KERNEL_UNARY] =
        {TABLE_AT(unary),
         {"unary", BYTES(unary), 3, {AT(unary, x), AT(unary, dy), AT(unary, y)}, 0, 0}},
    [SHOALI_KERNEL_BINARY] =
        {TABLE_AT(binary),
         {"binary", BYTES(binary), 3, {AT(binary, a), AT(binary, b), AT(binary, y)}, 0, 0}},
    [SHOALI_KERNEL_AXPY] = {TABLE_AT(axpy),
                            {"axpy", BYTES(axpy), 2, {AT(axpy, x), AT(axpy, y)}, 0, 0}},
    [SHOALI_KERNEL_REDUCE] = {TABLE_AT(reduce),
                              {"reduce", BYTES(reduce), 2, {AT(reduce, x), AT(reduce, y)}, 0, 0}},
    [SHOALI_KERNEL_BROADCAST] =
        {TABLE_AT(broadcast),
         {"broadcast", BYTES(broadcast), 2, {AT(broadcast, x), AT(broadcast, y)}, 0, 0}},
    [SHOALI_KERNEL_COPY_STRIDED] = {TABLE_AT(copy_strided),
                                    {"copy_strided",
                                     BYTES(copy_strided),
                                     2,
                                     {AT(copy_strided, x), AT(copy_strided, y)},
                                     0,
                                     0}},
    [SHOALI_KERNEL_CONVERT] =
        {TABLE_AT(convert), {"convert", BYTES(convert), 2, {AT(convert, x), AT(convert, y)}, 0, 0}},
    [SHOALI_KERNEL_SET] = {TABLE_AT(set), {"set", BYTES(set), 1, {AT(set, y)}, 0, 0}},
    [SHOALI_KERNEL_RANDOM_FILL] =
        {TABLE_AT(random_fill), {"random_fill", BYTES(random_fill), 1, {AT(random_fill, y)}, 0, 0}},
    [SHOALI_KERNEL_TO_FIXED] = {TABLE_AT(to_fixed),
                                {"to_fixed",
                                 BYTES(to_fixed),
                                 3,
                                 {AT(to_fixed, x), AT(to_fixed, fixed), AT(to_fixed, flag)},
                                 0,
                                 0}},
    [SHOALI_KERNEL_FROM_FIXED] =
        {TABLE_AT(from_fixed),
         {"from_fixed", BYTES(from_fixed), 2, {AT(from_fixed, fixed), AT(from_fixed, y)}, 0, 0}},
    [SHOALI_KERNEL_NORM2] =
        {TABLE_AT(norm2),
         {"norm2", BYTES(norm2), 3, {AT(norm2, x), AT(norm2, limbs), AT(norm2, flag)}, 0, 0}},
    [SHOALI_KERNEL_CLIP] =
        {TABLE_AT(clip),
         {"clip", BYTES(clip), 3, {AT(clip, limbs), AT(clip, flag), AT(clip, out)}, 0, 0}},
    [SHOALI_KERNEL_ADAM] = {TABLE_AT(adam),
                            {"adam",
                             BYTES(adam),
                             6,
                             {AT(adam, param), AT(adam, exp_avg), AT(adam, exp_avg_sq),
                              AT(adam, grad), AT(adam, control), AT(adam, low)},
                             0,
                             0}},
    [SHOALI_KERNEL_SGD] = {TABLE_AT(sgd),
                           {"sgd",
                            BYTES(sgd),
                            5,
                            {AT(sgd, param), AT(sgd, momentum_buffer), AT(sgd, grad),
                             AT(sgd, control), AT(sgd, low)},
                            0,
                            0}},
    /* Two arrays of pointers and more bytes than a launch copies: shoali_op_reduce_sources launches
     * a small block that borrows this one. */
    [SHOALI_KERNEL_REDUCE_SOURCES] = {TABLE_AT(reduce_sources),
                                      {"reduce_sources", 0, 0, {0}, 0, 0}},
    [SHOALI_KERNEL_QUANTIZE] =
        {TABLE_AT(quantize),
         {"quantize", BYTES(quantize), 2, {AT(quantize, x), AT(quantize, message)}, 0, 0}},
    [SHOALI_KERNEL_DEQUANTIZE] =
        {TABLE_AT(dequantize),
         {"dequantize", BYTES(dequantize), 2, {AT(dequantize, message), AT(dequantize, y)}, 0, 0}},
};

shoali_kernel_fn shoali_kernel_in(const struct shoali_ops_table *table, enum shoali_kernel kernel,
                                  uint32_t dtypes)
{
    shoali_kernel_fn fn;
    const uint32_t held =
        kernel == SHOALI_KERNEL_REDUCE_SOURCES ? table->reduce_dtypes : table->dtypes;
    if ((dtypes & ~held) != 0)
        return NULL;
    memcpy(&fn, (const char *)table + shoali_kernel_rows[kernel].table_offset, sizeof fn);
    return fn;
}

const struct shoali_ops_table *shoali_kernel_table(const struct shoali_ops *ops,
                                                   enum shoali_kernel kernel, uint32_t dtypes)
{
    for (int i = 0; ops->chain[i] != NULL; i++)
        if (shoali_kernel_in(ops->chain[i], kernel, dtypes) != NULL)
            return ops->chain[i];
    return NULL;
}

shoal_status shoali_kernel_launch(const struct shoali_exec *exec, enum shoali_kernel kernel,
                                  uint32_t dtypes, const void *args)
{
    const struct shoali_ops_table *table = shoali_kernel_table(exec->ops, kernel, dtypes);
    SHOAL_ASSERT(table != NULL);
    return shoali_launch(exec->stream, &shoali_kernel_rows[kernel].type,
                         shoali_kernel_in(table, kernel, dtypes), args);
}

/* ---- checks ---- */

static const char *name_of(enum shoali_kernel kernel)
{
    return shoali_kernel_rows[kernel].type.name;
}

shoal_status shoali_check_sizes(enum shoali_kernel kernel, const struct shoali_named_size *sizes,
                                size_t count, int64_t *product)
{
    int64_t total = 1;
    bool empty = false;
    for (size_t i = 0; i < count; i++) {
        if (sizes[i].value < 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld; a size is at least 0", name_of(kernel),
                              sizes[i].name, (long long)sizes[i].value);
        empty = empty || sizes[i].value == 0;
    }
    for (size_t i = 0; i < count && !empty; i++)
        if (!shoali_mul(total, sizes[i].value, &total))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s: the product of its sizes up to %s = %lld is beyond 64 bits",
                              name_of(kernel), sizes[i].name, (long long)sizes[i].value);
    if (product != NULL)
        *product = empty ? 0 : total;
    return SHOAL_OK;
}

shoal_status shoali_check_pointers(enum shoali_kernel kernel,
                                   const struct shoali_named_pointer *pointers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pointers[i].value == NULL)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is NULL; only the optional arrays may be",
                              name_of(kernel), pointers[i].name);
    return SHOAL_OK;
}

shoal_status shoali_check_float(enum shoali_kernel kernel, const char *name, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32 || dtype == SHOAL_BF16 || dtype == SHOAL_F16 || dtype == SHOAL_F64)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %s; it must be F32, BF16, F16 or F64",
                      name_of(kernel), name, shoal_dtype_name(dtype));
}

shoal_status shoali_check_known(enum shoali_kernel kernel, const char *name, shoal_dtype dtype)
{
    if (shoal_dtype_bytes(dtype) > 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %d, which is no element type", name_of(kernel), name,
                      (int)dtype);
}

shoal_status shoali_check_at_least(enum shoali_kernel kernel, const char *name, int64_t value,
                                   int64_t least)
{
    if (value >= least)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld but must be at least %lld", name_of(kernel),
                      name, (long long)value, (long long)least);
}

shoal_status shoali_check_kind(enum shoali_kernel kernel, const char *name, int64_t value,
                               int64_t end)
{
    if (value >= 0 && value < end)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld but must be 0 ... %lld", name_of(kernel), name,
                      (long long)value, (long long)(end - 1));
}

shoal_status shoali_check_probability(enum shoali_kernel kernel, float probability)
{
    if (probability >= 0 && probability < 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s: the dropout probability is %g but must be at least 0 and less than 1",
                      name_of(kernel), (double)probability);
}
