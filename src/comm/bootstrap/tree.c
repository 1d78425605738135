/* The store of a rank in a tree: a client of its parent (up) and a server for those below
 * (down). */
#include "comm/bootstrap/tree.h"

#include "base/started.h"
#include "base/waiting.h"
#include "comm/bootstrap/address.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WHERE_BYTES = 320, WHY_BYTES = 512, LISTED = 120 };
#define NAP_NS INT64_C(1000000)
#define LONG_NAP_NS INT64_C(20000000)
#define EACH_NS INT64_C(50000)
#define VISIT_S 5.0                  /* for a rank that one was sent to */
#define LINGER_NS INT64_C(500000000) /* for those below to learn of a failure */

struct tree_store {
    struct shoali_store base;
    int32_t rank, size;
    struct shoali_store *up, *down; /* NULL: rank 0; who has nobody below */
    struct shoali_seats seats;
    char above[WHERE_BYTES]; /* where `up` is */
    bool failed;
};

static void nap(int64_t *pause_ns, int64_t longest_ns)
{
    nanosleep(&(struct timespec){*pause_ns / 1000000000, (long)(*pause_ns % 1000000000)}, NULL);
    *pause_ns += *pause_ns < longest_ns ? *pause_ns / 2 : 0;
}

/* ---- joining -------------------------------------------------------------------------------- */

static shoal_status open_down(struct tree_store *tree, const struct shoali_store_args *args,
                              const char *where)
{
    struct shoali_store_args own = *args;
    int32_t begin, end;
    shoali_tree_children(tree->rank, tree->size, &begin, &end);
    if (tree->down || (begin == end && tree->rank > 0))
        return SHOAL_OK;
    tree->seats.rank = tree->rank;
    tree->seats.size = tree->size;
    own.kind = "tcp";
    own.where = where;
    own.server = true;
    own.by_agent = args->by_agent && tree->rank == 0;
    own.seats = &tree->seats;
    return shoali_store_open(&own, &tree->down);
}

/* All addresses of the family by which this rank has reached another; of this machine's secret,
 * this machine's own. */
static shoal_status open_down_anywhere(struct tree_store *tree,
                                       const struct shoali_store_args *args)
{
    const bool v6 = shoali_tcp_store_is_v6(tree->up);
    const char *host =
        args->credentials->this_machine ? (v6 ? "[::1]" : "127.0.0.1") : (v6 ? "[::]" : "0.0.0.0");
    char where[WHERE_BYTES];
    int first, last;
    shoal_status status = SHOAL_EINVAL;
    shoali_address_port_range(&first, &last);
    for (int port = first; port <= last && status == SHOAL_EINVAL; port++) {
        snprintf(where, sizeof where, "%s:%d", host, port);
        status = open_down(tree, args, where);
    }
    return status;
}

static void hang_up(struct tree_store *tree)
{
    shoali_store_close(tree->up);
    tree->up = NULL;
}

/* Asks there for a seat: the letter of the answer, 0 when nobody could be asked. */
static shoal_status ask_for_seat(struct tree_store *tree, const struct shoali_store_args *args,
                                 const char *where, double timeout_s, char *letter, char *text)
{
    struct shoali_store_args own = *args;
    char payload[160], host[64] = "";
    shoal_status status = SHOAL_OK;
    *letter = '\0';
    own.kind = "tcp";
    own.where = where;
    own.server = false;
    own.by_agent = args->by_agent && strcmp(where, args->where) == 0;
    own.timeout_s = timeout_s;
    SHOAL_TRY(status, shoali_store_open(&own, &tree->up), done);
    SHOAL_TRY(status, open_down_anywhere(tree, args), done);
    gethostname(host, sizeof host - 1);
    snprintf(payload, sizeof payload, "%d %d %d pid %d on %s", (int)tree->rank, (int)tree->size,
             tree->down ? (int)shoali_tcp_server_get_port(shoali_tcp_store_get_server(tree->down))
                        : 0,
             (int)getpid(), host);
    if (shoali_tcp_store_say(tree->up, 'J', payload, letter, text, WHY_BYTES) != SHOAL_OK)
        *letter = '\0'; /* too many came at once: again */
done:
    return status;
}

static shoal_status fail_of_way(const struct tree_store *tree, const char *where, const char *why,
                                double timeout_s)
{
    if (*where)
        return SHOAL_FAIL(SHOAL_ETIMEOUT,
                          "rank %d joins at %s and did not reach it within %.1f s (%s): jobs of "
                          "more than %d ranks join at ports that the system chooses, or of "
                          "UCX_TCP_PORT_RANGE; these must be open between the hosts",
                          (int)tree->rank, where, timeout_s, why, SHOALI_TREE_FANOUT + 1);
    return SHOAL_FAIL(SHOAL_ETIMEOUT, "rank %s, at which rank %d joins, did not join within %.1f s",
                      why, (int)tree->rank, timeout_s);
}

