/* What happens when ranks fail, disagree or do not come. */
#include "comm_suite.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static double seconds_since(int64_t start_ns)
{
    return (double)(shoali_now_ns() - start_ns) * 1e-9;
}

bool suite_abort(struct rank_seat *seat)
{
    float data[10] = {0};
    const int32_t last = seat->size - 1;
    char expected[64];
    shoal_request *request = NULL;
    shoal_group *child = NULL;
    EXPECT(shoal_comm_split(seat->group, 0, 0, &child) == SHOAL_OK);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    snprintf(expected, sizeof(expected), "rank %d failed: the disk of x%d is full", (int)last, 7);
    if (seat->rank == last) {
        shoal_status status = SHOAL_FAIL(SHOAL_EIO, "the disk of x%d is full", 7);
        shoal_comm_abort(seat->group, status);
        (void)SHOAL_FAIL(SHOAL_EIO, "something else");
        shoal_comm_abort(seat->group, SHOAL_EIO); /* the first verdict stays */
        EXPECT(shoal_barrier(seat->group) == SHOAL_EIO && says("the disk of x7 is full"));
    } else {
        if (seat->rank % 2 == 0) { /* by post and wait, or in one */
            shoal_status status =
                shoal_all_reduce(seat->group, data, data, 10, SHOAL_F32, SHOAL_SUM, &request);
            EXPECT(status == SHOAL_OK || status == SHOAL_EPEER);
            EXPECT(status < 0 || shoal_request_wait(&request) == SHOAL_EPEER);
        } else {
            EXPECT(shoal_recv(seat->group, data, 10, SHOAL_F32, last, NULL) == SHOAL_EPEER);
        }
        EXPECT(strcmp(shoal_error_message(), expected) == 0);
        shoali_error_clear();
        EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER && says(expected));
        EXPECT(shoal_barrier(child) == SHOAL_EPEER && says(expected));
    }
    shoal_comm_destroy(child);
    return true;
}

/* What all ranks have come to completes, though the last one then gives three later ones up. */
bool suite_abort_with_pending(struct rank_seat *seat)
{
    enum { PENDING = 3, COUNT = 10 };
    float sum[COUNT], later[PENDING][COUNT] = {{0}};
    const int32_t last = seat->size - 1;
    shoal_request *first = NULL, *pending[PENDING] = {NULL};
    shoal_group *child = NULL;
    for (int32_t i = 0; i < COUNT; i++)
        sum[i] = (float)(seat->rank + i);
    EXPECT(shoal_comm_split(seat->group, 0, 0, &child) == SHOAL_OK);
    if (seat->rank != last)
        EXPECT(shoal_all_reduce(seat->group, sum, sum, COUNT, SHOAL_F32, SHOAL_SUM, &first) ==
               SHOAL_OK);
    EXPECT(shoal_barrier(child) == SHOAL_OK);
    if (seat->rank == last) {
        EXPECT(shoal_all_reduce(seat->group, sum, sum, COUNT, SHOAL_F32, SHOAL_SUM, NULL) ==
               SHOAL_OK);
        for (int32_t i = 0; i < PENDING; i++)
            EXPECT(shoal_all_reduce(seat->group, later[i], later[i], COUNT, SHOAL_F32, SHOAL_SUM,
                                    &pending[i]) == SHOAL_OK);
        shoal_comm_abort(seat->group, SHOAL_FAIL(SHOAL_EIO, "the disk of x%d is full", 7));
        for (int32_t i = 0; i < PENDING; i++)
            EXPECT(shoal_request_wait(&pending[i]) == SHOAL_EIO);
    } else {
        if (seat->host) /* what goes in steps needs all ranks, and would wait for the next line */
            EXPECT(shoal_request_wait(&first) == SHOAL_OK);
        EXPECT(shoal_barrier(child) == SHOAL_EPEER); /* until the last one has given up */
        EXPECT(shoal_request_wait(&first) == SHOAL_OK);
        EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER && says("the disk of x7 is full"));
    }
    for (int32_t i = 0; i < COUNT; i++)
        EXPECT(sum[i] == (float)(seat->size * (seat->size - 1) / 2 + seat->size * i));
    shoal_comm_destroy(child);
    return true;
}

/* A rank that leaves with a request that it has not waited for: its memory may go at once, though
 * others may be at work on it. */
