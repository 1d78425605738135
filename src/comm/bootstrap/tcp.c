/* A store behind a TCP port. The serving process uses the table directly; the others ask, in the
 * words of protocol.h. */
#include "comm/bootstrap/protocol.h"
#include "comm/bootstrap/tree.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HOST_BYTES = 256, WHY_BYTES = 512 };
#define ATTEMPT_NS INT64_C(5000000000)       /* for who answers to let us in */
#define AGAIN_NS INT64_C(2000000)            /* while nobody answers */
#define AGAIN_AT_OTHERS_NS INT64_C(20000000) /* while who answers does not let us in */
#define LEAVE_NS INT64_C(100000000)
#define SILENCE_NS INT64_C(5000000000) /* before the user hears what is waited for */

struct tcp_store {
    struct shoali_store base;
    char host[HOST_BYTES], port[8];
    struct shoali_credentials credentials;
    struct shoali_table table;        /* served */
    struct shoali_tcp_server *server; /* NULL: a client */
    /* client, one question at a time: */
    pthread_mutex_t lock;
    int fd;    /* -1: no connection */
    bool lost; /* the connection was good once */
    struct shoali_session session;
    unsigned char message[SHOALI_MESSAGE_BYTES];
};

/* Cuts "host:port"; the host may be an IPv6 address in brackets. */
static shoal_status split_where(const char *where, bool any_port, struct tcp_store *tcp)
{
    const char *colon = strrchr(where, ':');
    int64_t port = 0;
    size_t length = colon ? (size_t)(colon - where) : 0;
    if (length == 0 || length >= HOST_BYTES || !shoali_parse_i64(colon + 1, &port) ||
        port < (any_port ? 0 : 1) || port > 65535)
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

/* Waits until the socket is ready; false, with ETIMEDOUT, at the deadline. */
static bool await(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd watched = {.fd = fd, .events = events};
        const int64_t left_ms = (deadline_ns - shoali_now_ns() + 999999) / 1000000;
        if (left_ms <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
        int ready = poll(&watched, 1, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

/* False: the connection is lost, or the deadline has passed (ETIMEDOUT). */
static bool send_all(int fd, const void *data, size_t bytes, int64_t deadline_ns)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!await(fd, POLLOUT, deadline_ns))
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* At least one byte and at most `bytes`; 0: the connection is lost, or ETIMEDOUT. */
static size_t receive(int fd, void *data, size_t bytes, int64_t deadline_ns)
{
    for (;;) {
        ssize_t got = recv(fd, data, bytes, 0);
        if (got > 0)
            return (size_t)got;
        if (got == 0) {
            errno = ECONNRESET;
            return 0;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!await(fd, POLLIN, deadline_ns))
                return 0;
        } else if (errno != EINTR) {
            return 0;
        }
    }
}

static bool receive_all(int fd, void *data, size_t bytes, int64_t deadline_ns)
{
    for (size_t used = 0; used < bytes;) {
        size_t got = receive(fd, (char *)data + used, bytes - used, deadline_ns);
        if (got == 0)
            return false;
        used += got;
    }
    return true;
}

/* Where nobody listens yet at a port that the system gives to clients, too, a socket may be given that very
 * port and meet itself. It would keep it from rank 0, and so would its rest: it ends without one. */
static bool is_itself(int fd)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_bytes) == 0 &&
           here_bytes == there_bytes && memcmp(&here, &there, here_bytes) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0;
}

/* The connected socket, which does not block, or -1 with errno. */
static int connect_to(const struct addrinfo *at, int64_t deadline_ns)
{
    int code = 0;
    const int on = 1;
    socklen_t length = sizeof(code);
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0)
        return -1;
    /* Or a socket that meets itself keeps the port for that moment. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        code = errno;
    if (code == EINPROGRESS && (!await(fd, POLLOUT, deadline_ns) ||
                                getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0))
        code = errno;
    if (code == 0 && is_itself(fd))
        code = ECONNREFUSED;
    if (code == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return fd;
    }
    close(fd);
    errno = code;
    return -1;
}

/* Why who answers has not let us in, as a sentence. */
static void explain(const struct tcp_store *tcp, enum shoali_greeting greeting, char *why)
{
    static const char *const texts[][2] = {
        [SHOALI_GREETED] = {"", ""},
        [SHOALI_NO_DESCRIPTORS] = {"rank 0 has no file descriptors left to let anybody in at",
                                   "raise its limit with `ulimit -n`"},
        [SHOALI_OTHER_JOB] = {"another job meets at",
                              "choose another port with --master_port (MASTER_PORT)"},
        [SHOALI_OTHER_VERSION] = {"another version of Shoal answers at",
                                  "start all ranks with the same one"},
        [SHOALI_NO_STORE] = {"something that is not Shoal answers at",
                             "choose another port with --master_port (MASTER_PORT)"},
    };
    snprintf(why, WHY_BYTES, "%s %s:%s: %s", texts[greeting][0], tcp->host, tcp->port,
             texts[greeting][1]);
}

