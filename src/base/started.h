/* started - which rank this process is, as whoever started it says.
 *
 * `shoal run` and DeepSpeed's launcher set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_SIZE; torchrun
 * sets LOCAL_WORLD_SIZE instead of the last one.
 * Without RANK, what mpirun and srun set counts, the first of these that knows both rank and size:
 *
 *   Open MPI       OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (Azure ML, SageMaker too)
 *   MPICH and kin  PMI_RANK, PMI_SIZE; MPI_LOCALRANKID or PALS_LOCAL_RANKID or
 *                  MV2_COMM_WORLD_LOCAL_RANK; MPI_LOCALNRANKS or MV2_COMM_WORLD_LOCAL_SIZE
 *   PMIx           PMIX_RANK, with the sizes of Slurm's step
 *   Slurm          SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID; of a step (srun): the script
 *                  of a batch job, which has a SLURM_PROCID, too, is no rank
 *
 * A local value that a launcher does not tell is taken from Slurm when that tells it. */
#ifndef SHOALI_STARTED_H
#define SHOALI_STARTED_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shoali_started {
    const char *launcher; /* "mpirun of Open MPI", ...; NULL: RANK is set, or nothing is */
    int64_t rank, size;   /* rank -1: nothing says that this is a rank; size -1: not known */
    int64_t local_rank, local_size; /* on this machine; -1: not known */
};
/* A value that is no number, or numbers that do not go together, are SHOAL_EINVAL and *job is as of
 * a process by itself. */
SHOAL_CHECKED shoal_status shoali_started_read(struct shoali_started *job);
/* The same for those who need only a part: mistakes count as not known, and the last error stays.
 */
struct shoali_started shoali_started_get(void);
/* A name that all ranks of the job on this machine know and that other jobs do not have; false: the
 * launcher gives none. */
bool shoali_started_name(char *text, size_t bytes);

#endif
