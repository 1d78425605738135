/* comm - groups, collectives, wrappers. Level L4.
 *
 * A backend is one table (struct shoali_comm_ops) over a group object of its own; shoal_group
 * holds the outermost table of a stack: wrap/check > wrap/record > wrap/fault > backend. A wrapper
 * implements the same table and forwards, so there is no #ifdef and no branch in the data path.
 *
 *   self    one rank: copies.
 *   thread  ranks are threads of one process; requests are posted into the group's slots, the
 *           buffers are read directly. TSan sees everything.
 *   shm     processes of one machine: a control segment with one slot per rank (sequence, record
 *           of the op for `check`, addresses as arena offsets, state) and a data arena, both memfd
 *           or files of this user's folder in /dev/shm that are unlinked as soon as all ranks have
 *           mapped them. What a rank
 *           leaves that is killed before, the launcher removes. Buffers from shoal_comm_alloc are
 *           used in place ("direct both-write": each rank reduces its slice from all ranks' buffers
 *           and stores it into all of them); other buffers are staged in chunks through a per-rank
 *           bounce area. Waits look for a bounded time and soon yield the core between looks,
 *           then futex; every wake-up looks at the abort word and the deadline.
 *   mpi     processes of an MPI job, on any number of machines (mpi/backend.h); a plug-in, loaded
 *           when it is asked for.
 *   ucx     processes on any number of machines that no MPI has started (ucx/backend.h); a plug-in,
 *           too. It and mpi share comm/p2p: collectives over messages between two ranks.
 *   meta    for plans: one rank of a group that does not exist.
 *   hierarchical  ranks of several hosts: shm within a host, any of the above between hosts
 *           (hierarchical/hierarchical.h). Chosen by itself, never by name.
 *
 * thread and shm share comm/algorithms (slots.h): the same state machines over the same control
 * layout, which lies on the heap or in the segment.
 *
 * Order of a sum: ranks 0..N-1 in order per element (ops reduce_sources), N slices by elements in
 * multiples of 64 bytes; so every backend gives the same bits. SHOAL_SUM_TREE adds neighbours, then
 * neighbours of those sums: what a rank that has a whole subtree itself can join before (exact sums
 * of tensor parallelism, autograd/tensor_parallel.h).
 *
 * Posts on a device's stream. shoali_comm_post_on puts a collective into a stream, after the
 * stream's earlier work and before its later work, and returns: the host waits for neither the
 * device nor the other ranks. It is a task of the stream (accelerator.h, shoali_launch_host): when
 * its turn comes it posts to the group's stack, then tests until the backend is done. Where the
 * device's memory is reached from:
 *
 *   cpu        host memory: the post is made at once and waited for; there is no task.
 *   direct     the device is `exportable` and the backend says `device_memory`: the backend gets
 *              addresses of the device's memory that are good while the task runs. Ranks as threads
 *              read each other's device memory.
 *   staged     else: a copy to the stream's pinned memory, the task, a copy back; all three are in
 *              the stream.
 *
 *   ORDER. The order of posts is that of the calls, whatever streams they name: a task begins when
 *   the group's earlier ones are over, and a call that the host makes itself (a post of host
 * memory,
 *   split, alloc, destroy) first waits for those in streams. So wrappers and backends see one post
 *   after the other, and a group needs no lock. Only a request of the host that is not over has to
 *   be waited for before a post on a stream: the group would be used by two threads.
 *   FAILURE. A task that fails aborts the world, because its host may not look at the device for
 *   long; the host gets the sentence from its next call to the device (accelerator.h).
 *
 * A post beside a stream (shoali_comm_post_beside) is the same on a stream of its own: it comes
 * after what the computing stream had before, signals an event, and the computing stream goes on
 * until shoali_comm_pending_wait makes it wait for that event.
 *
 * Asynchronous requests: posting may complete at once; a request that needs others makes progress
 * in test/wait of the same rank. The order of posts on a group is the order of execution (queue.h).
 * Outstanding requests per group: up to 16.
 *
 * comm/bootstrap is a key-value store {put, get, wait, abort} over threads, a file system or TCP
 * (rank 0 or the launcher listens on MASTER_PORT); it carries names of segments, addresses of ranks
 * (O(log N) messages of each: shoali_store_exchange), verdicts, and nothing large. Only who knows
 * the job's secret is accepted there (docs/SECURITY.md).
 *
 * Each rank of processes has a status page (base/status_page.h, board_file.h), where wrap/record
 * says which collective it has come to and how long it has waited; the launcher and `shoal top`
 * read it.
 *
 * A failing rank calls shoal_comm_abort: its sentence is stored in the control segment (or world),
 * all waits return SHOAL_EPEER "rank 2 failed: SENTENCE". A killed rank is noticed by its pid
 * (pidfd or kill(pid,0)) in waits of the shm backend within 100 ms: "rank 2 (pid 4711) is gone".
 */
