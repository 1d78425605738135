/* hashes.jsonl: the same bytes for every layout that trains the same bits, and what it tells of
 * others that do not. */
#include "engine/test_gpt.h"
#include "monitor/hashes.h"
#include "shoal/diff.h"

#include <unistd.h>

enum { STEPS = 4 };
static struct gpt_seat seats[GPT_RANKS_MAX];
static char folder[2][64];

static void file_of(int side, char path[128])
{
    snprintf(path, 128, "%.60s/" SHOALI_HASHES_FILE, folder[side]);
}

static int make_folders(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        strcpy(folder[i], "/tmp/shoal-tales-XXXXXX");
        if (!mkdtemp(folder[i]))
            return -1;
    }
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[128];
        file_of(i, path);
        unlink(path);
        if (rmdir(folder[i]) != 0)
            return -1;
    }
    return 0;
}

static void train(int side, struct gpt_run run, const char *options, int stage)
{
    char text[512];
    /* two ranks: beside the computation, with the states in host memory */
    const bool beside = stage > 0 && run.ranks == 2;
    snprintf(text, sizeof text, "\"hashes\":true,\"zero_optimization\":{\"stage\":%d%s}%s%s", stage,
             beside ? ",\"overlap_comm\":true,\"offload_optimizer\":{\"device\":\"cpu\"}" : "",
             options ? "," : "", options ? options : "");
    run.options = text;
    run.output_path = folder[side];
    run.steps = STEPS;
    gpt_run_ranks(run, seats);
}

/* Asserts the verdict, and that the text says `sentence`. */
static void compare(shoal_diff_verdict expected, const char *sentence)
{
    char *text = NULL;
    shoal_diff_verdict verdict;
    assert_int_equal(shoal_diff(folder[0], folder[1], &text, &verdict), SHOAL_OK);
    if (verdict != expected || !strstr(text, sentence))
        fail_msg("expected %d \"%s\", found %d: %s", (int)expected, sentence, (int)verdict, text);
    free(text);
}

static void same_bytes(const char *what, int ranks, int stage)
{
    char path[2][128], *data[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        file_of(i, path[i]);
        assert_int_equal(shoali_read_file(path[i], &data[i], &bytes[i]), SHOAL_OK);
    }
    if (bytes[0] != bytes[1] || memcmp(data[0], data[1], bytes[0]) != 0)
        fail_msg("%s, %d ranks, stage %d: other hashes than one rank's", what, ranks, stage);
    assert_non_null(strstr(data[0], "\"kind\":\"gradient\",\"tensor\":\"transformer.wte.weight\""));
    free(data[0]);
    free(data[1]);
}

#define FP16                                                                     \
    "\"reduction\":\"exact\",\"exact_unit_log2\":30,\"fp16\":{\"enabled\":true," \
    "\"initial_scale_power\":20,\"hysteresis\":1}"
static void test_exact_layouts(void **state)
{
    (void)state;
    static const char *const options[] = {
        "\"reduction\":\"exact\"", "\"reduction\":\"exact\",\"bf16\":{\"enabled\":true}", FP16};
    static const int32_t ranks[] = {1, 2, 3, 4, 6};
    for (int o = 0; o < 3; o++) {
        train(0, (struct gpt_run){.dropout = 0.1}, options[o], 0);
        for (int i = 0; i < 5; i++) {
            const int stage = (i + o) % 4; /* on two ranks 1, 2 and 3 */
            const struct gpt_run run = {
                .ranks = ranks[i], .dropout = 0.1, .accelerator = i == 3 ? "sim" : NULL};
            train(1, run, options[o], stage);
            same_bytes(options[o], ranks[i], stage);
        }
    }
    assert_true(seats[0].info[STEPS - 1].loss_scale <
                0x1p20); /* some of the fp16 steps overflowed */
}

/* Some line of both runs has these members. */
static void has_line(const char *members)
{
    char path[128], *data;
    size_t bytes;
    file_of(0, path);
    assert_int_equal(shoali_read_file(path, &data, &bytes), SHOAL_OK);
    if (!strstr(data, members))
        fail_msg("no line with %s", members);
    free(data);
}

