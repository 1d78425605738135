/* shm - ranks are processes of one machine. Segments are files in this user's folder in /dev/shm
 * (comm/folder.h), named "shoal-" and the job's id, unlinked as soon as all ranks have mapped them;
 * when /dev/shm is too small, read-only or missing but the machine has the memory, a memfd that the
 * others open through /proc.
 *
 * Pages are reserved when a segment is made, by its maker or by each rank for its own part,
 * so that too little memory is an error there and not a SIGBUS later. Before a rank maps what
 * another has named, it looks at the opened file: owner, mode, size, pages. */
#ifndef SHOALI_SHM_H
#define SHOALI_SHM_H

#include "comm/algorithms/slots.h"

/* Can processes of this machine share memory? */
bool shoali_shm_works(void);
SHOAL_CHECKED shoal_status shoali_shm_create(void *user, size_t bytes,
                                             struct shoali_segment *segment);
SHOAL_CHECKED shoal_status shoali_shm_reserve(void *user, struct shoali_segment *segment);
SHOAL_CHECKED shoal_status shoali_shm_attach(void *user, struct shoali_segment *segment);
void shoali_shm_seal(struct shoali_segment *segment);
void shoali_shm_detach(void *user, struct shoali_segment *segment);

/* Leaves word that a rank of the job has ended without an error: by the launcher, which alone knows
 * it of a rank that never joined. It is gone with the job's segments. */
void shoali_shm_note_ended(const char *job_id, int32_t rank);
/* Has the launcher of this process noted it? `args`: what this rank joins with. */
bool shoali_shm_has_ended(const shoal_comm_args *args, int32_t rank);

/* Watches the processes of a world by pid. */
struct shoali_shm_peers;
SHOAL_CHECKED shoal_status shoali_shm_peers_create(const struct shoali_world_shared *shared,
                                                   int32_t rank, int32_t size,
                                                   struct shoali_shm_peers **peers);
int32_t shoali_shm_find_dead(void *peers);
void shoali_shm_peers_close(void *peers); /* NULL is fine */

#endif
