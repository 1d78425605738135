#include "base/board.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SET(member, value) atomic_store_explicit(&(member), (value), memory_order_relaxed)
#define GET(member) atomic_load_explicit(&(member), memory_order_relaxed)

void shoali_words_put(_Atomic uint64_t *words, int32_t count, const char *text)
{
    for (int32_t i = 0; i < count; i++) {
        uint64_t word = 0;
        char *at = (char *)&word;
        for (size_t c = 0; c < sizeof(word) && *text; c++)
            at[c] = *text++;
        SET(words[i], word);
    }
}

void shoali_words_get(const _Atomic uint64_t *words, int32_t count, char *text)
{
    for (int32_t i = 0; i < count; i++) {
        const uint64_t word = GET(words[i]);
        memcpy(text + (size_t)i * sizeof(word), &word, sizeof(word));
    }
    text[(size_t)count * sizeof(uint64_t)] = '\0';
}

struct shoali_board *shoali_board_get(void)
{
    return shoali_context_get()->board;
}

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_owner(const struct shoali_board *board)
{
    return board && board->owner == (uint64_t)(uintptr_t)pthread_self();
}

void shoali_board_begin(struct shoali_board *board, int32_t rank, int32_t world)
{
    char host[65] = "";
    struct shoali_process self = {0};
    (void)gethostname(host, sizeof(host) - 1);
    (void)shoali_process_read(getpid(), &self);
    board->owner = (uint64_t)(uintptr_t)pthread_self();
    SET(board->rank, rank);
    SET(board->world, world);
    SET(board->pid, getpid());
    SET(board->start, (int64_t)self.start);
    SET(board->step, -1);
    SET(board->micro, -1);
    shoali_words_put(board->host, 8, host);
    atomic_store(&board->magic, SHOALI_BOARD_MAGIC);
}

/* ---- what the rank says --------------------------------------------------------------------- */

void shoali_board_say_step(struct shoali_board *board, int64_t step)
{
    if (board)
        SET(board->step, step);
}

void shoali_board_say_doing(struct shoali_board *board, const char *instruction, int64_t micro)
{
    if (!board)
        return;
    shoali_words_put(board->doing, SHOALI_BOARD_WORD_WORDS, instruction ? instruction : "");
    SET(board->micro, micro);
}

void shoali_board_count_step(struct shoali_board *board, int64_t steps, int64_t memory_bytes)
{
    if (!board)
        return;
    SET(board->steps, steps);
    SET(board->memory_bytes, memory_bytes);
}

void shoali_board_count_tokens(struct shoali_board *board, int64_t tokens, int64_t goal)
{
    if (!board)
        return;
    SET(board->tokens, GET(board->tokens) + tokens);
    SET(board->goal, goal);
}

/* The last parts of a long path tell files apart. */
static const char *end_of(const char *text, size_t bytes)
{
    const size_t length = strlen(text);
    return length < bytes ? text : text + length - bytes;
}

/* The place of a call that is over, the oldest first: taken; -1: all are open. */
static int32_t take_place(struct shoali_board *board)
{
    for (;;) {
        int32_t oldest = -1;
        int64_t none = 0;
        for (int32_t i = 0; i < SHOALI_BOARD_CALLS; i++)
            if (GET(board->call[i].open) == 0 &&
                (oldest < 0 || GET(board->call[i].number) < GET(board->call[oldest].number)))
                oldest = i;
        if (oldest < 0 || atomic_compare_exchange_strong(&board->call[oldest].open, &none, 1))
            return oldest;
    }
}

const struct shoali_board_ring shoali_board_rings[SHOALI_BOARD_RINGS] = {
    {0, SHOALI_BOARD_RING_MOST, 3840}, {16, 8, 240}, {24, 8, 15}, {32, 8, 1}};

/* See ARRIVALS. */
static int32_t ring_of(uint64_t key)
{
    const uint64_t chance = key * UINT64_C(0x9e3779b97f4a7c15) >> 52;
    return chance >= 256 ? 0 : chance >= 16 ? 1 : chance > 0 ? 2 : 3;
}

