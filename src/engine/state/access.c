/* Getters: numbers, parameters, the fingerprint. */
#include "engine/engine.h"

#include <string.h>

#define SLICE_GRAIN 16 /* of what all ranks have each hashes a slice, of multiples of this */
#define FINGERPRINT_READ ((int64_t)1 << 18)

void shoal_engine_get_step_info(const shoal_engine *engine, shoal_step_info *info)
{
    if (info)
        *info = engine->step.info;
}

int64_t shoal_engine_global_steps(const shoal_engine *engine)
{
    return engine->step.global_steps;
}

void shoal_engine_get_batch_info(const shoal_engine *engine, int64_t *train, int64_t *micro,
                                 int64_t *accumulation)
{
    if (train)
        *train = engine->step.batch.train;
    if (micro)
        *micro = engine->step.batch.micro;
    if (accumulation)
        *accumulation = engine->step.batch.accumulation;
}

shoal_dtype shoal_engine_dtype(const shoal_engine *engine)
{
    return engine->module.dtype;
}

int64_t shoal_engine_param_count(const shoal_engine *engine)
{
    return engine->module.whole_count;
}

void shoal_engine_get_micro_range(const shoal_engine *engine, int64_t *first, int64_t *count)
{
    *first = engine->place.data_rank * engine->step.batch.accumulation;
    *count = engine->step.batch.accumulation;
}

int32_t shoal_engine_rank(const shoal_engine *engine)
{
    return engine->place.rank;
}

int32_t shoal_engine_world_size(const shoal_engine *engine)
{
    return engine->place.world;
}

void shoal_engine_request_stop(shoal_engine *engine)
{
    engine->step.stop_asked = 1;
}

bool shoal_engine_stop_requested(const shoal_engine *engine)
{
    return engine->step.stop;
}

/* A pipeline's slots are all as large as its largest chunk needs, whichever chunks they had. */
static int64_t slot_bytes(const struct shoal_engine *engine, const struct shoali_slot *slot,
                          int64_t planned)
{
    const int64_t peak = (int64_t)shoali_slot_peak_bytes(slot);
    return slot && engine->stages.count > 1 && peak < planned ? planned : peak;
}

void shoal_engine_get_memory_info(const shoal_engine *engine, shoal_memory_info *info)
{
    struct shoali_zero_memory zero;
    struct shoali_device_counters counters;
    struct shoali_comm_counters comm = {0};
    shoali_zero_memory(engine->zero, &zero);
    shoali_device_get_counters(engine->device, &counters);
    int64_t activations = 0, kept = 0, growths = 0;
    for (int32_t i = 0; i < engine->step.micro_count; i++) {
        const struct shoali_micro *micro = &engine->step.micro[i];
        activations += slot_bytes(engine, micro->slot, engine->step.micro_cost.slot_bytes);
        kept += slot_bytes(engine, micro->kept_slot, engine->step.micro_cost.kept_bytes);
        growths +=
            shoali_slot_growth_count(micro->slot) + shoali_slot_growth_count(micro->kept_slot);
    }
    if (engine->place.group)
        shoali_comm_get_counters(engine->place.group, &comm);
    const shoal_memory_info found = {
        .weights_bytes = zero.weights_bytes,
        .gradients_bytes = zero.gradients_bytes,
        .states_bytes = zero.states_bytes,
        .activations_bytes = activations + (engine->step.recompute.cpu ? 0 : kept),
        .buffers_bytes = zero.buffers_bytes + (int64_t)engine->stages.memory_bytes,
        .device_peak_bytes = counters.peak_bytes,
        .arena_growths = growths,
        .device_alloc_count = counters.alloc_count,
        .host_sync_count = counters.host_sync_count,
        .packed_weights_bytes = (int64_t)engine->packed_weights_bytes,
        .master_bytes = zero.master_bytes,
        .host_peak_bytes = counters.host_peak_bytes,
        .comm_bytes = (1 + comm.split_count) * shoali_comm_control_bytes(engine->place.world),
        .offload_host_bytes = zero.host_bytes,
        .offload_nvme_bytes = zero.nvme_bytes,
        .offload_pinned_bytes = zero.pinned_bytes,
        .offload_read_bytes = zero.states_read_bytes,
        .offload_written_bytes = zero.states_written_bytes,
        .checkpoint_bytes = engine->save.buffer_bytes,
        .activations_host_bytes = engine->step.recompute.cpu ? kept : 0,
        .workspace_bytes = counters.workspace_bytes,
        .device_workspace_bytes = counters.stream_workspace_bytes,
    };
    if (info)
        *info = found;
}

