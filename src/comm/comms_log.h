/* comms_log - how long the collectives of a rank took, by operation and size of the message.
 *
 * The table is DeepSpeed's (comms_logger, log_summary): a row per (operation, message size) with
 * the number of calls, the sum of their latencies, and means without the tenth of the calls that
 * were fastest and the tenth that were slowest. With S bytes, t milliseconds, n ranks:
 *
 *                                        algbw       busbw
 *   all_to_all(_v)                       S / t       S / t * (n-1) / n
 *   all_gather, reduce_scatter           S n / t     S n / t * (n-1) / n
 *   all_reduce                           2 S / t     S / t * 2 (n-1) / n
 *   broadcast, send, recv, barrier, ...  S / t       S / t
 *
 * both times 8 / 1e6, which is Gbit/s. S is one rank's block of all_gather and reduce_scatter, else
 * the whole. n is the number of ranks of the group that met; DeepSpeed takes the world's. A latency
 * runs from the post to the moment when the rank has what it posted for: nothing is made
 * synchronous.
 *
 * The straggler effect: a rank that comes late sees a short call, those that wait for it a long
 * one. The minimum over ranks of a call is what communication itself took; the rest was waiting.
 */
#ifndef SHOALI_COMMS_LOG_H
#define SHOALI_COMMS_LOG_H

#include "comm/comm.h"

struct shoali_comms_call {
    enum shoali_collective kind;
    int64_t bytes; /* S */
    int32_t ranks; /* n */
    const char *here;
};
struct shoali_comms_log_args {
    bool all;               /* whatever `ops` says */
    const char *const *ops; /* names, ours or DeepSpeed's; NULL-terminated; NULL: none */
    bool verbose;           /* a line for each call, on rank 0 */
    bool debug;             /* with where it was made */
};
struct shoali_comms_log;
/* SHOAL_ECONFIG: an operation that does not exist. */
SHOAL_CHECKED shoal_status shoali_comms_log_create(const struct shoali_comms_log_args *args,
                                                   struct shoali_comms_log **log);
void shoali_comms_log_destroy(struct shoali_comms_log *log);
/* From any thread. */
void shoali_comms_log_add(struct shoali_comms_log *log, const struct shoali_comms_call *call,
                          int64_t latency_ns);

/* S of a post. */
int64_t shoali_comms_bytes(const struct shoali_post *post, int32_t ranks);

/* The tables. `group` (may be NULL) adds the one of the straggler effect, and is collective then:
 * the ranks must have made the same calls, else it is left out. NULL: no memory. */
SHOAL_CHECKED shoal_status shoali_comms_log_summary(struct shoali_comms_log *log,
                                                    shoal_group *group, struct shoali_str *text);

#endif
