/* Groups of a mesh: Megatron's worked tables, what holds for every mesh of up to 64 ranks, and
 * communicators over ranks that are threads. */
#include "base/test_cmocka.h"
#include "parallel_state/parallel_state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- worked tables -------------------------------------------------------------------------- */

/* The groups of a set as text, in order of their numbers, "0,1 2,3"; at most `bytes`. */
static void write_groups(const shoal_mesh *mesh, shoal_axes axes, char *text, size_t bytes)
{
    const int32_t ranks = shoal_mesh_ranks(mesh), size = shoal_mesh_size(mesh, axes);
    size_t used = 0;
    text[0] = '\0';
    for (int32_t group = 0; group < ranks / size; group++)
        for (int32_t rank = 0; rank < ranks; rank++) {
            if (shoal_mesh_group_index(mesh, axes, rank) != group ||
                shoal_mesh_coordinate(mesh, axes, rank) != 0)
                continue;
            for (int32_t i = 0; i < size && used < bytes; i++)
                used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                         i > 0       ? ","
                                         : group > 0 ? " "
                                                     : "",
                                         (int)shoal_mesh_member(mesh, axes, rank, i));
        }
}

struct golden {
    shoal_mesh_args args;
    shoal_axes axes;
    const char *groups;
};
#define TP SHOAL_AXIS_TP
#define CP SHOAL_AXIS_CP
#define EP SHOAL_AXIS_EP
#define DP SHOAL_AXIS_DP
#define PP SHOAL_AXIS_PP
#define EXPERT SHOAL_AXIS_EXPERT
#define CUBE                                                             \
    {                                                                    \
        .ranks = 16, .tensor = 2, .context = 2, .data = 2, .pipeline = 2 \
    }
#define EXPERTS                                                                                \
    {                                                                                          \
        .ranks = 16, .tensor = 2, .context = 2, .pipeline = 2, .expert = 4, .expert_tensor = 1 \
    }
#define DEEP                                    \
    {                                           \
        .ranks = 16, .tensor = 2, .pipeline = 4 \
    }
#define MIXED                                                              \
    {                                                                      \
        .ranks = 16, .tensor = 2, .pipeline = 4, .order = "tp-cp-ep-pp-dp" \
    }

static const struct golden tables[] = {
    {CUBE, TP, "0,1 2,3 4,5 6,7 8,9 10,11 12,13 14,15"},
    {CUBE, CP, "0,2 1,3 4,6 5,7 8,10 9,11 12,14 13,15"},
    {CUBE, DP, "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15"},
    {CUBE, DP | CP, "0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15"},
    {CUBE, PP, "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15"},
    {CUBE, TP | PP, "0,1,8,9 2,3,10,11 4,5,12,13 6,7,14,15"},
    {CUBE, TP | CP, "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15"},
    {CUBE, TP | DP, "0,1,4,5 2,3,6,7 8,9,12,13 10,11,14,15"},
    {EXPERTS, EXPERT | EP, "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15"},
    {EXPERTS, EXPERT | TP | EP | PP, "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15"},
    {EXPERTS, EXPERT | DP, "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15"},
    {DEEP, PP, "0,4,8,12 1,5,9,13 2,6,10,14 3,7,11,15"},
    {DEEP, DP, "0,2 1,3 4,6 5,7 8,10 9,11 12,14 13,15"},
    {MIXED, PP, "0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15"},
    {MIXED, DP, "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15"},
    /* DeepSpeed's [pipe, data, model] of 2 x 2 x 2: model neighbours, then data, pipe outermost. */
    {{.ranks = 8, .tensor = 2, .pipeline = 2, .order = "tp-dp-pp"}, DP, "0,2 1,3 4,6 5,7"},
    {{.ranks = 8, .pipeline = 4, .order = "dp-pp"}, PP, "0,2,4,6 1,3,5,7"},
};

static void test_worked_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        shoal_mesh *mesh;
        char text[512];
        assert_int_equal(shoal_mesh_create(&tables[i].args, &mesh), SHOAL_OK);
        write_groups(mesh, tables[i].axes, text, sizeof text);
        assert_string_equal(text, tables[i].groups);
        shoal_mesh_destroy(mesh);
    }
}

