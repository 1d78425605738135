/* Lines that are read back, pictures and pages. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "monitor/plot.h"

#include <math.h>

#define LOSS "\"Train/Samples/train_loss\":"

static const char *path_of(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void expect_sentence(shoal_status status, const char *part)
{
    assert_true(status < 0);
    if (!strstr(shoal_error_message(), part))
        fail_msg("\"%s\" is not in: %s", part, shoal_error_message());
    shoali_error_clear();
}

static void test_lines(void **state)
{
    (void)state;
    struct shoali_run run;
    const struct shoali_scalar *scalar;
    put_in_folder("/a.jsonl", "\xef\xbb\xbf{\"step\":1,\"samples\":2," LOSS "5.5}\n\n"
                              "{\"step\":2,\"samples\":4," LOSS "null,\"x/late\":7}\r\n"
                              "{\"step\":3,\"samples\":6," LOSS "4}\n{\"step\":4,\"sam");
    ok(shoali_run_read(path_of("a.jsonl"), &run));
    assert_int_equal(run.count, 3);
    ok(shoali_run_find(&run, "train_loss", &scalar));
    assert_true(scalar->value[0] == 5.5 && isnan(scalar->value[1]) && scalar->value[2] == 4);
    ok(shoali_run_find(&run, "x/late", &scalar));
    assert_true(isnan(scalar->value[0]) && scalar->value[1] == 7 && isnan(scalar->value[2]));
    expect_sentence(shoali_run_find(&run, "train_los", &scalar), "nearest is \"train_loss\"");
    expect_sentence(shoali_run_find(&run, "nothing", &scalar), "give one of train_loss, late");
    shoali_run_fini(&run);
}

/* A resumed run repeats the steps after its checkpoint: they count once, as last. */
static void test_steps_run_again(void **state)
{
    (void)state;
    struct shoali_run run;
    struct shoali_str text = {0};
    for (int step = 1; step <= 700; step++)
        shoali_str_append(&text, "{\"step\":%d,\"samples\":%d," LOSS "1}\n", step, 2 * step);
    for (int step = 401; step <= 500; step++)
        shoali_str_append(&text, "{\"step\":%d,\"samples\":%d," LOSS "2}\n", step, 2 * step);
    put_in_folder("/again.jsonl", shoali_str_get(&text));
    shoali_str_fini(&text);
    ok(shoali_run_read(path_of("again.jsonl"), &run));
    assert_int_equal(run.count, 500);
    assert_int_equal(run.step[399], 400);
    assert_true(run.scalar[0].value[399] == 1 && run.scalar[0].value[400] == 2);
    shoali_run_fini(&run);
}

static void test_broken(void **state)
{
    (void)state;
    struct shoali_run run;
    put_in_folder("/b.jsonl", "{\"step\":1}\n{\"step\":2,\n{\"step\":3}\n");
    expect_sentence(shoali_run_read(path_of("b.jsonl"), &run), "b.jsonl:2: the line is not JSON");
    put_in_folder("/b.jsonl", "{\"step\":1}\n[1]\n");
    expect_sentence(shoali_run_read(path_of("b.jsonl"), &run),
                    "b.jsonl:2: the line has no \"step\"");
    put_in_folder("/b.jsonl", "{\"st");
    expect_sentence(shoali_run_read(path_of("b.jsonl"), &run), "no whole line");
    expect_sentence(shoali_run_read(path_of("none"), &run), "none does not exist");
}

static void test_seconds(void **state)
{
    (void)state;
    struct shoali_run run;
    double seconds[3];
    put_in_folder("/s.jsonl", "{\"step\":10,\"samples\":40,\"a/samples_per_second\":8}\n"
                              "{\"step\":11,\"samples\":44,\"a/samples_per_second\":2}\n"
                              "{\"step\":12,\"samples\":48,\"a/samples_per_second\":null}\n");
    ok(shoali_run_read(path_of("s.jsonl"), &run));
    ok(shoali_run_seconds(&run, seconds));
    assert_true(seconds[0] == 0.5 && seconds[1] == 2.5 && seconds[2] == 2.5);
    shoali_run_fini(&run);
}

