/* Ranks of a large job meet over TCP, as threads of this process: who is connected to whom, how
 * many messages that takes, and what is said when one of them dies, never comes, comes twice, or
 * runs out of memory. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "comm/bootstrap/tree.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(SHOALI_TSAN)
enum { MOST = 256 }; /* it watches every pair of threads */
#else
enum { MOST = 1024 };
#endif
enum { PASSING = 128 + 32, WATCHDOG_S = 150 };

struct seat {
    int32_t rank, size, done, took;
    double timeout_s;
    bool absent, fired;
    const char *fault; /* of the exchange; NULL: none */
    int64_t messages;
    int32_t connections, most;
    shoal_status status;
    char sentence[512];
    pthread_t thread;
};
static struct seat seats[MOST + 1];
static char where[64];
static struct shoali_credentials credentials = {.key = "a secret of the tests", .job = "test"};
static pthread_barrier_t everybody;
static bool all_come; /* nothing is to go wrong */
static bool together; /* no rank leaves before the others have their result */

static void find_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    close(fd);
    snprintf(where, sizeof where, "127.0.0.1:%d", ntohs(address.sin_port));
}

static uint64_t value_of(int32_t rank)
{
    return (uint64_t)rank * UINT64_C(0x9e3779b97f4a7c15);
}

static shoal_status take(void *user, int32_t rank, const void *value, size_t bytes)
{
    struct seat *seat = user;
    uint64_t number = 0;
    memcpy(&number, value, bytes < sizeof number ? bytes : sizeof number);
    if (number != value_of(rank))
        return SHOAL_FAIL(SHOAL_EINTERNAL, "rank %d's value is another", (int)rank);
    seat->took++;
    return SHOAL_OK;
}

static shoal_status open_store(const struct seat *seat, struct shoali_store **store)
{
    return shoali_store_open(&(struct shoali_store_args){.kind = "tree",
                                                         .where = where,
                                                         .rank = seat->rank,
                                                         .size = seat->done,
                                                         .credentials = &credentials,
                                                         .timeout_s = seat->timeout_s},
                             store);
}

static void give_up(struct seat *seat, struct shoali_store *store)
{
    char sentence[700];
    snprintf(seat->sentence, sizeof seat->sentence, "%s", shoal_error_message());
    snprintf(sentence, sizeof sentence, "rank %d failed: %s", (int)seat->rank, seat->sentence);
    if (store && seat->status != SHOAL_EPEER)
        shoali_store_abort(store, sentence);
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    struct shoali_store *store = NULL;
    uint64_t own[8] = {value_of(seat->rank)};
    struct shoali_exchange exchange = {.name = "test/all",
                                       .rank = seat->rank,
                                       .size = seat->size,
                                       .own = own,
                                       .bytes = sizeof own,
                                       .take = take,
                                       .user = seat};
    seat->status = open_store(seat, &store);
    (void)shoali_fault_arm(seat->fault);
    if (seat->status == SHOAL_OK)
        seat->status = shoali_store_exchange(store, &exchange);
    seat->fired = seat->fault && shoali_fault_left() < 0;
    (void)shoali_fault_arm(NULL);
    if (seat->status < 0) {
        give_up(seat, store);
    } else if (all_come) {
        seat->messages = exchange.messages;
        pthread_barrier_wait(&everybody); /* as the first barrier of a world */
        shoali_store_count_connections(store, &seat->connections, &seat->most);
        pthread_barrier_wait(&everybody);
    }
    if (together)
        pthread_barrier_wait(&everybody);
    shoali_store_close(store);
    return NULL;
}

static void prepare(int32_t size, double timeout_s)
{
    find_port();
    for (int32_t r = 0; r <= size; r++)
        seats[r] = (struct seat){.rank = r, .size = size, .done = size, .timeout_s = timeout_s};
}

