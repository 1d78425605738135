/* What 256 ranks tell each other through a store, and in how many messages. */
#include "base/test_cmocka.h"
#include "comm/bootstrap/bootstrap.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 256, LARGE = 3000 };

struct seat {
    struct shoali_store *store;
    int32_t rank, ranks, took;
    size_t bytes; /* of the largest value */
    int64_t messages;
    bool passed;
    pthread_t thread;
};

static size_t bytes_of(const struct seat *seat, int32_t rank)
{
    return seat->bytes * (size_t)rank / (size_t)seat->ranks;
}

static void fill(const struct seat *seat, int32_t rank, unsigned char *value)
{
    for (size_t i = 0; i < bytes_of(seat, rank); i++)
        value[i] = (unsigned char)((size_t)rank * 7 + i);
}

static shoal_status take(void *user, int32_t rank, const void *value, size_t bytes)
{
    struct seat *seat = user;
    unsigned char expected[LARGE];
    fill(seat, rank, expected);
    if (bytes != bytes_of(seat, rank) || memcmp(value, expected, bytes) != 0)
        return SHOAL_FAIL(SHOAL_EINTERNAL, "rank %d's value is another", (int)rank);
    seat->took++;
    return SHOAL_OK;
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    unsigned char own[LARGE];
    struct shoali_exchange exchange = {.name = "test/exchange",
                                       .rank = seat->rank,
                                       .size = seat->ranks,
                                       .own = own,
                                       .bytes = bytes_of(seat, seat->rank),
                                       .take = take,
                                       .user = seat};
    fill(seat, seat->rank, own);
    seat->passed = shoali_store_exchange(seat->store, &exchange) == SHOAL_OK;
    if (!seat->passed)
        fprintf(stderr, "rank %d: %s\n", (int)seat->rank, shoal_error_message());
    seat->messages = exchange.messages;
    return NULL;
}

/* The most messages of a rank. */
static int64_t exchange_of(int32_t ranks, size_t bytes)
{
    static struct seat seats[RANKS];
    struct shoali_store *store = NULL;
    int64_t most = 0;
    assert_int_equal(
        shoali_store_open(&(struct shoali_store_args){.kind = "threads", .timeout_s = 60}, &store),
        SHOAL_OK);
    for (int32_t r = 0; r < ranks; r++) {
        seats[r] = (struct seat){.store = store, .rank = r, .ranks = ranks, .bytes = bytes};
        assert_int_equal(pthread_create(&seats[r].thread, NULL, sit, &seats[r]), 0);
    }
    for (int32_t r = 0; r < ranks; r++) {
        pthread_join(seats[r].thread, NULL);
        most = seats[r].messages > most ? seats[r].messages : most;
    }
    for (int32_t r = 0; r < ranks; r++)
        assert_true(seats[r].passed && seats[r].took == ranks);
    shoali_store_close(store);
    return most;
}

/* The size of an address: rank 0 hears log2 N ranks and puts one value, the others hear fewer, put
 * one and get one. */
static void test_messages(void **state)
{
    (void)state;
    int64_t log = 0;
    for (int32_t ranks = 1; ranks <= RANKS; ranks *= 2, log++) {
        const int64_t most = exchange_of(ranks, 64);
        printf("%d ranks: at most %lld messages of a rank\n", (int)ranks, (long long)most);
        assert_true(most <= log + 1);
    }
    assert_true(exchange_of(200, 64) <= 8 + 1);
    assert_true(exchange_of(3, 64) <= 2 + 1);
}

/* In values of 64 KiB, of which the whole is several. */
static void test_large(void **state)
{
    (void)state;
    const int64_t pieces = (RANKS * LARGE / 2 + RANKS * 8) / 65536 + 1;
    assert_true(exchange_of(RANKS, LARGE) <= 8 + 3 * pieces);
}

/* A rank that fails is learnt of by those that wait. */
static void test_abort(void **state)
{
    (void)state;
    struct shoali_store *store = NULL;
    assert_int_equal(
        shoali_store_open(&(struct shoali_store_args){.kind = "threads", .timeout_s = 60}, &store),
        SHOAL_OK);
    struct seat seat = {.store = store, .rank = 1, .ranks = 2, .bytes = 64};
    assert_int_equal(pthread_create(&seat.thread, NULL, sit, &seat), 0);
    shoali_store_abort(store, "rank 0 failed: the disk is full");
    pthread_join(seat.thread, NULL);
    assert_false(seat.passed);
    shoali_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
