#include "base/status_page.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SET(member, value) atomic_store_explicit(&(member), (value), memory_order_relaxed)
#define GET(member) atomic_load_explicit(&(member), memory_order_relaxed)

void shoali_status_page_put_text(_Atomic uint64_t *words, int32_t count, const char *text)
{
    for (int32_t i = 0; i < count; i++) {
        uint64_t word = 0;
        char *at = (char *)&word;
        for (size_t c = 0; c < sizeof(word) && *text; c++)
            at[c] = *text++;
        SET(words[i], word);
    }
}

static void get_words(const _Atomic uint64_t *words, int32_t count, char *text)
{
    for (int32_t i = 0; i < count; i++) {
        const uint64_t word = GET(words[i]);
        memcpy(text + (size_t)i * sizeof(word), &word, sizeof(word));
    }
    text[(size_t)count * sizeof(uint64_t)] = '\0';
}

struct shoali_status_page *shoali_status_page_get(void)
{
    return shoali_context_get()->page;
}

static pthread_once_t wall_once = PTHREAD_ONCE_INIT;
static int64_t wall_ahead_ns;
static void note_wall(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    wall_ahead_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - shoali_now_ns();
}

/* The time of day as hosts had it when they began: a clock that is set meanwhile makes nobody
 * late. */
static int64_t wall_ns(void)
{
    pthread_once(&wall_once, note_wall);
    return shoali_now_ns() + wall_ahead_ns;
}

static bool is_owner(const struct shoali_status_page *page)
{
    return page && page->owner == (uint64_t)(uintptr_t)pthread_self();
}

void shoali_status_page_begin(struct shoali_status_page *page, int32_t rank, int32_t world)
{
    char host[65] = "";
    struct shoali_process self = {0};
    (void)gethostname(host, sizeof(host) - 1);
    (void)shoali_process_read(getpid(), &self);
    page->owner = (uint64_t)(uintptr_t)pthread_self();
    SET(page->rank, rank);
    SET(page->world, world);
    SET(page->pid, getpid());
    SET(page->start, (int64_t)self.start);
    SET(page->step, -1);
    SET(page->micro, -1);
    shoali_status_page_put_text(page->host, 8, host);
    atomic_store(&page->magic, SHOALI_STATUS_PAGE_MAGIC);
}

/* ---- what the rank says --------------------------------------------------------------------- */

void shoali_status_page_say_step(struct shoali_status_page *page, int64_t step)
{
    if (page)
        SET(page->step, step);
}

void shoali_status_page_say_doing(struct shoali_status_page *page, const char *instruction,
                                  int64_t micro)
{
    if (!page)
        return;
    shoali_status_page_put_text(page->doing, SHOALI_STATUS_PAGE_WORD_WORDS,
                                instruction ? instruction : "");
    SET(page->micro, micro);
}

void shoali_status_page_count_step(struct shoali_status_page *page, int64_t steps,
                                   int64_t memory_bytes)
{
    if (!page)
        return;
    SET(page->steps, steps);
    SET(page->memory_bytes, memory_bytes);
}

void shoali_status_page_count_tokens(struct shoali_status_page *page, int64_t tokens, int64_t goal)
{
    if (!page)
        return;
    SET(page->tokens, GET(page->tokens) + tokens);
    SET(page->goal, goal);
}

void shoali_status_page_say_stop(struct shoali_status_page *page, enum shoali_status_page_stop stop,
                                 const char *save)
{
    bool whole = save && strlen(save) <= SHOALI_STATUS_PAGE_SAVE_WORDS * sizeof(uint64_t);
    for (const char *at = save; whole && *at; at++)
        whole = (unsigned char)*at >= 0x20 && *at != 0x7f;
    if (!page)
        return;
    shoali_status_page_put_text(page->save, SHOALI_STATUS_PAGE_SAVE_WORDS, whole ? save : "");
    SET(page->stop, !save || whole ? stop : SHOALI_STOP_UNKNOWN);
}

/* The place of a call that is over, the oldest first: taken; -1: all are open. */
static int32_t take_place(struct shoali_status_page *page)
{
    for (;;) {
        int32_t oldest = -1;
        int64_t none = 0;
        for (int32_t i = 0; i < SHOALI_STATUS_PAGE_CALLS; i++)
            if (GET(page->call[i].open) == 0 &&
                (oldest < 0 || GET(page->call[i].number) < GET(page->call[oldest].number)))
                oldest = i;
        if (oldest < 0 || atomic_compare_exchange_strong(&page->call[oldest].open, &none, 1))
            return oldest;
    }
}

