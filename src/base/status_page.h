/* status page - what a rank says of itself, where others can read it: also when it is dead.
 *
 * A status page is a few kilobytes of memory that the rank's process shares through a file (comm/
 * board_file.h names it). The rank writes, at the places where it comes by anyway: its step, the
 * collective it has come to and from where, how long it has waited, its last log lines, why it
 * failed. Two readers: `shoal top` (tools/top.c), and the launcher, which is there when the rank
 * was killed and nobody can ask it any more (launcher/watch/verdict.c).
 *
 *   COST      relaxed stores into memory that nobody else writes: no lock, no call of the system.
 *             A step costs some tens of stores, a collective about 20 and two looks at the clock.
 *   TEXTS     lie in words of eight characters, each of them atomic: who reads while they are
 *             written gets a text of which a part may be the next one's. That is enough for people.
 *   TRUST     a reader copies the status page first (shoali_status_page_read), and takes nothing in
 *             the copy for an index, a size or a format.
 *   THREADS   the thread's context (error.h) has the status page, so that ranks which are threads
 *             have one each, or none. Waits and files count for the thread that opened it alone:
 *             what other threads of the rank wait for happens beside its computing.
 *   CALLS     Several threads of a rank are in collectives at once: one computes, one gathers
 *             ahead, one saves. A reader is shown the one that the owner waits in; if it waits in
 *             none, the oldest that is not over; if all are, the newest.
 *   TIMES     of collectives are the wall clock's, because those of several hosts are compared;
 *             durations are the monotonic clock's.
 *   ARRIVALS  Status pages of several hosts are seen up to a second apart, and in a second there
 *             may be thousands of collectives. So the last arrivals are kept in four rings: of one
 *             collective in 4096, of one in 256, of one in 16, and of the others. The key chooses
 *             the ring, hence ranks keep the same ones. Messages, which have no key, are not kept.
 */
#ifndef SHOALI_STATUS_PAGE_H
#define SHOALI_STATUS_PAGE_H

#include "shoal/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHOALI_STATUS_PAGE_MAGIC UINT64_C(0x3344524f42414853) /* "SHABORD3" */
enum {
    SHOALI_STATUS_PAGE_LINES = 6, /* of the log that are kept */
    SHOALI_STATUS_PAGE_LINE_WORDS = 24,
    SHOALI_STATUS_PAGE_RINGS = 4,
    SHOALI_STATUS_PAGE_RING_MOST = 16, /* arrivals in a ring */
    SHOALI_STATUS_PAGE_ARRIVALS = 40,
    SHOALI_STATUS_PAGE_CALLS = 16,
    SHOALI_STATUS_PAGE_SENTENCE_WORDS = 96,
    SHOALI_STATUS_PAGE_HERE_WORDS = 8,
    SHOALI_STATUS_PAGE_NAME_WORDS = 6, /* "tp 1, pp 0" */
    SHOALI_STATUS_PAGE_WORD_WORDS = 3, /* a backend, a collective, an instruction */
    SHOALI_STATUS_PAGE_SAVE_WORDS = 64,
    SHOALI_STATUS_PAGE_TEXT_BYTES = SHOALI_STATUS_PAGE_SENTENCE_WORDS * 8 + 1
};

/* What a rank does at a signal that ends the job. */
enum shoali_status_page_stop {
    SHOALI_STOP_UNKNOWN, /* it is no training of `shoal pretrain` */
    SHOALI_STOP_ENDS,    /* ends without a save */
    SHOALI_STOP_SAVES,   /* --exit-signal-handler */
};

/* When a rank came to a collective. `key` is the same for all ranks that meet in it. */
struct shoali_arrival {
    _Atomic uint64_t key;
    _Atomic int64_t wall_ns;
};

/* Where a ring is among the arrivals, and how many of 4096 collectives it keeps. The newest
 * first. */
struct shoali_status_page_ring {
    int32_t first, count, chances;
};
extern const struct shoali_status_page_ring shoali_status_page_rings[SHOALI_STATUS_PAGE_RINGS];

/* A collective that a rank has come to. */
struct shoali_status_page_call {
    _Atomic int64_t number; /* of the post, from 1 on; 0: there was none */
    _Atomic int64_t open;   /* 1: it has not left it */
    _Atomic int64_t count;  /* elements */
    _Atomic uint64_t collective[SHOALI_STATUS_PAGE_WORD_WORDS],
        dtype[SHOALI_STATUS_PAGE_WORD_WORDS];
    _Atomic uint64_t here[SHOALI_STATUS_PAGE_HERE_WORDS];
};

