/* Decoders of which each is one row: keys, options that config.json does not have, and what
 * decoder.c does for all of them. */
#include "hub/hub.h"

#include <jansson.h>
#include <math.h>

/* In the order of the model's choices; hub_test.c compares. */
enum { LAYER_NORM, RMS_NORM };
enum { LEARNED, ROPE };
enum {
    LLAMA,
    PHI,
    PHI3,
    STARCODER2,
    GPT_NEOX,
    GPTJ,
    FALCON,
    FALCON_LN2,
    OPT,
    INTERNLM2,
    GPT_BIGCODE
};

/* ---- keys ----------------------------------------------------------------------------------- */

#define TAKEN(key, option, absent)                        \
    {                                                     \
        key, NULL, SHOALI_HUB_TAKEN, option, absent, NULL \
    }
#define NEEDED(key, option)                           \
    {                                                 \
        key, NULL, SHOALI_HUB_NEEDED, option, 0, NULL \
    }
#define NOT(key, option, absent)                        \
    {                                                   \
        key, NULL, SHOALI_HUB_NOT, option, absent, NULL \
    }
#define ONLY(key, value)                           \
    {                                              \
        key, NULL, SHOALI_HUB_ONLY, NULL, 0, value \
    }
#define OWN(key)                                 \
    {                                            \
        key, NULL, SHOALI_HUB_OWN, NULL, 0, NULL \
    }
#define PASSED(key)                                 \
    {                                               \
        key, NULL, SHOALI_HUB_PASSED, NULL, 0, NULL \
    }
#define DROPOUT(key)                                             \
    {                                                            \
        key, NULL, SHOALI_HUB_DROPOUT, "hidden-dropout", 0, NULL \
    }
/* One key for the biases of q, k, v and for that behind attention. */
#define ATTENTION_BIAS(absent)                       \
    TAKEN("attention_bias", "add-qkv-bias", absent), \
        TAKEN("attention_bias", "add-attention-output-bias", absent)
#define ROPE_KEYS                                                                          \
    OWN("rope_theta"), {"rope_scaling", "rope_parameters", SHOALI_HUB_OWN, NULL, 0, NULL}, \
        OWN("partial_rotary_factor"), OWN("layer_types")

/* What nearly all have. `tied`: of tie_word_embeddings where it is not there. */
#define SIZES(positions, tied)                                                                    \
    NEEDED("hidden_size", "hidden-size"), NEEDED("num_hidden_layers", "num-layers"),              \
        NEEDED("num_attention_heads", "num-attention-heads"), NEEDED("vocab_size", "vocab-size"), \
        TAKEN("max_position_embeddings", "max-position-embeddings", positions),                   \
        TAKEN("initializer_range", "init-method-std", 0.02),                                      \
        TAKEN("attention_dropout", "attention-dropout", 0),                                       \
        NOT("tie_word_embeddings", "untie-embeddings-and-output-weights", tied),                  \
        PASSED("pretraining_tp"), PASSED("max_sequence_length")
#define SHARED(positions, tied)                                             \
    SIZES(positions, tied), NEEDED("intermediate_size", "ffn-hidden-size"), \
        OWN("num_key_value_heads"), OWN("hidden_act"), ROPE_KEYS

static const struct shoali_hub_key nemotron_keys[] = {SHARED(4096, 0),
                                                      TAKEN("head_dim", "kv-channels", 0),
                                                      TAKEN("norm_eps", "norm-epsilon", 1e-5),
                                                      ATTENTION_BIAS(0),
                                                      TAKEN("mlp_bias", "add-mlp-bias", 0),
                                                      TAKEN("rope_percent", "rotary-percent", 0.5),
                                                      PASSED("kv_channels"),
                                                      PASSED("layer_norm_eps")};
static const struct shoali_hub_key phi_keys[] = {SHARED(2048, 0),
                                                 TAKEN("layer_norm_eps", "norm-epsilon", 1e-5),
                                                 TAKEN("resid_pdrop", "hidden-dropout", 0),
                                                 DROPOUT("embd_pdrop"),
                                                 ONLY("qk_layernorm", "false"),
                                                 PASSED("rotary_dim")};
static const struct shoali_hub_key phi3_keys[] = {SHARED(4096, 0),
                                                  TAKEN("rms_norm_eps", "norm-epsilon", 1e-5),
                                                  TAKEN("resid_pdrop", "hidden-dropout", 0),
                                                  DROPOUT("embd_pdrop"),
                                                  OWN("sliding_window"),
                                                  ONLY("attention_bias", "false"),
                                                  PASSED("full_attn_mod"),
                                                  PASSED("interpolate_factor"),
                                                  PASSED("original_max_position_embeddings")};
