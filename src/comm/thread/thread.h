/* thread - the one extra of the thread backend that is not public. */
#ifndef SHOALI_THREAD_H
#define SHOALI_THREAD_H

#include "comm/comm.h"

/* Like shoal_thread_world_create, but the ranks act as if they could not read each other's ordinary
 * memory: they stage data and know shared arenas as processes do. For tests: ThreadSanitizer sees
 * the protocol of shm. */
SHOAL_CHECKED shoal_status shoali_thread_world_create_apart(int32_t ranks,
                                                            struct shoal_thread_world **world);

#endif
