/* timeline - what the two files of timelines share. */
#ifndef SHOALI_PIPELINE_PARALLEL_TIMELINE_H
#define SHOALI_PIPELINE_PARALLEL_TIMELINE_H

#include "pipeline_parallel/pipeline_parallel.h"

/* walk.c: fills them in with durations. */
SHOAL_CHECKED shoal_status shoali_timeline_walk(const struct shoali_orders *orders,
                                                const struct shoali_durations *durations,
                                                struct shoali_arena *arena,
                                                const struct shoali_timeline *timeline);

#endif
