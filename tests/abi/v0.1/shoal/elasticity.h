/* elasticity.h - which numbers of ranks the `elasticity` section of a ds_config.json allows. */
#ifndef SHOAL_ELASTICITY_H
#define SHOAL_ELASTICITY_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Describes what the section of a configuration file comes to: the batch, the valid numbers of
 * ranks, and for each of them micro-batch and accumulation. world_size: the ranks of a job, for
 * which the micro-batch is given; 0: none. *text is owned by the caller: free(). Not collective.
 * SHOAL_ECONFIG: no section, a mistake in it, or a world size that is not valid. DeepSpeed:
 * bin/ds_elastic, compute_elastic_config. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_elasticity_describe(const char *config_path,
                                                               int64_t world_size, char **text);

#ifdef __cplusplus
}
#endif
#endif
