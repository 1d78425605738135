/* Which files a run's folder has, and its checkpoints. */
#include "monitor/hashes.h"
#include "monitor/run_read.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST "manifest.json"

bool shoali_run_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---- names ---------------------------------------------------------------------------------- */

struct names {
    char **name; /* arena */
    int32_t count;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is in a folder, sorted. A name that begins with a dot is not listed. */
static shoal_status list_folder(struct shoali_arena *arena, const char *folder, struct names *names)
{
    shoal_status status = SHOAL_OK;
    int32_t capacity = 0;
    *names = (struct names){0};
    DIR *open = opendir(folder);
    if (!open)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot list the folder: %s", folder,
                          strerror(errno));
    for (const struct dirent *entry = readdir(open); entry; entry = readdir(open)) {
        if (entry->d_name[0] == '.')
            continue;
        if (names->count == capacity) {
            capacity = 2 * capacity + 32;
            char **larger = shoali_arena_alloc(arena, (size_t)capacity * sizeof *larger);
            if (larger && names->count > 0)
                memcpy(larger, names->name, (size_t)names->count * sizeof *larger);
            names->name = larger;
        }
        char *copy = names->name ? shoali_arena_strdup(arena, entry->d_name) : NULL;
        if (!copy) {
            status = SHOAL_ENOMEM;
            break;
        }
        names->name[names->count++] = copy;
    }
    closedir(open);
    if (status == SHOAL_OK && names->count > 1)
        qsort(names->name, (size_t)names->count, sizeof *names->name, compare_names);
    return status;
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t bytes = strlen(name), wanted = strlen(suffix);
    return bytes > wanted && strcmp(name + bytes - wanted, suffix) == 0;
}

/* Adds what `folder` has to *found; folders of it only for depth > 0. */
static shoal_status find_in(struct shoali_arena *arena, const char *folder, const char *suffix,
                            int depth, const char **found)
{
    shoal_status status;
    struct names names;
    SHOAL_TRY(status, list_folder(arena, folder, &names), done);
    for (int32_t i = 0; i < names.count; i++) {
        const char *name = names.name[i];
        const char *path = shoali_arena_printf(arena, "%s/%s", folder, name);
        const char *manifest = shoali_arena_printf(arena, "%s/%s/" MANIFEST, folder, name);
        if (!path || !manifest) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        if (shoali_run_is_folder(path)) {
            if (depth > 0 && access(manifest, F_OK) != 0)
                SHOAL_TRY(status, find_in(arena, path, suffix, depth - 1, found), done);
            continue;
        }
        if (!ends_with(name, suffix) || strcmp(name, SHOALI_HASHES_FILE) == 0)
            continue;
        if (*found) {
            status = SHOAL_FAIL(SHOAL_EINVAL, "there are several files *%s, %s and %s: name one",
                                suffix, *found, path);
            goto done;
        }
        *found = path;
    }
done:
    return status;
}

