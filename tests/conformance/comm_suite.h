/* comm_suite - what every comm backend has to do, as functions that each rank runs. */
#ifndef SHOAL_TEST_COMM_SUITE_H
#define SHOAL_TEST_COMM_SUITE_H

#include "comm_ranks.h"

bool suite_reductions(struct rank_seat *seat); /* every dtype and op, small */
bool suite_sizes(struct rank_seat *seat);      /* every collective, 0 to many chunks */
bool suite_random(struct rank_seat *seat);     /* a random program */
bool suite_requests(struct rank_seat *seat);   /* asynchronous, in any order of waits */
bool suite_messages(struct rank_seat *seat);   /* send and recv */
bool suite_split(struct rank_seat *seat);
bool suite_alloc(struct rank_seat *seat);
bool suite_counters(struct rank_seat *seat);
bool suite_arguments(struct rank_seat *seat); /* a user's mistakes are sentences and harm nobody */
bool suite_device(struct rank_seat *seat);    /* device addresses */

/* Failures, N >= 2. */
bool suite_abort(struct rank_seat *seat);
bool suite_abort_with_pending(struct rank_seat *seat);
bool suite_abandon(struct rank_seat *seat);
bool suite_random_abort(struct rank_seat *seat);
bool suite_timeout(struct rank_seat *seat); /* needs timeout_s 1 */
bool suite_message_timeout(struct rank_seat *seat);
bool suite_mismatch_kind(struct rank_seat *seat);
bool suite_mismatch_op(struct rank_seat *seat);
bool suite_mismatch_matrix(struct rank_seat *seat);
bool suite_mismatch_message(struct rank_seat *seat);
bool suite_mismatch_destroy(struct rank_seat *seat);
bool suite_fault_points(struct rank_seat *seat);

#endif
