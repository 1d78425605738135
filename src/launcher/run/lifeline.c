/* Characters from the front to a node:
 *
 *   .          still here, once a second
 *   T I H      the user stopped the front with SIGTERM, SIGINT, SIGHUP: stop, with the grace period
 *   U          SIGUSR1, which is the ranks'
 *   F          the job has failed on another host: stop at once
 *
 * With pdsh none come but those of cluster/signal_hosts.c. A parent of a rank of Open MPI's or
 * Slurm's receives T, I and H. For both, answers.c finds out whether the connection is gone. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static const struct {
    char word;
    int signal;
} words[] = {{'T', SIGTERM}, {'I', SIGINT}, {'H', SIGHUP}, {'U', SIGUSR1}};

char shoali_lifeline_word(int signal)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i].signal == signal)
            return words[i].word;
    return 'T';
}

void shoali_lifeline_begin(struct shoali_job *job, int descriptor)
{
    job->lifeline = descriptor;
    /* With the connection its output is gone, too: words to nobody must not end the launcher before
     * its ranks have had their time. */
    signal(SIGPIPE, SIG_IGN);
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    job->lifeline_end_ns = INT64_MAX;
}

/* With the connection the reader of what is said may be gone. A full pipe must keep neither the
 * launcher nor its ranks. */
static void mute(void)
{
    struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0 && poll(&output, 1, 0) == 0) {
        dup2(nothing, STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
    }
    if (nothing >= 0)
        close(nothing);
}

void shoali_lifeline_lose(struct shoali_job *job, const char *how)
{
    job->lifeline = -1;
    job->lifeline_end_ns = INT64_MAX;
    mute();
    if (!job->stop_signal && !job->failed_elsewhere) {
        job->cut_off = true;
        SHOALI_ERROR("launcher", "%s: the connection to the launcher of the job %s", job->host,
                     how);
        job->stop_signal = SIGHUP;
    }
}

static int take_word(struct shoali_job *job, char word)
{
    int signal = 0;
    if (!job->of_mpi && job->signal_pipe < 0) /* there are no beats between words */
        job->lifeline_end_ns = shoali_deadline_ns(job->host_silence_ns);
    if (word == 'F') {
        job->failed_elsewhere = true;
        job->impatient = job->impatient || job->stop_signal;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i].word == word)
            signal = words[i].signal;
    if (signal == SIGUSR1 || signal == 0)
        return signal;
    if (job->stop_signal || (job->culprit >= 0 && !job->of_mpi)) /* its culprit is its rank */
        job->impatient = true;
    else
        job->stop_signal = signal;
    return 0;
}

/* Takes what has come; the result of the last read. */
static ssize_t receive_all(struct shoali_job *job, int descriptor, int *pass_on)
{
    char text[64];
    ssize_t count;
    while ((count = read(descriptor, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < count; i++) {
            const int signal = take_word(job, text[i]);
            *pass_on = signal ? signal : *pass_on;
        }
    return count;
}

/* The signal that the ranks are to get, 0: none. */
int shoali_lifeline_receive(struct shoali_job *job)
{
    int pass_on = 0;
    if (job->signal_pipe >= 0)
        (void)receive_all(job, job->signal_pipe, &pass_on);
    if (job->lifeline < 0)
        return pass_on;
    const ssize_t count = receive_all(job, job->lifeline, &pass_on);
    const bool ended = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    if (ended && job->of_mpi) /* its mpirun gives it no input */
        job->lifeline = -1;
    else if (ended)
        shoali_lifeline_lose(job, "is gone");
    else if (shoali_deadline_passed(job->lifeline_end_ns))
        shoali_lifeline_lose(job, SHOALI_LIFELINE_SILENT);
    return pass_on;
}
