/* sim_test.c - what only the simulated device does: it makes mistakes visible. */
#include "accelerator/sim/sim.h"
#include "accelerator/test_kernels.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 256
#define BYTES (COUNT * sizeof(uint32_t))
#define NAN_WORD 0xffffffffu

struct fixture {
    struct shoali_device *device;
    struct shoali_device_stream *stream[2];
    uint32_t *a, *b;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "16777216", 1), 0);
    OK(shoali_device_create(&shoali_accelerator_sim, 0, NULL, &f->device));
    for (int i = 0; i < 2; i++)
        OK(shoali_stream_create(f->device, &f->stream[i]));
    void *address;
    OK(shoali_device_alloc(f->device, BYTES, &address));
    f->a = address;
    OK(shoali_device_alloc(f->device, BYTES, &address));
    f->b = address;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++)
        shoali_stream_destroy(f->stream[i]);
    shoali_device_destroy(f->device);
    free(f);
    return 0;
}

static uint32_t first_word(struct fixture *f, int stream, const uint32_t *address)
{
    uint32_t word;
    OK(shoali_download(f->stream[stream], &word, address, sizeof word));
    return word;
}

static void test_owns(void **state)
{
    struct fixture *f = *state;
    struct shoali_device *cpu;
    assert_true(shoali_sim_owns(f->device, f->a));
    assert_true(shoali_sim_owns(f->device, f->a + COUNT - 1));
    assert_false(shoali_sim_owns(f->device, f));
    assert_false(shoali_sim_owns(f->device, NULL));
    assert_false(shoali_sim_owns(NULL, f->a));
    OK(shoali_device_create(&shoali_accelerator_cpu, 0, NULL, &cpu));
    assert_false(shoali_sim_owns(cpu, f->a));
    shoali_device_destroy(cpu);
}

/* Runs `touch` on the address in a child; the signal that ended the child, 0 if it lived. */
static int signal_of(void (*touch)(volatile uint32_t *), uint32_t *address)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* not the sanitizer's or cmocka's handler */
        touch(address);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_word(volatile uint32_t *address)
{
    (void)*address;
}

static void write_word(volatile uint32_t *address)
{
    *address = 1;
}

static void test_host_access_dies(void **state)
{
    struct fixture *f = *state;
    uint32_t here = 0;
    assert_int_equal(signal_of(write_word, &here), 0);
    assert_int_equal(signal_of(read_word, f->a), SIGSEGV);
    assert_int_equal(signal_of(write_word, f->a), SIGSEGV);
    /* The kernel refuses it as well. */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], f->a, 4), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(close(ends[0]) | close(ends[1]), 0);
}

/* Fresh and recycled memory reads as NaN. */
static void test_memory_is_poisoned(void **state)
{
    struct fixture *f = *state;
    void *block, *again;
    assert_int_equal(first_word(f, 0, f->a), NAN_WORD);
    OK(shoali_device_alloc(f->device, BYTES, &block));
    OK(shoali_fill(f->stream[0], block, 0, BYTES));
    OK(shoali_stream_synchronize(f->stream[0]));
    shoali_device_free(f->device, block);
    OK(shoali_device_alloc(f->device, BYTES, &again));
    assert_ptr_equal(again, block); /* nothing was pending: at once reusable */
    uint32_t out[COUNT];
    OK(shoali_download(f->stream[0], out, again, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], NAN_WORD);
}

static void test_late_runs_late(void **state)
{
    struct fixture *f = *state;
    void *pinned;
    OK(shoali_device_host_alloc(f->device, BYTES, &pinned));
    uint32_t *host = pinned;
    /* An asynchronous copy reads the host memory when it runs, not when it was asked for. */
    host[0] = 1;
    OK(shoali_copy(f->stream[0], f->a, host, sizeof *host, SHOALI_HOST_TO_DEVICE));
    host[0] = 2;
    assert_int_equal(first_word(f, 0, f->a), 2);
    /* A copy to the host is not there before a wait. */
    host[1] = 77;
    OK(shoali_copy(f->stream[0], host + 1, f->a, sizeof *host, SHOALI_DEVICE_TO_HOST));
    assert_int_equal(host[1], 77);
    OK(shoali_stream_synchronize(f->stream[1])); /* waits for the other stream only */
    assert_int_equal(host[1], 77);
    OK(shoali_stream_synchronize(f->stream[0]));
    assert_int_equal(host[1], 2);
    shoali_device_host_free(f->device, pinned);
}