static void test_embedding_ranks(void **state)
{
    (void)state;
    shoal_mesh *mesh;
    int32_t ranks[2];
    assert_int_equal(shoal_mesh_create(&(shoal_mesh_args)DEEP, &mesh), SHOAL_OK);
    for (int32_t rank = 0; rank < 16; rank++) {
        assert_int_equal(shoal_mesh_embedding_ranks(mesh, true, rank, ranks), 2);
        assert_int_equal(ranks[0], rank % 4);
        assert_int_equal(ranks[1], rank % 4 + 12);
        assert_int_equal(shoal_mesh_embedding_ranks(mesh, false, rank, ranks), 1);
        assert_int_equal(shoal_mesh_position_embedding_rank(mesh, rank), rank % 4);
    }
    shoal_mesh_destroy(mesh);
}

static void test_levels(void **state)
{
    (void)state;
    const int32_t sizes[] = {2, 2, 4};
    shoal_mesh *mesh;
    assert_int_equal(shoal_mesh_create(&(shoal_mesh_args){.ranks = 16, .context = 16}, &mesh),
                     SHOAL_OK);
    const struct {
        int32_t level, rank, members[4];
    } golden[] = {{0, 1, {0, 1}}, {0, 2, {2, 3}}, {1, 2, {0, 2}},        {1, 3, {1, 3}},
                  {1, 6, {4, 6}}, {1, 7, {5, 7}}, {2, 0, {0, 4, 8, 12}}, {2, 13, {1, 5, 9, 13}}};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        for (int32_t at = 0; at < sizes[golden[i].level]; at++)
            assert_int_equal(shoal_mesh_level_member(mesh, SHOAL_AXIS_CP, sizes, 3, golden[i].level,
                                                     golden[i].rank, at),
                             golden[i].members[at]);
    assert_int_equal(shoal_mesh_level_member(mesh, SHOAL_AXIS_CP, sizes, 2, 0, 0, 0), -1);
    shoal_mesh_destroy(mesh);
}

/* ---- every mesh of up to 64 ranks ----------------------------------------------------------- */

/* Groups of a set partition the world, and number, member and index agree. */
static void check_set(const shoal_mesh *mesh, shoal_axes axes)
{
    const int32_t ranks = shoal_mesh_ranks(mesh), size = shoal_mesh_size(mesh, axes);
    int32_t seen[64] = {0};
    assert_int_equal(ranks % size, 0);
    for (int32_t rank = 0; rank < ranks; rank++) {
        const int32_t number = shoal_mesh_coordinate(mesh, axes, rank);
        const int32_t group = shoal_mesh_group_index(mesh, axes, rank);
        assert_in_range(number, 0, size - 1);
        assert_in_range(group, 0, ranks / size - 1);
        assert_int_equal(shoal_mesh_member(mesh, axes, rank, number), rank);
        seen[group * size + number]++;
        for (int32_t i = 0; i < size; i++) {
            const int32_t member = shoal_mesh_member(mesh, axes, rank, i);
            assert_in_range(member, 0, ranks - 1);
            assert_int_equal(shoal_mesh_coordinate(mesh, axes, member), i);
            assert_int_equal(shoal_mesh_group_index(mesh, axes, member), group);
        }
    }
    for (int32_t i = 0; i < ranks; i++)
        assert_int_equal(seen[i], 1);
}

static int64_t check_world(const shoal_mesh_args *args)
{
    static const shoal_axes sets[] = {
        TP, CP, DP, PP, DP | CP, TP | PP, TP | CP, TP | DP, EP, TP | CP | DP, TP | CP | DP | PP, 0};
    shoal_mesh *mesh;
    if (shoal_mesh_create(args, &mesh) < 0)
        return 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        check_set(mesh, sets[i]);
        check_set(mesh, sets[i] | EXPERT);
    }
    for (int32_t rank = 0; rank < args->ranks; rank++)
        for (int32_t i = 0; i < shoal_mesh_size(mesh, PP); i++)
            assert_int_equal(shoal_mesh_member(mesh, PP, rank, i),
                             shoal_mesh_member(mesh, PP | EXPERT, rank, i));
    shoal_mesh_destroy(mesh);
    return 1;
}

