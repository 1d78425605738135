/* lend - the core of a thread that waits, for the thread that it waits for.
 *
 * Where another program takes a core for its turn, the thread that was there stands still in the
 * middle of a piece, and what needs that piece with it: a turn is milliseconds, a piece some ten
 * or hundred microseconds. The system leaves the thread in that core's queue while no core is idle,
 * and often when one is. So who waits looks whether the other gets on, by the time that it has
 * spent on a core, and if not moves it to its own core and goes to sleep. Afterwards the borrower
 * leaves again, for the lender goes on at once.
 *
 *   AWAY     in no work that anybody waits for
 *   WORKING  may be moved
 *   MOVING   the lender is between two system calls
 *   MOVED    runs on a lent core, and its set of cores is that core alone
 *
 * Only the borrower enters and leaves WORKING; only one lender takes it from there. Nobody comes to
 * a core that is not in his own set, and that set is given back. Where the system refuses any of
 * it, nothing is lent. Who computes what, and with what result, stays the same.
 */
#ifndef SHOALI_LEND_H
#define SHOALI_LEND_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A thread that may borrow. */
struct shoali_borrower {
    _Atomic uint32_t state;
    bool known;
    int32_t tid;
    /* Of the time that it has had a core. A lender that looks while one thread leaves and another
     * comes may read either; what it then sees decides no more than who has which core. */
    _Atomic clockid_t clock;
    cpu_set_t home; /* where it may run, while it is moved */
};

/* What a lender saw when it last looked. */
struct shoali_lend_sample {
    int64_t spent_ns, seen_ns; /* seen_ns 0: not yet */
};

/* Called by the borrower around work that others wait for. `end` is followed by telling them, and
 * that by shoali_borrower_leave where it has returned true. */
void shoali_borrower_begin(struct shoali_borrower *self);
bool shoali_borrower_end(struct shoali_borrower *self);
/* Leaves the lent core. `stay`: not the core, only the set that has no other. */
void shoali_borrower_leave(struct shoali_borrower *self, bool stay);

bool shoali_borrower_works(const struct shoali_borrower *borrower);
/* Looks at one that works. If it has hardly run since the look before, moves it to the core of the
 * calling thread, which then should sleep, and returns true. `leave`: the calling thread first
 * gives up that core for its others. */
bool shoali_lend(struct shoali_borrower *borrower, struct shoali_lend_sample *sample, bool leave);

#endif
