/* Units, buckets, ranges, segments. */
#include "zero/layout.h"

#include "base/pool.h"

#include <inttypes.h>
#include <string.h>

#define PART_GRAIN \
    16 /* parts are multiples of this many elements, so that vectors never straddle two owners */

#define COUNT_GRAIN 16 /* replicas share what they count in slices of multiples of this many */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Elements of one message: whole parts, so that only the last bucket of a unit is padded. */
static int64_t bucket_limit(const struct shoali_zero_layout *layout, int32_t group)
{
    const int64_t grain = (int64_t)layout->group[group].parts * PART_GRAIN;
    if (layout->args.message_size == 0)
        return INT64_MAX;
    return larger(layout->args.message_size / grain, 1) * grain;
}

/* ---- units ---------------------------------------------------------------------------------- */

static bool wants_gradient(const struct shoali_module *module, int32_t first, int32_t count)
{
    for (int32_t i = first; i < first + count; i++)
        if (!(module->param[i]->tags & SHOAL_PARAM_FROZEN))
            return true;
    return false;
}

static int32_t group_of(const struct shoali_zero_layout *layout, int32_t param)
{
    return layout->args.group_of ? layout->args.group_of[param] : 0;
}

static void add_unit(struct shoali_zero_layout *layout, int32_t first_param, int32_t param_count,
                     const char *name)
{
    const struct shoali_module *module = layout->args.module;
    struct shoali_zero_unit *unit = &layout->unit[layout->unit_count];
    const bool none = first_param == module->param_count;
    *unit = (struct shoali_zero_unit){
        .group = none ? 0 : group_of(layout, first_param),
        .first_param = first_param,
        .param_count = param_count,
        .begin = none ? layout->flat_count : module->param[first_param]->begin,
        .name = name,
        .trains = layout->args.trains && wants_gradient(module, first_param, param_count),
    };
    for (int32_t i = first_param; i < first_param + param_count; i++) {
        unit->count += module->param[i]->count;
        unit->alike_count += module->param[i]->alike_count;
        layout->unit_of_param[i] = layout->unit_count;
    }
    layout->unit_count++;
}

static bool is_alone(const struct shoali_zero_layout *layout, int32_t param)
{
    return layout->args.alone && layout->args.alone[param];
}

