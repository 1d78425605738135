/* Small files, whole: configurations, manifests, tables. Bulk data goes through io/. */
#include "base/arena.h"
#include "base/beginning.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/waiting.h"
#include "base/write_advice.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 65536 };

shoal_status shoali_path_status(int error)
{
    switch (error) {
    case ENOENT:
        return SHOAL_ENOENT;
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ENAMETOOLONG:
    case ELOOP:
        return SHOAL_EINVAL;
    default:
        return SHOAL_EIO;
    }
}

bool shoali_file_limit_begin(void)
{
    sigset_t limit, before;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    return pthread_sigmask(SIG_BLOCK, &limit, &before) == 0 && !sigismember(&before, SIGXFSZ);
}

void shoali_file_limit_end(bool begun)
{
    sigset_t limit;
    const int error = errno; /* of the write, which the caller tells */
    if (!begun)
        return;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    while (sigtimedwait(&limit, NULL, &(struct timespec){0}) == SIGXFSZ)
        continue;
    pthread_sigmask(SIG_UNBLOCK, &limit, NULL);
    errno = error;
}

static shoal_status open_for_reading(const char *path, int *descriptor, size_t *guess_bytes)
{
    struct stat info;
    *descriptor = shoali_fault("read_file") ? (errno = EIO, -1) : open(path, O_RDONLY | O_CLOEXEC);
    if (*descriptor < 0 && errno == ENOENT)
        return SHOAL_FAIL(SHOAL_ENOENT, "%s: no such file", path);
    if (*descriptor < 0 || fstat(*descriptor, &info) != 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot open for reading: %s", path,
                          strerror(errno));
    if (S_ISDIR(info.st_mode))
        return SHOAL_FAIL(SHOAL_EINVAL, "%s is a folder, a file is needed", path);
    *guess_bytes = info.st_size > 0 ? (size_t)info.st_size : 0;
    return SHOAL_OK;
}

static shoal_status read_once(const char *path, char **data, size_t *bytes, bool *stale)
{
    shoal_status status;
    int descriptor = -1;
    char *buffer = NULL;
    size_t capacity = 0, used = 0;
    *stale = false;
    struct shoali_waiting_aloud *aloud = shoali_waiting_pipe_begin(path);
    SHOAL_TRY(status, open_for_reading(path, &descriptor, &capacity), done);
    /* The size is only a guess: pipes and /proc have none, and files grow. */
    capacity += 2;
    for (;;) {
        if (!buffer || used + 1 == capacity) {
            capacity = buffer ? 2 * capacity + READ_BYTES : capacity;
            char *larger = shoali_fault("alloc") ? NULL : realloc(buffer, capacity);
            if (!larger) {
                status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes to read %s", capacity,
                                    path);
                goto done;
            }
            buffer = larger;
        }
        ssize_t count = read(descriptor, buffer + used, capacity - 1 - used);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            *stale = errno == ESTALE;
            status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", path, strerror(errno));
            goto done;
        }
        if (count == 0)
            break;
        used += (size_t)count;
    }
    SHOAL_TRY(status, shoali_beginning_lfs(path, buffer, used), done);
    buffer[used] = '\0';
    *data = buffer;
    *bytes = used;
    buffer = NULL;
done:
    shoali_waiting_aloud_end(aloud);
    free(buffer);
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* A network file system lets go of a file that another host replaces meanwhile: the new one is
 * read. */
shoal_status shoali_read_file(const char *path, char **data, size_t *bytes)
{
    enum { TRIES = 5 };
    shoal_status status = SHOAL_OK;
    bool stale = true;
    for (int i = 0; i < TRIES && stale; i++) {
        if (i > 0)
            shoali_error_clear();
        status = read_once(path, data, bytes, &stale);
    }
    return status;
}

void shoali_first_line(const char *path, char *line, size_t bytes)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t count = file < 0 ? 0 : read(file, line, bytes - 1);
    if (file >= 0)
        close(file);
    line[count > 0 ? count : 0] = '\0';
    const char *stripped = shoali_strip_line(line);
    memmove(line, stripped, strlen(stripped) + 1);
}

