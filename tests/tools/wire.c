/* wire - a link between two network namespaces with a rate, a delay and a loss, for kernels without
 * netem.
 *
 *     wire PID PID [--rate 1gbit[,100mbit]] [--delay MS[,MS]] [--loss PERCENT[,PERCENT]] [--seed N]
 *                  [--queue-bytes N] [--name NAME] [--segments]
 *
 * In the network namespace of each process it makes a TAP device, NAME0 in the first one's and
 * NAME1 in the other's (wire0 and wire1), with the addresses 02:77:69:72:65:00 and ...:01. What the
 * kernel gives one device it reads, keeps for as long as the link takes, and writes to the other
 * one. A value is of both directions, two values are of the first's and of the second's sending. It
 * says "ready", carries until SIGTERM, or until its parent ends, and then says a line for each
 * direction: frames, bytes, lost, dropped.
 *
 * TIME. A link is a queue behind a sender: a frame that comes at t leaves at
 *
 *     max(t, when the one before it has left) + bytes / rate
 *
 * and arrives `delay` later. Bytes are counted as an Ethernet would carry them, headers of every
 * segment included, without preamble and gap. A frame that finds the queue full is dropped.
 *
 * LARGE FRAMES. The devices have virtio headers and take unsegmented TCP and no check sums, as a
 * veth pair does: one read and one write for 64 KiB, and 1 Gbit/s costs a few percent of a core.
 * --segments turns that off: a frame is then a packet, which is what a loss in percent is usually
 * meant of.
 *
 * LOSS is a function of the seed, the direction and the frame's number alone.
 *
 * One thread for each direction: between two reads it sleeps until the next frame comes or is
 * due. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    FRAME_BYTES = 65536 + 64, /* the largest, with its headers */
    BATCH = 16,               /* frames that are read before those that are due go out */
    QUEUE_BYTES = 64 << 20,
    ETHERNET_BYTES = 14
};

