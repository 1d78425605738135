/* Ranks that ended before they joined: empty files beside the job's segments. */
#include "comm/shm/shm.h"

#include "comm/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NAME_BYTES = 96 };

static void name_note(const char *job_id, int32_t rank, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "shoal-%.60s-ended.%d", job_id, (int)rank);
}

void shoali_shm_note_ended(const char *job_id, int32_t rank)
{
    char name[NAME_BYTES];
    name_note(job_id, rank, name);
    /* Without the note the others wait until their timeout, as without a launcher. */
    const int folder = shoali_folder_open();
    if (folder < 0)
        return;
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    close(folder);
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
    char name[NAME_BYTES];
    const char *job_id = getenv("SHOAL_JOB_ID");
    if (!job_id || !variable_is("RANK", args->rank) || !variable_is("WORLD_SIZE", args->world_size))
        return false;
    name_note(job_id, rank, name);
    const int folder = shoali_folder_open();
    if (folder < 0)
        return false;
    const bool ended = faccessat(folder, name, F_OK, 0) == 0;
    close(folder);
    return ended;
}
