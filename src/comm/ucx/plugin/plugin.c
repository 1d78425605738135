/* plugin - UCP's tagged messages; plugin.h says why. */
#include "comm/ucx/plugin/plugin.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ucp/api/ucp.h>

enum {
    SOURCE_BITS = 32,
    CLOSE_NS = 2000000000,
    PASSES = 16,
    AT_ONCE = 256 /* ranks of a world in which everybody is connected from the beginning */
};
static const ucp_tag_t any_source_mask = ~(((ucp_tag_t)1 << SOURCE_BITS) - 1);

struct worker;
struct peer {
    struct worker *worker;
    ucp_ep_h endpoint; /* NULL: not connected (yet) */
    void *address;     /* to connect later; NULL: none */
    bool lost;
};
struct request {
    struct request *next; /* while nobody uses it */
    struct worker *worker;
    void *pending; /* UCX's own; NULL once it is over */
    bool over;
    ucs_status_t status;
    size_t bytes;
};
struct worker {
    pthread_mutex_t lock; /* all that follows, and every call of UCX */
    ucp_context_h context;
    ucp_worker_h ucp;
    int ready; /* a descriptor that says so */
    int32_t rank, size, lost_count;
    int32_t resting; /* threads */
    uint64_t moves;
    struct request *requests;
    struct peer peer[];
};

static struct worker *worker_of(struct shoali_p2p_comm comm)
{
    return (struct worker *)(uintptr_t)comm.word;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- joining -------------------------------------------------------------------------------- */

static bool has_rdma(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
        found = entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return found;
}

/* Does the user's list (UCX_TLS) name TCP and nothing that is better? */
static bool is_tcp_alone(const char *transports)
{
    bool alone = true;
    for (const char *at = transports; *at && alone; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        alone = (length == 3 && strncmp(at, "tcp", 3) == 0) ||
                (length == 4 && strncmp(at, "self", 4) == 0);
        at += length;
    }
    return alone;
}

/* For a machine that has nothing but TCP, where the user has not said otherwise. A piece is taken
 * out of the engine's memory anyway: asking whether there is room for it (a rendezvous) only costs
 * a way to and fro. UCX 1.13 ends the process when a connection breaks amid a message that it sends
 * without a copy. */
static ucs_status_t configure_tcp(ucp_config_t *config)
{
    static const struct {
        const char *name, *variable, *value;
    } options[] = {
        {"TLS", "UCX_TLS", "tcp,self"},
        {"RNDV_THRESH", "UCX_RNDV_THRESH", "inf"},
        {"ZCOPY_THRESH", "UCX_ZCOPY_THRESH", "inf"},
        {"TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", "64kb"},
        {"RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE", "64kb"},
    };
    ucs_status_t status = UCS_OK;
    for (size_t i = 0; i < sizeof options / sizeof options[0] && status == UCS_OK; i++) {
        const char *given = getenv(options[i].variable);
        if (!given || !*given)
            status = ucp_config_modify(config, options[i].name, options[i].value);
    }
    return status;
}

static ucs_status_t open_context(struct worker *worker, const char *device, bool wanted)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = (size_t)(worker->size < AT_ONCE ? worker->size : AT_ONCE),
        .mt_workers_shared = 0};
    const char *transports = getenv("UCX_TLS");
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    if (transports && *transports ? is_tcp_alone(transports) : !has_rdma())
        status = configure_tcp(config);
    if (status == UCS_OK && device[0] && (wanted || !has_rdma()))
        status = ucp_config_modify(config, "NET_DEVICES", device);
    if (status == UCS_OK)
        status = ucp_init(&params, config, &worker->context);
    ucp_config_release(config);
    return status;
}

