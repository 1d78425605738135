/* accelerator_test.c - one suite for every accelerator table: cpu, and sim with its three kinds of
 * streams. */
#include "accelerator/test_kernels.h"

#include <pthread.h>

#define COUNT 1000 /* elements of most buffers */
#define BYTES (COUNT * sizeof(uint32_t))

struct variant {
    const struct shoali_accelerator *accelerator;
    const char *streams;
};

/* What a test starts with. */
struct fixture {
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_device_stream *stream[3];
};

static const struct variant *current;

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(setenv("SHOAL_SIM_STREAMS", current->streams, 1), 0);
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    OK(shoali_pool_create(3, &f->pool));
    OK(shoali_device_create(current->accelerator, 0, f->pool, &f->device));
    for (int i = 0; i < 3; i++)
        OK(shoali_stream_create(f->device, &f->stream[i]));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct shoali_device_counters counters;
    shoali_device_get_counters(f->device, &counters);
    for (int i = 0; i < 3; i++)
        shoali_stream_destroy(f->stream[i]);
    shoali_device_destroy(f->device);
    shoali_pool_destroy(f->pool);
    free(f);
    return counters.allocated_bytes == 0 ? 0 : -1;
}

static uint32_t *device_buffer(struct fixture *f, size_t count)
{
    void *address;
    OK(shoali_device_alloc(f->device, count * sizeof(uint32_t), &address));
    return address;
}

static struct shoali_device_counters counters_of(const struct fixture *f)
{
    struct shoali_device_counters counters;
    shoali_device_get_counters(f->device, &counters);
    return counters;
}

static void test_table(void **state)
{
    struct fixture *f = *state;
    assert_ptr_equal(shoali_device_accelerator(f->device), current->accelerator);
    assert_ptr_equal(shoali_device_pool(f->device), f->pool);
    assert_ptr_equal(shoali_stream_device(f->stream[1]), f->device);
    assert_true(current->accelerator->probe());
    assert_true(current->accelerator->device_count() >= 1);
    struct shoali_device *none;
    assert_int_equal(shoali_device_create(current->accelerator, -1, NULL, &none), SHOAL_EINVAL);
    assert_null(none);
    shoali_device_destroy(NULL);
    shoali_device_free(f->device, NULL);
    shoali_device_host_free(f->device, NULL);
}

static void test_alloc(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 0, 1, 63, 64, 65, 4096, 3 << 20, (2 << 20) + 1};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    void *address[SIZES];
    int64_t sum = 0, total, available, before;
    shoali_device_memory(f->device, &total, &before);
    assert_true(total > 0 && before > 0 && before <= total);
    for (int i = 0; i < SIZES; i++) {
        OK(shoali_device_alloc(f->device, sizes[i], &address[i]));
        assert_non_null(address[i]);
        assert_int_equal((uintptr_t)address[i] % 64, 0);
        for (int j = 0; j < i; j++) {
            const char *a = address[i], *b = address[j];
            assert_ptr_not_equal(a, b);
            assert_true(a + sizes[i] <= b || b + sizes[j] <= a);
        }
        sum += (int64_t)sizes[i];
        assert_int_equal(counters_of(f).allocated_bytes, sum);
    }
    shoali_device_memory(f->device, &total, &available);
    assert_true(available >= 0 && available <= total);
    for (int i = 0; i < SIZES; i++)
        shoali_device_free(f->device, address[i]);
    assert_int_equal(counters_of(f).allocated_bytes, 0);
    assert_int_equal(counters_of(f).peak_bytes, sum);
    assert_int_equal(counters_of(f).alloc_count, SIZES);
    shoali_device_free(f->device, device_buffer(f, 1));
    assert_int_equal(counters_of(f).peak_bytes, sum);
}

