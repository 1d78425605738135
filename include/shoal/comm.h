/* comm.h - process groups and collectives.
 *
 * A group is an ordered set of ranks that act together. Every collective is called by all ranks of
 * its group in the same order with the same op, count and dtype; the `check` wrapper (on by
 * default) turns any disagreement into SHOAL_EMISMATCH that names both call sites. Every wait has a
 * deadline: a rank that dies or hangs gives the others SHOAL_EPEER or SHOAL_ETIMEOUT naming it;
 * after that the group is aborted and each further call returns the same error at once.
 *
 * Sums are made in rank order 0..N-1 for each element, whatever the backend, so results depend on N
 * but never on timing. Buffers are host memory or memory from shoal_comm_alloc.
 */
#ifndef SHOAL_COMM_H
#define SHOAL_COMM_H

#include "shoal/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_group shoal_group;
typedef struct shoal_request shoal_request;

typedef enum shoal_reduce {
    SHOAL_SUM = 0,
    SHOAL_MIN = 1,
    SHOAL_MAX = 2,
    SHOAL_PROD = 3,
    SHOAL_BOR = 4,
    SHOAL_AVG = 5,
    /* A sum in fp32 (fp64 of F64) by the binary tree over the ranks: (0 + 1) + (2 + 3) of four. The
     * others add one rank after the other. Of a power of two of ranks. */
    SHOAL_SUM_TREE = 6
} shoal_reduce;

/* How a rank joins the world. Zero-initialise; fields left 0/NULL come from the environment
 * (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SHOAL_COMM, DEEPSPEED_TIMEOUT minutes); without RANK
 * from what mpirun and srun set (OMPI_*, PMI_*, PMIX_*, SLURM_*). Ranks of several machines need one secret (SHOAL_SECRET_FILE or SHOAL_SECRET); `shoal run` hands one out.
 */
typedef struct shoal_comm_args {
    int32_t rank, world_size; /* world_size 0: environment; without one: 1 */
    const char *
        backend; /* "self", "thread", "shm", "mpi", "ucx"; NULL: SHOAL_COMM, else on several machines
                            mpi for ranks of mpirun or srun and ucx for others, shm on one; self for 1 rank */
    const char *master_addr; /* rendezvous of processes */
    int32_t master_port;
    double timeout_s;                   /* of every wait; 0: 600 */
    struct shoal_thread_world *threads; /* ranks are threads: from shoal_thread_world_create */
    bool no_check;                      /* without the agreement checks */
} shoal_comm_args;

/* Joins the world. Collective over all ranks of the job. *group is owned by the caller. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_comm_init(const shoal_comm_args *args,
                                                        shoal_group **group);
/* Leaves: collective unless the group is aborted. NULL is fine. Frees shared buffers. */
SHOAL_API void shoal_comm_destroy(shoal_group *group);
/* This rank's number in the group, and how many ranks it has. Not collective. */
SHOAL_API int32_t shoal_comm_rank(const shoal_group *group);
SHOAL_API int32_t shoal_comm_size(const shoal_group *group);
/* "self", "thread", "shm", "mpi", "ucx"; "hierarchical": shm within each of several hosts and mpi or ucx
 * between them. Static. Not collective. */
SHOAL_API const char *shoal_comm_backend(const shoal_group *group);

/* A meeting place for `ranks` threads of this process; create before, destroy after all of them. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_thread_world_create(int32_t ranks,
                                                               struct shoal_thread_world **world);
/* After the last rank's shoal_comm_destroy. NULL is fine. */
SHOAL_API void shoal_thread_world_destroy(struct shoal_thread_world *world);

/* The caller's place in its source, which messages about ranks that disagree name. */
#define SHOAL_COMM_STRING2(x) #x
#define SHOAL_COMM_STRING(x) SHOAL_COMM_STRING2(x)
#define SHOAL_HERE __FILE__ ":" SHOAL_COMM_STRING(__LINE__)

