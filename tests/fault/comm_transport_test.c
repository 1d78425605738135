/* A transport whose call fails in the middle of a collective or a message: each call in a world of
 * its own, on one rank. All its ranks say what the transport says. */
#include "comm_mailboxes.h"

#include "base/test_cmocka.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORLDS = 100, RANKS = 3, VICTIM = 1, FEW = 10, MANY = 70000, WATCHDOG_S = 120 };

static const struct shoali_comm_ops table = SHOALI_P2P_TABLE("mailboxes", NULL);

struct seat {
    int32_t rank;
    struct port *port;
    _Atomic int64_t *left; /* of the victim: one of the port's two counters */
    int64_t skip;
    bool fired, opened;
    shoal_status status;
    char sentence[512];
    pthread_t thread;
};
static struct seat seats[WORLDS][RANKS];

static shoal_status post(void *group, const struct shoali_post *post)
{
    void *request = NULL;
    const shoal_status status = table.post(group, post, &request);
    return status == SHOAL_OK && request ? table.wait(group, request) : status;
}

/* Data beside the records, data that goes as streams, and a message. Nothing fails in the barrier
 * behind them, where the others learn what has failed. */
static shoal_status live(struct seat *seat, void *group, float *data)
{
    const int32_t rank = seat->rank;
    shoal_status status = SHOAL_OK;
    if (seat->left)
        atomic_store(seat->left, seat->skip);
    for (int32_t count = FEW; count <= MANY; count *= MANY / FEW)
        SHOAL_TRY(status,
                  post(group, &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                    .here = "transport.c:1",
                                                    .in = data,
                                                    .out = data,
                                                    .count = count,
                                                    .dtype = SHOAL_F32}),
                  done);
    if (rank < 2)
        SHOAL_TRY(status,
                  post(group, &(struct shoali_post){.kind = rank == 0 ? SHOALI_SEND : SHOALI_RECV,
                                                    .here = "transport.c:2",
                                                    .in = rank == 0 ? data : NULL,
                                                    .out = rank == 0 ? NULL : data,
                                                    .peer = 1 - rank,
                                                    .count = MANY,
                                                    .dtype = SHOAL_F32}),
                  done);
done:
    seat->fired = seat->left && atomic_exchange(seat->left, -1) < 0;
    if (status == SHOAL_OK)
        status =
            post(group, &(struct shoali_post){
                            .kind = SHOALI_BARRIER, .here = "transport.c:3", .dtype = SHOAL_U8});
    return status;
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    struct shoali_p2p_world *world = NULL;
    void *group = NULL;
    float *data = calloc(MANY, sizeof *data);
    const struct shoali_p2p_world_args args = {.p2p = &mailboxes,
                                               .comm = port_comm(seat->port),
                                               .rank = seat->rank,
                                               .size = RANKS,
                                               .largest_tag = INT32_MAX,
                                               .timeout_s = 60};
    seat->opened = shoali_p2p_world_create(&args, &world) == SHOAL_OK &&
                   shoali_p2p_open_all(world, &group) == SHOAL_OK && data;
    if (!seat->opened)
        return NULL;
    seat->status = live(seat, group, data);
    snprintf(seat->sentence, sizeof seat->sentence, "%s",
             seat->status < 0 ? shoal_error_message() : "");
    table.destroy(group);
    shoali_p2p_world_release(world);
    free(data);
    return NULL;
}

static void check(int32_t world)
{
    const bool fired = seats[world][VICTIM].fired;
    for (int32_t r = 0; r < RANKS; r++) {
        const struct seat *seat = &seats[world][r];
        if (!seat->opened || seat->status != (fired ? SHOAL_EIO : SHOAL_OK) ||
            (fired && !strstr(seat->sentence, "error 5")))
            fail_msg("world %d, rank %d: %s: \"%s\"", (int)world, (int)r,
                     shoal_status_name(seat->status), seat->sentence);
    }
}

/* Failed ranks mostly wait for each other, so that all worlds live at once. */
static void test_each_call(void **state)
{
    int32_t fired = 0;
    (void)state;
    for (int32_t w = 0; w < WORLDS; w++) {
        ports_open(w * RANKS, RANKS);
        for (int32_t r = 0; r < RANKS; r++) {
            struct seat *seat = &seats[w][r];
            struct port *port = &ports[w * RANKS + r];
            *seat = (struct seat){.rank = r, .skip = w / 2, .port = port};
            if (r == VICTIM)
                seat->left = w % 2 ? &port->tests_left : &port->posts_left;
            assert_int_equal(pthread_create(&seat->thread, NULL, sit, seat), 0);
        }
    }
    for (int32_t w = 0; w < WORLDS; w++) {
        for (int32_t r = 0; r < RANKS; r++)
            pthread_join(seats[w][r].thread, NULL);
        ports_close(w * RANKS, RANKS);
        fired += seats[w][VICTIM].fired;
    }
    printf("%d calls failed\n", (int)fired);
    for (int32_t w = 0; w < WORLDS; w++)
        check(w);
    assert_true(fired > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_call)};
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
