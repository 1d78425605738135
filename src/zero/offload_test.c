/* Masters, states and weights outside the device: the same bits, the promised memory, and no wrong
 * weights whatever the drive does. */
#include "zero/test_ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shoal-zero-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when something was left behind */
}

static const struct shoali_io_args io = {
    .block_bytes = 65536, .queue_depth = 4, .threads = 1, .overlap_events = true, .direct = true};

/* ---- bits ----------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int64_t below(uint64_t *state, int64_t limit)
{
    return (int64_t)(next(state) % (uint64_t)limit);
}

static enum shoali_zero_home pick_home(uint64_t *state)
{
    static const enum shoali_zero_home homes[] = {SHOALI_ZERO_DEVICE, SHOALI_ZERO_CPU,
                                                  SHOALI_ZERO_NVME};
    return homes[below(state, 3)];
}

static struct shoali_zero_offload pick_offload(uint64_t *state, int32_t stage)
{
    struct shoali_zero_offload offload = {.optimizer = pick_home(state),
                                          .ratio = 1,
                                          .optimizer_pin = below(state, 2),
                                          .param_pin = below(state, 2),
                                          .pipeline_read = below(state, 2),
                                          .pipeline_write = below(state, 2),
                                          .optimizer_path = folder,
                                          .param_path = folder,
                                          .param_buffers = 1 + below(state, 4),
                                          .param_buffer_size = 1 << 20,
                                          .param_max_in_cpu = below(state, 3000),
                                          .io = io};
    if (stage == 3) {
        offload.param = pick_home(state);
        offload.ratio = below(state, 2) ? 1 : (double)below(state, 100) / 100;
    } else if (offload.optimizer == SHOALI_ZERO_DEVICE) {
        offload.optimizer = SHOALI_ZERO_CPU;
    }
    offload.optimizer_buffers = offload.optimizer == SHOALI_ZERO_NVME
                                    ? 4 * (1 + offload.pipeline_read + offload.pipeline_write)
                                    : 2 + below(state, 6);
    return offload;
}

static struct run pick_run(uint64_t *state)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    struct run run = {.ranks = 1 + (int32_t)below(state, 3),
                      .stage = 1 + (int32_t)below(state, 3),
                      .dtype = dtypes[below(state, 3)],
                      .exact = below(state, 2),
                      .overlap = below(state, 2),
                      .bucket = below(state, 2) ? 0 : 64 + below(state, 500),
                      .fetch = {.prefetch_bucket = 1 << 20,
                                .param_persistence = below(state, 2) ? 0 : 40,
                                .model_persistence = 1 << 20,
                                .max_live = below(state, 2) ? 1 << 20 : 0,
                                .max_reuse_distance = 1 << 20},
                      .steps = 3,
                      .eval = 4,
                      .accelerator = below(state, 2) ? "cpu" : "sim",
                      .optimizer =
                          (const char *const[]){"adamw", "lamb", "adafactor"}[below(state, 3)]};
    run.micro_batches = run.exact ? 6 : run.ranks;
    run.bad_step = (int32_t)below(state, 3);
    run.bad_rank = (int32_t)below(state, run.ranks);
    run.hpz = run.stage == 3 && run.ranks == 2 && below(state, 2) ? 2 : 0;
    return run;
}

static void test_bits(void **state)
{
    static const char *const streams[] = {"late", "random", "thread"};
    (void)state;
    const char *given = getenv("SHOAL_TEST_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (given ? 1 : 90); seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15u;
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", streams[seed % 3], 1), 0);
        struct run run = pick_run(&random);
        printf("SHOAL_TEST_SEED=%llu: stage %d, %d ranks, %s, %s, %s%s\n", (unsigned long long)seed,
               (int)run.stage, (int)run.ranks, shoal_dtype_name(run.dtype), run.accelerator,
               run.optimizer, run.exact ? ", exact" : "");
        go(run, &reference);
        run.offload = pick_offload(&random, run.stage);
        run.sub_group = below(&random, 2) ? 0 : 20 + below(&random, 900);
        go(run, &other);
        compare(&run, true);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static int64_t padded(int64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static void test_memory(void **state)
{
    (void)state;
    struct run run = {.ranks = 2,
                      .stage = 2,
                      .sizes = &large,
                      .dtype = SHOAL_BF16,
                      .micro_batches = 2,
                      .steps = 1,
                      .sub_group = 5000};
    go(run, &reference);
    const struct shoali_zero_memory *without = &reference.memory[1], *now = &other.memory[1];
    const int64_t part = without->states_bytes / 12, groups = (part + 4999) / 5000;
    assert_true(groups > 3);
    assert_int_equal(without->host_bytes + without->nvme_bytes, 0);

    run.offload = (struct shoali_zero_offload){
        .optimizer = SHOALI_ZERO_CPU, .ratio = 1, .optimizer_buffers = 6, .optimizer_pin = true};
    go(run, &other);
    assert_int_equal(now->states_bytes, 0);
    assert_int_equal(now->master_bytes, 0);
    assert_int_equal(now->weights_bytes, without->weights_bytes);
    assert_int_equal(now->gradients_bytes, without->gradients_bytes);
    assert_int_equal(now->host_bytes, 12 * part + 3 * (4 + 2) * 5000);
    assert_int_equal(now->nvme_bytes, 0);

    run.offload.optimizer = SHOALI_ZERO_NVME;
    run.offload.optimizer_buffers = 12;
    run.offload.pipeline_read = run.offload.pipeline_write = true;
    run.offload.optimizer_path = folder;
    run.offload.io = io;
    go(run, &other);
    const int64_t rest = part - (groups - 1) * 5000;
    assert_int_equal(now->states_bytes, 0);
    assert_int_equal(now->host_bytes, 3 * (3 * padded(20000) + 4096) + 2 * (4 + 2) * 5000);
    assert_int_equal(now->nvme_bytes, 3 * ((groups - 1) * padded(20000) + padded(4 * rest)));

    run.stage = 3;
    run.offload.optimizer = SHOALI_ZERO_CPU;
    run.offload.optimizer_buffers = 4;
    run.offload.ratio = 0.5;
    run.offload.param = SHOALI_ZERO_CPU;
    go(run, &other);
    const int64_t on_device = groups / 2 * 5000;
    const int64_t part_3 = now->states_bytes / 12 + (now->host_bytes - 60000) / 14;
    assert_int_equal(now->weights_bytes, 0);
    assert_int_equal(now->states_bytes, 12 * on_device);
    assert_true(now->host_bytes >= 12 * (part - on_device) + 2 * part + 2 * 6 * 5000);
    assert_true(part_3 >= part - on_device);
}

/* ---- faults --------------------------------------------------------------------------------- */

