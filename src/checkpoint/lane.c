/* A rank's way to the files, past the page cache where the file system has that. */
#include "checkpoint/checkpoint_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LATE_NS INT64_C(5000000000)
#define LATE_NAP_NS 20000000
enum { BLOCK_BYTES = 2 << 20, BLOCKS = 16, THREADS = 4, SENTENCE_BYTES = 2048 };

shoal_status shoali_checkpoint_lane_init(struct shoali_checkpoint_lane *lane, char *first,
                                         char *second)
{
    const struct shoali_io_args args = {.block_bytes = BLOCK_BYTES,
                                        .queue_depth = BLOCKS,
                                        .threads = THREADS,
                                        .overlap_events = true,
                                        .direct = true,
                                        .quiet = true};
    *lane = (struct shoali_checkpoint_lane){.load = {{.memory = first}, {.memory = second}}};
    return shoali_io_create(&args, &lane->io);
}

void shoali_checkpoint_lane_fini(struct shoali_checkpoint_lane *lane)
{
    char sentence[SENTENCE_BYTES];
    if (!lane->io)
        return;
    /* What is on its way may fail, too: the first failure is told. */
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    if (shoali_checkpoint_lane_close(lane, false) < 0)
        (void)SHOAL_FAIL(SHOAL_EIO, "%s", sentence);
    shoali_io_destroy(lane->io);
    lane->io = NULL;
}

shoal_status shoali_checkpoint_lane_wait(struct shoali_checkpoint_load *load)
{
    struct shoali_io_request *request = load->request;
    load->request = NULL;
    return request ? shoali_io_wait(request) : SHOAL_OK;
}

shoal_status shoali_checkpoint_lane_next(struct shoali_checkpoint_lane *lane,
                                         struct shoali_checkpoint_load **load)
{
    *load = &lane->load[lane->turn];
    lane->turn = !lane->turn;
    return shoali_checkpoint_lane_wait(*load);
}

static shoal_status flush_file(struct shoali_io_file *file)
{
    if (shoali_fault("ckpt.fsync"))
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot flush: %s", shoali_io_path(file), strerror(EIO));
    return shoali_io_sync(file);
}

/* The first of those left; nothing of it is on its way any more. */
static shoal_status close_left(struct shoali_checkpoint_lane *lane, bool flush)
{
    struct shoali_io_file *file = lane->left[0];
    const shoal_status status = flush ? flush_file(file) : SHOAL_OK;
    shoali_io_close(file);
    lane->left_count--;
    memmove(&lane->left[0], &lane->left[1], (size_t)lane->left_count * sizeof lane->left[0]);
    return status;
}

/* With two loads, what is on its way is of the file that is left now or of the one before. */
static shoal_status leave(struct shoali_checkpoint_lane *lane, bool flush)
{
    shoal_status status = SHOAL_OK;
    if (lane->left_count == SHOALI_CHECKPOINT_LEFT)
        status = close_left(lane, flush);
    if (lane->open)
        lane->left[lane->left_count++] = lane->open;
    lane->open = NULL;
    lane->file = NULL;
    return status;
}

shoal_status shoali_checkpoint_lane_close(struct shoali_checkpoint_lane *lane, bool flush)
{
    shoal_status status = SHOAL_OK;
    for (int i = 0; i < 2; i++) {
        const shoal_status own = shoali_checkpoint_lane_wait(&lane->load[i]);
        status = status < 0 ? status : own;
    }
    const shoal_status last = leave(lane, flush && status == SHOAL_OK);
    status = status < 0 ? status : last;
    while (lane->left_count > 0) {
        const shoal_status own = close_left(lane, flush && status == SHOAL_OK);
        status = status < 0 ? status : own;
    }
    return status;
}

/* A network file system may show another host's file late. One that opens the folder asks the
 * server what is in it. */
static bool await_file(const char *path)
{
    const struct timespec nap = {.tv_nsec = LATE_NAP_NS};
    const int64_t deadline = shoali_deadline_ns(LATE_NS);
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    while (access(path, F_OK) != 0) {
        if (errno != ENOENT || shoali_deadline_passed(deadline))
            return false;
        const int around = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (around >= 0)
            close(around);
        (void)nanosleep(&nap, NULL);
    }
    return true;
}

/* Rank 0 has made all files before anybody writes. */
static shoal_status open_to_write(struct shoali_checkpoint_lane *lane,
                                  const struct shoali_checkpoint_file *file)
{
    const shoal_status status = shoali_io_open(lane->io, file->path, 0, &lane->open);
    if (status == SHOAL_OK)
        return status;
    if (await_file(file->path)) {
        shoali_error_clear();
        return shoali_io_open(lane->io, file->path, 0, &lane->open);
    }
    if (errno != ENOENT)
        return status;
    return SHOAL_FAIL(status,
                      "\"%s\", which rank 0 has created, does not exist on this host: checkpoints "
                      "need a folder that all hosts share (or it was removed meanwhile)",
                      file->path);
}

shoal_status shoali_checkpoint_lane_write(struct shoali_checkpoint_lane *lane,
                                          struct shoali_checkpoint_load *load,
                                          const struct shoali_checkpoint_file *file, int64_t begin,
                                          int64_t bytes)
{
    shoal_status status;
    if (lane->file != file) {
        SHOAL_TRY(status, leave(lane, true), done);
        SHOAL_TRY(status, open_to_write(lane, file), done);
        lane->file = file;
    }
    if (shoali_fault("ckpt.write")) {
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot write %lld bytes at %lld: %s", file->path,
                            (long long)bytes, (long long)begin, strerror(EIO));
        goto done;
    }
    SHOAL_TRY(status,
              shoali_io_post(lane->open, SHOALI_IO_WRITE, begin, load->memory, (size_t)bytes,
                             &load->request),
              done);
done:
    return status;
}

shoal_status shoali_checkpoint_lane_read(struct shoali_checkpoint_lane *lane,
                                         struct shoali_checkpoint_load *load,
                                         const struct shoali_checkpoint_file *file, int64_t begin,
                                         int64_t bytes)
{
    shoal_status status = SHOAL_OK;
    if (lane->file != file) {
        int descriptor = -1;
        status = shoali_checkpoint_open_file(file, &descriptor);
        if (descriptor >= 0)
            close(descriptor);
        SHOAL_TRY(status, status, done);
        SHOAL_TRY(status, leave(lane, false), done);
        SHOAL_TRY(status, shoali_io_open_to_read(lane->io, file->path, &lane->open), done);
        lane->file = file;
    }
    SHOAL_TRY(status,
              shoali_io_post(lane->open, SHOALI_IO_READ, begin, load->memory, (size_t)bytes,
                             &load->request),
              done);
done:
    return status;
}
