#include "comm_ranks.h"

#include "comm/hierarchical/hierarchical.h"
#include "comm/thread/thread.h"
#include "comm/ucx/ucx.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 256, WATCHDOG_S = 100 };

const char *ranks_kind_name(enum ranks_kind kind)
{
    static const char *const names[] = {"self", "thread", "thread", "shm", "mpi", "ucx"};
    return names[kind];
}

/* Looked for in a process of its own: what a plug-in brings along must not be there before ranks
 * are forked. */
bool ranks_kind_is_there(enum ranks_kind kind)
{
    int code = 0;
    if (kind != RANKS_UCX)
        return true;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        char text[64];
        shoali_ucx_list(text, sizeof(text));
        _exit(strcmp(text, "none") == 0 ? 1 : 0);
    }
    if (pid < 0 || waitpid(pid, &code, 0) != pid)
        abort();
    if (code != 0)
        fprintf(stderr, "skipped: no plug-in for UCX that loads (built where libucx-dev is)\n");
    return code == 0;
}

int32_t ranks_keep_port(int *keeper)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        bind(fd, (struct sockaddr *)&address, length) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        abort();
    *keeper = fd;
    return ntohs(address.sin_port);
}

shoal_comm_args ranks_args(const struct ranks *ranks, int32_t rank)
{
    return (shoal_comm_args){.rank = rank,
                             .world_size = ranks->size,
                             .backend = ranks_kind_name(ranks->kind),
                             .master_addr = "127.0.0.1",
                             .master_port = ranks->port,
                             .timeout_s = ranks->timeout_s,
                             .threads = ranks->threads,
                             .no_check = ranks->no_check};
}

static bool run_rank(const struct ranks *ranks, int32_t rank)
{
    struct rank_seat own = {.ranks = ranks, .rank = rank, .size = ranks->size}, *seat = &own;
    int32_t host[RANKS_MAX];
    if (shoali_hierarchical_is_pretended() && ranks->kind != RANKS_SELF) {
        seat->host = host;
        EXPECT(shoali_hier_pretend(getenv("SHOAL_PRETEND_HOSTS"), ranks->size, host) == SHOAL_OK);
    }
    if (!ranks->bare) {
        shoal_comm_args args = ranks_args(ranks, rank);
        EXPECT(shoal_comm_init(&args, &seat->group) == SHOAL_OK);
    }
    bool passed = ranks->run(seat);
    if (!passed && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL); /* or the others wait for us */
    shoal_comm_destroy(seat->group);
    return passed;
}

struct thread_rank {
    const struct ranks *ranks;
    int32_t rank;
    bool passed;
    pthread_t thread;
};

static void *thread_main(void *arg)
{
    struct thread_rank *own = arg;
    own->passed = run_rank(own->ranks, own->rank);
    return NULL;
}

static bool run_threads(struct ranks *ranks)
{
    struct thread_rank threads[RANKS_MAX];
    bool passed = true;
    shoal_status status = SHOAL_OK;
    if (ranks->kind == RANKS_THREAD)
        status = shoal_thread_world_create(ranks->size, &ranks->threads);
    if (ranks->kind == RANKS_APART)
        status = shoali_thread_world_create_apart(ranks->size, &ranks->threads);
    if (status != SHOAL_OK)
        return false;
    for (int32_t r = 0; r < ranks->size; r++) {
        threads[r] = (struct thread_rank){.ranks = ranks, .rank = r};
        if (pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]) != 0)
            abort();
    }
    for (int32_t r = 0; r < ranks->size; r++) {
        pthread_join(threads[r].thread, NULL);
        passed &= threads[r].passed;
    }
    shoal_thread_world_destroy(ranks->threads);
    ranks->threads = NULL;
    return passed;
}

static bool run_processes(struct ranks *ranks)
{
    pid_t pids[RANKS_MAX];
    bool passed = true;
    int keeper;
    ranks->port = ranks_keep_port(&keeper);
    fflush(NULL);
    for (int32_t r = 0; r < ranks->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(WATCHDOG_S);
            bool ok = run_rank(ranks, r);
            fflush(NULL);
            _exit(ok ? 0 : 1);
        }
    }
    for (int32_t r = 0; r < ranks->size; r++) {
        int code = 0;
        if (pids[r] < 0 || waitpid(pids[r], &code, 0) != pids[r])
            abort();
        bool as_planned = WIFEXITED(code) && WEXITSTATUS(code) == 0;
        if (ranks->killed > 0 && r == ranks->killed)
            as_planned = WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL;
        if (!as_planned)
            fprintf(stderr, "rank %d of %d ended with wait status 0x%x\n", (int)r, (int)ranks->size,
                    (unsigned)code);
        passed &= as_planned;
    }
    close(keeper);
    return passed;
}

int32_t ranks_job_size(void)
{
    return (int32_t)shoali_started_get().size;
}

/* A rank of an MPI job is through with a test before others are, which may sleep in it for longer
 * than the deadlines of the next one. Joining is no barrier: rank 0 may be through before the
 * others come. */
static bool run_in_job(struct ranks *ranks)
{
    const int32_t rank = (int32_t)shoali_started_get().rank;
    const struct rank_seat own = {.ranks = ranks, .rank = rank, .size = ranks->size}, *seat = &own;
    shoal_comm_args args = ranks_args(ranks, rank);
    shoal_group *meeting = NULL;
    args.timeout_s = WATCHDOG_S;
    alarm(2 * WATCHDOG_S);
    EXPECT(shoal_comm_init(&args, &meeting) == SHOAL_OK);
    EXPECT(shoal_barrier(meeting) == SHOAL_OK);
    shoal_comm_destroy(meeting);
    return run_rank(ranks, rank);
}

bool ranks_run(struct ranks *ranks)
{
    if (ranks->timeout_s == 0)
        ranks->timeout_s = 30;
    if (ranks->kind == RANKS_MPI)
        return run_in_job(ranks);
    return ranks->kind == RANKS_SHM || ranks->kind == RANKS_UCX ? run_processes(ranks)
                                                                : run_threads(ranks);
}