static const struct shoali_hub_key olmo_keys[] = {SHARED(2048, 0), ATTENTION_BIAS(0),
                                                  ONLY("clip_qkv", "null")};
static const struct shoali_hub_key olmo2_keys[] = {
    SHARED(2048, 0), TAKEN("rms_norm_eps", "norm-epsilon", 1e-5), ATTENTION_BIAS(0)};
static const struct shoali_hub_key granite_keys[] = {
    SHARED(2048, 0),
    TAKEN("rms_norm_eps", "norm-epsilon", 1e-6),
    ATTENTION_BIAS(0),
    TAKEN("mlp_bias", "add-mlp-bias", 0),
    TAKEN("embedding_multiplier", "embedding-multiplier", 1),
    TAKEN("attention_multiplier", "softmax-scale", 1),
    TAKEN("residual_multiplier", "residual-multiplier", 1),
    {"logits_scaling", NULL, SHOALI_HUB_INVERSE, "logits-multiplier", 1, NULL}};
static const struct shoali_hub_key stablelm_keys[] = {
    SHARED(4096, 0),
    TAKEN("layer_norm_eps", "norm-epsilon", 1e-5),
    TAKEN("use_qkv_bias", "add-qkv-bias", 0),
    TAKEN("use_parallel_residual", "use-parallel-residual", 0),
    TAKEN("use_parallel_residual", "shared-input-norm", 0),
    TAKEN("hidden_dropout", "hidden-dropout", 0),
    TAKEN("rope_pct", "rotary-percent", 0.25),
    ONLY("rotary_scaling_factor", "1.0"),
    PASSED("norm_eps"),
    PASSED("num_heads"),
    ONLY("qk_layernorm", "false")};
static const struct shoali_hub_key smollm3_keys[] = {SHARED(32768, 1),
                                                     TAKEN("rms_norm_eps", "norm-epsilon", 1e-6),
                                                     ATTENTION_BIAS(0),
                                                     TAKEN("mlp_bias", "add-mlp-bias", 0),
                                                     OWN("no_rope_layers"),
                                                     OWN("no_rope_layer_interval"),
                                                     ONLY("use_sliding_window", "false"),
                                                     ONLY("sliding_window", "null"),
                                                     PASSED("max_window_layers")};
static const struct shoali_hub_key cohere_keys[] = {
    SHARED(8192, 1), TAKEN("layer_norm_eps", "norm-epsilon", 1e-5), ATTENTION_BIAS(0),
    TAKEN("logit_scale", "logits-multiplier", 0.0625), ONLY("use_qk_norm", "false")};
static const struct shoali_hub_key gpt_neox_keys[] = {
    SIZES(2048, 0),
    NEEDED("intermediate_size", "ffn-hidden-size"),
    OWN("hidden_act"),
    ROPE_KEYS,
    TAKEN("layer_norm_eps", "norm-epsilon", 1e-5),
    TAKEN("hidden_dropout", "hidden-dropout", 0),
    TAKEN("use_parallel_residual", "use-parallel-residual", 1),
    TAKEN("attention_bias", "add-qkv-bias", 1),
    TAKEN("attention_bias", "add-attention-output-bias", 1),
    {"rotary_pct", NULL, SHOALI_HUB_TAKEN, "rotary-percent", 0.25, NULL},
    {"rotary_emb_base", NULL, SHOALI_HUB_TAKEN, "rotary-base", 10000, NULL},
    {"attention_probs_dropout_prob", NULL, SHOALI_HUB_DROPOUT, "attention-dropout", 0, NULL},
    DROPOUT("hidden_dropout_prob"),
    PASSED("classifier_dropout")};
static const struct shoali_hub_key gptj_keys[] = {
    NEEDED("n_embd", "hidden-size"),
    NEEDED("n_layer", "num-layers"),
    NEEDED("n_head", "num-attention-heads"),
    NEEDED("vocab_size", "vocab-size"),
    TAKEN("n_positions", "max-position-embeddings", 2048),
    TAKEN("n_inner", "ffn-hidden-size", 0),
    TAKEN("attn_pdrop", "attention-dropout", 0),
    TAKEN("resid_pdrop", "hidden-dropout", 0),
    DROPOUT("embd_pdrop"),
    TAKEN("initializer_range", "init-method-std", 0.02),
    TAKEN("layer_norm_epsilon", "norm-epsilon", 1e-5),
    ONLY("tie_word_embeddings", "false"),
    OWN("activation_function"),
    OWN("rotary_dim"),
    ONLY("rotary", "true"),
    ONLY("scale_attn_weights", "true"),
    PASSED("n_ctx"),
    PASSED("summary_type"),
    PASSED("summary_use_proj"),
    PASSED("summary_activation"),
    PASSED("summary_proj_to_labels"),
    PASSED("summary_first_dropout")};
