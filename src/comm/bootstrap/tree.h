/* tree - how the ranks of a job of any size meet, each connected to few others.
 *
 * Rank r meets at its parent, rank (r - 1) / 32; rank 0 at MASTER_ADDR:MASTER_PORT. So nobody has
 * more than 32 ranks below it and one above, whatever the number of ranks, and three steps lead
 * from rank
 * 0 to any of 33,000. In a job of up to 33 ranks all meet at rank 0.
 *
 *   join      A rank knows nobody but rank 0. It connects there, proves that it knows the secret
 *             (protocol.h; so do both sides of every connection), and asks for a seat: J, its
 * number,
 *             the number of ranks, the port at which it lets its own 32 in, its process and host.
 *             The answer is O (the seat is yours), R HOST:PORT (the rank below me that is on your
 *             way), N (that one has not come; try again soon), or E (a mistake: two processes with
 *             one number, another number of ranks). Who is sent on hangs up first. Those without a
 *             seat are treated as strangers are (tcp_server.c): few at a time, and not for long. So
 *             the many that begin at rank 0 cost it an answer each and no connection that stays.
 *   exchange  Bundles go up the tree, a rank's own with those of its 32 joined to it, and the whole
 *             comes down: 1 + 32 bundles in, 1 + 1 out (exchange.c).
 *   leave     L. A connection that ends without is a rank that is gone, and a verdict.
 *
 * Ports other than MASTER_PORT are chosen by the systems of the hosts, or of UCX_TCP_PORT_RANGE
 * (FIRST-LAST), which says what firewalls leave open. A rank that is sent to one and
 * cannot get there says so. Its address is the one that its parent saw it come from; of a rank on
 * the parent's own host, the one at which who asks has reached the parent.
 *
 * FAILURE. A verdict goes along the edges, up and down: every rank that waits looks at both sides.
 * What the deadline finds, the rank says whose own 32 are not complete; those above it, who wait
 * for it, are patient for half as long again. A parent that dies is found by its children and its
 * own parent, a child by its parent.
 */
#ifndef SHOALI_TREE_H
#define SHOALI_TREE_H

#include "comm/bootstrap/store.h"

enum { SHOALI_TREE_FANOUT = 32, SHOALI_TREE_WHO_BYTES = 96, SHOALI_TREE_WHOLE = -1 };

/* Of a rank that lets others in; under its table's lock. */
struct shoali_chair {
    bool taken, near; /* near: on this host */
    int32_t port;     /* 0: lets nobody in */
    char host[SHOALI_ADDRESS_BYTES], who[SHOALI_TREE_WHO_BYTES];
};
struct shoali_seats {
    int32_t rank, size;
    struct shoali_chair chair[SHOALI_TREE_FANOUT];
};
/* Who asks for a seat: the payload of J, and the addresses of the connection's two ends. */
struct shoali_guest {
    const unsigned char *payload;
    size_t bytes;
    const char *here, *there;
};

/* seats.c: the letter of the answer, its text, and the seat from 1 when it is O. */
char shoali_seats_join(struct shoali_table *table, const struct shoali_guest *guest, int32_t *seat,
                       char *text, size_t text_bytes);
/* The connection of who had it has ended without a word. */
void shoali_seats_lose(struct shoali_table *table, int32_t seat);
int32_t shoali_tree_parent(int32_t rank);
/* The first of those below a rank and one past the last. */
void shoali_tree_children(int32_t rank, int32_t size, int32_t *begin, int32_t *end);

/* tree.c: what exchange.c needs. A value that rank `from` has put for this one (SHOALI_TREE_WHOLE:
 * that the parent has put for those below it), and one for the parent or for those below. */
SHOAL_CHECKED shoal_status shoali_tree_wait(struct shoali_store *store, int32_t from,
                                            const char *key, void *value, size_t *bytes);
SHOAL_CHECKED shoal_status shoali_tree_put(struct shoali_store *store, int32_t from,
                                           const char *key, const void *value, size_t bytes);

#endif