static void close_worker(struct worker *worker)
{
    if (worker->ucp)
        ucp_worker_destroy(worker->ucp);
    if (worker->context)
        ucp_cleanup(worker->context);
    while (worker->requests) {
        struct request *request = worker->requests;
        worker->requests = request->next;
        free(request);
    }
    for (int32_t r = 0; r < worker->size; r++)
        free(worker->peer[r].address);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

static int open_worker(int32_t rank, int32_t size, const char *device, bool wanted,
                       struct shoali_p2p_comm *comm)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                      UCP_WORKER_PARAM_FIELD_FLAGS,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                                        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK};
    struct worker *worker = calloc(1, sizeof *worker + (size_t)size * sizeof worker->peer[0]);
    comm->word = 0;
    if (!worker)
        return UCS_ERR_NO_MEMORY;
    pthread_mutex_init(&worker->lock, NULL);
    worker->rank = rank;
    worker->size = size;
    worker->ready = -1;
    for (int32_t r = 0; r < size; r++)
        worker->peer[r].worker = worker;
    ucs_status_t status = open_context(worker, device, wanted);
    if (status == UCS_OK)
        status = ucp_worker_create(worker->context, &params, &worker->ucp);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(worker->ucp, &worker->ready);
    if (status != UCS_OK)
        close_worker(worker);
    else
        comm->word = (uint64_t)(uintptr_t)worker;
    return status;
}

static int get_address(struct shoali_p2p_comm comm, void *address, size_t *bytes)
{
    struct worker *worker = worker_of(comm);
    ucp_address_t *own = NULL;
    size_t length = 0;
    pthread_mutex_lock(&worker->lock);
    ucs_status_t status = ucp_worker_get_address(worker->ucp, &own, &length);
    if (status == UCS_OK) {
        if (length <= *bytes)
            memcpy(address, own, length);
        else
            status = UCS_ERR_BUFFER_TOO_SMALL;
        *bytes = length;
        ucp_worker_release_address(worker->ucp, own);
    }
    pthread_mutex_unlock(&worker->lock);
    return status;
}

/* From within a call of UCX, so with the lock. */
static void lose(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
    struct peer *peer = user;
    (void)endpoint;
    (void)status;
    peer->worker->lost_count += !peer->lost;
    peer->lost = true;
}

static ucs_status_t connect_at(struct peer *peer, const void *address)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = lose, .arg = peer}};
    return ucp_ep_create(peer->worker->ucp, &params, &peer->endpoint);
}

/* With the lock. */
static ucs_status_t reach(struct peer *peer)
{
    if (peer->endpoint)
        return UCS_OK;
    return peer->address ? connect_at(peer, peer->address) : UCS_ERR_NOT_CONNECTED;
}

static int connect_peer(struct shoali_p2p_comm comm, int32_t rank, const void *address,
                        size_t bytes)
{
    struct worker *worker = worker_of(comm);
    struct peer *peer = &worker->peer[rank];
    ucs_status_t status = UCS_OK;
    pthread_mutex_lock(&worker->lock);
    if (worker->size <= AT_ONCE) {
        status = connect_at(peer, address);
    } else {
        free(peer->address);
        peer->address = malloc(bytes);
        if (peer->address)
            memcpy(peer->address, address, bytes);
        else
            status = UCS_ERR_NO_MEMORY;
    }
    pthread_mutex_unlock(&worker->lock);
    return status;
}

/* Everything that was sent reaches its peer first, unless that takes too long. */
static int release(struct shoali_p2p_comm *comm)
{
    struct worker *worker = worker_of(*comm);
    const int64_t deadline_ns = now_ns() + CLOSE_NS;
    pthread_mutex_lock(&worker->lock);
    for (int32_t r = 0; r < worker->size; r++) {
        struct peer *peer = &worker->peer[r];
        const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                           .flags =
                                               peer->lost ? (uint32_t)UCP_EP_CLOSE_FLAG_FORCE : 0};
        if (!peer->endpoint)
            continue;
        void *closing = ucp_ep_close_nbx(peer->endpoint, &param);
        if (!UCS_PTR_IS_PTR(closing))
            continue;
        while (ucp_request_check_status(closing) == UCS_INPROGRESS && now_ns() < deadline_ns)
            ucp_worker_progress(worker->ucp);
        ucp_request_free(closing);
    }
    pthread_mutex_unlock(&worker->lock);
    close_worker(worker);
    comm->word = 0;
    return 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* With the lock. Threads that sleep learn that this one has taken what they were to be woken
 * for. */
