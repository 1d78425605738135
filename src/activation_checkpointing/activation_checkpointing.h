/* activation_checkpointing - which scopes forget their activations and run again in backward. Level
 * L6.
 *
 * The tape can already replay a scope (autograd.h: recompute); this folder only decides. It is a
 * scope observer: at the begin of a scope it sets `recompute`, and from then on the tape drops what
 * is inside at the scope's end and runs the recorded nodes again before the scope's backward.
 * Random numbers are functions of coordinates, so the replay draws the same dropout masks and the
 * gradients have the same bits as without.
 *
 *   none        keep everything
 *   full        whole layers, but never the first and the last of the model (they hold the tables
 * and the loss). method uniform: every layer; block: only the first num_layers of them. selective
 * inner scopes by name, in every layer: for the GPT "attn" and "mlp".
 *
 * The observer works in meta mode too, so the planned activation memory is that of the run.
 * Sources: Chen et al. 2016, "Training deep nets with sublinear memory cost"; Megatron's
 * --recompute-granularity, --recompute-method, --recompute-num-layers, --recompute-modules.
 */
#ifndef SHOALI_ACTIVATION_CHECKPOINTING_H
#define SHOALI_ACTIVATION_CHECKPOINTING_H

#include "autograd/autograd.h"

/* Zero is "none". Plain values; lists are borrowed and must outlive the tapes. */
struct shoali_recompute {
    enum { SHOALI_RECOMPUTE_NONE, SHOALI_RECOMPUTE_FULL, SHOALI_RECOMPUTE_SELECTIVE } granularity;
    int64_t num_layers;         /* full: at most so many layers; 0: all */
    const char *const *modules; /* selective: names of inner scopes */
    int32_t module_count;
    int32_t layer_count; /* of the model */
};

/* Reads the public words. SHOAL_EINVAL names the flag and what it may be; SHOAL_EUNSUPPORTED for
 * chunks of several layers. */
struct shoali_recompute_args {
    const char *granularity, *method; /* NULL: none, uniform */
    int64_t num_layers;
    const char *const *modules; /* NULL-terminated list or NULL */
    int32_t layer_count;
};
SHOAL_CHECKED shoal_status shoali_recompute_init(struct shoali_recompute *recompute,
                                                 const struct shoali_recompute_args *args);
/* The observer; `recompute` is borrowed until the tapes that use it are destroyed. */
struct shoali_observer shoali_recompute_observer(struct shoali_recompute *recompute);

#endif
