/* Checkpoints that DeepSpeed wrote (tests/golden/make_deepspeed_golden.py): every number of the
 * optimizer, and the five steps that DeepSpeed did after saving.
 *
 * Tolerances. Sums of states are of at most 256 numbers, added in fp64 in some order. Losses are
 * computed in fp32 by both, from sums of at most 64 products, through 5 updates of AdamW with lr
 * 0.02 or less: 1e-5 is a hundred times the spacing of fp32 numbers near 3. DeepSpeed's own stages
 * differ by
 * 1.2e-7. What was trained in bf16 goes on in fp32 here, so its losses agree as far as bf16 weights
 * do: rounding changes each by 2^-9 relative, in all directions, and the loss by less than twice
 * that. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "shoal/engine.h"
#include "shoal/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 1, HIDDEN = 8, HEADS = 2, T = 8, VOCAB = 31, BATCH = 8, STEPS = 3, MORE = 5 };
enum { PARAM_MAX = 4 * HIDDEN * HIDDEN };

static char work[64];

/* ---- the tokens of the script ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static int32_t tokens[BATCH * T], targets[BATCH * T];

static shoal_status next_batch(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    (void)user;
    (void)micro;
    for (uint64_t b = 0; b < BATCH; b++) {
        const uint64_t base = (uint64_t)step * 7919 + b * 104729;
        uint64_t token = mix(base + 17) % VOCAB;
        for (uint64_t t = 0; t < T; t++) {
            const uint64_t draw = mix(base + t * 31 + 1000);
            tokens[b * T + t] = (int32_t)token;
            token = draw % 4 == 0 ? draw / 4 % VOCAB : (token * 5 + 3) % VOCAB;
            targets[b * T + t] = (int32_t)token;
        }
    }
    batch->data[0] = tokens;
    batch->data[1] = targets;
    return SHOAL_OK;
}

/* ---- the engine ---- */

static const char config[] =
    "{\"train_batch_size\":8,\"steps_per_print\":1000000,\"gradient_clipping\":1.0,"
    "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":1e-3,\"betas\":[0.9,0.95],\"eps\":1e-8,"
    "\"weight_decay\":0.1},\"no_decay\":[\"1-D\"]},"
    "\"scheduler\":{\"type\":\"WarmupDecayLR\",\"params\":{\"warmup_min_lr\":0,\"warmup_max_lr\":"
    "2e-2,\"warmup_num_steps\":2,\"total_num_steps\":12,\"warmup_type\":\"linear\"}}}";

struct run {
    shoal_model *model;
    shoal_engine *engine;
};

static void run_init(struct run *run, int32_t hidden, const char *text)
{
    shoal_gpt_config gpt;
    shoal_gpt_config_defaults(&gpt);
    gpt.num_layers = LAYERS;
    gpt.hidden_size = hidden;
    gpt.num_attention_heads = HEADS;
    gpt.seq_length = T;
    gpt.vocab_size = VOCAB;
    gpt.make_vocab_size_divisible_by = 1;
    gpt.attention_dropout = gpt.hidden_dropout = 0;
    gpt.openai_gelu = 1;
    ok(shoal_gpt_create(&gpt, &run->model));
    ok(shoal_engine_create(
        &(shoal_engine_args){.model = run->model, .config_text = text, .threads = 1},
        &run->engine));
}

static void run_fini(struct run *run)
{
    shoal_engine_destroy(run->engine);
    shoal_model_destroy(run->model);
}

/* ---- golden files ---- */

static const char *path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", work, name);
    return path;
}

static void shell(const char *format, ...)
{
    char command[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static void compare(const char *name, const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 + 1e-10 * fabs(want)))
        fail_msg("%s: %s: %.15g, wanted %.15g", name, what, got, want);
}

static void check_sums(struct run *run, FILE *file, const char *name, const char *state)
{
    static float values[PARAM_MAX];
    double sum = 0, weighted = 0, want[2];
    size_t count = 0;
    if (strcmp(state, "master") == 0)
        ok(shoal_engine_get_param(run->engine, name, values));
    else
        ok(shoal_engine_get_state(run->engine, name, state, values));
    static const struct {
        const char *end;
        size_t count;
    } sizes[] = {{"wte.weight", VOCAB * HIDDEN},
                 {"wpe.weight", T * HIDDEN},
                 {"c_attn.weight", 3 * HIDDEN * HIDDEN},
                 {"c_attn.bias", 3 * HIDDEN},
                 {"attn.c_proj.weight", HIDDEN * HIDDEN},
                 {"c_fc.weight", 4 * HIDDEN * HIDDEN},
                 {"c_fc.bias", 4 * HIDDEN},
                 {"mlp.c_proj.weight", 4 * HIDDEN * HIDDEN},
                 {"", HIDDEN}};
    for (size_t i = 0; count == 0; i++)
        if (strlen(name) >= strlen(sizes[i].end) &&
            strcmp(name + strlen(name) - strlen(sizes[i].end), sizes[i].end) == 0)
            count = sizes[i].count;
    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i];
        weighted += (double)values[i] * (double)(i % 7 + 1);
    }
    assert_int_equal(fscanf(file, "%lf %lf", &want[0], &want[1]), 2);
    compare(name, state, sum, want[0]);
    compare(name, state, weighted, want[1]);
}

