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
static const char *const seen[] = {"group-query-attention",
                                   "num-query-groups",
                                   "swiglu",
                                   "geglu",
                                   "openai-gelu",
                                   "rotary-base",
                                   "rotary-percent",
                                   "rotary-seq-len-interpolation-factor",
                                   "use-rope-scaling",
                                   "rope-scaling-factor",
                                   "rope-scaling-low-freq-factor",
                                   "rope-scaling-high-freq-factor",
                                   "rope-scaling-original-max-position",
                                   "window-size",
                                   "disable-bias-linear",
                                   "add-qkv-bias",
                                   "add-attention-output-bias",
                                   "embedding-multiplier",
                                   NULL};

/* ---- reading -------------------------------------------------------------------------------- */

/* A number at a path; NULL: not there. */
static shoal_status read_number(struct shoali_hub_reader *reader, const json_t *object,
                                const char *place, const char *key, const char *option)
{
    char path[96];
    const json_t *value = json_object_get(object, key);
    snprintf(path, sizeof path, "%s%s%s", place, *place ? "." : "", key);
    if (!value || json_is_null(value))
        return SHOAL_OK;
    if (!json_is_number(value))
        return shoali_hub_refuse(reader, path, value, "it must be a number");
    return shoali_hub_set(reader, path, option, json_number_value(value));
}

/* Without the key, or with null, each query head has its own. */
static shoal_status read_heads(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *value = shoali_hub_get(reader, "num_key_value_heads");
    const double heads = shoali_hub_option(reader->config, "num-attention-heads");
    const bool shared = value && json_number_value(value) != heads;
    if (json_is_number(value) && json_number_value(value) < 1)
        return shoali_hub_refuse(reader, "num_key_value_heads", value, "it must be 1 or more");
    SHOAL_TRY(status,
              shoali_hub_set(reader, "num_key_value_heads", "group-query-attention", shared), done);
    SHOAL_TRY(status,
              read_number(reader, reader->root, "", "num_key_value_heads", "num-query-groups"),
              done);
done:
    return status;
}

struct activation {
    const char *name;
    bool silu, tanh_form;
};
static const struct activation activations[] = {
    {"silu", true, false},         {"swish", true, false},     {"gelu_pytorch_tanh", false, true},
    {"gelu_new", false, true},     {"gelu_fast", false, true}, {"gelu", false, false},
    {"gelu_python", false, false},
};

static shoal_status read_activation(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *value = shoali_hub_get(reader, "hidden_act");
    const char *name = value ? json_string_value(value) : "silu";
    const struct activation *found = NULL;
    for (size_t i = 0; name && i < sizeof activations / sizeof activations[0]; i++)
        if (strcmp(activations[i].name, name) == 0)
            found = &activations[i];
    if (!found)
        return shoali_hub_refuse(reader, "hidden_act", value,
                                 "and only silu, gelu and gelu_pytorch_tanh are computed");
    SHOAL_TRY(status, shoali_hub_set(reader, "hidden_act", "swiglu", found->silu), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "hidden_act", "geglu", !found->silu), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "hidden_act", "openai-gelu", found->tanh_form), done);
done:
    return status;
}

/* Biases of all linear layers, of those of attention, or of none. */
static shoal_status read_biases(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *attention = shoali_hub_get(reader, "attention_bias");
    const json_t *mlp = shoali_hub_get(reader, "mlp_bias");
    if (json_is_true(mlp) && !json_is_true(attention))
        return shoali_hub_refuse(reader, "mlp_bias", mlp,
                                 "which is computed with `attention_bias` alone");
    const bool all = json_is_true(mlp), some = json_is_true(attention) && !all;
    SHOAL_TRY(status, shoali_hub_set(reader, "mlp_bias", "disable-bias-linear", !all), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "attention_bias", "add-qkv-bias", some), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "attention_bias", "add-attention-output-bias", some),
              done);
done:
    return status;
}

/* ---- positions ---- */

