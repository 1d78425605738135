/* The public collectives: check the arguments, post to the stack, hand out requests. */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

const char *shoali_collective_name(enum shoali_collective kind)
{
    static const char *const names[SHOALI_COLLECTIVE_COUNT] = {
        "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "all_to_all_v",
        "send",       "recv",           "barrier",    "split",     "comm_alloc"};
    return kind < SHOALI_COLLECTIVE_COUNT ? names[kind] : "unknown collective";
}

/* Keeps the last parts of long paths: "src/engine/engine.c:120". */
static void copy_here(char *to, const char *here)
{
    const char *from = shoali_here_end(here, SHOALI_HERE_BYTES);
    memmove(to, from, strlen(from) + 1);
}

void shoali_post_describe(const struct shoali_post *post, struct shoali_record *record)
{
    const struct shoali_record *call = post->call;
    record->count = call ? call->count : post->count;
    record->kind = call ? call->kind : (int32_t)post->kind;
    record->dtype = call ? call->dtype : (int32_t)post->dtype;
    record->op = call ? call->op : (int32_t)post->op;
    record->peer = call ? call->peer : post->peer;
    record->tag = call ? call->tag : post->tag;
    copy_here(record->here, call ? call->here : post->here);
}

const char *shoali_record_format(const struct shoali_record *record, char *buffer)
{
    const enum shoali_collective kind = (enum shoali_collective)record->kind;
    const char *name = shoali_collective_name(kind);
    if (kind == SHOALI_BARRIER || kind == SHOALI_SPLIT || kind == SHOALI_ALL_TO_ALL_V)
        snprintf(buffer, 256, "%s at %s", name, record->here);
    else
        snprintf(buffer, 256, "%s of %lld %s at %s", name, (long long)record->count,
                 shoal_dtype_name((shoal_dtype)record->dtype), record->here);
    return buffer;
}

int32_t shoali_split_members(const int32_t *choices, int32_t stride, int32_t ranks, int32_t color,
                             int32_t *members)
{
    int32_t count = 0;
    for (int32_t r = 0; r < ranks; r++) {
        const int32_t *choice = choices + (size_t)r * (size_t)stride;
        if (choice[0] != color)
            continue;
        int32_t at = count++;
        for (; at > 0 && choices[(size_t)members[at - 1] * (size_t)stride + 1] > choice[1]; at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return count;
}

static int64_t total(const int64_t *counts, int32_t ranks)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < ranks; r++)
        sum += counts[r];
    return sum;
}

static int64_t in_count(const struct shoali_post *post, int32_t ranks)
{
    switch (post->kind) {
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_ALL_TO_ALL:
        return post->count * ranks;
    case SHOALI_ALL_TO_ALL_V:
        return total(post->send_counts, ranks);
    case SHOALI_ALL_REDUCE:
    case SHOALI_ALL_GATHER:
    case SHOALI_BROADCAST:
    case SHOALI_SEND:
        return post->count;
    default:
        return 0;
    }
}

static int64_t out_count(const struct shoali_post *post, int32_t ranks)
{
    switch (post->kind) {
    case SHOALI_ALL_GATHER:
    case SHOALI_ALL_TO_ALL:
        return post->count * ranks;
    case SHOALI_ALL_TO_ALL_V:
        return total(post->recv_counts, ranks);
    case SHOALI_ALL_REDUCE:
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_BROADCAST:
    case SHOALI_RECV:
        return post->count;
    default:
        return 0;
    }
}

size_t shoali_post_in_bytes(const struct shoali_post *post, int32_t ranks)
{
    return (size_t)in_count(post, ranks) * shoal_dtype_bytes(post->dtype);
}

size_t shoali_post_out_bytes(const struct shoali_post *post, int32_t ranks)
{
    return (size_t)out_count(post, ranks) * shoal_dtype_bytes(post->dtype);
}

static shoal_status check_op(const struct shoal_group *group, const struct shoali_post *post)
{
    const bool is_float = post->dtype <= SHOAL_F64;
    if (post->op < SHOAL_SUM || post->op > SHOAL_SUM_TREE)
        return SHOAL_FAIL(SHOAL_EINVAL, "reduce op %d does not exist", (int)post->op);
    if ((post->op == SHOAL_BOR && is_float) || (post->op == SHOAL_AVG && !is_float))
        return SHOAL_FAIL(SHOAL_EINVAL, "%s does not work on %s: %s",
                          post->op == SHOAL_BOR ? "SHOAL_BOR" : "SHOAL_AVG",
                          shoal_dtype_name(post->dtype),
                          is_float ? "bits are or-ed in integers" : "averages are for floats");
    if (post->op == SHOAL_SUM_TREE && (group->size & (group->size - 1)) != 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "SHOAL_SUM_TREE does not work in a group of %d ranks: a binary tree joins "
            "2, 4, 8, ... of them; use SHOAL_SUM",
            (int)group->size);
    return SHOAL_OK;
}

