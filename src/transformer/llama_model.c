/* Llama and its relatives: the row of the table. */
#include "transformer/llama.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const position_names[] = {"learned_absolute", "rope", "none", NULL};
static const char *const norm_names[] = {"LayerNorm", "RMSNorm", NULL};

#define OPTION(key, member, kind, ...)                                    \
    {                                                                     \
        .option = {.name = key, .type = SHOAL_MODEL_##kind, __VA_ARGS__}, \
        .offset = offsetof(struct shoali_llama_config, member),           \
    }
/* Configurations stored before there was such an option have the default. */
#define NEWER(key, member, kind, ...)                                          \
    {                                                                          \
        .option = {.name = key, .type = SHOAL_MODEL_##kind, __VA_ARGS__},      \
        .offset = offsetof(struct shoali_llama_config, member), .newer = true, \
    }
static const struct shoali_model_option options[] = {
    OPTION("num-layers", num_layers, INT, .required = true, .min = 1, .max = 100000,
           .help = "transformer layers"),
    OPTION("hidden-size", hidden_size, INT, .required = true, .min = 1, .max = 1 << 20,
           .help = "size of the hidden state of each token"),
    OPTION("num-attention-heads", num_attention_heads, INT, .required = true, .min = 1,
           .max = 1 << 20, .help = "query heads"),
    OPTION("seq-length", seq_length, INT, .required = true, .min = 1, .max = 1 << 20,
           .unit = "tokens", .help = "length of a training sample"),
    OPTION("max-position-embeddings", max_position_embeddings, INT, .min = 0, .max = 1 << 20,
           .unit = "tokens",
           .help = "longest sequence, and rows of a learned position embedding; 0: the sequence "
                   "length"),
    OPTION("group-query-attention", group_query_attention, BOOL,
           .help = "let query heads share --num-query-groups key and value heads"),
    OPTION("num-query-groups", num_query_groups, INT, .min = 0, .max = 1 << 20,
           .help = "key and value heads; needs --group-query-attention; 0: 1"),
    OPTION("kv-channels", kv_channels, INT, .min = 0, .max = 1 << 16,
           .help = "size of a head; 0: the hidden size divided by the heads"),
    OPTION("ffn-hidden-size", ffn_hidden_size, INT, .min = 0, .max = 1 << 24,
           .help = "inner size of the feed-forward layer; 0: four times the hidden size; with a "
                   "gate two thirds of that, rounded down to a multiple of 64"),
    OPTION("vocab-size", vocab_size, INT, .min = 0, .max = 1e9,
           .help = "size of the vocabulary; 0: as in the .tokens.json of the data files, 256 for "
                   "--mock-data; `shoal plan` takes it for any data, 0: counted in --data-path"),
    OPTION("make-vocab-size-divisible-by", make_vocab_size_divisible_by, INT, .default_value = 1,
           .min = 1, .max = 1 << 20,
           .help = "multiple to which the rows of the token embedding are padded"),
    OPTION("normalization", normalization, CHOICE, .default_value = SHOALI_NORM_RMS,
           .choices = norm_names, .help = "kind of norm; LayerNorm has biases"),
    OPTION("norm-epsilon", norm_epsilon, FLOAT, .default_value = 1e-5, .min = 0, .max = 1,
           .help = "epsilon of the norms"),
    OPTION("apply-layernorm-1p", apply_layernorm_1p, BOOL,
           .help = "store norm weights minus 1 (Gemma)"),
    OPTION("qk-layernorm", qk_layernorm, BOOL,
           .help = "normalize each query and key head before positions are applied (Qwen 3)"),
    OPTION("position-embedding-type", position_embedding_type, CHOICE,
           .default_value = SHOALI_POSITIONS_ROPE, .choices = position_names,
           .help = "kind of position embedding"),
    OPTION("rotary-base", rotary_base, FLOAT, .default_value = 10000, .min = 1, .max = 1e15,
           .help = "base of the rope frequencies (rope_theta)"),
    OPTION("rotary-percent", rotary_percent, FLOAT, .default_value = 1, .min = 0, .max = 1,
           .help = "fraction of each head that rope rotates"),
    OPTION("rotary-interleaved", rotary_interleaved, BOOL,
           .help = "let rope rotate pairs of neighbours; default: pairs of element i of each "
                   "half, as in published files"),
    OPTION("rotary-seq-len-interpolation-factor", rotary_seq_len_interpolation_factor, FLOAT,
           .min = 0, .max = 1e9, .help = "factor by which rope divides positions; 0: 1"),
    OPTION("use-rope-scaling", use_rope_scaling, BOOL,
           .help = "scale rope frequencies as Llama 3.1 and later do"),
    OPTION("rope-scaling-factor", rope_scaling_factor, FLOAT, .default_value = 8, .min = 1,
           .max = 1e9, .help = "divisor of low frequencies; for --use-rope-scaling"),
    OPTION("rope-scaling-low-freq-factor", rope_scaling_low_freq_factor, FLOAT, .default_value = 1,
           .min = 0, .max = 1e9,
           .help = "rotations in the original length below which a frequency is low; for "
                   "--use-rope-scaling"),
    OPTION("rope-scaling-high-freq-factor", rope_scaling_high_freq_factor, FLOAT,
           .default_value = 4, .min = 0, .max = 1e9,
           .help = "rotations in the original length above which a frequency is not scaled; for "
                   "--use-rope-scaling"),
    OPTION("rope-scaling-original-max-position", rope_scaling_original_max_position, INT,
           .default_value = 8192, .min = 1, .max = 1 << 20, .unit = "tokens",
           .help = "original sequence length; for --use-rope-scaling"),
    OPTION("window-size", window_size, INT, .min = 0, .max = 1 << 24, .unit = "tokens",
           .help = "sliding window: positions that a token attends to, its own included "
                   "(sliding_window); 0: all"),
    OPTION("window-attn-skip-freq", window_attn_skip_freq, INT, .min = 0, .max = 100000,
           .help = "period of layers that attend to all positions; 0: none; for --window-size"),
    OPTION("swiglu", swiglu, BOOL, .default_value = 1,
           .help = "use a SiLU gate in the "
                   "feed-forward layer"),
    OPTION("geglu", geglu, BOOL,
           .help = "use a GELU gate in the feed-forward layer (add --no-swiglu; --openai-gelu: "
                   "tanh form)"),
    OPTION("squared-relu", squared_relu, BOOL,
           .help = "use relu(x)^2 without a gate in the feed-forward layer (add --no-swiglu)"),
    OPTION("openai-gelu", openai_gelu, BOOL, .help = "use the tanh form of GELU (default: erf)"),
    OPTION("disable-bias-linear", disable_bias_linear, BOOL, .default_value = 1,
           .help = "leave biases out of linear layers"),
    OPTION("add-qkv-bias", add_qkv_bias, BOOL,
           .help = "add biases to queries, keys and values even without other biases (Qwen 2)"),
    OPTION("add-attention-output-bias", add_attention_output_bias, BOOL,
           .help = "add a bias to the output of attention even without other biases "
                   "(attention_bias; add --add-qkv-bias)"),
    OPTION("untie-embeddings-and-output-weights", untie_embeddings, BOOL, .default_value = 1,
           .help = "train an output matrix apart from the token embedding"),
    OPTION("embedding-multiplier", embedding_multiplier, FLOAT, .default_value = 1, .min = 0,
           .max = 1e9, .help = "factor of token embeddings (Gemma: sqrt(hidden size))"),
    OPTION("attention-dropout", attention_dropout, FLOAT,
           .help = "dropout probability of attention weights"),
    OPTION("hidden-dropout", hidden_dropout, FLOAT,
           .help = "dropout probability of embeddings and of each layer's output before the "
                   "residual addition"),
    OPTION("init-method-std", init_method_std, FLOAT, .default_value = 0.02, .min = 0, .max = 10,
           .help = "standard deviation of initial weights"),
    OPTION("cross-entropy-loss-fusion", cross_entropy_loss_fusion, BOOL, .lean = true,
           .help = "compute output matrix and loss in tiles of the vocabulary: saves the memory "
                   "of the logits, costs one more product with that matrix in the backward pass"),
    {.option = {.name = "label-smoothing",
                .type = SHOAL_MODEL_FLOAT,
                .help = "label smoothing of the training loss: probability taken from the target "
                        "and shared equally by all other tokens; validation uses none"},
     .offset = offsetof(struct shoali_llama_config, label_smoothing),
     .newer = true},
    NEWER("weight-names", weight_names, CHOICE, .choices = shoali_llama_layouts,
          .help = "names and order of the tensors in files: those that models of this type have at "
                  "Hugging Face"),
    NEWER("use-parallel-residual", use_parallel_residual, BOOL,
          .help = "add attention and feed-forward of the same input (GPT-NeoX, GPT-J, Phi)"),
    NEWER("shared-input-norm", shared_input_norm, BOOL,
          .help = "let attention and feed-forward share one norm; needs --use-parallel-residual "
                  "(GPT-J, Phi, Cohere)"),
    NEWER("post-layernorm", post_layernorm, BOOL,
          .help = "normalize what attention and feed-forward add, instead of what they read "
                  "(OLMo 2)"),
    NEWER("disable-norm-bias", disable_norm_bias, BOOL,
          .help = "leave the bias out of LayerNorm (Cohere)"),
    NEWER("disable-norm-weight", disable_norm_weight, BOOL,
          .help = "leave weight and bias out of the norms (OLMo)"),
    NEWER("qk-layernorm-whole", qk_layernorm_whole, BOOL,
          .help = "normalize all query heads together and all key heads together (OLMo 2)"),
    NEWER("softmax-scale", softmax_scale, FLOAT, .min = 0, .max = 1e9,
          .help = "factor of attention scores; 0: 1/sqrt(kv-channels) (Granite)"),
    NEWER("residual-multiplier", residual_multiplier, FLOAT, .default_value = 1, .min = 0,
          .max = 1e9, .help = "factor of what attention and feed-forward add (Granite)"),
    NEWER("logits-multiplier", logits_multiplier, FLOAT, .default_value = 1, .min = 0, .max = 1e9,
          .help = "factor of logits (Granite, Cohere)"),
    NEWER("no-rope-freq", no_rope_freq, INT, .min = 0, .max = 100000,
          .help = "period of layers without rope; 0: none (SmolLM3)"),
    NEWER("add-mlp-bias", add_mlp_bias, BOOL,
          .help = "add biases to the feed-forward layers even without other biases (GPT-J)"),
    NEWER("add-lm-head-bias", add_lm_head_bias, BOOL,
          .help = "add a bias to the output matrix (Phi, GPT-J)"),
    NEWER("relu", relu, BOOL,
          .help = "use max(x, 0) without a gate in the feed-forward layer (add --no-swiglu; OPT)"),
};

/* As published: sizes, epsilon, base, window; sequences as long as they were trained with, or
 * 8192. */
#define LLAMA(layers, hidden, heads, groups, ffn, vocab, ...)                              \
    (&(const struct shoali_llama_config){.num_layers = (layers),                           \
                                         .hidden_size = (hidden),                          \
                                         .num_attention_heads = (heads),                   \
                                         .group_query_attention = (groups) > 0,            \
                                         .num_query_groups = (groups),                     \
                                         .ffn_hidden_size = (ffn),                         \
                                         .vocab_size = (vocab),                            \
                                         .make_vocab_size_divisible_by = 1,                \
                                         .position_embedding_type = SHOALI_POSITIONS_ROPE, \
                                         .normalization = SHOALI_NORM_RMS,                 \
                                         .rotary_percent = 1,                              \
                                         .rope_scaling_low_freq_factor = 1,                \
                                         .rope_scaling_high_freq_factor = 4,               \
                                         .rope_scaling_original_max_position = 8192,       \
                                         .init_method_std = 0.02,                          \
                                         .disable_bias_linear = true,                      \
                                         .residual_multiplier = 1,                         \
                                         .logits_multiplier = 1,                           \
                                         __VA_ARGS__})
static const struct shoali_model_preset presets[] = {
    {"llama-3.2-1b",
     LLAMA(16, 2048, 32, 8, 8192, 128256, .seq_length = 8192, .max_position_embeddings = 131072,
           .rotary_base = 500000, .use_rope_scaling = true, .rope_scaling_factor = 32,
           .norm_epsilon = 1e-5, .swiglu = true, .embedding_multiplier = 1),
     1, 256},
    {"llama-3-8b",
     LLAMA(32, 4096, 32, 8, 14336, 128256, .seq_length = 8192, .max_position_embeddings = 8192,
           .rotary_base = 500000, .rope_scaling_factor = 8, .norm_epsilon = 1e-5, .swiglu = true,
           .untie_embeddings = true, .embedding_multiplier = 1),
     1, 256},
    {"llama-2-7b",
     LLAMA(32, 4096, 32, 0, 11008, 32000, .seq_length = 4096, .max_position_embeddings = 4096,
           .rotary_base = 10000, .rope_scaling_factor = 8, .norm_epsilon = 1e-5, .swiglu = true,
           .untie_embeddings = true, .embedding_multiplier = 1),
     1, 256},
    {"mistral-7b",
     LLAMA(32, 4096, 32, 8, 14336, 32000, .seq_length = 8192, .max_position_embeddings = 32768,
           .rotary_base = 10000, .rope_scaling_factor = 8, .norm_epsilon = 1e-5, .swiglu = true,
           .untie_embeddings = true, .embedding_multiplier = 1, .window_size = 4096),
     1, 256},
    {"qwen3-0.6b",
     LLAMA(28, 1024, 16, 8, 3072, 151936, .seq_length = 8192, .max_position_embeddings = 40960,
           .kv_channels = 128, .rotary_base = 1e6, .rope_scaling_factor = 8, .norm_epsilon = 1e-6,
           .swiglu = true, .qk_layernorm = true, .embedding_multiplier = 1),
     1, 256},
    {"gemma-2b",
     LLAMA(18, 2048, 8, 1, 16384, 256000, .seq_length = 8192, .max_position_embeddings = 8192,
           .kv_channels = 256, .rotary_base = 10000, .rope_scaling_factor = 8, .norm_epsilon = 1e-6,
           .geglu = true, .openai_gelu = true, .apply_layernorm_1p = true,
           .embedding_multiplier = 45.254833995939045 /* sqrt(2048) */),
     1, 256},
    {"tiny-llama",
     LLAMA(4, 128, 4, 2, 320, 65, .seq_length = 64, .max_position_embeddings = 64,
           .rotary_base = 10000, .rope_scaling_factor = 8, .norm_epsilon = 1e-5, .swiglu = true,
           .embedding_multiplier = 1),
     12, 64},
};

/* ---- completion ------------------------------------------------------------------------------ */

static shoal_status check_positive(const char *flag, int64_t value)
{
    if (value > 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "--%s is %lld; give a number above 0", flag, (long long)value);
}

static shoal_status check_probability(const char *flag, double value)
{
    if (value >= 0 && value < 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "--%s is %g; give a probability in [0, 1)", flag, value);
}

/* What each option must be by itself, also where no flag has checked it. */
static shoal_status check_values(const struct shoali_llama_config *config)
{
    shoal_status status;
    SHOAL_TRY(status, check_positive("num-layers", config->num_layers), done);
    SHOAL_TRY(status, check_positive("hidden-size", config->hidden_size), done);
    SHOAL_TRY(status, check_positive("num-attention-heads", config->num_attention_heads), done);
    SHOAL_TRY(status, check_positive("seq-length", config->seq_length), done);
    SHOAL_TRY(status, check_positive("vocab-size", config->vocab_size), done);
    SHOAL_TRY(status, check_probability("attention-dropout", config->attention_dropout), done);
    SHOAL_TRY(status, check_probability("hidden-dropout", config->hidden_dropout), done);
    SHOAL_TRY(status, check_probability("label-smoothing", config->label_smoothing), done);
done:
    return status;
}

static shoal_status complete_heads(struct shoali_llama_config *config)
{
    const int64_t heads = config->num_attention_heads;
    if (!config->group_query_attention && config->num_query_groups > 0 &&
        config->num_query_groups != heads)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-query-groups %lld has no effect: give --group-query-attention too",
                          (long long)config->num_query_groups);
    if (config->num_query_groups == 0)
        config->num_query_groups = config->group_query_attention ? 1 : heads;
    if (heads % config->num_query_groups != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-attention-heads %lld is not divisible by --num-query-groups %lld: "
                          "each key and value head serves the same number of query heads",
                          (long long)heads, (long long)config->num_query_groups);
    if (config->kv_channels == 0 && config->hidden_size % heads != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--hidden-size %lld is not divisible by --num-attention-heads %lld: give "
                          "the channels of a head with --kv-channels",
                          (long long)config->hidden_size, (long long)heads);
    if (config->kv_channels == 0)
        config->kv_channels = config->hidden_size / heads;
    return SHOAL_OK;
}

static shoal_status complete_mlp(struct shoali_llama_config *config)
{
    const struct {
        const char *flag;
        bool given;
    } kinds[] = {{"swiglu", config->swiglu},
                 {"geglu", config->geglu},
                 {"squared-relu", config->squared_relu},
                 {"relu", config->relu}};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].given && first)
            return SHOAL_FAIL(SHOAL_EINVAL, "--%s and --%s exclude each other%s", first,
                              kinds[i].flag,
                              config->swiglu ? ": --no-swiglu takes the first back" : "");
        first = kinds[i].given ? kinds[i].flag : first;
    }
    if (config->openai_gelu && first && !config->geglu)
        return SHOAL_FAIL(SHOAL_EINVAL, "--openai-gelu has no effect with --%s%s", first,
                          config->swiglu ? ": --no-swiglu takes that back" : "");
    if (config->ffn_hidden_size == 0 && shoali_llama_gated(config))
        config->ffn_hidden_size = config->hidden_size * 8 / 3 / 64 * 64;
    else if (config->ffn_hidden_size == 0)
        config->ffn_hidden_size = 4 * config->hidden_size;
    if (config->ffn_hidden_size == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--hidden-size %lld is too small for a default feed-forward size (a "
                          "multiple of 64): give --ffn-hidden-size",
                          (long long)config->hidden_size);
    return SHOAL_OK;
}