static void test_every_world(void **state)
{
    (void)state;
    static const char *const orders[] = {NULL, "tp-cp-ep-pp-dp", "pp-dp-tp-ep-cp"};
    int64_t made = 0;
    for (int32_t ranks = 1; ranks <= 64; ranks++)
        for (int32_t tp = 1; tp <= 8; tp++)
            for (int32_t pp = 1; pp <= 8; pp++)
                for (int32_t cp = 1; cp <= 4; cp++)
                    for (int32_t ep = 1; ep <= 4; ep++)
                        for (size_t o = 0; o < 3; o++)
                            if (ranks % (tp * pp * cp) == 0)
                                made += check_world(&(shoal_mesh_args){.ranks = ranks,
                                                                       .tensor = tp,
                                                                       .pipeline = pp,
                                                                       .context = cp,
                                                                       .expert = ep,
                                                                       .order = orders[o]});
    assert_true(made > 1000);
}

/* ---- mistakes ------------------------------------------------------------------------------- */

static void refused(const shoal_mesh_args *args, const char *sentence)
{
    shoal_mesh *mesh;
    assert_int_equal(shoal_mesh_create(args, &mesh), SHOAL_EINVAL);
    assert_null(mesh);
    if (strstr(shoal_error_message(), sentence) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", sentence, shoal_error_message());
}

static void test_mistakes(void **state)
{
    (void)state;
    refused(&(shoal_mesh_args){.ranks = 6, .tensor = 4},
            "6 ranks cannot be divided into replicas "
            "of 4 (tensor 4 x context 1 x pipeline 1)");
    refused(&(shoal_mesh_args){.ranks = 8, .tensor = 2, .data = 3},
            "leave 4 of 8 ranks for data parallelism, not 3");
    refused(&(shoal_mesh_args){.ranks = 8, .expert = 3}, "expert tensor 1 x expert 3");
    refused(&(shoal_mesh_args){.ranks = 8, .tensor = 2, .order = "cp-ep-dp-pp"},
            "tp has 2 ranks, but the order \"cp-ep-dp-pp\" does not name it");
    refused(&(shoal_mesh_args){.ranks = 8, .order = "tp-xp"}, "\"xp\" is no axis");
    refused(&(shoal_mesh_args){.ranks = 8, .order = "tp-dp-tp"}, "names tp twice");
    refused(&(shoal_mesh_args){.ranks = 8, .order = "tp-dp-"}, "\"\" is no axis");
    refused(&(shoal_mesh_args){.ranks = 8, .pipeline = -2}, "cannot have -2 ranks along pipeline");
    refused(&(shoal_mesh_args){.ranks = 4, .rank = 4}, "a mesh of 4 ranks has no rank 4");
    refused(&(shoal_mesh_args){.ranks = 16,
                               .tensor = 2,
                               .pipeline = 2,
                               .expert = 2,
                               .expert_tensor = 1,
                               .order = "tp-pp-ep-dp"},
            "put pp last");
}

/* ---- communicators -------------------------------------------------------------------------- */

struct member {
    struct shoal_thread_world *threads;
    const struct golden *golden;
    int32_t rank;
    bool right;
};

/* Each set's group is made, has the ranks that arithmetic says, and is made once. */
static shoal_status check_groups(struct member *member, shoal_mesh *mesh)
{
    shoal_status status = SHOAL_OK;
    const shoal_axes sets[] = {TP, DP, DP | CP, PP, TP | PP, EP | EXPERT, TP | CP | DP | PP};
    member->right = true;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        shoal_group *group, *again;
        int32_t ranks[16] = {0};
        SHOAL_TRY(status, shoal_mesh_group(mesh, sets[s], &group), done);
        SHOAL_TRY(status, shoal_mesh_group(mesh, sets[s], &again), done);
        const int32_t size = shoal_mesh_size(mesh, sets[s]);
        member->right = member->right && group == again && (group == NULL) == (size == 1);
        if (group == NULL)
            continue;
        SHOAL_TRY(status, shoal_all_gather(group, &member->rank, ranks, 1, SHOAL_I32, NULL), done);
        for (int32_t i = 0; i < size; i++)
            member->right =
                member->right && ranks[i] == shoal_mesh_member(mesh, sets[s], member->rank, i);
    }
done:
    return status;
}

