/* A rank that an MPI launcher or Slurm has started. DeepSpeed: launcher/launcher_helper.py. */
#include "launcher/cluster/cluster.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAMES_MAX = 3 };

/* Where each launcher says it; the first that is set counts. */
struct dialect {
    const char *rank[NAMES_MAX], *size[NAMES_MAX], *local_rank[NAMES_MAX], *local_size[NAMES_MAX];
};
static const struct dialect dialects[SHOALI_LAUNCHER_COUNT] = {
    [SHOALI_BY_OPENMPI] = {{"OMPI_COMM_WORLD_RANK"},
                           {"OMPI_COMM_WORLD_SIZE"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    [SHOALI_BY_MVAPICH] = {{"MV2_COMM_WORLD_RANK", "PMI_RANK"},
                           {"MV2_COMM_WORLD_SIZE", "PMI_SIZE"},
                           {"MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"},
                           {"MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}},
    [SHOALI_BY_SLURM] = {{"SLURM_PROCID"},
                         {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                         {"SLURM_LOCALID"},
                         {"SLURM_NTASKS_PER_NODE"}},
    [SHOALI_BY_MPICH] = {{"PMI_RANK", "PMIX_RANK"},
                         {"PMI_SIZE", "PMIX_SIZE"},
                         {"MPI_LOCALRANKID", "PALS_LOCAL_RANKID"},
                         {"MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"}},
    [SHOALI_BY_IMPI] = {{"PMI_RANK", "RANK"},
                        {"PMI_SIZE"},
                        {"MPI_LOCALRANKID", "LOCAL_RANK"},
                        {"MPI_LOCALNRANKS"}},
};

struct place {
    int32_t rank, size, local_rank, local_size; /* -1: not said */
};

static shoal_status read_number(const char *const *names, int32_t *number)
{
    *number = -1;
    for (int i = 0; i < NAMES_MAX && names[i]; i++) {
        const char *text = getenv(names[i]);
        int64_t value = 0;
        if (!text || !*text)
            continue;
        if (!shoali_parse_i64(text, &value) || value < 0 || value > INT32_MAX)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s=\"%s\" is no number of a rank", names[i], text);
        *number = (int32_t)value;
        break;
    }
    return SHOAL_OK;
}

static shoal_status read_place(enum shoali_remote_launcher launcher, struct place *place)
{
    shoal_status status;
    const struct dialect *dialect = &dialects[launcher];
    SHOAL_TRY(status, read_number(dialect->rank, &place->rank), done);
    SHOAL_TRY(status, read_number(dialect->size, &place->size), done);
    SHOAL_TRY(status, read_number(dialect->local_rank, &place->local_rank), done);
    SHOAL_TRY(status, read_number(dialect->local_size, &place->local_size), done);
    if (place->rank < 0 || place->size < 1 || place->rank >= place->size)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--launcher %s: %s and %s do not say which rank this is: does the "
                            "mpirun or srun in PATH belong to another MPI?",
                            shoali_launcher_name_of(launcher), dialect->rank[0], dialect->size[0]);
done:
    return status;
}

/* What the launcher says and what the hostfile says are to agree. */
static shoal_status fit_world(enum shoali_remote_launcher launcher,
                              const struct shoali_world *world, struct place *place,
                              struct shoali_job *job)
{
    const char *by = shoali_launcher_name_of(launcher);
    if (world->ranks != place->size)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s started %d ranks, and the job has %d", by,
                          (int)place->size, (int)world->ranks);
    job->node_rank = shoali_world_node_of(world, place->rank);
    const struct shoali_node *node = &world->node[job->node_rank];
    const int32_t local = place->rank - node->first_rank;
    if (place->local_rank >= 0 && place->local_rank != local)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "rank %d is number %d of host %s in the hostfile, but %s says number %d: let it fill "
            "one host after the other (no --map-by or -ppn in --launcher_args)",
            (int)place->rank, (int)local, node->name, by, (int)place->local_rank);
    place->local_rank = local;
    place->local_size = node->slots.count;
    job->nodes = world->nodes;
    job->slots = node->slots;
    job->host = node->name;
    return SHOAL_OK;
}

/* Without a hostfile: what Slurm says, with equally many ranks on every host. */
static shoal_status fit_slurm(struct place *place, struct shoali_job *job)
{
    shoal_status status;
    static const char *const nodes[NAMES_MAX] = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"};
    static const char *const node[NAMES_MAX] = {"SLURM_NODEID"};
    SHOAL_TRY(status, read_number(nodes, &job->nodes), done);
    SHOAL_TRY(status, read_number(node, &job->node_rank), done);
    if (job->nodes < 1 || job->node_rank < 0 || place->local_rank < 0 ||
        place->size % job->nodes != 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "SLURM_NNODES, SLURM_NODEID and SLURM_LOCALID do not say where rank %d "
                            "is",
                            (int)place->rank);
        goto done;
    }
    place->local_size = place->size / job->nodes;
    job->host = getenv("SLURMD_NODENAME");
    if (!job->host || !*job->host)
        job->host = "this host";
done:
    return status;
}

