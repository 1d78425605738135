/* Finds files below folders. Links are followed; hidden entries are left out, and so is what cannot
 * be read, with the reason. */
#include "text_data/files.h"

#include "text_data/token_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder, and the one that it was found in. */
struct folder {
    const char *path;
    int64_t parent; /* -1: it was given */
    dev_t device;
    ino_t inode;
};
struct walk {
    struct shoali_files *files;
    struct shoali_path_list *list;
    struct folder *folder;
    size_t count, capacity;
};

static shoal_status no_memory(size_t count)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of %zu data files", count);
}

shoal_status shoali_path_list_add(struct shoali_path_list *list, const char *path)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        const char **grown = realloc(list->path, capacity * sizeof(*grown));
        if (!grown)
            return no_memory(capacity);
        list->path = grown;
        list->capacity = capacity;
    }
    list->path[list->count++] = path;
    return SHOAL_OK;
}

/* `why` may be NULL. */
static shoal_status leave_out(struct walk *walk, enum shoali_left_kind kind, const char *path,
                              const char *why)
{
    struct shoali_files *files = walk->files;
    if (files->left_count == files->left_capacity) {
        const size_t capacity = files->left_capacity ? 2 * files->left_capacity : 16;
        struct shoali_left *grown = realloc(files->left, capacity * sizeof(*grown));
        if (!grown)
            return no_memory(capacity);
        files->left = grown;
        files->left_capacity = capacity;
    }
    const char *copy = shoali_arena_strdup(&files->arena, why ? why : "");
    if (!copy)
        return SHOAL_ENOMEM;
    files->left[files->left_count++] =
        (struct shoali_left){.kind = kind, .path = path, .why = copy};
    return SHOAL_OK;
}

static shoal_status add_folder(struct walk *walk, const char *path, const struct stat *info,
                               int64_t parent)
{
    for (int64_t above = parent; above >= 0; above = walk->folder[above].parent)
        if (walk->folder[above].device == info->st_dev && walk->folder[above].inode == info->st_ino)
            return leave_out(walk, SHOALI_LEFT_LOOP, path, walk->folder[above].path);
    if (walk->count == walk->capacity) {
        const size_t capacity = walk->capacity ? 2 * walk->capacity : 16;
        struct folder *grown = realloc(walk->folder, capacity * sizeof(*grown));
        if (!grown)
            return no_memory(capacity);
        walk->folder = grown;
        walk->capacity = capacity;
    }
    walk->folder[walk->count++] = (struct folder){
        .path = path, .parent = parent, .device = info->st_dev, .inode = info->st_ino};
    return SHOAL_OK;
}

static shoal_status leave_out_unreadable(struct walk *walk, const char *path)
{
    struct stat info;
    const int code = errno;
    const bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    return leave_out(walk, link ? SHOALI_LEFT_LINK : SHOALI_LEFT_UNREADABLE, path, strerror(code));
}

static shoal_status add_entry(struct walk *walk, const char *path, int64_t parent)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return leave_out_unreadable(walk, path);
    if (S_ISDIR(info.st_mode))
        return add_folder(walk, path, &info, parent);
    if (S_ISREG(info.st_mode))
        return shoali_path_list_add(walk->list, path);
    return leave_out(walk, SHOALI_LEFT_SPECIAL, path, NULL);
}

/* What a token cache keeps among the texts is none of them. */
static bool is_cache(const char *name)
{
    return strcmp(name, SHOALI_CACHE_FOLDER) == 0 || strstr(name, SHOALI_TOKEN_FILE_SUFFIX);
}

static shoal_status scan_folder(struct walk *walk, int64_t index)
{
    shoal_status status = SHOAL_OK;
    const char *folder = walk->folder[index].path;
    DIR *dir = opendir(folder);
    if (!dir)
        return leave_out(walk, SHOALI_LEFT_UNREADABLE, folder, strerror(errno));
    const size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            is_cache(entry->d_name))
            continue;
        const char *path =
            shoali_arena_printf(&walk->files->arena, "%s%s%s", folder, slash, entry->d_name);
        if (!path) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        SHOAL_TRY(status,
                  entry->d_name[0] == '.' ? leave_out(walk, SHOALI_LEFT_HIDDEN, path, NULL)
                                          : add_entry(walk, path, index),
                  done);
    }
done:
    closedir(dir);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

shoal_status shoali_files_walk(struct shoali_files *files, const char *folder,
                               struct shoali_path_list *list)
{
    shoal_status status = SHOAL_OK;
    struct stat info;
    struct walk walk = {.files = files, .list = list};
    const size_t first = list->count;
    if (stat(folder, &info) != 0)
        return leave_out(&walk, SHOALI_LEFT_UNREADABLE, folder, strerror(errno));
    SHOAL_TRY(status, add_folder(&walk, folder, &info, -1), done);
    for (size_t i = 0; i < walk.count; i++)
        SHOAL_TRY(status, scan_folder(&walk, (int64_t)i), done);
    if (list->count > first)
        qsort(list->path + first, list->count - first, sizeof(*list->path), compare_paths);
done:
    free(walk.folder);
    return status;
}
