/* The plug-in. */
#include "comm/p2p/plugin.h"
#include "comm/ucx/backend.h"

#include <stdio.h>
#include <stdlib.h>

/* UCX reads these when it is loaded, before anybody can tell it: it would take the program's
 * signals for traces of its own, and tell of ranks that are gone in words of its own. */
static void keep_quiet(void)
{
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    setenv("UCX_LOG_LEVEL", "fatal", 0);
}

shoal_status shoali_ucx_load(const struct shoali_ucx_table **ucx)
{
    const char *reason = "it is of another version of Shoal";
    keep_quiet();
    shoali_ucx_plugin_fn *table = (shoali_ucx_plugin_fn *)shoali_p2p_plugin_find(
        "libshoal_ucx.so", SHOALI_UCX_PLUGIN_SYMBOL, false, &reason);
    *ucx = table ? table() : NULL;
    if (*ucx && (*ucx)->abi == SHOALI_UCX_PLUGIN_ABI && (*ucx)->bytes == sizeof **ucx)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                      "ranks on several machines that no MPI has started are connected by UCX, and "
                      "its plug-in does not load (%s): build Shoal on a machine with UCX's headers "
                      "(Debian: libucx-dev) and install UCX on every host (libucx0), or start the "
                      "ranks with mpirun (`shoal run --launcher openmpi`)",
                      reason);
}

void shoali_ucx_list(char *text, size_t bytes)
{
    const struct shoali_ucx_table *ucx = NULL;
    if (shoali_ucx_load(&ucx) < 0) {
        shoali_error_clear();
        snprintf(text, bytes, "none");
        return;
    }
    snprintf(text, bytes, "%s %s", ucx->p2p.name, ucx->version());
}
