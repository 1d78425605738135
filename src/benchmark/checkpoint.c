/* checkpoint.c - a checkpoint saved and loaded, with its checksums, flushes and renames, beside
 * files of as many bytes that the same ranks write and read in a plain loop past the page cache. */
#include "checkpoint/checkpoint.h"
#include "benchmark/benchmark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = 3, BLOCK_BYTES = 16 << 20, PAGE_BYTES = 4096 };
static const char *const names[KINDS] = {"model", "exp_avg", "exp_avg_sq"};

struct job {
    const shoali_bench_checkpoint_args *args;
    shoali_bench_run run;
    shoal_group *group; /* NULL: one rank */
    int32_t rank, ranks;
    int64_t count;        /* elements of a kind */
    int64_t begin, share; /* this rank's */
    float *values;        /* [KINDS][share] */
    char *block;          /* of the plain loop */
    char dir[4096], path[4200];
    struct shoali_checkpoint_kind kind[KINDS];
    struct shoali_samples save, load, plain_write, plain_read;
};
/* One kind of one rank. */
struct part {
    float *values;
    int64_t begin;
};

/* ---- data ----------------------------------------------------------------------------------- */

static float value_at(int64_t element, int64_t round)
{
    return (float)((element * 2654435761 + round * 40503) & 0xFFFFFF);
}

static void fill(struct job *job, int64_t round)
{
    for (int64_t k = 0; k < KINDS; k++)
        for (int64_t i = 0; i < job->share; i++)
            job->values[k * job->share + i] = value_at(job->begin + i, round + k);
}

static shoal_status check(const struct job *job, int64_t round)
{
    for (int64_t k = 0; k < KINDS; k++)
        for (int64_t i = 0; i < job->share; i++)
            if (job->values[k * job->share + i] != value_at(job->begin + i, round + k))
                return SHOAL_FAIL(SHOAL_ECORRUPT,
                                  "bench checkpoint: element %lld of the loaded "
                                  "checkpoint is wrong",
                                  (long long)(job->begin + i));
    return SHOAL_OK;
}

static shoal_status read_part(void *user, int64_t first, int64_t count, void *out)
{
    const struct part *part = user;
    memcpy(out, part->values + (first - part->begin), (size_t)count * sizeof(float));
    return SHOAL_OK;
}

static shoal_status write_part(void *user, int64_t first, int64_t count, const void *in)
{
    const struct part *part = user;
    memcpy(part->values + (first - part->begin), in, (size_t)count * sizeof(float));
    return SHOAL_OK;
}

/* ---- the plain loop ------------------------------------------------------------------------- */

static shoal_status meet(const struct job *job)
{
    return job->group ? shoal_barrier(job->group) : SHOAL_OK;
}

