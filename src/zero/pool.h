/* pool - memory that collectives reach without staging, and the buffers of it that live units take
 * turns in.
 *
 * INVARIANT. All ranks take and give in the same order, so a buffer is made (which is collective)
 * by all of them or by none. A walk through the layers at creation makes those that a step needs.
 */
#ifndef SHOALI_ZERO_POOL_H
#define SHOALI_ZERO_POOL_H

#include "zero/setup.h"

struct shoali_zero_buffer {
    void *memory;
    size_t bytes;
    bool taken;
    struct shoali_zero_buffer *next;
};
struct shoali_zero_pool {
    const struct shoali_zero_setup *setup;
    struct shoali_zero_buffer *first;
};
/* Zeroed memory that collectives reach without staging. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_alloc_shared_at(const char *here,
                                                       const struct shoali_zero_setup *setup,
                                                       size_t bytes, void **address);
#define shoali_zero_alloc_shared(...) shoali_zero_alloc_shared_at(SHOALI_HERE, __VA_ARGS__)
void shoali_zero_free_shared(const struct shoali_zero_setup *setup, void *address);
/* A buffer of the pool, or a new one. *home is the one that the caller had last time, which it gets
 * again when possible: so passes that are alike need no buffers that the first did not. */
SHOAL_CHECKED shoal_status shoali_zero_take(struct shoali_zero_pool *pool, size_t bytes,
                                            void **home, void **address);
void shoali_zero_give(struct shoali_zero_pool *pool, void *address);
int64_t shoali_zero_pool_bytes(const struct shoali_zero_pool *pool);
void shoali_zero_pool_fini(struct shoali_zero_pool *pool);

#endif
