/* p2p - collectives over messages between two ranks, for ranks on any number of machines. The
 * backends mpi and ucx stand on it.
 *
 * A transport (transport.h) carries bytes between two ranks; what a collective is, is decided here:
 * the collectives that transports bring along sum in an order of their choice, know no deadline,
 * and cannot be given up. A group has two tags: of its collectives and of its messages. The
 * transport keeps the order of what one rank sends another with one tag, so nothing carries a
 * number.
 *
 * A collective begins with an envelope from each rank to each: the record that `check` compares,
 * and the data, too, when it fits (SHOALI_P2P_INLINE_BYTES). Larger data goes as streams, one per
 * pair of ranks and direction. The first pieces are sent behind the envelopes without waiting for
 * the others'; nothing that has come is looked at before all envelopes are there and agree.
 *
 * ALGORITHMS (choice.c chooses by collective, ranks and bytes; schedule.c has those of several
 * steps).
 *
 *   direct    all_reduce      slice r of every rank goes to r, which sums in rank order; then r's slice
 *                             goes to all
 *             reduce_scatter  the same, r's block, and no second phase
 *             broadcast       slice r goes from the root to r; then r's slice goes to all
 *             all_gather, all_to_all(_v)  every block goes to its rank
 *   gather    all_reduce      everything goes to all, and everyone sums in rank order
 *   tree      broadcast       from those who have it to those who have not, in log2(ranks) steps
 *             all_reduce *    sums of sums to rank 0 the other way round, then that
 *   ring      all_gather      blocks go round
 *             reduce_scatter * and are summed on their way to their rank
 *             all_reduce *    slices go round and are summed, then go round again
 *   doubling  all_reduce *    everything to and from a partner at distance 1, 2, 4, ...
 *   halving   all_reduce *    Rabenseifner's: halves of halves, summed, and back
 *             reduce_scatter * the first half of that, over blocks
 *
 * Direct sends no more than a ring does, in one or two exchanges instead of many. What direct and
 * gather sum, they sum in rank order, as the other backends do, bit by bit, so that the order of a
 * sum is a matter of the number of ranks alone. The algorithms marked * add in another order: they
 * are for integers, where every order gives the same bits (exact mode sums integers); for other
 * types direct takes their place.
 * A stream goes through pieces of the engine's own memory, some of them under way
 * at once: the caller's memory is never in the transport's hands, so that a request can be given
 * up at any time, and device memory is good while its task runs. A sum takes its sources from the
 * pieces.
 *
 * A collective is over when the transport is done with what this rank has sent, because it moves
 * nothing while a rank computes.
 *
 * All that holds for groups of up to SHOALI_P2P_MAX_RANKS. In larger ones a rank knows log2(ranks)
 * neighbours, and of the others only numbers: large.h.
 *
 * Ranks of one machine are not treated apart: the transport itself has shared memory for them.
 *
 * FAILURE. The verdict (algorithms/slots.h has the same) is a message to all ranks of the world on
 * a tag of its own, which every wait looks for. In a world of more ranks than that it goes to those
 * at distance 1, 2, 4, ... on either side, and each who gets it passes it on to its own: so many
 * ways lead to each that dead ranks on some of them keep it from nobody. It may overtake what other
 * ranks have sent before: so who waits goes on for a moment, and completes what all have come to.
 * Then nothing more is sent, and the world's memory stays, because the transport may still hold it.
 * A rank whose connection breaks, where the transport tells, is gone for those who need something
 * of it: after a moment in which its verdict may still come, that is the verdict. A silent rank is
 * found by the deadline.
 *
 * THREADS. Groups may be used by different threads of a rank, where the transport lets them. */
#ifndef SHOALI_P2P_H
#define SHOALI_P2P_H

