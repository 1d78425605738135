/* diff.h - finds the first difference of two runs, or of two checkpoints. */
#ifndef SHOAL_DIFF_H
#define SHOAL_DIFF_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_diff_verdict {
    SHOAL_DIFF_EQUAL = 0,    /* bit for bit */
    SHOAL_DIFF_ROUNDING = 1, /* runs: within the bound for another order of sums */
    SHOAL_DIFF_REAL = 2
} shoal_diff_verdict;

/* Compares two runs by their hashes.jsonl (key "hashes": true). A path is such a file or its
 * folder. Names the first step and tensor that differ, and judges by a derived bound whether
 * rounding explains the difference. Without a hashes.jsonl it compares two checkpoints element by
 * element: DIR (the latest) or DIR/TAG. Of Hugging Face folders and checkpoints of DeepSpeed it
 * compares the weights, as fp32. *text is owned by the caller: free(). Not collective.
 * SHOAL_EINVAL: there is nothing to compare. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_diff(const char *path_a, const char *path_b, char **text,
                                                shoal_diff_verdict *verdict);

#ifdef __cplusplus
}
#endif
#endif
