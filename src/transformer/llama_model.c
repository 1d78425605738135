/* Llama and its relatives: the row of the table. */
#include "transformer/llama.h"

#include <math.h>
#include <stdio.h>

static const char *const position_names[] = {"learned_absolute", "rope", "none", NULL};
static const char *const norm_names[] = {"LayerNorm", "RMSNorm", NULL};

#define OPTION(key, member, kind, ...)                                    \
    {                                                                     \
        .option = {.name = key, .type = SHOAL_MODEL_##kind, __VA_ARGS__}, \
        .offset = offsetof(struct shoali_llama_config, member),           \
    }
static const struct shoali_model_option options[] = {
    OPTION("num-layers", num_layers, INT, .required = true, .min = 1, .max = 100000,
           .help = "transformer blocks"),
    OPTION("hidden-size", hidden_size, INT, .required = true, .min = 1, .max = 1 << 20,
           .help = "channels of the residual stream"),
    OPTION("num-attention-heads", num_attention_heads, INT, .required = true, .min = 1,
           .max = 1 << 20, .help = "query heads"),
    OPTION("seq-length", seq_length, INT, .required = true, .min = 1, .max = 1 << 20,
           .unit = "tokens", .help = "length of a training sample"),
    OPTION("max-position-embeddings", max_position_embeddings, INT, .min = 0, .max = 1 << 20,
           .unit = "tokens",
           .help = "longest text, and rows of a learned position table; 0: the sequence length"),
    OPTION("group-query-attention", group_query_attention, BOOL,
           .help = "query heads share key and value heads: --num-query-groups of them"),
    OPTION("num-query-groups", num_query_groups, INT, .min = 0, .max = 1 << 20,
           .help = "key and value heads with --group-query-attention; 0: 1"),
    OPTION("kv-channels", kv_channels, INT, .min = 0, .max = 1 << 16,
           .help = "channels of a head; 0: the hidden size divided by the heads"),
    OPTION("ffn-hidden-size", ffn_hidden_size, INT, .min = 0, .max = 1 << 24,
           .help = "inner size of the feed-forward part; 0: four times the hidden size, with a "
                   "gate two thirds of that, rounded down to a multiple of 64"),
    OPTION("vocab-size", vocab_size, INT, .min = 0, .max = 1e9,
           .help = "kinds of tokens of data files (0: as their .tokens.json says) and of "
                   "--mock-data (0: 256); shoal plan: of any data, 0: those of --data-path"),
    OPTION("make-vocab-size-divisible-by", make_vocab_size_divisible_by, INT, .default_value = 1,
           .min = 1, .max = 1 << 20,
           .help = "rows of the token table are padded to a multiple of this"),
    OPTION("normalization", normalization, CHOICE, .default_value = SHOALI_NORM_RMS,
           .choices = norm_names, .help = "norms of the layers; LayerNorm has biases"),
    OPTION("norm-epsilon", norm_epsilon, FLOAT, .default_value = 1e-5, .min = 0, .max = 1,
           .help = "epsilon of the norms"),
    OPTION("apply-layernorm-1p", apply_layernorm_1p, BOOL,
           .help = "norms store their weight minus 1 (Gemma)"),
    OPTION("qk-layernorm", qk_layernorm, BOOL,
           .help = "a norm of each query and key head before positions (Qwen 3)"),
    OPTION("position-embedding-type", position_embedding_type, CHOICE,
           .default_value = SHOALI_POSITIONS_ROPE, .choices = position_names,
           .help = "how positions enter"),
    OPTION("rotary-base", rotary_base, FLOAT, .default_value = 10000, .min = 1, .max = 1e15,
           .help = "of rope: base of the frequencies (rope_theta)"),
    OPTION("rotary-percent", rotary_percent, FLOAT, .default_value = 1, .min = 0, .max = 1,
           .help = "of rope: the part of each head that is turned"),
    OPTION("rotary-interleaved", rotary_interleaved, BOOL,
           .help = "of rope: pairs are neighbours (default: element i of each half, as in "
                   "published files)"),
    OPTION("rotary-seq-len-interpolation-factor", rotary_seq_len_interpolation_factor, FLOAT,
           .min = 0, .max = 1e9, .help = "of rope: positions are divided by it; 0: by 1"),
    OPTION("use-rope-scaling", use_rope_scaling, BOOL,
           .help = "of rope: frequencies scaled as in Llama 3.1 and later"),
    OPTION("rope-scaling-factor", rope_scaling_factor, FLOAT, .default_value = 8, .min = 1,
           .max = 1e9, .help = "of --use-rope-scaling: what low frequencies are divided by"),
    OPTION("rope-scaling-low-freq-factor", rope_scaling_low_freq_factor, FLOAT, .default_value = 1,
           .min = 0, .max = 1e9,
           .help = "of --use-rope-scaling: turns in the original length below which a frequency "
                   "is low"),
    OPTION("rope-scaling-high-freq-factor", rope_scaling_high_freq_factor, FLOAT,
           .default_value = 4, .min = 0, .max = 1e9,
           .help = "of --use-rope-scaling: turns above which it stays as it is"),
    OPTION("rope-scaling-original-max-position", rope_scaling_original_max_position, INT,
           .default_value = 8192, .min = 1, .max = 1 << 20, .unit = "tokens",
           .help = "of --use-rope-scaling: the original length"),
    OPTION("window-size", window_size, INT, .min = 0, .max = 1 << 24, .unit = "tokens",
           .help = "positions that one sees, itself and those before it (sliding_window); 0: all"),
    OPTION("window-attn-skip-freq", window_attn_skip_freq, INT, .min = 0, .max = 100000,
           .help = "of --window-size: every so many layers one sees all; 0: none does"),
    OPTION("swiglu", swiglu, BOOL, .default_value = 1, .help = "feed-forward part with SiLU gate"),
    OPTION("geglu", geglu, BOOL,
           .help = "... with GELU gate instead (with --no-swiglu; --openai-gelu: its tanh form)"),
    OPTION("squared-relu", squared_relu, BOOL,
           .help = "... without a gate, relu(x)^2 (with --no-swiglu)"),
    OPTION("openai-gelu", openai_gelu, BOOL, .help = "GELU in its tanh form (default: erf)"),
    OPTION("disable-bias-linear", disable_bias_linear, BOOL, .default_value = 1,
           .help = "no biases in linear layers"),
    OPTION("add-qkv-bias", add_qkv_bias, BOOL,
           .help = "biases of q, k and v all the same (Qwen 2)"),
    OPTION("add-attention-output-bias", add_attention_output_bias, BOOL,
           .help = "a bias behind attention all the same (attention_bias, with --add-qkv-bias)"),
    OPTION("untie-embeddings-and-output-weights", untie_embeddings, BOOL, .default_value = 1,
           .help = "an output matrix of its own"),
    OPTION("embedding-multiplier", embedding_multiplier, FLOAT, .default_value = 1, .min = 0,
           .max = 1e9, .help = "what embedded tokens are multiplied by (Gemma: sqrt(hidden size))"),
    OPTION("attention-dropout", attention_dropout, FLOAT,
           .help = "dropout of attention probabilities"),
    OPTION("hidden-dropout", hidden_dropout, FLOAT,
           .help = "dropout of what enters the residual stream"),
    OPTION("init-method-std", init_method_std, FLOAT, .default_value = 0.02, .min = 0, .max = 10,
           .help = "standard deviation of initial weights"),
    OPTION("cross-entropy-loss-fusion", cross_entropy_loss_fusion, BOOL, .lean = true,
           .help = "output matrix and loss in tiles of the vocabulary: no logits in memory, for "
                   "one more product with that matrix in backward"),
    {.option = {.name = "label-smoothing",
                .type = SHOAL_MODEL_FLOAT,
                .help = "of the training loss: probability that goes from a target to the other "
                        "tokens, in equal shares; evaluation has none"},
     .offset = offsetof(struct shoali_llama_config, label_smoothing),
     .newer = true},
};

/* As published: sizes, epsilon, base, window; sequences as long as they were trained with, or 8192. */
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
    const int kinds = config->swiglu + config->geglu + config->squared_relu;
    if (kinds > 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "--%s and --%s exclude each other%s",
                          config->swiglu ? "swiglu" : "geglu",
                          config->geglu && config->swiglu ? "geglu" : "squared-relu",
                          config->swiglu ? ": --no-swiglu takes the first back" : "");
    if (config->openai_gelu && (config->swiglu || config->squared_relu))
        return SHOAL_FAIL(SHOAL_EINVAL, "--openai-gelu has no effect with --%s%s",
                          config->swiglu ? "swiglu" : "squared-relu",
                          config->swiglu ? ": --no-swiglu takes that back" : "");
    if (config->ffn_hidden_size == 0 && shoali_llama_gated(config))
        config->ffn_hidden_size = config->hidden_size * 8 / 3 / 64 * 64;
    else if (config->ffn_hidden_size == 0)
        config->ffn_hidden_size = 4 * config->hidden_size;
    if (config->ffn_hidden_size == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "two thirds of four times --hidden-size %lld are no multiple of 64 above "
                          "0: give --ffn-hidden-size",
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
    if (config->position_embedding_type != SHOALI_POSITIONS_ROPE)
        return check_no_rope(config);
    config->rotary_size = (int64_t)floor((double)config->kv_channels * config->rotary_percent);
    if (config->rotary_size == 0 || config->rotary_size % 2 != 0 ||
        config->rotary_size > SHOAL_ROTARY_SIZE_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rope turns %lld of the %lld channels of a head (--rotary-percent %g); "
                          "that must be an even number up to %d",
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
    const int32_t blocks = (int32_t)config->num_layers, count = blocks + 2;
    shoal_layer_spec *layer = shoali_arena_alloc(arena, (size_t)count * sizeof *layer);
    struct shoali_llama_block *block = shoali_arena_alloc(arena, (size_t)blocks * sizeof *block);
    if (!layer || !block)
        return SHOAL_ENOMEM;
    layer[0] =
        (shoal_layer_spec){.type = &shoali_llama_embedding, .name = "model", .config = config};
    for (int32_t i = 0; i < blocks; i++) {
        const char *name = shoali_arena_printf(arena, "model.layers.%d", (int)i);
        if (!name)
            return SHOAL_ENOMEM;
        block[i] = (struct shoali_llama_block){config, window_of(config, i)};
        layer[i + 1] =
            (shoal_layer_spec){.type = &shoali_llama_block_type, .name = name, .config = &block[i]};
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