#include "comm/p2p/transport.h"
#include "comm/queue.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SHOALI_P2P_MAX_RANKS = SHOALI_REDUCE_MAX_SOURCES, /* that exchange all with all */
    SHOALI_P2P_WORLD_RANKS = 1 << 20,                 /* memory is short before that */
    SHOALI_P2P_PIECE_BYTES = 131072,
    SHOALI_P2P_INLINE_BYTES = 3584, /* with the record what every transport sends at once */
    SHOALI_P2P_WINDOW = 32,         /* pieces of a stream under way, at most */
    SHOALI_P2P_PIECES = 64,         /* and of all streams of a direction, but two of each */
    SHOALI_P2P_TAGS = 2,            /* of a group: collectives, messages */
    SHOALI_P2P_VERDICT_TAG = 0,
    SHOALI_P2P_RECEIVED_TAG = 1,
    SHOALI_P2P_FIRST_TAG = 2,
    SHOALI_P2P_SENTENCE_BYTES = 1024,
    SHOALI_P2P_WHERE_BYTES = 96
};

/* ---- what is sent --------------------------------------------------------------------------- */

struct shoali_p2p_envelope {
    struct shoali_record record;
    uint32_t bytes; /* of data */
    uint32_t zero;
    unsigned char data[SHOALI_P2P_INLINE_BYTES];
};
struct shoali_p2p_verdict {
    int32_t status, rank; /* rank that gave up, -1: the ranks found it together */
    int32_t from, zero;   /* who sends it */
    char sentence[SHOALI_P2P_SENTENCE_BYTES];
};

/* ---- of one rank ---------------------------------------------------------------------------- */

struct shoali_p2p_piece {
    struct shoali_p2p_piece *next; /* while nobody uses it */
    _Alignas(64) unsigned char data[SHOALI_P2P_PIECE_BYTES];
};
_Static_assert(sizeof(struct shoali_p2p_envelope) <= SHOALI_P2P_PIECE_BYTES,
               "an envelope is sent from a piece");

/* Which algorithm carries what, as `shoal tune comm` has measured it (rules.c). */
enum { SHOALI_P2P_RULES_MAX = 48, SHOALI_P2P_TITLE_BYTES = 32 };
struct shoali_p2p_rule {
    int64_t up_to_bytes;
    int32_t kind, algorithm;
    int32_t integer; /* of elements whose sums have no order */
    int32_t zero;
};
struct shoali_p2p_rules {
    int32_t ranks, local_ranks; /* of the world they were measured by; local: of rank 0's machine */
    int32_t count, zero;
    char transport[SHOALI_P2P_TITLE_BYTES];
    struct shoali_p2p_rule rule[SHOALI_P2P_RULES_MAX];
};
struct shoali_p2p_where {
    char text[SHOALI_P2P_WHERE_BYTES];
};
struct shoali_p2p_listener {
    int32_t rank;
    struct shoali_p2p_request verdict; /* on its way there, or the word that theirs has come */
    /* That it has got it; where connections break, who sends a verdict waits a moment for that. */
    struct shoali_p2p_request received;
    bool done;
};
struct shoali_p2p_world {
    const struct shoali_p2p_table *p2p;
    struct shoali_p2p_comm comm;
    int32_t rank, size, largest_tag;
    _Atomic int64_t timeout_ns; /* shorter while the ranks connect, which the worker waits for */
    const char
        *one_thread; /* NULL: any thread may call; else `owner` alone, and what to do about it */
    pthread_t owner;
    struct shoali_p2p_where *where; /* [size] or NULL */
    struct shoali_p2p_rules rules;  /* count 0: none were given */
    int32_t forced;                 /* an algorithm for all that can; -1: none */
    struct shoali_ops ops;
    pthread_mutex_t lock; /* what follows */
    int32_t references, next_tag;
    struct shoali_p2p_piece *pieces;
    struct shoali_p2p_request incoming_request;
    struct shoali_p2p_verdict incoming;
    _Atomic int64_t looked_ns;
    _Atomic bool aborted; /* `verdict` is valid */
    int64_t aborted_ns;   /* when another rank's verdict came; 0: this rank's own */
    struct shoali_p2p_verdict verdict;
    /* Whom this rank tells a verdict. */
    struct shoali_p2p_listener *audience;
    int32_t audience_count;
    char received;
};

