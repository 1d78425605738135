/* Ten steps are five, a checkpoint, and five more: bit for bit, also with another number of ranks.
 */
#include "base/fault.h"
#include "base/test_folder.h"
#include "engine/test_gpt.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 10, HALF = 5 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- save and go on -------------------------------------------------------------------------- */

static bool train_half_and_save(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (seat->steps_done < HALF)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done++]) >= 0);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, "{\"who\":\"test\"}") ==
           SHOAL_OK);
    return gpt_train(seat); /* saving changes nothing */
}

static bool load_and_train(struct gpt_seat *seat)
{
    char *client = NULL;
    int64_t step;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_checkpoint_peek(folder, NULL, NULL, &step) == SHOAL_OK && step == HALF);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, &client) == SHOAL_OK);
    EXPECT(client && strstr(client, "\"who\""));
    free(client);
    EXPECT(shoal_engine_global_steps(seat->engine) == HALF);
    memcpy(seat->info, reference[0].info, HALF * sizeof seat->info[0]);
    seat->steps_done = HALF;
    return gpt_train(seat);
}

#define SCHEDULE                                                                                  \
    ",\"scheduler\":{\"type\":\"WarmupDecayLR\",\"params\":{\"total_num_steps\":12,\"warmup_num_" \
    "steps\":3}}"
struct case_ {
    const char *options, *optimizer;
    bool exact;
    int64_t lonely_step;
};
static const struct case_ cases[] = {
    {"\"gradient_clipping\":0.5" SCHEDULE, NULL, false, 0},
    {"\"bf16\":{\"enabled\":true}" SCHEDULE, NULL, false, 0},
    {"\"reduction\":\"exact\"" SCHEDULE, NULL, true, 0},
    {"\"reduction\":\"exact\",\"bf16\":{\"enabled\":true}", NULL, true, 0},
    {"\"reduction\":\"exact\"", "{\"type\":\"SGD\",\"params\":{\"lr\":0.1,\"momentum\":0.9}}", true,
     0},
    {"\"reduction\":\"exact\",\"bf16\":{\"enabled\":true}" SCHEDULE,
     "{\"type\":\"Lamb\",\"params\":{\"lr\":0.02,\"weight_decay\":0.1}}", true, 0},
    {"\"reduction\":\"exact\",\"zero_optimization\":{\"stage\":2}" SCHEDULE,
     "{\"type\":\"Adafactor\",\"params\":{\"weight_decay\":0.1}}", true, 0},
    /* the scaler's state: an overflow at step 3, growth due after the checkpoint */
    {"\"reduction\":\"exact\",\"exact_unit_log2\":30,\"fp16\":{\"enabled\":true,"
     "\"initial_scale_power\":16,\"hysteresis\":1,\"loss_scale_window\":4}" SCHEDULE,
     NULL, true, 3},
};

static struct gpt_run run_of(const struct case_ *of)
{
    return (struct gpt_run){.options = of->options,
                            .optimizer = of->optimizer,
                            .dropout = 0.1,
                            .steps = STEPS,
                            .lonely_step = of->lonely_step,
                            .lonely_micro = 10};
}

static void save_at(const struct case_ *of, int32_t ranks, const char *accelerator)
{
    struct gpt_run run = run_of(of);
    run.ranks = ranks;
    run.accelerator = accelerator;
    gpt_run_ranks(run, reference);
    run.run = train_half_and_save;
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, ranks, reference, "with a save in between");
}

static void resume_at(const struct case_ *of, int32_t ranks, const char *accelerator)
{
    struct gpt_run run = run_of(of);
    run.ranks = ranks;
    run.accelerator = accelerator;
    run.run = load_and_train;
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, ranks, reference, of->options);
}

static void test_resume(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        save_at(&cases[c], 2, NULL);
        resume_at(&cases[c], 2, NULL);
        for (int32_t n = 1; cases[c].exact && n <= 4; n++)
            resume_at(&cases[c], n, n == 4 ? "sim" : NULL);
        printf("%s %s: resumed\n", cases[c].options, cases[c].optimizer ? cases[c].optimizer : "");
    }
    const shoal_step_info *info = reference[0].info; /* the last case was fp16 */
    assert_true(!info[3].applied && info[HALF - 1].loss_scale == 32768);
}

static void test_resume_sim(void **state)
{
    (void)state;
    save_at(&cases[2], 3, "sim");
    resume_at(&cases[2], 2, "cpu");
    resume_at(&cases[2], 1, "sim");
}

