/* keep.c - where the inputs of recomputed scopes wait for their replay.
 *
 * At the end of an outermost scope, what only replays will read is moved: into a block of its own
 * (SHOALI_KEEP_BLOCK), or to pinned host memory (SHOALI_KEEP_HOST). Copies to and from the host run
 * on a stream of their own, one scope late and one scope early:
 *
 *   leaving   copied out beside the next scope; the device memory goes when that one ends
 *   away      only on the host
 *   coming    copied back beside the replay and the backward of the scope behind
 *
 * Events order the copies against the computing stream, which alone uses the slot's memory
 * otherwise. Meta mode takes and gives the same memory without copying.
 */
#include "autograd/tape/tape.h"

/* ---- streams ---- */

static bool copies(const struct shoal_tape *tape)
{
    return tape->args.keep.where == SHOALI_KEEP_HOST && !shoali_tape_is_meta(tape);
}

static shoal_status open_stream(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    struct shoali_keeper *keeper = &tape->keeper;
    struct shoali_device *device = shoali_stream_device(tape->args.exec.stream);
    if (keeper->computed == NULL)
        SHOAL_TRY(status, shoali_event_create(device, &keeper->computed), done);
    if (keeper->copied == NULL)
        SHOAL_TRY(status, shoali_event_create(device, &keeper->copied), done);
    if (keeper->stream == NULL) /* last: who has it has the events */
        SHOAL_TRY(status, shoali_stream_create(device, &keeper->stream), done);
done:
    return status;
}

/* The copies that follow come after what was computed so far. */
static shoal_status begin_copies(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    if (!copies(tape))
        return SHOAL_OK;
    SHOAL_TRY(status, open_stream(tape), done);
    SHOAL_TRY(status, shoali_event_record(tape->keeper.computed, tape->args.exec.stream), done);
    SHOAL_TRY(status, shoali_stream_wait_event(tape->keeper.stream, tape->keeper.computed), done);
done:
    return status;
}

static shoal_status end_copies(struct shoal_tape *tape)
{
    return copies(tape) ? shoali_event_record(tape->keeper.copied, tape->keeper.stream) : SHOAL_OK;
}

/* What is computed from here on comes after the copies. */
static shoal_status await_copies(struct shoal_tape *tape)
{
    return copies(tape) && tape->keeper.stream != NULL
               ? shoali_stream_wait_event(tape->args.exec.stream, tape->keeper.copied)
               : SHOAL_OK;
}

void shoali_keeper_end(struct shoal_tape *tape)
{
    struct shoali_keeper *keeper = &tape->keeper;
    if (keeper->stream != NULL &&
        shoali_event_record(keeper->copied, keeper->stream) >= 0) /* memory is used again */
        (void)!shoali_stream_wait_event(tape->args.exec.stream, keeper->copied);
    keeper->leaving = 0;
    if (tape->args.keep.slot != NULL)
        shoali_slot_reset(tape->args.keep.slot);
}

void shoali_keeper_fini(struct shoal_tape *tape)
{
    struct shoali_keeper *keeper = &tape->keeper;
    if (keeper->stream != NULL)
        (void)!shoali_stream_synchronize(keeper->stream);
    shoali_event_destroy(keeper->computed);
    shoali_event_destroy(keeper->copied);
    shoali_stream_destroy(keeper->stream);
    *keeper = (struct shoali_keeper){0};
}

/* ---- one tensor ---- */

/* All tensors of this memory point to where it is now. */
static void point(struct shoal_tape *tape, const struct shoali_tape_tensor *root, void *address)
{
    if (shoali_tape_is_meta(tape))
        return;
    for (int32_t t = root->tensor.id; t < tape->tensor_count; t++)
        if (tape->tensor[t]->root == root)
            tape->tensor[t]->tensor.data = address;
}

/* Nobody but replays will read it, and it has memory of the slot. */
static bool is_movable(const struct shoali_tape_tensor *root)
{
    return root->root == root && root->holds > 0 && root->refs == root->holds && !root->external &&
           root->stay == SHOALI_STAY_HERE && root->segment != SHOALI_NO_SEGMENT;
}

static void *kept_address(const struct shoal_tape *tape, const struct shoali_tape_tensor *root)
{
    return shoali_slot_address(tape->args.keep.slot, root->kept_segment);
}

static void give_slot_memory(struct shoal_tape *tape, struct shoali_tape_tensor *root)
{
    shoali_slot_free(tape->args.slot, root->segment);
    root->segment = SHOALI_NO_SEGMENT;
}

void shoali_tensor_forget_kept(struct shoal_tape *tape, struct shoali_tape_tensor *root)
{
    if (root->stay == SHOALI_STAY_HERE)
        return;
    tape->keeper.leaving -= root->stay == SHOALI_STAY_LEAVING;
    root->stay = SHOALI_STAY_HERE;
    shoali_slot_free(tape->args.keep.slot, root->kept_segment);
    root->kept_segment = SHOALI_NO_SEGMENT;
}

