/* The choice among algorithms, for who measures them. */
#include "comm/group.h"
#include "comm/p2p/p2p.h"
#include "comm/wrap/wrap.h"

#include <string.h>

/* NULL: the backend stands on something else. */
static struct shoali_p2p_world *world_of(const shoal_group *group)
{
    const struct shoali_comm_ops *ops = group->ops;
    void *object = group->object;
    if (group->backend->post != shoali_p2p_post)
        return NULL;
    while (ops != group->backend) {
        const struct shoali_wrap *wrap = object;
        ops = wrap->inner_ops;
        object = wrap->inner;
    }
    return ((struct shoali_p2p_group *)object)->world;
}

shoal_status shoali_comm_force(shoal_group *group, const char *algorithm)
{
    struct shoali_p2p_world *world = world_of(group);
    if (!world)
        return SHOAL_FAIL(
            SHOAL_EUNSUPPORTED,
            "backend %s has one algorithm for each collective: mpi and ucx have several",
            group->backend->name);
    world->forced = -1;
    for (int32_t i = 0; algorithm && i < SHOALI_P2P_ALGORITHMS; i++)
        if (strcmp(shoali_p2p_algorithm_name(i), algorithm) == 0)
            world->forced = i;
    if (algorithm && world->forced < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "there is no algorithm \"%s\"", algorithm);
    return SHOAL_OK;
}

const char *shoali_comm_algorithm(int32_t index)
{
    return shoali_p2p_algorithm_name(index);
}

bool shoali_comm_can(int32_t index, const struct shoali_post *post)
{
    return shoali_p2p_can(post, (enum shoali_p2p_algorithm)index);
}

const char *shoali_comm_transport(const shoal_group *group)
{
    const struct shoali_p2p_world *world = world_of(group);
    return world ? world->p2p->name : NULL;
}