const char *shoal_engine_param_name(const shoal_engine *engine, int32_t index)
{
    return index >= 0 && index < engine->module.param_count ? engine->module.param[index]->name
                                                            : NULL;
}

/* ---- one parameter -------------------------------------------------------------------------- */

static shoal_status find_param(const struct shoal_engine *engine, const char *name,
                               struct shoal_param **param)
{
    *param = shoali_module_find(&engine->module, name);
    if (*param)
        return SHOAL_OK;
    const char **names =
        shoali_calloc((size_t)engine->module.param_count + 1, sizeof *names, "parameter names");
    if (!names)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < engine->module.param_count; i++)
        names[i] = engine->module.param[i]->name;
    const char *near = shoali_nearest(name, names, (size_t)engine->module.param_count);
    shoali_free(names);
    return SHOAL_FAIL(SHOAL_EINVAL, "the model has no parameter `%s`%s%s%s", name,
                      near ? "; nearest is `" : "", near ? near : "", near ? "`" : "");
}

/* The i-th own range cut to a parameter, in the flat space. */
static bool own_run(const struct shoal_engine *engine, const struct shoal_param *param, int32_t i,
                    int64_t *begin, int64_t *count)
{
    int32_t ranges;
    const struct shoali_zero_range *range = shoali_zero_own_ranges(engine->zero, &ranges);
    const int64_t first = param->begin;
    int64_t end = range[i].begin + range[i].count;
    *begin = range[i].begin > first ? range[i].begin : first;
    end = end < first + param->count ? end : first + param->count;
    *count = end - *begin;
    return *begin < end;
}

/* Every element is held by one rank, or by several alike: the others contribute nothing to a
 * bitwise OR of the words. */
static shoal_status share_parts(struct shoal_engine *engine, const struct shoal_param *param,
                                float *out)
{
    const bool whole = (param->cut_by & ~SHOAL_AXIS_EXPERT) == 0; /* the same on all ranks */
    if (engine->place.world == 1 || (engine->config.zero_optimization.stage == 0 && whole))
        return SHOAL_OK;
    return shoal_all_reduce(engine->place.group, out, out, shoal_param_count(param), SHOAL_I32,
                            SHOAL_BOR, NULL);
}

static shoal_status read_elements(struct shoal_engine *engine, int32_t kind, int64_t begin,
                                  int64_t count, float *out)
{
    return kind < 0 ? shoali_zero_read_gradient(engine->zero, begin, count, out)
                    : shoali_zero_read(engine->zero, kind, begin, count, out);
}

/* Elements [begin, begin + count) of the flat space, all of one parameter, to their places in its
 * whole, or from there. */
static void place_run(const struct shoal_engine *engine, int64_t begin, int64_t count,
                      const float *run, float *whole)
{
    for (int64_t at = begin; at < begin + count;) {
        const struct shoali_piece piece = shoali_module_piece(&engine->module, at, begin + count);
        memcpy(whole + piece.first, run + (at - begin), (size_t)piece.count * sizeof(float));
        at += piece.count;
    }
}

static void take_run(const struct shoal_engine *engine, int64_t begin, int64_t count,
                     const float *whole, float *run)
{
    for (int64_t at = begin; at < begin + count;) {
        const struct shoali_piece piece = shoali_module_piece(&engine->module, at, begin + count);
        memcpy(run + (at - begin), whole + piece.first, (size_t)piece.count * sizeof(float));
        at += piece.count;
    }
}

/* Kind -1: the gradient. */
static shoal_status get_kind(struct shoal_engine *engine, const char *name, int32_t kind,
                             float *out)
{
    shoal_status status;
    struct shoal_param *param;
    float *run = NULL;
    int64_t begin, count;
    int32_t ranges;
    SHOAL_TRY(status, find_param(engine, name, &param), done);
    run = shoali_malloc((size_t)param->count * sizeof *run + 1, "a parameter's values");
    if (!run) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memset(out, 0, (size_t)shoal_param_count(param) * sizeof(float));
    shoali_zero_own_ranges(engine->zero, &ranges);
    for (int32_t i = 0; i < ranges; i++)
        if (own_run(engine, param, i, &begin, &count)) {
            SHOAL_TRY(status, read_elements(engine, kind, begin, count, run), done);
            place_run(engine, begin, count, run, out);
        }
    SHOAL_TRY(status, share_parts(engine, param, out), done);
done:
    shoali_free(run);
    return status;
}

