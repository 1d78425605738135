/* The thread that answers for a table. Nothing in it waits for one peer: sockets do not block, and
 * what a connection may cost is bounded.
 *
 * A connection begins as a stranger's. It has STRANGER_NS to prove itself and sends nothing else
 * until then; there are at most STRANGERS_MAX, so that neither a flood nor a port scan takes the
 * descriptors that the training needs. One more pushes out the oldest of the network address that
 * has most of them: a rank that is hit by that (one of the same address as the flood) tries again.
 *
 * Without descriptors accept fails and leaves the connection waiting, so poll would call again at
 * once. Then the oldest stranger goes; with none, the reserve descriptor is given up for a moment,
 * the connection told why and closed, and the listener left alone for BACK_OFF_NS.
 */
#include "base/thread.h"
#include "comm/bootstrap/protocol.h"
#include "comm/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MEMBERS_MAX = 1024,
    STRANGERS_MAX = 128,
    CLIENTS_MAX = MEMBERS_MAX + STRANGERS_MAX,
    BUCKETS = 256,
    ACCEPTS_AT_ONCE = 16,
    READ_BYTES = 65536,
    STOP = 0,
    LISTENER = 1,
    FIRST_CLIENT = 2
};
#define STRANGER_NS INT64_C(3000000000)
#define BACK_OFF_NS INT64_C(50000000)

struct client {
    int64_t since_ns;
    uint8_t bucket; /* of its network address */
    struct shoali_conversation talk;
};

struct shoali_tcp_server {
    struct shoali_table *table;
    struct shoali_credentials credentials;
    struct shoali_context context; /* of the thread that opened it: its rank and logger */
    pthread_t thread;
    int stop_pipe[2];
    int reserve; /* a descriptor to give up when there are no others, -1: none left */
    int64_t listen_again_ns;
    _Atomic int trouble; /* why accept failed last, 0: it did not */
    bool warned_of_accept, warned_of_proof;
    int32_t client_count, stranger_count;
    _Atomic int32_t count, most; /* connections, for others to read */
    int32_t bucket_strangers[BUCKETS];
    unsigned char bucket_key[crypto_shorthash_KEYBYTES];
    struct pollfd watched[FIRST_CLIENT + CLIENTS_MAX];
    struct client client[CLIENTS_MAX];
    unsigned char scratch[READ_BYTES];
};

/* Where ranks have seats, who has none yet is on its way to another place. */
static bool is_stranger(const struct client *client)
{
    return client->talk.state == SHOALI_STRANGER ||
           (client->talk.state == SHOALI_MEMBER && client->talk.table->seats &&
            client->talk.seat == 0);
}

static void count_stranger(struct shoali_tcp_server *server, const struct client *client,
                           int32_t change)
{
    server->stranger_count += change;
    server->bucket_strangers[client->bucket] += change;
}

static void drop_client(struct shoali_tcp_server *server, int32_t index)
{
    if (is_stranger(&server->client[index]))
        count_stranger(server, &server->client[index], -1);
    close(server->watched[FIRST_CLIENT + index].fd);
    shoali_conversation_fini(&server->client[index].talk);
    int32_t last = --server->client_count;
    atomic_store(&server->count, last);
    server->client[index] = server->client[last];
    server->watched[FIRST_CLIENT + index] = server->watched[FIRST_CLIENT + last];
}

/* The stranger to go first, -1: there is none. */
static int32_t find_unwanted(const struct shoali_tcp_server *server)
{
    int32_t fullest = 0, found = -1;
    for (int32_t b = 1; b < BUCKETS; b++)
        if (server->bucket_strangers[b] > server->bucket_strangers[fullest])
            fullest = b;
    for (int32_t i = 0; i < server->client_count; i++) {
        const struct client *client = &server->client[i];
        if (is_stranger(client) && client->bucket == fullest &&
            (found < 0 || client->since_ns < server->client[found].since_ns))
            found = i;
    }
    return found;
}