static void *weights_before, *weights_after;
static int64_t weights_bytes;

/* Rounded weights as the device has them. */
static bool read_weights(struct seat *seat, void **copy)
{
    const int32_t kind = shoali_zero_kind_count(seat->zero) - 1;
    weights_bytes = 2 * seat->module.element_count;
    *copy = malloc((size_t)weights_bytes);
    if (!*copy)
        return false;
    NEED(shoali_zero_read(seat->zero, kind, 0, weights_bytes / 2, *copy));
    return true;
}

/* A bit of the only file that is open in the folder; it has no name. */
static bool flip(int64_t at)
{
    unsigned char byte = 0;
    int found = -1;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry = readdir(dir); entry && found < 0; entry = readdir(dir)) {
        char path[300], target[512] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, folder))
            found = open(path, O_RDWR | O_CLOEXEC);
    }
    closedir(dir);
    bool good = found >= 0 && pread(found, &byte, 1, at) == 1;
    byte ^= 1;
    good = good && pwrite(found, &byte, 1, at) == 1 && fsync(found) == 0;
    close(found);
    return good;
}

static bool train_on_a_bad_drive(struct seat *seat)
{
    if (!open_seat(seat) || !train_step(seat, 0) || !flip(4096 + 77) ||
        !read_weights(seat, &weights_before))
        return false;
    const bool trained = train_step(seat, 1);
    const shoal_status status = seat->status;
    const bool read = read_weights(seat, &weights_after);
    seat->status = status;
    return trained && read;
}

