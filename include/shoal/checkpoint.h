/* checkpoint.h - checkpoints in a folder, without an engine: what there is, whether it is whole, what may
 * go. Not collective, all of it; texts are owned by the caller: free(). Saving and loading is the
 * engine's (engine.h); the files are described in docs/CHECKPOINT-FORMAT.md.
 */
#ifndef SHOAL_CHECKPOINT_H
#define SHOAL_CHECKPOINT_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads DIR/TAG, or with tag NULL all checkpoints of DIR, and compares every hash: lines about each,
 * and one for each file and range of bytes that is not what the manifest says. threads 0: one per core.
 * *whole: there is no such line. SHOAL_ENOENT: there is no such checkpoint. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_verify(const char *dir, const char *tag,
                                                             int32_t threads, char **text,
                                                             bool *whole);
/* What the manifest of DIR/TAG (NULL: latest) says: step, numbers of the training, model, kinds and
 * their sizes; with `tensors` names and shapes, too. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_show(const char *dir, const char *tag,
                                                           bool tensors, char **text);
/* Removes checkpoints of DIR, except the keep_last last ones (0: one) and those whose step keep_every
 * divides (0: none). Never one with a tag that is not global_stepN, one that does not verify, what
 * `latest` names, or a later step than that. dry_run: only says what would go. SHOAL_EEXIST: a job is
 * saving there. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_prune(const char *dir, int64_t keep_last,
                                                            int64_t keep_every, bool dry_run,
                                                            char **text);

#ifdef __cplusplus
}
#endif
#endif