/* A host has one IPv4 address, but as many of IPv6 as it likes in its network. */
static uint8_t bucket_of(const struct shoali_tcp_server *server,
                         const struct sockaddr_storage *address)
{
    unsigned char where[8] = {0}, hash[crypto_shorthash_BYTES];
    if (address->ss_family == AF_INET)
        memcpy(where, &((const struct sockaddr_in *)address)->sin_addr, 4);
    else if (address->ss_family == AF_INET6)
        memcpy(where, &((const struct sockaddr_in6 *)address)->sin6_addr, 8);
    crypto_shorthash(hash, where, sizeof(where), server->bucket_key);
    return hash[0];
}

static void warn_of_proof(struct shoali_tcp_server *server, const char *address)
{
    if (server->warned_of_proof)
        return;
    server->warned_of_proof = true;
    SHOALI_WARN(
        "comm",
        "a process at %s that does not know this job's secret tried to join the job (logged once)",
        address);
}

/* Sends what waits; false: the connection is lost. */
static bool send_pending(int fd, struct shoali_conversation *talk)
{
    for (;;) {
        size_t bytes;
        const void *data = shoali_conversation_pending(talk, &bytes);
        if (bytes == 0)
            return true;
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        shoali_conversation_sent(talk, (size_t)sent);
    }
}

/* Hands bytes to the conversation and sends its answers until it has none or the peer takes no
 * more; false: drop the client. */
static bool talk_on(struct shoali_tcp_server *server, int32_t index, size_t bytes)
{
    struct client *client = &server->client[index];
    struct pollfd *watched = &server->watched[FIRST_CLIENT + index];
    const bool was_stranger = is_stranger(client);
    bool goes_on = true, answered = true, more = false;
    size_t pending = 0;
    for (size_t given = bytes; goes_on && answered && !more; given = 0) {
        goes_on = shoali_store_serve_bytes(&client->talk, server->scratch, given);
        shoali_conversation_pending(&client->talk, &pending);
        answered = pending > 0;
        goes_on = send_pending(watched->fd, &client->talk) && goes_on;
        shoali_conversation_pending(&client->talk, &pending);
        more = pending > 0;
    }
    watched->events = more ? POLLOUT : POLLIN;
    if (was_stranger && !is_stranger(client))
        count_stranger(server, client, -1);
    if (client->talk.state == SHOALI_UNPROVEN)
        warn_of_proof(server, client->talk.there);
    return goes_on && server->client_count - server->stranger_count <= MEMBERS_MAX;
}

static bool receive_from(struct shoali_tcp_server *server, int32_t index)
{
    const struct pollfd *watched = &server->watched[FIRST_CLIENT + index];
    if (watched->revents & POLLOUT)
        return talk_on(server, index, 0);
    if (!(watched->revents & POLLIN))
        return false; /* an error or the end */
    size_t room = shoali_conversation_room(&server->client[index].talk);
    ssize_t got =
        recv(watched->fd, server->scratch, room < READ_BYTES ? room : READ_BYTES, MSG_DONTWAIT);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    return got > 0 && talk_on(server, index, (size_t)got);
}

static void warn_of_accept(struct shoali_tcp_server *server, int code)
{
    atomic_store(&server->trouble, code);
    if (server->warned_of_accept)
        return;
    server->warned_of_accept = true;
    SHOALI_WARN("comm",
                "cannot accept connections of other ranks: %s%s; trying again (logged once)",
                strerror(code), shoali_descriptor_advice(code));
}

