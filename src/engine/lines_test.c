/* The lines that a step leaves in the log, as scripts for DeepSpeed's logs look for them. */
#include "engine/test_gpt.h"

enum { LINES_MAX = 64 };

struct lines_case {
    const char *options;
    int32_t count;
    char line[LINES_MAX][512]; /* of rank 0 */
};

static void keep_line(void *user, shoal_log_level level, const char *subsystem, int rank,
                      const char *message)
{
    struct lines_case *lines = user;
    if (level == SHOAL_LOG_INFO && rank == 0 && strcmp(subsystem, "engine") == 0 &&
        lines->count < LINES_MAX)
        snprintf(lines->line[lines->count++], sizeof lines->line[0], "%s", message);
}

static bool train_lines(struct gpt_seat *seat)
{
    struct lines_case *lines = seat->run->user;
    char text[512];
    snprintf(text, sizeof text,
             "{\"train_batch_size\":12,\"train_micro_batch_size_per_gpu\":1,\"steps_per_print\":2,"
             "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":0.01}}%s}",
             lines->options);
    EXPECT(shoal_log_configure(NULL, seat->rank == 0 ? keep_line : NULL, lines) == SHOAL_OK);
    EXPECT(gpt_open(seat, text) == SHOAL_OK);
    for (int32_t s = 0; s < 6; s++)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) == SHOAL_OK);
    return true;
}

static void run_lines(struct lines_case *lines)
{
    struct gpt_seat seats[GPT_RANKS_MAX];
    gpt_run_ranks((struct gpt_run){.ranks = 2, .run = train_lines, .user = lines}, seats);
}

/* Numbers become N, so that lines can be compared. */
static const char *shape(const char *line, char *text)
{
    char *to = text;
    for (const char *at = line; *at;) {
        const size_t digits = strspn(at, "0123456789.");
        if (digits > 0)
            *to++ = 'N';
        else
            *to++ = *at;
        at += digits > 0 ? digits : 1;
    }
    *to = '\0';
    return text;
}

static void test_all_lines(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "step=N, skipped=N, lr=[N], mom=[[N, N]]",
        "time (ms) | fwd_microstep: N | bwd_microstep: N | bwd_inner_microstep: N | "
        "bwd_allreduce_microstep: N | step_microstep: N",
        "time (ms) | fwd: N | bwd: N | bwd_inner: N | bwd_allreduce: N | step: N",
        "epoch=N/micro_step=N/global_step=N, RunningAvgSamplesPerSec=N, CurrSamplesPerSec=N, "
        "MemAllocated=NGB, MaxMemAllocated=NGB"};
    struct lines_case lines = {.options = ",\"wall_clock_breakdown\":true"};
    char text[512];
    double forward, backward, inner, reduce, step;
    run_lines(&lines);
    assert_int_equal(lines.count, 3 + 4 + 4); /* the rate begins with the third step */
    for (int32_t i = 0; i < lines.count; i++)
        assert_string_equal(shape(lines.line[i], text), expected[i < 3 ? i : (i - 3) % 4]);
    assert_int_equal(strncmp(lines.line[3], "step=4,", 7), 0);
    assert_int_equal(strncmp(lines.line[6], "epoch=0/micro_step=24/global_step=4,", 36), 0);
    assert_int_equal(sscanf(lines.line[5],
                            "time (ms) | fwd: %lf | bwd: %lf | bwd_inner: %lf | bwd_allreduce: "
                            "%lf | step: %lf",
                            &forward, &backward, &inner, &reduce, &step),
                     5);
    assert_true(backward - inner - reduce < 0.02 && inner + reduce - backward < 0.02);
}

static void test_lines_that_are_off(void **state)
{
    (void)state;
    struct lines_case lines = {.options = ",\"timers\":{\"throughput\":{\"enabled\":false}}"};
    char text[512];
    run_lines(&lines);
    assert_int_equal(lines.count, 3);
    for (int32_t i = 0; i < 3; i++)
        assert_string_equal(shape(lines.line[i], text), "step=N, skipped=N, lr=[N], mom=[[N, N]]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_lines),
        cmocka_unit_test(test_lines_that_are_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
