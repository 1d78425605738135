/* slots - collectives over memory that all ranks of a group can reach. Used by thread and shm.
 *
 * A group's control memory has one slot per rank. Work goes in *rounds*: a rank publishes a round
 * by writing its wire (record and places of its buffers) into its front number round % 2 and, for
 * small or staged operations, its data into its half of that number, then storing the round's
 * number in the front's `arrived`. When all ranks have arrived, every rank reads what it needs.
 * Publishing round R therefore says "I am done with reading round R-1", and because R is only
 * published after all arrived at R-1, front and half of round R-2 are free again: two suffice and
 * there is no second wait. An operation is
 *   small    one round: data up to 64 KiB in the half, published with the record;
 *   staged   a round for the records, then one per chunk;
 *   direct   a round for the records, then everybody works on the others' buffers themselves,
 *            then a round that says "done with yours". Needs buffers that all can reach: any with
 *            thread, those of shoal_comm_alloc with shm; and a size that is worth a second round.
 *            all_reduce: each rank reduces its slice from all ranks' buffers and stores it into all
 *            of them; broadcast: each carries a slice from the root to all.
 * All ranks choose the same way because they choose from the wires alone.
 *
 * send/recv use a channel per ordered pair: a ring of two pieces, head moved by the sender and tail
 * by the receiver. The group's queue (comm/queue.h) keeps the order of collectives and messages.
 *
 * Sleeping: a rank announces `sleeping`, looks once more, and waits on its `bell`. Whoever
 * completes an arrival (the last rank) or moves a channel rings those that sleep. All of this is
 * seq_cst, so either the sleeper sees the news or the publisher sees the sleeper.
 *
 * Cores: where another program wants a core, the system wakes a rank beside the one that rang it,
 * and leaves two ranks on one core and the other program alone on another. The threads that ranks
 * compute with say which core they have when they post; after a wait that was no short one, a rank
 * that finds one with a lower number on its core goes to a core that none has said, if it may and
 * there are as many as ranks. Then it has a part of that core, and the system brings it back when
 * others sleep.
 *
 * World: what all groups of a rank share; the verdict of a failure lies in its shared memory. The
 * first verdict stays, and every later call of every rank returns it.
 */
#ifndef SHOALI_SLOTS_H
#define SHOALI_SLOTS_H

#include "comm/queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

enum {
    SHOALI_MAX_RANKS = SHOALI_REDUCE_MAX_SOURCES, /* of one machine */
    SHOALI_MEMBER_WORDS = SHOALI_MAX_RANKS / 64,
    SHOALI_SMALL_BYTES = 65536,
    SHOALI_SENTENCE_BYTES = 1024,
    SHOALI_LINE_BYTES = 128, /* two cache lines: the adjacent one is fetched too */
    SHOALI_NAME_WORDS = 6,
    SHOALI_DOING_WORDS = 3
};

/* ---- in shared memory ----------------------------------------------------------------------- */

enum shoali_verdict_state { SHOALI_VERDICT_NONE, SHOALI_VERDICT_WRITING, SHOALI_VERDICT_SET };

struct shoali_seat_shared {
    _Atomic int32_t pid;     /* 0: nobody yet, -1: a thread */
    _Atomic uint32_t joined; /* the fields below are valid */
    int32_t number;          /* what messages call this rank */
    _Atomic uint32_t left;
    cpu_set_t cores;
    /* names.c: texts in words; step and micro-batch are valid where `doing` is no empty text */
    _Alignas(SHOALI_LINE_BYTES) _Atomic uint64_t doing[SHOALI_DOING_WORDS];
    _Atomic int64_t micro, step;
    _Atomic uint64_t name[SHOALI_NAME_WORDS];
    _Atomic int32_t core; /* cores.c: + 1; 0: it has not said */
};
struct shoali_world_shared {
    _Atomic uint32_t verdict; /* enum shoali_verdict_state; the next three are valid when SET */
    int32_t verdict_status;
    int32_t verdict_rank; /* that gave up, -1: the ranks found it together */
    char verdict_sentence[SHOALI_SENTENCE_BYTES];
    _Atomic uint64_t next_identity; /* of groups and arenas */
    struct shoali_seat_shared seat[SHOALI_MAX_RANKS];
};

/* A set of world ranks. */
struct shoali_members {
    uint64_t word[SHOALI_MEMBER_WORDS];
};
/* Where a buffer is, in words that other ranks understand. */
struct shoali_place {
    uint64_t arena;                /* 0: private; else its identity, or SHOALI_PLACE_ADDRESS */
    uint64_t offset;               /* in the arena, or the address */
    struct shoali_members members; /* that can reach it */
};
#define SHOALI_PLACE_ADDRESS UINT64_MAX

