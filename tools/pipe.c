/* A pipe, such as <(command) of a shell, can be read once. Each rank reads a configuration, and a
 * hostfile is read twice. Here a pipe becomes a file in memory that ranks of this machine open. */
#include "tool.h"

#include "base/log.h"
#include "base/str.h"
#include "base/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT_MAX = 8, WORD_BYTES = 64 };

static const char *const flags[] = {"--deepspeed-config", "--hostfile", "-H"};

/* The flag at the beginning of a word, - and _ being equal; *rest: what follows it. */
static const char *flag_of(const char *word, const char **rest)
{
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        const char *at = word, *flag = flags[i];
        while (*word == '-' && *flag && (*at == *flag || (*flag == '-' && *at == '_')))
            at++, flag++;
        *rest = at;
        if (!*flag && (!*at || *at == '='))
            return flags[i];
    }
    return NULL;
}

static bool is_pipe(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

/* *kept: a descriptor that programs of this process inherit. */
static shoal_status keep(const char *path, int *kept)
{
    char bytes[4096], what[400];
    ssize_t count;
    snprintf(what, sizeof what, "waiting for another process to write into the pipe %s", path);
    struct shoali_waiting_aloud *aloud =
        shoali_waiting_aloud_begin(SHOAL_LOG_WARNING, "tools", what);
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    *kept = memfd_create("shoal-pipe", 0);
    do
        count = read(from, bytes, sizeof bytes);
    while (count > 0 && write(*kept, bytes, (size_t)count) == count);
    const int error = errno;
    shoali_waiting_aloud_end(aloud);
    if (from >= 0)
        (void)close(from);
    return count == 0 ? SHOAL_OK
                      : SHOAL_FAIL(SHOAL_EIO,
                                   "cannot read the pipe %s: %s: write what it says to "
                                   "a file and give its name",
                                   path, strerror(error));
}

shoal_status tool_keep_pipes(int argc, char **argv)
{
    static char word[KEPT_MAX][WORD_BYTES];
    shoal_status status = SHOAL_OK;
    int count = 0;
    for (int i = 1; i < argc && count < KEPT_MAX; i++) {
        const char *rest, *flag = flag_of(argv[i], &rest);
        const bool joined = flag && *rest == '=';
        const char *path = joined ? rest + 1 : argv[i + 1];
        int kept;
        if (!flag || !path || !is_pipe(path))
            continue;
        SHOAL_TRY(status, keep(path, &kept), done);
        snprintf(word[count], WORD_BYTES, "%s%s/dev/fd/%d", joined ? flag : "", joined ? "=" : "",
                 kept);
        argv[joined ? i : i + 1] = word[count++];
    }
done:
    return status;
}
