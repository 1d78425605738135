/* elasticity.h - tells which numbers of ranks the `elasticity` section of a configuration allows.
 */
#ifndef SHOAL_ELASTICITY_H
#define SHOAL_ELASTICITY_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Describes the result of the section in a configuration file: the batch, the valid numbers of
 * ranks, and for each number micro-batch and accumulation. `world_size`: the ranks of a job, whose
 * micro-batch is printed; 0: none. *text is owned by the caller: free(). Not collective.
 * SHOAL_ECONFIG: there is no such section, it has a mistake, or the world size is not valid.
 * DeepSpeed: bin/ds_elastic, compute_elastic_config. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_elasticity_describe(const char *config_path,
                                                               int64_t world_size, char **text);

#ifdef __cplusplus
}
#endif
#endif
