/* Files of the sinks, the live line, and the text of the log lines. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "monitor/monitor.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void expect_file(const char *root, const char *name, const char *expected)
{
    char path[256], *data = NULL;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/%s", root, name);
    ok(shoali_read_file(path, &data, &bytes));
    assert_string_equal(data, expected);
    free(data);
}

static void test_sinks(void **state)
{
    const char *root = *state;
    char path[128];
    snprintf(path, sizeof(path), "%s/out/", root);
    shoal_monitor_args args = {.csv_enabled = 1,
                               .csv_output_path = path,
                               .csv_job_name = "run 1",
                               .jsonl_enabled = 1,
                               .jsonl_output_path = path,
                               .jsonl_job_name = "run 1"};
    shoal_monitor *monitor = NULL;
    const shoal_event first[] = {{"Train/Samples/lr", 0.001}, {"Train/my \"loss\"", 2.5}};
    const shoal_event second[] = {{"Train/Samples/lr", 3}, {"Train/my \"loss\"", NAN}};
    ok(shoal_monitor_create(&args, &monitor));
    assert_true(shoal_monitor_enabled(monitor));
    ok(shoal_monitor_write(monitor, 1, 32, first, 2));
    ok(shoal_monitor_write(monitor, 2, 64, second, 2));
    ok(shoal_monitor_write(monitor, 3, 96, second, 0));
    shoal_monitor_destroy(monitor);
    expect_file(root, "out/run 1/Train_Samples_lr.csv", "step,lr\n32,0.001\n64,3.0\n");
    expect_file(root, "out/run 1/Train_my_\"loss\".csv", "step,my \"loss\"\n32,2.5\n64,nan\n");
    expect_file(
        root, "out/run 1.jsonl",
        "{\"step\":1,\"samples\":32,\"Train/Samples/lr\":0.001,\"Train/my \\\"loss\\\"\":2.5}\n"
        "{\"step\":2,\"samples\":64,\"Train/Samples/lr\":3.0,\"Train/my \\\"loss\\\"\":null}\n");

    /* a second run appends below the header of the first */
    args.jsonl_enabled = 0;
    ok(shoal_monitor_create(&args, &monitor));
    ok(shoal_monitor_write(monitor, 3, 96, first, 1));
    shoal_monitor_destroy(monitor);
    expect_file(root, "out/run 1/Train_Samples_lr.csv", "step,lr\n32,0.001\n64,3.0\n96,0.001\n");
}

static void test_many_names(void **state)
{
    const char *root = *state;
    shoal_monitor *monitor = NULL;
    ok(shoal_monitor_create(&(shoal_monitor_args){.csv_enabled = 1, .csv_output_path = root},
                            &monitor));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 100; i++) {
            char name[32];
            snprintf(name, sizeof(name), "v/%d", i);
            ok(shoal_monitor_write(monitor, round, round, &(shoal_event){name, i}, 1));
        }
    shoal_monitor_destroy(monitor);
    expect_file(root, "DeepSpeedJobName/v_0.csv", "step,0\n0,0.0\n1,0.0\n");
    expect_file(root, "DeepSpeedJobName/v_99.csv", "step,99\n0,99.0\n1,99.0\n");
}

static void test_disabled_and_refused(void **state)
{
    const char *root = *state;
    char blocked[128];
    shoal_monitor *monitor = NULL;
    ok(shoal_monitor_create(&(shoal_monitor_args){0}, &monitor));
    assert_false(shoal_monitor_enabled(monitor));
    assert_false(shoal_monitor_enabled(NULL));
    ok(shoal_monitor_write(monitor, 1, 1, &(shoal_event){"a", 1}, 1));
    ok(shoal_monitor_write(NULL, 1, 1, &(shoal_event){"a", 1}, 1));
    shoal_monitor_destroy(monitor);

    shoal_monitor_args args = {
        .jsonl_enabled = 1, .jsonl_output_path = root, .jsonl_job_name = "j"};
    ok(shoal_monitor_create(&args, &monitor));
    snprintf(blocked, sizeof(blocked), "%s/j.jsonl", root);
    assert_int_equal(mkdir(blocked, 0700), 0);
    assert_int_equal(shoal_monitor_write(monitor, 1, 1, &(shoal_event){"a", 1}, 1), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), blocked));
    shoal_monitor_destroy(monitor);
}

