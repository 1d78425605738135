/* The link of wire.c: what is sent over it comes late, slowly, or not at all, just as it was told.
 * The two ends are sockets that this process opens in two network namespaces. */
#include "base/test_cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <net/if_arp.h>

enum {
    PORT = 4711,
    DATAGRAMS = 400,
    DATAGRAM_BYTES = 1400,
    DATAGRAM_ON_LINK = DATAGRAM_BYTES + 42,
    STREAM_BYTES = 32 << 20,
    PATIENCE_MS = 60000, /* ends a wait that would last for ever */
    LATE = 6,            /* times; the slowest of 20 runs on a busy machine: 1.03 */
    SKIPPED = 77
};

struct ends {
    pid_t host[2]; /* a process in each namespace */
    pid_t wire;
    FILE *says;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- two namespaces and the wire ------------------------------------------------------------ */

static pid_t start_host(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void enter(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(space >= 0);
    assert_int_equal(setns(space, CLONE_NEWNET), 0);
    close(space);
    /* Router solicitations would be frames that nobody has counted. */
    const int file = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        assert_int_equal(write(file, "1", 1), 1);
        close(file);
    }
}

static struct sockaddr_in address_of(int end)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    address.sin_addr.s_addr = htonl(0x0A4E000Au + (uint32_t)end); /* 10.78.0.10 */
    return address;
}

static pid_t start_wire(const pid_t host[2], const char *const *flags, FILE **says)
{
    char first[16], second[16];
    const char *argv[16] = {getenv("WIRE"), first, second};
    int ready[2], count = 3;
    assert_non_null(argv[0]);
    snprintf(first, sizeof first, "%d", (int)host[0]);
    snprintf(second, sizeof second, "%d", (int)host[1]);
    while (*flags)
        argv[count++] = *flags++;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ready[1], 1);
        close(ready[0]);
        close(ready[1]);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ready[1]);
    *says = fdopen(ready[0], "re");
    assert_non_null(*says);
    return pid;
}

/* Brings up the end that is in the present namespace; the other's hardware address is known
 * beforehand, so that nobody asks for it. */
static void bring_up(int end)
{
    struct ifreq request = {0};
    struct arpreq other = {.arp_flags = ATF_PERM | ATF_COM};
    const struct sockaddr_in own = address_of(end), theirs = address_of(1 - end);
    const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in mask = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xFFFFFF00u)};
    assert_true(control >= 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "wire%d", end);
    memcpy(&request.ifr_addr, &own, sizeof own);
    assert_int_equal(ioctl(control, SIOCSIFADDR, &request), 0);
    memcpy(&request.ifr_netmask, &mask, sizeof mask);
    assert_int_equal(ioctl(control, SIOCSIFNETMASK, &request), 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    assert_int_equal(ioctl(control, SIOCSIFFLAGS, &request), 0);
    memcpy(&other.arp_pa, &theirs, sizeof theirs);
    other.arp_ha.sa_family = ARPHRD_ETHER;
    memcpy(other.arp_ha.sa_data, "\x02wire", 5);
    other.arp_ha.sa_data[5] = (char)(1 - end);
    snprintf(other.arp_dev, sizeof other.arp_dev, "wire%d", end);
    assert_int_equal(ioctl(control, SIOCSARP, &other), 0);
    close(control);
}

static void open_ends(struct ends *ends, const char *const *flags)
{
    char line[80] = "";
    for (int end = 0; end < 2; end++) {
        ends->host[end] = start_host();
        enter(ends->host[end]);
    }
    ends->wire = start_wire(ends->host, flags, &ends->says);
    assert_non_null(fgets(line, sizeof line, ends->says));
    assert_string_equal(line, "ready\n");
    for (int end = 0; end < 2; end++) {
        enter(ends->host[end]);
        bring_up(end);
    }
}

struct said {
    long long frames, bytes, lost, dropped;
};

static void close_ends(struct ends *ends, struct said said[2])
{
    int status = 0;
    assert_int_equal(kill(ends->wire, SIGTERM), 0);
    for (int i = 0; i < 2; i++) {
        int number = -1;
        assert_int_equal(fscanf(ends->says, "%d frames %lld bytes %lld lost %lld dropped %lld\n",
                                &number, &said[i].frames, &said[i].bytes, &said[i].lost,
                                &said[i].dropped),
                         5);
        assert_int_equal(number, i);
    }
    fclose(ends->says);
    assert_int_equal(waitpid(ends->wire, &status, 0), ends->wire);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int end = 0; end < 2; end++) {
        kill(ends->host[end], SIGKILL);
        waitpid(ends->host[end], &status, 0);
    }
}

/* A bound socket in the end's namespace; datagrams are connected to the other end. */
static int open_socket(const struct ends *ends, int end, int type)
{
    const struct sockaddr_in own = address_of(end), theirs = address_of(1 - end);
    const int large = 8 << 20, one = 1;
    enter(ends->host[end]);
    const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
    assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof own), 0);
    if (type == SOCK_DGRAM)
        assert_int_equal(connect(fd, (const struct sockaddr *)&theirs, sizeof theirs), 0);
    return fd;
}

