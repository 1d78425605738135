/* What collectives take, against formulas worked out by hand; which algorithm is best when. */
#include "autotuning/network.h"
#include "base/test_cmocka.h"

#include <math.h>
#include <string.h>

enum { NODE = 8 };
static const double near_latency = 2e-6, far_latency = 10e-6, near_bytes = 200e9, link_bytes = 20e9;
static const double small = 256, large = 1e9;

static struct shoali_network network(int32_t links)
{
    struct shoali_network found;
    const shoal_plan_rates rates = {.node_bytes = near_bytes,
                                    .network_bytes = link_bytes,
                                    .latency_s = far_latency,
                                    .ranks_per_node = NODE,
                                    .node_latency_s = near_latency,
                                    .link_bytes = links ? link_bytes : 0,
                                    .links_per_node = links};
    assert_int_equal(shoali_network_of(&rates, &found), SHOAL_OK);
    return found;
}

static void close_to(double found, double wanted, const char *what)
{
    if (!(fabs(found - wanted) <= 1e-12 * wanted))
        fail_msg("%s: %.15g s, not %.15g", what, found, wanted);
}

/* By that algorithm, where it does the kind. */
static double by(const struct shoali_network *n, const struct shoali_network_place *place,
                 enum shoali_collective kind, double bytes, enum shoali_algorithm algorithm)
{
    struct shoali_network wish = *n;
    wish.algorithm = algorithm;
    return shoali_network_best(&wish, place, kind, bytes);
}

static double all_reduce(const struct shoali_network *n, const struct shoali_network_place *place,
                         double bytes, enum shoali_algorithm algorithm)
{
    return by(n, place, SHOALI_ALL_REDUCE, bytes, algorithm);
}

/* Eight ranks of one host. */
static void test_one_host(void **state)
{
    const struct shoali_network n = network(8);
    const struct shoali_network_place place = {NODE, NODE, 1};
    const double a = near_latency, s = large, b = near_bytes;
    (void)state;
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_RING), 14 * (a + s / 8 / b), "ring");
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_DOUBLING), 3 * (a + s / b), "doubling");
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_TREE), 6 * (a + s / b), "tree");
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_RABENSEIFNER), 6 * a + 1.75 * s / b,
             "rabenseifner");
    /* one host has no two levels */
    assert_true(all_reduce(&n, &place, s, SHOALI_ALGORITHM_TWO_LEVEL) ==
                shoali_network_best(&n, &place, SHOALI_ALL_REDUCE, s));
    close_to(by(&n, &place, SHOALI_ALL_GATHER, s, SHOALI_ALGORITHM_RING), 7 * (a + s / 8 / b),
             "gather by ring");
    close_to(by(&n, &place, SHOALI_ALL_GATHER, s, SHOALI_ALGORITHM_DOUBLING), 3 * a + 0.875 * s / b,
             "gather by doubling");
    close_to(shoali_network_best(&n, &place, SHOALI_BROADCAST, s), 3 * (a + s / b), "broadcast");
    close_to(shoali_network_best(&n, &place, SHOALI_SEND, s), a + s / b, "send");
    close_to(shoali_network_best(&n, &place, SHOALI_ALL_TO_ALL, s), 7 * (a + s / 8 / b),
             "all to all");
    const struct shoali_network_place six = {6, 6, 1};
    close_to(all_reduce(&n, &six, s, SHOALI_ALGORITHM_RABENSEIFNER),
             6 * a + 1.75 * s / b + 2 * (a + s / b), "rabenseifner, folded");
    close_to(
        shoali_network_best(&n, &(struct shoali_network_place){1, 1, 1}, SHOALI_ALL_REDUCE, s) + 1,
        1, "one rank");
}

/* Four hosts of eight, all in the group, with a link for each rank. */
static void test_hosts(void **state)
{
    const struct shoali_network n = network(8);
    const struct shoali_network_place place = {32, 8, 4};
    const double s = large, a = near_latency, b = near_bytes, A = far_latency, B = link_bytes;
    (void)state;
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_RING), 62 * (A + s / 32 / B), "ring");
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_TREE),
             2 * (3 * (a + s / b) + 2 * (A + s / B)), "tree");
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_RABENSEIFNER),
             2 * (3 * a + 0.875 * s / b + 2 * A + (1.0 / 16 + 1.0 / 32) * s / B), "rabenseifner");
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_DIRECT),
             2 * (7 * (a + s / 32 / b) + 24 * (A + s / 32 / B)), "direct");
    /* of each eighth the sum over four hosts, best by halving */
    close_to(all_reduce(&n, &place, s, SHOALI_ALGORITHM_TWO_LEVEL),
             2 * 7 * (a + s / 8 / b) + 2 * (2 * A + 0.75 * s / 8 / B), "two levels");
    close_to(by(&n, &place, SHOALI_ALL_GATHER, s, SHOALI_ALGORITHM_TWO_LEVEL),
             7 * (a + s / 8 / b) + 3 * (A + s / 32 / B), "gather at two levels");
}