/* ---- the live line ---- */

static shoal_progress *open_progress(FILE *out, shoal_progress_style style, int32_t columns)
{
    shoal_progress *progress = NULL;
    ok(shoal_progress_create(
        &(shoal_progress_args){
            .out = out, .style = style, .columns = columns, .total_steps = 25, .plain_every = 10},
        &progress));
    return progress;
}

static shoal_progress_values values_at(int64_t step)
{
    return (shoal_progress_values){.step = step,
                                   .loss = 2.34567,
                                   .lr = 3e-4,
                                   .grad_norm = 1.234,
                                   .tokens_per_s = 45678,
                                   .seconds_per_step = 600,
                                   .loss_scale = 1};
}

static void test_plain_lines(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    shoal_progress *progress =
        open_progress(out, SHOAL_PROGRESS_ASK, 0); /* a memory file is no terminal */
    for (int64_t step = 1; step <= 25; step++) {
        shoal_progress_values values = values_at(step);
        shoal_progress_update(progress, &values);
        if (step == 12)
            shoal_progress_message(progress, "hello");
    }
    shoal_progress_destroy(progress);
    fclose(out);
    assert_string_equal(
        text, "step 1/25  loss 2.3457  lr 3.00e-04  grad 1.23  45.7k tok/s  ETA 4:00:00\n"
              "step 10/25  loss 2.3457  lr 3.00e-04  grad 1.23  45.7k tok/s  ETA 2:30:00\n"
              "hello\n"
              "step 20/25  loss 2.3457  lr 3.00e-04  grad 1.23  45.7k tok/s  ETA 50:00\n"
              "step 25/25  loss 2.3457  lr 3.00e-04  grad 1.23  45.7k tok/s\n");
    free(text);
}

static void test_terminal_line(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    shoal_progress *progress = open_progress(out, SHOAL_PROGRESS_LIVE, 20);
    shoal_progress_message(progress, "begin");
    for (int64_t step = 1; step <= 2; step++) {
        shoal_progress_values values = values_at(step);
        shoal_progress_update(progress, &values);
    }
    shoal_progress_message(progress, "note");
    shoal_progress_destroy(progress);
    fclose(out);
    assert_string_equal(text, "begin\n\rstep 1/25\x1b[K\rstep 2/25\x1b[K"
                              "\r\x1b[Knote\nstep 2/25\n");
    free(text);
}

/* What a narrow window leaves out, in which order; no line reaches the last column. */
static void test_widths(void **state)
{
    static const struct {
        int32_t columns;
        const char *line;
    } cases[] = {
        {200, "step 7/25  loss 2.3457  lr 3.00e-04  grad 1.23  scale 1024  skipped 3  45.7k tok/s  "
              "ETA 3:00:00"},
        {80, "step 7/25  loss 2.3457  scale 1024  skipped 3  45.7k tok/s  ETA 3:00:00"},
        {72, "step 7/25  loss 2.3457  scale 1024  skipped 3  45.7k tok/s  ETA 3:00:00"},
        {71, "step 7/25  loss 2.3457  skipped 3  45.7k tok/s  ETA 3:00:00"},
        {40, "step 7/25  loss 2.3457  ETA 3:00:00"},
        {24, "step 7/25  loss 2.3457"},
        {20, "step 7/25"},
        {5, "step"},
        {1, ""},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char *text = NULL, expected[256];
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        shoal_progress *progress = open_progress(out, SHOAL_PROGRESS_LIVE, cases[k].columns);
        shoal_progress_values values = values_at(7);
        values.skipped = 3;
        values.loss_scale = 1024;
        shoal_progress_update(progress, &values);
        fflush(out);
        snprintf(expected, sizeof expected, "\r%s\x1b[K", cases[k].line);
        assert_string_equal(text, expected);
        assert_true((int32_t)strlen(cases[k].line) < cases[k].columns);
        shoal_progress_destroy(progress);
        fclose(out);
        free(text);
    }
}

