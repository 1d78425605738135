/* power - a library to preload: it records what a folder has flushed, and ends all processes after
 * a chosen call, as a power failure does.
 *
 *   POWER_ROOT=DIR     The folder, with everything below it. What it has at first is flushed.
 *   POWER_STORE=DIR    The record, a folder outside of POWER_ROOT.
 *   POWER_AT=N         The power fails after call N. The process that makes the call is killed, and
 *                      each other process at its next call.
 *
 * Files of the record:
 *
 *   d.INODE   A folder at its last fsync. Each entry is a line "d|f INODE NAME".
 *   f.INODE   The bytes of a file at its last fsync or fdatasync.
 *   calls     One byte for each call of any process that changes something.
 *   names     The names of these calls, a line each.
 *
 * INODE is the number of an inode and its creation time, because numbers are used again.
 * power_loss_test.sh makes two disks of the record. One has only what was flushed. The other has
 * all names and the flushed bytes. A file system may leave either, and anything in between.
 *
 * The library sees calls of libc (SHOAL_IO=posix). It does not see io_uring and mapped files. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = PATH_MAX + 512 };
static char root[PATH_BYTES], store[PATH_BYTES];
static long at = -1;
static __thread bool inside; /* calls of this library itself */

#define REAL(name) ((__typeof__(&name))real_of(#name))
static void *real_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* ---- what is meant -------------------------------------------------------------------------- */
static bool begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void prepare(void);
    if (inside)
        return false;
    pthread_once(&once, prepare);
    return root[0] != '\0';
}

static bool is_below(const char *path)
{
    const size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* The path of what a call means, and whether it lies below the root. A last part that is not there
 * is fine. */
static bool resolve(int folder, const char *name, char path[PATH_BYTES])
{
    char whole[PATH_BYTES], link[64], parent[PATH_BYTES];
    if (!begin())
        return false;
    if (name[0] == '/') {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        ssize_t length = 0;
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        if (folder == AT_FDCWD)
            length = getcwd(whole, PATH_MAX) ? (ssize_t)strlen(whole) : -1;
        else
            length = readlink(link, whole, PATH_MAX);
        if (length <= 0)
            return false;
        snprintf(whole + length, sizeof whole - (size_t)length, "/%s", name);
    }
    if (realpath(whole, path))
        return is_below(path);
    char *slash = strrchr(whole, '/');
    while (slash > whole && !slash[1]) {
        *slash = '\0';
        slash = strrchr(whole, '/');
    }
    *slash = '\0';
    if (!realpath(*whole ? whole : "/", parent))
        return false;
    snprintf(path, PATH_BYTES, "%.4000s/%.255s", parent, slash + 1);
    return is_below(path);
}

static bool is_file_below(int fd)
{
    char link[64], path[PATH_BYTES];
    if (!begin())
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, PATH_MAX);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 && is_below(path);
}

static void name_inode(int fd, const char *path, char text[64])
{
    struct statx info = {0};
    (void)statx(path ? AT_FDCWD : fd, path ? path : "", path ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH,
                STATX_INO | STATX_BTIME, &info);
    snprintf(text, 64, "%llu.%lld.%09u", (unsigned long long)info.stx_ino,
             (long long)info.stx_btime.tv_sec, info.stx_btime.tv_nsec);
}

/* ---- the store ------------------------------------------------------------------------------ */
static FILE *open_in_store(char kind, const char *inode, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%.4000s/%c.%s.%d", store, kind, inode, (int)getpid());
    return fopen(path, "we");
}

static void close_in_store(FILE *file, char kind, const char *inode, const char *path)
{
    char whole[PATH_BYTES];
    snprintf(whole, sizeof whole, "%.4000s/%c.%s", store, kind, inode);
    if (!file || fclose(file) != 0 || REAL(rename)(path, whole) != 0)
        abort(); /* what is found on such a disk means nothing */
}

static void flush_folder(const char *folder)
{
    char inode[64], path[PATH_BYTES], entry_path[PATH_BYTES];
    const struct dirent *entry;
    DIR *list = opendir(folder);
    name_inode(-1, folder, inode);
    FILE *file = open_in_store('d', inode, path);
    while (list && file && (entry = readdir(list))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(entry_path, sizeof entry_path, "%.4000s/%s", folder, entry->d_name);
        char own[64];
        name_inode(-1, entry_path, own);
        fprintf(file, "%c %s %s\n", entry->d_type == DT_DIR ? 'd' : 'f', own, entry->d_name);
    }
    if (list)
        closedir(list);
    close_in_store(file, 'd', inode, path);
}

static void flush_file(int fd)
{
    char inode[64], path[PATH_BYTES], link[64], part[65536];
    size_t count;
    name_inode(fd, NULL, inode);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    FILE *from = fopen(link, "re"), *file = open_in_store('f', inode, path);
    while (from && file && (count = fread(part, 1, sizeof part, from)) > 0)
        fwrite(part, 1, count, file);
    if (from)
        fclose(from);
    close_in_store(file, 'f', inode, path);
}