static void check_state(struct run *run, const char *name)
{
    char path[256], parameter[128], file_name[128];
    int count = 0;
    snprintf(file_name, sizeof file_name, "%s/state.txt", name);
    FILE *file = fopen(path_of(file_name, path), "r");
    assert_non_null(file);
    for (; fscanf(file, "%127s", parameter) == 1; count++) {
        check_sums(run, file, parameter, "master");
        check_sums(run, file, parameter, "exp_avg");
        check_sums(run, file, parameter, "exp_avg_sq");
    }
    assert_int_equal(count, 16);
    fclose(file);
}

static void check_losses(struct run *run, const char *name, double tolerance)
{
    char path[256], file_name[128];
    snprintf(file_name, sizeof file_name, "%s/losses.txt", name);
    FILE *file = fopen(path_of(file_name, path), "r");
    assert_non_null(file);
    for (int64_t step = STEPS; step < STEPS + MORE; step++) {
        shoal_step_info info;
        double want;
        assert_int_equal(fscanf(file, "%lf", &want), 1);
        ok(shoal_engine_train_batch(run->engine, next_batch, NULL, &info));
        assert_int_equal(info.step, step);
        if (!(fabs(info.loss - want) <= tolerance))
            fail_msg("%s: step %lld: loss %.9g, DeepSpeed's %.9g", name, (long long)step, info.loss,
                     want);
    }
    fclose(file);
}

/* ---- tests ---- */

static void test_goes_on_as_deepspeed_did(void **state)
{
    (void)state;
    static const char *const cases[] = {"fp32_0", "fp32_1", "fp32_2", "fp32_3",      "bf16_0",
                                        "bf16_1", "bf16_2", "bf16_3", "universal_2", "universal_3"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run;
        char path[256];
        int64_t step = 0;
        char *client = (char *)1;
        run_init(&run, HIDDEN, config);
        ok(shoal_checkpoint_peek(path_of(cases[i], path), NULL, &client, &step));
        assert_true(client == NULL && step == STEPS);
        ok(shoal_engine_load_checkpoint(run.engine, path, NULL, 0, &client));
        assert_int_equal(shoal_engine_global_steps(run.engine), STEPS);
        check_state(&run, cases[i]);
        check_losses(&run, cases[i], strncmp(cases[i], "bf16", 4) == 0 ? 0x1p-8 : 1e-5);
        run_fini(&run);
    }
}

/* By tag, and the tag's folder itself; weights alone begin at step 0. */
static void test_ways_to_name_it(void **state)
{
    (void)state;
    struct run run;
    char path[256];
    run_init(&run, HIDDEN, config);
    ok(shoal_engine_load_checkpoint(run.engine, path_of("fp32_3", path), "global_step3", 0, NULL));
    ok(shoal_engine_load_checkpoint(run.engine, path_of("fp32_3/global_step3", path), NULL, 0,
                                    NULL));
    check_state(&run, "fp32_3");
    assert_int_equal(shoal_engine_global_steps(run.engine), STEPS);
    run_fini(&run);
    run_init(&run, HIDDEN, config);
    ok(shoal_engine_load_checkpoint(run.engine, path_of("fp32_1", path), NULL, 1, NULL));
    assert_int_equal(shoal_engine_global_steps(run.engine), 0);
    run_fini(&run);
}