static shoal_status check_embeddings(struct member *member, shoal_mesh *mesh)
{
    shoal_status status;
    shoal_group *group;
    int32_t expected[2], ranks[2] = {-1, -1};
    SHOAL_TRY(status, shoal_mesh_embedding_group(mesh, true, &group), done);
    const int32_t count = shoal_mesh_embedding_ranks(mesh, true, member->rank, expected);
    const bool inside = count == 2 && (member->rank == expected[0] || member->rank == expected[1]);
    member->right = member->right && (group != NULL) == inside;
    if (group != NULL) {
        SHOAL_TRY(status, shoal_all_gather(group, &member->rank, ranks, 1, SHOAL_I32, NULL), done);
        member->right = member->right && memcmp(ranks, expected, sizeof ranks) == 0;
    }
done:
    return status;
}

static void *run_member(void *user)
{
    struct member *member = user;
    shoal_group *world = NULL;
    shoal_mesh *mesh = NULL;
    shoal_mesh_args args = member->golden->args;
    const shoal_comm_args join = {.rank = member->rank,
                                  .world_size = args.ranks,
                                  .backend = "thread",
                                  .threads = member->threads,
                                  .timeout_s = 60};
    shoal_status status;
    SHOAL_TRY(status, shoal_comm_init(&join, &world), done);
    args.group = world;
    SHOAL_TRY(status, shoal_mesh_create(&args, &mesh), done);
    SHOAL_TRY(status, check_groups(member, mesh), done);
    SHOAL_TRY(status, check_embeddings(member, mesh), done);
done:
    if (status < 0) {
        member->right = false;
        fprintf(stderr, "rank %d: %s\n", (int)member->rank, shoal_error_message());
        if (world != NULL)
            shoal_comm_abort(world, status);
    }
    shoal_mesh_destroy(mesh);
    shoal_comm_destroy(world);
    return NULL;
}

static void test_communicators(void **state)
{
    (void)state;
    static const struct golden meshes[] = {
        {CUBE, 0, NULL},
        {MIXED, 0, NULL},
        {{.ranks = 1}, 0, NULL},
        {{.ranks = 4}, 0, NULL},
        {{.ranks = 6, .tensor = 3}, 0, NULL},
        {{.ranks = 8, .tensor = 2, .pipeline = 2, .expert = 2}, 0, NULL}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct shoal_thread_world *threads;
        struct member members[16];
        pthread_t thread[16];
        const int32_t ranks = meshes[m].args.ranks;
        assert_int_equal(shoal_thread_world_create(ranks, &threads), SHOAL_OK);
        for (int32_t r = 0; r < ranks; r++) {
            members[r] = (struct member){threads, &meshes[m], r, false};
            assert_int_equal(pthread_create(&thread[r], NULL, run_member, &members[r]), 0);
        }
        for (int32_t r = 0; r < ranks; r++)
            pthread_join(thread[r], NULL);
        shoal_thread_world_destroy(threads);
        for (int32_t r = 0; r < ranks; r++)
            assert_true(members[r].right);
    }
}

static void test_without_group(void **state)
{
    (void)state;
    shoal_mesh *mesh;
    shoal_group *group;
    char text[64];
    assert_int_equal(
        shoal_mesh_create(&(shoal_mesh_args){.ranks = 8, .rank = 5, .tensor = 2, .pipeline = 2},
                          &mesh),
        SHOAL_OK);
    assert_int_equal(shoal_mesh_group(mesh, DP, &group), SHOAL_EINVAL);
    assert_int_equal(shoal_mesh_group(mesh, CP, &group), SHOAL_OK);
    assert_null(group);
    assert_string_equal(shoal_mesh_format(mesh, 5, text, sizeof text), "tp 1, dp 0, pp 1");
    assert_int_equal(strlen(shoal_mesh_format(mesh, 5, text, 4)), 3);
    shoal_mesh_destroy(mesh);
    shoal_mesh_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_tables), cmocka_unit_test(test_embedding_ranks),
        cmocka_unit_test(test_levels),        cmocka_unit_test(test_every_world),
        cmocka_unit_test(test_mistakes),      cmocka_unit_test(test_communicators),
        cmocka_unit_test(test_without_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
