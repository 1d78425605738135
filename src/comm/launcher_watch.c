#include "comm/launcher_watch.h"

#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The guard needs a few milliseconds, and is to be the one that speaks. */
enum { GUARD_FIRST_MS = 300, LOOK_MS = 200 };

struct shoali_launcher_watch {
    struct shoali_process launcher; /* number and start */
    int32_t rank;
    int ended; /* readable when the launcher ends; -1: an old kernel, looked for now and then */
    int stop;  /* readable when the group is destroyed */
    pthread_t thread;
};

bool shoali_launcher_name(char *text, size_t bytes)
{
    struct shoali_process self;
    const unsigned long space = shoali_process_namespace();
    if (!shoali_process_read(getpid(), &self) || space == 0)
        return false;
    snprintf(text, bytes, "%d.%lx.%llu", (int)self.pid, space, (unsigned long long)self.start);
    return true;
}

static bool is_there(const struct shoali_process *launcher)
{
    struct shoali_process now;
    if (shoali_process_read(launcher->pid, &now))
        return now.start == launcher->start && !shoali_process_has_ended(&now);
    return kill(launcher->pid, 0) == 0 || errno == EPERM; /* another user's may be hidden */
}

/* Sleeps until the launcher has ended (true) or the watch is stopped. */
static bool await_end(const struct shoali_launcher_watch *watch)
{
    struct pollfd watched[2] = {{.fd = watch->stop, .events = POLLIN},
                                {.fd = watch->ended, .events = POLLIN}};
    for (;;) {
        const int ready = poll(watched, 2, watch->ended < 0 ? LOOK_MS : -1);
        if (ready > 0 && watched[0].revents)
            return false;
        if (ready > 0 || (ready == 0 && !is_there(&watch->launcher)))
            return true;
    }
}

static void *watch_launcher(void *arg)
{
    const struct shoali_launcher_watch *watch = arg;
    struct pollfd stop = {.fd = watch->stop, .events = POLLIN};
    if (!await_end(watch) || poll(&stop, 1, GUARD_FIRST_MS) > 0)
        return NULL;
    /* Not through the sink, which is the program's and may belong to a thread that never returns.
     */
    dprintf(STDERR_FILENO, "[shoal] rank %d: the launcher (pid %d) is gone; this rank ends, too\n",
            (int)watch->rank, (int)watch->launcher.pid);
    _exit(1);
}

static int start_thread(struct shoali_launcher_watch *watch)
{
    if (shoali_fault("thread"))
        return EAGAIN;
    return shoali_thread_start(&watch->thread, watch_launcher, watch);
}

static void release(struct shoali_launcher_watch *watch)
{
    if (watch->ended >= 0)
        close(watch->ended);
    if (watch->stop >= 0)
        close(watch->stop);
    shoali_free(watch);
}

static shoal_status start(const struct shoali_process *launcher, int32_t rank,
                          struct shoali_launcher_watch **out)
{
    struct shoali_launcher_watch *watch = shoali_calloc(1, sizeof(*watch), "the launcher's watch");
    shoal_status status = SHOAL_OK;
    if (!watch)
        return SHOAL_ENOMEM;
    watch->launcher = *launcher;
    watch->rank = rank;
    watch->ended = shoali_process_open(launcher->pid);
    watch->stop = eventfd(0, EFD_CLOEXEC);
    int code = watch->stop < 0 ? errno : 0;
    /* After the descriptor was taken: it is now known to be the launcher's. */
    if (!is_there(launcher))
        status = SHOAL_FAIL(SHOAL_EINTERRUPTED,
                            "the launcher (pid %d) of this rank is gone: start the job again with "
                            "`shoal run`; to run the program by itself, unset %s and RANK",
                            (int)launcher->pid, SHOALI_LAUNCHER_VARIABLE);
    else if (code != 0 || (code = start_thread(watch)) != 0)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot watch the launcher: %s", strerror(code));
    if (status < 0)
        release(watch);
    else
        *out = watch;
    return status;
}

shoal_status shoali_launcher_watch_create(const shoal_comm_args *args,
                                          struct shoali_launcher_watch **watch)
{
    const char *name = getenv(SHOALI_LAUNCHER_VARIABLE);
    int pid = 0, end = 0;
    unsigned long space = 0;
    unsigned long long begin = 0;
    *watch = NULL;
    if (!name || !*name || (args->threads && args->rank > 0))
        return SHOAL_OK;
    if (sscanf(name, "%d.%lx.%llu%n", &pid, &space, &begin, &end) != 3 || name[end] || pid <= 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s=\"%s\" is not what `shoal run` sets: unset it",
                          SHOALI_LAUNCHER_VARIABLE, name);
    /* The launcher's own process: ranks that are its threads. */
    if (space != shoali_process_namespace() || pid == getpid())
        return SHOAL_OK;
    return start(&(struct shoali_process){.pid = pid, .start = begin}, args->rank, watch);
}

void shoali_launcher_watch_destroy(struct shoali_launcher_watch *watch)
{
    if (!watch)
        return;
    const uint64_t one = 1;
    ssize_t written;
    do
        written = write(watch->stop, &one, sizeof(one));
    while (written < 0 && errno == EINTR);
    SHOAL_ASSERT(written == (ssize_t)sizeof(one));
    pthread_join(watch->thread, NULL);
    release(watch);
}
