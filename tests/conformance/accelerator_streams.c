/* Streams, events, launches, threads. */
#include "accelerator_suite.h"

#include "base/scratch.h"

#include <pthread.h>

static void test_launch_order(void **state)
{
    struct fixture *f = *state;
    uint32_t *a = device_buffer(f, COUNT), out[COUNT], expected = 1;
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .count = COUNT, .value = 1}));
    struct mix_args args = {.out = a, .a = a, .count = COUNT};
    for (uint32_t i = 0; i < 200; i++) {
        args.value = i;
        OK(mix(f->stream[0], &args)); /* the block is copied: it changes in the next turn */
        expected = 3 * expected + i;
    }
    OK(shoali_download(f->stream[0], out, a, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], expected);
    assert_int_equal(counters_of(f).launch_count, 201);
    shoali_device_free(f->device, a);
}

/* value: bytes of working memory. */
static void working_kernel(const void *args, const struct shoali_kernel_context *context)
{
    const struct mix_args *mix = args;
    (void)context;
    mix->out[0] = shoali_scratch(mix->value) != NULL;
}

/* What a kernel works in is counted for all threads; of several kernels the most, rounded once. */
static void test_workspace(void **state)
{
    static const uint32_t asked[] = {100, 5000, 4000, 0};
    static const int64_t counted[] = {3 * 4096, 3 * 8192, 3 * 8192, 3 * 8192};
    struct fixture *f = *state;
    if (!current->host_kernels)
        return; /* it is a kernel of the host */
    uint32_t *a = device_buffer(f, COUNT), has;
    assert_non_null(shoali_scratch(100000)); /* what is asked for outside of kernels is not */
    assert_int_equal(shoali_device_threads(f->device), 3);
    assert_int_equal(counters_of(f).workspace_bytes, 0);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const struct mix_args args = {.out = a, .count = COUNT, .value = asked[i]};
        OK(shoali_launch(f->stream[0], &mix_type, working_kernel, &args));
        OK(shoali_download(f->stream[0], &has, a, sizeof has));
        assert_int_equal(has, 1);
        assert_int_equal(counters_of(f).workspace_bytes, counted[i]);
    }
    shoali_device_free(f->device, a);
}

static void test_pointer_array(void **state)
{
    struct fixture *f = *state;
    static const struct shoali_kernel_type type = {
        .name = "sum",
        .args_bytes = sizeof(struct sum_args),
        .pointers = {{"out", offsetof(struct sum_args, out), SHOALI_WRITES,
                      .count = {{offsetof(struct sum_args, count)}}}},
        .array_offset = offsetof(struct sum_args, input),
        .array_count_offset = offsetof(struct sum_args, input_count),
    };
    struct sum_args args = {.count = COUNT, .input_count = 4};
    /* Past the count is not a pointer, whatever it says. */
    memset(args.input, 0x11, sizeof args.input);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t *input = device_buffer(f, COUNT);
        OK(mix(f->stream[0], &(struct mix_args){.out = input, .count = COUNT, .value = 1u << i}));
        args.input[i] = input;
    }
    args.out = device_buffer(f, COUNT);
    OK(shoali_launch(f->stream[0], &type, sum_function(), &args));
    uint32_t out[COUNT];
    OK(shoali_download(f->stream[0], out, args.out, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], 15);
    for (int i = 0; i < 4; i++)
        shoali_device_free(f->device, (void *)(uintptr_t)args.input[i]);
    shoali_device_free(f->device, args.out);
}

static void test_sync_counts(void **state)
{
    struct fixture *f = *state;
    struct shoali_event *event;
    uint32_t *a = device_buffer(f, COUNT), x = 5;
    OK(shoali_event_create(f->device, &event));
    OK(shoali_fill(f->stream[0], a, 1, BYTES));
    OK(shoali_event_record(event, f->stream[0]));
    OK(shoali_stream_wait_event(f->stream[1], event));
    assert_int_equal(counters_of(f).host_sync_count, 0);
    OK(shoali_event_synchronize(event));
    assert_int_equal(counters_of(f).host_sync_count, 1);
    OK(shoali_stream_synchronize(f->stream[1]));
    assert_int_equal(counters_of(f).host_sync_count, 2);
    OK(shoali_upload(f->stream[0], a, &x, sizeof x));
    assert_int_equal(counters_of(f).host_sync_count, 3);
    OK(shoali_download(f->stream[0], &x, a, sizeof x));
    assert_int_equal(counters_of(f).host_sync_count, 4);
    assert_int_equal(counters_of(f).launch_count, 0);
    shoali_event_destroy(event);
    shoali_device_free(f->device, a);
}