static const struct shoali_hub_key opt_keys[] = {
    NEEDED("hidden_size", "hidden-size"),
    NEEDED("num_hidden_layers", "num-layers"),
    NEEDED("num_attention_heads", "num-attention-heads"),
    NEEDED("vocab_size", "vocab-size"),
    TAKEN("ffn_dim", "ffn-hidden-size", 3072),
    TAKEN("max_position_embeddings", "max-position-embeddings", 2048),
    TAKEN("init_std", "init-method-std", 0.02),
    TAKEN("attention_dropout", "attention-dropout", 0),
    TAKEN("dropout", "hidden-dropout", 0.1),
    NOT("tie_word_embeddings", "untie-embeddings-and-output-weights", 1),
    NOT("enable_bias", "disable-bias-linear", 1),
    OWN("activation_function"),
    OWN("word_embed_proj_dim"),
    ONLY("do_layer_norm_before", "true"),
    ONLY("layer_norm_elementwise_affine", "true"),
    ONLY("_remove_final_layer_norm", "false"),
    ONLY("learned_embeddings", "true"),
    ONLY("scale_embeddings", "false"),
    PASSED("activation_dropout"),
    PASSED("layerdrop")};
static const struct shoali_hub_key starcoder2_keys[] = {
    SHARED(4096, 1),
    TAKEN("norm_epsilon", "norm-epsilon", 1e-5),
    NOT("use_bias", "disable-bias-linear", 1),
    TAKEN("residual_dropout", "hidden-dropout", 0),
    DROPOUT("embedding_dropout"),
    OWN("sliding_window"),
    ONLY("mlp_type", "\"default\""),
    ONLY("norm_type", "\"layer_norm\""),
    ONLY("scale_attn_weights", "true"),
    PASSED("activation_function"),
    PASSED("layer_norm_epsilon")};
static const struct shoali_hub_key internlm2_keys[] = {
    SHARED(32768, 0), TAKEN("rms_norm_eps", "norm-epsilon", 1e-6), TAKEN("bias", "add-qkv-bias", 1),
    TAKEN("bias", "add-attention-output-bias", 1)};

static const struct shoali_hub_key gpt_bigcode_keys[] = {
    NEEDED("n_embd", "hidden-size"),
    NEEDED("n_layer", "num-layers"),
    NEEDED("n_head", "num-attention-heads"),
    NEEDED("vocab_size", "vocab-size"),
    TAKEN("n_positions", "max-position-embeddings", 1024),
    TAKEN("n_inner", "ffn-hidden-size", 0),
    TAKEN("attn_pdrop", "attention-dropout", 0.1),
    TAKEN("resid_pdrop", "hidden-dropout", 0.1),
    DROPOUT("embd_pdrop"),
    TAKEN("initializer_range", "init-method-std", 0.02),
    TAKEN("layer_norm_epsilon", "norm-epsilon", 1e-5),
    NOT("tie_word_embeddings", "untie-embeddings-and-output-weights", 1),
    OWN("activation_function"),
    OWN("multi_query"),
    PASSED("num_key_value_heads"),
    ONLY("scale_attn_weights", "true"),
    PASSED("attention_softmax_in_fp32"),
    PASSED("scale_attention_softmax_in_fp32"),
    PASSED("inference_runner"),
    PASSED("max_batch_size"),
    PASSED("max_sequence_length"),
    PASSED("n_ctx"),
    PASSED("pad_key_length"),
    PASSED("pre_allocate_kv_cache"),
    PASSED("summary_activation"),
    PASSED("summary_first_dropout"),
    PASSED("summary_proj_to_labels"),
    PASSED("summary_type"),
    PASSED("summary_use_proj"),
    PASSED("validate_runner_input")};
static const struct shoali_hub_key arcee_keys[] = {
    SHARED(4096, 0), TAKEN("head_dim", "kv-channels", 0),
    TAKEN("rms_norm_eps", "norm-epsilon", 1e-5), ATTENTION_BIAS(0),
    TAKEN("mlp_bias", "add-mlp-bias", 0)};
