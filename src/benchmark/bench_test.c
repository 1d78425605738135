/* Figures have samples, limits and sense; wrong arguments have sentences. */
#include "base/test_cmocka.h"
#include "benchmark/benchmark.h"
#include "benchmark/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a sink saw. */
struct seen {
    int32_t count;
    char last[160], bench[16];
    double median, ratio;
    bool ordered; /* min <= median <= max everywhere, all positive */
    int32_t untimed, devices;
    bool emulated;
    shoal_status answer;
};

static shoal_status look(void *user, const shoali_bench_result *result)
{
    struct seen *seen = user;
    seen->emulated = seen->emulated || result->emulated;
    if (result->untimed) {
        seen->untimed++;
        return seen->answer;
    }
    seen->count++;
    seen->median = result->median;
    seen->ratio = result->ratio;
    seen->ordered = seen->ordered && result->min > 0 && result->min <= result->median &&
                    result->median <= result->max && result->repeats >= 1;
    snprintf(seen->last, sizeof seen->last, "%s", result->name);
    snprintf(seen->bench, sizeof seen->bench, "%s", result->bench);
    return seen->answer;
}

static shoal_status look_at_device(void *user, const shoali_bench_device *device)
{
    struct seen *seen = user;
    seen->devices++;
    assert_string_equal(device->accelerator, "sim");
    return SHOAL_OK;
}

static shoali_bench_run quick(struct seen *seen)
{
    *seen = (struct seen){.ordered = true};
    return (shoali_bench_run){.repeats = 3,
                              .seconds = 0.003,
                              .threads = 2,
                              .accelerator = "cpu",
                              .sink = look,
                              .user = seen};
}

static void test_samples(void **state)
{
    (void)state;
    struct shoali_samples samples = {.count = 0};
    assert_true(shoali_samples_median(&samples) == 0);
    const double values[] = {3, -1, 7, 2};
    for (int i = 0; i < 4; i++)
        shoali_samples_add(&samples, values[i]);
    assert_true(shoali_samples_median(&samples) == 2.5);
    struct seen seen;
    const shoali_bench_run run = quick(&seen);
    shoali_bench_result result = {.bench = "x", .name = "x", .unit = "us"};
    assert_int_equal(shoali_bench_emit(&run, &result, &samples, NULL), SHOAL_OK);
    assert_true(result.min == -1 && result.max == 7);
    shoali_samples_add(&samples, 100);
    assert_true(shoali_samples_median(&samples) == 3);
    assert_true(samples.value[0] == 3); /* the order of time is kept */
}

static void test_ratios_of_times_and_speeds(void **state)
{
    (void)state;
    struct seen seen;
    const shoali_bench_run run = quick(&seen);
    struct shoali_samples two = {{2}, 1}, eight = {{8}, 1};
    shoali_bench_result result = {.bench = "x", .name = "x", .unit = "GB/s"};
    assert_int_equal(shoali_bench_emit(&run, &result, &two, &eight), SHOAL_OK);
    assert_true(seen.ratio == 0.25);
    result.unit = "us"; /* a time of 8 is a quarter as fast as its limit of 2 */
    assert_int_equal(shoali_bench_emit(&run, &result, &eight, &two), SHOAL_OK);
    assert_true(seen.ratio == 0.25);
    assert_int_equal(
        shoali_bench_emit(&run, &(shoali_bench_result){.unit = "us", .name = "x", .bench = "x"},
                          &eight, NULL),
        SHOAL_OK);
    assert_true(seen.ratio == 0);
}