/* How many numbers a parameter has in a kind that is not per element, on the ranks that hold it. */
static int64_t small_count(const struct shoal_param *param, enum shoali_state_kind kind)
{
    const shoal_shape shape = shoali_state_shape(kind, shoal_param_shape(param));
    return shoal_shape_count(&shape);
}

/* A state that is not per element: every rank has it; in a pipeline, those of its stages. */
static shoal_status get_small(struct shoal_engine *engine, const char *name, int32_t kind,
                              float *out)
{
    shoal_status status;
    struct shoal_param *param;
    SHOAL_TRY(status, find_param(engine, name, &param), done);
    const int64_t first = shoali_zero_kind_offset(engine->zero, kind, param->index);
    const int64_t count = shoali_zero_kind_offset(engine->zero, kind, param->index + 1) - first;
    struct shoali_zero_kind is;
    shoali_zero_get_kind(engine->zero, kind, &is);
    const int64_t all = small_count(param, is.of);
    memset(out, 0, (size_t)all * sizeof *out);
    SHOAL_TRY(status, shoali_zero_read(engine->zero, kind, first, count, out), done);
    if (engine->stages.count > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(engine->place.group, out, out, all, SHOAL_I32, SHOAL_BOR, NULL),
                  done);
done:
    return status;
}

shoal_status shoal_engine_get_param(shoal_engine *engine, const char *name, float *out)
{
    return get_kind(engine, name, 0, out);
}

shoal_status shoal_engine_get_state(shoal_engine *engine, const char *name, const char *state,
                                    float *out)
{
    for (int32_t k = 1; k < shoali_zero_kind_count(engine->zero); k++) {
        struct shoali_zero_kind kind;
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (strcmp(kind.name, state) != 0 || kind.dtype != SHOAL_F32)
            continue;
        return kind.of == SHOALI_STATE_ELEMENT ? get_kind(engine, name, k, out)
                                               : get_small(engine, name, k, out);
    }
    return SHOAL_FAIL(SHOAL_EINVAL, "the optimizer keeps no state `%s`", state);
}

shoal_status shoal_engine_get_gradient(shoal_engine *engine, const char *name, float *out)
{
    if (engine->inference || engine->step.global_steps == 0 || engine->step.micros_done)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "gradients can be read after a step and before the next forward");
    return get_kind(engine, name, -1, out);
}

shoal_status shoal_engine_set_param(shoal_engine *engine, const char *name, const float *values)
{
    shoal_status status;
    struct shoal_param *param;
    float *run = NULL;
    int64_t begin, count;
    int32_t ranges;
    SHOAL_TRY(status, find_param(engine, name, &param), done);
    SHOAL_TRY(status, shoal_engine_wait_save(engine), done);
    run = shoali_malloc((size_t)param->count * sizeof *run + 1, "a parameter's values");
    if (!run) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    shoali_zero_own_ranges(engine->zero, &ranges);
    for (int32_t i = 0; i < ranges; i++)
        if (own_run(engine, param, i, &begin, &count)) {
            take_run(engine, begin, count, values, run);
            SHOAL_TRY(status, shoali_zero_write(engine->zero, 0, begin, count, run), done);
        }
    SHOAL_TRY(status, shoali_zero_masters_changed(engine->zero), done);
done:
    shoali_free(run);
    return status;
}

/* ---- fingerprint ---------------------------------------------------------------------------- */

/* Sum of the hashes of elements keyed by (kind, element of the wholes): the same for any cut. */
static shoal_status hash_range(struct shoal_engine *engine, int32_t index, int64_t begin,
                               int64_t end, float *buffer, uint64_t *sum)
{
    shoal_status status = SHOAL_OK;
    struct shoali_piece piece;
    for (int64_t at = begin; at < end; at += FINGERPRINT_READ) {
        const int64_t count = end - at < FINGERPRINT_READ ? end - at : FINGERPRINT_READ;
        SHOAL_TRY(status, shoali_zero_read(engine->zero, index, at, count, buffer), done);
        for (int64_t i = 0; i < count; i += piece.count) {
            piece = shoali_module_piece(&engine->module, at + i, at + count);
            const uint64_t key =
                ((uint64_t)index << 56) + (uint64_t)(piece.param->whole_begin + piece.first);
            for (int64_t k = 0; k < piece.count; k++)
                *sum += shoali_hash64_seeded(&buffer[i + k], sizeof buffer[0], key + (uint64_t)k);
        }
    }
done:
    return status;
}