/* Frames lie one behind the other in a ring; one that would not fit before the end begins at 0. */
struct frame {
    int64_t due_ns;
    uint32_t bytes; /* with the virtio header; 0: the rest of the ring is not used */
    uint32_t zero;
    unsigned char data[];
};
struct direction {
    int from, to, number;
    double ns_per_byte; /* 0: as fast as it comes */
    int64_t delay_ns;
    double loss; /* 0 to 1 */
    uint64_t seed;
    unsigned char *ring;
    size_t ring_bytes, head, tail, used;
    int64_t left_ns; /* when the last frame has left */
    _Atomic int64_t frames, bytes, lost, dropped;
};
struct options {
    int pid[2];
    double bits[2], delay_ms[2], loss[2];
    uint64_t seed;
    size_t queue_bytes;
    const char *name;
    bool segments;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the link ------------------------------------------------------------------------------- */

/* Vigna's splitmix64 of the frame's number. */
static bool is_lost(const struct direction *self, uint64_t frame)
{
    uint64_t x = self->seed + 0x9E3779B97F4A7C15u * (2 * frame + (uint64_t)self->number + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 11) < self->loss * 9007199254740992.0; /* 2^53 */
}

/* Bytes of a frame on an Ethernet: an unsegmented one is several there, each with its headers. */
static double bytes_on_link(const unsigned char *data, size_t bytes)
{
    struct virtio_net_hdr virtio;
    memcpy(&virtio, data, sizeof virtio);
    const size_t frame = bytes - sizeof virtio;
    const size_t transport = sizeof virtio + virtio.csum_start;
    if (virtio.gso_type == VIRTIO_NET_HDR_GSO_NONE || virtio.gso_size == 0 ||
        transport + 20 > bytes)
        return (double)frame;
    const size_t headers = virtio.csum_start + (size_t)(data[transport + 12] >> 4) * 4;
    if (headers >= frame)
        return (double)frame;
    const size_t segments = (frame - headers + virtio.gso_size - 1) / virtio.gso_size;
    return (double)(frame + (segments - 1) * headers);
}

static size_t frame_bytes(size_t bytes)
{
    return (sizeof(struct frame) + bytes + 63) / 64 * 64;
}

/* Room for the largest frame, NULL: there is none. */
static struct frame *reserve(struct direction *self)
{
    const size_t most = frame_bytes(FRAME_BYTES), to_end = self->ring_bytes - self->head;
    if (to_end < most) {
        if (self->used + to_end + most > self->ring_bytes)
            return NULL;
        if (to_end > 0)
            ((struct frame *)(void *)(self->ring + self->head))->bytes = 0;
        self->used += to_end;
        self->head = 0;
    }
    if (self->used + most > self->ring_bytes)
        return NULL;
    return (struct frame *)(void *)(self->ring + self->head);
}

static void keep(struct direction *self, struct frame *frame, size_t bytes)
{
    const int64_t now = now_ns();
    if (self->left_ns < now)
        self->left_ns = now;
    self->left_ns += (int64_t)(bytes_on_link(frame->data, bytes) * self->ns_per_byte);
    frame->due_ns = self->left_ns + self->delay_ns;
    frame->bytes = (uint32_t)bytes;
    self->head += frame_bytes(bytes);
    self->used += frame_bytes(bytes);
}

/* Reads what has come; how many frames. */
static int take(struct direction *self)
{
    static _Thread_local unsigned char spare[FRAME_BYTES];
    int taken = 0;
    for (; taken < BATCH; taken++) {
        struct frame *frame = reserve(self);
        const ssize_t bytes = read(self->from, frame ? frame->data : spare, FRAME_BYTES);
        if (bytes <= (ssize_t)sizeof(struct virtio_net_hdr))
            break;
        const int64_t number = atomic_fetch_add(&self->frames, 1);
        atomic_fetch_add(&self->bytes, bytes - (ssize_t)sizeof(struct virtio_net_hdr));
        if (is_lost(self, (uint64_t)number))
            atomic_fetch_add(&self->lost, 1);
        else if (frame)
            keep(self, frame, (size_t)bytes);
        else
            atomic_fetch_add(&self->dropped, 1);
    }
    return taken;
}

/* Writes what is due; when the next one is, INT64_MAX: there is none. */
static int64_t deliver(struct direction *self)
{
    while (self->used > 0) {
        struct frame *frame = (struct frame *)(void *)(self->ring + self->tail);
        if (self->tail == self->ring_bytes || frame->bytes == 0) {
            self->used -= self->ring_bytes - self->tail;
            self->tail = 0;
            continue;
        }
        if (frame->due_ns > now_ns())
            return frame->due_ns;
        if (write(self->to, frame->data, frame->bytes) < 0) /* the device may be down */
            atomic_fetch_add(&self->dropped, 1);
        self->tail += frame_bytes(frame->bytes);
        self->used -= frame_bytes(frame->bytes);
    }
    return INT64_MAX;
}

static void *carry(void *argument)
{
    struct direction *self = argument;
    struct pollfd watched = {.fd = self->from, .events = POLLIN};
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        const int64_t due_ns = deliver(self);
        if (take(self) > 0)
            continue;
        const int64_t wait_ns = due_ns == INT64_MAX ? 1000000000 : due_ns - now_ns();
        if (wait_ns > 0)
            (void)ppoll(&watched, 1, &(struct timespec){wait_ns / 1000000000, wait_ns % 1000000000},
                        NULL);
    }
    return NULL;
}

/* ---- devices -------------------------------------------------------------------------------- */

static void fail(const char *what, const char *of)
{
    fprintf(stderr, "wire: cannot %s %s: %s\n", what, of, strerror(errno));
    exit(1);
}

/* A device belongs to the namespace in which it was opened. */
static int open_device(const struct options *options, int end)
{
    char path[64];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(path, sizeof path, "/proc/%d/ns/net", options->pid[end]);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%.12s%d", options->name, end);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0)
        fail("enter", path);
    close(space);
    const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0)
        fail("open", "/dev/net/tun");
    if (ioctl(device, TUNSETIFF, &request) != 0)
        fail("make the device", request.ifr_name);
    const unsigned offload = options->segments ? 0 : TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    if (ioctl(device, TUNSETOFFLOAD, offload) != 0)
        fail("set what is left undone in frames of", request.ifr_name);
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    memcpy(request.ifr_hwaddr.sa_data, "\x02wire", 5);
    request.ifr_hwaddr.sa_data[5] = (char)end;
    if (ioctl(device, SIOCSIFHWADDR, &request) != 0)
        fail("set the address of", request.ifr_name);
    return device;
}

/* ---- options -------------------------------------------------------------------------------- */

static _Noreturn void refuse(const char *flag, const char *value, const char *wanted)
{
    fprintf(stderr, "wire: %s is \"%s\", not %s\n", flag, value, wanted);
    exit(2);
}

static _Noreturn void say(const char *what, const char *of)
{
    fprintf(stderr, "wire: %s%s\n", what, of);
    exit(2);
}

