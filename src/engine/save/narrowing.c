/* Numbers of a checkpoint that the type of the computation does not hold. As weights they are
 * infinite, and give no loss and no text. */
#include "checkpoint/weight_folder.h"
#include "engine/save/checkpoint.h"

shoal_status shoali_narrowing_init(struct shoali_narrowing *narrowing,
                                   const struct shoal_engine *engine)
{
    *narrowing = (struct shoali_narrowing){.engine = engine};
    if (engine->module.dtype == SHOAL_F32)
        return SHOAL_OK;
    narrowing->lost = shoali_calloc((size_t)engine->module.param_count + 1, sizeof(int64_t),
                                    "counts of parameters");
    return narrowing->lost ? SHOAL_OK : SHOAL_ENOMEM;
}

void shoali_narrowing_fini(struct shoali_narrowing *narrowing)
{
    shoali_free(narrowing->lost);
    narrowing->lost = NULL;
}

void shoali_narrowing_count(struct shoali_narrowing *narrowing, int64_t first, const float *values,
                            int64_t count)
{
    const struct shoali_module *module = &narrowing->engine->module;
    for (int64_t at = 0; narrowing->lost && at < count;) {
        const struct shoali_piece piece = shoali_module_piece(module, first + at, first + count);
        narrowing->lost[piece.param->index] +=
            shoali_weight_lost(values + at, piece.count, module->dtype);
        at += piece.count;
    }
}

static shoal_status check(const struct shoali_narrowing *narrowing, const char *where)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = &narrowing->engine->module;
    struct shoali_weight_lost sum = {0};
    struct shoali_str text = {0};
    for (int32_t i = 0; i < module->param_count; i++)
        shoali_weight_lost_add(&sum, module->param[i]->name, narrowing->lost[i]);
    if (shoali_weight_lost_end(&sum, module->dtype, &text))
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: %s: compute in %s", where, shoali_str_get(&text),
                            module->dtype == SHOAL_F16 ? "bf16 or fp32" : "fp32");
    shoali_str_fini(&text);
    return status;
}

shoal_status shoali_narrowing_check(const struct shoali_narrowing *narrowing, const char *where)
{
    if (!narrowing->lost) /* on all ranks */
        return SHOAL_OK;
    return shoali_weight_agree(narrowing->engine->place.group, check(narrowing, where));
}
