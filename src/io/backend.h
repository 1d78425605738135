/* backend - what io.c and its backends share.
 *
 * io.c cuts requests in blocks and keeps all books; a backend moves blocks. Everything here is
 * protected by shoali_io.lock, which backends hold when they call shoali_io_take and
 * shoali_io_finish and give back while they move bytes with threads of their own.
 */
#ifndef SHOALI_IO_BACKEND_H
#define SHOALI_IO_BACKEND_H

#include "io/io.h"

#include <pthread.h>

/* One piece of a request on its way. */
struct shoali_io_block {
    struct shoali_io_request *request;
    char *memory;
    int64_t offset;
    size_t bytes; /* still to be moved */
    size_t asked; /* of this attempt; less than bytes only for the fault point io_short */
    int fd;
    bool direct; /* fd is the O_DIRECT one */
    struct shoali_io_block *next;
};

struct shoali_io_request {
    struct shoali_io_file *file;
    enum shoali_io_kind kind;
    char *memory;
    int64_t offset;
    size_t bytes;
    size_t head, bulk; /* [0, head) is buffered, [head, head + bulk) direct, the rest buffered */
    size_t cut;        /* bytes handed out in blocks */
    int32_t in_flight; /* blocks */
    bool halve;        /* fault io_short: the next block asks for half */
    bool interrupt;    /* fault io_interrupt: the next outcome is EINTR */
    int error;         /* the first errno; END_OF_FILE for a read past the end */
    int64_t error_offset;
    struct shoali_io_request *next_pending;    /* also links free requests */
    struct shoali_io_request *next, *previous; /* all that were not waited for */
};
enum { SHOALI_IO_END_OF_FILE = -1 };

struct shoali_io_file {
    struct shoali_io *io;
    char *path;
    int fd, direct_fd; /* direct_fd -1: buffered */
    struct shoali_io_file *next;
};

struct shoali_io_table {
    const char *name;
    int (*probe)(void); /* 0: it can be used here; else the errno that says why not */
    /* Makes io->backend of io->args. */
    shoal_status (*start)(struct shoali_io *io);
    /* Nothing is in flight any more. */
    void (*stop)(struct shoali_io *io);
    /* Starts what shoali_io_take gives and collects what has come; with `wait` returns after at
     * least one block came (some are in flight or can be taken). Called with the lock held. */
    void (*progress)(struct shoali_io *io, bool wait);
};
extern const struct shoali_io_table shoali_io_posix;
#ifdef SHOALI_HAVE_URING
extern const struct shoali_io_table shoali_io_uring;
#endif

struct shoali_io {
    const struct shoali_io_table *table;
    void *backend;
    struct shoali_io_args args;
    pthread_mutex_t lock;
    struct shoali_io_block *blocks, *free_blocks, *again; /* queue_depth of them in all */
    struct shoali_io_request *pending, **pending_end, *requests, *free_requests;
    struct shoali_io_file *files;
    int32_t in_flight;
    bool batch_open; /* overlap_events false: blocks may join the batch */
    bool fallback_reported;
};

/* The next block to move, NULL when there is none or the queue is full. */
struct shoali_io_block *shoali_io_take(struct shoali_io *io);
/* Books a block's outcome: bytes moved (>= 0) or -errno. What is left of it comes back from
 * shoali_io_take. */
void shoali_io_finish(struct shoali_io *io, struct shoali_io_block *block, int64_t result);

#endif
