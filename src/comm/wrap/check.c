/* Do all ranks do the same? The backend carries the records; here they are compared. */
#include "comm/wrap/wrap.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

static const char *const reduce_names[] = {"sum", "min", "max", "prod", "bor", "avg", "sum_tree"};

/* The part of a path that tells files of one project apart: "comm/group.c:12". */
static const char *short_here(const char *here)
{
    const char *last = strrchr(here, '/'), *from = here;
    for (const char *slash = strchr(here, '/'); slash && slash < last;
         slash = strchr(slash + 1, '/'))
        from = slash + 1;
    return from;
}

static const char *op_name(const struct shoali_record *record)
{
    return record->op >= 0 && record->op <= SHOAL_SUM_TREE ? reduce_names[record->op] : "none";
}

/* "rank 0 posted all_reduce of 12 F32 at a.c:10"; with the op and root when these are what differs.
 */
static void describe(const struct shoali_seat *seat, bool details, char text[TEXT_BYTES])
{
    const struct shoali_record *record = seat->record;
    enum shoali_collective kind = (enum shoali_collective)record->kind;
    char place[SHOALI_PLACE_BYTES];
    int at = snprintf(text, TEXT_BYTES, "%s posted %s", shoali_rank_format(seat, place),
                      shoali_collective_name(kind));
    if (kind == SHOALI_ALL_TO_ALL_V)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), " of %s",
                       shoal_dtype_name((shoal_dtype)record->dtype));
    else if (kind != SHOALI_BARRIER && kind != SHOALI_SPLIT)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), " of %lld %s",
                       (long long)record->count, shoal_dtype_name((shoal_dtype)record->dtype));
    if (details && kind == SHOALI_BROADCAST)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), " from root %d", (int)record->peer);
    else if (details)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), " with %s", op_name(record));
    snprintf(text + at, (size_t)(TEXT_BYTES - at), " at %s%s", short_here(record->here),
             shoali_seat_doing(seat->shared, " in ", place));
}

/* What differs, with both values: "count (12 and 13), buffer (4 and 5)". */
static void list_differences(const struct shoali_record *x, const struct shoali_record *y,
                             char text[TEXT_BYTES])
{
    const struct {
        const char *what;
        long long x, y;
    } numbers[] = {
        {"sequence number", (long long)x->sequence, (long long)y->sequence},
        {"group", (long long)x->group, (long long)y->group},
        {"count", (long long)x->count, (long long)y->count},
        {"root or peer", (long long)x->peer, (long long)y->peer},
        {"buffer", (long long)x->tag, (long long)y->tag},
    };
    int at = 0;
    text[0] = '\0';
    if (x->kind != y->kind)
        at += snprintf(text, TEXT_BYTES, "call (%s and %s)",
                       shoali_collective_name((enum shoali_collective)x->kind),
                       shoali_collective_name((enum shoali_collective)y->kind));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].x != numbers[i].y)
            at += snprintf(text + at, (size_t)(TEXT_BYTES - at), "%s%s (%lld and %lld)",
                           at > 0 ? ", " : "", numbers[i].what, numbers[i].x, numbers[i].y);
    if (x->dtype != y->dtype)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), "%stype (%s and %s)",
                       at > 0 ? ", " : "", shoal_dtype_name((shoal_dtype)x->dtype),
                       shoal_dtype_name((shoal_dtype)y->dtype));
    if (x->op != y->op)
        snprintf(text + at, (size_t)(TEXT_BYTES - at), "%soperation (%s and %s)",
                 at > 0 ? ", " : "", op_name(x), op_name(y));
}

static shoal_status disagree(const struct shoali_seat *a, const struct shoali_seat *b)
{
    char first[TEXT_BYTES], second[TEXT_BYTES], differences[TEXT_BYTES];
    const struct shoali_record *x = a->record, *y = b->record;
    const bool has_details = x->kind == SHOALI_ALL_REDUCE || x->kind == SHOALI_REDUCE_SCATTER ||
                             x->kind == SHOALI_BROADCAST;
    const bool details =
        has_details && x->kind == y->kind && (x->op != y->op || x->peer != y->peer);
    describe(a, details, first);
    describe(b, details, second);
    list_differences(x, y, differences);
    return SHOAL_FAIL(SHOAL_EMISMATCH,
                      "%s, %s, in call %llu of the group; they differ in %s: all ranks of a group "
                      "must make the same calls in the same order with the same counts and types",
                      first, second, (unsigned long long)x->sequence, differences);
}

static bool same(const struct shoali_record *a, const struct shoali_record *b)
{
    return a->sequence == b->sequence && a->group == b->group && a->count == b->count &&
           a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->peer == b->peer &&
           a->tag == b->tag;
}

