/* checkpoint.h - verifies, shows and prunes the checkpoints of a folder, without an engine.
 *
 * No function is collective. Texts are owned by the caller: free(). An engine saves and loads
 * checkpoints (engine.h). docs/CHECKPOINT-FORMAT.md describes the files.
 *
 *   shoal_checkpoint_verify  compares every hash
 *   shoal_checkpoint_show    prints what a manifest says
 *   shoal_checkpoint_prune   removes old checkpoints
 */
#ifndef SHOAL_CHECKPOINT_H
#define SHOAL_CHECKPOINT_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads DIR/TAG, or with tag NULL all checkpoints of DIR, and compares every hash. The text has
 * lines about each checkpoint, and a line for each file and byte range that differs from the
 * manifest. `threads` 0: one per core. *whole is true if nothing differs. SHOAL_ENOENT: there is no
 * such checkpoint. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_verify(const char *dir, const char *tag,
                                                             int32_t threads, char **text,
                                                             bool *whole);
/* Prints the manifest of DIR/TAG (NULL: latest): step, numbers of the training, model, kinds of
 * tensors and their sizes. With `tensors` also names and shapes. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_show(const char *dir, const char *tag,
                                                           bool tensors, char **text);
/* Removes checkpoints of DIR. The keep_last latest (0: one) stay, and every step that keep_every
 * divides (0: none). Never removes a tag that is not global_stepN, a checkpoint that does not
 * verify, the one that `latest` names, or a later step. dry_run: only prints what would be removed.
 * SHOAL_EEXIST: a job is saving in DIR. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_prune(const char *dir, int64_t keep_last,
                                                            int64_t keep_every, bool dry_run,
                                                            char **text);

#ifdef __cplusplus
}
#endif
#endif
