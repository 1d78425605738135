/* instructions.c - lists of one stage: a micro-batch after the other. */
#include "pipeline_parallel/pipeline_parallel.h"

const char *shoali_instruction_name(enum shoali_instruction_kind kind)
{
    static const char *const names[] = {"load", "forward", "backward", "step"};
    return names[kind];
}

shoal_status shoali_instructions_make(const struct shoali_instructions_args *args,
                                      struct shoali_arena *arena,
                                      struct shoali_instructions *instructions)
{
    static const enum shoali_instruction_kind each[] = {SHOALI_DO_LOAD, SHOALI_DO_FORWARD,
                                                        SHOALI_DO_BACKWARD};
    const int32_t kinds = args->training ? 3 : 2;
    const int64_t count = (int64_t)args->micro_batches * kinds + args->training;
    int32_t at = 0;
    *instructions = (struct shoali_instructions){0};
    struct shoali_instruction *list = shoali_arena_alloc(arena, (size_t)count * sizeof *list);
    if (list == NULL)
        return SHOAL_ENOMEM;
    for (int32_t micro = 0; micro < args->micro_batches; micro++)
        for (int32_t k = 0; k < kinds; k++)
            list[at++] = (struct shoali_instruction){.kind = each[k], .micro = micro};
    if (args->training)
        list[at++] = (struct shoali_instruction){.kind = SHOALI_DO_STEP};
    *instructions = (struct shoali_instructions){.list = list, .count = at, .slots = 1};
    return SHOAL_OK;
}
