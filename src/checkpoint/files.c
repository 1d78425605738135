#include "base/beginning.h"
#include "base/write_advice.h"
#include "checkpoint/checkpoint_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *shoali_checkpoint_path(struct shoali_arena *arena, const char *dir, const char *tag,
                             const char *file)
{
    return shoali_arena_printf(arena, "%s%s%s%s%s", dir, *tag ? "/" : "", tag, *file ? "/" : "",
                               file);
}

/* Of a folder that is to be made or changed: one that does not exist is a mistake, too. */
static shoal_status folder_status(int error)
{
    const shoal_status status = shoali_path_status(error);
    return status == SHOAL_ENOENT ? SHOAL_EINVAL : status;
}

/* Of DIR/NAME, with what `look` (stat or lstat) sees; false with errno 0: there is none. */
static shoal_status look_at(const char *dir, const char *name,
                            int (*look)(const char *, struct stat *), struct stat *info,
                            bool *found)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s/%s", dir, name);
    if (path.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    else if (look(path.text, info) == 0)
        *found = true;
    else if (errno == ENOENT)
        *found = false;
    else
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", path.text,
                            strerror(errno));
    shoali_str_fini(&path);
    return status;
}

shoal_status shoali_checkpoint_is_folder(const char *dir, const char *name, bool *folder)
{
    struct stat info;
    shoal_status status;
    SHOAL_TRY(status, look_at(dir, name, stat, &info, folder), done);
    *folder = *folder && S_ISDIR(info.st_mode);
done:
    return status;
}

shoal_status shoali_checkpoint_exists(const char *dir, const char *name, bool *found)
{
    struct stat info;
    return look_at(dir, name, lstat, &info, found);
}

shoal_status shoali_checkpoint_verifies(const char *dir, const char *tag, bool *good)
{
    json_t *manifest = NULL;
    const shoal_status status = shoali_manifest_read(dir, tag, &manifest);
    *good = status == SHOAL_OK;
    json_decref(manifest);
    return status == SHOAL_ENOENT || status == SHOAL_ECORRUPT ? SHOAL_OK : status;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

shoal_status shoali_checkpoint_check_companion(const char *name)
{
    if (name && *name && *name != '.' && !strchr(name, '/') && strlen(name) <= 200 &&
        shoali_utf8_check(name, strlen(name)) == strlen(name) &&
        strcmp(name, "manifest.json") != 0 && strcmp(name, "model.safetensors.index.json") != 0 &&
        !ends_with(name, ".safetensors") && !ends_with(name, ".tmp"))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "\"%s\" cannot be an additional file of a checkpoint: give a name that a "
                      "checkpoint does not use itself",
                      name ? name : "");
}

bool shoali_checkpoint_is_companion(const char *name)
{
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "spiece.model",
        "sentencepiece.bpe.model",
        "vocab.txt",
        "chat_template.jinja",
        "chat_template.json",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(name, names[i], length) == 0 &&
            (name[length] == '\0' || strcmp(name + length, ".tmp") == 0))
            return true;
    }
    return false;
}

shoal_status shoali_checkpoint_make_dir(const char *path)
{
    errno = 0;
    shoal_status status = shoali_make_dirs(path);
    if (status != SHOAL_EIO)
        return status;
    status = folder_status(errno);
    return SHOAL_FAIL(status, "%s%s", shoal_error_message(),
                      status == SHOAL_EINVAL ? "; choose another folder to save in" : "");
}

shoal_status shoali_checkpoint_remove_dir(const char *path)
{
    shoal_status status = SHOAL_OK;
    DIR *folder = opendir(path);
    if (!folder && errno == ENOENT)
        return SHOAL_OK;
    if (folder && shoali_fault("ckpt.remove")) {
        closedir(folder);
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot remove: %s", path, strerror(EIO));
    }
    if (folder) {
        (void)unlinkat(dirfd(folder), "manifest.json", 0);
        (void)shoali_fault("ckpt.remove.rest"); /* to be killed here */
    }
    while (folder) {
        struct dirent *entry = readdir(folder);
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0); /* rmdir tells what is left */
    }
    if (folder)
        closedir(folder);
    if (!folder || rmdir(path) != 0)
        status = SHOAL_FAIL(folder_status(errno), "%s: cannot remove: %s", path, strerror(errno));
    return status;
}

