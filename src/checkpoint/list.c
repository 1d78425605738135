/* What a folder of checkpoints holds, in lines for people. */
#include "checkpoint/checkpoint_internal.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct entry {
    char *name;
    json_t *manifest; /* NULL: it does not verify */
    shoal_status status;
    struct shoali_str why; /* what is wrong with it */
    int64_t step, bytes;
    bool leftover;
};
struct listing {
    const char *dir;
    struct entry *entry;
    size_t count, capacity;
    bool saving; /* by a job that is alive */
};

static void listing_fini(struct listing *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entry[i].name);
        json_decref(list->entry[i].manifest);
        shoali_str_fini(&list->entry[i].why);
    }
    shoali_free(list->entry);
}

/* ---- looking -------------------------------------------------------------------------------- */

/* Every file that the manifest names, with its size; their bytes are read by a load. */
static shoal_status check_files(const struct listing *list, struct entry *entry)
{
    shoal_status status = SHOAL_OK;
    size_t k, f;
    json_t *kind, *row;
    json_array_foreach(json_object_get(entry->manifest, "kinds"), k, kind)
    {
        json_array_foreach(json_object_get(kind, "files"), f, row)
        {
            int descriptor = -1;
            struct shoali_str path = {0};
            struct shoali_checkpoint_file file = {
                .bytes = json_integer_value(json_object_get(row, "bytes"))};
            entry->bytes += file.bytes;
            shoali_str_append(&path, "%s/%s/%s", list->dir, entry->name,
                              json_string_value(json_object_get(row, "name")));
            file.path = shoali_str_get(&path);
            const shoal_status opened = path.failed
                                            ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path")
                                            : shoali_checkpoint_open_file(&file, &descriptor);
            if (descriptor >= 0)
                close(descriptor);
            shoali_str_fini(&path);
            if (opened < 0 && status == SHOAL_OK) {
                status = opened;
                shoali_str_append(&entry->why, "%s", shoal_error_message());
            }
        }
    }
    return status;
}

static shoal_status add_entry(struct listing *list, const char *name)
{
    char tag[SHOALI_CHECKPOINT_TAG_BYTES + 1];
    struct entry found = {.step = -1};
    found.leftover = shoali_checkpoint_is_leftover(name, tag);
    found.status = shoali_manifest_read(list->dir, name, &found.manifest);
    if (found.status == SHOAL_ENOMEM)
        return found.status;
    if (found.status == SHOAL_ENOENT && !found.leftover)
        return SHOAL_OK; /* a folder of something else */
    if (found.status < 0)
        shoali_str_append(&found.why, "%s", shoal_error_message());
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 16;
        struct entry *grown = shoali_calloc(capacity, sizeof *grown, "a list of checkpoints");
        if (!grown)
            goto no_memory;
        if (list->entry)
            memcpy(grown, list->entry, list->count * sizeof *grown);
        shoali_free(list->entry);
        list->entry = grown;
        list->capacity = capacity;
    }
    found.name = strdup(name);
    if (!found.name)
        goto no_memory;
    if (found.manifest) {
        found.step = shoali_manifest_step(found.manifest);
        found.status = check_files(list, &found);
    }
    list->entry[list->count++] = found;
    return SHOAL_OK;
no_memory:
    json_decref(found.manifest);
    shoali_str_fini(&found.why);
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of checkpoints");
}

static shoal_status look(struct listing *list)
{
    shoal_status status = SHOAL_OK;
    bool folder;
    DIR *dir = opendir(list->dir);
    if (!dir)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", list->dir,
                          strerror(errno));
    list->saving = flock(dirfd(dir), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)flock(dirfd(dir), LOCK_UN);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (*entry->d_name == '.' || strcmp(entry->d_name, "lost+found") == 0)
            continue;
        SHOAL_TRY(status, shoali_checkpoint_is_folder(list->dir, entry->d_name, &folder), done);
        if (folder)
            SHOAL_TRY(status, add_entry(list, entry->d_name), done);
    }
done:
    closedir(dir);
    return status;
}

/* ---- saying --------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Pieces that its exact sums are made of: who goes on with others has other bits. */
static void say_splits(const json_t *manifest, struct shoali_str *out)
{
    const json_t *engine = json_object_get(manifest, "engine");
    const json_t *tensor = json_object_get(engine, "exact_splits_tensor");
    const json_t *sequence = json_object_get(engine, "exact_splits_sequence");
    if (tensor)
        shoali_str_append(out, ", exact_splits.tensor %lld", (long long)json_integer_value(tensor));
    if (sequence)
        shoali_str_append(out, ", exact_splits.sequence %lld",
                          (long long)json_integer_value(sequence));
}

static void say_entry(const struct listing *list, const struct entry *entry, const char *latest,
                      struct shoali_str *out)
{
    char bytes[32], step[32] = "-";
    if (entry->step >= 0)
        snprintf(step, sizeof step, "%lld", (long long)entry->step);
    shoali_str_append(out, "  %-28s  step %-10s %10s  ", entry->name, step,
                      entry->manifest ? shoali_format_bytes((double)entry->bytes, bytes) : "-");
    if (entry->leftover && list->saving)
        shoali_str_append(out, "of a save in progress");
    else if (entry->leftover)
        shoali_str_append(out, "left by a failed save, %s; the next save removes it",
                          entry->status == SHOAL_OK ? "whole" : "not whole");
    else if (entry->status == SHOAL_OK)
        shoali_str_append(out, "whole");
    else
        shoali_str_append(out, "%s: %s",
                          entry->status == SHOAL_ECORRUPT ? "damaged" : "cannot be read",
                          shoali_str_get(&entry->why));
    say_splits(entry->manifest, out);
    shoali_str_append(out, "%s\n", strcmp(entry->name, latest) == 0 ? ", latest" : "");
}

shoal_status shoali_checkpoint_list(const char *dir, struct shoali_str *out)
{
    shoal_status status;
    struct listing list = {.dir = dir};
    struct shoali_str path = {0};
    char *text = NULL;
    const char *latest = NULL;
    size_t bytes;
    SHOAL_TRY(status, look(&list), done);
    shoali_str_append(&path, "%s/latest", dir);
    if (!path.failed && shoali_read_file(path.text, &text, &bytes) == SHOAL_OK)
        latest = shoali_strip_line(text);
    else if (!path.failed)
        shoali_str_append(out, "%s\n", shoal_error_message());
    shoali_error_clear();
    if (list.count > 0)
        qsort(list.entry, list.count, sizeof *list.entry, by_step);
    shoali_str_append(out, "checkpoints in %s%s\n", dir, list.count ? "" : ": none");
    bool found = !latest;
    for (size_t i = 0; i < list.count; i++) {
        say_entry(&list, &list.entry[i], latest ? latest : "", out);
        found = found || strcmp(list.entry[i].name, latest) == 0;
    }
    if (!found)
        shoali_str_append(out, "  latest says \"%.60s\", which %s\n", latest,
                          shoali_checkpoint_lack(dir, latest));
    if (out->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the list's text");
done:
    free(text);
    shoali_str_fini(&path);
    listing_fini(&list);
    return status;
}
