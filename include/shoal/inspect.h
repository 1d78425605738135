/* inspect.h - describes the contents of files without executing anything in them.
 *
 * Formats: safetensors, torch.save, pickles, numpy, checkpoints of Shoal and of DeepSpeed, data
 * files, tokenizers.
 */
#ifndef SHOAL_INSPECT_H
#define SHOAL_INSPECT_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SHOAL_INSPECT_STATISTICS = 1, /* reads all numbers: minimum, maximum, mean, deviation, NaN */
    SHOAL_INSPECT_JSON = 2        /* one line of JSON instead of text */
};
/* Describes a file or folder as text; two calls give the same text. `tensors`: only tensors whose
 * names match this pattern (*, ?, [...]), and no other values; NULL: all. `flags`: of the enum
 * above. *text is owned by the caller: free(). Not collective. Memory does not grow with the
 * tensors' sizes. SHOAL_EINVAL: a damaged file; the error names file and byte. Or no name
 * matches. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_inspect(const char *path, const char *tensors,
                                                   unsigned flags, char **text);

#ifdef __cplusplus
}
#endif
#endif
