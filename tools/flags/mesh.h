/* mesh - Megatron's flags that say which ranks divide what, and two of ours.
 *
 * One table for all subcommands that know a mesh: pretrain, plan, bench step, generate, report.
 * What it holds becomes a shoal_mesh (sizes and order) and members of shoal_engine_args (schedule,
 * cut of the layers). The configuration may say the same things in its sections `pipeline` and
 * `tensor_parallel`: one of both, or the same in both.
 *
 *   parse -> mesh_flags_take_config -> mesh_flags_check -> mesh_flags_open -> mesh_flags_fill
 */
#ifndef SHOAL_MESH_FLAGS_H
#define SHOAL_MESH_FLAGS_H

#include "base/config_table.h"
#include "shoal/engine.h"
#include "shoal/plan.h"
#include "shoal/transformer.h"

struct mesh_flags {
    /* sizes; with `given` bits where a flag said them */
    int64_t tensor, pipeline, context, expert, expert_tensor;
    bool pipeline_before_data; /* the order of ranks */
    /* tensor parallel */
    bool sequence_parallel, no_async;
    /* pipeline */
    const char *schedule, *partition, *layout;
    int64_t virtual_stages, virtual_layers; /* chunks of a stage; decoder layers of a chunk */
    int64_t group, first, last;
    bool account_for_embedding, account_for_loss, no_overlap_p2p;
    bool sequence_parallel_alone; /* it was asked for, and there is nobody to share with */
    uint64_t given[SHOALI_GIVEN_WORDS];
};
/* All of them; sizes and order alone, and that of tp alone, of the same struct. */
extern const struct shoali_section mesh_flags_section, mesh_sizes_section, mesh_tensor_section;

/* Takes sizes and partition from the file where no flag gives them. SHOAL_ECONFIG shows both values
 * where flag and file contradict. path NULL: there is none. Strings go to the arena. */
SHOAL_CHECKED shoal_status mesh_flags_take_config(struct mesh_flags *flags, const char *path,
                                                  struct shoali_arena *arena);
/* Refuses flags that contradict each other, or the model, on any number of ranks: SHOAL_EINVAL.
 * Completes the flags: chunks by their layers, the partition method. With one tensor-parallel rank
 * --sequence-parallel is turned off, as Megatron does; mesh_flags_say tells it. model NULL: only
 * the mesh is wanted. */
SHOAL_CHECKED shoal_status mesh_flags_check(struct mesh_flags *flags,
                                            const shoal_model_config *model,
                                            struct shoali_arena *arena);
/* Lines about what the check changed. */
void mesh_flags_say(const struct mesh_flags *flags, const char *tool);
/* The mesh of the group's ranks; group NULL: of `ranks`, of which this is `rank`. SHOAL_EINVAL when
 * the sizes do not divide them. */
SHOAL_CHECKED shoal_status mesh_flags_open(const struct mesh_flags *flags, shoal_group *group,
                                           int32_t ranks, int32_t rank, shoal_mesh **mesh);
/* The same as arguments, without a group. */
shoal_mesh_args mesh_flags_args(const struct mesh_flags *flags);
/* Everything but the mesh itself. Strings are borrowed. */
void mesh_flags_fill(const struct mesh_flags *flags, shoal_engine_args *args);
/* The mesh, for a plan. */
void mesh_flags_fill_plan(const struct mesh_flags *flags, shoal_plan_args *args);
/* More than one rank along any axis but dp. */
bool mesh_flags_any(const struct mesh_flags *flags);

#endif
