/* Ranks that find each other through torchrun's store, against a small server of its protocol.
 * tests/cluster/torchrun_test.sh does the same with the real one where PyTorch is installed. */
#include "base/test_cmocka.h"
#include "comm/bootstrap/agent_store.h"
#include "comm/bootstrap/bootstrap.h"
#include "shoal/comm.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ends a wait that would last for ever. */
#define PATIENCE_NS (PATIENCE_S * INT64_C(1000000000))
enum { CLIENTS = 16, TEXT_BYTES = 256, ENTRIES = 4, PATIENCE_S = 60 };

/* How the double behaves. */
enum manner {
    AS_PYTORCH, /* 2.2 and later */
    HANGS_UP,   /* earlier ones: what it is told is no question of theirs */
    IS_SILENT
};

struct client {
    int fd;
    bool valid;
    size_t used;
    unsigned char bytes[1024];
};

struct entry {
    char key[TEXT_BYTES], value[TEXT_BYTES];
};

/* A store of a few keys; the port is the first. */
struct agent {
    pthread_t thread;
    pthread_mutex_t lock; /* of the entries */
    enum manner manner;
    int listener, stop[2];
    char where[64], port[8];
    struct entry entry[ENTRIES];
    _Atomic int checks, sets, connections;
    int count;
    struct client client[CLIENTS];
};

