/* GPT-2: configuration, checks, construction. */
#include "transformer/transformer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Megatron's flag names; one row per stored member serves JSON in both directions. */
struct config_row {
    const char *key;
    size_t offset;
    enum { ROW_INT64, ROW_DOUBLE, ROW_FLAG } type;
    bool optional; /* configurations stored before there was such a member have the default */
};
#define ROW(name, member, kind)                                                  \
    {                                                                            \
        .key = name, .offset = offsetof(shoal_gpt_config, member), .type = kind, \
    }
static const struct config_row rows[] = {
    ROW("num-layers", num_layers, ROW_INT64),
    ROW("hidden-size", hidden_size, ROW_INT64),
    ROW("num-attention-heads", num_attention_heads, ROW_INT64),
    ROW("seq-length", seq_length, ROW_INT64),
    ROW("max-position-embeddings", max_position_embeddings, ROW_INT64),
    ROW("ffn-hidden-size", ffn_hidden_size, ROW_INT64),
    ROW("vocab-size", vocab_size, ROW_INT64),
    ROW("make-vocab-size-divisible-by", make_vocab_size_divisible_by, ROW_INT64),
    ROW("attention-dropout", attention_dropout, ROW_DOUBLE),
    ROW("hidden-dropout", hidden_dropout, ROW_DOUBLE),
    ROW("init-method-std", init_method_std, ROW_DOUBLE),
    ROW("norm-epsilon", norm_epsilon, ROW_DOUBLE),
    ROW("add-bias-linear", add_bias_linear, ROW_FLAG),
    ROW("openai-gelu", openai_gelu, ROW_FLAG),
    ROW("untie-embeddings-and-output-weights", untie_embeddings, ROW_FLAG),
    {.key = "cross-entropy-loss-fusion",
     .offset = offsetof(shoal_gpt_config, cross_entropy_loss_fusion),
     .type = ROW_FLAG,
     .optional = true},
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

static const shoal_gpt_config defaults = {
    .make_vocab_size_divisible_by = 128,
    .attention_dropout = 0.1,
    .hidden_dropout = 0.1,
    .init_method_std = 0.02,
    .norm_epsilon = 1e-5,
    .add_bias_linear = true,
};

void shoal_gpt_config_defaults_sized(shoal_gpt_config *config, size_t config_size)
{
    shoali_sized_copy(config, config_size, &defaults, sizeof defaults);
}

/* What an older program's configuration does not have keeps its default. */
static shoal_status read_config(const shoal_gpt_config *given, size_t given_size,
                                shoal_gpt_config *config)
{
    *config = defaults;
    return SHOALI_SIZED_READ(shoal_gpt_config, cross_entropy_loss_fusion, given, given_size,
                             config);
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

static int64_t padded_vocab(const shoal_gpt_config *config)
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

static shoal_status build_layers(struct shoali_gpt *gpt)
{
    const int32_t count = (int32_t)gpt->config.num_layers + 2;
    shoal_layer_spec *layer = shoali_arena_alloc(&gpt->arena, (size_t)count * sizeof *layer);
    shoal_input_spec *input = shoali_arena_alloc(&gpt->arena, 2 * sizeof *input);
    if (!layer || !input)
        return SHOAL_ENOMEM;
    layer[0] =
        (shoal_layer_spec){.type = &shoali_gpt_embedding, .name = "transformer", .config = gpt};
    for (int32_t i = 0; i < count - 2; i++) {
        const char *name = shoali_arena_printf(&gpt->arena, "transformer.h.%d", (int)i);
        if (!name)
            return SHOAL_ENOMEM;
        layer[i + 1] = (shoal_layer_spec){.type = &shoali_gpt_block, .name = name, .config = gpt};
    }
    layer[count - 1] =
        (shoal_layer_spec){.type = &shoali_gpt_head, .name = "lm_head", .config = gpt};
    for (int i = 0; i < 2; i++)
        input[i] = (shoal_input_spec){.name = i == 0 ? "tokens" : "targets",
                                      .dtype = SHOAL_I32,
                                      .sample_shape = shoal_shape_1(gpt->config.seq_length)};
    gpt->model = (shoal_model){.name = "gpt",
                               .layers = layer,
                               .layer_count = count,
                               .inputs = input,
                               .input_count = 2,
                               .tokens_per_sample = gpt->config.seq_length};
    return SHOAL_OK;
}

shoal_status shoal_gpt_create_sized(const shoal_gpt_config *config, size_t config_size,
                                    shoal_model **model)
{
    shoal_status status = SHOAL_ENOMEM;
    *model = NULL;
    struct shoali_gpt *gpt = shoali_calloc(1, sizeof *gpt, "a GPT model");
    if (!gpt)
        return status;
    shoali_arena_init(&gpt->arena);
    SHOAL_TRY(status, read_config(config, config_size, &gpt->config), done);
    fill_derived(&gpt->config);
    SHOAL_TRY(status, check(&gpt->config), done);
    gpt->padded_vocab = padded_vocab(&gpt->config);
    SHOAL_TRY(status, build_layers(gpt), done);
    *model = &gpt->model;
done:
    if (status < 0)
        shoal_gpt_destroy(&gpt->model);
    return status;
}

void shoal_gpt_destroy(shoal_model *model)
{
    if (!model)
        return;
    struct shoali_gpt *gpt = (struct shoali_gpt *)(void *)model;
    shoali_arena_fini(&gpt->arena);
    shoali_free(gpt);
}

void shoal_gpt_get_config_sized(const shoal_model *model, shoal_gpt_config *config,
                                size_t config_size)
{
    shoali_sized_copy(config, config_size, &shoali_gpt_of(model)->config, sizeof(shoal_gpt_config));
}

int64_t shoal_gpt_param_count_sized(const shoal_gpt_config *given, size_t given_size)
{
    shoal_gpt_config config;
    if (read_config(given, given_size, &config) < 0)
        return -1;
    fill_derived(&config);
    const int64_t c = config.hidden_size, f = config.ffn_hidden_size,
                  bias = config.add_bias_linear ? 1 : 0;
    const int64_t block = (1 + bias) * 2 * c + 4 * c * c + 2 * c * f + bias * (5 * c + f);
    const int64_t table = padded_vocab(&config) * c;
    return table * (config.untie_embeddings ? 2 : 1) + config.max_position_embeddings * c +
           config.num_layers * block + (1 + bias) * c;
}

double shoal_gpt_flops_per_token_sized(const shoal_gpt_config *given, size_t given_size)
{
    shoal_gpt_config config;
    if (read_config(given, given_size, &config) < 0)
        return -1;
    return 6.0 * (double)shoal_gpt_param_count(&config) + 12.0 * (double)config.num_layers *
                                                              (double)config.hidden_size *
                                                              (double)config.seq_length;
}

shoal_status shoal_gpt_config_to_json_sized(const shoal_gpt_config *given, size_t given_size,
                                            char **json)
{
    shoal_status status;
    int failed = 0;
    json_t *object = NULL;
    shoal_gpt_config config;
    *json = NULL;
    SHOAL_TRY(status, read_config(given, given_size, &config), done);
    object = json_object();
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const char *at = (const char *)&config + rows[i].offset;
        json_t *value = rows[i].type == ROW_INT64 ? json_integer(*(const int64_t *)(const void *)at)
                        : rows[i].type == ROW_DOUBLE
                            ? json_real(*(const double *)(const void *)at)
                            : json_boolean(*(const bool *)(const void *)at);
        failed |= json_object_set_new(object, rows[i].key, value);
    }
    status = failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the model configuration")
                    : shoali_json_write(object, JSON_COMPACT, "the model configuration", json);
done:
    json_decref(object);
    return status;
}

static bool read_row(const struct config_row *row, const json_t *value, shoal_gpt_config *config)
{
    char *at = (char *)config + row->offset;
    if (row->type == ROW_INT64 && json_is_integer(value))
        *(int64_t *)(void *)at = json_integer_value(value);
    else if (row->type == ROW_DOUBLE && json_is_number(value))
        *(double *)(void *)at = json_number_value(value);
    else if (row->type == ROW_FLAG && json_is_boolean(value))
        *(bool *)(void *)at = json_is_true(value);
    else
        return false;
    return true;
}

shoal_status shoal_gpt_config_from_json_sized(const char *json, shoal_gpt_config *config,
                                              size_t config_size)
{
    shoal_status status = SHOAL_OK;
    shoal_gpt_config read = defaults;
    struct shoali_json_error error;
    json_t *object = NULL;
    status = shoali_json_read(json, strlen(json), &object, &error);
    if (status == SHOAL_ENOMEM)
        goto done;
    if (!json_is_object(object)) {
        status =
            SHOAL_FAIL(SHOAL_ECORRUPT, "the stored model configuration is not a JSON object (%s)",
                       object ? "another type" : error.text);
        goto done;
    }
    for (size_t i = 0; i < ROW_COUNT && status >= 0; i++) {
        const json_t *value = json_object_get(object, rows[i].key);
        if (!value && rows[i].optional)
            continue;
        if (!value || !read_row(&rows[i], value, &read))
            status = SHOAL_FAIL(SHOAL_ECORRUPT, "the stored model configuration has no valid `%s`",
                                rows[i].key);
    }
done:
    shoali_sized_copy(config, config_size, &read, sizeof read);
    json_decref(object);
    return status;
}
