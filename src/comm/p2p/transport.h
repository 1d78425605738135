/* transport - messages between two ranks: what the engine needs of an MPI, or of UCX.
 *
 * A transport keeps the order of what one rank sends another with one tag. It owns no thread: what
 * it has to do, it does in the calls of this table. Any thread may make them, one after the other
 * or at once, unless the world says that one alone may (p2p.h, one_thread).
 *
 * Return values are 0 or the transport's error code, which `describe` turns into text. */
#ifndef SHOALI_P2P_TRANSPORT_H
#define SHOALI_P2P_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An MPI_Request or a pointer; an MPI_Comm or a pointer. */
struct shoali_p2p_request {
    uint64_t word;
};
struct shoali_p2p_comm {
    uint64_t word;
};
enum { SHOALI_P2P_ANY_SOURCE = -1 };

struct shoali_p2p_table {
    const char *name; /* "Open MPI", "MPICH", "UCX" */
    int (*release)(struct shoali_p2p_comm *comm);
    /* `data` belongs to the transport until `test` says that the request is over. */
    int (*send)(struct shoali_p2p_comm comm, const void *data, size_t bytes, int32_t to,
                int32_t tag, struct shoali_p2p_request *request);
    int (*receive)(struct shoali_p2p_comm comm, void *data, size_t bytes, int32_t from, int32_t tag,
                   struct shoali_p2p_request *request);
    /* *bytes: what a receive got. The request is gone when it is done, and on failure. */
    int (*test)(struct shoali_p2p_request *request, bool *done, size_t *bytes);
    void (*cancel)(struct shoali_p2p_request *request); /* a receive that nobody will answer */
    void (*describe)(int code, char *text, size_t bytes);
    /* Optional: moves what there is to move. NULL: `test` does. */
    void (*progress)(struct shoali_p2p_comm comm);
    /* Optional. NULL: nobody rings, the engine looks again and again. `rest` sleeps until there is
     * something to move, and not longer than said; and not at all when `moves` is no longer what
     * the caller has seen before it tested its requests: what it waits for may have come since.
     * `moves` counts what has happened to requests, in calls of whatever thread; NULL where one
     * thread looks at them, and `rest` knows what has happened since the last time. */
    uint64_t (*moves)(struct shoali_p2p_comm comm);
    void (*rest)(struct shoali_p2p_comm comm, uint64_t seen, int64_t longest_ns);
    /* Optional: the first of these ranks whose connection has broken, as an index; -1: none. NULL:
     * it is the transport's matter, which ends the job. */
    int32_t (*find_lost)(struct shoali_p2p_comm comm, const int32_t *ranks, int32_t count);
};

#endif
