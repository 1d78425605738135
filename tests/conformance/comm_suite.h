/* comm_suite - what every comm backend has to do, as functions that each rank runs. */
#ifndef SHOAL_TEST_COMM_SUITE_H
#define SHOAL_TEST_COMM_SUITE_H

#include "comm_ranks.h"

bool suite_reductions(struct rank_seat *seat); /* every dtype and op, small */
bool suite_sizes(struct rank_seat *seat);      /* every collective, 0 to many chunks */
bool suite_algorithms(struct rank_seat *seat); /* every collective by each algorithm that it has */
bool suite_random(struct rank_seat *seat);     /* a random program */
bool suite_requests(struct rank_seat *seat);   /* asynchronous, in any order of waits */
bool suite_messages(struct rank_seat *seat);   /* send and recv */
bool suite_split(struct rank_seat *seat);
bool suite_alloc(struct rank_seat *seat);
bool suite_many(struct rank_seat *seat); /* a little of everything, for very many ranks */
bool suite_counters(struct rank_seat *seat);
bool suite_arguments(struct rank_seat *seat); /* a user's mistakes are sentences and harm nobody */

/* comm_stream.c: posts on streams of a device; SHOAL_SIM_STREAMS says how unkind they are. */
bool suite_stream_memory(struct rank_seat *seat);  /* what a group shares, on every device */
bool suite_stream_program(struct rank_seat *seat); /* a random program on two streams */
bool suite_stream_order(struct rank_seat *seat);   /* the order of calls is that of posts */
bool suite_stream_beside(struct rank_seat *seat);
bool suite_stream_elsewhere(struct rank_seat *seat); /* a host that waits for something else */
bool suite_stream_arguments(struct rank_seat *seat);

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
bool suite_mismatch_data(struct rank_seat *seat);
bool suite_mismatch_destroy(struct rank_seat *seat);
bool suite_fault_points(struct rank_seat *seat);
bool suite_stream_abort(struct rank_seat *seat);
bool suite_stream_timeout(struct rank_seat *seat); /* needs timeout_s 1 */
bool suite_stream_mismatch(struct rank_seat *seat);
bool suite_stream_fault_points(struct rank_seat *seat);
bool suite_stream_leaves(struct rank_seat *seat); /* with posts that nobody has waited for */

/* Elements [first, first + count) of the reduction over all ranks; of a rank's data. */
bool suite_is_reduction(const struct rank_seat *seat, shoal_dtype dtype, shoal_reduce op,
                        uint64_t seed, int64_t first, int64_t count, const void *got);
bool suite_is_data(const struct rank_seat *seat, shoal_dtype dtype, uint64_t seed, int32_t rank,
                   int64_t first, int64_t count, const void *got);

#endif
