/* io.c - a file written and read with a setting of io, beside a plain loop of one thread. */
#include "benchmark/io.h"

#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct job {
    const shoali_bench_io_args *args;
    char path[4096];
    struct shoali_io *io;
    struct shoali_io_file *file;
    int plain; /* descriptor of the plain loop */
    uint64_t *words;
    size_t bytes;
    struct shoali_samples read, write, plain_read, plain_write;
};

/* ---- data ---------------------------------------------------------------------------------- */

static uint64_t word_at(size_t index, uint64_t round)
{
    return (index + 1) * 0x9E3779B97F4A7C15u ^ round * 0xC2B2AE3D27D4EB4Fu;
}

static void fill(struct job *job, uint64_t round)
{
    for (size_t i = 0; i < job->bytes / sizeof(uint64_t); i++)
        job->words[i] = word_at(i, round);
}

static shoal_status verify(const struct job *job, uint64_t round, const char *who)
{
    for (size_t i = 0; i < job->bytes / sizeof(uint64_t); i++)
        if (job->words[i] != word_at(i, round))
            return SHOAL_FAIL(SHOAL_ECORRUPT, "bench io: \"%s\": %s gave wrong bytes at offset %zu",
                              job->path, who, i * sizeof(uint64_t));
    return SHOAL_OK;
}

/* ---- one pass over the file ---------------------------------------------------------------- */

static shoal_status by_io(struct job *job, enum shoali_io_kind kind, double *gbs)
{
    struct shoali_io_request *request = NULL;
    shoal_status status;
    const double start = shoali_seconds();
    SHOAL_TRY(status, shoali_io_post(job->file, kind, 0, job->words, job->bytes, &request), done);
    SHOAL_TRY(status, shoali_io_wait(request), done);
    *gbs = (double)job->bytes * 1e-9 / (shoali_seconds() - start);
done:
    return status;
}

static shoal_status plainly(struct job *job, enum shoali_io_kind kind, double *gbs)
{
    const size_t block = (size_t)job->args->block_bytes;
    const double start = shoali_seconds();
    for (size_t at = 0; at < job->bytes;) {
        char *memory = (char *)job->words + at;
        const size_t left = job->bytes - at, bytes = left < block ? left : block;
        const ssize_t moved = kind == SHOALI_IO_READ ? pread(job->plain, memory, bytes, (off_t)at)
                                                     : pwrite(job->plain, memory, bytes, (off_t)at);
        if (moved <= 0 && !(moved < 0 && errno == EINTR))
            return SHOAL_FAIL(SHOAL_EIO, "bench io: \"%s\": a plain %s at offset %zu failed: %s",
                              job->path, kind == SHOALI_IO_READ ? "read" : "write", at,
                              moved < 0 ? strerror(errno) : "nothing was moved");
        at += moved > 0 ? (size_t)moved : 0;
    }
    *gbs = (double)job->bytes * 1e-9 / (shoali_seconds() - start);
    return SHOAL_OK;
}

/* Where there is a page cache between, reads shall not find what writes left there. */
static void forget(const struct job *job)
{
    if (shoali_io_is_direct(job->file))
        return;
    (void)fdatasync(job->plain);
    (void)posix_fadvise(job->plain, 0, 0, POSIX_FADV_DONTNEED);
}

/* What was written is read back by the other, and what is read was written by the other. */
static shoal_status sample(struct job *job, uint64_t round)
{
    shoal_status status;
    double gbs;
    fill(job, round);
    if (job->args->write) {
        SHOAL_TRY(status, plainly(job, SHOALI_IO_WRITE, &gbs), done);
        shoali_samples_add(&job->plain_write, gbs);
        forget(job);
        fill(job, round + 1);
        SHOAL_TRY(status, by_io(job, SHOALI_IO_WRITE, &gbs), done);
        shoali_samples_add(&job->write, gbs);
        round++;
    } else {
        SHOAL_TRY(status, plainly(job, SHOALI_IO_WRITE, &gbs), done);
    }
    forget(job);
    memset(job->words, 0, job->bytes);
    SHOAL_TRY(status, plainly(job, SHOALI_IO_READ, &gbs), done);
    shoali_samples_add(&job->plain_read, gbs);
    SHOAL_TRY(status, verify(job, round, "a plain read"), done);
    if (job->args->read) {
        forget(job);
        memset(job->words, 0, job->bytes);
        SHOAL_TRY(status, by_io(job, SHOALI_IO_READ, &gbs), done);
        shoali_samples_add(&job->read, gbs);
        SHOAL_TRY(status, verify(job, round, shoali_io_backend(job->io)), done);
    }
done:
    return status;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* A folder that takes no file is a mistake of the flags, one that is full is not. */
static shoal_status try_folder(const struct job *job)
{
    const int file = open(job->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0)
        (void)close(file);
    else if (errno != ENOSPC && errno != EDQUOT && errno != EIO)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench io: cannot make a file in \"%s\": %s",
                          job->args->folder, strerror(errno));
    return SHOAL_OK;
}

