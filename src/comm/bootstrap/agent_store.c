#include "comm/bootstrap/agent_store.h"

#include "base/base.h"
#include "comm/bootstrap/address.h"
#include "comm/bootstrap/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The kinds of questions, and the number that a connection begins with. */
enum { VALIDATE = 0, SET = 1, GET = 3, CHECK = 5 };
static const uint32_t greeting = 0x3C85F7CE;

enum {
    READY = 0,
    NOT_READY = 1,
    NUMBER_BYTES = 8,
    MESSAGE_BYTES = 1024,
    FAILURE_KEY_BYTES = 192,
    HANG_UPS_MAX = 3
};
#define ATTEMPT_NS INT64_C(5000000000)   /* for one question */
#define PATIENCE_NS INT64_C(30000000000) /* the store is there before the ranks are */
#define AGAIN_NS INT64_C(50000000)
#define TELL_NS INT64_C(10000000000) /* for rank 0 to have a port */

struct message {
    unsigned char bytes[MESSAGE_BYTES];
    size_t used;
};

bool shoali_agent_store_is_at(const char *address, int32_t port)
{
    const char *said = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *host = getenv("MASTER_ADDR"), *number = getenv("MASTER_PORT");
    int64_t its_port = 0;
    return said && strcmp(said, "True") == 0 && host && strcmp(host, address) == 0 && number &&
           shoali_parse_i64(number, &its_port) && its_port == port;
}

void shoali_agent_store_init(struct shoali_agent_store *agent, const char *host, const char *port)
{
    const char *run = getenv("TORCHELASTIC_RUN_ID"), *size = getenv("WORLD_SIZE");
    *agent = (struct shoali_agent_store){.fd = -1};
    snprintf(agent->host, sizeof agent->host, "%s", host);
    snprintf(agent->port, sizeof agent->port, "%s", port);
    snprintf(agent->key, sizeof agent->key, "shoal/%.100s/%.16s/port_of_rank_0", run ? run : "",
             size ? size : "");
}

void shoali_agent_store_fini(struct shoali_agent_store *agent)
{
    if (agent->fd >= 0)
        close(agent->fd);
    agent->fd = -1;
}

static void append(struct message *message, const void *bytes, size_t count)
{
    SHOAL_ASSERT(message->used + count <= sizeof message->bytes);
    memcpy(message->bytes + message->used, bytes, count);
    message->used += count;
}

static void append_byte(struct message *message, unsigned char byte)
{
    append(message, &byte, 1);
}

static void append_count(struct message *message, uint64_t count)
{
    append(message, &count, sizeof count);
}

static void append_text(struct message *message, const char *text)
{
    append_count(message, strlen(text));
    append(message, text, strlen(text));
}

/* The first address that answers; an errno when none does. */
static int connect_any(struct shoali_agent_store *agent, int64_t deadline_ns, char *why)
{
    struct addrinfo *addresses = NULL;
    const int found = shoali_address_find(agent->host, agent->port, &addresses);
    if (found != 0) {
        snprintf(why, SHOALI_AGENT_WHY_BYTES, "cannot find the host \"%s\" (MASTER_ADDR): %s",
                 agent->host, gai_strerror(found));
        return EADDRNOTAVAIL;
    }
    int code = EADDRNOTAVAIL;
    for (const struct addrinfo *at = addresses; at && agent->fd < 0; at = at->ai_next) {
        agent->fd = shoali_stream_connect(at, deadline_ns);
        code = agent->fd < 0 ? errno : 0;
    }
    freeaddrinfo(addresses);
    if (code != 0)
        snprintf(why, SHOALI_AGENT_WHY_BYTES,
                 "no answer from torchrun's store at %s:%s (MASTER_ADDR:MASTER_PORT): %s; is "
                 "torchrun of the first host running, and its port open between the hosts?",
                 agent->host, agent->port, strerror(code));
    return code;
}