/* A consumer on another stream without an event reads NaN; with the event, the value. */
static void test_missing_event_shows(void **state)
{
    struct fixture *f = *state;
    struct shoali_event *event;
    const struct mix_args produce = {.out = f->a, .count = COUNT, .value = 5};
    OK(mix(f->stream[0], &produce));
    OK(shoali_copy(f->stream[1], f->b, f->a, BYTES, SHOALI_DEVICE_TO_DEVICE));
    assert_int_equal(first_word(f, 1, f->b), NAN_WORD);

    OK(shoali_event_create(f->device, &event));
    OK(mix(f->stream[0], &produce));
    OK(shoali_event_record(event, f->stream[0]));
    OK(shoali_fill(f->stream[0], f->a, 0, BYTES)); /* behind the event: need not run */
    OK(shoali_stream_wait_event(f->stream[1], event));
    OK(shoali_copy(f->stream[1], f->b, f->a, BYTES, SHOALI_DEVICE_TO_DEVICE));
    assert_int_equal(first_word(f, 1, f->b), 5);
    OK(shoali_event_synchronize(event));
    assert_int_equal(first_word(f, 1, f->a), 5);
    assert_int_equal(first_word(f, 0, f->a), 0);
    shoali_event_destroy(event);
}

static void test_quarantine_holds(void **state)
{
    struct fixture *f = *state;
    int64_t total, before, after;
    void *scratch, *other;
    shoali_device_memory(f->device, &total, &before);
    OK(shoali_device_alloc(f->device, BYTES, &scratch));
    OK(shoali_fill(f->stream[1], f->b, 0, 4)); /* any older work holds it, on any stream */
    shoali_device_free(f->device, scratch);
    OK(shoali_device_alloc(f->device, BYTES, &other));
    assert_ptr_not_equal(other, scratch);
    shoali_device_free(f->device, other);
    shoali_device_memory(f->device, &total, &after);
    assert_true(after <= before - 2 * (int64_t)BYTES);
    OK(shoali_stream_synchronize(f->stream[1]));
    shoali_device_memory(f->device, &total, &after);
    assert_int_equal(after, before);
    OK(shoali_device_alloc(f->device, BYTES, &other));
    assert_ptr_equal(other, scratch);
    /* With the memory exhausted, an allocation waits for the quarantine instead of failing. */
    shoali_device_free(f->device, other);
    for (int i = 0; i < 20; i++) {
        OK(shoali_device_alloc(f->device, 10 << 20, &scratch));
        OK(shoali_fill(f->stream[0], scratch, 0, 10 << 20));
        shoali_device_free(f->device, scratch);
    }
}

static void test_wrong_pointers_are_refused(void **state)
{
    struct fixture *f = *state;
    uint32_t ordinary[COUNT] = {0};
    void *pinned, *freed;
    OK(shoali_device_host_alloc(f->device, BYTES, &pinned));
    OK(shoali_device_alloc(f->device, BYTES, &freed));
    shoali_device_free(f->device, freed);
    struct mix_args args = {.out = f->a, .a = ordinary, .count = 1};
    assert_int_equal(mix(f->stream[0], &args), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "kernel mix"));
    assert_non_null(strstr(shoal_error_message(), "ordinary host memory"));
    args.a = freed;
    assert_int_equal(mix(f->stream[0], &args), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "not allocated"));
    args.a = f->b + COUNT; /* the end is an address of the block, for slices of nothing */
    args.count = 0;
    OK(mix(f->stream[0], &args));
    args.a = f->b + COUNT + 1;
    assert_int_equal(mix(f->stream[0], &args), SHOAL_EINVAL);
    /* A block that is too small for what the kernel does with it. */
    args = (struct mix_args){.out = f->a, .a = f->b + 1, .count = COUNT};
    assert_int_equal(mix(f->stream[0], &args), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "kernel mix: a needs"));
    memset(pinned, 0, BYTES);
    args = (struct mix_args){.out = f->a, .a = pinned, .count = COUNT, .value = 3};
    OK(mix(f->stream[0], &args));
    assert_int_equal(first_word(f, 0, f->a), 3);

    struct shoali_device_stream *s = f->stream[0];
    assert_int_equal(shoali_copy(s, f->a, f->b, 4, SHOALI_HOST_TO_DEVICE), SHOAL_EINVAL);
    assert_int_equal(shoali_copy(s, ordinary, f->b, 4, SHOALI_DEVICE_TO_DEVICE), SHOAL_EINVAL);
    assert_int_equal(shoali_copy(s, f->a, f->b, 4, SHOALI_DEVICE_TO_HOST), SHOAL_EINVAL);
    assert_int_equal(shoali_upload(s, f->a, ordinary, BYTES + 1), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "one allocated block"));
    assert_int_equal(shoali_fill(s, f->a + 1, 0, BYTES), SHOAL_EINVAL);
    assert_int_equal(shoali_fill(s, freed, 0, 1), SHOAL_EINVAL);
    assert_int_equal(shoali_fill(s, ordinary, 0, 1), SHOAL_EINVAL);
    shoali_device_host_free(f->device, pinned);
}

