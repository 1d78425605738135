#include "comm/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char path[] = "/proc/sys/kernel/random/boot_id";

const char *shoali_descriptor_advice(int code)
{
    return code == EMFILE   ? ": raise the limit with `ulimit -n`"
           : code == ENFILE ? ": the machine has no descriptors left (fs.file-max)"
                            : "";
}

static bool is_not_shown(int code)
{
    return code == ENOENT || code == ENOTDIR || code == EACCES || code == EPERM;
}

shoal_status shoali_machine_read_boot(char boot[SHOALI_BOOT_BYTES])
{
    memset(boot, 0, SHOALI_BOOT_BYTES);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && is_not_shown(errno))
        return SHOAL_OK;
    const bool read_whole = fd >= 0 && read(fd, boot, 36) == 36;
    const int code = errno;
    if (fd >= 0)
        close(fd);
    if (read_whole)
        return SHOAL_OK;
    memset(boot, 0, SHOALI_BOOT_BYTES);
    return fd >= 0 ? SHOAL_OK
                   : SHOAL_FAIL(SHOAL_EIO, "cannot read this machine's identity in %s: %s%s", path,
                                strerror(code), shoali_descriptor_advice(code));
}

bool shoali_machine_differs(const char a[SHOALI_BOOT_BYTES], const char b[SHOALI_BOOT_BYTES])
{
    return a[0] && b[0] && memcmp(a, b, SHOALI_BOOT_BYTES) != 0;
}
