/* The table of models: names, options, stored descriptions, refusals. */
#include "base/test_cmocka.h"
#include "transformer/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refused(shoal_status got, shoal_status expected, const char *sentence)
{
    if (got != expected || !strstr(shoal_error_message(), sentence))
        fail_msg("expected \"%s\", got %s: %s", sentence, shoal_status_name(got),
                 shoal_error_message());
}

static double get(const shoal_model_config *config, const char *name)
{
    double value = (double)NAN;
    ok(shoal_model_config_get(config, name, &value));
    return value;
}

/* ---- every row ------------------------------------------------------------------------------- */

/* What others rely on in a row; a new one is held to it without a test of its own. */
static void check_row(const shoal_model_config *config)
{
    const shoal_model_option *option;
    shoal_model_config *again;
    char *text, *twice;
    (void)get(config, "seq-length");
    (void)get(config, "vocab-size");
    for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++) {
        const struct shoali_model_option *row = &config->row->options[i];
        assert_true(strlen(option->name) > 0 && strlen(option->help) > 0);
        assert_true(row->offset < config->row->values_bytes);
        assert_true(option->max >= option->min);
        assert_true((option->choices != NULL) == (option->type == SHOAL_MODEL_CHOICE));
        assert_true(!option->flag ||
                    (option->type == SHOAL_MODEL_BOOL && option->default_value != 0));
        assert_true(!option->lean || option->type == SHOAL_MODEL_BOOL);
        for (int32_t j = 0; j < i; j++) {
            assert_string_not_equal(option->name, config->row->options[j].option.name);
            assert_int_not_equal(row->offset, config->row->options[j].offset);
        }
    }
    ok(shoal_model_config_to_json(config, &text));
    ok(shoal_model_config_from_json(text, &again));
    ok(shoal_model_config_to_json(again, &twice));
    assert_string_equal(text, twice);
    assert_string_equal(shoal_model_config_name(again), shoal_model_config_name(config));
    shoal_model_config_destroy(again);
    free(text);
    free(twice);
}

static void test_rows(void **state)
{
    const char *name;
    (void)state;
    for (int32_t i = 0; (name = shoal_model_name(i)) != NULL; i++) {
        shoal_model_config *config;
        ok(shoal_model_config_create(name, &config));
        assert_string_equal(shoal_model_config_name(config), name);
        check_row(config);
        shoal_model_config_destroy(config);
    }
    assert_null(shoal_model_name(-1));
}

