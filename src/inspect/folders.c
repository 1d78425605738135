#include "inspect/inspect.h"

#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "foreign/deepspeed/deepspeed.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 4, FILES_MAX = 100000, PATH_BYTES = 4096 };

/* Names of plain files below a folder. */
struct names {
    char **name; /* owned */
    size_t count, capacity;
};

static void names_fini(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
}

static shoal_status add_name(struct names *names, const char *name)
{
    if (names->count == FILES_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: the folder has more than %d files", name, FILES_MAX);
    if (names->count == names->capacity) {
        const size_t capacity = names->capacity > 0 ? 2 * names->capacity : 64;
        char **larger = realloc(names->name, capacity * sizeof *larger);
        if (!larger)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the names of files");
        names->name = larger;
        names->capacity = capacity;
    }
    names->name[names->count] = strdup(name);
    if (!names->name[names->count])
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a file");
    names->count++;
    return SHOAL_OK;
}

static bool join(char out[PATH_BYTES], const char *folder, const char *name)
{
    const char *slash = *folder && *name ? "/" : "";
    return snprintf(out, PATH_BYTES, "%s%s%s", folder, slash, name) < PATH_BYTES;
}

/* Files of root/below; hidden ones and links to folders are left out. */
static shoal_status find_files(const char *root, const char *below, int depth, struct names *names)
{
    shoal_status status = SHOAL_OK;
    char folder[PATH_BYTES], name[PATH_BYTES], path[PATH_BYTES];
    struct stat info;
    const struct dirent *entry;
    DIR *dir = join(folder, root, below) ? opendir(folder) : NULL;
    if (!dir)
        return SHOAL_FAIL(shoali_path_status(errno), "%s/%s: %s", root, below, strerror(errno));
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || !join(name, below, entry->d_name) ||
            !join(path, root, name) || lstat(path, &info) != 0)
            continue;
        const bool link = S_ISLNK(info.st_mode) && stat(path, &info) == 0;
        if (S_ISREG(info.st_mode))
            SHOAL_TRY(status, add_name(names, name), done);
        else if (S_ISDIR(info.st_mode) && !link && depth < DEPTH_MAX)
            SHOAL_TRY(status, find_files(root, name, depth + 1, names), done);
    }
done:
    closedir(dir);
    return status;
}

/* Numbers within names count as numbers. */
static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    const int order = strverscmp(*x, *y);
    return order != 0 ? order : strcmp(*x, *y);
}

static bool has(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return true;
    return false;
}

/* The folder that `latest` names, in path; false: there is none. */
static bool follow_latest(char path[PATH_BYTES], const char *file)
{
    char at[PATH_BYTES], tag[256] = {0}, below[PATH_BYTES];
    struct stat info;
    if (join(at, path, file))
        shoali_first_line(at, tag, sizeof tag);
    if (!*tag || strchr(tag, '/') || tag[0] == '.' || !join(below, path, tag) ||
        stat(below, &info) != 0 || !S_ISDIR(info.st_mode))
        return false;
    memcpy(path, below, PATH_BYTES);
    return true;
}

static shoal_status checkpoint_facts(const char *path, json_t **facts)
{
    shoal_status status;
    struct shoali_checkpoint_info info = {0};
    json_t *engine = NULL;
    char *folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (!folder)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    if (slash)
        *slash = '\0';
    SHOAL_TRY(status,
              shoali_checkpoint_peek(slash ? folder : ".", slash ? slash + 1 : folder, &info),
              done);
    SHOAL_TRY(status, shoali_json_read(info.engine_json, strlen(info.engine_json), &engine, NULL),
              done);
    *facts = json_pack("{s:I, s:O}", "step", (json_int_t)info.step, "engine", engine);
    if (!*facts)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the contents of a checkpoint");
done:
    json_decref(engine);
    shoali_checkpoint_info_fini(&info);
    free(folder);
    return status;
}

