/* A GPT-2 against PyTorch: gradients of the first step, then twenty steps of AdamW with warm-up,
 * decay, weight decay on matrices and clipping. The numbers come from
 * tests/golden/make_gpt2_golden.py, which computed in fp64; weights and tokens are the formulas
 * repeated here.
 *
 * Tolerances. u = 2^-24. A gradient is made of sums of at most 128 products (rows of the batch, or
 * channels), one after the other through 2 layers of 6 such stages: rounding errors add up like
 * sqrt(12 * 128) u = 2.3e-6 of the largest element when signs are random, 1e-5 leaves a factor
 * of 4. The loss moves by gradient times error of the weights: a tenth of it suffices. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "shoal/engine.h"
#include "shoal/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HIDDEN = 32, HEADS = 4, T = 16, VOCAB = 61, BATCH = 8, STEPS = 20 };
enum { PARAM_MAX = 4 * HIDDEN * HIDDEN };
#define TOLERANCE 1e-5

struct variant {
    const char *name;
    int32_t tanh, untied;
};
static const struct variant variants[] = {{"erf_tied", 0, 0}, {"tanh_untied", 1, 1}};

/* ---- the formulas of the script -------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t stream, uint64_t index)
{
    return ldexp((double)(mix(stream * 1000003 + index + 1) >> 40), -23) - 1.0;
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
            const uint64_t draw = mix(base + t * 31 + 1000), i = b * T + t;
            tokens[i] = (int32_t)token;
            token = draw % 4 == 0 ? draw / 4 % VOCAB : (token * 5 + 3) % VOCAB;
            targets[i] = i % 9 == 0 ? -1 : (int32_t)token;
        }
    }
    batch->data[0] = tokens;
    batch->data[1] = targets;
    return SHOAL_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char config[] =
    "{\"train_batch_size\":8,\"steps_per_print\":1000000,\"gradient_clipping\":1.0,"
    "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":1,\"betas\":[0.9,0.95],\"eps\":1e-8,"
    "\"weight_decay\":0.1},\"no_decay\":[\"1-D\"]},"
    "\"scheduler\":{\"type\":\"WarmupDecayLR\",\"params\":{\"warmup_min_lr\":1e-4,\"warmup_max_"
    "lr\":"
    "3e-3,\"warmup_num_steps\":4,\"total_num_steps\":24,\"warmup_type\":\"linear\"}}}";

static void open_engine(const struct variant *variant, shoal_model **model, shoal_engine **engine)
{
    static float values[PARAM_MAX];
    shoal_gpt_config gpt;
    shoal_gpt_config_defaults(&gpt);
    gpt.num_layers = LAYERS;
    gpt.hidden_size = HIDDEN;
    gpt.num_attention_heads = HEADS;
    gpt.seq_length = T;
    gpt.vocab_size = VOCAB;
    gpt.make_vocab_size_divisible_by = 1;
    gpt.attention_dropout = gpt.hidden_dropout = 0;
    gpt.openai_gelu = variant->tanh;
    gpt.untie_embeddings = variant->untied;
    ok(shoal_gpt_create(&gpt, model));
    ok(shoal_engine_create(
        &(shoal_engine_args){.model = *model, .config_text = config, .threads = 1}, engine));
    const char *name;
    for (int32_t p = 0; (name = shoal_engine_param_name(*engine, p)); p++) {
        const size_t length = strlen(name);
        const bool is_norm = strstr(name, "ln_") && strcmp(name + length - 7, ".weight") == 0;
        for (uint64_t i = 0; i < PARAM_MAX; i++)
            values[i] = (float)((is_norm ? 1.0 : 0.0) + 0.125 * uniform((uint64_t)p, i));
        ok(shoal_engine_set_param(*engine, name, values));
    }
}

static FILE *open_golden(const struct variant *variant, const char *ending)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/gpt2_%s.%s", GOLDEN_FOLDER, variant->name, ending);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is missing: make it with make_gpt2_golden.py", path);
    return file;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* Elements of a parameter, from its name: the shapes of the script. */
static int64_t count_of(const char *name)
{
    const int64_t bias = strstr(name, ".bias") ? 1 : HIDDEN;
    if (strstr(name, "wte") || strstr(name, "lm_head"))
        return VOCAB * HIDDEN;
    if (strstr(name, "wpe"))
        return T * HIDDEN;
    if (strstr(name, "ln_"))
        return HIDDEN;
    if (strstr(name, "c_attn"))
        return bias * 3 * HIDDEN;
    if (strstr(name, "c_fc"))
        return bias * 4 * HIDDEN;
    return strstr(name, "mlp") && bias > 1 ? 4 * HIDDEN * HIDDEN : bias * HIDDEN;
}

static double compare_gradients(const struct variant *variant, shoal_engine *engine)
{
    static float expected[PARAM_MAX], got[PARAM_MAX];
    double worst = 0;
    const char *name;
    FILE *file = open_golden(variant, "grad");
    for (int32_t p = 0; (name = shoal_engine_param_name(engine, p)); p++) {
        const size_t count = (size_t)count_of(name);
        double largest = 0, error = 0;
        assert_int_equal(fread(expected, sizeof(float), count, file), count);
        ok(shoal_engine_get_gradient(engine, name, got));
        for (size_t i = 0; i < count; i++) {
            largest = fmax(largest, fabs((double)expected[i]));
            error = fmax(error, fabs((double)expected[i] - (double)got[i]));
        }
        if (!(error <= TOLERANCE * largest))
            fail_msg("gradient of %s is off by %.3g, its largest element is %.3g", name, error,
                     largest);
        worst = fmax(worst, error / largest);
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    return worst;
}

static void test_parity(void **state)
{
    const struct variant *variant = *state;
    shoal_model *model;
    shoal_engine *engine;
    shoal_step_info info;
    double lr, norm, loss, worst = 0, gradients = 0;
    FILE *file = open_golden(variant, "txt");
    open_engine(variant, &model, &engine);
    for (int32_t step = 0; step < STEPS; step++) {
        assert_int_equal(fscanf(file, "%lf %lf %lf", &lr, &norm, &loss), 3);
        ok(shoal_engine_train_batch(engine, next_batch, NULL, &info));
        if (step == 0)
            gradients = compare_gradients(variant, engine);
        const double error = fabs(info.loss - loss) / loss;
        if (!(error <= 0.1 * TOLERANCE && fabs(info.lr - lr) <= 1e-12 * lr &&
              fabs(info.grad_norm - norm) <= 100 * TOLERANCE * norm))
            fail_msg("step %d: loss %.9f lr %.9g norm %.9f; torch has %.9f, %.9g, %.9f", (int)step,
                     info.loss, info.lr, info.grad_norm, loss, lr, norm);
        worst = fmax(worst, error);
    }
    printf("%s: loss %.6f after %d steps; losses differ by at most %.2g, gradients by %.2g of the "
           "largest\n",
           variant->name, info.loss, STEPS, worst, gradients);
    fclose(file);
    shoal_engine_destroy(engine);
    shoal_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_parity, (void *)(uintptr_t)&variants[0]),
        cmocka_unit_test_prestate(test_parity, (void *)(uintptr_t)&variants[1]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