/* Of a loader's samples of the model's kind, the first arrays. */
static void check_inputs(const shoal_model_config *config, const shoal_model *model)
{
    shoal_dataset *dataset;
    shoal_loader *loader;
    int64_t numbers;
    ok(shoal_dataset_create(&(shoal_dataset_args){.mock = true}, &dataset));
    ok(shoal_loader_create(&(shoal_loader_args){.dataset = dataset,
                                                .kind = shoal_model_config_samples(config),
                                                .seq_length = model->tokens_per_sample,
                                                .micro_batch = 1,
                                                .micro_batches = 1},
                           &loader));
    for (int32_t i = 0; i < model->input_count; i++) {
        const char *name = shoal_loader_array(loader, i, &numbers);
        assert_non_null(name);
        assert_string_equal(name, model->inputs[i].name);
        assert_int_equal(numbers, shoal_shape_count(&model->inputs[i].sample_shape));
        assert_int_equal(model->inputs[i].dtype, SHOAL_I32);
    }
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

/* As many parameters as the published files have, where no row is padding. */
static void check_published(const char *name, int64_t parameters)
{
    static const struct {
        const char *name;
        int64_t parameters;
    } published[] = {
        {"llama-3.2-1b", 1235814400}, {"llama-3-8b", 8030261248}, {"llama-2-7b", 6738415616},
        {"mistral-7b", 7241732096},   {"qwen3-0.6b", 596049920},  {"gemma-2b", 2506172416},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        if (strcmp(published[i].name, name) == 0)
            assert_int_equal(parameters, published[i].parameters);
}

static void test_presets(void **state)
{
    const char *name;
    char text[160];
    int32_t count = 0;
    (void)state;
    for (; (name = shoal_model_preset_name(count)) != NULL; count++) {
        shoal_model_config *config;
        shoal_model *model;
        int64_t batch, length, parameters;
        double flops;
        ok(shoal_model_config_create(name, &config));
        check_row(config);
        shoal_model_config_bench_batch(config, &batch, &length);
        assert_true(batch > 0 && length > 0 && (double)length <= get(config, "seq-length"));
        ok(shoal_model_create(config, &model));
        assert_int_equal(model->tokens_per_sample, (int64_t)get(config, "seq-length"));
        check_inputs(config, model);
        ok(shoal_model_param_count(model, &parameters));
        ok(shoal_model_flops_per_token(model, &flops));
        assert_true(flops > 6.0 * (double)parameters);
        if (strcmp(name, "gpt2-124m") == 0) {
            assert_string_equal(shoal_model_config_describe(config, text, sizeof text),
                                "12 layers, hidden 768");
            assert_int_equal(parameters, 124439808 + (50304 - 50257) * 768);
        }
        check_published(name, parameters);
        shoal_model_destroy(model);
        shoal_model_config_destroy(config);
    }
    assert_true(count > 0);
    assert_null(shoal_model_preset_name(-1));
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_values(void **state)
{
    shoal_model_config *config;
    shoal_model *model;
    double value;
    (void)state;
    refused(shoal_model_config_create("gtp", &config), SHOAL_EINVAL, "nearest is gpt; there are:");
    assert_null(config);
    ok(shoal_model_config_create("gpt", &config));
    assert_true(get(config, "init-method-std") == 0.02 && get(config, "add-bias-linear") == 1);
    ok(shoal_model_config_set(config, "add-bias-linear", 0));
    ok(shoal_model_config_set(config, "hidden-size", 48));
    assert_true(get(config, "add-bias-linear") == 0 && get(config, "hidden-size") == 48);
    refused(shoal_model_config_set(config, "depth", 1), SHOAL_EINVAL, "no option `depth`");
    refused(shoal_model_config_get(config, "depth", &value), SHOAL_EINVAL, "no option `depth`");
    refused(shoal_model_config_set(config, "num-layers", 0), SHOAL_EINVAL,
            "--num-layers is 0; give a number from 1 to 100000");
    refused(shoal_model_config_set(config, "num-layers", (double)NAN), SHOAL_EINVAL,
            "--num-layers");
    refused(shoal_model_config_set(config, "num-layers", 1.5), SHOAL_EINVAL, "a whole number");
    refused(shoal_model_config_set(config, "openai-gelu", 2), SHOAL_EINVAL, "give 0 or 1");
    refused(shoal_model_create(config, &model), SHOAL_EINVAL, "--num-layers is 0");
    shoal_model_config_destroy(config);
    shoal_model_config_destroy(NULL);
    shoal_model_destroy(NULL);
}

static void test_choices(void **state)
{
    shoal_model_config *config, *again;
    char *text;
    (void)state;
    ok(shoal_model_config_create("tiny-llama", &config));
    assert_true(get(config, "normalization") == 1);
    ok(shoal_model_config_set_choice(config, "normalization", "layernorm"));
    ok(shoal_model_config_set(config, "position-embedding-type", 2));
    assert_true(get(config, "normalization") == 0);
    refused(shoal_model_config_set_choice(config, "normalization", "x"), SHOAL_EINVAL,
            "--normalization is \"x\"; give one of LayerNorm, RMSNorm");
    refused(shoal_model_config_set_choice(config, "num-layers", "x"), SHOAL_EINVAL,
            "--num-layers has no named choices");
    refused(shoal_model_config_set(config, "normalization", 2), SHOAL_EINVAL, "from 0 to 1");
    refused(shoal_model_config_set(config, "normalization", 0.5), SHOAL_EINVAL, "whole number");
    ok(shoal_model_config_to_json(config, &text));
    assert_non_null(strstr(text, "\"normalization\":\"LayerNorm\""));
    ok(shoal_model_config_from_json(text, &again));
    assert_true(get(again, "position-embedding-type") == 2);
    shoal_model_config_destroy(again);
    memcpy(strstr(text, "LayerNorm"), "LayerNorX", 9);
    refused(shoal_model_config_from_json(text, &again), SHOAL_ECORRUPT, "no valid `normalization`");
    free(text);
    shoal_model_config_destroy(config);
}

/* What a checkpoint stores of a model makes the same model again. */
static void test_completed_again(void **state)
{
    static const char *const names[] = {"tiny-llama", "llama-2-7b", "gemma-2b", "tiny"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        shoal_model_config *config, *again;
        shoal_model *model, *twin;
        char *text, *twice;
        ok(shoal_model_config_create(names[i], &config));
        ok(shoal_model_create(config, &model));
        ok(shoal_model_config_to_json(shoal_model_get_config(model), &text));
        ok(shoal_model_config_from_json(text, &again));
        ok(shoal_model_create(again, &twin));
        ok(shoal_model_config_to_json(shoal_model_get_config(twin), &twice));
        assert_string_equal(text, twice);
        free(text);
        free(twice);
        shoal_model_destroy(twin);
        shoal_model_destroy(model);
        shoal_model_config_destroy(again);
        shoal_model_config_destroy(config);
    }
}

/* A model has a configuration of its own, with what others give filled in. */
static void test_model_keeps_its_configuration(void **state)
{
    shoal_model_config *config;
    shoal_model *model;
    (void)state;
    ok(shoal_model_config_create("tiny", &config));
    ok(shoal_model_config_set(config, "ffn-hidden-size", 0));
    ok(shoal_model_create(config, &model));
    assert_true(get(config, "ffn-hidden-size") == 0);
    shoal_model_config_destroy(config);
    assert_true(get(shoal_model_get_config(model), "ffn-hidden-size") == 4 * 128);
    shoal_gpt_config gpt;
    shoal_gpt_get_config(model, &gpt);
    assert_int_equal(gpt.ffn_hidden_size, 4 * 128);
    shoal_model_destroy(model);
}

/* ---- stored descriptions ---------------------------------------------------------------------- */

static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
}

static void test_json(void **state)
{
    shoal_model_config *config, *again;
    char *text;
    (void)state;
    ok(shoal_model_config_create("gpt", &config));
    ok(shoal_model_config_set(config, "num-attention-heads", 4));
    ok(shoal_model_config_set(config, "init-method-std", 1.0 / 3.0));
    ok(shoal_model_config_set(config, "openai-gelu", 1));
    ok(shoal_model_config_to_json(config, &text));
    assert_non_null(strstr(text, "\"model_type\":\"gpt\""));
    assert_non_null(strstr(text, "\"num-attention-heads\":4"));
    ok(shoal_model_config_from_json(text, &again));
    assert_true(get(again, "init-method-std") == 1.0 / 3.0);
    shoal_model_config_destroy(again);

    refused(shoal_model_config_from_json("{", &again), SHOAL_ECORRUPT, "not a JSON object");
    assert_null(again);
    refused(shoal_model_config_from_json("[1]", &again), SHOAL_ECORRUPT, "another type");
    refused(shoal_model_config_from_json("{}", &again), SHOAL_ECORRUPT, "num-layers");
    refused(shoal_model_config_from_json("{\"model_type\":\"mamba\"}", &again), SHOAL_ECORRUPT,
            "a model \"mamba\", which this version does not have");
    refused(shoal_model_config_from_json("{\"model_type\":3}", &again), SHOAL_ECORRUPT,
            "without a name");
    replace(text, "\"openai-gelu\":true", "\"openai-gelu\":1234");
    refused(shoal_model_config_from_json(text, &again), SHOAL_ECORRUPT, "no valid `openai-gelu`");
    free(text);
    shoal_model_config_destroy(config);
}

/* A description from before there were names, and before there was the flag of the last option. */
static void test_old_json(void **state)
{
    static const char old[] =
        "{\"num-layers\":1,\"hidden-size\":8,\"num-attention-heads\":1,\"seq-length\":4,"
        "\"max-position-embeddings\":4,\"ffn-hidden-size\":32,\"vocab-size\":256,"
        "\"make-vocab-size-divisible-by\":1,\"attention-dropout\":0.1,\"hidden-dropout\":0.1,"
        "\"init-method-std\":0.02,\"norm-epsilon\":1e-5,\"add-bias-linear\":true,"
        "\"openai-gelu\":false,\"untie-embeddings-and-output-weights\":false%s}";
    char text[1024];
    shoal_model_config *config;
    (void)state;
    snprintf(text, sizeof text, old, "");
    ok(shoal_model_config_from_json(text, &config));
    assert_string_equal(shoal_model_config_name(config), "gpt");
    assert_true(get(config, "cross-entropy-loss-fusion") == 0);
    shoal_model_config_destroy(config);
    snprintf(text, sizeof text, old, ",\"swiglu\":true");
    refused(shoal_model_config_from_json(text, &config), SHOAL_ECORRUPT,
            "has `swiglu`, which this version's `gpt` does not know");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_presets),
        cmocka_unit_test(test_values),  cmocka_unit_test(test_model_keeps_its_configuration),
        cmocka_unit_test(test_json),    cmocka_unit_test(test_old_json),
        cmocka_unit_test(test_choices), cmocka_unit_test(test_completed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
