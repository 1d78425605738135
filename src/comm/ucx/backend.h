/* backend - ranks are processes on any number of machines, connected by UCX.
 *
 * For jobs that no MPI has started: `shoal run` over ssh or pdsh, torchrun, ranks by hand. The
 * engine is p2p (comm/p2p/p2p.h); UCX carries its messages through a plug-in (plugin/plugin.h),
 * over RDMA devices or TCP, whichever it finds.
 *
 * JOINING. Rank 0 serves the authenticated store (comm/bootstrap); everybody puts the address of
 * its worker there, takes those of the others, and meets them in a first barrier. Then the store
 * closes. The addresses are believed, because only who knows the job's secret could put them; what
 * goes between the workers afterwards is neither encrypted nor signed (docs/SECURITY.md).
 *
 * NETWORK. Over TCP a rank uses the one interface over which it reaches MASTER_ADDR, unless
 * UCX_NET_DEVICES or SHOAL_NETWORK says which.
 *
 * FAILURE. A connection that breaks makes a rank lost (p2p.h): a killed rank is a verdict in well
 * under a second, a host that vanishes when the kernel gives its connections up. */
#ifndef SHOALI_UCX_BACKEND_H
#define SHOALI_UCX_BACKEND_H

#include "comm/ucx/plugin/plugin.h"
#include "comm/ucx/ucx.h"

/* network.c: the interface that leads to the other ranks. UCX would take all that a host has, and
 * may try to reach another host over one that does not lead there (a container's bridge has one
 * address on every host). Its name, or "" where UCX is to choose. */
struct shoali_ucx_network {
    char device[64];
    bool wanted; /* SHOAL_NETWORK says so: a name, or a network as in 10.0.0.0/16 */
};
SHOAL_CHECKED shoal_status shoali_ucx_find_network(const char *master_addr,
                                                   struct shoali_ucx_network *network);

/* load.c. The sentence says what to install. */
SHOAL_CHECKED shoal_status shoali_ucx_load(const struct shoali_ucx_table **ucx);

#endif