/* accept failed for want of something that does not come back by itself. */
static void make_room(struct shoali_tcp_server *server, int code)
{
    unsigned char greeting[SHOALI_GREETING_BYTES];
    const int32_t stranger = find_unwanted(server);
    warn_of_accept(server, code);
    if (stranger >= 0) {
        drop_client(server, stranger);
        return;
    }
    server->listen_again_ns = shoali_now_ns() + BACK_OFF_NS;
    if (server->reserve < 0)
        return;
    close(server->reserve);
    int fd = accept4(server->watched[LISTENER].fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        shoali_refusal_make(greeting);
        ssize_t sent = send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent; /* who is not told sees the end of the connection */
        close(fd);
    }
    server->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void name_end(const struct sockaddr_storage *address, char text[SHOALI_ADDRESS_BYTES])
{
    if (getnameinfo((const struct sockaddr *)address, sizeof(*address), text, SHOALI_ADDRESS_BYTES,
                    NULL, 0, NI_NUMERICHOST) != 0)
        text[0] = '\0';
}

static void name_here(int fd, struct shoali_conversation *talk)
{
    struct sockaddr_storage here = {0};
    socklen_t length = sizeof(here);
    if (getsockname(fd, (struct sockaddr *)&here, &length) == 0)
        name_end(&here, talk->here);
}

static void welcome(struct shoali_tcp_server *server, int fd,
                    const struct sockaddr_storage *address)
{
    unsigned char nonce[SHOALI_NONCE_BYTES];
    const int on = 1;
    struct client *client = &server->client[server->client_count];
    *client = (struct client){.since_ns = shoali_now_ns(), .bucket = bucket_of(server, address)};
    if (shoali_random(nonce, sizeof(nonce)) != SHOAL_OK ||
        shoali_conversation_init(&client->talk, &server->credentials, server->table, nonce) !=
            SHOAL_OK) {
        shoali_conversation_fini(&client->talk);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    name_end(address, client->talk.there); /* a connection that has ended has no address */
    if (server->table->seats)
        name_here(fd, &client->talk);
    server->watched[FIRST_CLIENT + server->client_count] =
        (struct pollfd){.fd = fd, .events = POLLIN};
    server->client_count++;
    atomic_store(&server->count, server->client_count);
    if (server->client_count > atomic_load(&server->most))
        atomic_store(&server->most, server->client_count);
    count_stranger(server, client, 1);
    if (!send_pending(fd, &client->talk))
        drop_client(server, server->client_count - 1);
}

static void accept_clients(struct shoali_tcp_server *server)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof(address);
        if (server->stranger_count == STRANGERS_MAX)
            drop_client(server, find_unwanted(server));
        int fd = accept4(server->watched[LISTENER].fd, (struct sockaddr *)&address, &length,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            atomic_store(&server->trouble, 0);
            welcome(server, fd, &address);
            continue;
        }
        /* Without descriptors accept fails also when nobody waits; only poll knows. */
        if (i == 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            make_room(server, errno);
        return;
    }
}

/* Drops strangers whose time is over; milliseconds until there is something to do without news, -1:
 * nothing. */
static int look_at_clocks(struct shoali_tcp_server *server)
{
    const int64_t now_ns = shoali_now_ns();
    int64_t next_ns = INT64_MAX;
    for (int32_t i = server->stranger_count > 0 ? server->client_count - 1 : -1; i >= 0; i--) {
        const struct client *client = &server->client[i];
        if (!is_stranger(client))
            continue;
        if (client->since_ns + STRANGER_NS <= now_ns)
            drop_client(server, i);
        else if (client->since_ns + STRANGER_NS < next_ns)
            next_ns = client->since_ns + STRANGER_NS;
    }
    const bool rests = server->listen_again_ns > now_ns;
    server->watched[LISTENER].events = rests ? 0 : POLLIN;
    if (rests && server->listen_again_ns < next_ns)
        next_ns = server->listen_again_ns;
    return next_ns == INT64_MAX ? -1 : (int)((next_ns - now_ns) / 1000000) + 1;
}

static void *serve(void *arg)
{
    struct shoali_tcp_server *server = arg;
    *shoali_context_get() = server->context;
    for (;;) {
        const int wait_ms = look_at_clocks(server);
        int ready = poll(server->watched, (nfds_t)(FIRST_CLIENT + server->client_count), wait_ms);
        if (ready < 0 && errno != EINTR)
            return NULL;
        if (ready <= 0)
            continue;
        if (server->watched[STOP].revents)
            return NULL;
        for (int32_t i = server->client_count - 1; i >= 0; i--)
            if (server->watched[FIRST_CLIENT + i].revents && !receive_from(server, i))
                drop_client(server, i);
        if (server->watched[LISTENER].revents & POLLIN)
            accept_clients(server);
    }
}

static int listen_at_address(const struct addrinfo *address)
{
    int on = 1;
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    address->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, 1024) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* A listening socket, or -1 with errno: EADDRINUSE, EADDRNOTAVAIL, ... The first address that
 * works. */
static int listen_at(const char *host, const char *port)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses = NULL;
    int fd = -1, saved = EADDRNOTAVAIL;
    if (getaddrinfo(host, port, &hints, &addresses) != 0)
        addresses = NULL;
    for (const struct addrinfo *at = addresses; at && fd < 0 && saved != EADDRINUSE;
         at = at->ai_next) {
        fd = listen_at_address(at);
        saved = errno;
    }
    if (addresses)
        freeaddrinfo(addresses);
    errno = saved;
    return fd;
}

