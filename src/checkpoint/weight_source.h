/* weight_source - checkpoints of other programs whose weights are not whole tensors of a file. The
 * build writes the table; without foreign/ it is empty. weight_folder.h reads through it. */
#ifndef SHOALI_CHECKPOINT_WEIGHT_SOURCE_H
#define SHOALI_CHECKPOINT_WEIGHT_SOURCE_H

#include "checkpoint/checkpoint.h"

struct shoali_weight_source {
    const char *name; /* of the program */
    /* Whether DIR is a checkpoint of the program, or a folder of checkpoints. */
    bool (*probe)(const char *dir);
    /* *opened is given to the other functions, and closed by `close` in any case. */
    shoal_status (*open)(const char *dir, void **opened);
    void (*close)(void *opened);
    int32_t (*count)(const void *opened);
    /* The name is borrowed until `close`. */
    const char *(*get)(const void *opened, int32_t index, shoal_shape *shape);
    /* Elements [first, first + count) of a tensor. */
    shoal_status (*read)(void *opened, int32_t index, int64_t first, int64_t count, float *out);
};
/* NULL-terminated; written by the build. */
extern const struct shoali_weight_source *const shoali_weight_sources[];
/* The row of the program that wrote DIR; NULL: none. */
const struct shoali_weight_source *shoali_weight_source_find(const char *dir);

#endif
