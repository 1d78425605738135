/* inspect.h - what is inside of files: safetensors, torch.save, pickles, numpy, checkpoints of this
 * library and of DeepSpeed, data files, tokenizers. Nothing in them is executed. */
#ifndef SHOAL_INSPECT_H
#define SHOAL_INSPECT_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SHOAL_INSPECT_STATISTICS = 1, /* reads all numbers: least, largest, mean, deviation, NaN */
    SHOAL_INSPECT_JSON = 2        /* one line of JSON instead of lines for people */
};
/* Describes a file or folder as text that two calls give alike. tensors: only those whose names
 * match this pattern (*, ?, [...]), and no other values; NULL: all. flags: of the enum above. *text
 * is owned by the caller: free(). Not collective. SHOAL_EINVAL: a damaged file, named with the byte;
 * memory does not grow with the tensors' sizes. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_inspect(const char *path, const char *tensors,
                                                   unsigned flags, char **text);

#ifdef __cplusplus
}
#endif
#endif