/* Bytes to or from one rank, through pieces. */
struct shoali_p2p_stream {
    const unsigned char *from;
    unsigned char *to; /* NULL in a receiving one: the pieces are sources of a sum */
    size_t bytes;
    size_t begun; /* given to the transport */
    size_t moved; /* the transport is done with; taken out of pieces */
    struct {
        struct shoali_p2p_piece *piece;
        struct shoali_p2p_request request;
        size_t bytes;
        bool here; /* a receive that is over */
    } slot[SHOALI_P2P_WINDOW];
    uint32_t head, tail; /* slots in use: tail <= number < head */
};

/* How the data of a collective that does not fit into the envelopes goes: see above. */
enum shoali_p2p_algorithm {
    SHOALI_P2P_DIRECT,
    SHOALI_P2P_GATHER,
    SHOALI_P2P_RING,
    SHOALI_P2P_DOUBLING,
    SHOALI_P2P_HALVING,
    SHOALI_P2P_TREE,
    SHOALI_P2P_ALGORITHMS
};
struct shoali_p2p_range {
    int64_t first, count; /* elements */
};
/* One exchange of those of several: what of `out` goes to a rank, where what comes from one
 * goes. */
struct shoali_p2p_step {
    int32_t to, from; /* -1: nobody */
    struct shoali_p2p_range send, receive;
    bool sums; /* what comes is added to what is there */
};

struct shoali_p2p_op {
    int32_t index; /* in the queue */
    struct shoali_post post;
    struct shoali_record record;
    size_t element_bytes;
    int64_t waiting_since_ns, checked_ns; /* 0: nobody has waited yet */
    int32_t looks;                        /* at a world with a verdict */
    int64_t lost_ns;                      /* since when a rank that it needs is lost; 0: none is */
    bool begun, agreed;
    enum shoali_p2p_algorithm algorithm;
    int32_t phase; /* INT32_MAX: there is none (any more) */
    struct shoali_p2p_step step;
    unsigned char *room; /* a reduce_scatter's, while it goes by steps; owned */
    /* messages */
    struct shoali_p2p_piece *envelope;
    struct shoali_p2p_request request;
    bool here;
    struct shoali_p2p_stream stream;
};

/* A group's side of what it exchanges with one of its ranks in the present collective. */
struct shoali_p2p_peer {
    struct shoali_p2p_envelope *sent, *got;
    struct shoali_p2p_request send_request, receive_request;
    bool sending, here;
    bool received; /* of an earlier collective, whose record is `last` */
    struct shoali_record last;
    struct shoali_p2p_stream out, in;
};

struct shoali_p2p_memory {
    struct shoali_p2p_memory *next;
    void *address;
    size_t bytes;
};

struct shoali_p2p_large; /* large.h */
struct shoali_p2p_group {
    struct shoali_p2p_world *world; /* one reference */
    int32_t rank, size, tag;
    int32_t *world_rank; /* [size] */
    uint64_t sequence;
    uint64_t moves; /* pieces given to the transport: who waits sees that it goes on */
    struct shoali_p2p_op op[SHOALI_QUEUE_REQUESTS];
    struct shoali_queue queue;
    struct shoali_p2p_peer *peer;   /* [size]; NULL: a large group */
    struct shoali_p2p_large *large; /* NULL: a small one */
    struct shoali_p2p_memory *memory;
};

/* world.c. `comm` is the world's from here on, on failure too. */
struct shoali_p2p_world_args {
    const struct shoali_p2p_table *p2p;
    struct shoali_p2p_comm comm;
    int32_t rank, size, largest_tag;
    const char *one_thread;
    /* Of each rank, for messages: "pid 4711 on node2"; NULL: not known. The world's, on failure
     * too. */
    struct shoali_p2p_where *where;
    double timeout_s;
};
SHOAL_CHECKED shoal_status shoali_p2p_world_create(const struct shoali_p2p_world_args *args,
                                                   struct shoali_p2p_world **world);
