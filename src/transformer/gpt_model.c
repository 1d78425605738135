/* GPT-2: its row of the table. */
#include "transformer/transformer.h"

#include <math.h>
#include <stdio.h>

#define OPTION(key, member, kind, ...)                                    \
    {                                                                     \
        .option = {.name = key, .type = SHOAL_MODEL_##kind, __VA_ARGS__}, \
        .offset = offsetof(shoal_gpt_config, member),                     \
    }
static const struct shoali_model_option options[] = {
    OPTION("num-layers", num_layers, INT, .required = true, .min = 1, .max = 100000,
           .help = "transformer layers"),
    OPTION("hidden-size", hidden_size, INT, .required = true, .min = 1, .max = 1 << 20,
           .help = "size of the hidden state of each token"),
    OPTION("num-attention-heads", num_attention_heads, INT, .required = true, .min = 1,
           .max = 1 << 20, .help = "attention heads; must divide the hidden size"),
    OPTION("seq-length", seq_length, INT, .required = true, .min = 1, .max = 1 << 24,
           .unit = "tokens", .help = "length of a training sample"),
    OPTION("max-position-embeddings", max_position_embeddings, INT, .min = 0, .max = 1 << 24,
           .unit = "tokens", .help = "rows of the position embedding; 0: the sequence length"),
    OPTION("ffn-hidden-size", ffn_hidden_size, INT, .min = 0, .max = 1 << 24,
           .help = "inner size of the feed-forward layer; 0: four times the hidden size"),
    OPTION("vocab-size", vocab_size, INT, .min = 0, .max = 1e9,
           .help = "size of the vocabulary; 0: as in the .tokens.json of the data files, 256 for "
                   "--mock-data; `shoal plan` takes it for any data, 0: counted in --data-path"),
    OPTION("make-vocab-size-divisible-by", make_vocab_size_divisible_by, INT, .default_value = 1,
           .min = 1, .max = 1 << 20,
           .help = "multiple to which the rows of the token embedding are padded"),
    OPTION("attention-dropout", attention_dropout, FLOAT, .default_value = 0.1,
           .help = "dropout probability of attention weights"),
    OPTION("hidden-dropout", hidden_dropout, FLOAT, .default_value = 0.1,
           .help = "dropout probability of embeddings and of each layer's output before the "
                   "residual addition"),
    OPTION("init-method-std", init_method_std, FLOAT, .default_value = 0.02, .min = 0, .max = 10,
           .help = "standard deviation of initial weights"),
    OPTION("norm-epsilon", norm_epsilon, FLOAT, .default_value = 1e-5, .min = 0, .max = 1,
           .help = "epsilon of layer norm"),
    OPTION("add-bias-linear", add_bias_linear, BOOL, .default_value = 1,
           .flag = "disable-bias-linear", .help = "leave biases out of linear and norm layers"),
    OPTION("openai-gelu", openai_gelu, BOOL, .help = "use the tanh form of GELU (default: erf)"),
    OPTION("untie-embeddings-and-output-weights", untie_embeddings, BOOL,
           .help = "train an output matrix apart from the token embedding"),
    {.option = {.name = "cross-entropy-loss-fusion",
                .type = SHOAL_MODEL_BOOL,
                .lean = true,
                .help = "compute output matrix and loss in tiles of the vocabulary: saves the "
                        "memory of the logits, costs one more product with that matrix in the "
                        "backward pass"},
     .offset = offsetof(shoal_gpt_config, cross_entropy_loss_fusion),
     .newer = true},
    {.option = {.name = "label-smoothing",
                .type = SHOAL_MODEL_FLOAT,
                .help = "label smoothing of the training loss: probability taken from the target "
                        "and shared equally by all other tokens; validation uses none"},
     .offset = offsetof(shoal_gpt_config, label_smoothing),
     .newer = true},
    {.option = {.name = "relu",
                .type = SHOAL_MODEL_BOOL,
                .help = "use max(x, 0) in the feed-forward layer instead of GELU"},
     .offset = offsetof(shoal_gpt_config, relu),
     .newer = true},
    {.option = {.name = "scale-attn-by-inverse-layer-idx",
                .type = SHOAL_MODEL_BOOL,
                .help = "divide attention scores of layer i, counted from 0, by i + 1"},
     .offset = offsetof(shoal_gpt_config, scale_attn_by_inverse_layer_idx),
     .newer = true},
};

/* As published, but without dropout, and with a table whose rows products like. */
#define GPT2(layers, hidden, heads)                                 \
    (&(const shoal_gpt_config){.num_layers = (layers),              \
                               .hidden_size = (hidden),             \
                               .num_attention_heads = (heads),      \
                               .seq_length = 1024,                  \
                               .max_position_embeddings = 1024,     \
                               .vocab_size = 50257,                 \
                               .make_vocab_size_divisible_by = 128, \
                               .init_method_std = 0.02,             \
                               .norm_epsilon = 1e-5,                \
                               .add_bias_linear = true,             \
                               .openai_gelu = true})
static const struct shoali_model_preset presets[] = {
    {"gpt2-124m", GPT2(12, 768, 12), 4, 256},
    {"gpt2-355m", GPT2(24, 1024, 16), 4, 256},
    {"gpt2-774m", GPT2(36, 1280, 20), 4, 256},
    {"gpt2-1558m", GPT2(48, 1600, 25), 4, 256},
    {"tiny",
     &(const shoal_gpt_config){.num_layers = 4,
                               .hidden_size = 128,
                               .num_attention_heads = 4,
                               .seq_length = 64,
                               .max_position_embeddings = 64,
                               .vocab_size = 65,
                               .make_vocab_size_divisible_by = 128,
                               .init_method_std = 0.02,
                               .norm_epsilon = 1e-5,
                               .add_bias_linear = true,
                               .openai_gelu = true},
     12, 64},
};

void shoal_gpt_config_defaults(shoal_gpt_config *config)
{
    shoal_gpt_config defaults;
    shoali_model_defaults(&shoali_model_gpt, &defaults);
    if (config)
        *config = defaults;
}

static void fill_derived(shoal_gpt_config *config)
{
    if (!config->max_position_embeddings)
        config->max_position_embeddings = config->seq_length;
    if (!config->ffn_hidden_size)
        config->ffn_hidden_size = 4 * config->hidden_size;
    if (config->make_vocab_size_divisible_by < 1)
        config->make_vocab_size_divisible_by = 1;
}

int64_t shoali_gpt_padded_vocab(const shoal_gpt_config *config)
{
    const int64_t multiple = config->make_vocab_size_divisible_by;
    return (config->vocab_size + multiple - 1) / multiple * multiple;
}

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

static shoal_status check(const shoal_gpt_config *config)
{
    shoal_status status;
    SHOAL_TRY(status, check_positive("num-layers", config->num_layers), done);
    SHOAL_TRY(status, check_positive("hidden-size", config->hidden_size), done);
    SHOAL_TRY(status, check_positive("num-attention-heads", config->num_attention_heads), done);
    SHOAL_TRY(status, check_positive("seq-length", config->seq_length), done);
    SHOAL_TRY(status, check_positive("vocab-size", config->vocab_size), done);
    SHOAL_TRY(status, check_positive("ffn-hidden-size", config->ffn_hidden_size), done);
    SHOAL_TRY(status, check_probability("attention-dropout", config->attention_dropout), done);
    SHOAL_TRY(status, check_probability("hidden-dropout", config->hidden_dropout), done);
    SHOAL_TRY(status, check_probability("label-smoothing", config->label_smoothing), done);
    if (config->relu && config->openai_gelu)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--openai-gelu has no effect with --relu: leave one of them out");
    else if (config->hidden_size % config->num_attention_heads)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--hidden-size %lld is not divisible by --num-attention-heads %lld: "
                            "each head needs the same whole number of channels",
                            (long long)config->hidden_size, (long long)config->num_attention_heads);
    else if (config->max_position_embeddings < config->seq_length)
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "--max-position-embeddings %lld is below --seq-length %lld: each position "
                       "of a sample needs an embedding",
                       (long long)config->max_position_embeddings, (long long)config->seq_length);
