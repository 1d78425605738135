/* activation_checkpointing - which scopes forget their activations and run again in backward. Level
 * L6.
 *
 * The tape can already replay a scope (autograd.h: recompute, group, keep); this folder decides.
 * It is a scope observer: at the begin of a scope it sets `recompute`, and from then on the tape
 * drops what is inside at the scope's end and runs the recorded nodes again before the scope's
 * backward. Random numbers are functions of coordinates, so the replay draws the same dropout masks
 * and the gradients have the same bits as without.
 *
 *   none       keep everything
 *   full       whole layers, but never the first and the last of the model (they hold the tables
 *              and the loss). method uniform: all of them, in chunks of num_layers (1) that are
 *              recomputed as one, so that only the input of each chunk is kept; block: the first
 *              num_layers of them, each by itself; in a pipeline of each virtual stage, so that
 *              each keeps as little.
 *   selective  inner scopes by name, in every layer: for the GPT "attn" and "mlp".
 *
 * The section activation_checkpointing of ds_config.json adds to that: number_checkpoints (full,
 * uniform, in so many chunks), where the kept inputs wait (cpu_checkpointing: pinned host memory;
 * contiguous_memory_optimization: one block of the device), synchronize_checkpoint_boundary and
 * profile (waits for the device, and logs times, at the begin and end of recomputed scopes).
 * partition_activations spreads kept inputs over tensor-parallel ranks; with one of those there is
 * nothing to spread.
 *
 * The observer works in meta mode too, so the planned activation memory is that of the run.
 * Sources: Chen et al. 2016, "Training deep nets with sublinear memory cost"; Megatron's
 * --recompute-granularity, --recompute-method, --recompute-num-layers, --recompute-modules;
 * DeepSpeed's activation_checkpointing.
 */
#ifndef SHOALI_ACTIVATION_CHECKPOINTING_H
#define SHOALI_ACTIVATION_CHECKPOINTING_H

#include "autograd/autograd.h"

/* Zero is "none". Lists are borrowed and must outlive the tapes. */
struct shoali_recompute {
    enum { SHOALI_RECOMPUTE_NONE, SHOALI_RECOMPUTE_FULL, SHOALI_RECOMPUTE_SELECTIVE } granularity;
    int32_t first_layer, end_layer; /* full: these layers ... */
    int32_t chunk_layers;           /* ... in chunks of so many */
    int32_t block_layers; /* block: the first so many of these in each run of `runs`; else 0 */
    const struct shoali_layer_run *runs; /* borrowed; NULL: the model is one */
    int32_t run_count;
    const char *const *modules; /* selective: names of inner scopes */
    int32_t module_count;
    bool cpu, contiguous;      /* where kept inputs wait */
    bool synchronize, profile; /* at the boundaries of recomputed scopes */
    int32_t timed_scope;       /* of which begin_ns is the begin; -1: none */
    int64_t begin_ns;
};

/* The public words: flags, then keys. */
struct shoali_recompute_args {
    const char *granularity, *method; /* NULL: none, uniform */
    int64_t num_layers;
    const char *const *modules; /* NULL-terminated list or NULL */
    int32_t layer_count;        /* of the model */
    int64_t number_checkpoints; /* 0: not given */
    bool cpu_checkpointing, contiguous_memory_optimization, synchronize, profile;
};
/* SHOAL_EINVAL names the flag and what it may be; SHOAL_ECONFIG the key. */
SHOAL_CHECKED shoal_status shoali_recompute_init(struct shoali_recompute *recompute,
                                                 const struct shoali_recompute_args *args);
/* The layers of this rank's virtual stages. */
void shoali_recompute_set_runs(struct shoali_recompute *recompute,
                               const struct shoali_layer_run *runs, int32_t run_count);
/* The observer; `recompute` is borrowed until the tapes that use it are destroyed. */
struct shoali_observer shoali_recompute_observer(struct shoali_recompute *recompute);
/* Where a tape keeps inputs of recomputed scopes; `slot` is for them alone: pinned with cpu. */
struct shoali_keep shoali_recompute_keep(const struct shoali_recompute *recompute,
                                         struct shoali_slot *slot);

#endif