static const struct shoali_hub_key helium_keys[] = {
    SHARED(4096, 0), TAKEN("head_dim", "kv-channels", 128),
    TAKEN("rms_norm_eps", "norm-epsilon", 1e-8), TAKEN("attention_bias", "add-qkv-bias", 0),
    ONLY("mlp_bias", "false")};
static const struct shoali_hub_key ernie4_5_keys[] = {
    SHARED(131072, 1), TAKEN("head_dim", "kv-channels", 128),
    TAKEN("rms_norm_eps", "norm-epsilon", 1e-5), NOT("use_bias", "disable-bias-linear", 0),
    ONLY("compression_ratio", "1.0")};

/* ---- options that config.json does not have ------------------------------------------------- */

#define FIXED(option, value) \
    {                        \
        option, value        \
    }
static const struct shoali_hub_fixed rms_fixed[] = {FIXED("normalization", RMS_NORM),
                                                    FIXED("position-embedding-type", ROPE)};
static const struct shoali_hub_fixed layer_norm_fixed[] = {FIXED("normalization", LAYER_NORM),
                                                           FIXED("position-embedding-type", ROPE)};
static const struct shoali_hub_fixed nemotron_fixed[] = {FIXED("normalization", LAYER_NORM),
                                                         FIXED("position-embedding-type", ROPE),
                                                         FIXED("apply-layernorm-1p", 1)};
static const struct shoali_hub_fixed biased_fixed[] = {FIXED("normalization", LAYER_NORM),
                                                       FIXED("position-embedding-type", ROPE)};
static const struct shoali_hub_fixed phi_fixed[] = {
    FIXED("normalization", LAYER_NORM), FIXED("position-embedding-type", ROPE),
    FIXED("disable-bias-linear", 0),    FIXED("use-parallel-residual", 1),
    FIXED("shared-input-norm", 1),      FIXED("add-lm-head-bias", 1)};
static const struct shoali_hub_fixed olmo_fixed[] = {
    FIXED("normalization", LAYER_NORM), FIXED("position-embedding-type", ROPE),
    FIXED("norm-epsilon", 1e-5), FIXED("disable-norm-weight", 1)};
static const struct shoali_hub_fixed olmo2_fixed[] = {
    FIXED("normalization", RMS_NORM), FIXED("position-embedding-type", ROPE),
    FIXED("post-layernorm", 1), FIXED("qk-layernorm-whole", 1)};
static const struct shoali_hub_fixed cohere_fixed[] = {
    FIXED("normalization", LAYER_NORM), FIXED("position-embedding-type", ROPE),
    FIXED("disable-norm-bias", 1),      FIXED("use-parallel-residual", 1),
    FIXED("shared-input-norm", 1),      FIXED("rotary-interleaved", 1)};
static const struct shoali_hub_fixed gpt_neox_fixed[] = {FIXED("normalization", LAYER_NORM),
                                                         FIXED("position-embedding-type", ROPE),
                                                         FIXED("add-mlp-bias", 1)};
static const struct shoali_hub_fixed gptj_fixed[] = {
    FIXED("normalization", LAYER_NORM), FIXED("position-embedding-type", ROPE),
    FIXED("use-parallel-residual", 1),  FIXED("shared-input-norm", 1),
    FIXED("rotary-interleaved", 1),     FIXED("add-mlp-bias", 1),
    FIXED("add-lm-head-bias", 1)};
static const struct shoali_hub_fixed opt_fixed[] = {FIXED("normalization", LAYER_NORM),
                                                    FIXED("position-embedding-type", LEARNED),
                                                    FIXED("norm-epsilon", 1e-5)};
static const struct shoali_hub_fixed gpt_bigcode_fixed[] = {
    FIXED("normalization", LAYER_NORM), FIXED("position-embedding-type", LEARNED),
    FIXED("disable-bias-linear", 0)};
static const struct shoali_hub_fixed turned_fixed[] = {FIXED("normalization", RMS_NORM),
                                                       FIXED("position-embedding-type", ROPE),
                                                       FIXED("rotary-interleaved", 1)};
static const char *const smollm3_seen[] = {"no-rope-freq", NULL};
static const char *const gptj_seen[] = {"rotary-percent", NULL};

/* ---- what a row cannot say ------------------------------------------------------------------ */