static struct run nvme_run(void)
{
    return (struct run){.ranks = 1,
                        .stage = 1,
                        .sizes = &large,
                        .dtype = SHOAL_BF16,
                        .micro_batches = 1,
                        .steps = 2,
                        .sub_group = 5000,
                        .fails = true,
                        .offload = {.optimizer = SHOALI_ZERO_NVME,
                                    .ratio = 1,
                                    .optimizer_buffers = 4,
                                    .optimizer_path = folder,
                                    .io = io}};
}

static void test_flipped_bit(void **state)
{
    (void)state;
    struct run run = nvme_run();
    run.drive = train_on_a_bad_drive;
    go(run, &other);
    assert_false(seats[0].passed);
    assert_int_equal(seats[0].status, SHOAL_ECORRUPT);
    assert_non_null(strstr(seats[0].message, "optimizer.swp: chunk 0 of "));
    assert_memory_equal(weights_before, weights_after, (size_t)weights_bytes);
    free(weights_before);
    free(weights_after);
    printf("%s\n", seats[0].message);
}

static const char *fault;

static bool train_with_a_fault(struct seat *seat)
{
    if (!open_seat(seat) || !train_step(seat, 0) || !shoali_fault_arm(fault))
        return false;
    const bool trained = train_step(seat, 1);
    return shoali_fault_arm(NULL) && trained;
}

static void test_io_errors(void **state)
{
    static const char *const faults[] = {"io_read", "io_read:40", "io_write:5"};
    (void)state;
    struct run run = nvme_run();
    run.drive = train_with_a_fault;
    for (int32_t i = 0; i < 6; i++) {
        const bool behind = i % 2;
        fault = faults[i / 2];
        run.offload.pipeline_read = run.offload.pipeline_write = behind;
        run.offload.optimizer_buffers = behind ? 12 : 4;
        go(run, &other);
        assert_false(seats[0].passed);
        assert_int_equal(seats[0].status, SHOAL_EIO);
        assert_non_null(strstr(seats[0].message, "optimizer.swp"));
    }
}

static void test_full_disk(void **state)
{
    struct rlimit before, limit;
    struct run run = nvme_run();
    (void)state;
    run.accelerator = "cpu"; /* the limit would also hit the file behind sim's memory */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 65536;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    go(run, &other);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(seats[0].status, SHOAL_EIO);
    assert_non_null(strstr(seats[0].message, "is full"));
}

/* Fewer buffers than a sub-group takes: as many as it takes. The bits are those of the least number
 * that suffices. */
static void test_buffers_are_raised(void **state)
{
    (void)state;
    static const struct {
        enum shoali_zero_home home;
        int64_t given, least;
    } cases[] = {{SHOALI_ZERO_NVME, 0, 8},
                 {SHOALI_ZERO_NVME, 4, 8},
                 {SHOALI_ZERO_CPU, 0, 4},
                 {SHOALI_ZERO_CPU, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run = nvme_run();
        run.offload.pipeline_read = cases[i].home == SHOALI_ZERO_NVME;
        run.offload.optimizer = cases[i].home;
        run.offload.optimizer_buffers = cases[i].least;
        go(run, &reference);
        assert_int_equal(seats[0].status, SHOAL_OK);
        run.offload.optimizer_buffers = cases[i].given;
        go(run, &other);
        assert_int_equal(seats[0].status, SHOAL_OK);
        compare(&run, true);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct run run = nvme_run();
    run.offload.pipeline_read = true;
    run.offload.optimizer = SHOALI_ZERO_CPU;
    run.stage = 3;
    run.offload.optimizer_buffers = 2;
    run.offload.param = SHOALI_ZERO_NVME;
    run.offload.param_path = folder;
    run.offload.param_buffers = 2;
    run.offload.param_buffer_size = 1000;
    go(run, &other);
    assert_int_equal(seats[0].status, SHOAL_ECONFIG);
    assert_non_null(strstr(seats[0].message, "buffer_size is 1000 elements"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_flipped_bit),
        cmocka_unit_test(test_io_errors),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_buffers_are_raised),
    };
    setenv("SHOAL_SIM_BYTES", "134217728", 1);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