static void test_queue_is_bounded(void **state)
{
    struct fixture *f = *state;
    void *pinned;
    OK(shoali_device_host_alloc(f->device, sizeof(uint32_t), &pinned));
    volatile uint32_t *host = pinned;
    *host = 0;
    OK(shoali_fill(f->stream[0], f->a, 1, 4));
    OK(shoali_copy(f->stream[0], pinned, f->a, 4, SHOALI_DEVICE_TO_HOST));
    for (int i = 0; i < (1 << 16) - 2; i++)
        OK(shoali_fill(f->stream[0], f->b, 0, 1));
    assert_int_equal(*host, 0);
    OK(shoali_fill(f->stream[0], f->b, 0, 1));
    assert_int_equal(*host, 0x01010101);
    shoali_device_host_free(f->device, pinned);
}

static uint32_t racy_result(struct fixture *f)
{
    /* Ten pairs of unordered writers; which one of each comes last is the interleaving. */
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 20; i++)
        OK(shoali_fill(f->stream[i % 2], f->a + i / 2, (uint8_t)(1 + i % 2), 4));
    for (uint32_t i = 0; i < 2; i++)
        OK(shoali_stream_synchronize(f->stream[i]));
    for (uint32_t i = 0; i < 10; i++)
        bits |= (first_word(f, 0, f->a + i) & 1u) << i;
    return bits;
}

/* `random`: the same seed gives the same interleaving, some other seed another one. */
static void test_random_is_seeded(void **state)
{
    (void)state;
    uint32_t first = 0;
    bool differs = false;
    assert_int_equal(setenv("SHOAL_SIM_STREAMS", "random", 1), 0);
    for (int seed = 0; seed < 8; seed++) {
        char text[8];
        uint32_t result[2];
        (void)snprintf(text, sizeof text, "%d", seed);
        assert_int_equal(setenv("SHOAL_SIM_SEED", text, 1), 0);
        for (int i = 0; i < 2; i++) {
            void *fresh;
            assert_int_equal(setup(&fresh), 0);
            result[i] = racy_result(fresh);
            assert_int_equal(teardown(&fresh), 0);
        }
        assert_int_equal(result[0], result[1]);
        first = seed == 0 ? result[0] : first;
        differs = differs || result[0] != first;
    }
    assert_true(differs);
    assert_int_equal(unsetenv("SHOAL_SIM_STREAMS") | unsetenv("SHOAL_SIM_SEED"), 0);
}

static void test_wrong_settings(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"SHOAL_SIM_STREAMS", "early"},
                                           {"SHOAL_SIM_SEED", "x"},
                                           {"SHOAL_SIM_BYTES", "2199023255552"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct shoali_device *none;
        assert_int_equal(setenv(wrong[i][0], wrong[i][1], 1), 0);
        assert_int_equal(shoali_device_create(&shoali_accelerator_sim, 0, NULL, &none),
                         SHOAL_ECONFIG);
        assert_non_null(strstr(shoal_error_message(), wrong[i][0]));
        assert_int_equal(unsetenv(wrong[i][0]), 0);
    }
}

int main(void)
{
    if (unsetenv("SHOAL_SIM_STREAMS") != 0 || unsetenv("SHOAL_SIM_SEED") != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_owns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_host_access_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_poisoned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_runs_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing_event_shows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quarantine_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_pointers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_queue_is_bounded, setup, teardown),
        cmocka_unit_test(test_random_is_seeded),
        cmocka_unit_test(test_wrong_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