static void test_events(void **state)
{
    struct fixture *f = *state;
    struct shoali_event *event, *never;
    uint32_t *a = device_buffer(f, COUNT), *b = device_buffer(f, COUNT), out[COUNT];
    OK(shoali_event_create(f->device, &event));
    OK(shoali_event_create(f->device, &never));
    /* Never recorded: complete. */
    OK(shoali_event_synchronize(never));
    OK(shoali_stream_wait_event(f->stream[1], never));
    shoali_event_destroy(never);
    /* A chain through three streams by one event, recorded anew each time; it may be destroyed
     * while waits for it are pending, and a wait means the record before it. */
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .count = COUNT, .value = 2}));
    OK(shoali_event_record(event, f->stream[0]));
    OK(shoali_stream_wait_event(f->stream[1], event));
    OK(mix(f->stream[1], &(struct mix_args){.out = b, .a = a, .count = COUNT, .value = 1}));
    OK(shoali_event_record(event, f->stream[1]));
    OK(shoali_stream_wait_event(f->stream[2], event));
    OK(mix(f->stream[2], &(struct mix_args){.out = b, .a = b, .b = a, .count = COUNT}));
    OK(shoali_event_record(event, f->stream[2]));
    OK(shoali_stream_wait_event(f->stream[2], event)); /* on itself: nothing to wait for */
    OK(shoali_stream_wait_event(f->stream[0], event));
    shoali_event_destroy(event);
    OK(shoali_download(f->stream[0], out, b, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], 3 * (3 * 2 + 1) + 2);
    shoali_device_free(f->device, a);
    shoali_device_free(f->device, b);
}

/* The time between two events is that of the work between them, across streams too. */
static void test_elapsed(void **state)
{
    enum { MANY = 50 };
    struct fixture *f = *state;
    struct shoali_event *begin, *middle, *end, *untimed;
    uint32_t *a = device_buffer(f, COUNT), *b = device_buffer(f, COUNT);
    int64_t ns, first, second, all;
    OK(shoali_event_create_timed(f->device, &begin));
    OK(shoali_event_create_timed(f->device, &middle));
    OK(shoali_event_create_timed(f->device, &end));
    OK(shoali_event_create(f->device, &untimed));
    OK(shoali_event_record(untimed, f->stream[0]));
    assert_int_equal(shoali_event_elapsed(begin, end, &ns), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "the first is not recorded"));
    OK(shoali_event_record(end, f->stream[0])); /* recorded anew below */
    OK(shoali_event_record(begin, f->stream[0]));
    assert_int_equal(shoali_event_elapsed(begin, untimed, &ns), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "the second is not timed"));
    for (int i = 0; i < MANY; i++)
        OK(mix(f->stream[0], &(struct mix_args){.out = a, .count = COUNT, .value = 1}));
    OK(shoali_event_record(middle, f->stream[0]));
    OK(shoali_stream_wait_event(f->stream[1], middle));
    for (int i = 0; i < MANY; i++)
        OK(mix(f->stream[1], &(struct mix_args){.out = b, .a = a, .count = COUNT, .value = 1}));
    OK(shoali_event_record(end, f->stream[1]));
    OK(shoali_event_elapsed(begin, end, &all)); /* waits by itself */
    OK(shoali_event_elapsed(begin, middle, &first));
    OK(shoali_event_elapsed(middle, end, &second));
    assert_true(first > 0 && second > 0);
    /* A GPU's clock ticks each half of a microsecond. */
    assert_true(all - first - second < 2000 && first + second - all < 2000);
    OK(shoali_event_record(begin, f->stream[1])); /* destroyed before the stream comes to it */
    shoali_event_destroy(begin);
    shoali_event_destroy(middle);
    shoali_event_destroy(end);
    shoali_event_destroy(untimed);
    OK(shoali_stream_synchronize(f->stream[1]));
    shoali_device_free(f->device, a);
    shoali_device_free(f->device, b);
}

