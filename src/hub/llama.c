/* Llama and its relatives: one row of the model table, five words for it. */
#include "hub/hub.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ----------------------------------------------------------------------------------- */

/* What all of them have. `tied`: of tie_word_embeddings where it is not there. */
#define SHARED(positions, tied)                                                           \
    {"hidden_size", NULL, SHOALI_HUB_NEEDED, "hidden-size", 0, NULL},                     \
        {"num_hidden_layers", NULL, SHOALI_HUB_NEEDED, "num-layers", 0, NULL},            \
        {"num_attention_heads", NULL, SHOALI_HUB_NEEDED, "num-attention-heads", 0, NULL}, \
        {"intermediate_size", NULL, SHOALI_HUB_NEEDED, "ffn-hidden-size", 0, NULL},       \
        {"vocab_size", NULL, SHOALI_HUB_NEEDED, "vocab-size", 0, NULL},                   \
        {"max_position_embeddings", NULL,      SHOALI_HUB_TAKEN,                          \
         "max-position-embeddings", positions, NULL},                                     \
        {"rms_norm_eps", NULL, SHOALI_HUB_TAKEN, "norm-epsilon", 1e-6, NULL},             \
        {"initializer_range", NULL, SHOALI_HUB_TAKEN, "init-method-std", 0.02, NULL},     \
        {"attention_dropout", NULL, SHOALI_HUB_TAKEN, "attention-dropout", 0, NULL},      \
        {"tie_word_embeddings",                                                           \
         NULL,                                                                            \
         SHOALI_HUB_NOT,                                                                  \
         "untie-embeddings-and-output-weights",                                           \
         tied,                                                                            \
         NULL},                                                                           \
        {"num_key_value_heads", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},                     \
        {"hidden_act", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},                              \
        {"rope_theta", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},                              \
        {"rope_scaling", "rope_parameters", SHOALI_HUB_OWN, NULL, 0, NULL},               \
        {"partial_rotary_factor", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},                   \
        {"layer_types", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},                             \
        {"pretraining_tp", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},                       \
    {                                                                                     \
        "max_sequence_length", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL                     \
    }

