/* packed.c - weights in the layout that the matrix product reads.
 *
 * A derived buffer per (parameter, use), valid for one version of the parameter: whatever writes a
 * parameter raises its version first, and no tape reads it meanwhile. All lie in one block that is
 * sized by a run in meta mode, so that steps allocate nothing. Bits are those of the unpacked
 * weight.
 */
#include "autograd/rows/rows.h"

#define ALIGN_BYTES 64u

void shoali_packed_forget(struct shoali_module *module)
{
    for (int32_t i = 0; i < module->param_count; i++)
        for (int32_t use = 0; use < SHOALI_PACKED_USES; use++)
            module->param[i]->packed[use] = (struct shoali_packed){.version = -1};
}

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static bool pays(const struct shoali_packed *packed, const struct shoali_packed_rule *rule)
{
    return packed->bytes > 0 && packed->rows <= rule->most_rows && packed->uses > 0 &&
           rule->repeats >= (rule->least_uses + packed->uses - 1) / packed->uses;
}

shoal_status shoali_packed_create(struct shoali_module *module, struct shoali_device *device,
                                  const struct shoali_packed_rule *rule, void **memory,
                                  size_t *bytes)
{
    shoal_status status = SHOAL_OK;
    size_t at = 0;
    *memory = NULL;
    *bytes = 0;
    for (int32_t i = 0; i < module->param_count; i++)
        for (int32_t use = 0; use < SHOALI_PACKED_USES; use++)
            if (pays(&module->param[i]->packed[use], rule))
                *bytes += padded(module->param[i]->packed[use].bytes);
    if (*bytes == 0)
        goto done;
    SHOAL_TRY(status, shoali_device_alloc(device, *bytes, memory), done);
    for (int32_t i = 0; i < module->param_count; i++)
        for (int32_t use = 0; use < SHOALI_PACKED_USES; use++) {
            struct shoali_packed *packed = &module->param[i]->packed[use];
            if (!pays(packed, rule))
                continue;
            packed->data = (void *)((uintptr_t)*memory + at);
            at += padded(packed->bytes);
        }
done:
    return status;
}

/* A parameter that layers share may be read in two orientations; the first has the buffer. */
static void count(const struct shoal_tape *tape, const struct shoali_gemm_args *product,
                  struct shoali_packed *packed)
{
    const struct shoali_ops *ops = shoali_tape_exec(tape)->ops;
    if (packed->n == 0) {
        packed->n = product->n;
        packed->k = product->k;
        packed->trans_b = product->trans_b;
        packed->bytes =
            ops ? shoali_op_packed_b_bytes(ops, product->n, product->k, product->dtype_ab) : 0;
    }
    if (packed->trans_b != product->trans_b)
        return;
    packed->uses++;
    packed->rows = product->m > packed->rows ? product->m : packed->rows;
}

shoal_status shoali_packed_get(struct shoal_tape *tape, struct shoal_param *param,
                               enum shoali_packed_use use, struct shoali_gemm_args *product)
{
    shoal_status status = SHOAL_OK;
    struct shoali_packed *packed = &param->packed[use];
    if (shoali_tape_is_meta(tape)) {
        count(tape, product, packed);
        return status;
    }
    if (packed->data == NULL || packed->trans_b != product->trans_b)
        return status;
    if (packed->version != param->version) {
        const struct shoali_pack_b_args args = {
            .b = product->b,
            .packed = packed->data,
            .n = product->n,
            .k = product->k,
            .ldb = product->ldb,
            .trans_b = product->trans_b,
            .dtype = product->dtype_ab,
        };
        SHOAL_TRY(status, SHOALI_RUN(tape, pack_b, &args), done);
        packed->version = param->version;
    }
    product->packed_b = packed->data;
done:
    return status;
}