static void keep_arrival(struct shoali_board *board, uint64_t key, int64_t now_ns)
{
    const int32_t number = ring_of(key);
    const struct shoali_board_ring *ring = &shoali_board_rings[number];
    if (key == 0)
        return;
    const int64_t turn = atomic_fetch_add(&board->kept[number], 1);
    struct shoali_arrival *arrival = &board->arrival[ring->first + turn % ring->count];
    SET(arrival->key, 0);
    SET(arrival->wall_ns, now_ns);
    atomic_store_explicit(&arrival->key, key, memory_order_release);
}

int32_t shoali_board_post(struct shoali_board *board, const struct shoali_board_post *post)
{
    if (!board)
        return 0;
    const int64_t number = atomic_fetch_add(&board->posted, 1), now_ns = wall_ns();
    const int32_t place = take_place(board);
    keep_arrival(board, post->key, now_ns);
    SET(board->came_ns, now_ns);
    atomic_fetch_add_explicit(&board->unfinished, 1, memory_order_relaxed);
    if (place < 0)
        return 0;
    struct shoali_board_call *call = &board->call[place];
    SET(call->number, number + 1);
    SET(call->count, post->count);
    shoali_words_put(call->collective, SHOALI_BOARD_WORD_WORDS, post->name);
    shoali_words_put(call->dtype, SHOALI_BOARD_WORD_WORDS, post->dtype);
    shoali_words_put(call->here, SHOALI_BOARD_HERE_WORDS,
                     end_of(post->here, SHOALI_BOARD_HERE_WORDS * 8));
    return place + 1;
}

void shoali_board_leave(struct shoali_board *board, int32_t ticket)
{
    if (!board)
        return;
    if (ticket > 0)
        atomic_store_explicit(&board->call[ticket - 1].open, 0, memory_order_release);
    atomic_fetch_sub_explicit(&board->unfinished, 1, memory_order_relaxed);
}

static void begin(_Atomic int64_t *since_ns)
{
    SET(*since_ns, shoali_now_ns());
}

static void end(_Atomic int64_t *since_ns, _Atomic int64_t *sum_ns)
{
    const int64_t begun = GET(*since_ns);
    if (begun == 0)
        return;
    SET(*sum_ns, GET(*sum_ns) + shoali_now_ns() - begun);
    SET(*since_ns, 0);
}

void shoali_board_wait_begin(struct shoali_board *board, int32_t ticket)
{
    if (!is_owner(board))
        return;
    SET(board->waits_in, ticket);
    /* Ranks that save together wait for each other: that is files, too. */
    if (GET(board->io_since_ns) == 0)
        begin(&board->waits_since_ns);
}

void shoali_board_wait_end(struct shoali_board *board)
{
    if (!is_owner(board))
        return;
    SET(board->waits_in, 0);
    end(&board->waits_since_ns, &board->wait_ns);
}

void shoali_board_io_begin(struct shoali_board *board)
{
    if (is_owner(board))
        begin(&board->io_since_ns);
}

void shoali_board_io_end(struct shoali_board *board)
{
    if (is_owner(board))
        end(&board->io_since_ns, &board->io_ns);
}

void shoali_board_fail(struct shoali_board *board, shoal_status status, const char *sentence)
{
    if (!board || GET(board->failure) != 0)
        return;
    shoali_words_put(board->sentence, SHOALI_BOARD_SENTENCE_WORDS, sentence);
    atomic_store_explicit(&board->failure, (int64_t)status, memory_order_release);
}