static shoal_status check_peer(const struct shoal_group *group, const struct shoali_post *post)
{
    if (post->peer < 0 || post->peer >= group->size)
        return SHOAL_FAIL(SHOAL_EINVAL, "rank %d is not in the group: its ranks are 0 to %d",
                          (int)post->peer, (int)group->size - 1);
    if (post->kind != SHOALI_BROADCAST && post->peer == group->rank)
        return SHOAL_FAIL(SHOAL_EINVAL, "rank %d cannot exchange messages with itself",
                          (int)post->peer);
    return SHOAL_OK;
}

static shoal_status check_counts(const struct shoal_group *group, const struct shoali_post *post)
{
    int64_t bytes = (int64_t)shoal_dtype_bytes(post->dtype) * group->size;
    int64_t sent = 0, received = 0, ignored;
    if (post->kind != SHOALI_ALL_TO_ALL_V) {
        if (post->count < 0 || !shoali_mul(post->count, bytes, &ignored))
            return SHOAL_FAIL(SHOAL_EINVAL, "count %lld is out of range", (long long)post->count);
        return SHOAL_OK;
    }
    if (!post->send_counts || !post->recv_counts)
        return SHOAL_FAIL(SHOAL_EINVAL, "send_counts and recv_counts are needed");
    for (int32_t r = 0; r < group->size; r++)
        if (post->send_counts[r] < 0 || post->recv_counts[r] < 0 ||
            !shoali_add(sent, post->send_counts[r], &sent) ||
            !shoali_add(received, post->recv_counts[r], &received))
            return SHOAL_FAIL(SHOAL_EINVAL, "the counts for rank %d are out of range", (int)r);
    if (!shoali_mul(sent, bytes, &ignored) || !shoali_mul(received, bytes, &ignored))
        return SHOAL_FAIL(SHOAL_EINVAL, "the counts are out of range");
    return SHOAL_OK;
}

static shoal_status check_arguments(const struct shoal_group *group, const struct shoali_post *post)
{
    shoal_status status = SHOAL_OK;
    if ((unsigned)post->dtype >= SHOAL_DTYPE_COUNT)
        return SHOAL_FAIL(SHOAL_EINVAL, "dtype %d does not exist", (int)post->dtype);
    SHOAL_TRY(status, check_counts(group, post), done);
    if (post->kind == SHOALI_ALL_REDUCE || post->kind == SHOALI_REDUCE_SCATTER)
        SHOAL_TRY(status, check_op(group, post), done);
    if (post->kind == SHOALI_BROADCAST || post->kind == SHOALI_SEND || post->kind == SHOALI_RECV)
        SHOAL_TRY(status, check_peer(group, post), done);
    const bool no_in = !post->in && in_count(post, group->size) > 0;
    if (no_in || (!post->out && out_count(post, group->size) > 0))
        status = SHOAL_FAIL(SHOAL_EINVAL, "the %s buffer is NULL", no_in ? "sending" : "receiving");
done:
    return status;
}

shoal_status shoali_group_check(const struct shoal_group *group, const struct shoali_post *post)
{
    const shoal_status status = check_arguments(group, post);
    if (status < 0)
        (void)shoali_error_prefix(status, "%s at %s", shoali_collective_name(post->kind),
                                  post->here);
    return status;
}

static struct shoal_request *take_request(struct shoal_group *group)
{
    for (int32_t i = 0; i < SHOALI_OUTSTANDING_MAX; i++)
        if (!group->request[i].used)
            return &group->request[i];
    return NULL;
}

shoal_status shoali_comm_post(shoal_group *group, const struct shoali_post *post,
                              shoal_request **request)
{
    void *inner = NULL;
    struct shoal_request *taken = NULL;
    if (request)
        *request = NULL;
    shoal_status status = shoali_group_check(group, post);
    if (status < 0 || (status = shoali_comm_settle(group)) < 0)
        return status;
    if (request && !(taken = take_request(group)))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s at %s: a group has at most %d outstanding requests: wait for earlier "
                          "ones",
                          shoali_collective_name(post->kind), post->here, SHOALI_OUTSTANDING_MAX);
    status = group->ops->post(group->object, post, &inner);
    if (status != SHOAL_OK || !inner)
        return status;
    if (!request)
        return group->ops->wait(group->object, inner);
    *taken = (struct shoal_request){.group = group, .inner = inner, .used = true};
    *request = taken;
    return SHOAL_OK;
}