struct shoali_wire {
    uint32_t reachable; /* by all ranks of the group: SHOALI_REACH_IN, SHOALI_REACH_OUT */
    struct shoali_record record;
    struct shoali_place in, out;
};
enum { SHOALI_REACH_IN = 1, SHOALI_REACH_OUT = 2 };
/* What a rank shows of one round. `arrived` and what every operation compares share a cache line,
 * so that a small one costs the others a single line besides its data. */
struct shoali_front {
    _Alignas(SHOALI_LINE_BYTES) _Atomic uint32_t arrived; /* this round */
    struct shoali_wire wire;
};
_Static_assert(offsetof(struct shoali_front, wire.record.here) <= 64,
               "more than a line to compare");
struct shoali_slot {
    _Alignas(SHOALI_LINE_BYTES) _Atomic uint32_t bell;
    _Atomic uint32_t sleeping;
    _Atomic uint32_t busy;        /* working on other ranks' buffers */
    struct shoali_front front[2]; /* of rounds with that number % 2 */
    _Alignas(SHOALI_LINE_BYTES) int64_t counts[2][2 * SHOALI_MAX_RANKS]; /* send, then recv */
};
struct shoali_channel {
    _Alignas(SHOALI_LINE_BYTES) _Atomic uint32_t head; /* pieces put, by the sender */
    _Alignas(SHOALI_LINE_BYTES) _Atomic uint32_t tail; /* pieces taken, by the receiver */
    _Alignas(SHOALI_LINE_BYTES) struct shoali_wire wire[2];
};
struct shoali_group_shared {
    uint64_t identity;
    int32_t size;
    int32_t world_rank[SHOALI_MAX_RANKS];
    /* slots, channels, halves and pieces follow: struct shoali_layout */
};

/* ---- of one rank ---------------------------------------------------------------------------- */

/* Memory that several ranks see. `name` and `address` are what the maker tells the others. */
struct shoali_segment {
    void *base;
    size_t bytes;
    uint64_t address; /* thread */
    char name[112];   /* shm */
    int fd;
    /* The part that this rank makes sure of having memory for. 0 bytes: the maker makes sure of
     * everything. */
    size_t own_begin, own_bytes;
};
/* How thread and shm make segments and look after ranks. */
struct shoali_slots_host {
    bool any_address; /* a pointer means the same to all ranks */
    /* Made zeroed by one rank; fills *segment. */
    shoal_status (*create)(void *user, size_t bytes, struct shoali_segment *segment);
    /* The others: base from name, address and bytes. */
    shoal_status (*attach)(void *user, struct shoali_segment *segment);
    /* Maker: its own part, where parts are, while the others attach and do the same. NULL: memory
     * is there when it is needed. */
    shoal_status (*reserve)(void *user, struct shoali_segment *segment);
    /* Maker: all have attached, or will not. */
    void (*seal)(struct shoali_segment *segment);
    void (*detach)(void *user, struct shoali_segment *segment);
    /* Rank of the world that is gone without having left, or -1. NULL: cannot happen. */
    int32_t (*find_dead)(void *user);
    void (*close)(void *user); /* frees user with the world */
};

struct shoali_arena_shared;
struct shoali_comm_arena {
    struct shoali_comm_arena *next;
    struct shoali_segment segment;
    struct shoali_arena_shared *shared;
    uint64_t identity;
    struct shoali_members members;
    const void *owner; /* the group it was made by; NULL once freed by this rank */
    void *memory;      /* this rank's part */
    size_t bytes;
};

struct shoali_slots_world {
    const struct shoali_slots_host *host;
    void *user;
    struct shoali_segment segment;
    struct shoali_world_shared *shared;
    int32_t rank, size;
    int64_t timeout_ns, spin_ns;
    shoal_status (*look)(void *user); /* NULL, or called in waits: comm.h, `watch` */
    void *poll_user;
    int32_t core_count;        /* that the ranks together may run on */
    bool takes_turns;          /* fewer cores than ranks */
    _Atomic int64_t looked_ns; /* at the others' cores (cores.c) */
    struct shoali_ops ops;
    pthread_mutex_t
        lock; /* arenas, references: groups may be used by different threads of a rank */
    struct shoali_comm_arena *arenas;
    int32_t references;
};