/* What a scaling may say beside its type; NULL-terminated. */
static bool is_one_of(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0)
            return true;
    return false;
}

static shoal_status check_scaling_keys(const struct shoali_hub_reader *reader, json_t *scaling,
                                       const char *place, bool llama3)
{
    static const char *const always[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor",
                                         "factor",    NULL};
    static const char *const more[] = {"low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings", NULL};
    const char *key;
    json_t *value;
    char path[96];
    json_object_foreach(scaling, key, value)
    {
        snprintf(path, sizeof path, "%s.%.60s", place, key);
        if (!json_is_null(value) && !is_one_of(key, always) && !(llama3 && is_one_of(key, more)))
            return shoali_hub_refuse(reader, path, value,
                                     "and nothing is known of this key for such positions");
    }
    return SHOAL_OK;
}

static shoal_status read_llama3(struct shoali_hub_reader *reader, const json_t *scaling,
                                const char *place)
{
    static const char *const pairs[][2] = {
        {"factor", "rope-scaling-factor"},
        {"low_freq_factor", "rope-scaling-low-freq-factor"},
        {"high_freq_factor", "rope-scaling-high-freq-factor"},
        {"original_max_position_embeddings", "rope-scaling-original-max-position"},
    };
    shoal_status status;
    SHOAL_TRY(status, shoali_hub_set(reader, place, "use-rope-scaling", 1), done);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (!json_is_number(json_object_get(scaling, pairs[i][0])))
            return shoali_hub_refuse(reader, place, scaling,
                                     "and of type llama3 it needs numbers factor, low_freq_factor, "
                                     "high_freq_factor and original_max_position_embeddings");
        SHOAL_TRY(status, read_number(reader, scaling, place, pairs[i][0], pairs[i][1]), done);
    }
done:
    return status;
}

/* Old files: rope_theta and rope_scaling {type}; new ones: rope_parameters {rope_type, rope_theta}.
 * `dynamic` changes nothing up to max_position_embeddings, and no further is a text read. */
static shoal_status read_positions(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const char *place =
        shoali_hub_get(reader, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    json_t *scaling = json_object_get(reader->root, place);
    const json_t *named = json_object_get(scaling, "rope_type");
    const json_t *type = named ? named : json_object_get(scaling, "type");
    const char *name = type ? json_string_value(type) : "default";
    char path[64];
    SHOAL_TRY(status, read_number(reader, reader->root, "", "rope_theta", "rotary-base"), done);
    SHOAL_TRY(status,
              read_number(reader, reader->root, "", "partial_rotary_factor", "rotary-percent"),
              done);
    if (!scaling || json_is_null(scaling))
        return SHOAL_OK;
    if (!json_is_object(scaling))
        return shoali_hub_refuse(reader, place, scaling, "it must be an object {...}");
    SHOAL_TRY(status, read_number(reader, scaling, place, "rope_theta", "rotary-base"), done);
    SHOAL_TRY(status,
              read_number(reader, scaling, place, "partial_rotary_factor", "rotary-percent"), done);
    const bool llama3 = name && strcmp(name, "llama3") == 0;
    snprintf(path, sizeof path, "%s.%s", place, named ? "rope_type" : "type");
    if (name && strcmp(name, "linear") == 0)
        SHOAL_TRY(
            status,
            read_number(reader, scaling, place, "factor", "rotary-seq-len-interpolation-factor"),
            done);
    else if (llama3)
        SHOAL_TRY(status, read_llama3(reader, scaling, place), done);
    else if (!name || (strcmp(name, "default") != 0 && strcmp(name, "dynamic") != 0))
        return shoali_hub_refuse(reader, path, type,
                                 "and only default, linear, dynamic and llama3 are computed");
    SHOAL_TRY(status, check_scaling_keys(reader, scaling, place, llama3), done);
done:
    return status;
}

/* ---- the window ---- */

/* -1: some layers have it and some not; else how many have it, all or none. */
static int64_t sliding_layers(const json_t *types)
{
    int64_t sliding = 0;
    const int64_t count = (int64_t)json_array_size(types);
    for (int64_t i = 0; i < count; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        sliding += type && strcmp(type, "sliding_attention") == 0;
        if (!type ||
            (strcmp(type, "sliding_attention") != 0 && strcmp(type, "full_attention") != 0))
            return -1;
    }
    return sliding == 0 || sliding == count ? sliding : -1;
}

static shoal_status read_layer_types(struct shoali_hub_reader *reader, bool *sliding)
{
    const json_t *types = shoali_hub_get(reader, "layer_types");
    if (!types)
        return SHOAL_OK;
    const int64_t count = sliding_layers(types);
    if (count < 0)
        return shoali_hub_refuse(reader, "layer_types", types,
                                 "and only layers that are all full_attention or all "
                                 "sliding_attention are computed");
    *sliding = count > 0;
    return SHOAL_OK;
}

static shoal_status set_window(struct shoali_hub_reader *reader, bool sliding)
{
    if (!sliding)
        return shoali_hub_set(reader, "sliding_window", "window-size", 0);
    return read_number(reader, reader->root, "", "sliding_window", "window-size");
}

/* transformers takes 4096 where the key is not there, and no window for null. */
static shoal_status read_mistral_window(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *value = json_object_get(reader->root, "sliding_window");
    bool sliding = value == NULL || !json_is_null(value);
    SHOAL_TRY(status, read_layer_types(reader, &sliding), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "sliding_window", "window-size", 4096), done);
    SHOAL_TRY(status, set_window(reader, sliding), done);
done:
    return status;
}

