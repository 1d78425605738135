/* A store behind a TCP port. The serving process uses the table directly; the others ask.
 *
 * A message is a line "LETTER KEY BYTES\n" and BYTES of payload. Questions: P put, G get, A abort.
 * Answers (key "-"): V value, N absent, O done, F aborted or refused (payload: the sentence).
 */
#include "comm/bootstrap/store.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HOST_BYTES = 256, LINE_BYTES = 256 };

struct tcp_store {
    struct shoali_store base;
    char host[HOST_BYTES], port[8];
    struct shoali_table table;        /* served */
    struct shoali_tcp_server *server; /* NULL: a client */
    int fd;                           /* client: the connection, else -1 */
    pthread_mutex_t lock;             /* one question at a time */
};

/* Cuts "host:port"; the host may be an IPv6 address in brackets. */
static shoal_status split_where(const char *where, struct tcp_store *tcp)
{
    const char *colon = strrchr(where, ':');
    int64_t port = 0;
    size_t length = colon ? (size_t)(colon - where) : 0;
    if (length == 0 || length >= HOST_BYTES || !shoali_parse_i64(colon + 1, &port) || port < 1 ||
        port > 65535)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "\"%s\" is no HOST:PORT to meet at: set MASTER_ADDR to a host name and "
                          "MASTER_PORT to a number from 1 to 65535",
                          where);
    if (where[0] == '[' && where[length - 1] == ']') {
        where++;
        length -= 2;
    }
    memcpy(tcp->host, where, length);
    tcp->host[length] = '\0';
    snprintf(tcp->port, sizeof(tcp->port), "%d", (int)port);
    return SHOAL_OK;
}

/* One round over the host's addresses; the connected socket or -1 with errno. */
static int try_connect(const struct addrinfo *addresses)
{
    for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
        int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0)
            continue;
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) {
            int on = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return fd;
        }
        int saved = errno;
        close(fd);
        errno = saved;
    }
    return -1;
}

/* The server may start later than we do: retries until the deadline. */
static shoal_status connect_to_server(struct tcp_store *tcp, const struct shoali_store_args *args)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    const double timeout_s = args->timeout_s;
    int64_t deadline_ns = shoali_deadline_ns((int64_t)(timeout_s * 1e9));
    /* A bare container may have no hosts file; the name means this machine everywhere (RFC 6761).
     */
    const char *host = strcmp(tcp->host, "localhost") == 0 ? "127.0.0.1" : tcp->host;
    int code = getaddrinfo(host, tcp->port, &hints, &addresses);
    if (code != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot find the host \"%s\" (MASTER_ADDR): %s", tcp->host,
                          gai_strerror(code));
    shoal_status status = SHOAL_OK;
    while ((tcp->fd = try_connect(addresses)) < 0) {
        if (shoali_deadline_passed(deadline_ns)) {
            status = SHOAL_FAIL(SHOAL_ETIMEOUT,
                                "nobody answers at %s:%s within %.1f s (%s): is rank 0 running, "
                                "and are MASTER_ADDR and MASTER_PORT the same on all ranks?",
                                tcp->host, tcp->port, timeout_s, strerror(errno));
            break;
        }
        if (args->look)
            SHOAL_TRY(status, args->look(args->look_user), done);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
done:
    freeaddrinfo(addresses);
    if (status == SHOAL_OK) {
        struct timeval limit = {(time_t)timeout_s + 1, 0};
        setsockopt(tcp->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(tcp->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    }
    return status;
}

static void tcp_close(struct shoali_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    shoali_tcp_server_close(tcp->server);
    if (tcp->fd >= 0)
        close(tcp->fd);
    shoali_table_fini(&tcp->table);
    pthread_mutex_destroy(&tcp->lock);
    shoali_free(tcp);
}

static shoal_status tcp_open(const struct shoali_store_args *args, struct shoali_store **store)
{
    struct tcp_store *tcp = shoali_calloc(1, sizeof(*tcp), "a store");
    if (!tcp)
        return SHOAL_ENOMEM;
    tcp->base.kind = &shoali_store_tcp;
    tcp->fd = -1;
    shoali_table_init(&tcp->table);
    pthread_mutex_init(&tcp->lock, NULL);
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, split_where(args->where, tcp), done);
    if (args->server)
        SHOAL_TRY(status, shoali_tcp_server_open(tcp->host, tcp->port, &tcp->table, &tcp->server),
                  done);
    else
        SHOAL_TRY(status, connect_to_server(tcp, args), done);
    *store = &tcp->base;
    tcp = NULL;
done:
    if (tcp)
        tcp_close(&tcp->base);
    return status;
}

static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t bytes)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t got = recv(fd, at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Reads an answer's line; its letter, or 0 when the connection is lost. */
static char receive_line(int fd, size_t *bytes)
{
    char line[LINE_BYTES];
    size_t length = 0;
    do {
        if (length + 1 == sizeof(line) || !receive_all(fd, &line[length], 1))
            return 0;
    } while (line[length++] != '\n');
    line[length] = '\0';
    char letter = 0;
    unsigned long size = 0;
    if (sscanf(line, "%c - %lu", &letter, &size) != 2 || size > SHOALI_STORE_VALUE_BYTES)
        return 0;
    *bytes = size;
    return letter;
}

struct question {
    char letter;
    const char *key;
    const void *payload;
    size_t payload_bytes;
    void *value; /* where a value goes */
    size_t *value_bytes;
};

static shoal_status read_answer(struct tcp_store *tcp, const struct question *question)
{
    size_t bytes = 0;
    char sentence[SHOALI_STORE_SENTENCE_BYTES] = "";
    char letter = receive_line(tcp->fd, &bytes);
    if (letter == 'O')
        return SHOAL_OK;
    if (letter == 'N')
        return SHOAL_IN_PROGRESS;
    if (letter == 'F' && bytes < sizeof(sentence) && receive_all(tcp->fd, sentence, bytes))
        return SHOAL_FAIL(SHOAL_EPEER, "%s", sentence);
    if (letter == 'V' && question->value) {
        if (bytes > *question->value_bytes) {
            shutdown(tcp->fd, SHUT_RDWR); /* the value stays unread: the connection is useless */
            return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" has %zu bytes, there is room for %zu",
                              question->key, bytes, *question->value_bytes);
        }
        *question->value_bytes = bytes;
        if (receive_all(tcp->fd, question->value, bytes))
            return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_EPEER, "lost the connection to %s:%s, where the ranks meet", tcp->host,
                      tcp->port);
}

