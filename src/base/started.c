#include "base/started.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_MAX = 3 };
struct source {
    const char *launcher;
    const char *rank, *size[NAMES_MAX], *local_rank[NAMES_MAX], *local_size[NAMES_MAX];
};
static const struct source sources[] = {
    {NULL, "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_SIZE"}},
    {"mpirun of Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {"mpirun of MPICH",
     "PMI_RANK",
     {"PMI_SIZE"},
     {"MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "MV2_COMM_WORLD_LOCAL_RANK"},
     {"MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"}},
    {"srun with PMIx", "PMIX_RANK", {"SLURM_STEP_NUM_TASKS"}, {"SLURM_LOCALID"}, {NULL}},
    {"srun", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS"}, {"SLURM_LOCALID"}, {NULL}},
};

/* The first that is set; -1: none. */
static shoal_status read_first(const char *const *names, int64_t low, int64_t *value)
{
    *value = -1;
    for (int i = 0; i < NAMES_MAX && names[i]; i++) {
        const char *text = getenv(names[i]);
        if (!text || !*text)
            continue;
        if (!shoali_parse_i64(text, value) || *value < low || *value > INT32_MAX)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s=\"%s\" must be a number from %d to %d", names[i],
                              text, (int)low, INT32_MAX);
        return SHOAL_OK;
    }
    return SHOAL_OK;
}

/* On one machine the step's ranks are this machine's. */
static shoal_status ask_slurm(struct shoali_started *job)
{
    int64_t nodes, tasks;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, read_first((const char *const[NAMES_MAX]){"SLURM_STEP_NUM_NODES"}, 1, &nodes),
              done);
    SHOAL_TRY(status, read_first((const char *const[NAMES_MAX]){"SLURM_STEP_NUM_TASKS"}, 1, &tasks),
              done);
    if (job->local_rank < 0)
        SHOAL_TRY(status,
                  read_first((const char *const[NAMES_MAX]){"SLURM_LOCALID"}, 0, &job->local_rank),
                  done);
    if (job->local_size < 0 && nodes == 1 && tasks == job->size)
        job->local_size = tasks;
done:
    return status;
}

static shoal_status read_source(const struct source *source, struct shoali_started *job)
{
    shoal_status status = SHOAL_OK;
    job->launcher = source->launcher;
    SHOAL_TRY(status, read_first((const char *const[NAMES_MAX]){source->rank}, 0, &job->rank),
              done);
    SHOAL_TRY(status, read_first(source->size, 1, &job->size), done);
    SHOAL_TRY(status, read_first(source->local_rank, 0, &job->local_rank), done);
    SHOAL_TRY(status, read_first(source->local_size, 1, &job->local_size), done);
    if (source->launcher && job->size > 0)
        SHOAL_TRY(status, ask_slurm(job), done);
done:
    return status;
}

/* What a user or a launcher that only hands values on has set beside the MPI's own. */
static shoal_status check(const struct shoali_started *job)
{
    int64_t size;
    const shoal_status status = read_first(sources[0].size, 1, &size);
    if (status < 0)
        return status;
    if (job->launcher && size > 0 && size != job->size)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "WORLD_SIZE is %lld and %s has started %lld ranks: unset WORLD_SIZE, or "
                          "start that many",
                          (long long)size, job->launcher, (long long)job->size);
    if (job->rank >= 0 && job->size > 0 && job->rank >= job->size)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rank %lld of %lld ranks does not exist: RANK counts from 0 to "
                          "WORLD_SIZE - 1",
                          (long long)job->rank, (long long)job->size);
    return SHOAL_OK;
}

shoal_status shoali_started_read(struct shoali_started *job)
{
    static const struct shoali_started alone = {.rank = -1, .size = -1, .local_rank = -1,
                                            .local_size = -1};
    shoal_status status = SHOAL_OK;
    *job = alone;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0] && status == SHOAL_OK; i++) {
        struct shoali_started read = alone;
        status = read_source(&sources[i], &read);
        /* Without a rank nobody speaks; only RANK may speak without a size. */
        if (status != SHOAL_OK || read.rank < 0 || (i > 0 && read.size < 0))
            continue;
        status = check(&read);
        if (status == SHOAL_OK)
            *job = read;
        return status;
    }
    return status;
}

struct shoali_started shoali_started_get(void)
{
    struct shoali_started job;
    if (shoali_started_read(&job) < 0)
        shoali_error_clear();
    return job;
}

/* MPICH's Hydra names no job. Its proxy is one per job and machine, above whatever wraps a rank. */
static bool find_proxy(struct shoali_process *process)
{
    int32_t pid = getppid();
    for (int depth = 0; depth < 16 && pid > 1; depth++) {
        if (!shoali_process_read(pid, process))
            return false;
        if (strncmp(process->name, "hydra_pmi_proxy", 15) == 0)
            return true;
        pid = process->parent;
    }
    return false;
}

bool shoali_started_name(char *text, size_t bytes)
{
    const char *space = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    struct shoali_process proxy;
    if (space && *space)
        snprintf(text, bytes, "pmix %s", space);
    else if (job && *job && step && *step)
        snprintf(text, bytes, "slurm %s.%s", job, step);
    else if (find_proxy(&proxy))
        snprintf(text, bytes, "hydra %d.%llu", (int)proxy.pid, (unsigned long long)proxy.start);
    else
        return false;
    return true;
}