/* One number or two with a comma; after each perhaps a unit. */
static void parse_two(const char *flag, const char *text, const char *wanted, bool rate,
                      double value[2])
{
    static const struct {
        const char *name;
        double bits;
    } units[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}};
    const char *at = text;
    for (int i = 0; i < 2; i++) {
        char *end;
        value[i] = strtod(at, &end);
        if (end == at || !(value[i] >= 0))
            refuse(flag, text, wanted);
        at = end;
        for (size_t u = 0; rate && u < sizeof units / sizeof units[0]; u++)
            if (strncmp(at, units[u].name, 4) == 0) {
                value[i] *= units[u].bits;
                at += 4;
                break;
            }
        if (i == 0 && *at == '\0') {
            value[1] = value[0];
            return;
        }
        if (*at++ != (i == 0 ? ',' : '\0'))
            refuse(flag, text, wanted);
    }
}

static void parse_flag(const char *flag, const char *value, struct options *options)
{
    char *end = NULL;
    if (strcmp(flag, "--rate") == 0)
        parse_two(flag, value, "a rate like 1gbit or 100mbit, or two with a comma", true,
                  options->bits);
    else if (strcmp(flag, "--delay") == 0)
        parse_two(flag, value, "milliseconds, or two with a comma", false, options->delay_ms);
    else if (strcmp(flag, "--loss") == 0)
        parse_two(flag, value, "percent, or two with a comma", false, options->loss);
    else if (strcmp(flag, "--name") == 0)
        options->name = value;
    else if (strcmp(flag, "--seed") == 0)
        options->seed = strtoull(value, &end, 10);
    else if (strcmp(flag, "--queue-bytes") == 0)
        options->queue_bytes = strtoull(value, &end, 10);
    else
        say("there is no flag ", flag);
    if (end && (*end || end == value))
        refuse(flag, value, "a number");
}

static struct options parse(int argc, char **argv)
{
    struct options options = {.name = "wire", .queue_bytes = QUEUE_BYTES};
    if (argc < 3) {
        fputs("usage: wire PID PID [--rate R] [--delay MS] [--loss PERCENT] [--seed N]\n"
              "            [--queue-bytes N] [--name NAME] [--segments]\n",
              stderr);
        exit(2);
    }
    for (int i = 0; i < 2; i++) {
        char *end;
        options.pid[i] = (int)strtol(argv[1 + i], &end, 10);
        if (*end || options.pid[i] <= 0)
            refuse("a process", argv[1 + i], "the id of one in the namespace");
    }
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--segments") == 0) {
            options.segments = true;
            continue;
        }
        if (i + 1 == argc)
            say("no value behind ", argv[i]);
        parse_flag(argv[i], argv[i + 1], &options);
        i++;
    }
    if (options.queue_bytes < 4 * FRAME_BYTES)
        say("a queue needs room for four frames of 64 KiB: ", "--queue-bytes is too small");
    return options;
}

static void begin(struct direction *self, const struct options *options, const int device[2],
                  int number)
{
    pthread_t thread;
    *self = (struct direction){.from = device[number],
                               .to = device[1 - number],
                               .number = number,
                               .ns_per_byte =
                                   options->bits[number] > 0 ? 8e9 / options->bits[number] : 0,
                               .delay_ns = (int64_t)(options->delay_ms[number] * 1e6),
                               .loss = options->loss[number] / 100,
                               .seed = options->seed,
                               .ring_bytes = options->queue_bytes / 64 * 64};
    /* Pages that are never needed are never there. */
    self->ring =
        mmap(NULL, self->ring_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (self->ring == MAP_FAILED)
        fail("have memory for", "a queue");
    errno = pthread_create(&thread, NULL, carry, self);
    if (errno)
        fail("start", "a thread");
}

int main(int argc, char **argv)
{
    static struct direction direction[2];
    const pid_t parent = getppid();
    const struct options options = parse(argc, argv);
    sigset_t ends;
    int device[2], signal_number;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        return 1;
    for (int end = 0; end < 2; end++)
        device[end] = open_device(&options, end);
    for (int number = 0; number < 2; number++)
        begin(&direction[number], &options, device, number);
    puts("ready");
    fflush(stdout);
    sigwait(&ends, &signal_number);
    for (int number = 0; number < 2; number++) {
        const struct direction *self = &direction[number];
        printf("%d frames %lld bytes %lld lost %lld dropped %lld\n", number,
               (long long)self->frames, (long long)self->bytes, (long long)self->lost,
               (long long)self->dropped);
    }
    return 0;
}
