/* Boards as lines of text, from a host to the front (ranks.h). Fields stand between tabs; texts have
 * no control characters, as shoali_board_read leaves them. */
#include "launcher/ranks.h"

#include "base/clock.h"
#include "comm/board_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers in the order of the line. */
enum { NUMBERS = 20 };
static void list_numbers(const struct shoali_board_view *board, int64_t number[NUMBERS])
{
    const int64_t all[NUMBERS] = {
        board->world,   board->node,  board->pid,     board->start,      board->step,
        board->steps,   board->micro, board->goal,    board->tokens,     board->memory_bytes,
        board->wait_ns, board->io_ns, board->waits,   board->reads,      board->waited_ns,
        board->posted,  board->count, board->came_ns, board->unfinished, shoali_now_ns()};
    memcpy(number, all, sizeof(all));
}

void shoali_wire_board(int32_t rank, const struct shoali_rank_view *view, struct shoali_str *out)
{
    const struct shoali_board_view *board = &view->board;
    int64_t number[NUMBERS];
    list_numbers(board, number);
    shoali_str_append(out, "%cB\t%d\t", SHOALI_WIRE_MARK, (int)rank);
    for (int i = 0; i < NUMBERS; i++)
        shoali_str_append(out, "%" PRIx64 "%s", (uint64_t)number[i], i < NUMBERS - 1 ? " " : "");
    shoali_str_append(out, "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", board->name, board->backend,
                      board->host, board->doing, board->collective, board->dtype, board->here);
    for (int i = 0; i < SHOALI_BOARD_ARRIVALS; i++)
        shoali_str_append(out, "%" PRIx64 " %" PRIx64 " ", board->arrival[i].key,
                          (uint64_t)board->arrival[i].wall_ns);
    shoali_str_append(out, "\n");
}