static shoal_status ask(struct tcp_store *tcp, const struct question *question)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof(line), "%c %s %zu\n", question->letter, question->key,
                          question->payload_bytes);
    pthread_mutex_lock(&tcp->lock);
    shoal_status status;
    if (send_all(tcp->fd, line, (size_t)length) &&
        send_all(tcp->fd, question->payload, question->payload_bytes))
        status = read_answer(tcp, question);
    else
        status = SHOAL_FAIL(SHOAL_EPEER, "lost the connection to %s:%s, where the ranks meet",
                            tcp->host, tcp->port);
    pthread_mutex_unlock(&tcp->lock);
    return status;
}

static shoal_status tcp_put(struct shoali_store *store, const char *key, const void *value,
                            size_t bytes)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    if (tcp->server)
        return shoali_table_put(&tcp->table, key, value, bytes);
    return ask(tcp, &(struct question){
                        .letter = 'P', .key = key, .payload = value, .payload_bytes = bytes});
}

static shoal_status tcp_get(struct shoali_store *store, const char *key, void *value, size_t *bytes)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    if (tcp->server)
        return shoali_table_get(&tcp->table, key, value, bytes);
    return ask(tcp,
               &(struct question){.letter = 'G', .key = key, .value = value, .value_bytes = bytes});
}

static void tcp_abort(struct shoali_store *store, const char *sentence)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    size_t bytes = strlen(sentence);
    if (bytes >= SHOALI_STORE_SENTENCE_BYTES)
        bytes = SHOALI_STORE_SENTENCE_BYTES - 1;
    if (tcp->server) {
        shoali_table_abort(&tcp->table, sentence);
        return;
    }
    shoal_status status = ask(
        tcp,
        &(struct question){.letter = 'A', .key = "-", .payload = sentence, .payload_bytes = bytes});
    if (status != SHOAL_OK)
        SHOALI_WARN("comm", "the other ranks cannot be told of the failure: %s",
                    shoal_error_message());
}

const struct shoali_store_kind shoali_store_tcp = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .put = tcp_put,
    .get = tcp_get,
    .abort = tcp_abort,
};
