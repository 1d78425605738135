/* Ranks that ended before they joined: empty files beside the job's segments. */
#include "comm/shm/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 128 };

static void name_note(const char *job_id, int32_t rank, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "/dev/shm/shoal-%.60s-ended.%d", job_id, (int)rank);
}

void shoali_shm_note_ended(const char *job_id, int32_t rank)
{
    char path[PATH_BYTES];
    name_note(job_id, rank, path);
    /* Without the note the others wait until their timeout, as without a launcher. */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

static bool variable_is(const char *name, int32_t value)
{
    int64_t number = 0;
    const char *text = getenv(name);
    return text && shoali_parse_i64(text, &number) && number == value;
}

/* The launcher's ranks and the world's are the same unless the program numbers its own. */
bool shoali_shm_has_ended(const shoal_comm_args *args, int32_t rank)
{
    char path[PATH_BYTES];
    const char *job_id = getenv("SHOAL_JOB_ID");
    if (!job_id || !variable_is("RANK", args->rank) || !variable_is("WORLD_SIZE", args->world_size))
        return false;
    name_note(job_id, rank, path);
    return access(path, F_OK) == 0;
}
