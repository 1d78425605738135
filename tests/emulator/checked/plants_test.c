/* Kernels with mistakes: each is found, with its sentence, and the same kernels without are not. */
#include "accelerator/cuda/cuda.h"

#include "base/test_cmocka.h"
#include "plants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXCHANGE, HALF, END, COPY, BLOCKS, LANES, MATRICES, BANKS, SECTORS, KERNELS };
static struct shoali_cuda_kernel kernels[KERNELS] = {
    [EXCHANGE] = {.name = "shoal_plant_exchange"}, [HALF] = {.name = "shoal_plant_half"},
    [END] = {.name = "shoal_plant_end"},           [COPY] = {.name = "shoal_plant_copy"},
    [BLOCKS] = {.name = "shoal_plant_blocks"},     [LANES] = {.name = "shoal_plant_lanes"},
    [MATRICES] = {.name = "shoal_plant_matrices"}, [BANKS] = {.name = "shoal_plant_banks"},
    [SECTORS] = {.name = "shoal_plant_sectors"}};
static struct shoali_cuda_image image = {.kernels = kernels, .kernel_count = KERNELS};
static int chosen;

static void queue(const void *args, const struct shoali_kernel_context *context)
{
    shoali_cuda_launch(context, &kernels[chosen], args,
                       (struct shoali_cuda_grid){.blocks = 2,
                                                 .threads = PLANT_THREADS,
                                                 .shared_bytes = 4 * PLANT_THREADS});
}

/* Two blocks write the same values to `out`, so only the kernel of two blocks runs with both. */
static void queue_one(const void *args, const struct shoali_kernel_context *context)
{
    shoali_cuda_launch(context, &kernels[chosen], args,
                       (struct shoali_cuda_grid){.blocks = 1,
                                                 .threads = PLANT_THREADS,
                                                 .shared_bytes = 4 * PLANT_THREADS});
}

static shoal_status run(int kernel, enum plant plant)
{
    static const struct shoali_kernel_type type = {.name = "plant",
                                                   .args_bytes = sizeof(struct plant_args)};
    shoal_status status;
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    void *in, *out, *sum;
    const size_t bytes = kernel == SECTORS ? 4 * PLANT_THREADS * PLANT_STRIDE : 4 * PLANT_THREADS;
    chosen = kernel;
    SHOAL_TRY(status, shoali_device_create(&shoali_accelerator_cuda, 0, NULL, &device), done);
    SHOAL_TRY(status, shoali_stream_create(device, &stream), done);
    SHOAL_TRY(status, shoali_device_alloc(device, bytes, &in), done);
    SHOAL_TRY(status, shoali_device_alloc(device, 4 * PLANT_THREADS, &out), done);
    SHOAL_TRY(status, shoali_device_alloc(device, 8, &sum), done);
    SHOAL_TRY(status, shoali_fill(stream, in, 0, bytes), done);
    SHOAL_TRY(status, shoali_fill(stream, sum, 0, 8), done);
    const struct plant_args args = {.in = in, .out = out, .sum = sum, .plant = plant};
    SHOAL_TRY(status, shoali_launch(stream, &type, kernel == BLOCKS ? queue : queue_one, &args),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    shoali_device_destroy(device); /* and with it the sums of traffic */
done:
    return status;
}

/* What a process prints that runs the kernel; NULL: it ends well and prints nothing. */
static void check(int kernel, enum plant plant, const char *text)
{
    int pipes[2], result;
    char said[2000] = "";
    size_t length = 0;
    ssize_t got;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        (void)dup2(pipes[1], STDERR_FILENO);
        _exit(shoali_cuda_load(&image) && run(kernel, plant) == SHOAL_OK ? 0 : 1);
    }
    close(pipes[1]);
    while ((got = read(pipes[0], said + length, sizeof said - 1 - length)) > 0)
        length += (size_t)got;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &result, 0), child);
    if (text == NULL && (result != 0 || length > 0))
        fail_msg("kernel %d without a mistake: %s", kernel, said);
    if (text != NULL && (result == 0 || strstr(said, text) == NULL))
        fail_msg("kernel %d with mistake %d: \"%s\" is missing in: %s", kernel, (int)plant, text,
                 said);
}

static void test_sound_kernels(void **state)
{
    (void)state;
    for (int kernel = 0; kernel < KERNELS; kernel++)
        check(kernel, PLANT_NONE, NULL);
}

static void test_mistakes(void **state)
{
    (void)state;
    check(EXCHANGE, PLANT_NO_BARRIER, "with nothing between");
    check(MATRICES, PLANT_NO_BARRIER, "with nothing between");
    check(HALF, PLANT_HALF_BARRIER, "threads wait for each other");
    check(END, PLANT_BEHIND_END, "outside of all memory that it may use");
    check(COPY, PLANT_NO_WAIT, "copies that nobody waited for");
    check(BLOCKS, PLANT_TWO_BLOCKS, "with nothing between");
    check(LANES, PLANT_LANES_AWAY, "threads wait for each other");
    check(BANKS, PLANT_BANKS, "shoal_plant_banks takes 200 wavefronts");
    check(SECTORS, PLANT_SECTORS, "and 450 sectors for each 100, and its budget is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sound_kernels),
                                       cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