static void test_limits(void **state)
{
    enum { LINES = 1 << 16 };
    (void)state;
    struct shoali_pool *pool = NULL;
    void *x = NULL, *y = NULL;
    assert_int_equal(shoali_pool_create(2, &pool), SHOAL_OK);
    assert_int_equal(shoali_bench_numbers(1 << 20, SHOAL_F32, &x), SHOAL_OK);
    assert_int_equal(shoali_bench_numbers(1 << 20, SHOAL_F32, &y), SHOAL_OK);
    const double before = *(float *)x;
    assert_true(shoali_limit_axpy(pool, x, y, 1 << 20) > 0.01);
    assert_true(*(float *)x != before); /* it did the work */
    for (int32_t reads = 1; reads <= 2; reads++)
        for (int32_t writes = 0; writes <= 2; writes++) {
            /* The last line that a round reads is what it writes. */
            const int32_t most = reads > writes ? reads : writes, rounds = LINES / most;
            const char *from = (const char *)x + 64 * (reads - 1), *to = y;
            memset(y, 0, (size_t)LINES * 64);
            assert_true(shoali_limit_lines(pool, x, y, rounds, reads, writes) > 0.01);
            assert_int_equal(memcmp(from, to, 64) == 0, writes > 0);
            assert_int_equal(memcmp(from + 64 * reads * (rounds - 1),
                                    to + 64 * ((writes > 0 ? writes : 1) * rounds - 1), 64) == 0,
                             writes > 0);
        }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma"))
        assert_true(shoali_limit_fma(pool, SHOAL_F32) > 0.1);
#endif
    const double trip = shoali_limit_round_trip();
    assert_true(shoali_core_count() < 2 ? trip == 0 : trip > 0.001);
    free(x);
    free(y);
    shoali_pool_destroy(pool);
}

static void test_kernels(void **state)
{
    (void)state;
    struct seen seen;
    shoali_bench_gemm_args gemm = {
        .run = quick(&seen), .dtype = SHOAL_BF16, .m = 33, .n = 17, .k = 65, .trans_a = 1};
    assert_int_equal(shoali_bench_gemm(&gemm), SHOAL_OK);
    assert_int_equal(seen.count, 1);
    assert_true(seen.ordered && seen.median > 0);
    assert_string_equal(seen.last, "product TN 33x17x65");
    gemm.k = 0;
    assert_int_equal(shoali_bench_gemm(&gemm), SHOAL_EINVAL);
    gemm.m = gemm.n = 0;
    gemm.set = "huge";
    assert_int_equal(shoali_bench_gemm(&gemm), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "huge"));

    shoali_bench_attention_args attention = {
        .run = quick(&seen), .batch = 1, .heads = 2, .seq_length = 33, .head_size = 16};
    assert_int_equal(shoali_bench_attention(&attention), SHOAL_OK);
    assert_int_equal(seen.count, 2);
    assert_true(seen.ordered);
    attention.heads = 0;
    assert_int_equal(shoali_bench_attention(&attention), SHOAL_EINVAL);

    shoali_bench_stream_args adam = {.run = quick(&seen), .count = 100000, .adam_only = 1};
    assert_int_equal(shoali_bench_stream(&adam), SHOAL_OK);
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.bench, "adam");
    adam.adam_only = 0; /* too few for the kernels of rows */
    assert_int_equal(shoali_bench_stream(&adam), SHOAL_EINVAL);
}

