#include "comm_mailboxes.h"

#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REST_NS = 20000000 };

struct message { /* that has been sent, or is awaited */
    struct message *next;
    struct port *at;
    int32_t from, tag;
    size_t bytes;
    void *data;
    bool done;
};
struct port ports[MAILBOXES_MOST];

static struct port *port_of(struct shoali_p2p_comm comm)
{
    return (struct port *)(uintptr_t)comm.word; // NOLINT(performance-no-int-to-ptr)
}

/* Is it this call that fails? Verdicts and their answers always go through. */
static bool fails_now(_Atomic int64_t *left, int32_t tag)
{
    if (tag < SHOALI_P2P_FIRST_TAG || atomic_load(left) < 0)
        return false;
    return atomic_fetch_sub(left, 1) == 0;
}

static struct message **find(struct message **link, int32_t from, int32_t tag)
{
    while (*link && ((*link)->tag != tag ||
                     ((*link)->from != from && (*link)->from != SHOALI_P2P_ANY_SOURCE &&
                      from != SHOALI_P2P_ANY_SOURCE)))
        link = &(*link)->next;
    return link;
}

static struct message **end_of(struct message **link)
{
    while (*link)
        link = &(*link)->next;
    return link;
}

static struct message *make_message(struct port *at, int32_t from, int32_t tag, size_t bytes)
{
    struct message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    *message = (struct message){.at = at, .from = from, .tag = tag, .bytes = bytes};
    return message;
}

static int send_message(struct shoali_p2p_comm comm, const void *data, size_t bytes, int32_t to,
                        int32_t tag, struct shoali_p2p_request *request)
{
    struct port *own = port_of(comm), *at = &own->first[to];
    request->word = 0;
    if (fails_now(&own->posts_left, tag))
        return MAILBOXES_ERROR;
    atomic_fetch_add(&own->sent, 1);
    pthread_mutex_lock(&at->lock);
    struct message **link = find(&at->awaited, own->rank, tag), *awaited = *link;
    if (awaited) {
        *link = awaited->next;
        awaited->bytes = bytes < awaited->bytes ? bytes : awaited->bytes;
        memcpy(awaited->data, data, awaited->bytes);
        awaited->done = true;
    } else {
        struct message *message = make_message(at, own->rank, tag, bytes);
        message->data = malloc(bytes + 1);
        memcpy(message->data, data, bytes);
        *end_of(&at->come) = message;
    }
    at->news = true;
    pthread_cond_signal(&at->bell);
    pthread_mutex_unlock(&at->lock);
    return 0;
}

static int receive_message(struct shoali_p2p_comm comm, void *data, size_t bytes, int32_t from,
                           int32_t tag, struct shoali_p2p_request *request)
{
    struct port *own = port_of(comm);
    request->word = 0;
    if (fails_now(&own->posts_left, tag))
        return MAILBOXES_ERROR;
    struct message *awaited = make_message(own, from, tag, bytes);
    awaited->data = data;
    pthread_mutex_lock(&own->lock);
    struct message **link = find(&own->come, from, tag), *message = *link;
    if (message) {
        *link = message->next;
        awaited->bytes = message->bytes < bytes ? message->bytes : bytes;
        memcpy(data, message->data, awaited->bytes);
        awaited->done = true;
        free(message->data);
        free(message);
    } else {
        *end_of(&own->awaited) = awaited;
    }
    pthread_mutex_unlock(&own->lock);
    request->word = (uintptr_t)awaited;
    return 0;
}

/* Of those that are awaited. With the lock held. */
static void take_out(const struct message *message)
{
    struct message **link = &message->at->awaited;
    while (*link != message)
        link = &(*link)->next;
    *link = message->next;
}

static int test_message(struct shoali_p2p_request *request, bool *done, size_t *bytes)
{
    struct message *message =
        (struct message *)(uintptr_t)request->word; // NOLINT(performance-no-int-to-ptr)
    *done = true;
    if (!message)
        return 0;
    const bool fails = fails_now(&message->at->tests_left, message->tag);
    pthread_mutex_lock(&message->at->lock);
    *done = message->done;
    if (fails && !*done)
        take_out(message);
    pthread_mutex_unlock(&message->at->lock);
    if (fails) {
        *done = false;
        request->word = 0;
        free(message);
        return MAILBOXES_ERROR;
    }
    if (!*done)
        return 0;
    if (bytes)
        *bytes = message->bytes;
    free(message);
    request->word = 0;
    return 0;
}

static void cancel_message(struct shoali_p2p_request *request)
{
    (void)request; /* taken out when the ports are emptied */
}

static int release_port(struct shoali_p2p_comm *comm)
{
    (void)comm;
    return 0;
}

static void describe_code(int code, char *text, size_t bytes)
{
    snprintf(text, bytes, "error %d", code);
}

static void rest_at(struct shoali_p2p_comm comm, uint64_t seen, int64_t longest_ns)
{
    struct port *own = port_of(comm);
    struct timespec until;
    (void)seen; /* `news` says as much */
    (void)
        longest_ns; /* a thousand threads that look every millisecond leave no time for anything */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += REST_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&own->lock);
    if (!own->news)
        pthread_cond_timedwait(&own->bell, &own->lock, &until);
    own->news = false;
    pthread_mutex_unlock(&own->lock);
}

static int32_t find_lost(struct shoali_p2p_comm comm, const int32_t *ranks, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (atomic_load(&port_of(comm)->first[ranks[i]].dead))
            return i;
    return -1;
}

const struct shoali_p2p_table mailboxes = {
    .name = "mailboxes",
    .release = release_port,
    .send = send_message,
    .receive = receive_message,
    .test = test_message,
    .cancel = cancel_message,
    .describe = describe_code,
    .rest = rest_at,
    .find_lost = find_lost,
};
static void empty(struct message **list, bool owned)
{
    while (*list) {
        struct message *message = *list;
        *list = message->next;
        if (owned)
            free(message->data);
        free(message);
    }
}

void ports_open(int32_t begin, int32_t size)
{
    for (int32_t r = 0; r < size; r++) {
        struct port *port = &ports[begin + r];
        *port =
            (struct port){.rank = r, .first = &ports[begin], .posts_left = -1, .tests_left = -1};
        pthread_mutex_init(&port->lock, NULL);
        pthread_cond_init(&port->bell, NULL);
    }
}

void ports_close(int32_t begin, int32_t size)
{
    for (struct port *port = &ports[begin]; port < &ports[begin + size]; port++) {
        empty(&port->come, true);
        empty(&port->awaited, false);
        pthread_mutex_destroy(&port->lock);
        pthread_cond_destroy(&port->bell);
    }
}

struct shoali_p2p_comm port_comm(struct port *port)
{
    return (struct shoali_p2p_comm){(uintptr_t)port};
}
