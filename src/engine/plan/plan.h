/* plan - an engine without memory makes steps, and what it counted is the plan.
 *
 *   plan.c     the steps, and the numbers of a plan
 *   limit.c    what a device has, and which plan does not fit it
 *   suggest.c  what to change so that a plan fits
 *
 * Terms. A meta engine has devices and groups that count and compute nothing (accelerator/meta,
 * comm/meta).
 *
 * Invariant. A run uses the bytes that its plan says.
 */
#ifndef SHOALI_ENGINE_PLAN_H
#define SHOALI_ENGINE_PLAN_H

#include "comm/comm.h"
#include "shoal/plan.h"

/* plan.c: what all groups of the engine sent so far: ZeRO's, the pipeline's, that of all ranks. */
SHOAL_CHECKED shoal_status shoali_engine_counters(struct shoal_engine *engine,
                                                  struct shoali_comm_counters *counters);
/* The mesh of a plan's ranks, over `group` or, NULL, arithmetic alone. *mesh is owned. */
SHOAL_CHECKED shoal_status shoali_plan_mesh(const shoal_plan_args *args, shoal_group *group,
                                            shoal_mesh **mesh);

#endif