/* Qwen: layers from max_window_layers on, if use_sliding_window. */
static shoal_status read_qwen_window(struct shoali_hub_reader *reader)
{
    shoal_status status = SHOAL_OK;
    const bool used = json_is_true(json_object_get(reader->root, "use_sliding_window"));
    const json_t *first = shoali_hub_get(reader, "max_window_layers");
    const double from = first ? json_number_value(first) : 28;
    bool sliding = used && from < shoali_hub_option(reader->config, "num-layers");
    if (sliding && from > 0 && !shoali_hub_get(reader, "layer_types"))
        return shoali_hub_refuse(reader, "max_window_layers", first,
                                 "so only some layers have a window, which is not computed");
    if (used)
        SHOAL_TRY(status, read_layer_types(reader, &sliding), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "sliding_window", "window-size", sliding ? 4096 : 0),
              done);
    if (sliding)
        SHOAL_TRY(status, set_window(reader, true), done);
done:
    return status;
}

/* ---- families ---- */

static shoal_status read_shared(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_heads(reader), done);
    SHOAL_TRY(status, read_positions(reader), done);
done:
    return status;
}

static shoal_status read_llama(struct shoali_hub_reader *reader)
{
    shoal_status status;
    bool sliding = false;
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, read_activation(reader), done);
    SHOAL_TRY(status, read_biases(reader), done);
    SHOAL_TRY(status, read_layer_types(reader, &sliding), done);
    if (sliding)
        status = shoali_hub_refuse(reader, "layer_types", shoali_hub_get(reader, "layer_types"),
                                   "and a llama has no window");
done:
    return status;
}

static shoal_status read_mistral(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, read_activation(reader), done);
    SHOAL_TRY(status, read_mistral_window(reader), done);
done:
    return status;
}

static shoal_status read_qwen2(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, read_activation(reader), done);
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
    shoal_status status;
    const char *key =
        shoali_hub_get(reader, "hidden_activation") ? "hidden_activation" : "hidden_act";
    const json_t *act = shoali_hub_get(reader, key);
    const double hidden = shoali_hub_option(reader->config, "hidden-size");
    if (act && !(json_is_string(act) && is_one_of(json_string_value(act), tanh_names)))
        return shoali_hub_refuse(reader, key, act, "and only gelu_pytorch_tanh is computed");
    SHOAL_TRY(status, read_shared(reader), done);
    SHOAL_TRY(status, read_biases(reader), done);
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

