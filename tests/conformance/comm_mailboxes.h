/* comm_mailboxes - a transport between threads of a test: messages go through mailboxes in this
 * process. They are counted, and any call of a rank can be made to fail. */
#ifndef TEST_COMM_MAILBOXES_H
#define TEST_COMM_MAILBOXES_H

#include "comm/p2p/p2p.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAILBOXES_MOST = 1000, MAILBOXES_ERROR = 5 };

struct message;
struct port {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    struct message *come, *awaited;
    bool news;
    _Atomic bool dead;
    _Atomic int64_t sent;
    /* Sends and receives, and tests, that succeed before one fails; < 0: all. */
    _Atomic int64_t posts_left, tests_left;
    int32_t rank;
    struct port *first; /* of all ranks of the world */
};
extern struct port ports[MAILBOXES_MOST];
extern const struct shoali_p2p_table mailboxes;

/* A world of ranks has the ports [begin, begin + size). */
void ports_open(int32_t begin, int32_t size);
/* Drops what nobody has received. */
void ports_close(int32_t begin, int32_t size);
/* For the world of the port's rank. */
struct shoali_p2p_comm port_comm(struct port *port);

#endif
