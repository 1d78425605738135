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
    for (int32_t i = 0; i < module->param_count; i++) {
        module->param[i]->reads = 0;
        for (int32_t use = 0; use < SHOALI_PACKED_USES; use++) {
            SHOAL_ASSERT(!module->param[i]->packed[use].in_place);
            module->param[i]->packed[use] = (struct shoali_packed){.version = -1};
        }
    }
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

/* ---- in place ------------------------------------------------------------------------------- */

static struct shoali_pack_b_args pack_of(const struct shoali_packed *packed, shoal_dtype dtype)
{
    return (struct shoali_pack_b_args){.n = packed->n,
                                       .k = packed->k,
                                       .ldb = packed->trans_b ? packed->k : packed->n,
                                       .trans_b = packed->trans_b,
                                       .dtype = dtype};
}

/* Is the product of so many rows one for the table that packs? */
static bool reads_packed(const struct shoali_ops *ops, const struct shoal_param *param,
                         int64_t rows)
{
    const struct shoali_packed *packed = &param->packed[SHOALI_PACKED_FORWARD];
    const struct shoali_gemm_args product = {.m = rows,
                                             .n = packed->n,
                                             .k = packed->k,
                                             .lda = packed->k,
                                             .ldb = packed->trans_b ? packed->k : packed->n,
                                             .ldc = packed->n,
                                             .trans_b = packed->trans_b,
                                             .dtype_ab = param->dtype,
                                             .dtype_c = param->dtype,
                                             .dtype_bias = param->dtype};
    const struct shoali_ops_table *table = NULL;
    (void)shoali_ops_choose(ops, &shoali_kernel_gemm, &product, &table);
    return table == shoali_ops_table_for(ops, &shoali_kernel_gemm, param->dtype);
}

static bool fits_in_place(const struct shoal_param *param, const struct shoali_ops *ops)
{
    const struct shoali_packed *packed = &param->packed[SHOALI_PACKED_FORWARD];
    return packed->uses > 0 && packed->uses == param->reads && !packed->data && param->data &&
           packed->n * packed->k == param->count && (uintptr_t)param->data % ALIGN_BYTES == 0 &&
           packed->bytes == (size_t)param->count * shoal_dtype_bytes(param->dtype) &&
           reads_packed(ops, param, 1) && reads_packed(ops, param, packed->rows);
}

static shoal_status pack_in_place(struct shoal_param *param, const struct shoali_exec *exec,
                                  void *copy)
{
    shoal_status status;
    struct shoali_packed *packed = &param->packed[SHOALI_PACKED_FORWARD];
    struct shoali_pack_b_args args = pack_of(packed, param->dtype);
    SHOAL_TRY(status,
              shoali_copy(exec->stream, copy, param->data, packed->bytes, SHOALI_DEVICE_TO_DEVICE),
              done);
    args.b = copy;
    args.packed = param->data;
    SHOAL_TRY(status, shoali_op_pack_b(exec, &args), done);
    packed->data = param->data;
    packed->version = param->version;
    packed->in_place = true;
done:
    return status;
}

shoal_status shoali_packed_place(struct shoali_module *module, const struct shoali_exec *exec)
{
    shoal_status status = SHOAL_OK;
    struct shoali_device *device = shoali_stream_device(exec->stream);
    void *copy = NULL;
    size_t most = 0;
    for (int32_t i = 0; i < module->param_count; i++)
        if (fits_in_place(module->param[i], exec->ops) &&
            module->param[i]->packed[SHOALI_PACKED_FORWARD].bytes > most)
            most = module->param[i]->packed[SHOALI_PACKED_FORWARD].bytes;
    if (most == 0)
        goto done;
    status = shoali_device_alloc(device, most, &copy);
    if (status == SHOAL_ENOMEM) { /* products read plain weights, too */
        shoali_error_clear();
        return SHOAL_OK;
    }
    if (status < 0)
        goto done;
    for (int32_t i = 0; i < module->param_count; i++)
        if (fits_in_place(module->param[i], exec->ops))
            SHOAL_TRY(status, pack_in_place(module->param[i], exec, copy), done);
    SHOAL_TRY(status, shoali_stream_synchronize(exec->stream), done);
done:
    if (copy)
        shoali_device_free(device, copy);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

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
    if (packed->in_place && packed->version != param->version) { /* new weights lie there */
        packed->data = NULL;
        packed->in_place = false;
    }
    if (packed->data == NULL || packed->trans_b != product->trans_b)
        return status;
    if (packed->version != param->version) {
        struct shoali_pack_b_args args = pack_of(packed, product->dtype_ab);
        args.b = product->b;
        args.packed = packed->data;
        args.ldb = product->ldb;
        SHOAL_TRY(status, SHOALI_RUN(tape, pack_b, &args), done);
        packed->version = param->version;
    }
    product->packed_b = packed->data;
done:
    return status;
}
