/* bootstrap - a key-value store for the moments before and beside collectives.
 *
 * put/get/wait of short values (<= 64 KiB) under names, and an abort verdict that every waiter
 * sees. Four kinds: `threads` (an object shared by the ranks of one process), `file` (a folder,
 * one file per key, for tests and shared file systems), `tcp` (rank 0, or the launcher, listens on
 * MASTER_ADDR:MASTER_PORT; the others connect and retry until the deadline; protocol.h says what
 * they say), `tree` (the same for any number of ranks: none is connected to more than 33 others,
 * tree.h). Both sides of a connection prove that they know the job's secret (secret.h) before
 * anything else is heard. torchrun keeps a store of its own at MASTER_PORT; there the ranks read
 * at which port rank 0 listens (agent_store.h). Port in use: SHOAL_EINVAL "port 29500 is already
 * in use (MASTER_PORT): choose another with --master_port".
 */
#ifndef SHOALI_BOOTSTRAP_H
#define SHOALI_BOOTSTRAP_H

#include "comm/bootstrap/secret.h"

struct shoali_store;
/* kind "tcp": where = "host:port", server = this process serves; "file": where = folder; "threads":
 * where ignored, `shared` another open store of the same ranks (NULL: a new one); it lives until
 * its last user closes. "tcp" needs credentials, which are copied. A client of "tcp" calls `look`
 * (NULL: none) while it waits to be let in; its error ends the waiting. */
struct shoali_store_args {
    const char *kind, *where;
    bool server;
    bool by_agent; /* tcp and tree: `where` is torchrun's store, which knows rank 0's port */
    struct shoali_store *shared;
    const struct shoali_credentials *credentials;
    double timeout_s;
    shoal_status (*look)(const void *user);
    const void *poll_user;
    int32_t rank, size;         /* tree: of this process, and of all */
    struct shoali_seats *seats; /* tcp, for tree: borrowed */
};
SHOAL_CHECKED shoal_status shoali_store_open(const struct shoali_store_args *args,
                                             struct shoali_store **store);
void shoali_store_close(struct shoali_store *store);
/* 0 bytes remove the key. Keys are 1 to 200 printable characters without spaces. */
SHOAL_CHECKED shoal_status shoali_store_put(struct shoali_store *store, const char *key,
                                            const void *value, size_t bytes);
/* SHOAL_IN_PROGRESS when absent. *bytes in: capacity, out: size. */
SHOAL_CHECKED shoal_status shoali_store_get(struct shoali_store *store, const char *key,
                                            void *value, size_t *bytes);
SHOAL_CHECKED shoal_status shoali_store_wait(struct shoali_store *store, const char *key,
                                             void *value, size_t *bytes);
/* Every rank's value to every rank, by O(log N) messages of each (exchange.c): `take` is called
 * once for each rank, the own one too. Collective over the ranks of `size`. */
struct shoali_exchange {
    const char *name; /* of its keys, used once */
    int32_t rank, size;
    const void *own;
    size_t bytes;
    shoal_status (*take)(void *user, int32_t rank, const void *value, size_t bytes);
    void *user;
    int64_t messages; /* filled: values put and got; looks that found nothing aside */
};
SHOAL_CHECKED shoal_status shoali_store_exchange(struct shoali_store *store,
                                                 struct shoali_exchange *exchange);
/* From now on get and wait of every user give SHOAL_EPEER with the sentence. The first one stays.
 */
void shoali_store_abort(struct shoali_store *store, const char *sentence);
/* Connections that others have to this process for the store: at present, and the most at any
 * time. */
void shoali_store_count_connections(const struct shoali_store *store, int32_t *now, int32_t *most);
/* Why the server of "tcp" cannot let anybody in at present (an errno), 0: it can. */
int shoali_store_get_trouble(const struct shoali_store *store);

#endif