const struct shoali_status_page_ring shoali_status_page_rings[SHOALI_STATUS_PAGE_RINGS] = {
    {0, SHOALI_STATUS_PAGE_RING_MOST, 3840}, {16, 8, 240}, {24, 8, 15}, {32, 8, 1}};

/* See ARRIVALS. */
static int32_t ring_of(uint64_t key)
{
    const uint64_t chance = key * UINT64_C(0x9e3779b97f4a7c15) >> 52;
    return chance >= 256 ? 0 : chance >= 16 ? 1 : chance > 0 ? 2 : 3;
}

static void keep_arrival(struct shoali_status_page *page, uint64_t key, int64_t now_ns)
{
    const int32_t number = ring_of(key);
    const struct shoali_status_page_ring *ring = &shoali_status_page_rings[number];
    if (key == 0)
        return;
    const int64_t turn = atomic_fetch_add(&page->kept[number], 1);
    struct shoali_arrival *arrival = &page->arrival[ring->first + turn % ring->count];
    SET(arrival->key, 0);
    SET(arrival->wall_ns, now_ns);
    atomic_store_explicit(&arrival->key, key, memory_order_release);
}

int32_t shoali_status_page_post(struct shoali_status_page *page,
                                const struct shoali_status_page_post *post)
{
    if (!page)
        return 0;
    const int64_t number = atomic_fetch_add(&page->posted, 1), now_ns = wall_ns();
    const int32_t place = take_place(page);
    keep_arrival(page, post->key, now_ns);
    SET(page->came_ns, now_ns);
    atomic_fetch_add_explicit(&page->unfinished, 1, memory_order_relaxed);
    if (place < 0)
        return 0;
    struct shoali_status_page_call *call = &page->call[place];
    SET(call->number, number + 1);
    SET(call->count, post->count);
    shoali_status_page_put_text(call->collective, SHOALI_STATUS_PAGE_WORD_WORDS, post->name);
    shoali_status_page_put_text(call->dtype, SHOALI_STATUS_PAGE_WORD_WORDS, post->dtype);
    shoali_status_page_put_text(call->here, SHOALI_STATUS_PAGE_HERE_WORDS,
                                shoali_here_end(post->here, SHOALI_STATUS_PAGE_HERE_WORDS * 8 + 1));
    return place + 1;
}