/* Whether of every `period` layers the last has 0 in the list, and all others have 1. */
static bool is_periodic(const json_t *list, int64_t layers, int64_t period)
{
    for (int64_t i = 0; i < layers; i++) {
        const json_t *rope = json_array_get(list, (size_t)i);
        if (!json_is_integer(rope) || json_integer_value(rope) != ((i + 1) % period != 0))
            return false;
    }
    return (int64_t)json_array_size(list) == layers;
}

/* no_rope_layers has 1 where a layer has rope, and goes before the period. */
static shoal_status read_smollm3(struct shoali_hub_reader *reader)
{
    const json_t *list = shoali_hub_get(reader, "no_rope_layers");
    const json_t *interval = shoali_hub_get(reader, "no_rope_layer_interval");
    const int64_t layers = (int64_t)shoali_hub_option(reader->config, "num-layers");
    int64_t period = interval ? (int64_t)json_integer_value(interval) : 4;
    if (list && !json_is_array(list))
        return shoali_hub_refuse(reader, "no_rope_layers", list, "it must be a list");
    if (interval && period < 1)
        return shoali_hub_refuse(reader, "no_rope_layer_interval", interval,
                                 "it must be 1 or more");
    if (json_array_size(list) > 0 && !is_periodic(list, layers, period)) {
        period = 1;
        while (period <= layers && !is_periodic(list, layers, period))
            period++;
        if (!is_periodic(list, layers, period))
            return shoali_hub_refuse(reader, "no_rope_layers", list,
                                     "and only layers without rope at equal distances are "
                                     "computed");
        period = period > layers ? 0 : period;
    }
    return shoali_hub_set(reader, "no_rope_layers", "no-rope-freq", (double)period);
}

static void write_smollm3(struct shoali_hub_writer *writer)
{
    const int64_t period = (int64_t)shoali_hub_option(writer->config, "no-rope-freq");
    const int64_t layers = (int64_t)shoali_hub_option(writer->config, "num-layers");
    json_t *list = json_array();
    for (int64_t i = 0; i < layers; i++)
        writer->failed |=
            json_array_append_new(list, json_integer(period == 0 || (i + 1) % period != 0));
    shoali_hub_put(writer, "no_rope_layers", list);
    shoali_hub_put(writer, "no_rope_layer_interval",
                   json_integer(period > 0 ? period : layers + 1));
}

/* rotary_dim counts the elements of a head that are rotated. */
static shoal_status read_gptj(struct shoali_hub_reader *reader)
{
    const json_t *value = shoali_hub_get(reader, "rotary_dim");
    const double dim = value ? json_number_value(value) : 64;
    const double size = floor(shoali_hub_option(reader->config, "hidden-size") /
                              shoali_hub_option(reader->config, "num-attention-heads"));
    double part = dim / size;
    if (!(dim >= 2 && dim <= size) || (value && !json_is_integer(value)))
        return shoali_hub_refuse(reader, "rotary_dim", value,
                                 "it must be a number from 2 to the size of a head");
    if (part < 1 && floor(size * part) < dim)
        part = nextafter(part, 1);
    return shoali_hub_set(reader, "rotary_dim", "rotary-percent", part);
}

static void write_gptj(struct shoali_hub_writer *writer)
{
    const double size = shoali_hub_option(writer->config, "kv-channels");
    const double part = shoali_hub_option(writer->config, "rotary-percent");
    shoali_hub_put(writer, "rotary_dim", json_integer((json_int_t)floor(size * part)));
}

/* Embeddings of another width, which only the smallest OPT has. */
static shoal_status read_opt(struct shoali_hub_reader *reader)
{
    const json_t *width = shoali_hub_get(reader, "word_embed_proj_dim");
    if (width && json_number_value(width) != shoali_hub_option(reader->config, "hidden-size"))
        return shoali_hub_refuse(reader, "word_embed_proj_dim", width,
                                 "and only the value of `hidden_size` is computed");
    return SHOAL_OK;
}

static void write_opt(struct shoali_hub_writer *writer)
{
    const double hidden = shoali_hub_option(writer->config, "hidden-size");
    shoali_hub_put(writer, "word_embed_proj_dim", json_integer((json_int_t)hidden));
}

/* One head of keys and values, or as many as query heads. */
static shoal_status read_bigcode(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *value = shoali_hub_get(reader, "multi_query");
    const bool one = !value || json_is_true(value);
    const double heads = shoali_hub_option(reader->config, "num-attention-heads");
    if (value && !json_is_boolean(value))
        return shoali_hub_refuse(reader, "multi_query", value, "it must be true or false");
    SHOAL_TRY(status,
              shoali_hub_set(reader, "multi_query", "group-query-attention", one && heads > 1),
              done);
    SHOAL_TRY(status, shoali_hub_set(reader, "multi_query", "num-query-groups", one ? 1 : 0), done);
done:
    return status;
}

