/* agent_store - where ranks that torchrun starts find rank 0.
 *
 * torchrun's agent of the first host keeps a key-value store (PyTorch's TCPStore) at
 * MASTER_ADDR:MASTER_PORT and says so to the ranks with TORCHELASTIC_USE_AGENT_STORE=True. So rank
 * 0 cannot listen there. It listens at a port that the system chooses (or UCX_TCP_PORT_RANGE) and
 * stores the number in the agent's store; the other ranks read it there. One that cannot join, for
 * want of a secret, stores its sentence for the rank 0 of that port. Without the variable
 * (etcd, c10d of PyTorch before 2.4) MASTER_PORT is free, and nothing of this is used.
 *
 * Wire format (PyTorch 2.2 and later, both of its backends), numbers in the host's byte order. A
 * connection begins with the byte 0 and the 32-bit number 0x3C85F7CE. A question is a byte and its
 * arguments; a text is a 64-bit length and the bytes:
 *
 *   1 set    key, value           no answer
 *   3 get    key                  the value; without the key the server hangs up
 *   5 check  64-bit count, keys   a byte: 0 when the store has them all, else 1
 *
 * Invariants. The store is not trusted: it has no password. A rank that it sends to a wrong port
 * finds nobody there who knows the job's secret (secret.h). The key has neither an attempt nor a
 * time in it, as the agents of several hosts count restarts each for itself: a later rank 0
 * overwrites what an earlier one has left, and a rank that finds nobody at a port reads it again.
 */
#ifndef SHOALI_AGENT_STORE_H
#define SHOALI_AGENT_STORE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHOALI_AGENT_HOST_BYTES = 256, SHOALI_AGENT_KEY_BYTES = 160, SHOALI_AGENT_WHY_BYTES = 512 };

struct shoali_agent_store {
    char host[SHOALI_AGENT_HOST_BYTES], port[8];
    char key[SHOALI_AGENT_KEY_BYTES];
    int fd;                /* -1: no connection */
    int32_t hang_ups;      /* in a row, of a server that took the connection */
    int64_t failing_since; /* nanoseconds; 0: it has answered last */
};

/* Does the environment say that torchrun's agent keeps a store at this address? */
bool shoali_agent_store_is_at(const char *address, int32_t port);
void shoali_agent_store_init(struct shoali_agent_store *agent, const char *host, const char *port);
void shoali_agent_store_fini(struct shoali_agent_store *agent);
/* Stores rank 0's port; tries until the deadline, or 30 s. */
SHOAL_CHECKED shoal_status shoali_agent_store_put(struct shoali_agent_store *agent, int32_t number,
                                                  int64_t deadline_ns);
/* Reads rank 0's port. SHOAL_IN_PROGRESS: not this time, for the reason in `why`; an error when the
 * store has not answered for 30 s, or does not speak as above. */
SHOAL_CHECKED shoal_status shoali_agent_store_get(struct shoali_agent_store *agent,
                                                  int64_t deadline_ns, int32_t *number, char *why);
/* Tells rank 0 that this rank cannot join it. Waits for its port, for 10 s at most. */
void shoali_agent_store_tell(struct shoali_agent_store *agent, const char *sentence);
/* Has a rank told the rank 0 at this port? Its sentence has SHOALI_AGENT_WHY_BYTES. */
bool shoali_agent_store_told(struct shoali_agent_store *agent, int32_t number, char *sentence);

#endif
