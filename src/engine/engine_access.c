/* Getters: numbers, parameters, the fingerprint. */
#include "engine/engine.h"

#include <string.h>

#define FINGERPRINT_BLOCK \
    16 /* elements hashed together: parts of ranks are cut at multiples of it */
#define FINGERPRINT_READ ((int64_t)1 << 18)

void shoal_engine_get_step_info(const shoal_engine *engine, shoal_step_info *info)
{
    *info = engine->info;
}

int64_t shoal_engine_global_steps(const shoal_engine *engine)
{
    return engine->global_steps;
}

void shoal_engine_get_batch_info(const shoal_engine *engine, int64_t *train, int64_t *micro,
                                 int64_t *accumulation)
{
    *train = engine->batch.train;
    *micro = engine->batch.micro;
    *accumulation = engine->batch.accumulation;
}

int64_t shoal_engine_param_count(const shoal_engine *engine)
{
    return engine->module.element_count;
}

int32_t shoal_engine_rank(const shoal_engine *engine)
{
    return engine->rank;
}

int32_t shoal_engine_world_size(const shoal_engine *engine)
{
    return engine->world;
}

void shoal_engine_request_stop(shoal_engine *engine)
{
    engine->stop_asked = 1;
}

int32_t shoal_engine_stop_requested(const shoal_engine *engine)
{
    return engine->stop;
}

void shoal_engine_get_memory_info(const shoal_engine *engine, shoal_memory_info *info)
{
    struct shoali_zero_memory zero;
    struct shoali_device_counters counters;
    shoali_zero_memory(engine->zero, &zero);
    shoali_device_get_counters(engine->device, &counters);
    *info = (shoal_memory_info){
        .weights_bytes = zero.weights_bytes,
        .gradients_bytes = zero.gradients_bytes,
        .states_bytes = zero.states_bytes,
        .activations_bytes = (int64_t)shoali_slot_peak_bytes(engine->slot),
        .buffers_bytes = zero.buffers_bytes,
        .device_peak_bytes = counters.peak_bytes,
        .arena_growths = shoali_slot_growth_count(engine->slot),
        .device_alloc_count = counters.alloc_count,
        .host_sync_count = counters.host_sync_count,
    };
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

/* The part of a parameter that this rank owns: elements [*first, *first + *count) of it. */
static void own_part(const struct shoal_engine *engine, const struct shoal_param *param,
                     int64_t *first, int64_t *count)
{
    int64_t begin, end;
    const int64_t offset = shoali_zero_param_offset(engine->zero, param->index);
    shoali_zero_own_range(engine->zero, &begin, &end);
    begin = begin > offset ? begin : offset;
    end = end < offset + param->count ? end : offset + param->count;
    *first = begin < end ? begin - offset : 0;
    *count = begin < end ? end - begin : 0;
}

/* Every element is owned by one rank (stages 1-3) or by all: the others contribute nothing to a
 * bitwise OR of the words. */
static shoal_status share_parts(struct shoal_engine *engine, float *out, int64_t count)
{
    if (engine->world == 1 || engine->config.zero_optimization.stage == 0)
        return SHOAL_OK;
    return shoal_all_reduce(engine->group, out, out, count, SHOAL_I32, SHOAL_BOR, NULL);
}

static shoal_status get_kind(struct shoal_engine *engine, const char *name, int32_t kind,
                             float *out)
{
    shoal_status status;
    struct shoal_param *param;
    int64_t first, count;
    SHOAL_TRY(status, find_param(engine, name, &param), done);
    own_part(engine, param, &first, &count);
    memset(out, 0, (size_t)param->count * sizeof(float));
    SHOAL_TRY(status,
              shoali_zero_read(engine->zero, kind,
                               shoali_zero_param_offset(engine->zero, param->index) + first, count,
                               out + first),
              done);
    SHOAL_TRY(status, share_parts(engine, out, param->count), done);
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
        if (strcmp(kind.name, state) == 0 && kind.dtype == SHOAL_F32)
            return get_kind(engine, name, k, out);
    }
    return SHOAL_FAIL(SHOAL_EINVAL, "the optimizer keeps no state `%s`", state);
}