void shoali_status_page_leave(struct shoali_status_page *page, int32_t ticket)
{
    if (!page)
        return;
    if (ticket > 0)
        atomic_store_explicit(&page->call[ticket - 1].open, 0, memory_order_release);
    atomic_fetch_sub_explicit(&page->unfinished, 1, memory_order_relaxed);
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

void shoali_status_page_wait_begin(struct shoali_status_page *page, int32_t ticket)
{
    if (!is_owner(page))
        return;
    SET(page->waits_in, ticket);
    /* Ranks that save together wait for each other: that is files, too. */
    if (GET(page->io_since_ns) == 0)
        begin(&page->waits_since_ns);
}

void shoali_status_page_wait_end(struct shoali_status_page *page)
{
    if (!is_owner(page))
        return;
    SET(page->waits_in, 0);
    end(&page->waits_since_ns, &page->wait_ns);
}

void shoali_status_page_io_begin(struct shoali_status_page *page)
{
    if (is_owner(page))
        begin(&page->io_since_ns);
}

void shoali_status_page_io_end(struct shoali_status_page *page)
{
    if (is_owner(page))
        end(&page->io_since_ns, &page->io_ns);
}

void shoali_status_page_fail(struct shoali_status_page *page, shoal_status status,
                             const char *sentence)
{
    if (!page || GET(page->failure) != 0)
        return;
    shoali_status_page_put_text(page->sentence, SHOALI_STATUS_PAGE_SENTENCE_WORDS, sentence);
    atomic_store_explicit(&page->failure, (int64_t)status, memory_order_release);
}

void shoali_status_page_log(struct shoali_status_page *page, const char *text)
{
    if (!page)
        return;
    const int64_t number = atomic_fetch_add_explicit(&page->lines, 1, memory_order_relaxed);
    shoali_status_page_put_text(page->line[number % SHOALI_STATUS_PAGE_LINES],
                                SHOALI_STATUS_PAGE_LINE_WORDS, text);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* What a stranger may have written is no control character on somebody's terminal. */
static void get_text(const _Atomic uint64_t *words, int32_t count, char *text)
{
    get_words(words, count, text);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' ';
}

static void read_numbers(const struct shoali_status_page *page,
                         struct shoali_status_page_view *view)
{
    const int64_t now_ns = shoali_now_ns(), waits = GET(page->waits_since_ns),
                  reads = GET(page->io_since_ns);
    view->rank = GET(page->rank);
    view->world = GET(page->world);
    view->node = GET(page->node);
    view->pid = GET(page->pid);
    view->start = GET(page->start);
    view->step = GET(page->step);
    view->steps = GET(page->steps);
    view->micro = GET(page->micro);
    view->goal = GET(page->goal);
    view->tokens = GET(page->tokens);
    view->memory_bytes = GET(page->memory_bytes);
    view->waits = waits > 0 && waits <= now_ns;
    view->reads = reads > 0 && reads <= now_ns;
    view->waited_ns = view->waits ? now_ns - waits : 0;
    view->wait_ns = GET(page->wait_ns) + view->waited_ns;
    view->io_ns = GET(page->io_ns) + (view->reads ? now_ns - reads : 0);
    view->sent_ns = GET(page->sent_ns);
    view->sent_wait_ns = GET(page->sent_wait_ns);
    view->sent_io_ns = GET(page->sent_io_ns);
    view->posted = GET(page->posted);
    view->came_ns = GET(page->came_ns);
    view->unfinished = GET(page->unfinished);
    view->lines = GET(page->lines);
    view->stop = GET(page->stop);
    view->failure = atomic_load_explicit(&page->failure, memory_order_acquire);
}

/* CALLS: which one a reader is shown. */
static const struct shoali_status_page_call *shown_call(const struct shoali_status_page *page)
{
    const struct shoali_status_page_call *oldest = NULL, *newest = &page->call[0];
    const int64_t ticket = GET(page->waits_in);
    if (ticket > 0 && ticket <= SHOALI_STATUS_PAGE_CALLS && GET(page->call[ticket - 1].open))
        return &page->call[ticket - 1];
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_CALLS; i++) {
        const struct shoali_status_page_call *call = &page->call[i];
        const int64_t number = GET(call->number);
        if (GET(call->open) && number > 0 && (!oldest || number < GET(oldest->number)))
            oldest = call;
        if (number > GET(newest->number))
            newest = call;
    }
    return oldest ? oldest : newest;
}

static void read_call(const struct shoali_status_page_call *call,
                      struct shoali_status_page_view *view)
{
    view->count = GET(call->count);
    get_text(call->collective, SHOALI_STATUS_PAGE_WORD_WORDS, view->collective);
    get_text(call->dtype, SHOALI_STATUS_PAGE_WORD_WORDS, view->dtype);
    get_text(call->here, SHOALI_STATUS_PAGE_HERE_WORDS, view->here);
}

bool shoali_status_page_read(const struct shoali_status_page *page,
                             struct shoali_status_page_view *view)
{
    if (atomic_load(&page->magic) != SHOALI_STATUS_PAGE_MAGIC)
        return false;
    memset(view, 0, sizeof(*view));
    read_numbers(page, view);
    get_text(page->name, SHOALI_STATUS_PAGE_NAME_WORDS, view->name);
    get_text(page->backend, SHOALI_STATUS_PAGE_WORD_WORDS, view->backend);
    get_text(page->host, 8, view->host);
    get_text(page->doing, SHOALI_STATUS_PAGE_WORD_WORDS, view->doing);
    get_text(page->save, SHOALI_STATUS_PAGE_SAVE_WORDS, view->save);
    read_call(shown_call(page), view);
    get_text(page->sentence, SHOALI_STATUS_PAGE_SENTENCE_WORDS, view->sentence);
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++) {
        view->arrival[i].key = atomic_load_explicit(&page->arrival[i].key, memory_order_acquire);
        view->arrival[i].wall_ns = GET(page->arrival[i].wall_ns);
    }
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_LINES; i++) {
        const int64_t number = view->lines - SHOALI_STATUS_PAGE_LINES + i;
        if (number >= 0)
            get_text(page->line[number % SHOALI_STATUS_PAGE_LINES], SHOALI_STATUS_PAGE_LINE_WORDS,
                     view->line[i]);
    }
    return true;
}