static shoal_status fail_of_secret(const struct tcp_store *tcp, const char *what)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s at %s:%s: SHOAL_SECRET or SHOAL_SECRET_FILE must be the same on all "
                      "ranks, or set on none of them when one user starts all on one machine",
                      what, tcp->host, tcp->port);
}

/* Proves itself to who answers and has him do the same; SHOAL_IN_PROGRESS: not this time, for the
 * reason in `why`. */
static shoal_status introduce(struct tcp_store *tcp, int64_t deadline_ns, char *why)
{
    unsigned char greeting[SHOALI_GREETING_BYTES], nonce[SHOALI_NONCE_BYTES];
    unsigned char proof[SHOALI_PROOF_BYTES], expected[SHOALI_MAC_BYTES], answer[SHOALI_MAC_BYTES];
    const unsigned char denial[SHOALI_MAC_BYTES] = {0};
    shoal_status status = SHOAL_OK;
    enum shoali_greeting heard;
    if (!receive_all(tcp->fd, greeting, sizeof(greeting), deadline_ns))
        goto lost;
    heard = shoali_greeting_read(greeting, &tcp->credentials);
    if (heard != SHOALI_GREETED) {
        explain(tcp, heard, why);
        return SHOAL_IN_PROGRESS;
    }
    SHOAL_TRY(status, shoali_random(nonce, sizeof(nonce)), done);
    shoali_proof_make(greeting, nonce, &tcp->credentials, proof, expected, &tcp->session);
    if (!send_all(tcp->fd, proof, sizeof(proof), deadline_ns) ||
        !receive_all(tcp->fd, answer, sizeof(answer), deadline_ns))
        goto lost;
    if (shoali_mac_equal(answer, denial))
        status = fail_of_secret(tcp, "this rank does not have the secret of rank 0");
    else if (!shoali_mac_equal(answer, expected))
        status = fail_of_secret(tcp, "somebody who does not know this job's secret answers");
done:
    return status;
lost:
    snprintf(why, WHY_BYTES, "who answers at %s:%s %s (%s): is it rank 0, and does it run?",
             tcp->host, tcp->port,
             errno == ETIMEDOUT ? "lets nobody in" : "ends connections before it lets anybody in",
             strerror(errno));
    return SHOAL_IN_PROGRESS;
}

/* One attempt at the host's addresses. SHOAL_IN_PROGRESS: later; *answered: somebody was there. */
static shoal_status try_join(struct tcp_store *tcp, const struct addrinfo *addresses,
                             int64_t deadline_ns, bool *answered, char *why)
{
    const int64_t own_ns = shoali_deadline_ns(ATTEMPT_NS);
    const int64_t end_ns = own_ns < deadline_ns ? own_ns : deadline_ns;
    int code = EADDRNOTAVAIL;
    *answered = false;
    for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
        tcp->fd = connect_to(at, end_ns);
        code = tcp->fd < 0 ? errno : code;
        if (tcp->fd < 0)
            continue;
        *answered = true;
        shoal_status status = introduce(tcp, end_ns, why);
        if (status == SHOAL_OK)
            return status;
        close(tcp->fd);
        tcp->fd = -1;
        return status;
    }
    snprintf(why, WHY_BYTES,
             "nobody answers at %s:%s (%s): is rank 0 running, and are MASTER_ADDR and MASTER_PORT "
             "the same on all ranks?",
             tcp->host, tcp->port, strerror(code));
    return SHOAL_IN_PROGRESS;
}

/* The server may start later than we do, and another job may be through with the port soon: tries
 * until the deadline. */
static shoal_status join_server(struct tcp_store *tcp, const struct shoali_store_args *args,
                                const struct addrinfo *addresses)
{
    const int64_t deadline_ns = shoali_deadline_ns((int64_t)(args->timeout_s * 1e9));
    int64_t speak_ns = shoali_deadline_ns(SILENCE_NS);
    char why[WHY_BYTES] = "", last[WHY_BYTES] = "";
    bool answered = false;
    for (;;) {
        shoal_status status = try_join(tcp, addresses, deadline_ns, &answered, last);
        if (status != SHOAL_IN_PROGRESS)
            return status;
        const bool late = shoali_deadline_passed(deadline_ns);
        if (!late || !*why) /* what the deadline itself cut short says nothing */
            memcpy(why, last, sizeof(why));
        if (late)
            return SHOAL_FAIL(SHOAL_ETIMEOUT, "%s (tried for %.1f s)", why, args->timeout_s);
        if (args->look && (status = args->look(args->look_user)) < 0)
            return status;
        if (answered && shoali_deadline_passed(speak_ns)) {
            SHOALI_WARN("comm", "%s (still trying)", why);
            speak_ns = INT64_MAX;
        }
        nanosleep(&(struct timespec){0, answered ? AGAIN_AT_OTHERS_NS : AGAIN_NS}, NULL);
    }
}

