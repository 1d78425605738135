/* A store gives back what was put in, whatever the order, and never anything else. */
#include "base/test_cmocka.h"
#include "swap_tensor/swap_tensor.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROWS = 3, CHUNKS_MAX = 12, COUNT_MAX = 20000 };
static char folder[64];
static const char *const row_names[ROWS] = {"master", "exp_avg", "exp_avg_sq"};

struct rig {
    struct shoali_device *device, *host;
    struct shoali_device_stream *stream;
    struct shoali_swap *swap;
    int64_t cut[CHUNKS_MAX + 1];
    struct shoali_swap_args args;
};

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shoal-swap-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a store left something behind */
}

static void open_rig(struct rig *rig, const char *accelerator, int32_t chunks, int64_t length,
                     int32_t resident)
{
    const struct shoali_accelerator *chosen;
    memset(rig, 0, sizeof *rig);
    assert_int_equal(shoali_accelerator_select(accelerator, &chosen), SHOAL_OK);
    assert_int_equal(shoali_device_create(chosen, 0, NULL, &rig->device), SHOAL_OK);
    assert_int_equal(shoali_device_create(&shoali_accelerator_cpu, 0, NULL, &rig->host), SHOAL_OK);
    assert_int_equal(shoali_stream_create(rig->device, &rig->stream), SHOAL_OK);
    for (int32_t c = 0; c < chunks; c++)
        rig->cut[c + 1] = rig->cut[c] + length;
    rig->args = (struct shoali_swap_args){
        .device = rig->device,
        .host = rig->host,
        .pin = true,
        .label = "test",
        .rank = 3,
        .row_count = ROWS,
        .row_name = row_names,
        .item_bytes = sizeof(float),
        .chunk_count = chunks,
        .resident_count = resident,
        .cut = rig->cut,
        .path = folder,
        .buffer_count = 2,
        .io = {.block_bytes = 16384, .queue_depth = 4, .threads = 1, .direct = true}};
}

static void close_rig(struct rig *rig)
{
    shoali_swap_destroy(rig->swap);
    shoali_stream_destroy(rig->stream);
    shoali_device_destroy(rig->device);
    shoali_device_destroy(rig->host);
}

/* ---- any order of operations ---------------------------------------------------------------- */

static float shadow[ROWS][COUNT_MAX];

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int64_t below(uint64_t *state, int64_t limit)
{
    return (int64_t)(next(state) % (uint64_t)limit);
}

static void use_elements(struct rig *rig, uint64_t *state, bool write)
{
    static float data[COUNT_MAX];
    const int64_t count = rig->cut[rig->args.chunk_count];
    const int32_t row = (int32_t)below(state, ROWS);
    const int64_t first = below(state, count), length = below(state, count - first + 1);
    for (int64_t i = 0; i < length && write; i++)
        shadow[row][first + i] = data[i] = (float)below(state, 1 << 20);
    assert_int_equal(write ? shoali_swap_write(rig->swap, row, first, length, data)
                           : shoali_swap_read(rig->swap, row, first, length, data),
                     SHOAL_OK);
    assert_memory_equal(data, shadow[row] + first, (size_t)length * sizeof(float));
}

/* What the update of a sub-group does. */
static void use_chunk(struct rig *rig, uint64_t *state)
{
    void *row[SHOALI_SWAP_MAX_ROWS];
    const int32_t chunk = (int32_t)below(state, rig->args.chunk_count);
    const uint32_t rows = 1 + (uint32_t)below(state, (1 << ROWS) - 1);
    const uint32_t dirty = rows & (uint32_t)below(state, 1 << ROWS);
    const int64_t begin = rig->cut[chunk], count = rig->cut[chunk + 1] - begin;
    assert_int_equal(shoali_swap_get(rig->swap, chunk, rows, row), SHOAL_OK);
    for (int32_t r = 0; r < ROWS; r++) {
        if (rows & SHOALI_SWAP_ROW(r))
            assert_memory_equal(row[r], shadow[r] + begin, (size_t)count * sizeof(float));
        for (int64_t i = 0; i < count && (dirty & SHOALI_SWAP_ROW(r)); i++)
            shadow[r][begin + i] = ((float *)row[r])[i] = (float)below(state, 1 << 20);
    }
    assert_int_equal(shoali_swap_put(rig->swap, chunk, dirty, NULL), SHOAL_OK);
}

/* What a fetch does: the copy runs when the device likes. */
static void copy_chunk(struct rig *rig, uint64_t *state, float *device_to)
{
    static float seen[COUNT_MAX];
    void *row[SHOALI_SWAP_MAX_ROWS];
    const int32_t chunk = (int32_t)below(state, rig->args.chunk_count);
    const int32_t other = (int32_t)below(state, rig->args.chunk_count);
    const size_t bytes = (size_t)(rig->cut[chunk + 1] - rig->cut[chunk]) * sizeof(float);
    assert_int_equal(shoali_swap_get(rig->swap, chunk, 1, row), SHOAL_OK);
    assert_int_equal(shoali_copy(rig->stream, device_to, row[0], bytes, SHOALI_HOST_TO_DEVICE),
                     SHOAL_OK);
    assert_int_equal(shoali_swap_put(rig->swap, chunk, 0, rig->stream), SHOAL_OK);
    assert_int_equal(shoali_swap_prefetch(rig->swap, other, 3), SHOAL_OK);
    assert_int_equal(shoali_download(rig->stream, seen, device_to, bytes), SHOAL_OK);
    assert_memory_equal(seen, shadow[0] + rig->cut[chunk], bytes);
}