struct shoali_slots_request {
    int32_t index; /* in the queue */
    struct shoali_post post;
    struct shoali_wire wire;
    size_t element_bytes;
    int64_t waiting_since_ns, checked_ns; /* since the first test or the wait; 0: none yet */
    bool published;                       /* collective: this round; message: the first piece */
    /* collectives */
    bool small; /* a half holds all of it */
    bool direct;
    int32_t step, steps; /* rounds done and needed; steps 0: not known yet */
    int32_t first_chunk; /* step that carries chunk 0 */
    int64_t chunk;       /* elements per chunk (and per block) */
    /* messages */
    size_t bytes, moved;
    bool posted_place; /* the piece in the channel says where the data is */
};

struct shoali_slots_group {
    struct shoali_slots_world *world; /* one reference */
    struct shoali_segment segment;    /* of the control memory; base NULL for the world's group */
    struct shoali_group_shared *shared;
    struct shoali_slot *slot;       /* [size] */
    struct shoali_channel *channel; /* [size * size], from * size + to */
    unsigned char *halves, *pieces;
    size_t half_bytes, piece_bytes;
    int32_t rank, size;
    struct shoali_members members;
    int64_t spin_ns;
    bool beside; /* used by another thread than the one that the rank computes with */
    int32_t waits_to_yield, crowded_waits; /* progress.c: until yielding is tried again */
    uint32_t round;
    int32_t seen; /* ranks below have arrived at `round` */
    uint64_t sequence;
    struct shoali_slots_request request[SHOALI_QUEUE_REQUESTS];
    struct shoali_queue queue;
};

static inline void shoali_members_add(struct shoali_members *members, int32_t rank)
{
    members->word[rank / 64] |= (uint64_t)1 << rank % 64;
}
static inline bool shoali_members_have(const struct shoali_members *members, int32_t rank)
{
    return members->word[rank / 64] >> rank % 64 & 1;
}
static inline bool shoali_members_have_all(const struct shoali_members *members,
                                           const struct shoali_members *some)
{
    uint64_t missing = 0;
    for (int i = 0; i < SHOALI_MEMBER_WORDS; i++)
        missing |= some->word[i] & ~members->word[i];
    return missing == 0;
}
static inline uint32_t shoali_members_count(const struct shoali_members *members)
{
    int count = 0;
    for (int i = 0; i < SHOALI_MEMBER_WORDS; i++)
        count += __builtin_popcountll(members->word[i]);
    return (uint32_t)count;
}

/* world.c */
size_t shoali_world_bytes(void);
/* Takes the segment (which begins with a struct shoali_world_shared) and `user` over, also when it
 * fails. */
struct shoali_world_args {
    const struct shoali_slots_host *host;
    void *user;
    struct shoali_segment segment;
    int32_t rank, size;
    double timeout_s;
};
SHOAL_CHECKED shoal_status shoali_world_create(const struct shoali_world_args *args,
                                               struct shoali_slots_world **world);
/* Announces this rank's cores, its pid (-1: a thread) and what messages call it. False: the seat is
 * taken. */
SHOAL_CHECKED bool shoali_world_join(struct shoali_world_shared *shared, int32_t rank, int32_t pid,
                                     int32_t number);
/* Decides on spinning; all ranks have joined. */
void shoali_world_ready(struct shoali_slots_world *world);
void shoali_world_retain(struct shoali_slots_world *world);
void shoali_world_release(struct shoali_slots_world *world);
/* Sets the verdict unless there is one, which is the answer; rank -1: found by the ranks
 * together. */
bool shoali_world_abort(struct shoali_slots_world *world, int32_t rank, shoal_status status,
                        const char *sentence);
/* SHOAL_OK, or the verdict as this rank's error. */
SHOAL_CHECKED shoal_status shoali_world_verdict(struct shoali_slots_world *world);

/* What the rank of the group says of itself. */
static inline const struct shoali_seat_shared *
shoali_slots_seat(const struct shoali_slots_group *group, int32_t rank)
{
    return &group->world->shared->seat[group->shared->world_rank[rank]];
}
/* What messages call the rank of the group. */
static inline int32_t shoali_slots_number(const struct shoali_slots_group *group, int32_t rank)
{
    return shoali_slots_seat(group, rank)->number;
}

/* names.c: what the calling thread does (its context), for messages about this rank. */
void shoali_world_say_place(struct shoali_slots_world *world);
void shoali_slots_set_name(void *group, const char *name);
void shoali_slots_say_place(void *group);

/* cores.c: says on which core the calling thread is. */
void shoali_world_say_core(struct shoali_slots_world *world);
/* Goes to another core where a rank below has this one; it may go back where it came from later.
 * True: it has. */
bool shoali_world_part(struct shoali_slots_world *world);

/* group.c */
size_t shoali_group_bytes(int32_t size);
/* Maker of the control memory (zeroed). */
void shoali_group_format(void *memory, int32_t size, uint64_t identity, const int32_t *world_rank);
/* Retains the world; takes the segment over, on failure too. `memory`: the formatted control
 * memory. */
