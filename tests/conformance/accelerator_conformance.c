/* Stamps the suite on the accelerator that the argument names. Without one it looks whether each
 * built accelerator is stamped: one line of tests/CMakeLists.txt. */
#include "accelerator_suite.h"

#include <ctype.h>

const struct shoali_accelerator *current;

const char *limit_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "SHOAL_%s_BYTES", current->name);
    for (char *c = name; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return name;
}

void limit_memory(const char *bytes)
{
    assert_int_equal(bytes ? setenv(limit_name(), bytes, 1) : unsetenv(limit_name()), 0);
}

int accelerator_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    limit_memory("268435456");
    OK(shoali_pool_create(3, &f->pool));
    OK(shoali_device_create(current, 0, f->pool, &f->device));
    for (int i = 0; i < 3; i++)
        OK(shoali_stream_create(f->device, &f->stream[i]));
    *state = f;
    return 0;
}

int accelerator_teardown(void **state)
{
    struct fixture *f = *state;
    const struct shoali_device_counters counters = counters_of(f);
    for (int i = 0; i < 3; i++)
        shoali_stream_destroy(f->stream[i]);
    shoali_device_destroy(f->device);
    shoali_pool_destroy(f->pool);
    free(f);
    limit_memory(NULL);
    return counters.allocated_bytes == 0 ? 0 : -1;
}

static void test_table(void **state)
{
    struct fixture *f = *state;
    assert_ptr_equal(shoali_device_accelerator(f->device), current);
    assert_ptr_equal(shoali_device_pool(f->device), f->pool);
    assert_ptr_equal(shoali_stream_device(f->stream[1]), f->device);
    assert_true(current->probe());
    assert_true(current->device_count() >= 1);
    struct shoali_device *none;
    assert_int_equal(shoali_device_create(current, -1, NULL, &none), SHOAL_EINVAL);
    assert_null(none);
    shoali_device_destroy(NULL);
    shoali_device_free(f->device, NULL);
    shoali_device_host_free(f->device, NULL);
}

static void test_wrong_settings(void **state)
{
    (void)state;
    struct shoali_device *none;
    static const char *const wrong[] = {"many", "0", "-5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        limit_memory(wrong[i]);
        assert_int_equal(shoali_device_create(current, 0, NULL, &none), SHOAL_ECONFIG);
        assert_non_null(strstr(shoal_error_message(), limit_name()));
    }
    limit_memory(NULL);
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
    SHOAL_TRY(status, shoali_device_create(current, 0, NULL, &device), done);
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

static int stamp(const char *name)
{
    const struct CMUnitTest tests[] = {
        ACCELERATOR_TEST(test_table),
        ACCELERATOR_TEST(test_wrong_settings),
        ACCELERATOR_TEST(test_allocation_failures),
    };
    const struct shoali_accelerator *const *all = shoali_accelerator_all();
    while (*all && strcmp((*all)->name, name) != 0)
        all++;
    if (!*all || !(*all)->probe()) {
        print_message("skipped: there is no %s here\n", name);
        return 77;
    }
    current = *all;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL) + accelerator_memory() +
           accelerator_streams() + accelerator_tasks();
}

/* STAMPED: the names that tests/CMakeLists.txt has, each with a blank in front and behind. */
static void test_each_is_stamped(void **state)
{
    (void)state;
    for (const struct shoali_accelerator *const *all = shoali_accelerator_all(); *all; all++) {
        char word[64];
        snprintf(word, sizeof word, " %s ", (*all)->name);
        if (!strstr(STAMPED, word))
            fail_msg("no test runs the suite on %s: name it in tests/CMakeLists.txt", (*all)->name);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_is_stamped)};
    return argc > 1 ? stamp(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
