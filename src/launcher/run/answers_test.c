/* How long the other side of a connection has not answered. A filter of the other side's socket
 * takes away all that comes, as a network does that is cut. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/test_cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define TICKS INT64_C(20000000) /* the kernel counts in its own ticks */
enum { WATCHDOG_S = 120 };

struct connection {
    int ours, theirs;
    char address[32]; /* nobody else's on this machine: what answers there is this connection */
};

static void connect_both(struct connection *connection)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(address);
    const int pid = (int)getpid(), listener = socket(AF_INET, SOCK_STREAM, 0);
    snprintf(connection->address, sizeof(connection->address), "127.%d.%d.%d",
             80 + (pid >> 16) % 100, (pid >> 8) & 255, pid & 255);
    assert_int_equal(inet_pton(AF_INET, connection->address, &address.sin_addr), 1);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    struct sockaddr_in from = address;
    from.sin_port = 0;
    connection->ours = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(connection->ours, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(connection->ours, (struct sockaddr *)&address, bytes), 0);
    connection->theirs = accept(listener, NULL, NULL);
    assert_true(connection->theirs >= 0);
    close(listener);
}

/* False: this machine lets only root do it. */
static bool fall_silent(const struct connection *connection)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = {.len = 1, .filter = &drop};
    if (setsockopt(connection->theirs, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) !=
        0) {
        assert_int_equal(errno, EPERM);
        return false;
    }
    assert_int_equal(write(connection->ours, "x", 1), 1);
    return true;
}

/* As an mpirun's daemon is asked about, which is the parent. */
static bool child_finds_silence(const struct shoali_job *job)
{
    int how = -1;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(shoali_answers_silence_ns(job) > 0 ? 0 : 1);
    return waitpid(pid, &how, 0) == pid && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static void test_silence(void **state)
{
    (void)state;
    struct connection connection;
    const struct shoali_job of_pdsh = {.of_mpi = false}, of_mpi = {.of_mpi = true};
    char session[64], letter;
    const int asks = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (asks < 0)
        skip();
    close(asks);
    alarm(WATCHDOG_S);
    const int64_t begin_ns = shoali_now_ns();
    connect_both(&connection);
    snprintf(session, sizeof(session), "%s 40000 127.0.0.1 22", connection.address);
    setenv("SSH_CONNECTION", session, 1);
    unsetenv("SLURM_LAUNCH_NODE_IPADDR");
    assert_int_equal(write(connection.ours, "x", 1), 1);
    assert_int_equal(read(connection.theirs, &letter, 1), 1);
    assert_int_equal(shoali_answers_silence_ns(&of_pdsh), 0);
    assert_false(child_finds_silence(&of_mpi));
    if (!fall_silent(&connection))
        skip();
    int64_t silence_ns = 0;
    while ((silence_ns = shoali_answers_silence_ns(&of_pdsh)) == 0)
        usleep(20000);
    assert_true(silence_ns > SECOND); /* some repeats in vain */
    assert_true(silence_ns <
                shoali_now_ns() - begin_ns + TICKS); /* not before there was a connection */
    assert_true(child_finds_silence(&of_mpi));
    /* of a launcher without standard input, whose number the question has */
    close(STDIN_FILENO);
    assert_true(shoali_answers_silence_ns(&of_pdsh) >= silence_ns);
    assert_int_equal(dup(STDOUT_FILENO), STDIN_FILENO); /* nothing else has taken it */
    unsetenv("SSH_CONNECTION");
    assert_int_equal(shoali_answers_silence_ns(&of_pdsh), 0);
    close(connection.ours);
    close(connection.theirs);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
