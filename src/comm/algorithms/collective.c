/* The rounds of one collective; exchange.c moves the data. */
#include "comm/algorithms/slots.h"

#include <string.h>

/* From here on a second round costs less than the copies that it saves. */
enum { DIRECT_BYTES = 4096 };

static bool is_announcement(const struct shoali_post *post)
{
    return post->kind == SHOALI_BARRIER || post->kind == SHOALI_SPLIT ||
           post->kind == SHOALI_COMM_ALLOC;
}

static bool has_blocks(const struct shoali_post *post)
{
    return post->kind == SHOALI_REDUCE_SCATTER || post->kind == SHOALI_ALL_TO_ALL ||
           post->kind == SHOALI_ALL_TO_ALL_V;
}

/* Says where a buffer is, in words that the others understand, when all of them can reach it. */
static void show(const struct shoali_slots_group *group, const void *memory, size_t bytes,
                 uint32_t reach, struct shoali_wire *wire)
{
    const struct shoali_place place = shoali_place_of(group->world, memory, bytes);
    if (place.arena == 0 || !shoali_members_have_all(&place.members, &group->members))
        return;
    *(reach == SHOALI_REACH_IN ? &wire->in : &wire->out) = place;
    wire->reachable |= reach;
}

/* Before the first round: chunk size, whether chunk 0 goes with the records, and where the buffers
 * are. Nobody knows all the counts of an all_to_all_v in advance, so it always sends its first
 * chunk. */
static void prepare(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const size_t blocks = has_blocks(post) ? (size_t)group->size : 1;
    const size_t bytes = (size_t)post->count * request->element_bytes;
    size_t room = group->half_bytes;
    if (blocks > 1)
        room = room / blocks / 64 * 64;
    request->chunk = (int64_t)(room / request->element_bytes);
    request->small = post->kind != SHOALI_ALL_TO_ALL_V &&
                     (is_announcement(post) || bytes <= SHOALI_SMALL_BYTES / blocks / 64 * 64);
    request->first_chunk = request->small || post->kind == SHOALI_ALL_TO_ALL_V ? 0 : 1;
    if (request->small && bytes * blocks < DIRECT_BYTES)
        return;
    struct shoali_wire *wire = &request->wire;
    show(group, post->in, shoali_post_in_bytes(post, group->size), SHOALI_REACH_IN, wire);
    if (post->kind == SHOALI_ALL_REDUCE && post->out == post->in) {
        wire->out = wire->in;
        wire->reachable = wire->reachable ? SHOALI_REACH_IN | SHOALI_REACH_OUT : 0;
    } else if (post->kind == SHOALI_ALL_REDUCE) {
        show(group, post->out, bytes, SHOALI_REACH_OUT, wire);
    }
    if (wire->reachable & SHOALI_REACH_IN && post->kind != SHOALI_ALL_TO_ALL_V)
        request->first_chunk = 1;
}

static void publish(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    struct shoali_slot *own = &group->slot[group->rank];
    const struct shoali_post *post = &request->post;
    group->round++;
    group->seen = 0;
    struct shoali_front *front = &own->front[group->round % 2];
    front->wire = request->wire;
    if (post->kind == SHOALI_ALL_TO_ALL_V) {
        int64_t *counts = own->counts[group->round % 2];
        memcpy(counts, post->send_counts, (size_t)group->size * sizeof(int64_t));
        memcpy(counts + SHOALI_MAX_RANKS, post->recv_counts, (size_t)group->size * sizeof(int64_t));
    }
    if (!request->direct && request->step >= request->first_chunk && !is_announcement(post))
        shoali_exchange_produce(group, request);
    atomic_store(&front->arrived, group->round);
    request->published = true;
    /* Only the rank that completes the round wakes the sleepers, and each of them once. */
    for (int32_t r = 0; r < group->size; r++)
        if (!shoali_group_has_arrived(group, r))
            return;
    shoali_group_ring_all(group);
}

