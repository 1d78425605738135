/* The thread that answers for a table. A client that sends nonsense is dropped, nothing more. */
#include "comm/bootstrap/store.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_MAX = 1024, LINE_BYTES = 256, INBOX_BYTES = LINE_BYTES + SHOALI_STORE_VALUE_BYTES };

struct client {
    size_t used;
    char *inbox; /* [INBOX_BYTES] */
};

struct shoali_tcp_server {
    struct shoali_table *table;
    pthread_t thread;
    int stop_pipe[2];
    int32_t client_count;
    struct pollfd watched[CLIENTS_MAX + 2]; /* 0: stop pipe, 1: listener, then the clients */
    struct client client[CLIENTS_MAX];
    char value[SHOALI_STORE_VALUE_BYTES];
};

static bool send_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        data += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool reply(int fd, char letter, const char *payload, size_t bytes)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof(line), "%c - %zu\n", letter, bytes);
    return send_all(fd, line, (size_t)length) && send_all(fd, payload, bytes);
}

static bool answer(struct shoali_tcp_server *server, int fd, char letter, const char *key,
                   const char *payload, size_t bytes)
{
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
    size_t size = sizeof(server->value);
    shoal_status status = SHOAL_OK;
    if (letter == 'A' && bytes < sizeof(sentence)) {
        memcpy(sentence, payload, bytes);
        sentence[bytes] = '\0';
        shoali_table_abort(server->table, sentence);
    } else if (letter == 'P') {
        status = shoali_table_put(server->table, key, payload, bytes);
    } else if (letter == 'G') {
        status = shoali_table_get(server->table, key, server->value, &size);
        if (status == SHOAL_OK)
            return reply(fd, 'V', server->value, size);
    } else {
        return false;
    }
    if (status < 0) {
        snprintf(sentence, sizeof(sentence), "%s", shoal_error_message());
        return reply(fd, 'F', sentence, strlen(sentence));
    }
    return reply(fd, status == SHOAL_IN_PROGRESS ? 'N' : 'O', "", 0);
}

/* Answers all complete questions in the inbox; false: drop the client. */
static bool serve_inbox(struct shoali_tcp_server *server, int fd, struct client *client)
{
    for (;;) {
        char *newline = memchr(client->inbox, '\n', client->used);
        if (!newline)
            return client->used < LINE_BYTES;
        char letter = 0, key[LINE_BYTES] = "";
        unsigned long bytes = 0;
        size_t line = (size_t)(newline - client->inbox) + 1;
        if (line >= LINE_BYTES)
            return false;
        *newline = '\0';
        int fields = sscanf(client->inbox, "%c %255s %lu", &letter, key, &bytes);
        *newline = '\n';
        if (fields != 3 || bytes > SHOALI_STORE_VALUE_BYTES ||
            strlen(key) >= SHOALI_STORE_KEY_BYTES)
            return false;
        if (client->used < line + bytes)
            return true;
        if (!answer(server, fd, letter, key, client->inbox + line, bytes))
            return false;
        client->used -= line + bytes;
        memmove(client->inbox, client->inbox + line + bytes, client->used);
    }
}

static void drop_client(struct shoali_tcp_server *server, int32_t index)
{
    close(server->watched[2 + index].fd);
    free(server->client[index].inbox);
    int32_t last = --server->client_count;
    server->client[index] = server->client[last];
    server->watched[2 + index] = server->watched[2 + last];
}

static void read_client(struct shoali_tcp_server *server, int32_t index)
{
    struct client *client = &server->client[index];
    int fd = server->watched[2 + index].fd;
    ssize_t got = recv(fd, client->inbox + client->used, INBOX_BYTES - client->used, 0);
    if (got < 0 && errno == EINTR)
        return;
    if (got > 0) {
        client->used += (size_t)got;
        if (serve_inbox(server, fd, client))
            return;
    }
    drop_client(server, index);
}

static void accept_client(struct shoali_tcp_server *server)
{
    int fd = accept4(server->watched[1].fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    char *inbox = server->client_count < CLIENTS_MAX ? malloc(INBOX_BYTES) : NULL;
    if (!inbox) {
        close(fd);
        return;
    }
    int on = 1;
    struct timeval limit = {5,
                            0}; /* a client that does not read its answer stops nobody for long */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    server->client[server->client_count] = (struct client){.inbox = inbox};
    server->watched[2 + server->client_count] = (struct pollfd){.fd = fd, .events = POLLIN};
    server->client_count++;
}

static void *serve(void *arg)
{
    struct shoali_tcp_server *server = arg;
    for (;;) {
        int ready = poll(server->watched, (nfds_t)(2 + server->client_count), -1);
        if (ready < 0 && errno != EINTR)
            return NULL;
        if (ready <= 0)
            continue;
        if (server->watched[0].revents)
            return NULL;
        for (int32_t i = server->client_count - 1; i >= 0; i--)
            if (server->watched[2 + i].revents)
                read_client(server, i);
        if (server->watched[1].revents)
            accept_client(server);
    }
}

static int listen_at_address(const struct addrinfo *address)
{
    int on = 1;
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol);
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

/* Signals belong to the program's own threads. */
static int start_thread(struct shoali_tcp_server *server)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}

shoal_status shoali_tcp_server_open(const char *host, const char *port, struct shoali_table *table,
                                    struct shoali_tcp_server **out)
{
    shoal_status status = SHOAL_OK;
    int fd = -1, code = 0;
    struct shoali_tcp_server *server = shoali_calloc(1, sizeof(*server), "the meeting point");
    if (!server)
        return SHOAL_ENOMEM;
    server->table = table;
    server->stop_pipe[0] = server->stop_pipe[1] = -1;
    fd = listen_at(host, port);
    if (fd < 0 && errno == EADDRNOTAVAIL)
        fd = listen_at(NULL, port); /* the address is a router's or another name of this machine */
    if (fd < 0) {
        status = errno == EADDRINUSE
                     ? SHOAL_FAIL(SHOAL_EINVAL,
                                  "port %s is already in use (MASTER_PORT): choose another with "
                                  "--master_port",
                                  port)
                     : SHOAL_FAIL(SHOAL_EIO, "cannot listen at %s:%s (MASTER_ADDR:MASTER_PORT): %s",
                                  host, port, strerror(errno));
        goto done;
    }
    if (pipe2(server->stop_pipe, O_CLOEXEC) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe: %s", strerror(errno));
        goto done;
    }
    server->watched[0] = (struct pollfd){.fd = server->stop_pipe[0], .events = POLLIN};
    server->watched[1] = (struct pollfd){.fd = fd, .events = POLLIN};
    code = start_thread(server);
    if (code != 0) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot start a thread: %s", strerror(code));
        goto done;
    }
    *out = server;
    return SHOAL_OK;
done:
    if (fd >= 0)
        close(fd);
    for (int i = 0; i < 2; i++)
        if (server->stop_pipe[i] >= 0)
            close(server->stop_pipe[i]);
    shoali_free(server);
    return status;
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
    close(server->stop_pipe[0]);
    close(server->stop_pipe[1]);
    close(server->watched[1].fd);
    while (server->client_count > 0)
        drop_client(server, server->client_count - 1);
    shoali_free(server);
}
