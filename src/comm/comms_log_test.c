/* The numbers beside a formula are DeepSpeed's, by hand: S bytes in t ms among n ranks are S/t bytes per
 * ms = S/t * 8 / 1e6 Gbit/s. */
#include "comm/comms_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void near(double got, double wanted)
{
    if (got < wanted * (1 - 1e-12) || got > wanted * (1 + 1e-12))
        fail_msg("%.17g instead of %.17g", got, wanted);
}

static void test_formulas(void **state)
{
    (void)state;
    /* 1e6 bytes in 8 ms among 4: S/t * 8/1e6 = 1 */
    static const struct {
        enum shoali_collective kind;
        double algbw, busbw;
    } golden[] = {
        {SHOALI_ALL_REDUCE, 2, 1.5},
        {SHOALI_ALL_GATHER, 4, 3},
        {SHOALI_REDUCE_SCATTER, 4, 3},
        {SHOALI_ALL_TO_ALL, 1, 0.75},
        {SHOALI_ALL_TO_ALL_V, 1, 0.75},
        {SHOALI_BROADCAST, 1, 1},
        {SHOALI_SEND, 1, 1},
        {SHOALI_RECV, 1, 1},
        {SHOALI_BARRIER, 1, 1},
    };
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        const struct shoali_comms_call call = {
            .kind = golden[i].kind, .bytes = 1000000, .ranks = 4};
        double algbw, busbw;
        shoali_comms_bandwidth(&call, 8, &algbw, &busbw);
        near(algbw, golden[i].algbw);
        near(busbw, golden[i].busbw);
        shoali_comms_bandwidth(&call, 0, &algbw, &busbw);
        assert_true(algbw == 0 && busbw == 0);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    char text[32];
    static const struct {
        int64_t bytes;
        const char *text;
    } golden[] = {
        {0, "0B"},           {16, "16.0 B"},        {1024, "1.0 KB"},     {1536, "1.5 KB"},
        {1 << 20, "1.0 MB"}, {108936, "106.38 KB"}, {1LL << 40, "1.0 TB"}};
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++)
        assert_string_equal(shoali_comms_format_bytes(golden[i].bytes, text), golden[i].text);
    const struct shoali_post gather = {.kind = SHOALI_ALL_GATHER, .count = 10, .dtype = SHOAL_F32};
    const struct shoali_post exchange = {
        .kind = SHOALI_ALL_TO_ALL, .count = 10, .dtype = SHOAL_F32};
    assert_int_equal(shoali_comms_bytes(&gather, 4), 40);
    assert_int_equal(shoali_comms_bytes(&exchange, 4), 160);
}

/* scipy.stats.trim_mean(x, 0.1) */
static void test_trimmed_mean(void **state)
{
    (void)state;
    double few[] = {1, 2, 1000}, ten[] = {10, 1, 2, 3, 4, 5, 6, 7, 8, 1e9};
    near(shoali_comms_trimmed_mean(few, 3), 1003.0 / 3);
    near(shoali_comms_trimmed_mean(ten, 10), (2 + 3 + 4 + 5 + 6 + 7 + 8 + 10) / 8.0);
    assert_true(shoali_comms_trimmed_mean(few, 0) == 0);
}

static struct shoali_comms_log *make(bool all, const char *const *ops)
{
    struct shoali_comms_log *log = NULL;
    const struct shoali_comms_log_args args = {.all = all, .ops = ops};
    assert_int_equal(shoali_comms_log_create(&args, &log), SHOAL_OK);
    return log;
}

static void add(struct shoali_comms_log *log, enum shoali_collective kind, int64_t bytes, double ms)
{
    shoali_comms_log_add(
        log, &(struct shoali_comms_call){.kind = kind, .bytes = bytes, .ranks = 2, .here = "a.c:1"},
        (int64_t)(ms * 1e6));
}

static void test_table(void **state)
{
    (void)state;
    struct shoali_str text = {0};
    struct shoali_comms_log *log = make(true, NULL);
    add(log, SHOALI_ALL_GATHER, 1024, 1);
    add(log, SHOALI_ALL_REDUCE, 1000000, 8);
    add(log, SHOALI_ALL_REDUCE, 1000000, 16);
    assert_int_equal(shoali_comms_log_summary(log, NULL, &text), SHOAL_OK);
    assert_string_equal(
        shoali_str_get(&text),
        "Comm. Op            Message Size        Count               Total Latency(ms)   "
        "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)    \n"
        "all_reduce\n"
        "                    976.56 KB           2                   24.00               "
        "12.00               1.33                0.67                \n"
        "all_gather_into_tensor\n"
        "                    1.0 KB              1                   1.00                "
        "1.00                0.02                0.01                \n");
    shoali_str_fini(&text);
    shoali_comms_log_destroy(log);
}

static void test_chosen_ops(void **state)
{
    (void)state;
    static const char *const ops[] = {"all_gather_into_tensor", "broadcast", NULL};
    static const char *const wrong[] = {"all_reduc", NULL};
    struct shoali_str text = {0};
    struct shoali_comms_log *log = make(false, ops);
    add(log, SHOALI_ALL_REDUCE, 64, 1);
    add(log, SHOALI_BROADCAST, 64, 1);
    assert_int_equal(shoali_comms_log_summary(log, NULL, &text), SHOAL_OK);
    assert_null(strstr(shoali_str_get(&text), "all_reduce"));
    assert_non_null(strstr(shoali_str_get(&text), "broadcast"));
    shoali_str_fini(&text);
    shoali_comms_log_destroy(log);
    const struct shoali_comms_log_args args = {.ops = wrong};
    assert_int_equal(shoali_comms_log_create(&args, &log), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "nearest is \"all_reduce\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),     cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_trimmed_mean), cmocka_unit_test(test_table),
        cmocka_unit_test(test_chosen_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
