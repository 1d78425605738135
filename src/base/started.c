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
    {NULL, "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_SIZE", "LOCAL_WORLD_SIZE"}},
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

/* What is wrong, beside the last error, which may be on its way to somebody. */
struct complaint {
    char text[400];
};

/* The first that is set; -1: none. */
static bool read_first(const char *const *names, int64_t low, int64_t *value,
                       struct complaint *complaint)
{
    *value = -1;
    for (int i = 0; i < NAMES_MAX && names[i]; i++) {
        const char *text = getenv(names[i]);
        if (!text || !*text)
            continue;
        if (shoali_parse_i64(text, value) && *value >= low && *value <= INT32_MAX)
            return true;
        snprintf(complaint->text, sizeof complaint->text,
                 "%s=\"%.100s\" must be a number from %d to %d", names[i], text, (int)low,
                 INT32_MAX);
        return false;
    }
    return true;
}

static bool read_one(const char *name, int64_t low, int64_t *value, struct complaint *complaint)
{
    return read_first((const char *const[NAMES_MAX]){name}, low, value, complaint);
}

/* On one machine the step's ranks are this machine's. */
static bool ask_slurm(struct shoali_started *job, struct complaint *complaint)
{
    int64_t nodes, tasks;
    if (!read_one("SLURM_STEP_NUM_NODES", 1, &nodes, complaint) ||
        !read_one("SLURM_STEP_NUM_TASKS", 1, &tasks, complaint))
        return false;
    if (job->local_size < 0 && nodes == 1 && tasks == job->size)
        job->local_size = tasks;
    return job->local_rank >= 0 || read_one("SLURM_LOCALID", 0, &job->local_rank, complaint);
}

static bool read_source(const struct source *source, struct shoali_started *job,
                        struct complaint *complaint)
{
    job->launcher = source->launcher;
    return read_one(source->rank, 0, &job->rank, complaint) &&
           read_first(source->size, 1, &job->size, complaint) &&
           read_first(source->local_rank, 0, &job->local_rank, complaint) &&
           read_first(source->local_size, 1, &job->local_size, complaint) &&
           (!source->launcher || job->size < 0 || ask_slurm(job, complaint));
}

/* What a user or a launcher that only hands values on has set beside the MPI's own. */
static bool check(const struct shoali_started *job, struct complaint *complaint)
{
    int64_t size;
    if (!read_first(sources[0].size, 1, &size, complaint))
        return false;
    const bool differs = job->launcher && size > 0 && size != job->size;
    const bool beyond = job->size > 0 && job->rank >= job->size;
    if (differs)
        snprintf(complaint->text, sizeof complaint->text,
                 "WORLD_SIZE is %lld and %s has started %lld ranks: unset WORLD_SIZE, or start "
                 "that many",
                 (long long)size, job->launcher, (long long)job->size);
    else if (beyond)
        snprintf(complaint->text, sizeof complaint->text,
                 "rank %lld of %lld ranks does not exist: RANK counts from 0 to WORLD_SIZE - 1",
                 (long long)job->rank, (long long)job->size);
    return !differs && !beyond;
}

static const struct shoali_started alone = {
    .rank = -1, .size = -1, .local_rank = -1, .local_size = -1};

static bool read_all(struct shoali_started *job, struct complaint *complaint)
{
    *job = alone;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct shoali_started read = alone;
        if (!read_source(&sources[i], &read, complaint))
            return false;
        /* Without a rank nobody speaks; only RANK may speak without a size. */
        if (read.rank < 0 || (i > 0 && read.size < 0))
            continue;
        if (!check(&read, complaint))
            return false;
        *job = read;
        return true;
    }
    return true;
}

shoal_status shoali_started_read(struct shoali_started *job)
{
    struct complaint complaint;
    return read_all(job, &complaint) ? SHOAL_OK : SHOAL_FAIL(SHOAL_EINVAL, "%s", complaint.text);
}

struct shoali_started shoali_started_get(void)
{
    struct shoali_started job;
    struct complaint complaint;
    return read_all(&job, &complaint) ? job : alone;
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
