/* Processes that are killed, stopped or misconfigured: the others get a sentence, soon, and nothing
 * stays in /dev/shm. */
#include "comm_ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static int leftovers(void)
{
    char prefix[64];
    int count = 0;
    struct dirent *entry;
    DIR *folder = opendir("/dev/shm");
    snprintf(prefix, sizeof(prefix), "shoal-%s-", getenv("SHOAL_JOB_ID"));
    while (folder && (entry = readdir(folder)))
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (folder)
        closedir(folder);
    return count;
}

static void run(bool (*function)(struct rank_seat *seat), int32_t size, int32_t killed, bool bare,
                double timeout_s)
{
    struct ranks ranks = {.kind = RANKS_SHM,
                          .size = size,
                          .run = function,
                          .killed = killed,
                          .bare = bare,
                          .timeout_s = timeout_s};
    assert_true(ranks_run(&ranks));
    assert_int_equal(leftovers(), 0);
}

/* The dead rank is noticed in a collective, and by every later call. */
static bool dies_in_all_reduce(struct rank_seat *seat)
{
    enum { COUNT = 100000 };
    static float data[COUNT];
    char name[32];
    const int32_t victim = seat->ranks->killed;
    void *shared = NULL;
    snprintf(name, sizeof(name), "rank %d (pid ", (int)victim);
    EXPECT(shoal_comm_alloc(seat->group, sizeof(data), &shared) == SHOAL_OK);
    for (int i = 0; i < 5; i++)
        EXPECT(shoal_all_reduce(seat->group, shared, shared, COUNT, SHOAL_F32, SHOAL_SUM, NULL) ==
               SHOAL_OK);
    if (seat->rank == victim)
        raise(SIGKILL);
    int64_t start_ns = shoali_now_ns();
    EXPECT(shoal_all_reduce(seat->group, data, data, COUNT, SHOAL_F32, SHOAL_SUM, NULL) ==
           SHOAL_EPEER);
    EXPECT(shoali_now_ns() - start_ns < 2000000000);
    EXPECT(says(name) && says("is gone"));
    shoali_error_clear();
    EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER && says(name));
    return true;
}

static bool dies_in_split(struct rank_seat *seat)
{
    shoal_group *child = NULL;
    EXPECT(shoali_fault_arm("comm.split@1=kill"));
    EXPECT(shoal_comm_split(seat->group, 0, 0, &child) == SHOAL_EPEER);
    EXPECT(says("rank 1 (pid ") && child == NULL);
    return true;
}

static bool dies_before_send(struct rank_seat *seat)
{
    float data[4];
    shoal_request *request = NULL;
    if (seat->rank == 1)
        raise(SIGKILL);
    EXPECT(shoal_recv(seat->group, data, 4, SHOAL_F32, 1, &request) == SHOAL_OK);
    shoal_status status;
    while ((status = shoal_request_test(&request)) == SHOAL_IN_PROGRESS)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    EXPECT(status == SHOAL_EPEER && says("is gone") && request == NULL);
    return true;
}

/* Nothing more is expected of a rank that has left in good order. */
static bool leaves_early(struct rank_seat *seat)
{
    shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    EXPECT(shoal_comm_init(&args, &seat->group) == SHOAL_OK);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    if (seat->rank > 0)
        return true; /* destroys and exits at once */
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    return true;
}

static bool joins_twice(struct rank_seat *seat)
{
    for (int i = 0; i < 3; i++) {
        shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
        EXPECT(shoal_comm_init(&args, &seat->group) == SHOAL_OK);
        EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        shoal_comm_destroy(seat->group);
        seat->group = NULL;
    }
    return true;
}

static bool without_memory(struct rank_seat *seat)
{
    shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    EXPECT(shoali_fault_arm("comm.segment"));
    shoal_status status = shoal_comm_init(&args, &seat->group);
    EXPECT(status == (seat->rank == 0 ? SHOAL_ENOMEM : SHOAL_EPEER) && seat->group == NULL);
    EXPECT(says("cannot share") && says("/dev/shm has") && says("--shm-size"));
    EXPECT(seat->rank == 0 || says("rank 0 failed"));
    return true;
}

static bool without_memory_later(struct rank_seat *seat)
{
    void *memory = NULL;
    shoal_group *child = NULL;
    EXPECT(shoali_fault_arm("comm.segment@0,comm.segment:1@0"));
    EXPECT(shoal_comm_alloc(seat->group, 100, &memory) == SHOAL_ENOMEM);
    EXPECT(says("rank 0: cannot share"));
    EXPECT(shoal_comm_split(seat->group, seat->rank % 2, 0, &child) == SHOAL_ENOMEM);
    EXPECT(shoal_comm_split(seat->group, seat->rank % 2, 0, &child) == SHOAL_OK);
    EXPECT(shoal_barrier(child) == SHOAL_OK);
    shoal_comm_destroy(child);
    return true;
}