static void test_out_of_memory(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "1048576", 1), 0);
    assert_int_equal(setenv("SHOAL_CPU_BYTES", "1048576", 1), 0);
    struct shoali_device *small;
    OK(shoali_device_create(current->accelerator, 0, NULL, &small));
    assert_int_equal(unsetenv("SHOAL_CPU_BYTES"), 0);
    void *address;
    assert_int_equal(shoali_device_alloc(small, 2000000, &address), SHOAL_ENOMEM);
    assert_null(address);
    assert_non_null(strstr(shoal_error_message(), "2000000 bytes"));
    assert_non_null(strstr(shoal_error_message(), "1048576 bytes"));
    assert_int_equal(shoali_device_alloc(small, SIZE_MAX - 10, &address), SHOAL_ENOMEM);
    OK(shoali_device_alloc(small, 600000, &address));
    void *second;
    assert_int_equal(shoali_device_alloc(small, 600000, &second), SHOAL_ENOMEM);
    shoali_device_free(small, address);
    OK(shoali_device_alloc(small, 1000000, &second));
    shoali_device_free(small, second);
    shoali_device_destroy(small);

    assert_true(shoali_fault_arm("device_alloc:1"));
    OK(shoali_device_alloc(f->device, 8, &address));
    assert_int_equal(shoali_device_alloc(f->device, 8, &second), SHOAL_ENOMEM);
    assert_null(second);
    assert_true(shoali_fault_arm(NULL));
    shoali_device_free(f->device, address);
}

static void test_wrong_settings(void **state)
{
    (void)state;
    const bool sim = strcmp(current->accelerator->name, "sim") == 0;
    const char *const bytes = sim ? "SHOAL_SIM_BYTES" : "SHOAL_CPU_BYTES";
    struct shoali_device *none;
    static const char *const wrong[] = {"many", "0", "-5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(setenv(bytes, wrong[i], 1), 0);
        assert_int_equal(shoali_device_create(current->accelerator, 0, NULL, &none), SHOAL_ECONFIG);
        assert_non_null(strstr(shoal_error_message(), bytes));
    }
    assert_int_equal(unsetenv(bytes), 0);
}

static void test_copies(void **state)
{
    struct fixture *f = *state;
    uint32_t in[COUNT], out[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = i * 2654435761u;
    uint32_t *a = device_buffer(f, COUNT), *b = device_buffer(f, COUNT);
    OK(shoali_upload(f->stream[0], a, in, BYTES));
    OK(shoali_copy(f->stream[0], b, a, BYTES, SHOALI_DEVICE_TO_DEVICE));
    OK(shoali_fill(f->stream[0], a, 0x5a, 7));
    OK(shoali_download(f->stream[0], out, b, BYTES));
    assert_memory_equal(in, out, BYTES);
    OK(shoali_download(f->stream[0], out, a, BYTES));
    memset(in, 0x5a, 7);
    assert_memory_equal(in, out, BYTES);

    /* Parts at odd offsets, nothing at all, and an overlap. */
    OK(shoali_download(f->stream[0], out, (char *)b + 9, 11));
    assert_memory_equal(out, (char *)in + 9, 11);
    OK(shoali_copy(f->stream[0], a, a, 0, SHOALI_DEVICE_TO_DEVICE));
    OK(shoali_fill(f->stream[0], NULL, 1, 0));
    assert_int_equal(shoali_copy(f->stream[0], a + 1, a, 8, SHOALI_DEVICE_TO_DEVICE), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "overlap"));
    shoali_device_free(f->device, a);
    shoali_device_free(f->device, b);
}

static void test_pinned_copies(void **state)
{
    struct fixture *f = *state;
    void *memory;
    uint32_t *a = device_buffer(f, COUNT);
    OK(shoali_device_host_alloc(f->device, 2 * BYTES, &memory));
    uint32_t *pinned = memory;
    for (uint32_t i = 0; i < COUNT; i++)
        pinned[i] = i + 1;
    OK(shoali_copy(f->stream[0], a, pinned, BYTES, SHOALI_HOST_TO_DEVICE));
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .a = a, .count = COUNT, .value = 7}));
    OK(shoali_copy(f->stream[0], pinned + COUNT, a, BYTES, SHOALI_DEVICE_TO_HOST));
    OK(shoali_stream_synchronize(f->stream[0]));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(pinned[COUNT + i], 3 * (i + 1) + 7);
    /* Freed with a copy pending: the copy still has its source. */
    OK(shoali_copy(f->stream[0], a, pinned, BYTES, SHOALI_HOST_TO_DEVICE));
    shoali_device_host_free(f->device, memory);
    uint32_t out[COUNT];
    OK(shoali_download(f->stream[0], out, a, BYTES));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(out[i], i + 1);
    shoali_device_free(f->device, a);
    assert_int_equal(counters_of(f).alloc_count, 1); /* pinned memory is not device memory */
}

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