/* Options of rope without rope. */
static shoal_status check_no_rope(const struct shoali_llama_config *config)
{
    const char *given = config->use_rope_scaling      ? "use-rope-scaling"
                        : config->rotary_interleaved  ? "rotary-interleaved"
                        : config->rotary_percent != 1 ? "rotary-percent"
                        : config->rotary_seq_len_interpolation_factor > 0
                            ? "rotary-seq-len-interpolation-factor"
                            : NULL;
    if (!given)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--%s has no effect with --position-embedding-type %s; it is an option of "
                      "rope",
                      given, position_names[config->position_embedding_type]);
}

static shoal_status complete_positions(struct shoali_llama_config *config)
{
    shoal_status status;
    const bool linear = config->rotary_seq_len_interpolation_factor > 0;
    if (config->max_position_embeddings == 0)
        config->max_position_embeddings = config->seq_length;
    if (config->max_position_embeddings < config->seq_length)
        return SHOAL_FAIL(SHOAL_EINVAL, "--max-position-embeddings %lld is below --seq-length %lld",
                          (long long)config->max_position_embeddings,
                          (long long)config->seq_length);
    if (config->window_attn_skip_freq > 0 && config->window_size == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--window-attn-skip-freq %lld has no effect: give --window-size too",
                          (long long)config->window_attn_skip_freq);
    config->rotary_size = 0;
    if (config->no_rope_freq > 0 && config->position_embedding_type != SHOALI_POSITIONS_ROPE)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--no-rope-freq has no effect with "
                          "--position-embedding-type %s; it is an option of rope",
                          position_names[config->position_embedding_type]);
    if (config->position_embedding_type != SHOALI_POSITIONS_ROPE)
        return check_no_rope(config);
    config->rotary_size = (int64_t)floor((double)config->kv_channels * config->rotary_percent);
    if (config->rotary_size == 0 || config->rotary_size % 2 != 0 ||
        config->rotary_size > SHOAL_ROTARY_SIZE_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rope rotates %lld of the %lld elements of a head (--rotary-percent "
                          "%g): give an even number up to %d",
                          (long long)config->rotary_size, (long long)config->kv_channels,
                          config->rotary_percent, SHOAL_ROTARY_SIZE_MAX);
    if (linear && config->use_rope_scaling)
        return SHOAL_FAIL(SHOAL_EINVAL, "--use-rope-scaling and "
                                        "--rotary-seq-len-interpolation-factor exclude each other");
    const shoal_rope_args rope = {
        .rotary_size = config->rotary_size,
        .base = config->rotary_base,
        .scaling = linear                     ? SHOAL_ROPE_SCALING_LINEAR
                   : config->use_rope_scaling ? SHOAL_ROPE_SCALING_LLAMA3
                                              : SHOAL_ROPE_SCALING_NONE,
        .factor =
            linear ? config->rotary_seq_len_interpolation_factor : config->rope_scaling_factor,
        .low_freq_factor = config->rope_scaling_low_freq_factor,
        .high_freq_factor = config->rope_scaling_high_freq_factor,
        .original_max_position = config->rope_scaling_original_max_position,
    };
    SHOAL_TRY(status, shoal_rope_frequencies(&rope, config->inverse_frequency), done);
done:
    return status;
}

