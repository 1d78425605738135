/* Whether every byte of a checkpoint is what its manifest says. Files are cut at chunks, which
 * threads take one after the other; what they find is said in the order of the files. */
#include "base/waiting.h"
#include "checkpoint/checkpoint_internal.h"

#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 64, SENTENCE_BYTES = 512 };

/* One file that the manifest lists. */
struct file {
    struct shoali_checkpoint_file plan;
    bool opened; /* it is there and has its size */
    char sentence[SENTENCE_BYTES];
    int64_t first_chunk;
    uint64_t *got; /* [chunk_count] */
    bool *read;    /* [chunk_count] */
};
struct check {
    struct file *file;
    int32_t file_count;
    int64_t chunk_count, bytes;
    _Atomic int64_t next;
    struct shoali_arena arena;
};
struct worker {
    struct check *check;
    pthread_t thread;
    bool started;
    shoal_status status; /* of what is no damage: memory, a thread */
    char sentence[SENTENCE_BYTES];
};

/* ---- reading -------------------------------------------------------------------------------- */

static struct file *file_of(struct check *check, int64_t chunk)
{
    int32_t low = 0;
    for (int32_t high = check->file_count - 1; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (check->file[middle + 1].first_chunk <= chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return &check->file[low];
}

static int64_t chunk_bytes(const struct file *file, int64_t index)
{
    const int64_t chunk = SHOALI_CHECKPOINT_CHUNK, left = file->plan.bytes - index * chunk;
    return left < chunk ? left : chunk;
}

/* The next chunk of a file that is there; false: there are no more. */
static bool take(struct check *check, struct file **file, int64_t *index)
{
    for (;;) {
        const int64_t chunk = atomic_fetch_add(&check->next, 1);
        if (chunk >= check->chunk_count)
            return false;
        *file = file_of(check, chunk);
        *index = chunk - (*file)->first_chunk;
        if ((*file)->opened)
            return true;
    }
}

/* Two chunks at a time: one is hashed while the other comes. */
struct under_way {
    struct shoali_checkpoint_load *load;
    struct file *file;
    int64_t index;
};

static shoal_status start(struct shoali_checkpoint_lane *lane, struct check *check,
                          struct under_way *next)
{
    shoal_status status;
    *next = (struct under_way){0};
    struct file *file;
    int64_t index;
    if (!take(check, &file, &index))
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_checkpoint_lane_next(lane, &next->load), done);
    next->file = file;
    next->index = index;
    SHOAL_TRY(status,
              shoali_checkpoint_lane_read(lane, next->load, &file->plan,
                                          index * SHOALI_CHECKPOINT_CHUNK,
                                          chunk_bytes(file, index)),
              done);
done:
    return status;
}

/* What a drive cannot read is damage like any other: the chunk's hash stays unknown. */
static void finish(const struct under_way *chunk)
{
    if (shoali_checkpoint_lane_wait(chunk->load) < 0) {
        shoali_error_clear();
        return;
    }
    chunk->file->got[chunk->index] =
        shoali_hash64(chunk->load->memory, (size_t)chunk_bytes(chunk->file, chunk->index));
    chunk->file->read[chunk->index] = true;
}

static shoal_status read_all(struct check *check)
{
    shoal_status status;
    struct shoali_checkpoint_lane lane = {0};
    struct under_way now, next;
    const size_t chunk = SHOALI_CHECKPOINT_CHUNK;
    char *memory = shoali_malloc_for_files(2 * chunk, "chunks of a checkpoint");
    if (!memory)
        return SHOAL_ENOMEM;
    char *first = memory; /* of a huge page, as a chunk has several */
    SHOAL_TRY(status, shoali_checkpoint_lane_init(&lane, first, first + chunk), done);
    SHOAL_TRY(status, start(&lane, check, &next), done);
    while (next.file) {
        now = next;
        SHOAL_TRY(status, start(&lane, check, &next), done);
        finish(&now);
    }
done:
    shoali_checkpoint_lane_fini(&lane);
    shoali_free(memory);
    return status;
}

static void *work(void *user)
{
    struct worker *worker = user;
    worker->status = read_all(worker->check);
    if (worker->status < 0)
        snprintf(worker->sentence, sizeof worker->sentence, "%s", shoal_error_message());
    return NULL;
}

/* ---- the list of files ---------------------------------------------------------------------- */

static shoal_status add_file(struct check *check, const char *folder,
                             const struct shoali_checkpoint_file *plan)
{
    struct file *file = &check->file[check->file_count];
    int descriptor = -1;
    *file = (struct file){.plan = *plan, .first_chunk = check->chunk_count};
    file->plan.path = shoali_arena_printf(&check->arena, "%s/%s", folder, plan->name);
    file->got = shoali_arena_alloc(&check->arena, (size_t)plan->chunk_count * sizeof *file->got);
    file->read = shoali_arena_alloc(&check->arena, (size_t)plan->chunk_count * sizeof *file->read);
    if (!file->plan.path || !file->got || !file->read)
        return SHOAL_ENOMEM;
    file->opened = shoali_checkpoint_open_file(&file->plan, &descriptor) == SHOAL_OK;
    if (!file->opened)
        snprintf(file->sentence, sizeof file->sentence, "%s", shoal_error_message());
    if (descriptor >= 0)
        close(descriptor);
    check->file_count++;
    check->chunk_count += plan->chunk_count;
    check->bytes += plan->bytes;
    return SHOAL_OK;
}

static shoal_status list_files(struct check *check, const char *folder, const json_t *manifest)
{
    shoal_status status = SHOAL_OK;
    size_t k, files = 0;
    json_t *kind;
    const json_t *kinds = json_object_get(manifest, "kinds");
    json_array_foreach(kinds, k, kind) files += json_array_size(json_object_get(kind, "files"));
    check->file = shoali_arena_alloc(&check->arena, (files + 1) * sizeof *check->file);
    if (!check->file)
        return SHOAL_ENOMEM;
    json_array_foreach(kinds, k, kind)
    {
        struct shoali_checkpoint_plan plan = {0};
        SHOAL_TRY(status, shoali_manifest_files(kind, &check->arena, &plan), done);
        for (int32_t f = 0; f < plan.file_count; f++)
            SHOAL_TRY(status, add_file(check, folder, &plan.file[f]), done);
    }
done:
    return status;
}

/* Companions: small files with a hash each. */
static shoal_status check_companion(const char *folder, const json_t *row, struct shoali_str *out)
{
    struct shoali_str path = {0};
    char *text = NULL, hex[17];
    size_t bytes = 0;
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *hash = json_string_value(json_object_get(row, "hash"));
    if (!name || !hash || strchr(name, '/'))
        return SHOAL_FAIL(SHOAL_ECORRUPT,
                          "%s: the manifest lists an additional file without name or hash", folder);
    shoali_str_append(&path, "%s/%s", folder, name);
    const bool read =
        !path.failed && shoali_read_file(shoali_str_get(&path), &text, &bytes) == SHOAL_OK;
    snprintf(hex, sizeof hex, "%016" PRIx64, read ? shoali_hash64(text, bytes) : 0);
    if (!read)
        shoali_str_append(out, "  damaged: %s\n", shoal_error_message());
    else if (strcmp(hex, hash) != 0)
        shoali_str_append(out, "  damaged: %s: hash %s, the manifest says %s\n",
                          shoali_str_get(&path), hex, hash);
    shoali_error_clear();
    shoali_str_fini(&path);
    free(text);
    return SHOAL_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static shoal_status run_threads(struct check *check, int32_t threads)
{
    shoal_status status = SHOAL_OK;
    struct worker worker[THREADS_MAX];
    const int64_t most = check->chunk_count < THREADS_MAX ? check->chunk_count : THREADS_MAX;
    threads = threads < 1 ? shoali_core_count() : threads;
    threads = threads > most ? (int32_t)most : threads;
    for (int32_t i = 0; i < threads; i++) {
        worker[i] = (struct worker){.check = check};
        worker[i].started = i > 0 && shoali_thread_start(&worker[i].thread, work, &worker[i]) == 0;
    }
    if (threads > 0)
        work(&worker[0]); /* with whatever threads there are */
    for (int32_t i = 0; i < threads; i++) {
        if (worker[i].started)
            pthread_join(worker[i].thread, NULL);
        if (worker[i].status < 0 && status == SHOAL_OK)
            status = SHOAL_FAIL(worker[i].status, "%s", worker[i].sentence);
    }
    return status;
}

/* Lines for what is wrong. */
static void say_damage(const struct check *check, struct shoali_str *out)
{
    for (int32_t f = 0; f < check->file_count; f++) {
        const struct file *file = &check->file[f];
        if (!file->opened)
            shoali_str_append(out, "  damaged: %s\n", file->sentence);
        for (int64_t c = 0; c < file->plan.chunk_count && file->opened; c++) {
            const int64_t begin = c * SHOALI_CHECKPOINT_CHUNK;
            if (file->read[c] && file->got[c] == file->plan.chunk[c])
                continue;
            shoali_str_append(out, "  damaged: %s, bytes %" PRId64 " to %" PRId64, file->plan.path,
                              begin, begin + chunk_bytes(file, c) - 1);
            if (file->read[c])
                shoali_str_append(out, ": hash %016" PRIx64 ", the manifest says %016" PRIx64 "\n",
                                  file->got[c], file->plan.chunk[c]);
            else
                shoali_str_append(out, ": cannot be read\n");
        }
    }
}

/* What was read, and behind it what is wrong. */
static void say_result(const char *tag, const struct check *check, int64_t files, double seconds,
                       struct shoali_str *damage, struct shoali_str *out)
{
    char bytes[32], rate[32];
    const char *lines = shoali_str_get(damage);
    shoali_str_append(out, "%s: %s: %d files, %s read in %.2f s (%s/s)\n%s", tag,
                      *lines ? "damaged" : "whole", (int)files,
                      shoali_format_bytes((double)check->bytes, bytes), seconds,
                      shoali_format_bytes((double)check->bytes / (seconds + 1e-9), rate), lines);
    out->failed = out->failed || damage->failed;
}

static shoal_status check_tag(const char *dir, const char *tag, const json_t *manifest,
                              int32_t threads, struct shoali_str *out, bool *good)
{
    shoal_status status;
    struct check check = {0};
    struct shoali_str damage = {0};
    size_t i;
    json_t *row;
    const json_t *companions = json_object_get(manifest, "files");
    const int64_t begin_ns = shoali_now_ns();
    shoali_arena_init(&check.arena);
    const char *folder = shoali_arena_printf(&check.arena, "%s/%s", dir, tag);
    if (!folder) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, list_files(&check, folder, manifest), done);
    SHOAL_TRY(status, run_threads(&check, threads), done);
    say_damage(&check, &damage);
    json_array_foreach(companions, i, row)
        SHOAL_TRY(status, check_companion(folder, row, &damage), done);
    *good = damage.length == 0 && !damage.failed;
    say_result(tag, &check, check.file_count + (int64_t)json_array_size(companions),
               (double)(shoali_now_ns() - begin_ns) * 1e-9, &damage, out);
done:
    shoali_str_fini(&damage);
    shoali_arena_fini(&check.arena);
    return status;
}

shoal_status shoali_checkpoint_verify(const char *dir, const char *tag, int32_t threads,
                                      struct shoali_str *out, bool *good)
{
    shoal_status status;
    json_t *manifest = NULL;
    struct shoali_waiting_aloud *aloud;
    status = shoali_manifest_read(dir, tag, &manifest);
    *good = false;
    if (status == SHOAL_ECORRUPT) {
        shoali_str_append(out, "%s: damaged\n  damaged: %s\n", tag, shoal_error_message());
        return SHOAL_OK;
    }
    if (status == SHOAL_ENOENT)
        return SHOAL_FAIL(status, "%s/%s %s: shoal checkpoint list shows what there is", dir, tag,
                          shoali_checkpoint_lack(dir, tag));
    SHOAL_TRY(status, status, done);
    aloud = shoali_waiting_files_begin("verifying the checkpoint", tag);
    status = check_tag(dir, tag, manifest, threads, out, good);
    shoali_waiting_aloud_end(aloud);
    if (status == SHOAL_ECORRUPT) { /* of a manifest that says nonsense about a kind */
        shoali_str_append(out, "%s: damaged\n  damaged: %s\n", tag, shoal_error_message());
        status = SHOAL_OK;
    }
    if (status == SHOAL_OK && out->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the list of damage");
done:
    json_decref(manifest);
    return status;
}
