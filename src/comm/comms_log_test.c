/* The numbers beside a formula are DeepSpeed's, by hand: S bytes in t ms among n ranks are S/t
 * bytes per ms = S/t * 8 / 1e6 Gbit/s. */
#include "base/test_cmocka.h"
#include "comm/comms_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct shoali_comms_log *make(bool all, const char *const *ops)
{
    struct shoali_comms_log *log = NULL;
    const struct shoali_comms_log_args args = {.all = all, .ops = ops};
    assert_int_equal(shoali_comms_log_create(&args, &log), SHOAL_OK);
    return log;
}

/* The columns, 20 characters each, of the only row of a summary: `calls` calls among four ranks. */
enum { SIZE = 1, COUNT, TOTAL, MEAN, ALGBW, BUSBW, COLUMNS };
static void summarize(enum shoali_collective kind, int64_t bytes, const double *ms, int32_t calls,
                      char column[COLUMNS][21])
{
    struct shoali_str text = {0};
    struct shoali_comms_log *log = make(true, NULL);
    for (int32_t i = 0; i < calls; i++)
        shoali_comms_log_add(
            log, &(struct shoali_comms_call){.kind = kind, .bytes = bytes, .ranks = 4, .here = ""},
            (int64_t)(ms[i] * 1e6));
    assert_int_equal(shoali_comms_log_summary(log, NULL, &text), SHOAL_OK);
    const char *row = strstr(shoali_str_get(&text), "\n  ");
    assert_non_null(row);
    for (int c = 0; c < COLUMNS; c++) {
        snprintf(column[c], 21, "%s", row + 1 + 20 * c);
        for (size_t end = strlen(column[c]); end > 0 && column[c][end - 1] == ' ';)
            column[c][--end] = '\0';
    }
    shoali_str_fini(&text);
    shoali_comms_log_destroy(log);
}

static void test_formulas(void **state)
{
    (void)state;
    /* 1e6 bytes in 8 ms among 4: S/t * 8/1e6 = 1 */
    static const struct {
        enum shoali_collective kind;
        const char *algbw, *busbw;
    } golden[] = {
        {SHOALI_ALL_REDUCE, "2.00", "1.50"},     {SHOALI_ALL_GATHER, "4.00", "3.00"},
        {SHOALI_REDUCE_SCATTER, "4.00", "3.00"}, {SHOALI_ALL_TO_ALL, "1.00", "0.75"},
        {SHOALI_ALL_TO_ALL_V, "1.00", "0.75"},   {SHOALI_BROADCAST, "1.00", "1.00"},
        {SHOALI_SEND, "1.00", "1.00"},           {SHOALI_RECV, "1.00", "1.00"},
        {SHOALI_BARRIER, "1.00", "1.00"},
    };
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        char column[COLUMNS][21];
        summarize(golden[i].kind, 1000000, &(const double){8}, 1, column);
        assert_string_equal(column[ALGBW], golden[i].algbw);
        assert_string_equal(column[BUSBW], golden[i].busbw);
        summarize(golden[i].kind, 1000000, &(const double){0}, 1, column);
        assert_string_equal(column[ALGBW], "0.00");
        assert_string_equal(column[BUSBW], "0.00");
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } golden[] = {
        {0, "0B"},           {16, "16.0 B"},        {1024, "1.0 KB"},     {1536, "1.5 KB"},
        {1 << 20, "1.0 MB"}, {108936, "106.38 KB"}, {1LL << 40, "1.0 TB"}};
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        char column[COLUMNS][21];
        summarize(SHOALI_BROADCAST, golden[i].bytes, &(const double){1}, 1, column);
        assert_string_equal(column[SIZE], golden[i].text);
    }
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
    static const double few[] = {1, 2, 1000}, ten[] = {10, 1, 2, 3, 4, 5, 6, 7, 8, 1e9};
    char column[COLUMNS][21];
    summarize(SHOALI_SEND, 8, few, 3, column);
    assert_string_equal(column[MEAN], "334.33"); /* 1003 / 3 */
    assert_string_equal(column[TOTAL], "1003.00");
    summarize(SHOALI_SEND, 8, ten, 10, column);
    assert_string_equal(column[MEAN], "5.62"); /* (2 + 3 + 4 + 5 + 6 + 7 + 8 + 10) / 8 = 5.625 */
    assert_string_equal(column[COUNT], "10");
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
