/* plugin - what the mpi backend needs of an MPI, as one table without a type of mpi.h.
 *
 * Open MPI's and MPICH's mpi.h differ: a communicator is a pointer in one and a number in the
 * other. So plugin.c is compiled once with each that the building machine has, into
 * libshoal_mpi_openmpi.so and libshoal_mpi_mpich.so, and the backend loads the one that the job was
 * started by (load.h). Neither libshoal nor the program has a symbol of MPI; on a machine without
 * MPI nothing is loaded.
 *
 * Communicators come as Fortran's integer handles, which are the same type in both.
 *
 * Threads: every call of the table holds a lock of the process, so MPI sees one thread at a time
 * (MPI_THREAD_SERIALIZED). A program that started MPI with less may use its group in one thread.
 *
 * Return values are 0 or MPI's error code, which `describe` turns into text. */
#ifndef SHOALI_MPI_PLUGIN_H
#define SHOALI_MPI_PLUGIN_H

#include "comm/p2p/transport.h"

struct shoali_mpi_table {
    uint32_t abi;
    size_t bytes;
    /* Starts MPI unless it runs already. What is started here ends with the process: MPI_Finalize
     * when it ends with code 0, MPI_Abort with its code when not, so that the other ranks end, too.
     * *serialized: any thread may call. */
    int (*start)(bool *serialized);
    bool (*running)(void);
    bool (*is_main_thread)(void);
    /* Begins to duplicate the communicator with this handle, or MPI_COMM_WORLD. Collective; over
     * when `test` says so of the request. */
    int (*duplicate)(bool world, int32_t handle, struct shoali_p2p_comm *comm,
                     struct shoali_p2p_request *request);
    int (*ready)(struct shoali_p2p_comm comm, int32_t *rank, int32_t *size, int32_t *largest_tag);
    struct shoali_p2p_table p2p;
};
#define SHOALI_MPI_PLUGIN_ABI 3u
/* The plug-in's only symbol, a shoali_mpi_plugin_fn. */
#define SHOALI_MPI_PLUGIN_SYMBOL "shoali_mpi_plugin"
typedef const struct shoali_mpi_table *shoali_mpi_plugin_fn(void);

#endif
