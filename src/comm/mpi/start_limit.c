#include "comm/mpi/start_limit.h"

#include "base/plain.h"
#include "base/status_page.h"
#include "base/thread.h"
#include "base/waiting.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 1000 };

struct shoali_mpi_start_limit {
    double seconds;
    int32_t rank;
    bool speaks;
    struct shoali_status_page *page; /* the rank's, NULL: none */
    int stop;                        /* readable when MPI has started */
    pthread_t thread;
};

static void *keep_limit(void *arg)
{
    const struct shoali_mpi_start_limit *limit = arg;
    struct pollfd watched = {.fd = limit->stop, .events = POLLIN};
    const int64_t deadline_ns = shoali_deadline_ns((int64_t)(limit->seconds * 1e9));
    int64_t left_ns;
    char sentence[256];
    struct shoali_waiting waiting = {0};
    while ((left_ns = deadline_ns - shoali_now_ns()) > 0) {
        const int64_t wait_ms = left_ns / 1000000 + 1;
        if (poll(&watched, 1, wait_ms > LOOK_MS ? LOOK_MS : (int)wait_ms) > 0)
            return NULL;
        if (limit->speaks && shoali_waiting_due(&waiting, NULL))
            dprintf(STDERR_FILENO,
                    "[shoal] rank %d: warning: waiting for %d s for MPI_Init: not all ranks of the "
                    "job have called it, or a host cannot be reached\n",
                    (int)limit->rank, (int)shoali_waiting_seconds(&waiting));
    }
    if (poll(&watched, 1, 0) > 0) /* it came back while this thread did not run */
        return NULL;
    shoali_snprintf(
        sentence, sizeof(sentence),
        "MPI_Init did not come back within %.1f s: not all ranks of the job called it, or a host "
        "cannot be reached; if they are only slow, raise the timeout (DEEPSPEED_TIMEOUT, in "
        "minutes)",
        limit->seconds);
    shoali_status_page_fail(limit->page, SHOAL_ETIMEOUT, sentence);
    /* Not through the sink, which may belong to the thread that waits. */
    dprintf(STDERR_FILENO, "[shoal] rank %d: %s\n", (int)limit->rank, sentence);
    _exit(1);
}

shoal_status shoali_mpi_start_limit_begin(double seconds, struct shoali_mpi_start_limit **out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_mpi_start_limit *limit = shoali_calloc(1, sizeof(*limit), "a limit of MPI_Init");
    if (!limit)
        return SHOAL_ENOMEM;
    *limit =
        (struct shoali_mpi_start_limit){.seconds = seconds,
                                        .rank = shoali_context_get()->rank,
                                        .speaks = shoali_log_enabled(SHOAL_LOG_WARNING, "comm"),
                                        .page = shoali_status_page_get(),
                                        .stop = eventfd(0, EFD_CLOEXEC)};
    if (limit->stop < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make an eventfd: %s", strerror(errno));
        goto done;
    }
    const int code = shoali_thread_start(&limit->thread, keep_limit, limit);
    if (code)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot start a thread: %s", strerror(code));
done:
    if (status < 0) {
        if (limit->stop >= 0)
            close(limit->stop);
        shoali_free(limit);
        return status;
    }
    *out = limit;
    return SHOAL_OK;
}

void shoali_mpi_start_limit_end(struct shoali_mpi_start_limit *limit)
{
    if (!limit)
        return;
    (void)!write(limit->stop, &(uint64_t){1}, sizeof(uint64_t));
    pthread_join(limit->thread, NULL);
    close(limit->stop);
    shoali_free(limit);
}
