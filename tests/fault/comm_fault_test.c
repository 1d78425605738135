/* Processes that are killed, stopped or misconfigured: the others get a sentence, soon, and nothing
 * stays in /dev/shm. */
#include "comm_ranks.h"

#include "base/test_cmocka.h"
#include "comm/folder.h"
#include "comm/shm/shm.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The promise is 100 ms and a free core. The slowest of 20 runs on a busy machine took 0.06 s. */
#define SOON_NS INT64_C(10000000000)

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static int leftovers(void)
{
    char prefix[64];
    int count = 0;
    struct dirent *entry;
    char path[SHOALI_FOLDER_BYTES];
    DIR *folder = opendir(shoali_folder_path(path));
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
    EXPECT(shoali_now_ns() - start_ns < SOON_NS);
    EXPECT(says(name) && says("is gone"));
    shoali_error_clear();
    EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER && says(name));
    return true;
}

/* A rank with a name, in an instruction of a pipeline, is named with both; in a group of a few
 * ranks, too, and by those whose message it does not take. */
static bool dies_with_a_name(struct rank_seat *seat)
{
    char name[64];
    float data[4] = {0};
    shoal_group *pair = NULL;
    const int32_t victim = seat->ranks->killed;
    snprintf(name, sizeof(name), "tp %d, pp %d, dp 1", (int)seat->rank % 2, (int)seat->rank / 2);
    shoali_comm_set_name(seat->group, name);
    EXPECT(shoal_comm_split(seat->group, seat->rank / 2, seat->rank, &pair) == SHOAL_OK);
    shoali_context_get()->instruction = "send_activation";
    shoali_context_get()->micro = 3;
    shoali_context_get()->step = 6;
    shoal_status status = shoal_all_reduce(pair, data, data, 4, SHOAL_F32, SHOAL_SUM, NULL);
    if (seat->rank == victim)
        raise(SIGKILL);
    /* the others may be late enough to see the death in this sum already */
    if (status == SHOAL_OK && seat->rank / 2 == victim / 2)
        status = shoal_send(pair, data, 4, SHOAL_F32, 1 - seat->rank % 2, NULL);
    else if (status == SHOAL_OK)
        status = shoal_barrier(seat->group);
    /* a short message may be on its way before anybody looks */
    if (status == SHOAL_OK)
        status = shoal_barrier(seat->group);
    EXPECT(status == SHOAL_EPEER);
    snprintf(name, sizeof(name), ", tp %d, pp %d, dp 1) is gone", (int)victim % 2, (int)victim / 2);
    EXPECT(says(name));
    EXPECT(says("is gone, last seen in send_activation of micro-batch 3 of step 7: "));
    shoal_comm_destroy(pair);
    return true;
}

static void test_names(void **state)
{
    (void)state;
    for (int32_t victim = 1; victim < 4; victim++)
        run(dies_with_a_name, 4, victim, false, 60);
}

/* Two neighbours that do not mean the same message, and a rank that gives up. */
static bool differs_with_names(struct rank_seat *seat)
{
    char name[32];
    float data[8] = {0};
    snprintf(name, sizeof(name), "pp %d", (int)seat->rank);
    shoali_comm_set_name(seat->group, name);
    shoali_context_get()->micro = 5;
    shoali_context_get()->instruction = seat->rank == 0 ? "send_activation" : "recv_activation";
    shoal_status status = seat->rank == 0 ? shoal_send(seat->group, data, 8, SHOAL_F32, 1, NULL)
                                          : shoal_recv(seat->group, data, 6, SHOAL_F32, 0, NULL);
    if (status == SHOAL_OK) /* the sender's piece was taken before it was looked at */
        status = shoal_barrier(seat->group);
    EXPECT(status == SHOAL_EMISMATCH || status == SHOAL_EPEER);
    EXPECT(says("rank 0 (pp 0) posted send of 8 F32") &&
           says("rank 1 (pp 1) posted recv of 6 F32"));
    EXPECT(says("in recv_activation of micro-batch 5"));
    return true;
}

static bool fails_with_a_name(struct rank_seat *seat)
{
    char name[32];
    snprintf(name, sizeof(name), "pp %d", (int)seat->rank);
    shoali_comm_set_name(seat->group, name);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    shoali_context_get()->micro = 0;
    shoali_context_get()->instruction = "forward";
    if (seat->rank == 1) {
        shoal_comm_abort(seat->group, SHOAL_FAIL(SHOAL_EIO, "the disk is wet"));
        return true;
    }
    EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER);
    EXPECT(says("rank 1 (pp 1) failed in forward of micro-batch 0"));
    EXPECT(says(": the disk is wet"));
    return true;
}

static void test_names_of_what_differs(void **state)
{
    (void)state;
    run(differs_with_names, 2, -1, false, 60);
    run(fails_with_a_name, 2, -1, false, 60);
}

/* The same in a stream of a device: the collective is staged through pinned memory, and the dead
 * rank is the device's failure. */
