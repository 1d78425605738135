/* file.c - files of a context: a buffered descriptor, and beside it one with O_DIRECT. */
#include "io/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Reserves the bytes, so that a full disk is found before anything was computed. */
static shoal_status reserve(struct shoali_io_file *file, int64_t bytes)
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
    (void)unlink(file->path);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return SHOAL_FAIL(SHOAL_EIO,
                          "\"%s\": the disk is full: %s (%lld bytes) were asked for, %s are free; "
                          "make room or choose another folder",
                          file->path, asked, (long long)bytes, left);
    return SHOAL_FAIL(SHOAL_EIO, "\"%s\": reserving %lld bytes failed: %s", file->path,
                      (long long)bytes, strerror(error));
}

static void open_direct(struct shoali_io *io, struct shoali_io_file *file)
{
    if (!io->args.direct)
        return;
    file->direct_fd = open(file->path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (file->direct_fd >= 0) {
        /* Pages read ahead of a tail would have to be dropped by the next direct write. */
        (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    } else if (!io->fallback_said) {
        io->fallback_said = true;
        SHOALI_WARN("io", "\"%s\": no O_DIRECT here (%s), going through the page cache", file->path,
                    strerror(errno));
    }
}

shoal_status shoali_io_open(struct shoali_io *io, const char *path, int64_t create_bytes,
                            struct shoali_io_file **file)
{
    shoal_status status = SHOAL_OK;
    struct shoali_io_file *self = calloc(1, sizeof *self);
    if (self) {
        *self = (struct shoali_io_file){.io = io, .path = strdup(path), .fd = -1, .direct_fd = -1};
    }
    if (!self || !self->path) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "io: no memory for the file \"%s\"", path);
        goto done;
    }
    self->fd = open(path, O_RDWR | O_CLOEXEC | (create_bytes > 0 ? O_CREAT | O_TRUNC : 0), 0600);
    if (self->fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "\"%s\" cannot be %s: %s", path,
                            create_bytes > 0 ? "created" : "opened for reading and writing",
                            strerror(errno));
        goto done;
    }
    if (create_bytes > 0)
        SHOAL_TRY(status, reserve(self, create_bytes), done);
    open_direct(io, self);
    self->next = io->files;
    io->files = self;
    *file = self;
    self = NULL;
done:
    if (self) {
        if (self->fd >= 0)
            (void)close(self->fd);
        free(self->path);
        free(self);
    }
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
            SHOALI_ERROR("io", "%s (nobody waited for this request)", shoal_error_message());
        request = next;
    }
    struct shoali_io_file **link = &io->files;
    while (*link != file)
        link = &(*link)->next;
    *link = file->next;
    if (file->direct_fd >= 0)
        (void)close(file->direct_fd);
    (void)close(file->fd);
    free(file->path);
    free(file);
}

bool shoali_io_is_direct(const struct shoali_io_file *file)
{
    return file->direct_fd >= 0;
}