shoal_status shoali_checkpoint_sync_dir(const char *path)
{
    shoal_status status = SHOAL_OK;
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot flush folders and say EINVAL. */
    if (descriptor < 0 || (fsync(descriptor) != 0 && errno != EINVAL))
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot flush the folder: %s", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* Reserves space. File systems without reservation get the size alone. */
static int reserve(int descriptor, int64_t bytes)
{
    if (shoali_fault("ckpt.create"))
        return ENOSPC;
    int error;
    const bool limited = shoali_file_limit_begin();
    do {
        error = posix_fallocate(descriptor, 0, (off_t)bytes);
    } while (error == EINTR);
    if (error == EOPNOTSUPP || error == EINVAL)
        error = ftruncate(descriptor, (off_t)bytes) == 0 ? 0 : errno;
    shoali_file_limit_end(limited);
    return error;
}

int64_t shoali_checkpoint_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX)
        return INT64_MAX;
    return (int64_t)limit.rlim_cur;
}

static shoal_status no_space(int descriptor, const char *path, int64_t bytes, int64_t missing_bytes,
                             int error)
{
    struct statvfs info;
    char need[32], have[32];
    if (error == EFBIG)
        return SHOAL_FAIL(
            SHOAL_EIO,
            "%s: a file of %lld bytes (%s) exceeds the limit of file sizes; ulimit -f is %s", path,
            (long long)bytes, shoali_format_bytes((double)bytes, need),
            shoali_checkpoint_file_limit() == INT64_MAX
                ? "none, so it is the file system's"
                : shoali_format_bytes((double)shoali_checkpoint_file_limit(), have));
    if ((error != ENOSPC && error != EDQUOT) || fstatvfs(descriptor, &info) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot reserve space: %s", path, strerror(error));
    const double free_bytes = (double)info.f_bavail * (double)info.f_frsize;
    return SHOAL_FAIL(SHOAL_EIO,
                      "%s: the disk is full: the checkpoint needs %lld more bytes (%s), %.0f (%s) "
                      "are free; make room or save elsewhere",
                      path, (long long)missing_bytes,
                      shoali_format_bytes((double)missing_bytes, need), free_bytes,
                      shoali_format_bytes(free_bytes, have));
}

shoal_status shoali_checkpoint_create_file(const char *path, int64_t bytes, int64_t missing_bytes)
{
    shoal_status status = SHOAL_OK;
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return SHOAL_FAIL(folder_status(errno), "%s: cannot create: %s", path, strerror(errno));
    const int error = reserve(descriptor, bytes);
    if (error != 0)
        status = no_space(descriptor, path, bytes, missing_bytes, error);
    close(descriptor);
    return status;
}

shoal_status shoali_checkpoint_pwrite(int descriptor, const char *path, const char *data,
                                      int64_t bytes, int64_t at)
{
    shoal_status status = SHOAL_OK;
    const bool limited = shoali_file_limit_begin();
    while (bytes > 0) {
        const bool fault = shoali_fault("ckpt.write");
        const ssize_t count =
            fault ? (errno = EIO, -1) : pwrite(descriptor, data, (size_t)bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot write %lld bytes at %lld: %s%s", path,
                                (long long)bytes, (long long)at, strerror(errno),
                                shoali_write_advice(errno));
            break;
        }
        data += count;
        bytes -= count;
        at += count;
    }
    shoali_file_limit_end(limited);
    return status;
}

shoal_status shoali_checkpoint_pread(int descriptor, const char *path, char *data, int64_t bytes,
                                     int64_t at)
{
    while (bytes > 0) {
        const ssize_t count = pread(descriptor, data, (size_t)bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0)
            return SHOAL_FAIL(SHOAL_ECORRUPT, "%s: ends at byte %lld, %lld more are needed", path,
                              (long long)at, (long long)bytes);
        if (count < 0)
            return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read %lld bytes at %lld: %s", path,
                              (long long)bytes, (long long)at, strerror(errno));
        data += count;
        bytes -= count;
        at += count;
    }
    return SHOAL_OK;
}

shoal_status shoali_checkpoint_open_file(const struct shoali_checkpoint_file *file, int *descriptor)
{
    struct stat info;
    *descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (*descriptor < 0 && errno == ENOENT)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s is missing, the manifest lists it", file->path);
    if (*descriptor < 0 || fstat(*descriptor, &info) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot open: %s", file->path, strerror(errno));
    const shoal_status status = shoali_beginning_check_lfs(file->path, *descriptor);
    if (status < 0)
        return status;
    if ((int64_t)info.st_size != file->bytes)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s has %lld bytes, the manifest says %lld", file->path,
                          (long long)info.st_size, (long long)file->bytes);
    return SHOAL_OK;
}