static unsigned move(struct worker *worker)
{
    const unsigned moved = ucp_worker_progress(worker->ucp);
    if (moved > 0 && worker->resting > 0)
        (void)ucp_worker_signal(worker->ucp);
    return moved;
}

static ucp_tag_t tag_of(int32_t tag, int32_t source)
{
    return (ucp_tag_t)(uint32_t)tag << SOURCE_BITS | (uint32_t)source;
}

static struct request *take_request(struct worker *worker)
{
    struct request *request = worker->requests;
    if (request)
        worker->requests = request->next;
    else
        request = malloc(sizeof *request);
    if (request)
        *request = (struct request){.worker = worker};
    return request;
}

static void put_request(struct request *request)
{
    request->next = request->worker->requests;
    request->worker->requests = request;
}

static void finish(struct request *own, void *pending, ucs_status_t status, size_t bytes)
{
    own->status = status;
    own->bytes = bytes;
    own->over = true;
    own->pending = NULL;
    own->worker->moves++;
    ucp_request_free(pending);
}

static void on_sent(void *pending, ucs_status_t status, void *user)
{
    finish(user, pending, status, 0);
}

static void on_received(void *pending, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *user)
{
    finish(user, pending, status, status == UCS_OK ? info->length : 0);
}

/* What UCX says of a new request; with the lock. */
static int keep(struct request *own, ucs_status_ptr_t answer, struct shoali_p2p_request *request)
{
    if (UCS_PTR_IS_ERR(answer)) {
        put_request(own);
        return UCS_PTR_STATUS(answer);
    }
    if (!own->over) { /* or it was called back before this */
        own->over = answer == NULL;
        own->pending = answer;
        own->worker->moves += own->over;
    }
    request->word = (uint64_t)(uintptr_t)own;
    return 0;
}

static int send_message(struct shoali_p2p_comm comm, const void *data, size_t bytes, int32_t to,
                        int32_t tag, struct shoali_p2p_request *request)
{
    struct worker *worker = worker_of(comm);
    int code = UCS_ERR_NO_MEMORY;
    request->word = 0;
    pthread_mutex_lock(&worker->lock);
    const ucs_status_t reached = reach(&worker->peer[to]);
    struct request *own = reached == UCS_OK ? take_request(worker) : NULL;
    if (reached != UCS_OK)
        code = reached;
    if (own) {
        const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                           UCP_OP_ATTR_FIELD_USER_DATA |
                                                           UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                           .cb.send = on_sent,
                                           .user_data = own,
                                           .memory_type = UCS_MEMORY_TYPE_HOST};
        code = keep(own,
                    ucp_tag_send_nbx(worker->peer[to].endpoint, data, bytes,
                                     tag_of(tag, worker->rank), &param),
                    request);
    }
    pthread_mutex_unlock(&worker->lock);
    return code;
}

static int receive_message(struct shoali_p2p_comm comm, void *data, size_t bytes, int32_t from,
                           int32_t tag, struct shoali_p2p_request *request)
{
    struct worker *worker = worker_of(comm);
    const bool any = from == SHOALI_P2P_ANY_SOURCE;
    int code = UCS_ERR_NO_MEMORY;
    request->word = 0;
    pthread_mutex_lock(&worker->lock);
    /* The connection tells when it breaks, also to who only listens. */
    const ucs_status_t reached = any ? UCS_OK : reach(&worker->peer[from]);
    struct request *own = reached == UCS_OK ? take_request(worker) : NULL;
    if (reached != UCS_OK)
        code = reached;
    if (own) {
        /* Always by the callback, which knows how many bytes there are. */
        const ucp_request_param_t param = {
            .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                            UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
            .cb.recv = on_received,
            .user_data = own,
            .memory_type = UCS_MEMORY_TYPE_HOST};
        code = keep(own,
                    ucp_tag_recv_nbx(worker->ucp, data, bytes, tag_of(tag, any ? 0 : from),
                                     any ? any_source_mask : ~(ucp_tag_t)0, &param),
                    request);
    }
    pthread_mutex_unlock(&worker->lock);
    return code;
}

