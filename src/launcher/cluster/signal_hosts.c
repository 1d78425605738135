/* Signals for the hosts of a pdsh job, because pdsh gives its commands no input. The launcher of
 * each host has a named pipe in the user's memory folder. The front opens an ssh connection to each
 * host (`shoal run --tell`), which writes a lifeline's characters into the pipe. */
#include "launcher/cluster/front_watch.h"

#include "base/log.h"
#include "comm/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAME_BYTES = 96 };

static void name_pipe(const char *job_id, int32_t node_rank, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "shoal-%.60s-pipe.%d", job_id, (int)node_rank);
}

/* ---- a host --------------------------------------------------------------------------------- */
void shoali_signal_pipe_begin(struct shoali_job *job)
{
    char name[NAME_BYTES];
    const int folder = shoali_folder_open();
    name_pipe(job->id, job->node_rank, name);
    if (folder < 0)
        return; /* then the job ends as the connection does */
    /* The end for writing keeps the pipe open between two that write. */
    if (mkfifoat(folder, name, 0600) == 0 || errno == EEXIST)
        job->signal_pipe = openat(folder, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    close(folder);
}

void shoali_signal_pipe_end(struct shoali_job *job)
{
    char name[NAME_BYTES];
    if (job->signal_pipe < 0)
        return;
    const int folder = shoali_folder_open();
    name_pipe(job->id, job->node_rank, name);
    if (folder >= 0) {
        unlinkat(folder, name, 0);
        close(folder);
    }
    close(job->signal_pipe);
    job->signal_pipe = -1;
}

shoal_status shoali_signal_pipe_send(const struct shoali_launch_options *options)
{
    char name[NAME_BYTES];
    struct stat info;
    shoal_status status = SHOAL_OK;
    const int folder = shoali_folder_open();
    int pipe = -1;
    if (!options->job_id || strchr(options->job_id, '/') || strlen(options->tell) != 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--tell is for hosts that `shoal run` starts");
        goto done;
    }
    name_pipe(options->job_id, (int32_t)options->node_rank, name);
    if (folder >= 0)
        pipe = openat(folder, name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (pipe < 0 || fstat(pipe, &info) != 0 || !S_ISFIFO(info.st_mode) ||
        write(pipe, options->tell, 1) != 1)
        status = SHOAL_FAIL(SHOAL_EIO, "job %s has no launcher on this host: %s", options->job_id,
                            strerror(errno));
done:
    if (pipe >= 0)
        close(pipe);
    if (folder >= 0)
        close(folder);
    return status;
}

/* ---- the front ------------------------------------------------------------------------------ */
static shoal_status call(struct shoali_watch *watch, int32_t index, char word)
{
    shoal_status status;
    const struct shoali_front *front = watch->front;
    struct shoali_text_list words = {.arena = front->arena}, inner = {.arena = front->arena};
    SHOAL_TRY(status, shoali_ssh_command(front, &front->world.node[index], &words), done);
    shoali_text_list_add(&inner, "%s", front->self);
    shoali_text_list_add(&inner, "run");
    shoali_text_list_add(&inner, "--tell=%c", word);
    shoali_text_list_add(&inner, "--job_id=%s", front->job_id);
    shoali_text_list_add(&inner, "--node_rank=%d", (int)index);
    shoali_remote_command(front, true, &inner, &words);
    if (words.failed || inner.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    const struct shoali_start start = {
        .words = &words, .input = -1, .output = -1, .errors = -1, .silent = true};
    SHOAL_TRY(status, shoali_start(&start, front->arena, &watch->sender[index]), done);
done:
    return status;
}

/* How many have not ended. */
static int32_t reap(struct shoali_watch *watch, bool end)
{
    int32_t count = 0;
    for (int32_t i = 0; i < watch->front->world.nodes; i++) {
        if (watch->sender[i] > 0 && end)
            kill(-watch->sender[i], SIGKILL);
        if (watch->sender[i] > 0 && waitpid(watch->sender[i], NULL, end ? 0 : WNOHANG) != 0)
            watch->sender[i] = 0;
        count += watch->sender[i] > 0;
    }
    return count;
}

void shoali_watch_signal(struct shoali_watch *watch, char word)
{
    watch->untold = reap(watch, false) > 0 ? word : '\0';
    for (int32_t i = 0; i < watch->front->world.nodes; i++)
        if (!watch->untold && call(watch, i, word) < 0)
            SHOALI_WARN("launcher", "host %s is not told of the signal: %s",
                        watch->front->world.node[i].name, shoal_error_message());
}

bool shoali_watch_signal_rest(struct shoali_watch *watch)
{
    if (watch->untold)
        shoali_watch_signal(watch, watch->untold);
    return watch->untold || reap(watch, false) > 0;
}

void shoali_watch_signal_end(struct shoali_watch *watch)
{
    if (watch->sender)
        (void)reap(watch, true);
}