/* Where the others learn of a failure before this rank has a place among them. */
static void notify_master(struct tree_store *tree, const struct shoali_store_args *args)
{
    struct shoali_store_args own = *args;
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "rank %d failed: %s", (int)tree->rank,
             shoal_error_message());
    own.kind = "tcp";
    own.server = false;
    own.timeout_s = VISIT_S;
    if (!tree->up && shoali_store_open(&own, &tree->up) != SHOAL_OK)
        tree->up = NULL;
    if (tree->up)
        shoali_store_abort(tree->up, sentence);
}

/* What to do after an answer; SHOAL_IN_PROGRESS: ask again at `where`. */
static shoal_status follow(struct tree_store *tree, const struct shoali_store_args *args,
                           char letter, const char *text, char *where)
{
    switch (letter) {
    case 'O':
        snprintf(tree->above, sizeof tree->above, "%s", where);
        return SHOAL_OK;
    case 'F':
        return SHOAL_FAIL(SHOAL_EPEER, "%s", text);
    case 'E':
        return SHOAL_FAIL(SHOAL_EINVAL, "%s", text);
    case 'R':
        snprintf(where, WHERE_BYTES, "%.300s", text);
        break;
    default:
        snprintf(where, WHERE_BYTES, "%s", args->where);
    }
    hang_up(tree);
    return SHOAL_IN_PROGRESS;
}

static shoal_status join(struct tree_store *tree, const struct shoali_store_args *args)
{
    const int64_t deadline_ns = shoali_deadline_ns((int64_t)(args->timeout_s * 1e9));
    char where[WHERE_BYTES], text[WHY_BYTES] = "", letter = '\0';
    char way[WHERE_BYTES] = "", why[WHY_BYTES] = ""; /* what has kept it from its place last */
    int64_t pause_ns = NAP_NS;
    struct shoali_waiting waiting = {0};
    shoal_status status;
    snprintf(where, sizeof where, "%s", args->where);
    for (;;) {
        const double left_s = (double)(deadline_ns - shoali_now_ns()) * 1e-9;
        const bool sent_on = strcmp(where, args->where) != 0;
        if (left_s <= 0 && *why)
            return fail_of_way(tree, way, why, args->timeout_s);
        status = ask_for_seat(tree, args, where, sent_on && left_s > VISIT_S ? VISIT_S : left_s,
                              &letter, text);
        if (status < 0 && !(sent_on && status == SHOAL_ETIMEOUT))
            return *why && status == SHOAL_ETIMEOUT ? fail_of_way(tree, way, why, args->timeout_s)
                                                    : status;
        if (status < 0 || letter == 'N') {
            snprintf(way, sizeof way, "%s", status < 0 ? where : "");
            snprintf(why, sizeof why, "%s", status < 0 ? "nobody answers" : text);
            shoali_error_clear();
        }
        if (*why && shoali_waiting_due(&waiting, NULL))
            SHOALI_WARN("comm", "waiting for %.0f s for %s%s, at which rank %d joins: %s",
                        shoali_waiting_seconds(&waiting), *way ? "" : "rank ", *way ? way : why,
                        (int)tree->rank, *way ? why : "it has not joined itself");
        status = follow(tree, args, status < 0 ? '\0' : letter, text, where);
        if (status != SHOAL_IN_PROGRESS)
            return status;
        if (letter != 'R') /* the more ranks ask, the rarer */
            nap(&pause_ns, LONG_NAP_NS + tree->size * EACH_NS);
    }
}

static void tree_close(struct shoali_store *store)
{
    struct tree_store *tree = (struct tree_store *)store;
    if (tree->failed && tree->down)
        nanosleep(&(struct timespec){0, LINGER_NS}, NULL);
    if (tree->up && *tree->above)
        shoali_tcp_store_leave(tree->up);
    shoali_store_close(tree->up);
    shoali_store_close(tree->down);
    shoali_free(tree);
}