struct sum_args {
    int64_t count;
    uint32_t *out;
    int32_t input_count;
    const uint32_t *input[5];
};

static void sum_kernel(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct sum_args *a = args;
    for (int64_t i = 0; i < a->count; i++) {
        a->out[i] = 0;
        for (int32_t j = 0; j < a->input_count; j++)
            a->out[i] += a->input[j][i];
    }
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
    OK(shoali_launch(f->stream[0], &type, sum_kernel, &args));
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
    OK(shoali_device_create(current->accelerator, 0, NULL, &f.device));
    OK(shoali_stream_create(f.device, &f.stream[1]));
    (void)communicate(&other);
    shoali_stream_destroy(f.stream[1]);
    shoali_device_destroy(f.device);
    return NULL;
}

static void test_many_devices(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("SHOAL_SIM_BYTES"), 0); /* the full default reservation each */
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
}

/* A small program that gives up at the first error, leaving nothing behind. */
static shoal_status run_once(void)
{
    shoal_status status;
    struct shoali_device *device = NULL;
    struct shoali_device_stream *stream = NULL;
    struct shoali_event *event = NULL;
    void *block = NULL, *pinned = NULL;
    struct mix_args args = {.count = COUNT, .value = 1};
    SHOAL_TRY(status, shoali_device_create(current->accelerator, 0, NULL, &device), done);
    SHOAL_TRY(status, shoali_stream_create(device, &stream), done);
    SHOAL_TRY(status, shoali_event_create(device, &event), done);
    SHOAL_TRY(status, shoali_device_alloc(device, BYTES, &block), done);
    SHOAL_TRY(status, shoali_device_host_alloc(device, BYTES, &pinned), done);
    args.out = block;
    SHOAL_TRY(status, mix(stream, &args), done);
    SHOAL_TRY(status, shoali_event_record(event, stream), done);
    SHOAL_TRY(status, shoali_stream_wait_event(stream, event), done);
    SHOAL_TRY(status, shoali_fill(stream, block, 0, BYTES), done);
    SHOAL_TRY(status, shoali_download(stream, pinned, block, BYTES), done);
done:
    if (device != NULL) {
        shoali_device_host_free(device, pinned);
        shoali_device_free(device, block);
    }
    shoali_event_destroy(event);
    shoali_stream_destroy(stream);
    shoali_device_destroy(device);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    static const char *const points[] = {"alloc", "device_alloc", "host_alloc"};
    for (int point = 0; point < 3; point++) {
        int skip = 0;
        for (shoal_status status = SHOAL_ENOMEM; status != SHOAL_OK; skip++) {
            char spec[32];
            assert_true(skip < 30);
            (void)snprintf(spec, sizeof spec, "%s:%d", points[point], skip);
            assert_true(shoali_fault_arm(spec));
            status = run_once();
            assert_true(shoali_fault_arm(NULL));
            assert_true(status == SHOAL_OK || status == SHOAL_ENOMEM);
        }
        assert_true(skip > 1); /* the point was met */
    }
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

int main(void)
{
    static const struct variant variants[] = {{&shoali_accelerator_cpu, "late"},
                                              {&shoali_accelerator_sim, "late"},
                                              {&shoali_accelerator_sim, "random"},
                                              {&shoali_accelerator_sim, "thread"}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_alloc, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_settings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pinned_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launch_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pointer_array, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sync_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_program, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quarantine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_devices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_destroy_drains, setup, teardown),
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        current = &variants[i];
        print_message("== %s, streams %s ==\n", current->accelerator->name, current->streams);
        failures += cmocka_run_group_tests_name(current->accelerator->name, tests, NULL, NULL);
    }
    return failures;
}