static shoal_status start_listening(struct shoali_tcp_server *server, const char *host,
                                    const char *port)
{
    int fd = listen_at(host, port);
    /* The address may be a router's, or another name of this machine; not with a secret that is
     * good on this machine alone. */
    if (fd < 0 && errno == EADDRNOTAVAIL && !server->credentials.this_machine)
        fd = listen_at(NULL, port);
    server->watched[LISTENER] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (fd >= 0)
        return SHOAL_OK;
    return errno == EADDRINUSE
               ? SHOAL_FAIL(SHOAL_EINVAL,
                            "port %s is already in use (MASTER_PORT): choose another with "
                            "--master_port",
                            port)
               : SHOAL_FAIL(SHOAL_EIO, "cannot listen at %s:%s (MASTER_ADDR:MASTER_PORT): %s", host,
                            port, strerror(errno));
}

shoal_status shoali_tcp_server_open(const char *host, const char *port,
                                    const struct shoali_credentials *credentials,
                                    struct shoali_table *table, struct shoali_tcp_server **out)
{
    shoal_status status = SHOAL_OK;
    int code = 0;
    struct shoali_tcp_server *server = shoali_calloc(1, sizeof(*server), "the meeting point");
    if (!server)
        return SHOAL_ENOMEM;
    server->table = table;
    server->credentials = *credentials;
    server->context = *shoali_context_get();
    server->context.scope = "";
    server->stop_pipe[0] = server->stop_pipe[1] = server->reserve = -1;
    server->watched[LISTENER].fd = -1;
    SHOAL_TRY(status, shoali_random(server->bucket_key, sizeof(server->bucket_key)), done);
    SHOAL_TRY(status, start_listening(server, host, port), done);
    server->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC); /* -1: then only the pause helps */
    if (pipe2(server->stop_pipe, O_CLOEXEC) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe: %s", strerror(errno));
        goto done;
    }
    server->watched[STOP] = (struct pollfd){.fd = server->stop_pipe[0], .events = POLLIN};
    code = shoali_thread_start(&server->thread, serve, server);
    if (code != 0) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot start a thread: %s", strerror(code));
        goto done;
    }
    *out = server;
    return SHOAL_OK;
done:
    for (int i = 0; i < 4; i++) {
        const int fds[] = {server->watched[LISTENER].fd, server->reserve, server->stop_pipe[0],
                           server->stop_pipe[1]};
        if (fds[i] >= 0)
            close(fds[i]);
    }
    shoali_credentials_wipe(&server->credentials);
    shoali_free(server);
    return status;
}

int32_t shoali_tcp_server_get_port(const struct shoali_tcp_server *server)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    if (getsockname(server->watched[LISTENER].fd, (struct sockaddr *)&address, &length) != 0)
        return -1;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

void shoali_tcp_server_count(const struct shoali_tcp_server *server, int32_t *now, int32_t *most)
{
    *now = atomic_load(&server->count);
    *most = atomic_load(&server->most);
}

int shoali_tcp_server_get_trouble(const struct shoali_tcp_server *server)
{
    return atomic_load(&server->trouble);
}

void shoali_tcp_server_close(struct shoali_tcp_server *server)
{
    if (!server)
        return;
    /* A byte, because a child that the program has forked meanwhile may keep the pipe open. */
    ssize_t written;
    do
        written = write(server->stop_pipe[1], "", 1);
    while (written < 0 && errno == EINTR);
    SHOAL_ASSERT(written == 1);
    pthread_join(server->thread, NULL);
    while (server->client_count > 0)
        drop_client(server, server->client_count - 1);
    close(server->stop_pipe[0]);
    close(server->stop_pipe[1]);
    close(server->watched[LISTENER].fd);
    if (server->reserve >= 0)
        close(server->reserve);
    shoali_credentials_wipe(&server->credentials);
    shoali_free(server);
}
