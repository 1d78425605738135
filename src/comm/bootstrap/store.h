/* store - what the three kinds of store have in common. For the files of this folder only. */
#ifndef SHOALI_STORE_H
#define SHOALI_STORE_H

#include "comm/bootstrap/bootstrap.h"

#include <pthread.h>

struct shoali_seats; /* tree.h */
enum {
    SHOALI_ADDRESS_BYTES = 48, /* of an address as numbers */
    SHOALI_STORE_KEY_BYTES = 201,
    SHOALI_STORE_VALUE_BYTES = 65536,
    SHOALI_STORE_SENTENCE_BYTES = 1024
};

/* First member of every store. `get` gives SHOAL_IN_PROGRESS for an absent key and SHOAL_EPEER once
 * the store is aborted. */
struct shoali_store_kind {
    const char *name;
    shoal_status (*open)(const struct shoali_store_args *args, struct shoali_store **store);
    void (*close)(struct shoali_store *store);
    shoal_status (*put)(struct shoali_store *store, const char *key, const void *value,
                        size_t bytes);
    shoal_status (*get)(struct shoali_store *store, const char *key, void *value, size_t *bytes);
    void (*abort)(struct shoali_store *store, const char *sentence);
    int (*trouble)(const struct shoali_store *store); /* optional */
};
struct shoali_store {
    const struct shoali_store_kind *kind;
    int64_t timeout_ns;
};
extern const struct shoali_store_kind shoali_store_threads, shoali_store_file, shoali_store_tcp,
    shoali_store_tree;

/* The keys in memory: of the `threads` kind and of the tcp server. Thread-safe. */
struct shoali_table_entry;
struct shoali_table {
    pthread_mutex_t lock;
    struct shoali_table_entry *first;
    struct shoali_seats *seats; /* borrowed; NULL: who knows the secret comes and stays */
    bool aborted;
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
};
void shoali_table_init(struct shoali_table *table);
void shoali_table_fini(struct shoali_table *table);
SHOAL_CHECKED shoal_status shoali_table_put(struct shoali_table *table, const char *key,
                                            const void *value, size_t bytes);
SHOAL_CHECKED shoal_status shoali_table_get(struct shoali_table *table, const char *key,
                                            void *value, size_t *bytes);
void shoali_table_abort(struct shoali_table *table, const char *sentence);

/* The serving thread of the tcp kind: answers for `table` (borrowed) until closed. */
struct shoali_tcp_server;
SHOAL_CHECKED shoal_status shoali_tcp_server_open(const char *host, const char *port,
                                                  const struct shoali_credentials *credentials,
                                                  struct shoali_table *table,
                                                  struct shoali_tcp_server **server);
int32_t shoali_tcp_server_get_port(const struct shoali_tcp_server *server);
/* Connections at present, and the most at any time. */
void shoali_tcp_server_count(const struct shoali_tcp_server *server, int32_t *now, int32_t *most);
/* The errno for which nobody can be let in, 0: all is well. */
int shoali_tcp_server_get_trouble(const struct shoali_tcp_server *server);
void shoali_tcp_server_close(struct shoali_tcp_server *server);

/* Of stores of the tcp kind. The serving side's server. */
struct shoali_tcp_server *shoali_tcp_store_get_server(const struct shoali_store *store);
/* A client's connection: is it one of IPv6? */
bool shoali_tcp_store_is_v6(const struct shoali_store *store);
bool shoali_tcp_store_is_connected(const struct shoali_store *store);
/* Of the serving side: has somebody that seat, from 0? */
bool shoali_tcp_store_is_taken(struct shoali_store *store, int32_t seat);
/* Gives the seat back; waits for no answer. */
void shoali_tcp_store_leave(struct shoali_store *store);
/* Asks for a seat: the answer's letter and text. SHOAL_EPEER: the connection is lost. */
SHOAL_CHECKED shoal_status shoali_tcp_store_say(struct shoali_store *store, char letter,
                                                const char *payload, char *answer, char *text,
                                                size_t text_bytes);

#endif