shoal_status shoali_read_text(const char *path, char **text, size_t *bytes)
{
    shoal_status status;
    char *read = NULL;
    int64_t line = 1;
    SHOAL_TRY(status, shoali_read_file(path, &read, bytes), done);
    SHOAL_TRY(status, shoali_beginning_wide(path, read, *bytes), done);
    const char *nul = *bytes > 0 ? memchr(read, '\0', *bytes) : NULL;
    for (const char *at = read; nul && at < nul; at++)
        line += *at == '\n';
    if (nul) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s:%lld: byte %lld is NUL, which is no character of a text: remove it",
                            path, (long long)line, (long long)(nul - read) + 1);
        goto done;
    }
    *text = read;
    read = NULL;
done:
    free(read);
    return status;
}

static bool write_all(int descriptor, const char *data, size_t bytes)
{
    if (shoali_fault("write_file")) {
        errno = ENOSPC;
        return false;
    }
    while (bytes > 0) {
        ssize_t count = write(descriptor, data, bytes);
        if (count < 0 && errno != EINTR)
            return false;
        if (count > 0) {
            data += count;
            bytes -= (size_t)count;
        }
    }
    return true;
}

/* Makes a rename in PATH's folder durable. File systems that cannot fsync a folder say EINVAL. */
static shoal_status sync_folder_of(const char *path)
{
    shoal_status status = SHOAL_OK;
    int descriptor = -1;
    const char *slash = strrchr(path, '/');
    char *folder = !slash ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!folder) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of the folder of %s", path);
        goto done;
    }
    descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 && errno == EACCES)
        goto done; /* to be written, and not to be read */
    if (descriptor < 0 || (fsync(descriptor) != 0 && errno != EINVAL))
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot flush the folder: %s", folder, strerror(errno));
done:
    if (descriptor >= 0)
        close(descriptor);
    free(folder);
    return status;
}

shoal_status shoali_write_file_atomic(const char *path, const void *data, size_t bytes)
{
    shoal_status status = SHOAL_OK;
    int descriptor = -1;
    size_t path_bytes = strlen(path) + sizeof(".tmp");
    char *temporary = shoali_malloc(path_bytes, "the name of a temporary file");
    if (!temporary)
        return SHOAL_ENOMEM;
    snprintf(temporary, path_bytes, "%s.tmp", path);
    const bool limited = shoali_file_limit_begin();
    descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool written = descriptor >= 0 && write_all(descriptor, data, bytes) && fsync(descriptor) == 0;
    shoali_file_limit_end(limited);
    if (written) {
        /* Some network file systems report a failed write only here. */
        int closing = descriptor;
        descriptor = -1;
        written = close(closing) == 0;
    }
    if (!written || rename(temporary, path) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot write: %s%s", path, strerror(errno),
                            shoali_write_advice(errno));
        unlink(temporary);
        goto done;
    }
    SHOAL_TRY(status, sync_folder_of(path), done);
done:
    if (descriptor >= 0)
        close(descriptor);
    shoali_free(temporary);
    return status;
}

/* mkdir of one folder; one that is there already is fine. False with errno. *made: its name is to
 * be flushed in the folder around it. */
static bool make_folder(const char *path, bool *made)
{
    struct stat info;
    *made = mkdir(path, 0777) == 0;
    if (*made)
        return true;
    int saved_errno = errno;
    bool there = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    /* Another host's, which a network file system knows and does not show yet. */
    there = there || (saved_errno == EEXIST && errno == ENOENT && lstat(path, &info) != 0);
    errno = saved_errno;
    return there;
}

shoal_status shoali_make_dirs(const char *path)
{
    shoal_status status = SHOAL_OK;
    size_t bytes = strlen(path) + 1;
    char *part = shoali_malloc(bytes, "a folder's name");
    if (!part)
        return SHOAL_ENOMEM;
    memcpy(part, path, bytes);
    for (char *at = part; status == SHOAL_OK && *at;) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char saved = *at;
        bool made;
        *at = '\0';
        if (!make_folder(part, &made))
            status =
                SHOAL_FAIL(SHOAL_EIO, "%s: cannot create the folder: %s", part, strerror(errno));
        else if (made)
            status = sync_folder_of(part);
        *at = saved;
    }
    shoali_free(part);
    return status;
}

bool shoali_pread(int descriptor, void *to, size_t bytes, int64_t at)
{
    char *next = to;
    errno = 0;
    while (bytes > 0) {
        const ssize_t count = pread(descriptor, next, bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        next += count;
        at += count;
        bytes -= (size_t)count;
    }
    return true;
}

bool shoali_has_file(const char *dir, const char *name)
{
    struct stat info;
    char path[PATH_MAX]; /* no file has a longer one */
    return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path &&
           stat(path, &info) == 0 && S_ISREG(info.st_mode);
}
