/* What the ranks of a group must have cut alike, before memory and messages come of it. */
#include "comm/facts.h"
#include "zero/parts.h"

static void put(struct shoali_str *table, int64_t value)
{
    shoali_str_append_bytes(table, (const char *)&value, sizeof value);
}

/* Which units there are is the same along tp; their sizes are within a group. */
static void add_units(const struct shoali_zero_layout *layout, struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    for (int32_t u = 0; u < layout->unit_count; u++) {
        const struct shoali_zero_unit *unit = &layout->unit[u];
        put(&table, unit->group);
        put(&table, unit->first_param);
        put(&table, unit->param_count);
        put(&table, unit->alike_count);
    }
    shoali_facts_add_bytes(facts, "units of parameters", &table, "%d", (int)layout->unit_count);
    shoali_str_fini(&table);
}

static void add_buckets(const struct shoali_zero_layout *layout, int32_t group,
                        struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    for (int32_t b = 0; b < layout->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        if (layout->unit[bucket->unit].group != group)
            continue;
        put(&table, bucket->unit);
        put(&table, bucket->count);
        put(&table, bucket->part);
    }
    shoali_facts_add_bytes(facts, "buckets", &table, "%d of %lld elements",
                           (int)layout->group[group].bucket_count,
                           (long long)layout->group[group].count);
    shoali_str_fini(&table);
}

/* The whole and the part space are memory that ranks of one data group ask for together. */
static void add_arenas(const struct shoali_zero_layout *layout, struct shoali_facts *facts)
{
    shoali_facts_add(facts, "elements of weights and gradients", "%lld",
                     (long long)layout->whole_count);
    shoali_facts_add(facts, "elements of a rank's part", "%lld", (long long)layout->part_count);
}

static shoal_status agree_in_group(const struct shoali_zero *zero, int32_t index,
                                   shoal_group *group)
{
    struct shoali_facts facts = {0};
    add_units(&zero->layout, &facts);
    add_buckets(&zero->layout, index, &facts);
    if (index == 0)
        add_arenas(&zero->layout, &facts);
    const shoal_status status = shoali_facts_agree(&facts, group, zero->setup.rank, SHOAL_OK);
    shoali_facts_fini(&facts);
    return status;
}

shoal_status shoali_zero_agree(const struct shoali_zero *zero, shoal_status own)
{
    shoal_status status;
    const struct shoali_zero_args *args = &zero->setup.args;
    const struct shoali_facts nothing = {0};
    SHOAL_TRY(status, shoali_facts_agree(&nothing, zero->setup.everyone, zero->setup.rank, own),
              done);
    SHOAL_TRY(status, agree_in_group(zero, 0, args->group), done);
    for (int32_t g = 1; g <= args->cut_count; g++)
        SHOAL_TRY(status, agree_in_group(zero, g, args->cuts[g - 1]), done);
done:
    return status;
}

uint64_t shoali_zero_order(const struct shoali_zero *zero)
{
    return zero->jobs.order;
}