bool suite_abandon(struct rank_seat *seat)
{
    enum { BYTES = 64 << 20, COUNT = BYTES / 4 };
    const int32_t last = seat->size - 1;
    shoal_request *request = NULL;
    float *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(data != MAP_FAILED);
    data[0] = data[COUNT - 1] = 1;
    if (seat->rank == last) {
        EXPECT(shoal_all_reduce(seat->group, data, data, COUNT, SHOAL_F32, SHOAL_SUM, &request) ==
               SHOAL_OK);
        nanosleep(&(struct timespec){0, 5000000}, NULL); /* the others have begun, or nearly */
        shoal_comm_abort(seat->group, SHOAL_FAIL(SHOAL_EIO, "the disk of x%d is full", 7));
        shoal_comm_destroy(seat->group);
        seat->group = NULL;
    } else {
        const shoal_status status =
            shoal_all_reduce(seat->group, data, data, COUNT, SHOAL_F32, SHOAL_SUM, NULL);
        EXPECT(status == SHOAL_OK || (status == SHOAL_EPEER && says("the disk of x7 is full")));
    }
    EXPECT(munmap(data, BYTES) == 0);
    return true;
}

/* The last rank comes too late. Rank 0 posts and goes on a little later. With several hosts the
 * ranks that wait for it on its own host have waited longer than rank 0: their deadlines must be
 * later all the same. On a busy machine a wait of 2 s lasts longer, for it leaves out the time in
 * which it did not run. */
bool suite_timeout(struct rank_seat *seat)
{
    float data[12] = {0};
    const int32_t last = seat->size - 1;
    char name[32];
    snprintf(name, sizeof(name), "rank %d did not come", (int)last);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    int64_t start_ns = shoali_now_ns();
    shoal_request *request = NULL;
    if (seat->rank == last)
        nanosleep(&(struct timespec){8, 0}, NULL);
    shoal_status status =
        shoal_all_reduce(seat->group, data, data, 12, SHOAL_F32, SHOAL_SUM, &request);
    if (seat->rank == 0)
        nanosleep(&(struct timespec){0, 200000000}, NULL);
    EXPECT((status == SHOAL_OK ? shoal_request_wait(&request) : status) == SHOAL_ETIMEOUT);
    EXPECT(says(name) && says("all_reduce of 12 F32 at") && says("comm_failures.c"));
    EXPECT(says("was barrier at"));
    EXPECT(seat->rank == last || seconds_since(start_ns) < 15);
    EXPECT(shoal_barrier(seat->group) == SHOAL_ETIMEOUT);
    return true;
}

bool suite_message_timeout(struct rank_seat *seat)
{
    float data[12] = {0};
    shoal_request *request = NULL;
    if (seat->rank == 0) {
        EXPECT(shoal_recv(seat->group, data, 12, SHOAL_F32, 1, &request) == SHOAL_OK);
        shoal_status status;
        while ((status = shoal_request_test(&request)) == SHOAL_IN_PROGRESS)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        EXPECT(status == SHOAL_ETIMEOUT && says("rank 1 did not send") && says("recv of 12 F32"));
    } else { /* when rank 0 has passed its deadline */
        nanosleep(&(struct timespec){1, 500000000}, NULL);
        EXPECT(shoal_barrier(seat->group) == SHOAL_ETIMEOUT);
    }
    return true;
}

/* Ranks are compared with the first: of their host, then of all. */
static int32_t compared_with_last(const struct rank_seat *seat)
{
    int32_t rank = 0;
    while (seat->host && seat->host[rank] != seat->host[seat->size - 1])
        rank++;
    return rank == seat->size - 1 ? 0 : rank;
}

bool suite_mismatch_kind(struct rank_seat *seat)
{
    float in[100] = {0}, out[100];
    const int32_t last = seat->size - 1;
    char first[64], second[96];
    shoal_status status;
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    if (seat->rank == last)
        status =
            shoal_all_gather_at("some/where/b.c:20", seat->group, in, out, 12, SHOAL_F32, NULL);
    else
        status =
            shoal_all_reduce_at("a.c:10", seat->group, in, out, 12, SHOAL_F32, SHOAL_SUM, NULL);
    snprintf(second, sizeof(second), "rank %d posted all_gather of 12 F32 at where/b.c:20",
             (int)last);
    EXPECT(status == SHOAL_EMISMATCH);
    snprintf(first, sizeof(first), "rank %d posted all_reduce of 12 F32 at a.c:10, ",
             (int)compared_with_last(seat));
    EXPECT(says(first) && says(second));
    EXPECT(shoal_barrier(seat->group) == SHOAL_EMISMATCH && says(second));
    return true;
}