shoal_status shoal_request_test(shoal_request **request)
{
    struct shoal_request *own = *request;
    if (!own)
        return SHOAL_OK;
    shoal_status status = own->group->ops->test(own->group->object, own->inner);
    if (status != SHOAL_IN_PROGRESS) {
        own->used = false;
        *request = NULL;
    }
    return status;
}

shoal_status shoal_request_wait(shoal_request **request)
{
    struct shoal_request *own = *request;
    if (!own)
        return SHOAL_OK;
    own->used = false;
    *request = NULL;
    return own->group->ops->wait(own->group->object, own->inner);
}

/* Of what most calls have: peer and counts stay 0 in those that have none. */
static shoal_status post(enum shoali_collective kind, const char *here, shoal_group *group,
                         const void *in, void *out, int64_t count, shoal_dtype dtype, int32_t peer,
                         shoal_request **request)
{
    const struct shoali_post args = {.kind = kind,
                                     .here = here,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .dtype = dtype,
                                     .peer = peer};
    return shoali_comm_post(group, &args, request);
}

static shoal_status post_sum(enum shoali_collective kind, const char *here, shoal_group *group,
                             const void *in, void *out, int64_t count, shoal_dtype dtype,
                             shoal_reduce op, shoal_request **request)
{
    const struct shoali_post args = {
        .kind = kind, .here = here, .in = in, .out = out, .count = count, .dtype = dtype, .op = op};
    return shoali_comm_post(group, &args, request);
}

shoal_status shoal_all_reduce_at(const char *here, shoal_group *group, const void *in, void *out,
                                 int64_t count, shoal_dtype dtype, shoal_reduce op,
                                 shoal_request **request)
{
    return post_sum(SHOALI_ALL_REDUCE, here, group, in, out, count, dtype, op, request);
}

shoal_status shoal_reduce_scatter_at(const char *here, shoal_group *group, const void *in,
                                     void *out, int64_t count, shoal_dtype dtype, shoal_reduce op,
                                     shoal_request **request)
{
    return post_sum(SHOALI_REDUCE_SCATTER, here, group, in, out, count, dtype, op, request);
}

shoal_status shoal_all_gather_at(const char *here, shoal_group *group, const void *in, void *out,
                                 int64_t count, shoal_dtype dtype, shoal_request **request)
{
    return post(SHOALI_ALL_GATHER, here, group, in, out, count, dtype, 0, request);
}

shoal_status shoal_broadcast_at(const char *here, shoal_group *group, void *data, int64_t count,
                                shoal_dtype dtype, int32_t root, shoal_request **request)
{
    return post(SHOALI_BROADCAST, here, group, data, data, count, dtype, root, request);
}

shoal_status shoal_all_to_all_at(const char *here, shoal_group *group, const void *in, void *out,
                                 int64_t count, shoal_dtype dtype, shoal_request **request)
{
    return post(SHOALI_ALL_TO_ALL, here, group, in, out, count, dtype, 0, request);
}

shoal_status shoal_all_to_all_v_at(const char *here, shoal_group *group, const void *in,
                                   const int64_t *send_counts, void *out,
                                   const int64_t *recv_counts, shoal_dtype dtype,
                                   shoal_request **request)
{
    const struct shoali_post args = {.kind = SHOALI_ALL_TO_ALL_V,
                                     .here = here,
                                     .in = in,
                                     .out = out,
                                     .dtype = dtype,
                                     .send_counts = send_counts,
                                     .recv_counts = recv_counts};
    return shoali_comm_post(group, &args, request);
}

shoal_status shoal_send_at(const char *here, shoal_group *group, const void *data, int64_t count,
                           shoal_dtype dtype, int32_t to, shoal_request **request)
{
    return post(SHOALI_SEND, here, group, data, NULL, count, dtype, to, request);
}

shoal_status shoal_recv_at(const char *here, shoal_group *group, void *data, int64_t count,
                           shoal_dtype dtype, int32_t from, shoal_request **request)
{
    return post(SHOALI_RECV, here, group, NULL, data, count, dtype, from, request);
}

shoal_status shoal_barrier_at(const char *here, shoal_group *group)
{
    return post(SHOALI_BARRIER, here, group, NULL, NULL, 0, SHOAL_U8, 0, NULL);
}
