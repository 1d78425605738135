/* Work of the host in a stream, and the pinned memory that belongs to one. */
#include "accelerator_suite.h"

#include <stdatomic.h>
#include <time.h>

/* A task that takes some looks, then adds 1 to each word of its first buffer. */
struct adder {
    int32_t looks;         /* before it is over */
    _Atomic int32_t *gate; /* NULL, or what it waits for to become 1 */
    _Atomic int32_t *over; /* NULL, or what counts those that are */
    _Atomic int32_t *dropped;
    shoal_status status; /* what it ends with */
    char sentence[128];  /* of drop */
};

static shoal_status add_one(void *user, void *const *buffers, bool may_wait)
{
    struct adder *adder = user;
    if (!may_wait && adder->looks-- > 0)
        return SHOAL_IN_PROGRESS;
    if (adder->gate && atomic_load(adder->gate) == 0)
        return SHOAL_IN_PROGRESS;
    uint32_t *word = buffers[0];
    for (int i = 0; word && i < COUNT; i++)
        word[i]++;
    if (adder->over)
        atomic_fetch_add(adder->over, 1);
    if (buffers[1]) /* it has named no second one */
        return SHOAL_FAIL(SHOAL_EINTERNAL, "a second buffer at %p", buffers[1]);
    return adder->status < 0 ? SHOAL_FAIL(adder->status, "the net of x%d is torn", 7) : SHOAL_OK;
}

static void drop_adder(void *user, shoal_status status, const char *sentence)
{
    struct adder *adder = user;
    adder->status = status;
    (void)snprintf(adder->sentence, sizeof adder->sentence, "%s", sentence);
    if (adder->dropped)
        atomic_fetch_add(adder->dropped, 1);
}

static shoal_status launch_adder(struct shoali_device_stream *stream, struct adder *adder,
                                 uint32_t *words)
{
    return shoali_launch_host(stream, &(struct shoali_host_task){.name = "adder",
                                                                 .buffer = {{words, BYTES}},
                                                                 .poll = add_one,
                                                                 .drop = drop_adder,
                                                                 .user = adder});
}

/* The words are of the device where its tasks can reach them, else pinned. */
static uint32_t *task_words(struct fixture *f)
{
    void *memory;
    if (current->exportable)
        return device_buffer(f, COUNT);
    OK(shoali_device_host_alloc(f->device, BYTES, &memory));
    return memory;
}

static void free_words(struct fixture *f, uint32_t *words)
{
    if (current->exportable)
        shoali_device_free(f->device, words);
    else
        shoali_device_host_free(f->device, words);
}

/* What one of them is, when the stream's work is over. */
static uint32_t last_word(struct fixture *f, const uint32_t *words)
{
    uint32_t out[COUNT];
    OK(shoali_stream_synchronize(f->stream[0]));
    if (!current->exportable)
        return words[COUNT - 1];
    OK(shoali_download(f->stream[0], out, words, BYTES));
    return out[COUNT - 1];
}

static void test_task_is_in_order(void **state)
{
    enum { TURNS = 20 };
    struct fixture *f = *state;
    uint32_t *a = task_words(f), *b = device_buffer(f, COUNT), out[COUNT], expected = 5;
    struct adder adder[TURNS];
    const struct shoali_device_counters before = counters_of(f);
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .count = COUNT, .value = 5}));
    for (int i = 0; i < TURNS; i++) {
        adder[i] = (struct adder){.looks = i % 4};
        OK(launch_adder(f->stream[0], &adder[i], a));
        OK(mix(f->stream[0], &(struct mix_args){.out = b, .a = a, .count = COUNT}));
        OK(mix(f->stream[0], &(struct mix_args){.out = a, .b = b, .count = COUNT}));
        expected = 3 * (expected + 1);
    }
    assert_int_equal(counters_of(f).host_sync_count, before.host_sync_count);
    OK(shoali_download(f->stream[0], out, b, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], expected);
    free_words(f, a);
    shoali_device_free(f->device, b);
}

/* The first stream's task waits for what the second's will do, which nobody has asked for. */
static void test_task_lets_others_run(void **state)
{
    struct fixture *f = *state;
    _Atomic int32_t gate = 0;
    uint32_t *a;
    struct adder waits = {.gate = &gate}, opens = {.looks = 3, .over = &gate};
    if (current->host_accessible)
        return; /* a task is over when it has been launched */
    a = task_words(f);
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .count = COUNT}));
    OK(launch_adder(f->stream[0], &waits, a));
    OK(launch_adder(f->stream[1], &opens, NULL));
    assert_int_equal(last_word(f, a), 1);
    free_words(f, a);
}

/* The host is elsewhere, and yet the task's turn comes. */
static void test_streams_go_on_alone(void **state)
{
    struct fixture *f = *state;
    _Atomic int32_t over = 0;
    struct adder first = {.looks = 5, .over = &over}, second = first;
    OK(launch_adder(f->stream[0], &first, NULL));
    for (int round = 0; round < 2; round++) {
        for (int ms = 0; ms < 60000 && atomic_load(&over) <= round; ms++)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        assert_int_equal(atomic_load(&over), round + 1);
        if (round == 0) /* when there was nothing to do for a while */
            OK(launch_adder(f->stream[1], &second, NULL));
    }
}