static void test_momentum(void **state)
{
    (void)state;
    const char *const sgd = "{\"type\":\"SGD\",\"params\":{\"lr\":0.1,\"momentum\":0.9}}";
    train(0, (struct gpt_run){.optimizer = sgd}, "\"reduction\":\"exact\"", 1);
    train(1, (struct gpt_run){.optimizer = sgd, .ranks = 2}, "\"reduction\":\"exact\"", 3);
    same_bytes("sgd", 2, 3);
    const char *const adafactor = "{\"type\":\"Adafactor\"}";
    train(0, (struct gpt_run){.optimizer = adafactor}, "\"reduction\":\"exact\"", 0);
    train(1, (struct gpt_run){.optimizer = adafactor, .ranks = 3}, "\"reduction\":\"exact\"", 2);
    same_bytes("adafactor", 3, 2);
    has_line("\"kind\":\"exp_avg_sq_col\",\"tensor\":\"transformer.wte.weight\",\"count\":32,");
    train(0, (struct gpt_run){.optimizer = sgd}, "\"reduction\":\"exact\"", 1);
    train(1, (struct gpt_run){.ranks = 2}, "\"reduction\":\"exact\"", 3);
    compare(SHOAL_DIFF_REAL, "step 1, the learning rate");
}

/* What a line tells of a tensor, from its number of elements on. */
static const char *tale_of(const char *data, const char *members)
{
    const char *line = strstr(data, members);
    if (!line)
        fail_msg("no line with %s", members);
    return strstr(line, "\"count\":");
}

/* The first step updates the first and the last tensor, and has the kinds of a step. */
static void test_every_tensor_moves(void **state)
{
    static const char *const optimizers[] = {"{\"type\":\"Lamb\"}", "{\"type\":\"Adafactor\"}",
                                             NULL};
    static const char *const tensors[] = {"transformer.wte.weight", "transformer.ln_f.bias"};
    (void)state;
    for (int o = 0; o < 3; o++) {
        char path[128], *data;
        size_t bytes;
        train(0, (struct gpt_run){.optimizer = optimizers[o]}, NULL, 0);
        file_of(0, path);
        ok(shoali_read_file(path, &data, &bytes));
        for (int t = 0; t < 2; t++) {
            char start[128], moved[128];
            snprintf(start, sizeof start, "\"kind\":\"start\",\"tensor\":\"%s\"", tensors[t]);
            snprintf(moved, sizeof moved, "\"kind\":\"weight\",\"tensor\":\"%s\"", tensors[t]);
            const char *before = tale_of(data, start), *after = tale_of(data, moved);
            assert_memory_not_equal(before, after, strcspn(before, "\n"));
        }
        assert_null(strstr(data, "\"kind\":\"model\"")); /* it is called weight */
        free(data);
    }
}

/* Fast sums differ within the bound for any layout; what is not a sum is found, also later. */
static void test_fast_layouts(void **state)
{
    (void)state;
    train(0, (struct gpt_run){0}, NULL, 0);
    for (int32_t n = 2; n <= 6; n++) {
        if (n == 5)
            continue; /* does not divide the 12 micro-batches */
        train(1, (struct gpt_run){.ranks = n}, NULL, n % 4);
        compare(SHOAL_DIFF_ROUNDING, "first difference: step 1, gradient of");
    }
    train(1, (struct gpt_run){.ranks = 2, .lonely_step = 2, .lonely_micro = 5}, NULL, 1);
    compare(SHOAL_DIFF_REAL, "later: step 3, loss");
    train(1, (struct gpt_run){.ranks = 2, .first_micro = 1}, NULL, 1);
    compare(SHOAL_DIFF_REAL, "first difference: step 1, loss");
    train(1, (struct gpt_run){.seed = 8}, NULL, 0);
    compare(SHOAL_DIFF_REAL, "before step 1, weight of `transformer.wte.weight`");
}

static void test_nothing_when_off(void **state)
{
    (void)state;
    char path[128];
    gpt_run_ranks((struct gpt_run){.steps = 1, .output_path = folder[0]}, seats);
    file_of(0, path);
    assert_int_equal(access(path, F_OK), -1);
    char *text;
    shoal_diff_verdict verdict;
    assert_int_equal(shoal_diff(folder[0], folder[1], &text, &verdict), SHOAL_ENOENT);
}

/* A folder that cannot be is an error of the first step, on the rank that writes. */
static bool fail_to_write(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) < 0);
    EXPECT(strstr(shoal_error_message(), "/dev/null"));
    return true;
}

static void test_folder_that_cannot_be(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.options = "\"hashes\":true",
                                   .output_path = "/dev/null/below",
                                   .run = fail_to_write},
                  seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exact_layouts, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_momentum, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_every_tensor_moves, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_fast_layouts, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_nothing_when_off, make_folders, remove_folders),
        cmocka_unit_test(test_folder_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
