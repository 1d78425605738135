/* Finds the files of a dataset. */
#include "text_data/files.h"

#include "text_data/gzip.h"
#include "text_data/jsonl.h"
#include "text_data/text_data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static shoal_status collect(struct shoali_files *files, const char *given,
                            struct shoali_path_list *list)
{
    struct stat info;
    const char *path = shoali_arena_strdup(&files->arena, given);
    if (!path)
        return SHOAL_ENOMEM;
    if (stat(path, &info) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot read the data path %s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return shoali_files_walk(files, path, list);
    if (!S_ISREG(info.st_mode))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the data path %s is neither a file nor a folder; give text files or folders", path);
    return shoali_path_list_add(list, path);
}

/* Notes what a file looks like now. One that vanished meanwhile is left out. */
static void note(struct shoali_files *files, const char *path, const char *name)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        SHOALI_WARN("data", "%s: skipped: %s", path, strerror(errno));
        return;
    }
    files->file[files->count++] = (struct shoali_file){
        .path = path,
        .name = name,
        .bytes = info.st_size,
        .modified_ns = info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec,
        .changed_ns = info.st_ctim.tv_sec * INT64_C(1000000000) + info.st_ctim.tv_nsec,
        .inode = info.st_ino,
        .readable = access(path, R_OK) == 0,
        .compressed = shoali_jsonl_is_name(path) && shoali_gzip_is_name(path),
        .records = shoali_jsonl_is_name(path) ? &files->keys : NULL};
    files->bytes += info.st_size;
}

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return shoali_hash64_seeded(text, strlen(text) + 1, seed);
}

static shoal_status add_path(struct shoali_files *files, const char *given,
                             struct shoali_path_list *list)
{
    shoal_status status;
    char *whole = realpath(given, NULL);
    files->given = hash_text(whole ? whole : given, files->given);
    free(whole);
    SHOAL_TRY(status, collect(files, given, list), done);
done:
    return status;
}

/* The keys tell data apart only where there are records that have them. What is taken as text by
 * the flag is no cache of a run without it, which refuses. */
static void take_keys(struct shoali_files *files)
{
    bool found = false;
    for (int32_t i = 0; i < files->count; i++)
        found |= files->file[i].records != NULL;
    for (int32_t k = 0; found && k < files->keys.count; k++)
        files->given = hash_text(files->keys.key[k], files->given);
    if (files->data_text)
        files->given = hash_text("--data-text", files->given);
}

shoal_status shoali_files_find(const struct shoal_dataset_args *args, struct shoali_files *files)
{
    static const char *const text_key[] = {"text"};
    shoal_status status = SHOAL_OK;
    const char *const *paths = args->paths;
    const int32_t path_count = args->path_count;
    struct shoali_path_list list = {0};
    size_t *below = NULL; /* length of the given path that each file was found below */
    memset(files, 0, sizeof(*files));
    shoali_arena_init(&files->arena);
    if (path_count < 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no data path given; give text files or folders of them");
        goto done;
    }
    files->first_path = paths[0];
    files->path_count = path_count;
    files->data_text = args->data_text;
    files->keys.key = args->json_key_count > 0 ? args->json_keys : text_key;
    files->keys.count = args->json_key_count > 0 ? args->json_key_count : 1;
    below = shoali_calloc((size_t)path_count, sizeof(*below), "the data paths");
    if (!below) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < path_count; i++) {
        SHOAL_TRY(status, add_path(files, paths[i], &list), done);
        below[i] = list.count;
    }
    if (list.count > INT32_MAX) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%zu data files are too many", list.count);
        goto done;
    }
    files->file = shoali_arena_alloc(&files->arena, (list.count + 1) * sizeof(*files->file));
    if (!files->file) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (size_t i = 0, p = 0; i < list.count; i++) {
        while (i == below[p])
            p++;
        note(files, list.path[i], list.path[i] + strlen(paths[p]));
    }
    take_keys(files);
done:
    free(list.path);
    shoali_free(below);
    if (status < 0)
        shoali_files_fini(files);
    return status;
}

void shoali_files_fini(struct shoali_files *files)
{
    shoali_arena_fini(&files->arena);
    free(files->left);
    memset(files, 0, sizeof(*files));
}

uint64_t shoali_files_state(const struct shoali_files *files)
{
    uint64_t state = (uint64_t)files->count;
    for (int32_t i = 0; i < files->count; i++) {
        const struct shoali_file *file = &files->file[i];
        const uint64_t words[] = {(uint64_t)file->bytes, (uint64_t)file->modified_ns,
                                  (uint64_t)file->changed_ns, file->inode, file->readable};
        state = hash_text(file->name, shoali_hash64_seeded(words, sizeof(words), state));
    }
    return state;
}
