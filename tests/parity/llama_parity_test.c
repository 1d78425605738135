/* Small decoders of each family against Hugging Face's transformers: loss, logits, gradients. The
 * numbers come from tests/golden/make_llama_golden.py; weights and tokens are the formulas repeated
 * here. The names in the files are those of published weights, so equal names are part of the test.
 *
 * Tolerances. u = 2^-24. As in gpt2_parity_test.c a gradient passes about 12 stages of sums of at
 * most 40 products (24 rows, 15 to 40 channels, 12 keys): sqrt(12 * 40) u = 1.3e-6 of the largest
 * element when signs are random; transformers' own norms and positions are fp32 too, which doubles
 * it. 1e-5 leaves a factor of 4. Logits pass half of the stages, the loss is their mean. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "checkpoint/checkpoint_internal.h"
#include "inference/inference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 97, T = 12, BATCH = 2, SETTINGS = 14, FILE_MAX = 1 << 16 };
#define TOLERANCE 1e-5

struct variant {
    const char *name;
    struct {
        const char *option;
        double value;
    } set[SETTINGS];
};
static const struct variant variants[] = {
    {"llama",
     {{"num-attention-heads", 5},
      {"group-query-attention", 1},
      {"num-query-groups", 1},
      {"rotary-base", 5000},
      {"use-rope-scaling", 1},
      {"rope-scaling-factor", 4},
      {"rope-scaling-original-max-position", 16},
      {"untie-embeddings-and-output-weights", 0}}},
    {"linear",
     {{"num-attention-heads", 3},
      {"disable-bias-linear", 0},
      {"rotary-seq-len-interpolation-factor", 2.5}}},
    {"mistral", {{"num-attention-heads", 3}, {"group-query-attention", 1}, {"window-size", 5}}},
    {"qwen2",
     {{"num-attention-heads", 4},
      {"group-query-attention", 1},
      {"num-query-groups", 2},
      {"add-qkv-bias", 1},
      {"norm-epsilon", 1e-6},
      {"rotary-base", 1e6}}},
    {"qwen3",
     {{"num-attention-heads", 4},
      {"group-query-attention", 1},
      {"num-query-groups", 2},
      {"qk-layernorm", 1},
      {"norm-epsilon", 1e-6},
      {"rotary-base", 1e6},
      {"untie-embeddings-and-output-weights", 0}}},
    {"gemma",
     {{"num-attention-heads", 3},
      {"group-query-attention", 1},
      {"swiglu", 0},
      {"geglu", 1},
      {"openai-gelu", 1},
      {"apply-layernorm-1p", 1},
      {"norm-epsilon", 1e-6},
      {"embedding-multiplier", 3.872983346207417 /* sqrt(15) */},
      {"untie-embeddings-and-output-weights", 0}}},
    {"nemotron",
     {{"num-attention-heads", 4},
      {"group-query-attention", 1},
      {"num-query-groups", 2},
      {"normalization", 0 /* LayerNorm */},
      {"apply-layernorm-1p", 1},
      {"swiglu", 0},
      {"squared-relu", 1},
      {"rotary-percent", 0.5}}},
    {"phi",
     {{"hidden-size", 16},
      {"num-attention-heads", 2},
      {"weight-names", 1},
      {"normalization", 0},
      {"swiglu", 0},
      {"openai-gelu", 1},
      {"disable-bias-linear", 0},
      {"use-parallel-residual", 1},
      {"shared-input-norm", 1},
      {"add-lm-head-bias", 1},
      {"rotary-percent", 0.5}}},
    {"phi3",
     {{"num-attention-heads", 4},
      {"group-query-attention", 1},
      {"num-query-groups", 2},
      {"weight-names", 2},
      {"window-size", 5}}},
    {"olmo",
     {{"hidden-size", 16},
      {"num-attention-heads", 2},
      {"normalization", 0},
      {"disable-norm-weight", 1}}},
    {"olmo2",
     {{"hidden-size", 16},
      {"num-attention-heads", 2},
      {"group-query-attention", 1},
      {"post-layernorm", 1},
      {"qk-layernorm-whole", 1}}},
    {"granite",
     {{"num-attention-heads", 3},
      {"group-query-attention", 1},
      {"embedding-multiplier", 3},
      {"softmax-scale", 0.2},
      {"residual-multiplier", 0.25},
      {"logits-multiplier", 0.5},
      {"untie-embeddings-and-output-weights", 0}}},
    {"smollm3", {{"num-attention-heads", 3}, {"group-query-attention", 1}, {"no-rope-freq", 2}}},
    {"cohere",
     {{"num-attention-heads", 4},
      {"group-query-attention", 1},
      {"num-query-groups", 2},
      {"normalization", 0},
      {"disable-norm-bias", 1},
      {"use-parallel-residual", 1},
      {"shared-input-norm", 1},
      {"rotary-interleaved", 1},
      {"logits-multiplier", 0.25},
      {"untie-embeddings-and-output-weights", 0}}},
    {"falcon",
     {{"hidden-size", 32},
      {"num-attention-heads", 4},
      {"group-query-attention", 1},
      {"num-query-groups", 2},
      {"weight-names", 7},
      {"normalization", 0},
      {"swiglu", 0},
      {"use-parallel-residual", 1},
      {"untie-embeddings-and-output-weights", 0}}},
    {"gpt_neox",
     {{"hidden-size", 16},
      {"num-attention-heads", 2},
      {"weight-names", 4},
      {"normalization", 0},
      {"swiglu", 0},
      {"disable-bias-linear", 0},
      {"use-parallel-residual", 1},
      {"rotary-percent", 0.5}}},
    {"gptj",
     {{"hidden-size", 16},
      {"num-attention-heads", 2},
      {"weight-names", 5},
      {"normalization", 0},
      {"swiglu", 0},
      {"openai-gelu", 1},
      {"add-mlp-bias", 1},
      {"add-lm-head-bias", 1},
      {"use-parallel-residual", 1},
      {"shared-input-norm", 1},
      {"rotary-interleaved", 1},
      {"rotary-percent", 0.5},
      {"max-position-embeddings", 32}}},
    {"opt",
     {{"hidden-size", 16},
      {"num-attention-heads", 2},
      {"weight-names", 8},
      {"normalization", 0},
      {"position-embedding-type", 0},
      {"max-position-embeddings", 32},
      {"swiglu", 0},
      {"relu", 1},
      {"disable-bias-linear", 0},
      {"untie-embeddings-and-output-weights", 0}}},
};

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