static shoal_status open_files(struct job *job)
{
    const shoali_bench_io_args *args = job->args;
    shoal_status status;
    const int length =
        snprintf(job->path, sizeof job->path, "%s/shoal-bench-%d", args->folder, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof job->path)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench io: the folder's name has more than %zu bytes",
                          sizeof job->path - 32);
    job->words = aligned_alloc(SHOALI_IO_ALIGN, job->bytes);
    if (!job->words) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "bench io: cannot allocate %zu bytes", job->bytes);
        goto done;
    }
    (void)madvise(job->words, job->bytes, MADV_HUGEPAGE);
    SHOAL_TRY(status,
              shoali_io_create(&(struct shoali_io_args){.backend = args->backend,
                                                        .block_bytes = (size_t)args->block_bytes,
                                                        .queue_depth = args->queue_depth,
                                                        .threads = args->run.threads,
                                                        .single_submit = args->single_submit,
                                                        .overlap_events = !args->no_overlap,
                                                        .direct = !args->buffered},
                               &job->io),
              done);
    SHOAL_TRY(status, try_folder(job), done);
    SHOAL_TRY(status, shoali_io_open(job->io, job->path, (int64_t)job->bytes, &job->file), done);
    const int flags = O_RDWR | O_CLOEXEC | (shoali_io_is_direct(job->file) ? O_DIRECT : 0);
    job->plain = open(job->path, flags);
    if (job->plain < 0)
        status = SHOAL_FAIL(SHOAL_EIO, "bench io: \"%s\" cannot be opened: %s", job->path,
                            strerror(errno));
    (void)unlink(
        job->path); /* it lives until it is closed, and an interrupted run leaves nothing */
done:
    return status;
}

static void close_files(struct job *job)
{
    if (job->plain >= 0)
        (void)close(job->plain);
    shoali_io_destroy(job->io);
    free(job->words);
    shoali_free(job);
}

/* ---- results ------------------------------------------------------------------------------- */

static shoal_status emit(const struct job *job, const shoali_bench_run *run, bool reads)
{
    const shoali_bench_io_args *args = job->args;
    const bool direct = shoali_io_is_direct(job->file);
    const bool posix = strcmp(shoali_io_backend(job->io), "posix") == 0;
    char name[160], blocks[32], size[32], more[32] = "";
    shoali_format_bytes((double)job->bytes, size);
    shoali_format_bytes((double)args->block_bytes, blocks);
    if (posix)
        snprintf(more, sizeof more, ", %d threads", (int)args->run.threads);
    snprintf(name, sizeof name, "%s %s, %s, blocks %s, depth %d%s%s%s", reads ? "read" : "write",
             size, shoali_io_backend(job->io), blocks, (int)args->queue_depth, more,
             args->single_submit ? ", single" : "", args->no_overlap ? ", sequential" : "");
    shoali_bench_result result = {.bench = "io",
                                  .name = name,
                                  .unit = "GB/s",
                                  .limit_name =
                                      reads    ? direct ? "plain O_DIRECT pread" : "plain pread"
                                      : direct ? "plain O_DIRECT pwrite"
                                               : "plain pwrite"};
    return reads ? shoali_bench_emit(run, &result, &job->read, &job->plain_read)
                 : shoali_bench_emit(run, &result, &job->write, &job->plain_write);
}

shoal_status shoali_bench_io_measure(const shoali_bench_io_args *args, const shoali_bench_run *run,
                                     struct shoali_io_speed *speed)
{
    const double begin = shoali_seconds();
    shoal_status status;
    struct job *job = shoali_calloc(1, sizeof *job, "the benchmark");
    if (!job)
        return SHOAL_ENOMEM;
    job->args = args;
    job->bytes = (size_t)args->bytes;
    job->plain = -1;
    SHOAL_TRY(status, open_files(job), done);
    int32_t taken = 0;
    do
        SHOAL_TRY(status, sample(job, 2 * (uint64_t)taken + 1), done);
    while (++taken < run->repeats && shoali_seconds() - begin < run->seconds);
    if (args->write)
        SHOAL_TRY(status, emit(job, run, false), done);
    if (args->read)
        SHOAL_TRY(status, emit(job, run, true), done);
    *speed = (struct shoali_io_speed){shoali_samples_median(&job->read),
                                      shoali_samples_median(&job->write)};
done:
    close_files(job);
    return status;
}

shoal_status shoali_bench_io_init(const shoali_bench_io_args *given, double seconds,
                                  int32_t repeats, shoali_bench_io_args *args,
                                  shoali_bench_run *run)
{
    shoal_status status;
    *args = *given;
    args->run.seconds = given->run.seconds > 0 ? given->run.seconds : seconds;
    args->run.repeats = given->run.repeats ? given->run.repeats : repeats;
    args->run.threads = given->run.threads ? given->run.threads : 1;
    args->bytes = given->bytes ? given->bytes : (int64_t)512 << 20;
    args->bytes = (args->bytes + SHOALI_IO_ALIGN - 1) / SHOALI_IO_ALIGN * SHOALI_IO_ALIGN;
    args->block_bytes = given->block_bytes ? given->block_bytes : 1 << 20;
    args->block_bytes =
        (args->block_bytes + SHOALI_IO_ALIGN - 1) / SHOALI_IO_ALIGN * SHOALI_IO_ALIGN;
    args->queue_depth = given->queue_depth ? given->queue_depth : 32;
    if (!args->read && !args->write)
        args->read = args->write = 1;
    SHOAL_TRY(status, shoali_bench_run_init(&args->run, run), done);
    if (!args->folder || !*args->folder || args->bytes < 1 || args->block_bytes < 1)
        status = SHOAL_FAIL(SHOAL_EINVAL, "bench io: give --folder, and sizes of at least 1");
done:
    return status;
}

shoal_status shoali_bench_io(const shoali_bench_io_args *args)
{
    shoali_bench_io_args filled;
    shoali_bench_run run;
    struct shoali_io_speed speed;
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_io_init(args, 20, 5, &filled, &run), done);
    SHOAL_TRY(status, shoali_bench_io_measure(&filled, &run, &speed), done);
done:
    return status;
}