static void write_bigcode(struct shoali_hub_writer *writer)
{
    const double groups = shoali_hub_option(writer->config, "num-query-groups");
    shoali_hub_put(writer, "multi_query", json_boolean(groups == 1));
}

static bool says_bigcode(const shoal_model_config *config)
{
    const double groups = shoali_hub_option(config, "num-query-groups");
    return shoali_hub_option(config, "weight-names") == GPT_BIGCODE &&
           (groups == 1 || groups == shoali_hub_option(config, "num-attention-heads"));
}

/* ---- rows ----------------------------------------------------------------------------------- */

#define DECODER(...) (&(const struct shoali_hub_decoder){__VA_ARGS__})
#define HEADS .heads = "num_key_value_heads"
#define ACT(key, word) .activation = key, .activation_absent = word
#define FAMILY(name, word, class, fixed_rows, ...)                                            \
    const struct shoali_hub_family shoali_hub_##name = {.type = word,                         \
                                                        .row = "llama",                       \
                                                        .architecture = class,                \
                                                        .keys = SHOALI_HUB_KEYS(name##_keys), \
                                                        .fixed = SHOALI_HUB_KEYS(fixed_rows), \
                                                        __VA_ARGS__}

FAMILY(nemotron, "nemotron", "NemotronForCausalLM", nemotron_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "relu2"), .rope = true, .names = LLAMA,
                          .rotary_percent = 0.5));
FAMILY(phi, "phi", "PhiForCausalLM", phi_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "gelu_new"), .rope = true, .names = PHI,
                          .rotary_percent = 0.5));
FAMILY(phi3, "phi3", "Phi3ForCausalLM", rms_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .window = true, .names = PHI3));
FAMILY(olmo, "olmo", "OlmoForCausalLM", olmo_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA));
FAMILY(olmo2, "olmo2", "Olmo2ForCausalLM", olmo2_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA));
FAMILY(granite, "granite", "GraniteForCausalLM", rms_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA));
FAMILY(stablelm, "stablelm", "StableLmForCausalLM", layer_norm_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA, .rotary_percent = 0.25));
FAMILY(smollm3, "smollm3", "SmolLM3ForCausalLM", rms_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA, .rotary_base = 2000000),
       .seen = smollm3_seen, .read = read_smollm3, .write = write_smollm3);
FAMILY(cohere, "cohere", "CohereForCausalLM", cohere_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA, .rotary_base = 500000));
FAMILY(gpt_neox, "gpt_neox", "GPTNeoXForCausalLM", gpt_neox_fixed,
       .decoder = DECODER(ACT("hidden_act", "gelu"), .rope = true, .names = GPT_NEOX));
FAMILY(gptj, "gptj", "GPTJForCausalLM", gptj_fixed,
       .decoder = DECODER(ACT("activation_function", "gelu_new"), .names = GPTJ), .seen = gptj_seen,
       .read = read_gptj, .write = write_gptj);
FAMILY(opt, "opt", "OPTForCausalLM", opt_fixed,
       .decoder = DECODER(ACT("activation_function", "relu"), .names = OPT), .read = read_opt,
       .write = write_opt);
FAMILY(starcoder2, "starcoder2", "Starcoder2ForCausalLM", biased_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "gelu_pytorch_tanh"), .rope = true,
                          .window = true, .names = STARCODER2));
FAMILY(internlm2, "internlm2", "InternLM2ForCausalLM", rms_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = INTERNLM2));
FAMILY(gpt_bigcode, "gpt_bigcode", "GPTBigCodeForCausalLM", gpt_bigcode_fixed,
       .decoder = DECODER(ACT("activation_function", "gelu_pytorch_tanh"), .names = GPT_BIGCODE),
       .read = read_bigcode, .write = write_bigcode, .says = says_bigcode);
FAMILY(arcee, "arcee", "ArceeForCausalLM", rms_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "relu2"), .rope = true, .names = LLAMA));
FAMILY(helium, "helium", "HeliumForCausalLM", turned_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA, .rotary_base = 100000));
FAMILY(ernie4_5, "ernie4_5", "Ernie4_5ForCausalLM", turned_fixed,
       .decoder = DECODER(HEADS, ACT("hidden_act", "silu"), .gated = true, .rope = true,
                          .names = LLAMA, .rotary_base = 500000));
