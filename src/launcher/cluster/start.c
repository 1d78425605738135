#include "launcher/cluster/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

/* Between fork and exec only system calls are safe: all is made before. */
struct child {
    const char *path;
    char **argv, **envp;
    int input, output, errors; /* -1: inherited */
    pid_t front;
};

static void become(const struct child *child) __attribute__((noreturn));
static void become(const struct child *child)
{
    sigset_t none;
    sigemptyset(&none);
    /* Hydra writes to hosts that are gone, and would end before it has passed on why. */
    signal(SIGPIPE, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == child->front && setpgid(0, 0) == 0 &&
        dup2(child->input, STDIN_FILENO) >= 0 &&
        (child->output < 0 || dup2(child->output, STDOUT_FILENO) >= 0) &&
        (child->errors < 0 || dup2(child->errors, STDERR_FILENO) >= 0) &&
        sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execve(child->path, child->argv, child->envp);
    _exit(127);
}

static bool is_assigned(const struct shoali_text_list *words, const char *entry)
{
    const size_t length = strcspn(entry, "=") + 1;
    for (int32_t i = 0; i < words->count; i++)
        if (strncmp(words->value[i], entry, length) == 0)
            return true;
    return false;
}

static char **make_environment(const struct shoali_start *start, struct shoali_arena *arena)
{
    struct shoali_text_list list = {.arena = arena};
    if (start->assignments)
        shoali_text_list_add_all(&list, start->assignments);
    if (start->secret)
        shoali_text_list_add(&list, "SHOAL_SECRET=%s", start->secret);
    const struct shoali_text_list own = list;
    for (char **at = environ; *at; at++)
        if (!is_assigned(&own, *at) && (start->secret || strncmp(*at, "SHOAL_SECRET=", 13) != 0))
            shoali_text_list_add(&list, "%s", *at);
    return list.failed ? NULL : list.value;
}

shoal_status shoali_start(const struct shoali_start *start, struct shoali_arena *arena, pid_t *pid)
{
    shoal_status status;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct child child = {.argv = start->words->value,
                          .input = start->input >= 0 ? start->input : null,
                          .output = start->output < 0 && start->silent ? null : start->output,
                          .errors = start->errors < 0 && start->silent ? null : start->errors,
                          .front = getpid()};
    *pid = 0;
    if (null < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot open /dev/null: %s", strerror(errno));
        goto done;
    }
    SHOAL_TRY(status, shoali_program_find(start->words->value[0], arena, &child.path), done);
    child.envp = make_environment(start, arena);
    if (!child.envp) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    *pid = fork();
    if (*pid == 0)
        become(&child);
    if (*pid < 0) {
        *pid = 0;
        status = SHOAL_FAIL(SHOAL_EIO, "cannot start %s: fork: %s", start->words->value[0],
                            strerror(errno));
    }
done:
    if (null >= 0)
        close(null);
    return status;
}