/* The last step's line ends the live line; what follows stands below it. */
static void test_finish(void **state)
{
    (void)state;
    for (int live = 0; live < 2; live++) {
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        shoal_progress *progress =
            open_progress(out, live ? SHOAL_PROGRESS_LIVE : SHOAL_PROGRESS_PLAIN, 24);
        for (int64_t step = 1; step <= 2; step++) {
            shoal_progress_values values = values_at(step);
            values.lr = values.grad_norm = values.tokens_per_s = NAN;
            values.seconds_per_step = NAN;
            shoal_progress_update(progress, &values);
        }
        shoal_progress_finish(progress);
        shoal_progress_message(progress, "summary");
        shoal_progress_destroy(progress);
        fclose(out);
        assert_string_equal(text, live ? "\rstep 1/25  loss 2.3457\x1b[K\rstep 2/25  loss "
                                         "2.3457\x1b[K\nsummary\n"
                                       : "step 1/25  loss 2.3457\nstep 2/25  loss 2.3457\n"
                                         "summary\n");
        free(text);
    }
}

/* What arrives in a window of `term` whose width changes between two steps. */
static void show_in_windows(const char *term, const unsigned short *widths, size_t count,
                            char *text, size_t bytes)
{
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    FILE *out = fopen(ptsname(terminal), "w");
    assert_non_null(out);
    assert_int_equal(setenv("TERM", term, 1), 0);
    shoal_progress *progress = open_progress(out, SHOAL_PROGRESS_ASK, 0);
    for (size_t k = 0; k < count; k++) {
        const struct winsize size = {.ws_row = 24, .ws_col = widths[k]};
        assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
        shoal_progress_values values = values_at(10);
        shoal_progress_update(progress, &values);
    }
    shoal_progress_destroy(progress);
    fclose(out);
    /* It comes in pieces; once the other side is closed, all of it and then an error. */
    size_t total = 0;
    for (ssize_t got; (got = read(terminal, text + total, bytes - 1 - total)) > 0;)
        total += (size_t)got;
    assert_true(total > 0);
    text[total] = '\0';
    close(terminal);
}

/* What was wider than the window is now has wrapped, and is left alone. */
static void test_windows(void **state)
{
    static const unsigned short widths[] = {60, 30, 60};
    char text[1024];
    (void)state;
    if (access("/dev/pts/ptmx", F_OK) != 0) {
        print_message("skipped: /dev/pts is not mounted, so there are no terminals\n");
        skip();
    }
    show_in_windows("xterm", widths, 3, text, sizeof text);
    assert_string_equal(text, "\rstep 10/25  loss 2.3457  45.7k tok/s  ETA 2:30:00\x1b[K"
                              "\r\nstep 10/25  loss 2.3457\x1b[K"
                              "\rstep 10/25  loss 2.3457  45.7k tok/s  ETA 2:30:00\x1b[K\r\n");
    show_in_windows("dumb", widths, 1, text, sizeof text);
    assert_string_equal(
        text, "step 10/25  loss 2.3457  lr 3.00e-04  grad 1.23  45.7k tok/s  ETA 2:30:00\r\n");
}

