/* Three ranks compare what each of them has: equal, different, missing, nothing, and failed. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "comm/facts.h"
#include "comm/group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3, SENTENCE = 1024 };

struct seat {
    int32_t rank;
    struct shoal_thread_world *world;
    void (*fill)(struct seat *seat);
    int failing; /* which of rank 1's posts fails; -1: none */
    bool failed;
    struct shoali_facts facts;
    shoal_status own, status, after;
    char sentence[SENTENCE];
};

static void *sit(void *arg)
{
    struct seat *seat = arg;
    shoal_group *group = NULL;
    seat->status = shoal_comm_init(
        &(shoal_comm_args){
            .rank = seat->rank, .world_size = RANKS, .threads = seat->world, .timeout_s = 60},
        &group);
    if (seat->status < 0)
        return NULL;
    seat->fill(seat);
    if (seat->failing >= 0) {
        char point[32];
        snprintf(point, sizeof point, "comm.post:%d", seat->failing);
        (void)shoali_fault_arm(seat->rank == 1 ? point : NULL);
    }
    seat->status = shoali_facts_agree(&seat->facts, group, 10 + seat->rank, seat->own);
    snprintf(seat->sentence, sizeof seat->sentence, "%s",
             seat->status < 0 ? shoal_error_message() : "");
    seat->failed = seat->failing >= 0 && seat->rank == 1 && shoali_fault_left() < 0;
    (void)shoali_fault_arm(NULL);
    if (seat->failed)
        shoal_comm_abort(group, seat->status);
    seat->after = shoal_barrier(group);
    shoali_facts_fini(&seat->facts);
    shoal_comm_destroy(group);
    return NULL;
}

static struct seat seats[RANKS];

static void run_failing(void (*fill)(struct seat *seat), int failing)
{
    pthread_t thread[RANKS];
    struct shoal_thread_world *world;
    assert_int_equal(shoal_thread_world_create(RANKS, &world), SHOAL_OK);
    for (int32_t r = 0; r < RANKS; r++) {
        seats[r] = (struct seat){.rank = r, .world = world, .fill = fill, .failing = failing};
        assert_int_equal(pthread_create(&thread[r], NULL, sit, &seats[r]), 0);
    }
    for (int32_t r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    shoal_thread_world_destroy(world);
}

static void run(void (*fill)(struct seat *seat))
{
    run_failing(fill, -1);
}

static void assert_all(shoal_status status, const char *sentence)
{
    for (int32_t r = 0; r < RANKS; r++) {
        if (seats[r].status != status || !strstr(seats[r].sentence, sentence))
            fail_msg("rank %d: %s: \"%s\", not \"%s\"", (int)r, shoal_status_name(seats[r].status),
                     seats[r].sentence, sentence);
        assert_int_equal(seats[r].after, SHOAL_OK); /* the group stays good */
    }
}

static void add_table(struct seat *seat, const char *bytes)
{
    struct shoali_str table = {0};
    shoali_str_append(&table, "%s", bytes);
    shoali_facts_add_bytes(&seat->facts, "table", &table, "%d", 3);
    shoali_str_fini(&table);
}

static void fill_alike(struct seat *seat)
{
    shoali_facts_add(&seat->facts, "lr", "%g", 0.5);
    add_table(seat, "abc");
}

static void fill_other(struct seat *seat)
{
    shoali_facts_add(&seat->facts, "layers", "%d", 4);
    shoali_facts_add(&seat->facts, "lr", "%g", seat->rank == 2 ? 0.25 : 0.5);
    add_table(seat, seat->rank == 2 ? "abd" : "abc");
}

static void fill_missing(struct seat *seat)
{
    shoali_facts_add(&seat->facts, "lr", "%g", 0.5);
    if (seat->rank == 1)
        shoali_facts_add(&seat->facts, "clipping", "%g", 1.0);
}

/* Rank 0 has nothing to compare; the others differ far behind the beginning. */
static void fill_long(struct seat *seat)
{
    char text[300];
    memset(text, 'x', sizeof text);
    text[299] = '\0';
    text[250] = seat->rank == 1 ? '1' : '2';
    if (seat->rank > 0)
        shoali_facts_add(&seat->facts, "regex", "%s", text);
}

static void fill_silent(struct seat *seat)
{
    if (seat->rank > 0)
        fill_alike(seat);
}

static void fill_failed(struct seat *seat)
{
    fill_alike(seat);
    if (seat->rank == 1)
        seat->own = SHOAL_FAIL(SHOAL_ECONFIG, "ds_config.json:3: stage: must be from 0 to 3");
}

/* Memory of the list or of its table runs out on rank 1. */
static void fill_without_memory(struct seat *seat, const char *fault)
{
    (void)shoali_fault_arm(seat->rank == 1 ? fault : NULL);
    add_table(seat, "abc");
    shoali_facts_add(&seat->facts, "lr", "%g", 0.5);
    (void)shoali_fault_arm(NULL);
}

static void fill_without_table(struct seat *seat)
{
    fill_without_memory(seat, "alloc");
}

static void fill_without_list(struct seat *seat)
{
    fill_without_memory(seat, "alloc:1");
}

static void test_alike(void **state)
{
    (void)state;
    run(fill_alike);
    assert_all(SHOAL_OK, "");
    run(fill_silent);
    assert_all(SHOAL_OK, "");
}

static void test_other(void **state)
{
    (void)state;
    run(fill_other);
    assert_all(SHOAL_EMISMATCH, "the ranks disagree on lr (rank 10: 0.5, rank 12: 0.25), table "
                                "(rank 10: 3 (digest ");
    run(fill_missing);
    assert_all(SHOAL_EMISMATCH,
               "disagree on clipping (rank 10: no such value, rank 11: 1): start all ranks");
    run(fill_long);
    assert_all(SHOAL_EMISMATCH, "regex (rank 11: ...xxxxxxxxxxxxxxxxxxxxxxxx1xxx");
    assert_non_null(strstr(seats[0].sentence, "rank 12: ...xxxxxxxxxxxxxxxxxxxxxxxx2xxx"));
}

static void test_failed(void **state)
{
    (void)state;
    run(fill_failed);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_int_equal(seats[r].status, r == 1 ? SHOAL_ECONFIG : SHOAL_EPEER);
        assert_non_null(strstr(seats[r].sentence, "ds_config.json:3: stage: must be from 0 to 3"));
        assert_int_equal(seats[r].after, SHOAL_OK);
    }
    assert_non_null(strstr(seats[0].sentence, "rank 11 failed: "));
}

