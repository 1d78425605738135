/* The file and its place in the file system. */
#include "swap_tensor/swap_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

shoal_status shoali_swap_check_folder(const char *path)
{
    struct stat info;
    int error = mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : errno;
    if (!error && stat(path, &info) != 0)
        error = errno;
    if (!error && !S_ISDIR(info.st_mode))
        error = ENOTDIR;
    if (!error && access(path, W_OK | X_OK) != 0)
        error = errno;
    if (!error)
        return SHOAL_OK;
    /* A full or broken drive is no mistake of the configuration; a wrong path is. */
    const bool drive = error == ENOSPC || error == EDQUOT || error == EIO;
    return SHOAL_FAIL(drive ? SHOAL_EIO : SHOAL_EINVAL,
                      "nvme_path \"%s\" cannot be used: %s; give a folder on the drive that this "
                      "user may write to",
                      path, strerror(error));
}

shoal_status shoali_swap_open_file(struct shoali_swap *swap, int64_t bytes)
{
    shoal_status status;
    const struct shoali_swap_args *args = &swap->args;
    struct shoali_str name = {0};
    SHOAL_TRY(status, shoali_swap_check_folder(args->path), done);
    shoali_str_append(&name, "shoal_rank%d_%s.swp", (int)args->rank, args->label);
    SHOAL_TRY(
        status,
        shoali_io_open_unnamed(swap->io, args->path, shoali_str_get(&name), bytes, &swap->file),
        done);
done:
    shoali_str_fini(&name);
    return status;
}
