/* The folder that a save works in: whose turn it is, what a save that died has left there, and what
 * must not be replaced. Rank 0's work, but for taking turns. */
#include "checkpoint/checkpoint_internal.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    SENTENCE_BYTES = 1024,
    HOLDER_BYTES = 256,
    LOOK_MS = 50, /* between two looks at a lock that another job holds */
    SAY_EVERY_S = 60
};

/* Beside the lock, for those that wait: who holds it. */
#define HOLDER_FILE ".saving"

shoal_status shoali_checkpoint_folders_init(struct shoali_checkpoint_run *run,
                                            struct shoali_checkpoint_folders *folders)
{
    const char *dir = run->args->dir, *tag = run->args->tag ? run->args->tag : "";
    struct shoali_arena *arena = &run->arena;
    *folders = (struct shoali_checkpoint_folders){
        .lock = -1,
        .dir = dir,
        .final = shoali_checkpoint_path(arena, dir, tag, ""),
        .partial = shoali_arena_printf(arena, "%s/%s.partial", dir, tag),
        .old = shoali_arena_printf(arena, "%s/%s.old", dir, tag),
        .latest = shoali_checkpoint_path(arena, dir, "", "latest"),
        .holder = shoali_checkpoint_path(arena, dir, "", HOLDER_FILE)};
    return folders->final && folders->partial && folders->old && folders->latest && folders->holder
               ? SHOAL_OK
               : SHOAL_ENOMEM;
}

/* ---- turns ---- */

/* For others to read. A job that cannot say it saves all the same. */
static void sign(const struct shoali_checkpoint_folders *folders)
{
    char host[128] = "", text[HOLDER_BYTES];
    const char *job = getenv("SHOAL_JOB_ID");
    (void)gethostname(host, sizeof host - 1);
    const int bytes = snprintf(text, sizeof text, "job %s (pid %ld, host %s)", job ? job : "",
                               (long)getpid(), host);
    const int file =
        open(folders->holder, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file < 0)
        return;
    const bool limited = shoali_file_limit_begin();
    (void)!write(file, text, (size_t)bytes);
    shoali_file_limit_end(limited);
    close(file);
}

static void say_waiting(const struct shoali_checkpoint_folders *folders)
{
    char *holder = NULL;
    size_t bytes = 0;
    const double waited_s = (double)(shoali_now_ns() - folders->wait_begin_ns) * 1e-9;
    if (shoali_read_file(folders->holder, &holder, &bytes) < 0)
        shoali_error_clear();
    const char *who = bytes > 0 ? holder : "another job";
    if (folders->warnings == 1)
        SHOALI_WARN("checkpoint", "waiting for %s, which saves into %s", who, folders->dir);
    else
        SHOALI_WARN("checkpoint", "still waiting for %s, which saves into %s, after %.0f s", who,
                    folders->dir, waited_s);
    free(holder);
}

