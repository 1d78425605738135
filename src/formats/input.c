#include "formats/formats.h"

#include "base/beginning.h"
#include "base/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

shoal_status shoali_input_fail(const struct shoali_input *input, int64_t at, const char *format,
                               ...)
{
    char text[768];
    va_list list;
    va_start(list, format);
    (void)shoali_vsnprintf(text, sizeof text, format, list);
    va_end(list);
    /* what a file says may hold what a terminal obeys */
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (at < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s", input->path, text);
    return SHOAL_FAIL(SHOAL_EINVAL, "%s, byte %lld: %s", input->path, (long long)at, text);
}

shoal_status shoali_input_open(const char *path, struct shoali_input *input)
{
    struct stat info;
    shoal_status status = SHOAL_OK;
    *input = (struct shoali_input){.descriptor = -1};
    input->path = strdup(path);
    if (!input->path)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a file");
    input->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (input->descriptor < 0 || fstat(input->descriptor, &info) != 0)
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = shoali_input_fail(input, -1, "not a plain file: give a file of tensors");
    else
        input->bytes = (int64_t)info.st_size;
    if (status == SHOAL_OK)
        status = shoali_beginning_check_lfs(path, input->descriptor);
    if (status < 0)
        shoali_input_close(input);
    return status;
}

void shoali_input_close(struct shoali_input *input)
{
    if (input->path && input->descriptor >= 0)
        close(input->descriptor);
    free(input->path);
    *input = (struct shoali_input){.descriptor = -1};
}

shoal_status shoali_input_read(const struct shoali_input *input, int64_t at, int64_t bytes,
                               void *out)
{
    char *to = out;
    if (at < 0 || bytes < 0 || at > input->bytes || bytes > input->bytes - at)
        return shoali_input_fail(
            input, -1, "bytes %lld to %lld are needed, but it has %lld: it is truncated or damaged",
            (long long)at, (long long)at + (long long)bytes - 1, (long long)input->bytes);
    while (bytes > 0) {
        const ssize_t count = pread(input->descriptor, to, (size_t)bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0)
            return shoali_input_fail(input, at, "it became shorter while it was read");
        if (count < 0)
            return SHOAL_FAIL(SHOAL_EIO, "%s, byte %lld: cannot read: %s", input->path,
                              (long long)at, strerror(errno));
        to += count;
        bytes -= count;
        at += count;
    }
    return SHOAL_OK;
}
