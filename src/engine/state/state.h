/* state - what an engine is made of beside its steps and saves: its place among the ranks, its
 * parameters, and what all ranks must have alike.
 *
 *   access.c        getters, parameters, fingerprint
 *   agree.c         what ranks must have alike, compared while the engine is made
 *   comms.c         the log of collectives
 *   describe.c      the mesh as people read it
 *   param_groups.c  which parameter is updated by which values
 *   shards.c        which ranks share which shard of a parameter, by the mesh
 *
 * Terms. Data ranks share the weights and divide the samples. Sharers hold the same shard of a
 * parameter.
 *
 * Invariants. The place does not change after shoali_engine_open_mesh and shoali_stages_join. All
 * of these functions are collective unless they say otherwise.
 */
#ifndef SHOALI_ENGINE_STATE_H
#define SHOALI_ENGINE_STATE_H

#include "autograd/autograd.h"
#include "shoal/engine.h"
#include "shoal/mesh.h"
#include "zero/zero.h"

enum { SHOALI_ENGINE_CUTS = 3 };

/* This rank among the others. */
struct shoali_engine_place {
    shoal_mesh *mesh;        /* borrowed, or own_mesh: all ranks along dp */
    shoal_mesh *own_mesh;    /* NULL: the caller's */
    shoal_group *group;      /* all ranks of the mesh; borrowed; NULL: one rank */
    int32_t rank, world;     /* in it: who speaks, and names in messages */
    shoal_group *data_group; /* of the ranks that share weights and divide samples; NULL: one */
    int32_t data_rank, data_ranks;
    /* Where ranks that hold the same of a parameter are others: -1 for those split along ep, else
     * how many neighbours along tp belong to them; and the groups. */
    shoal_group *cuts[SHOALI_ENGINE_CUTS];
    int32_t cut_sharers[SHOALI_ENGINE_CUTS];
    shoal_group *sharers; /* owned; NULL: no such, or all of tp */
    struct shoali_tensor_parallel tensor_parallel;
    shoal_axes admitted;       /* axes other than dp; see shoali_engine_making */
    int32_t ranks_per_machine; /* of a plan, or 0 */
    bool loss_elsewhere;       /* another rank computes the same losses, and adds them */
};

/* shards.c: before the configuration is read; when the model's parameters are declared;
 * filling in group, everyone, cuts and what is counted elsewhere. Collective. SHOAL_EUNSUPPORTED:
 * the mesh divides what the engine cannot. */
SHOAL_CHECKED shoal_status shoali_engine_open_mesh(struct shoal_engine *engine,
                                                   const shoal_engine_args *args);
SHOAL_CHECKED shoal_status shoali_engine_declare(struct shoal_engine *engine, shoal_dtype dtype);
SHOAL_CHECKED shoal_status shoali_engine_share_blocks(struct shoal_engine *engine,
                                                      struct shoali_zero_args *args);

/* agree.c: compare what was configured, what was derived from it, and at the end what was
 * made; `own` is how far this rank came. Collective, also for a rank that has failed before the
 * first or between the first and the second. */
SHOAL_CHECKED shoal_status shoali_engine_agree_configured(struct shoal_engine *engine,
                                                          const shoal_engine_args *args,
                                                          shoal_status own);
SHOAL_CHECKED shoal_status shoali_engine_agree_derived(struct shoal_engine *engine,
                                                       shoal_status own);
SHOAL_CHECKED shoal_status shoali_engine_agree_made(struct shoal_engine *engine);

/* comms.c; close comes after everything that posts */
SHOAL_CHECKED shoal_status shoali_engine_comms_open(struct shoal_engine *engine);
void shoali_engine_comms_close(struct shoal_engine *engine);

/* access.c: of the numbers that a parameter has in a kind which is not per element, those
 * that this rank counts in hashes: [begin, begin + count) of the kind's flat space; `at`: where
 * they are in that of a rank which holds everything. *whole: where the parameter's are there, then
 * the next one's. */
struct shoali_zero_range shoali_engine_small_slice(const struct shoal_engine *engine, int32_t kind,
                                                   int32_t param, int64_t *whole);

/* Fills param_groups; for inference nothing. */
SHOAL_CHECKED shoal_status shoali_engine_make_groups(struct shoal_engine *engine);

#endif
