/* folder - a place in memory where nobody but this user can make, name or open anything.
 *
 * /dev/shm/shoal-UID, mode 700. Everything of Shoal that ranks of one machine find by name lies
 * there: segments, the launcher's notes, and the secret of jobs that a foreign launcher started. In
 * /dev/shm itself any user could leave a note under a name that he guesses, or keep a segment with
 * a hard link. The folder stays until the machine starts again: it is empty between jobs, except
 * for that secret. Where /dev/shm is missing or read-only the folder is /tmp/shoal-UID, by the same
 * rules, and segments have no names (shm/segment.c).
 */
#ifndef SHOALI_FOLDER_H
#define SHOALI_FOLDER_H

#include <stdbool.h>

#define SHOALI_FOLDER_MEMORY "/dev/shm"
enum { SHOALI_FOLDER_BYTES = 32 };

/* Can this process make files in /dev/shm? */
bool shoali_folder_is_memory(void);
/* "/dev/shm", or "/tmp" where that cannot be used. */
const char *shoali_folder_root(void);
/* "/dev/shm/shoal-UID" of the effective user; returns `path`. */
const char *shoali_folder_path(char path[SHOALI_FOLDER_BYTES]);
/* A descriptor of the folder, which is made when it is not there; -1 with errno, EPERM when what is
 * there belongs to somebody else or is no folder. */
int shoali_folder_open(void);

#endif