/* The first host of "node[03-07,9],other2". */
static const char *first_host(struct shoali_arena *arena)
{
    const char *list = getenv("SLURM_STEP_NODELIST");
    if (!list || !*list)
        list = getenv("SLURM_JOB_NODELIST");
    if (!list || !*list)
        return NULL;
    const size_t prefix = strcspn(list, "[,");
    const char *inner = list[prefix] == '[' ? list + prefix + 1 : "";
    return shoali_arena_printf(arena, "%.*s%.*s", (int)prefix, list, (int)strcspn(inner, "-,]"),
                               inner);
}

static shoal_status bind(const struct shoali_job *job, const struct place *place)
{
    cpu_set_t set;
    struct shoali_memory_policy memory;
    int32_t first, count;
    CPU_ZERO(&set);
    shoali_cores_of_rank(job->cores.count, place->local_rank, place->local_size, &first, &count);
    for (int32_t i = 0; i < count; i++)
        CPU_SET((size_t)job->cores.value[first + i], &set);
    shoali_numa_policy(job->cores.value + first, count, &memory);
    shoali_memory_policy_apply(&memory);
    return sched_setaffinity(0, sizeof(set), &set) == 0
               ? SHOAL_OK
               : SHOAL_FAIL(SHOAL_EINVAL, "cannot bind rank %d to its cores: %s", (int)place->rank,
                            strerror(errno));
}

/* The rank's alone: its parent speaks to the front. */
static shoal_status open_log(struct shoali_job *job, int32_t rank)
{
    shoal_status status;
    char stamp[32], path[4096];
    const time_t now = time(NULL);
    struct tm local;
    SHOAL_TRY(status, shoali_make_dirs(job->args->rank_log_folder), done);
    localtime_r(&now, &local);
    strftime(stamp, sizeof(stamp), "%Y%m%d%H%M%S", &local);
    snprintf(path, sizeof(path), "%s/%s_rank%d.log", job->args->rank_log_folder, stamp, (int)rank);
    job->log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (job->log_file < 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "cannot write the log of rank %d to %s: %s", (int)rank,
                            path, strerror(errno));
done:
    return status;
}

static shoal_status prepare(const struct shoali_launch_options *options,
                            const struct shoali_world *world, shoal_launch_args *args,
                            struct shoali_job *job, struct place *place)
{
    shoal_status status;
    const enum shoali_remote_launcher launcher = (enum shoali_remote_launcher)options->rank_of;
    const char *secret = getenv("SHOAL_SECRET"), *id = getenv("SHOAL_JOB_ID");
    SHOAL_TRY(status, shoali_program_find(args->program[0], &job->arena, &job->program_path), done);
    SHOAL_TRY(status, read_place(launcher, place), done);
    SHOAL_TRY(status, world ? fit_world(launcher, world, place, job) : fit_slurm(place, job), done);
    if (!secret || !*secret || !id || !*id) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "SHOAL_SECRET and SHOAL_JOB_ID did not reach rank %d: --launcher_args "
                            "keeps %s from passing the environment on",
                            (int)place->rank, shoali_launcher_name_of(launcher));
        goto done;
    }
    if (!args->master_addr && !(args->master_addr = first_host(&job->arena))) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "SLURM_STEP_NODELIST does not name the first host: give "
                                          "--master_addr");
        goto done;
    }
    snprintf(job->id, sizeof(job->id), "%s", id);
    job->inherits_secret = true;
    job->ranks = place->local_size;
    job->first_rank = place->rank - place->local_rank;
    job->world_ranks = place->size;
    job->master_port = args->master_port;
    if (args->bind_cores || args->core_list) {
        SHOAL_TRY(status, shoali_cores_select(args->core_list, &job->arena, &job->cores), done);
        SHOAL_TRY(status, bind(job, place), done);
    }
    if (args->rank_log_folder)
        SHOAL_TRY(status, open_log(job, place->rank), done);
done:
    return status;
}

shoal_status shoali_mpi_rank_run(const struct shoali_launch_options *options,
                                 const shoal_launch_args *args, struct shoali_arena *arena,
                                 int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct shoali_job job = shoali_job_none;
    struct shoali_world world;
    struct place place;
    shoal_launch_args own = *args;
    char **argv, **envp;
    const bool named = options->world_info && *options->world_info;
    shoali_arena_init(&job.arena);
    job.args = &own;
    if (named)
        SHOAL_TRY(status, shoali_world_parse(options->world_info, arena, &world), done);
    SHOAL_TRY(status, prepare(options, named ? &world : NULL, &own, &job, &place), done);
    SHOAL_TRY(status, shoali_rank_arguments(&job, place.local_rank, &argv), done);
    SHOAL_TRY(status, shoali_rank_environment(&job, place.local_rank, &envp), done);
    job.silence_ns = options->silent_rank_timeout * INT64_C(1000000000);
    job.host_silence_ns = shoali_host_silence_ns(options);
    SHOAL_TRY(status,
              shoali_mpi_watch(&job, place.local_rank, job.program_path, argv, envp, exit_code),
              done);
done:
    shoali_arena_fini(&job.arena);
    return status;
}
