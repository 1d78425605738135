/* Which checkpoints of a folder stay when a newer one is there. */
#include "checkpoint/checkpoint_internal.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Only those whose names follow from their steps: no tag that the user chose is here. */
struct list {
    const char *dir;
    int64_t *step; /* rising */
    size_t count, capacity;
    int64_t latest; /* step of what `latest` names; -1: it is of no use */
    char *latest_tag;
};

static void list_fini(struct list *list)
{
    shoali_free(list->step);
    free(list->latest_tag);
}

static void tag_of(int64_t step, char tag[64])
{
    snprintf(tag, 64, "global_step%" PRId64, step);
}

/* The step that a name is made of; -1: it is none of ours. */
static int64_t step_in(const char *name)
{
    char own[64];
    int64_t step;
    if (strncmp(name, "global_step", 11) != 0 || !shoali_parse_i64(name + 11, &step) || step < 0)
        return -1;
    tag_of(step, own);
    return strcmp(own, name) == 0 ? step : -1;
}

static shoal_status add(struct list *list, int64_t step)
{
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 16;
        int64_t *grown = shoali_calloc(capacity, sizeof *grown, "a list of checkpoints");
        if (!grown)
            return SHOAL_ENOMEM;
        if (list->step)
            memcpy(grown, list->step, list->count * sizeof *grown);
        shoali_free(list->step);
        list->step = grown;
        list->capacity = capacity;
    }
    list->step[list->count++] = step;
    return SHOAL_OK;
}

/* What does not verify is nothing to count on, and nothing to remove unseen. */
static shoal_status look_at(struct list *list, const char *name)
{
    json_t *manifest = NULL;
    const int64_t step = step_in(name);
    if (step < 0)
        return SHOAL_OK;
    shoal_status status = shoali_manifest_read(list->dir, name, &manifest);
    if (status == SHOAL_OK && shoali_manifest_step(manifest) == step)
        status = add(list, step);
    json_decref(manifest);
    return status == SHOAL_ENOENT || status == SHOAL_ECORRUPT ? SHOAL_OK : status;
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static shoal_status look(struct list *list)
{
    shoal_status status;
    json_t *manifest = NULL;
    list->latest = -1;
    SHOAL_TRY(status, shoali_checkpoint_find(list->dir, NULL, false, &list->latest_tag, &manifest),
              done);
    list->latest = shoali_manifest_step(manifest);
    DIR *folder = opendir(list->dir);
    if (!folder) {
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", list->dir,
                            strerror(errno));
        goto done;
    }
    for (const struct dirent *entry = readdir(folder); entry && status == SHOAL_OK;
         entry = readdir(folder))
        status = look_at(list, entry->d_name);
    closedir(folder);
    if (list->count > 0)
        qsort(list->step, list->count, sizeof *list->step, by_step);
done:
    json_decref(manifest);
    return status;
}

/* Steps behind `latest` are of a run that was given up, or of one whose `latest` went back: nobody
 * said that they are superseded. */
static bool stays(const struct list *list, size_t index, const struct shoali_checkpoint_keep *keep)
{
    const int64_t step = list->step[index], last = keep->last > 0 ? keep->last : 1;
    int64_t newer = 0;
    char tag[64];
    tag_of(step, tag);
    for (size_t i = index + 1; i < list->count && list->step[i] <= list->latest; i++)
        newer++;
    return step > list->latest || newer < last || (keep->every > 0 && step % keep->every == 0) ||
           strcmp(tag, list->latest_tag) == 0;
}

/* A crash leaves TAG, or TAG.old that is whole, or TAG.old without a manifest: never a checkpoint
 * that lacks files. */
static shoal_status remove_tag(const char *dir, const char *tag)
{
    shoal_status status;
    struct shoali_str path = {0}, old = {0};
    shoali_str_append(&path, "%s/%s", dir, tag);
    shoali_str_append(&old, "%s/%s.old", dir, tag);
    if (path.failed || old.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
        goto done;
    }
    SHOAL_TRY(status, shoali_checkpoint_move(path.text, old.text), done);
    SHOAL_TRY(status, shoali_checkpoint_remove_dir(old.text), done);
done:
    shoali_str_fini(&path);
    shoali_str_fini(&old);
    return status;
}

shoal_status shoali_checkpoint_retain(const char *dir, const struct shoali_checkpoint_keep *keep,
                                      bool dry_run, struct shoali_str *out)
{
    shoal_status status;
    struct list list = {.dir = dir};
    SHOAL_TRY(status, look(&list), done);
    for (size_t i = 0; i < list.count; i++) {
        char tag[64];
        tag_of(list.step[i], tag);
        const bool kept = stays(&list, i, keep);
        if (out)
            shoali_str_append(out, "  %-28s  %s\n", tag,
                              kept      ? "kept"
                              : dry_run ? "would be removed"
                                        : "removed");
        if (kept || dry_run)
            continue;
        SHOAL_TRY(status, remove_tag(dir, tag), done);
        if (!out)
            SHOALI_INFO("checkpoint", "removed %s/%s, which newer ones replace", dir, tag);
    }
done:
    list_fini(&list);
    return status;
}

shoal_status shoali_checkpoint_prune(const char *dir, const struct shoali_checkpoint_keep *keep,
                                     bool dry_run, struct shoali_str *out)
{
    shoal_status status;
    const int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot open the folder: %s", dir,
                          strerror(errno));
    if (!dry_run && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        status = SHOAL_FAIL(SHOAL_EEXIST,
                            "%s: a job is saving there: try again when it has finished", dir);
        goto done;
    }
    shoali_str_append(out, "checkpoints in %s\n", dir);
    SHOAL_TRY(status, shoali_checkpoint_retain(dir, keep, dry_run, out), done);
    if (out->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the list's text");
done:
    close(lock);
    return status;
}