static shoal_status tree_open(const struct shoali_store_args *args, struct shoali_store **store)
{
    shoal_status status = SHOAL_OK;
    SHOAL_ASSERT(args->credentials && args->rank >= 0 && args->rank < args->size);
    struct tree_store *tree = shoali_calloc(1, sizeof *tree, "a store");
    if (!tree)
        return SHOAL_ENOMEM;
    tree->base.kind = &shoali_store_tree;
    tree->base.timeout_ns = (int64_t)(args->timeout_s * 1e9);
    tree->rank = args->rank;
    tree->size = args->size;
    status = args->rank == 0 ? open_down(tree, args, args->where) : join(tree, args);
    if (status == SHOAL_OK && tree->up)
        tree->up->timeout_ns = tree->base.timeout_ns;
    if (status == SHOAL_OK)
        *store = &tree->base;
    else if (args->rank > 0 && status != SHOAL_EPEER)
        notify_master(tree, args);
    if (status < 0)
        tree_close(&tree->base);
    return status;
}

/* ---- failure -------------------------------------------------------------------------------- */

static void tree_abort(struct shoali_store *store, const char *sentence)
{
    struct tree_store *tree = (struct tree_store *)store;
    if (!tree->failed && tree->up)
        shoali_store_abort(tree->up, sentence);
    if (tree->down)
        shoali_store_abort(tree->down, sentence);
    tree->failed = true;
}

/* A verdict of one side, for the other. A failure of this rank's own is for the caller to tell. */
static shoal_status spread(struct tree_store *tree, shoal_status status, bool from_below)
{
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
    struct shoali_store *other = from_below ? tree->up : tree->down;
    if (status != SHOAL_EPEER)
        return status;
    if (from_below || shoali_tcp_store_is_connected(tree->up))
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    else
        snprintf(sentence, sizeof sentence,
                 "rank %d, at which rank %d joins (%s), is gone: it was killed, or its machine or "
                 "the network to it is down, while the ranks joined",
                 (int)shoali_tree_parent(tree->rank), (int)tree->rank, tree->above);
    if (other && !tree->failed)
        shoali_store_abort(other, sentence);
    tree->failed = true;
    return SHOAL_FAIL(SHOAL_EPEER, "%s", sentence);
}