/* A random program over 3 streams and 6 buffers, against a host model in program order.
 * Cross-stream order comes from events alone; buffers are freed and allocated in between without
 * any wait. */
enum { SLOTS = 6, SMALL = 40, STEPS = 1500 };

struct program {
    struct fixture *f;
    struct shoali_stream random;
    uint64_t drawn;
    uint32_t *slot[SLOTS];
    uint32_t model[SLOTS][SMALL];
    struct shoali_event *used[SLOTS][3]; /* last use of the slot on each stream */
};

static uint32_t draw(struct program *p, uint32_t bound)
{
    return (uint32_t)shoali_random_below(&p->random, p->drawn++, bound);
}

/* Orders `stream` behind every use of the slot so far (reads too: a coarse but correct rule). */
static void order_behind(struct program *p, uint32_t slot, uint32_t stream)
{
    for (uint32_t s = 0; s < 3; s++)
        if (s != stream)
            OK(shoali_stream_wait_event(p->f->stream[stream], p->used[slot][s]));
}

static void renew(struct program *p, uint32_t slot, uint32_t stream)
{
    shoali_device_free(p->f->device, p->slot[slot]); /* its users may not have run yet */
    p->slot[slot] = device_buffer(p->f, SMALL);
    OK(shoali_fill(p->f->stream[stream], p->slot[slot], (uint8_t)slot, SMALL * sizeof(uint32_t)));
    memset(p->model[slot], (int)slot, sizeof p->model[slot]);
    OK(shoali_event_record(p->used[slot][stream], p->f->stream[stream]));
}

static void step(struct program *p)
{
    const uint32_t stream = draw(p, 3), out = draw(p, SLOTS);
    const uint32_t a = draw(p, SLOTS), b = draw(p, SLOTS), value = draw(p, 1000);
    if (draw(p, 5) == 0) {
        renew(p, out, stream);
        return;
    }
    const uint32_t slots[3] = {out, a, b};
    for (int i = 0; i < 3; i++)
        order_behind(p, slots[i], stream);
    OK(mix(p->f->stream[stream], &(struct mix_args){.out = p->slot[out],
                                                    .a = p->slot[a],
                                                    .b = p->slot[b],
                                                    .count = SMALL,
                                                    .value = value}));
    for (int i = 0; i < SMALL; i++)
        p->model[out][i] = 3 * p->model[a][i] + p->model[b][i] + value;
    for (int i = 0; i < 3; i++)
        OK(shoali_event_record(p->used[slots[i]][stream], p->f->stream[stream]));
    if (draw(p, 100) == 0)
        OK(shoali_stream_synchronize(p->f->stream[draw(p, 3)]));
}

static void test_random_program(void **state)
{
    const uint64_t seed = 20240607;
    print_message("random program: seed %llu\n", (unsigned long long)seed);
    struct program p = {.f = *state, .random = shoali_stream_make(seed, "test", "", 0)};
    for (uint32_t i = 0; i < SLOTS; i++) {
        for (int s = 0; s < 3; s++)
            OK(shoali_event_create(p.f->device, &p.used[i][s]));
        renew(&p, i, 0);
    }
    for (int i = 0; i < STEPS; i++)
        step(&p);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t out[SMALL];
        order_behind(&p, i, 0);
        OK(shoali_download(p.f->stream[0], out, p.slot[i], sizeof out));
        assert_memory_equal(out, p.model[i], sizeof out);
        for (int s = 0; s < 3; s++)
            shoali_event_destroy(p.used[i][s]);
        shoali_device_free(p.f->device, p.slot[i]);
    }
}