done:
    return status;
}

static shoal_status complete(void *values)
{
    fill_derived(values);
    return check(values);
}

static shoal_status build(struct shoali_model *made)
{
    struct shoali_arena *arena = &made->arena;
    const shoal_gpt_config *config = made->config.values;
    const int32_t count = (int32_t)config->num_layers + 2;
    const bool by_layer = config->scale_attn_by_inverse_layer_idx;
    const double head = (double)(config->hidden_size / config->num_attention_heads);
    shoal_layer_spec *layer = shoali_arena_alloc(arena, (size_t)count * sizeof *layer);
    struct shoali_gpt_block_config *block =
        shoali_arena_alloc(arena, (size_t)count * sizeof *block);
    if (!layer || !block)
        return SHOAL_ENOMEM;
    layer[0] =
        (shoal_layer_spec){.type = &shoali_gpt_embedding, .name = "transformer", .config = config};
    for (int32_t i = 0; i < count - 2; i++) {
        const char *name = shoali_arena_printf(arena, "transformer.h.%d", (int)i);
        if (!name)
            return SHOAL_ENOMEM;
        block[i] = (struct shoali_gpt_block_config){
            .model = config, .softmax_scale = by_layer ? 1 / (sqrt(head) * (i + 1)) : 0};
        layer[i + 1] = (shoal_layer_spec){.type = &shoali_gpt_block,
                                          .name = name,
                                          .config = shoali_model_share(block, i, sizeof *block)};
    }
    layer[count - 1] =
        (shoal_layer_spec){.type = &shoali_gpt_head, .name = "lm_head", .config = config};
    return shoali_model_of_tokens(made, layer, count, config->seq_length);
}