static uint32_t stream_of(const char *name)
{
    uint32_t value = 2166136261u;
    for (; *name; name++)
        value = (value ^ (uint32_t)(unsigned char)*name) * 16777619u;
    return value;
}

static int32_t tokens[BATCH * T], targets[BATCH * T];

static void make_batch(void)
{
    for (uint64_t b = 0; b < BATCH; b++)
        for (uint64_t t = 0; t < T; t++) {
            const uint64_t i = b * T + t;
            tokens[i] = (int32_t)(mix(b * 104729 + t * 31 + 1000) % VOCAB);
            targets[i] = (int32_t)(mix(b * 104729 + (t + 1) * 31 + 1000) % VOCAB);
            if (i % 9 == 0)
                targets[i] = -1;
        }
}

static shoal_status next_batch(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    (void)user, (void)step, (void)micro;
    batch->data[0] = tokens;
    batch->data[1] = targets;
    return SHOAL_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

static shoal_model *make_model(const struct variant *variant)
{
    static const struct {
        const char *option;
        double value;
    } shared[] = {{"num-layers", 2},  {"hidden-size", 15}, {"ffn-hidden-size", 22},
                  {"kv-channels", 8}, {"seq-length", T},   {"vocab-size", VOCAB}};
    shoal_model_config *config;
    shoal_model *model;
    ok(shoal_model_config_create("llama", &config));
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        ok(shoal_model_config_set(config, shared[i].option, shared[i].value));
    for (int i = 0; i < SETTINGS && variant->set[i].option; i++)
        ok(shoal_model_config_set(config, variant->set[i].option, variant->set[i].value));
    ok(shoal_model_create(config, &model));
    shoal_model_config_destroy(config);
    return model;
}

static shoal_engine *make_engine(const struct variant *variant, const shoal_model *model)
{
    static float values[1 << 12];
    shoal_engine *engine;
    ok(shoal_engine_create(
        &(shoal_engine_args){.model = model,
                             .config_text = "{\"train_batch_size\":2,\"optimizer\":{\"type\":"
                                            "\"AdamW\",\"params\":{\"lr\":1e-3}}}",
                             .threads = 1},
        &engine));
    const bool plus_one =
        strcmp(variant->name, "gemma") == 0 || strcmp(variant->name, "nemotron") == 0;
    for (int32_t p = 0; p < engine->module.param_count; p++) {
        const struct shoal_param *param = engine->module.param[p];
        const size_t length = strlen(param->name);
        const bool gamma =
            length > 11 && strcmp(param->name + length - 11, "norm.weight") == 0 && !plus_one;
        assert_true(param->count <= (int64_t)(sizeof values / sizeof *values));
        for (int64_t i = 0; i < param->count; i++)
            values[i] =
                (float)((gamma ? 1.0 : 0.0) + 0.25 * uniform(stream_of(param->name), (uint64_t)i));
        ok(shoal_engine_set_param(engine, param->name, values));
    }
    return engine;
}

/* ---- the file -------------------------------------------------------------------------------- */

struct golden {
    struct shoali_arena arena;
    struct shoali_safetensors_entry *entry;
    int32_t count;
    char bytes[FILE_MAX];
    const char *data;
};

static void read_golden(const struct variant *variant, struct golden *golden)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/llama_%s.safetensors", GOLDEN_FOLDER, variant->name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is missing: make it with make_llama_golden.py", path);
    const size_t size = fread(golden->bytes, 1, FILE_MAX, file);
    assert_in_range(size, 16, FILE_MAX - 1);
    struct shoali_checkpoint_file head = {.name = path, .path = path, .bytes = (int64_t)size};
    shoali_arena_init(&golden->arena);
    ok(shoali_checkpoint_read_head(&head, fileno(file), &golden->arena, &golden->entry,
                                   &golden->count));
    golden->data = golden->bytes + head.data_start;
    fclose(file);
}