void shoali_wire_last_words(int32_t rank, const struct shoali_rank_view *view,
                            struct shoali_str *out)
{
    shoali_wire_board(rank, view, out);
    for (int32_t i = 0; i < SHOALI_BOARD_LINES; i++)
        if (view->board.line[i][0])
            shoali_str_append(out, "%cL\t%d\t%d\t%s\n", SHOALI_WIRE_MARK, (int)rank, (int)i,
                              view->board.line[i]);
    if (view->board.failure != 0)
        shoali_str_append(out, "%cS\t%d\t%lld\t%s\n", SHOALI_WIRE_MARK, (int)rank,
                          (long long)view->board.failure, view->board.sentence);
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

static void put_numbers(struct shoali_board *board, const int64_t number[NUMBERS])
{
    _Atomic int64_t *const to[NUMBERS] = {&board->world,
                                          &board->node,
                                          &board->pid,
                                          &board->start,
                                          &board->step,
                                          &board->steps,
                                          &board->micro,
                                          &board->goal,
                                          &board->tokens,
                                          &board->memory_bytes,
                                          &board->wait_ns,
                                          &board->io_ns,
                                          NULL,
                                          NULL,
                                          NULL,
                                          &board->posted,
                                          &board->call[0].count,
                                          &board->came_ns,
                                          &board->unfinished,
                                          &board->told_ns};
    for (int i = 0; i < NUMBERS; i++)
        if (to[i])
            atomic_store_explicit(to[i], number[i], memory_order_relaxed);
    atomic_store(&board->told_wait_ns, number[10]);
    atomic_store(&board->told_io_ns, number[11]);
    /* This machine's monotonic clock is another one than the rank's. */
    const int64_t waited_ns = number[12] ? number[14] : 0;
    atomic_store(&board->wait_ns, number[10] - waited_ns);
    atomic_store(&board->waits_since_ns, number[12] ? shoali_now_ns() - waited_ns : 0);
    atomic_store(&board->io_since_ns, number[13] ? shoali_now_ns() : 0);
}

static void put_arrivals(struct shoali_board *board, char *at)
{
    char *end;
    for (int32_t i = 0; i < SHOALI_BOARD_ARRIVALS; i++) {
        const uint64_t key = strtoull(at, &end, 16);
        const int64_t wall_ns = end == at ? 0 : (int64_t)strtoull(end, &at, 16);
        struct shoali_arrival *arrival = &board->arrival[i];
        atomic_store(&arrival->wall_ns, wall_ns);
        atomic_store(&arrival->key, wall_ns ? key : 0);
    }
}

static bool read_board(struct shoali_board *board, int32_t rank, char **field)
{
    int64_t number[NUMBERS] = {0};
    if (!read_numbers(field[2], number))
        return false;
    put_numbers(board, number);
    atomic_store(&board->rank, rank);
    shoali_words_put(board->name, SHOALI_BOARD_NAME_WORDS, field[3]);
    shoali_words_put(board->backend, SHOALI_BOARD_WORD_WORDS, field[4]);
    shoali_words_put(board->host, 8, field[5]);
    shoali_words_put(board->doing, SHOALI_BOARD_WORD_WORDS, field[6]);
    shoali_words_put(board->call[0].collective, SHOALI_BOARD_WORD_WORDS, field[7]);
    shoali_words_put(board->call[0].dtype, SHOALI_BOARD_WORD_WORDS, field[8]);
    shoali_words_put(board->call[0].here, SHOALI_BOARD_HERE_WORDS, field[9]);
    put_arrivals(board, field[10]);
    atomic_store(&board->magic, SHOALI_BOARD_MAGIC);
    return true;
}

static const char causes[] = "ESHMWC"; /* in the order of enum shoali_cause */

char shoali_cause_letter(enum shoali_cause cause)
{
    return causes[cause];
}

enum shoali_cause shoali_cause_of(char letter)
{
    const char *at = letter ? strchr(causes, letter) : NULL;
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

static struct shoali_board *board_of(struct shoali_copies *copies, int32_t rank)
{
    if (!copies->board[rank])
        copies->board[rank] = shoali_board_make_copy(copies->job, rank);
    return copies->board[rank];
}

char shoali_wire_read(struct shoali_copies *copies, const char *text, int32_t *rank,
                      struct shoali_wire_end *end)
{
    char line[SHOALI_WIRE_BYTES], *field[11];
    snprintf(line, sizeof(line), "%s", text);
    const int32_t count = cut(line, field, 11);
    if (count < 2 || strlen(field[0]) != 1 || !strchr("BLSEH", field[0][0]))
        return 0;
    const char kind = field[0][0];
    const long about = strtol(field[1], NULL, 10);
    *rank = (int32_t)about;
    if (about < 0 || about >= copies->ranks)
        return 0;
    if (kind == 'E')
        return read_end(field, count, (int32_t)about, end) ? kind : 0;
    struct shoali_board *board = kind == 'H' ? NULL : board_of(copies, (int32_t)about);
    if (!board || count < 3)
        return kind;
    const long number = strtol(field[2], NULL, 10);
    if (kind == 'B' && count == 11) {
        (void)read_board(board, (int32_t)about, field);
    } else if (kind == 'L' && count == 4 && number >= 0 && number < SHOALI_BOARD_LINES) {
        shoali_words_put(board->line[number], SHOALI_BOARD_LINE_WORDS, field[3]);
        atomic_store(&board->lines, SHOALI_BOARD_LINES);
    } else if (kind == 'S' && count == 4 && number < 0) {
        shoali_board_fail(board, (shoal_status)number, field[3]);
    }
    return kind;
}

int32_t shoali_copies_look(const struct shoali_copies *copies, struct shoali_rank_view *view)
{
    int32_t count = 0;
    for (int32_t r = 0; r < copies->ranks; r++) {
        if (copies->board[r] && shoali_board_read(copies->board[r], &view[r].board))
            view[r].known = true;
        count += view[r].known;
    }
    return count;
}

void shoali_copies_drop(struct shoali_copies *copies)
{
    for (int32_t r = 0; copies->board && r < copies->ranks; r++)
        shoali_board_detach(copies->board[r]);
}
