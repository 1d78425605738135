#include "comm/bootstrap/stream.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/waiting.h"
#include "comm/bootstrap/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void say_no_answer(int fd, const struct shoali_waiting *waiting)
{
    char peer[80];
    SHOALI_WARN(
        "comm",
        "waiting for %.0f s for an answer of the process at %s, where the ranks meet: is it "
        "stopped, or its machine overloaded?",
        shoali_waiting_seconds(waiting), shoali_address_of_peer(fd, peer, sizeof(peer)));
}

/* Waits until the socket is ready; false, with ETIMEDOUT, at the deadline. */
static bool await(int fd, short events, int64_t deadline_ns)
{
    struct shoali_waiting waiting = {0};
    for (;;) {
        struct pollfd watched = {.fd = fd, .events = events};
        const int64_t left_ms = (deadline_ns - shoali_now_ns() + 999999) / 1000000;
        if (left_ms <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
        int ready = poll(&watched, 1, left_ms < 1000 ? (int)left_ms : 1000);
        if (ready > 0)
            return true;
        if (ready == 0 && shoali_waiting_due(&waiting, NULL))
            say_no_answer(fd, &waiting);
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

bool shoali_stream_send(int fd, const void *data, size_t bytes, int64_t deadline_ns)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!await(fd, POLLOUT, deadline_ns))
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

size_t shoali_stream_receive_some(int fd, void *data, size_t bytes, int64_t deadline_ns)
{
    for (;;) {
        ssize_t got = recv(fd, data, bytes, 0);
        if (got > 0)
            return (size_t)got;
        if (got == 0) {
            errno = ECONNRESET;
            return 0;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!await(fd, POLLIN, deadline_ns))
                return 0;
        } else if (errno != EINTR) {
            return 0;
        }
    }
}

bool shoali_stream_receive(int fd, void *data, size_t bytes, int64_t deadline_ns)
{
    for (size_t used = 0; used < bytes;) {
        size_t got = shoali_stream_receive_some(fd, (char *)data + used, bytes - used, deadline_ns);
        if (got == 0)
            return false;
        used += got;
    }
    return true;
}

/* Where nobody listens yet at a port that the system gives to clients, too, a socket may be given
 * that very port and meet itself. It would keep it from rank 0, and so would its rest: it ends
 * without one. */
static bool is_itself(int fd)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_bytes) == 0 &&
           here_bytes == there_bytes && memcmp(&here, &there, here_bytes) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0;
}

int shoali_stream_connect(const struct addrinfo *at, int64_t deadline_ns)
{
    int code = 0;
    const int on = 1;
    socklen_t length = sizeof(code);
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0)
        return -1;
    /* Or a socket that meets itself keeps the port for that moment. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        code = errno;
    if (code == EINPROGRESS && (!await(fd, POLLOUT, deadline_ns) ||
                                getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0))
        code = errno;
    if (code == 0 && is_itself(fd))
        code = ECONNREFUSED;
    if (code == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return fd;
    }
    close(fd);
    errno = code;
    return -1;
}