/* A send and its recv name each other as peers, and their calls are not those of the group. */
static shoal_status disagree_message(const struct shoali_seat *seats)
{
    char first[TEXT_BYTES], second[TEXT_BYTES], differences[TEXT_BYTES];
    const struct shoali_record *sent = seats[0].record;
    struct shoali_record wanted = *sent;
    wanted.count = seats[1].record->count;
    wanted.dtype = seats[1].record->dtype;
    wanted.tag = seats[1].record->tag;
    describe(&seats[0], false, first);
    describe(&seats[1], false, second);
    list_differences(sent, &wanted, differences);
    return SHOAL_FAIL(SHOAL_EMISMATCH,
                      "%s, %s; they differ in %s: a send and its recv must have the same count and "
                      "type",
                      first, second, differences);
}

static shoal_status agree_message(const struct shoali_seat *seats)
{
    const struct shoali_record *sent = seats[0].record, *wanted = seats[1].record;
    char first[TEXT_BYTES], second[TEXT_BYTES];
    if (sent->count != wanted->count || sent->dtype != wanted->dtype)
        return disagree_message(seats);
    if (sent->tag == wanted->tag)
        return SHOAL_OK;
    describe(&seats[0], false, first);
    describe(&seats[1], false, second);
    return SHOAL_FAIL(
        SHOAL_EMISMATCH,
        "%s, %s: the message sent is not the one expected (buffers %d and %d), although the sizes "
        "agree: one of the ranks has a message, a micro-batch or a validation more than the other",
        first, second, (int)sent->tag, (int)wanted->tag);
}

static shoal_status agree_matrix(const struct shoali_seat *seats, int32_t count)
{
    char first[TEXT_BYTES], second[TEXT_BYTES];
    for (int32_t from = 0; from < count; from++)
        for (int32_t to = 0; to < count; to++) {
            int64_t sent = seats[from].send_counts[to], wanted = seats[to].recv_counts[from];
            if (sent == wanted)
                continue;
            describe(&seats[from], false, first);
            describe(&seats[to], false, second);
            return SHOAL_FAIL(SHOAL_EMISMATCH,
                              "%s with %lld elements for rank %d, %s with room for %lld from rank "
                              "%d: send_counts of one and recv_counts of the other must agree",
                              first, (long long)sent, (int)seats[to].world_rank, second,
                              (long long)wanted, (int)seats[from].world_rank);
        }
    return SHOAL_OK;
}

static shoal_status agree(const struct shoali_seat *seats, int32_t count)
{
    if (seats[0].record->kind == SHOALI_SEND)
        return agree_message(seats);
    for (int32_t i = 1; i < count; i++)
        if (!same(seats[0].record, seats[i].record))
            return disagree(&seats[0], &seats[i]);
    if (seats[0].record->kind == SHOALI_ALL_TO_ALL_V && seats[0].send_counts)
        return agree_matrix(seats, count);
    return SHOAL_OK;
}

static shoal_status post(void *object, const struct shoali_post *post, void **request)
{
    struct shoali_post checked = *post;
    checked.agree = agree;
    return shoali_wrap_post(object, &checked, request);
}

/* Tells the others what this rank is about to do, and that it is the same. */
static shoal_status announce(void *object, enum shoali_collective kind, const char *here,
                             int64_t count)
{
    void *request = NULL;
    const struct shoali_post barrier = {
        .kind = kind, .here = here, .count = count, .dtype = SHOAL_U8};
    shoal_status status = post(object, &barrier, &request);
    return status == SHOAL_OK && request ? shoali_wrap_wait(object, request) : status;
}

static shoal_status split(void *object, const struct shoali_split_args *args, void **child)
{
    shoal_status status = announce(object, SHOALI_SPLIT, args->here, 0);
    if (status != SHOAL_OK)
        return status;
    return shoali_wrap_split(&shoali_comm_check, object, args, child);
}

static shoal_status alloc(void *object, const char *here, size_t bytes, void **memory)
{
    shoal_status status = announce(object, SHOALI_COMM_ALLOC, here, (int64_t)bytes);
    if (status != SHOAL_OK)
        return status;
    return shoali_wrap_alloc(object, here, bytes, memory);
}

const struct shoali_comm_ops shoali_comm_check = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "check",
    .probe = shoali_wrap_probe,
    .destroy = shoali_wrap_destroy,
    .rank = shoali_wrap_rank,
    .size = shoali_wrap_size,
    .post = post,
    .test = shoali_wrap_test,
    .wait = shoali_wrap_wait,
    .split = split,
    .alloc = alloc,
    .free = shoali_wrap_free,
    .abort = shoali_wrap_abort,
    .second_thread = shoali_wrap_second_thread,
    .set_name = shoali_wrap_set_name,
    .say_place = shoali_wrap_say_place,
};
