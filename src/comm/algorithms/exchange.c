/* Moves the data of collectives: into halves, out of halves, and directly between buffers. */
#include "comm/algorithms/slots.h"

/* One of the blocks that this rank writes, `total` elements in all. */
static void copy_part(void *to, const void *from, int64_t count, size_t element_bytes,
                      int64_t total)
{
    shoali_copy_block(&to, 1, from, (size_t)count * element_bytes, (size_t)total * element_bytes);
}

static void copy(void *to, const void *from, int64_t count, size_t element_bytes)
{
    copy_part(to, from, count, element_bytes, count);
}

/* Elements [*first, *first + n) of a block of `count` are in the request's present chunk. */
static int64_t chunk_range(const struct shoali_slots_request *request, int64_t count,
                           int64_t *first)
{
    *first = (request->step - request->first_chunk) * request->chunk;
    int64_t left = count - *first;
    return left < 0 ? 0 : left < request->chunk ? left : request->chunk;
}

static int64_t sum_before(const int64_t *counts, int32_t end)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < end; i++)
        sum += counts[i];
    return sum;
}

static const unsigned char *at(const void *base, int64_t index, size_t element_bytes)
{
    return (const unsigned char *)base + (size_t)index * element_bytes;
}

static unsigned char *at_out(void *base, int64_t index, size_t element_bytes)
{
    return (unsigned char *)base + (size_t)index * element_bytes;
}

void shoali_exchange_produce(struct shoali_slots_group *group,
                             const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    unsigned char *half = shoali_group_half(group, group->rank);
    int64_t first, n = chunk_range(request, post->count, &first);
    switch (post->kind) {
    case SHOALI_BROADCAST:
        if (group->rank != post->peer)
            return;
        copy(half, at(post->in, first, bytes), n, bytes);
        return;
    case SHOALI_ALL_REDUCE:
    case SHOALI_ALL_GATHER:
        copy(half, at(post->in, first, bytes), n, bytes);
        return;
    case SHOALI_ALL_TO_ALL_V:
        for (int32_t r = 0; r < group->size; r++) {
            n = chunk_range(request, post->send_counts[r], &first);
            if (n > 0 && r != group->rank)
                copy(at_out(half, r * request->chunk, bytes),
                     at(post->in, sum_before(post->send_counts, r) + first, bytes), n, bytes);
        }
        return;
    default: /* reduce_scatter, all_to_all: a block for each rank */
        for (int32_t r = 0; r < group->size; r++)
            if (r != group->rank)
                copy(at_out(half, r * request->chunk, bytes),
                     at(post->in, r * post->count + first, bytes), n, bytes);
    }
}

static void reduce(struct shoali_slots_group *group, const struct shoali_slots_request *request,
                   struct shoali_reduce_sources_args *args, int64_t count)
{
    if (count == 0)
        return;
    args->sources = group->size;
    args->count = count;
    args->op = (enum shoali_reduce_op)request->post.op;
    args->dtype = request->post.dtype;
    args->nontemporal = 0;
    shoali_reduce_block(&group->world->ops, args);
}

/* Reduces one chunk: own part from `own`, the others' from their halves `offset` elements in. */
static void reduce_chunk(struct shoali_slots_group *group,
                         const struct shoali_slots_request *request, const void *own,
                         int64_t offset, int64_t first, int64_t n)
{
    struct shoali_reduce_sources_args args;
    for (int32_t r = 0; r < group->size; r++)
        args.x[r] = r == group->rank
                        ? own
                        : at(shoali_group_half(group, r), offset, request->element_bytes);
    args.y[0] = at_out(request->post.out, first, request->element_bytes);
    args.destinations = 1;
    reduce(group, request, &args, n);
}

static void consume_all_to_all_v(struct shoali_slots_group *group,
                                 const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    for (int32_t r = 0; r < group->size; r++) {
        int64_t first, n = chunk_range(request, post->recv_counts[r], &first);
        int64_t begin = sum_before(post->send_counts, r);
        if (n == 0)
            continue;
        const unsigned char *from =
            r == group->rank ? at(post->in, begin + first, bytes)
                             : at(shoali_group_half(group, r), group->rank * request->chunk, bytes);
        copy(at_out(post->out, sum_before(post->recv_counts, r) + first, bytes), from, n, bytes);
    }
}

void shoali_exchange_consume(struct shoali_slots_group *group,
                             const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    const int32_t me = group->rank;
    int64_t first, n = chunk_range(request, post->count, &first);
    switch (post->kind) {
    case SHOALI_ALL_REDUCE:
        reduce_chunk(group, request, at(post->in, first, bytes), 0, first, n);
        return;
    case SHOALI_REDUCE_SCATTER:
        reduce_chunk(group, request, at(post->in, me * post->count + first, bytes),
                     me * request->chunk, first, n);
        return;
    case SHOALI_BROADCAST:
        if (me != post->peer)
            copy(at_out(post->out, first, bytes), shoali_group_half(group, post->peer), n, bytes);
        return;
    case SHOALI_ALL_TO_ALL_V:
        consume_all_to_all_v(group, request);
        return;
    case SHOALI_ALL_GATHER:
        for (int32_t r = 0; r < group->size; r++)
            copy(at_out(post->out, r * post->count + first, bytes),
                 r == me ? at(post->in, first, bytes) : shoali_group_half(group, r), n, bytes);
        return;
    default: /* all_to_all */
        for (int32_t r = 0; r < group->size; r++)
            copy(at_out(post->out, r * post->count + first, bytes),
                 r == me ? at(post->in, r * post->count + first, bytes)
                         : at(shoali_group_half(group, r), me * request->chunk, bytes),
                 n, bytes);
    }
}

