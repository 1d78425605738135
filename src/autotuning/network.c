#include "autotuning/network.h"

#include "base/str.h"

#include <math.h>
#include <string.h>

/* ---- places ---------------------------------------------------------------------------------- */

static const char *const names[SHOALI_ALGORITHM_COUNT] = {
    "best", "ring", "doubling", "tree", "rabenseifner", "two_level", "direct"};

shoal_status shoali_network_of(const shoal_plan_rates *rates, struct shoali_network *network)
{
    const char *name = rates->collective_algorithm ? rates->collective_algorithm : names[0];
    int32_t algorithm = 0;
    const double near = rates->node_bytes > 0 ? rates->node_bytes : rates->network_bytes;
    const double latency = rates->node_latency_s > 0 ? rates->node_latency_s : rates->latency_s;
    *network = (struct shoali_network){
        .near = {latency, near},
        .far = {rates->latency_s, rates->link_bytes > 0 ? rates->link_bytes : rates->network_bytes},
        .links = rates->link_bytes > 0 ? rates->links_per_node : 0,
        .ranks_per_node = rates->ranks_per_node,
    };
    while (algorithm < SHOALI_ALGORITHM_COUNT && strcmp(names[algorithm], name) != 0)
        algorithm++;
    network->algorithm = algorithm;
    if (algorithm < SHOALI_ALGORITHM_COUNT)
        return SHOAL_OK;
    network->algorithm = SHOALI_ALGORITHM_BEST;
    const char *nearest = shoali_nearest(name, names, SHOALI_ALGORITHM_COUNT);
    return SHOAL_FAIL(
        SHOAL_EINVAL,
        "unknown collective algorithm \"%s\"%s%s; give best, ring, doubling, tree, rabenseifner, "
        "two_level or direct",
        name, nearest ? "; nearest is " : "", nearest ? nearest : "");
}