/* An open connection that has introduced itself. */
static bool open_connection(struct shoali_agent_store *agent, int64_t deadline_ns, char *why)
{
    struct message hello = {.used = 0};
    if (agent->fd >= 0)
        return true;
    if (connect_any(agent, deadline_ns, why) != 0)
        return false;
    append_byte(&hello, VALIDATE);
    append(&hello, &greeting, sizeof greeting);
    if (shoali_stream_send(agent->fd, hello.bytes, hello.used, deadline_ns))
        return true;
    snprintf(why, SHOALI_AGENT_WHY_BYTES, "lost the connection to torchrun's store at %s:%s",
             agent->host, agent->port);
    return false;
}

/* Does the store have the key? False: it cannot be said. */
static bool check_key(struct shoali_agent_store *agent, const char *key, int64_t deadline_ns,
                      bool *is_there)
{
    struct message question = {.used = 0};
    unsigned char answer = 0;
    append_byte(&question, CHECK);
    append_count(&question, 1);
    append_text(&question, key);
    if (!shoali_stream_send(agent->fd, question.bytes, question.used, deadline_ns) ||
        !shoali_stream_receive(agent->fd, &answer, 1, deadline_ns))
        return false;
    *is_there = answer == READY;
    return answer == READY || answer == NOT_READY;
}

static bool read_text(struct shoali_agent_store *agent, const char *key, int64_t deadline_ns,
                      char *text, size_t bytes)
{
    struct message question = {.used = 0};
    uint64_t count = 0;
    append_byte(&question, GET);
    append_text(&question, key);
    if (!shoali_stream_send(agent->fd, question.bytes, question.used, deadline_ns) ||
        !shoali_stream_receive(agent->fd, &count, sizeof count, deadline_ns) || count == 0 ||
        count >= bytes || !shoali_stream_receive(agent->fd, text, (size_t)count, deadline_ns))
        return false;
    text[count] = '\0';
    return true;
}

static bool read_number(struct shoali_agent_store *agent, int64_t deadline_ns, int32_t *number)
{
    char text[NUMBER_BYTES] = "";
    int64_t value = 0;
    if (!read_text(agent, agent->key, deadline_ns, text, sizeof text) ||
        !shoali_parse_i64(text, &value) || value < 1 || value > 65535)
        return false;
    *number = (int32_t)value;
    return true;
}

static bool write_text(struct shoali_agent_store *agent, const char *key, int64_t deadline_ns,
                       const char *text)
{
    struct message order = {.used = 0};
    bool is_there = false;
    append_byte(&order, SET);
    append_text(&order, key);
    append_text(&order, text);
    return shoali_stream_send(agent->fd, order.bytes, order.used, deadline_ns) &&
           check_key(agent, key, deadline_ns, &is_there) && is_there;
}

static bool write_number(struct shoali_agent_store *agent, int64_t deadline_ns, int32_t number)
{
    char text[NUMBER_BYTES];
    snprintf(text, sizeof text, "%d", (int)number);
    return write_text(agent, agent->key, deadline_ns, text);
}

/* After a question without a good answer: try again, or give up with a sentence? */
static shoal_status note_failure(struct shoali_agent_store *agent, const char *why)
{
    const int64_t now_ns = shoali_now_ns();
    if (!agent->failing_since)
        agent->failing_since = now_ns;
    const bool connected = agent->fd >= 0;
    shoali_agent_store_fini(agent);
    agent->hang_ups += connected;
    if (agent->hang_ups >= HANG_UPS_MAX)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "what answers at %s:%s (MASTER_ADDR:MASTER_PORT) is not the store of "
                          "torchrun of PyTorch 2.2 or later, as TORCHELASTIC_USE_AGENT_STORE "
                          "says: use torchrun --rdzv-backend c10d, or `shoal run`",
                          agent->host, agent->port);
    if (now_ns - agent->failing_since > PATIENCE_NS)
        return SHOAL_FAIL(SHOAL_ETIMEOUT, "%s (tried for %.0f s)", why, (double)PATIENCE_NS * 1e-9);
    return SHOAL_IN_PROGRESS;
}