static shoal_status open_plain(const struct job *job, int64_t bytes, int *file)
{
    *file = open(job->path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    if (*file < 0)
        *file = open(job->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int error = *file < 0 ? errno : posix_fallocate(*file, 0, bytes);
    if (error)
        return SHOAL_FAIL(SHOAL_EIO, "bench checkpoint: \"%s\": %s", job->path, strerror(error));
    return SHOAL_OK;
}

static shoal_status move_plain(const struct job *job, int file, int64_t bytes, bool writes)
{
    for (int64_t at = 0; at < bytes;) {
        const int64_t left = bytes - at;
        const size_t length = (size_t)(left < BLOCK_BYTES ? left : BLOCK_BYTES);
        const ssize_t moved = writes ? pwrite(file, job->block, length, (off_t)at)
                                     : pread(file, job->block, length, (off_t)at);
        if (moved <= 0 && !(moved < 0 && errno == EINTR))
            return SHOAL_FAIL(SHOAL_EIO, "bench checkpoint: \"%s\" at %lld: %s", job->path,
                              (long long)at, moved < 0 ? strerror(errno) : "nothing was moved");
        at += moved > 0 ? moved : 0;
    }
    if (writes && fsync(file) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "bench checkpoint: \"%s\": %s", job->path, strerror(errno));
    return SHOAL_OK;
}

/* Every rank its share, in a file of its own, all at once. */
static shoal_status sample_plain(struct job *job, int64_t bytes)
{
    shoal_status status;
    int file = -1;
    const int64_t own = (bytes / job->ranks + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    SHOAL_TRY(status, open_plain(job, own, &file), done);
    for (int writes = 1; writes >= 0; writes--) {
        SHOAL_TRY(status, meet(job), done);
        const double start = shoali_seconds();
        SHOAL_TRY(status, move_plain(job, file, own, writes != 0), done);
        SHOAL_TRY(status, meet(job), done);
        shoali_samples_add(writes ? &job->plain_write : &job->plain_read,
                           (double)(own * job->ranks) * 1e-9 / (shoali_seconds() - start));
    }
done:
    if (file >= 0)
        (void)close(file);
    (void)unlink(job->path);
    return status;
}

/* ---- the checkpoint ------------------------------------------------------------------------- */

static void remove_folder(const struct job *job)
{
    char path[4300];
    for (int32_t k = 0; k < KINDS; k++) {
        snprintf(path, sizeof path, "%s/one/%s-00001-of-00001.safetensors", job->dir, names[k]);
        (void)unlink(path);
    }
    static const char *const others[] = {"one/manifest.json", "one/model.safetensors.index.json",
                                         "latest"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", job->dir, others[i]);
        (void)unlink(path);
    }
    snprintf(path, sizeof path, "%s/one", job->dir);
    (void)rmdir(path);
    (void)rmdir(job->dir);
}

static shoal_status sample_checkpoint(struct job *job, struct shoali_checkpoint_args *args,
                                      int64_t bytes, int64_t round)
{
    shoal_status status;
    args->step = round;
    if (job->rank == 0) /* else a save would also remove what it replaces */
        remove_folder(job);
    fill(job, round);
    SHOAL_TRY(status, meet(job), done);
    double start = shoali_seconds();
    SHOAL_TRY(status, shoali_checkpoint_save(args), done);
    shoali_samples_add(&job->save, (double)bytes * 1e-9 / (shoali_seconds() - start));
    memset(job->values, 0, (size_t)(KINDS * job->share) * sizeof(float));
    SHOAL_TRY(status, meet(job), done);
    start = shoali_seconds();
    SHOAL_TRY(status, shoali_checkpoint_load(args), done);
    shoali_samples_add(&job->load, (double)bytes * 1e-9 / (shoali_seconds() - start));
    SHOAL_TRY(status, check(job, round), done);
done:
    return status;
}

/* Rank 0 says for all when there have been enough. */
static shoal_status goes_on(const struct job *job, double begin, int32_t taken, bool *more)
{
    shoal_status status = SHOAL_OK;
    int32_t word =
        taken < job->run.repeats && (taken < 2 || shoali_seconds() - begin < job->run.seconds);
    if (job->group)
        SHOAL_TRY(status, shoal_broadcast(job->group, &word, 1, SHOAL_I32, 0, NULL), done);
    *more = word != 0;
done:
    return status;
}

static shoal_status sample_all(struct job *job, struct shoali_checkpoint_args *args, int64_t *bytes)
{
    shoal_status status;
    struct shoali_checkpoint_size size;
    const double begin = shoali_seconds();
    bool more = true;
    SHOAL_TRY(status, shoali_checkpoint_get_size(args, &size), done);
    args->buffer_bytes = size.buffer_bytes;
    args->buffer = shoali_malloc_for_files((size_t)size.buffer_bytes, "the benchmark");
    if (!args->buffer) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memset(args->buffer, 0, (size_t)size.buffer_bytes);
    *bytes = size.bytes;
    for (int32_t taken = 1; more; taken++) {
        if (job->run.before_sample && job->rank == 0)
            SHOAL_TRY(status, job->run.before_sample(job->run.user), done);
        SHOAL_TRY(status, sample_plain(job, size.bytes), done);
        SHOAL_TRY(status, sample_checkpoint(job, args, size.bytes, taken), done);
        SHOAL_TRY(status, goes_on(job, begin, taken, &more), done);
    }
done:
    shoali_free(args->buffer);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static shoal_status make(struct job *job, struct part part[KINDS])
{
    const int64_t values = job->args->bytes / KINDS / (int64_t)sizeof(float);
    const int64_t rows = (values + 1023) / 1024 > 0 ? (values + 1023) / 1024 : 1;
    job->count = rows * 1024;
    job->begin = job->count / job->ranks * job->rank;
    const int64_t end =
        job->rank == job->ranks - 1 ? job->count : job->count / job->ranks * (job->rank + 1);
    job->share = end - job->begin;
    job->values = shoali_malloc((size_t)(KINDS * job->share) * sizeof(float), "the benchmark");
    job->block = shoali_malloc_for_files(BLOCK_BYTES, "the benchmark");
    if (!job->values || !job->block)
        return SHOAL_FAIL(SHOAL_ENOMEM, "bench checkpoint: cannot allocate %lld numbers",
                          (long long)(KINDS * job->share));
    memset(job->block, 1, BLOCK_BYTES);
    for (int32_t k = 0; k < KINDS; k++) {
        part[k] = (struct part){job->values + k * job->share, job->begin};
        job->kind[k] = (struct shoali_checkpoint_kind){.name = names[k],
                                                       .dtype = SHOAL_F32,
                                                       .begin = job->begin,
                                                       .count = job->share,
                                                       .user = &part[k],
                                                       .read = read_part,
                                                       .write = write_part};
    }
    return SHOAL_OK;
}

/* The folder is rank 0's to name, and to remove. */
static shoal_status name_folder(struct job *job)
{
    shoal_status status = SHOAL_OK;
    int64_t number = getpid();
    if (job->group)
        SHOAL_TRY(status, shoal_broadcast(job->group, &number, 1, SHOAL_I64, 0, NULL), done);
    const int length = snprintf(job->dir, sizeof job->dir, "%s/shoal-bench-%lld", job->args->folder,
                                (long long)number);
    if (length < 0 || (size_t)length >= sizeof job->dir)
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "bench checkpoint: the folder's name has more than %zu bytes",
                       sizeof job->dir - 32);
    snprintf(job->path, sizeof job->path, "%s.plain%d", job->dir, (int)job->rank);
done:
    return status;
}

static shoal_status emit(const struct job *job, int64_t bytes)
{
    shoal_status status;
    char name[128], size[32];
    shoali_format_bytes((double)bytes, size);
    for (int reads = 0; reads < 2; reads++) {
        snprintf(name, sizeof name, "%s %s with checksums, %d rank%s", reads ? "load" : "save",
                 size, (int)job->ranks, job->ranks > 1 ? "s" : "");
        shoali_bench_result result = {.bench = "checkpoint",
                                      .name = name,
                                      .unit = "GB/s",
                                      .limit_name = reads ? "plain O_DIRECT pread of all ranks"
                                                          : "plain O_DIRECT pwrite and fsync"};
        SHOAL_TRY(status,
                  reads ? shoali_bench_emit(&job->run, &result, &job->load, &job->plain_read)
                        : shoali_bench_emit(&job->run, &result, &job->save, &job->plain_write),
                  done);
    }
done:
    return status;
}

static shoal_status measure(struct job *job)
{
    shoal_status status;
    struct part part[KINDS];
    int64_t bytes = 0;
    const char *const tensors[] = {"weight"};
    SHOAL_TRY(status, name_folder(job), done);
    SHOAL_TRY(status, make(job, part), done);
    const shoal_shape shapes[] = {shoal_shape_2(job->count / 1024, 1024)};
    struct shoali_checkpoint_args args = {.dir = job->dir,
                                          .tag = "one",
                                          .group = job->group,
                                          .names = tensors,
                                          .shapes = shapes,
                                          .tensor_count = 1,
                                          .kinds = job->kind,
                                          .kind_count = KINDS,
                                          .engine_json = "{}"};
    SHOAL_TRY(status, sample_all(job, &args, &bytes), done);
    if (job->rank == 0)
        SHOAL_TRY(status, emit(job, bytes), done);
done:
    if (job->rank == 0)
        remove_folder(job);
    return status;
}

shoal_status shoali_bench_checkpoint(const shoali_bench_checkpoint_args *given)
{
    shoal_status status;
    shoali_bench_checkpoint_args args = *given;
    struct job *job = shoali_calloc(1, sizeof *job, "the benchmark");
    if (!job)
        return SHOAL_ENOMEM;
    args.bytes = given->bytes ? given->bytes : (int64_t)1 << 30;
    args.run.seconds = given->run.seconds > 0 ? given->run.seconds : 30;
    job->args = &args;
    SHOAL_TRY(status, shoali_bench_run_init(&args.run, &job->run), done);
    if (!args.folder || !*args.folder || args.bytes < 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "bench checkpoint: give --folder, and --size of at "
                                          "least 1");
        goto done;
    }
    SHOAL_TRY(status, shoal_comm_init(&(shoal_comm_args){0}, &job->group), done);
    job->rank = shoal_comm_rank(job->group);
    job->ranks = shoal_comm_size(job->group);
    SHOAL_TRY(status, measure(job), done);
done:
    if (status < 0 && job->group)
        shoal_comm_abort(job->group, status);
    shoal_comm_destroy(job->group);
    shoali_free(job->block);
    shoali_free(job->values);
    shoali_free(job);
    return status;
}
