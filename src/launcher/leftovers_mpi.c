/* What an MPI leaves behind whose processes were killed, and nobody else removes. */
#include "launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Open MPI: the session folder of mpirun ----------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Others may write into /tmp, too. */
static bool is_own_folder(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

void shoali_leftover_of_mpirun(int32_t pid)
{
    enum { DESCRIPTORS = 16 };
    char pattern[512];
    glob_t found;
    const char *folder = getenv("TMPDIR");
    snprintf(pattern, sizeof(pattern), "%s/ompi.*.%u/pid.%d", folder && *folder ? folder : "/tmp",
             (unsigned)geteuid(), (int)pid);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *path = found.gl_pathv[i], *slash = strrchr(path, '/');
        *slash = '\0';
        const bool own = is_own_folder(path);
        *slash = '/';
        if (!own || nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) != 0)
            continue;
        *slash = '\0';
        (void)rmdir(path); /* while no other job has its own in it */
    }
    globfree(&found);
}

/* ---- MPICH: the memory that the ranks of a host share -------------------------------------------- */

/* Between MPI_Init's beginning and its end that memory has a name, which tells nobody whose it is. */
#define MPICH_PATTERN "/dev/shm/mpich_shar_tmp*"

/* A lease to write is given only where nobody else has the file open or mapped, whatever namespace he
 * is in; and only to its owner. */
static bool nobody_has(const char *path, time_t since)
{
    struct stat info;
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool nobody = file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
                        info.st_uid == geteuid() && info.st_mtim.tv_sec >= since &&
                        fcntl(file, F_SETLEASE, F_WRLCK) == 0;
    if (file >= 0)
        close(file);
    return nobody;
}

void shoali_leftover_of_mpich(time_t since)
{
    glob_t found;
    if (glob(MPICH_PATTERN, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (nobody_has(found.gl_pathv[i], since))
            unlink(found.gl_pathv[i]);
    globfree(&found);
}
