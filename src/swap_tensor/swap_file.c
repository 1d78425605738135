/* The file and its place in the file system. */
#include "swap_tensor/swap_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A full or broken drive is no mistake of the configuration; a wrong path is. */
static shoal_status fail_folder(const char *path, const char *what)
{
    const bool drive = errno == ENOSPC || errno == EDQUOT || errno == EIO;
    return SHOAL_FAIL(drive ? SHOAL_EIO : SHOAL_EINVAL,
                      "nvme_path %s: cannot make %s: %s; give a folder on the drive that this user "
                      "may write to",
                      path, what, strerror(errno));
}

static shoal_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return SHOAL_OK;
    return fail_folder(path, "the folder");
}

shoal_status shoali_swap_open_file(struct shoali_swap *swap, int64_t bytes)
{
    shoal_status status;
    const struct shoali_swap_args *args = &swap->args;
    char *folder = NULL, *made = NULL;
    struct shoali_str name = {0}, text = {0};
    SHOAL_TRY(status, make_folder(args->path), done);
    shoali_str_append(&text, "%s/shoal_%s_rank%d_XXXXXX", args->path, args->label, (int)args->rank);
    folder = strdup(shoali_str_get(&text));
    made = folder ? mkdtemp(folder) : NULL;
    if (!made) {
        status = fail_folder(args->path, "a folder in it");
        goto done;
    }
    shoali_str_append(&name, "%s/%s.swp", made, args->label);
    swap->file_name = strdup(shoali_str_get(&name));
    if (!swap->file_name) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a swap file");
        goto done;
    }
    SHOAL_TRY(status, shoali_io_open(swap->io, swap->file_name, bytes, &swap->file), done);
done:
    if (swap->file_name)
        (void)unlink(swap->file_name);
    if (made)
        (void)rmdir(made);
    free(folder);
    shoali_str_fini(&name);
    shoali_str_fini(&text);
    return status;
}
