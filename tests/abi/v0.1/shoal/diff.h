/* diff.h - where two runs, or two checkpoints, part. */
#ifndef SHOAL_DIFF_H
#define SHOAL_DIFF_H

#include "shoal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_diff_verdict {
    SHOAL_DIFF_EQUAL = 0,    /* bit for bit */
    SHOAL_DIFF_ROUNDING = 1, /* runs: no more than another order of sums explains */
    SHOAL_DIFF_REAL = 2
} shoal_diff_verdict;

/* Compares two runs by their hashes.jsonl (key "hashes": true), each a file or the folder that
 * holds it: names the first step and tensor that differ, and judges by a derived bound whether
 * rounding explains it. Where there is none: compares two checkpoints, each DIR (the latest one) or
 * DIR/TAG, element by element. *text is owned by the caller: free(). Not collective. SHOAL_EINVAL:
 * there is nothing to compare. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_diff(const char *path_a, const char *path_b, char **text,
                                                shoal_diff_verdict *verdict);

#ifdef __cplusplus
}
#endif
#endif