shoal_status shoal_engine_get_gradient(shoal_engine *engine, const char *name, float *out)
{
    shoal_status status;
    struct shoal_param *param;
    int64_t first, count;
    SHOAL_TRY(status, find_param(engine, name, &param), done);
    if (engine->inference || engine->global_steps == 0 || engine->micro) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "gradients can be read after a step and before the next forward");
        goto done;
    }
    own_part(engine, param, &first, &count);
    memset(out, 0, (size_t)param->count * sizeof(float));
    SHOAL_TRY(status,
              shoali_zero_read_gradient(engine->zero, param->index, first, count, out + first),
              done);
    SHOAL_TRY(status, share_parts(engine, out, param->count), done);
done:
    return status;
}

shoal_status shoal_engine_set_param(shoal_engine *engine, const char *name, const float *values)
{
    shoal_status status;
    struct shoal_param *param;
    int64_t first, count;
    SHOAL_TRY(status, find_param(engine, name, &param), done);
    own_part(engine, param, &first, &count);
    SHOAL_TRY(status,
              shoali_zero_write(engine->zero, 0,
                                shoali_zero_param_offset(engine->zero, param->index) + first, count,
                                values + first),
              done);
    SHOAL_TRY(status, shoali_zero_masters_changed(engine->zero), done);
done:
    return status;
}

/* ---- fingerprint ---------------------------------------------------------------------------- */

/* Sum of the hashes of 16-element blocks keyed by (kind, block): the same for any cut at block
 * edges. */
static shoal_status hash_kind(struct shoal_engine *engine, int32_t index, int64_t begin,
                              int64_t end, float *buffer, uint64_t *sum)
{
    shoal_status status = SHOAL_OK;
    for (int64_t at = begin; at < end; at += FINGERPRINT_READ) {
        const int64_t count = end - at < FINGERPRINT_READ ? end - at : FINGERPRINT_READ;
        SHOAL_TRY(status, shoali_zero_read(engine->zero, index, at, count, buffer), done);
        for (int64_t i = 0; i < count; i += FINGERPRINT_BLOCK) {
            const int64_t block = count - i < FINGERPRINT_BLOCK ? count - i : FINGERPRINT_BLOCK;
            const uint64_t key = ((uint64_t)index << 56) + (uint64_t)((at + i) / FINGERPRINT_BLOCK);
            *sum += shoali_hash64_seeded(buffer + i, (size_t)block * sizeof(float), key);
        }
    }
done:
    return status;
}

shoal_status shoal_engine_fingerprint(shoal_engine *engine, uint64_t *hash)
{
    shoal_status status = SHOAL_ENOMEM;
    uint64_t sum = 0;
    int64_t begin, end;
    float *buffer = shoali_malloc(FINGERPRINT_READ * sizeof(float), "the fingerprint");
    if (!buffer)
        goto done;
    shoali_zero_own_range(engine->zero, &begin, &end);
    if (engine->config.zero_optimization.stage == 0)
        shoali_pool_slice(shoali_zero_flat_count(engine->zero), FINGERPRINT_BLOCK, engine->rank,
                          engine->world, &begin, &end);
    for (int32_t k = 0; k < shoali_zero_kind_count(engine->zero); k++) {
        struct shoali_zero_kind kind;
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (kind.dtype == SHOAL_F32)
            SHOAL_TRY(status, hash_kind(engine, k, begin, end, buffer, &sum), done);
    }
    status = SHOAL_OK;
    if (engine->world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(engine->group, &sum, &sum, 1, SHOAL_I64, SHOAL_SUM, NULL), done);
    *hash = sum;
done:
    shoali_free(buffer);
    return status;
}