/* Small neighbours are one unit until it is large enough. */
static bool joins_last(struct shoali_zero_layout *layout, int32_t first_param, int32_t param_count)
{
    const struct shoali_module *module = layout->args.module;
    const int64_t limit = layout->args.granularity;
    struct shoali_zero_unit *last =
        layout->unit_count ? &layout->unit[layout->unit_count - 1] : NULL;
    int64_t count = 0, alike = 0;
    for (int32_t i = first_param; i < first_param + param_count; i++) {
        count += module->param[i]->count;
        alike += module->param[i]->alike_count;
    }
    if (!last || last->alike_count >= limit || alike >= limit ||
        last->group != group_of(layout, first_param) || is_alone(layout, first_param) ||
        is_alone(layout, last->first_param))
        return false;
    last->param_count += param_count;
    last->count += count;
    last->alike_count += alike;
    last->trains =
        last->trains || (layout->args.trains && wants_gradient(module, first_param, param_count));
    for (int32_t i = first_param; i < first_param + param_count; i++)
        layout->unit_of_param[i] = layout->unit_count - 1;
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

/* Of one unit, where they are neighbours. */
static bool belong_together(const struct shoali_zero_layout *layout, int32_t a, int32_t b)
{
    return group_of(layout, a) == group_of(layout, b) && !is_alone(layout, a) &&
           !is_alone(layout, b);
}

/* Parameters [first, end) of one layer, or of all: a unit for each run of one group. */
static void add_runs(struct shoali_zero_layout *layout, int32_t first, int32_t end,
                     const char *name)
{
    for (int32_t next; first < end; first = next) {
        for (next = first + 1; next < end && belong_together(layout, next, first);)
            next++;
        if (!joins_last(layout, first, next - first))
            add_unit(layout, first, next - first, name);
    }
}

static void make_units(struct shoali_zero_layout *layout)
{
    const struct shoali_module *module = layout->args.module;
    int32_t next = 0;
    for (int32_t l = 0; l < module->layer_count; l++) {
        layout->own_first[l] = next;
        next += own_params(&module->layer[l], next);
    }
    layout->own_first[module->layer_count] = next;
    for (int32_t l = 0; l < module->layer_count && layout->args.per_layer; l++)
        add_runs(layout, layout->own_first[l], layout->own_first[l + 1], module->layer[l].name);
    if (!layout->args.per_layer && module->param_count == 0)
        add_unit(layout, 0, 0, NULL);
    else if (!layout->args.per_layer)
        add_runs(layout, 0, module->param_count, NULL);
}

/* Where each unit lies among those of its group, which ranks of the group know alike, whatever else
 * they hold. */
static void count_groups(struct shoali_zero_layout *layout)
{
    for (int32_t g = 0; g < layout->args.group_count; g++)
        layout->group[g].count = layout->group[g].bucket_count = 0;
    for (int32_t u = 0; u < layout->unit_count; u++) {
        struct shoali_zero_unit *unit = &layout->unit[u];
        unit->before = layout->group[unit->group].count;
        layout->group[unit->group].count += unit->count;
    }
}

/* The units that each layer uses, every one once. */
static void list_needs(struct shoali_zero_layout *layout)
{
    const struct shoali_module *module = layout->args.module;
    int32_t at = 0;
    int64_t elements = 0;
    for (int32_t l = 0; l < module->layer_count; l++) {
        const struct shoal_layer *layer = &module->layer[l];
        layout->need_begin[l] = at;
        for (int32_t i = 0; layer->here && i < layer->param_count; i++) {
            const int32_t unit = layout->unit_of_param[layer->param[i]->index];
            int32_t seen = layout->need_begin[l];
            while (seen < at && layout->need[seen] != unit)
                seen++;
            if (seen < at)
                continue;
            layout->need[at++] = unit;
            elements += layout->unit[unit].alike_count;
        }
        layout->alike_before[l + 1] = elements;
    }
    layout->need_begin[module->layer_count] = at;
}

/* The inverse of the needs. */
static void list_uses(struct shoali_zero_layout *layout)
{
    const int32_t layers = layout->args.module->layer_count;
    int32_t *end = layout->use_begin + 1; /* while filling: of a unit's uses so far */
    for (int32_t n = 0; n < layout->need_begin[layers]; n++)
        layout->use_begin[layout->need[n] + 1]++;
    for (int32_t u = 0, at = 0; u < layout->unit_count; u++) {
        const int32_t count = end[u];
        end[u] = at;
        at += count;
    }
    for (int32_t l = 0; l < layers; l++)
        for (int32_t n = layout->need_begin[l]; n < layout->need_begin[l + 1]; n++)
            layout->use[end[layout->need[n]]++] = l;
}

/* ---- buckets and ranges --------------------------------------------------------------------- */

static int64_t count_buckets(const struct shoali_zero_layout *layout)
{
    int64_t count = 0;
    for (int32_t u = 0; u < layout->unit_count; u++) {
        const struct shoali_zero_unit *unit = &layout->unit[u];
        const int64_t limit = bucket_limit(layout, unit->group);
        count += unit->count / limit + (unit->count % limit != 0);
    }
    return count;
}

static void cut_unit(struct shoali_zero_layout *layout, int32_t index)
{
    struct shoali_zero_unit *unit = &layout->unit[index];
    const int64_t parts = layout->group[unit->group].parts, grain = parts * PART_GRAIN;
    const int64_t limit = bucket_limit(layout, unit->group);
    unit->first_bucket = layout->bucket_count;
    unit->whole = layout->whole_count;
    unit->local = layout->part_count;
    for (int64_t done = 0; done < unit->count; unit->bucket_count++) {
        const int64_t count = smaller(limit, unit->count - done);
        const int64_t padded = (count + grain - 1) / grain * grain;
        layout->bucket[layout->bucket_count++] =
            (struct shoali_zero_bucket){.unit = index,
                                        .begin = unit->begin + done,
                                        .count = count,
                                        .whole = layout->whole_count,
                                        .local = layout->part_count,
                                        .part = padded / parts,
                                        .number = layout->group[unit->group].bucket_count++};
        layout->whole_count += padded;
        layout->part_count += padded / parts;
        done += count;
    }
    unit->padded = layout->whole_count - unit->whole;
    unit->part = layout->part_count - unit->local;
}

static void own_ranges(struct shoali_zero_layout *layout)
{
    for (int32_t b = 0; b < layout->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        const int64_t seat = shoali_zero_group_of(layout, bucket)->seat;
        const int64_t first = smaller(seat * bucket->part, bucket->count);
        const int64_t end = smaller((seat + 1) * bucket->part, bucket->count);
        const int64_t begin = bucket->begin + first;
        layout->part_range[b] = (struct shoali_zero_range){begin, end - first, bucket->local};
        layout->weight_range[b] = (struct shoali_zero_range){
            begin, end - first,
            layout->args.parts_only ? bucket->local : bucket->whole + seat * bucket->part};
        layout->whole_range[b] =
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

int32_t shoali_zero_first_part(const struct shoali_zero_layout *layout, int64_t at)
{
    int32_t low = 0;
    for (int32_t high = layout->bucket_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (layout->part_range[middle].at + layout->part_range[middle].count <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- what is counted ------------------------------------------------------------------------ */

static void add_counted(struct shoali_zero_layout *layout, int32_t bucket, int64_t begin,
                        int64_t end)
{
    const struct shoali_zero_range *part = &layout->part_range[bucket];
    if (begin < end)
        layout->counted[layout->counted_count++] =
            (struct shoali_zero_range){begin, end - begin, part->at + (begin - part->begin)};
}

/* Of elements [begin, end) of a bucket's own part those that are not counted elsewhere. */
static void count_params(struct shoali_zero_layout *layout, int32_t bucket, int64_t begin,
                         int64_t end)
{
    const struct shoali_module *module = layout->args.module;
    const struct shoali_zero_unit *unit = &layout->unit[layout->bucket[bucket].unit];
    int64_t from = begin;
    for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
        const struct shoal_param *param = module->param[i];
        if (!layout->args.elsewhere[i] || param->begin + param->count <= begin)
            continue;
        add_counted(layout, bucket, from, smaller(param->begin, end));
        from = larger(from, param->begin + param->count);
    }
    add_counted(layout, bucket, from, end);
}

static void list_counted(struct shoali_zero_layout *layout)
{
    for (int32_t b = 0; b < layout->bucket_count; b++) {
        const struct shoali_zero_range *part = &layout->part_range[b];
        const struct shoali_zero_unit *unit = &layout->unit[layout->bucket[b].unit];
        const struct shoali_zero_group *group = &layout->group[unit->group];
        int64_t begin, end;
        shoali_pool_slice(group->count, COUNT_GRAIN, group->replica, group->replicas, &begin, &end);
        begin = larger(begin + unit->begin - unit->before, part->begin);
        end = smaller(end + unit->begin - unit->before, part->begin + part->count);
        if (layout->args.elsewhere)
            count_params(layout, b, begin, end);
        else
            add_counted(layout, b, begin, end);
    }
}

/* ---- segments ------------------------------------------------------------------------------- */

struct shoali_param_rule shoali_zero_rule_of(const struct shoali_param_rule *rules,
                                             const struct shoali_optimizer *optimizer,
                                             const struct shoal_param *param)
{
    if (rules)
        return rules[param->index];
    return (struct shoali_param_rule){.optimizer = optimizer,
                                      .lr_multiplier = param->lr_mult,
                                      .weight_decay_multiplier =
                                          param->tags & SHOAL_PARAM_NO_DECAY ? 0 : 1};
}

/* Merges neighbours with equal rules, so that a model of many small tensors updates in few
 * launches. */
static void add_segment(struct shoali_zero_layout *layout, const struct shoal_param *param,
                        int32_t range, int64_t begin, int64_t end)
{
    const struct shoali_zero_range *part = &layout->part_range[range];
    const int64_t inside = begin - part->begin;
    const struct shoali_param_rule rule =
        shoali_zero_rule_of(layout->args.rule, layout->args.optimizer, param);
    const bool one_by_one = rule.optimizer && rule.optimizer->type->measure_count > 0;
    struct shoali_zero_segment *last =
        layout->segment_count ? &layout->segment[layout->segment_count - 1] : NULL;
    if (last && !one_by_one && last->local + last->count == part->at + inside && inside > 0 &&
        last->begin + last->count == begin && last->optimizer == rule.optimizer &&
        last->lr_multiplier == rule.lr_multiplier &&
        last->weight_decay_multiplier == rule.weight_decay_multiplier) {
        last->count += end - begin;
        return;
    }
    layout->segment[layout->segment_count++] =
        (struct shoali_zero_segment){.begin = begin,
                                     .count = end - begin,
                                     .local = part->at + inside,
                                     .weight = layout->weight_range[range].at + inside,
                                     .param = param->index,
                                     .optimizer = rule.optimizer,
                                     .lr_multiplier = rule.lr_multiplier,
                                     .weight_decay_multiplier = rule.weight_decay_multiplier};
}

static void cut_segments(struct shoali_zero_layout *layout)
{
    const struct shoali_module *module = layout->args.module;
    int32_t p = 0;
    for (int32_t r = 0; r < layout->bucket_count; r++) {
        const int64_t first = layout->part_range[r].begin,
                      stop = first + layout->part_range[r].count;
        while (p > 0 && module->param[p - 1]->begin + module->param[p - 1]->count > first)
            p--;
        for (; p < module->param_count && module->param[p]->begin < stop; p++) {
            const struct shoal_param *param = module->param[p];
            const int64_t begin = larger(param->begin, first);
            const int64_t end = smaller(param->begin + param->count, stop);
            if (begin < end && !(param->tags & SHOAL_PARAM_FROZEN))
                add_segment(layout, param, r, begin, end);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void *table(int64_t count, size_t bytes)
{
    return shoali_calloc((size_t)count + 1, bytes, "the layout of zero");
}

static shoal_status make_tables(struct shoali_zero_layout *layout)
{
    const struct shoali_module *module = layout->args.module;
    const int64_t layers = module->layer_count, params = module->param_count;
    int64_t uses = 0;
    for (int32_t l = 0; l < module->layer_count; l++)
        uses += module->layer[l].param_count;
    layout->group = table(layout->args.group_count, sizeof *layout->group);
    layout->unit_of_param = table(params, sizeof *layout->unit_of_param);
    layout->unit = table(params + 1, sizeof *layout->unit);
    layout->own_first = table(layers, sizeof *layout->own_first);
    layout->need_begin = table(layers, sizeof *layout->need_begin);
    layout->alike_before = table(layers, sizeof *layout->alike_before);
    layout->need = table(uses, sizeof *layout->need);
    layout->use_begin = table(params + 1, sizeof *layout->use_begin);
    layout->use = table(uses, sizeof *layout->use);
    return layout->group && layout->unit_of_param && layout->unit && layout->own_first &&
                   layout->need_begin && layout->alike_before && layout->need &&
                   layout->use_begin && layout->use
               ? SHOAL_OK
               : SHOAL_ENOMEM;
}

static shoal_status make_bucket_tables(struct shoali_zero_layout *layout)
{
    const int64_t buckets = count_buckets(layout), most = (int64_t)1 << 30;
    if (buckets > most)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%" PRId64 " parameters in messages of %" PRId64
                          " elements are too many messages: make reduce_bucket_size and "
                          "allgather_bucket_size larger",
                          layout->flat_count, layout->args.message_size);
    layout->bucket = table(buckets, sizeof *layout->bucket);
    layout->part_range = table(buckets, sizeof *layout->part_range);
    layout->weight_range = table(buckets, sizeof *layout->weight_range);
    layout->whole_range = table(buckets, sizeof *layout->whole_range);
    layout->counted = table(buckets + layout->args.module->param_count, sizeof *layout->counted);
    layout->segment = table(buckets + layout->args.module->param_count, sizeof *layout->segment);
    return layout->bucket && layout->part_range && layout->weight_range && layout->whole_range &&
                   layout->counted && layout->segment
               ? SHOAL_OK
               : SHOAL_ENOMEM;
}

shoal_status shoali_zero_layout_init(struct shoali_zero_layout *layout,
                                     const struct shoali_zero_layout_args *args)
{
    shoal_status status;
    const struct shoali_module *module = args->module;
    *layout = (struct shoali_zero_layout){.args = *args};
    SHOAL_TRY(status, make_tables(layout), done);
    memcpy(layout->group, args->group, (size_t)args->group_count * sizeof *args->group);
    layout->args.group = layout->group;
    layout->flat_count = module->element_count;
    make_units(layout);
    count_groups(layout);
    list_needs(layout);
    list_uses(layout);
    SHOAL_TRY(status, make_bucket_tables(layout), done);
    for (int32_t u = 0; u < layout->unit_count; u++)
        cut_unit(layout, u);
    own_ranges(layout);
    list_counted(layout);
    cut_segments(layout);
done:
    layout->args.group_of = NULL; /* the caller's; units and ranges know it now */
    layout->args.alone = layout->args.elsewhere = NULL;
    layout->args.rule = NULL;
    return status;
}

void shoali_zero_layout_fini(struct shoali_zero_layout *layout)
{
    void *tables[] = {layout->group,        layout->counted,     layout->unit_of_param,
                      layout->unit,         layout->need_begin,  layout->need,
                      layout->bucket,       layout->part_range,  layout->alike_before,
                      layout->weight_range, layout->whole_range, layout->segment,
                      layout->own_first,    layout->use_begin,   layout->use};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        shoali_free(tables[i]);
}
