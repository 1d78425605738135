/* What an MPI leaves behind whose processes were killed, and nobody else removes. */
#include "launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

enum { TRIES = 20 };
#define NAP_NS INT64_C(5000000)

enum holders { NOT_OURS, HELD, FREE };

/* A lease to write is given only where nobody else has the file open or mapped, whatever namespace he
 * is in; and only to its owner. */
static enum holders holders_of(const char *path, time_t since)
{
    struct stat info;
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    enum holders holders = NOT_OURS;
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        info.st_mtim.tv_sec >= since)
        holders = fcntl(file, F_SETLEASE, F_WRLCK) == 0 ? FREE : HELD;
    if (file >= 0)
        close(file);
    return holders;
}

static int32_t remove_free(time_t since)
{
    int32_t held = 0;
    glob_t found;
    if (glob(MPICH_PATTERN, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const enum holders holders = holders_of(found.gl_pathv[i], since);
        held += holders == HELD;
        if (holders == FREE)
            unlink(found.gl_pathv[i]);
    }
    globfree(&found);
    return held;
}

/* Who holds it may be the guard of another rank, which looks at the same time: they look again at
 * different times. One that opens what another has a lease of sends that one SIGIO. */
void shoali_leftover_of_mpich(time_t since)
{
    const struct timespec nap = {0, NAP_NS + getpid() % 8 * INT64_C(1000000)}, now = {0};
    sigset_t told, before;
    sigemptyset(&told);
    sigaddset(&told, SIGIO);
    pthread_sigmask(SIG_BLOCK, &told, &before);
    for (int i = 0; i < TRIES && remove_free(since) > 0; i++)
        nanosleep(&nap, NULL);
    while (sigtimedwait(&told, NULL, &now) == SIGIO)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
