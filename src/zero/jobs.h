/* jobs - collectives of units: whom they go over, and the thread they run on.
 *
 *   channel   a group of the layout as communicators and a stream: `here` for the computing
 *             thread, `away` for jobs. They differ in overlap, because a communicator belongs to
 *             one thread, and in MiCS, whose parts are cut over fewer ranks than the group has.
 *   job       one unit's or message's collectives. Jobs run in the order of posting, which is the
 *             same on every rank because it follows the layers.
 *
 * With overlap jobs run on a side stream (accelerator/side_stream.h). Without overlap a job runs
 * when it is posted, on the computing stream.
 *
 * INVARIANT. All ranks post the same jobs in the same order, of whatever groups: then one thread
 * per rank cannot deadlock. A failed job aborts the world, and is the status of the next call.
 */
#ifndef SHOALI_ZERO_JOBS_H
#define SHOALI_ZERO_JOBS_H

#include "accelerator/side_stream.h"
#include "zero/layout.h"
#include "zero/setup.h"

struct shoali_zero_channel {
    const struct shoali_zero_group *cut;
    shoal_group *group;    /* the ranks that share one partition; NULL: this rank alone */
    shoal_group *nearby;   /* hpZ: those that share a second copy of the weights, else NULL */
    shoal_group *replicas; /* MiCS: those that hold the same parts, else NULL */
    /* qgZ and hierarchical gathers over several hosts: this host's ranks of `group`, and those at
     * the same place of each host; else NULL. */
    shoal_group *within, *across;
    bool gathers_by_hosts; /* over these two */
    struct shoali_exec exec;
};
struct shoali_zero_job {
    struct shoali_zero_jobs *jobs; /* filled in by post */
    shoal_status (*run)(const struct shoali_zero_channel *channel,
                        const struct shoali_zero_job *job);
    void *user; /* the part that posts */
    void *buffer;
    int32_t group; /* whose channel */
    int32_t index; /* of the unit or message */
    bool accumulate;
    bool nearby; /* gather from the second copy */
};
struct shoali_zero_jobs {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    struct shoali_zero_channel *here, *away; /* [groups] */
    struct shoali_side_stream side;          /* no worker: jobs run when they are posted */
    uint64_t order; /* digest of the gathers and sums of a step and an evaluation, in their order */
};
/* While scopes are walked without sending: what would be posted. */
enum { SHOALI_ZERO_GATHERS, SHOALI_ZERO_SUMS };
void shoali_zero_jobs_note(struct shoali_zero_jobs *jobs, int32_t kind, int32_t unit);
/* Collective. */
SHOAL_CHECKED shoal_status shoali_zero_jobs_init(struct shoali_zero_jobs *jobs,
                                                 const struct shoali_zero_setup *setup,
                                                 const struct shoali_zero_layout *layout);
void shoali_zero_jobs_fini(struct shoali_zero_jobs *jobs);
/* What the computing stream was given before is finished when the job begins. Ticket 0: the job is
 * over. */
SHOAL_CHECKED shoal_status shoali_zero_post(struct shoali_zero_jobs *jobs,
                                            struct shoali_zero_job *job, uint32_t *ticket);
/* The host until the job is posted to its stream, the computing stream until it is done. An error
 * of any job is returned here. */
SHOAL_CHECKED shoal_status shoali_zero_await(struct shoali_zero_jobs *jobs, uint32_t ticket);
SHOAL_CHECKED shoal_status shoali_zero_await_all(struct shoali_zero_jobs *jobs);
SHOAL_CHECKED shoal_status shoali_zero_jobs_counters(struct shoali_zero_jobs *jobs,
                                                     struct shoali_comm_counters *counters);

/* A call site that also names the unit's layer: in a message about ranks that do different things.
 */
enum { SHOALI_ZERO_HERE_BYTES = 256 };
const char *shoali_zero_here(const struct shoali_zero_unit *unit, const char *here,
                             char text[SHOALI_ZERO_HERE_BYTES]);

#endif
