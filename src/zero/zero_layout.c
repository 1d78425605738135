/* Who owns what: units, buckets, ranges, segments. The same arithmetic on every rank. */
#include "zero/zero_internal.h"

#include <inttypes.h>

#define PART_GRAIN \
    16 /* parts are multiples of this many elements, so that vectors never straddle two owners */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Elements of one message: whole parts, so that only the last bucket of a unit is padded. */
static int64_t bucket_limit(const struct shoali_zero *zero)
{
    const int64_t grain = (int64_t)zero->parts * PART_GRAIN;
    int64_t limit = INT64_MAX;
    if (zero->stage == 0 && !zero->fetches)
        return limit;
    if (zero->args.reduce_bucket_size > 0)
        limit = zero->args.reduce_bucket_size;
    if (zero->args.allgather_bucket_size > 0)
        limit = smaller(limit, zero->args.allgather_bucket_size);
    return larger(limit / grain, 1) * grain;
}

/* ---- units ---------------------------------------------------------------------------------- */

static bool wants_gradient(const struct shoali_module *module, int32_t first, int32_t count)
{
    for (int32_t i = first; i < first + count; i++)
        if (!(module->param[i]->tags & SHOAL_PARAM_FROZEN))
            return true;
    return false;
}

static void add_unit(struct shoali_zero *zero, int32_t first_param, int32_t param_count)
{
    const struct shoali_module *module = zero->args.module;
    struct shoali_zero_unit *unit = &zero->unit[zero->unit_count];
    *unit = (struct shoali_zero_unit){
        .first_param = first_param,
        .param_count = param_count,
        .begin = first_param < module->param_count ? zero->offset[first_param] : zero->flat_count,
        .trains = zero->args.optimizer && wants_gradient(module, first_param, param_count),
    };
    for (int32_t i = first_param; i < first_param + param_count; i++) {
        unit->count += module->param[i]->count;
        zero->unit_of_param[i] = zero->unit_count;
    }
    zero->unit_count++;
}

/* Small neighbours are one unit until it is large enough. It is complete in backward with its first
 * layer. */
static bool joins_last(struct shoali_zero *zero, int32_t first_param, int32_t param_count)
{
    const struct shoali_module *module = zero->args.module;
    const int64_t limit = zero->stage == 3 ? zero->args.fetch.granularity : 0;
    struct shoali_zero_unit *last = zero->unit_count ? &zero->unit[zero->unit_count - 1] : NULL;
    int64_t count = 0;
    for (int32_t i = first_param; i < first_param + param_count; i++)
        count += module->param[i]->count;
    if (!last || last->count >= limit || count >= limit)
        return false;
    last->param_count += param_count;
    last->count += count;
    last->trains =
        last->trains || (zero->args.optimizer && wants_gradient(module, first_param, param_count));
    for (int32_t i = first_param; i < first_param + param_count; i++)
        zero->unit_of_param[i] = zero->unit_count - 1;
    return true;
}

/* How many parameters layer `index` declares first; they follow `next` in canonical order. */
static int32_t own_params(const struct shoal_layer *layer, int32_t next)
{
    int32_t own = 0;
    for (int32_t i = 0; i < layer->param_count; i++)
        own += layer->param[i]->index == next + own;
    return own;
}

static void make_units(struct shoali_zero *zero)
{
    const struct shoali_module *module = zero->args.module;
    int32_t next = 0;
    for (int32_t l = 0; l < module->layer_count; l++) {
        zero->own_unit[l] = -1;
        zero->own_first[l] = next;
        next += own_params(&module->layer[l], next);
    }
    zero->own_first[module->layer_count] = next;
    if (zero->stage < 2 && !zero->fetches) {
        add_unit(zero, 0, module->param_count);
        return;
    }
    for (int32_t l = 0; l < module->layer_count; l++) {
        const int32_t own = zero->own_first[l + 1] - zero->own_first[l];
        if (own == 0 || joins_last(zero, zero->own_first[l], own))
            continue;
        zero->own_unit[l] = zero->unit_count;
        add_unit(zero, zero->own_first[l], own);
        zero->unit[zero->own_unit[l]].name = module->layer[l].name;
    }
}

/* The units that each layer uses, every one once. */
static void list_needs(struct shoali_zero *zero)
{
    const struct shoali_module *module = zero->args.module;
    int32_t at = 0;
    int64_t elements = 0;
    for (int32_t l = 0; l < module->layer_count; l++) {
        const struct shoal_layer *layer = &module->layer[l];
        zero->need_begin[l] = at;
        for (int32_t i = 0; i < layer->param_count; i++) {
            const int32_t unit = zero->unit_of_param[layer->param[i]->index];
            int32_t seen = zero->need_begin[l];
            while (seen < at && zero->need[seen] != unit)
                seen++;
            if (seen < at)
                continue;
            zero->need[at++] = unit;
            elements += zero->unit[unit].count;
        }
        zero->elements_before[l + 1] = elements;
    }
    zero->need_begin[module->layer_count] = at;
}

