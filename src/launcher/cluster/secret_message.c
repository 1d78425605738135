/* Texts that end with NUL: the secret, NAME=VALUE of each variable, and an empty one.
 *
 * How secrets travel (secret of the job, values of exported variables): never on a command line.
 *   ssh            on standard input, the message; the connection is encrypted
 *   pdsh           gives its commands no input: the pre-flight connection leaves the message in a
 *                  file of this user alone in the user's folder of /dev/shm; the node takes and
 *                  removes it
 *   mpirun, srun   in their environment; their flags name the variables only (-x NAME, -genvlist,
 *                  --export=ALL), and environments are readable by their user alone
 *   --no_ssh       not at all: it is the user's own SHOAL_SECRET_FILE or SHOAL_SECRET on each host
 */
#include "launcher/cluster/cluster.h"

#include "base/clock.h"
#include "comm/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The front writes at once; the rest is for a slow connection. */
#define WAIT_NS INT64_C(30000000000)
/* From the pre-flight to the start of a host: pdsh connects at once. */
enum { OLD_S = 300 };

shoal_status shoali_secret_message_write(const struct shoali_secret_message *message,
                                         struct shoali_str *out)
{
    shoali_str_append_bytes(out, message->secret, strlen(message->secret) + 1);
    for (int32_t i = 0; i < message->variables.count; i++)
        shoali_str_append_bytes(out, message->variables.value[i],
                                strlen(message->variables.value[i]) + 1);
    shoali_str_append_bytes(out, "", 1);
    if (out->failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the variables for the other hosts");
    if (out->length > SHOALI_SECRET_MESSAGE_BYTES_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the variables for the other hosts have %zu bytes, and at most %d are "
                          "sent: unset large ones, or shorten .deepspeed_env",
                          out->length, SHOALI_SECRET_MESSAGE_BYTES_MAX);
    return SHOAL_OK;
}

/* The next character, byte by byte: what follows the message is the lifeline's. */
static shoal_status read_byte(int descriptor, int64_t deadline, char *byte)
{
    for (;;) {
        struct pollfd input = {.fd = descriptor, .events = POLLIN};
        const int64_t left_ms = (deadline - shoali_now_ns()) / 1000000;
        const int ready = left_ms > 0 ? poll(&input, 1, (int)left_ms + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        const ssize_t count = ready > 0 ? read(descriptor, byte, 1) : -1;
        if (count == 1)
            return SHOAL_OK;
        if (count < 0 && ready > 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "no secret came on standard input: --secret_from stdin is for hosts that "
                          "`shoal run` starts, which sends it");
    }
}

static shoal_status take_text(char *text, struct shoali_secret_message *message, bool first)
{
    if (first) {
        if (strlen(text) != SHOALI_SECRET_TEXT_BYTES - 1)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "standard input does not begin with a job's secret: --secret_from "
                              "stdin is for hosts that `shoal run` starts");
        memcpy(message->secret, text, SHOALI_SECRET_TEXT_BYTES);
        return SHOAL_OK;
    }
    if (!strchr(text, '='))
        return SHOAL_FAIL(SHOAL_EINVAL, "standard input has an entry that is not NAME=value: "
                                        "--secret_from stdin is for hosts that `shoal run` starts");
    shoali_text_list_add(&message->variables, "%s", text);
    return message->variables.failed ? SHOAL_ENOMEM : SHOAL_OK;
}

shoal_status shoali_secret_message_read(int descriptor, struct shoali_arena *arena,
                                        struct shoali_secret_message *message)
{
    shoal_status status;
    const int64_t deadline = shoali_deadline_ns(WAIT_NS);
    char *text = shoali_arena_alloc(arena, SHOALI_SECRET_MESSAGE_BYTES_MAX);
    size_t begin = 0, end = 0;
    *message = (struct shoali_secret_message){.variables.arena = arena};
    if (!text)
        return SHOAL_ENOMEM;
    for (bool first = true;;) {
        SHOAL_TRY(status, read_byte(descriptor, deadline, &text[end]), done);
        if (text[end++] != '\0') {
            if (end == SHOALI_SECRET_MESSAGE_BYTES_MAX) {
                status = SHOAL_FAIL(SHOAL_EINVAL, "standard input has no end mark: --secret_from "
                                                  "stdin is for hosts that `shoal run` starts");
                break;
            }
            continue;
        }
        if (!text[begin] && !first)
            break;
        SHOAL_TRY(status, take_text(text + begin, message, first), done);
        first = false;
        begin = end;
    }
done:
    return status;
}

/* Two hosts may share one /dev/shm: containers, network namespaces. */
static shoal_status name_deposit(const char *job_id, int32_t node_rank, char *name, size_t bytes)
{
    if (!job_id || strchr(job_id, '/') || strlen(job_id) > 60)
        return SHOAL_FAIL(SHOAL_EINVAL, "--job_id is missing: it is for hosts that `shoal run` "
                                        "starts");
    snprintf(name, bytes, "letter-%s.%d", job_id, (int)node_rank);
    return SHOAL_OK;
}

/* Those of jobs that were refused or killed before their hosts started. */
static void remove_old(int folder)
{
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    const struct dirent *entry;
    struct stat info;
    while (list && (entry = readdir(list)))
        if (strncmp(entry->d_name, "letter-", 7) == 0 &&
            fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - info.st_mtime > OLD_S)
            unlinkat(folder, entry->d_name, 0);
    if (list)
        closedir(list);
    else if (again >= 0)
        close(again);
}

shoal_status shoali_secret_message_deposit(int descriptor, const char *job_id, int32_t node_rank,
                                           struct shoali_arena *arena)
{
    shoal_status status;
    struct shoali_secret_message message = {0};
    struct shoali_str text = {0};
    char name[96];
    int folder = -1, file = -1;
    SHOAL_TRY(status, name_deposit(job_id, node_rank, name, sizeof(name)), done);
    SHOAL_TRY(status, shoali_secret_message_read(descriptor, arena, &message), done);
    SHOAL_TRY(status, shoali_secret_message_write(&message, &text), done);
    folder = shoali_folder_open();
    if (folder >= 0)
        remove_old(folder);
    if (folder >= 0)
        file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 || write(file, text.text, text.length) != (ssize_t)text.length) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot keep the job's secret in %s: %s",
                            shoali_folder_root(), strerror(errno));
        if (file >= 0)
            unlinkat(folder, name, 0);
    }
done:
    if (file >= 0)
        close(file);
    if (folder >= 0)
        close(folder);
    if (text.text)
        memset(text.text, 0, text.length);
    shoali_str_fini(&text);
    return status;
}

shoal_status shoali_secret_message_take(const char *job_id, int32_t node_rank,
                                        struct shoali_arena *arena,
                                        struct shoali_secret_message *message)
{
    shoal_status status;
    char name[96];
    int folder = -1, file = -1;
    SHOAL_TRY(status, name_deposit(job_id, node_rank, name, sizeof(name)), done);
    folder = shoali_folder_open();
    if (folder >= 0)
        file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the secret of job %s is not on this host: %s; the pre-flight writes "
                            "it here, as the same user",
                            job_id, strerror(errno));
        goto done;
    }
    unlinkat(folder, name, 0);
    SHOAL_TRY(status, shoali_secret_message_read(file, arena, message), done);
done:
    if (file >= 0)
        close(file);
    if (folder >= 0)
        close(folder);
    return status;
}
