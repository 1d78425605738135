/* pipeline_parallel - what a rank does in a step, as a list. Level L6; a pure function.
 *
 * A step of M micro-batches over p stages is a list of instructions for each stage, made from
 * (schedule, p, stage, M) alone. The engine runs the list; tests check lists without running them:
 * every instruction's inputs exist, blocking sends cannot deadlock, and no more slots are alive
 * than is published. Training without a pipeline, evaluation and generation are lists of one stage.
 *
 *   slot   memory of one micro-batch in flight: its tape and its activations. LOAD and
 * RECV_ACTIVATION take one, BACKWARD (without training: FORWARD) gives it back. micro  the
 * micro-batch's number among those of this data-parallel rank in this step, 0 ... M-1.
 */
#ifndef SHOALI_PIPELINE_PARALLEL_H
#define SHOALI_PIPELINE_PARALLEL_H

#include "base/base.h"

enum shoali_instruction_kind {
    SHOALI_DO_LOAD,     /* the batch's arrays, onto the slot's tape */
    SHOALI_DO_FORWARD,  /* the stage's layers */
    SHOALI_DO_BACKWARD, /* ... and their gradients */
    SHOALI_DO_STEP      /* reduce, decide, update */
};
struct shoali_instruction {
    enum shoali_instruction_kind kind;
    int32_t micro, slot;
};
struct shoali_instructions {
    const struct shoali_instruction *list; /* in the arena */
    int32_t count, slots;                  /* slots: alive at once, at most */
};
struct shoali_instructions_args {
    int32_t micro_batches;
    bool training; /* false: no backward, no step */
};
/* SHOAL_ENOMEM. */
SHOAL_CHECKED shoal_status shoali_instructions_make(const struct shoali_instructions_args *args,
                                                    struct shoali_arena *arena,
                                                    struct shoali_instructions *instructions);
/* "forward", for messages. */
const char *shoali_instruction_name(enum shoali_instruction_kind kind);

#endif
