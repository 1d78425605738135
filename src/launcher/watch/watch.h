/* watch - what the status pages of a job's ranks (base/status_page.h) say together: who is waited
 * for, and what the words of a verdict are. `shoal top`, the launcher of one machine and the front
 * of several hosts use it.
 *
 *   ranks.c     looking at status pages, the straggler, a silent rank
 *   verdict.c   the block that says why a job ended
 *   wire.c      status pages on their way from a host to the front
 *   top.c       `shoal top`
 *
 * Terms. A *status page* is what a rank says of itself in shared memory. The *verdict* is the
 * failure report of a job.
 *
 * Invariants. Status pages are only read here. The front reads copies, which its hosts keep fresh.
 *
 * The straggler. In a collective everybody waits for who comes last. Status pages keep the
 * wall-clock times of the last arrivals, with a key that is the same for all ranks that meet; of
 * every key that several status pages have, the last rank is late by its time after the first one.
 * Straggler is who has more of all lateness than the others together, whether it is late always or
 * now and then, by more than MARGIN_NS on the mean of the meetings at which it was last: clocks of
 * hosts differ.
 * Counted are the meetings of the status pages' newest ring of arrivals in which ranks of several
 * hosts, where there are, have met.
 *
 * Straight from the host to the front: lines on standard error that begin with the character 0x1e,
 * which the front takes out of what the ranks say:
 *
 *   B rank number...   the status page's numbers, texts and last arrivals, once a second
 *   L rank n text      line n of the end of its log
 *   S rank code text   why it failed
 *   E rank pid code signal cause host   a rank has ended badly; cause: a letter (wire.c)
 *   H node             the host is there, once a second
 */
#ifndef SHOALI_WATCH_H
#define SHOALI_WATCH_H

#include "base/status_page.h"
#include "base/str.h"
#include "shoal/launcher.h"

#include <stdio.h>

enum { SHOALI_WIRE_MARK = 0x1e, SHOALI_WIRE_BYTES = 3072 };

/* One rank as the status pages show it. */
struct shoali_rank_view {
    bool known; /* it has, or had, a status page */
    struct shoali_status_page_view page;
    char state;                     /* of its process, as in ps; 0: not of this machine, or gone */
    int64_t resident_bytes, run_ns; /* of its process; 0: not known */
};
/* Looks at all status pages of a job, the ranks' own where they are here, else the copies. `view`
 * has `ranks` places. Returns how many are known. */
int32_t shoali_ranks_poll(const char *job, int32_t ranks, struct shoali_rank_view *view);

struct shoali_straggler {
    int32_t rank; /* -1: none */
    int32_t meetings;
    double late_ms;     /* on the mean of the meetings at which it was last */
    double others_wait; /* share of the time, 0 to 1 */
};
void shoali_ranks_straggler(const struct shoali_rank_view *view, int32_t ranks,
                            struct shoali_straggler *straggler);
/* A warning, where it is worth one: when enough looks in a row saw a straggler; *looks counts
 * them. */
bool shoali_straggler_warn(const struct shoali_straggler *straggler, int32_t *looks,
                           const struct shoali_rank_view *view);
/* A rank that others wait for at the moment and that has not come: with its number the time of the
 * longest wait; -1: none. */
int32_t shoali_ranks_missing(const struct shoali_rank_view *view, int32_t ranks,
                             int64_t *waited_ns);

/* Do all ranks wait, in calls that do not meet, and has none of them gone on for so long? Kept from
 * look to look; zeroed at first. Ranks that are all in one call may be sending, and
 * have three times as long. */
struct shoali_stuck {
    int64_t since_ns; /* 0: they do not */
    uint64_t mark;    /* another one when a rank has gone on */
    bool in_one_call;
};
/* How long is too long for them, where `limit_ns` is for ranks that do not meet. */
int64_t shoali_stuck_limit(const struct shoali_stuck *stuck, int64_t limit_ns);
bool shoali_ranks_stuck(const struct shoali_rank_view *view, int32_t ranks, int64_t limit_ns,
                        struct shoali_stuck *stuck);

/* ---- the verdict ---------------------------------------------------------------------------- */
enum shoali_cause {
    SHOALI_CAUSE_ENDED,   /* by itself: exit code or signal */
    SHOALI_CAUSE_SILENT,  /* nothing of it ran for so long */
    SHOALI_CAUSE_HOST,    /* its host does not answer */
    SHOALI_CAUSE_MEMORY,  /* killed by the kernel for want of it */
    SHOALI_CAUSE_STUCK,   /* all wait for each other */
    SHOALI_CAUSE_CRASH,   /* a fault's signal, and the handler does not come back */
    SHOALI_CAUSE_REFUSED, /* by itself, soon and without joining: it may not know --local_rank */
};
struct shoali_verdict {
    enum shoali_cause cause;
    int32_t rank; /* -1: a host, or all */
    int32_t pid, code, signal;
    const char *host;       /* NULL: this machine */
    const char *rest;       /* "stopping the other 3" */
    const char *log_folder; /* NULL: none */
    int64_t silent_ns;
};
/* A cause on the wire. */
char shoali_cause_letter(enum shoali_cause cause);
enum shoali_cause shoali_cause_of(char message);
/* The block: its first line says what happened, the others what is known beside it. Each line by
 * SHOALI_ERROR. `view` may be NULL. */
void shoali_verdict_print(const struct shoali_verdict *verdict, const struct shoali_rank_view *view,
                          int32_t ranks);
/* Has the rank failed because another one had? */
bool shoali_rank_is_echo(const struct shoali_rank_view *view);
/* How many processes the kernel has killed for want of memory so far; -1: not known. */
int64_t shoali_memory_kills(void);

/* ---- the wire ------------------------------------------------------------------------------- */
void shoali_wire_status_page(int32_t rank, const struct shoali_rank_view *view,
                             struct shoali_str *out);
void shoali_wire_last_words(int32_t rank, const struct shoali_rank_view *view,
                            struct shoali_str *out);
/* What the front has of the ranks: copies that it keeps mapped, as another host's launcher may
 * share its memory folder and clear it up. */
struct shoali_copies {
    const char *job;
    int32_t ranks;
    struct shoali_status_page **page; /* [ranks], NULL: nothing yet */
};
int32_t shoali_copies_poll(const struct shoali_copies *copies, struct shoali_rank_view *view);
void shoali_copies_drop(struct shoali_copies *copies);
struct shoali_wire_end {
    int32_t rank, pid, code, signal;
    char cause;
    char host[64];
};
/* Reads a line without its mark into the copies. The letter of its kind, 0: no line of ours; `rank`
 * (of H: the node) is the one it is about, and an E fills `end`. */
char shoali_wire_read(struct shoali_copies *copies, const char *line, int32_t *rank,
                      struct shoali_wire_end *end);

#endif
