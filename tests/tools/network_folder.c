/* network_folder - a library to preload: it makes a folder behave as one of a network file system.
 *
 *   NETWORK_ROOT=DIR    The folder, with everything below it.
 *   NETWORK_LATE_MS=N   A file of another process exists only after N ms.
 *   NETWORK_GAP_MS=N    A rename removes an existing target N ms before the new name appears.
 *
 * Each process is a client, which sees its own files at once. Reading an open file fails with
 * ESTALE after it was removed or replaced. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OWN_MAX = 4096 };
static char root[PATH_MAX];
static long late_ms, gap_ms;
static uint64_t own[OWN_MAX]; /* inodes that this process has made, the newest */
static unsigned owns;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void prepare(void)
{
    const char *folder = getenv("NETWORK_ROOT"), *late = getenv("NETWORK_LATE_MS"),
               *gap = getenv("NETWORK_GAP_MS");
    if (folder && !realpath(folder, root))
        root[0] = '\0';
    late_ms = late ? strtol(late, NULL, 10) : 0;
    gap_ms = gap ? strtol(gap, NULL, 10) : 0;
}

static bool is_meant(const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char whole[2 * PATH_MAX];
    pthread_once(&once, prepare);
    if (path[0] == '/')
        snprintf(whole, sizeof whole, "%s", path);
    else if (getcwd(whole, PATH_MAX))
        snprintf(whole + strlen(whole), PATH_MAX, "/%s", path);
    else
        return false;
    const size_t length = strlen(root);
    return length > 0 && strncmp(whole, root, length) == 0 && whole[length] == '/';
}

static bool is_own(uint64_t inode)
{
    bool found = false;
    for (unsigned i = 0; i < OWN_MAX && !found; i++)
        found = own[i] == inode;
    return found;
}

static void keep_own(const char *path)
{
    struct statx info;
    if (statx(AT_FDCWD, path, 0, STATX_INO, &info) == 0)
        own[__atomic_fetch_add(&owns, 1, __ATOMIC_RELAXED) % OWN_MAX] = info.stx_ino;
}

/* Not there yet, for this client? */
static bool is_late(const char *path)
{
    struct statx info;
    struct timespec now;
    if (!is_meant(path) || statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &info) != 0 ||
        is_own(info.stx_ino))
        return false;
    clock_gettime(CLOCK_REALTIME, &now);
    return (now.tv_sec - info.stx_btime.tv_sec) * 1000 +
               (now.tv_nsec - (long)info.stx_btime.tv_nsec) / 1000000 <
           late_ms;
}

#define OPENS(name)                                                                            \
    int name(const char *path, int flags, ...)                                                 \
    {                                                                                          \
        va_list list;                                                                          \
        va_start(list, flags);                                                                 \
        const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;                        \
        va_end(list);                                                                          \
        const bool fresh = flags & O_CREAT && is_meant(path) && REAL(access)(path, F_OK) != 0; \
        if (!(flags & O_CREAT) && is_late(path)) {                                             \
            errno = ENOENT;                                                                    \
            return -1;                                                                         \
        }                                                                                      \
        const int file = REAL(name)(path, flags, mode);                                        \
        if (fresh && file >= 0)                                                                \
            keep_own(path);                                                                    \
        return file;                                                                           \
    }
OPENS(open)
OPENS(open64)

#define LOOKS(name, type)                  \
    int name(const char *path, type *info) \
    {                                      \
        if (is_late(path)) {               \
            errno = ENOENT;                \
            return -1;                     \
        }                                  \
        return REAL(name)(path, info);     \
    }
LOOKS(stat, struct stat)
LOOKS(lstat, struct stat)

int access(const char *path, int mode)
{
    if (is_late(path)) {
        errno = ENOENT;
        return -1;
    }
    return REAL(access)(path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    const int result = REAL(mkdir)(path, mode);
    if (result == 0 && is_meant(path))
        keep_own(path);
    return result;
}

int rename(const char *from, const char *to)
{
    struct stat info;
    if (gap_ms > 0 && is_meant(to) && REAL(lstat)(to, &info) == 0 && S_ISREG(info.st_mode)) {
        (void)unlink(to);
        nanosleep(&(struct timespec){gap_ms / 1000, gap_ms % 1000 * 1000000}, NULL);
    }
    return REAL(rename)(from, to);
}

static bool is_stale(int fd)
{
    struct stat info;
    char link[64], path[PATH_MAX + 32];
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 && is_meant(path);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    if (is_stale(fd)) {
        errno = ESTALE;
        return -1;
    }
    return REAL(read)(fd, data, bytes);
}