static bool comes(int fd, int within_ms)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, within_ms) == 1;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* There and back is what both directions take; a busy machine adds to most of them, not to the
 * fastest. */
static void test_delay(void **state)
{
    static const char *const flags[] = {"--delay", "5,3", NULL};
    struct ends ends;
    struct said said[2];
    double least = 1e9;
    (void)state;
    open_ends(&ends, flags);
    const int near = open_socket(&ends, 0, SOCK_DGRAM), far = open_socket(&ends, 1, SOCK_DGRAM);
    for (int i = 0; i < 30; i++) {
        char byte = (char)i;
        const double start = seconds();
        assert_int_equal(send(near, &byte, 1, 0), 1);
        assert_true(comes(far, PATIENCE_MS));
        assert_int_equal(recv(far, &byte, 1, 0), 1);
        const double there = seconds() - start;
        assert_true(there >= 0.005);
        assert_int_equal(send(far, &byte, 1, 0), 1);
        assert_true(comes(near, PATIENCE_MS));
        assert_int_equal(recv(near, &byte, 1, 0), 1);
        const double took = seconds() - start;
        assert_true(took >= 0.008);
        least = took < least ? took : least;
    }
    assert_true(least < LATE * 0.008);
    close(near);
    close(far);
    close_ends(&ends, said);
    assert_int_equal(said[0].frames, 30);
    assert_int_equal(said[1].frames, 30);
    assert_int_equal(said[0].lost + said[1].lost + said[0].dropped + said[1].dropped, 0);
}

/* Which of the datagrams come. */
static void send_over(const char *seed, bool come[DATAGRAMS])
{
    const char *const flags[] = {"--loss", "20,0", "--seed", seed, "--delay", "1", NULL};
    struct ends ends;
    struct said said[2];
    int count = 0, behind = 0;
    memset(come, 0, DATAGRAMS * sizeof *come);
    open_ends(&ends, flags);
    const int near = open_socket(&ends, 0, SOCK_DGRAM), far = open_socket(&ends, 1, SOCK_DGRAM);
    for (int i = 0; i < DATAGRAMS; i++)
        assert_int_equal(send(near, &i, sizeof i, 0), sizeof i);
    /* The link keeps the order. When one that is sent behind them comes, the others have come. */
    for (int i = 0; i != DATAGRAMS;) {
        if (!comes(far, 100)) {
            i = DATAGRAMS;
            assert_int_equal(send(near, &i, sizeof i, 0), sizeof i);
            i = 0;
            behind++;
            continue;
        }
        assert_int_equal(recv(far, &i, sizeof i, 0), sizeof i);
        assert_true(i == DATAGRAMS || (i >= 0 && i < DATAGRAMS && !come[i]));
        if (i < DATAGRAMS) {
            come[i] = true;
            count++;
        }
    }
    close(near);
    close(far);
    close_ends(&ends, said);
    assert_int_equal(said[0].frames, DATAGRAMS + behind);
    assert_in_range(said[0].lost, DATAGRAMS - count, DATAGRAMS - count + behind - 1);
    assert_int_equal(said[0].dropped, 0);
}

/* 400 of 20 %: 80 are lost, with a standard deviation of 8. */
static void test_loss(void **state)
{
    bool first[DATAGRAMS], again[DATAGRAMS], other[DATAGRAMS];
    int lost = 0;
    (void)state;
    send_over("7", first);
    send_over("7", again);
    send_over("8", other);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    for (int i = 0; i < DATAGRAMS; i++)
        lost += !first[i];
    assert_in_range(lost, 40, 120);
}

/* The last of many that are sent at once comes when the rate lets all of them through. */
static void test_rate(void **state)
{
    static const char *const flags[] = {"--rate", "20mbit,1gbit", "--segments", NULL};
    static char data[DATAGRAM_BYTES];
    const double wanted = DATAGRAMS * DATAGRAM_ON_LINK * 8 / 20e6;
    struct ends ends;
    struct said said[2];
    (void)state;
    open_ends(&ends, flags);
    const int near = open_socket(&ends, 0, SOCK_DGRAM), far = open_socket(&ends, 1, SOCK_DGRAM);
    const double start = seconds();
    for (int i = 0; i < DATAGRAMS; i++)
        assert_int_equal(send(near, data, sizeof data, 0), sizeof data);
    for (int i = 0; i < DATAGRAMS; i++) {
        assert_true(comes(far, PATIENCE_MS));
        assert_int_equal(recv(far, data, sizeof data, 0), sizeof data);
    }
    const double took = seconds() - start;
    assert_true(took > wanted * 0.99);
    assert_true(took < LATE * wanted);
    close(near);
    close(far);
    close_ends(&ends, said);
    assert_int_equal(said[0].frames, DATAGRAMS);
    assert_int_equal(said[0].bytes, DATAGRAMS * DATAGRAM_ON_LINK);
}