static void run_random(const char *accelerator, uint64_t seed)
{
    struct rig rig;
    void *device_memory;
    uint64_t state = seed * 0x9e3779b97f4a7c15u;
    const int32_t chunks = 1 + (int32_t)below(&state, CHUNKS_MAX);
    open_rig(&rig, accelerator, chunks, 1, 0);
    for (int32_t c = 0; c < chunks; c++)
        rig.cut[c + 1] = rig.cut[c] + below(&state, COUNT_MAX / CHUNKS_MAX);
    if (rig.cut[chunks] == 0)
        rig.cut[chunks] = 1;
    rig.args.resident_count = (int32_t)below(&state, chunks + 1);
    rig.args.buffer_count = 1 + (int32_t)below(&state, 4);
    rig.args.pin = below(&state, 2);
    rig.args.write_behind = below(&state, 2);
    rig.args.io.direct = below(&state, 2);
    memset(shadow, 0, sizeof shadow);
    assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_OK);
    assert_int_equal(shoali_device_alloc(rig.device, sizeof shadow[0], &device_memory), SHOAL_OK);
    for (int32_t i = 0; i < 150; i++) {
        const int64_t what = below(&state, 8);
        if (what < 2)
            use_elements(&rig, &state, what == 0);
        else if (what < 5)
            use_chunk(&rig, &state);
        else if (what == 5)
            copy_chunk(&rig, &state, device_memory);
        else if (what == 6)
            assert_int_equal(shoali_swap_prefetch(rig.swap, (int32_t)below(&state, chunks), 7),
                             SHOAL_OK);
        else
            assert_int_equal(below(&state, 2) ? shoali_swap_poll(rig.swap)
                                              : shoali_swap_flush(rig.swap),
                             SHOAL_OK);
    }
    use_elements(&rig, &state, false);
    shoali_device_free(rig.device, device_memory);
    close_rig(&rig);
}

static void test_any_order(void **state)
{
    static const char *const accelerators[] = {"cpu", "sim"};
    (void)state;
    const char *given = getenv("SHOAL_TEST_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (given ? 1 : 60); seed++) {
        printf("SHOAL_TEST_SEED=%llu\r", (unsigned long long)seed);
        run_random(accelerators[seed % 2], seed);
    }
    printf("\n");
}

/* ---- the file ------------------------------------------------------------------------------- */

/* A descriptor of the store's file, which has no name: of the only one in the folder. */
static int find_file(const char *part)
{
    int found = -1;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry && found < 0; entry = readdir(dir)) {
        char path[300], target[512] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, part))
            found = open(path, O_RDWR | O_CLOEXEC);
    }
    closedir(dir);
    return found;
}

static void flip(int64_t at)
{
    unsigned char byte;
    const int file = find_file(folder);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    assert_int_equal(fsync(file), 0);
    close(file);
}

static void fill(struct rig *rig)
{
    for (int32_t r = 0; r < ROWS; r++) {
        for (int32_t i = 0; i < 6000; i++)
            shadow[r][i] = (float)(r * 10000 + i);
        assert_int_equal(shoali_swap_write(rig->swap, r, 0, 6000, shadow[r]), SHOAL_OK);
    }
    assert_int_equal(shoali_swap_flush(rig->swap), SHOAL_OK);
}

static void test_flipped_bit(void **state)
{
    struct rig rig;
    float out[3000];
    (void)state;
    open_rig(&rig, "cpu", 6, 1000, 0);
    assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_OK);
    fill(&rig);
    flip(4096 * (2 * ROWS + 1) + 123); /* chunk 2, row 1 */
    assert_int_equal(shoali_swap_read(rig.swap, 1, 0, 2000, out), SHOAL_OK);
    assert_int_equal(shoali_swap_read(rig.swap, 0, 2000, 1000, out), SHOAL_OK);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(shoali_swap_read(rig.swap, 1, 2000, 1000, out), SHOAL_ECORRUPT);
        assert_non_null(strstr(shoal_error_message(), "test.swp: chunk 2 of 6, `exp_avg`"));
        assert_non_null(strstr(shoal_error_message(), "bytes 28672 to 32767"));
    }
    /* padding is nobody's data */
    flip(4096 * (3 * ROWS + 1) + 4000);
    assert_int_equal(shoali_swap_read(rig.swap, 1, 3000, 1000, out), SHOAL_OK);
    flip(4096 * (2 * ROWS + 1) + 123);
    assert_int_equal(shoali_swap_read(rig.swap, 1, 2000, 1000, out), SHOAL_OK);
    assert_memory_equal(out, shadow[1] + 2000, 1000 * sizeof(float));
    close_rig(&rig);
}

