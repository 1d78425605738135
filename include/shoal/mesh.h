/* mesh.h - arranges ranks along named axes of parallelism and makes their groups.
 *
 * Terms
 *   axis       one dimension of parallelism: tp (tensor), cp (context, the sequence), ep (experts),
 *              dp (data), pp (pipeline).
 *   order      how ranks are numbered along the axes, "tp-cp-ep-dp-pp". The leftmost axis varies
 *              fastest, so ranks that differ along it have consecutive numbers.
 *   generator  one of two sets of axes over the same ranks. The dense generator has tp, cp, dp, pp.
 *              The expert generator has tp (then called expert tensor), ep, dp, pp. Both have the
 *              same pipeline groups. A set with SHOAL_AXIS_EXPERT means the expert generator.
 *   group of a set of axes   the ranks that differ from this one along these axes only, numbered
 *              along them in the mesh's order.
 *
 * A mesh is arithmetic. shoal_mesh_group makes a communicator at the first call and keeps it. The
 * library has no global rank: each part gets the group that it needs. Same thing elsewhere:
 * Megatron's parallel_state, torch's DeviceMesh. DeepSpeed's ProcessTopology varies its last axis
 * fastest: its axes [pipe, data, model] are the order "tp-dp-pp", [pipe, data] are "dp-pp".
 */
#ifndef SHOAL_MESH_H
#define SHOAL_MESH_H

#include "shoal/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_mesh shoal_mesh;

/* A set of axes: one of these, or several combined with |. */
typedef uint32_t shoal_axes;
#define SHOAL_AXIS_TP 1u
#define SHOAL_AXIS_CP 2u
#define SHOAL_AXIS_EP 4u
#define SHOAL_AXIS_DP 8u
#define SHOAL_AXIS_PP 16u
#define SHOAL_AXIS_EXPERT 32u /* not an axis: selects the expert generator */

/* Sizes of 0 mean 1, except `expert_tensor` and `data`. */
typedef struct shoal_mesh_args {
    shoal_group *group;  /* ranks; borrowed until destroy. NULL: arithmetic only */
    int32_t ranks, rank; /* if group is NULL: number of ranks (0: 1), this rank */
    int32_t tensor, context, expert, pipeline;
    int32_t expert_tensor; /* tp of the expert generator; 0: tensor */
    int32_t data;          /* 0: the remaining factor; else it must fit */
    const char *order;     /* NULL: "tp-cp-ep-dp-pp"; an axis of size 1 may be absent */
} shoal_mesh_args;

/* Creates a mesh, owned by the caller. Not collective; every rank passes the same sizes and order.
 * SHOAL_EINVAL: the sizes do not multiply to the number of ranks, the order lacks an axis, or the
 * pipeline groups of the two generators differ. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_mesh_create(const shoal_mesh_args *args,
                                                       shoal_mesh **mesh);
/* Destroys the mesh. Collective over each group that it made. NULL is fine. */
SHOAL_API void shoal_mesh_destroy(shoal_mesh *mesh);

/* Returns the group that the mesh was created with; NULL: none. Borrowed. */
SHOAL_API shoal_group *shoal_mesh_world(const shoal_mesh *mesh);
/* Return the number of ranks in the mesh, and this rank. */
SHOAL_API int32_t shoal_mesh_ranks(const shoal_mesh *mesh);
SHOAL_API int32_t shoal_mesh_rank(const shoal_mesh *mesh);
/* Returns the number of ranks in a group of these axes: the product of their sizes. */
SHOAL_API int32_t shoal_mesh_size(const shoal_mesh *mesh, shoal_axes axes);
/* Returns the number of `rank` in its group of these axes. With one axis it is the coordinate. */
SHOAL_API int32_t shoal_mesh_coordinate(const shoal_mesh *mesh, shoal_axes axes, int32_t rank);
/* Returns the number of the group of these axes that `rank` is in: its coordinate along all other
 * axes. */
SHOAL_API int32_t shoal_mesh_group_index(const shoal_mesh *mesh, shoal_axes axes, int32_t rank);
/* Returns the rank at `coordinate` in `rank`'s group of these axes. */
SHOAL_API int32_t shoal_mesh_member(const shoal_mesh *mesh, shoal_axes axes, int32_t rank,
                                    int32_t coordinate);

/* Returns the rank at `coordinate` in `rank`'s group at `level`, when a group of these axes is
 * partitioned again. Sizes are in mixed radix, the first level fastest: {2, 2, 4} of 16 ranks are
 * pairs of neighbours, pairs of pairs, and groups of four of them. For context parallelism in
 * levels, and for inner and outer data parallelism. -1: the sizes do not multiply to the group's
 * size. */
SHOAL_API int32_t shoal_mesh_level_member(const shoal_mesh *mesh, shoal_axes axes,
                                          const int32_t *sizes, int32_t levels, int32_t level,
                                          int32_t rank, int32_t coordinate);

/* Return the ranks of `rank`'s pipeline that hold word or position embeddings. Word embeddings are
 * on the first and the last stage, or on the first only if the output matrix is not tied. Position
 * embeddings are on the first stage. shoal_mesh_embedding_ranks fills at most two ranks and returns
 * how many. */
SHOAL_API int32_t shoal_mesh_embedding_ranks(const shoal_mesh *mesh, bool tied, int32_t rank,
                                             int32_t ranks[2]);
SHOAL_API int32_t shoal_mesh_position_embedding_rank(const shoal_mesh *mesh, int32_t rank);

/* Returns the communicator of this rank's group of these axes. The first call is collective over
 * all ranks of the mesh, in the same order on all. Borrowed until destroy. A group of one rank is
 * NULL. A group of all ranks in their order is the mesh's own. SHOAL_EINVAL: the mesh has no
 * group. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_mesh_group(shoal_mesh *mesh, shoal_axes axes,
                                                      shoal_group **group);
/* Returns the communicator of shoal_mesh_embedding_ranks; NULL on ranks that hold none. Collective
 * and borrowed as in shoal_mesh_group. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_mesh_embedding_group(shoal_mesh *mesh, bool tied,
                                                                shoal_group **group);

/* Formats coordinates for messages: "tp 1, pp 0, dp 1". Axes of one rank are left out, the rest is
 * in the mesh's order; "" without any. Returns `buffer`. */
SHOAL_API const char *shoal_mesh_format(const shoal_mesh *mesh, int32_t rank, char *buffer,
                                        size_t bytes);

/* Formats the sizes: "8 ranks, tp 2, dp 2, pp 2; numbered tp-cp-ep-dp-pp". Axes of one rank are
 * left out. Returns `buffer`. */
SHOAL_API const char *shoal_mesh_describe(const shoal_mesh *mesh, char *buffer, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
