/* Status pages as lines of text, from a host to the front (watch.h). Fields stand between tabs;
 * texts have no control characters, as shoali_status_page_read leaves them. */
#include "launcher/watch/watch.h"

#include "base/clock.h"
#include "comm/status_page_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers in the order of the line. */
enum { NUMBERS = 21, FIELDS = 12 };
static void list_numbers(const struct shoali_status_page_view *page, int64_t number[NUMBERS])
{
    const int64_t all[NUMBERS] = {
        page->world,   page->node,  page->pid,     page->start,      page->step,
        page->steps,   page->micro, page->goal,    page->tokens,     page->memory_bytes,
        page->wait_ns, page->io_ns, page->waits,   page->reads,      page->waited_ns,
        page->posted,  page->count, page->came_ns, page->unfinished, shoali_now_ns(),
        page->stop};
    memcpy(number, all, sizeof(all));
}

void shoali_wire_status_page(int32_t rank, const struct shoali_rank_view *view,
                             struct shoali_str *out)
{
    const struct shoali_status_page_view *page = &view->page;
    int64_t number[NUMBERS];
    list_numbers(page, number);
    shoali_str_append(out, "%cB\t%d\t", SHOALI_WIRE_MARK, (int)rank);
    for (int i = 0; i < NUMBERS; i++)
        shoali_str_append(out, "%" PRIx64 "%s", (uint64_t)number[i], i < NUMBERS - 1 ? " " : "");
    shoali_str_append(out, "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", page->name, page->backend,
                      page->host, page->doing, page->collective, page->dtype, page->here,
                      page->save);
    for (int i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++)
        shoali_str_append(out, "%" PRIx64 " %" PRIx64 " ", page->arrival[i].key,
                          (uint64_t)page->arrival[i].wall_ns);
    shoali_str_append(out, "\n");
}

void shoali_wire_last_words(int32_t rank, const struct shoali_rank_view *view,
                            struct shoali_str *out)
{
    shoali_wire_status_page(rank, view, out);
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_LINES; i++)
        if (view->page.line[i][0])
            shoali_str_append(out, "%cL\t%d\t%d\t%s\n", SHOALI_WIRE_MARK, (int)rank, (int)i,
                              view->page.line[i]);
    if (view->page.failure != 0)
        shoali_str_append(out, "%cS\t%d\t%lld\t%s\n", SHOALI_WIRE_MARK, (int)rank,
                          (long long)view->page.failure, view->page.sentence);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Cuts the line at tabs; returns how many fields there are. */
static int32_t cut(char *line, char **field, int32_t room)
{
    int32_t count = 0;
    for (char *at = line; at && count < room; count++) {
        field[count] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return count;
}

static bool read_numbers(char *at, int64_t number[NUMBERS])
{
    char *end;
    for (int i = 0; i < NUMBERS; i++, at = end) {
        number[i] = (int64_t)strtoull(at, &end, 16);
        if (end == at)
            return false;
    }
    return true;
}

static void put_numbers(struct shoali_status_page *page, const int64_t number[NUMBERS])
{
    _Atomic int64_t *const to[NUMBERS] = {&page->world,
                                          &page->node,
                                          &page->pid,
                                          &page->start,
                                          &page->step,
                                          &page->steps,
                                          &page->micro,
                                          &page->goal,
                                          &page->tokens,
                                          &page->memory_bytes,
                                          &page->wait_ns,
                                          &page->io_ns,
                                          NULL,
                                          NULL,
                                          NULL,
                                          &page->posted,
                                          &page->call[0].count,
                                          &page->came_ns,
                                          &page->unfinished,
                                          &page->sent_ns,
                                          &page->stop};
    for (int i = 0; i < NUMBERS; i++)
        if (to[i])
            atomic_store_explicit(to[i], number[i], memory_order_relaxed);
    atomic_store(&page->sent_wait_ns, number[10]);
    atomic_store(&page->sent_io_ns, number[11]);
    /* This machine's monotonic clock is another one than the rank's. */
    const int64_t waited_ns = number[12] ? number[14] : 0;
    atomic_store(&page->wait_ns, number[10] - waited_ns);
    atomic_store(&page->waits_since_ns, number[12] ? shoali_now_ns() - waited_ns : 0);
    atomic_store(&page->io_since_ns, number[13] ? shoali_now_ns() : 0);
}

static void put_arrivals(struct shoali_status_page *page, char *at)
{
    char *end;
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++) {
        const uint64_t key = strtoull(at, &end, 16);
        const int64_t wall_ns = end == at ? 0 : (int64_t)strtoull(end, &at, 16);
        struct shoali_arrival *arrival = &page->arrival[i];
        atomic_store(&arrival->wall_ns, wall_ns);
        atomic_store(&arrival->key, wall_ns ? key : 0);
    }
}

