/* `"hashes": true`: after each step, what each tensor was, the same lines for any layout. */
#include "engine/engine.h"

#include "monitor/hashes.h"

#include <string.h>

enum { READ_COUNT = 1 << 18 };

/* Memory of one step's hashes. */
struct hashing {
    struct shoal_engine *engine;
    struct shoali_fingerprint *sums; /* per parameter */
    int64_t *largest;                /* per parameter */
    float *buffer;                   /* READ_COUNT */
    struct shoali_str text;          /* rank 0 */
};

#define GRADIENT (-1) /* in the place of a kind's index */

static void hashing_fini(struct hashing *hashing)
{
    shoali_free(hashing->sums);
    shoali_free(hashing->largest);
    shoali_free(hashing->buffer);
    shoali_str_fini(&hashing->text);
}

static shoal_status hashing_init(struct hashing *hashing, struct shoal_engine *engine)
{
    const size_t count = (size_t)engine->module.param_count + 1;
    *hashing = (struct hashing){
        .engine = engine,
        .sums = shoali_calloc(count, sizeof *hashing->sums, "hashes of the tensors"),
        .largest = shoali_calloc(count, sizeof *hashing->largest, "hashes of the tensors"),
        .buffer = shoali_malloc(READ_COUNT * sizeof(float), "hashes of the tensors")};
    return hashing->sums && hashing->largest && hashing->buffer ? SHOAL_OK : SHOAL_ENOMEM;
}

/* ---- one kind -------------------------------------------------------------------------------- */

static int64_t count_of(const struct shoal_engine *engine, int32_t kind, int32_t param)
{
    struct shoali_zero_kind is;
    shoali_zero_get_kind(engine->zero, kind == GRADIENT ? 0 : kind, &is);
    const shoal_shape shape =
        shoali_state_shape(is.of, shoal_param_shape(engine->module.param[param]));
    return shoal_shape_count(&shape);
}

static bool is_small(const struct shoal_engine *engine, int32_t kind)
{
    struct shoali_zero_kind is;
    shoali_zero_get_kind(engine->zero, kind == GRADIENT ? 0 : kind, &is);
    return is.of != SHOALI_STATE_ELEMENT;
}

static void add_values(struct hashing *hashing, int64_t begin, int64_t count, const float *values)
{
    const struct shoali_module *module = &hashing->engine->module;
    for (int64_t at = begin; at < begin + count;) {
        const struct shoali_piece piece = shoali_module_piece(module, at, begin + count);
        const int32_t p = piece.param->index;
        shoali_fingerprint_add(&hashing->sums[p], &hashing->largest[p], piece.first,
                               values + (at - begin), piece.count);
        at += piece.count;
    }
}

static shoal_status add_range(struct hashing *hashing, int32_t kind, int64_t begin, int64_t end)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero *zero = hashing->engine->zero;
    for (int64_t at = begin; at < end; at += READ_COUNT) {
        const int64_t count = end - at < READ_COUNT ? end - at : READ_COUNT;
        status = kind == GRADIENT ? shoali_zero_read_gradient(zero, at, count, hashing->buffer)
                                  : shoali_zero_read(zero, kind, at, count, hashing->buffer);
        SHOAL_TRY(status, status, done);
        add_values(hashing, at, count, hashing->buffer);
    }
done:
    return status;
}

/* Of a kind that is not per element, what this rank counts of a parameter's numbers. */
static shoal_status add_small(struct hashing *hashing, int32_t kind, int32_t param)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_engine *engine = hashing->engine;
    int64_t unused = 0;
    const struct shoali_zero_range slice = shoali_engine_small_slice(engine, kind, param, &unused);
    const int64_t first = shoali_zero_kind_offset(engine->zero, kind, param);
    for (int64_t done = 0; done < slice.count; done += READ_COUNT) {
        const int64_t at = slice.begin + done, left = slice.count - done;
        const int64_t count = left < READ_COUNT ? left : READ_COUNT;
        SHOAL_TRY(status, shoali_zero_read(engine->zero, kind, at, count, hashing->buffer), done);
        shoali_fingerprint_add(&hashing->sums[param], &hashing->largest[param], at - first,
                               hashing->buffer, count);
    }
done:
    return status;
}

/* What this rank counts. */
static shoal_status add_kind(struct hashing *hashing, int32_t kind)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_engine *engine = hashing->engine;
    int32_t ranges;
    const struct shoali_zero_range *range = shoali_zero_counted_ranges(engine->zero, &ranges);
    const bool small = is_small(engine, kind);
    for (int32_t p = 0; p < engine->module.param_count && small; p++)
        SHOAL_TRY(status, add_small(hashing, kind, p), done);
    for (int32_t i = 0; i < ranges && !small; i++)
        SHOAL_TRY(status, add_range(hashing, kind, range[i].begin, range[i].begin + range[i].count),
                  done);