static bool dies_in_a_stream(struct rank_seat *seat)
{
    enum { COUNT = 100000 };
    char name[32];
    struct shoali_device *device = NULL;
    struct shoali_device_stream *stream = NULL;
    void *data = NULL;
    const int32_t victim = seat->ranks->killed;
    snprintf(name, sizeof(name), "rank %d (pid ", (int)victim);
    EXPECT(shoali_device_create(&shoali_accelerator_sim, 0, NULL, &device) == SHOAL_OK);
    EXPECT(shoali_stream_create(device, &stream) == SHOAL_OK);
    EXPECT(shoali_comm_device_alloc(SHOAL_HERE, seat->group, stream, COUNT * sizeof(float),
                                    &data) == SHOAL_OK);
    const struct shoali_post post = {.kind = SHOALI_ALL_REDUCE,
                                     .here = SHOAL_HERE,
                                     .in = data,
                                     .out = data,
                                     .count = COUNT,
                                     .dtype = SHOAL_F32};
    for (int i = 0; i < 5; i++)
        EXPECT(shoali_comm_post_on(seat->group, stream, &post) == SHOAL_OK);
    EXPECT(shoali_stream_synchronize(stream) == SHOAL_OK);
    if (seat->rank == victim)
        raise(SIGKILL);
    const int64_t start_ns = shoali_now_ns();
    (void)!shoali_comm_post_on(seat->group, stream, &post);
    (void)!shoali_comm_post_on(seat->group, stream, &post);
    EXPECT(shoali_stream_synchronize(stream) == SHOAL_EPEER);
    EXPECT(shoali_now_ns() - start_ns < SOON_NS);
    EXPECT(says(name) && says("is gone"));
    shoali_error_clear();
    EXPECT(shoali_fill(stream, data, 0, 4) == SHOAL_EPEER && says(name));
    EXPECT(shoal_barrier(seat->group) == SHOAL_EPEER && says(name));
    shoali_comm_device_free(seat->group, device, data);
    shoali_stream_destroy(stream);
    shoali_device_destroy(device);
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
    EXPECT(says("rank 2 expects 4 ranks, rank 0 expects 3") && says("WORLD_SIZE"));
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
    EXPECT(says("of 3 ranks these did not join within 4.0 s: 1"));
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

/* All ranks are stopped for longer than the timeout while two of them wait, and go on as if nothing
 * had been. */
static bool stopped_together(struct rank_seat *seat)
{
    int32_t own = (int32_t)getpid(), pids[3];
    EXPECT(shoal_all_gather(seat->group, &own, pids, 1, SHOAL_I32, NULL) == SHOAL_OK);
    const pid_t helper = seat->rank == 0 ? fork() : -1;
    if (helper == 0) {
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        for (int32_t r = 0; r < seat->size; r++)
            kill(pids[r], SIGSTOP);
        nanosleep(&(struct timespec){2, 500000000}, NULL);
        for (int32_t r = 0; r < seat->size; r++)
            kill(pids[r], SIGCONT);
        _exit(0);
    }
    if (seat->rank == 1)
        nanosleep(&(struct timespec){1, 0}, NULL);
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    EXPECT(helper < 0 || waitpid(helper, NULL, 0) == helper);
    return true;
}

/* Two jobs of two ranks are given one port. Rank 1 of the second comes first to the first's rank 0.
 */
static bool two_jobs(struct rank_seat *seat)
{
    const int32_t job = seat->rank / 2, rank = seat->rank % 2;
    char name[64];
    int32_t jobs[2] = {-1, -1};
    shoal_status status;
    shoal_comm_args args = ranks_args(seat->ranks, rank);
    args.world_size = 2;
    snprintf(name, sizeof(name), "%s-%d", getenv("SHOAL_JOB_ID"), (int)job);
    setenv("SHOAL_JOB_ID", name, 1);
    if (job == 0 && rank == 1)
        nanosleep(&(struct timespec){0, 300000000}, NULL);
    if (job == 1 && rank == 0)
        nanosleep(&(struct timespec){0, 200000000}, NULL);
    while ((status = shoal_comm_init(&args, &seat->group)) == SHOAL_EINVAL &&
           says("already in use"))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    EXPECT(status == SHOAL_OK);
    EXPECT(shoal_all_gather(seat->group, &job, jobs, 1, SHOAL_I32, NULL) == SHOAL_OK);
    EXPECT(jobs[0] == job && jobs[1] == job);
    return true;
}

/* Rank 1 has no memory for one part after the other of a group; the others need not wait for it. */
static bool no_memory_in_split(struct rank_seat *seat)
{
    for (int skip = 0; skip < 6; skip++) {
        char spec[32];
        shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
        shoal_group *child = NULL;
        shoal_status status = SHOAL_OK;
        EXPECT(shoal_comm_init(&args, &seat->group) == SHOAL_OK);
        snprintf(spec, sizeof(spec), "alloc:%d", skip);
        EXPECT(seat->rank != 1 || shoali_fault_arm(spec));
        status = shoal_comm_split(seat->group, 0, 0, &child);
        EXPECT(shoali_fault_arm(NULL));
        if (seat->rank == 1) {
            EXPECT(skip > 4 ? status == SHOAL_OK : status == SHOAL_ENOMEM && !child);
        } else {
            EXPECT(status == SHOAL_OK || (skip < 5 && status == SHOAL_EPEER));
            if (status == SHOAL_OK)
                status = shoal_barrier(seat->group);
            EXPECT(skip > 4 ? status == SHOAL_OK
                            : status == SHOAL_EPEER && says("rank 1 failed: cannot allocate"));
        }
        if (seat->rank == 1 && status == SHOAL_OK)
            EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        shoal_comm_destroy(child);
        shoal_comm_destroy(seat->group);
        seat->group = NULL;
    }
    return true;
}

static void killed_ranks(void **state)
{
    static const char *const streams[] = {"late", "random", "thread"};
    (void)state;
    run(dies_in_all_reduce, 2, 1, false, 0);
    run(dies_in_all_reduce, 7, 3, false, 0);
    run(dies_in_split, 3, 1, false, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", streams[i], 1), 0);
        run(dies_in_a_stream, 2, 1, false, 0);
        run(dies_in_a_stream, 4, 3, false, 0);
    }
    assert_int_equal(unsetenv("SHOAL_SIM_STREAMS"), 0);
    run(dies_before_send, 3, 1, false, 0);
}

static void orderly_ends(void **state)
{
    (void)state;
    run(leaves_early, 4, 0, true, 0);
    run(joins_twice, 3, 0, true, 0);
    run(joins_by_environment, 3, 0, true, 0);
}

static void stopped_ranks(void **state)
{
    (void)state;
    run(stopped_together, 3, 0, false, 1.5);
}

static void one_port_for_two(void **state)
{
    (void)state;
    run(two_jobs, 4, 0, true, 0);
}

/* Of a rank without a launcher that is killed before the others have come: the next launcher knows
 * from the name that nobody needs it. */
static void segment_of_a_killed_rank(void **state)
{
    (void)state;
    struct shoali_segment segment;
    char job[48], prefix[96], path[SHOALI_FOLDER_BYTES];
    struct stat info;
    snprintf(job, sizeof(job), "%s", getenv("SHOAL_JOB_ID"));
    unsetenv("SHOAL_JOB_ID");
    assert_int_equal(shoali_shm_create(NULL, 100, &segment), SHOAL_OK);
    setenv("SHOAL_JOB_ID", job, 1);
    assert_int_equal(stat("/proc/self/ns/pid", &info), 0);
    snprintf(prefix, sizeof(prefix), "%s/shoal-%d.%lx.0-", shoali_folder_path(path), (int)getpid(),
             (unsigned long)info.st_ino);
    assert_int_equal(strncmp(segment.name, prefix, strlen(prefix)), 0);
    assert_int_equal(access(segment.name, F_OK), 0);
    shoali_shm_detach(NULL, &segment);
    assert_int_equal(access(segment.name, F_OK), -1);
}

static void too_little_memory(void **state)
{
    (void)state;
    run(no_memory_in_split, 3, 0, true, 0);
    run(without_memory, 3, 0, true, 0);
    run(without_memory_later, 4, 0, false, 0);
}

static void wrong_environment(void **state)
{
    (void)state;
    run(different_world_sizes, 3, 0, true, 0);
    run(same_rank_twice, 3, 0, true, 0);
    run(one_is_absent, 3, 0, true, 4);
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
    assert_true(says("carrier-pigeon") && says("self, thread, shm"));
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .rank = 2}), SHOAL_EINVAL);
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .backend = "self"}), SHOAL_EINVAL);
    assert_int_equal(init(&(shoal_comm_args){.world_size = 2, .backend = "thread"}), SHOAL_EINVAL);
    assert_true(says("shoal_thread_world_create"));
    assert_int_equal(init(&(shoal_comm_args){.world_size = 257, .backend = "shm"}),
                     SHOAL_EUNSUPPORTED);
    setenv("WORLD_SIZE", "many", 1);
    assert_int_equal(init(&(shoal_comm_args){0}), SHOAL_EINVAL);
    assert_true(says("WORLD_SIZE=\"many\""));
    unsetenv("WORLD_SIZE");
    assert_int_equal(init(&(shoal_comm_args){0}), SHOAL_OK);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    const int32_t port = ntohs(address.sin_port);
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
        cmocka_unit_test(test_names),        cmocka_unit_test(test_names_of_what_differs),
        cmocka_unit_test(killed_ranks),      cmocka_unit_test(orderly_ends),
        cmocka_unit_test(too_little_memory), cmocka_unit_test(wrong_environment),
        cmocka_unit_test(wrong_arguments),   cmocka_unit_test(stopped_ranks),
        cmocka_unit_test(one_port_for_two),  cmocka_unit_test(segment_of_a_killed_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