/* As old and new versions of transformers read it. */
static void write_positions(struct shoali_hub_writer *writer)
{
    const double linear = option(writer, "rotary-seq-len-interpolation-factor");
    const double part = option(writer, "rotary-percent");
    json_t *scaling = json_null();
    const bool llama3 = option(writer, "use-rope-scaling") != 0;
    if (linear > 0 && (linear != 1 || !llama3))
        scaling = json_pack("{s:s, s:f}", "rope_type", "linear", "factor", linear);
    else if (llama3)
        scaling = json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor",
                            option(writer, "rope-scaling-factor"), "low_freq_factor",
                            option(writer, "rope-scaling-low-freq-factor"), "high_freq_factor",
                            option(writer, "rope-scaling-high-freq-factor"),
                            "original_max_position_embeddings",
                            (json_int_t)option(writer, "rope-scaling-original-max-position"));
    shoali_hub_put(writer, "rope_theta", json_real(option(writer, "rotary-base")));
    shoali_hub_put(writer, "rope_scaling", scaling);
    if (part != 1)
        shoali_hub_put(writer, "partial_rotary_factor", json_real(part));
}

static const char *activation_name(const struct shoali_hub_writer *writer)
{
    return option(writer, "swiglu") != 0        ? "silu"
           : option(writer, "openai-gelu") != 0 ? "gelu_pytorch_tanh"
                                                : "gelu";
}

static void write_shared(struct shoali_hub_writer *writer)
{
    shoali_hub_put(writer, "num_key_value_heads",
                   json_integer((json_int_t)option(writer, "num-query-groups")));
    shoali_hub_put(writer, "hidden_act", json_string(activation_name(writer)));
    write_positions(writer);
}

static bool attention_biased(const struct shoali_hub_writer *writer)
{
    return option(writer, "add-qkv-bias") != 0 || option(writer, "disable-bias-linear") == 0;
}

static void write_llama(struct shoali_hub_writer *writer)
{
    write_shared(writer);
    shoali_hub_put(writer, "attention_bias", json_boolean(attention_biased(writer)));
    shoali_hub_put(writer, "mlp_bias", json_boolean(option(writer, "disable-bias-linear") == 0));
}

static json_t *window_json(const struct shoali_hub_writer *writer)
{
    const json_int_t window = (json_int_t)option(writer, "window-size");
    return window > 0 ? json_integer(window) : json_null();
}

static void write_mistral(struct shoali_hub_writer *writer)
{
    write_shared(writer);
    shoali_hub_put(writer, "sliding_window", window_json(writer));
}

static void write_qwen2(struct shoali_hub_writer *writer)
{
    write_shared(writer);
    shoali_hub_put(writer, "sliding_window", window_json(writer));
    shoali_hub_put(writer, "use_sliding_window", json_boolean(option(writer, "window-size") > 0));
    shoali_hub_put(writer, "max_window_layers", json_integer(0));
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

#define FAMILY(name, word, class, says_it)               \
    const struct shoali_hub_family shoali_hub_##name = { \
        .type = word,                                    \
        .row = "llama",                                  \
        .architecture = class,                           \
        .keys = SHOALI_HUB_KEYS(name##_keys),            \
        .fixed = SHOALI_HUB_KEYS(name##_fixed),          \
        .seen = seen,                                    \
        .read = read_##name,                             \
        .write = write_##name,                           \
        .says = says_it,                                 \
    }
FAMILY(llama, "llama", "LlamaForCausalLM", says_shared);
FAMILY(mistral, "mistral", "MistralForCausalLM", says_gated);
FAMILY(qwen2, "qwen2", "Qwen2ForCausalLM", says_gated);
FAMILY(qwen3, "qwen3", "Qwen3ForCausalLM", says_shared);
FAMILY(gemma, "gemma", "GemmaForCausalLM", says_gemma);
