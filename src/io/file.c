/* file.c - files of a context: a buffered descriptor, and beside it one with O_DIRECT. */
#include "io/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Reserves the bytes, so that a full disk is found before anything was computed. */
static shoal_status reserve(const struct shoali_io_file *file, int64_t bytes)
{
    int error;
    do {
        error = posix_fallocate(file->fd, 0, bytes);
    } while (error == EINTR);
    if (!error)
        return SHOAL_OK;
    char asked[32], left[32] = "an unknown number of";
    struct statvfs disk;
    if (fstatvfs(file->fd, &disk) == 0)
        shoali_format_bytes((double)disk.f_bavail * (double)disk.f_frsize, left);
    shoali_format_bytes((double)bytes, asked);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return SHOAL_FAIL(SHOAL_EIO,
                          "\"%s\": the disk is full: %s (%lld bytes) were asked for, %s are free; "
                          "make room or choose another folder",
                          file->path, asked, (long long)bytes, left);
    return SHOAL_FAIL(SHOAL_EIO, "\"%s\": reserving %lld bytes failed: %s", file->path,
                      (long long)bytes, strerror(error));
}

/* A second descriptor of the file at `path`. */
static void open_direct(struct shoali_io *io, struct shoali_io_file *file, const char *path,
                        int access)
{
    if (!io->args.direct)
        return;
    file->direct_fd = open(path, access | O_DIRECT | O_CLOEXEC);
    if (file->direct_fd >= 0) {
        /* Pages read ahead of a tail would have to be dropped by the next direct write. */
        (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    } else if (!io->fallback_reported && !io->args.quiet) {
        io->fallback_reported = true;
        SHOALI_WARN("io", "\"%s\": no O_DIRECT here (%s), going through the page cache", file->path,
                    strerror(errno));
    }
}

/* Not yet open. */
static shoal_status make(struct shoali_io *io, const char *path, struct shoali_io_file **file)
{
    struct shoali_io_file *self = calloc(1, sizeof *self);
    if (self)
        *self = (struct shoali_io_file){.io = io, .path = strdup(path), .fd = -1, .direct_fd = -1};
    *file = self;
    return self && self->path ? SHOAL_OK
                              : SHOAL_FAIL(SHOAL_ENOMEM, "io: no memory for the file \"%s\"", path);
}

static void drop(struct shoali_io_file *file)
{
    if (!file)
        return;
    if (file->direct_fd >= 0)
        (void)close(file->direct_fd);
    if (file->fd >= 0)
        (void)close(file->fd);
    free(file->path);
    free(file);
}

static void keep(struct shoali_io *io, struct shoali_io_file *file)
{
    file->next = io->files;
    io->files = file;
}

shoal_status shoali_io_open(struct shoali_io *io, const char *path, int64_t create_bytes,
                            struct shoali_io_file **file)
{
    shoal_status status;
    struct shoali_io_file *self = NULL;
    SHOAL_TRY(status, make(io, path, &self), done);
    self->fd = open(path, O_RDWR | O_CLOEXEC | (create_bytes > 0 ? O_CREAT | O_TRUNC : 0), 0600);
    if (self->fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "\"%s\" cannot be %s: %s", path,
                            create_bytes > 0 ? "created" : "opened for reading and writing",
                            strerror(errno));
        goto done;
    }
    if (create_bytes > 0) {
        status = reserve(self, create_bytes);
        if (status < 0)
            (void)unlink(path);
        SHOAL_TRY(status, status, done);
    }
    open_direct(io, self, path, O_RDWR);
    keep(io, self);
    *file = self;
    self = NULL;
done:
    drop(self);
    return status;
}

shoal_status shoali_io_open_to_read(struct shoali_io *io, const char *path,
                                    struct shoali_io_file **file)
{
    shoal_status status;
    struct shoali_io_file *self = NULL;
    SHOAL_TRY(status, make(io, path, &self), done);
    self->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (self->fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "\"%s\" cannot be opened: %s", path, strerror(errno));
        goto done;
    }
    open_direct(io, self, path, O_RDONLY);
    keep(io, self);
    *file = self;
    self = NULL;
done:
    drop(self);
    return status;
}

/* Where the file system has no files without a name it has one for a moment. */
static int open_named(struct shoali_io *io, struct shoali_io_file *file, const char *folder)
{
    struct shoali_str template = {0};
    shoali_str_append(&template, "%s/shoal_XXXXXX", folder);
    char *path = strdup(shoali_str_get(&template));
    shoali_str_fini(&template);
    if (!path)
        return ENOMEM;
    file->fd = mkostemp(path, O_CLOEXEC);
    const int error = file->fd < 0 ? errno : 0;
    if (!error) {
        open_direct(io, file, path, O_RDWR);
        (void)unlink(path);
    }
    free(path);
    return error;
}

static int open_nameless(struct shoali_io *io, struct shoali_io_file *file, const char *folder)
{
    char path[48];
    file->fd = shoali_fault("io_tmpfile") ? -1 : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return open_named(io, file, folder);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    open_direct(io, file, path, O_RDWR);
    return 0;
}

shoal_status shoali_io_open_unnamed(struct shoali_io *io, const char *folder, const char *label,
                                    int64_t bytes, struct shoali_io_file **file)
{
    shoal_status status;
    struct shoali_io_file *self = NULL;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s/%s", folder, label);
    SHOAL_TRY(status, make(io, shoali_str_get(&path), &self), done);
    const int error = open_nameless(io, self, folder);
    if (error) {
        const bool drive = error == ENOSPC || error == EDQUOT || error == EIO;
        status = SHOAL_FAIL(drive ? SHOAL_EIO : SHOAL_EINVAL,
                            "\"%s\": cannot make a file there: %s; give a folder that this user "
                            "may write to",
                            folder, strerror(error));
        goto done;
    }
    SHOAL_TRY(status, reserve(self, bytes), done);
    keep(io, self);
    *file = self;
    self = NULL;
done:
    drop(self);
    shoali_str_fini(&path);
    return status;
}

void shoali_io_close(struct shoali_io_file *file)
{
    if (!file)
        return;
    struct shoali_io *io = file->io;
    for (struct shoali_io_request *request = io->requests; request;) {
        struct shoali_io_request *next = request->next;
        if (request->file == file && shoali_io_wait(request) < 0)
            SHOALI_ERROR("io", "%s (no caller waited for this request)", shoal_error_message());
        request = next;
    }
    struct shoali_io_file **link = &io->files;
    while (*link != file)
        link = &(*link)->next;
    *link = file->next;
    drop(file);
}

bool shoali_io_is_direct(const struct shoali_io_file *file)
{
    return file->direct_fd >= 0;
}

const char *shoali_io_path(const struct shoali_io_file *file)
{
    return file->path;
}

shoal_status shoali_io_sync(struct shoali_io_file *file)
{
    const bool fault = shoali_fault("io_sync");
    if (!fault && fsync(file->fd) == 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EIO, "\"%s\": cannot flush: %s", file->path,
                      strerror(fault ? EIO : errno));
}