#ifndef SHOALI_COMM_H
#define SHOALI_COMM_H

#include "ops/ops.h"
#include "shoal/comm.h"

enum shoali_collective {
    SHOALI_ALL_REDUCE,
    SHOALI_REDUCE_SCATTER,
    SHOALI_ALL_GATHER,
    SHOALI_BROADCAST,
    SHOALI_ALL_TO_ALL,
    SHOALI_ALL_TO_ALL_V,
    SHOALI_SEND,
    SHOALI_RECV,
    SHOALI_BARRIER,
    SHOALI_SPLIT,
    SHOALI_COMM_ALLOC,
    SHOALI_COLLECTIVE_COUNT
};

/* What a rank says about its posted operation to the others. A backend with control slots carries
 * it there beside the data, so that comparing costs no round trip. */
enum { SHOALI_HERE_BYTES = 88 };
struct shoali_record {
    uint64_t sequence; /* number of the collective in its group, from 0 */
    uint64_t group;    /* identity of the group in its world */
    int64_t count;
    int32_t kind, dtype, op, peer, tag;
    char here[SHOALI_HERE_BYTES]; /* the call site, its last parts when long */
};
/* One rank's part of an agreement. `world_rank` is the name that messages use. */
struct shoali_seat_shared; /* what a rank says of itself */
struct shoali_seat {
    int32_t world_rank;
    const struct shoali_seat_shared *shared; /* NULL: nothing is known */
    const struct shoali_record *record;
    const int64_t *send_counts, *recv_counts; /* all_to_all_v; [ranks], NULL: they come later */
};

/* For messages; text has room for SHOALI_PLACE_BYTES, and is returned. "" without a name or an
 * instruction, else with `before` in front: "tp 1, pp 0", "send_gradient of micro-batch 3 of step
 * 7". And: "rank 2", "rank 2 (tp 1, pp 0)". */
enum { SHOALI_PLACE_BYTES = 128 };
const char *shoali_seat_name(const struct shoali_seat_shared *seat, const char *before, char *text);
const char *shoali_seat_doing(const struct shoali_seat_shared *seat, const char *before,
                              char *text);
const char *shoali_rank_format(const struct shoali_seat *seat, char *text);

/* One posted operation, as wrappers and backends see it. SHOALI_SPLIT and SHOALI_COMM_ALLOC are
 * posted as barriers that announce these calls. */
struct shoali_post {
    enum shoali_collective kind;
    const char *here;
    const void *in;
    void *out;
    int64_t count;
    shoal_dtype dtype;
    shoal_reduce op;
    int32_t peer;                             /* root, to, from */
    int32_t tag;                              /* what the data is; all ranks must say the same */
    const int64_t *send_counts, *recv_counts; /* all_to_all_v; valid until completion */
    /* A step of a larger collective: what its caller has posted (count to here), which is what the
     * others compare and messages name; NULL: this post. Valid until completion. */
    const struct shoali_record *call;
    int32_t patience; /* percent that its deadline is later: it waits for others who wait */
    /* Set by wrap/check: the backend calls it with the seats of all ranks once they have arrived
     * and before it touches data (send/recv: the receiver, with the seats of sender and receiver).
     * An error aborts the world with its sentence. NULL: unchecked. */
    shoal_status (*agree)(const struct shoali_seat *seats, int32_t count);
};