/* The same of a kind that is not per element, which has a flat space of its own. */
static shoal_status hash_small(struct shoal_engine *engine, int32_t index,
                               struct shoali_zero_range range, float *buffer, uint64_t *sum)
{
    shoal_status status = SHOAL_OK;
    for (int64_t done = 0; done < range.count; done += FINGERPRINT_READ) {
        const int64_t left = range.count - done;
        const int64_t count = left < FINGERPRINT_READ ? left : FINGERPRINT_READ;
        SHOAL_TRY(status, shoali_zero_read(engine->zero, index, range.begin + done, count, buffer),
                  done);
        for (int64_t i = 0; i < count; i++)
            *sum += shoali_hash64_seeded(&buffer[i], sizeof buffer[i],
                                         ((uint64_t)index << 56) + (uint64_t)(range.at + done + i));
    }
done:
    return status;
}

struct shoali_zero_range shoali_engine_small_slice(const struct shoal_engine *engine, int32_t kind,
                                                   int32_t param, int64_t *whole)
{
    const int64_t first = shoali_zero_kind_offset(engine->zero, kind, param);
    const int64_t count = shoali_zero_kind_offset(engine->zero, kind, param + 1) - first;
    const bool tied = engine->module.param[param]->uses > 1;
    struct shoali_zero_kind is;
    const int64_t at = *whole;
    int64_t begin, end;
    shoali_zero_get_kind(engine->zero, kind, &is);
    *whole += small_count(engine->module.param[param], is.of);
    if (engine->stages.count == 1)
        shoali_pool_slice(count, SLICE_GRAIN, engine->place.rank, engine->place.world, &begin,
                          &end);
    else if (tied && engine->stages.first_stage[param] != engine->stages.index)
        begin = end = 0;
    else
        shoali_pool_slice(count, SLICE_GRAIN, engine->place.data_rank, engine->place.data_ranks,
                          &begin, &end);
    return (struct shoali_zero_range){first + begin, end - begin, at + begin};
}

static shoal_status hash_kind(struct shoal_engine *engine, int32_t index, float *buffer,
                              uint64_t *sum)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_kind kind;
    int32_t ranges;
    int64_t whole = 0;
    const struct shoali_zero_range *range = shoali_zero_counted_ranges(engine->zero, &ranges);
    shoali_zero_get_kind(engine->zero, index, &kind);
    for (int32_t p = 0; p < engine->module.param_count && kind.of != SHOALI_STATE_ELEMENT; p++) {
        const struct shoali_zero_range slice = shoali_engine_small_slice(engine, index, p, &whole);
        SHOAL_TRY(status, hash_small(engine, index, slice, buffer, sum), done);
    }
    if (kind.of != SHOALI_STATE_ELEMENT)
        goto done;
    for (int32_t i = 0; i < ranges && kind.dtype == SHOAL_F32; i++)
        SHOAL_TRY(
            status,
            hash_range(engine, index, range[i].begin, range[i].begin + range[i].count, buffer, sum),
            done);
done:
    return status;
}

shoal_status shoal_engine_fingerprint(shoal_engine *engine, uint64_t *hash)
{
    shoal_status status = SHOAL_ENOMEM;
    uint64_t sum = 0;
    float *buffer = shoali_malloc(FINGERPRINT_READ * sizeof(float), "the fingerprint");
    if (!buffer)
        goto done;
    for (int32_t k = 0; k < shoali_zero_kind_count(engine->zero); k++)
        SHOAL_TRY(status, hash_kind(engine, k, buffer, &sum), done);
    status = SHOAL_OK;
    if (engine->place.world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(engine->place.group, &sum, &sum, 1, SHOAL_I64, SHOAL_SUM, NULL),
                  done);
    *hash = sum;
done:
    shoali_free(buffer);
    return status;
}