static const struct shoali_hub_key llama_keys[] = {
    SHARED(2048, 0),
    {"head_dim", NULL, SHOALI_HUB_TAKEN, "kv-channels", 0, NULL},
    {"attention_bias", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"mlp_bias", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"activation", NULL, SHOALI_HUB_ONLY, NULL, 0, "\"swiglu\""},
};
static const struct shoali_hub_key mistral_keys[] = {
    SHARED(131072, 0),
    {"head_dim", NULL, SHOALI_HUB_TAKEN, "kv-channels", 0, NULL},
    {"sliding_window", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
};
static const struct shoali_hub_key qwen2_keys[] = {
    SHARED(32768, 0),
    {"head_dim", NULL, SHOALI_HUB_TAKEN, "kv-channels", 0, NULL},
    {"use_sliding_window", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"sliding_window", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"max_window_layers", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"use_mrope", NULL, SHOALI_HUB_ONLY, NULL, 0, "false"},
};
static const struct shoali_hub_key qwen3_keys[] = {
    SHARED(32768, 0),
    {"head_dim", NULL, SHOALI_HUB_TAKEN, "kv-channels", 128, NULL},
    {"attention_bias", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"use_sliding_window", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"sliding_window", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"max_window_layers", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
};
static const struct shoali_hub_key gemma_keys[] = {
    SHARED(8192, 1),
    {"head_dim", NULL, SHOALI_HUB_TAKEN, "kv-channels", 256, NULL},
    {"attention_bias", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"hidden_activation", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"use_bidirectional_attention", NULL, SHOALI_HUB_ONLY, NULL, 0, "false"},
};

/* ---- options that config.json does not have ------------------------------------------------- */

#define NO_OTHERS                                                                 \
    {"squared-relu", 0}, {"rotary-interleaved", 0}, {"window-attn-skip-freq", 0}, \
        {"normalization", RMS_NORM}, {"position-embedding-type", ROPE},           \
    {                                                                             \
        "hidden-dropout", 0                                                       \
    }
/* In the order of the model's choices; hub_test.c compares. */
enum { RMS_NORM = 1, ROPE = 1 };

static const struct shoali_hub_fixed llama_fixed[] = {NO_OTHERS,
                                                      {"apply-layernorm-1p", 0},
                                                      {"embedding-multiplier", 1},
                                                      {"qk-layernorm", 0},
                                                      {"window-size", 0}};
static const struct shoali_hub_fixed mistral_fixed[] = {NO_OTHERS,
                                                        {"apply-layernorm-1p", 0},
                                                        {"embedding-multiplier", 1},
                                                        {"qk-layernorm", 0},
                                                        {"disable-bias-linear", 1},
                                                        {"add-qkv-bias", 0},
                                                        {"add-attention-output-bias", 0}};
static const struct shoali_hub_fixed qwen2_fixed[] = {NO_OTHERS,
                                                      {"apply-layernorm-1p", 0},
                                                      {"embedding-multiplier", 1},
                                                      {"qk-layernorm", 0},
                                                      {"disable-bias-linear", 1},
                                                      {"add-qkv-bias", 1},
                                                      {"add-attention-output-bias", 0}};
static const struct shoali_hub_fixed qwen3_fixed[] = {NO_OTHERS,
                                                      {"apply-layernorm-1p", 0},
                                                      {"embedding-multiplier", 1},
                                                      {"qk-layernorm", 1},
                                                      {"disable-bias-linear", 1}};
static const struct shoali_hub_fixed gemma_fixed[] = {
    NO_OTHERS,          {"apply-layernorm-1p", 1},  {"qk-layernorm", 0},
    {"window-size", 0}, {"disable-bias-linear", 1}, {"swiglu", 0},
    {"geglu", 1},       {"openai-gelu", 1}};
/* Options that the functions of all these families see to. */
#define SEEN                                                                                      \
    "group-query-attention", "num-query-groups", "swiglu", "geglu", "openai-gelu", "rotary-base", \
        "rotary-percent", "rotary-seq-len-interpolation-factor", "use-rope-scaling",              \
        "rope-scaling-factor", "rope-scaling-low-freq-factor", "rope-scaling-high-freq-factor",   \
        "rope-scaling-original-max-position", "disable-bias-linear", "add-qkv-bias",              \
        "add-attention-output-bias"
static const char *const seen[] = {SEEN, "window-size", "embedding-multiplier", NULL};
static const char *const llama_seen[] = {SEEN, "add-mlp-bias", NULL};

/* ---- reading -------------------------------------------------------------------------------- */

/* A key of true or false that is not there, or null, is false. */
static shoal_status check_bool(const struct shoali_hub_reader *reader, const char *key)
{
    const json_t *value = shoali_hub_get(reader, key);
    if (!value || json_is_boolean(value))
        return SHOAL_OK;
    return shoali_hub_refuse(reader, key, value, "it must be true or false");
}

/* Biases of all linear layers, of attention's, of the feed-forward part's, or none. */
static shoal_status read_biases(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *attention = shoali_hub_get(reader, "attention_bias");
    const json_t *mlp = shoali_hub_get(reader, "mlp_bias");
    SHOAL_TRY(status, check_bool(reader, "attention_bias"), done);
    SHOAL_TRY(status, check_bool(reader, "mlp_bias"), done);
    const bool all = json_is_true(mlp) && json_is_true(attention);
    const bool some = json_is_true(attention) && !all;
    SHOAL_TRY(status, shoali_hub_set(reader, "mlp_bias", "disable-bias-linear", !all), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "mlp_bias", "add-mlp-bias", json_is_true(mlp) && !all),
              done);
    SHOAL_TRY(status, shoali_hub_set(reader, "attention_bias", "add-qkv-bias", some), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "attention_bias", "add-attention-output-bias", some),
              done);
done:
    return status;
}

/* ---- the window ---- */

/* transformers takes 4096 where the key is not there, and no window for null. */
static shoal_status read_mistral_window(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *value = json_object_get(reader->root, "sliding_window");
    bool sliding = value == NULL || !json_is_null(value);
    SHOAL_TRY(status, shoali_hub_read_layer_types(reader, &sliding), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "sliding_window", "window-size", 4096), done);
    SHOAL_TRY(status, shoali_hub_read_window(reader, sliding), done);
