#include "comm/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool shoali_folder_is_memory(void)
{
    const int kept = errno; /* callers name the folder in messages of other failures */
    const bool usable = access(SHOALI_FOLDER_MEMORY, W_OK | X_OK) == 0;
    errno = kept;
    return usable;
}

const char *shoali_folder_root(void)
{
    return shoali_folder_is_memory() ? SHOALI_FOLDER_MEMORY : "/tmp";
}

const char *shoali_folder_path(char path[SHOALI_FOLDER_BYTES])
{
    snprintf(path, SHOALI_FOLDER_BYTES, "%s/shoal-%u", shoali_folder_root(), (unsigned)geteuid());
    return path;
}

int shoali_folder_open(void)
{
    char path[SHOALI_FOLDER_BYTES];
    struct stat info;
    shoali_folder_path(path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        /* A file, a link, or a folder that we may not read: another user was here first. */
        if (errno == ENOTDIR || errno == ELOOP || errno == EACCES)
            errno = EPERM;
        return -1;
    }
    int code = fstat(fd, &info) != 0 ? errno : info.st_uid != geteuid() ? EPERM : 0;
    /* Ours, but a strange umask or a hasty hand gave it other bits. What strangers may have put
     * into it meanwhile is not trusted: each file is checked when it is opened. */
    if (code == 0 && (info.st_mode & 07777) != 0700 && fchmod(fd, 0700) != 0)
        code = errno;
    if (code == 0)
        return fd;
    close(fd);
    errno = code;
    return -1;
}
