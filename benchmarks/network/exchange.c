/* Measures how long two hosts take to exchange a number of bytes over one plain TCP connection, in
 * both directions at once: a lower bound for every program that uses the link. Prints medians of
 * samples; the slower end counts, as in `shoal bench comm`. The connecting end writes a line for
 * each size: bytes, microseconds.
 * Usage: exchange listen PORT
 *        exchange ADDRESS PORT MIN_BYTES MAX_BYTES FACTOR SECONDS REPEATS */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS_MAX = 101, PATIENCE_MS = 60000 };
struct order { /* the connecting end's next request */
    int64_t bytes, calls;
};

static void fail(const char *what)
{
    fprintf(stderr, "exchange: cannot %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Sends and receives the given numbers of bytes, in both directions at once. */
static void exchange(int fd, const char *out, size_t to_send, char *in, size_t to_receive)
{
    size_t sent = 0, got = 0;
    while (sent < to_send || got < to_receive) {
        struct pollfd watched = {.fd = fd};
        if (sent < to_send) {
            const ssize_t bytes = send(fd, out + sent, to_send - sent, MSG_NOSIGNAL);
            if (bytes < 0 && errno != EAGAIN)
                fail("send");
            sent += bytes > 0 ? (size_t)bytes : 0;
        }
        if (got < to_receive) {
            const ssize_t bytes = recv(fd, in + got, to_receive - got, 0);
            if (bytes == 0 || (bytes < 0 && errno != EAGAIN))
                fail("receive");
            got += bytes > 0 ? (size_t)bytes : 0;
        }
        watched.events = (short)((sent < to_send ? POLLOUT : 0) | (got < to_receive ? POLLIN : 0));
        if (watched.events && poll(&watched, 1, PATIENCE_MS) == 0)
            fail("wait longer");
    }
}

/* Returns the slower end's time for one call. */
static double sample(int fd, char *out, char *in, struct order order)
{
    char meets = 0;
    double took, other = 0;
    exchange(fd, &meets, 1, &meets, 1);
    const double start = now_us();
    for (int64_t i = 0; i < order.calls; i++)
        exchange(fd, out, (size_t)order.bytes, in, (size_t)order.bytes);
    took = (now_us() - start) / (double)order.calls;
    exchange(fd, (const char *)&took, sizeof took, (char *)&other, sizeof other);
    return took > other ? took : other;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sample_as_told(int fd, char *out, char *in, struct order order)
{
    exchange(fd, (const char *)&order, sizeof order, NULL, 0);
    return sample(fd, out, in, order);
}

static void lead(int fd, char **argv)
{
    const int64_t least = atoll(argv[3]), most = atoll(argv[4]), factor = atoll(argv[5]);
    const double seconds = atof(argv[6]);
    const int repeats = atoi(argv[7]);
    double us[REPEATS_MAX];
    char *out = calloc(2, (size_t)most);
    if (!out || repeats < 1 || repeats > REPEATS_MAX || factor < 2)
        fail("begin: is something wrong with the arguments");
    for (int64_t bytes = least; bytes <= most; bytes *= factor) {
        sample_as_told(fd, out, out + most, (struct order){bytes, 1});
        const double each = sample_as_told(fd, out, out + most, (struct order){bytes, 1});
        int64_t calls = (int64_t)(seconds * 1e6 / repeats / each);
        calls = calls < 1 ? 1 : calls;
        for (int i = 0; i < repeats; i++)
            us[i] = sample_as_told(fd, out, out + most, (struct order){bytes, calls});
        qsort(us, (size_t)repeats, sizeof us[0], by_value);
        printf("%lld %.1f\n", (long long)bytes, us[repeats / 2]);
    }
    free(out);
}

static void follow(int fd)
{
    struct order order;
    ssize_t bytes;
    while ((bytes = recv(fd, &order, sizeof order, MSG_PEEK | MSG_DONTWAIT)) != 0) {
        if (bytes < (ssize_t)sizeof order) {
            if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, PATIENCE_MS) == 0)
                fail("wait longer");
            continue;
        }
        exchange(fd, NULL, 0, (char *)&order, sizeof order);
        char *out = calloc(2, (size_t)order.bytes);
        if (!out)
            fail("have memory");
        sample(fd, out, out + order.bytes, order);
        free(out);
    }
}

int main(int argc, char **argv)
{
    const int leads = argc == 8, one = 1;
    if (!leads && !(argc == 3 && strcmp(argv[1], "listen") == 0)) {
        fputs("usage: exchange listen PORT\n"
              "       exchange ADDRESS PORT MIN_BYTES MAX_BYTES FACTOR SECONDS REPEATS\n",
              stderr);
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(argv[2]))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("open a socket");
    if (leads) {
        inet_pton(AF_INET, argv[1], &address.sin_addr);
        if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
            fail("connect");
    } else {
        const int listener = fd;
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
            listen(listener, 1) != 0 || (fd = accept(listener, NULL, NULL)) < 0)
            fail("listen");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (leads)
        lead(fd, argv);
    else
        follow(fd);
    close(fd);
    return 0;
}
