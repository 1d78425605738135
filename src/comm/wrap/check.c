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
    else if (details && record->op >= 0 && record->op <= SHOAL_SUM_TREE)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), " with %s", reduce_names[record->op]);
    snprintf(text + at, (size_t)(TEXT_BYTES - at), " at %s%s", short_here(record->here),
             shoali_seat_doing(seat->shared, " in ", place));
}

static shoal_status disagree(const struct shoali_seat *a, const struct shoali_seat *b)
{
    char first[TEXT_BYTES], second[TEXT_BYTES];
    const struct shoali_record *x = a->record, *y = b->record;
    bool has_details = x->kind == SHOALI_ALL_REDUCE || x->kind == SHOALI_REDUCE_SCATTER ||
                       x->kind == SHOALI_BROADCAST;
    bool details = has_details && x->kind == y->kind && (x->op != y->op || x->peer != y->peer);
    describe(a, details, first);
    describe(b, details, second);
    return SHOAL_FAIL(SHOAL_EMISMATCH,
                      "%s, %s: all ranks of a group must make the same calls in the same order "
                      "with the same counts and types",
                      first, second);
}

static bool same(const struct shoali_record *a, const struct shoali_record *b)
{
    return a->sequence == b->sequence && a->group == b->group && a->count == b->count &&
           a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->peer == b->peer &&
           a->tag == b->tag;
}

static shoal_status agree_message(const struct shoali_seat *seats)
{
    const struct shoali_record *sent = seats[0].record, *wanted = seats[1].record;
    char first[TEXT_BYTES], second[TEXT_BYTES];
    if (sent->count != wanted->count || sent->dtype != wanted->dtype)
        return disagree(&seats[0], &seats[1]);
    if (sent->tag == wanted->tag)
        return SHOAL_OK;
    describe(&seats[0], false, first);
    describe(&seats[1], false, second);
    return SHOAL_FAIL(SHOAL_EMISMATCH,
                      "%s, %s: what is sent is not what is waited for, although it has the same "
                      "size: one of the ranks has a message, a micro-batch or a validation more "
                      "than the other",
                      first, second);
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
};