/* A host has this address when a socket can be bound to it. */
static bool is_here(const struct addrinfo *at)
{
    struct sockaddr_storage address = {0};
    memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (at->ai_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = 0;
    else if (at->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = 0;
    int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool here = fd >= 0 && bind(fd, (const struct sockaddr *)&address, at->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    return here;
}

/* A secret that is good on this machine alone is no protection on a network: the ranks then meet on
 * loopback, whatever name MASTER_ADDR gives this machine. */
static shoal_status stay_here(struct tcp_store *tcp)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    bool here = strcmp(tcp->host, "localhost") == 0;
    if (!here && getaddrinfo(tcp->host, tcp->port, &hints, &addresses) != 0)
        addresses = NULL;
    for (const struct addrinfo *at = addresses; at && !here; at = at->ai_next)
        here = is_here(at);
    if (addresses)
        freeaddrinfo(addresses);
    if (!here)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "MASTER_ADDR=\"%s\" is no address of this machine, and ranks of several "
                          "machines meet only with a secret: write one with `(umask 077; openssl "
                          "rand -hex 32 > FILE)`, copy the file to all machines and set "
                          "SHOAL_SECRET_FILE to it",
                          tcp->host);
    if (strcmp(tcp->host, "::1") != 0)
        snprintf(tcp->host, sizeof(tcp->host), "127.0.0.1");
    return SHOAL_OK;
}

static shoal_status find_server(struct tcp_store *tcp, const struct shoali_store_args *args)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    /* A bare container may have no hosts file; the name means this machine everywhere (RFC 6761).
     */
    const char *host = strcmp(tcp->host, "localhost") == 0 ? "127.0.0.1" : tcp->host;
    int code = getaddrinfo(host, tcp->port, &hints, &addresses);
    if (code != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot find the host \"%s\" (MASTER_ADDR): %s", tcp->host,
                          gai_strerror(code));
    shoal_status status = join_server(tcp, args, addresses);
    freeaddrinfo(addresses);
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
    shoali_credentials_wipe(&tcp->credentials);
    shoali_free(tcp);
}

static shoal_status tcp_open(const struct shoali_store_args *args, struct shoali_store **store)
{
    SHOAL_ASSERT(args->credentials);
    struct tcp_store *tcp = shoali_calloc(1, sizeof(*tcp), "a store");
    if (!tcp)
        return SHOAL_ENOMEM;
    tcp->base.kind = &shoali_store_tcp;
    tcp->fd = -1;
    tcp->credentials = *args->credentials;
    shoali_table_init(&tcp->table);
    pthread_mutex_init(&tcp->lock, NULL);
    shoal_status status = SHOAL_OK;
    tcp->table.seats = args->seats;
    SHOAL_TRY(status, split_where(args->where, args->seats != NULL, tcp), done);
    if (args->credentials->this_machine)
        SHOAL_TRY(status, stay_here(tcp), done);
    if (args->server)
        SHOAL_TRY(status,
                  shoali_tcp_server_open(tcp->host, tcp->port, &tcp->credentials, &tcp->table,
                                         &tcp->server),
                  done);
    else
        SHOAL_TRY(status, find_server(tcp, args), done);
    *store = &tcp->base;
    tcp = NULL;
done:
    if (tcp)
        tcp_close(&tcp->base);
    return status;
}

struct question {
    char letter;
    const char *key;
    const void *payload;
    size_t payload_bytes;
    void *value; /* where a value goes */
    size_t *value_bytes;
    char *answer; /* NULL, or any answer's letter, whose payload is the value */
};

/* Receives one message and checks it; its line and where its payload is. False: it is lost, forged
 * or nonsense. */
static bool receive_message(struct tcp_store *tcp, int64_t deadline_ns, struct shoali_line *line,
                            const unsigned char **payload)
{
    size_t used = 0, wanted = SHOALI_STORE_LINE_BYTES, length = 0;
    while (used < wanted) {
        size_t got = receive(tcp->fd, tcp->message + used, wanted - used, deadline_ns);
        if (got == 0)
            return false;
        used += got;
        const unsigned char *newline = length ? NULL : memchr(tcp->message, '\n', used);
        if (!newline)
            continue;
        length = (size_t)(newline - tcp->message) + 1;
        if (!shoali_line_parse((const char *)tcp->message, length, line))
            return false;
        wanted = length + line->bytes + SHOALI_MAC_BYTES;
    }
    *payload = tcp->message + length;
    return length > 0 && used == wanted &&
           shoali_session_check(&tcp->session, SHOALI_ANSWERS, tcp->message, length + line->bytes,
                                *payload + line->bytes);
}