done:
    return status;
}

/* Qwen: layers from max_window_layers on, if use_sliding_window. */
static shoal_status read_qwen_window(struct shoali_hub_reader *reader)
{
    shoal_status status = SHOAL_OK;
    const bool used = json_is_true(json_object_get(reader->root, "use_sliding_window"));
    const json_t *first = shoali_hub_get(reader, "max_window_layers");
    SHOAL_TRY(status, check_bool(reader, "use_sliding_window"), done);
    if (first && !json_is_number(first))
        return shoali_hub_refuse(reader, "max_window_layers", first, "it must be a number");
    const double from = first ? json_number_value(first) : 28;
    bool sliding = used && from < shoali_hub_option(reader->config, "num-layers");
    if (sliding && from > 0 && !shoali_hub_get(reader, "layer_types"))
        return shoali_hub_refuse(reader, "max_window_layers", first,
                                 "so only some layers have a window, which is not computed");
    if (used)
        SHOAL_TRY(status, shoali_hub_read_layer_types(reader, &sliding), done);
    else
        SHOAL_TRY(status, shoali_hub_refuse_sliding(reader, "and use_sliding_window is not true"),
                  done);
    SHOAL_TRY(status, shoali_hub_set(reader, "sliding_window", "window-size", sliding ? 4096 : 0),
              done);
    if (sliding)
        SHOAL_TRY(status, shoali_hub_read_window(reader, true), done);
done:
    return status;
}

/* ---- families ---- */

static shoal_status read_shared(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_hub_read_heads(reader, "num_key_value_heads"), done);
    SHOAL_TRY(status, shoali_hub_read_positions(reader), done);
done:
    return status;
}

static shoal_status read_llama(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, shoali_hub_read_activation(reader, "hidden_act", "silu", true), done);
    SHOAL_TRY(status, read_biases(reader), done);
    SHOAL_TRY(status, shoali_hub_refuse_sliding(reader, "and a llama has no window"), done);
done:
    return status;
}

static shoal_status read_mistral(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, shoali_hub_read_activation(reader, "hidden_act", "silu", true), done);
    SHOAL_TRY(status, read_mistral_window(reader), done);
done:
    return status;
}

static shoal_status read_qwen2(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, shoali_hub_read_activation(reader, "hidden_act", "silu", true), done);
    SHOAL_TRY(status, read_qwen_window(reader), done);
done:
    return status;
}

static shoal_status read_qwen3(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_qwen2(reader), done);
    SHOAL_TRY(status, read_biases(reader), done);
done:
    return status;
}

/* hidden_act of the first published files says gelu and means the form with tanh, as later ones say
 * in hidden_activation. */
static shoal_status read_gemma(struct shoali_hub_reader *reader)
{
    static const char *const tanh_names[] = {"gelu_pytorch_tanh", "gelu", "gelu_new", NULL};
    static const char *const acts[] = {"hidden_activation", "hidden_act"};
    shoal_status status;
    const double hidden = shoali_hub_option(reader->config, "hidden-size");
    for (int i = 0; i < 2; i++) {
        const json_t *act = shoali_hub_get(reader, acts[i]);
        if (act &&
            !(json_is_string(act) && shoali_hub_is_one_of(json_string_value(act), tanh_names)))
            return shoali_hub_refuse(reader, acts[i], act,
                                     "and only gelu_pytorch_tanh is computed");
    }
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, read_biases(reader), done);
    SHOAL_TRY(status, shoali_hub_refuse_sliding(reader, "and a gemma has no window"), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "hidden_size", "embedding-multiplier", sqrt(hidden)),
              done);
done:
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

static double option(const struct shoali_hub_writer *writer, const char *name)
{
    return shoali_hub_option(writer->config, name);
}

static void write_shared(struct shoali_hub_writer *writer)
{
    shoali_hub_put(writer, "num_key_value_heads",
                   json_integer((json_int_t)option(writer, "num-query-groups")));
    shoali_hub_put(writer, "hidden_act", json_string(shoali_hub_activation_name(writer->config)));
    shoali_hub_write_positions(writer);
}

