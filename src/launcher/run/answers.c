/* Whether the other side of this host's launcher still answers. A launcher that pdsh, an mpirun or
 * srun has started receives nothing from the front. Its words to the front travel once a second
 * over a TCP connection of its daemon, and the kernel knows when the last acknowledgement came. So
 * a host that has lost its network finds out alone, whatever has started it, without a port of its
 * own. The kernel acknowledges for a front that is stopped, too: only a silent network counts.
 *
 * The connections are
 *   pdsh          the one of SSH_CONNECTION: sshd's, which belong to another user
 *   mpirun, srun  those that the parent of this process has open, and those to
 *                 SLURM_LAUNCH_NODE_IPADDR
 */
#include "launcher/run/run.h"

#include "base/plain.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    INODES_MAX = 256,
    PEERS_MAX = 128,
    MESSAGE_BYTES = 16384,
    ESTABLISHED = 1,  /* state of TCP */
    REPEATS_LEAST = 3 /* in vain, which takes more than a second */
};
static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

/* An address as IPv6 has it, and what all connections to it say together. */
struct peer {
    unsigned char address[16];
    bool waits;          /* a connection of the daemon has repeated something in vain */
    int64_t received_ms; /* since the last acknowledgement on any connection */
};
struct answers {
    uint32_t inode[INODES_MAX]; /* sockets of the daemon */
    int32_t inodes;
    struct peer peer[PEERS_MAX];
    int32_t peers;
};

static struct peer *peer_of(struct answers *answers, const unsigned char address[16], bool add)
{
    for (int32_t i = 0; i < answers->peers; i++)
        if (memcmp(answers->peer[i].address, address, 16) == 0)
            return &answers->peer[i];
    if (!add || answers->peers == PEERS_MAX)
        return NULL;
    struct peer *peer = &answers->peer[answers->peers++];
    *peer = (struct peer){.received_ms = INT64_MAX};
    memcpy(peer->address, address, 16);
    return peer;
}

/* ---- whose connections ---------------------------------------------------------------------- */
static void map_address(const void *raw, bool six, unsigned char address[16])
{
    memcpy(address, mapped, sizeof(mapped));
    memcpy(six ? address : address + sizeof(mapped), raw, six ? 16 : 4);
}

static void add_named(struct answers *answers, const char *text)
{
    unsigned char raw[16], address[16];
    char word[64];
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(text, " %"), text);
    const bool six = strchr(word, ':') != NULL;
    if (inet_pton(six ? AF_INET6 : AF_INET, word, raw) != 1)
        return;
    map_address(raw, six, address);
    (void)peer_of(answers, address, true);
}

static void add_sockets(struct answers *answers, int32_t pid)
{
    char path[64], target[64];
    const struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    while (folder && answers->inodes < INODES_MAX && (entry = readdir(folder))) {
        const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (length > 0 && strncmp(target, "socket:[", 8) == 0)
            answers->inode[answers->inodes++] = (uint32_t)strtoul(target + 8, NULL, 10);
    }
    if (folder)
        closedir(folder);
}

static bool is_of_daemon(const struct answers *answers, uint32_t inode)
{
    bool found = false;
    for (int32_t i = 0; i < answers->inodes && !found; i++)
        found = answers->inode[i] == inode;
    return found;
}

/* ---- what the kernel knows of them ---------------------------------------------------------- */
static void take_connection(struct answers *answers, const struct nlmsghdr *header, bool pass)
{
    const struct inet_diag_msg *message = NLMSG_DATA(header);
    struct tcp_info info = {0};
    unsigned char address[16];
    const char *end = (const char *)header + header->nlmsg_len;
    const char *at = (const char *)header + NLMSG_LENGTH(sizeof(*message));
    for (const struct rtattr *part;
         (part = (const void *)at),
         at + sizeof(*part) <= end && part->rta_len >= sizeof(*part) && at + part->rta_len <= end;
         at += RTA_ALIGN(part->rta_len)) {
        const size_t bytes = part->rta_len - RTA_LENGTH(0);
        if (part->rta_type == INET_DIAG_INFO)
            memcpy(&info, RTA_DATA(part), bytes < sizeof(info) ? bytes : sizeof(info));
    }
    map_address(message->id.idiag_dst, message->idiag_family == AF_INET6, address);
    if (!pass && is_of_daemon(answers, message->idiag_inode))
        (void)peer_of(answers, address, true);
    struct peer *peer = pass ? peer_of(answers, address, false) : NULL;
    if (!peer)
        return;
    peer->waits = peer->waits || (info.tcpi_unacked > 0 && info.tcpi_retransmits >= REPEATS_LEAST);
    if (info.tcpi_last_ack_recv < peer->received_ms)
        peer->received_ms = info.tcpi_last_ack_recv;
}

/* All connections of a family. pass false: finds peers; true: asks them. */
static void walk(struct answers *answers, int family, bool pass)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 wanted;
    } request = {.header = {.nlmsg_len = sizeof(request),
                            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .wanted = {.sdiag_family = (uint8_t)family,
                            .sdiag_protocol = IPPROTO_TCP,
                            .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                            .idiag_states = 1 << ESTABLISHED}};
    _Alignas(struct nlmsghdr) char message[MESSAGE_BYTES];
    ssize_t count;
    bool more = true;
    const int asked = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (asked < 0)
        return;
    more = send(asked, &request, sizeof(request), 0) == (ssize_t)sizeof(request);
    while (more && (count = recv(asked, message, sizeof(message), 0)) > 0) {
        const char *end = message + count;
        const struct nlmsghdr *part;
        for (const char *at = message; more && at + sizeof(*part) <= end;
             at += NLMSG_ALIGN(part->nlmsg_len)) {
            part = (const void *)at;
            more = part->nlmsg_type == SOCK_DIAG_BY_FAMILY && part->nlmsg_len <= end - at;
            if (more)
                take_connection(answers, part, pass);
        }
    }
    close(asked);
}

int64_t shoali_answers_silence_ns(const struct shoali_job *job)
{
    struct answers answers = {0};
    int64_t silence_ms = 0;
    const char *named = getenv(job->of_mpi ? "SLURM_LAUNCH_NODE_IPADDR" : "SSH_CONNECTION");
    if (named)
        add_named(&answers, named);
    if (job->of_mpi) {
        add_sockets(&answers, getppid());
        walk(&answers, AF_INET, false);
        walk(&answers, AF_INET6, false);
    }
    for (int i = 0; i < 2 && answers.peers > 0; i++)
        walk(&answers, i ? AF_INET6 : AF_INET, true);
    for (int32_t i = 0; i < answers.peers; i++)
        if (answers.peer[i].waits && answers.peer[i].received_ms > silence_ms)
            silence_ms = answers.peer[i].received_ms;
    return silence_ms * 1000000;
}
