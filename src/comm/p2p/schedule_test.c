/* Every algorithm of several steps, carried out in memory by all ranks at once: what one sends
 * another waits for, step by step, and the result is that of the collective. */
#include "base/test_cmocka.h"
#include "comm/p2p/p2p.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 17, COUNTS = 6 };
static const int64_t counts[COUNTS] = {0, 1, 7, 8, 100, 1000};

struct world {
    int32_t size;
    struct shoali_p2p_group *group; /* [size], of which rank and size count */
    struct shoali_p2p_op *op;
    int64_t **out; /* [size][elements] */
};

static void open_world(struct world *world, int32_t size, const struct shoali_post *post,
                       enum shoali_p2p_algorithm algorithm)
{
    const size_t elements =
        (size_t)(post->kind == SHOALI_ALL_GATHER || post->kind == SHOALI_REDUCE_SCATTER
                     ? post->count * size
                     : post->count) +
        1;
    *world = (struct world){.size = size};
    world->group = calloc((size_t)size, sizeof *world->group);
    world->op = calloc((size_t)size, sizeof *world->op);
    world->out = calloc((size_t)size, sizeof *world->out);
    assert_true(world->group && world->op && world->out);
    for (int32_t r = 0; r < size; r++) {
        world->group[r].rank = r;
        world->group[r].size = size;
        world->op[r].post = *post;
        world->op[r].element_bytes = sizeof(int64_t);
        world->op[r].algorithm = algorithm;
        world->out[r] = calloc(elements, sizeof(int64_t));
        assert_non_null(world->out[r]);
    }
}

static void close_world(struct world *world)
{
    for (int32_t r = 0; r < world->size; r++)
        free(world->out[r]);
    free(world->out);
    free(world->op);
    free(world->group);
}

static int64_t value(int32_t rank, int64_t at)
{
    return (rank + 1) * 1000003 + at * 17;
}

/* What all send in a step is taken before anything is put. */
static void exchange(const struct world *world, const struct shoali_p2p_step *step)
{
    int64_t **sent = calloc((size_t)world->size, sizeof *sent);
    assert_non_null(sent);
    for (int32_t r = 0; r < world->size; r++) {
        if (step[r].to < 0)
            continue;
        assert_int_equal(step[step[r].to].from, r);
        assert_int_equal(step[step[r].to].receive.first, step[r].send.first);
        assert_int_equal(step[step[r].to].receive.count, step[r].send.count);
        const size_t bytes = (size_t)step[r].send.count * sizeof(int64_t);
        sent[r] = malloc(bytes + 1);
        assert_non_null(sent[r]);
        memcpy(sent[r], world->out[r] + step[r].send.first, bytes);
    }
    for (int32_t r = 0; r < world->size; r++) {
        if (step[r].from < 0)
            continue;
        assert_int_equal(step[step[r].from].to, r);
        for (int64_t i = 0; i < step[r].receive.count; i++) {
            int64_t *place = &world->out[r][step[r].receive.first + i];
            const int64_t come = sent[step[r].from][i];
            *place = step[r].sums ? *place + come : come;
        }
    }
    for (int32_t r = 0; r < world->size; r++)
        free(sent[r]);
    free(sent);
}

/* All ranks have the same number of steps; that number. */
static int32_t carry_out(const struct world *world)
{
    struct shoali_p2p_step step[RANKS];
    for (int32_t number = 0;; number++) {
        int32_t over = 0;
        assert_true(number < 100);
        for (int32_t r = 0; r < world->size; r++)
            over += !shoali_p2p_step(&world->group[r], &world->op[r], number, &step[r]);
        assert_true(over == 0 || over == world->size);
        if (over)
            return number;
        exchange(world, step);
    }
}

static void check_all_reduce(enum shoali_p2p_algorithm algorithm, int32_t size, int64_t count)
{
    struct world world;
    open_world(&world, size,
               &(struct shoali_post){.kind = SHOALI_ALL_REDUCE, .count = count, .dtype = SHOAL_I64},
               algorithm);
    for (int32_t r = 0; r < size; r++)
        for (int64_t i = 0; i < count; i++)
            world.out[r][i] = value(r, i);
    carry_out(&world);
    for (int64_t i = 0; i < count; i++) {
        int64_t sum = 0;
        for (int32_t r = 0; r < size; r++)
            sum += value(r, i);
        for (int32_t r = 0; r < size; r++)
            assert_int_equal(world.out[r][i], sum);
    }
    close_world(&world);
}

static void test_all_reduce(void **state)
{
    static const enum shoali_p2p_algorithm algorithms[] = {SHOALI_P2P_RING, SHOALI_P2P_DOUBLING,
                                                           SHOALI_P2P_HALVING, SHOALI_P2P_TREE};
    (void)state;
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++)
        for (int32_t size = 2; size <= RANKS; size++)
            for (int32_t c = 0; c < COUNTS; c++)
                check_all_reduce(algorithms[a], size, counts[c]);
}