void shoali_network_place_of(const shoal_mesh *mesh, shoal_axes axis, int32_t ranks_per_node,
                             struct shoali_network_place *place)
{
    const int32_t ranks = shoal_mesh_size(mesh, axis);
    int32_t near = 0;
    for (int32_t i = 0; i < ranks; i++)
        near += ranks_per_node <= 0 || shoal_mesh_member(mesh, axis, 0, i) < ranks_per_node;
    *place = (struct shoali_network_place){ranks, near, (ranks + near - 1) / near};
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double take(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

static double near_step(const struct shoali_network *network, double bytes)
{
    return network->near.latency_s + take(bytes, network->near.bytes_per_s);
}

/* `sending`: ranks of the group on a host that do so at once. */
static double far_step(const struct shoali_network *network,
                       const struct shoali_network_place *place, double bytes, int32_t sending)
{
    const double link = network->far.bytes_per_s;
    const int32_t full =
        network->ranks_per_node > place->near ? network->ranks_per_node : place->near;
    const double flows = (double)sending * full / place->near;
    const double share =
        network->links > 0 && flows > network->links ? link * network->links / flows : link;
    return network->far.latency_s + take(bytes, share);
}

static double slower(double a, double b)
{
    return a > b ? a : b;
}

/* Steps that double a distance: until all of `ranks` are reached. */
static int32_t doublings(int32_t ranks)
{
    int32_t steps = 0;
    while (steps < 31 && (int64_t)1 << steps < ranks)
        steps++;
    return steps;
}

static bool is_power(int32_t ranks)
{
    return (ranks & (ranks - 1)) == 0;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

static double ring_pass(const struct shoali_network *network,
                        const struct shoali_network_place *place, double bytes)
{
    const double part = bytes / place->ranks;
    double step = place->near > 1 ? near_step(network, part) : 0;
    if (place->hosts > 1)
        step = slower(step, far_step(network, place, part, 1));
    return (place->ranks - 1) * step;
}

/* Of a step at distance 2^index in a group that counts the ranks of each host behind each other. */
static double step_at(const struct shoali_network *network,
                      const struct shoali_network_place *place, int32_t index, double bytes)
{
    const bool far = (int64_t)1 << index >= place->near;
    return far && place->hosts > 1 ? far_step(network, place, bytes, place->near)
                                   : near_step(network, bytes);
}

/* One pass of steps by doubled distances, of halves: S/2, S/4, ... A gather is the same
 * backwards. */
static double halving_pass(const struct shoali_network *network,
                           const struct shoali_network_place *place, double bytes)
{
    double sum = 0;
    for (int32_t i = 0; i < doublings(place->ranks); i++) {
        bytes /= 2;
        sum += step_at(network, place, i, bytes);
    }
    return sum;
}

static double doubling_sum(const struct shoali_network *network,
                           const struct shoali_network_place *place, double bytes)
{
    double sum = 0;
    for (int32_t i = 0; i < doublings(place->ranks); i++)
        sum += step_at(network, place, i, bytes);
    return sum;
}

/* Ranks beyond a power of two give theirs to others before, and have it back behind. */
static double fold(const struct shoali_network *network, const struct shoali_network_place *place,
                   double bytes)
{
    return is_power(place->ranks) ? 0 : 2 * step_at(network, place, 0, bytes);
}

static double tree_pass(const struct shoali_network *network,
                        const struct shoali_network_place *place, double bytes)
{
    const double far = place->hosts > 1 ? far_step(network, place, bytes, 1) : 0;
    return doublings(place->near) * near_step(network, bytes) + doublings(place->hosts) * far;
}

/* Each to each: near ones and far ones, all ranks of a host at once. */
static double pairwise(const struct shoali_network *network,
                       const struct shoali_network_place *place, double bytes)
{
    const double part = bytes / place->ranks;
    const double far = place->hosts > 1 ? (place->ranks - place->near) *
                                              far_step(network, place, part, place->near)
                                        : 0;
    return (place->near - 1) * near_step(network, part) + far;
}

static double all_reduce_time(const struct shoali_network *network,
                              const struct shoali_network_place *place, double bytes,
                              enum shoali_algorithm algorithm);

/* Parts of a host's ranks, each over the hosts; then there is nothing near. */
static double two_level(const struct shoali_network *network,
                        const struct shoali_network_place *place, enum shoali_collective kind,
                        double bytes)
{
    static const enum shoali_algorithm among[] = {SHOALI_ALGORITHM_RING, SHOALI_ALGORITHM_TREE,
                                                  SHOALI_ALGORITHM_RABENSEIFNER};
    const struct shoali_network_place here = {place->near, place->near, 1};
    const struct shoali_network_place there = {place->hosts, 1, place->hosts};
    const double part = bytes / place->near;
    double outside = INFINITY;
    if (place->near == 1 || place->hosts == 1)
        return INFINITY; /* there are no two levels */
    if (kind != SHOALI_ALL_REDUCE)
        return ring_pass(network, &here, bytes) + ring_pass(network, &there, part);
    for (size_t i = 0; i < sizeof among / sizeof among[0]; i++) {
        const double one = all_reduce_time(network, &there, part, among[i]);
        outside = one < outside ? one : outside;
    }
    return 2 * ring_pass(network, &here, bytes) + outside;
}

static double all_reduce_time(const struct shoali_network *network,
                              const struct shoali_network_place *place, double bytes,
                              enum shoali_algorithm algorithm)
{
    switch (algorithm) {
    case SHOALI_ALGORITHM_RING:
        return 2 * ring_pass(network, place, bytes);
    case SHOALI_ALGORITHM_DOUBLING:
        return doubling_sum(network, place, bytes) + fold(network, place, bytes);
    case SHOALI_ALGORITHM_TREE:
        return 2 * tree_pass(network, place, bytes);
    case SHOALI_ALGORITHM_RABENSEIFNER:
        return 2 * halving_pass(network, place, bytes) + fold(network, place, bytes);
    case SHOALI_ALGORITHM_TWO_LEVEL:
        return two_level(network, place, SHOALI_ALL_REDUCE, bytes);
    case SHOALI_ALGORITHM_DIRECT:
        return 2 * pairwise(network, place, bytes);
    default:
        return INFINITY;
    }
}

/* A gather, or backwards a scattered sum. */
static double gather_time(const struct shoali_network *network,
                          const struct shoali_network_place *place, double bytes,
                          enum shoali_algorithm algorithm)
{
    switch (algorithm) {
    case SHOALI_ALGORITHM_RING:
        return ring_pass(network, place, bytes);
    case SHOALI_ALGORITHM_DOUBLING:
        return halving_pass(network, place, bytes) + fold(network, place, bytes) / 2;
    case SHOALI_ALGORITHM_TWO_LEVEL:
        return two_level(network, place, SHOALI_ALL_GATHER, bytes);
    case SHOALI_ALGORITHM_DIRECT:
        return pairwise(network, place, bytes);
    default:
        return INFINITY;
    }
}

/* Pairwise kinds (all_to_all) have no choice; a send goes to the next rank. INFINITY: the algorithm
 * does not do the kind. */
static double time_by(const struct shoali_network *network,
                      const struct shoali_network_place *place, enum shoali_collective kind,
                      double bytes, enum shoali_algorithm algorithm)
{
    switch (kind) {
    case SHOALI_ALL_REDUCE:
        return all_reduce_time(network, place, bytes, algorithm);
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_ALL_GATHER:
        return gather_time(network, place, bytes, algorithm);
    case SHOALI_BROADCAST:
        return algorithm == SHOALI_ALGORITHM_TREE ? tree_pass(network, place, bytes) : INFINITY;
    case SHOALI_SEND:
        /* to the next rank of a pipeline, which waits for those between hosts: one of each host */
        return place->hosts > 1 ? far_step(network, place, bytes, 1) : near_step(network, bytes);
    default:
        return pairwise(network, place, bytes);
    }
}

double shoali_network_best(const struct shoali_network *network,
                           const struct shoali_network_place *place, enum shoali_collective kind,
                           double bytes)
{
    double best = INFINITY;
    if (place->ranks <= 1)
        return 0;
    if (network->algorithm != SHOALI_ALGORITHM_BEST)
        best = time_by(network, place, kind, bytes, (enum shoali_algorithm)network->algorithm);
    if (!isinf(best))
        return best;
    for (int32_t a = SHOALI_ALGORITHM_BEST + 1; a < SHOALI_ALGORITHM_COUNT; a++) {
        const double one = time_by(network, place, kind, bytes, (enum shoali_algorithm)a);
        best = one < best ? one : best;
    }
    return best;
}

/* Counters are of what a rank sends in a ring; this is what the collective is of. */
static double whole_of(enum shoali_collective kind, double sent, int32_t ranks)
{
    const double others = (double)(ranks - 1) / ranks;
    switch (kind) {
    case SHOALI_ALL_REDUCE:
        return sent / (2 * others);
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_ALL_GATHER:
    case SHOALI_ALL_TO_ALL:
    case SHOALI_ALL_TO_ALL_V:
        return sent / others;
    default:
        return sent;
    }
}

double shoali_network_sent_time(const struct shoali_network *network,
                                const struct shoali_network_place *place,
                                const struct shoali_sent *sent)
{
    double sum = 0;
    if (place->ranks <= 1)
        return 0;
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        const enum shoali_collective kind = (enum shoali_collective)k;
        const double calls = sent->calls[k];
        if (calls > 0 && sent->bytes[k] > 0)
            sum +=
                calls * shoali_network_best(network, place, kind,
                                            whole_of(kind, sent->bytes[k] / calls, place->ranks));
    }
    return sum;
}
