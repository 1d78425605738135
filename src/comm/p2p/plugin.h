/* plugin - finds and opens a transport's plug-in: beside the program or library that this is part
 * of, then where the system looks for libraries. */
#ifndef SHOALI_P2P_PLUGIN_H
#define SHOALI_P2P_PLUGIN_H

#include <stdbool.h>

/* The function of that name in the plug-in, NULL and a reason (dlerror's, or as it was). Loaded for
 * good: what an MPI or UCX has started cannot be taken out of a process again. `global`: its
 * symbols are for what it loads itself, too. */
typedef void shoali_p2p_plugin_fn(void);
shoali_p2p_plugin_fn *shoali_p2p_plugin_find(const char *file, const char *symbol, bool global,
                                             const char **reason);

#endif