/* Options that exclude or need one another. */
static shoal_status check_shape(const struct shoali_llama_config *config)
{
    const bool whole = config->qk_layernorm_whole;
    if (config->shared_input_norm && !config->use_parallel_residual)
        return SHOAL_FAIL(SHOAL_EINVAL, "--shared-input-norm needs --use-parallel-residual: give "
                                        "both, or neither");
    if (config->post_layernorm && config->use_parallel_residual)
        return SHOAL_FAIL(SHOAL_EINVAL, "--post-layernorm and --use-parallel-residual exclude each "
                                        "other: leave one out");
    if (config->disable_norm_weight && (config->apply_layernorm_1p || config->qk_layernorm))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--disable-norm-weight leaves nothing for --%s: leave one "
                          "out",
                          config->qk_layernorm ? "qk-layernorm" : "apply-layernorm-1p");
    if (whole && (config->qk_layernorm || config->disable_norm_weight))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--qk-layernorm-whole and --%s exclude each other: leave "
                          "one out",
                          config->qk_layernorm ? "qk-layernorm" : "disable-norm-weight");
    if (config->add_lm_head_bias && config->cross_entropy_loss_fusion)
        return SHOAL_FAIL(SHOAL_EINVAL, "--cross-entropy-loss-fusion has no bias of the output "
                                        "matrix: leave it or --add-lm-head-bias out");
    return SHOAL_OK;
}

