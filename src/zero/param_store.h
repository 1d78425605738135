/* param_store - own parts of the weights outside the device, in host memory or in a file: one chunk
 * per unit. They are copied into their places in a unit's buffer before it is gathered.
 */
#ifndef SHOALI_ZERO_PARAM_STORE_H
#define SHOALI_ZERO_PARAM_STORE_H

#include "zero/layout.h"
#include "zero/setup.h"

struct shoali_zero_param_store {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    struct shoali_swap *swap; /* one row: the part space; NULL: weights are on the device */
    int32_t resident_count;   /* first units whose own parts stay in host memory */
};
/* What is where. SHOAL_ECONFIG, before anything is collective: a part does not fit a buffer. */
SHOAL_CHECKED shoal_status shoali_zero_param_store_plan(struct shoali_zero_param_store *store,
                                                        const struct shoali_zero_setup *setup,
                                                        const struct shoali_zero_layout *layout);
/* `host`: memory that is not pinned; meta: nothing is moved. */
SHOAL_CHECKED shoal_status shoali_zero_param_store_init(struct shoali_zero_param_store *store,
                                                        struct shoali_device *host, bool meta);
void shoali_zero_param_store_fini(struct shoali_zero_param_store *store);
/* Puts this rank's own parts of a unit in their places in its whole buffer. */
SHOAL_CHECKED shoal_status shoali_zero_param_store_load(struct shoali_zero_param_store *store,
                                                        int32_t unit, void *buffer);
/* Starts reading them from the file. */
SHOAL_CHECKED shoal_status shoali_zero_param_store_prefetch(struct shoali_zero_param_store *store,
                                                            int32_t unit);

#endif
