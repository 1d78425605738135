/* comm.h - process groups and collectives.
 *
 * Terms
 *   group    an ordered set of ranks that communicate.
 *   backend  what moves the data: self, thread, shm, mpi, ucx.
 *   check    a wrapper of the backends, on by default, that compares the ranks' calls.
 *
 * Invariants
 * - All ranks of a group call every collective in the same order, with the same op, count and
 *   dtype. If they disagree, `check` fails with SHOAL_EMISMATCH, which names both call sites.
 * - Every wait has a deadline. If a rank ends or hangs, the other ranks get SHOAL_EPEER or
 *   SHOAL_ETIMEOUT, which names it. The group is then aborted, and each later call returns the same
 *   error at once.
 * - Every backend adds in rank order 0..N-1 for each element, so results depend on N but never on
 *   timing.
 * - Buffers are host memory or memory of shoal_comm_alloc.
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
    /* Adds in fp32 (F64: in fp64) along the binary tree of the ranks: (0 + 1) + (2 + 3) for four.
     * Other sums add one rank after the other. The number of ranks is a power of two. */
    SHOAL_SUM_TREE = 6
} shoal_reduce;

/* How a rank joins the world. Zero-initialise. Members that are 0 or NULL come from the
 * environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SHOAL_COMM, DEEPSPEED_TIMEOUT (minutes).
 * If TORCHELASTIC_USE_AGENT_STORE is True, torchrun's store at MASTER_PORT tells rank 0's port.
 * Without RANK they come from the variables of mpirun and srun (OMPI_*, PMI_*, PMIX_*, SLURM_*).
 * Ranks of several machines need one secret (SHOAL_SECRET_FILE or SHOAL_SECRET); `shoal run` hands
 * one out. */
typedef struct shoal_comm_args {
    int32_t rank, world_size; /* world_size 0: environment; without one: 1 */
    /* "self", "thread", "shm", "mpi", "ucx". NULL: SHOAL_COMM. Without SHOAL_COMM: self for one
     * rank, shm on one machine. On several machines: mpi for ranks of mpirun or srun, else ucx. */
    const char *backend;
    const char *master_addr; /* rendezvous address of the processes */
    int32_t master_port;
    double timeout_s;                   /* of every wait; 0: 600 */
    struct shoal_thread_world *threads; /* ranks are threads: from shoal_thread_world_create */
    bool no_check;                      /* skip the `check` wrapper */
} shoal_comm_args;

/* Joins the world. Collective over all ranks of the job; blocks. *group is owned by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_init(const shoal_comm_args *args,
                                                     shoal_group **group);
/* Leaves the group and frees its shared buffers. Collective unless the group is aborted. NULL is
 * fine. */
SHOAL_API void shoal_comm_destroy(shoal_group *group);
/* Return this rank's number in the group and the number of ranks. Not collective. */
SHOAL_API int32_t shoal_comm_rank(const shoal_group *group);
SHOAL_API int32_t shoal_comm_size(const shoal_group *group);
/* Returns "self", "thread", "shm", "mpi", "ucx" or "hierarchical" (shm within each of several
 * hosts, mpi or ucx between the hosts). Static. Not collective. */
SHOAL_API const char *shoal_comm_backend(const shoal_group *group);

/* Creates the meeting point of `ranks` threads of this process. Create it before these ranks join,
 * destroy it after all of them have left. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_thread_world_create(int32_t ranks,
                                                               struct shoal_thread_world **world);
/* Call after the last rank's shoal_comm_destroy. NULL is fine. */
SHOAL_API void shoal_thread_world_destroy(struct shoal_thread_world *world);

/* The caller's place in its source. Errors about ranks that disagree name it. */
#define SHOAL_COMM_STRING2(x) #x
#define SHOAL_COMM_STRING(x) SHOAL_COMM_STRING2(x)
#define SHOAL_HERE __FILE__ ":" SHOAL_COMM_STRING(__LINE__)

/* Post a collective. Collective over the group, in one order on all ranks. `here` is SHOAL_HERE;
 * use the macros below. With `request` NULL the call waits. Otherwise the caller owns the request
 * until shoal_request_wait. Counts are elements *per rank*: all_gather receives count*N elements,
 * reduce_scatter sends count*N, all_to_all sends and receives count*N. `in` may equal `out` for
 * all_reduce and broadcast. For all_gather `in` may be out + rank*count. Other buffers do not
 * overlap. SHOAL_EMISMATCH: ranks post different calls; both call sites are named. SHOAL_EPEER: a
 * rank failed. SHOAL_ETIMEOUT: the deadline passed. */
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
/* Exchanges slices of different sizes, packed without gaps in rank order. send_counts[j] elements
 * go to rank j, recv_counts[j] elements come from rank j. `check` verifies that this rank's
 * send_counts[j] is rank j's recv_counts of this rank. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_all_to_all_v_at(
    const char *here, shoal_group *group, const void *in, const int64_t *send_counts, void *out,
    const int64_t *recv_counts, shoal_dtype dtype, shoal_request **request);
/* Send or receive one message. Collective over these two ranks only; matched in the order of
 * posting. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_send_at(const char *here, shoal_group *group,
                                                   const void *data, int64_t count,
                                                   shoal_dtype dtype, int32_t to,
                                                   shoal_request **request);
SHOAL_API SHOAL_CHECKED shoal_status shoal_recv_at(const char *here, shoal_group *group, void *data,
                                                   int64_t count, shoal_dtype dtype, int32_t from,
                                                   shoal_request **request);
/* Waits until all ranks of the group have called it. Collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_barrier_at(const char *here, shoal_group *group);
/* Makes a new group of the ranks with the same color, ordered by (key, rank). color < 0: no group
 * (*group = NULL). Collective over `parent`. *group is owned by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_split_at(const char *here, shoal_group *parent,
                                                         int32_t color, int32_t key,
                                                         shoal_group **group);

/* The functions above without their first argument. */
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

/* Returns SHOAL_IN_PROGRESS, SHOAL_OK or an error. In the last two cases the request is freed and
 * *request is NULL. Does not block. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_request_test(shoal_request **request);
/* Waits for the request, frees it and sets *request to NULL, also after an error. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_request_wait(shoal_request **request);

/* Allocates zeroed memory that collectives of the group access without a copy (shm: a shared
 * arena). Collective; every rank asks for the same size. Owned by the group: freed by
 * shoal_comm_free or with the group. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_alloc_at(const char *here, shoal_group *group,
                                                         size_t bytes, void **memory);
#define shoal_comm_alloc(...) shoal_comm_alloc_at(SHOAL_HERE, __VA_ARGS__)
SHOAL_API void shoal_comm_free(shoal_group *group, void *memory);
/* A value that all ranks must have alike, as text. Both are borrowed for the call. */
typedef struct shoal_fact {
    const char *name, *value;
} shoal_fact;
/* Compares the facts of all ranks. Each rank gives the same names in one order. A rank with count 0
 * agrees with the others. SHOAL_EMISMATCH, on every rank: the sentence names the facts that differ,
 * with two ranks and their values. The group stays good for later calls. Collective. Cost: one
 * all_reduce of three numbers where the facts agree. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_comm_agree(shoal_group *group, const shoal_fact *facts,
                                                      int32_t count);
/* Tells all ranks of the world that this rank failed, with the text of its last error. The other
 * ranks' waits return that error. Not collective. Idempotent. */
SHOAL_API void shoal_comm_abort(shoal_group *group, shoal_status status);

#ifdef __cplusplus
}
#endif
#endif
