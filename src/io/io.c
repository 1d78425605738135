/* io.c - contexts and requests. */
#include "io/io.h"

#include "base/plain.h"
#include "base/waiting.h"
#include "io/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Best first. */
static const struct shoali_io_table *const tables[] = {
#ifdef SHOALI_HAVE_URING
    &shoali_io_uring,
#endif
    &shoali_io_posix,
};
enum { TABLE_COUNT = sizeof tables / sizeof tables[0] };

static const struct shoali_io_table *find_table(const char *name)
{
    for (int i = 0; i < TABLE_COUNT; i++)
        if (shoali_strcasecmp(tables[i]->name, name) == 0)
            return tables[i];
    return NULL;
}

/* Why io_uring cannot be used here; "" when it can. */
static void why_no_uring(char *text, size_t bytes)
{
    const struct shoali_io_table *table = find_table("uring");
    const int error = table ? table->probe() : 0;
    if (!table)
        snprintf(text, bytes, "io_uring is not built in: install liburing-dev and build anew");
    else if (error == EPERM || error == EACCES)
        snprintf(text, bytes,
                 "the kernel refuses io_uring (%s): a container's seccomp filter, or sysctl "
                 "kernel.io_uring_disabled",
                 strerror(error));
    else if (error == ENOSYS || error == EOPNOTSUPP)
        snprintf(text, bytes, "the kernel has no io_uring (%s), or a seccomp filter hides it",
                 strerror(error));
    else if (error)
        snprintf(text, bytes, "the kernel gives no io_uring: %s", strerror(error));
    else
        *text = '\0';
}

void shoali_io_describe(char *text, size_t bytes)
{
    char why[160];
    const char *variable = getenv("SHOAL_IO");
    why_no_uring(why, sizeof why);
    if (!variable || !*variable) {
        if (*why)
            snprintf(text, bytes, "posix; %s", why);
        else
            snprintf(text, bytes, "uring");
        return;
    }
    const struct shoali_io_table *table = find_table(variable);
    const bool uring = shoali_strcasecmp(variable, "uring") == 0;
    if (!table && !uring)
        snprintf(text, bytes, "none: SHOAL_IO=%s names no backend: uring, posix", variable);
    else if (uring && *why)
        snprintf(text, bytes, "none: SHOAL_IO asks for uring, but %s", why);
    else
        snprintf(text, bytes, "%s, as SHOAL_IO says", table->name);
}

/* Starts the backend that was asked for, or the first that works. */
static shoal_status start(struct shoali_io *io)
{
    const char *name = io->args.backend, *variable = getenv("SHOAL_IO");
    if (!name && variable && *variable)
        name = variable;
    if (name) {
        io->table = find_table(name);
        if (!io->table && shoali_strcasecmp(name, "uring") == 0)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "io: this build has no backend \"uring\"; build with liburing, or "
                              "use \"posix\"");
        if (!io->table)
            return SHOAL_FAIL(SHOAL_ECONFIG, "io: there is no backend \"%s\": uring, posix%s", name,
                              io->args.backend ? "" : " (from SHOAL_IO)");
        return io->table->start(io);
    }
    shoal_status status = SHOAL_OK;
    for (int i = 0; i < TABLE_COUNT; i++) {
        io->table = tables[i];
        status = io->table->start(io);
        if (status >= 0)
            return status;
        SHOALI_DEBUG("io", "%s: %s", io->table->name, shoal_error_message());
    }
    return status;
}

shoal_status shoali_io_create(const struct shoali_io_args *args, struct shoali_io **io)
{
    shoal_status status = SHOAL_OK;
    struct shoali_io *self = NULL;
    if (args->block_bytes == 0 || args->queue_depth < 1 || args->threads < 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "io: block_size %zu, queue_depth %d and %d threads: each must be at "
                            "least 1",
                            args->block_bytes, (int)args->queue_depth, (int)args->threads);
        goto done;
    }
    self = calloc(1, sizeof *self);
    if (self)
        self->blocks = calloc((size_t)args->queue_depth, sizeof *self->blocks);
    if (!self || !self->blocks) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "io: no memory for %d blocks", (int)args->queue_depth);
        goto done;
    }
    self->args = *args;
    self->args.block_bytes =
        (args->block_bytes + SHOALI_IO_ALIGN - 1) / SHOALI_IO_ALIGN * SHOALI_IO_ALIGN;
    for (int32_t i = 0; i < args->queue_depth; i++) {
        self->blocks[i].next = self->free_blocks;
        self->free_blocks = &self->blocks[i];
    }
    self->pending_end = &self->pending;
    self->batch_open = true;
    (void)pthread_mutex_init(&self->lock, NULL);
    SHOAL_TRY(status, start(self), done);
    *io = self;
    self = NULL;
done:
    if (self) {
        free(self->blocks);
        free(self);
    }
    return status;
}

void shoali_io_destroy(struct shoali_io *io)
{
    if (!io)
        return;
    while (io->files)
        shoali_io_close(io->files);
    io->table->stop(io);
    for (struct shoali_io_request *request = io->free_requests; request;) {
        struct shoali_io_request *next = request->next_pending;
        free(request);
        request = next;
    }
    (void)pthread_mutex_destroy(&io->lock);
    free(io->blocks);
    free(io);
}

const char *shoali_io_backend(const struct shoali_io *io)
{
    return io->table->name;
}

