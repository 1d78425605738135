/* Joining the ranks of an MPI job, or of a communicator. */
#include "comm/mpi/backend.h"
#include "comm/mpi/start_limit.h"
#include "comm/p2p/p2p.h"

#include "base/waiting.h"

#include <time.h>

enum { NAP_NS = 200000 };

/* Written when its request is over, so that it stays where it is when that does not happen. */
struct duplicate {
    struct shoali_p2p_comm comm;
    struct shoali_p2p_request request;
};

static shoal_status fail_of_mpi(const struct shoali_mpi_table *mpi, const char *call, int code)
{
    char text[512];
    mpi->p2p.describe(code, text, sizeof text);
    return SHOAL_FAIL(SHOAL_EIO, "%s: %s failed: %s", mpi->p2p.name, call, text);
}

static shoal_status await_duplicate(const struct shoali_mpi_table *mpi, double timeout_s,
                                    struct duplicate *own)
{
    const int64_t deadline_ns = shoali_deadline_ns((int64_t)(timeout_s * 1e9));
    bool done = false;
    struct shoali_waiting waiting = {0};
    for (int32_t looks = 0; !done; looks++) {
        const int code = mpi->p2p.test(&own->request, &done, NULL);
        if (code)
            return fail_of_mpi(mpi, "MPI_Comm_idup", code);
        if (!done && shoali_deadline_passed(deadline_ns))
            return SHOAL_FAIL(SHOAL_ETIMEOUT,
                              "not all ranks of the MPI communicator came within %.1f s: each has "
                              "to join",
                              timeout_s);
        if (!done && shoali_waiting_due(&waiting, NULL))
            SHOALI_WARN("comm",
                        "waiting for %.0f s for all ranks of the MPI communicator: each has to "
                        "join",
                        shoali_waiting_seconds(&waiting));
        if (!done && looks > 100)
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
    return SHOAL_OK;
}

/* Every rank of the communicator has to come. */
static shoal_status duplicate(const struct shoali_mpi_table *mpi, bool job, int32_t handle,
                              struct shoali_p2p_world_args *args)
{
    struct duplicate *own = shoali_calloc(1, sizeof *own, "a communicator");
    if (!own)
        return SHOAL_ENOMEM;
    int code = mpi->duplicate(job, handle, &own->comm, &own->request);
    if (code) {
        shoali_free(own);
        return fail_of_mpi(mpi, "MPI_Comm_idup", code);
    }
    const shoal_status status = await_duplicate(mpi, args->timeout_s, own);
    if (status < 0)
        return status; /* MPI may still write to it */
    args->comm = own->comm;
    shoali_free(own);
    code = mpi->ready(args->comm, &args->rank, &args->size, &args->largest_tag);
    return code ? fail_of_mpi(mpi, "MPI_Comm_rank", code) : SHOAL_OK;
}

static shoal_status check_world(const struct shoali_mpi_table *mpi,
                                const struct shoali_p2p_world_args *args)
{
    if (args->size > SHOALI_P2P_WORLD_RANKS)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "backend mpi has at most %d ranks, not %d",
                          SHOALI_P2P_WORLD_RANKS, (int)args->size);
    if (args->one_thread && !mpi->is_main_thread())
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "this program started %s without threads and uses it from another than "
                          "its main one: start it with MPI_Init_thread(..., "
                          "MPI_THREAD_SERIALIZED, ...)",
                          mpi->p2p.name);
    return SHOAL_OK;
}

static shoal_status start(const struct shoali_mpi_table *mpi, double timeout_s, bool *serialized)
{
    struct shoali_mpi_start_limit *limit = NULL;
    shoal_status status = SHOAL_OK;
    if (!mpi->running())
        SHOAL_TRY(status, shoali_mpi_start_limit_begin(timeout_s, &limit), done);
    const int code = mpi->start(serialized);
    if (code)
        status = fail_of_mpi(mpi, "MPI_Init_thread", code);
done:
    shoali_mpi_start_limit_end(limit);
    return status;
}

static shoal_status join(const struct shoali_mpi_table *mpi, bool job, int32_t handle,
                         double timeout_s, struct shoali_p2p_world **world)
{
    struct shoali_p2p_world_args args = {.p2p = &mpi->p2p, .timeout_s = timeout_s};
    bool serialized = false;
    shoal_status status = SHOAL_OK;
    if (!job && !mpi->running()) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "MPI is not running: shoal_comm_from_mpi comes after "
                                          "MPI_Init and before MPI_Finalize");
        goto done;
    }
    SHOAL_TRY(status, start(mpi, timeout_s, &serialized), done);
    args.one_thread = serialized ? NULL
                                 : "start it with MPI_Init_thread(..., MPI_THREAD_SERIALIZED, "
                                   "...)";
    SHOAL_TRY(status, duplicate(mpi, job, handle, &args), done);
    SHOAL_TRY(status, check_world(mpi, &args), done);
    SHOAL_TRY(status, shoali_p2p_world_create(&args, world), done);
done:
    return status;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    const struct shoali_mpi_table *mpi = NULL;
    struct shoali_p2p_world *world = NULL;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_mpi_load(&mpi), done);
    SHOAL_TRY(status, join(mpi, true, 0, args->timeout_s, &world), done);
    if (world->size != args->world_size || world->rank != args->rank) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "this is rank %d of %d for Shoal and rank %d of %d for %s: start the "
                            "ranks with that MPI's mpirun or with srun, and leave RANK and "
                            "WORLD_SIZE unset (SHOAL_MPI=openmpi or mpich chooses the MPI)",
                            (int)args->rank, (int)args->world_size, (int)world->rank,
                            (int)world->size, mpi->p2p.name);
        goto done;
    }
    SHOAL_TRY(status, shoali_p2p_open_all(world, backend), done);
done:
    if (world)
        shoali_p2p_world_release(world); /* the group holds its own reference */
    return status;
}

shoal_status shoali_mpi_adopt(int32_t handle, double timeout_s, void **backend)
{
    const struct shoali_mpi_table *mpi = NULL;
    struct shoali_p2p_world *world = NULL;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_mpi_load(&mpi), done);
    SHOAL_TRY(status, join(mpi, false, handle, timeout_s, &world), done);
    SHOAL_TRY(status, shoali_p2p_open_all(world, backend), done);
done:
    if (world)
        shoali_p2p_world_release(world);
    return status;
}

const struct shoali_comm_ops shoali_comm_mpi = SHOALI_P2P_TABLE("mpi", create);
