/* foreign_checkpoint - checkpoints of other programs as rows. The build writes the table; without
 * foreign/ it is empty. */
#ifndef SHOALI_FOREIGN_CHECKPOINT_H
#define SHOALI_FOREIGN_CHECKPOINT_H

#include "engine/engine.h"

struct shoali_foreign_checkpoint {
    const char *name;
    /* Whether DIR/TAG (tag NULL: the latest, or DIR itself) is of that program. */
    bool (*probe)(const char *dir, const char *tag);
    /* The checkpoint's own folder, owned (free()); NULL: no memory. */
    char *(*folder)(const char *dir, const char *tag);
    /* `step` may be NULL. */
    shoal_status (*peek)(const char *dir, const char *tag, int64_t *step);
    /* What shoal_engine_load does of it: weights, states, numbers. Collective. */
    shoal_status (*load)(struct shoal_engine *engine, const shoal_load_args *how);
};
/* NULL-terminated; written by the build. */
extern const struct shoali_foreign_checkpoint *const shoali_foreign_checkpoints[];

#endif