void shoali_board_log(struct shoali_board *board, const char *text)
{
    if (!board)
        return;
    const int64_t number = atomic_fetch_add_explicit(&board->lines, 1, memory_order_relaxed);
    shoali_words_put(board->line[number % SHOALI_BOARD_LINES], SHOALI_BOARD_LINE_WORDS, text);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* What a stranger may have written is no control character on somebody's terminal. */
static void get_text(const _Atomic uint64_t *words, int32_t count, char *text)
{
    shoali_words_get(words, count, text);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' ';
}

static void read_numbers(const struct shoali_board *board, struct shoali_board_view *view)
{
    const int64_t now_ns = shoali_now_ns(), waits = GET(board->waits_since_ns),
                  reads = GET(board->io_since_ns);
    view->rank = GET(board->rank);
    view->world = GET(board->world);
    view->node = GET(board->node);
    view->pid = GET(board->pid);
    view->start = GET(board->start);
    view->step = GET(board->step);
    view->steps = GET(board->steps);
    view->micro = GET(board->micro);
    view->goal = GET(board->goal);
    view->tokens = GET(board->tokens);
    view->memory_bytes = GET(board->memory_bytes);
    view->waits = waits > 0 && waits <= now_ns;
    view->reads = reads > 0 && reads <= now_ns;
    view->waited_ns = view->waits ? now_ns - waits : 0;
    view->wait_ns = GET(board->wait_ns) + view->waited_ns;
    view->io_ns = GET(board->io_ns) + (view->reads ? now_ns - reads : 0);
    view->told_ns = GET(board->told_ns);
    view->told_wait_ns = GET(board->told_wait_ns);
    view->told_io_ns = GET(board->told_io_ns);
    view->posted = GET(board->posted);
    view->came_ns = GET(board->came_ns);
    view->unfinished = GET(board->unfinished);
    view->lines = GET(board->lines);
    view->failure = atomic_load_explicit(&board->failure, memory_order_acquire);
}

/* CALLS: which one a reader is shown. */
static const struct shoali_board_call *shown_call(const struct shoali_board *board)
{
    const struct shoali_board_call *oldest = NULL, *newest = &board->call[0];
    const int64_t ticket = GET(board->waits_in);
    if (ticket > 0 && ticket <= SHOALI_BOARD_CALLS && GET(board->call[ticket - 1].open))
        return &board->call[ticket - 1];
    for (int32_t i = 0; i < SHOALI_BOARD_CALLS; i++) {
        const struct shoali_board_call *call = &board->call[i];
        const int64_t number = GET(call->number);
        if (GET(call->open) && number > 0 && (!oldest || number < GET(oldest->number)))
            oldest = call;
        if (number > GET(newest->number))
            newest = call;
    }
    return oldest ? oldest : newest;
}

static void read_call(const struct shoali_board_call *call, struct shoali_board_view *view)
{
    view->count = GET(call->count);
    get_text(call->collective, SHOALI_BOARD_WORD_WORDS, view->collective);
    get_text(call->dtype, SHOALI_BOARD_WORD_WORDS, view->dtype);
    get_text(call->here, SHOALI_BOARD_HERE_WORDS, view->here);
}

bool shoali_board_read(const struct shoali_board *board, struct shoali_board_view *view)
{
    if (atomic_load(&board->magic) != SHOALI_BOARD_MAGIC)
        return false;
    memset(view, 0, sizeof(*view));
    read_numbers(board, view);
    get_text(board->name, SHOALI_BOARD_NAME_WORDS, view->name);
    get_text(board->backend, SHOALI_BOARD_WORD_WORDS, view->backend);
    get_text(board->host, 8, view->host);
    get_text(board->doing, SHOALI_BOARD_WORD_WORDS, view->doing);
    read_call(shown_call(board), view);
    get_text(board->sentence, SHOALI_BOARD_SENTENCE_WORDS, view->sentence);
    for (int32_t i = 0; i < SHOALI_BOARD_ARRIVALS; i++) {
        view->arrival[i].key = atomic_load_explicit(&board->arrival[i].key, memory_order_acquire);
        view->arrival[i].wall_ns = GET(board->arrival[i].wall_ns);
    }
    for (int32_t i = 0; i < SHOALI_BOARD_LINES; i++) {
        const int64_t number = view->lines - SHOALI_BOARD_LINES + i;
        if (number >= 0)
            get_text(board->line[number % SHOALI_BOARD_LINES], SHOALI_BOARD_LINE_WORDS,
                     view->line[i]);
    }
    return true;
}
