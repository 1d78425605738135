/* Sums, factors and small states of whole tensors. */
#include "zero/tensors.h"

#include "ops/limbs.h"

#include <string.h>

enum { LIMBS = 3, WORDS = 6 }; /* of a sum; 32 bits of it each, so that ranks' words add up */

static int32_t param_count(const struct shoali_zero_tensors *tensors)
{
    return tensors->setup->args.module->param_count;
}

static int64_t all_of(const struct shoali_zero_tensors *tensors, enum shoali_state_kind kind)
{
    return tensors->begin[kind][param_count(tensors)];
}

/* ---- creation ------------------------------------------------------------------------------- */

static bool is_needed(const struct shoali_optimizer *optimizer)
{
    return optimizer && (optimizer->type->measure_count > 0 ||
                         shoali_optimizer_element_states(optimizer) < optimizer->state_count);
}

static shoal_status make_tables(struct shoali_zero_tensors *tensors)
{
    const struct shoali_module *module = tensors->setup->args.module;
    const size_t count = (size_t)module->param_count + 1;
    tensors->tensor = shoali_calloc(count, sizeof *tensors->tensor, "tensors of the optimizer");
    tensors->rule = shoali_calloc(count, sizeof *tensors->rule, "tensors of the optimizer");
    bool whole = tensors->tensor && tensors->rule;
    for (int32_t k = SHOALI_STATE_ROW; k <= SHOALI_STATE_TENSOR; k++) {
        tensors->begin[k] =
            shoali_calloc(count, sizeof *tensors->begin[k], "tensors of the optimizer");
        whole = whole && tensors->begin[k];
        for (int32_t p = 0; whole && p < module->param_count; p++) {
            const shoal_shape shape =
                shoali_state_shape((enum shoali_state_kind)k, &module->param[p]->shape);
            const bool here = !shoali_shard_is_nothing(module->param[p]->shard);
            tensors->begin[k][p + 1] =
                tensors->begin[k][p] + (here ? shoal_shape_count(&shape) : 0);
        }
    }
    return whole ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status describe_tensors(struct shoali_zero_tensors *tensors)
{
    const struct shoali_module *module = tensors->setup->args.module;
    for (int32_t p = 0; p < module->param_count; p++) {
        const struct shoal_param *param = module->param[p];
        const struct shoali_param_rule rule =
            shoali_zero_rule_of(tensors->setup->args.rule, tensors->setup->args.optimizer, param);
        if (shoali_shard_is_nothing(param->shard)) /* of another stage */
            continue;
        if (param->shard)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "%s needs whole tensors, but this rank holds a shard of `%s`: use an "
                              "optimizer that does not, such as AdamW",
                              tensors->type->name, param->name);
        shoali_optimizer_tensor_init(&tensors->tensor[p], &param->shape);
        tensors->tensor[p].lr_multiplier = rule.lr_multiplier;
        tensors->tensor[p].weight_decay_multiplier = rule.weight_decay_multiplier;
        tensors->rule[p] = param->tags & SHOAL_PARAM_FROZEN ? NULL : rule.optimizer;
    }
    return SHOAL_OK;
}

/* Pinned memory in parts: of zeros, each at a multiple of 64 bytes. */
static shoal_status make_record(struct shoali_zero_tensors *tensors)
{
    shoal_status status;
    struct shoali_device *device = tensors->setup->args.device;
    const int64_t sums = tensors->sum_count;
    const bool outside = tensors->setup->offloads;
    const struct {
        void **part;
        int64_t bytes;
    } parts[] = {
        {(void **)&tensors->arrived, sums * LIMBS * 8},
        {(void **)&tensors->words, sums * WORDS * 8},
        {(void **)&tensors->number, sums * 8},
        {(void **)&tensors->sent, tensors->factor_count * 4},
        {(void **)&tensors->outside_sum, outside ? sums * LIMBS * 8 : 0},
    };
    const int32_t part_count = sizeof parts / sizeof parts[0];
    int64_t at = 0;
    for (int32_t i = 0; i < part_count; i++)
        at += (parts[i].bytes + 63) / 64 * 64;
    for (int32_t s = 0; s < tensors->setup->optimizer.state_count; s++)
        if (tensors->type->states[s].kind != SHOALI_STATE_ELEMENT)
            at += all_of(tensors, tensors->type->states[s].kind) * 4;
    tensors->host_bytes = at;
    SHOAL_TRY(status, shoali_device_host_alloc(device, (size_t)at, &tensors->record), done);
    if (!shoali_device_is_meta(device))
        memset(tensors->record, 0, (size_t)at);
    at = 0;
    for (int32_t i = 0; i < part_count; i++) {
        *parts[i].part = (char *)tensors->record + at;
        at += (parts[i].bytes + 63) / 64 * 64;
    }
    for (int32_t s = 0; s < tensors->setup->optimizer.state_count; s++) {
        if (tensors->type->states[s].kind == SHOALI_STATE_ELEMENT)
            continue;
        tensors->state[s] = (float *)(void *)((char *)tensors->record + at);
        at += all_of(tensors, tensors->type->states[s].kind) * 4;
    }
done:
    return status;
}