static const void *in_of(const struct shoali_slots_group *group,
                         const struct shoali_slots_request *request, int32_t rank)
{
    return rank == group->rank
               ? request->post.in
               : shoali_place_resolve(group->world, &shoali_group_wire(group, rank)->in);
}

/* Of an all_reduce; often the place of the data. */
static void *out_of(const struct shoali_slots_group *group,
                    const struct shoali_slots_request *request, int32_t rank, const void *in)
{
    const struct shoali_wire *wire = shoali_group_wire(group, rank);
    if (rank == group->rank)
        return request->post.out;
    if (wire->out.arena == wire->in.arena && wire->out.offset == wire->in.offset)
        return (void *)(uintptr_t)in;
    return shoali_place_resolve(group->world, &wire->out);
}

/* Of every rank. For outs: else each rank computes its own result. */
static bool are_reachable(const struct shoali_slots_group *group, uint32_t reach)
{
    for (int32_t r = 0; r < group->size; r++)
        if (!(shoali_group_wire(group, r)->reachable & reach))
            return false;
    return true;
}

static void direct_all_reduce(struct shoali_slots_group *group,
                              const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    struct shoali_reduce_sources_args args;
    int64_t begin = 0, end = post->count;
    bool share = are_reachable(group, SHOALI_REACH_OUT);
    if (share)
        shoali_pool_slice(post->count, (int64_t)(64 / bytes), group->rank, group->size, &begin,
                          &end);
    args.destinations = share ? group->size : 1;
    for (int32_t r = 0; r < group->size; r++) {
        const void *in = in_of(group, request, r);
        args.x[r] = at(in, begin, bytes);
        if (share)
            args.y[r] = at_out(out_of(group, request, r, in), begin, bytes);
    }
    if (!share)
        args.y[0] = post->out;
    reduce(group, request, &args, end - begin);
}

static void direct_reduce_scatter(struct shoali_slots_group *group,
                                  const struct shoali_slots_request *request)
{
    struct shoali_reduce_sources_args args;
    for (int32_t r = 0; r < group->size; r++)
        args.x[r] =
            at(in_of(group, request, r), group->rank * request->post.count, request->element_bytes);
    args.y[0] = request->post.out;
    args.destinations = 1;
    reduce(group, request, &args, request->post.count);
}

/* Every rank carries a slice from the root to all; or, where some cannot be reached, all of it to
 * itself. */
static void direct_broadcast(struct shoali_slots_group *group,
                             const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    const unsigned char *from = in_of(group, request, post->peer);
    void *to[SHOALI_MAX_RANKS] = {post->out};
    int64_t begin = 0, end = post->count;
    int32_t count = group->rank == post->peer ? 0 : 1;
    if (are_reachable(group, SHOALI_REACH_IN)) {
        shoali_pool_slice(post->count, (int64_t)(64 / bytes), group->rank, group->size, &begin,
                          &end);
        count = 0;
        for (int32_t r = 0; r < group->size; r++)
            if (r != post->peer)
                to[count++] =
                    r == group->rank
                        ? post->out
                        : shoali_place_resolve(group->world, &shoali_group_wire(group, r)->in);
    }
    for (int32_t i = 0; i < count; i++)
        to[i] = at_out(to[i], begin, bytes);
    shoali_copy_block(to, count, at(from, begin, bytes), (size_t)(end - begin) * bytes,
                      (size_t)(end - begin) * bytes * (size_t)count);
}

static void direct_all_to_all_v(struct shoali_slots_group *group,
                                const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    const int64_t total = sum_before(post->recv_counts, group->size);
    for (int32_t r = 0; r < group->size; r++) {
        const int64_t *theirs = group->slot[r].counts[group->round % 2];
        copy_part(at_out(post->out, sum_before(post->recv_counts, r), bytes),
                  at(in_of(group, request, r), sum_before(theirs, group->rank), bytes),
                  post->recv_counts[r], bytes, total);
    }
}

void shoali_exchange_direct(struct shoali_slots_group *group,
                            const struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t bytes = request->element_bytes;
    switch (post->kind) {
    case SHOALI_ALL_REDUCE:
        direct_all_reduce(group, request);
        return;
    case SHOALI_REDUCE_SCATTER:
        direct_reduce_scatter(group, request);
        return;
    case SHOALI_BROADCAST:
        direct_broadcast(group, request);
        return;
    case SHOALI_ALL_TO_ALL_V:
        direct_all_to_all_v(group, request);
        return;
    case SHOALI_ALL_GATHER:
        for (int32_t r = 0; r < group->size; r++)
            copy_part(at_out(post->out, r * post->count, bytes), in_of(group, request, r),
                      post->count, bytes, post->count * group->size);
        return;
    default: /* all_to_all */
        for (int32_t r = 0; r < group->size; r++)
            copy_part(at_out(post->out, r * post->count, bytes),
                      at(in_of(group, request, r), group->rank * post->count, bytes), post->count,
                      bytes, post->count * group->size);
    }
}
