/* Which MPI it is, and its plug-in. */
#include "comm/mpi/backend.h"
#include "comm/p2p/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct implementation {
    const char *name;  /* of SHOAL_MPI */
    const char *title; /* of messages */
    const char *file;
};
static const struct implementation implementations[] = {
    {"openmpi", "Open MPI", "libshoal_mpi_openmpi.so"},
    {"mpich", "MPICH", "libshoal_mpi_mpich.so"},
};
enum { OPEN_MPI, MPICH, IMPLEMENTATIONS };

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* The MPI that the program is linked with, or that has started it; IMPLEMENTATIONS: no sign of one.
 */
static int recognise(void)
{
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"))
        return OPEN_MPI;
    if (dlsym(RTLD_DEFAULT, "MPI_Get_library_version"))
        return MPICH;
    if (is_set("OMPI_COMM_WORLD_SIZE"))
        return OPEN_MPI;
    if (is_set("PMI_RANK"))
        return MPICH;
    return is_set("PMIX_RANK") ? OPEN_MPI : IMPLEMENTATIONS;
}

/* Global, because parts of Open MPI that it loads itself want its symbols. */
static shoal_status open_plugin(const struct implementation *which,
                                const struct shoali_mpi_table **mpi)
{
    const char *reason = "it is of another version of Shoal";
    shoali_mpi_plugin_fn *table = (shoali_mpi_plugin_fn *)shoali_p2p_plugin_find(
        which->file, SHOALI_MPI_PLUGIN_SYMBOL, true, &reason);
    *mpi = table ? table() : NULL;
    if (*mpi && (*mpi)->abi == SHOALI_MPI_PLUGIN_ABI && (*mpi)->bytes == sizeof **mpi)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                      "the plug-in for %s does not load (%s): build Shoal on a machine with its "
                      "headers (Debian: lib%s-dev)",
                      which->title, reason, which->name);
}

shoal_status shoali_mpi_load(const struct shoali_mpi_table **mpi)
{
    const char *wanted = getenv("SHOAL_MPI");
    int which = recognise();
    if (wanted && *wanted) {
        for (which = 0; which < IMPLEMENTATIONS; which++)
            if (strcmp(implementations[which].name, wanted) == 0)
                break;
        if (which == IMPLEMENTATIONS)
            return SHOAL_FAIL(SHOAL_EINVAL, "SHOAL_MPI=\"%s\" is unknown: use openmpi or mpich",
                              wanted);
    }
    if (which < IMPLEMENTATIONS)
        return open_plugin(&implementations[which], mpi);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "backend mpi needs ranks that mpirun or srun has started, and nothing in the "
                      "environment (OMPI_*, PMI_*, PMIX_*) says so; SHOAL_MPI=openmpi or mpich "
                      "asks for one all the same");
}

void shoali_mpi_list(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < IMPLEMENTATIONS; i++) {
        const struct shoali_mpi_table *mpi = NULL;
        if (open_plugin(&implementations[i], &mpi) < 0)
            shoali_error_clear();
        else if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     mpi->p2p.name);
    }
    if (used == 0)
        snprintf(text, bytes, "none");
}
