/* The file and its place in the file system. */
#include "swap_tensor/swap_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* A full or broken drive is no mistake of the configuration; a wrong path is. */
static shoal_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return SHOAL_OK;
    const bool drive = errno == ENOSPC || errno == EDQUOT || errno == EIO;
    return SHOAL_FAIL(drive ? SHOAL_EIO : SHOAL_EINVAL,
                      "\"%s\": cannot make the folder: %s; give one on the drive, or with a parent "
                      "that this user may write to",
                      path, strerror(errno));
}

shoal_status shoali_swap_open_file(struct shoali_swap *swap, int64_t bytes)
{
    shoal_status status;
    const struct shoali_swap_args *args = &swap->args;
    struct shoali_str name = {0};
    shoali_str_append(&name, "shoal_rank%d_%s.swp", (int)args->rank, args->label);
    status = make_folder(args->path);
    if (status == SHOAL_OK)
        status =
            shoali_io_open_unnamed(swap->io, args->path, shoali_str_get(&name), bytes, &swap->file);
    if (status < 0)
        status = shoali_error_prefix(status, "nvme_path");
    shoali_str_fini(&name);
    return status;
}