static void count_numbers(struct shoali_zero_tensors *tensors)
{
    const struct shoali_optimizer_type *type = tensors->type;
    for (int32_t m = 0; m < type->measure_count; m++) {
        int64_t count = 0;
        for (int32_t k = 0; k < type->measures[m].sum_count; k++)
            count += all_of(tensors, type->measures[m].sum[k]);
        tensors->sum_count = count > tensors->sum_count ? count : tensors->sum_count;
    }
    for (int32_t f = 0; f < type->factor_count; f++)
        tensors->factor_count += all_of(tensors, type->factor[f]);
}

shoal_status shoali_zero_tensors_init(struct shoali_zero_tensors *tensors)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = tensors->setup;
    if (!is_needed(setup->args.optimizer))
        return SHOAL_OK;
    tensors->type = setup->optimizer.type;
    SHOAL_TRY(status, make_tables(tensors), done);
    SHOAL_TRY(status, describe_tensors(tensors), done);
    count_numbers(tensors);
    const int64_t sums = tensors->sum_count * LIMBS * 8, factors = tensors->factor_count * 4;
    tensors->device_bytes = sums + factors;
    SHOAL_TRY(
        status,
        shoali_device_alloc_zeroed(setup->args.exec.stream, (size_t)sums, (void **)&tensors->sum),
        done);
    SHOAL_TRY(status,
              shoali_device_alloc_zeroed(setup->args.exec.stream, (size_t)factors,
                                         (void **)&tensors->factor),
              done);
    SHOAL_TRY(status, make_record(tensors), done);
done:
    return status;
}

void shoali_zero_tensors_fini(struct shoali_zero_tensors *tensors)
{
    if (!tensors->type)
        return;
    struct shoali_device *device = tensors->setup->args.device;
    if (tensors->sum)
        shoali_device_free(device, tensors->sum);
    if (tensors->factor)
        shoali_device_free(device, tensors->factor);
    if (tensors->record)
        shoali_device_host_free(device, tensors->record);
    for (int32_t k = SHOALI_STATE_ROW; k <= SHOALI_STATE_TENSOR; k++)
        shoali_free(tensors->begin[k]);
    shoali_free(tensors->tensor);
    shoali_free(tensors->rule);
}

/* ---- where things are ----------------------------------------------------------------------- */

/* Where the numbers of list[index] of a parameter begin: parameter after parameter, the lists of
 * one behind each other. */
static int64_t place(const struct shoali_zero_tensors *tensors, const enum shoali_state_kind *list,
                     int32_t count, int32_t index, int32_t param)
{
    int64_t at = 0;
    for (int32_t i = 0; i < count; i++)
        at += tensors->begin[list[i]][param + (i < index)];
    return at;
}

void shoali_zero_tensors_point(const struct shoali_zero_tensors *tensors, int32_t measure,
                               int32_t param, int64_t begin, bool on_host,
                               struct shoali_optimizer_segment *segment)
{
    const struct shoali_optimizer_type *type = tensors->type;
    if (!type)
        return;
    segment->tensor = &tensors->tensor[param];
    segment->first = begin - tensors->setup->args.module->param[param]->begin;
    for (int32_t f = 0; f < type->factor_count; f++)
        segment->factor[f] = (on_host ? tensors->sent : tensors->factor) +
                             place(tensors, type->factor, type->factor_count, f, param);
    for (int32_t k = 0; measure >= 0 && k < type->measures[measure].sum_count; k++)
        segment->sum[k] = (on_host ? tensors->outside_sum : tensors->sum) +
                          LIMBS * place(tensors, type->measures[measure].sum,
                                        type->measures[measure].sum_count, k, param);
}

/* ---- a measure ------------------------------------------------------------------------------ */

static int64_t numbers_of(const struct shoali_zero_tensors *tensors, int32_t measure)
{
    const struct shoali_optimizer_measure *what = &tensors->type->measures[measure];
    int64_t count = 0;
    for (int32_t k = 0; k < what->sum_count; k++)
        count += all_of(tensors, what->sum[k]);
    return count;
}

shoal_status shoali_zero_tensors_begin(struct shoali_zero_tensors *tensors, int32_t measure)
{
    shoal_status status;
    const size_t bytes = (size_t)numbers_of(tensors, measure) * LIMBS * 8;
    SHOAL_TRY(status, shoali_fill(tensors->setup->args.exec.stream, tensors->sum, 0, bytes), done);
    if (tensors->setup->offloads)
        SHOAL_TRY(status,
                  shoali_fill(tensors->outside->exec.stream, tensors->outside_sum, 0, bytes), done);
done:
    return status;
}

/* Both copies of a sum into one, in words that have room for those of 2^31 ranks. */
static void split(struct shoali_zero_tensors *tensors, int64_t from, int64_t *words)
{
    uint64_t limbs[LIMBS];
    memcpy(limbs, tensors->arrived + LIMBS * from, sizeof limbs);
    if (tensors->setup->offloads)
        limbs_add(limbs, tensors->outside_sum + LIMBS * from);
    for (int32_t i = 0; i < LIMBS; i++) {
        words[2 * i] = (int64_t)(limbs[i] & 0xffffffffu);
        words[2 * i + 1] = (int64_t)(limbs[i] >> 32);
    }
}