static shoal_status move_out(struct shoal_tape *tape, struct shoali_tape_tensor *root)
{
    shoal_status status;
    const bool to_host = tape->args.keep.where == SHOALI_KEEP_HOST;
    SHOAL_TRY(status, shoali_slot_alloc(tape->args.keep.slot, root->bytes, &root->kept_segment),
              done);
    void *kept = kept_address(tape, root);
    SHOAL_TRY(
        status,
        SHOALI_LAUNCH(tape, shoali_copy(to_host ? tape->keeper.stream : tape->args.exec.stream,
                                        kept, root->tensor.data, root->bytes,
                                        to_host ? SHOALI_DEVICE_TO_HOST : SHOALI_DEVICE_TO_DEVICE)),
        done);
    if (to_host) {
        root->stay = SHOALI_STAY_LEAVING;
        tape->keeper.leaving++;
    } else {
        root->stay = SHOALI_STAY_BLOCK;
        give_slot_memory(tape, root);
        point(tape, root, kept);
    }
done:
    return status;
}

static shoal_status move_back(struct shoal_tape *tape, struct shoali_tape_tensor *root)
{
    shoal_status status;
    SHOAL_TRY(status, begin_copies(tape), done);
    SHOAL_TRY(status, shoali_tensor_place(tape, root), done);
    void *address = root->tensor.data;
    point(tape, root, address);
    SHOAL_TRY(
        status,
        SHOALI_LAUNCH(tape, shoali_copy(tape->keeper.stream, address, kept_address(tape, root),
                                        root->bytes, SHOALI_HOST_TO_DEVICE)),
        done);
    SHOAL_TRY(status, end_copies(tape), done);
    root->stay = SHOALI_STAY_COMING;
done:
    return status;
}

/* ---- a scope has ended ---- */

/* Those on their way out have left: their memory goes, or stays when backward begins. */
static shoal_status settle(struct shoal_tape *tape, bool stays)
{
    shoal_status status = SHOAL_OK;
    if (tape->keeper.leaving == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, await_copies(tape), done);
    for (int32_t t = 0; t < tape->tensor_count && tape->keeper.leaving > 0; t++) {
        struct shoali_tape_tensor *root = tape->tensor[t];
        if (root->stay != SHOALI_STAY_LEAVING)
            continue;
        if (stays) {
            shoali_tensor_forget_kept(tape, root);
            continue;
        }
        tape->keeper.leaving--;
        root->stay = SHOALI_STAY_AWAY;
        give_slot_memory(tape, root);
        point(tape, root, NULL);
    }
done:
    return status;
}

shoal_status shoali_keep_inputs(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    bool first = true;
    if (tape->args.keep.where == SHOALI_KEEP_SLOT || tape->open_scope >= 0)
        return SHOAL_OK;
    SHOAL_TRY(status, settle(tape, false), done);
    for (int32_t t = 0; t < tape->tensor_count; t++) {
        if (!is_movable(tape->tensor[t]))
            continue;
        if (first)
            SHOAL_TRY(status, begin_copies(tape), done);
        first = false;
        SHOAL_TRY(status, move_out(tape, tape->tensor[t]), done);
    }
    if (!first)
        SHOAL_TRY(status, end_copies(tape), done);
done:
    return status;
}

/* ---- backward ---- */

shoal_status shoali_keep_begin_backward(struct shoal_tape *tape)
{
    return settle(tape, true);
}

/* Starts to bring back what a scope's nodes read from outside of it; with `now` they can read it.
 */
static shoal_status bring(struct shoal_tape *tape, const struct shoali_tape_scope *scope, bool now)
{
    shoal_status status = SHOAL_OK;
    bool coming = false;
    for (int32_t n = 0; n < scope->scope.node_count; n++) {
        const struct shoali_node *node = tape->node[scope->scope.first_node + n];
        for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++) {
            struct shoali_tape_tensor *root = node->in[i] != NULL ? node->in[i]->root : NULL;
            if (root == NULL)
                continue;
            if (root->stay == SHOALI_STAY_AWAY)
                SHOAL_TRY(status, move_back(tape, root), done);
            if (!now || root->stay != SHOALI_STAY_COMING)
                continue;
            if (!coming)
                SHOAL_TRY(status, await_copies(tape), done);
            coming = true;
            shoali_tensor_forget_kept(tape, root);
        }
    }
done:
    return status;
}

shoal_status shoali_keep_bring_back(struct shoal_tape *tape, const struct shoali_tape_scope *scope)
{
    shoal_status status = SHOAL_OK;
    if (tape->args.keep.where != SHOALI_KEEP_HOST)
        return SHOAL_OK;
    SHOAL_TRY(status, bring(tape, scope, true), done);
    for (int32_t s = scope->scope.index - 1; s >= 0; s--)
        if (tape->scope[s]->dropped) {
            SHOAL_TRY(status, bring(tape, tape->scope[s], false), done);
            break;
        }
done:
    return status;
}