static void flush_all(const char *folder)
{
    char path[PATH_BYTES];
    const struct dirent *entry;
    struct stat info;
    flush_folder(folder);
    DIR *list = opendir(folder);
    while (list && (entry = readdir(list))) {
        snprintf(path, sizeof path, "%.4000s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            lstat(path, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode))
            flush_all(path);
        const int file = S_ISREG(info.st_mode) ? REAL(open)(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file >= 0) {
            flush_file(file);
            close(file);
        }
    }
    if (list)
        closedir(list);
}

/* All processes take turns: a call and its number belong together. */
static int turn = -1;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static void take_turn(void)
{
    char path[PATH_BYTES];
    struct stat info;
    pthread_mutex_lock(&one);
    inside = true;
    snprintf(path, sizeof path, "%.4000s/calls", store);
    if (turn < 0)
        turn = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (turn < 0 || flock(turn, LOCK_EX) != 0 || fstat(turn, &info) != 0)
        abort();
    if (at >= 0 && info.st_size >= at)
        raise(SIGKILL);
}

static void end_turn(const char *what)
{
    char path[PATH_BYTES];
    struct stat info;
    if (REAL(write)(turn, "", 1) != 1 || fstat(turn, &info) != 0)
        abort();
    snprintf(path, sizeof path, "%.4000s/names", store);
    FILE *names = fopen(path, "ae");
    if (names) {
        fprintf(names, "%lld %s\n", (long long)info.st_size, what);
        fclose(names);
    }
    if (at >= 0 && info.st_size >= at)
        raise(SIGKILL);
    flock(turn, LOCK_UN);
    inside = false;
    pthread_mutex_unlock(&one);
}

void prepare(void);
void prepare(void)
{
    char path[PATH_BYTES];
    const char *folder = getenv("POWER_ROOT"), *place = getenv("POWER_STORE");
    const char *number = getenv("POWER_AT");
    inside = true;
    if (folder && place && realpath(folder, root)) {
        snprintf(store, sizeof store, "%s", place);
        at = number ? strtol(number, NULL, 10) : -1;
        snprintf(path, sizeof path, "%.4000s/begun", store);
        const int first = REAL(open)(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (first >= 0) {
            flush_all(root);
            close(first);
        }
    }
    inside = false;
}

/* ---- calls ---------------------------------------------------------------------------------- */
#define CHANGE(meant, what, call)          \
    ({                                     \
        const bool meant_ = (meant);       \
        if (meant_)                        \
            take_turn();                   \
        __typeof__(call) result_ = (call); \
        const int errno_ = errno;          \
        if (meant_)                        \
            end_turn(what);                \
        errno = errno_;                    \
        result_;                           \
    })

#define OPENS(name)                                                                       \
    int name(const char *path, int flags, ...)                                            \
    {                                                                                     \
        char whole[PATH_BYTES];                                                           \
        va_list list;                                                                     \
        va_start(list, flags);                                                            \
        const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;                   \
        va_end(list);                                                                     \
        const bool meant = flags & (O_CREAT | O_TRUNC) && resolve(AT_FDCWD, path, whole); \
        return CHANGE(meant, "open", REAL(name)(path, flags, mode));                      \
    }
OPENS(open)
OPENS(open64)

#define WRITES(name, type, offset, pass)                                           \
    ssize_t name(int fd, const void *data, size_t bytes offset)                    \
    {                                                                              \
        return CHANGE(is_file_below(fd), #name, REAL(name)(fd, data, bytes pass)); \
    }
#define NOTHING
#define OFFSET , off_t from
#define OFFSET64 , off64_t from
#define PASS , from
WRITES(write, , NOTHING, NOTHING)
WRITES(pwrite, , OFFSET, PASS)
WRITES(pwrite64, , OFFSET64, PASS)

int ftruncate(int fd, off_t bytes)
{
    return CHANGE(is_file_below(fd), "ftruncate", REAL(ftruncate)(fd, bytes));
}

int posix_fallocate(int fd, off_t from, off_t bytes)
{
    return CHANGE(is_file_below(fd), "posix_fallocate", REAL(posix_fallocate)(fd, from, bytes));
}

int rename(const char *from, const char *to)
{
    char whole[PATH_BYTES];
    return CHANGE(resolve(AT_FDCWD, to, whole), "rename", REAL(rename)(from, to));
}

int unlink(const char *path)
{
    char whole[PATH_BYTES];
    return CHANGE(resolve(AT_FDCWD, path, whole), "unlink", REAL(unlink)(path));
}

int unlinkat(int folder, const char *path, int flags)
{
    char whole[PATH_BYTES];
    return CHANGE(resolve(folder, path, whole), "unlinkat", REAL(unlinkat)(folder, path, flags));
}

int mkdir(const char *path, mode_t mode)
{
    char whole[PATH_BYTES];
    return CHANGE(resolve(AT_FDCWD, path, whole), "mkdir", REAL(mkdir)(path, mode));
}

int rmdir(const char *path)
{
    char whole[PATH_BYTES];
    return CHANGE(resolve(AT_FDCWD, path, whole), "rmdir", REAL(rmdir)(path));
}

static int flush(int fd, int result)
{
    char link[64], path[PATH_BYTES];
    struct stat info;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, PATH_MAX);
    path[length > 0 ? length : 0] = '\0';
    if (result == 0 && fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
        flush_folder(path);
    else if (result == 0 && S_ISREG(info.st_mode))
        flush_file(fd);
    return result;
}

int fsync(int fd)
{
    return CHANGE(is_file_below(fd), "fsync", flush(fd, REAL(fsync)(fd)));
}

int fdatasync(int fd)
{
    return CHANGE(is_file_below(fd), "fdatasync", flush(fd, REAL(fdatasync)(fd)));
}