static void test_line_parts(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    shoal_progress *progress = NULL;
    assert_int_equal(shoal_progress_create(&(shoal_progress_args){0}, &progress), SHOAL_EINVAL);
    ok(shoal_progress_create(
        &(shoal_progress_args){
            .out = out, .style = SHOAL_PROGRESS_PLAIN, .plain_every = 1, .total_steps = 1000},
        &progress));
    shoal_progress_values values = {.step = 1,
                                    .loss = NAN,
                                    .lr = NAN,
                                    .grad_norm = NAN,
                                    .tokens_per_s = NAN,
                                    .seconds_per_step = NAN};
    shoal_progress_update(progress, &values);
    values.skipped = 2;
    values.loss_scale = 65536;
    values.tokens_per_s = 1234567;
    values.seconds_per_step = 1000;
    shoal_progress_update(progress, &values);
    values = (shoal_progress_values){.step = 2000, .loss = INFINITY, .tokens_per_s = 5};
    shoal_progress_update(progress, &values);
    shoal_progress_destroy(progress);
    fclose(out);
    assert_string_equal(text, "step 1/1000\n"
                              "step 1/1000  scale 65536  skipped 2  1.23M tok/s  ETA 11d 13:30:00\n"
                              "step 2000/1000  loss inf  lr 0.00e+00  grad 0  5.00 tok/s\n");
    free(text);
}

/* ---- log lines ---- */

static void test_deepspeed_lines(void **state)
{
    (void)state;
    char text[512];
    const double betas[] = {0.9, 0.999}, momentum[] = {0};
    assert_string_equal(shoal_format_step_line(10, 0, 0.001, betas, 2, text, sizeof(text)),
                        "step=10, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]");
    assert_string_equal(shoal_format_step_line(7, 3, 1e-5, momentum, 1, text, sizeof(text)),
                        "step=7, skipped=3, lr=[1e-05], mom=[0.0]");
    assert_string_equal(shoal_format_step_line(7, 3, 1e-5, momentum, 1, text, 11), "step=7, sk");
    const shoal_timing timings[] = {{"fwd", 1.234}, {"bwd", 45.678}, {"step", 0}};
    assert_string_equal(shoal_format_timing_line(timings, 3, text, sizeof(text)),
                        "time (ms) | fwd: 1.23 | bwd: 45.68 | step: 0.00");
    const shoal_throughput rate = {0, 20, 10, 12.5, 100, 1610612736, 3221225472};
    assert_string_equal(shoal_format_throughput_line(&rate, text, sizeof(text)),
                        "epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=12.5, "
                        "CurrSamplesPerSec=100.0, MemAllocated=1.50GB, MaxMemAllocated=3.00GB");
}

static void test_megatron_lines(void **state)
{
    (void)state;
    char text[1024];
    shoal_iteration_line line = {.time_us = 1700000000123456,
                                 .iteration = 10,
                                 .total_iterations = 100,
                                 .consumed_samples = 320,
                                 .global_batch_size = 32,
                                 .ms_per_iteration = 12.34,
                                 .tflops_per_device = NAN,
                                 .learning_rate = 0.0003,
                                 .loss = 2.5,
                                 .loss_scale = 1,
                                 .grad_norm = 1.2345};
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    tzset();
    assert_string_equal(
        shoal_format_iteration_line(&line, text, sizeof(text)),
        " [2023-11-14 22:13:20.123456] iteration       10/     100 | consumed samples:          "
        "320 | "
        "elapsed time per iteration (ms): 12.3 | learning rate: 3.000000E-04 | global batch size:  "
        "  "
        "32 | lm loss: 2.500000E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped "
        "iterations:   0 | number of nan iterations:   0 |");
    line.tflops_per_device = 99.96;
    line.skipped_samples = 5;
    line.loss = NAN;
    line.grad_norm = NAN;
    shoal_format_iteration_line(&line, text, sizeof(text));
    assert_non_null(strstr(text, " | skipped samples:            5 | elapsed"));
    assert_non_null(strstr(text, " | throughput per GPU (TFLOP/s/GPU): 100.0 | learning"));
    assert_null(strstr(text, "lm loss"));
    assert_null(strstr(text, "norm"));
    assert_string_equal(shoal_format_validation_line("iteration 100", NULL, 1, text, sizeof(text)),
                        " validation loss at iteration 100 | lm loss value: 1.000000E+00 | lm loss "
                        "PPL: 2.718282E+00 | ");
    shoal_format_validation_line("x", "l", 50, text, sizeof(text));
    assert_non_null(strstr(text, "PPL: 4.851652E+08"));
}

