/* start_limit - an MPI_Init that does not come back. It waits for all ranks of the job, without a
 * limit: a rank that never calls it, or a host that cannot be reached, would keep the others for
 * ever. When the time is over a thread beside it says so, on standard error and on the rank's
 * status page, and ends the process: nothing can be taken back from within MPI, and mpirun ends the
 * job of a process that left. */
#ifndef SHOALI_MPI_START_LIMIT_H
#define SHOALI_MPI_START_LIMIT_H

#include "base/base.h"

struct shoali_mpi_start_limit;
SHOAL_CHECKED shoal_status shoali_mpi_start_limit_begin(double seconds,
                                                        struct shoali_mpi_start_limit **limit);
/* It has come back. NULL is none. */
void shoali_mpi_start_limit_end(struct shoali_mpi_start_limit *limit);

#endif