/* What can go past the page cache: where file and memory have the same place in their pages. */
static void split(struct shoali_io_request *request)
{
    const size_t at = (size_t)(request->offset % SHOALI_IO_ALIGN);
    request->head = request->bytes;
    request->bulk = 0;
    if (request->file->direct_fd < 0 || at != (uintptr_t)request->memory % SHOALI_IO_ALIGN)
        return;
    const size_t head = at ? SHOALI_IO_ALIGN - at : 0;
    if (head >= request->bytes)
        return;
    request->head = head;
    request->bulk = (request->bytes - head) / SHOALI_IO_ALIGN * SHOALI_IO_ALIGN;
}

/* A request from the free ones or new, in the list of all. */
static struct shoali_io_request *new_request(struct shoali_io *io)
{
    struct shoali_io_request *request = io->free_requests;
    if (request)
        io->free_requests = request->next_pending;
    else
        request = malloc(sizeof *request);
    if (!request)
        return NULL;
    *request = (struct shoali_io_request){.next = io->requests};
    if (io->requests)
        io->requests->previous = request;
    io->requests = request;
    return request;
}

static bool is_done(const struct shoali_io_request *request)
{
    return request->in_flight == 0 && request->cut == request->bytes;
}

static void enqueue(struct shoali_io *io, struct shoali_io_request *request)
{
    if (is_done(request)) /* nothing to move, or a fault point */
        return;
    *io->pending_end = request;
    io->pending_end = &request->next_pending;
    io->table->progress(io, false);
}

shoal_status shoali_io_post(struct shoali_io_file *file, enum shoali_io_kind kind, int64_t offset,
                            void *memory, size_t bytes, struct shoali_io_request **request)
{
    struct shoali_io *io = file->io;
    int64_t end;
    if (offset < 0 || bytes > (size_t)INT64_MAX ||
        __builtin_add_overflow(offset, (int64_t)bytes, &end))
        return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\": a request of %zu bytes at offset %lld", file->path,
                          bytes, (long long)offset);
    struct shoali_io_request *self = new_request(io);
    if (!self)
        return SHOAL_FAIL(SHOAL_ENOMEM, "\"%s\": no memory for a request", file->path);
    self->file = file;
    self->kind = kind;
    self->memory = memory;
    self->offset = offset;
    self->bytes = bytes;
    split(self);
    if (shoali_fault(kind == SHOALI_IO_READ ? "io_read" : "io_write")) {
        self->error = EIO;
        self->error_offset = offset;
        self->cut = bytes;
    }
    self->halve = shoali_fault("io_short");
    self->interrupt = shoali_fault("io_interrupt");
    pthread_mutex_lock(&io->lock);
    enqueue(io, self);
    pthread_mutex_unlock(&io->lock);
    *request = self;
    return SHOAL_OK;
}

shoal_status shoali_io_test(struct shoali_io_request *request, bool *done)
{
    struct shoali_io *io = request->file->io;
    pthread_mutex_lock(&io->lock);
    if (!is_done(request))
        io->table->progress(io, false);
    *done = is_done(request);
    pthread_mutex_unlock(&io->lock);
    return SHOAL_OK;
}

static shoal_status end_of_file(const struct shoali_io_request *request)
{
    struct stat info = {0};
    (void)fstat(request->file->fd, &info);
    int64_t found = (int64_t)info.st_size - request->offset;
    found = found < 0 ? 0 : found < (int64_t)request->bytes ? found : (int64_t)request->bytes;
    return SHOAL_FAIL(SHOAL_EIO,
                      "\"%s\": %zu bytes expected at offset %lld, found %lld: the file ends at "
                      "byte %lld; it was cut short",
                      request->file->path, request->bytes, (long long)request->offset,
                      (long long)found, (long long)info.st_size);
}

/* The sentence is made where it is waited for: each thread has a last error of its own. */
static shoal_status outcome(const struct shoali_io_request *request)
{
    const char *path = request->file->path;
    if (!request->error)
        return SHOAL_OK;
    if (request->error == SHOALI_IO_END_OF_FILE)
        return end_of_file(request);
    if (request->kind == SHOALI_IO_WRITE && (request->error == ENOSPC || request->error == EDQUOT))
        return SHOAL_FAIL(SHOAL_EIO,
                          "\"%s\": the disk is full: %zu bytes were to be written at offset %lld; "
                          "make room or choose another folder",
                          path, request->bytes, (long long)request->offset);
    return SHOAL_FAIL(SHOAL_EIO, "\"%s\": %s %zu bytes at offset %lld failed at byte %lld: %s",
                      path, request->kind == SHOALI_IO_READ ? "reading" : "writing", request->bytes,
                      (long long)request->offset, (long long)request->error_offset,
                      strerror(request->error));
}

shoal_status shoali_io_wait(struct shoali_io_request *request)
{
    struct shoali_io *io = request->file->io;
    struct shoali_waiting waiting = {0};
    pthread_mutex_lock(&io->lock);
    while (!is_done(request)) {
        io->table->progress(io, true);
        if (!is_done(request) && shoali_waiting_due(&waiting, request->file->path))
            SHOALI_WARN("io",
                        "waiting for %.0f s for %zu bytes of \"%s\" to be %s: its disk is slow",
                        shoali_waiting_seconds(&waiting), request->bytes, request->file->path,
                        request->kind == SHOALI_IO_READ ? "read" : "written");
    }
    shoali_waiting_end(&waiting, request->file->path);
    pthread_mutex_unlock(&io->lock);
    const shoal_status status = outcome(request);
    if (request->next)
        request->next->previous = request->previous;
    if (request->previous)
        request->previous->next = request->next;
    else
        io->requests = request->next;
    request->next_pending = io->free_requests;
    io->free_requests = request;
    return status;
}
