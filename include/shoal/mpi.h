/* mpi.h - a program of MPI trains with Shoal.
 *
 * Include <mpi.h> first, then this header; libshoal itself knows no MPI and finds what the program
 * is linked with (Open MPI or MPICH) when it runs:
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
 *     shoal_comm_from_mpi(MPI_COMM_WORLD, &group);
 *     ... shoal_engine_create(&(shoal_engine_args){.group = group, ...}, &engine) ...
 *     shoal_comm_destroy(group);
 *     MPI_Finalize();
 *
 * From Fortran shoal_comm_from_mpi_handle takes the communicator itself (with `use mpi_f08` its
 * MPI_VAL); examples/mpi has both. */
#ifndef SHOAL_MPI_H
#define SHOAL_MPI_H

#include "shoal/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a group of all ranks of an MPI communicator, which is duplicated: its own messages and the
 * program's do not meet. `handle` is Fortran's integer for it. Collective over the communicator,
 * after MPI_Init and before MPI_Finalize; *group is owned by the caller and destroyed before
 * MPI_Finalize. Waits have the deadline of DEEPSPEED_TIMEOUT (minutes, default 10). With less than
 * MPI_THREAD_SERIALIZED the calling thread alone may use the group, which the engine's overlapping
 * communication does not do; while another thread of the program is in MPI itself, MPI has to be
 * started with MPI_THREAD_MULTIPLE. SHOAL_EUNSUPPORTED: this libshoal has no plug-in for this MPI.
 */
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
/* The same of C's MPI_Comm. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_comm_from_mpi(MPI_Comm communicator,
                                                            shoal_group **group)
{
    return shoal_comm_from_mpi_handle((int32_t)MPI_Comm_c2f(communicator), group);
}
#ifdef __cplusplus
}
#endif
#endif