static void test_folder_of_a_run(void **state)
{
    (void)state;
    struct shoali_run run;
    struct shoali_run_folder checkpoints;
    put_in_folder("/run/lines/r.jsonl", "{\"step\":1}\n");
    put_in_folder("/run/hashes.jsonl", "{}\n");
    put_in_folder("/run/global_step9/manifest.json", "{\"step\":9}");
    put_in_folder("/run/global_step9/other.jsonl", "{}");
    put_in_folder("/run/global_step10/manifest.json",
                  "{\"step\":10,\"client\":{\"model\":{\"seq-length\":16}}}");
    put_in_folder("/run/global_step11/manifest.json", "{\"step\":1");
    ok(shoali_run_read(path_of("run"), &run));
    assert_string_equal(run.lines, path_of("run/lines/r.jsonl"));
    shoali_run_fini(&run);
    ok(shoali_run_folder_read(path_of("run"), &checkpoints));
    assert_int_equal(checkpoints.count, 2);
    assert_string_equal(checkpoints.checkpoint[0].tag, "global_step9");
    assert_int_equal(checkpoints.checkpoint[0].bytes, 12);
    assert_int_equal(checkpoints.checkpoint[1].step, 10);
    assert_int_equal(shoali_run_folder_seq_length(&checkpoints), 16);
    shoali_run_folder_fini(&checkpoints);
    put_in_folder("/run/second.jsonl", "{\"step\":1}\n");
    expect_sentence(shoali_run_read(path_of("run"), &run), "several files *.jsonl");
    put_in_folder("/empty/x", "");
    expect_sentence(shoali_run_read(path_of("empty"), &run), "has no lines of numbers");
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    const size_t bytes = strlen(word);
    for (size_t i = 0; text[i]; i++)
        count += strncmp(text + i, word, bytes) == 0;
    return count;
}

static char *plot(const shoal_plot_args *args)
{
    char *svg = NULL;
    ok(shoal_plot(args, &svg));
    return svg;
}

static void expect_parts(const char *text, const char *const *part)
{
    for (; *part; part++)
        if (!strstr(text, *part))
            fail_msg("\"%s\" is not in: %s", *part, text);
}

static void test_picture(void **state)
{
    (void)state;
    put_in_folder("/p.jsonl", "{\"step\":0,\"samples\":0,\"l\":0}\n"
                              "{\"step\":50,\"samples\":50000,\"l\":1}\n"
                              "{\"step\":100,\"samples\":100000,\"l\":0.5}\n");
    const char *run = path_of("p.jsonl"), *name = "l";
    shoal_plot_args args = {.runs = &run,
                            .run_count = 1,
                            .names = &name,
                            .name_count = 1,
                            .title = "a <b> & \"c\"\xff"};
    char *svg = plot(&args);
    /* ticks; the curve's corners: x 76 to 880, y 10/11 of the panel's 220 pixels */
    expect_parts(svg, (const char *[]){">20</text>", ">100</text>", ">0.2</text>", ">1.0</text>",
                                       ">0</text>", "d=\"M76.0 296.0h0L478.0 96.0L880.0 196.0\"",
                                       "<title>a &#60;b&#62; &#38; &#34;c&#34;?</title>",
                                       ">step</text>\n</svg>\n", NULL});
    free(svg);
    args.smooth = 0.5;
    args.x = SHOAL_PLOT_TOKENS;
    expect_sentence(shoal_plot(&args, &svg), "give --seq-length N");
    args.seq_length = 10;
    svg = plot(&args);
    /* means 0, 2/3 and 4/7, and the raw values faint */
    expect_parts(svg, (const char *[]){">0.2M</text>", ">tokens</text>",
                                       "L478.0 162.7L880.0 181.7\"", "opacity=\"0.25\"", NULL});
    free(svg);
    args.x = (shoal_plot_x)3;
    expect_sentence(shoal_plot(&args, &svg), "x axis 3");
    args.x = SHOAL_PLOT_STEP;
    args.smooth = 1;
    expect_sentence(shoal_plot(&args, &svg), "smoothing is 1");
}

/* Tiny, huge and equal values; a gap; a lone point. */
static void test_odd_values(void **state)
{
    (void)state;
    static const struct {
        const char *values[3], *part;
    } row[] = {{{"1e-5", "2e-5", "3e-5"}, ">1.5e-5</text>"},
               {{"1000000", "2000000", "3e6"}, ">1.5M</text>"},
               {{"1e200", "2e200", "3e200"}, ">1.5e200</text>"},
               {{"7", "7", "7"}, ">7.0</text>"},
               {{"1.0000001", "1.0000002", "1.0000003"}, ">1.00000015</text>"},
               {{"1e308", "-1e308", "2"}, "M880.0"},
               {{"1", "null", "2"}, "h0M880.0"},
               {{"null", "null", "null"}, "d=\"\""}};
    const char *run = path_of("o.jsonl"), *name = "l";
    const shoal_plot_args args = {.runs = &run, .run_count = 1, .names = &name, .name_count = 1};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct shoali_str text = {0};
        for (int step = 0; step < 3; step++)
            shoali_str_append(&text, "{\"step\":%d,\"l\":%s}\n", step, row[i].values[step]);
        put_in_folder("/o.jsonl", shoali_str_get(&text));
        shoali_str_fini(&text);
        char *svg = plot(&args);
        expect_parts(svg, (const char *[]){row[i].part, NULL});
        assert_null(strstr(svg, "nan"));
        assert_null(strstr(svg, "inf"));
        free(svg);
    }
}