/* What is saved after loading is a checkpoint like any other, and goes on alike. */
static void test_saved_again(void **state)
{
    (void)state;
    static const char *const cases[] = {"bf16_0", "fp32_3"};
    for (size_t i = 0; i < 2; i++) {
        struct run run[2];
        char path[256], again[256];
        run_init(&run[0], HIDDEN, config);
        run_init(&run[1], HIDDEN, config);
        ok(shoal_engine_load_checkpoint(run[0].engine, path_of(cases[i], path), NULL, 0, NULL));
        snprintf(again, sizeof again, "%s/again_%s", work, cases[i]);
        ok(shoal_engine_save_checkpoint(run[0].engine, again, NULL, NULL));
        ok(shoal_engine_load_checkpoint(run[1].engine, again, NULL, 0, NULL));
        for (int step = 0; step < MORE; step++) {
            shoal_step_info info[2];
            for (int r = 0; r < 2; r++)
                ok(shoal_engine_train_batch(run[r].engine, next_batch, NULL, &info[r]));
            assert_true(info[0].loss == info[1].loss && info[0].lr == info[1].lr);
        }
        run_fini(&run[0]);
        run_fini(&run[1]);
    }
}

static void refuse(struct run *run, const char *name, const char *sentence)
{
    char path[256];
    const shoal_status status =
        shoal_engine_load_checkpoint(run->engine, path_of(name, path), NULL, 0, NULL);
    if (status == SHOAL_OK)
        fail_msg("%s: loaded, and \"%s\" was expected", name, sentence);
    if (!strstr(shoal_error_message(), sentence) || shoal_status_exit_code(status) != 2)
        fail_msg("%s: %s", name, shoal_error_message());
}

/* The n-th allocation fails, for every n: an error, and nothing leaks (AddressSanitizer sees). */
static void test_without_memory(void **state)
{
    (void)state;
    static const char *const cases[] = {"bf16_0", "fp32_1", "fp32_3", "universal_2"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[256], spec[32];
        int64_t step = 0;
        bool fired = true;
        for (int n = 0; fired; n += 1 + n / 50) {
            snprintf(spec, sizeof spec, "alloc:%d", n);
            assert_true(shoali_fault_arm(spec));
            const shoal_status status =
                shoal_checkpoint_peek(path_of(cases[i], path), NULL, NULL, &step);
            fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            if (fired ? status != SHOAL_ENOMEM && status != SHOAL_EINVAL : status != SHOAL_OK)
                fail_msg("%s, %s: status %d", path, spec, (int)status);
            assert_true(n < 100000);
        }
        assert_int_equal(step, STEPS);
    }
}

static void test_mistakes(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, HIDDEN, config);
    shell("cd %s && cp -r fp32_2 missing && rm missing/global_step3/zero_pp_rank_1_*", work);
    refuse(&run, "missing", "it is one of 2 files, but 1 exist");
    shell("cd %s && cp -r fp32_2 cut && truncate -s 5000 cut/global_step3/zero_pp_rank_1_*", work);
    refuse(&run, "cut", "zero_pp_rank_1_mp_rank_00_optim_states.pt: the archive has no directory");
    shell("cd %s && cp -r fp32_3 swapped && cp fp32_2/global_step3/zero_pp_rank_1_*optim* "
          "swapped/global_step3",
          work);
    refuse(&run, "swapped", "it is of stage 2, the file of rank 0 of stage 3");
    shell("cd %s && cp -r fp32_1 parallel && cp parallel/global_step3/mp_rank_00_model_states.pt "
          "parallel/global_step3/mp_rank_01_model_states.pt",
          work);
    refuse(&run, "parallel", "ds_to_universal");
    shell("cd %s && cp -r universal_2 part && rm part/*/zero/transformer.ln_f.bias/exp_avg.pt",
          work);
    refuse(&run, "part", "0 of the 8 elements of exp_avg of `transformer.ln_f.bias`");
    run_fini(&run);
    run_init(&run, 2 * HIDDEN, config);
    refuse(&run, "fp32_2", "`transformer.wte.weight` is [31, 8] and not [31, 16]");
    run_fini(&run);
    run_init(&run, HIDDEN,
             "{\"train_batch_size\":8,\"optimizer\":{\"type\":\"SGD\",\"params\":{\"lr\":1e-3,"
             "\"momentum\":0.9}}}");
    refuse(&run, "fp32_2", "another optimizer, `sgd`");
    run_fini(&run);
}

static int unpack(void **state)
{
    (void)state;
    char command[1024];
    snprintf(work, sizeof work, "deepspeed_parity.%d", (int)getpid());
    snprintf(command, sizeof command, "mkdir %s && tar -xJf '%s/deepspeed.tar.xz' -C %s", work,
             GOLDEN_FOLDER, work);
    return system(command);
}

static int clean(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command);
}

int main(void)
{
    if (system("xz --version >/dev/null 2>&1 && tar --version >/dev/null 2>&1") != 0) {
        fprintf(stderr, "skipped: the programs tar and xz are not both there\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_as_deepspeed_did),
        cmocka_unit_test(test_ways_to_name_it),
        cmocka_unit_test(test_saved_again),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, unpack, clean);
}
