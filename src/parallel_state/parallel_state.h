/* parallel_state - the mesh behind shoal/mesh.h. Level L5: it knows comm and base.
 *
 * A generator lists the axes of the order string with their sizes; the stride of an axis is the
 * product of the sizes before it. A set of axes is a mixed-radix number over its members in that
 * order, and so is the complement, which numbers the groups. That is all: ranks of groups, colors
 * and keys of splits, names in messages come from those two numbers.
 *
 * The expert generator has tp = expert_tensor, cp = 1 and its own dp; the dense one has ep = 1. In
 * both, dp is what is left of the ranks of a stage.
 *
 * Source of the orders and of the golden groups in the tests: Megatron-LM's parallel_state, as
 * docs/RATIONALE.md says where we differ (no global buffers: those are the tape's arena).
 */
#ifndef SHOALI_PARALLEL_STATE_H
#define SHOALI_PARALLEL_STATE_H

#include "base/base.h"
#include "shoal/mesh.h"

enum { SHOALI_AXES = 5, SHOALI_MESH_GROUPS_MAX = 32 };

struct shoali_generator {
    int32_t count; /* axes in order, the first varies fastest */
    shoal_axes axis[SHOALI_AXES];
    int32_t size[SHOALI_AXES], stride[SHOALI_AXES];
};
/* A communicator that was made. `axes` 0: of embeddings, `tied` says which. */
struct shoali_mesh_group {
    shoal_axes axes;
    bool tied;
    shoal_group *group; /* NULL: this rank is not in one */
};
struct shoal_mesh {
    shoal_group *group; /* borrowed; NULL: arithmetic only */
    int32_t ranks, rank;
    struct shoali_generator dense, expert;
    struct shoali_mesh_group made[SHOALI_MESH_GROUPS_MAX];
    int32_t made_count;
};

/* The name of one axis, "tp". */
const char *shoali_axis_name(shoal_axes axis);

/* ---- generators ----------------------------------------------------------------------------- */

struct shoali_axis_sizes {
    int32_t tp, cp, ep, dp, pp;
};
/* Reads an order string into a generator's axes. SHOAL_EINVAL: an unknown or repeated axis. */
SHOAL_CHECKED shoal_status shoali_order_parse(const char *order,
                                              struct shoali_generator *generator);
/* Gives the axes their sizes and strides. SHOAL_EINVAL: an axis of several ranks is not in the
 * order. */
SHOAL_CHECKED shoal_status shoali_generator_set(struct shoali_generator *generator,
                                                const char *order,
                                                const struct shoali_axis_sizes *sizes);
/* Ranks of a group of the set; the rank's number in it; the rank of that group with a number. */
int32_t shoali_generator_size(const struct shoali_generator *generator, shoal_axes set);
int32_t shoali_generator_number(const struct shoali_generator *generator, shoal_axes set,
                                int32_t rank);
int32_t shoali_generator_member(const struct shoali_generator *generator, shoal_axes set,
                                int32_t rank, int32_t number);

#endif
