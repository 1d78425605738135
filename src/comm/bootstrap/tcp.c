/* A store behind a TCP port. The serving process uses the table directly; the others ask, in the
 * words of protocol.h. */
#include "base/waiting.h"
#include "comm/bootstrap/address.h"
#include "comm/bootstrap/agent_store.h"
#include "comm/bootstrap/protocol.h"
#include "comm/bootstrap/stream.h"
#include "comm/bootstrap/tree.h"
#include "comm/machine.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HOST_BYTES = 256, WHY_BYTES = 512 };
#define ATTEMPT_NS INT64_C(5000000000)       /* for who answers to let us in */
#define AGAIN_NS INT64_C(2000000)            /* while nobody answers, */
#define SLOW_AGAIN_NS INT64_C(50000000)      /* and when that has lasted for a second */
#define AGAIN_AT_OTHERS_NS INT64_C(20000000) /* while who answers does not let us in */
#define ASK_AGENT_NS INT64_C(1000000000)
#define LEAVE_NS INT64_C(100000000)

struct tcp_store {
    struct shoali_store base;
    char host[HOST_BYTES], port[8];
    struct shoali_credentials credentials;
    struct shoali_table table;        /* served */
    struct shoali_tcp_server *server; /* NULL: a client */
    struct shoali_agent_store agent;
    int64_t agent_ns; /* when it was asked last for failures */
    bool by_agent;    /* torchrun's store says where rank 0 listens */
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

/* Why who answers has not let us in, as a sentence. */
static void explain(const struct tcp_store *tcp, enum shoali_greeting greeting, char *why)
{
    static const char *const texts[][2] = {
        [SHOALI_GREETED] = {"", ""},
        [SHOALI_NO_DESCRIPTORS] = {"rank 0 has no file descriptor free for this rank at",
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
    enum shoali_greeting received;
    if (!shoali_stream_receive(tcp->fd, greeting, sizeof(greeting), deadline_ns))
        goto lost;
    received = shoali_greeting_read(greeting, &tcp->credentials);
    if (received != SHOALI_GREETED) {
        explain(tcp, received, why);
        return SHOAL_IN_PROGRESS;
    }
    SHOAL_TRY(status, shoali_random(nonce, sizeof(nonce)), done);
    shoali_proof_make(greeting, nonce, &tcp->credentials, proof, expected, &tcp->session);
    if (!shoali_stream_send(tcp->fd, proof, sizeof(proof), deadline_ns) ||
        !shoali_stream_receive(tcp->fd, answer, sizeof(answer), deadline_ns))
        goto lost;
    if (shoali_mac_equal(answer, denial))
        status = fail_of_secret(tcp, "this rank does not have the secret of rank 0");
    else if (!shoali_mac_equal(answer, expected))
        status = fail_of_secret(tcp, "a process that does not know this job's secret answers");
done:
    return status;
lost:
    snprintf(why, WHY_BYTES,
             "the process that answers at %s:%s %s (%s): is it rank 0, and is it running?",
             tcp->host, tcp->port,
             errno == ETIMEDOUT ? "does not let this rank in"
                                : "closes the connection before it lets this rank in",
             strerror(errno));
    return SHOAL_IN_PROGRESS;
}

/* One attempt at the host's addresses. SHOAL_IN_PROGRESS: later; *answered: somebody was there. */
static shoal_status try_join(struct tcp_store *tcp, struct addrinfo *addresses, int64_t deadline_ns,
                             bool *answered, char *why)
{
    const int64_t own_ns = shoali_deadline_ns(ATTEMPT_NS);
    const int64_t end_ns = own_ns < deadline_ns ? own_ns : deadline_ns;
    int code = EADDRNOTAVAIL;
    *answered = false;
    for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
        tcp->fd = shoali_stream_connect(at, end_ns);
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
    if (*shoali_descriptor_advice(code))
        snprintf(why, WHY_BYTES, "cannot make a socket for %s:%s: %s%s", tcp->host, tcp->port,
                 strerror(code), shoali_descriptor_advice(code));
    else if (code == ENETUNREACH)
        snprintf(why, WHY_BYTES,
                 "there is no way to %s:%s (%s): is the interface up (`ip link set lo up` for "
                 "127.0.0.1), and is MASTER_ADDR right?",
                 tcp->host, tcp->port, strerror(code));
    else if (tcp->by_agent)
        snprintf(why, WHY_BYTES,
                 "no answer from %s:%s (%s), which rank 0 has written into torchrun's store: is it "
                 "running, and is the port open between the hosts (UCX_TCP_PORT_RANGE=20000-20100 "
                 "chooses it)?",
                 tcp->host, tcp->port, strerror(code));
    else
        snprintf(
            why, WHY_BYTES,
            "no answer from %s:%s (%s): is rank 0 running, and are MASTER_ADDR and MASTER_PORT "
            "the same on all ranks?",
            tcp->host, tcp->port, strerror(code));
    return SHOAL_IN_PROGRESS;
}

/* As try_join, at the port that rank 0 has told torchrun's store: each time anew, as an earlier
 * attempt may have left one. */
static shoal_status try_join_by_agent(struct tcp_store *tcp, struct addrinfo *addresses,
                                      int64_t deadline_ns, bool *answered, char *why)
{
    int32_t port = 0;
    *answered = true; /* the store: no hurry */
    const shoal_status status = shoali_agent_store_get(&tcp->agent, deadline_ns, &port, why);
    if (status != SHOAL_OK)
        return status;
    for (struct addrinfo *at = addresses; at; at = at->ai_next)
        shoali_address_set_port(at, port);
    snprintf(tcp->port, sizeof(tcp->port), "%d", (int)port);
    const shoal_status joined = try_join(tcp, addresses, deadline_ns, answered, why);
    *answered = true;
    return joined;
}

/* The server may start later than we do, and another job may be through with the port soon: tries
 * until the deadline. */
static shoal_status join_server(struct tcp_store *tcp, const struct shoali_store_args *args,
                                struct addrinfo *addresses)
{
    const int64_t deadline_ns = shoali_deadline_ns((int64_t)(args->timeout_s * 1e9));
    struct shoali_waiting waiting = {0};
    char why[WHY_BYTES] = "", last[WHY_BYTES] = "";
    bool answered = false;
    for (;;) {
        shoal_status status = (tcp->by_agent ? try_join_by_agent : try_join)(
            tcp, addresses, deadline_ns, &answered, last);
        if (status != SHOAL_IN_PROGRESS)
            return status;
        const bool late = shoali_deadline_passed(deadline_ns);
        if (!late || !*why) /* what the deadline itself cut short says nothing */
            memcpy(why, last, sizeof(why));
        if (late)
            return SHOAL_FAIL(SHOAL_ETIMEOUT, "%s (tried for %.1f s)", why, args->timeout_s);
        if (args->look && (status = args->look(args->poll_user)) < 0)
            return status;
        if (shoali_waiting_due(&waiting, NULL))
            SHOALI_WARN("comm",
                        "waiting for %.0f s for rank 0: %s (still trying, for %.0f s in all)",
                        shoali_waiting_seconds(&waiting), why, args->timeout_s);
        nanosleep(&(struct timespec){0, answered                               ? AGAIN_AT_OTHERS_NS
                                        : shoali_waiting_seconds(&waiting) < 1 ? AGAIN_NS
                                                                               : SLOW_AGAIN_NS},
                  NULL);
    }
}

/* A secret that is good on this machine alone is no protection on a network: the ranks then meet on
 * loopback, whatever name MASTER_ADDR gives this machine. */
static shoal_status stay_here(struct tcp_store *tcp)
{
    struct addrinfo *addresses = NULL;
    bool here = strcmp(tcp->host, "localhost") == 0;
    int code = here ? 0 : shoali_address_find(tcp->host, tcp->port, &addresses);
    if (code != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot find the host \"%s\" (MASTER_ADDR): %s", tcp->host,
                          code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    for (const struct addrinfo *at = addresses; at && !here; at = at->ai_next)
        here = shoali_address_is_here(at, &code);
    if (addresses)
        freeaddrinfo(addresses);
    if (!here && code != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot make a socket for MASTER_ADDR=\"%s\": %s%s", tcp->host,
                          strerror(code), shoali_descriptor_advice(code));
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
    struct addrinfo *addresses = NULL;
    /* A bare container may have no hosts file; the name means this machine everywhere (RFC 6761).
     */
    const char *host = strcmp(tcp->host, "localhost") == 0 ? "127.0.0.1" : tcp->host;
    int code = shoali_address_find(host, tcp->port, &addresses);
    if (code != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot find the host \"%s\" (MASTER_ADDR): %s", tcp->host,
                          code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    shoal_status status = join_server(tcp, args, addresses);
    freeaddrinfo(addresses);
    return status;
}

/* Every address of MASTER_ADDR's family: what MASTER_ADDR means on rank 0's own host may be a
 * loopback address, which no other host reaches. */
static const char *any_address(const struct tcp_store *tcp)
{
    struct addrinfo *addresses = NULL;
    const bool v6 = shoali_address_find(tcp->host, tcp->port, &addresses) == 0 && addresses &&
                    addresses->ai_family == AF_INET6;
    if (addresses)
        freeaddrinfo(addresses);
    return v6 ? "::" : "0.0.0.0";
}

/* Listens at a port of its own and tells torchrun's store its number. */
static shoal_status serve_by_agent(struct tcp_store *tcp, const struct shoali_store_args *args)
{
    const char *host = tcp->credentials.this_machine ? tcp->host : any_address(tcp);
    int first, last;
    shoal_status status = SHOAL_EINVAL;
    shoali_address_port_range(&first, &last);
    for (int port = first; port <= last && status == SHOAL_EINVAL; port++) {
        snprintf(tcp->port, sizeof(tcp->port), "%d", port);
        status =
            shoali_tcp_server_open(host, tcp->port, &tcp->credentials, &tcp->table, &tcp->server);
    }
    if (status == SHOAL_EINVAL)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "no port of UCX_TCP_PORT_RANGE=%d-%d is free for rank 0, at whose port "
                          "the others join: give a wider range",
                          first, last);
    if (status < 0)
        return status;
    return shoali_agent_store_put(&tcp->agent, shoali_tcp_server_get_port(tcp->server),
                                  shoali_deadline_ns((int64_t)(args->timeout_s * 1e9)));
}

/* A rank that cannot join tells torchrun's store, as it has no way to rank 0. */
static shoal_status tell_agent(struct tcp_store *tcp, shoal_status failure)
{
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
    snprintf(sentence, sizeof(sentence), "%s", shoal_error_message());
    shoali_agent_store_init(&tcp->agent, tcp->host, tcp->port);
    shoali_agent_store_tell(&tcp->agent, sentence);
    return SHOAL_FAIL(failure, "%s", sentence);
}

/* Takes such a sentence over, once a second while rank 0 waits for others. */
static void ask_agent(struct tcp_store *tcp)
{
    char told[SHOALI_AGENT_WHY_BYTES], sentence[SHOALI_STORE_SENTENCE_BYTES];
    if (shoali_now_ns() - tcp->agent_ns < ASK_AGENT_NS)
        return;
    tcp->agent_ns = shoali_now_ns();
    if (!shoali_agent_store_told(&tcp->agent, shoali_tcp_server_get_port(tcp->server), told))
        return;
    snprintf(sentence, sizeof(sentence), "a rank cannot join: %s", told);
    shoali_table_abort(&tcp->table, sentence);
}

static void tcp_close(struct shoali_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    shoali_tcp_server_close(tcp->server);
    shoali_agent_store_fini(&tcp->agent);
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
    tcp->fd = tcp->agent.fd = -1;
    tcp->credentials = *args->credentials;
    shoali_table_init(&tcp->table);
    pthread_mutex_init(&tcp->lock, NULL);
    shoal_status status = SHOAL_OK;
    tcp->table.seats = args->seats;
    SHOAL_TRY(status, split_where(args->where, args->seats != NULL, tcp), done);
    if (args->credentials->this_machine)
        status = stay_here(tcp);
    if (status < 0 && args->by_agent && !args->server)
        status = tell_agent(tcp, status);
    if (status < 0)
        goto done;
    tcp->by_agent = args->by_agent;
    if (args->by_agent)
        shoali_agent_store_init(&tcp->agent, tcp->host, tcp->port);
    if (args->server && args->by_agent)
        SHOAL_TRY(status, serve_by_agent(tcp, args), done);
    else if (args->server)
        SHOAL_TRY(status,
                  shoali_tcp_server_open(tcp->host, tcp->port, &tcp->credentials, &tcp->table,
                                         &tcp->server),
                  done);
    else
        SHOAL_TRY(status, find_server(tcp, args), done);
    shoali_agent_store_fini(&tcp->agent);
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
        size_t got =
            shoali_stream_receive_some(tcp->fd, tcp->message + used, wanted - used, deadline_ns);
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
        return SHOAL_FAIL(SHOAL_EPEER, "%s:%s sent an answer that was not asked for", tcp->host,
                          tcp->port);
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
    return shoali_stream_send(tcp->fd, tcp->message, bytes + SHOALI_MAC_BYTES, deadline_ns);
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
    if (tcp->server && tcp->by_agent)
        ask_agent(tcp);
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