static bool attention_biased(const struct shoali_hub_writer *writer)
{
    return option(writer, "add-qkv-bias") != 0 || option(writer, "disable-bias-linear") == 0;
}

static void write_llama(struct shoali_hub_writer *writer)
{
    write_shared(writer);
    shoali_hub_put(writer, "attention_bias", json_boolean(attention_biased(writer)));
    shoali_hub_put(writer, "mlp_bias",
                   json_boolean(option(writer, "disable-bias-linear") == 0 ||
                                option(writer, "add-mlp-bias") != 0));
}

static void write_mistral(struct shoali_hub_writer *writer)
{
    write_shared(writer);
    shoali_hub_put(writer, "sliding_window", shoali_hub_window(writer->config));
}

/* Whether the folder that the model came from has a window. */
static bool has_window(const struct shoali_hub_writer *writer)
{
    const json_t *first = json_object_get(writer->source, "max_window_layers");
    const double from = json_is_number(first) ? json_number_value(first) : 28;
    return json_is_true(json_object_get(writer->source, "use_sliding_window")) &&
           from < option(writer, "num-layers");
}

static void write_qwen2(struct shoali_hub_writer *writer)
{
    static const char *const keys[] = {"use_sliding_window", "sliding_window", "max_window_layers"};
    const bool window = option(writer, "window-size") > 0;
    write_shared(writer);
    shoali_hub_put(writer, "sliding_window", shoali_hub_window(writer->config));
    shoali_hub_put(writer, "use_sliding_window", json_boolean(window));
    shoali_hub_put(writer, "max_window_layers", json_integer(0));
    /* keys that say in other words that there is no window */
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !window && !has_window(writer); i++)
        if (json_object_get(writer->source, keys[i]))
            shoali_hub_put(writer, keys[i], json_incref(json_object_get(writer->source, keys[i])));
}

static void write_qwen3(struct shoali_hub_writer *writer)
{
    write_qwen2(writer);
    shoali_hub_put(writer, "attention_bias", json_boolean(attention_biased(writer)));
}

static void write_gemma(struct shoali_hub_writer *writer)
{
    write_shared(writer);
    shoali_hub_put(writer, "attention_bias", json_boolean(attention_biased(writer)));
    shoali_hub_put(writer, "hidden_activation", json_string("gelu_pytorch_tanh"));
}

/* ---- what each can say ---------------------------------------------------------------------- */

/* A gate; biases of q, k, v and of what is behind attention, or of neither. */
static bool says_shared(const shoal_model_config *config)
{
    const bool gated =
        shoali_hub_option(config, "swiglu") != 0 || shoali_hub_option(config, "geglu") != 0;
    return gated && shoali_hub_option(config, "add-qkv-bias") ==
                        shoali_hub_option(config, "add-attention-output-bias");
}

static bool says_gated(const shoal_model_config *config)
{
    return shoali_hub_option(config, "swiglu") != 0 || shoali_hub_option(config, "geglu") != 0;
}

static bool says_gemma(const shoal_model_config *config)
{
    const double hidden = shoali_hub_option(config, "hidden-size");
    return says_shared(config) && shoali_hub_option(config, "embedding-multiplier") == sqrt(hidden);
}

#define FAMILY(name, word, class, seen_it, says_it)      \
    const struct shoali_hub_family shoali_hub_##name = { \
        .type = word,                                    \
        .row = "llama",                                  \
        .architecture = class,                           \
        .keys = SHOALI_HUB_KEYS(name##_keys),            \
        .fixed = SHOALI_HUB_KEYS(name##_fixed),          \
        .seen = seen_it,                                 \
        .read = read_##name,                             \
        .write = write_##name,                           \
        .says = says_it,                                 \
    }
FAMILY(llama, "llama", "LlamaForCausalLM", llama_seen, says_shared);
FAMILY(mistral, "mistral", "MistralForCausalLM", seen, says_gated);
FAMILY(qwen2, "qwen2", "Qwen2ForCausalLM", seen, says_gated);
FAMILY(qwen3, "qwen3", "Qwen3ForCausalLM", seen, says_shared);
FAMILY(gemma, "gemma", "GemmaForCausalLM", seen, says_gemma);