/* A run may go on in fp16 from a checkpoint without a dynamic loss scale: it begins with its own.
 */
static void test_resume_in_fp16(void **state)
{
    (void)state;
    save_at(&cases[2], 2, NULL);
    struct gpt_run run = run_of(&(struct case_){.options = "\"fp16\":{\"enabled\":true}"});
    run.ranks = 2;
    run.run = load_and_train;
    gpt_run_ranks(run, seats);
    assert_true(seats[0].info[STEPS - 1].loss_scale == 65536);
    assert_true(seats[0].info[STEPS - 1].applied);
}

/* A resumed run that forgot anything of the state would differ: what is left out on purpose shows.
 */
static bool load_weights_only(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 1, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_global_steps(seat->engine) == 0);
    EXPECT(gpt_train(seat));
    EXPECT(seat->fingerprint != reference[0].fingerprint);
    EXPECT(seat->info[0].loss < reference[0].info[0].loss - 0.1); /* trained weights they are */
    return true;
}

static void test_weights_only(void **state)
{
    (void)state;
    save_at(&cases[2], 1, NULL);
    struct gpt_run run = run_of(&cases[2]);
    run.run = load_weights_only;
    gpt_run_ranks(run, seats);
}

/* ---- what no checkpoint has ------------------------------------------------------------------ */

/* The checkpoint goes into an engine that has done all steps already. */
static bool train_and_load(struct gpt_seat *seat)
{
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_global_steps(seat->engine) == HALF);
    seat->steps_done = HALF;
    return gpt_train(seat);
}

/* LoCo's errors begin anew with a load, also those of the engine that loads. */
static void test_loco(void **state)
{
    (void)state;
    const struct case_ loco = {
        "\"zero_optimization\":{\"stage\":3,\"zero_quantized_gradients\":true,"
        "\"zeropp_loco_param\":{\"err_beta\":0.8,\"reset_T\":1024}}",
        NULL, false, 0};
    struct gpt_run run = run_of(&loco);
    run.ranks = 2;
    gpt_run_ranks(run, reference);
    run.run = train_half_and_save;
    gpt_run_ranks(run, seats);
    run.run = load_and_train;
    gpt_run_ranks(run, seats);
    const uint64_t fingerprint = seats[0].fingerprint;
    assert_true(fingerprint != reference[0].fingerprint);
    run.run = train_and_load;
    gpt_run_ranks(run, seats);
    assert_true(seats[0].fingerprint == fingerprint);
}

/* ---- another batch --------------------------------------------------------------------------- */

/* The consumed samples are those of the checkpoint, whatever this engine's batch is. */
static bool load_in_other_batch(struct gpt_seat *seat)
{
    const int64_t *batch = seat->run->user, before = batch[1];
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_global_steps(seat->engine) == HALF);
    EXPECT(shoal_engine_consumed_samples(seat->engine) == before);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &seat->info[0]) == SHOAL_OK);
    EXPECT(seat->info[0].consumed_samples == before + batch[0]);
    return true;
}

static void load_in_batches(int64_t before)
{
    static const int64_t batches[] = {12, 6, 24, 5};
    for (int b = 0; b < 4; b++)
        for (int32_t n = 1; n <= 2 && batches[b] % n == 0; n++) {
            struct gpt_run run = run_of(&cases[2]);
            run.ranks = n;
            run.micro_batches = batches[b];
            run.run = load_in_other_batch;
            run.user = (int64_t[]){batches[b], before};
            gpt_run_ranks(run, seats);
        }
}

/* The manifest with another text at the first place of `from`, and with the hash that belongs to
 * it. */
static void edit_manifest(const char *from, const char *to)
{
    static char text[1 << 20], edited[1 << 20];
    char path[128];
    snprintf(path, sizeof path, "%s/global_step5/manifest.json", folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *at = strstr(text, from), *tail = strstr(text, ",\"hash\":\"");
    for (char *next = tail; next; next = strstr(next + 1, ",\"hash\":\""))
        tail = next; /* the last one */
    assert_true(at && tail && at < tail);
    *tail = *at = '\0';
    const int length = snprintf(edited, sizeof edited, "%s%s%s", text, to, at + strlen(from));
    file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file, "%s,\"hash\":\"%016llx\"}\n", edited,
            (unsigned long long)shoali_hash64(edited, (size_t)length));
    assert_int_equal(fclose(file), 0);
}

/* A manifest as it was written when samples were counted by steps. */
static void write_older(int64_t behind)
{
    char text[128];
    snprintf(text, sizeof text, "\"samples_behind\":%lld,\"applied_samples_behind\":%lld",
             (long long)behind, (long long)behind);
    edit_manifest("\"consumed_samples\":60,\"applied_samples\":60", text);
}

