/* Characters from the front to a node:
 *
 *   .          still here, once a second
 *   T I H      the user stopped the front with SIGTERM, SIGINT, SIGHUP: stop, with the grace period
 *   U          SIGUSR1, which is the ranks'
 *   F          the job has failed on another host: stop at once
 *
 * With pdsh none come. */
#include "launcher/cluster.h"

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

static void lose(struct shoali_job *job, const char *how)
{
    job->lifeline = -1;
    job->lifeline_end_ns = INT64_MAX;
    if (!job->stop_signal && !job->failed_elsewhere) {
        SHOALI_ERROR("launcher", "%s: the connection to the launcher of the job %s", job->host,
                     how);
        job->stop_signal = SIGHUP;
    }
}

static int hear(struct shoali_job *job, char word)
{
    int signal = 0;
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
    if (job->stop_signal || job->culprit >= 0)
        job->impatient = true;
    else
        job->stop_signal = signal;
    return 0;
}

/* The signal that the ranks are to get, 0: none. */
int shoali_lifeline_hear(struct shoali_job *job)
{
    char text[64];
    int pass_on = 0;
    ssize_t count = -1;
    if (job->lifeline < 0)
        return 0;
    while ((count = read(job->lifeline, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < count; i++) {
            const int signal = hear(job, text[i]);
            pass_on = signal ? signal : pass_on;
        }
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
        lose(job, "is gone");
    else if (shoali_deadline_passed(job->lifeline_end_ns))
        lose(job, "has been silent for too long (--host_timeout)");
    return pass_on;
}