static inline bool shoali_post_is_message(const struct shoali_post *post)
{
    return post->kind == SHOALI_SEND || post->kind == SHOALI_RECV;
}

struct shoali_split_args {
    const char *here;
    int32_t color, key;
    /* Ranks of the child; key is then this one's number in it, so that a plan, which cannot ask the
     * others, has both. 0: unknown. */
    int32_t expected;
};

/* The ranks that chose `color`, by (key, rank); their number. choices: of each rank `stride`
 * numbers, of which the first is its color and the second its key. */
int32_t shoali_split_members(const int32_t *choices, int32_t stride, int32_t ranks, int32_t color,
                             int32_t *members);

/* `rank` of `size` here, `number` in the larger world, by which messages call it. `exchange` is
 * collective over the larger world: gives every rank of this host what each of them has; 0 bytes
 * of `own` are as good. */
enum { SHOALI_NEAR_NOTE_BYTES = 512 };
struct shoali_near_args {
    int32_t rank, size, number;
    double timeout_s;
    struct shoal_thread_world *threads;
    shoal_status (*exchange)(void *user, const void *own, void *all); /* notes */
    void *user;
};

struct shoali_comm_ops {
    uint32_t abi;
    size_t bytes;
    const char *name;
    bool (*probe)(void);
    bool device_memory; /* buffers may be addresses that a task got for a device's memory */
    shoal_status (*create)(const shoal_comm_args *args, void **backend); /* collective */
    void (*destroy)(void *backend);
    int32_t (*rank)(const void *backend);
    int32_t (*size)(const void *backend);
    /* *request NULL: already complete. */
    shoal_status (*post)(void *backend, const struct shoali_post *post, void **request);
    shoal_status (*test)(void *backend,
                         void *request); /* frees the request unless SHOAL_IN_PROGRESS */
    shoal_status (*wait)(void *backend, void *request); /* frees the request */
    shoal_status (*split)(void *backend, const struct shoali_split_args *args, void **child);
    shoal_status (*alloc)(void *backend, const char *here, size_t bytes, void **memory);
    void (*free)(void *backend, void *memory);
    void (*abort)(void *backend, shoal_status status, const char *sentence);
    /* The group is used by a second thread of each rank: its waits spin only when there are two
     * cores per rank. */
    void (*second_thread)(void *backend);
    /* What messages of all ranks call this one besides its number; NULL: there are no others. */
    void (*set_name)(void *backend, const char *name);
    /* What the calling thread does, as its context says, for messages of other ranks; NULL: they
     * do not say it. */
    void (*say_place)(void *backend);
    /* SHOAL_OK, or the verdict of the world as this rank's error. NULL: it has none. */
    shoal_status (*verdict)(void *backend);
    /* A verdict that was found elsewhere, for all ranks of the world as it stands, unless they have
     * one. */
    void (*relay)(void *backend, shoal_status status, const char *sentence);
    /* A world of the ranks of one host within a larger one. NULL: no such worlds. */
    shoal_status (*create_near)(const struct shoali_near_args *args, void **backend);
    /* Who waits in this world calls `look` now and then; its error becomes the verdict. */
    void (*watch)(void *backend, shoal_status (*look)(void *user), void *user);
    /* Bytes that this rank has sent to other hosts so far, over all groups of its world, per kind.
     * NULL: none. */
    void (*between_hosts)(const void *backend, int64_t bytes[SHOALI_COLLECTIVE_COUNT]);
    /* See shoali_comm_ranks_per_host. NULL: 0. */
    int32_t (*ranks_per_host)(const void *backend);
};
#define SHOALI_COMM_ABI 4u
extern const struct shoali_comm_ops shoali_comm_self, shoali_comm_thread, shoali_comm_shm,
    shoali_comm_mpi, shoali_comm_ucx;