static void test_other_batch(void **state)
{
    (void)state;
    save_at(&cases[2], 1, NULL);
    load_in_batches(60);
    write_older(13); /* a batch that grew */
    load_in_batches(60 - 13);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static bool refuse(struct gpt_seat *seat)
{
    const char *const *expected = seat->run->user; /* folder, tag, sentence */
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    uint64_t before, after;
    EXPECT(shoal_engine_fingerprint(seat->engine, &before) == SHOAL_OK);
    const shoal_status status =
        shoal_engine_load_checkpoint(seat->engine, expected[0], expected[1], 0, NULL);
    EXPECT(status < 0);
    if (!strstr(shoal_error_message(), expected[2])) {
        fprintf(stderr, "\"%s\" is missing in: %s\n", expected[2], shoal_error_message());
        return false;
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &after) == SHOAL_OK && before == after);
    return true;
}

static void test_refusals(void **state)
{
    (void)state;
    save_at(&cases[2], 1, NULL);
    struct gpt_run run = run_of(&cases[2]);
    run.run = refuse;
    run.user = (const char *[]){"/nowhere", NULL, "/nowhere"};
    gpt_run_ranks(run, seats);
    run.user = (const char *[]){folder, "global_step6", "global_step6"};
    gpt_run_ranks(run, seats);
    run.untied = true; /* one matrix more */
    run.user = (const char *[]){folder, NULL, "lm_head.weight"};
    gpt_run_ranks(run, seats);
    run.untied = false;
    run.optimizer = cases[4].optimizer;
    run.user = (const char *[]){folder, NULL, "another optimizer"};
    gpt_run_ranks(run, seats);
    /* the same states by name, of another formula */
    run.optimizer = "{\"type\":\"Lamb\",\"params\":{\"lr\":0.01}}";
    run.user = (const char *[]){folder, NULL, "another optimizer, `lamb`"};
    gpt_run_ranks(run, seats);
    run.optimizer = "{\"type\":\"Adam\",\"params\":{\"lr\":0.01,\"adam_w_mode\":false}}";
    run.user = (const char *[]){folder, NULL, "`adam with adam_w_mode false`"};
    gpt_run_ranks(run, seats);
    run.optimizer = "{\"type\":\"SGD\",\"params\":{\"lr\":0.01}}";
    run.user = (const char *[]){folder, NULL, "another optimizer, `sgd`"};
    gpt_run_ranks(run, seats);
}

/* Numbers that no run can have written: the load fails before it changes a weight. */
static void test_impossible_numbers(void **state)
{
    static const char *const edits[][3] = {
        {"\"scale\":", "\"scale\":-", "loss scaler state: the scale -"},
        {"\"skipped_steps\":", "\"steps_skipped\":", "lacks a number"},
        {"\"applied_samples\":", "\"applied_samples\":-", "no usable `applied_samples`"}};
    (void)state;
    const struct case_ *of = &cases[sizeof cases / sizeof cases[0] - 1]; /* with a loss scaler */
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        save_at(of, 1, NULL);
        edit_manifest(edits[i][0], edits[i][1]);
        for (int32_t n = 1; n <= 2; n++) {
            struct gpt_run run = run_of(of);
            run.ranks = n;
            run.run = refuse;
            run.user = (const char *[]){folder, NULL, edits[i][2]};
            gpt_run_ranks(run, seats);
        }
    }
}

/* ---- what is said ---------------------------------------------------------------------------- */

struct heard {
    const char *text; /* lines with it are counted */
    int count;
};
struct telling {
    const char *text;
    int rank; /* that says it, once; -1: none does */
};

static void hear(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    struct heard *heard = user;
    (void)level;
    (void)subsystem;
    (void)rank;
    heard->count += strstr(text, heard->text) != NULL;
}

static bool load_and_hear(struct gpt_seat *seat)
{
    const struct telling *telling = seat->run->user;
    struct heard heard = {.text = telling->text};
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_log_configure("info", hear, &heard) == SHOAL_OK);
    const shoal_status status = shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL);
    EXPECT(shoal_log_configure(NULL, NULL, NULL) == SHOAL_OK);
    EXPECT(status == SHOAL_OK);
    EXPECT(heard.count == (seat->rank == telling->rank));
    return true;
}