static unsigned char byte_at(size_t at)
{
    return (unsigned char)(at * 2654435761u >> 16);
}

static void send_stream(int fd)
{
    unsigned char data[65536];
    for (size_t at = 0; at < STREAM_BYTES; at += sizeof data) {
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = byte_at(at + i);
        for (size_t sent = 0; sent < sizeof data;) {
            const ssize_t bytes = send(fd, data + sent, sizeof data - sent, MSG_NOSIGNAL);
            if (bytes <= 0)
                _exit(1);
            sent += (size_t)bytes;
        }
    }
    _exit(0);
}

/* What a TCP stream is made of comes whole, in few large frames, and no faster than the rate. */
static void test_stream(void **state)
{
    static const char *const flags[] = {"--rate", "1gbit", "--delay", "1", NULL};
    const struct sockaddr_in theirs = address_of(1);
    struct ends ends;
    struct said said[2];
    unsigned char data[65536];
    size_t got = 0;
    int status = 0;
    (void)state;
    open_ends(&ends, flags);
    const int near = open_socket(&ends, 0, SOCK_STREAM), far = open_socket(&ends, 1, SOCK_STREAM);
    assert_int_equal(listen(far, 1), 0);
    const double start = seconds();
    assert_int_equal(connect(near, (const struct sockaddr *)&theirs, sizeof theirs), 0);
    const pid_t sender = fork();
    if (sender == 0)
        send_stream(near);
    const int come = accept4(far, NULL, NULL, SOCK_CLOEXEC);
    assert_true(come >= 0);
    while (got < STREAM_BYTES) {
        assert_true(comes(come, PATIENCE_MS));
        const ssize_t bytes = recv(come, data, sizeof data, 0);
        assert_true(bytes > 0);
        for (ssize_t i = 0; i < bytes; i++)
            assert_int_equal(data[i], byte_at(got + (size_t)i));
        got += (size_t)bytes;
    }
    assert_true(seconds() - start > STREAM_BYTES * 8 / 1e9);
    assert_int_equal(waitpid(sender, &status, 0), sender);
    assert_int_equal(status, 0);
    close(near);
    close(far);
    close(come);
    close_ends(&ends, said);
    assert_true(said[0].frames < STREAM_BYTES / 8192);
    assert_int_equal(said[0].lost, 0);
}

/* A wire whose parent is gone ends, and its devices with it. */
static void test_orphan(void **state)
{
    static const char *const flags[] = {NULL};
    struct ends ends;
    int status = 0, ids[2];
    char line[80];
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (int end = 0; end < 2; end++)
        ends.host[end] = start_host();
    assert_int_equal(pipe(ids), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        ends.wire = start_wire(ends.host, flags, &ends.says);
        const bool said = fgets(line, sizeof line, ends.says) &&
                          write(ids[1], &ends.wire, sizeof ends.wire) == sizeof ends.wire;
        _exit(!said);
    }
    assert_int_equal(read(ids[0], &ends.wire, sizeof ends.wire), sizeof ends.wire);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(status, 0);
    const double start = seconds();
    pid_t ended = 0;
    while ((ended = waitpid(ends.wire, &status, WNOHANG)) == 0 &&
           seconds() - start < PATIENCE_MS / 1000)
        usleep(10000);
    if (ended == 0)
        kill(ends.wire, SIGKILL);
    assert_int_equal(ended, ends.wire);
    for (int end = 0; end < 2; end++) {
        kill(ends.host[end], SIGKILL);
        waitpid(ends.host[end], &status, 0);
    }
    close(ids[0]);
    close(ids[1]);
}

/* A mistake is a sentence, and no device. */
static void test_mistakes(void **state)
{
    static const char *const mistakes[][3] = {
        {"--rate", "fast", NULL}, {"--delay", "1,2,3", NULL},   {"--loss", NULL, NULL},
        {"--seed", "x", NULL},    {"--queue-bytes", "1", NULL}, {"--nothing", "1", NULL}};
    const pid_t host[2] = {getpid(), getpid()};
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        int status = 0;
        FILE *says;
        const pid_t wire = start_wire(host, mistakes[i], &says);
        assert_int_equal(waitpid(wire, &status, 0), wire);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
        fclose(says);
    }
}

static int leave_out(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delay),  cmocka_unit_test(test_loss),
        cmocka_unit_test(test_rate),   cmocka_unit_test(test_stream),
        cmocka_unit_test(test_orphan), cmocka_unit_test(test_mistakes)};
    if (getuid() != 0)
        return leave_out("only root makes network namespaces");
    if (access("/dev/net/tun", R_OK | W_OK) != 0)
        return leave_out("this machine has no /dev/net/tun");
    if (unshare(CLONE_NEWNET) != 0)
        return leave_out("this machine makes no network namespaces");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
