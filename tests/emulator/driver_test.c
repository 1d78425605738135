/* What a driver can answer, and what the accelerator says then: each code at each call, on the
 * emulator. A driver is opened once per process, so each case has a process of its own. */
#include "accelerator/cuda/cuda.h"
#include "accelerator/cuda/driver.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096 };

/* A small program that gives up at the first error. */
static shoal_status run_once(void)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    struct shoali_device *device = NULL;
    struct shoali_device_stream *stream = NULL, *other = NULL;
    struct shoali_event *event = NULL, *begin = NULL, *end = NULL;
    int64_t ns;
    void *block = NULL, *second = NULL;
    char host[BYTES];
    memset(host, 5, sizeof host);
    SHOAL_TRY(status, shoali_accelerator_select("cuda", &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, 0, NULL, &device), done);
    SHOAL_TRY(status, shoali_stream_create(device, &stream), done);
    SHOAL_TRY(status, shoali_stream_create(device, &other), done);
    SHOAL_TRY(status, shoali_event_create(device, &event), done);
    SHOAL_TRY(status, shoali_event_create_timed(device, &begin), done);
    SHOAL_TRY(status, shoali_event_create_timed(device, &end), done);
    SHOAL_TRY(status, shoali_device_alloc(device, BYTES, &block), done);
    SHOAL_TRY(status, shoali_device_alloc(device, BYTES, &second), done);
    SHOAL_TRY(status, shoali_event_record(begin, stream), done);
    SHOAL_TRY(status, shoali_fill(stream, block, 7, BYTES), done);
    SHOAL_TRY(status, shoali_upload(stream, block, host, BYTES), done);
    SHOAL_TRY(status, shoali_copy(stream, second, block, BYTES, SHOALI_DEVICE_TO_DEVICE), done);
    SHOAL_TRY(status, shoali_event_record(event, stream), done);
    SHOAL_TRY(status, shoali_stream_wait_event(other, event), done);
    SHOAL_TRY(status, shoali_event_synchronize(event), done);
    SHOAL_TRY(status, shoali_download(other, host, second, BYTES), done);
    SHOAL_TRY(status, shoali_event_record(end, other), done);
    SHOAL_TRY(status, shoali_event_elapsed(begin, end, &ns), done);
done:
    if (device != NULL) {
        shoali_device_free(device, block);
        shoali_device_free(device, second);
    }
    shoali_event_destroy(event);
    shoali_event_destroy(begin);
    shoali_event_destroy(end);
    shoali_stream_destroy(stream);
    shoali_stream_destroy(other);
    shoali_device_destroy(device);
    return status;
}

/* In a process of its own: the status, and whether the sentence has the text. */
static void check(const char *fail, bool fails, const char *text)
{
    const pid_t child = fork();
    int result;
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        (void)setenv("SHOAL_EMULATOR_FAIL", fail, 1);
        const shoal_status status = run_once();
        if (fails ? status >= 0 : status != SHOAL_OK)
            _exit(1);
        _exit(status < 0 && strstr(shoal_error_message(), text) == NULL ? 2 : 0);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail_msg("%s: %s", fail,
                 !WIFEXITED(result)         ? "ended by a signal"
                 : WEXITSTATUS(result) == 1 ? (fails ? "no error" : "an error")
                                            : "another sentence");
}

/* What begins the program, does its work, and ends it: only of the latter may errors go unsaid. */
static void test_each_code_at_each_call(void **state)
{
    static const char *const work[] = {"cuInit",
                                       "cuDeviceGetCount",
                                       "cuDeviceGet",
                                       "cuDeviceGetAttribute",
                                       "cuCtxSetCurrent",
                                       "cuDevicePrimaryCtxRetain",
                                       "cuMemHostAlloc",
                                       "cuMemcpyHtoDAsync_v2",
                                       "cuMemAlloc_v2",
                                       "cuMemcpyDtoHAsync_v2",
                                       "cuStreamCreate",
                                       "cuMemcpyDtoDAsync_v2",
                                       "cuEventCreate",
                                       "cuMemsetD8Async",
                                       "cuEventRecord",
                                       "cuStreamWaitEvent",
                                       "cuEventSynchronize",
                                       "cuEventElapsedTime",
                                       "cuStreamSynchronize"};
    static const char *const end[] = {"cuMemFree_v2", "cuMemFreeHost", "cuStreamDestroy_v2",
                                      "cuEventDestroy_v2", "cuDevicePrimaryCtxRelease_v2"};
    static const struct {
        int code;
        const char *text;
    } codes[] = {{2, ""},
                 {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"},
                 {999, "999"}};
    char fail[96];
    (void)state;
    for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
        for (size_t i = 0; i < sizeof work / sizeof work[0]; i++) {
            /* Where memory is short, what waits to be given back goes first. */
            const bool again = codes[c].code == 2 && (strcmp(work[i], "cuMemAlloc_v2") == 0);
            snprintf(fail, sizeof fail, "%s=%d", work[i], codes[c].code);
            check(fail, !again, codes[c].code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : codes[c].text);
        }
        for (size_t i = 0; i < sizeof end / sizeof end[0]; i++) {
            snprintf(fail, sizeof fail, "%s=%d", end[i], codes[c].code);
            check(fail, false, "");
        }
    }
}

static void check_variable(const char *name, const char *value, const char *text)
{
    const char *before = getenv(name);
    char *kept = before != NULL ? strdup(before) : NULL;
    assert_int_equal(setenv(name, value, 1), 0);
    check("", true, text);
    assert_int_equal(kept != NULL ? setenv(name, kept, 1) : unsetenv(name), 0);
    free(kept);
}

static void test_machines(void **state)
{
    (void)state;
    check("", false, "");
    check_variable("SHOAL_EMULATOR_CAPABILITY", "75", "has capability 7.5 and 8.0 is the least");
    check_variable("CUDA_VISIBLE_DEVICES", "", "the driver shows no GPU");
    check_variable("SHOAL_EMULATOR_BYTES", "6000", "no memory for 4096 bytes");
    check_variable("SHOAL_CUDA_BYTES", "5000", "5000 bytes");
    check_variable("SHOAL_CUDA_BYTES", "few", "SHOAL_CUDA_BYTES='few' is not a number of bytes");
    check_variable("SHOAL_CUDA_DRIVER", "/bin/true", "SHOAL_CUDA_DRIVER=/bin/true: ");
    check("cuInit=803", true, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

/* The second device of one. */
static void test_index(void **state)
{
    struct shoali_device *none;
    (void)state;
    assert_int_equal(shoali_device_create(&shoali_accelerator_cuda, 1, NULL, &none), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "there is no device 1: the driver shows 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_code_at_each_call),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