const struct shoali_comm_ops *const *shoali_comm_all(void); /* NULL-terminated */
/* What connects the ranks of a job when nobody says: SHOAL_COMM, else shm when all of them are on
 * this machine as far as is known, else mpi for those of mpirun or srun and ucx for others; self
 * for one rank. */
const char *shoali_comm_default_backend(const struct shoali_started *job);
/* A group for plans: this rank alone of `ranks`; what it posts is counted and goes nowhere. Posts
 * on streams need the pinned memory that those of `like` would; NULL: of processes. */
extern const struct shoali_comm_ops shoali_comm_meta;
SHOAL_CHECKED shoal_status shoali_comm_create_meta(int32_t rank, int32_t ranks,
                                                   const shoal_group *like, shoal_group **group);

/* Bytes and calls per collective of a group, counted by wrap/record (always on; cheap). A post on a
 * stream counts when it begins. */
struct shoali_comm_counters {
    int64_t calls[SHOALI_COLLECTIVE_COUNT];
    int64_t elements[SHOALI_COLLECTIVE_COUNT]; /* elements this rank sends by the ring-formula:
                                                  all_reduce 2*count*(N-1)/N, ... see record.c */
    int64_t bytes[SHOALI_COLLECTIVE_COUNT];
    int64_t shared_bytes; /* that shoal_comm_alloc gave this rank so far */
    int64_t split_count;  /* groups made of this one */
    int64_t wait_ns;
    /* That this rank has sent to other hosts, over all groups of its world; 0 where the backend
     * knows of no hosts. */
    int64_t between_hosts[SHOALI_COLLECTIVE_COUNT];
};
void shoali_comm_get_counters(const shoal_group *group, struct shoali_comm_counters *counters);
/* Adds a group's, when its posts on streams are over, but for `split_count` and `between_hosts`.
 * NULL has none. */
SHOAL_CHECKED shoal_status shoali_comm_add_counters(shoal_group *group,
                                                    struct shoali_comm_counters *sum);
/* Times the collectives of this group and of those that are split from it from now on
 * (comms_log.h); NULL: no longer. The log outlives the groups. */
struct shoali_comms_log;
void shoali_comm_set_log(shoal_group *group, struct shoali_comms_log *log);
/* How many ranks of the group each host has, when there are several hosts, all have equally many
 * and they follow each other: rank r is on host r / that. Else 0. The same on all ranks. */
int32_t shoali_comm_ranks_per_host(const shoal_group *group);
/* Does `between_hosts` of its counters say something? The same on all ranks. */
bool shoali_comm_has_hosts(const shoal_group *group);
/* A rank's share of the control memory (slots, bounce areas) of a group in one machine. */
int64_t shoali_comm_control_bytes(int32_t ranks);
const char *shoali_collective_name(enum shoali_collective kind);
/* What a post says of itself, or of the call that it is a step of: count to here. */
void shoali_post_describe(const struct shoali_post *post, struct shoali_record *record);
/* "all_reduce of 12 F32 at a.c:10" in a caller's buffer of 256. */
const char *shoali_record_format(const struct shoali_record *record, char *buffer);
/* Bytes of `in` that a rank of a group of `ranks` sends and of `out` that it receives. Arguments
 * are checked. */
size_t shoali_post_in_bytes(const struct shoali_post *post, int32_t ranks);
size_t shoali_post_out_bytes(const struct shoali_post *post, int32_t ranks);
/* Checks the arguments and posts; request NULL waits. What the public calls and the device front
 * use. */
SHOAL_CHECKED shoal_status shoali_comm_post(shoal_group *group, const struct shoali_post *post,
                                            shoal_request **request);

/* For measurements (tuning.c): the groups of this world are carried by that algorithm where it can,
 * as if by the table of `shoal tune comm`; NULL: by its own choice again. Each rank calls it
 * between the same collectives. SHOAL_EUNSUPPORTED: the backend has one way only. SHOAL_EINVAL: no
 * such algorithm. */