static int listen_somewhere(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* What of a question has come. take_... : false when it is not complete. */
struct reader {
    const unsigned char *at, *end;
};

static bool take(struct reader *reader, void *to, size_t bytes)
{
    if ((size_t)(reader->end - reader->at) < bytes)
        return false;
    memcpy(to, reader->at, bytes);
    reader->at += bytes;
    return true;
}

static bool take_text(struct reader *reader, char text[TEXT_BYTES])
{
    uint64_t bytes = 0;
    if (!take(reader, &bytes, sizeof(bytes)) || bytes >= TEXT_BYTES)
        return false;
    text[bytes] = '\0';
    return take(reader, text, (size_t)bytes);
}

static bool answer(const struct client *client, const void *bytes, size_t count)
{
    return send(client->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

/* Of the key; without one: where it may be put. */
static struct entry *find_entry(struct agent *agent, const char *key)
{
    int at = 0;
    while (at < ENTRIES - 1 && agent->entry[at].key[0] && strcmp(agent->entry[at].key, key) != 0)
        at++;
    return &agent->entry[at];
}

/* One question; false: it is not complete, *ends: the server hangs up. */
static bool serve_one(struct agent *agent, struct client *client, struct reader *reader, bool *ends)
{
    unsigned char kind = 0;
    char key[TEXT_BYTES] = "", value[TEXT_BYTES] = "";
    uint32_t magic = 0;
    uint64_t count = 0;
    if (!take(reader, &kind, 1))
        return false;
    if (!client->valid) {
        if (!take(reader, &magic, sizeof(magic)))
            return false;
        client->valid = kind == 0 && magic == 0x3C85F7CE;
        *ends = !client->valid;
        return client->valid;
    }
    if (kind == 5 && take(reader, &count, sizeof(count)) && count == 1 && take_text(reader, key)) {
        const unsigned char absent = strcmp(key, find_entry(agent, key)->key) != 0;
        agent->checks++;
        *ends = !answer(client, &absent, 1);
    } else if (kind == 1 && take_text(reader, key) && take_text(reader, value)) {
        struct entry *entry = find_entry(agent, key);
        memcpy(entry->key, key, sizeof(key));
        memcpy(entry->value, value, sizeof(value));
        agent->sets++;
    } else if (kind == 3 && take_text(reader, key)) {
        const struct entry *entry = find_entry(agent, key);
        count = strlen(entry->value);
        *ends = strcmp(key, entry->key) != 0 || !answer(client, &count, sizeof(count)) ||
                !answer(client, entry->value, (size_t)count);
    } else {
        *ends = kind != 1 && kind != 3 && kind != 5;
        return false;
    }
    return !*ends;
}

static bool serve_client(struct agent *agent, struct client *client)
{
    const ssize_t got =
        recv(client->fd, client->bytes + client->used, sizeof(client->bytes) - client->used, 0);
    bool ends = got <= 0 || agent->manner == HANGS_UP;
    client->used += got > 0 ? (size_t)got : 0;
    struct reader reader = {client->bytes, client->bytes + client->used};
    const unsigned char *done = reader.at;
    pthread_mutex_lock(&agent->lock);
    while (!ends && agent->manner == AS_PYTORCH && serve_one(agent, client, &reader, &ends))
        done = reader.at;
    pthread_mutex_unlock(&agent->lock);
    client->used -= (size_t)(done - client->bytes);
    memmove(client->bytes, done, client->used);
    return !ends;
}

static void *serve(void *user)
{
    struct agent *agent = user;
    for (;;) {
        struct pollfd watched[CLIENTS + 2] = {{agent->stop[0], POLLIN, 0},
                                              {agent->listener, POLLIN, 0}};
        for (int i = 0; i < agent->count; i++)
            watched[2 + i] = (struct pollfd){agent->client[i].fd, POLLIN, 0};
        const int count = agent->count;
        if (poll(watched, (nfds_t)count + 2, -1) < 0 || watched[0].revents)
            return NULL;
        for (int i = count - 1; i >= 0; i--) {
            if (!watched[2 + i].revents || serve_client(agent, &agent->client[i]))
                continue;
            close(agent->client[i].fd);
            agent->client[i] = agent->client[--agent->count];
        }
        if (!watched[1].revents)
            continue;
        const int fd = accept(agent->listener, NULL, NULL);
        if (agent->count == CLIENTS) {
            close(fd);
            continue;
        }
        agent->client[agent->count++] = (struct client){.fd = fd};
        agent->connections++;
    }
}

static void prepare_agent(struct agent *agent, enum manner manner)
{
    int port;
    *agent = (struct agent){.manner = manner};
    pthread_mutex_init(&agent->lock, NULL);
    agent->listener = listen_somewhere(&port);
    snprintf(agent->port, sizeof(agent->port), "%d", port);
    snprintf(agent->where, sizeof(agent->where), "127.0.0.1:%d", port);
    assert_int_equal(pipe(agent->stop), 0);
}

static void start_agent(struct agent *agent, enum manner manner)
{
    prepare_agent(agent, manner);
    assert_int_equal(pthread_create(&agent->thread, NULL, serve, agent), 0);
}

static void stop_agent(struct agent *agent)
{
    assert_int_equal(write(agent->stop[1], "", 1), 1);
    pthread_join(agent->thread, NULL);
    for (int i = 0; i < agent->count; i++)
        close(agent->client[i].fd);
    close(agent->listener);
    close(agent->stop[0]);
    close(agent->stop[1]);
    pthread_mutex_destroy(&agent->lock);
}

static int port_in(struct agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    const long port = strtol(agent->entry[0].value, NULL, 10);
    pthread_mutex_unlock(&agent->lock);
    return (int)port;
}

static void set_value(struct agent *agent, const char *value)
{
    pthread_mutex_lock(&agent->lock);
    snprintf(agent->entry[0].value, sizeof(agent->entry[0].value), "%s", value);
    pthread_mutex_unlock(&agent->lock);
}

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

/* A rank's store. */
static shoal_status open_rank(const char *where, bool first, double timeout_s,
                              struct shoali_store **store)
{
    const struct shoali_credentials credentials = {.key = "secret", .job = "job"};
    return shoali_store_open(&(struct shoali_store_args){.kind = "tcp",
                                                         .where = where,
                                                         .server = first,
                                                         .by_agent = true,
                                                         .credentials = &credentials,
                                                         .timeout_s = timeout_s},
                             store);
}

/* What rank 0 stores, another one reads. */
static void check_meeting(struct shoali_store *first, struct shoali_store *second)
{
    char value[8] = "";
    size_t bytes = sizeof(value);
    assert_int_equal(shoali_store_put(first, "k", "met", 4), SHOAL_OK);
    assert_int_equal(shoali_store_get(second, "k", value, &bytes), SHOAL_OK);
    assert_string_equal(value, "met");
}

static void ranks_meet_at_the_port_in_the_store(void **state)
{
    struct agent agent;
    struct shoali_store *first = NULL, *second = NULL;
    (void)state;
    start_agent(&agent, AS_PYTORCH);
    assert_int_equal(open_rank(agent.where, true, PATIENCE_S, &first), SHOAL_OK);
    assert_int_equal(agent.sets, 1);
    assert_true(port_in(&agent) > 0);
    assert_int_not_equal(port_in(&agent), strtol(agent.port, NULL, 10)); /* the store's own */
    assert_int_equal(open_rank(agent.where, false, PATIENCE_S, &second), SHOAL_OK);
    check_meeting(first, second);
    shoali_store_close(second);
    shoali_store_close(first);
    stop_agent(&agent);
}

struct late {
    const char *where;
    struct shoali_store *store;
    shoal_status status;
};

static void *come(void *user)
{
    struct late *late = user;
    late->status = open_rank(late->where, false, PATIENCE_S, &late->store);
    return NULL;
}

/* A rank may come before rank 0 does, and find what an earlier attempt has left: a port where
 * nobody listens. */
static void meet_after(const char *left_over)
{
    struct agent agent;
    struct shoali_store *first = NULL;
    pthread_t thread;
    start_agent(&agent, AS_PYTORCH);
    struct late late = {.where = agent.where};
    if (left_over) { /* under the key that ranks of this environment use */
        struct shoali_agent_store own;
        shoali_agent_store_init(&own, "127.0.0.1", agent.port);
        assert_int_equal(shoali_agent_store_put(&own, (int32_t)strtol(left_over, NULL, 10),
                                                shoali_deadline_ns(PATIENCE_NS)),
                         SHOAL_OK);
        shoali_agent_store_fini(&own);
    }
    const int before = agent.checks;
    pthread_create(&thread, NULL, come, &late);
    for (int i = 0; i < 60000 && agent.checks < before + 3; i++) /* it has asked, and again */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_true(agent.checks >= before + 3);
    assert_int_equal(open_rank(agent.where, true, PATIENCE_S, &first), SHOAL_OK);
    pthread_join(thread, NULL);
    if (late.status != SHOAL_OK)
        fail_msg("%s", "the rank that came first did not find rank 0");
    check_meeting(first, late.store);
    assert_true(agent.connections <= 4); /* a rank that waits keeps its connection */
    shoali_store_close(late.store);
    shoali_store_close(first);
    stop_agent(&agent);
}

static void a_rank_may_come_before_rank_0(void **state)
{
    (void)state;
    meet_after(NULL);
}

static void leftovers_of_an_attempt_are_overwritten(void **state)
{
    char text[8];
    int port;
    (void)state;
    close(listen_somewhere(&port));
    snprintf(text, sizeof(text), "%d", port);
    meet_after(text);
}

static void an_old_store_is_a_sentence(void **state)
{
    struct agent agent;
    struct shoali_store *store = NULL;
    (void)state;
    start_agent(&agent, HANGS_UP);
    for (int first = 0; first < 2; first++) {
        assert_int_equal(open_rank(agent.where, first, PATIENCE_S, &store), SHOAL_EUNSUPPORTED);
        assert_true(says(agent.where) && says("PyTorch 2.2") && says("--rdzv-backend c10d"));
        assert_null(store);
    }
    stop_agent(&agent);
}

static void a_silent_or_absent_store_is_a_sentence(void **state)
{
    struct agent agent;
    struct shoali_store *store = NULL;
    (void)state;
    start_agent(&agent, IS_SILENT);
    for (int first = 0; first < 2; first++) {
        assert_int_equal(open_rank(agent.where, first, 0.2, &store), SHOAL_ETIMEOUT);
        assert_true(says("torchrun's store at 127.0.0.1:") && says("gives no answer"));
    }
    stop_agent(&agent);
    for (int first = 0; first < 2; first++) {
        assert_int_equal(open_rank(agent.where, first, 0.2, &store), SHOAL_ETIMEOUT);
        assert_true(says("no answer from torchrun's store at 127.0.0.1:") &&
                    says("is torchrun of the first host running"));
    }
}

static void a_rank_without_rank_0_says_so(void **state)
{
    struct agent agent;
    struct shoali_store *store = NULL;
    (void)state;
    start_agent(&agent, AS_PYTORCH);
    assert_int_equal(open_rank(agent.where, false, 2, &store), SHOAL_ETIMEOUT);
    assert_true(says("rank 0 has not told its port yet in torchrun's store at 127.0.0.1:"));
    stop_agent(&agent);
}

/* Behind a firewall, or after rank 0's end. */
static void a_port_that_nobody_has_is_a_sentence(void **state)
{
    struct agent agent;
    struct shoali_store *first = NULL, *store = NULL;
    char expected[64];
    (void)state;
    start_agent(&agent, AS_PYTORCH);
    assert_int_equal(open_rank(agent.where, true, PATIENCE_S, &first), SHOAL_OK);
    shoali_store_close(first);
    assert_int_equal(open_rank(agent.where, false, 2, &store), SHOAL_ETIMEOUT);
    snprintf(expected, sizeof(expected), "no answer from 127.0.0.1:%d (", port_in(&agent));
    assert_true(says(expected) && says("which rank 0 has written into torchrun's store"));
    assert_true(says("UCX_TCP_PORT_RANGE"));
    stop_agent(&agent);
}

/* A rank without a way to rank 0 tells the store why; the rank 0 at another port is not meant. */
static void a_rank_that_cannot_join_tells_rank_0(void **state)
{
    struct agent agent;
    struct shoali_store *first = NULL;
    struct shoali_agent_store own;
    char value[8], told[SHOALI_AGENT_WHY_BYTES];
    size_t bytes = sizeof(value);
    (void)state;
    start_agent(&agent, AS_PYTORCH);
    assert_int_equal(open_rank(agent.where, true, PATIENCE_S, &first), SHOAL_OK);
    shoali_agent_store_init(&own, "127.0.0.1", agent.port);
    const int port = port_in(&agent);
    assert_int_equal(shoali_store_get(first, "k", value, &bytes), SHOAL_IN_PROGRESS);
    shoali_agent_store_tell(&own, "it has no secret");
    assert_false(shoali_agent_store_told(&own, port + 1, told));
    assert_true(shoali_agent_store_told(&own, port, told));
    assert_string_equal(told, "it has no secret");
    assert_int_equal(shoali_store_wait(first, "k", value, &bytes), SHOAL_EPEER);
    assert_string_equal(shoal_error_message(), "a rank cannot join: it has no secret");
    shoali_agent_store_fini(&own);
    shoali_store_close(first);
    stop_agent(&agent);
}

/* Whatever stands there, it is no port of this program's. */
static void nonsense_in_the_store_is_refused(void **state)
{
    static const char *const values[] = {"", "0", "65536", "-1", "29500x", "12345678901"};
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct agent agent;
        struct shoali_agent_store own;
        char why[SHOALI_AGENT_WHY_BYTES];
        int32_t number = 0;
        start_agent(&agent, AS_PYTORCH);
        shoali_agent_store_init(&own, "127.0.0.1", agent.port);
        assert_int_equal(shoali_agent_store_put(&own, 4711, shoali_deadline_ns(PATIENCE_NS)),
                         SHOAL_OK);
        set_value(&agent, values[i]);
        assert_int_equal(
            shoali_agent_store_get(&own, shoali_deadline_ns(PATIENCE_NS), &number, why),
            SHOAL_IN_PROGRESS);
        assert_int_equal(number, 0);
        set_value(&agent, "4712");
        assert_int_equal(
            shoali_agent_store_get(&own, shoali_deadline_ns(PATIENCE_NS), &number, why), SHOAL_OK);
        assert_int_equal(number, 4712);
        shoali_agent_store_fini(&own);
        stop_agent(&agent);
    }
}

/* Where a firewall leaves some ports open, rank 0 takes one of those. */
static void the_port_is_of_the_range(void **state)
{
    struct agent agent;
    struct shoali_store *first = NULL;
    char range[32];
    int port;
    (void)state;
    const int taken = listen_somewhere(&port);
    start_agent(&agent, AS_PYTORCH);
    snprintf(range, sizeof(range), "%d-%d", port, port);
    setenv("UCX_TCP_PORT_RANGE", range, 1);
    assert_int_equal(open_rank(agent.where, true, PATIENCE_S, &first), SHOAL_EINVAL);
    assert_true(says("no port of UCX_TCP_PORT_RANGE=") && says(range));
    close(taken);
    assert_int_equal(open_rank(agent.where, true, PATIENCE_S, &first), SHOAL_OK);
    assert_int_equal(port_in(&agent), port);
    shoali_store_close(first);
    unsetenv("UCX_TCP_PORT_RANGE");
    stop_agent(&agent);
}

static void the_environment_names_the_store(void **state)
{
    (void)state;
    setenv("MASTER_ADDR", "head", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    assert_true(shoali_agent_store_is_at("head", 29500));
    assert_false(shoali_agent_store_is_at("head", 29501));
    assert_false(shoali_agent_store_is_at("other", 29500));
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    assert_false(shoali_agent_store_is_at("head", 29500));
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    assert_false(shoali_agent_store_is_at("head", 29500));
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
}

/* What torchrun sets for a rank; then what every program of Shoal does. */
static int be_rank(int rank, const char *port)
{
    char number[8];
    shoal_group *group = NULL;
    snprintf(number, sizeof(number), "%d", rank);
    setenv("RANK", number, 1);
    setenv("LOCAL_RANK", number, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    if (shoal_comm_init(&(shoal_comm_args){.timeout_s = PATIENCE_S}, &group) != SHOAL_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, shoal_error_message());
        return 1;
    }
    const bool both = shoal_comm_size(group) == 2 && shoal_comm_rank(group) == rank;
    shoal_comm_destroy(group);
    return both ? 0 : 2;
}

/* Processes, before the double has a thread. */
static void processes_of_torchrun_join(void **state)
{
    struct agent agent;
    pid_t pid[2];
    (void)state;
    prepare_agent(&agent, AS_PYTORCH);
    for (int rank = 0; rank < 2; rank++) {
        pid[rank] = fork();
        if (pid[rank] == 0)
            _exit(be_rank(rank, agent.port));
        assert_true(pid[rank] > 0);
    }
    assert_int_equal(pthread_create(&agent.thread, NULL, serve, &agent), 0);
    for (int rank = 0; rank < 2; rank++) {
        int how = -1;
        assert_int_equal(waitpid(pid[rank], &how, 0), pid[rank]);
        assert_int_equal(how, 0);
    }
    assert_int_equal(agent.sets, 1);
    stop_agent(&agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_at_the_port_in_the_store),
        cmocka_unit_test(a_rank_may_come_before_rank_0),
        cmocka_unit_test(leftovers_of_an_attempt_are_overwritten),
        cmocka_unit_test(an_old_store_is_a_sentence),
        cmocka_unit_test(a_silent_or_absent_store_is_a_sentence),
        cmocka_unit_test(a_rank_without_rank_0_says_so),
        cmocka_unit_test(a_port_that_nobody_has_is_a_sentence),
        cmocka_unit_test(a_rank_that_cannot_join_tells_rank_0),
        cmocka_unit_test(nonsense_in_the_store_is_refused),
        cmocka_unit_test(the_port_is_of_the_range),
        cmocka_unit_test(the_environment_names_the_store),
        cmocka_unit_test(processes_of_torchrun_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
