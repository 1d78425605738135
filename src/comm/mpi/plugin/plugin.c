/* plugin - compiled with the mpi.h of each MPI; plugin.h says why. */
#include "comm/mpi/plugin/plugin.h"

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* MPI is one per process, and so is this. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

_Static_assert(sizeof(MPI_Comm) <= sizeof(uint64_t), "a communicator does not fit");
_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request does not fit");

static MPI_Comm comm_of(struct shoali_p2p_comm comm)
{
    MPI_Comm value;
    memcpy(&value, &comm.word, sizeof value);
    return value;
}

static MPI_Request request_of(const struct shoali_p2p_request *request)
{
    MPI_Request value;
    memcpy(&value, &request->word, sizeof value);
    return value;
}

static void keep_request(struct shoali_p2p_request *request, MPI_Request value)
{
    request->word = 0;
    memcpy(&request->word, &value, sizeof value);
}

static bool running(void)
{
    int begun = 0, ended = 0;
    return MPI_Initialized(&begun) == MPI_SUCCESS && begun &&
           MPI_Finalized(&ended) == MPI_SUCCESS && !ended;
}

#if defined(OPEN_MPI)
static void settle(void)
{
}
#else
enum { SETTLE_ROUNDS = 2, SETTLE_S = 10 };

/* MPICH over UCX, before 4.2, takes leave of every peer in MPI_Finalize and then waits in a barrier
 * of the launcher, where it answers nobody: over TCP a rank that comes a moment later waits for its
 * peers' answers for ever. So there is no leave-taking: this stands before UCX's own function for a
 * libmpich that the plug-in has loaded (not for one that the program is linked with), and says that
 * it is done. After `settle` nothing is under way; MPI_Finalize closes the connections with the
 * worker. */
__attribute__((visibility("default"))) void *ucp_disconnect_nb(void *endpoint);
void *ucp_disconnect_nb(void *endpoint)
{
    (void)endpoint;
    return NULL; /* UCS_OK */
}

/* What a rank has sent lies with its peers after the first barrier. So the second one's messages
 * find empty sockets, and have left when it is over. */
static void settle(void)
{
    const double until = MPI_Wtime() + SETTLE_S;
    for (int round = 0; round < SETTLE_ROUNDS; round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        int done = 0;
        if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS)
            return;
        while (!done && MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            if (MPI_Wtime() > until)
                return;
    }
}
#endif

/* A parent of `shoal run` tells the front why the rank has failed, and its own end makes mpirun end
 * the others; Hydra would kill it first. */
static bool has_parent(void)
{
    const char *name = getenv("SHOAL_LAUNCHER");
    return name && *name;
}

/* For the launcher to pass on the rank's last words: Hydra, told to end the job at once, drops what
 * it has not read of them in one job of twenty. */
enum { FORWARD_MS = 100 };