static void note_success(struct shoali_agent_store *agent)
{
    agent->failing_since = 0;
    agent->hang_ups = 0;
}

static int64_t attempt_end(int64_t deadline_ns)
{
    const int64_t own_ns = shoali_deadline_ns(ATTEMPT_NS);
    return own_ns < deadline_ns ? own_ns : deadline_ns;
}

shoal_status shoali_agent_store_get(struct shoali_agent_store *agent, int64_t deadline_ns,
                                    int32_t *number, char *why)
{
    const int64_t end_ns = attempt_end(deadline_ns);
    bool is_there = false;
    snprintf(why, SHOALI_AGENT_WHY_BYTES, "torchrun's store at %s:%s gives no answer", agent->host,
             agent->port);
    if (!open_connection(agent, end_ns, why) || !check_key(agent, agent->key, end_ns, &is_there) ||
        (is_there && !read_number(agent, end_ns, number)))
        return note_failure(agent, why);
    note_success(agent);
    if (is_there)
        return SHOAL_OK;
    snprintf(why, SHOALI_AGENT_WHY_BYTES,
             "rank 0 has not told its port yet in torchrun's store at %s:%s; does it run Shoal, "
             "too?",
             agent->host, agent->port);
    return SHOAL_IN_PROGRESS;
}

shoal_status shoali_agent_store_put(struct shoali_agent_store *agent, int32_t number,
                                    int64_t deadline_ns)
{
    char why[SHOALI_AGENT_WHY_BYTES];
    for (;;) {
        const int64_t end_ns = attempt_end(deadline_ns);
        snprintf(why, sizeof why, "torchrun's store at %s:%s gives no answer", agent->host,
                 agent->port);
        if (open_connection(agent, end_ns, why) && write_number(agent, end_ns, number)) {
            note_success(agent);
            return SHOAL_OK;
        }
        const shoal_status status = note_failure(agent, why);
        if (status != SHOAL_IN_PROGRESS)
            return status;
        if (shoali_deadline_passed(deadline_ns))
            return SHOAL_FAIL(SHOAL_ETIMEOUT, "%s", why);
        nanosleep(&(struct timespec){0, AGAIN_NS}, NULL);
    }
}

/* Of the failures that concern the rank 0 at a port. */
static void name_failure(const struct shoali_agent_store *agent, int32_t number, char *key)
{
    snprintf(key, FAILURE_KEY_BYTES, "%s/%d/failure", agent->key, (int)number);
}

void shoali_agent_store_tell(struct shoali_agent_store *agent, const char *sentence)
{
    const int64_t deadline_ns = shoali_deadline_ns(TELL_NS);
    char why[SHOALI_AGENT_WHY_BYTES], key[FAILURE_KEY_BYTES], text[SHOALI_AGENT_WHY_BYTES];
    int32_t number = 0;
    shoal_status status;
    while ((status = shoali_agent_store_get(agent, deadline_ns, &number, why)) ==
               SHOAL_IN_PROGRESS &&
           !shoali_deadline_passed(deadline_ns))
        nanosleep(&(struct timespec){0, AGAIN_NS}, NULL);
    if (status != SHOAL_OK)
        return;
    name_failure(agent, number, key);
    snprintf(text, sizeof text, "%s", sentence);
    (void)write_text(agent, key, attempt_end(deadline_ns), text);
}

bool shoali_agent_store_told(struct shoali_agent_store *agent, int32_t number, char *sentence)
{
    const int64_t end_ns = attempt_end(INT64_MAX);
    char why[SHOALI_AGENT_WHY_BYTES], key[FAILURE_KEY_BYTES];
    bool is_there = false;
    name_failure(agent, number, key);
    if (open_connection(agent, end_ns, why) && check_key(agent, key, end_ns, &is_there))
        return is_there && read_text(agent, key, end_ns, sentence, SHOALI_AGENT_WHY_BYTES);
    shoali_agent_store_fini(agent);
    return false;
}