/* The inverse of the needs. */
static void list_uses(struct shoali_zero *zero)
{
    const int32_t layers = zero->args.module->layer_count;
    int32_t *end = zero->use_begin + 1; /* while filling: of a unit's uses so far */
    for (int32_t n = 0; n < zero->need_begin[layers]; n++)
        zero->use_begin[zero->need[n] + 1]++;
    for (int32_t u = 0, at = 0; u < zero->unit_count; u++) {
        const int32_t count = end[u];
        end[u] = at;
        at += count;
    }
    for (int32_t l = 0; l < layers; l++)
        for (int32_t n = zero->need_begin[l]; n < zero->need_begin[l + 1]; n++)
            zero->use[end[zero->need[n]]++] = l;
}

/* ---- buckets and ranges --------------------------------------------------------------------- */

static int64_t count_buckets(const struct shoali_zero *zero)
{
    const int64_t limit = bucket_limit(zero);
    int64_t count = 0;
    for (int32_t u = 0; u < zero->unit_count; u++)
        count += zero->unit[u].count / limit + (zero->unit[u].count % limit != 0);
    return count;
}

static void cut_unit(struct shoali_zero *zero, struct shoali_zero_unit *unit, int64_t limit)
{
    const int64_t parts = (int64_t)zero->parts, grain = parts * PART_GRAIN;
    unit->first_bucket = zero->bucket_count;
    unit->whole = zero->whole_count;
    for (int64_t done = 0; done < unit->count; unit->bucket_count++) {
        const int64_t count = smaller(limit, unit->count - done);
        const int64_t padded = (count + grain - 1) / grain * grain;
        zero->bucket[zero->bucket_count++] =
            (struct shoali_zero_bucket){.begin = unit->begin + done,
                                        .count = count,
                                        .whole = zero->whole_count,
                                        .local = zero->part_count,
                                        .part = padded / parts};
        zero->whole_count += padded;
        zero->part_count += padded / parts;
        done += count;
    }
    unit->padded = zero->whole_count - unit->whole;
}

static void own_ranges(struct shoali_zero *zero)
{
    const int64_t seat = zero->seat;
    for (int32_t b = 0; b < zero->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        const int64_t first = smaller(seat * bucket->part, bucket->count);
        const int64_t end = smaller((seat + 1) * bucket->part, bucket->count);
        const int64_t begin = bucket->begin + first;
        zero->part_range[b] = (struct shoali_zero_range){begin, end - first, bucket->local};
        zero->weight_range[b] = (struct shoali_zero_range){
            begin, end - first,
            zero->fetches ? bucket->local : bucket->whole + seat * bucket->part};
        zero->whole_range[b] =
            (struct shoali_zero_range){bucket->begin, bucket->count, bucket->whole};
    }
}

