/* BERT: its row of the table. */
#include "transformer/bert.h"

#include <stdio.h>

#define OPTION(key, member, kind, ...)                                    \
    {                                                                     \
        .option = {.name = key, .type = SHOAL_MODEL_##kind, __VA_ARGS__}, \
        .offset = offsetof(struct shoali_bert_config, member),            \
    }
static const struct shoali_model_option options[] = {
    OPTION("num-layers", num_layers, INT, .required = true, .min = 1, .max = 100000,
           .help = "transformer layers"),
    OPTION("hidden-size", hidden_size, INT, .required = true, .min = 1, .max = 1 << 20,
           .help = "size of the hidden state of each token"),
    OPTION("num-attention-heads", num_attention_heads, INT, .required = true, .min = 1,
           .max = 1 << 20, .help = "attention heads; must divide the hidden size"),
    OPTION("seq-length", seq_length, INT, .required = true, .min = 5, .max = 1 << 24,
           .unit = "tokens", .help = "length of a training sample, [CLS] and two [SEP] included"),
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
    OPTION("norm-epsilon", norm_epsilon, FLOAT, .default_value = 1e-12, .min = 0, .max = 1,
           .help = "epsilon of layer norm"),
    OPTION("openai-gelu", openai_gelu, BOOL, .help = "use the tanh form of GELU (default: erf)"),
    OPTION("bert-binary-head", binary_head, BOOL, .default_value = 1, .flag = "bert-no-binary-head",
           .help = "train without sentence order prediction, on samples of one text"),
    OPTION("bert-pre-norm", pre_norm, BOOL,
           .help = "put layer norm before attention and feed-forward and after the last layer, "
                   "as Megatron's BERT does; default: after each of them, as published"),
};

/* As published, but without dropout, and with a table whose rows products like. */
#define BERT(layers, hidden, heads)                                          \
    (&(const struct shoali_bert_config){.num_layers = (layers),              \
                                        .hidden_size = (hidden),             \
                                        .num_attention_heads = (heads),      \
                                        .seq_length = 512,                   \
                                        .max_position_embeddings = 512,      \
                                        .vocab_size = 30522,                 \
                                        .make_vocab_size_divisible_by = 128, \
                                        .init_method_std = 0.02,             \
                                        .norm_epsilon = 1e-12,               \
                                        .binary_head = true})
static const struct shoali_model_preset presets[] = {
    {"bert-base", BERT(12, 768, 12), 4, 256},
    {"bert-large", BERT(24, 1024, 16), 4, 256},
};

int64_t shoali_bert_padded_vocab(const struct shoali_bert_config *config)
{
    const int64_t multiple = config->make_vocab_size_divisible_by;
    return (config->vocab_size + multiple - 1) / multiple * multiple;
}

static shoal_status check_probability(const char *flag, double value)
{
    if (value >= 0 && value < 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "--%s is %g; give a probability in [0, 1)", flag, value);
}

static shoal_status check_positive(const char *flag, int64_t value)
{
    if (value > 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "--%s is %lld; give a number above 0", flag, (long long)value);
}

static shoal_status complete(void *values)
{
    shoal_status status;
    struct shoali_bert_config *config = values;
    if (!config->max_position_embeddings)
        config->max_position_embeddings = config->seq_length;
    if (!config->ffn_hidden_size)
        config->ffn_hidden_size = 4 * config->hidden_size;
    SHOAL_TRY(status, check_positive("num-layers", config->num_layers), done);
    SHOAL_TRY(status, check_positive("hidden-size", config->hidden_size), done);
    SHOAL_TRY(status, check_positive("num-attention-heads", config->num_attention_heads), done);
    SHOAL_TRY(status, check_positive("seq-length", config->seq_length), done);
    SHOAL_TRY(status, check_positive("vocab-size", config->vocab_size), done);
    SHOAL_TRY(status, check_probability("attention-dropout", config->attention_dropout), done);
    SHOAL_TRY(status, check_probability("hidden-dropout", config->hidden_dropout), done);
    if (config->hidden_size % config->num_attention_heads)
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

/* The last one only where it is learnt. */
static int32_t list_inputs(const struct shoali_bert_config *config, shoal_input_spec *input)
{
    const shoal_shape tokens = shoal_shape_1(config->seq_length), one = {0};
    input[SHOALI_BERT_TOKENS] = (shoal_input_spec){.name = "tokens", .sample_shape = tokens};
    input[SHOALI_BERT_TYPES] = (shoal_input_spec){.name = "types", .sample_shape = tokens};
    input[SHOALI_BERT_TARGETS] = (shoal_input_spec){.name = "targets", .sample_shape = tokens};
    input[SHOALI_BERT_KEY_COUNT] = (shoal_input_spec){.name = "key_count", .sample_shape = one};
    input[SHOALI_BERT_IS_RANDOM] =
        (shoal_input_spec){.name = "is_random", .sample_shape = shoal_shape_1(1)};
    for (int i = 0; i < SHOALI_BERT_INPUTS; i++)
        input[i].dtype = SHOAL_I32;
    return config->binary_head ? SHOALI_BERT_INPUTS : SHOALI_BERT_IS_RANDOM;
}

static shoal_status build(struct shoali_model *made)
{
    struct shoali_arena *arena = &made->arena;
    const struct shoali_bert_config *config = made->config.values;
    const int32_t count = (int32_t)config->num_layers + 2;
    shoal_layer_spec *layer = shoali_arena_alloc(arena, (size_t)count * sizeof *layer);
    shoal_input_spec *input = shoali_arena_alloc(arena, SHOALI_BERT_INPUTS * sizeof *input);
    if (!layer || !input)
        return SHOAL_ENOMEM;
    layer[0] = (shoal_layer_spec){
        .type = &shoali_bert_embedding, .name = "bert.embeddings", .config = config};
    for (int32_t i = 0; i < count - 2; i++) {
        const char *name = shoali_arena_printf(arena, "bert.encoder.layer.%d", (int)i);
        if (!name)
            return SHOAL_ENOMEM;
        layer[i + 1] =
            (shoal_layer_spec){.type = &shoali_bert_block, .name = name, .config = config};
    }
    layer[count - 1] =
        (shoal_layer_spec){.type = &shoali_bert_head, .name = "cls", .config = config};
    made->model = (shoal_model){.name = shoali_model_bert.name,
                                .layers = layer,
                                .layer_count = count,
                                .inputs = input,
                                .input_count = list_inputs(config, input),
                                .tokens_per_sample = config->seq_length};
    return SHOAL_OK;
}

static void describe(const void *values, char *text, size_t bytes)
{
    const struct shoali_bert_config *config = values;
    snprintf(text, bytes, "%lld layer%s, hidden %lld%s", (long long)config->num_layers,
             config->num_layers == 1 ? "" : "s", (long long)config->hidden_size,
             config->pre_norm ? ", norms before" : "");
}

static double attention_flops(const void *values)
{
    const struct shoali_bert_config *config = values;
    return 12.0 * (double)config->num_layers * (double)config->hidden_size *
           (double)config->seq_length;
}

static shoal_sample_kind samples(const void *values)
{
    const struct shoali_bert_config *config = values;
    return config->binary_head ? SHOAL_SAMPLE_MASKED_PAIRS : SHOAL_SAMPLE_MASKED;
}

const struct shoali_model_row shoali_model_bert = {
    .name = "bert",
    .options = SHOALI_MODEL_OPTIONS(options),
    .values_bytes = sizeof(struct shoali_bert_config),
    .presets = SHOALI_MODEL_PRESETS(presets),
    .complete = complete,
    .build = build,
    .describe = describe,
    .attention_flops = attention_flops,
    .samples = samples,
};
