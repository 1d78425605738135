/* workspace.c - temporary memory inside one forward or backward call of a node. */
#include "autograd/tape/tape.h"

shoal_status shoali_tape_workspace(struct shoal_tape *tape, size_t bytes, void **memory)
{
    shoal_status status;
    int32_t at = 0, segment;
    *memory = NULL;
    while (at < SHOALI_TAPE_MAX_WORKSPACES && tape->workspace[at].memory != NULL)
        at++;
    SHOAL_ASSERT(at < SHOALI_TAPE_MAX_WORKSPACES);
    SHOAL_TRY(status, shoali_slot_alloc(tape->args.slot, bytes, &segment), done);
    tape->workspace[at].memory = shoali_slot_address(tape->args.slot, segment);
    tape->workspace[at].segment = segment;
    *memory = tape->workspace[at].memory;
done:
    return status;
}

void shoali_tape_workspace_free(struct shoal_tape *tape, void *memory)
{
    for (int32_t i = 0; memory != NULL && i < SHOALI_TAPE_MAX_WORKSPACES; i++)
        if (tape->workspace[i].memory == memory) {
            shoali_slot_free(tape->args.slot, tape->workspace[i].segment);
            tape->workspace[i].memory = NULL;
            return;
        }
}

void shoali_tape_free_workspaces(struct shoal_tape *tape)
{
    for (int32_t i = 0; i < SHOALI_TAPE_MAX_WORKSPACES; i++)
        shoali_tape_workspace_free(tape, tape->workspace[i].memory);
}