static void assert_failed(shoal_status status)
{
    assert_int_equal(status, SHOAL_EPEER);
    assert_string_equal(shoal_error_message(), "the net of x7 is torn");
    shoali_error_clear();
}

/* A copy to memory that is not pinned comes right behind a task. A driver holds its locks while
 * such a copy waits, so the end of a task may not need them. */
static void test_downloads_behind_tasks(void **state)
{
    enum { TIMES = 100 };
    struct fixture *f = *state;
    uint32_t *words = task_words(f), *a = device_buffer(f, COUNT), out[COUNT];
    struct adder adder[TIMES];
    OK(shoali_fill(f->stream[0], a, 3, BYTES));
    for (int i = 0; i < TIMES; i++) {
        adder[i] = (struct adder){.looks = i % 3};
        OK(launch_adder(f->stream[0], &adder[i], words));
        OK(shoali_download(f->stream[0], out, a, BYTES));
        assert_int_equal(out[COUNT - 1], 0x03030303);
    }
    shoali_device_free(f->device, a);
    free_words(f, words);
}

/* Where work runs at once, the caller gets the error and that is all. */
static void test_failure_at_once(struct fixture *f)
{
    struct adder torn = {.status = SHOAL_EPEER};
    assert_failed(launch_adder(f->stream[0], &torn, NULL));
    OK(shoali_stream_synchronize(f->stream[0]));
}

static void test_failure_is_remembered(void **state)
{
    struct fixture *f = *state;
    _Atomic int32_t dropped = 0, over = 0;
    uint32_t *a = device_buffer(f, COUNT), word = 0;
    struct shoali_event *event;
    struct adder torn = {.looks = 2, .status = SHOAL_EPEER},
                 next = {.over = &over, .dropped = &dropped}, later = next, last = next;
    if (current->host_accessible) {
        test_failure_at_once(f);
        shoali_device_free(f->device, a);
        return;
    }
    OK(shoali_event_create(f->device, &event));
    OK(launch_adder(f->stream[0], &torn, NULL));
    (void)!launch_adder(f->stream[0], &next, NULL); /* it may have failed by now */
    (void)!launch_adder(f->stream[0], &later, NULL);
    assert_failed(shoali_stream_synchronize(f->stream[0]));
    assert_int_equal(atomic_load(&dropped), 2);
    assert_int_equal(atomic_load(&over), 0);
    assert_int_equal(later.status, SHOAL_EPEER);
    assert_string_equal(later.sentence, "the net of x7 is torn");
    assert_failed(shoali_stream_synchronize(f->stream[1]));
    assert_failed(mix(f->stream[1], &(struct mix_args){.out = a, .count = COUNT}));
    assert_failed(shoali_fill(f->stream[1], a, 0, BYTES));
    assert_failed(shoali_upload(f->stream[2], a, &word, sizeof word));
    OK(shoali_event_record(event, f->stream[1]));
    assert_failed(shoali_event_synchronize(event));
    assert_failed(launch_adder(f->stream[1], &last, NULL));
    assert_int_equal(atomic_load(&dropped), 3);
    shoali_event_destroy(event);
    shoali_device_free(f->device, a);
}

static void test_staging(void **state)
{
    struct fixture *f = *state;
    void *first, *second, *other, *again;
    uint32_t *a = device_buffer(f, COUNT), out[COUNT];
    OK(shoali_stream_staging(f->stream[0], 0, BYTES, &first));
    OK(shoali_stream_staging(f->stream[0], 1, BYTES, &second));
    OK(shoali_stream_staging(f->stream[1], 0, BYTES, &other));
    assert_true(first != second && first != other && second != other);
    assert_int_equal(counters_of(f).host_bytes, 3 * BYTES);
    OK(shoali_fill(f->stream[0], a, 7, BYTES));
    OK(shoali_copy(f->stream[0], first, a, BYTES, SHOALI_DEVICE_TO_HOST));
    OK(shoali_fill(f->stream[0], a, 0, BYTES));
    OK(shoali_stream_staging(f->stream[0], 0, BYTES / 2, &again));
    assert_ptr_equal(again, first);
    OK(shoali_copy(f->stream[0], a, again, BYTES, SHOALI_HOST_TO_DEVICE));
    OK(shoali_stream_staging(f->stream[0], 0, 2 * BYTES,
                             &again)); /* what is queued keeps the old */
    assert_int_equal(counters_of(f).host_bytes, 4 * BYTES);
    OK(shoali_download(f->stream[0], out, a, BYTES));
    assert_int_equal(out[COUNT - 1], 0x07070707);
    shoali_device_free(f->device, a);
    shoali_stream_destroy(f->stream[1]);
    f->stream[1] = NULL;
    assert_int_equal(counters_of(f).host_bytes, 3 * BYTES);
}

int accelerator_tasks(void)
{
    const struct CMUnitTest tests[] = {
        ACCELERATOR_TEST(test_task_is_in_order),      ACCELERATOR_TEST(test_task_lets_others_run),
        ACCELERATOR_TEST(test_streams_go_on_alone),   ACCELERATOR_TEST(test_downloads_behind_tasks),
        ACCELERATOR_TEST(test_failure_is_remembered), ACCELERATOR_TEST(test_staging),
    };
    return cmocka_run_group_tests_name("tasks", tests, NULL, NULL);
}
