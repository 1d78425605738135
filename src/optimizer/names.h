/* names - an optimizer or a schedule by the name that a configuration gives it. */
#ifndef SHOALI_OPTIMIZER_NAMES_H
#define SHOALI_OPTIMIZER_NAMES_H

#include "base/config_table.h"

struct shoali_names {
    const char *what;                                               /* "optimizer" */
    const char *use;                                                /* "adamw, adam or sgd" */
    bool (*variant)(int32_t index, struct shoali_variant *variant); /* those there are */
    const char *const *known; /* those that users may bring, and that are not supported */
    int32_t known_count;
};
/* The index of a variant; upper and lower case are equal. SHOAL_EUNSUPPORTED: it is known;
 * SHOAL_ECONFIG names the nearest one. */
SHOAL_CHECKED shoal_status shoali_names_find(const struct shoali_names *names, const char *name,
                                             int32_t *index);

#endif