SHOAL_CHECKED shoal_status shoali_comm_force(shoal_group *group, const char *algorithm);
/* Could it carry this post? "direct" can everything; NULL beyond the last. */
const char *shoali_comm_algorithm(int32_t index);
bool shoali_comm_can(int32_t index, const struct shoali_post *post);
/* "Open MPI", "UCX"; NULL where there is no choice. */
const char *shoali_comm_transport(const shoal_group *group);

/* A split of which the caller knows how many ranks come out; a check that they do. */
SHOAL_CHECKED shoal_status shoali_comm_split(shoal_group *parent,
                                             const struct shoali_split_args *args,
                                             shoal_group **group);
/* This rank's name in its world, for messages of every rank: "tp 1, pp 0", at most 48 characters.
 * Not collective; before the world is used by a second thread. */
void shoali_comm_set_name(shoal_group *group, const char *name);
/* Takes what the context says now: a rank that dies before its next call is found there. */
void shoali_comm_say_place(shoal_group *group);
/* Says that the group belongs to a communication thread beside the rank's computing one. */
void shoali_comm_second_thread(shoal_group *group);

/* Puts the collective into the stream; `in` and `out` are device addresses, and belong to the
 * stream's order like those of a kernel. What the post points to is copied. An error is one of the
 * arguments or of an earlier failure; the collective's own comes with a later call, except on a
 * host-accessible device, where it is over when the call returns. */
SHOAL_CHECKED shoal_status shoali_comm_post_on(shoal_group *group,
                                               struct shoali_device_stream *stream,
                                               const struct shoali_post *post);
/* Waits until the group's posts on streams are over; the host may then use what they counted. */
SHOAL_CHECKED shoal_status shoali_comm_settle(shoal_group *group);

/* Streams and events for posts beside a computing stream. Zeros to begin with; made when a device
 * first needs them, which a host-accessible one does not. Its owner waits for every pending post
 * before fini. */
enum { SHOALI_COMM_SIDE_DEPTH = 16 };
struct shoali_comm_side {
    struct shoali_device_stream *stream;
    struct shoali_event *ready, *done[SHOALI_COMM_SIDE_DEPTH];
    uint32_t taken; /* bit per event of a pending post */
};
void shoali_comm_side_fini(struct shoali_comm_side *side);
/* Zeros: nothing is pending. */
struct shoali_comm_pending {
    shoal_request *request; /* host accessible; NULL: complete */
    struct shoali_comm_side *side;
    int32_t event;
};
/* Posts what comes after the stream's earlier work. `in` and `out` belong to it until the wait. At
 * most SHOALI_COMM_SIDE_DEPTH are pending. */
SHOAL_CHECKED shoal_status shoali_comm_post_beside(shoal_group *group,
                                                   struct shoali_device_stream *stream,
                                                   struct shoali_comm_side *side,
                                                   const struct shoali_post *post,
                                                   struct shoali_comm_pending *pending);
/* Lets the others go on. SHOAL_IN_PROGRESS: the host would wait in shoali_comm_pending_wait. */
SHOAL_CHECKED shoal_status shoali_comm_pending_test(struct shoali_comm_pending *pending);
/* What `stream` is given from now on comes after it. `pending` is zeros then, on failure too. */
SHOAL_CHECKED shoal_status shoali_comm_pending_wait(struct shoali_comm_pending *pending,
                                                    struct shoali_device_stream *stream);

/* Zeroed device memory that is also good for collectives without a copy, where there is such:
 * shoal_comm_alloc when the device is host accessible and N > 1; else memory of the device, which
 * posts on its streams reach directly when it is exportable to the backend. Counted by the device
 * either way. Collective. */
SHOAL_CHECKED shoal_status shoali_comm_device_alloc(const char *here, shoal_group *group,
                                                    struct shoali_device_stream *stream,
                                                    size_t bytes, void **address);
void shoali_comm_device_free(shoal_group *group, struct shoali_device *device, void *address);

#endif