/* Calls take the sets in turn, and each set has its own arrays, equal at first. */
static void test_sets_take_turns(void **state)
{
    enum { COUNT = 1000 };
    (void)state;
    struct seen seen;
    shoali_bench_run run = quick(&seen);
    run.accelerator = "sim";
    struct shoali_bench bench = {.pool = NULL};
    struct shoali_operands operands = {.bench = NULL};
    float *x = NULL, *y = NULL, first[COUNT], got[COUNT];
    const float from[2] = {3, 4};
    float *pair = NULL;
    const struct shoali_bench_array arrays[] = {
        SHOALI_BENCH_ZEROS(y, COUNT, SHOAL_F32),
        SHOALI_BENCH_ARRAY(x, COUNT, SHOAL_F32),
        {.at = &pair, .count = 2, .dtype = SHOAL_F32, .from = from}};
    assert_int_equal(shoali_bench_init(&bench, "gemm", &run), SHOAL_OK);
    assert_int_equal(shoali_operands_create(&bench, arrays, 3, 0, &operands), SHOAL_OK);
    /* All sets are more than a few caches hold. */
    assert_true((int64_t)operands.set_bytes * operands.sets > 4 * bench.facts.cache_bytes);
    const struct shoali_axpy_args axpy = {.x = x, .y = y, .count = COUNT, .a = 1, .accumulate = 1};
    for (int32_t i = 0; i <= operands.sets; i++) /* the first set twice */
        assert_int_equal(shoali_operands_launch(&operands, &shoali_kernel_axpy, &axpy), SHOAL_OK);
    assert_int_equal(shoali_download(bench.exec.stream, first, x, sizeof first), SHOAL_OK);
    assert_true(first[0] != first[1]);
    for (int32_t s = 0; s < operands.sets; s++) {
        const size_t by = (size_t)s * operands.set_bytes;
        assert_int_equal(shoali_download(bench.exec.stream, got, (char *)y + by, sizeof got),
                         SHOAL_OK);
        for (int i = 0; i < COUNT; i++)
            assert_true(got[i] == (s == 0 ? 2 : 1) * first[i]);
        assert_int_equal(shoali_download(bench.exec.stream, got, (char *)pair + by, sizeof from),
                         SHOAL_OK);
        assert_true(got[0] == 3 && got[1] == 4);
    }
    double seconds = 0;
    assert_int_equal(shoali_device_time(&bench, &operands, &shoali_kernel_axpy, &axpy, 3, &seconds),
                     SHOAL_OK);
    assert_true(seconds > 0 && operands.next == 4 % operands.sets);
    shoali_operands_destroy(&operands);
    shoali_bench_fini(&bench);
}

/* What a device does not compute itself has no figure. */
static void test_staged_kernels_have_no_figure(void **state)
{
    (void)state;
    struct seen seen;
    shoali_bench_gemm_args gemm = {.run = quick(&seen), .set = "tiny"};
    gemm.run.accelerator = "sim";
    gemm.run.on_device = look_at_device;
    assert_int_equal(setenv("SHOAL_SIM_MEMORY", "closed", 1), 0);
    assert_int_equal(shoali_bench_gemm(&gemm), SHOAL_OK);
    assert_int_equal(unsetenv("SHOAL_SIM_MEMORY"), 0);
    assert_int_equal(seen.untimed, 14);
    assert_int_equal(seen.count, 1); /* the copy alone: neither products nor their sum */
    assert_int_equal(seen.devices, 1);
    assert_true(seen.emulated);
    gemm.m = gemm.n = gemm.k = 20;
    gemm.run = quick(&seen);
    gemm.run.accelerator = "sim";
    assert_int_equal(shoali_bench_gemm(&gemm), SHOAL_OK);
    assert_int_equal(seen.untimed, 0);
    assert_int_equal(seen.count, 3); /* copy, product, this product */
    assert_true(seen.ordered && seen.ratio > 0);
    gemm.run.device = 1;
    assert_int_equal(shoali_bench_gemm(&gemm), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "accelerator sim has 1"));
}

static void test_the_sink_can_refuse(void **state)
{
    (void)state;
    struct seen seen;
    shoali_bench_stream_args adam = {.run = quick(&seen), .count = 1000, .adam_only = 1};
    seen.answer = SHOAL_EIO;
    assert_int_equal(shoali_bench_stream(&adam), SHOAL_EIO);
    assert_int_equal(seen.count, 1);
    adam.run.repeats = -1;
    assert_int_equal(shoali_bench_stream(&adam), SHOAL_EINVAL);
    adam.run.repeats = 1;
    adam.run.seconds = (double)NAN;
    assert_int_equal(shoali_bench_stream(&adam), SHOAL_EINVAL);
}

