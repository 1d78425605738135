/* config.json to options and back; what is refused, and in which words. */
#include "base/test_cmocka.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double get(const shoal_model_config *config, const char *option)
{
    double value;
    ok(shoal_model_config_get(config, option, &value));
    return value;
}

static shoal_model_config *read_text(const char *text, shoal_dtype *dtype)
{
    shoal_model_config *config = NULL;
    ok(shoal_hub_parse_config(text, strlen(text), "config.json", &config, dtype));
    return config;
}

/* ---- every option exists ---- */

/* keys_test.c compares the other way: what no family mentions has its default. */
static void test_options_exist(void **state)
{
    (void)state;
    for (int32_t f = 0; shoali_hub_families[f]; f++) {
        const struct shoali_hub_family *family = shoali_hub_families[f];
        shoal_model_config *config = NULL;
        double value;
        ok(shoal_model_config_create(family->row, &config));
        for (int32_t i = 0; i < family->key_count; i++)
            if (family->keys[i].option)
                ok(shoal_model_config_get(config, family->keys[i].option, &value));
        for (int32_t i = 0; i < family->fixed_count; i++)
            ok(shoal_model_config_get(config, family->fixed[i].option, &value));
        shoal_model_config_destroy(config);
    }
}

/* ---- GPT-2 ---- */

#define GPT2 \
    "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"vocab_size\": 97"

static void test_gpt2(void **state)
{
    shoal_dtype dtype = SHOAL_DTYPE_COUNT;
    (void)state;
    shoal_model_config *config = read_text("{" GPT2 "}", &dtype);
    assert_string_equal(shoal_model_config_name(config), "gpt");
    assert_int_equal(dtype, SHOAL_F32);
    assert_true(get(config, "num-layers") == 2 && get(config, "hidden-size") == 24);
    assert_true(get(config, "num-attention-heads") == 3 && get(config, "vocab-size") == 97);
    assert_true(get(config, "max-position-embeddings") == 1024);
    assert_true(get(config, "seq-length") == 1024 && get(config, "norm-epsilon") == 1e-5);
    assert_true(get(config, "openai-gelu") == 1 && get(config, "add-bias-linear") == 1);
    assert_true(get(config, "untie-embeddings-and-output-weights") == 0);
    assert_true(get(config, "hidden-dropout") == 0.1);
    shoal_model_config_destroy(config);
    config = read_text("{" GPT2 ", \"activation_function\": \"gelu\", \"n_positions\": 64,"
                       "\"n_inner\": null, \"tie_word_embeddings\": false, \"resid_pdrop\": 0,"
                       "\"layer_norm_epsilon\": 0.001, \"torch_dtype\": \"bfloat16\"}",
                       &dtype);
    assert_int_equal(dtype, SHOAL_BF16);
    assert_true(get(config, "openai-gelu") == 0 && get(config, "seq-length") == 64);
    assert_true(get(config, "untie-embeddings-and-output-weights") == 1);
    assert_true(get(config, "norm-epsilon") == 1e-3 && get(config, "hidden-dropout") == 0);
    shoal_model_config_destroy(config);
}

/* ---- Llama and its relatives ---- */

#define SIZES                                                                     \
    "\"hidden_size\": 40, \"num_hidden_layers\": 2, \"num_attention_heads\": 5, " \
    "\"intermediate_size\": 72, \"vocab_size\": 97"
#define SIZES2                                                                    \
    "\"hidden_size\": 48, \"num_hidden_layers\": 4, \"num_attention_heads\": 6, " \
    "\"vocab_size\": 97"
#define OF(type) "{\"model_type\": \"" type "\", " SIZES
#define LLAMA "\"model_type\": \"llama\", " SIZES
#define MISTRAL "\"model_type\": \"mistral\", " SIZES
#define QWEN2 "\"model_type\": \"qwen2\", " SIZES
#define QWEN3 "\"model_type\": \"qwen3\", " SIZES
#define GEMMA "\"model_type\": \"gemma\", " SIZES
#define LLAMA3                                                                 \
    "{\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, " \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64"

struct value {
    const char *text, *option;
    double value;
};

/* One value of each text. */
static void expect_values(const struct value *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        shoal_model_config *config = read_text(values[i].text, NULL);
        const double got = get(config, values[i].option);
        if (got != values[i].value)
            fail_msg("%s\n  --%s is %g, not %g", values[i].text, values[i].option, got,
                     values[i].value);
        shoal_model_config_destroy(config);
    }
}

