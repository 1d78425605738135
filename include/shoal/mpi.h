/* mpi.h - lets the ranks of an MPI program train with Shoal.
 *
 * Include <mpi.h> first, then this header. libshoal does not link MPI. At run time it finds the MPI
 * that the program is linked with (Open MPI or MPICH):
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
 *     shoal_comm_from_mpi(MPI_COMM_WORLD, &group);
 *     ... shoal_engine_create(&(shoal_engine_args){.group = group, ...}, &engine) ...
 *     shoal_comm_destroy(group);
 *     MPI_Finalize();
 *
 * In Fortran shoal_comm_from_mpi_handle takes the communicator itself (with `use mpi_f08` its
 * MPI_VAL). examples/mpi has both.
 */
#ifndef SHOAL_MPI_H
#define SHOAL_MPI_H

#include "shoal/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a group of all ranks of an MPI communicator. `handle` is Fortran's integer for the
 * communicator. The communicator is duplicated, so messages of Shoal and of the program do not mix.
 * Collective over the communicator, after MPI_Init and before MPI_Finalize. *group is owned by the
 * caller, who destroys it before MPI_Finalize. Waits have the deadline of DEEPSPEED_TIMEOUT
 * (minutes, default 10). Threads: below MPI_THREAD_SERIALIZED only the calling thread may use the
 * group, and the engine's overlapped communication does not keep to that. While another thread of
 * the program is in MPI, MPI_THREAD_MULTIPLE is required. SHOAL_EUNSUPPORTED: this libshoal has no
 * plug-in for this MPI. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_from_mpi_handle(int32_t handle,
                                                                shoal_group **group);

#ifdef __cplusplus
}
#endif
#endif

/* After <mpi.h>, also when this header was read before without it. */
#if defined(MPI_VERSION) && !defined(SHOAL_MPI_COMM)
#define SHOAL_MPI_COMM 1
#ifdef __cplusplus
extern "C" {
#endif
/* Makes a group of C's MPI_Comm, as shoal_comm_from_mpi_handle does. */
SHOAL_CHECKED static inline shoal_status shoal_comm_from_mpi(MPI_Comm communicator,
                                                             shoal_group **group)
{
    return shoal_comm_from_mpi_handle((int32_t)MPI_Comm_c2f(communicator), group);
}
#ifdef __cplusplus
}
#endif
#endif
