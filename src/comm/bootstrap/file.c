/* A store in a folder: one file per key, written atomically; "abort" holds the verdict. */
#include "comm/bootstrap/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

struct file_store {
    struct shoali_store base;
    char folder[PATH_BYTES - 4 * SHOALI_STORE_KEY_BYTES];
};

/* "folder/key-NAME" with every character that a file name may not hold as %XX. */
static void key_path(const struct file_store *file, const char *key, char path[PATH_BYTES])
{
    int at = snprintf(path, PATH_BYTES, "%s/key-", file->folder);
    for (; *key; key++) {
        bool plain = (*key >= 'a' && *key <= 'z') || (*key >= 'A' && *key <= 'Z') ||
                     (*key >= '0' && *key <= '9') || *key == '-' || *key == '_';
        at += snprintf(path + at, (size_t)(PATH_BYTES - at), plain ? "%c" : "%%%02x", *key);
    }
}

static shoal_status file_open(const struct shoali_store_args *args, struct shoali_store **store)
{
    struct file_store *file = shoali_calloc(1, sizeof(*file), "a store");
    shoal_status status = file ? SHOAL_OK : SHOAL_ENOMEM;
    if (!file)
        return status;
    if (strlen(args->where) >= sizeof(file->folder)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "the path of the store's folder is longer than %zu bytes",
                            sizeof(file->folder) - 1);
        goto done;
    }
    memcpy(file->folder, args->where, strlen(args->where) + 1);
    file->base.kind = &shoali_store_file;
    SHOAL_TRY(status, shoali_make_dirs(file->folder), done);
    *store = &file->base;
    file = NULL;
done:
    shoali_free(file);
    return status;
}

static void file_close(struct shoali_store *store)
{
    shoali_free(store);
}

static shoal_status file_put(struct shoali_store *store, const char *key, const void *value,
                             size_t bytes)
{
    char path[PATH_BYTES];
    key_path((struct file_store *)store, key, path);
    if (bytes > 0)
        return shoali_write_file_atomic(path, value, bytes);
    if (unlink(path) != 0 && errno != ENOENT)
        return SHOAL_FAIL(SHOAL_EIO, "cannot remove %s: %s", path, strerror(errno));
    return SHOAL_OK;
}

/* SHOAL_IN_PROGRESS when the file does not exist. A network file system may say ESTALE of one that
 * is being replaced. */
static shoal_status read_if_there(const char *path, char **data, size_t *bytes)
{
    if (access(path, F_OK) != 0)
        return errno == ENOENT || errno == ESTALE
                   ? SHOAL_IN_PROGRESS
                   : SHOAL_FAIL(SHOAL_EIO, "cannot look for %s: %s", path, strerror(errno));
    shoal_status status = shoali_read_file(path, data, bytes);
    return status == SHOAL_ENOENT ? SHOAL_IN_PROGRESS : status; /* removed in between */
}

static shoal_status file_get(struct shoali_store *store, const char *key, void *value,
                             size_t *bytes)
{
    char path[PATH_BYTES];
    char *data = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/abort", ((struct file_store *)store)->folder);
    shoal_status status = read_if_there(path, &data, &size);
    if (status == SHOAL_OK)
        status = SHOAL_FAIL(SHOAL_EPEER, "%s", data);
    if (status != SHOAL_IN_PROGRESS)
        goto done;
    key_path((struct file_store *)store, key, path);
    status = read_if_there(path, &data, &size);
    if (status != SHOAL_OK)
        goto done;
    if (size > *bytes) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" has %zu bytes, there is room for %zu", key, size,
                            *bytes);
        goto done;
    }
    memcpy(value, data, size);
    *bytes = size;
done:
    free(data);
    return status;
}

static void file_abort(struct shoali_store *store, const char *sentence)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/abort", ((struct file_store *)store)->folder);
    if (access(path, F_OK) == 0)
        return;
    if (shoali_write_file_atomic(path, sentence, strlen(sentence)) != SHOAL_OK)
        SHOALI_WARN("comm", "the other ranks cannot be told of the failure: %s",
                    shoal_error_message());
}

const struct shoali_store_kind shoali_store_file = {
    .name = "file",
    .open = file_open,
    .close = file_close,
    .put = file_put,
    .get = file_get,
    .abort = file_abort,
};
