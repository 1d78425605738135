/* Which rank writes which chunk. With at least as many chunks as ranks each has a run of
 * neighbours; with fewer they are dealt out one by one, going on where the kind before ended, so
 * that small kinds are not all rank 0's. */
#include "checkpoint/checkpoint_internal.h"

void shoali_checkpoint_number_chunks(struct shoali_checkpoint_run *run)
{
    int64_t dealt = 0;
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        struct shoali_checkpoint_plan *plan = &run->plan[k];
        plan->chunk_count = 0;
        for (int32_t f = 0; f < plan->file_count; f++) {
            plan->file[f].first_chunk = plan->chunk_count;
            plan->chunk_count += plan->file[f].chunk_count;
        }
        if (plan->chunk_count < run->size) {
            plan->turn = (int32_t)(dealt % run->size);
            dealt += plan->chunk_count;
        }
    }
}

/* The first chunk of a rank's run. */
static int64_t run_begin(int64_t chunks, int64_t rank, int64_t ranks)
{
    /* chunks * rank could be too large */
    return chunks / ranks * rank + (chunks % ranks * rank + ranks - 1) / ranks;
}

int64_t shoali_checkpoint_rounds(const struct shoali_checkpoint_run *run, int32_t kind)
{
    return (run->plan[kind].chunk_count + run->size - 1) / run->size;
}

int64_t shoali_checkpoint_chunk_of(const struct shoali_checkpoint_run *run, int32_t kind,
                                   int64_t round, int32_t rank)
{
    const struct shoali_checkpoint_plan *plan = &run->plan[kind];
    if (plan->chunk_count < run->size) {
        const int32_t chunk = (rank + run->size - plan->turn) % run->size;
        return round == 0 && chunk < plan->chunk_count ? chunk : -1;
    }
    const int64_t chunk = run_begin(plan->chunk_count, rank, run->size) + round;
    return chunk < run_begin(plan->chunk_count, rank + 1, run->size) ? chunk : -1;
}

struct shoali_checkpoint_file *shoali_checkpoint_file_of(const struct shoali_checkpoint_run *run,
                                                         int32_t kind, int64_t chunk,
                                                         int64_t *index)
{
    const struct shoali_checkpoint_plan *plan = &run->plan[kind];
    int32_t low = 0;
    for (int32_t high = plan->file_count - 1; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (plan->file[middle + 1].first_chunk <= chunk)
            low = middle + 1;
        else
            high = middle;
    }
    *index = chunk - plan->file[low].first_chunk;
    return &plan->file[low];
}