static void test_collectives(void **state)
{
    (void)state;
    static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                      "all_to_all"};
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    struct seen seen;
    for (int32_t ranks = 2; ranks <= 4; ranks++) {
        for (int op = 0; op < 5; op++) {
            const shoali_bench_comm_args args = {.run = quick(&seen),
                                                 .op = ops[op],
                                                 .min_bytes = 3,
                                                 .max_bytes = 5000,
                                                 .step_factor = 40,
                                                 .dtype = dtypes[(op + ranks) % 3],
                                                 .ranks = ranks,
                                                 .unshared = ranks % 2};
            assert_int_equal(shoali_bench_comm(&args), SHOAL_OK);
            assert_int_equal(seen.count, 3); /* 3, 120, 4800 */
            assert_true(seen.ordered);
            assert_int_equal(strncmp(seen.last, ops[op], strlen(ops[op])), 0);
        }
    }
    shoali_bench_comm_args args = {.run = quick(&seen), .op = "reduce", .ranks = 2};
    assert_int_equal(shoali_bench_comm(&args), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "reduce"));
    args.op = NULL;
    args.step_factor = 1;
    assert_int_equal(shoali_bench_comm(&args), SHOAL_EINVAL);
    args.step_factor = 0;
    args.min_bytes = 100;
    args.max_bytes = 10;
    assert_int_equal(shoali_bench_comm(&args), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "from 100 to 10"));
    for (int32_t ranks = 0; ranks < 2; ranks++) { /* nobody to send to */
        const shoali_bench_comm_args lonely = {.run = quick(&seen), .ranks = ranks};
        assert_int_equal(shoali_bench_comm(&lonely), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), "one rank sends nothing"));
    }
}

/* A collective that is called for something else than it is checked for does not pass. */
static void test_wrong_data_are_found(void **state)
{
    (void)state;
    struct seen seen;
    const shoali_bench_run run = quick(&seen);
    const shoali_bench_comm_args args = {.run = run, .dtype = SHOAL_F32};
    const struct shoali_bench_op op = {"all_to_all", SHOALI_BENCH_ALL_TO_ALL};
    float in[64], out[64];
    shoal_group *group = NULL;
    assert_int_equal(
        shoal_comm_init(&(shoal_comm_args){.world_size = 1, .backend = "self"}, &group), SHOAL_OK);
    struct shoali_bench_rank self = {
        .args = &args, .run = &run, .op = &op, .group = group, .ranks = 1, .in = in, .out = out};
    struct shoali_bench_message message;
    shoali_bench_message_init(&self, sizeof in, &message);
    assert_int_equal(message.count, 64);
    assert_int_equal(shoali_bench_check(&self, &message), SHOAL_OK);
    assert_true(in[5] == 0 && out[5] == 0);
    self.rank = 1; /* expects the blocks of another rank */
    assert_int_equal(shoali_bench_check(&self, &message), SHOAL_ECORRUPT);
    assert_non_null(strstr(shoal_error_message(), "element"));
    shoal_comm_destroy(group);
}

static void test_io(void **state)
{
    (void)state;
    struct seen seen;
    char folder[] = "/tmp/shoal-bench-XXXXXX";
    assert_non_null(mkdtemp(folder));
    shoali_bench_io_args args = {
        .run = quick(&seen), .folder = folder, .bytes = 300000, .block_bytes = 5000};
    args.run.seconds = 1;
    assert_int_equal(shoali_bench_io(&args), SHOAL_OK);
    assert_int_equal(seen.count, 2);
    assert_true(seen.ordered);
    args.backend = "posix";
    args.buffered = args.read = 1;
    args.run = quick(&seen);
    assert_int_equal(shoali_bench_io(&args), SHOAL_OK);
    assert_int_equal(seen.count, 1);
    assert_int_equal(strncmp(seen.last, "read", 4), 0);
    assert_non_null(strstr(seen.last, "posix"));

    shoali_bench_io_args best = {0};
    args = (shoali_bench_io_args){.run = quick(&seen), .folder = folder, .bytes = 65536};
    assert_int_equal(shoali_tune_io(&args, &best), SHOAL_OK);
    assert_int_equal(seen.count, 32); /* 16 settings, written and read */
    assert_true(best.block_bytes >= 1 << 20 && best.queue_depth >= 32 && best.run.threads >= 1);
    assert_int_equal(rmdir(folder), 0); /* nothing stays */
    assert_int_equal(shoali_bench_io(&args), SHOAL_EINVAL);
    args.folder = NULL;
    assert_int_equal(shoali_bench_io(&args), SHOAL_EINVAL);
}

