/* group - the public handles. For the files directly in this folder. */
#ifndef SHOALI_COMM_GROUP_H
#define SHOALI_COMM_GROUP_H

#include "comm/comm.h"

#include <stdatomic.h>

enum { SHOALI_OUTSTANDING_MAX = 16 };

struct shoal_request {
    struct shoal_group *group;
    void *inner;
    bool used;
};
/* Shared memory that a device counts. */
struct shoali_comm_block {
    struct shoali_comm_block *next;
    void *address;
    size_t bytes;
};
struct shoal_group {
    const struct shoali_comm_ops *ops; /* the outermost of the stack */
    void *object;
    const struct shoali_comm_ops *backend; /* the innermost */
    bool device_memory;                    /* the backend's; of a plan's group, of its like */
    int32_t rank, size;
    struct shoal_request request[SHOALI_OUTSTANDING_MAX];
    struct shoali_comm_block *block;
    /* Posts on streams: how many there were, how many of them are over, the last one's stream. */
    uint64_t posted;
    _Atomic uint64_t over;
    struct shoali_device_stream *stream;
    struct shoali_launcher_watch *watch; /* NULL: none; only the world has one */
    struct shoali_status_page *page;     /* the same */
};

/* What is wrong with the arguments, if anything. */
SHOAL_CHECKED shoal_status shoali_group_check(const struct shoal_group *group,
                                              const struct shoali_post *post);

#endif