SHOAL_CHECKED shoal_status shoali_group_open(struct shoali_slots_world *world, void *memory,
                                             const struct shoali_segment *segment, int32_t rank,
                                             struct shoali_slots_group **group);
void shoali_group_ring(struct shoali_slots_group *group, int32_t rank);
void shoali_group_ring_all(struct shoali_slots_group *group);
/* While one works on other ranks' buffers; false: the world is aborted, hands off. */
bool shoali_group_enter_busy(struct shoali_slots_group *group);
void shoali_group_leave_busy(struct shoali_slots_group *group);
unsigned char *shoali_group_half(const struct shoali_slots_group *group, int32_t rank);
const struct shoali_wire *shoali_group_wire(const struct shoali_slots_group *group, int32_t rank);
/* Has the rank published the group's present round? */
bool shoali_group_has_arrived(const struct shoali_slots_group *group, int32_t rank);
struct shoali_channel *shoali_group_channel(const struct shoali_slots_group *group, int32_t from,
                                            int32_t to);

/* collective.c, exchange.c, block.c, message.c: SHOAL_IN_PROGRESS when it needs others, SHOAL_OK
 * when complete. */
SHOAL_CHECKED shoal_status shoali_collective_advance(struct shoali_slots_group *group,
                                                     struct shoali_slots_request *request);
void shoali_exchange_produce(struct shoali_slots_group *group,
                             const struct shoali_slots_request *request);
void shoali_exchange_consume(struct shoali_slots_group *group,
                             const struct shoali_slots_request *request);
/* Copies a block to each of `count` places, past the caches when it would not stay in them because
 * this rank writes `total_bytes` in all. */
void shoali_copy_block(void *const *to, int32_t count, const void *from, size_t bytes,
                       size_t total_bytes);
/* ops reduce_sources; destinations that are no sources are written past the caches when large. */
void shoali_reduce_block(const struct shoali_ops *ops,
                         const struct shoali_reduce_sources_args *args);
void shoali_exchange_direct(struct shoali_slots_group *group,
                            const struct shoali_slots_request *request);
SHOAL_CHECKED shoal_status shoali_message_advance(struct shoali_slots_group *group,
                                                  struct shoali_slots_request *request);

/* progress.c: the members of the backends' tables. */
shoal_status shoali_slots_post(void *group, const struct shoali_post *post, void **request);
shoal_status shoali_slots_test(void *group, void *request);
shoal_status shoali_slots_wait(void *group, void *request);
/* Posts and waits, without `agree`: the library's own collectives. */
SHOAL_CHECKED shoal_status shoali_slots_run(struct shoali_slots_group *group,
                                            const struct shoali_post *post);
void shoali_slots_destroy(void *group);
int32_t shoali_slots_rank(const void *group);
int32_t shoali_slots_size(const void *group);
void shoali_slots_second_thread(void *group);
void shoali_slots_abort(void *group, shoal_status status, const char *sentence);
shoal_status shoali_slots_verdict(void *group);
void shoali_slots_relay(void *group, shoal_status status, const char *sentence);
void shoali_slots_watch(void *group, shoal_status (*look)(void *user), void *user);

/* arena.c, split.c */
shoal_status shoali_slots_alloc(void *group, const char *here, size_t bytes, void **memory);
void shoali_slots_free(void *group, void *memory);
shoal_status shoali_slots_split(void *group, const struct shoali_split_args *split, void **child);
/* Ranks with the same `maker` (a rank of the group) get one segment; format prepares the memory at
 * the maker. Collective over the group; a rank with maker < 0 takes part for the others' sake and
 * gets nothing. All ranks succeed or all fail with the same sentence. */
struct shoali_segment_args {
    int32_t maker;
    size_t bytes;
    void (*format)(void *memory, const void *arg);
    const void *format_arg;
    size_t own_begin, own_bytes; /* as in struct shoali_segment */
};
SHOAL_CHECKED shoal_status shoali_segment_share(struct shoali_slots_group *group,
                                                const struct shoali_segment_args *args,
                                                struct shoali_segment *segment);
struct shoali_place shoali_place_of(struct shoali_slots_world *world, const void *memory,
                                    size_t bytes);
/* The place in this rank's address space. */
void *shoali_place_resolve(struct shoali_slots_world *world, const struct shoali_place *place);
/* Drops what group `owner` (NULL: all) still holds. */
void shoali_arenas_drop(struct shoali_slots_world *world, const void *owner);

/* futex.c */
void shoali_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns);
void shoali_futex_wake(_Atomic uint32_t *word);

#endif