static void test_llama(void **state)
{
    static const struct value values[] = {
        {"{" LLAMA "}", "normalization", 1},
        {"{" LLAMA "}", "position-embedding-type", 1},
        {"{" LLAMA "}", "untie-embeddings-and-output-weights", 1},
        {"{" LLAMA "}", "group-query-attention", 0},
        {"{" LLAMA "}", "max-position-embeddings", 2048},
        {"{" LLAMA "}", "seq-length", 1024},
        {"{" LLAMA "}", "rotary-base", 10000},
        {"{" LLAMA "}", "swiglu", 1},
        {"{" LLAMA "}", "norm-epsilon", 1e-6},
        {"{" LLAMA ", \"num_key_value_heads\": 1}", "num-query-groups", 1},
        {"{" LLAMA ", \"num_key_value_heads\": 1}", "group-query-attention", 1},
        {"{" LLAMA ", \"num_key_value_heads\": 5}", "group-query-attention", 0},
        {"{" LLAMA ", \"num_key_value_heads\": 5}", "num-query-groups", 5},
        {"{" LLAMA ", \"head_dim\": 16}", "kv-channels", 16},
        {"{" LLAMA ", \"head_dim\": null}", "kv-channels", 0},
        {"{" LLAMA ", \"hidden_act\": \"gelu\"}", "geglu", 1},
        {"{" LLAMA ", \"hidden_act\": \"gelu_pytorch_tanh\"}", "openai-gelu", 1},
        {"{" LLAMA ", \"attention_bias\": true}", "add-attention-output-bias", 1},
        {"{" LLAMA ", \"attention_bias\": true, \"mlp_bias\": true}", "disable-bias-linear", 0},
        {"{" LLAMA ", \"rope_theta\": 5e5}", "rotary-base", 5e5},
        {"{" LLAMA ", \"rope_theta\": 7, \"rope_parameters\": {\"rope_theta\": 5e5}}",
         "rotary-base", 5e5},
        {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "rotary-seq-len-interpolation-factor", 2},
        {"{" LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         "rotary-seq-len-interpolation-factor", 0},
        {"{" LLAMA ", \"rope_scaling\": " LLAMA3 "}}", "rope-scaling-factor", 32},
        {"{" LLAMA ", \"rope_parameters\": " LLAMA3 ", \"rope_theta\": 7}}",
         "rope-scaling-original-max-position", 64},
        {"{" LLAMA ", \"partial_rotary_factor\": 0.5}", "rotary-percent", 0.5},
        {"{" MISTRAL "}", "window-size", 4096},
        {"{" MISTRAL ", \"sliding_window\": null}", "window-size", 0},
        {"{" MISTRAL ", \"sliding_window\": 7}", "window-size", 7},
        {"{" QWEN2 "}", "window-size", 0},
        {"{" QWEN2 "}", "add-qkv-bias", 1},
        {"{" QWEN2 "}", "add-attention-output-bias", 0},
        {"{" QWEN2 ", \"use_sliding_window\": false, \"sliding_window\": 32768}", "window-size", 0},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 8}", "window-size", 0},
        {"{" QWEN2
         ", \"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 0}",
         "window-size", 8},
        {"{" QWEN2
         ", \"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 1, "
         "\"layer_types\": [\"sliding_attention\", \"sliding_attention\"]}",
         "window-size", 8},
        {"{" QWEN3 "}", "qk-layernorm", 1},
        {"{" QWEN3 "}", "kv-channels", 128},
        {"{" QWEN3 ", \"attention_bias\": true}", "add-attention-output-bias", 1},
        {"{" GEMMA "}", "apply-layernorm-1p", 1},
        {"{" GEMMA "}", "untie-embeddings-and-output-weights", 0},
        {"{" GEMMA "}", "embedding-multiplier", 6.324555320336759},
        {"{" GEMMA ", \"hidden_act\": \"gelu\"}", "openai-gelu", 1},
    };
    (void)state;
    expect_values(values, sizeof values / sizeof values[0]);
}

/* src/hub knows choices by their number. */
static void test_choices(void **state)
{
    shoal_model_config *config;
    (void)state;
    ok(shoal_model_config_create("llama", &config));
    ok(shoal_model_config_set_choice(config, "normalization", "RMSNorm"));
    ok(shoal_model_config_set_choice(config, "position-embedding-type", "rope"));
    assert_true(get(config, "normalization") == 1 && get(config, "position-embedding-type") == 1);
    const struct {
        const char *family;
        double names;
    } names[] = {{"phi", 1},       {"phi3", 2},        {"starcoder2", 3}, {"gpt_neox", 4},
                 {"gptj", 5},      {"falcon", 6},      {"falcon_ln2", 7}, {"opt", 8},
                 {"internlm2", 9}, {"gpt_bigcode", 10}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ok(shoal_model_config_set_choice(config, "weight-names", names[i].family));
        assert_true(get(config, "weight-names") == names[i].names);
    }
    shoal_model_config_destroy(config);
}