static void expect_told(const char *optimizer, struct telling telling)
{
    for (int32_t n = 1; n <= 2; n++) {
        struct gpt_run run = run_of(&cases[2]);
        run.optimizer = optimizer;
        run.ranks = n;
        run.run = load_and_hear;
        run.user = &telling;
        gpt_run_ranks(run, seats);
    }
}

/* Rank 0 says what a run does otherwise than the one that was saved, and nothing else. */
static void test_what_is_said(void **state)
{
    static const char betas[] = "was trained with betas";
    (void)state;
    save_at(&cases[2], 1, NULL);
    expect_told(NULL, (struct telling){betas, -1});
    expect_told("{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,\"betas\":[0.8,0.999]}}",
                (struct telling){betas, 0});
    expect_told("{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,\"betas\":[0.9,0.99]}}",
                (struct telling){betas, 0});
}

/* A state that only a later version has is left out. */
static void test_unknown_state(void **state)
{
    static const char sgd[] = "{\"type\":\"SGD\",\"params\":{\"lr\":0.1}}";
    (void)state;
    save_at(&cases[4], 1, NULL);
    edit_manifest("\"name\":\"momentum_buffer\"", "\"name\":\"of_tomorrow\"");
    expect_told(sgd, (struct telling){"has `of_tomorrow`, which this version does not know", 0});
}

/* ---- saves that fail ------------------------------------------------------------------------- */

static const char *const faults[] = {"ckpt.create", "ckpt.write", "ckpt.fsync", "ckpt.manifest",
                                     "ckpt.rename"};

/* The first checkpoint survives a failing second save, training goes on, and a third one works. */
static bool fail_to_save(struct gpt_seat *seat)
{
    int64_t step;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    for (; seat->steps_done < HALF; seat->steps_done++)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done]) >= 0);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, "{\"who\":1}") == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(shoali_fault_arm(seat->run->user));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) < 0);
    EXPECT(shoali_fault_arm(NULL));
    EXPECT(shoal_checkpoint_peek(folder, NULL, NULL, &step) == SHOAL_OK && step == HALF);
    EXPECT(shoal_checkpoint_peek(folder, "global_step6", NULL, &step) == SHOAL_ENOENT);
    return true;
}

static bool same_file(const char *path, uint64_t *hash)
{
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    const uint64_t now = shoali_hash64(bytes, count);
    const bool same = *hash == 0 || *hash == now;
    *hash = now;
    return same;
}

static void test_failing_saves(void **state)
{
    (void)state;
    char manifest[128], latest[128];
    snprintf(manifest, sizeof manifest, "%s/global_step5/manifest.json", folder);
    snprintf(latest, sizeof latest, "%s/latest", folder);
    gpt_run_ranks(run_of(&cases[2]), reference);
    uint64_t manifest_hash = 0, latest_hash = 0;
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++)
        for (int32_t n = 1; n <= 2; n++) {
            struct gpt_run run = run_of(&cases[2]);
            run.ranks = n;
            run.run = fail_to_save;
            run.user = (void *)(uintptr_t)faults[f];
            gpt_run_ranks(run, seats);
            assert_true(same_file(manifest, &manifest_hash) && same_file(latest, &latest_hash));
            resume_at(&cases[2], 3 - n, NULL);
        }
}

/* A folder that cannot be: below a file. */
static bool save_below_file(struct gpt_seat *seat)
{
    char path[128];
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    snprintf(path, sizeof path, "%s/latest/deeper", folder);
    const shoal_status status = shoal_engine_save_checkpoint(seat->engine, path, NULL, NULL);
    EXPECT(status < 0 && strstr(shoal_error_message(), "latest"));
    EXPECT(shoal_engine_check_save(seat->engine, path, false) == status);
    EXPECT(strstr(shoal_error_message(), "latest"));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, "", NULL, NULL) == SHOAL_EINVAL);
    EXPECT(shoal_engine_check_save(seat->engine, "", false) == SHOAL_EINVAL);
    EXPECT(shoal_engine_check_save(seat->engine, folder, false) == SHOAL_EEXIST); /* step 5 */
    return true;
}

static void test_save_below_file(void **state)
{
    (void)state;
    save_at(&cases[2], 1, NULL);
    gpt_run_ranks((struct gpt_run){.run = save_below_file}, seats);
    gpt_run_ranks((struct gpt_run){.ranks = 2, .run = save_below_file}, seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resume, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_resume_sim, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_resume_in_fp16, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_weights_only, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_loco, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_other_batch, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refusals, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_impossible_numbers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_what_is_said, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_unknown_state, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_failing_saves, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_save_below_file, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