/* Each rank's block, and nobody has got anything twice. */
static void check_reduce_scatter(enum shoali_p2p_algorithm algorithm, int32_t size, int64_t count)
{
    struct world world;
    open_world(
        &world, size,
        &(struct shoali_post){.kind = SHOALI_REDUCE_SCATTER, .count = count, .dtype = SHOAL_I64},
        algorithm);
    for (int32_t r = 0; r < size; r++)
        for (int64_t i = 0; i < count * size; i++)
            world.out[r][i] = value(r, i);
    carry_out(&world);
    for (int32_t owner = 0; owner < size; owner++)
        for (int64_t i = owner * count; i < (owner + 1) * count; i++) {
            int64_t sum = 0;
            for (int32_t r = 0; r < size; r++)
                sum += value(r, i);
            assert_int_equal(world.out[owner][i], sum);
        }
    close_world(&world);
}

static void test_reduce_scatter(void **state)
{
    (void)state;
    for (int32_t size = 2; size <= RANKS; size++)
        for (int32_t c = 0; c < COUNTS - 1; c++) {
            check_reduce_scatter(SHOALI_P2P_RING, size, counts[c]);
            check_reduce_scatter(SHOALI_P2P_HALVING, size, counts[c]);
        }
}

static void test_all_gather(void **state)
{
    (void)state;
    for (int32_t size = 2; size <= RANKS; size++) {
        struct world world;
        open_world(&world, size,
                   &(struct shoali_post){.kind = SHOALI_ALL_GATHER, .count = 5, .dtype = SHOAL_I64},
                   SHOALI_P2P_RING);
        for (int32_t r = 0; r < size; r++)
            for (int64_t i = 0; i < 5; i++)
                world.out[r][r * 5 + i] = value(r, i);
        assert_int_equal(carry_out(&world), size - 1);
        for (int32_t r = 0; r < size; r++)
            for (int32_t from = 0; from < size; from++)
                for (int64_t i = 0; i < 5; i++)
                    assert_int_equal(world.out[r][from * 5 + i], value(from, i));
        close_world(&world);
    }
}

static void test_broadcast(void **state)
{
    (void)state;
    for (int32_t size = 2; size <= RANKS; size++)
        for (int32_t root = 0; root < size; root++) {
            struct world world;
            int32_t steps = 0;
            open_world(&world, size,
                       &(struct shoali_post){
                           .kind = SHOALI_BROADCAST, .count = 9, .dtype = SHOAL_I64, .peer = root},
                       SHOALI_P2P_TREE);
            for (int64_t i = 0; i < 9; i++)
                world.out[root][i] = value(root, i);
            while (1 << steps < size)
                steps++;
            assert_int_equal(carry_out(&world), steps);
            for (int32_t r = 0; r < size; r++)
                for (int64_t i = 0; i < 9; i++)
                    assert_int_equal(world.out[r][i], value(root, i));
            close_world(&world);
        }
}

/* Sums of floating point keep the order of the ranks, whatever is asked for. */
static void test_orders(void **state)
{
    (void)state;
    struct shoali_post post = {.kind = SHOALI_ALL_REDUCE, .dtype = SHOAL_F32, .op = SHOAL_SUM};
    for (int32_t a = SHOALI_P2P_RING; a < SHOALI_P2P_ALGORITHMS; a++)
        assert_false(shoali_p2p_can(&post, (enum shoali_p2p_algorithm)a));
    assert_true(shoali_p2p_can(&post, SHOALI_P2P_GATHER));
    post.dtype = SHOAL_I64;
    assert_true(shoali_p2p_can(&post, SHOALI_P2P_HALVING));
    assert_true(shoali_p2p_can(&post, SHOALI_P2P_TREE));
    post.op = SHOAL_AVG;
    assert_false(shoali_p2p_can(&post, SHOALI_P2P_RING));
    post.kind = SHOALI_REDUCE_SCATTER;
    assert_false(shoali_p2p_can(&post, SHOALI_P2P_GATHER));
    assert_true(shoali_p2p_can(&post, SHOALI_P2P_DIRECT));
    assert_false(shoali_p2p_can(&post, SHOALI_P2P_HALVING));
    post.op = SHOAL_SUM;
    assert_true(shoali_p2p_can(&post, SHOALI_P2P_HALVING));
    assert_true(shoali_p2p_can(&post, SHOALI_P2P_RING));
    assert_false(shoali_p2p_can(&post, SHOALI_P2P_TREE));
    assert_false(shoali_p2p_can(&post, SHOALI_P2P_DOUBLING));
    post.dtype = SHOAL_F32;
    assert_false(shoali_p2p_can(&post, SHOALI_P2P_HALVING));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_all_gather), cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_orders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
