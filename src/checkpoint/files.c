#include "checkpoint/checkpoint_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *shoali_checkpoint_path(struct shoali_arena *arena, const char *dir, const char *tag,
                             const char *file)
{
    return shoali_arena_printf(arena, "%s%s%s%s%s", dir, *tag ? "/" : "", tag, *file ? "/" : "",
                               file);
}

/* What the user can change is SHOAL_EINVAL; broken or full disks are SHOAL_EIO. */
static shoal_status folder_status(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOTDIR:
    case EEXIST:
    case ENOENT:
    case ENAMETOOLONG:
    case ELOOP:
        return SHOAL_EINVAL;
    default:
        return SHOAL_EIO;
    }
}

shoal_status shoali_checkpoint_make_dir(const char *path)
{
    errno = 0;
    shoal_status status = shoali_make_dirs(path);
    if (status != SHOAL_EIO)
        return status;
    status = folder_status(errno);
    return SHOAL_FAIL(status, "%s%s", shoal_error_message(),
                      status == SHOAL_EINVAL ? "; choose another folder to save in" : "");
}

shoal_status shoali_checkpoint_remove_dir(const char *path)
{
    shoal_status status = SHOAL_OK;
    DIR *folder = opendir(path);
    if (!folder && errno == ENOENT)
        return SHOAL_OK;
    while (folder) {
        struct dirent *entry = readdir(folder);
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0); /* rmdir tells what is left */
    }
    if (folder)
        closedir(folder);
    if (!folder || rmdir(path) != 0)
        status = SHOAL_FAIL(folder_status(errno), "%s: cannot remove: %s", path, strerror(errno));
    return status;
}

shoal_status shoali_checkpoint_sync_dir(const char *path)
{
    shoal_status status = SHOAL_OK;
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot flush folders and say EINVAL. */
    if (descriptor < 0 || (fsync(descriptor) != 0 && errno != EINVAL))
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot flush the folder: %s", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* Reserves space. File systems without reservation get the size alone. */
static int reserve(int descriptor, int64_t bytes)
{
    if (shoali_fault("ckpt.create"))
        return ENOSPC;
    int error;
    do {
        error = posix_fallocate(descriptor, 0, (off_t)bytes);
    } while (error == EINTR);
    if (error == EOPNOTSUPP || error == EINVAL)
        error = ftruncate(descriptor, (off_t)bytes) == 0 ? 0 : errno;
    return error;
}

static shoal_status full_disk(int descriptor, const char *path, int64_t missing_bytes, int error)
{
    struct statvfs info;
    char need[32], have[32];
    if ((error != ENOSPC && error != EDQUOT) || fstatvfs(descriptor, &info) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot reserve space: %s", path, strerror(error));
    const double free_bytes = (double)info.f_bavail * (double)info.f_frsize;
    return SHOAL_FAIL(SHOAL_EIO,
                      "%s: the disk is full: the checkpoint needs %lld more bytes (%s), %.0f (%s) "
                      "are free; make room or save elsewhere",
                      path, (long long)missing_bytes,
                      shoali_format_bytes((double)missing_bytes, need), free_bytes,
                      shoali_format_bytes(free_bytes, have));
}

shoal_status shoali_checkpoint_create_file(const char *path, int64_t bytes, int64_t missing_bytes)
{
    shoal_status status = SHOAL_OK;
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return SHOAL_FAIL(folder_status(errno), "%s: cannot create: %s", path, strerror(errno));
    const int error = reserve(descriptor, bytes);
    if (error != 0)
        status = full_disk(descriptor, path, missing_bytes, error);
    close(descriptor);
    return status;
}

shoal_status shoali_checkpoint_pwrite(int descriptor, const char *path, const char *data,
                                      int64_t bytes, int64_t at)
{
    while (bytes > 0) {
        const bool fault = shoali_fault("ckpt.write");
        const ssize_t count =
            fault ? (errno = EIO, -1) : pwrite(descriptor, data, (size_t)bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return SHOAL_FAIL(SHOAL_EIO, "%s: cannot write %lld bytes at %lld: %s", path,
                              (long long)bytes, (long long)at, strerror(errno));
        data += count;
        bytes -= count;
        at += count;
    }
    return SHOAL_OK;
}

shoal_status shoali_checkpoint_pread(int descriptor, const char *path, char *data, int64_t bytes,
                                     int64_t at)
{
    while (bytes > 0) {
        const ssize_t count = pread(descriptor, data, (size_t)bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0)
            return SHOAL_FAIL(SHOAL_ECORRUPT, "%s: ends at byte %lld, %lld more are needed", path,
                              (long long)at, (long long)bytes);
        if (count < 0)
            return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read %lld bytes at %lld: %s", path,
                              (long long)bytes, (long long)at, strerror(errno));
        data += count;
        bytes -= count;
        at += count;
    }
    return SHOAL_OK;
}

shoal_status shoali_checkpoint_open_file(const struct shoali_checkpoint_file *file, int *descriptor)
{
    struct stat info;
    *descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (*descriptor < 0 && errno == ENOENT)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s is missing, the manifest lists it", file->path);
    if (*descriptor < 0 || fstat(*descriptor, &info) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot open: %s", file->path, strerror(errno));
    if ((int64_t)info.st_size != file->bytes)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s has %lld bytes, the manifest says %lld", file->path,
                          (long long)info.st_size, (long long)file->bytes);
    return SHOAL_OK;
}
