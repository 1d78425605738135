/* Ranks that post different calls: the sentence names each part in which two records differ. Behind
 * the wrapper stands a backend without ranks, which shows it two records. */
#include "base/test_cmocka.h"
#include "comm/wrap/wrap.h"

#include <stdio.h>
#include <string.h>

static struct shoali_record record[2];

static shoal_status show(void *backend, const struct shoali_post *post, void **request)
{
    const struct shoali_seat seats[2] = {{.world_rank = 4, .record = &record[0]},
                                         {.world_rank = 6, .record = &record[1]}};
    (void)backend;
    *request = NULL;
    return post->agree(seats, 2);
}

/* The sentence for the two records, "" where they agree. */
static const char *sentence(void)
{
    static const struct shoali_comm_ops ops = {.post = show};
    struct shoali_wrap wrap = {.inner_ops = &ops};
    void *request = NULL;
    const shoal_status status =
        shoali_comm_check.post(&wrap, &(struct shoali_post){.kind = SHOALI_BARRIER}, &request);
    assert_true(status == SHOAL_OK || status == SHOAL_EMISMATCH);
    return status == SHOAL_OK ? "" : shoal_error_message();
}

static void set_both(enum shoali_collective kind)
{
    for (int i = 0; i < 2; i++)
        record[i] = (struct shoali_record){.sequence = 9,
                                           .group = 3,
                                           .count = 12,
                                           .kind = (int32_t)kind,
                                           .dtype = SHOAL_F32,
                                           .op = SHOAL_SUM,
                                           .peer = 1,
                                           .tag = 70,
                                           .here = "a.c:1"};
}

static void expect_differences(const char *text)
{
    char wanted[256];
    snprintf(wanted, sizeof wanted, "; they differ in %s: ", text);
    if (!strstr(sentence(), wanted))
        fail_msg("no \"%s\" in: %s", wanted, sentence());
}

/* One part after the other, for every collective. */
static void test_each_part(void **state)
{
    (void)state;
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++) {
        if (kind == SHOALI_SEND || kind == SHOALI_RECV)
            continue;
        set_both((enum shoali_collective)kind);
        assert_string_equal(sentence(), "");
        record[1].sequence = 10;
        expect_differences("sequence number (9 and 10)");
        record[1].sequence = 9;
        record[1].group = 5;
        expect_differences("group (3 and 5)");
        record[1].group = 3;
        record[1].count = 13;
        expect_differences("count (12 and 13)");
        record[1].count = 12;
        record[1].dtype = SHOAL_BF16;
        expect_differences("type (F32 and BF16)");
        record[1].dtype = SHOAL_F32;
        record[1].op = SHOAL_MAX;
        expect_differences("operation (sum and max)");
        record[1].op = SHOAL_SUM;
        record[1].peer = 0;
        expect_differences("root or peer (1 and 0)");
        record[1].peer = 1;
        record[1].tag = 71;
        expect_differences("buffer (70 and 71)");
    }
}

static void test_all_parts(void **state)
{
    (void)state;
    set_both(SHOALI_ALL_GATHER);
    record[1] = (struct shoali_record){.sequence = UINT64_MAX >> 1,
                                       .group = 5,
                                       .count = INT64_MAX,
                                       .kind = SHOALI_BROADCAST,
                                       .dtype = SHOAL_BF16,
                                       .op = SHOAL_MAX,
                                       .peer = INT32_MAX,
                                       .tag = INT32_MIN,
                                       .here = "b.c:2"};
    expect_differences(
        "call (all_gather and broadcast), sequence number (9 and "
        "9223372036854775807), group (3 and 5), count (12 and 9223372036854775807), "
        "root or peer (1 and 2147483647), buffer (70 and -2147483648), type (F32 and "
        "BF16), operation (sum and max)");
}

/* A send and its recv are different calls, number apart and are peers of each other. */
static void test_messages(void **state)
{
    (void)state;
    set_both(SHOALI_SEND);
    record[1].kind = SHOALI_RECV;
    record[1].peer = 0;
    record[1].sequence = 2;
    assert_string_equal(sentence(), "");
    record[1].count = 13;
    expect_differences("count (12 and 13)");
    record[1].dtype = SHOAL_BF16;
    record[1].tag = 71;
    expect_differences("count (12 and 13), buffer (70 and 71), type (F32 and BF16)");
    record[1].count = 12;
    record[1].tag = 70;
    expect_differences("type (F32 and BF16)");
    record[1].dtype = SHOAL_F32;
    record[1].tag = 71;
    assert_non_null(strstr(sentence(), "is not the one expected (buffers 70 and 71)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part),
        cmocka_unit_test(test_all_parts),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
