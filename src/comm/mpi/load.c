/* Finds and opens the plug-in: beside the program or library that this is part of, then where the
 * system looks for libraries. */
#include "comm/mpi/backend.h"

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

/* Loaded for good: what MPI has started cannot be taken out of a process again. Global, because
 * parts of Open MPI that it loads itself want its symbols. */
static const struct shoali_mpi_table *open_file(const char *path)
{
    const int flags = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
    void *library = dlopen(path, flags);
    void *symbol = library ? dlsym(library, SHOALI_MPI_PLUGIN_SYMBOL) : NULL;
    shoali_mpi_plugin_fn *table = NULL;
    if (!symbol)
        return NULL;
    memcpy(&table, &symbol, sizeof table); /* ISO C has no cast from an object to a function */
    const struct shoali_mpi_table *mpi = table();
    if (mpi->abi != SHOALI_MPI_PLUGIN_ABI || mpi->bytes != sizeof *mpi)
        return NULL;
    return mpi;
}

static bool exists(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file)
        fclose(file);
    return file != NULL;
}

static shoal_status open_plugin(const struct implementation *which,
                                const struct shoali_mpi_table **mpi)
{
    static const char *const places[] = {"", "../lib/", "shoal/", "../lib/shoal/"};
    char path[4096], folder[3072] = "";
    Dl_info self;
    if (dladdr((const void *)implementations, &self) && self.dli_fname) {
        const char *slash = strrchr(self.dli_fname, '/');
        if (slash && (size_t)(slash - self.dli_fname) + 2 < sizeof folder)
            memcpy(folder, self.dli_fname, (size_t)(slash - self.dli_fname) + 1);
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%s%s", folder, places[i], which->file);
        if ((*folder || i == 0) && exists(path))
            break;
        snprintf(path, sizeof path, "%s", which->file);
    }
    *mpi = open_file(path);
    if (*mpi)
        return SHOAL_OK;
    const char *reason = dlerror();
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                      "the plug-in for %s does not load (%s): build Shoal on a machine with its "
                      "headers (Debian: lib%s-dev)",
                      which->title, reason ? reason : "it is of another version of Shoal",
                      which->name);
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