/* Leftovers in published folders, which transformers reads for none of these types. */
static void test_leftovers(void **state)
{
    static const struct value values[] = {
        {OF("starcoder2") ", \"activation_function\": \"relu\", \"hidden_act\": \"gelu\"}",
         "openai-gelu", 0},
        {OF("phi") ", \"rotary_dim\": 32, \"attention_bias\": false}", "rotary-percent", 0.5},
        {OF("phi3") ", \"full_attn_mod\": 1, \"interpolate_factor\": 1, \"mlp_bias\": false, "
                    "\"lm_head_bias\": false}",
         "rotary-percent", 1},
        {OF("stablelm") ", \"norm_eps\": 1e-3, \"rotary_scaling_factor\": 1}", "norm-epsilon",
         1e-5},
        {OF("nemotron") ", \"layer_norm_eps\": 1e-3, \"kv_channels\": 128}", "norm-epsilon", 1e-5},
        {OF("ernie4_5") ", \"compression_ratio\": 1}", "rotary-base", 500000},
        {"{" LLAMA ", \"activation\": \"swiglu\", \"internal_version\": \"7b\"}", "hidden-dropout",
         0},
        {"{" LLAMA ", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.0, \"hidden_dropout\": 0.1}",
         "hidden-dropout", 0},
        {"{" LLAMA ", \"pipeline_tag\": \"text-generation\", \"library_name\": \"transformers\"}",
         "rotary-base", 10000},
    };
    (void)state;
    expect_values(values, sizeof values / sizeof values[0]);
}

/* ---- refusals ---- */

struct mistake {
    const char *text, *sentence;
};

#define TYPES                                                                                      \
    "gpt2, llama, mistral, qwen2, qwen3, gemma, nemotron, phi, phi3, olmo, olmo2, granite, "       \
    "stablelm, smollm3, cohere, falcon, gpt_neox, gptj, opt, starcoder2, internlm2, gpt_bigcode, " \
    "arcee, helium, ernie4_5, bert, "                                                              \
    "megatron-bert"

static void expect_refusals(const struct mistake *mistakes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        shoal_model_config *config = NULL;
        const shoal_status status = shoal_hub_parse_config(
            mistakes[i].text, strlen(mistakes[i].text), "config.json", &config, NULL);
        assert_null(config);
        assert_int_equal(shoal_status_exit_code(status), 2);
        if (strcmp(shoal_error_message(), mistakes[i].sentence) != 0)
            fail_msg("%s\n  said  %s\n  wants %s", mistakes[i].text, shoal_error_message(),
                     mistakes[i].sentence);
    }
}