static shoal_status read_answer(struct tcp_store *tcp, const struct question *question,
                                const struct shoali_line *line, const unsigned char *payload)
{
    if (question->answer)
        *question->answer = line->letter;
    else if (line->letter == 'O')
        return SHOAL_OK;
    else if (line->letter == 'N')
        return SHOAL_IN_PROGRESS;
    else if (line->letter == 'F')
        return SHOAL_FAIL(SHOAL_EPEER, "%.*s", (int)line->bytes, (const char *)payload);
    if ((line->letter != 'V' && !question->answer) || !question->value)
        return SHOAL_FAIL(SHOAL_EPEER, "%s:%s answers what was not asked", tcp->host, tcp->port);
    if (line->bytes > *question->value_bytes)
        return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" has %zu bytes, there is room for %zu",
                          question->key, line->bytes, *question->value_bytes);
    *question->value_bytes = line->bytes;
    memcpy(question->value, payload, line->bytes);
    return SHOAL_OK;
}

static bool send_message(struct tcp_store *tcp, const struct question *question,
                         int64_t deadline_ns)
{
    const int length = snprintf((char *)tcp->message, SHOALI_STORE_LINE_BYTES, "%c %s %zu\n",
                                question->letter, question->key, question->payload_bytes);
    size_t bytes = (size_t)length + question->payload_bytes;
    if (question->payload_bytes > 0)
        memcpy(tcp->message + length, question->payload, question->payload_bytes);
    shoali_session_seal(&tcp->session, SHOALI_QUESTIONS, tcp->message, bytes, tcp->message + bytes);
    return send_all(tcp->fd, tcp->message, bytes + SHOALI_MAC_BYTES, deadline_ns);
}

static shoal_status ask(struct tcp_store *tcp, const struct question *question)
{
    struct shoali_line line;
    const unsigned char *payload = NULL;
    shoal_status status;
    pthread_mutex_lock(&tcp->lock);
    const int64_t deadline_ns = shoali_deadline_ns(tcp->base.timeout_ns + 1000000000);
    if (send_message(tcp, question, deadline_ns) &&
        receive_message(tcp, deadline_ns, &line, &payload)) {
        status = read_answer(tcp, question, &line, payload);
    } else {
        tcp->lost = true;
        shutdown(tcp->fd, SHUT_RDWR); /* half a message may be on its way: no good any more */
        status = SHOAL_FAIL(SHOAL_EPEER, "lost the connection to %s:%s, where the ranks meet",
                            tcp->host, tcp->port);
    }
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

struct shoali_tcp_server *shoali_tcp_store_get_server(const struct shoali_store *store)
{
    return ((const struct tcp_store *)store)->server;
}

bool shoali_tcp_store_is_v6(const struct shoali_store *store)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    return getsockname(((const struct tcp_store *)store)->fd, (struct sockaddr *)&address,
                       &length) == 0 &&
           address.ss_family == AF_INET6;
}

bool shoali_tcp_store_is_connected(const struct shoali_store *store)
{
    return !((const struct tcp_store *)store)->lost;
}

bool shoali_tcp_store_is_taken(struct shoali_store *store, int32_t seat)
{
    struct shoali_table *table = &((struct tcp_store *)store)->table;
    pthread_mutex_lock(&table->lock);
    const bool taken = table->seats->chair[seat].taken;
    pthread_mutex_unlock(&table->lock);
    return taken;
}

void shoali_tcp_store_leave(struct shoali_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    const struct question question = {.letter = 'L', .key = "-"};
    pthread_mutex_lock(&tcp->lock);
    if (!tcp->lost)
        tcp->lost = !send_message(tcp, &question, shoali_deadline_ns(LEAVE_NS));
    pthread_mutex_unlock(&tcp->lock);
}

shoal_status shoali_tcp_store_say(struct shoali_store *store, char letter, const char *payload,
                                  char *answer, char *text, size_t text_bytes)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    size_t bytes = text_bytes - 1;
    const struct question question = {.letter = letter,
                                      .key = "-",
                                      .payload = payload,
                                      .payload_bytes = strlen(payload),
                                      .value = text,
                                      .value_bytes = &bytes,
                                      .answer = answer};
    *answer = '\0';
    const shoal_status status = ask(tcp, &question);
    text[status == SHOAL_OK ? bytes : 0] = '\0';
    return status;
}

static int tcp_trouble(const struct shoali_store *store)
{
    const struct tcp_store *tcp = (const struct tcp_store *)store;
    return tcp->server ? shoali_tcp_server_get_trouble(tcp->server) : 0;
}

const struct shoali_store_kind shoali_store_tcp = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .put = tcp_put,
    .get = tcp_get,
    .abort = tcp_abort,
    .trouble = tcp_trouble,
};