static bool everyone_arrived(struct shoali_slots_group *group)
{
    while (group->seen < group->size) {
        if (!shoali_group_has_arrived(group, group->seen))
            return false;
        group->seen++;
    }
    return true;
}

static shoal_status ask_agreement(const struct shoali_slots_group *group,
                                  const struct shoali_slots_request *request)
{
    struct shoali_seat seats[SHOALI_MAX_RANKS];
    const bool sized = request->post.kind == SHOALI_ALL_TO_ALL_V;
    if (!request->post.agree)
        return SHOAL_OK;
    for (int32_t r = 0; r < group->size; r++) {
        const int64_t *counts = group->slot[r].counts[group->round % 2];
        seats[r] = (struct shoali_seat){.world_rank = shoali_slots_number(group, r),
                                        .shared = shoali_slots_seat(group, r),
                                        .record = &shoali_group_wire(group, r)->record,
                                        .send_counts = sized ? counts : NULL,
                                        .recv_counts = sized ? counts + SHOALI_MAX_RANKS : NULL};
    }
    return request->post.agree(seats, group->size);
}

/* Ranks whose data the others take. */
static bool gives(const struct shoali_post *post, int32_t rank)
{
    return post->kind != SHOALI_BROADCAST || rank == post->peer;
}

/* How many ranks that give do so from buffers that all can reach. Everybody counts the same,
 * because the wires are all that is looked at. */
static int32_t count_reachable(const struct shoali_slots_group *group,
                               const struct shoali_slots_request *request, int32_t *givers)
{
    int32_t reachable = 0;
    *givers = 0;
    for (int32_t r = 0; r < group->size; r++) {
        if (!gives(&request->post, r))
            continue;
        reachable += (shoali_group_wire(group, r)->reachable & SHOALI_REACH_IN) != 0;
        ++*givers;
    }
    return reachable;
}

static int64_t largest_count(const struct shoali_slots_group *group)
{
    int64_t largest = 0;
    for (int32_t r = 0; r < group->size; r++)
        for (int32_t to = 0; to < group->size; to++) {
            int64_t count = group->slot[r].counts[group->round % 2][to];
            largest = count > largest ? count : largest;
        }
    return largest;
}

/* After the first round. A small operation is over with it when all who give could only do so
 * beside their records; when some could have and others are reachable, everybody sends its data in
 * a round of its own. */
static void plan(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    const struct shoali_post *post = &request->post;
    const bool sized = post->kind == SHOALI_ALL_TO_ALL_V;
    const int64_t count = sized ? largest_count(group) : post->count;
    const int64_t chunks = (count + request->chunk - 1) / request->chunk;
    request->steps = 1;
    if (is_announcement(post) || (sized && chunks <= 1))
        return;
    int32_t givers;
    const int32_t reachable = count_reachable(group, request, &givers);
    const bool beside_records = request->small && reachable == 0;
    request->direct = reachable == givers;
    if (!sized)
        request->first_chunk = beside_records ? 0 : 1;
    if (request->direct)
        request->steps = 2;
    else if (!beside_records)
        request->steps = request->first_chunk + (int32_t)chunks;
}

shoal_status shoali_collective_advance(struct shoali_slots_group *group,
                                       struct shoali_slots_request *request)
{
    if (request->step == 0 && !request->published)
        prepare(group, request);
    do {
        if (!request->published)
            publish(group, request);
        if (!everyone_arrived(group))
            return SHOAL_IN_PROGRESS;
        if (request->steps == 0) {
            shoal_status status = ask_agreement(group, request);
            if (status < 0)
                return status;
            plan(group, request);
        }
        if (request->direct && request->step == 0) {
            if (!shoali_group_enter_busy(group))
                return SHOAL_IN_PROGRESS; /* the waiting loop finds the verdict */
            shoali_exchange_direct(group, request);
            shoali_group_leave_busy(group);
        } else if (!request->direct && request->step >= request->first_chunk &&
                   !is_announcement(&request->post)) {
            shoali_exchange_consume(group, request);
        }
        request->published = false;
    } while (++request->step < request->steps);
    return SHOAL_OK;
}