static shoal_status deepspeed_facts(const char *path, json_t **facts)
{
    shoal_status status;
    struct shoali_deepspeed checkpoint;
    json_t *kinds = json_array(), *shared = json_object();
    int failed = !kinds || !shared;
    SHOAL_TRY(status, shoali_deepspeed_open(path, NULL, &checkpoint), done);
    const struct shoali_deepspeed_numbers *numbers = &checkpoint.numbers;
    for (int32_t k = 0; k < checkpoint.kind_count && !failed; k++)
        failed = json_array_append_new(kinds, json_string(checkpoint.kind[k]));
    for (int32_t i = 0; i < checkpoint.shared_count && !failed; i++)
        failed =
            json_object_set_new(shared, checkpoint.shared[i].name,
                                shoali_inspect_text(checkpoint.shared[i].source,
                                                    (int64_t)strlen(checkpoint.shared[i].source)));
    *facts = json_pack("{s:s*, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:O}", "version",
                       numbers->version, "dtype", numbers->dtype, "stage",
                       (json_int_t)numbers->stage, "ranks", (json_int_t)numbers->ranks,
                       "global_steps", (json_int_t)numbers->global_steps, "skipped_steps",
                       (json_int_t)numbers->skipped_steps, "optimizer_step",
                       (json_int_t)numbers->optimizer_step, "parameters",
                       (json_int_t)checkpoint.param_count, "kinds", kinds, "shared", shared);
    if (*facts && numbers->stage < 0)
        failed |= json_object_set_new(*facts, "stage", json_string("universal"));
    if (!*facts || failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the contents of a checkpoint");
done:
    json_decref(kinds);
    json_decref(shared);
    shoali_deepspeed_close(&checkpoint);
    return status;
}

static shoal_status describe_kind(const char *path, const struct names *names, const char **kind,
                                  json_t **facts)
{
    *facts = NULL;
    if (has(names, "manifest.json")) {
        *kind = "checkpoint of Shoal";
        return checkpoint_facts(path, facts);
    }
    if (shoali_deepspeed_is(path, NULL)) {
        *kind = "checkpoint of DeepSpeed";
        return deepspeed_facts(path, facts);
    }
    if (has(names, "config.json"))
        *kind = "model of the Hugging Face Hub";
    else
        *kind = "folder";
    return SHOAL_OK;
}

static bool is_half(const struct names *names, const char *name)
{
    char index[PATH_BYTES];
    return shoali_inspect_ends_with(name, ".bin") &&
           snprintf(index, sizeof index, "%.*s.idx", (int)strlen(name) - 4, name) < PATH_BYTES &&
           has(names, index);
}

static shoal_status describe_files(const struct shoali_inspect *inspect, const char *path,
                                   const struct names *names, json_t *list)
{
    shoal_status status = SHOAL_OK;
    char file[PATH_BYTES];
    for (size_t i = 0; i < names->count; i++) {
        json_t *row = NULL;
        if (is_half(names, names->name[i]) || !join(file, path, names->name[i]))
            continue;
        SHOAL_TRY(status, shoali_inspect_file(inspect, file, names->name[i], &row), done);
        if (json_array_append_new(list, row) != 0) {
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the contents of %s", path);
            goto done;
        }
    }
done:
    return status;
}

shoal_status shoali_inspect_folder(const struct shoali_inspect *inspect, const char *path,
                                   json_t **out)
{
    shoal_status status;
    struct names names = {0};
    char folder[PATH_BYTES], manifest[PATH_BYTES];
    struct stat info;
    const char *kind = NULL;
    json_t *facts = NULL, *files = json_array(), *object = NULL;
    if (!join(folder, "", path))
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: the path is too long", path);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = '\0';
    if (!join(manifest, folder, "manifest.json") || stat(manifest, &info) != 0)
        (void)(follow_latest(folder, "latest") || follow_latest(folder, "latest_universal"));
    SHOAL_TRY(status, find_files(folder, "", 0, &names), done);
    if (names.count > 0)
        qsort(names.name, names.count, sizeof *names.name, by_name);
    SHOAL_TRY(status, describe_kind(folder, &names, &kind, &facts), done);
    SHOAL_TRY(status, describe_files(inspect, folder, &names, files), done);
    object =
        json_pack("{s:o, s:s, s:O}", "path", shoali_inspect_text(folder, (int64_t)strlen(folder)),
                  "kind", kind, "files", files);
    if (!object || (facts && json_object_set(object, "facts", facts) != 0))
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the contents of %s", path);
done:
    *out = status == SHOAL_OK ? json_incref(object) : NULL;
    json_decref(object);
    json_decref(files);
    json_decref(facts);
    names_fini(&names);
    return status;
}