static int test(struct shoali_p2p_request *request, bool *done, size_t *bytes)
{
    struct request *own = (struct request *)(uintptr_t)request->word;
    *done = true;
    if (bytes)
        *bytes = 0;
    if (!own)
        return 0; /* asked again after its end */
    struct worker *worker = own->worker;
    int code = 0;
    pthread_mutex_lock(&worker->lock);
    *done = own->over;
    if (own->over) {
        code = own->status;
        if (bytes)
            *bytes = own->bytes;
        put_request(own);
        request->word = 0;
    }
    pthread_mutex_unlock(&worker->lock);
    return code;
}

static void cancel(struct shoali_p2p_request *request)
{
    struct request *own = (struct request *)(uintptr_t)request->word;
    if (!own)
        return;
    struct worker *worker = own->worker;
    const int64_t deadline_ns = now_ns() + CLOSE_NS;
    pthread_mutex_lock(&worker->lock);
    if (!own->over)
        ucp_request_cancel(worker->ucp, own->pending);
    while (!own->over && now_ns() < deadline_ns)
        ucp_worker_progress(worker->ucp);
    if (own->over)
        put_request(own);
    request->word = 0;
    pthread_mutex_unlock(&worker->lock);
}

static void progress(struct shoali_p2p_comm comm)
{
    struct worker *worker = worker_of(comm);
    pthread_mutex_lock(&worker->lock);
    for (int32_t i = 0; i < PASSES && move(worker) > 0; i++)
        ;
    pthread_mutex_unlock(&worker->lock);
}

static uint64_t get_moves(struct shoali_p2p_comm comm)
{
    struct worker *worker = worker_of(comm);
    pthread_mutex_lock(&worker->lock);
    const uint64_t moves = worker->moves;
    pthread_mutex_unlock(&worker->lock);
    return moves;
}

static void rest(struct shoali_p2p_comm comm, uint64_t seen, int64_t longest_ns)
{
    struct worker *worker = worker_of(comm);
    pthread_mutex_lock(&worker->lock);
    const bool nothing =
        move(worker) == 0 && worker->moves == seen && ucp_worker_arm(worker->ucp) == UCS_OK;
    worker->resting += nothing;
    pthread_mutex_unlock(&worker->lock);
    if (!nothing)
        return;
    struct pollfd watched = {.fd = worker->ready, .events = POLLIN};
    (void)ppoll(&watched, 1, &(struct timespec){0, (long)longest_ns}, NULL);
    pthread_mutex_lock(&worker->lock);
    worker->resting--;
    pthread_mutex_unlock(&worker->lock);
}

static int32_t find_lost(struct shoali_p2p_comm comm, const int32_t *ranks, int32_t count)
{
    struct worker *worker = worker_of(comm);
    int32_t found = -1;
    pthread_mutex_lock(&worker->lock);
    for (int32_t i = 0; worker->lost_count > 0 && i < count && found < 0; i++)
        if (worker->peer[ranks[i]].lost)
            found = i;
    pthread_mutex_unlock(&worker->lock);
    return found;
}

static void describe(int code, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", ucs_status_string((ucs_status_t)code));
}

static const char *version(void)
{
    return ucp_get_version_string();
}

static const struct shoali_ucx_table table = {
    .abi = SHOALI_UCX_PLUGIN_ABI,
    .bytes = sizeof(struct shoali_ucx_table),
    .version = version,
    .open = open_worker,
    .address = get_address,
    .connect = connect_peer,
    .p2p = {.name = "UCX",
            .release = release,
            .send = send_message,
            .receive = receive_message,
            .test = test,
            .cancel = cancel,
            .describe = describe,
            .progress = progress,
            .moves = get_moves,
            .rest = rest,
            .find_lost = find_lost},
};

__attribute__((visibility("default"))) const struct shoali_ucx_table *shoali_ucx_plugin(void);

const struct shoali_ucx_table *shoali_ucx_plugin(void)
{
    return &table;
}
