/* io - asynchronous reads and writes of files, past the page cache. Level L2.
 *
 * WORDS
 *   context   one backend with its queue.
 *   file      an open file of a context. With `direct` it has a second descriptor with O_DIRECT
 *             where the file system has that. What of a request fills whole units of
 *             SHOALI_IO_ALIGN goes through it; the unaligned head and tail go through the
 *             buffered one, and so does all of a request whose memory and offset have different
 *             places in their units.
 *   request   one read or write of any size. It is cut in blocks of block_bytes; up to queue_depth
 *             blocks of all requests are in flight. A request is complete when all blocks are.
 *
 * BACKENDS
 *   uring     io_uring through liburing: built when the library is there, used when the kernel
 *             allows it.
 *   posix     `threads` threads of the context with pread/pwrite; always there.
 * Chosen by args.backend, else SHOAL_IO, else uring, else posix.
 *
 * RULES  A short read or write goes on where it stopped; the end of the file inside a request is
 * SHOAL_EIO: the sentence has path, offset, expected and found bytes. A full disk is SHOAL_EIO that
 * says which path is full and how many bytes were asked for. EINTR and EAGAIN are retried. The
 * first error of a request is its status, the rest of it is not started; other requests go on.
 * Requests of the same bytes in flight together have no order.
 *
 * THREADS  A context belongs to one thread at a time. Memory of a request is borrowed until it was
 * waited for. Progress is made in post, test and wait (uring) or by the context's threads (posix).
 *
 * Fault points, passed once per request: "io_read" and "io_write" (an error), "io_short" (the first
 * block delivers half), "io_interrupt" (the first block ends with EINTR). Once per unnamed file:
 * "io_tmpfile" (the file system wants a name).
 *
 * Same thing in DeepSpeed: aio_handle(block_size, queue_depth, single_submit, overlap_events,
 * intra_op_parallelism).
 */
#ifndef SHOALI_IO_H
#define SHOALI_IO_H

#include "base/base.h"

#define SHOALI_IO_ALIGN 4096

struct shoali_io;
struct shoali_io_file;
struct shoali_io_request;

struct shoali_io_args {
    const char *backend; /* "uring", "posix"; NULL: SHOAL_IO or the best that works */
    size_t block_bytes;  /* rounded up to SHOALI_IO_ALIGN */
    int32_t queue_depth; /* blocks in flight */
    int32_t threads;     /* posix: threads; uring: ignored */
    bool single_submit;  /* uring: one system call per block instead of per batch */
    bool overlap_events; /* refill the queue at each completion; false: batch by batch */
    bool direct;         /* O_DIRECT; falls back to buffered, said once in the log */
    bool quiet;          /* ... or not said */
};
SHOAL_CHECKED shoal_status shoali_io_create(const struct shoali_io_args *args,
                                            struct shoali_io **io);
/* Closes its files first. NULL is fine. */
void shoali_io_destroy(struct shoali_io *io);
const char *shoali_io_backend(const struct shoali_io *io);
/* What a context of whose backend the caller says nothing gets, and why it is not uring where it is
 * not: "posix; the kernel refuses io_uring ...". */
void shoali_io_describe(char *text, size_t bytes);

/* Opens for reading and writing. create_bytes > 0: creates or empties it (mode 0600) and reserves
 * that size; a full disk is found here, and then no file stays. create_bytes 0: must exist. */
SHOAL_CHECKED shoal_status shoali_io_open(struct shoali_io *io, const char *path,
                                          int64_t create_bytes, struct shoali_io_file **file);
/* Opens a file that exists for reading alone. */
SHOAL_CHECKED shoal_status shoali_io_open_to_read(struct shoali_io *io, const char *path,
                                                  struct shoali_io_file **file);
/* Makes a file of that size in `folder` that has no name, so that nothing stays behind when the
 * process is killed; folder/label stands in messages. SHOAL_EINVAL: no file can be made there. */
SHOAL_CHECKED shoal_status shoali_io_open_unnamed(struct shoali_io *io, const char *folder,
                                                  const char *label, int64_t bytes,
                                                  struct shoali_io_file **file);
const char *shoali_io_path(const struct shoali_io_file *file);
/* Waits for its requests that nobody waited for, which then are no more; their errors are logged.
 * NULL is fine. */
void shoali_io_close(struct shoali_io_file *file);
/* fsync: what was written and waited for is on the drive. Fault point "io_sync". */
SHOAL_CHECKED shoal_status shoali_io_sync(struct shoali_io_file *file);
bool shoali_io_is_direct(const struct shoali_io_file *file);

enum shoali_io_kind { SHOALI_IO_READ, SHOALI_IO_WRITE };
/* Starts a request; it must be waited for. A full queue does not block the caller. */
SHOAL_CHECKED shoal_status shoali_io_post(struct shoali_io_file *file, enum shoali_io_kind kind,
                                          int64_t offset, void *memory, size_t bytes,
                                          struct shoali_io_request **request);
/* Makes progress; *done says whether wait would return at once. */
SHOAL_CHECKED shoal_status shoali_io_test(struct shoali_io_request *request, bool *done);
/* Waits, frees the request, gives its status. */
SHOAL_CHECKED shoal_status shoali_io_wait(struct shoali_io_request *request);

#endif