/* Groups that share the links of a host. */
static void test_shared_links(void **state)
{
    const struct shoali_network_place lonely = {4, 1, 4}; /* and seven more like it on each host */
    (void)state;
    for (int32_t links = 1; links <= 16; links *= 2) {
        const struct shoali_network n = network(links);
        const double share = links < NODE ? link_bytes * links / NODE : link_bytes;
        close_to(all_reduce(&n, &lonely, large, SHOALI_ALGORITHM_RING),
                 6 * (far_latency + large / 4 / share), "ring over shared links");
    }
    /* with the whole host in the ring one of its ranks sends out */
    const struct shoali_network one = network(1);
    close_to(
        all_reduce(&one, &(struct shoali_network_place){32, 8, 4}, large, SHOALI_ALGORITHM_RING),
        62 * (far_latency + large / 32 / link_bytes), "one ring on one link");
}

/* Short messages want few steps, long ones few bytes; the best is the least, and a wish is
 * heard. */
static void test_best(void **state)
{
    struct shoali_network n = network(8);
    const struct shoali_network_place place = {1024, 8, 128};
    (void)state;
    double before = 0;
    for (double bytes = 8; bytes < 1e11; bytes *= 4) {
        const double best = shoali_network_best(&n, &place, SHOALI_ALL_REDUCE, bytes);
        double least = INFINITY;
        for (int a = SHOALI_ALGORITHM_RING; a < SHOALI_ALGORITHM_COUNT; a++)
            least = fmin(least, all_reduce(&n, &place, bytes, (enum shoali_algorithm)a));
        assert_true(best == least && best > before);
        before = best;
    }
    const double quick = shoali_network_best(&n, &place, SHOALI_ALL_REDUCE, small);
    assert_true(quick == all_reduce(&n, &place, small, SHOALI_ALGORITHM_DOUBLING));
    assert_true(quick < all_reduce(&n, &place, small, SHOALI_ALGORITHM_RING) / 100);
    assert_true(all_reduce(&n, &place, large, SHOALI_ALGORITHM_DOUBLING) >
                5 * shoali_network_best(&n, &place, SHOALI_ALL_REDUCE, large));
    n.algorithm = SHOALI_ALGORITHM_TREE;
    assert_true(shoali_network_best(&n, &place, SHOALI_ALL_REDUCE, large) ==
                all_reduce(&n, &place, large, SHOALI_ALGORITHM_TREE));
    /* a tree gathers nothing */
    const double gather = shoali_network_best(&n, &place, SHOALI_ALL_GATHER, large);
    assert_true(gather > 0 && !isinf(gather));
}

/* What counters say of rings, back to what was asked for. */
static void test_counters(void **state)
{
    const struct shoali_network n = network(8);
    const struct shoali_network_place place = {16, 8, 2};
    struct shoali_sent sent = {{0}, {0}};
    (void)state;
    sent.calls[SHOALI_ALL_REDUCE] = 3;
    sent.bytes[SHOALI_ALL_REDUCE] = 3 * 2 * large * 15 / 16;
    sent.calls[SHOALI_ALL_GATHER] = 2;
    sent.bytes[SHOALI_ALL_GATHER] = 2 * large * 15 / 16;
    sent.calls[SHOALI_SEND] = 1;
    sent.bytes[SHOALI_SEND] = large;
    sent.calls[SHOALI_BARRIER] = 5;
    close_to(shoali_network_sent_time(&n, &place, &sent),
             3 * shoali_network_best(&n, &place, SHOALI_ALL_REDUCE, large) +
                 2 * shoali_network_best(&n, &place, SHOALI_ALL_GATHER, large) +
                 shoali_network_best(&n, &place, SHOALI_SEND, large),
             "counters");
}

static void test_places_and_names(void **state)
{
    shoal_mesh *mesh = NULL;
    struct shoali_network_place place;
    struct shoali_network n;
    (void)state;
    assert_int_equal(
        shoal_mesh_create(&(shoal_mesh_args){.ranks = 64, .tensor = 4, .pipeline = 2}, &mesh),
        SHOAL_OK);
    const struct {
        shoal_axes axis;
        struct shoali_network_place place;
    } wanted[] = {{SHOAL_AXIS_TP, {4, 4, 1}},
                  {SHOAL_AXIS_DP, {8, 2, 4}},
                  {SHOAL_AXIS_PP, {2, 1, 2}},
                  {SHOAL_AXIS_CP, {1, 1, 1}}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        shoali_network_place_of(mesh, wanted[i].axis, NODE, &place);
        assert_memory_equal(&place, &wanted[i].place, sizeof place);
    }
    shoali_network_place_of(mesh, SHOAL_AXIS_DP, 0, &place);
    assert_true(place.near == 8 && place.hosts == 1);
    shoal_mesh_destroy(mesh);
    assert_int_equal(
        shoali_network_of(&(shoal_plan_rates){.collective_algorithm = "rabenseifer"}, &n),
        SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "nearest is rabenseifner"));
    assert_int_equal(
        shoali_network_of(&(shoal_plan_rates){.collective_algorithm = "two_level"}, &n), SHOAL_OK);
    assert_int_equal(n.algorithm, SHOALI_ALGORITHM_TWO_LEVEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),     cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_shared_links), cmocka_unit_test(test_best),
        cmocka_unit_test(test_counters),     cmocka_unit_test(test_places_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
