/* posix.c - blocks moved by threads with pread and pwrite. */
#include "base/thread.h"
#include "base/waiting.h"
#include "io/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct posix {
    struct shoali_io *io;
    pthread_t *threads;
    int32_t thread_count;
    pthread_cond_t work, moved;
    bool leaving;
};

static int64_t move(const struct shoali_io_block *block)
{
    const ssize_t moved = block->request->kind == SHOALI_IO_READ
                              ? pread(block->fd, block->memory, block->asked, block->offset)
                              : pwrite(block->fd, block->memory, block->asked, block->offset);
    return moved < 0 ? -errno : moved;
}

static void *serve(void *arg)
{
    struct posix *self = arg;
    struct shoali_io *io = self->io;
    pthread_mutex_lock(&io->lock);
    while (!self->leaving) {
        struct shoali_io_block *block = shoali_io_take(io);
        if (!block) {
            pthread_cond_wait(&self->work, &io->lock);
            continue;
        }
        pthread_mutex_unlock(&io->lock);
        const int64_t moved = move(block);
        pthread_mutex_lock(&io->lock);
        shoali_io_finish(io, block, moved);
        pthread_cond_signal(&self->moved);
        if (io->in_flight == 0 && io->pending) /* the next batch is for all */
            pthread_cond_broadcast(&self->work);
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

static void posix_stop(struct shoali_io *io)
{
    struct posix *self = io->backend;
    pthread_mutex_lock(&io->lock);
    self->leaving = true;
    pthread_cond_broadcast(&self->work);
    pthread_mutex_unlock(&io->lock);
    for (int32_t i = 0; i < self->thread_count; i++)
        (void)pthread_join(self->threads[i], NULL);
    (void)pthread_cond_destroy(&self->work);
    (void)pthread_cond_destroy(&self->moved);
    free(self->threads);
    free(self);
}

static shoal_status posix_start(struct shoali_io *io)
{
    /* No more threads than blocks can be in flight. */
    const int32_t wanted =
        io->args.threads < io->args.queue_depth ? io->args.threads : io->args.queue_depth;
    struct posix *self = calloc(1, sizeof *self);
    if (self)
        self->threads = calloc((size_t)wanted, sizeof *self->threads);
    if (!self || !self->threads) {
        free(self);
        return SHOAL_FAIL(SHOAL_ENOMEM, "io: no memory for %d threads", (int)wanted);
    }
    self->io = io;
    (void)pthread_cond_init(&self->work, NULL);
    (void)pthread_cond_init(&self->moved, NULL);
    io->backend = self;
    for (; self->thread_count < wanted; self->thread_count++) {
        if (shoali_thread_start(&self->threads[self->thread_count], serve, self)) {
            const int32_t made = self->thread_count;
            posix_stop(io);
            return SHOAL_FAIL(SHOAL_ENOMEM,
                              "io: the system gave %d of %d threads; lower the number of threads",
                              (int)made, (int)wanted);
        }
    }
    return SHOAL_OK;
}

static void posix_progress(struct shoali_io *io, bool wait)
{
    struct posix *self = io->backend;
    if (wait)
        shoali_waiting_sleep(&self->moved, &io->lock);
    else if (io->pending)
        pthread_cond_broadcast(&self->work);
}

static int posix_probe(void)
{
    return 0;
}

const struct shoali_io_table shoali_io_posix = {
    .name = "posix",
    .probe = posix_probe,
    .start = posix_start,
    .stop = posix_stop,
    .progress = posix_progress,
};
