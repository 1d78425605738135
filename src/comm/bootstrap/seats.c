/* Who has a seat at this rank, and where the others have to go. */
#include "comm/bootstrap/tree.h"

#include <stdio.h>
#include <string.h>

enum { PAYLOAD_BYTES = 160 };

struct request {
    int rank, size, port;
    char who[SHOALI_TREE_WHO_BYTES];
};

int32_t shoali_tree_parent(int32_t rank)
{
    return rank > 0 ? (rank - 1) / SHOALI_TREE_FANOUT : -1;
}

void shoali_tree_children(int32_t rank, int32_t size, int32_t *begin, int32_t *end)
{
    const int64_t first = (int64_t)rank * SHOALI_TREE_FANOUT + 1, last = first + SHOALI_TREE_FANOUT;
    *begin = first < size ? (int32_t)first : size;
    *end = last < size ? (int32_t)last : size;
}

static bool read_request(const struct shoali_guest *guest, struct request *request)
{
    char text[PAYLOAD_BYTES];
    int end = 0;
    *request = (struct request){0};
    if (guest->bytes >= sizeof text)
        return false;
    memcpy(text, guest->payload, guest->bytes);
    text[guest->bytes] = '\0';
    return sscanf(text, "%d %d %d %95[^\n]%n", &request->rank, &request->size, &request->port,
                  request->who, &end) == 4 &&
           text[end] == '\0' && request->port >= 0 && request->port <= 65535;
}

/* On the way from the server's rank to this one: the rank below the server; -1: there is no way. */
static int32_t next_on_way(int32_t from, int32_t to)
{
    while (to > from && shoali_tree_parent(to) != from)
        to = shoali_tree_parent(to);
    return to > from ? to : -1;
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
           strncmp(address, "::ffff:127.", 11) == 0;
}

static const char *check(const struct shoali_seats *seats, const struct request *request,
                         int32_t next, char *text, size_t bytes)
{
    if (request->size != seats->size)
        snprintf(text, bytes,
                 "rank %d expects %d ranks, rank %d expects %d: WORLD_SIZE must be the same on all "
                 "ranks",
                 request->rank, request->size, (int)seats->rank, (int)seats->size);
    else if (next < 0 || request->rank >= seats->size ||
             (next == request->rank &&
              seats->chair[next - seats->rank * SHOALI_TREE_FANOUT - 1].taken))
        snprintf(text, bytes,
                 "two processes are rank %d: RANK must be different on every process, and "
                 "MASTER_PORT for every job",
                 request->rank);
    else
        return NULL;
    return text;
}

static void take(struct shoali_chair *chair, const struct request *request,
                 const struct shoali_guest *guest)
{
    *chair = (struct shoali_chair){.taken = true, .port = request->port};
    chair->near = is_loopback(guest->there) || strcmp(guest->there, guest->here) == 0;
    snprintf(chair->host, sizeof chair->host, "%s", guest->there);
    snprintf(chair->who, sizeof chair->who, "%s", request->who);
}

static void refer(const struct shoali_chair *chair, const struct shoali_guest *guest, char *text,
                  size_t bytes)
{
    const char *host = chair->near ? guest->here : chair->host;
    snprintf(text, bytes, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, (int)chair->port);
}

char shoali_seats_join(struct shoali_table *table, const struct shoali_guest *guest, int32_t *seat,
                       char *text, size_t text_bytes)
{
    struct shoali_seats *seats = table->seats;
    struct request request;
    char letter = 'E';
    text[0] = '\0';
    if (!read_request(guest, &request)) {
        snprintf(text, text_bytes, "ranks run different versions of Shoal");
        return letter;
    }
    pthread_mutex_lock(&table->lock);
    const int32_t next = next_on_way(seats->rank, request.rank);
    const int32_t index = next - seats->rank * SHOALI_TREE_FANOUT - 1;
    if (table->aborted) {
        letter = 'F';
        snprintf(text, text_bytes, "%s", table->sentence);
    } else if (!check(seats, &request, next, text, text_bytes)) {
        struct shoali_chair *chair = &seats->chair[index];
        letter = next == request.rank ? 'O' : chair->taken ? 'R' : 'N';
        if (letter == 'R')
            refer(chair, guest, text, text_bytes);
        else
            snprintf(text, text_bytes, "%d", (int)next);
        if (letter == 'O') {
            take(chair, &request, guest);
            *seat = index + 1;
        }
    }
    pthread_mutex_unlock(&table->lock);
    return letter;
}

void shoali_seats_lose(struct shoali_table *table, int32_t seat)
{
    const struct shoali_seats *seats = table->seats;
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
    pthread_mutex_lock(&table->lock);
    snprintf(sentence, sizeof sentence,
             "rank %d (%s) is gone: it was killed, or its machine or the network to it is down, "
             "while the ranks joined",
             (int)(seats->rank * SHOALI_TREE_FANOUT + seat), seats->chair[seat - 1].who);
    pthread_mutex_unlock(&table->lock);
    shoali_table_abort(table, sentence);
}