static const float *find(const struct golden *golden, const char *kind, const char *name,
                         int64_t *count)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", kind, name);
    for (int32_t i = 0; i < golden->count; i++)
        if (strcmp(golden->entry[i].name, full) == 0) {
            *count = shoal_shape_count(&golden->entry[i].shape);
            return (const float *)(const void *)(golden->data + golden->entry[i].begin);
        }
    fail_msg("the published model has no parameter %s", name);
    return NULL;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* Largest deviation, of the largest expected element. */
static double deviation(const float *got, int64_t step, const float *expected, int64_t count)
{
    double largest = 0, error = 0;
    for (int64_t i = 0; i < count; i++) {
        const double off = fabs((double)got[i * step] - (double)expected[i]);
        largest = fmax(largest, fabs((double)expected[i]));
        error = off > error || off != off ? off : error;
    }
    return error / largest;
}

static double compare_logits(shoal_engine *engine, const struct golden *golden)
{
    static float logits[T * VOCAB];
    int64_t count;
    shoal_generator *generator;
    ok(shoal_generator_create(&(shoal_generator_args){.engine = engine, .max_length = T},
                              &generator));
    ok(shoal_generator_forward(generator, &(shoal_generator_input){0, tokens, T}, 1, true, logits));
    shoal_generator_destroy(generator);
    const float *expected = find(golden, "logits", "", &count);
    assert_int_equal(count, T * VOCAB);
    return deviation(logits, 1, expected, count);
}

static double compare_gradients(shoal_engine *engine, const struct golden *golden)
{
    static float got[1 << 12];
    double worst = 0;
    for (int32_t p = 0; p < engine->module.param_count; p++) {
        const struct shoal_param *param = engine->module.param[p];
        int64_t count = 0, one = 0;
        double square = 0;
        const float *expected = find(golden, "grad.", param->name, &count);
        const double norm = (double)find(golden, "norm.", param->name, &one)[0];
        const int64_t step = (param->count + 255) / 256;
        assert_int_equal(count, (param->count + step - 1) / step);
        ok(shoal_engine_get_gradient(engine, param->name, got));
        for (int64_t i = 0; i < param->count; i++)
            square += (double)got[i] * (double)got[i];
        /* A bias of keys without rope: softmax cancels it, and only rounding errors are left. */
        if (norm < 1e-6 && sqrt(square) < 1e-6)
            continue;
        const double off =
            fmax(deviation(got, step, expected, count), fabs(sqrt(square) / norm - 1));
        if (!(off <= TOLERANCE))
            fail_msg("gradient of %s is off by %.3g of its largest element (norm %.3g, not %.3g)",
                     param->name, off, sqrt(square), norm);
        worst = fmax(worst, off);
    }
    /* and there are no others: loss, logits, two for each parameter */
    assert_int_equal(golden->count, 2 + 2 * engine->module.param_count);
    return worst;
}

static void test_parity(void **state)
{
    static struct golden golden;
    const struct variant *variant = *state;
    shoal_model *model = make_model(variant);
    shoal_engine *engine = make_engine(variant, model);
    shoal_step_info info;
    int64_t one;
    make_batch();
    read_golden(variant, &golden);
    const double logits = compare_logits(engine, &golden);
    ok(shoal_engine_train_batch(engine, next_batch, NULL, &info));
    const double gradients = compare_gradients(engine, &golden);
    const double loss = fabs(info.loss / (double)find(&golden, "loss", "", &one)[0] - 1);
    printf("%s: loss %.6f, off by %.2g; logits by %.2g of the largest, gradients by %.2g\n",
           variant->name, info.loss, loss, logits, gradients);
    assert_true(logits <= TOLERANCE / 2 && loss <= TOLERANCE / 10);
    shoali_arena_fini(&golden.arena);
    shoal_engine_destroy(engine);
    shoal_model_destroy(model);
}

#define TEST(index) cmocka_unit_test_prestate(test_parity, (void *)(uintptr_t)&variants[index])

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(0),  TEST(1),  TEST(2),  TEST(3),  TEST(4),  TEST(5),
                                       TEST(6),  TEST(7),  TEST(8),  TEST(9),  TEST(10), TEST(11),
                                       TEST(12), TEST(13), TEST(14), TEST(15), TEST(16), TEST(17)};
    _Static_assert(sizeof tests / sizeof *tests == sizeof variants / sizeof *variants,
                   "each variant is tested");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