static double join(const int64_t *words)
{
    uint64_t limbs[LIMBS], carry = 0;
    for (int32_t i = 0; i < LIMBS; i++) {
        const uint64_t low = (uint64_t)words[2 * i] + carry;
        const uint64_t high = (uint64_t)words[2 * i + 1] + (low >> 32);
        limbs[i] = (low & 0xffffffffu) | (high << 32);
        carry = high >> 32;
    }
    return limbs_sum_of_terms(limbs);
}

/* The group's ranks have different elements. Of ranks with the same ones (MiCS) the first adds. */
static bool is_cut(const struct shoali_zero_tensors *tensors, int32_t group)
{
    return tensors->layout->group[group].parts > 1 && tensors->jobs->here[group].group;
}

/* Walks the sums of a group's tensors in the order of its message: into words, or from there into
 * numbers. Returns how many words there are. */
static int64_t walk_group(struct shoali_zero_tensors *tensors, int32_t measure, int32_t group,
                          bool out)
{
    const struct shoali_zero_layout *layout = tensors->layout;
    const struct shoali_optimizer_measure *what = &tensors->type->measures[measure];
    const bool meta = shoali_device_is_meta(tensors->setup->args.device);
    const bool adds = !is_cut(tensors, group) || layout->group[group].replica == 0;
    int64_t at = 0;
    for (int32_t p = 0; p < param_count(tensors); p++) {
        if (layout->unit[layout->unit_of_param[p]].group != group || !tensors->rule[p])
            continue;
        for (int32_t k = 0; k < what->sum_count; k++) {
            const int64_t *begin = tensors->begin[what->sum[k]];
            const int64_t first = place(tensors, what->sum, what->sum_count, k, p),
                          count = begin[p + 1] - begin[p];
            for (int64_t i = 0; i < count && !meta; i++) {
                int64_t *words = tensors->words + at + WORDS * i;
                if (!out)
                    tensors->number[first + i] = join(words);
                else if (adds)
                    split(tensors, first + i, words);
                else
                    memset(words, 0, WORDS * sizeof *words);
            }
            at += WORDS * count;
        }
    }
    return at;
}

static shoal_status sum_over_ranks(struct shoali_zero_tensors *tensors, int32_t measure)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = tensors->layout;
    for (int32_t g = 0; g < layout->args.group_count; g++) {
        const int64_t count = walk_group(tensors, measure, g, true);
        if (is_cut(tensors, g) && count > 0)
            SHOAL_TRY(status,
                      shoal_all_reduce(tensors->jobs->here[g].group, tensors->words, tensors->words,
                                       count, SHOAL_I64, SHOAL_SUM, NULL),
                      done);
        (void)walk_group(tensors, measure, g, false);
    }
done:
    return status;
}

static void conclude_tensor(struct shoali_zero_tensors *tensors, int32_t measure, int32_t param,
                            const struct shoali_optimizer_now *now)
{
    const struct shoali_optimizer_type *type = tensors->type;
    const struct shoali_optimizer_measure *what = &type->measures[measure];
    struct shoali_optimizer_tensor tensor = tensors->tensor[param];
    for (int32_t k = 0; k < what->sum_count; k++)
        tensor.sum[k] = tensors->number + place(tensors, what->sum, what->sum_count, k, param);
    for (int32_t f = 0; f < type->factor_count; f++)
        tensor.factor[f] =
            tensors->sent + place(tensors, type->factor, type->factor_count, f, param);
    for (int32_t s = 0; s < tensors->setup->optimizer.state_count; s++)
        if (tensors->state[s])
            tensor.state[s] = tensors->state[s] + tensors->begin[type->states[s].kind][param];
    if (tensor.count > 0)
        what->conclude(tensors->rule[param], now, &tensor);
}

shoal_status shoali_zero_tensors_conclude(struct shoali_zero_tensors *tensors, int32_t measure,
                                          const struct shoali_optimizer_now *now)
{
    shoal_status status;
    struct shoali_device_stream *stream = tensors->setup->args.exec.stream;
    const bool meta = shoali_device_is_meta(tensors->setup->args.device);
    SHOAL_TRY(status,
              shoali_copy(stream, tensors->arrived, tensors->sum,
                          (size_t)numbers_of(tensors, measure) * LIMBS * 8, SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    if (tensors->setup->offloads && tensors->outside->exec.stream != stream)
        SHOAL_TRY(status, shoali_stream_synchronize(tensors->outside->exec.stream), done);
    SHOAL_TRY(status, sum_over_ranks(tensors, measure), done);
    for (int32_t p = 0; p < param_count(tensors) && !meta; p++)
        if (tensors->rule[p])
            conclude_tensor(tensors, measure, p, now);
    SHOAL_TRY(status,
              shoali_copy(stream, tensors->factor, tensors->sent,
                          (size_t)tensors->factor_count * sizeof(float), SHOALI_HOST_TO_DEVICE),
              done);
done:
    return status;
}