static void test_refusals(void **state)
{
    static const struct mistake mistakes[] = {
        {"{\"model_type\": \"t5\"}",
         "config.json:1: `model_type` is \"t5\"; models of these types are computed: " TYPES},
        {"{}",
         "config.json:1: `model_type` is not given; models of these types are computed: " TYPES},
        {"[1]", "config.json: the text is not a JSON object: begin it with {"},
        {"{" GPT2 ",\n\"scale_attn_weights\": false}",
         "config.json:2: `scale_attn_weights` is false, and only true is computed"},
        {"{" GPT2 ",\n\n\"activation_function\": \"silu\"}",
         "config.json:3: `activation_function` is \"silu\", and only gelu_new, gelu_pytorch_tanh, "
         "gelu and relu are computed"},
        {"{" GPT2 ",\n\"quantization_config\": {\"bits\": 4}}",
         "config.json:2: `quantization_config` is {\"bits\":4}, which is not computed"},
        {"{" GPT2 ",\n\"flux\": 1.5}",
         "config.json:2: `flux` is 1.5, and nothing is known of this key for such a model: if it "
         "does not change what the model computes, remove it or give --allow-unknown-config-keys"},
        {"{" GPT2 ",\n\"flux\": 1e-5}",
         "config.json:2: `flux` is 1e-5, and nothing is known of this key for such a model: if it "
         "does not change what the model computes, remove it or give --allow-unknown-config-keys"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2}",
         "config.json:1: there is no `n_embd`, which a model of type gpt2 needs"},
        {"{" GPT2 ",\n\"layer_norm_epsilon\": \"small\"}",
         "config.json:2: `layer_norm_epsilon` is \"small\", it must be a number"},
        {"{" GPT2 ",\n\"tie_word_embeddings\": 1}",
         "config.json:2: `tie_word_embeddings` is 1, it must be true or false"},
        {"{" GPT2 ",\n\"n_inner\": -4}",
         "config.json:2: `n_inner`: --ffn-hidden-size is -4; give a number from 0 to 1.67772e+07"},
        {"{" GPT2 ",\n\"torch_dtype\": \"float8\"}",
         "config.json:2: `torch_dtype` is \"float8\", and only float32, bfloat16 and float16 are "
         "known"},
        {"{" GPT2 ",\n\"shoal\": {\"vocab_size\": 90, \"make_vocab_size_divisible_by\": 64}}",
         "config.json:2: `shoal` is "
         "{\"vocab_size\":90,\"make_vocab_size_divisible_by\":64}, which does not make "
         "`vocab_size`"},
        {"{" GPT2 ",\n\"num_local_experts\": 8}",
         "config.json:2: `num_local_experts` is 8, which is not computed"},
        {"{\"model_type\": \"cohere\", " SIZES ",\n\"use_qk_norm\": true}",
         "config.json:2: `use_qk_norm` is true, and only false is computed"},
        {"{" LLAMA ",\n\"activation\": \"gelu\"}",
         "config.json:2: `activation` is \"gelu\", and only \"swiglu\" is computed"},
        {OF("ernie4_5") ",\n\"compression_ratio\": 2.5}",
         "config.json:2: `compression_ratio` is 2.5, and only 1.0 is computed"},
        {OF("phi3") ", \"full_attn_mod\": 1,\n\"rope_scaling\": {\"type\": \"longrope\"}}",
         "config.json:2: `rope_scaling.type` is \"longrope\", and only default, linear, dynamic "
         "and "
         "llama3 are computed"},
        {"{\"model_type\": \"phi\", " SIZES ",\n\"hidden_act\": \"silu\"}",
         "config.json:2: `hidden_act` is \"silu\", and only relu, relu2, gelu, gelu_new and "
         "gelu_pytorch_tanh are computed"},
        {"{\"model_type\": \"smollm3\", " SIZES ",\n\"no_rope_layers\": [0, 1]}",
         "config.json:2: `no_rope_layers` is [0,1], and only layers without rope at equal "
         "distances "
         "are computed"},
        {"{\"model_type\": \"opt\", " SIZES2 ",\n\"word_embed_proj_dim\": 20}",
         "config.json:2: `word_embed_proj_dim` is 20, and only the value of `hidden_size` is "
         "computed"},
        {"{\"model_type\": \"falcon\", " SIZES2 ",\n\"alibi\": true}",
         "config.json:2: `alibi` is true, and only false is computed"},
        {"{\"model_type\": \"granite\", " SIZES ",\n\"logits_scaling\": 0}",
         "config.json:2: `logits_scaling` is 0, it must be above 0"},
        {"{" LLAMA ",\n\"hidden_act\": \"relu\"}",
         "config.json:2: `hidden_act` is \"relu\", and only silu, gelu and gelu_pytorch_tanh are "
         "computed"},
        {"{" LLAMA ",\n\"rope_scaling\": {\n\"type\": \"yarn\", \"factor\": 4}}",
         "config.json:3: `rope_scaling.type` is \"yarn\", and only default, linear, dynamic and "
         "llama3 are computed"},
        {"{" LLAMA ",\n\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 4}}",
         "config.json:2: `rope_parameters` is {\"rope_type\":\"llama3\",\"factor\":4}, and of type "
         "llama3 it needs numbers factor, low_freq_factor, high_freq_factor and "
         "original_max_position_embeddings"},
        {"{" LLAMA ",\n\"rope_parameters\": {\"rope_type\": \"default\", \"mscale\": 2}}",
         "config.json:2: `rope_parameters.mscale` is 2, and nothing is known of this key for such "
         "positions"},
        {"{" LLAMA ",\n\"num_key_value_heads\": \"all\"}",
         "config.json:2: `num_key_value_heads` is \"all\", it must be a number"},
        {"{" LLAMA ",\n\"num_key_value_heads\": 0}",
         "config.json:2: `num_key_value_heads` is 0, it must be 1 or more"},
        {"{" LLAMA ",\n\"sliding_window\": 8}",
         "config.json:2: `sliding_window` is 8, and nothing is known of this key for such a model: "
         "if it does not change what the model computes, remove it or give "
         "--allow-unknown-config-keys"},
        {"{" LLAMA ",\n\"num_experts\": 4}",
         "config.json:2: `num_experts` is 4, which is not computed"},
        {"{" MISTRAL ",\n\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
         "config.json:2: `layer_types` is [\"full_attention\",\"sliding_attention\"], and only "
         "layers that are all full_attention or all sliding_attention are computed"},
        {"{" QWEN2 ",\n\"use_sliding_window\": true, \"sliding_window\": 8, "
         "\"max_window_layers\": 1}",
         "config.json:2: `max_window_layers` is 1, so only some layers have a window, which is not "
         "computed"},
        {"{" GEMMA ",\n\"use_bidirectional_attention\": true}",
         "config.json:2: `use_bidirectional_attention` is true, and only false is computed"},
        {"{\"model_type\": \"bert\", " SIZES ",\n\"is_decoder\": true}",
         "config.json:2: `is_decoder` is true, and only false is computed"},
        {"{\"model_type\": \"bert\", " SIZES ",\n\"type_vocab_size\": 1}",
         "config.json:2: `type_vocab_size` is 1, and only 2 is computed"},
        {"{" GEMMA ",\n\"hidden_activation\": \"silu\"}",
         "config.json:2: `hidden_activation` is \"silu\", and only gelu_pytorch_tanh is computed"},
    };
    (void)state;
    expect_refusals(mistakes, sizeof mistakes / sizeof mistakes[0]);
    /* a key that is not known and says nothing */
    shoal_model_config_destroy(
        read_text("{" GPT2 ", \"flux\": false, \"x\": null, \"y\": []}", NULL));
}

