/* BERT against PyTorch: gradients of the first step, then a few of AdamW, for norms behind and
 * before, two texts and one, padded samples. The numbers come from
 * tests/golden/make_bert_golden.py, which computed in fp64; weights and batches are the formulas
 * repeated here.
 *
 * Tolerances. u = 2^-24. A gradient is made of sums of at most 64 products (rows of the batch, or
 * channels), one after the other through 2 layers of 8 such stages and a head of 3: rounding errors
 * add up like sqrt(19 * 64) u = 2.1e-6 of the largest element when signs are random, 1e-5 leaves a
 * factor of 4. The gradient of a key's bias is exactly 0, because a shift of all scores changes no
 * softmax: what is left of it is measured by that of the query's. The loss moves by gradient times
 * error of the weights: a tenth of it suffices. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "shoal/engine.h"
#include "shoal/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 2,
    HIDDEN = 24,
    HEADS = 3,
    FFN = 40,
    T = 16,
    POSITIONS = 20,
    VOCAB = 61,
    BATCH = 4
};
enum { STEPS = 12, PARAM_MAX = VOCAB * HIDDEN, PARAMS_MAX = 64 };
#define TOLERANCE 1e-5

struct variant {
    const char *name;
    bool pre, pairs, tanh;
};
static const struct variant variants[] = {
    {"post", false, true, false}, {"pre", true, true, false}, {"single", false, false, true}};

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

static shoal_status next_batch(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static int32_t tokens[BATCH * T], types[BATCH * T], targets[BATCH * T], key_count[BATCH],
        is_random[BATCH];
    static const void *const arrays[] = {tokens, types, targets, key_count, is_random};
    const struct variant *variant = user;
    (void)micro;
    for (uint64_t b = 0; b < BATCH; b++) {
        const uint64_t base = (uint64_t)step * 7919 + b * 104729;
        const uint64_t count = 9 + mix(base + 5) % 8, cut = 3 + mix(base + 6) % 5;
        for (uint64_t t = 0; t < T; t++) {
            const uint64_t draw = mix(base + t * 31 + 1000), i = b * T + t;
            tokens[i] = (int32_t)(draw % VOCAB);
            types[i] = cut <= t && t < count;
            targets[i] = draw / 4096 % 3 == 0 && t < count ? (int32_t)(draw / 64 % VOCAB) : -1;
        }
        key_count[b] = (int32_t)count;
        is_random[b] = (int32_t)(mix(base + 7) % 2);
    }
    for (int i = 0; i < (variant->pairs ? 5 : 4); i++)
        batch->data[i] = arrays[i];
    return SHOAL_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char engine_config[] =
    "{\"train_batch_size\":4,\"steps_per_print\":1000000,\"gradient_clipping\":0,"
    "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":1e-3,\"betas\":[0.9,0.999],\"eps\":1e-8,"
    "\"weight_decay\":0.01}}}";

struct golden {
    FILE *file;
    int32_t count;
    char name[PARAMS_MAX][80];
    int64_t elements[PARAMS_MAX];
};

static FILE *open_file(const struct variant *variant, const char *ending)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/bert_%s.%s", GOLDEN_FOLDER, variant->name, ending);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is missing: make it with make_bert_golden.py", path);
    return file;
}

/* Reads the names; the steps' lines are next. */
static void open_golden(const struct variant *variant, struct golden *golden)
{
    long long elements;
    *golden = (struct golden){.file = open_file(variant, "txt")};
    while (fscanf(golden->file, "%79s %lld", golden->name[golden->count], &elements) == 2 &&
           strcmp(golden->name[golden->count], "steps") != 0) {
        golden->elements[golden->count++] = elements;
        assert_in_range(golden->count, 1, PARAMS_MAX - 1);
    }
    assert_true(golden->count > 30);
}

static void set(shoal_model_config *config, const char *name, double value)
{
    ok(shoal_model_config_set(config, name, value));
}

