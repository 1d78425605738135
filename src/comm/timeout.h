/* timeout - the deadline of a request, and the sentences about ranks that it waits for.
 * comm/algorithms and comm/p2p use it.
 *
 * Terms.
 *   patience  percent by which a deadline is later (struct shoali_post)
 *   missing   a rank of the group that has not come to a collective
 *
 * Invariants.
 *   The sentences are the same for all backends. The backend knows alone which ranks are missing.
 *
 * Files. timeout.c; base/waiting.h says when a warning is due */
#ifndef SHOALI_COMM_TIMEOUT_H
#define SHOALI_COMM_TIMEOUT_H

#include "comm/comm.h"

/* What a request waits for. Zeros but for `post` and `record`: all ranks have come. */
struct shoali_late {
    const struct shoali_post *post; /* a message, or the collective that the others are late for */
    const struct shoali_record *record;
    struct shoali_seat peer;          /* message: of the other rank */
    char missing[400];                /* collective: "rank 2", "ranks 2, 3"; "": none */
    const struct shoali_record *last; /* the first missing rank's last call; NULL: none */
};
/* Is the deadline of a wait over? `timeout_ns` 0: there is none. */
bool shoali_late_is_over(int64_t timeout_ns, int64_t since_ns, int32_t patience);
/* The sentence of SHOAL_ETIMEOUT. */
void shoali_late_describe(const struct shoali_late *late, int64_t timeout_ns, char *text,
                          size_t bytes);
/* A line of the log. `doing`: what the first missing rank does, or "". */
void shoali_late_warn(const struct shoali_late *late, double seconds, const char *doing);

#endif