static shoal_status complete(void *values)
{
    struct shoali_llama_config *config = values;
    shoal_status status;
    if (config->make_vocab_size_divisible_by < 1)
        config->make_vocab_size_divisible_by = 1;
    SHOAL_TRY(status, check_values(config), done);
    SHOAL_TRY(status, complete_heads(config), done);
    SHOAL_TRY(status, complete_mlp(config), done);
    SHOAL_TRY(status, complete_positions(config), done);
    SHOAL_TRY(status, check_shape(config), done);
done:
    return status;
}

int64_t shoali_llama_padded_vocab(const struct shoali_llama_config *config)
{
    const int64_t multiple = config->make_vocab_size_divisible_by;
    return (config->vocab_size + multiple - 1) / multiple * multiple;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Megatron's rule: of every so many layers the last sees all. */
static int64_t window_of(const struct shoali_llama_config *config, int64_t layer)
{
    const int64_t skip = config->window_attn_skip_freq;
    return skip > 0 && (layer + 1) % skip == 0 ? 0 : config->window_size;
}

static shoal_status build(struct shoali_model *made)
{
    struct shoali_arena *arena = &made->arena;
    const struct shoali_llama_config *config = made->config.values;
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    const int32_t blocks = (int32_t)config->num_layers, count = blocks + 2;
    shoal_layer_spec *layer = shoali_arena_alloc(arena, (size_t)count * sizeof *layer);
    struct shoali_llama_block *block = shoali_arena_alloc(arena, (size_t)blocks * sizeof *block);
    if (!layer || !block)
        return SHOAL_ENOMEM;
    layer[0] =
        (shoal_layer_spec){.type = &shoali_llama_embedding, .name = names->model, .config = config};
    for (int32_t i = 0; i < blocks; i++) {
        const char *name = shoali_arena_printf(arena, "%s.%d", names->blocks, (int)i);
        if (!name)
            return SHOAL_ENOMEM;
        memset(&block[i], 0, sizeof block[i]);
        block[i].model = config;
        block[i].window = window_of(config, i);
        block[i].rope = config->no_rope_freq == 0 || (i + 1) % config->no_rope_freq != 0;
        layer[i + 1] = (shoal_layer_spec){.type = &shoali_llama_block_type,
                                          .name = name,
                                          .config = shoali_model_share(block, i, sizeof *block)};
    }
    layer[count - 1] =
        (shoal_layer_spec){.type = &shoali_llama_head, .name = "lm_head", .config = config};
    return shoali_model_of_tokens(made, layer, count, config->seq_length);
}

/* ---- what others ask ------------------------------------------------------------------------- */

static void describe(const void *values, char *text, size_t bytes)
{
    const struct shoali_llama_config *config = values;
    char groups[48] = "";
    if (config->group_query_attention)
        snprintf(groups, sizeof groups, " in %lld group%s", (long long)config->num_query_groups,
                 config->num_query_groups == 1 ? "" : "s");
    snprintf(text, bytes, "%lld layer%s, hidden %lld, %lld head%s%s", (long long)config->num_layers,
             config->num_layers == 1 ? "" : "s", (long long)config->hidden_size,
             (long long)config->num_attention_heads, config->num_attention_heads == 1 ? "" : "s",
             groups);
}

/* Scores and sums of values: two products with each key that is seen, counted full, forward and
 * twice backward. */
static double attention_flops(const void *values)
{
    const struct shoali_llama_config *config = values;
    double keys = 0;
    for (int64_t i = 0; i < config->num_layers; i++) {
        const int64_t window = window_of(config, i);
        keys += (double)(window > 0 && window < config->seq_length ? window : config->seq_length);
    }
    return 12.0 * (double)(config->num_attention_heads * config->kv_channels) * keys;
}

static int64_t max_length(const void *values)
{
    const struct shoali_llama_config *config = values;
    return config->max_position_embeddings;
}

const struct shoali_model_row shoali_model_llama = {
    .name = "llama",
    .options = SHOALI_MODEL_OPTIONS(options),
    .values_bytes = sizeof(struct shoali_llama_config),
    .presets = SHOALI_MODEL_PRESETS(presets),
    .complete = complete,
    .build = build,
    .describe = describe,
    .attention_flops = attention_flops,
    .max_length = max_length,
};
