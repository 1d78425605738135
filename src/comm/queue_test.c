/* Lanes, holding and removal, with a group whose requests advance as a test says. */
#include "base/test_cmocka.h"
#include "comm/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group {
    struct shoali_queue queue;
    shoal_status answer[SHOALI_QUEUE_REQUESTS];
    char advanced[64]; /* a letter per call of `advance`: index 0 is 'a' */
};

static shoal_status advance(void *user, int32_t index)
{
    struct group *group = user;
    const size_t at = strlen(group->advanced);
    assert_true(at + 1 < sizeof group->advanced);
    group->advanced[at] = (char)('a' + index);
    return group->answer[index];
}

/* What a pass advances. */
static const char *pass(struct group *group, shoal_status expected)
{
    memset(group->advanced, 0, sizeof group->advanced);
    assert_int_equal(shoali_queue_advance(&group->queue, advance, group), expected);
    return group->advanced;
}

static int32_t add(struct group *group, enum shoali_collective kind, int32_t peer)
{
    int32_t index = -1;
    const struct shoali_post post = {.kind = kind, .here = "a.c:1", .peer = peer};
    assert_int_equal(shoali_queue_add(&group->queue, &post, &index), SHOAL_OK);
    group->answer[index] = SHOAL_IN_PROGRESS;
    return index;
}

static void each_lane_advances_in_order_of_posts(void **state)
{
    struct group group = {0};
    (void)state;
    add(&group, SHOALI_ALL_REDUCE, 0); /* a */
    add(&group, SHOALI_SEND, 1);       /* b */
    add(&group, SHOALI_BROADCAST, 1);  /* c: behind a, whatever its root is */
    add(&group, SHOALI_RECV, 1);       /* d: another direction than b */
    add(&group, SHOALI_SEND, 1);       /* e: behind b */
    add(&group, SHOALI_SEND, 0);       /* f: to another rank */
    add(&group, SHOALI_RECV, 1);       /* g: behind d */
    assert_string_equal(pass(&group, SHOAL_OK), "abdf");
    /* A request that is over lets the next one go on in the same pass. */
    group.answer[1] = SHOAL_OK;
    assert_string_equal(pass(&group, SHOAL_OK), "abdef");
    group.answer[0] = group.answer[2] = group.answer[3] = SHOAL_OK;
    assert_string_equal(pass(&group, SHOAL_OK), "acdefg");
    assert_string_equal(pass(&group, SHOAL_OK), "efg");
}

static void overlapping_messages_are_not_held(void **state)
{
    struct group group = {.queue.messages_overlap = true};
    (void)state;
    add(&group, SHOALI_SEND, 1);
    add(&group, SHOALI_BARRIER, 0);
    add(&group, SHOALI_SEND, 1);
    add(&group, SHOALI_BARRIER, 0);
    assert_string_equal(pass(&group, SHOAL_OK), "abc");
}

static void a_done_request_keeps_its_index_until_it_is_taken(void **state)
{
    struct group group = {0};
    (void)state;
    const int32_t first = add(&group, SHOALI_BARRIER, 0);
    assert_false(shoali_queue_take_done(&group.queue, first));
    group.answer[first] = SHOAL_OK;
    assert_string_equal(pass(&group, SHOAL_OK), "a");
    assert_true(shoali_queue_is_done(&group.queue, first));
    assert_int_equal(add(&group, SHOALI_BARRIER, 0), 1);
    assert_true(shoali_queue_take_done(&group.queue, first));
    assert_false(shoali_queue_take_done(&group.queue, first));
    assert_int_equal(add(&group, SHOALI_BARRIER, 0), first);
    /* The order is that of posts, not of indices. */
    assert_string_equal(pass(&group, SHOAL_OK), "b");
}

static void an_error_ends_the_pass(void **state)
{
    struct group group = {0};
    (void)state;
    add(&group, SHOALI_SEND, 0);
    add(&group, SHOALI_SEND, 1);
    add(&group, SHOALI_SEND, 2);
    group.answer[1] = SHOAL_EMISMATCH;
    assert_string_equal(pass(&group, SHOAL_EMISMATCH), "ab");
    assert_int_equal(group.queue.failed, 1);
    assert_false(shoali_queue_is_done(&group.queue, 1));
    shoali_queue_remove(&group.queue, 1);
    assert_string_equal(pass(&group, SHOAL_OK), "ac");
    assert_int_equal(add(&group, SHOALI_SEND, 2), 1);
    assert_string_equal(pass(&group, SHOAL_OK), "ac");
}

static void nothing_advances_after_giving_up(void **state)
{
    struct group group = {0};
    (void)state;
    const int32_t index = add(&group, SHOALI_BARRIER, 0);
    add(&group, SHOALI_SEND, 0);
    group.queue.gave_up = true;
    shoali_queue_remove(&group.queue, index);
    assert_string_equal(pass(&group, SHOAL_OK), "");
}

static void a_collective_waits_for_the_first(void **state)
{
    struct group group = {0};
    (void)state;
    const int32_t message = add(&group, SHOALI_SEND, 0);
    const int32_t first = add(&group, SHOALI_BARRIER, 0);
    const int32_t later = add(&group, SHOALI_SEND, 0);
    const int32_t last = add(&group, SHOALI_ALL_GATHER, 0);
    assert_int_equal(shoali_queue_first(&group.queue, last), first);
    assert_int_equal(shoali_queue_first(&group.queue, first), first);
    assert_int_equal(shoali_queue_first(&group.queue, later), later);
    assert_int_equal(shoali_queue_first(&group.queue, message), message);
    shoali_queue_remove(&group.queue, first);
    assert_int_equal(shoali_queue_first(&group.queue, last), last);
}

static void a_full_queue_refuses(void **state)
{
    struct group group = {0};
    const struct shoali_post post = {.kind = SHOALI_BARRIER, .here = "a.c:7"};
    int32_t index = -1;
    (void)state;
    for (int32_t i = 0; i < SHOALI_QUEUE_REQUESTS; i++)
        assert_int_equal(add(&group, SHOALI_BARRIER, 0), i);
    assert_int_equal(shoali_queue_add(&group.queue, &post, &index), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "at most 17 outstanding requests"));
    assert_non_null(strstr(shoal_error_message(), "barrier at a.c:7"));
    assert_int_equal(index, -1);
    assert_int_equal(group.queue.count, SHOALI_QUEUE_REQUESTS);
    shoali_queue_remove(&group.queue, 16);
    assert_int_equal(add(&group, SHOALI_BARRIER, 0), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lane_advances_in_order_of_posts),
        cmocka_unit_test(overlapping_messages_are_not_held),
        cmocka_unit_test(a_done_request_keeps_its_index_until_it_is_taken),
        cmocka_unit_test(an_error_ends_the_pass),
        cmocka_unit_test(nothing_advances_after_giving_up),
        cmocka_unit_test(a_collective_waits_for_the_first),
        cmocka_unit_test(a_full_queue_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
