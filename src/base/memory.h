/* memory - how much main memory this process may still use: that of the machine, and of the control
 * groups around it. Cache of files counts as free, as the kernel gives it back. */
#ifndef SHOALI_MEMORY_H
#define SHOALI_MEMORY_H

#include <stdint.h>

/* `root` is put in front of all paths: "", or a test's folder. */
void shoali_memory_read(const char *root, int64_t *total_bytes, int64_t *available_bytes);

#endif