/* *waits: another job has the lock. File systems without locks go without. */
static shoal_status look_at_lock(struct shoali_checkpoint_folders *folders, int32_t *waits)
{
    *waits = 0;
    if (folders->lock < 0)
        folders->lock = open(folders->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folders->lock < 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot open the folder: %s", folders->dir,
                          strerror(errno));
    if (flock(folders->lock, LOCK_EX | LOCK_NB) == 0) {
        folders->alone = true;
        sign(folders);
        return SHOAL_OK;
    }
    if (errno != EWOULDBLOCK && errno != EINTR)
        return SHOAL_OK;
    *waits = 1;
    if (folders->wait_begin_ns == 0)
        folders->wait_begin_ns = shoali_now_ns();
    if (shoali_now_ns() - folders->wait_begin_ns >=
        folders->warnings * SAY_EVERY_S * INT64_C(1000000000)) {
        folders->warnings++;
        say_waiting(folders);
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    return SHOAL_OK;
}

/* All ranks meet after each look, so the time that another job takes is never one rank's delay in a
 * collective: its deadline is for ranks that are gone or stuck. */
shoal_status shoali_checkpoint_take_turn(struct shoali_checkpoint_run *run,
                                         struct shoali_checkpoint_folders *folders)
{
    shoal_status status;
    int32_t waits = 0;
    do {
        if (run->rank == 0)
            run->local = look_at_lock(folders, &waits);
        SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
        if (run->size > 1)
            SHOAL_TRY(status, shoal_broadcast(run->args->group, &waits, 1, SHOAL_I32, 0, NULL),
                      done);
    } while (waits);
done:
    return status;
}

void shoali_checkpoint_end_turn(struct shoali_checkpoint_folders *folders)
{
    if (folders->alone)
        (void)unlink(folders->holder);
    if (folders->lock >= 0)
        close(folders->lock);
    folders->lock = -1;
    folders->alone = false;
}

/* ---- what a crash left ---- */

shoal_status shoali_checkpoint_move(const char *from, const char *to)
{
    if (shoali_fault("ckpt.rename"))
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot rename to %s: %s", from, to, strerror(EIO));
    if (rename(from, to) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    return SHOAL_OK;
}

/* A save that died between its two renames left no TAG, but a complete TAG.partial and the TAG.old
 * that it was to replace. Puts the newer one in place before the temporaries are cleared. */
shoal_status shoali_checkpoint_recover(const char *dir, const char *tag)
{
    shoal_status status;
    struct shoali_str partial = {0}, old = {0}, final = {0};
    bool there = false, whole = false;
    shoali_str_append(&partial, "%s/%s.partial", dir, tag);
    shoali_str_append(&old, "%s/%s.old", dir, tag);
    shoali_str_append(&final, "%s/%s", dir, tag);
    if (partial.failed || old.failed || final.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
        goto done;
    }
    SHOAL_TRY(status, shoali_checkpoint_exists(dir, tag, &there), done);
    if (there)
        goto done;
    const size_t skip = strlen(dir) + 1;
    SHOAL_TRY(status, shoali_checkpoint_verifies(dir, partial.text + skip, &whole), done);
    if (whole) {
        SHOAL_TRY(status, shoali_checkpoint_move(partial.text, final.text), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_checkpoint_verifies(dir, old.text + skip, &whole), done);
    if (whole)
        SHOAL_TRY(status, shoali_checkpoint_move(old.text, final.text), done);
done:
    shoali_str_fini(&partial);
    shoali_str_fini(&old);
    shoali_str_fini(&final);
    return status;
}

bool shoali_checkpoint_is_leftover(const char *name, char tag[SHOALI_CHECKPOINT_TAG_BYTES + 1])
{
    const size_t length = strlen(name);
    const size_t tail = length > 8 && strcmp(name + length - 8, ".partial") == 0 ? 8
                        : length > 4 && strcmp(name + length - 4, ".old") == 0   ? 4
                                                                                 : 0;
    if (!tail || length - tail > SHOALI_CHECKPOINT_TAG_BYTES)
        return false;
    memcpy(tag, name, length - tail);
    tag[length - tail] = '\0';
    return shoali_checkpoint_tag_valid(tag);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Somebody's "text.old" stays. */
bool shoali_checkpoint_only_ours(const char *path)
{
    bool ours = true;
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        const char *name = entry->d_name;
        ours =
            ours && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                     ends_with(name, ".safetensors") || strncmp(name, "manifest.json", 13) == 0 ||
                     strncmp(name, "model.safetensors.index.json", 28) == 0 ||
                     shoali_checkpoint_is_companion(name));
    }
    closedir(folder);
    return ours;
}

/* NAME is TAG.partial or TAG.old. */
static shoal_status clear_leftover(const char *dir, const char *name, const char *tag)
{
    shoal_status status;
    bool whole = false, folder = false, manifest = false;
    struct shoali_str path = {0}, inside = {0};
    SHOAL_TRY(status, shoali_checkpoint_recover(dir, tag), done);
    SHOAL_TRY(status, shoali_checkpoint_is_folder(dir, name, &folder), done);
    SHOAL_TRY(status, shoali_checkpoint_verifies(dir, tag, &whole), done);
    shoali_str_append(&path, "%s/%s", dir, name);
    shoali_str_append(&inside, "%s/manifest.json", name);
    if (!folder || path.failed || inside.failed || !shoali_checkpoint_only_ours(path.text))
        goto done;
    /* an old one is the only one where what replaced it is damaged; without a manifest it is
     * none */
    SHOAL_TRY(status, shoali_checkpoint_exists(dir, inside.text, &manifest), done);
    if (ends_with(name, ".old") && !whole && manifest)
        goto done;
    SHOAL_TRY(status, shoali_checkpoint_remove_dir(path.text), done);
    SHOALI_INFO("checkpoint", "removed %s, a leftover of a failed save", path.text);
done:
    shoali_str_fini(&inside);
    shoali_str_fini(&path);
    return status;
}

/* Who holds the lock is alone here: what others have begun will never be finished. It is not what
 * the caller is about, so it is no error when it stays. */
void shoali_checkpoint_sweep(const struct shoali_checkpoint_folders *folders)
{
    char tag[SHOALI_CHECKPOINT_TAG_BYTES + 1];
    DIR *folder = folders->alone ? opendir(folders->dir) : NULL;
    if (!folder)
        return;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (shoali_checkpoint_is_leftover(entry->d_name, tag) &&
            clear_leftover(folders->dir, entry->d_name, tag) < 0)
            SHOALI_WARN("checkpoint", "%s: remove it by hand", shoal_error_message());
    closedir(folder);
    shoali_error_clear();
}

/* ---- what must not be replaced ---- */

/* The step of DIR/latest, or without it the highest one; -1: there is none, or only damaged ones,
 * from which nothing could be continued. */
static shoal_status latest_step(const char *dir, char **tag, int64_t *step)
{
    json_t *manifest = NULL;
    *step = -1;
    shoal_status status = shoali_checkpoint_find(dir, NULL, false, tag, &manifest);
    if (status == SHOAL_OK)
        *step = shoali_manifest_step(manifest);
    else if (status == SHOAL_ECORRUPT) {
        SHOALI_WARN("checkpoint", "%s", shoal_error_message());
        status = SHOAL_OK;
    } else if (status == SHOAL_ENOENT)
        status = SHOAL_OK;
    json_decref(manifest);
    return status;
}

static shoal_status step_of(const char *dir, const char *tag, int64_t *step)
{
    json_t *manifest = NULL;
    *step = -1;
    const shoal_status status = shoali_manifest_read(dir, tag, &manifest);
    if (status == SHOAL_OK)
        *step = shoali_manifest_step(manifest);
    json_decref(manifest);
    return status == SHOAL_ENOENT || status == SHOAL_ECORRUPT ? SHOAL_OK : status;
}

static shoal_status refuse_later(const struct shoali_checkpoint_args *args, const char *tag,
                                 int64_t step, const char *where)
{
    return SHOAL_FAIL(SHOAL_EEXIST,
                      "%s holds %s of step %lld%s, and this run is at step %lld: load it, save to "
                      "another folder, or replace it with --override-existing-checkpoint "
                      "(override_existing_checkpoint of an engine)",
                      args->dir, tag, (long long)step, where, (long long)args->step);
}

shoal_status shoali_checkpoint_check_later(const struct shoali_checkpoint_args *args,
                                           bool *keep_latest)
{
    shoal_status status;
    char *tag = NULL;
    int64_t latest, own = -1;
    bool there = true;
    *keep_latest = false;
    SHOAL_TRY(status, latest_step(args->dir, &tag, &latest), done);
    if (args->tag) {
        SHOAL_TRY(status, shoali_checkpoint_exists(args->dir, args->tag, &there), done);
        SHOAL_TRY(status, step_of(args->dir, args->tag, &own), done);
    }
    const bool fresh = args->tag_chosen && !there;
    if (args->override_existing) {
        if (latest > args->step && args->tag)
            SHOALI_WARN("checkpoint", "%s/latest goes back from %s (step %lld) to %s (step %lld)",
                        args->dir, tag, (long long)latest, args->tag, (long long)args->step);
    } else if (own > args->step)
        status = refuse_later(args, args->tag, own, "");
    else if (latest > args->step && !fresh)
        status = refuse_later(args, tag, latest, ", its latest");
    else if (latest > args->step) {
        *keep_latest = true;
        SHOALI_WARN("checkpoint",
                    "%s/latest stays at %s (step %lld), which is later than %s "
                    "(step %lld)",
                    args->dir, tag, (long long)latest, args->tag, (long long)args->step);
    }
done:
    free(tag);
    return status;
}

/* ---- whether a save could succeed ---- */

/* The size of a header is enough to find a folder, a quota or a disk that takes nothing. */
static shoal_status write_probe(const char *dir)
{
    shoal_status status;
    struct shoali_str path = {0};
    static const char zeros[SHOALI_SAFETENSORS_ALIGN];
    shoali_str_append(&path, "%s/.probe.%ld", dir, (long)getpid());
    if (path.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
        goto done;
    }
    SHOAL_TRY(
        status,
        shoali_checkpoint_create_file(path.text, (int64_t)sizeof zeros, (int64_t)sizeof zeros),
        done);
    const int file = open(path.text, O_WRONLY | O_CLOEXEC);
    status = file < 0 ? SHOAL_FAIL(shoali_path_status(errno), "%s: cannot open for writing: %s",
                                   path.text, strerror(errno))
                      : shoali_checkpoint_pwrite(file, path.text, zeros, (int64_t)sizeof zeros, 0);
    if (file >= 0)
        close(file);
done:
    if (path.text && unlink(path.text) != 0 && errno != ENOENT && status == SHOAL_OK)
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: cannot remove: %s", path.text,
                            strerror(errno));
    shoali_str_fini(&path);
    return status;
}

/* Free bytes for this user; INT64_MAX where the file system does not tell. */
static int64_t free_space(const char *dir)
{
    struct statvfs info;
    if (statvfs(dir, &info) != 0 || info.f_blocks == 0)
        return INT64_MAX;
    const double bytes =
        (double)(geteuid() == 0 ? info.f_bfree : info.f_bavail) * (double)info.f_frsize;
    return bytes < 0x1p63 ? (int64_t)bytes : INT64_MAX;
}

static shoal_status check_room(const char *dir, const struct shoali_checkpoint_size *size,
                               bool ignores_space)
{
    char need[32], have[32];
    const int64_t limit = shoali_checkpoint_file_limit(), room = free_space(dir);
    if (size->largest_file_bytes > limit)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a checkpoint has a file of %s, and files are limited to %s (ulimit -f): "
                          "raise that limit",
                          shoali_format_bytes((double)size->largest_file_bytes, need),
                          shoali_format_bytes((double)limit, have));
    if (size->bytes <= room)
        return SHOAL_OK;
    shoali_format_bytes((double)size->bytes, need);
    shoali_format_bytes((double)room, have);
    if (!ignores_space)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "a checkpoint needs %s, but only %s are free in %s: make room or save elsewhere", need,
            have, dir);
    SHOALI_WARN("checkpoint", "a checkpoint needs %s, but only %s are free in %s", need, have, dir);
    return SHOAL_OK;
}