struct shoali_status_page {
    _Atomic uint64_t magic; /* set last */
    _Atomic int64_t rank, world, node, pid, start;
    _Atomic uint64_t name[SHOALI_STATUS_PAGE_NAME_WORDS], backend[SHOALI_STATUS_PAGE_WORD_WORDS];
    _Atomic uint64_t host[8];
    /* the training */
    _Atomic int64_t step, steps, micro; /* step: the one at work; steps: those that are over */
    _Atomic int64_t goal;               /* steps of the whole training, 0: not known */
    _Atomic int64_t tokens;             /* of this rank's line of data, since it began */
    _Atomic int64_t memory_bytes;       /* of the device */
    _Atomic uint64_t doing[SHOALI_STATUS_PAGE_WORD_WORDS];
    /* what a signal that ends the job costs: enum shoali_status_page_stop, folder of the
     * checkpoints */
    _Atomic int64_t stop;
    _Atomic uint64_t save[SHOALI_STATUS_PAGE_SAVE_WORDS];
    /* time: sums, and when what is under way began (0: nothing is); monotonic */
    _Atomic int64_t wait_ns, io_ns, waits_since_ns, io_since_ns;
    /* the collectives that it came to */
    _Atomic int64_t posted;     /* how many there were */
    _Atomic int64_t came_ns;    /* to the last one; wall */
    _Atomic int64_t unfinished; /* it came to more than it has left */
    _Atomic int64_t waits_in;   /* the ticket of the call that the owner waits in; 0: of none */
    struct shoali_status_page_call call[SHOALI_STATUS_PAGE_CALLS];
    struct shoali_arrival arrival[SHOALI_STATUS_PAGE_ARRIVALS]; /* the rings, one after the other */
    _Atomic int64_t kept[SHOALI_STATUS_PAGE_RINGS];             /* how many a ring was given */
    /* why it gives up; 0: it does not */
    _Atomic int64_t failure;
    _Atomic uint64_t sentence[SHOALI_STATUS_PAGE_SENTENCE_WORDS];
    /* the end of its log; line n is at n % SHOALI_STATUS_PAGE_LINES */
    _Atomic int64_t lines;
    _Atomic uint64_t line[SHOALI_STATUS_PAGE_LINES][SHOALI_STATUS_PAGE_LINE_WORDS];
    uint64_t owner; /* the thread that opened it; of its process alone */
    /* of a copy: when it was sent, by the rank's machine's clock, and what the sums were then */
    _Atomic int64_t sent_ns, sent_wait_ns, sent_io_ns;
};

/* A copy in plain words. */
struct shoali_status_page_view {
    int64_t rank, world, node, pid, start, step, steps, micro, goal, tokens, memory_bytes;
    int64_t wait_ns, io_ns; /* what is under way included */
    bool waits, reads;      /* at the moment */
    int64_t waited_ns;      /* so long */
    int64_t posted, came_ns, unfinished, failure, lines;
    int64_t sent_ns, sent_wait_ns, sent_io_ns; /* 0: it is no copy */
    int64_t stop;                              /* enum shoali_status_page_stop */
    char save[SHOALI_STATUS_PAGE_SAVE_WORDS * 8 + 1];
    char name[SHOALI_STATUS_PAGE_NAME_WORDS * 8 + 1],
        backend[SHOALI_STATUS_PAGE_WORD_WORDS * 8 + 1];
    char host[8 * 8 + 1], doing[SHOALI_STATUS_PAGE_WORD_WORDS * 8 + 1];
    /* of the call that is shown (CALLS) */
    int64_t count;
    char collective[SHOALI_STATUS_PAGE_WORD_WORDS * 8 + 1],
        dtype[SHOALI_STATUS_PAGE_WORD_WORDS * 8 + 1];
    char here[SHOALI_STATUS_PAGE_HERE_WORDS * 8 + 1], sentence[SHOALI_STATUS_PAGE_TEXT_BYTES];
    char line[SHOALI_STATUS_PAGE_LINES]
             [SHOALI_STATUS_PAGE_LINE_WORDS * 8 + 1]; /* oldest first, "" none */
    struct {
        uint64_t key;
        int64_t wall_ns;
    } arrival[SHOALI_STATUS_PAGE_ARRIVALS]; /* key 0: none */
};

/* Texts in words: `text` is cut at 8 * count characters; get needs room for one more. */
void shoali_status_page_put_text(_Atomic uint64_t *words, int32_t count, const char *text);

/* The calling thread's, NULL: none. All calls below take none as well. */
struct shoali_status_page *shoali_status_page_get(void);
/* Fills a zeroed status page for the calling thread's rank. */
void shoali_status_page_begin(struct shoali_status_page *page, int32_t rank, int32_t world);
/* False: it is no status page of this version, or was not begun. */
bool shoali_status_page_read(const struct shoali_status_page *page,
                             struct shoali_status_page_view *view);

/* What the rank does: texts are copied. */
void shoali_status_page_say_step(struct shoali_status_page *page, int64_t step);
void shoali_status_page_say_doing(struct shoali_status_page *page, const char *instruction,
                                  int64_t micro);
void shoali_status_page_count_step(struct shoali_status_page *page, int64_t steps,
                                   int64_t memory_bytes);
void shoali_status_page_count_tokens(struct shoali_status_page *page, int64_t tokens, int64_t goal);
/* `save`: the folder, NULL: none. One that a reader would not see whole is not told. */
void shoali_status_page_say_stop(struct shoali_status_page *page, enum shoali_status_page_stop stop,
                                 const char *save);
struct shoali_status_page_post {
    uint64_t key;
    const char *name, *dtype, *here;
    int64_t count;
};
/* Returns a ticket for the call; 0: too many are open, so that this one is counted and not
 * shown. */
int32_t shoali_status_page_post(struct shoali_status_page *page,
                                const struct shoali_status_page_post *post);
void shoali_status_page_leave(struct shoali_status_page *page, int32_t ticket);
/* Around a wait for other ranks and around reading and writing files. Not nested. `ticket`: of the
 * call that it waits in; 0: it waits for other threads' calls. */
void shoali_status_page_wait_begin(struct shoali_status_page *page, int32_t ticket);
void shoali_status_page_wait_end(struct shoali_status_page *page);
void shoali_status_page_io_begin(struct shoali_status_page *page);
void shoali_status_page_io_end(struct shoali_status_page *page);
/* The first failure stays. */
void shoali_status_page_fail(struct shoali_status_page *page, shoal_status status,
                             const char *sentence);
void shoali_status_page_log(struct shoali_status_page *page, const char *text);

#endif
