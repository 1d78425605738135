/* Finds the files of a dataset and joins them into one text. */
#include "data/data.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Growing list of paths; the names live in the text's arena. */
struct path_list {
    const char **path;
    size_t count, capacity;
};

static shoal_status list_add(struct path_list *list, const char *path)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        const char **grown = realloc(list->path, capacity * sizeof(*grown));
        if (!grown)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of %zu data files", capacity);
        list->path = grown;
        list->capacity = capacity;
    }
    list->path[list->count++] = path;
    return SHOAL_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts one entry of a folder into files or folders. Links and everything that is neither are left
 * out. */
static shoal_status add_entry(const char *path, struct path_list *files, struct path_list *folders)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        SHOALI_WARN("data", "%s: skipped: %s", path, strerror(errno));
        return SHOAL_OK;
    }
    if (S_ISDIR(info.st_mode))
        return list_add(folders, path);
    if (S_ISREG(info.st_mode))
        return list_add(files, path);
    return SHOAL_OK;
}

static shoal_status scan_folder(struct shoali_arena *arena, const char *folder,
                                struct path_list *files, struct path_list *folders)
{
    shoal_status status = SHOAL_OK;
    DIR *dir = opendir(folder);
    if (!dir) {
        SHOALI_WARN("data", "%s: skipped: %s", folder, strerror(errno));
        return SHOAL_OK;
    }
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        const char *path = shoali_arena_printf(arena, "%s%s%s", folder, slash, entry->d_name);
        if (!path) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        SHOAL_TRY(status, add_entry(path, files, folders), done);
    }
done:
    closedir(dir);
    return status;
}

/* All regular files below `folder`, sorted by path. */
static shoal_status walk_folder(struct shoali_arena *arena, const char *folder,
                                struct path_list *files)
{
    shoal_status status;
    size_t first = files->count;
    struct path_list folders = {0};
    SHOAL_TRY(status, list_add(&folders, folder), done);
    for (size_t i = 0; i < folders.count; i++)
        SHOAL_TRY(status, scan_folder(arena, folders.path[i], files, &folders), done);
    if (files->count > first)
        qsort(files->path + first, files->count - first, sizeof(*files->path), compare_paths);
done:
    free(folders.path);
    return status;
}

static shoal_status collect(struct shoali_arena *arena, const char *given, struct path_list *files)
{
    struct stat info;
    const char *path = shoali_arena_strdup(arena, given);
    if (!path)
        return SHOAL_ENOMEM;
    if (stat(path, &info) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot read the data path %s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return walk_folder(arena, path, files);
    if (!S_ISREG(info.st_mode))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the data path %s is neither a file nor a folder; give text files or folders", path);
    return list_add(files, path);
}

/* Appends one file unless it is unreadable or binary. */
static shoal_status append_file(struct shoali_text *text, const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    shoal_status status = shoali_read_file(path, &data, &bytes);
    if (status == SHOAL_ENOMEM)
        return status;
    if (status < 0) {
        SHOALI_WARN("data", "skipped: %s", shoal_error_message());
        shoali_error_clear();
        return SHOAL_OK;
    }
    status = SHOAL_OK;
    if (memchr(data, 0, bytes)) {
        SHOALI_WARN("data", "%s: skipped: it has NUL bytes, so it is not text", path);
    } else if (bytes > 0) {
        if (text->file_count > 0)
            shoali_str_append_bytes(&text->content, "\n", 1);
        struct shoali_text_file *file = &text->file[text->file_count++];
        file->path = path;
        file->offset = text->content.length;
        shoali_str_append_bytes(&text->content, data, bytes);
        if (text->content.failed)
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes for the text of %s",
                                text->content.length + bytes, path);
    }
    free(data);
    return status;
}

shoal_status shoali_text_read(const char *const *paths, int32_t path_count,
                              struct shoali_text *text)
{
    shoal_status status = SHOAL_OK;
    struct path_list files = {0};
    memset(text, 0, sizeof(*text));
    shoali_arena_init(&text->arena);
    if (path_count < 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no data path given; give text files or folders of them");
        goto done;
    }
    for (int32_t i = 0; i < path_count; i++)
        SHOAL_TRY(status, collect(&text->arena, paths[i], &files), done);
    if (files.count > INT32_MAX) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%zu data files are too many", files.count);
        goto done;
    }
    text->file = shoali_arena_alloc(&text->arena, (files.count + 1) * sizeof(*text->file));
    if (!text->file) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (size_t i = 0; i < files.count; i++)
        SHOAL_TRY(status, append_file(text, files.path[i]), done);
    if (text->file_count == 0)
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "there is no text in %s%s: %zu file%s found, all empty, unreadable or binary", paths[0],
            path_count > 1 ? " and the other data paths" : "", files.count,
            files.count == 1 ? "" : "s");
done:
    free(files.path);
    if (status < 0)
        shoali_text_fini(text);
    return status;
}

void shoali_text_fini(struct shoali_text *text)
{
    shoali_str_fini(&text->content);
    shoali_arena_fini(&text->arena);
    memset(text, 0, sizeof(*text));
}

const char *shoali_text_locate(const struct shoali_text *text, size_t offset, size_t *within)
{
    int32_t i = text->file_count - 1;
    while (i > 0 && text->file[i].offset > offset)
        i--;
    *within = offset - text->file[i].offset;
    return text->file[i].path;
}
