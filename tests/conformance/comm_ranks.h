/* comm_ranks - runs one function as N ranks: alone, as threads, or as processes. */
#ifndef SHOAL_TEST_COMM_RANKS_H
#define SHOAL_TEST_COMM_RANKS_H

#include "comm/comm.h"

#include <stdio.h>

/* RANKS_APART: threads that exchange data as processes do. RANKS_MPI: this process is one rank of a
 * job of mpirun, whose number of ranks is the only one there is. RANKS_SHM, RANKS_UCX:
 * processes. */
enum ranks_kind { RANKS_SELF, RANKS_THREAD, RANKS_APART, RANKS_SHM, RANKS_MPI, RANKS_UCX };

struct ranks;
/* What one rank is given. The function returns false when it found a fault (it has printed it). */
struct rank_seat {
    const struct ranks *ranks;
    int32_t rank, size;
    shoal_group *group; /* joined before and left after the function; NULL with `bare` */
    int32_t *host;      /* [size] where hosts are pretended (SHOAL_PRETEND_HOSTS), else NULL */
};
struct ranks {
    enum ranks_kind kind;
    int32_t size;
    double timeout_s; /* of waits; 0: 30 */
    bool no_check;
    bool bare;      /* the function joins itself */
    int32_t killed; /* rank >= 1 whose process is expected to be killed; 0: none */
    uint64_t seed;
    bool (*run)(struct rank_seat *seat);
    /* filled */
    int32_t port;
    struct shoal_thread_world *threads;
};

/* False, with a sentence: ranks of this kind cannot be connected here. */
bool ranks_kind_is_there(enum ranks_kind kind);
/* True when every rank's function returned true (a killed rank aside). */
bool ranks_run(struct ranks *ranks);
/* The arguments with which rank `rank` joins. */
shoal_comm_args ranks_args(const struct ranks *ranks, int32_t rank);
/* A TCP port on which nobody listens. Until `keeper` is closed nobody else is given it, though
 * whoever knows it may listen (with SO_REUSEADDR). */
int32_t ranks_keep_port(int *keeper);
const char *ranks_kind_name(enum ranks_kind kind);
/* Of RANKS_MPI: the ranks of the job. */
int32_t ranks_job_size(void);

/* For rank functions, where cmocka's assertions cannot be used: they may run in any thread or
 * process. */
#define EXPECT(condition)                                                                   \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: rank %d of %d (%s): not true: %s (last error: %s)\n",   \
                    __FILE__, __LINE__, (int)seat->rank, (int)seat->size,                   \
                    ranks_kind_name(seat->ranks->kind), #condition, shoal_error_message()); \
            return false;                                                                   \
        }                                                                                   \
    } while (0)

#endif