/* ---- back ---- */

static char *write_config(const shoal_model_config *config, shoal_dtype dtype)
{
    char *text = NULL;
    shoal_model *model = NULL;
    ok(shoal_model_create(config, &model));
    ok(shoal_hub_write_config(
        &(shoal_hub_write_args){.config = shoal_model_get_config(model), .dtype = dtype}, &text));
    shoal_model_destroy(model);
    return text;
}

static void test_round_trip(void **state)
{
    static const char *const texts[] = {
        "{" GPT2 "}",
        "{" GPT2 ", \"n_inner\": 7, \"activation_function\": \"gelu\", \"attn_pdrop\": 0.25,"
        "\"tie_word_embeddings\": false, \"layer_norm_epsilon\": 1.2345678901234567e-5}",
        "{" GPT2 ", \"activation_function\": \"relu\", \"scale_attn_by_inverse_layer_idx\": true}",
        "{" LLAMA "}",
        "{" LLAMA ", \"num_key_value_heads\": 1, \"attention_bias\": true, \"head_dim\": 6, "
        "\"tie_word_embeddings\": true, \"rope_scaling\": " LLAMA3 "}}",
        "{" LLAMA ", \"mlp_bias\": true, \"attention_bias\": true, \"hidden_act\": \"gelu\", "
        "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}, \"partial_rotary_factor\": 0.5}",
        "{" MISTRAL "}",
        "{" MISTRAL ", \"sliding_window\": null}",
        "{" QWEN2 "}",
        "{" QWEN2 ", \"use_sliding_window\": true, \"max_window_layers\": 0}",
        "{" QWEN3 ", \"attention_bias\": true}",
        "{" GEMMA ", \"num_key_value_heads\": 1}",
        "{" LLAMA ", \"mlp_bias\": true}",
        OF("nemotron") "}",
        OF("nemotron") ", \"attention_bias\": true, \"mlp_bias\": true, \"head_dim\": 16}",
        OF("phi") "}",
        OF("phi3") ", \"sliding_window\": 7}",
        OF("olmo") "}",
        OF("olmo2") ", \"num_key_value_heads\": 1}",
        OF("granite") ", \"logits_scaling\": 8, \"embedding_multiplier\": 12, "
                      "\"attention_multiplier\": 0.015625, \"residual_multiplier\": 0.22}",
        OF("stablelm") ", \"use_qkv_bias\": true}",
        OF("stablelm") ", \"use_parallel_residual\": true}",
        OF("smollm3") "}",
        OF("smollm3") ", \"no_rope_layers\": [1, 0]}",
        OF("cohere") ", \"logit_scale\": 0.3}",
        "{\"model_type\": \"falcon\", " SIZES2 "}",
        "{\"model_type\": \"falcon\", " SIZES2 ", \"new_decoder_architecture\": true, "
        "\"num_kv_heads\": 2}",
        "{\"model_type\": \"falcon\", " SIZES2 ", \"new_decoder_architecture\": true, "
        "\"num_kv_heads\": 2, \"num_ln_in_parallel_attn\": 1, \"bias\": true}",
        "{\"model_type\": \"falcon\", " SIZES2 ", \"parallel_attn\": false, "
        "\"multi_query\": false}",
        OF("gpt_neox") ", \"use_parallel_residual\": false, \"rotary_pct\": 0.5}",
        "{\"model_type\": \"gptj\", \"n_embd\": 48, \"n_layer\": 2, \"n_head\": 2, "
        "\"vocab_size\": 97, \"rotary_dim\": 10}",
        "{\"model_type\": \"opt\", " SIZES2 "}",
        OF("starcoder2") ", \"use_bias\": false}",
        OF("internlm2") ", \"bias\": false}",
        OF("arcee") ", \"mlp_bias\": true}",
        OF("helium") "}",
        OF("ernie4_5") ", \"use_bias\": true}",
        "{\"model_type\": \"gpt_bigcode\", \"n_embd\": 48, \"n_layer\": 2, \"n_head\": 3, "
        "\"vocab_size\": 97}",
        "{\"model_type\": \"gpt_bigcode\", \"n_embd\": 48, \"n_layer\": 2, \"n_head\": 3, "
        "\"vocab_size\": 97, \"multi_query\": false}",
        "{\"model_type\": \"bert\", " SIZES "}",
        "{\"model_type\": \"megatron-bert\", " SIZES ", \"hidden_act\": \"gelu_new\", "
        "\"architectures\": [\"MegatronBertForMaskedLM\"], \"layer_norm_eps\": 1e-5}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        shoal_dtype dtype;
        shoal_model_config *config = read_text(texts[i], NULL);
        char *first = write_config(config, SHOAL_F16);
        shoal_model_config *again = read_text(first, &dtype);
        char *second = write_config(again, dtype);
        assert_string_equal(first, second);
        shoal_model_config_destroy(config);
        shoal_model_config_destroy(again);
        free(first);
        free(second);
    }
}