shoal_status shoali_run_find_file(struct shoali_arena *arena, const char *folder,
                                  const char *suffix, const char **found)
{
    *found = NULL;
    return find_in(arena, folder, suffix, 1, found);
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static shoal_status reserve_checkpoint(struct shoali_run_folder *folder)
{
    if (folder->count < folder->capacity)
        return SHOAL_OK;
    const int32_t capacity = 2 * folder->capacity + 16;
    struct shoali_run_checkpoint *larger =
        shoali_calloc((size_t)capacity, sizeof *larger, "the checkpoints of a folder");
    if (!larger)
        return SHOAL_ENOMEM;
    if (folder->count > 0)
        memcpy(larger, folder->checkpoint, (size_t)folder->count * sizeof *larger);
    shoali_free(folder->checkpoint);
    folder->checkpoint = larger;
    folder->capacity = capacity;
    return SHOAL_OK;
}

/* Bytes of the files in a checkpoint's folder. */
static shoal_status sum_bytes(struct shoali_arena *arena, const char *folder, int64_t *bytes)
{
    shoal_status status;
    struct names names;
    struct stat info;
    *bytes = 0;
    SHOAL_TRY(status, list_folder(arena, folder, &names), done);
    for (int32_t i = 0; i < names.count; i++) {
        const char *path = shoali_arena_printf(arena, "%s/%s", folder, names.name[i]);
        if (!path) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
            *bytes += info.st_size;
    }
done:
    return status;
}

/* A manifest; *manifest NULL: it is none, or is not whole. */
static shoal_status read_manifest(const char *path, json_t **manifest)
{
    char *text = NULL;
    size_t bytes = 0;
    *manifest = NULL;
    shoal_status status = shoali_read_file(path, &text, &bytes);
    if (status == SHOAL_OK)
        status = shoali_json_read(text, bytes, manifest, NULL);
    free(text);
    if (status < 0 && status != SHOAL_ENOMEM) {
        shoali_error_clear();
        status = SHOAL_OK;
    }
    if (*manifest && !json_is_integer(json_object_get(*manifest, "step"))) {
        json_decref(*manifest);
        *manifest = NULL;
    }
    return status;
}

/* Adds the folder PATH/TAG if it is a checkpoint. */
static shoal_status add_checkpoint(struct shoali_run_folder *folder, const char *path, char *tag)
{
    shoal_status status;
    struct stat info;
    json_t *manifest = NULL;
    const char *place = shoali_arena_printf(&folder->arena, "%s/%s", path, tag);
    const char *file = shoali_arena_printf(&folder->arena, "%s/%s/" MANIFEST, path, tag);
    if (!place || !file)
        return SHOAL_ENOMEM;
    if (stat(file, &info) != 0)
        return SHOAL_OK;
    SHOAL_TRY(status, read_manifest(file, &manifest), done);
    if (!manifest)
        goto done;
    SHOAL_TRY(status, reserve_checkpoint(folder), done);
    struct shoali_run_checkpoint added = {.tag = tag,
                                          .step =
                                              json_integer_value(json_object_get(manifest, "step")),
                                          .seconds = (int64_t)info.st_mtime};
    SHOAL_TRY(status, sum_bytes(&folder->arena, place, &added.bytes), done);
    int32_t at = folder->count++;
    for (; at > 0 && folder->checkpoint[at - 1].step > added.step; at--)
        folder->checkpoint[at] = folder->checkpoint[at - 1];
    folder->checkpoint[at] = added;
    if (at == folder->count - 1) {
        json_decref(folder->manifest);
        folder->manifest = manifest;
        manifest = NULL;
    }
done:
    json_decref(manifest);
    return status;
}

shoal_status shoali_run_folder_read(const char *path, struct shoali_run_folder *folder)
{
    shoal_status status = SHOAL_OK;
    struct names names;
    *folder = (struct shoali_run_folder){0};
    shoali_arena_init(&folder->arena);
    if (!shoali_run_is_folder(path))
        return SHOAL_OK;
    SHOAL_TRY(status, list_folder(&folder->arena, path, &names), done);
    for (int32_t i = 0; i < names.count; i++)
        SHOAL_TRY(status, add_checkpoint(folder, path, names.name[i]), done);
done:
    if (status < 0)
        shoali_run_folder_fini(folder);
    return status;
}

void shoali_run_folder_fini(struct shoali_run_folder *folder)
{
    json_decref(folder->manifest);
    shoali_free(folder->checkpoint);
    shoali_arena_fini(&folder->arena);
    *folder = (struct shoali_run_folder){0};
}

int64_t shoali_run_folder_seq_length(const struct shoali_run_folder *folder)
{
    const json_t *client = json_object_get(folder->manifest, "client");
    const json_t *model = json_object_get(client, "model");
    return json_integer_value(json_object_get(model, "seq-length"));
}