/* SHOAL_OK, or the verdict that one of the two sides has. */
static shoal_status look(struct tree_store *tree)
{
    char value[8];
    size_t bytes = sizeof value;
    shoal_status status = SHOAL_OK;
    if (tree->down)
        status = shoali_store_get(tree->down, "look", value, &bytes);
    if (status < 0)
        return spread(tree, status, true);
    if (tree->up)
        status = shoali_store_get(tree->up, "look", value, &bytes);
    return status < 0 ? spread(tree, status, false) : SHOAL_OK;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Those without a seat here, as text; their number. */
static int32_t list_absent(struct tree_store *tree, char text[LISTED])
{
    int32_t begin, end, count = 0;
    size_t at = 0;
    text[0] = '\0';
    shoali_tree_children(tree->rank, tree->size, &begin, &end);
    for (int32_t r = begin; r < end; r++) {
        if (shoali_tcp_store_is_taken(tree->down, r - begin))
            continue;
        if (at + 16 < LISTED)
            at += (size_t)snprintf(text + at, LISTED - at, "%s%d", count ? ", " : "", (int)r);
        count++;
    }
    return count;
}

static shoal_status fail_of_absence(struct tree_store *tree, int32_t from)
{
    char absent[LISTED];
    const double seconds = (double)tree->base.timeout_ns * 1e-9;
    const int trouble = tree->down ? shoali_store_get_trouble(tree->down) : 0;
    if (from == SHOALI_TREE_WHOLE)
        return SHOAL_FAIL(SHOAL_ETIMEOUT,
                          "rank %d, at which rank %d joins, has not received the addresses of all "
                          "%d ranks within %.1f s",
                          (int)shoali_tree_parent(tree->rank), (int)tree->rank, (int)tree->size,
                          seconds);
    if (list_absent(tree, absent) == 0)
        return SHOAL_FAIL(
            SHOAL_ETIMEOUT,
            "rank %d (%s) joined, but not all ranks that join at it did within %.1f s", (int)from,
            tree->seats.chair[from - tree->rank * SHOALI_TREE_FANOUT - 1].who, seconds);
    return SHOAL_FAIL(SHOAL_ETIMEOUT, "of %d ranks these did not join within %.1f s: %s%s%s",
                      (int)tree->size, seconds, absent,
                      trouble ? "; their connections could not be accepted: " : "",
                      trouble ? strerror(trouble) : "");
}

/* Has it waited for long enough? Who misses a rank of its own speaks before those that wait for
 * it. */
static bool is_late(struct tree_store *tree, int32_t from, int64_t since_ns)
{
    char absent[LISTED];
    const int64_t waited_ns = shoali_now_ns() - since_ns;
    if (waited_ns < tree->base.timeout_ns)
        return false;
    return waited_ns - tree->base.timeout_ns / 2 >= tree->base.timeout_ns ||
           (from != SHOALI_TREE_WHOLE && list_absent(tree, absent) > 0);
}

/* Who misses ranks of its own says so; of those that wait for these, one on each host does. */
static void say_waiting(struct tree_store *tree, int32_t from, struct shoali_waiting *waiting)
{
    char absent[LISTED] = "";
    if (!shoali_waiting_due(waiting, NULL))
        return;
    const double seconds = shoali_waiting_seconds(waiting);
    if (from != SHOALI_TREE_WHOLE && list_absent(tree, absent) > 0)
        SHOALI_WARN("comm",
                    "waiting for %.0f s for other ranks to join; of %d these have not: %s; are "
                    "they running, with the same MASTER_ADDR and MASTER_PORT?",
                    seconds, (int)tree->size, absent);
    else if (from != SHOALI_TREE_WHOLE)
        SHOALI_WARN("comm", "waiting for %.0f s for the ranks that join at rank %d", seconds,
                    (int)from);
    else if (shoali_started_get().local_rank <= 0)
        SHOALI_WARN("comm",
                    "waiting for %.0f s for rank %d (%s), at which this rank has joined: not all "
                    "of the %d ranks have joined yet",
                    seconds, (int)shoali_tree_parent(tree->rank), tree->above, (int)tree->size);
}

shoal_status shoali_tree_wait(struct shoali_store *store, int32_t from, const char *key,
                              void *value, size_t *bytes)
{
    struct shoali_waiting waiting = {0};
    struct tree_store *tree = (struct tree_store *)store;
    const bool above = from == SHOALI_TREE_WHOLE;
    const size_t capacity = *bytes;
    const int64_t since_ns = shoali_now_ns();
    int64_t pause_ns = NAP_NS / 2, looked_ns = 0;
    for (;;) {
        *bytes = capacity;
        shoal_status status = shoali_store_get(above ? tree->up : tree->down, key, value, bytes);
        if (status < 0)
            return spread(tree, status, !above);
        if (status == SHOAL_OK)
            return status;
        if (shoali_now_ns() - looked_ns > LONG_NAP_NS) {
            status = look(tree);
            looked_ns = shoali_now_ns();
        }
        if (status < 0)
            return status;
        if (is_late(tree, from, since_ns))
            return fail_of_absence(tree, from);
        say_waiting(tree, from, &waiting);
        nap(&pause_ns, LONG_NAP_NS);
    }
}

shoal_status shoali_tree_put(struct shoali_store *store, int32_t from, const char *key,
                             const void *value, size_t bytes)
{
    struct tree_store *tree = (struct tree_store *)store;
    struct shoali_store *to = from == SHOALI_TREE_WHOLE ? tree->down : tree->up;
    const shoal_status status = to ? shoali_store_put(to, key, value, bytes) : SHOAL_OK;
    return status < 0 ? spread(tree, status, to == tree->down) : SHOAL_OK;
}

/* Keys are for those next to each other, which exchange.c uses as shoali_tree_put and _wait; there
 * is no place that all look at. */
static shoal_status tree_put(struct shoali_store *store, const char *key, const void *value,
                             size_t bytes)
{
    return shoali_tree_put(store, SHOALI_TREE_WHOLE, key, value, bytes);
}

static shoal_status tree_get(struct shoali_store *store, const char *key, void *value,
                             size_t *bytes)
{
    struct tree_store *tree = (struct tree_store *)store;
    return shoali_store_get(tree->up ? tree->up : tree->down, key, value, bytes);
}

static int tree_trouble(const struct shoali_store *store)
{
    const struct tree_store *tree = (const struct tree_store *)store;
    return tree->down ? shoali_store_get_trouble(tree->down) : 0;
}

void shoali_store_count_connections(const struct shoali_store *store, int32_t *now, int32_t *most)
{
    const struct shoali_store *down =
        store->kind == &shoali_store_tree ? ((const struct tree_store *)store)->down : store;
    *now = *most = 0;
    if (down && down->kind == &shoali_store_tcp && shoali_tcp_store_get_server(down))
        shoali_tcp_server_count(shoali_tcp_store_get_server(down), now, most);
}

const struct shoali_store_kind shoali_store_tree = {
    .name = "tree",
    .open = tree_open,
    .close = tree_close,
    .put = tree_put,
    .get = tree_get,
    .abort = tree_abort,
    .trouble = tree_trouble,
};
