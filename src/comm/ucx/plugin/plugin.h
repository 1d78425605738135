/* plugin - what the ucx backend needs of UCX, as one table without a type of ucp.h.
 *
 * Compiled into libshoal_ucx.so where the building machine has UCX's headers, and loaded when ranks
 * are to be connected by it: neither libshoal nor the program has a symbol of UCX.
 *
 * One UCP context and one worker per rank, used by one thread at a time under a lock of the
 * worker's own; ranks may be threads. Messages are tagged ones: the upper half of UCX's 64 bits is
 * the tag, the lower half the sender. Endpoints handle errors of their peer: a rank whose
 * connection breaks is lost, what is sent to it fails, and `find_lost` names it.
 *
 * UCX takes its options from the environment (UCX_...). On a machine without RDMA devices some are
 * chosen here when the user has not: UCX_TLS=tcp,self and how messages go over TCP (plugin.c). */
#ifndef SHOALI_UCX_PLUGIN_H
#define SHOALI_UCX_PLUGIN_H

#include "comm/p2p/transport.h"

struct shoali_ucx_table {
    uint32_t abi;
    size_t bytes;
    const char *(*version)(void);
    /* Makes this rank's worker; it has no peers yet. Of a machine without RDMA devices it uses the
     * network `device`, and of any other where `wanted`; "": those that UCX takes. Return values as
     * in p2p. */
    int (*open)(int32_t rank, int32_t size, const char *device, bool wanted,
                struct shoali_p2p_comm *comm);
    /* Where others reach it. *bytes in: capacity, out: what it takes. */
    int (*address)(struct shoali_p2p_comm comm, void *address, size_t *bytes);
    /* Says where a peer is, before the first message to or from it. Returns at once. Among many
     * ranks few ever talk to each other: there the connection is made with the first message. */
    int (*connect)(struct shoali_p2p_comm comm, int32_t peer, const void *address, size_t bytes);
    struct shoali_p2p_table p2p;
};
#define SHOALI_UCX_PLUGIN_ABI 2u
/* The plug-in's only symbol, a shoali_ucx_plugin_fn. */
#define SHOALI_UCX_PLUGIN_SYMBOL "shoali_ucx_plugin"
typedef const struct shoali_ucx_table *shoali_ucx_plugin_fn(void);

#endif
