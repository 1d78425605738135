/* A random program that one rank aborts at a random place. Whoever fails leaves, with or without
 * waiting for what it has posted, and its memory goes at once: sanitizers see who still touches it.
 */
#include "comm_data.h"
#include "comm_suite.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 40, PIECES = 14, COUNT_MAX = 70000 };

/* A posted operation and its buffers. */
struct piece {
    shoal_request *request;
    float *in, *out;
};
struct play {
    struct rank_seat *seat;
    shoal_group *group[2]; /* the world, and a child of all its ranks */
    struct piece piece[PIECES];
    int32_t count;
};

static struct piece *add_piece(struct play *play, size_t elements)
{
    struct piece *piece = &play->piece[play->count++];
    *piece = (struct piece){.in = calloc(elements + 1, sizeof(float)),
                            .out = calloc(elements + 1, sizeof(float))};
    if (!piece->in || !piece->out)
        abort();
    return piece;
}

static shoal_status wait_for_first(struct play *play)
{
    const shoal_status status = shoal_request_wait(&play->piece[0].request);
    free(play->piece[0].in);
    free(play->piece[0].out);
    memmove(&play->piece[0], &play->piece[1], sizeof(play->piece[0]) * (size_t)(PIECES - 1));
    play->count--;
    return status;
}

/* To the next rank, from the last. */
static shoal_status pass_on(struct play *play, shoal_group *group, int64_t count)
{
    const int32_t n = play->seat->size, me = play->seat->rank;
    struct piece *sent = add_piece(play, (size_t)count), *got = add_piece(play, (size_t)count);
    shoal_status status =
        shoal_send(group, sent->in, count, SHOAL_F32, (me + 1) % n, &sent->request);
    if (status == SHOAL_OK)
        status = shoal_recv(group, got->out, count, SHOAL_F32, (me + n - 1) % n, &got->request);
    if (status == SHOAL_OK)
        status = shoal_request_wait(&got->request);
    return status == SHOAL_OK ? shoal_request_wait(&sent->request) : status;
}

static shoal_status share(shoal_group *group, int64_t count)
{
    void *memory = NULL;
    shoal_status status = shoal_comm_alloc(group, (size_t)count * sizeof(float), &memory);
    if (status == SHOAL_OK)
        status = shoal_all_reduce(group, memory, memory, count, SHOAL_F32, SHOAL_SUM, NULL);
    shoal_comm_free(group, memory);
    return status;
}

static shoal_status divide(shoal_group *group)
{
    shoal_group *part = NULL;
    shoal_status status = shoal_comm_split(group, shoal_comm_rank(group) % 2, 0, &part);
    if (status == SHOAL_OK)
        status = shoal_barrier(part);
    shoal_comm_destroy(part);
    return status;
}

static shoal_status play_step(struct play *play, uint64_t bits)
{
    static const int64_t counts[] = {1, 300, 5000, COUNT_MAX};
    const int64_t count = counts[bits % 4];
    shoal_group *group = play->group[(bits >> 8) % 2];
    const uint32_t kind = (bits >> 16) % 8;
    shoal_status status = SHOAL_OK;
    while (play->count > PIECES - 2 && status == SHOAL_OK)
        status = wait_for_first(play);
    if (status < 0 || kind == 0)
        return status < 0 ? status : pass_on(play, group, count);
    if (kind == 1)
        return share(group, count);
    if (kind == 2)
        return divide(group);
    struct piece *piece = add_piece(play, (size_t)count * (size_t)play->seat->size);
    /* The same on all ranks: a request on one group makes no progress while its rank waits for the
     * other, so who waits here must be met by all. */
    shoal_request **request = (bits >> 40) % 4 ? &piece->request : NULL;
    if (kind == 3)
        return shoal_all_gather(group, piece->in, piece->out, count, SHOAL_F32, request);
    if (kind == 4)
        return shoal_broadcast(group, piece->out, count, SHOAL_F32, (int32_t)(bits >> 32) & 1,
                               request);
    if (kind == 5)
        return shoal_reduce_scatter(group, piece->in, piece->out, count, SHOAL_F32, SHOAL_SUM,
                                    request);
    return shoal_all_reduce(group, piece->in, kind == 6 ? piece->in : piece->out, count, SHOAL_F32,
                            SHOAL_SUM, request);
}

bool suite_random_abort(struct rank_seat *seat)
{
    const uint64_t seed = data_mix(seat->ranks->seed);
    const int32_t victim = (int32_t)(seed % (uint64_t)seat->size);
    const uint64_t last = (seed >> 16) % STEPS;
    struct play play = {.seat = seat, .group = {seat->group}};
    shoal_status status = shoal_comm_split(seat->group, 0, 0, &play.group[1]);
    EXPECT(status == SHOAL_OK);
    for (uint64_t i = 0; i <= STEPS && status == SHOAL_OK; i++) {
        if (i == last && seat->rank == victim)
            shoal_comm_abort(play.group[seed >> 60 & 1],
                             SHOAL_FAIL(SHOAL_EIO, "the disk of x%d is full", 7));
        status = i < STEPS ? play_step(&play, data_mix(seed + i)) : shoal_barrier(seat->group);
    }
    const bool received = strstr(shoal_error_message(), "the disk of x7 is full") != NULL;
    const shoal_status expected = seat->rank == victim ? SHOAL_EIO : SHOAL_EPEER;
    const bool waits = data_mix(seed + (uint64_t)seat->rank) % 2;
    for (int32_t i = 0; i < play.count && waits; i++)
        (void)!shoal_request_wait(&play.piece[i].request);
    shoal_comm_destroy(play.group[1]);
    shoal_comm_destroy(seat->group);
    seat->group = NULL;
    for (int32_t i = 0; i < play.count; i++) {
        free(play.piece[i].in);
        free(play.piece[i].out);
    }
    if (!received || status != expected)
        fprintf(stderr, "SHOAL_TEST_SEED=%llu\n", (unsigned long long)seat->ranks->seed);
    EXPECT(received && status == expected);
    return true;
}