bool suite_mismatch_op(struct rank_seat *seat)
{
    float in[100] = {0}, out[100];
    shoal_reduce op = seat->rank == 1 ? SHOAL_MAX : SHOAL_SUM;
    EXPECT(shoal_all_reduce(seat->group, in, out, 12, SHOAL_F32, op, NULL) == SHOAL_EMISMATCH);
    EXPECT(says(seat->host ? " posted all_reduce of 12 F32 with sum at"
                           : "rank 0 posted all_reduce of 12 F32 with sum at") &&
           says("rank 1 posted all_reduce of 12 F32 with max at") &&
           (says("they differ in operation (sum and max)") || seat->host));
    return true;
}

bool suite_mismatch_matrix(struct rank_seat *seat)
{
    float in[100] = {0}, out[100];
    int64_t send[64], recv[64];
    for (int32_t r = 0; r < seat->size; r++)
        send[r] = recv[r] = 3;
    if (seat->rank == 1)
        send[0] = 4;
    EXPECT(shoal_all_to_all_v(seat->group, in, send, out, recv, SHOAL_F32, NULL) ==
           SHOAL_EMISMATCH);
    EXPECT(says("4 elements for rank 0") && says("room for 3 from rank 1"));
    return true;
}

bool suite_mismatch_message(struct rank_seat *seat)
{
    float data[100] = {0};
    shoal_status status = SHOAL_OK;
    if (seat->rank == 0)
        status = shoal_send_at("a.c:1", seat->group, data, 50, SHOAL_F32, 1, NULL);
    else if (seat->rank == 1)
        status = shoal_recv_at("b.c:2", seat->group, data, 40, SHOAL_F32, 0, NULL);
    EXPECT(status == SHOAL_EMISMATCH || (seat->rank != 1 && status == SHOAL_OK));
    EXPECT(shoal_barrier(seat->group) == SHOAL_EMISMATCH);
    EXPECT(
        says("rank 0 posted send of 50 F32 at a.c:1, rank 1 posted recv of 40 F32 at b.c:2; they "
             "differ in count (50 and 40): "));
    return true;
}

/* Of the same size, and of something else. */
bool suite_mismatch_data(struct rank_seat *seat)
{
    float data[50] = {0};
    shoal_status status = SHOAL_OK;
    const struct shoali_post send = {.kind = SHOALI_SEND,
                                     .here = "a.c:1",
                                     .in = data,
                                     .count = 50,
                                     .dtype = SHOAL_F32,
                                     .peer = 1,
                                     .tag = 7};
    const struct shoali_post recv = {.kind = SHOALI_RECV,
                                     .here = "b.c:2",
                                     .out = data,
                                     .count = 50,
                                     .dtype = SHOAL_F32,
                                     .peer = 0,
                                     .tag = 8};
    if (seat->rank < 2)
        status = shoali_comm_post(seat->group, seat->rank == 0 ? &send : &recv, NULL);
    EXPECT(status == SHOAL_EMISMATCH || (seat->rank != 1 && status == SHOAL_OK));
    EXPECT(shoal_barrier(seat->group) == SHOAL_EMISMATCH);
    EXPECT(says("rank 0 posted send of 50 F32 at a.c:1, rank 1 posted recv of 50 F32 at b.c:2: "
                "the message sent is not"));
    return true;
}

/* A rank that leaves in the middle is found out by those that go on. */
bool suite_mismatch_destroy(struct rank_seat *seat)
{
    if (seat->rank == 1)
        return true;
    EXPECT(shoal_barrier(seat->group) == SHOAL_EMISMATCH);
    EXPECT(says("shoal_comm_destroy"));
    return true;
}

bool suite_fault_points(struct rank_seat *seat)
{
    float data[4] = {0};
    shoal_request *request = NULL;
    if (seat->rank == 1)
        EXPECT(shoali_fault_arm("comm.post:1,comm.wait:0"));
    shoal_status status =
        shoal_recv(seat->group, data, 4, SHOAL_F32, (seat->rank + 1) % seat->size, &request);
    EXPECT(status == SHOAL_OK || (seat->rank != 1 && status == SHOAL_EPEER));
    if (seat->rank == 1) {
        EXPECT(shoal_barrier(seat->group) == SHOAL_EIO && says("comm.post"));
        EXPECT(shoal_request_wait(&request) == SHOAL_EIO && says("comm.wait"));
        EXPECT(shoali_fault_arm(NULL));
    } else {
        EXPECT(status == SHOAL_EPEER || shoal_request_wait(&request) == SHOAL_EPEER);
        EXPECT(says("rank 1 failed: fault point comm.wait"));
    }
    return true;
}
