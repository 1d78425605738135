/* The meeting point among strangers, slow peers, other jobs and without descriptors. */
#include "base/test_cmocka.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
/* How long a connection may take to prove itself: who waits for one that does not waits longer. */
#define STRANGER_NS (3 * SECOND_NS)
/* Ends a wait that would last for ever. */
enum { PATIENCE_S = 60, PATIENCE_MS = PATIENCE_S * 1000, TRIES = 5 };

struct meeting {
    struct shoali_credentials credentials;
    struct shoali_store *store; /* of the server */
    char where[64];
    int keeper, port;
};

static int keep_port(int *keeper)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    const int yes = 1;
    *keeper = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(*keeper, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    assert_int_equal(bind(*keeper, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(*keeper, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

static shoal_status open_store(const struct meeting *meeting, const char *secret, const char *job,
                               bool server, double timeout_s, struct shoali_store **store)
{
    struct shoali_credentials credentials = {.this_machine = false};
    snprintf((char *)credentials.key, sizeof(credentials.key), "%s", secret);
    snprintf((char *)credentials.job, sizeof(credentials.job), "%s", job);
    return shoali_store_open(&(struct shoali_store_args){.kind = "tcp",
                                                         .where = meeting->where,
                                                         .server = server,
                                                         .credentials = &credentials,
                                                         .timeout_s = timeout_s},
                             store);
}

static void choose_port(struct meeting *meeting)
{
    *meeting = (struct meeting){0};
    meeting->port = keep_port(&meeting->keeper);
    snprintf(meeting->where, sizeof(meeting->where), "127.0.0.1:%d", meeting->port);
    meeting->credentials = (struct shoali_credentials){.key = "secret", .job = "job"};
}

static void open_meeting(struct meeting *meeting)
{
    choose_port(meeting);
    assert_int_equal(open_store(meeting, "secret", "job", true, PATIENCE_S, &meeting->store),
                     SHOAL_OK);
}

static void close_meeting(struct meeting *meeting)
{
    shoali_store_close(meeting->store);
    close(meeting->keeper);
}

/* A true rank comes, puts and gets. */
static int64_t time_join(const struct meeting *meeting)
{
    struct shoali_store *store = NULL;
    char value[8];
    size_t bytes = sizeof(value);
    const int64_t begin_ns = shoali_now_ns();
    if (open_store(meeting, "secret", "job", false, PATIENCE_S, &store) != SHOAL_OK)
        fail_msg("%s", shoal_error_message());
    assert_int_equal(shoali_store_put(store, "k", "v", 2), SHOAL_OK);
    assert_int_equal(shoali_store_get(store, "k", value, &bytes), SHOAL_OK);
    shoali_store_close(store);
    return shoali_now_ns() - begin_ns;
}

/* Whoever is held up by others is so each time, unlike one that a busy machine holds up. */
static void join_and_leave(const struct meeting *meeting)
{
    bool soon = false;
    for (int i = 0; i < TRIES && !soon; i++)
        soon = time_join(meeting) < STRANGER_NS;
    assert_true(soon);
}

static int connect_raw(const struct meeting *meeting)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)meeting->port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static bool receive_all(int fd, void *data, size_t bytes)
{
    return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Has the other side closed? Reads what it had said. */
static bool is_closed(int fd, int wait_ms)
{
    char scratch[256];
    for (;;) {
        struct pollfd watched = {.fd = fd, .events = POLLIN};
        if (poll(&watched, 1, wait_ms) <= 0)
            return false;
        if (recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT) <= 0)
            return true;
    }
}

/* Joins by hand, to misbehave as a member. */
static int join_raw(const struct meeting *meeting, struct shoali_session *session)
{
    unsigned char greeting[SHOALI_GREETING_BYTES], nonce[SHOALI_NONCE_BYTES] = {7};
    unsigned char proof[SHOALI_PROOF_BYTES], expected[SHOALI_MAC_BYTES], answer[SHOALI_MAC_BYTES];
    int fd = connect_raw(meeting);
    assert_true(receive_all(fd, greeting, sizeof(greeting)));
    shoali_proof_make(greeting, nonce, &meeting->credentials, proof, expected, session);
    assert_int_equal(send(fd, proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    assert_true(receive_all(fd, answer, sizeof(answer)));
    assert_memory_equal(answer, expected, sizeof(answer));
    return fd;
}

static _Atomic int strangers_named;
static void count_named(void *user, shoal_log_level level, const char *subsystem, int rank,
                        const char *text)
{
    (void)user, (void)level, (void)subsystem, (void)rank;
    strangers_named += strstr(text, "a process at 127.0.0.1 that does not know this job") != NULL;
}

static void nonsense_is_dropped(void **state)
{
    (void)state;
    struct meeting meeting;
    char words[80];
    assert_int_equal(shoal_log_configure("info", count_named, NULL), SHOAL_OK);
    open_meeting(&meeting);
    const char *const lines[] = {"GET / HTTP/1.1\r\n", "A - 3\nwhy", "P k 1\nx", "\n"};
    for (int i = 0; i < 4; i++) {
        int fd = connect_raw(&meeting);
        memset(words, 'x', sizeof(words));
        memcpy(words, lines[i], strlen(lines[i]));
        assert_int_equal(send(fd, words, sizeof(words), MSG_NOSIGNAL), sizeof(words));
        assert_true(is_closed(fd, PATIENCE_MS));
        close(fd);
    }
    join_and_leave(&meeting);
    close_meeting(&meeting);
    assert_int_equal(strangers_named, 1);
    assert_int_equal(shoal_log_configure("info", NULL, NULL), SHOAL_OK);
}

/* At each byte of the beginning somebody leaves. */
static void early_ends_harm_nobody(void **state)
{
    (void)state;
    struct meeting meeting;
    struct shoali_session session;
    unsigned char proof[SHOALI_PROOF_BYTES] = {0};
    open_meeting(&meeting);
    for (size_t bytes = 0; bytes < SHOALI_PROOF_BYTES; bytes++) {
        int fd = connect_raw(&meeting);
        if (bytes > 0)
            assert_int_equal(send(fd, proof, bytes, MSG_NOSIGNAL), bytes);
        if (bytes % 2) /* with a reset */
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(fd);
    }
    for (size_t bytes = 0; bytes < 10; bytes++) {
        int fd = join_raw(&meeting, &session);
        if (bytes > 0)
            assert_int_equal(send(fd, "P k 1000\nx", bytes, MSG_NOSIGNAL), bytes);
        close(fd);
    }
    join_and_leave(&meeting);
    close_meeting(&meeting);
}

static void idle_strangers_starve_nobody(void **state)
{
    (void)state;
    enum { MANY = 1100 };
    static int fds[MANY];
    struct meeting meeting;
    struct rlimit old, wide;
    int open_count = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    wide = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &wide) != 0)
        skip();
    open_meeting(&meeting);
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_raw(&meeting);
        if (i % 100 == 99)
            join_and_leave(&meeting);
    }
    join_and_leave(&meeting);
    for (int i = 0; i < MANY; i++) {
        open_count += !is_closed(fds[i], i < MANY - 200 ? PATIENCE_MS : 0);
        close(fds[i]);
    }
    assert_true(open_count <= 128);
    close_meeting(&meeting);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* A byte now and then keeps no connection open. */
static void slow_drip_is_cut_off(void **state)
{
    (void)state;
    struct meeting meeting;
    open_meeting(&meeting);
    const int64_t begin_ns = shoali_now_ns();
    int drip = connect_raw(&meeting), idle = connect_raw(&meeting);
    while (!is_closed(drip, 100) && shoali_now_ns() - begin_ns < PATIENCE_S * SECOND_NS)
        send(drip, "x", 1, MSG_NOSIGNAL);
    assert_true(shoali_now_ns() - begin_ns >= STRANGER_NS);
    assert_true(is_closed(drip, 0));
    assert_true(is_closed(idle, PATIENCE_MS));
    close(drip);
    close(idle);
    join_and_leave(&meeting);
    close_meeting(&meeting);
}

/* Members that ask for much and read nothing, and one that never ends its message. */
static void slow_members_delay_nobody(void **state)
{
    (void)state;
    struct meeting meeting;
    struct shoali_session session;
    unsigned char message[6 + SHOALI_MAC_BYTES];
    char *value = calloc(1, SHOALI_STORE_VALUE_BYTES);
    int fds[4];
    open_meeting(&meeting);
    assert_int_equal(shoali_store_put(meeting.store, "b", value, SHOALI_STORE_VALUE_BYTES),
                     SHOAL_OK);
    for (int i = 0; i < 3; i++) {
        fds[i] = join_raw(&meeting, &session);
        ssize_t sent = 1;
        for (int k = 0; k < 1000 && sent > 0; k++) {
            memcpy(message, "G b 0\n", 6);
            shoali_session_seal(&session, SHOALI_QUESTIONS, message, 6, message + 6);
            sent = send(fds[i], message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    fds[3] = join_raw(&meeting, &session);
    assert_int_equal(send(fds[3], "P k 1000\n", 9, MSG_NOSIGNAL), 9);
    for (int i = 0; i < 10; i++)
        join_and_leave(&meeting);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    free(value);
    close_meeting(&meeting);
}

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static void wrong_secrets_are_told(void **state)
{
    (void)state;
    struct meeting meeting;
    struct shoali_store *store = NULL;
    open_meeting(&meeting);
    assert_int_equal(open_store(&meeting, "guessed", "job", false, PATIENCE_S, &store),
                     SHOAL_EINVAL);
    assert_true(says("this rank does not have the secret of rank 0") && says("SHOAL_SECRET_FILE"));
    assert_false(says("guessed"));
    assert_null(store);
    assert_int_equal(open_store(&meeting, "secret", "another", false, 2, &store), SHOAL_ETIMEOUT);
    assert_true(says("another job meets at 127.0.0.1:") && says("--master_port"));
    join_and_leave(&meeting);
    close_meeting(&meeting);
}

/* Two jobs with one port: the second's rank waits until its own rank 0 has the place. */
struct late_server {
    struct meeting *meeting;
    struct shoali_store *store;
};

static void *take_over(void *arg)
{
    struct late_server *late = arg;
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    shoali_store_close(late->meeting->store);
    late->meeting->store = NULL;
    assert_int_equal(
        open_store(late->meeting, "second secret", "second", true, PATIENCE_S, &late->store),
        SHOAL_OK);
    return NULL;
}

static void two_jobs_take_turns(void **state)
{
    (void)state;
    struct meeting meeting;
    struct late_server late = {.meeting = &meeting};
    struct shoali_store *store = NULL;
    pthread_t thread;
    open_meeting(&meeting);
    assert_int_equal(pthread_create(&thread, NULL, take_over, &late), 0);
    assert_int_equal(open_store(&meeting, "second secret", "second", false, PATIENCE_S, &store),
                     SHOAL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(shoali_store_put(store, "k", "v", 2), SHOAL_OK);
    shoali_store_close(store);
    shoali_store_close(late.store);
    close(meeting.keeper);
}

/* Somebody else listens at the port and says `words`, then an answer that is no proof. */
struct impostor {
    int fd;
    const void *words;
    size_t bytes;
};

static void *pretend(void *arg)
{
    struct impostor *impostor = arg;
    unsigned char answer[SHOALI_MAC_BYTES] = {1}, proof[SHOALI_PROOF_BYTES];
    int fd = accept(impostor->fd, NULL, NULL);
    if (fd < 0)
        return NULL;
    send(fd, impostor->words, impostor->bytes, MSG_NOSIGNAL);
    if (receive_all(fd, proof, sizeof(proof)))
        send(fd, answer, sizeof(answer), MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

/* An answer ends the attempt at once; without one it goes on for timeout_s. */
static void meet_impostor(const void *words, size_t bytes, double timeout_s, shoal_status status,
                          const char *text)
{
    struct meeting meeting;
    struct shoali_store *store = NULL;
    pthread_t thread;
    choose_port(&meeting);
    struct impostor impostor = {.fd = meeting.keeper, .words = words, .bytes = bytes};
    assert_int_equal(listen(meeting.keeper, 8), 0);
    assert_int_equal(pthread_create(&thread, NULL, pretend, &impostor), 0);
    assert_int_equal(open_store(&meeting, "secret", "job", false, timeout_s, &store), status);
    if (!says(text))
        fail_msg("%s", shoal_error_message());
    pthread_join(thread, NULL);
    close(meeting.keeper);
}

static void impostors_learn_and_get_nothing(void **state)
{
    (void)state;
    unsigned char greeting[SHOALI_GREETING_BYTES] = "SHOAL01\n";
    char http[SHOALI_GREETING_BYTES + 1] =
        "HTTP/1.1 400 Bad Request and much more to read\r\n\r\n....";
    const struct shoali_credentials credentials = {.job = "job"};
    memcpy(greeting + SHOALI_MAGIC_BYTES, credentials.job, sizeof(credentials.job));
    meet_impostor(greeting, sizeof(greeting), PATIENCE_S, SHOAL_EINVAL,
                  "a process that does not know this job's secret answers at 127.0.0.1:");
    meet_impostor(http, SHOALI_GREETING_BYTES, 2, SHOAL_ETIMEOUT, "something that is not Shoal");
    meet_impostor("", 0, 2, SHOAL_ETIMEOUT, "does not let this rank in");
}

/* A secret of this machine alone is good for no other. */
static void other_machines_need_a_secret(void **state)
{
    (void)state;
    struct shoali_store *server = NULL, *client = NULL;
    struct meeting meeting;
    char where[64];
    choose_port(&meeting);
    meeting.credentials.this_machine = true;
    struct shoali_store_args args = {.kind = "tcp",
                                     .where = "192.0.2.1:29500", /* of no machine: RFC 5737 */
                                     .credentials = &meeting.credentials,
                                     .timeout_s = PATIENCE_S};
    assert_int_equal(shoali_store_open(&args, &client), SHOAL_EINVAL);
    assert_true(says("MASTER_ADDR=\"192.0.2.1\" is no address of this machine") &&
                says("SHOAL_SECRET_FILE"));
    args.server = true;
    assert_int_equal(shoali_store_open(&args, &server), SHOAL_EINVAL);
    /* An address of this machine is served on loopback, and found there. */
    snprintf(where, sizeof(where), "0.0.0.0:%d", meeting.port);
    args.where = where;
    assert_int_equal(shoali_store_open(&args, &server), SHOAL_OK);
    close(connect_raw(&meeting));
    snprintf(where, sizeof(where), "localhost:%d", meeting.port);
    args.server = false;
    assert_int_equal(shoali_store_open(&args, &client), SHOAL_OK);
    shoali_store_close(client);
    shoali_store_close(server);
    close(meeting.keeper);
}

/* A rank whose standard input is closed: its sockets begin at descriptor 0. */
static void descriptor_0_is_one(void **state)
{
    (void)state;
    struct shoali_store *server = NULL, *client = NULL;
    struct meeting meeting;
    char where[64];
    choose_port(&meeting);
    meeting.credentials.this_machine = true;
    snprintf(where, sizeof(where), "0.0.0.0:%d", meeting.port);
    struct shoali_store_args args = {.kind = "tcp",
                                     .where = where,
                                     .server = true,
                                     .credentials = &meeting.credentials,
                                     .timeout_s = PATIENCE_S};
    const int input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    const shoal_status served = shoali_store_open(&args, &server);
    args.server = false;
    const shoal_status joined = served == SHOAL_OK ? shoali_store_open(&args, &client) : served;
    shoali_store_close(client);
    shoali_store_close(server);
    close(meeting.keeper);
    if (input >= 0) {
        assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
        close(input);
    }
    assert_int_equal(served, SHOAL_OK);
    assert_int_equal(joined, SHOAL_OK);
}

static int64_t used_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * SECOND_NS + used.tv_nsec;
}

static int lines;
static void count_line(void *user, shoal_log_level level, const char *subsystem, int rank,
                       const char *text)
{
    (void)user;
    (void)rank;
    lines += level == SHOAL_LOG_WARNING && strcmp(subsystem, "comm") == 0 &&
             strstr(text, "Too many open files") && strstr(text, "ulimit -n");
}

/* In a process of its own: the server has no descriptor for anybody. */
static int serve_without_descriptors(const struct meeting *meeting, int go, int done)
{
    struct rlimit limit;
    struct shoali_store *store = NULL;
    char byte;
    int wrong = 0;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (shoal_log_configure("info", count_line, NULL) != SHOAL_OK ||
        open_store(meeting, "secret", "job", true, PATIENCE_S, &store) != SHOAL_OK)
        return 1;
    const int highest = dup(0);
    close(highest);
    const struct rlimit none = {.rlim_cur = (rlim_t)highest, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    const int64_t before_ns = used_ns();
    const int64_t begin_ns = shoali_now_ns();
    wrong |= write(done, "", 1) == 1 ? 0 : 2; /* the client tries now, for a while */
    wrong |= read(go, &byte, 1) == 1 ? 0 : 2;
    wrong |= used_ns() - before_ns > (shoali_now_ns() - begin_ns) / 2 ? 4 : 0;
    wrong |= shoali_store_get_trouble(store) == EMFILE ? 0 : 8;
    setrlimit(RLIMIT_NOFILE, &limit);
    wrong |= write(done, "", 1) == 1 ? 0 : 2;
    wrong |= read(go, &byte, 1) == 1 ? 0 : 2; /* it has joined */
    wrong |= shoali_store_get_trouble(store) == 0 ? 0 : 16;
    shoali_store_close(store);
    wrong |= lines == 1 ? 0 : 32;
    return wrong;
}

static void without_descriptors_nothing_spins(void **state)
{
    (void)state;
    struct meeting meeting;
    struct shoali_store *store = NULL;
    int go[2], done[2], code = -1;
    char byte;
    choose_port(&meeting);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(serve_without_descriptors(&meeting, go[0], done[1]));
    assert_int_equal(read(done[0], &byte, 1), 1);
    assert_int_equal(open_store(&meeting, "secret", "job", false, 2, &store), SHOAL_ETIMEOUT);
    if (!says("rank 0 has no file descriptor free") || !says("ulimit -n"))
        fail_msg("%s", shoal_error_message());
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(read(done[0], &byte, 1), 1);
    join_and_leave(&meeting);
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    for (int i = 0; i < 2; i++) {
        close(go[i]);
        close(done[i]);
    }
    close(meeting.keeper);
}

/* A network of this thread's own, whose clients are given one of two ports. */
static bool leave_network(void)
{
    static const char range[] = "50000 50001";
    struct ifreq link = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    bool good = unshare(CLONE_NEWNET) == 0;
    const int fd = good ? open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY) : -1;
    const int any = good ? socket(AF_INET, SOCK_DGRAM, 0) : -1;
    good = fd >= 0 && any >= 0 && write(fd, range, strlen(range)) > 0 &&
           ioctl(any, SIOCSIFFLAGS, &link) == 0;
    if (fd >= 0)
        close(fd);
    if (any >= 0)
        close(any);
    return good;
}

struct early {
    const struct meeting *meeting;
    struct shoali_store *store;
    shoal_status status;
    char sentence[512];
};

static void *come_early(void *arg)
{
    struct early *early = arg;
    early->status = open_store(early->meeting, "secret", "job", false, PATIENCE_S, &early->store);
    snprintf(early->sentence, sizeof(early->sentence), "%s", shoal_error_message());
    return NULL;
}

/* The last of the tests: it does not come back from its network. */
static void nobody_meets_himself(void **state)
{
    (void)state;
    struct meeting meeting = {.where = "127.0.0.1:50000"};
    struct early early = {.meeting = &meeting};
    pthread_t thread;
    if (!leave_network()) {
        print_message("no network of its own can be made\n");
        skip();
    }
    assert_int_equal(pthread_create(&thread, NULL, come_early, &early), 0);
    nanosleep(&(struct timespec){0, 200000000}, NULL); /* a hundred attempts */
    const shoal_status status =
        open_store(&meeting, "secret", "job", true, PATIENCE_S, &meeting.store);
    pthread_join(thread, NULL);
    if (status != SHOAL_OK || early.status != SHOAL_OK)
        fail_msg("server: %d, client: %d, %s", (int)status, (int)early.status, early.sentence);
    shoali_store_close(early.store);
    shoali_store_close(meeting.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_dropped),
        cmocka_unit_test(early_ends_harm_nobody),
        cmocka_unit_test(idle_strangers_starve_nobody),
        cmocka_unit_test(slow_drip_is_cut_off),
        cmocka_unit_test(slow_members_delay_nobody),
        cmocka_unit_test(wrong_secrets_are_told),
        cmocka_unit_test(two_jobs_take_turns),
        cmocka_unit_test(impostors_learn_and_get_nothing),
        cmocka_unit_test(other_machines_need_a_secret),
        cmocka_unit_test(descriptor_0_is_one),
        cmocka_unit_test(without_descriptors_nothing_spins),
        cmocka_unit_test(nobody_meets_himself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
