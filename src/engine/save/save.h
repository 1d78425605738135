/* save - checkpoints of an engine, and those in folders.
 *
 *   checkpoint.h, .c      the engine's numbers in a checkpoint; save at once; load
 *   tensors.c             this engine's tensors as checkpoint/ sees them
 *   states.c              whether a checkpoint's optimizer states are for this run's optimizer
 *   options.c             which keys of the configuration train in another way than a checkpoint's
 *   background.c          saves beside the training
 *   narrowing.c           numbers that the type of the computation does not hold
 *   weights.c             weights alone, from folders of the Hub
 *   foreign_checkpoint.h  rows of other programs' checkpoints
 *   folders.c, diff.c     checkpoints in folders, without an engine
 *
 * Invariants. A save and a load are collective. A checkpoint appears whole or not at all
 * (checkpoint/).
 */
#ifndef SHOALI_ENGINE_SAVE_H
#define SHOALI_ENGINE_SAVE_H

#include "checkpoint/checkpoint.h"
#include "shoal/engine.h"

enum { SHOALI_ENGINE_FILES = 16 };

struct shoali_engine_saver;
struct shoali_engine_save {
    bool override_existing_checkpoint;
    void *buffer; /* NULL: not, or in a plan */
    int64_t buffer_bytes;
    struct shoali_engine_saver *saver; /* NULL: saves are made at once, or there was none yet */
    shoal_save_info info;
    struct shoali_checkpoint_companion file[SHOALI_ENGINE_FILES]; /* of each save; owned */
    int32_t file_count;
};

/* Frees what shoal_engine_add_file copied. */
void shoali_engine_drop_files(struct shoal_engine *engine);
/* checkpoint.c: what a save needs, now. In a plan it is only counted. */
SHOAL_CHECKED shoal_status shoali_engine_prepare_saves(struct shoal_engine *engine);

#endif