static shoal_model_config *small_model(void)
{
    static const struct {
        const char *name;
        double value;
    } options[] = {{"num-layers", 1},
                   {"hidden-size", 16},
                   {"num-attention-heads", 2},
                   {"seq-length", 8},
                   {"make-vocab-size-divisible-by", 128},
                   {"vocab-size", 11}};
    shoal_model_config *config;
    assert_int_equal(shoal_model_config_create("gpt", &config), SHOAL_OK);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        assert_int_equal(shoal_model_config_set(config, options[i].name, options[i].value),
                         SHOAL_OK);
    return config;
}

static void test_step(void **state)
{
    (void)state;
    struct seen seen;
    shoali_bench_step_args args = {.run = quick(&seen), .micro_batch = 2, .dtype = SHOAL_BF16};
    shoal_model_config *model = small_model();
    args.model = model;
    assert_int_equal(shoali_bench_step(&args), SHOAL_OK);
    assert_int_equal(seen.count, 1);
    assert_true(seen.ordered);
    assert_non_null(strstr(seen.last, "2x8 tokens"));
    args.dtype = SHOAL_I32;
    assert_int_equal(shoali_bench_step(&args), SHOAL_EINVAL);
    args.dtype = SHOAL_F32;
    args.micro_batch = 0;
    assert_true(shoali_bench_step(&args) < 0);

    char folder[] = "/tmp/shoal-bench-XXXXXX", file[64], *text = NULL;
    size_t bytes;
    int64_t when[2] = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/time", folder);
    args.micro_batch = 1;
    args.first_step_file = file;
    const int64_t before = shoali_now_ns();
    assert_int_equal(shoali_bench_step(&args), SHOAL_OK);
    assert_int_equal(shoali_read_file(file, &text, &bytes), SHOAL_OK);
    char *rest = text;
    for (int32_t i = 0; i < 2; i++)
        assert_true(shoali_parse_i64(strsep(&rest, "\n"), &when[i]));
    assert_true(before < when[0] && when[0] < when[1] && when[1] < shoali_now_ns());
    free(text);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
    shoal_model_config_destroy(model);
}

/* A prompt, then a token beside the bytes of the weights that it passes through. */
static shoal_status take_generate(void *user, const shoali_bench_result *result)
{
    double *bytes = user;
    const bool token = strcmp(result->unit, "ms") == 0;
    assert_non_null(strstr(result->name, token ? "a token after it" : "prompt of 4 tokens"));
    assert_true(result->median > 0 && result->limit > 0 && result->ratio > 0);
    for (int32_t i = 0; i < result->value_count; i++) {
        if (strcmp(result->values[i].name, "weights of a token") == 0)
            *bytes = result->values[i].value * 1024 * 1024;
        if (strcmp(result->values[i].name, "masters") == 0)
            assert_true(result->values[i].value == 0);
    }
    return SHOAL_OK;
}

