/* backend - ranks are processes of an MPI job, on any number of machines.
 *
 * The engine is p2p (comm/p2p/p2p.h); an MPI carries its messages: MPI_Isend, MPI_Irecv and
 * MPI_Test through a plug-in (plugin/plugin.h), in one communicator that is a duplicate of the
 * job's.
 *
 * Ranks of one machine do not come here with their data: comm/hierarchical takes them to shm, also
 * where all ranks are on one machine, and MPI connects the hosts. SHOAL_HIERARCHICAL=0 leaves all
 * to MPI, which has shared memory of its own. A dead rank is MPI's matter, which ends the job.
 *
 * THREADS. The plug-in lets MPI see one thread after the other. A group of a program that started
 * MPI with less than MPI_THREAD_SERIALIZED says so when a second thread uses it. */
#ifndef SHOALI_MPI_BACKEND_H
#define SHOALI_MPI_BACKEND_H

#include "comm/mpi/mpi.h"
#include "comm/mpi/plugin/plugin.h"

/* load.c: the plug-in of the MPI that this job was started by, or that the program is linked with.
 * The sentence says what was looked for. */
SHOAL_CHECKED shoal_status shoali_mpi_load(const struct shoali_mpi_table **mpi);

#endif
