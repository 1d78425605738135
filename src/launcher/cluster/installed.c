/* Whether the launcher's program in PATH is the one that --launcher names. mpirun is the name of
 * many: each prints what it is with --version, and refuses the others' flags with a list of its
 * own. A pdsh without its ssh module starts nothing. A program that is not known is tried. */
#include "launcher/cluster/cluster.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_NS INT64_C(10000000000)
enum { ANSWER_BYTES = 8192 };

static const struct {
    const char *prints; /* anywhere in what --version prints */
    const char *owner;
    uint32_t launchers; /* a bit each: those whose flags it takes; the first is the one to name */
} kinds[] = {
    {"Open MPI", "Open MPI", 1u << SHOALI_BY_OPENMPI},
    {"OpenRTE", "Open MPI", 1u << SHOALI_BY_OPENMPI},
    {"Intel(R) MPI", "Intel MPI", 1u << SHOALI_BY_IMPI},
    {"HYDRA build details", "MPICH", 1u << SHOALI_BY_MPICH | 1u << SHOALI_BY_MVAPICH},
};
static const char *const owners[SHOALI_LAUNCHER_COUNT] = {[SHOALI_BY_OPENMPI] = "Open MPI",
                                                          [SHOALI_BY_MVAPICH] = "MVAPICH",
                                                          [SHOALI_BY_MPICH] = "MPICH",
                                                          [SHOALI_BY_IMPI] = "Intel MPI"};

/* Until it has ended, or has said as much as fits; false: not in time. */
static bool read_answer(int input, char text[ANSWER_BYTES])
{
    const int64_t deadline = shoali_deadline_ns(ANSWER_NS);
    size_t used = 0;
    ssize_t count = 1;
    while (count != 0 && used < ANSWER_BYTES - 1) {
        struct pollfd watched = {.fd = input, .events = POLLIN};
        const int64_t left_ms = (deadline - shoali_now_ns()) / 1000000;
        if (left_ms <= 0)
            return false;
        if (poll(&watched, 1, (int)left_ms + 1) <= 0)
            continue;
        count = read(input, text + used, ANSWER_BYTES - 1 - used);
        if (count < 0 && errno != EINTR)
            break;
        used += count > 0 ? (size_t)count : 0;
        text[used] = '\0';
    }
    return true;
}

/* What PROGRAM FLAG prints. */
static shoal_status ask(struct shoali_front *front, const char *program, const char *flag,
                        char text[ANSWER_BYTES], bool *in_time)
{
    shoal_status status;
    struct shoali_text_list words = {.arena = front->arena};
    int pipes[2] = {-1, -1};
    pid_t pid = 0;
    *text = '\0';
    *in_time = true;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe: %s", strerror(errno));
    shoali_text_list_add(&words, "%s", program);
    shoali_text_list_add(&words, "%s", flag);
    const struct shoali_start start = {
        .words = &words, .input = -1, .output = pipes[1], .errors = pipes[1]};
    status = words.failed ? SHOAL_ENOMEM : shoali_start(&start, front->arena, &pid);
    close(pipes[1]);
    if (status == SHOAL_OK) {
        *in_time = read_answer(pipes[0], text);
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    close(pipes[0]);
    return status;
}

static const char *launcher_for(uint32_t launchers)
{
    int first = 0;
    while (first < SHOALI_LAUNCHER_COUNT - 1 && !(launchers >> first & 1))
        first++;
    /* Of the two that share Hydra the one that most mean. */
    return launchers >> SHOALI_BY_MPICH & 1
               ? shoali_launcher_name_of(SHOALI_BY_MPICH)
               : shoali_launcher_name_of((enum shoali_remote_launcher)first);
}

static shoal_status check_mpirun(const struct shoali_front *front, const char *path,
                                 const char *text)
{
    const char *asked = shoali_launcher_name_of(front->launcher);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!strstr(text, kinds[i].prints))
            continue;
        if (kinds[i].launchers >> front->launcher & 1)
            return SHOAL_OK;
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--launcher %s: %s belongs to %s: give --launcher %s, or put the folder "
                          "of %s's mpirun first in PATH",
                          asked, path, kinds[i].owner, launcher_for(kinds[i].launchers),
                          owners[front->launcher]);
    }
    return SHOAL_OK;
}

static shoal_status check_pdsh(struct shoali_front *front, const char *path, const char *text)
{
    const char *list = strstr(text, "rcmd modules:");
    const size_t length = list ? strcspn(list, "\n") : 0;
    const char *ssh = list ? strstr(list, "ssh") : NULL;
    if (!list || (ssh && ssh < list + length))
        return SHOAL_OK;
    if (!shoali_config_given(&shoali_launch_section, front->options, "launcher")) {
        front->launcher = SHOALI_BY_SSH;
        return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--launcher pdsh: %s has no module ssh (%.*s): install it (pdsh-rcmd-ssh), "
                      "or give --launcher ssh",
                      path, (int)length, list);
}

shoal_status shoali_front_check_launcher(struct shoali_front *front, const char *path)
{
    shoal_status status = SHOAL_OK;
    char text[ANSWER_BYTES];
    bool in_time;
    const bool pdsh = front->launcher == SHOALI_BY_PDSH;
    if (!pdsh && !owners[front->launcher])
        return SHOAL_OK;
    SHOAL_TRY(status, ask(front, path, pdsh ? "-V" : "--version", text, &in_time), done);
    if (!in_time)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--launcher %s: `%s %s` has not ended within %d s: try it, or take "
                            "another launcher (ssh needs nothing else)",
                            shoali_launcher_name_of(front->launcher), path,
                            pdsh ? "-V" : "--version", (int)(ANSWER_NS / 1000000000));
    else
        status = pdsh ? check_pdsh(front, path, text) : check_mpirun(front, path, text);
done:
    return status;
}