done:
    return status;
}

static shoal_status share(struct hashing *hashing)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_engine *engine = hashing->engine;
    const int64_t count = engine->module.param_count;
    if (engine->place.world == 1 || count == 0)
        return SHOAL_OK;
    SHOAL_TRY(status,
              shoal_all_reduce(engine->place.group, hashing->sums, hashing->sums,
                               count * SHOALI_FINGERPRINT_WORDS, SHOAL_I64, SHOAL_SUM, NULL),
              done);
    SHOAL_TRY(status,
              shoal_all_reduce(engine->place.group, hashing->largest, hashing->largest, count,
                               SHOAL_I64, SHOAL_MAX, NULL),
              done);
done:
    return status;
}

/* Collective: all tensors of one kind, as lines on rank 0. */
static shoal_status hash_kind(struct hashing *hashing, int32_t kind, const char *name)
{
    shoal_status status;
    const struct shoal_engine *engine = hashing->engine;
    const struct shoali_module *module = &engine->module;
    struct shoali_hash hash;
    memset(hashing->sums, 0, (size_t)module->param_count * sizeof *hashing->sums);
    memset(hashing->largest, 0, (size_t)module->param_count * sizeof *hashing->largest);
    SHOAL_TRY(status, add_kind(hashing, kind), done);
    SHOAL_TRY(status, share(hashing), done);
    for (int32_t p = 0; engine->place.rank == 0 && p < module->param_count; p++) {
        if (kind == GRADIENT && (module->param[p]->tags & SHOAL_PARAM_FROZEN))
            continue;
        shoali_fingerprint_finish(&hashing->sums[p], hashing->largest[p], &hash);
        shoali_hashes_append_tensor(&hashing->text, engine->step.global_steps + 1, name,
                                    module->param[p]->name, count_of(engine, kind, p), &hash);
    }
done:
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static shoal_status write_text(struct hashing *hashing, bool fresh)
{
    const struct shoal_engine *engine = hashing->engine;
    const bool fast = engine->config.reduction != SHOALI_REDUCTION_EXACT;
    const struct shoali_hashes_facts facts = {
        .dtype = shoal_dtype_name(engine->module.dtype),
        .kernels = engine->ops.name,
        .micro_batches = engine->step.batch.accumulation * engine->place.data_ranks,
        .tensors = engine->module.param_count,
        .elements = engine->module.whole_count,
        .tensor_splits = engine->config.exact_splits.tensor,
        .sequence_splits = engine->config.exact_splits.sequence,
        .accumulation = fast ? engine->step.batch.accumulation : 1,
        .tensor_ranks =
            fast ? shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_TP & ~engine->place.admitted)
                 : 1};
    if (engine->place.rank != 0)
        return SHOAL_OK;
    return shoali_hashes_write(engine->output_path, fresh, &facts, &hashing->text);
}

shoal_status shoali_engine_hash_start(struct shoal_engine *engine)
{
    shoal_status status;
    struct hashing hashing;
    if (!engine->config.hashes || engine->step.global_steps > 0)
        return SHOAL_OK;
    SHOAL_TRY(status, hashing_init(&hashing, engine), done);
    SHOAL_TRY(status, hash_kind(&hashing, 0, "start"), done);
    SHOAL_TRY(status, write_text(&hashing, true), done);
done:
    hashing_fini(&hashing);
    return status;
}

shoal_status shoali_engine_hash_step(struct shoal_engine *engine)
{
    shoal_status status;
    struct hashing hashing;
    const shoal_step_info *info = &engine->step.info;
    if (!engine->config.hashes)
        return SHOAL_OK;
    SHOAL_TRY(status, hashing_init(&hashing, engine), done);
    shoali_hashes_append_step(
        &hashing.text, &(struct shoali_hashes_step){.step = engine->step.global_steps + 1,
                                                    .dtype = shoal_dtype_name(engine->module.dtype),
                                                    .loss = info->loss,
                                                    .grad_norm = info->grad_norm,
                                                    .lr = info->lr,
                                                    .loss_scale = info->loss_scale,
                                                    .applied = info->applied != 0});
    if (info->applied) /* else it is out of range somewhere, and where depends on the layout */
        SHOAL_TRY(status, hash_kind(&hashing, GRADIENT, "gradient"), done);
    for (int32_t k = 1; k < shoali_zero_kind_count(engine->zero); k++) {
        struct shoali_zero_kind kind;
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (kind.dtype == SHOAL_F32) /* 16-bit weights are the masters, rounded */
            SHOAL_TRY(status, hash_kind(&hashing, k, kind.name), done);
    }
    SHOAL_TRY(status, hash_kind(&hashing, 0, "weight"), done);
    SHOAL_TRY(status, write_text(&hashing, false), done);
done:
    hashing_fini(&hashing);
    return status;
}