static void test_generate(void **state)
{
    (void)state;
    double bytes = 0;
    shoal_model_config *model = small_model();
    shoali_bench_generate_args args = {.run = {.repeats = 2,
                                               .seconds = 0.002,
                                               .threads = 1,
                                               .sink = take_generate,
                                               .user = &bytes},
                                       .model = model,
                                       .dtype = SHOAL_BF16};
    assert_int_equal(shoali_bench_generate(&args), SHOAL_OK);
    /* the head of 128 rows, the block with its vectors, the last norm, one row of the positions */
    assert_true(bytes == 2.0 * (128 * 16 + 12 * 16 * 16 + 13 * 16 + 2 * 16 + 16));
    args.sequences = 3;
    args.dtype = SHOAL_F32;
    assert_int_equal(shoali_bench_generate(&args), SHOAL_OK);
    args.prompt_length = 8;
    assert_int_equal(shoali_bench_generate(&args), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "leaves no room"));
    args.prompt_length = 0;
    args.dtype = SHOAL_I32;
    assert_int_equal(shoali_bench_generate(&args), SHOAL_EINVAL);
    shoal_model_config_destroy(model);
}

/* Numbers of the last figure by name. */
struct figures {
    int32_t count;
    double limit, median, read, written, reads, writes, alone, without, times;
};

static shoal_status take_figures(void *user, const shoali_bench_result *result)
{
    struct figures *figures = user;
    double *const place[] = {&figures->read,  &figures->written, &figures->reads, &figures->writes,
                             &figures->alone, &figures->without, &figures->times};
    if (strstr(result->name, "the device's")) /* its copy and its product, on a device only */
        return SHOAL_OK;
    figures->count++;
    figures->limit = result->limit;
    figures->median = result->median;
    for (int32_t i = 0; i < 7 && i < result->value_count; i++)
        *place[i] = result->values[i].value;
    return SHOAL_OK;
}

/* More sub-groups than sets of buffers: each of them is read and written once in a step. */
static void test_step_on_a_drive(void **state)
{
    (void)state;
    struct figures seen = {0};
    char folder[] = "/tmp/shoal-bench-XXXXXX", config[64], text[600];
    assert_non_null(mkdtemp(folder));
    snprintf(config, sizeof config, "%s/config.json", folder);
    const int bytes = snprintf(
        text, sizeof text,
        "{ \"train_micro_batch_size_per_gpu\": 1, \"optimizer\": { \"type\": \"AdamW\", "
        "\"params\": { \"lr\": 1e-3 } }, \"zero_optimization\": { \"stage\": 1, "
        "\"sub_group_size\": 1024, \"offload_optimizer\": { \"device\": \"nvme\", \"nvme_path\": "
        "\"%s\", \"buffer_count\": 12, \"pipeline_read\": true, \"pipeline_write\": true } } }",
        folder);
    assert_int_equal(shoali_write_file_atomic(config, text, (size_t)bytes), SHOAL_OK);
    shoali_bench_step_args args = {
        .run = {.repeats = 3, .seconds = 0.003, .threads = 2, .sink = take_figures, .user = &seen},
        .config_path = config};
    shoal_model_config *model = small_model();
    args.model = model;
    assert_int_equal(shoali_bench_step(&args), SHOAL_OK);
    assert_int_equal(seen.count, 2);
    /* masters and two states; 1024 numbers of each, the last ones padded, are 4096 bytes; the
     * vocabulary is padded to 128 */
    const int64_t positions = 8, block = 12 * 16 * 16 + 13 * 16;
    const int64_t parameters = (128 + positions) * 16 + block + 2 * 16;
    const int64_t sub_groups = (parameters + 1023) / 1024;
    assert_true(fabs(seen.read - (double)sub_groups * 3 * 4096 * 1e-6) < 1e-9);
    assert_true(seen.written == seen.read);
    assert_true(seen.reads > 0 && seen.writes > 0 && seen.without > 0 && seen.median > 0);
    assert_true(seen.limit >= seen.without && seen.limit >= seen.alone * 0.999);
    assert_true(fabs(seen.times - seen.median / seen.limit) < 1e-9);
    assert_int_equal(unlink(config), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing stays */
    shoal_model_config_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_ratios_of_times_and_speeds),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_sets_take_turns),
        cmocka_unit_test(test_staged_kernels_have_no_figure),
        cmocka_unit_test(test_the_sink_can_refuse),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_wrong_data_are_found),
        cmocka_unit_test(test_io),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_step_on_a_drive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
