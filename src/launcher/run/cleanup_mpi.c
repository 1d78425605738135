/* What an MPI leaves behind whose processes were killed, and nobody else removes. */
#include "launcher/run/run.h"

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
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- Open MPI: session folders, and a daemon that hangs ------------------------------------------ */

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

/* And the user's folder around it, while no other job has its own in that. */
static void remove_session(char *path)
{
    enum { DESCRIPTORS = 16 };
    char *slash = strrchr(path, '/');
    if (!slash)
        return;
    *slash = '\0';
    const bool own = is_own_folder(path);
    *slash = '/';
    if (!own || nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) != 0)
        return;
    *slash = '\0';
    (void)rmdir(path);
}

void shoali_cleanup_mpirun(int32_t pid)
{
    char pattern[512];
    glob_t found;
    const char *folder = getenv("TMPDIR");
    snprintf(pattern, sizeof(pattern), "%s/ompi.*.%u/pid.%d", folder && *folder ? folder : "/tmp",
             (unsigned)geteuid(), (int)pid);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        remove_session(found.gl_pathv[i]);
    globfree(&found);
}

/* Only what Open MPI names so: the variable may be anything. */
static bool is_session(const char *path)
{
    char user[32];
    const char *found = path ? strstr(path, "/ompi.") : NULL;
    snprintf(user, sizeof(user), ".%u/jf.", (unsigned)geteuid());
    return found && strstr(found, user) && !strstr(found, "/..");
}

void shoali_cleanup_orted(const struct shoali_process *daemon, const char *session)
{
    char path[512];
    const int descriptor = shoali_process_open(daemon->pid);
    const bool hangs = strcmp(daemon->name, "orted") == 0 && shoali_process_is_there(daemon);
    if (hangs && descriptor >= 0 &&
        syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0) == 0 && is_session(session)) {
        snprintf(path, sizeof(path), "%s", session);
        remove_session(path);
    }
    if (descriptor >= 0)
        close(descriptor);
}

/* ---- files in memory that have a name for a moment ----------------------------------------------- */

/* MPICH's, between MPI_Init's beginning and its end, is the memory of a host's ranks; Open MPI
 * tries whether it can have any. Who is killed meanwhile leaves it, and its name tells nobody whose
 * it is. */
static const char *const patterns[] = {"/dev/shm/mpich_shar_tmp*",
                                       "/dev/shm/open_mpi.[0-9][0-9][0-9][0-9]"};

enum { TRIES = 20 };
#define NAP_NS INT64_C(5000000)

enum holders { NOT_OURS, HELD, FREE };

/* A lease to write is given only where nobody else has the file open or mapped, whatever namespace
 * he is in; and only to its owner. */
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

static int32_t remove_free(const char *pattern, time_t since)
{
    int32_t held = 0;
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
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
void shoali_cleanup_mpi_memory(time_t since)
{
    const struct timespec nap = {0, NAP_NS + getpid() % 8 * INT64_C(1000000)}, now = {0};
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGIO);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++)
        for (int i = 0; i < TRIES && remove_free(patterns[p], since) > 0; i++)
            nanosleep(&nap, NULL);
    while (sigtimedwait(&signals, NULL, &now) == SIGIO)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
