/* mpi - what the rest of comm, and `shoal report`, know of the backend mpi; backend.h explains
 * it. */
#ifndef SHOALI_MPI_MPI_H
#define SHOALI_MPI_MPI_H

#include "comm/comm.h"

/* A backend's group over the communicator with this Fortran handle. Collective over it. */
SHOAL_CHECKED shoal_status shoali_mpi_adopt(int32_t handle, double timeout_s, void **backend);
/* "Open MPI, MPICH": the plug-ins that are there and load; "none: REASON". */
void shoali_mpi_list(char *text, size_t bytes);

#endif
