/* scratch - working memory of the kernels: one buffer per thread, grown on demand, freed when the
 * thread ends. Kernels are not given a workspace, and a malloc per call would cost more than a
 * small product. A pool gives its workers what its caller has as soon as that has grown (pool.h),
 * so that none takes memory later, when it first finds a piece to claim. */
#ifndef SHOALI_SCRATCH_H
#define SHOALI_SCRATCH_H

#include <stddef.h>

/* Memory of the calling thread: at least `bytes`, 64-byte aligned, uninitialised, kept and reused
 * until the thread ends; every call may move it. NULL when memory is exhausted. */
void *shoali_scratch(size_t bytes);
/* What a thread has that asked for so many bytes, 0 for 0. */
size_t shoali_scratch_rounded(size_t bytes);
/* The most bytes that the calling thread has asked for since it last forgot what it had. */
size_t shoali_scratch_asked(void);
void shoali_scratch_forget_asked(void);

#endif