/* Posts. Collective over the group, in one order on all its ranks. `here` is SHOAL_HERE; use the
 * macros below. With request NULL the call waits; else the request is owned by the caller until
 * shoal_request_wait. SHOAL_EMISMATCH: ranks do not post the same, and both call sites are named;
 * SHOAL_EPEER: a rank failed; SHOAL_ETIMEOUT. Counts are elements *per rank's block*:
 * all_gather receives count*N, reduce_scatter sends count*N, all_to_all sends and receives count*N.
 * `in` may equal `out` for all_reduce and broadcast; for all_gather `in` may be out + rank*count;
 * else no overlap. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_all_reduce_at(const char *here, shoal_group *group,
                                                         const void *in, void *out, int64_t count,
                                                         shoal_dtype dtype, shoal_reduce op,
                                                         shoal_request **request);
SHOAL_API SHOAL_CHECKED shoal_status shoal_reduce_scatter_at(const char *here, shoal_group *group,
                                                             const void *in, void *out,
                                                             int64_t count, shoal_dtype dtype,
                                                             shoal_reduce op,
                                                             shoal_request **request);
SHOAL_API SHOAL_CHECKED shoal_status shoal_all_gather_at(const char *here, shoal_group *group,
                                                         const void *in, void *out, int64_t count,
                                                         shoal_dtype dtype,
                                                         shoal_request **request);
SHOAL_API SHOAL_CHECKED shoal_status shoal_broadcast_at(const char *here, shoal_group *group,
                                                        void *data, int64_t count,
                                                        shoal_dtype dtype, int32_t root,
                                                        shoal_request **request);
SHOAL_API SHOAL_CHECKED shoal_status shoal_all_to_all_at(const char *here, shoal_group *group,
                                                         const void *in, void *out, int64_t count,
                                                         shoal_dtype dtype,
                                                         shoal_request **request);
/* Blocks of different sizes, packed without gaps in rank order. send_counts[j] elements go to rank
 * j, recv_counts[j] come from rank j; `check` verifies that my send[j] is j's recv[me]. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_all_to_all_v_at(
    const char *here, shoal_group *group, const void *in, const int64_t *send_counts, void *out,
    const int64_t *recv_counts, shoal_dtype dtype, shoal_request **request);
/* One message from rank to rank: collective over these two alone, matched in the order posted. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_send_at(const char *here, shoal_group *group,
                                                   const void *data, int64_t count,
                                                   shoal_dtype dtype, int32_t to,
                                                   shoal_request **request);
SHOAL_API SHOAL_CHECKED shoal_status shoal_recv_at(const char *here, shoal_group *group, void *data,
                                                   int64_t count, shoal_dtype dtype, int32_t from,
                                                   shoal_request **request);
/* Waits until all ranks of the group are here. Collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_barrier_at(const char *here, shoal_group *group);
/* Ranks with the same color form a new group ordered by (key, rank); color < 0: none (*group =
 * NULL). Collective over `parent`. *group is owned by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_split_at(const char *here, shoal_group *parent,
                                                         int32_t color, int32_t key,
                                                         shoal_group **group);

/* The calls above without their first argument. */
#define shoal_all_reduce(...) shoal_all_reduce_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_reduce_scatter(...) shoal_reduce_scatter_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_all_gather(...) shoal_all_gather_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_broadcast(...) shoal_broadcast_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_all_to_all(...) shoal_all_to_all_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_all_to_all_v(...) shoal_all_to_all_v_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_send(...) shoal_send_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_recv(...) shoal_recv_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_barrier(...) shoal_barrier_at(SHOAL_HERE, __VA_ARGS__)
#define shoal_comm_split(...) shoal_comm_split_at(SHOAL_HERE, __VA_ARGS__)

/* SHOAL_IN_PROGRESS, SHOAL_OK (request freed and *request = NULL) or an error (likewise freed). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_request_test(shoal_request **request);
/* Waits for it; then the request is freed and *request NULL, also after an error. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_request_wait(shoal_request **request);

/* Zeroed memory that collectives of the group reach without a copy (shm: a shared arena).
 * Collective; every rank asks for the same size. Owned by the group: freed by shoal_comm_free or
 * with the group. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_alloc_at(const char *here, shoal_group *group,
                                                         size_t bytes, void **memory);
#define shoal_comm_alloc(...) shoal_comm_alloc_at(SHOAL_HERE, __VA_ARGS__)
SHOAL_API void shoal_comm_free(shoal_group *group, void *memory);
/* Tells all ranks of the world that this one failed, with the sentence of its last error: the
 * verdict the others' waits return. Idempotent. */
SHOAL_API void shoal_comm_abort(shoal_group *group, shoal_status status);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_init_sized(const shoal_comm_args *args,
                                                           size_t args_size, shoal_group **group);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_comm_init(const shoal_comm_args *args,
                                                        shoal_group **group)
{
    return shoal_comm_init_sized(args, sizeof *args, group);
}

#ifdef __cplusplus
}
#endif
#endif
