/* mesh.h - which ranks work together: named axes over a group, and the groups of any set of them.
 *
 * WORDS
 *   axis       one way of dividing the work: tp (tensor), cp (context, the sequence), ep (experts),
 *              dp (data), pp (pipeline).
 *   order      how ranks are numbered along the axes, "tp-cp-ep-dp-pp": the leftmost axis varies
 *              fastest, so its neighbours are neighbouring ranks.
 *   generator  there are two over the same ranks. The dense one has the axes tp, cp, dp, pp; the
 *              expert one has tp (then called expert tensor), ep, dp, pp. Both have the same
 *              pipeline groups. A set with SHOAL_AXIS_EXPERT speaks of the second.
 *   group of a set of axes   the ranks that differ from this one along those axes only, numbered
 *              along them in the mesh's order.
 *
 * A mesh is arithmetic. shoal_mesh_group makes a communicator of it on first use and keeps it.
 * Nothing in the library asks for "the rank": each part is given the group that it needs.
 *
 * Megatron's parallel_state and torch's DeviceMesh are the same thing with globals or without.
 * DeepSpeed's ProcessTopology counts its last axis fastest: axes [pipe, data, model] are the order
 * "tp-dp-pp", [pipe, data] are "dp-pp".
 */
#ifndef SHOAL_MESH_H
#define SHOAL_MESH_H

#include "shoal/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_mesh shoal_mesh;

/* A set of axes: one of these, or several OR-ed. */
typedef uint32_t shoal_axes;
#define SHOAL_AXIS_TP 1u
#define SHOAL_AXIS_CP 2u
#define SHOAL_AXIS_EP 4u
#define SHOAL_AXIS_DP 8u
#define SHOAL_AXIS_PP 16u
#define SHOAL_AXIS_EXPERT 32u /* not an axis: of the expert generator */

/* Sizes left 0 are 1. */
typedef struct shoal_mesh_args {
    shoal_group *group;  /* the ranks; borrowed until destroy. NULL: arithmetic for `ranks` only */
    int32_t ranks, rank; /* with group NULL: how many (0: 1), and which one this is */
    int32_t tensor, context, expert, pipeline;
    int32_t expert_tensor; /* tp of the expert generator; 0: tensor */
    int32_t data;          /* 0: what is left; else it must fit */
    const char *order;     /* NULL: "tp-cp-ep-dp-pp"; an axis of size 1 may be absent */
} shoal_mesh_args;

/* Not collective; every rank gives the same sizes and order. SHOAL_EINVAL with a sentence when the
 * sizes do not multiply to the number of ranks, an axis is missing in the order, or the two
 * generators would not have the same pipeline groups. *mesh is owned by the caller. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_mesh_create(const shoal_mesh_args *args,
                                                          shoal_mesh **mesh);
/* Collective over each group that was made. NULL is fine. */
SHOAL_API void shoal_mesh_destroy(shoal_mesh *mesh);

/* The group that it was made of; NULL: none. Borrowed. */
SHOAL_API shoal_group *shoal_mesh_world(const shoal_mesh *mesh);
/* Number of ranks in the mesh, and this one's number. */
SHOAL_API int32_t shoal_mesh_ranks(const shoal_mesh *mesh);
SHOAL_API int32_t shoal_mesh_rank(const shoal_mesh *mesh);
/* Ranks of a group of these axes: the product of their sizes. */
SHOAL_API int32_t shoal_mesh_size(const shoal_mesh *mesh, shoal_axes axes);
/* The number of `rank` in its group of these axes: with one axis its coordinate. */
SHOAL_API int32_t shoal_mesh_coordinate(const shoal_mesh *mesh, shoal_axes axes, int32_t rank);
/* The number of the group of these axes that `rank` is in: it is its coordinate along all others.
 */
SHOAL_API int32_t shoal_mesh_group_index(const shoal_mesh *mesh, shoal_axes axes, int32_t rank);
/* The rank at `coordinate` of `rank`'s group of these axes. */
SHOAL_API int32_t shoal_mesh_member(const shoal_mesh *mesh, shoal_axes axes, int32_t rank,
                                    int32_t coordinate);

/* A group of these axes cut again, in mixed radix with the first level fastest: sizes {2, 2, 4} of
 * 16 ranks are pairs of neighbours, pairs of pairs, and groups of four of those. Context
 * parallelism in levels, and the inner and outer part of data parallelism. member: the rank at
 * `coordinate` of `rank`'s group at `level`. -1 when the sizes do not multiply to the group's. */
SHOAL_API int32_t shoal_mesh_level_member(const shoal_mesh *mesh, shoal_axes axes,
                                          const int32_t *sizes, int32_t levels, int32_t level,
                                          int32_t rank, int32_t coordinate);

/* The ranks of `rank`'s pipeline that hold word embeddings (first and last stage, or the first
 * alone when the output matrix is not tied) or position embeddings (the first). Fills at most two
 * and returns how many. */
SHOAL_API int32_t shoal_mesh_embedding_ranks(const shoal_mesh *mesh, bool tied, int32_t rank,
                                             int32_t ranks[2]);
SHOAL_API int32_t shoal_mesh_position_embedding_rank(const shoal_mesh *mesh, int32_t rank);

/* The communicator of this rank's group of these axes. Collective over all ranks of the mesh when
 * it is asked for the first time, by all in the same order. Borrowed until destroy. A group of one
 * rank is NULL, and one of all ranks in their order is the mesh's own. SHOAL_EINVAL without a
 * group. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_mesh_group(shoal_mesh *mesh, shoal_axes axes,
                                                      shoal_group **group);
/* The communicator of shoal_mesh_embedding_ranks; NULL on ranks that hold none. Like above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_mesh_embedding_group(shoal_mesh *mesh, bool tied,
                                                                shoal_group **group);

/* "tp 1, pp 0, dp 1" for messages: the coordinates of axes with more than one rank, in the mesh's
 * order; "" when there are none. Returns `buffer`. */
SHOAL_API const char *shoal_mesh_format(const shoal_mesh *mesh, int32_t rank, char *buffer,
                                        size_t bytes);

/* "8 ranks, tp 2, dp 2, pp 2; numbered tp-cp-ep-dp-pp": axes of one rank are left out. Returns
 * `buffer`. */
SHOAL_API const char *shoal_mesh_describe(const shoal_mesh *mesh, char *buffer, size_t bytes);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_mesh_create_sized(const shoal_mesh_args *args,
                                                             size_t args_size, shoal_mesh **mesh);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_mesh_create(const shoal_mesh_args *args,
                                                          shoal_mesh **mesh)
{
    return shoal_mesh_create_sized(args, sizeof *args, mesh);
}

#ifdef __cplusplus
}
#endif
#endif
