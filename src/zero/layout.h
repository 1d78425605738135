/* layout - who owns what: pure arithmetic on numbers of elements, the same on every rank.
 *
 * In: parameters with the elements that this rank holds of them (tensor/shard.h), layers, and
 * *groups*: sets of ranks that hold the same parameters, of which each parameter names one. The
 * layout knows the size of a group and this rank's place in it, no world.
 *
 *   flat space    all parameters in canonical order, without gaps
 *   unit          neighbouring parameters of one group that travel together: those that one layer
 *                 declared first (small neighbours joined), or, without `per_layer`, all
 *   bucket        a run of a unit: one message, cut in group->parts equal parts of a multiple of 16
 *                 elements, of which this rank owns the seat-th
 *   whole space   the flat space with each unit's last bucket padded: buffers that hold everything
 *   part space    the same for the own parts alone
 *   range         elements that lie together in the flat space and in a buffer
 *   counted       ranges of own elements that this rank counts in norms and hashes: replicas take
 *                 slices of what their group holds
 *   segment       a run of trainable parameters with equal rules inside one own range: what the
 *                 optimizer updates in one launch; of one parameter, when the optimizer measures
 *
 * A layer that this rank does not run needs no unit; units of its parameters alone are empty.
 *
 * Ranks along tp may hold shares of different sizes, and some groups join them. What decides the
 * order of collectives (units that are joined, gathered ahead or kept) looks at `alike_count`, what
 * the first rank along tp holds; messages are numbered among those of their group.
 *
 * INVARIANTS. Units, buckets, ranges and segments rise in all three spaces. A bucket's parts cover
 * it once over the seats of its group; the padding is behind all elements of its unit. Ranks of one
 * group with equal arguments have equal units and buckets; ranks of different groups have as many
 * of the same sizes, so that collectives of all groups come in one order.
 */
#ifndef SHOALI_ZERO_LAYOUT_H
#define SHOALI_ZERO_LAYOUT_H

#include "autograd/autograd.h"
#include "zero/zero.h"

struct shoali_zero_group {
    int32_t size, rank;        /* ranks that hold the same parameters; this one */
    int32_t parts, seat;       /* a bucket is cut in so many; this rank owns the seat-th */
    int32_t replicas, replica; /* so many ranks own the same; this one is the replica-th */
    int64_t count;             /* elements of its units; filled by the layout */
    int32_t bucket_count;      /* the same */
};
struct shoali_zero_bucket {
    int32_t unit;
    int64_t begin, count; /* flat space */
    int64_t whole, local; /* where it begins in the whole and in the part space */
    int64_t part;         /* elements of one part, padded */
    int32_t number;       /* among the buckets of its group */
};
struct shoali_zero_unit {
    int32_t group, first_param, param_count, first_bucket, bucket_count;
    int64_t begin, count;  /* flat space */
    int64_t alike_count;   /* of its parameters' alike_count: see below */
    int64_t before;        /* elements of its group's units before it */
    int64_t whole, padded; /* whole space */
    int64_t local, part;   /* part space */
    const char *name;      /* of its first layer; NULL: of no layer */
    bool trains;           /* some parameter is not frozen */
};
struct shoali_zero_segment {
    int64_t begin, count;  /* flat space */
    int64_t local, weight; /* in the part space; in the buffer of weights */
    int32_t param;         /* the first one */
    const struct shoali_optimizer *optimizer;
    double lr_multiplier, weight_decay_multiplier;
};

struct shoali_zero_layout_args {
    const struct shoali_module *module; /* borrowed: parameters, layers */
    const struct shoali_zero_group *group;
    int32_t group_count;
    const int32_t *group_of; /* [params]; NULL: all in the first */
    const bool *alone;       /* [params] each is a unit of its own; NULL: none has to be */
    const bool *elsewhere;   /* [params] counted by a rank of another group; NULL: none is */
    bool per_layer;
    bool parts_only; /* the buffer of weights holds own parts, not everything */
    bool trains;
    const struct shoali_optimizer *optimizer; /* of parameters without a rule */
    const struct shoali_param_rule *rule;     /* [params]; NULL: none has one */
    int64_t granularity;  /* per_layer: smaller neighbours are one unit, until it is as large */
    int64_t message_size; /* elements of a bucket, at most; 0: no limit */
};
struct shoali_zero_layout {
    struct shoali_zero_layout_args args; /* group: a copy */
    struct shoali_zero_group *group;
    int64_t flat_count, whole_count, part_count;
    int32_t *unit_of_param; /* [params] */
    struct shoali_zero_unit *unit;
    struct shoali_zero_bucket *bucket;
    int32_t unit_count, bucket_count;
    struct shoali_zero_range *part_range;   /* [buckets] own elements in the part space */
    struct shoali_zero_range *weight_range; /* ... in the buffer of weights */
    struct shoali_zero_range *whole_range;  /* all elements in the whole space */
    struct shoali_zero_range *counted;      /* of part_range: what this rank counts */
    int32_t counted_count;
    struct shoali_zero_segment *segment;
    int32_t segment_count;
    /* Layer i declared parameters own_first[i] ... own_first[i+1] - 1 first. [layers + 1] */
    int32_t *own_first;
    /* Of layer i, if this rank runs it: its units are need[need_begin[i]] ... need[need_begin[i+1]
     * - 1]. */
    int32_t *need_begin, *need;
    /* Unit u is used by layers use[use_begin[u]] ... use[use_begin[u+1] - 1], in this order. */
    int32_t *use_begin, *use;
    int64_t *alike_before; /* [layers + 1] alike_count of the units of the layers before layer i */
};
/* SHOAL_ECONFIG: more messages than can be counted. */
SHOAL_CHECKED shoal_status shoali_zero_layout_init(struct shoali_zero_layout *layout,
                                                   const struct shoali_zero_layout_args *args);
void shoali_zero_layout_fini(struct shoali_zero_layout *layout);
/* How a parameter is updated: rules[its index], or, without rules, by `optimizer`. */
struct shoali_param_rule shoali_zero_rule_of(const struct shoali_param_rule *rules,
                                             const struct shoali_optimizer *optimizer,
                                             const struct shoal_param *param);

static inline const struct shoali_zero_group *
shoali_zero_group_of(const struct shoali_zero_layout *layout,
                     const struct shoali_zero_bucket *bucket)
{
    return &layout->group[layout->unit[bucket->unit].group];
}
/* The range that holds flat element `index`, NULL when none does. */
const struct shoali_zero_range *shoali_zero_find_range(const struct shoali_zero_range *range,
                                                       int32_t count, int64_t index);
/* The first bucket whose own part has elements at or behind `at` of the part space. */
int32_t shoali_zero_first_part(const struct shoali_zero_layout *layout, int64_t at);

#endif