void shoali_p2p_world_retain(struct shoali_p2p_world *world);
void shoali_p2p_world_release(struct shoali_p2p_world *world);
/* Sets the verdict unless there is one, and tells all ranks; rank -1: found by the ranks together.
 */
void shoali_p2p_world_abort(struct shoali_p2p_world *world, int32_t rank, shoal_status status,
                            const char *sentence);
/* Has a verdict come? Looks for it. */
bool shoali_p2p_world_aborted(struct shoali_p2p_world *world);
/* Is it final: there is nothing on its way that would complete a request? `looks`: how often the
 * caller has looked since it came. */
bool shoali_p2p_is_final(struct shoali_p2p_world *world, int32_t *looks);
/* SHOAL_OK, or the verdict as this rank's error. */
SHOAL_CHECKED shoal_status shoali_p2p_verdict(struct shoali_p2p_world *world);
/* A piece of the world's, NULL: no memory (and an error). */
struct shoali_p2p_piece *shoali_p2p_take_piece(struct shoali_p2p_world *world);
void shoali_p2p_put_piece(struct shoali_p2p_world *world, struct shoali_p2p_piece *piece);
/* The transport's calls with their errors as sentences; `rank` is of the world. */
SHOAL_CHECKED shoal_status shoali_p2p_send(struct shoali_p2p_world *world, const void *data,
                                           size_t bytes, int32_t rank, int32_t tag,
                                           struct shoali_p2p_request *request);
SHOAL_CHECKED shoal_status shoali_p2p_receive(struct shoali_p2p_world *world, void *data,
                                              size_t bytes, int32_t rank, int32_t tag,
                                              struct shoali_p2p_request *request);
SHOAL_CHECKED shoal_status shoali_p2p_test(struct shoali_p2p_world *world,
                                           struct shoali_p2p_request *request, bool *done,
                                           size_t *bytes);

/* stream.c; ranks are of the group. SHOAL_IN_PROGRESS when the transport is not done. */
SHOAL_CHECKED shoal_status shoali_p2p_stream_send(struct shoali_p2p_group *group, int32_t rank,
                                                  int32_t tag, struct shoali_p2p_stream *stream);
SHOAL_CHECKED shoal_status shoali_p2p_stream_receive(struct shoali_p2p_group *group, int32_t rank,
                                                     int32_t tag, struct shoali_p2p_stream *stream);
/* Only begins what there is room for. */
SHOAL_CHECKED shoal_status shoali_p2p_stream_launch(struct shoali_p2p_group *group, int32_t rank,
                                                    int32_t tag, bool sends,
                                                    struct shoali_p2p_stream *stream);
/* The first piece that has come, of a stream whose pieces are sources; NULL: not yet. */
const unsigned char *shoali_p2p_stream_first(const struct shoali_p2p_stream *stream);
void shoali_p2p_stream_drop_first(struct shoali_p2p_world *world, struct shoali_p2p_stream *stream);

/* collective.c, phase.c, message.c: SHOAL_IN_PROGRESS when others are needed. */
SHOAL_CHECKED shoal_status shoali_p2p_collective_advance(struct shoali_p2p_group *group,
                                                         struct shoali_p2p_op *op);
/* Readies the streams of a phase; false: there is no such phase. */
bool shoali_p2p_phase_begin(struct shoali_p2p_group *group, struct shoali_p2p_op *op,
                            int32_t phase);
/* Gives the transport what there is room for, and looks at nothing. */
SHOAL_CHECKED shoal_status shoali_p2p_phase_launch(struct shoali_p2p_group *group);
SHOAL_CHECKED shoal_status shoali_p2p_phase_advance(struct shoali_p2p_group *group,
                                                    const struct shoali_p2p_op *op);