const struct shoali_zero_range *shoali_zero_find_range(const struct shoali_zero_range *range,
                                                       int32_t count, int64_t index)
{
    int32_t low = 0;
    for (int32_t high = count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (range[middle].begin + range[middle].count <= index)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && range[low].begin <= index ? &range[low] : NULL;
}

int32_t shoali_zero_first_part(const struct shoali_zero *zero, int64_t at)
{
    int32_t low = 0;
    for (int32_t high = zero->bucket_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (zero->part_range[middle].at + zero->part_range[middle].count <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- segments ------------------------------------------------------------------------------- */

static struct shoali_param_rule rule_of(const struct shoali_zero *zero,
                                        const struct shoal_param *param)
{
    if (zero->args.rule)
        return zero->args.rule[param->index];
    return (struct shoali_param_rule){.optimizer = &zero->optimizer,
                                      .lr_multiplier = param->lr_mult,
                                      .weight_decay_multiplier =
                                          param->tags & SHOAL_PARAM_NO_DECAY ? 0 : 1};
}

/* Merges neighbours with equal rules, so that a model of many small tensors updates in few
 * launches. */
static void add_segment(struct shoali_zero *zero, const struct shoal_param *param, int32_t range,
                        int64_t begin, int64_t end)
{
    const struct shoali_zero_range *part = &zero->part_range[range];
    const int64_t inside = begin - part->begin;
    const struct shoali_param_rule rule = rule_of(zero, param);
    struct shoali_zero_segment *last =
        zero->segment_count ? &zero->segment[zero->segment_count - 1] : NULL;
    if (last && last->local + last->count == part->at + inside && inside > 0 &&
        last->begin + last->count == begin && last->optimizer == rule.optimizer &&
        last->lr_multiplier == rule.lr_multiplier &&
        last->weight_decay_multiplier == rule.weight_decay_multiplier) {
        last->count += end - begin;
        return;
    }
    zero->segment[zero->segment_count++] =
        (struct shoali_zero_segment){.begin = begin,
                                     .count = end - begin,
                                     .local = part->at + inside,
                                     .weight = zero->weight_range[range].at + inside,
                                     .optimizer = rule.optimizer,
                                     .lr_multiplier = rule.lr_multiplier,
                                     .weight_decay_multiplier = rule.weight_decay_multiplier};
}

static void cut_segments(struct shoali_zero *zero)
{
    const struct shoali_module *module = zero->args.module;
    int32_t p = 0;
    for (int32_t r = 0; r < zero->bucket_count; r++) {
        const int64_t first = zero->part_range[r].begin, stop = first + zero->part_range[r].count;
        while (p > 0 && zero->offset[p - 1] + module->param[p - 1]->count > first)
            p--;
        for (; p < module->param_count && zero->offset[p] < stop; p++) {
            const struct shoal_param *param = module->param[p];
            const int64_t begin = larger(zero->offset[p], first);
            const int64_t end = smaller(zero->offset[p] + param->count, stop);
            if (begin < end && !(param->tags & SHOAL_PARAM_FROZEN))
                add_segment(zero, param, r, begin, end);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void *table(int64_t count, size_t bytes)
{
    return shoali_calloc((size_t)count + 1, bytes, "the layout of zero");
}

static shoal_status make_tables(struct shoali_zero *zero)
{
    const struct shoali_module *module = zero->args.module;
    int64_t uses = 0;
    for (int32_t l = 0; l < module->layer_count; l++)
        uses += module->layer[l].param_count;
    zero->offset = table(module->param_count, sizeof *zero->offset);
    zero->unit_of_param = table(module->param_count, sizeof *zero->unit_of_param);
    zero->ready = table(module->param_count, sizeof *zero->ready);
    zero->unit = table(module->layer_count, sizeof *zero->unit);
    zero->own_unit = table(module->layer_count, sizeof *zero->own_unit);
    zero->own_first = table(module->layer_count, sizeof *zero->own_first);
    zero->need_begin = table(module->layer_count, sizeof *zero->need_begin);
    zero->elements_before = table(module->layer_count, sizeof *zero->elements_before);
    zero->need = table(uses, sizeof *zero->need);
    zero->use_begin = table((int64_t)module->layer_count + 1, sizeof *zero->use_begin);
    zero->use = table(uses, sizeof *zero->use);
    return zero->offset && zero->unit_of_param && zero->ready && zero->unit && zero->own_unit &&
                   zero->own_first && zero->need_begin && zero->elements_before && zero->need &&
                   zero->use_begin && zero->use
               ? SHOAL_OK
               : SHOAL_ENOMEM;
}

static shoal_status make_bucket_tables(struct shoali_zero *zero)
{
    const int64_t buckets = count_buckets(zero), most = (int64_t)1 << 30;
    const int64_t step = zero->args.reduce_bucket_size > 0 ? zero->args.reduce_bucket_size : most;
    if (buckets > most || zero->flat_count / step > most)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%" PRId64 " parameters in messages of reduce_bucket_size (%" PRId64
                          ") and allgather_bucket_size (%" PRId64
                          ") elements are too many messages: make the sizes larger",
                          zero->flat_count, zero->args.reduce_bucket_size,
                          zero->args.allgather_bucket_size);
    zero->bucket = table(buckets, sizeof *zero->bucket);
    zero->part_range = table(buckets, sizeof *zero->part_range);
    zero->weight_range = table(buckets, sizeof *zero->weight_range);
    zero->whole_range = table(buckets, sizeof *zero->whole_range);
    zero->segment = table(buckets + zero->args.module->param_count, sizeof *zero->segment);
    return zero->bucket && zero->part_range && zero->weight_range && zero->whole_range &&
                   zero->segment
               ? SHOAL_OK
               : SHOAL_ENOMEM;
}

shoal_status shoali_zero_lay_out(struct shoali_zero *zero)
{
    shoal_status status;
    const struct shoali_module *module = zero->args.module;
    SHOAL_TRY(status, make_tables(zero), done);
    for (int32_t i = 0; i < module->param_count; i++) {
        zero->offset[i] = zero->flat_count;
        zero->flat_count += module->param[i]->count;
    }
    make_units(zero);
    list_needs(zero);
    list_uses(zero);
    SHOAL_TRY(status, make_bucket_tables(zero), done);
    for (int32_t u = 0; u < zero->unit_count; u++)
        cut_unit(zero, &zero->unit[u], bucket_limit(zero));
    own_ranges(zero);
    cut_segments(zero);
done:
    return status;
}

void shoali_zero_layout_fini(struct shoali_zero *zero)
{
    void *tables[] = {
        zero->offset,          zero->unit_of_param, zero->ready,     zero->unit,
        zero->own_unit,        zero->need_begin,    zero->need,      zero->bucket,
        zero->elements_before, zero->part_range,    zero->segment,   zero->weight_range,
        zero->whole_range,     zero->own_first,     zero->use_begin, zero->use};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        shoali_free(tables[i]);
}