static void test_truncated(void **state)
{
    struct rig rig;
    float out[1000];
    (void)state;
    open_rig(&rig, "cpu", 6, 1000, 0);
    assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_OK);
    fill(&rig);
    const int file = find_file(folder);
    assert_int_equal(ftruncate(file, 4096 * 3), 0);
    close(file);
    assert_int_equal(shoali_swap_read(rig.swap, 1, 2000, 1000, out), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "test.swp"));
    close_rig(&rig);
}

static void test_faults(void **state)
{
    struct rig rig;
    void *row[SHOALI_SWAP_MAX_ROWS];
    float out[1000];
    (void)state;
    for (int32_t behind = 0; behind < 2; behind++) {
        open_rig(&rig, "cpu", 6, 1000, 0);
        rig.args.write_behind = behind;
        assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_OK);
        fill(&rig);
        assert_true(shoali_fault_arm("io_read"));
        assert_int_equal(shoali_swap_read(rig.swap, 2, 1000, 1000, out), SHOAL_EIO);
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(shoali_swap_read(rig.swap, 2, 1000, 1000, out), SHOAL_OK);
        assert_memory_equal(out, shadow[2] + 1000, sizeof out);
        /* delivering half is not an error: the rest follows */
        assert_true(shoali_fault_arm("io_short"));
        assert_int_equal(shoali_swap_read(rig.swap, 2, 4000, 1000, out), SHOAL_OK);
        assert_memory_equal(out, shadow[2] + 4000, sizeof out);
        assert_int_equal(shoali_swap_get(rig.swap, 0, 1, row), SHOAL_OK);
        assert_true(shoali_fault_arm("io_write"));
        shoal_status status = shoali_swap_put(rig.swap, 0, 1, NULL);
        if (behind && status == SHOAL_OK)
            status = shoali_swap_flush(rig.swap);
        assert_int_equal(status, SHOAL_EIO);
        assert_true(shoali_fault_arm(NULL));
        close_rig(&rig);
    }
}

/* Every allocation and system call of creation may fail. */
static void test_creation_fails(void **state)
{
    static const char *const faults[] = {"host_alloc", "host_alloc:1", "host_alloc:3"};
    struct rig rig;
    (void)state;
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        open_rig(&rig, "cpu", 6, 1000, 2);
        assert_true(shoali_fault_arm(faults[f]));
        assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_ENOMEM);
        assert_null(rig.swap);
        assert_true(shoali_fault_arm(NULL));
        close_rig(&rig);
    }
    open_rig(&rig, "cpu", 6, 1000, 0);
    rig.args.path = "/proc/no/such";
    assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "nvme_path \"/proc/no/such\""));
    close_rig(&rig);
}

static void test_full_disk(void **state)
{
    struct rig rig;
    struct rlimit before, limit;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 65536;
    open_rig(&rig, "cpu", 6, 1000, 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const shoal_status status = shoali_swap_create(&rig.args, &rig.swap);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "full"));
    assert_non_null(strstr(shoal_error_message(), folder));
    close_rig(&rig);
    assert_int_equal(rmdir(folder), 0); /* nothing was left */
    open_rig(&rig, "cpu", 6, 1000, 0);
    assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_OK); /* makes the folder */
    close_rig(&rig);
}

static void test_counts(void **state)
{
    struct rig rig;
    struct shoali_swap_counters counters;
    float out[1000];
    (void)state;
    open_rig(&rig, "cpu", 6, 1000, 2);
    assert_int_equal(shoali_swap_create(&rig.args, &rig.swap), SHOAL_OK);
    assert_int_equal(shoali_swap_read(rig.swap, 2, 3000, 1000, out), SHOAL_OK);
    shoali_swap_get_counters(rig.swap, &counters);
    assert_int_equal(counters.file_bytes, 4 * ROWS * 4096);
    assert_int_equal(counters.host_bytes, ROWS * 2000 * 4 + 2 * (ROWS * 4096 + 4096));
    assert_int_equal(counters.read_count, 0); /* never written: zeros */
    fill(&rig);
    shoali_swap_get_counters(rig.swap, &counters);
    assert_int_equal(counters.written_bytes, 4 * ROWS * 4096);
    const int64_t before = counters.read_bytes;
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(shoali_swap_read(rig.swap, 2, 2000, 1000, out), SHOAL_OK);
    shoali_swap_get_counters(rig.swap, &counters);
    assert_int_equal(counters.read_bytes - before, 4096); /* once */
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),      cmocka_unit_test(test_flipped_bit),
        cmocka_unit_test(test_truncated),      cmocka_unit_test(test_faults),
        cmocka_unit_test(test_creation_fails), cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_counts),
    };
    setenv("SHOAL_SIM_BYTES", "67108864", 1);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