/* The text of a long run is bounded, and its peaks stay. */
static void test_long_run(void **state)
{
    (void)state;
    struct shoali_str text = {0};
    for (int step = 0; step < 20000; step++)
        shoali_str_append(&text, "{\"step\":%d,\"l\":%d}\n", step, step == 12345 ? 9 : step % 2);
    put_in_folder("/long.jsonl", shoali_str_get(&text));
    shoali_str_fini(&text);
    const char *run = path_of("long.jsonl"), *name = "l";
    char *svg =
        plot(&(shoal_plot_args){.runs = &run, .run_count = 1, .names = &name, .name_count = 1});
    assert_true(strlen(svg) < 64000);
    assert_true(count_of(svg, "L") > 1000);
    assert_non_null(strstr(svg, " 96.0L")); /* the peak's height */
    free(svg);
}

static void test_page(void **state)
{
    (void)state;
    char *html = NULL;
    put_in_folder("/page/r.jsonl", "{\"step\":1,\"samples\":2," LOSS "5,\"device_bytes\":2048}\n"
                                   "{\"step\":2,\"samples\":4," LOSS "3,\"device_bytes\":1024}\n");
    put_in_folder("/page/global_step2/manifest.json",
                  "{\"step\":2,\"engine\":{\"lr\":0.5},\"client\":{\"model\":{\"seq-length\":8,"
                  "\"model_type\":\"g<p>t\"}}}");
    put_in_folder("/page/job.log",
                  "mesh: 2 ranks, tp 2\nstep 1\rstep 2\rmemory: planned 1 MiB, used 2 MiB\n"
                  "[shoal run] rank 0 exited with code 3\n[shoal run]   why: old\n"
                  "[shoal run] rank 1 exited with code 4\n[shoal run]   why: <new>\nother\n");
    ok(shoal_run_page(&(shoal_run_page_args){.run = path_of("page")}, &html));
    expect_parts(html,
                 (const char *[]){"<!doctype html>", "viewport", "<td>1 to 2</td>", "<td>32</td>",
                                  "train_loss</th><td class=\"n\">3</td><td class=\"n\">3</td>"
                                  "<td class=\"n\">5</td>",
                                  "<td class=\"n\">1.0 KiB</td>", ">2 ranks, tp 2</td>",
                                  ">planned 1 MiB, used 2 MiB</td>", ">g&#60;p&#62;t</td>",
                                  "<th scope=\"row\">lr</th><td>0.5</td>",
                                  "<th scope=\"row\">global_step2</th>", "code 4\n",
                                  "why: &#60;new&#62;\n</pre>", "</body>\n</html>\n", NULL});
    assert_null(strstr(html, "why: old"));
    assert_null(strstr(html, "<script"));
    assert_int_equal(count_of(html, "<svg"), 2);
    assert_int_equal(count_of(html, "://"), 2); /* SVG's name, which is not fetched */
    free(html);
    put_in_folder("/bare/global_step2/manifest.json", "{\"step\":2}");
    ok(shoal_run_page(&(shoal_run_page_args){.run = path_of("bare")}, &html));
    expect_parts(html, (const char *[]){"There are no curves", "global_step2", NULL});
    free(html);
}

/* Each allocation fails once: SHOAL_ENOMEM, and no leak. */
static void test_no_memory(void **state)
{
    (void)state;
    const char *run = path_of("page");
    const shoal_plot_args args = {.runs = &run, .run_count = 1, .smooth = 0.5};
    for (int skip = 0, fired = 1; fired; skip++) {
        char spec[32], *html = NULL, *svg = NULL;
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        shoal_status status = shoal_plot(&args, &svg);
        if (status == SHOAL_OK)
            status = shoal_run_page(&(shoal_run_page_args){.run = run, .smooth = 0.5}, &html);
        fired = shoali_fault_left() < 0;
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        assert_true(fired || html);
        shoali_error_clear();
        free(svg);
        free(html);
    }
    assert_true(shoali_fault_arm(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_steps_run_again),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_folder_of_a_run),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