/* `count`: seats[size] may be one more. */
static void run(int32_t count)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    for (int32_t r = 0; r < count; r++)
        if (!seats[r].absent)
            assert_int_equal(pthread_create(&seats[r].thread, &attributes, sit, &seats[r]), 0);
    for (int32_t r = 0; r < count; r++)
        if (!seats[r].absent)
            pthread_join(seats[r].thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void meet(int32_t size)
{
    int64_t messages = 0;
    int32_t connections = 0, most = 0;
    prepare(size, 100);
    pthread_barrier_init(&everybody, NULL, (unsigned)size);
    all_come = true;
    run(size);
    all_come = false;
    pthread_barrier_destroy(&everybody);
    for (int32_t r = 0; r < size; r++) {
        const struct seat *seat = &seats[r];
        if (seat->status != SHOAL_OK || seat->took != size)
            fail_msg("rank %d: %s", (int)r, seat->sentence);
        messages = seat->messages > messages ? seat->messages : messages;
        connections = seat->connections > connections ? seat->connections : connections;
        most = seat->most > most ? seat->most : most;
    }
    printf(
        "%d ranks: at most %lld messages of a rank, %d connections to one, %d while they joined\n",
        (int)size, (long long)messages, (int)connections, (int)most);
    const int64_t pieces = (int64_t)size * (64 + 8) / 65536 + 1; /* of a bundle */
    assert_true(messages <= SHOALI_TREE_FANOUT + 3 * pieces);
    assert_true(connections <= SHOALI_TREE_FANOUT);
    assert_true(connections == (size - 1 < SHOALI_TREE_FANOUT ? size - 1 : SHOALI_TREE_FANOUT));
    assert_true(most <= PASSING);
}

static void test_sizes(void **state)
{
    (void)state;
    meet(1);
    meet(2);
    meet(33);
    meet(34);
    meet(256);
}

static void test_thousand(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < 6 * MOST || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        skip(); /* both ends of every connection are here */
    meet(MOST);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* A verdict of all who came, naming one rank. */
static void expect_sentence(int32_t count, const char *text, const char *other)
{
    for (int32_t r = 0; r < count; r++)
        if (!seats[r].absent && (seats[r].status >= 0 || (!strstr(seats[r].sentence, text) &&
                                                          !strstr(seats[r].sentence, other))))
            fail_msg("rank %d: %d, %s", (int)r, (int)seats[r].status, seats[r].sentence);
}

/* A process of its own has this rank, joins, and is killed. Ranks that did not notice would wait
 * for a minute, and say so. */
static void kill_one(int32_t rank, const char *text, const char *other)
{
    enum { SIZE = 70 };
    int code = 0;
    struct shoali_store *store = NULL;
    prepare(SIZE, 60);
    seats[rank].absent = true;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const bool joined = open_store(&seats[rank], &store) == SHOAL_OK;
        nanosleep(&(struct timespec){0, 500000000}, NULL); /* others meet at it */
        raise(joined ? SIGKILL : SIGTERM);
    }
    run(SIZE);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL);
    expect_sentence(SIZE, text, other);
}

static void test_killed(void **state)
{
    (void)state;
    kill_one(40, "rank 40 (pid ", "rank 40 (pid ");
    kill_one(1, "rank 1 (pid ", "rank 1, at which rank");
}

static void test_absent(void **state)
{
    (void)state;
    prepare(70, 2);
    seats[40].absent = true;
    run(70);
    expect_sentence(70, "of 70 ranks these did not join within 2.0 s: 40", "of 70 ranks these");
    prepare(70, 2);
    seats[1].absent = true;
    run(70);
    expect_sentence(70, "of 70 ranks these did not join within 2.0 s: 1",
                    "joins, did not join within 2.0 s");
}

static void test_mistakes(void **state)
{
    (void)state;
    prepare(70, 60);
    seats[70].rank = 40;
    seats[69].absent = true; /* or all are there before a second one comes that is late */
    run(71);
    expect_sentence(71, "two processes are rank 40", "RANK must be different on every process");
    prepare(70, 60);
    seats[50].done = 71;
    run(70);
    expect_sentence(70, "rank 50 expects 71 ranks", "expects 70: WORLD_SIZE must be the same");
}

/* Without the secret nobody gets a seat, at rank 0 or further down. */
static void test_strangers(void **state)
{
    (void)state;
    struct shoali_store *store = NULL, *up = NULL;
    prepare(2, 2);
    assert_int_equal(open_store(&seats[0], &store), SHOAL_OK);
    const struct shoali_credentials right = credentials;
    credentials.key[0]++;
    assert_int_equal(open_store(&seats[1], &up), SHOAL_EINVAL);
    credentials = right;
    assert_non_null(strstr(shoal_error_message(), "does not have the secret of rank 0"));
    shoali_store_close(store);
}

/* Each allocation of a rank's exchange may fail: the rank says so, and the other one learns it. */
static void memory_runs_out(int32_t rank)
{
    int failed = 0;
    pthread_barrier_init(&everybody, NULL, 2);
    together = true;
    for (bool again = true; again;) {
        char point[32];
        snprintf(point, sizeof point, "alloc:%d", failed++);
        prepare(2, 10);
        seats[rank].fault = point;
        run(2);
        again = seats[rank].fired;
        assert_int_equal(seats[rank].status, again ? SHOAL_ENOMEM : SHOAL_OK);
        if (!again)
            assert_int_equal(seats[!rank].status, SHOAL_OK);
        else if (seats[!rank].status != SHOAL_OK) /* rank 0 may be over when rank 1 fails */
            assert_non_null(strstr(seats[!rank].sentence, "failed: cannot allocate"));
        else
            assert_int_equal(rank, 1);
    }
    together = false;
    pthread_barrier_destroy(&everybody);
    assert_true(failed > 3);
}

static void test_memory(void **state)
{
    (void)state;
    memory_runs_out(0);
    memory_runs_out(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_killed),
        cmocka_unit_test(test_absent),    cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_thousand),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
