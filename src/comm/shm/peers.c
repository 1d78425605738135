#include "comm/shm/shm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A pidfd becomes readable when its process ends, also while it is a zombie, and cannot be confused
 * by a number that is used again. Without pidfds (old kernels) kill(pid, 0) has to do. */
struct shoali_shm_peers {
    const struct shoali_world_shared *shared;
    int32_t rank, size;
    struct pollfd watched[SHOALI_MAX_RANKS]; /* fd -1: not watched by pidfd */
    bool gone[SHOALI_MAX_RANKS];
};

shoal_status shoali_shm_peers_create(const struct shoali_world_shared *shared, int32_t rank,
                                     int32_t size, struct shoali_shm_peers **out)
{
    struct shoali_shm_peers *peers = shoali_calloc(1, sizeof(*peers), "the watch on ranks");
    if (!peers)
        return SHOAL_ENOMEM;
    peers->shared = shared;
    peers->rank = rank;
    peers->size = size;
    for (int32_t r = 0; r < size; r++) {
        pid_t pid = atomic_load(&shared->seat[r].pid);
        peers->watched[r] = (struct pollfd){.fd = -1, .events = POLLIN};
        if (r == rank)
            continue;
        peers->watched[r].fd = (int)syscall(SYS_pidfd_open, pid, 0);
        peers->gone[r] = peers->watched[r].fd < 0 && errno == ESRCH;
    }
    *out = peers;
    return SHOAL_OK;
}

static bool is_gone(const struct shoali_shm_peers *peers, const struct pollfd *watched,
                    int32_t rank)
{
    if (watched[rank].fd >= 0)
        return (watched[rank].revents & POLLIN) != 0;
    return peers->gone[rank] ||
           (kill(atomic_load(&peers->shared->seat[rank].pid), 0) != 0 && errno == ESRCH);
}

int32_t shoali_shm_find_dead(void *user)
{
    const struct shoali_shm_peers *peers = user;
    struct pollfd watched[SHOALI_MAX_RANKS]; /* own: two threads of a rank may look at once */
    memcpy(watched, peers->watched, sizeof(watched));
    if (poll(watched, (nfds_t)peers->size, 0) < 0)
        return -1;
    for (int32_t r = 0; r < peers->size; r++)
        if (r != peers->rank && is_gone(peers, watched, r) &&
            !atomic_load(&peers->shared->seat[r].left))
            return r;
    return -1;
}

void shoali_shm_peers_close(void *user)
{
    struct shoali_shm_peers *peers = user;
    if (!peers)
        return;
    for (int32_t r = 0; r < peers->size; r++)
        if (peers->watched[r].fd >= 0)
            close(peers->watched[r].fd);
    shoali_free(peers);
}