static void test_padding(void **state)
{
    static const int64_t sizes[][2] = {{1, 128}, {127, 128}, {128, 128}, {129, 256}};
    shoal_model_config *config, *again;
    char *text, *generation = NULL;
    (void)state;
    ok(shoal_model_config_create("tiny", &config)); /* 65 tokens, 128 rows */
    text = write_config(config, SHOAL_F32);
    assert_non_null(strstr(text, "\"vocab_size\": 128"));
    again = read_text(text, NULL);
    assert_true(get(again, "vocab-size") == 65 &&
                get(again, "make-vocab-size-divisible-by") == 128);
    ok(shoal_hub_write_generation(&(shoal_hub_write_args){.config = config}, &generation));
    assert_non_null(strstr(generation, "\"suppress_tokens\": [\n    65,\n    66,"));
    assert_non_null(strstr(generation, "    127\n  ]"));
    free(generation);
    free(text);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ok(shoal_model_config_set(config, "vocab-size", (double)sizes[i][0]));
        assert_int_equal(shoali_hub_vocab_rows(config), sizes[i][1]);
    }
    shoal_model_config_destroy(config);
    shoal_model_config_destroy(again);
}

static void test_no_words(void **state)
{
    shoal_model_config *config;
    char *text = NULL;
    (void)state;
    ok(shoal_model_config_create("tiny", &config));
    ok(shoal_model_config_set(config, "add-bias-linear", 0));
    assert_int_equal(shoal_hub_write_config(&(shoal_hub_write_args){.config = config}, &text),
                     SHOAL_EUNSUPPORTED);
    assert_string_equal(shoal_error_message(),
                        "transformers cannot describe a `gpt` with --add-bias-linear 0: this "
                        "option has no key in config.json");
    assert_null(text);
    shoal_model_config_destroy(config);
    /* what only training needs is no other model */
    config = read_text("{" LLAMA "}", NULL);
    ok(shoal_model_config_set(config, "hidden-dropout", 0.5));
    free(write_config(config, SHOAL_F32));
    shoal_model_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_exist), cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama),         cmocka_unit_test(test_choices),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_padding),       cmocka_unit_test(test_no_words),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
