/* foreign.h - writes checkpoints for other programs. */
#ifndef SHOAL_FOREIGN_H
#define SHOAL_FOREIGN_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Converts DIR/TAG (NULL: the latest) to DeepSpeed's universal checkpoint: OUT/latest_universal and
 * OUT/global_stepN_universal, with weights, optimizer states and steps. Padding of the vocabulary
 * is dropped. OUT must not exist (SHOAL_EEXIST); it appears when it is complete. Memory does not
 * depend on the model's size. Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_to_deepspeed(const char *dir, const char *tag,
                                                                   const char *out);

#ifdef __cplusplus
}
#endif
#endif
