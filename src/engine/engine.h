/* engine - the object behind shoal/engine.h: composes all lower folders. Level L8.
 *
 *   engine.c  create, destroy: configuration -> mesh -> devices -> module -> plan of a slot -> zero
 *   report.c  the text of `shoal report`
 *
 * Rooms, in their order: a room includes those before it, and engine.h.
 *   config/   ds_config.json (config.h)
 *   state/    the place among the ranks, parameters (state.h)
 *   save/     checkpoints (save.h)
 *   step/     a step: micro-batches, pipeline, batch, hashes (step.h)
 *   plan/     an engine without memory steps (plan.h)
 *
 * The members of struct shoal_engine lie in structs of the rooms that write them; engine.c writes
 * the others once.
 *
 * A slot's size comes from a meta run of the same forward and backward at create, so the first step
 * allocates what the last does.
 */
#ifndef SHOALI_ENGINE_H
#define SHOALI_ENGINE_H

#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "engine/save/save.h"
#include "engine/state/state.h"
#include "engine/step/step.h"
#include "shoal/engine.h"
#include "shoal/monitor.h"
#include "zero/zero.h"

struct shoal_engine {
    struct shoali_ds_config config;
    struct shoali_engine_place place;
    struct shoali_engine_stages stages;
    struct shoali_engine_step step;
    struct shoali_engine_save save;

    const shoal_model *model;
    struct shoali_module module;
    struct shoali_optimizer optimizer; /* of the parameters in no group */
    struct shoali_param_groups param_groups;
    struct shoali_param_about *param_about; /* [params] what made the groups; the config's arena */
    struct shoali_zero *zero;
    void *packed_weights; /* device; NULL: none */
    size_t packed_weights_bytes;

    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_ops ops, host_ops; /* of the device's memory; of the host's */
    struct shoali_exec exec;

    struct shoali_comms_log *comms_log; /* NULL: not asked for */
    shoal_monitor *monitor;
    char *output_path; /* owned; "": the current folder */
    uint64_t seed;
    bool inference, blank_weights;
    bool failure_agreed; /* of the engine's creation, by all ranks: none waits for another */
    bool meta; /* in a plan: accelerator/meta, comm/meta; nothing is computed, printed or written */
};

/* What shoal_engine_create leaves zero. */
struct shoali_engine_making {
    bool meta;                 /* for a plan: args->group is from shoali_comm_create_meta or NULL */
    int32_t ranks_per_machine; /* of a plan: they share the cores; 0: all ranks */
    /* Axes other than dp and tp of which the mesh may have ranks. They cut parameters; but as no
     * layer computes with a part yet, their ranks compute the same micro-batches (those along ep,
     * which are along dp, too, their own). For tests, with layers that gather what they compute
     * with. */
    shoal_axes admitted;
    /* Of all tapes, before the others: sees what each layer costs. Borrowed until destroy. */
    const struct shoali_observer *watch;
};
SHOAL_CHECKED shoal_status shoali_engine_make(const shoal_engine_args *args,
                                              const struct shoali_engine_making *making,
                                              shoal_engine **engine);

#endif