static void open_engine(const struct variant *variant, const struct golden *golden,
                        shoal_model **model, shoal_engine **engine)
{
    static float values[PARAM_MAX];
    shoal_model_config *config;
    const char *name;
    ok(shoal_model_config_create("bert", &config));
    set(config, "num-layers", LAYERS);
    set(config, "hidden-size", HIDDEN);
    set(config, "num-attention-heads", HEADS);
    set(config, "ffn-hidden-size", FFN);
    set(config, "seq-length", T);
    set(config, "max-position-embeddings", POSITIONS);
    set(config, "vocab-size", VOCAB);
    set(config, "attention-dropout", 0);
    set(config, "hidden-dropout", 0);
    set(config, "openai-gelu", variant->tanh);
    set(config, "bert-binary-head", variant->pairs);
    set(config, "bert-pre-norm", variant->pre);
    ok(shoal_model_create(config, model));
    shoal_model_config_destroy(config);
    ok(shoal_engine_create(
        &(shoal_engine_args){.model = *model, .config_text = engine_config, .threads = 1}, engine));
    for (int32_t p = 0; (name = shoal_engine_param_name(*engine, p)); p++) {
        assert_in_range(p, 0, golden->count - 1);
        assert_string_equal(name, golden->name[p]);
        const bool is_norm = strstr(name, "LayerNorm.weight") || strstr(name, "ln.weight");
        for (uint64_t i = 0; i < PARAM_MAX; i++)
            values[i] = (float)((is_norm ? 1.0 : 0.0) + 0.125 * uniform((uint64_t)p, i));
        ok(shoal_engine_set_param(*engine, name, values));
    }
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static double compare_gradients(const struct variant *variant, const struct golden *golden,
                                shoal_engine *engine)
{
    static float expected[PARAM_MAX], got[PARAM_MAX];
    double worst = 0, scale = 1;
    FILE *file = open_file(variant, "grad");
    for (int32_t p = 0; p < golden->count; p++) {
        const char *name = golden->name[p];
        const size_t count = (size_t)golden->elements[p];
        double largest = 0, error = 0;
        assert_int_equal(fread(expected, sizeof(float), count, file), count);
        ok(shoal_engine_get_gradient(engine, name, got));
        for (size_t i = 0; i < count; i++) {
            largest = fmax(largest, fabs((double)expected[i]));
            error = fmax(error, fabs((double)expected[i] - (double)got[i]));
        }
        if (strstr(name, "query.bias"))
            scale = largest;
        if (strstr(name, "key.bias"))
            largest = scale;
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
    struct golden golden;
    shoal_model *model;
    shoal_engine *engine;
    shoal_step_info info;
    double norm, loss, worst = 0, gradients = 0;
    open_golden(variant, &golden);
    open_engine(variant, &golden, &model, &engine);
    for (int32_t step = 0; step < STEPS; step++) {
        assert_int_equal(fscanf(golden.file, "%lf %lf", &norm, &loss), 2);
        ok(shoal_engine_train_batch(engine, next_batch, (void *)(uintptr_t)variant, &info));
        if (step == 0)
            gradients = compare_gradients(variant, &golden, engine);
        const double error = fabs(info.loss - loss) / loss;
        if (!(error <= 0.1 * TOLERANCE && fabs(info.grad_norm - norm) <= 100 * TOLERANCE * norm))
            fail_msg("step %d: loss %.9f norm %.9f; torch has %.9f, %.9f", (int)step, info.loss,
                     info.grad_norm, loss, norm);
        worst = fmax(worst, error);
    }
    printf("%s: loss %.6f after %d steps; losses differ by at most %.2g, gradients by %.2g of the "
           "largest\n",
           variant->name, info.loss, STEPS, worst, gradients);
    fclose(golden.file);
    shoal_engine_destroy(engine);
    shoal_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_parity, (void *)(uintptr_t)&variants[0]),
        cmocka_unit_test_prestate(test_parity, (void *)(uintptr_t)&variants[1]),
        cmocka_unit_test_prestate(test_parity, (void *)(uintptr_t)&variants[2]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
