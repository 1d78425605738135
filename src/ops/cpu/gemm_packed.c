/* gemm_packed - B as a whole in the layout of the matrix product: panels of GEMM_COLUMNS columns
 * behind each other, each [steps][columns], the last one of whole units. */
#include "ops/cpu/gemm.h"
#include "ops/cpu/range.h"

size_t SHOALI_CPU_SYMBOL(packed_b_bytes)(int64_t n, int64_t k, shoal_dtype dtype)
{
    return (size_t)((n + 15) / 16 * 16 * gemm_steps(k, gemm_pairs(dtype))) * 4;
}

static void pack_panels(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_pack_b_args *args = block;
    const bool pairs = gemm_pairs(args->dtype);
    const struct gemm_source from = {args->b, args->ldb, args->dtype, pairs};
    const int64_t steps = gemm_steps(args->k, pairs);
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
    const struct shoali_pack_b_args *pack = args;
    range_run(context->threads, pack_panels, pack, pack->n, GEMM_COLUMNS, 8 * pack->k);
}