/* A freed block is not handed out again while work queued before the free may use it. */
static void test_quarantine(void **state)
{
    struct fixture *f = *state;
    uint32_t *keep = device_buffer(f, COUNT), out[COUNT];
    for (uint32_t turn = 0; turn < 50; turn++) {
        uint32_t *scratch = device_buffer(f, COUNT);
        struct shoali_device_stream *stream = f->stream[turn % 3];
        OK(mix(stream, &(struct mix_args){.out = scratch, .count = COUNT, .value = turn}));
        OK(mix(stream, &(struct mix_args){.out = keep, .a = scratch, .count = COUNT}));
        shoali_device_free(f->device, scratch);
        uint32_t *next = device_buffer(f, COUNT);
        OK(shoali_fill(f->stream[(turn + 1) % 3], next, 0xee, BYTES));
        OK(shoali_stream_synchronize(f->stream[(turn + 1) % 3]));
        OK(shoali_download(stream, out, keep, BYTES));
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(out[i], 3 * turn);
        shoali_device_free(f->device, next);
    }
    shoali_device_free(f->device, keep);
}

/* The rank's communication thread: its own stream of the same device. */
struct other_thread {
    struct fixture *f;
    uint32_t result[COUNT];
};

static void *communicate(void *argument)
{
    struct other_thread *other = argument;
    uint32_t *a = device_buffer(other->f, COUNT);
    OK(mix(other->f->stream[1], &(struct mix_args){.out = a, .count = COUNT, .value = 1}));
    for (int i = 0; i < 100; i++) {
        OK(mix(other->f->stream[1], &(struct mix_args){.out = a, .a = a, .count = COUNT}));
        if (i % 10 == 0)
            OK(shoali_stream_synchronize(other->f->stream[1]));
    }
    OK(shoali_download(other->f->stream[1], other->result, a, BYTES));
    shoali_device_free(other->f->device, a);
    return NULL;
}

static void test_two_threads(void **state)
{
    struct fixture *f = *state;
    struct other_thread mine = {.f = f}, other = {.f = f};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, communicate, &other), 0);
    uint32_t expected = 1, *a = device_buffer(f, COUNT);
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .count = COUNT, .value = 1}));
    for (int i = 0; i < 100; i++) {
        OK(mix(f->stream[0], &(struct mix_args){.out = a, .a = a, .count = COUNT}));
        shoali_device_free(f->device, device_buffer(f, 100));
        expected *= 3;
    }
    OK(shoali_download(f->stream[0], mine.result, a, BYTES));
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(mine.result[i], expected);
    assert_memory_equal(mine.result, other.result, BYTES);
    shoali_device_free(f->device, a);
}

/* Ranks as threads: a device each. */
static void *run_rank(void *argument)
{
    (void)argument;
    struct fixture f = {0};
    struct other_thread other = {.f = &f};
    OK(shoali_device_create(current, 0, NULL, &f.device));
    OK(shoali_stream_create(f.device, &f.stream[1]));
    (void)communicate(&other);
    shoali_stream_destroy(f.stream[1]);
    shoali_device_destroy(f.device);
    return NULL;
}

static void test_many_devices(void **state)
{
    (void)state;
    limit_memory(NULL); /* the full default reservation each */
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
}

/* Destroying a stream runs what it holds; a device does the same for the streams that are left. */
static void test_destroy_drains(void **state)
{
    struct fixture *f = *state;
    struct shoali_device_stream *brief;
    uint32_t *a = device_buffer(f, COUNT), out[COUNT];
    OK(shoali_stream_create(f->device, &brief));
    OK(mix(brief, &(struct mix_args){.out = a, .count = COUNT, .value = 9}));
    shoali_stream_destroy(brief);
    OK(shoali_download(f->stream[0], out, a, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], 9);
    OK(mix(f->stream[1], &(struct mix_args){.out = a, .count = COUNT, .value = 9}));
    shoali_device_free(f->device, a);
}

int accelerator_streams(void)
{
    const struct CMUnitTest tests[] = {
        ACCELERATOR_TEST(test_workspace),      ACCELERATOR_TEST(test_launch_order),
        ACCELERATOR_TEST(test_pointer_array),  ACCELERATOR_TEST(test_sync_counts),
        ACCELERATOR_TEST(test_events),         ACCELERATOR_TEST(test_elapsed),
        ACCELERATOR_TEST(test_random_program), ACCELERATOR_TEST(test_quarantine),
        ACCELERATOR_TEST(test_two_threads),    ACCELERATOR_TEST(test_many_devices),
        ACCELERATOR_TEST(test_destroy_drains),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