static bool different_world_sizes(struct rank_seat *seat)
{
    shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    args.world_size += seat->rank == 2;
    shoal_status status = shoal_comm_init(&args, &seat->group);
    EXPECT(status == (seat->rank == 2 ? SHOAL_EINVAL : SHOAL_EPEER));
    EXPECT(says("rank 2 was told of 4 ranks, rank 0 of 3") && says("WORLD_SIZE"));
    return true;
}

static bool same_rank_twice(struct rank_seat *seat)
{
    shoal_comm_args args = ranks_args(seat->ranks, seat->rank == 2 ? 1 : seat->rank);
    EXPECT(shoal_comm_init(&args, &seat->group) < 0);
    EXPECT(says("two processes are rank 1"));
    return true;
}

static bool one_is_absent(struct rank_seat *seat)
{
    shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    if (seat->rank == 1)
        return true;
    EXPECT(shoal_comm_init(&args, &seat->group) < 0);
    EXPECT(says("of 3 ranks these did not join within 0.3 s: 1"));
    return true;
}

static bool joins_by_environment(struct rank_seat *seat)
{
    char text[16];
    shoal_comm_args args = {0};
    snprintf(text, sizeof(text), "%d", (int)seat->rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", (int)seat->size);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof(text), "%d", (int)seat->ranks->port);
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("DEEPSPEED_TIMEOUT", "0.5", 1);
    EXPECT(shoal_comm_init(&args, &seat->group) == SHOAL_OK);
    EXPECT(shoal_comm_rank(seat->group) == seat->rank);
    EXPECT(shoal_comm_size(seat->group) == seat->size);
    EXPECT(strcmp(shoal_comm_backend(seat->group), "shm") == 0);
    EXPECT(shoali_context_get()->rank == seat->rank);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    return true;
}

static void killed_ranks(void **state)
{
    (void)state;
    run(dies_in_all_reduce, 2, 1, false, 0);
    run(dies_in_all_reduce, 7, 3, false, 0);
    run(dies_in_split, 3, 1, false, 0);
    run(dies_before_send, 3, 1, false, 0);
}

static void orderly_ends(void **state)
{
    (void)state;
    run(leaves_early, 4, 0, true, 0);
    run(joins_twice, 3, 0, true, 0);
    run(joins_by_environment, 3, 0, true, 0);
}

static void too_little_memory(void **state)
{
    (void)state;
    run(without_memory, 3, 0, true, 0);
    run(without_memory_later, 4, 0, false, 0);
}

static void wrong_environment(void **state)
{
    (void)state;
    run(different_world_sizes, 3, 0, true, 0);
    run(same_rank_twice, 3, 0, true, 0);
    run(one_is_absent, 3, 0, true, 0.3);
}

static shoal_status init(const shoal_comm_args *args)
{
    shoal_group *group = NULL;
    shoal_status status = shoal_comm_init(args, &group);
    shoal_comm_destroy(group);
    return status;
}

static void wrong_arguments(void **state)
{
    (void)state;
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .backend = "carrier-pigeon"}),
                     SHOAL_EINVAL);
    assert_true(says("carrier-pigeon") && says("self, thread or shm"));
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .rank = 2}), SHOAL_EINVAL);
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .backend = "self"}), SHOAL_EINVAL);
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .backend = "thread"}), SHOAL_EINVAL);
    assert_true(says("shoal_thread_world_create"));
    assert_int_equal(init(&(shoal_comm_args){.world_size = 65, .backend = "shm"}),
                     SHOAL_EUNSUPPORTED);
    setenv("WORLD_SIZE", "many", 1);
    assert_int_equal(init(&(shoal_comm_args){0}), SHOAL_EINVAL);
    assert_true(says("WORLD_SIZE=\"many\""));
    unsetenv("WORLD_SIZE");
    assert_int_equal(init(&(shoal_comm_args){0}), SHOAL_OK);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int32_t port = ranks_free_port();
    address.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .master_port = port}), SHOAL_EINVAL);
    assert_true(says("is already in use (MASTER_PORT): choose another with --master_port"));
    close(fd);
}

int main(void)
{
    char job[48];
    snprintf(job, sizeof(job), "test.%d", (int)getpid());
    setenv("SHOAL_JOB_ID", job, 1);
    unsetenv("SHOAL_COMM");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks),      cmocka_unit_test(orderly_ends),
        cmocka_unit_test(too_little_memory), cmocka_unit_test(wrong_environment),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
