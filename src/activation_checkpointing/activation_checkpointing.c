/* The decision per scope and per layer, and what happens at the boundaries. */
#include "activation_checkpointing/activation_checkpointing.h"

#include <string.h>

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* Of the block method: the layer is among the first of its virtual stage. */
static bool in_block(const struct shoali_recompute *recompute, int32_t layer)
{
    if (recompute->block_layers == 0)
        return true;
    for (int32_t r = 0; r < recompute->run_count; r++) {
        const struct shoali_layer_run *run = &recompute->runs[r];
        if (layer >= run->first && layer < run->first + run->count)
            return layer - larger(run->first, recompute->first_layer) < recompute->block_layers;
    }
    return layer - recompute->first_layer < recompute->block_layers;
}

static bool chosen(const struct shoali_recompute *recompute, const struct shoali_scope *scope)
{
    if (scope->group_layers > 0)
        return true;
    if (recompute->granularity == SHOALI_RECOMPUTE_FULL)
        return scope->layer && scope->layer->index >= recompute->first_layer &&
               scope->layer->index < recompute->end_layer &&
               in_block(recompute, scope->layer->index);
    for (int32_t i = 0; i < recompute->module_count; i++)
        if (!scope->layer && strcmp(scope->name, recompute->modules[i]) == 0)
            return true;
    return false;
}

static int32_t chunk_from(void *user, const struct shoal_layer *layer)
{
    const struct shoali_recompute *recompute = user;
    if (layer->index < recompute->first_layer || layer->index >= recompute->end_layer)
        return 1;
    const int32_t left = recompute->end_layer - layer->index;
    return recompute->chunk_layers < left ? recompute->chunk_layers : left;
}

void shoali_recompute_set_runs(struct shoali_recompute *recompute,
                               const struct shoali_layer_run *runs, int32_t run_count)
{
    recompute->runs = runs;
    recompute->run_count = run_count;
}

/* ---- boundaries ---- */

static shoal_status wait_for_device(const struct shoal_tape *tape)
{
    return SHOALI_LAUNCH(tape, shoali_stream_synchronize(shoali_tape_exec(tape)->stream));
}

/* Recomputed scopes do not nest, so there is one time to keep. */
static shoal_status boundary_begin(struct shoali_recompute *recompute,
                                   const struct shoal_tape *tape, const struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    if (!recompute->synchronize && !recompute->profile)
        return SHOAL_OK;
    SHOAL_TRY(status, wait_for_device(tape), done);
    recompute->timed_scope = scope->index;
    recompute->begin_ns = shoali_now_ns();
done:
    return status;
}

static shoal_status boundary_end(struct shoali_recompute *recompute, const struct shoal_tape *tape,
                                 const struct shoali_scope *scope, const char *what)
{
    shoal_status status = SHOAL_OK;
    if (recompute->timed_scope != scope->index)
        return SHOAL_OK;
    recompute->timed_scope = -1;
    SHOAL_TRY(status, wait_for_device(tape), done);
    /* an evaluation clears the flag: it recomputes nothing */
    if (recompute->profile && scope->recompute && !shoali_tape_is_meta(tape))
        shoali_log(SHOAL_LOG_INFO, "activation_checkpointing", "%s: %s %.3f ms", scope->path, what,
                   (double)(shoali_now_ns() - recompute->begin_ns) * 1e-6);
done:
    return status;
}

static shoal_status forward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_recompute *recompute = user;
    scope->recompute = chosen(recompute, scope);
    /* a layer of a group is chosen too, but its group is what counts */
    if (!scope->recompute || recompute->timed_scope >= 0)
        return SHOAL_OK;
    return boundary_begin(recompute, tape, scope);
}

static shoal_status forward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    return boundary_end(user, tape, scope, "forward");
}

static shoal_status backward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    return scope->recompute ? boundary_begin(user, tape, scope) : SHOAL_OK;
}

static shoal_status backward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    return boundary_end(user, tape, scope, "recompute and backward");
}

struct shoali_observer shoali_recompute_observer(struct shoali_recompute *recompute)
{
    recompute->timed_scope = -1;
    return (struct shoali_observer){.user = recompute,
                                    .forward_begin = forward_begin,
                                    .forward_end = forward_end,
                                    .backward_begin = backward_begin,
                                    .backward_end = backward_end,
                                    .group = recompute->chunk_layers > 1 ? chunk_from : NULL};
}

struct shoali_keep shoali_recompute_keep(const struct shoali_recompute *recompute,
                                         struct shoali_slot *slot)
{
    struct shoali_keep keep = {.slot = slot};
    if (recompute->cpu)
        keep.where = SHOALI_KEEP_HOST;
    else if (recompute->contiguous)
        keep.where = SHOALI_KEEP_BLOCK;
    return keep;
}
