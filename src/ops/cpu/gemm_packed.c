/* gemm_packed - B as a whole in the layout of the matrix product: panels of GEMM_COLUMNS columns
 * behind each other, each [steps][columns], the last one of whole units. */
#include "ops/cpu/gemm.h"

size_t SHOALI_CPU_SYMBOL(packed_b_bytes)(int64_t n, int64_t k, shoal_dtype dtype)
{
    return (size_t)((n + 15) / 16 * 16 * gemm_steps(k, gemm_pairs(dtype))) * 4;
}

static void pack_panels(void *arg, int32_t index, int32_t count)
{
    const struct shoali_pack_b_args *args = arg;
    const bool pairs = gemm_pairs(args->dtype);
    const struct gemm_source from = {args->b, args->ldb, args->dtype, pairs};
    const int64_t steps = gemm_steps(args->k, pairs);
    int64_t begin, end;
    shoali_pool_slice(args->n, GEMM_COLUMNS, index, count, &begin, &end);
    for (int64_t n = begin; n < end; n += GEMM_COLUMNS) {
        const int64_t columns = SHOALI_MIN(GEMM_COLUMNS, end - n);
        const int64_t width = (columns + 15) / 16 * 16;
        uint32_t *to = (uint32_t *)args->packed + n * steps;
        if (args->trans_b)
            SHOALI_CPU_SYMBOL(pack_transposed)(&from, 0, args->k, n, columns, width, to);
        else
            SHOALI_CPU_SYMBOL(pack_rows)(&from, 0, args->k, n, columns, width, to);
    }
}

void SHOALI_CPU_SYMBOL(pack_b)(const void *args, const struct shoali_kernel_context *context)
{
    struct shoali_pack_b_args pack = *(const struct shoali_pack_b_args *)args;
    shoali_pool_run(context->threads, pack_panels, &pack);
}
