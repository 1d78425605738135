/* uring.c - blocks moved by the kernel through one io_uring. */
#include "io/backend.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

struct uring {
    struct io_uring ring;
    int32_t submitted; /* blocks the kernel has */
};

static int uring_probe(void)
{
    struct io_uring ring;
    const int error = io_uring_queue_init(2, &ring, 0);
    if (error < 0)
        return -error;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    const bool works = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                       io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    io_uring_queue_exit(&ring);
    return works ? 0 : EOPNOTSUPP; /* a kernel before 5.6 */
}

static shoal_status uring_start(struct shoali_io *io)
{
    const int refused = uring_probe();
    if (refused)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "io: the kernel refuses io_uring: %s (shoal report says more); use the "
                          "backend \"posix\"",
                          strerror(refused));
    struct uring *self = calloc(1, sizeof *self);
    if (!self)
        return SHOAL_FAIL(SHOAL_ENOMEM, "io: no memory for an io_uring");
    const int error = io_uring_queue_init((unsigned)io->args.queue_depth, &self->ring, 0);
    if (error < 0) {
        free(self);
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "io: no io_uring with queue_depth %d: %s; lower it, or use the backend "
                          "\"posix\"",
                          (int)io->args.queue_depth, strerror(-error));
    }
    io->backend = self;
    return SHOAL_OK;
}

static void uring_stop(struct shoali_io *io)
{
    struct uring *self = io->backend;
    io_uring_queue_exit(&self->ring);
    free(self);
}

/* What the kernel does not take now it takes after a completion. */
static void submit(struct uring *self)
{
    const int taken = io_uring_submit(&self->ring);
    if (taken >= 0)
        self->submitted += taken;
    else
        SHOAL_ASSERT(taken == -EAGAIN || taken == -EBUSY || taken == -EINTR || taken == -ENOMEM);
}

/* The ring has as many entries as there are blocks, so there is always one. */
static void fill(struct shoali_io *io)
{
    struct uring *self = io->backend;
    for (struct shoali_io_block *block; (block = shoali_io_take(io));) {
        struct io_uring_sqe *entry = io_uring_get_sqe(&self->ring);
        SHOAL_ASSERT(entry);
        const unsigned bytes = block->asked < 1u << 30 ? (unsigned)block->asked : 1u << 30;
        if (block->request->kind == SHOALI_IO_READ)
            io_uring_prep_read(entry, block->fd, block->memory, bytes, (uint64_t)block->offset);
        else
            io_uring_prep_write(entry, block->fd, block->memory, bytes, (uint64_t)block->offset);
        io_uring_sqe_set_data(entry, block);
        if (io->args.single_submit)
            submit(self);
    }
    if (io_uring_sq_ready(&self->ring))
        submit(self);
}

static int32_t collect(struct shoali_io *io)
{
    struct uring *self = io->backend;
    int32_t count = 0;
    struct io_uring_cqe *entry = NULL;
    while (io_uring_peek_cqe(&self->ring, &entry) == 0) {
        struct shoali_io_block *block = io_uring_cqe_get_data(entry);
        const int64_t moved = entry->res;
        io_uring_cqe_seen(&self->ring, entry);
        self->submitted--;
        count++;
        shoali_io_finish(io, block, moved);
    }
    return count;
}

static void uring_progress(struct shoali_io *io, bool wait)
{
    struct uring *self = io->backend;
    int32_t count = collect(io);
    fill(io);
    while (wait && count == 0) {
        struct io_uring_cqe *entry = NULL;
        if (self->submitted > 0) {
            struct __kernel_timespec second = {.tv_sec = 1};
            const int error = io_uring_wait_cqe_timeout(&self->ring, &entry, &second);
            SHOAL_ASSERT(error == 0 || error == -EINTR || error == -EAGAIN || error == -ETIME);
            wait = error != -ETIME;
        }
        count = collect(io);
        fill(io);
    }
}

const struct shoali_io_table shoali_io_uring = {
    .name = "uring",
    .probe = uring_probe,
    .start = uring_start,
    .stop = uring_stop,
    .progress = uring_progress,
};