/* A rank that ends with an error has said why; MPI ends those that would wait for it. */
static void end_with_process(int code, void *unused)
{
    (void)unused;
    if (!running())
        return;
    if (code == 0) {
        settle();
        MPI_Finalize();
    } else if (!has_parent()) {
        (void)fflush(stderr);
        nanosleep(&(struct timespec){.tv_nsec = FORWARD_MS * 1000000}, NULL);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
}

/* Open MPI writes to sockets of ranks that are gone without MSG_NOSIGNAL. The signal would end this
 * rank before it can say which rank is gone, and the launcher would blame this one. */
static void survive_broken_pipes(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
        now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

static int start(bool *serialized)
{
    int level = MPI_THREAD_SINGLE, code = MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    if (running()) {
        code = MPI_Query_thread(&level);
    } else {
        survive_broken_pipes();
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code == MPI_SUCCESS && on_exit(end_with_process, NULL) != 0)
            code = MPI_ERR_NO_MEM;
    }
    *serialized = level >= MPI_THREAD_SERIALIZED;
    pthread_mutex_unlock(&lock);
    return code;
}

static bool is_main_thread(void)
{
    int is_main = 0;
    pthread_mutex_lock(&lock);
    const int code = MPI_Is_thread_main(&is_main);
    pthread_mutex_unlock(&lock);
    return code == MPI_SUCCESS && is_main;
}

static int duplicate(bool world, int32_t handle, struct shoali_p2p_comm *out,
                     struct shoali_p2p_request *request)
{
    pthread_mutex_lock(&lock);
    const MPI_Comm from = world ? MPI_COMM_WORLD : MPI_Comm_f2c((MPI_Fint)handle);
    MPI_Request value = MPI_REQUEST_NULL;
    int inter = 0;
    /* Written when the request is over, so that it has to be where the caller keeps it. */
    out->word = 0;
    int code = from == MPI_COMM_NULL ? MPI_ERR_COMM : MPI_Comm_test_inter(from, &inter);
    if (code == MPI_SUCCESS && inter)
        code = MPI_ERR_COMM;
    if (code == MPI_SUCCESS)
        code = MPI_Comm_idup(from, (MPI_Comm *)(void *)&out->word, &value);
    keep_request(request, value);
    pthread_mutex_unlock(&lock);
    return code;
}

static int ready(struct shoali_p2p_comm comm, int32_t *rank, int32_t *size, int32_t *largest_tag)
{
    const MPI_Comm from = comm_of(comm);
    int own = 0, all = 0, has_bound = 0, *bound = NULL;
    pthread_mutex_lock(&lock);
    int code = MPI_Comm_set_errhandler(from, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(from, &own);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(from, &all);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&bound, &has_bound);
    pthread_mutex_unlock(&lock);
    *rank = own;
    *size = all;
    *largest_tag = has_bound && bound ? *bound : 32767;
    return code;
}

static int release(struct shoali_p2p_comm *comm)
{
    MPI_Comm value = comm_of(*comm);
    pthread_mutex_lock(&lock);
    const int code = running() ? MPI_Comm_free(&value) : MPI_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

static int send(struct shoali_p2p_comm comm, const void *data, size_t bytes, int32_t to,
                int32_t tag, struct shoali_p2p_request *request)
{
    MPI_Request value = MPI_REQUEST_NULL;
    pthread_mutex_lock(&lock);
    const int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, comm_of(comm), &value);
    keep_request(request, value);
    pthread_mutex_unlock(&lock);
    return code;
}

static int receive(struct shoali_p2p_comm comm, void *data, size_t bytes, int32_t from, int32_t tag,
                   struct shoali_p2p_request *request)
{
    MPI_Request value = MPI_REQUEST_NULL;
    pthread_mutex_lock(&lock);
    const int code =
        MPI_Irecv(data, (int)bytes, MPI_BYTE, from == SHOALI_P2P_ANY_SOURCE ? MPI_ANY_SOURCE : from,
                  tag, comm_of(comm), &value);
    keep_request(request, value);
    pthread_mutex_unlock(&lock);
    return code;
}

static int test(struct shoali_p2p_request *request, bool *done, size_t *bytes)
{
    MPI_Request value = request_of(request);
    MPI_Status status;
    int is_done = 0, count = 0;
    pthread_mutex_lock(&lock);
    const int code = MPI_Test(&value, &is_done, &status);
    if (code == MPI_SUCCESS && is_done && bytes)
        MPI_Get_count(&status, MPI_BYTE, &count);
    keep_request(request, value);
    pthread_mutex_unlock(&lock);
    *done = is_done != 0;
    if (bytes)
        *bytes = count > 0 ? (size_t)count : 0;
    return code;
}

static void cancel(struct shoali_p2p_request *request)
{
    MPI_Request value = request_of(request);
    pthread_mutex_lock(&lock);
    if (value != MPI_REQUEST_NULL && running() && MPI_Cancel(&value) == MPI_SUCCESS)
        MPI_Wait(&value, MPI_STATUS_IGNORE);
    keep_request(request, MPI_REQUEST_NULL);
    pthread_mutex_unlock(&lock);
}

static void describe(int code, char *text, size_t bytes)
{
    char own[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, own, &length) != MPI_SUCCESS)
        snprintf(own, sizeof own, "error %d", code);
    snprintf(text, bytes, "%s", own);
}

#if defined(OPEN_MPI)
#define NAME "Open MPI"
#else
#define NAME "MPICH"
#endif

static const struct shoali_mpi_table table = {
    .abi = SHOALI_MPI_PLUGIN_ABI,
    .bytes = sizeof(struct shoali_mpi_table),
    .start = start,
    .running = running,
    .is_main_thread = is_main_thread,
    .duplicate = duplicate,
    .ready = ready,
    .p2p = {.name = NAME,
            .release = release,
            .send = send,
            .receive = receive,
            .test = test,
            .cancel = cancel,
            .describe = describe},
};

__attribute__((visibility("default"))) const struct shoali_mpi_table *shoali_mpi_plugin(void);

/* A function, not the table itself: `report` loads both plug-ins, and AddressSanitizer takes two
 * objects of one name for a mistake. */
const struct shoali_mpi_table *shoali_mpi_plugin(void)
{
    return &table;
}