/* One of `parts` slices of the count: whole cache lines, as the other backends cut. */
struct shoali_p2p_range shoali_p2p_slice(const struct shoali_p2p_op *op, int32_t index,
                                         int32_t parts);
bool shoali_p2p_has_steps(const struct shoali_p2p_op *op);
/* schedule.c: step `number` of an algorithm that has steps; false: there are no more. */
bool shoali_p2p_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                     int32_t number, struct shoali_p2p_step *step);
/* rules.c: rank 0 reads the file that SHOAL_COMM_TUNING names, and all ranks get what it says. The
 * world's group; collective. */
SHOAL_CHECKED shoal_status shoali_p2p_rules_share(struct shoali_p2p_group *group);
const char *shoali_p2p_algorithm_name(int32_t algorithm);
/* choice.c: is the algorithm one of the collective's, and which one it is. */
bool shoali_p2p_can(const struct shoali_post *post, enum shoali_p2p_algorithm algorithm);
enum shoali_p2p_algorithm shoali_p2p_choose(const struct shoali_p2p_group *group,
                                            const struct shoali_p2p_op *op);
SHOAL_CHECKED shoal_status shoali_p2p_message_advance(struct shoali_p2p_group *group,
                                                      struct shoali_p2p_op *op);
/* Does so much from one rank to another fit beside the record? */
bool shoali_p2p_is_inline(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                          size_t bytes);
void shoali_p2p_reduce(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                       struct shoali_reduce_sources_args *args, int32_t sources, int64_t count);

/* group.c; the members of the backends' tables. */
/* The group of all ranks. */
SHOAL_CHECKED shoal_status shoali_p2p_open_all(struct shoali_p2p_world *world, void **backend);
bool shoali_p2p_probe(void);
void shoali_p2p_destroy(void *group);
int32_t shoali_p2p_rank(const void *group);
int32_t shoali_p2p_size(const void *group);
shoal_status shoali_p2p_split(void *group, const struct shoali_split_args *args, void **child);
shoal_status shoali_p2p_alloc(void *group, const char *here, size_t bytes, void **memory);
void shoali_p2p_free(void *group, void *memory);
void shoali_p2p_second_thread(void *group);
/* progress.c: posts and waits, without `agree`. */
SHOAL_CHECKED shoal_status shoali_p2p_run(struct shoali_p2p_group *group,
                                          const struct shoali_post *post);
shoal_status shoali_p2p_post(void *group, const struct shoali_post *post, void **request);
shoal_status shoali_p2p_test_op(void *group, void *request);
shoal_status shoali_p2p_wait(void *group, void *request);
void shoali_p2p_abort(void *group, shoal_status status, const char *sentence);
shoal_status shoali_p2p_get_verdict(void *group);
void shoali_p2p_relay(void *group, shoal_status status, const char *sentence);

/* A backend's table: all but its name and how its world begins is the engine's. */
#define SHOALI_P2P_TABLE(NAME, CREATE)                                                     \
    {                                                                                      \
        .abi = SHOALI_COMM_ABI, .bytes = sizeof(struct shoali_comm_ops), .name = NAME,     \
        .probe = shoali_p2p_probe, .device_memory = true, /* a task copies it to pieces */ \
            .create = CREATE, .destroy = shoali_p2p_destroy, .rank = shoali_p2p_rank,      \
        .size = shoali_p2p_size, .post = shoali_p2p_post, .test = shoali_p2p_test_op,      \
        .wait = shoali_p2p_wait, .split = shoali_p2p_split, .alloc = shoali_p2p_alloc,     \
        .free = shoali_p2p_free, .abort = shoali_p2p_abort,                                \
        .second_thread = shoali_p2p_second_thread, .verdict = shoali_p2p_get_verdict,      \
        .relay = shoali_p2p_relay,                                                         \
    }

#endif