static void test_without_memory(void **state)
{
    static void (*const fill[])(struct seat *) = {fill_without_table, fill_without_list};
    (void)state;
    for (size_t f = 0; f < sizeof fill / sizeof fill[0]; f++) {
        run(fill[f]);
        for (int32_t r = 0; r < RANKS; r++) {
            assert_int_equal(seats[r].status, r == 1 ? SHOAL_ENOMEM : SHOAL_EPEER);
            assert_non_null(strstr(seats[r].sentence, "cannot allocate what the ranks compare"));
            assert_int_equal(seats[r].after, SHOAL_OK);
        }
    }
}

/* Each post of a rank that compares may fail: the rank says so, and the others name it. */
static void test_failed_posts(void **state)
{
    static void (*const fill[])(struct seat *) = {fill_other, fill_failed};
    (void)state;
    for (size_t f = 0; f < sizeof fill / sizeof fill[0]; f++) {
        int failing = 0;
        for (run_failing(fill[f], 0); seats[1].failed; run_failing(fill[f], ++failing)) {
            assert_int_equal(seats[1].status, f == 0 ? SHOAL_EIO : SHOAL_ECONFIG);
            for (int32_t r = 0; r < RANKS; r += 2) {
                assert_int_equal(seats[r].status, SHOAL_EPEER);
                assert_non_null(strstr(seats[r].sentence, "rank 1"));
            }
        }
        assert_int_equal(failing, f == 0 ? 7 : 3);
    }
}

/* ---- calls that differ ----------------------------------------------------------------------- */

/* The same call on another buffer. */
static void *post(void *arg)
{
    struct seat *seat = arg;
    float data[4] = {0};
    shoal_group *group = NULL;
    seat->status = shoal_comm_init(
        &(shoal_comm_args){
            .rank = seat->rank, .world_size = RANKS, .threads = seat->world, .timeout_s = 60},
        &group);
    if (seat->status < 0)
        return NULL;
    seat->status = shoali_comm_post(group,
                                    &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                          .here = "a.c:1",
                                                          .in = data,
                                                          .out = data,
                                                          .count = 4,
                                                          .dtype = SHOAL_F32,
                                                          .op = SHOAL_SUM,
                                                          .tag = seat->rank == 2 ? 8 : 7},
                                    NULL);
    snprintf(seat->sentence, sizeof seat->sentence, "%s", shoal_error_message());
    shoal_comm_destroy(group);
    return NULL;
}

static void test_other_buffer(void **state)
{
    (void)state;
    pthread_t thread[RANKS];
    struct shoal_thread_world *world;
    assert_int_equal(shoal_thread_world_create(RANKS, &world), SHOAL_OK);
    for (int32_t r = 0; r < RANKS; r++) {
        seats[r] = (struct seat){.rank = r, .world = world};
        assert_int_equal(pthread_create(&thread[r], NULL, post, &seats[r]), 0);
    }
    for (int32_t r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    shoal_thread_world_destroy(world);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_int_equal(seats[r].status, SHOAL_EMISMATCH);
        assert_non_null(strstr(seats[r].sentence, "in call 0 of the group; they differ in buffer "
                                                  "(7 and 8): all ranks of a group must make"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),        cmocka_unit_test(test_other),
        cmocka_unit_test(test_failed),       cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_failed_posts), cmocka_unit_test(test_other_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