/* Numbers read back as the same value and look like numbers of Python. */
static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } golden[] = {{0, "0.0"},
                  {1, "1.0"},
                  {-2.5, "-2.5"},
                  {1e-4, "0.0001"},
                  {1e-5, "1e-05"},
                  {100000, "100000.0"},
                  {1e15, "1000000000000000.0"},
                  {1e16, "1e+16"},
                  {1. / 3, "0.3333333333333333"},
                  {0.1, "0.1"},
                  {INFINITY, "inf"}};
    for (size_t k = 0; k < sizeof(golden) / sizeof(golden[0]); k++) {
        struct shoali_str str = {0};
        shoali_append_number(&str, golden[k].value);
        assert_string_equal(shoali_str_get(&str), golden[k].text);
        shoali_str_fini(&str);
    }
    print_message("seed 31\n");
    struct shoali_stream stream = shoali_stream_make(31, "test", "", 0);
    for (uint64_t i = 0; i < 20000; i++) {
        union {
            uint64_t u;
            double d;
        } v = {shoali_random_below(&stream, i, UINT64_C(1) << 63)};
        if (!isfinite(v.d))
            continue;
        struct shoali_str str = {0};
        shoali_append_number(&str, v.d);
        assert_true(strtod(shoali_str_get(&str), NULL) == v.d);
        shoali_str_fini(&str);
    }
}

/* ---- configuration ---- */

static shoal_status read_section(const struct shoali_section *section, const char *body,
                                 void *config, struct shoali_arena *arena)
{
    struct shoali_json *document = NULL;
    char text[256];
    shoal_status status;
    snprintf(text, sizeof(text), "{\"%s\": %s}", section->name, body);
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "test.json", &document), done);
    SHOAL_TRY(status, shoali_config_defaults(section, config, arena), done);
    SHOAL_TRY(status, shoali_config_read_json(section, document, section->name, config, arena),
              done);
done:
    shoali_json_close(document);
    return status;
}

static void test_sections(void **state)
{
    (void)state;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    struct shoali_file_monitor_config file;
    struct shoali_wandb_config wandb;
    struct shoali_comet_config comet;
    ok(read_section(&shoali_csv_monitor_section, "{\"enabled\": true, \"output_path\": \"x\"}",
                    &file, &arena));
    assert_true(file.enabled);
    assert_string_equal(file.output_path, "x");
    assert_string_equal(file.job_name, "DeepSpeedJobName");
    ok(read_section(&shoali_jsonl_monitor_section, "{\"job_name\": \"j\"}", &file, &arena));
    assert_true(!file.enabled && strcmp(file.job_name, "j") == 0);
    assert_int_equal(read_section(&shoali_csv_monitor_section, "{\"enable\": true}", &file, &arena),
                     SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "enabled"));
    ok(read_section(&shoali_tensorboard_section, "{\"enabled\": true, \"output_path\": \"x\"}",
                    &file, &arena));
    assert_true(file.enabled);
    /* a line says that nothing is written */
    ok(read_section(&shoali_wandb_section, "{\"enabled\": true}", &wandb, &arena));
    ok(read_section(&shoali_comet_section, "{\"enabled\": true}", &comet, &arena));
    assert_false(wandb.enabled || comet.enabled);
    ok(read_section(&shoali_wandb_section, "{\"project\": \"p\"}", &wandb, &arena));
    ok(read_section(&shoali_comet_section, "{}", &comet, &arena));
    assert_int_equal(comet.samples_log_interval, 100);
    shoali_arena_fini(&arena);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_sinks),
        IN_FOLDER(test_many_names),
        IN_FOLDER(test_disabled_and_refused),
        cmocka_unit_test(test_plain_lines),
        cmocka_unit_test(test_terminal_line),
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_line_parts),
        cmocka_unit_test(test_deepspeed_lines),
        cmocka_unit_test(test_megatron_lines),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_sections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