static bool read_page(struct shoali_status_page *page, int32_t rank, char **field)
{
    int64_t number[NUMBERS] = {0};
    if (!read_numbers(field[2], number))
        return false;
    put_numbers(page, number);
    atomic_store(&page->rank, rank);
    shoali_status_page_put_text(page->name, SHOALI_STATUS_PAGE_NAME_WORDS, field[3]);
    shoali_status_page_put_text(page->backend, SHOALI_STATUS_PAGE_WORD_WORDS, field[4]);
    shoali_status_page_put_text(page->host, 8, field[5]);
    shoali_status_page_put_text(page->doing, SHOALI_STATUS_PAGE_WORD_WORDS, field[6]);
    shoali_status_page_put_text(page->call[0].collective, SHOALI_STATUS_PAGE_WORD_WORDS, field[7]);
    shoali_status_page_put_text(page->call[0].dtype, SHOALI_STATUS_PAGE_WORD_WORDS, field[8]);
    shoali_status_page_put_text(page->call[0].here, SHOALI_STATUS_PAGE_HERE_WORDS, field[9]);
    shoali_status_page_put_text(page->save, SHOALI_STATUS_PAGE_SAVE_WORDS, field[10]);
    put_arrivals(page, field[11]);
    atomic_store(&page->magic, SHOALI_STATUS_PAGE_MAGIC);
    return true;
}

static const char causes[] = "ESHMWCR"; /* in the order of enum shoali_cause */

char shoali_cause_letter(enum shoali_cause cause)
{
    return causes[cause];
}

enum shoali_cause shoali_cause_of(char message)
{
    const char *at = message ? strchr(causes, message) : NULL;
    return at ? (enum shoali_cause)(at - causes) : SHOALI_CAUSE_ENDED;
}

static bool read_end(char **field, int32_t count, int32_t rank, struct shoali_wire_end *end)
{
    if (count < 7)
        return false;
    *end = (struct shoali_wire_end){.rank = rank,
                                    .pid = (int32_t)strtol(field[2], NULL, 10),
                                    .code = (int32_t)strtol(field[3], NULL, 10),
                                    .signal = (int32_t)strtol(field[4], NULL, 10),
                                    .cause = field[5][0]};
    snprintf(end->host, sizeof(end->host), "%s", field[6]);
    return true;
}

static struct shoali_status_page *page_of(struct shoali_copies *copies, int32_t rank)
{
    if (!copies->page[rank])
        copies->page[rank] = shoali_status_page_make_copy(copies->job, rank);
    return copies->page[rank];
}

char shoali_wire_read(struct shoali_copies *copies, const char *text, int32_t *rank,
                      struct shoali_wire_end *end)
{
    char line[SHOALI_WIRE_BYTES], *field[FIELDS];
    snprintf(line, sizeof(line), "%s", text);
    const int32_t count = cut(line, field, FIELDS);
    if (count < 2 || strlen(field[0]) != 1 || !strchr("BLSEH", field[0][0]))
        return 0;
    const char kind = field[0][0];
    const long about = strtol(field[1], NULL, 10);
    *rank = (int32_t)about;
    if (about < 0 || about >= copies->ranks)
        return 0;
    if (kind == 'E')
        return read_end(field, count, (int32_t)about, end) ? kind : 0;
    struct shoali_status_page *page = kind == 'H' ? NULL : page_of(copies, (int32_t)about);
    if (!page || count < 3)
        return kind;
    const long number = strtol(field[2], NULL, 10);
    if (kind == 'B' && count == FIELDS) {
        (void)read_page(page, (int32_t)about, field);
    } else if (kind == 'L' && count == 4 && number >= 0 && number < SHOALI_STATUS_PAGE_LINES) {
        shoali_status_page_put_text(page->line[number], SHOALI_STATUS_PAGE_LINE_WORDS, field[3]);
        atomic_store(&page->lines, SHOALI_STATUS_PAGE_LINES);
    } else if (kind == 'S' && count == 4 && number < 0) {
        shoali_status_page_fail(page, (shoal_status)number, field[3]);
    }
    return kind;
}

int32_t shoali_copies_poll(const struct shoali_copies *copies, struct shoali_rank_view *view)
{
    int32_t count = 0;
    for (int32_t r = 0; r < copies->ranks; r++) {
        if (copies->page[r] && shoali_status_page_read(copies->page[r], &view[r].page))
            view[r].known = true;
        count += view[r].known;
    }
    return count;
}

void shoali_copies_drop(struct shoali_copies *copies)
{
    for (int32_t r = 0; copies->page && r < copies->ranks; r++)
        shoali_status_page_detach(copies->page[r]);
}
