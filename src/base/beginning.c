#include "base/beginning.h"

#include <string.h>
#include <sys/types.h>
#include <unistd.h>

shoal_status shoali_beginning_lfs(const char *path, const char *data, size_t bytes)
{
    static const char *const starts[] = {"version https://git-lfs.github.com/spec/",
                                         "version https://hawser.github.com/spec/"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (bytes >= strlen(starts[i]) && memcmp(data, starts[i], strlen(starts[i])) == 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s is a pointer of git-lfs instead of the file itself: run `git lfs "
                              "pull` in its folder, or download the file again",
                              path);
    return SHOAL_OK;
}

shoal_status shoali_beginning_fail_wide(const char *path, const char *where)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s is UTF-16 or UTF-32 (%s), and text must be UTF-8: convert it with iconv "
                      "-t UTF-8",
                      path, where);
}

shoal_status shoali_beginning_wide(const char *path, const char *data, size_t bytes)
{
    static const char little[] = {'\xff', '\xfe'}, big[] = {'\xfe', '\xff'};
    static const char big_32[] = {'\0', '\0', '\xfe', '\xff'};
    if ((bytes >= sizeof little &&
         (memcmp(data, little, sizeof little) == 0 || memcmp(data, big, sizeof big) == 0)) ||
        (bytes >= sizeof big_32 && memcmp(data, big_32, sizeof big_32) == 0))
        return shoali_beginning_fail_wide(path, "by its byte order mark");
    return SHOAL_OK;
}

static size_t read_head(int descriptor, char head[SHOALI_BEGINNING_BYTES])
{
    const ssize_t got = pread(descriptor, head, SHOALI_BEGINNING_BYTES, 0);
    return got > 0 ? (size_t)got : 0;
}

shoal_status shoali_beginning_check_lfs(const char *path, int descriptor)
{
    char head[SHOALI_BEGINNING_BYTES];
    return shoali_beginning_lfs(path, head, read_head(descriptor, head));
}

shoal_status shoali_beginning_check(const char *path, int descriptor)
{
    char head[SHOALI_BEGINNING_BYTES];
    const size_t bytes = read_head(descriptor, head);
    const shoal_status status = shoali_beginning_lfs(path, head, bytes);
    return status < 0 ? status : shoali_beginning_wide(path, head, bytes);
}