static shoal_status check_writer(struct shoali_checkpoint_run *run, bool ignores_space)
{
    shoal_status status;
    const struct shoali_checkpoint_args *args = run->args;
    struct shoali_checkpoint_folders folders = {.lock = -1};
    struct shoali_checkpoint_size size;
    int32_t waits;
    bool keep_latest;
    SHOAL_TRY(status, shoali_checkpoint_get_size(args, &size), done);
    SHOAL_TRY(status, shoali_checkpoint_make_dir(args->dir), done);
    SHOAL_TRY(status, shoali_checkpoint_check_later(args, &keep_latest), done);
    SHOAL_TRY(status, shoali_checkpoint_folders_init(run, &folders), done);
    folders.warnings =
        1; /* nobody waits here: what is not free now is looked at when it is saved */
    SHOAL_TRY(status, look_at_lock(&folders, &waits), done);
    shoali_checkpoint_sweep(&folders);
    SHOAL_TRY(status, write_probe(args->dir), done);
    if (!waits)
        SHOAL_TRY(status, check_room(args->dir, &size, ignores_space), done);
done:
    shoali_checkpoint_end_turn(&folders);
    return status;
}

shoal_status shoali_checkpoint_check(const struct shoali_checkpoint_args *args, bool ignores_space)
{
    struct shoali_checkpoint_run run;
    shoal_status status = SHOAL_OK;
    shoali_checkpoint_run_init(&run, args, "save");
    if (run.rank == 0)
        status = check_writer(&run, ignores_space);
    status = shoali_checkpoint_agree(&run, status);
    shoali_checkpoint_run_fini(&run);
    return status;
}