static void describe(const void *values, char *text, size_t bytes)
{
    const shoal_gpt_config *config = values;
    snprintf(text, bytes, "%lld layer%s, hidden %lld", (long long)config->num_layers,
             config->num_layers == 1 ? "" : "s", (long long)config->hidden_size);
}

static double attention_flops(const void *values)
{
    const shoal_gpt_config *config = values;
    return 12.0 * (double)config->num_layers * (double)config->hidden_size *
           (double)config->seq_length;
}

static int64_t max_length(const void *values)
{
    const shoal_gpt_config *config = values;
    return config->max_position_embeddings;
}

const struct shoali_model_row shoali_model_gpt = {
    .name = "gpt",
    .options = SHOALI_MODEL_OPTIONS(options),
    .values_bytes = sizeof(shoal_gpt_config),
    .presets = SHOALI_MODEL_PRESETS(presets),
    .complete = complete,
    .build = build,
    .describe = describe,
    .attention_flops = attention_flops,
    .max_length = max_length,
};

shoal_status shoal_gpt_create(const shoal_gpt_config *config, shoal_model **model)
{
    shoal_status status;
    shoal_gpt_config values;
    *model = NULL;
    shoali_model_defaults(&shoali_model_gpt, &values);
    if (config)
        values = *config;
    SHOAL_TRY(status, shoali_model_create(&shoali_model_gpt, &values, model), done);
done:
    return status;
}

void shoal_gpt_get_config(const shoal_model *model, shoal_gpt_config *config)
{
    const shoal_model_config *made = shoal_model_get_config(model);
    const bool gpt = made->row == &shoali_model_gpt;
    *config = gpt ? *(const shoal_gpt_config *)made->values : (shoal_gpt_config){0};
}
