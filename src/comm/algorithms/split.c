#include "comm/algorithms/slots.h"

struct choice {
    int32_t color, key;
};

struct formatting {
    uint64_t identity;
    int32_t size;
    int32_t world_rank[SHOALI_MAX_RANKS];
};

static void format_group(void *memory, const void *arg)
{
    const struct formatting *formatting = arg;
    shoali_group_format(memory, formatting->size, formatting->identity, formatting->world_rank);
}

shoal_status shoali_slots_split(void *backend, const struct shoali_split_args *split, void **child)
{
    struct shoali_slots_group *parent = backend, *group = NULL;
    struct shoali_slots_world *world = parent->world;
    struct choice own = {split->color, split->key}, choices[SHOALI_MAX_RANKS];
    struct formatting formatting = {0};
    struct shoali_segment segment = {0};
    struct shoali_segment_args args = {
        .maker = -1, .format = format_group, .format_arg = &formatting};
    int32_t members[SHOALI_MAX_RANKS], rank = -1;
    shoal_status status = SHOAL_OK;
    *child = NULL;
    SHOAL_TRY(status,
              shoali_slots_run(parent, &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                             .here = split->here,
                                                             .in = &own,
                                                             .out = choices,
                                                             .count = 2,
                                                             .dtype = SHOAL_I32}),
              done);
    if (split->color >= 0) {
        formatting.size =
            shoali_split_members(&choices[0].color, 2, parent->size, split->color, members);
        args.maker = members[0];
        args.bytes = shoali_group_bytes(formatting.size);
    }
    for (int32_t i = 0; i < formatting.size; i++) {
        formatting.world_rank[i] = parent->shared->world_rank[members[i]];
        if (members[i] == parent->rank)
            rank = i;
    }
    if (rank == 0)
        formatting.identity = atomic_fetch_add(&world->shared->next_identity, 1) + 1;
    SHOAL_TRY(status, shoali_segment_share(parent, &args, &segment), done);
    if (split->color >= 0)
        status = shoali_group_open(world, segment.base, &segment, rank, &group);
    if (status < 0) /* the others have their groups */
        shoali_slots_abort(parent, status, shoal_error_message());
    else
        *child = group;
done:
    return status;
}
