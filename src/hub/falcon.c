/* Falcon: three shapes of a layer under one type. */
#include "hub/hub.h"

#include <jansson.h>

enum { LAYER_NORM, RMS_NORM };
enum { ROPE = 1 };
enum { FALCON = 6, FALCON_LN2 };

static const struct shoali_hub_key keys[] = {
    {"hidden_size", NULL, SHOALI_HUB_NEEDED, "hidden-size", 0, NULL},
    {"num_hidden_layers", "n_layer", SHOALI_HUB_NEEDED, "num-layers", 0, NULL},
    {"num_attention_heads", "n_head", SHOALI_HUB_NEEDED, "num-attention-heads", 0, NULL},
    {"vocab_size", NULL, SHOALI_HUB_NEEDED, "vocab-size", 0, NULL},
    {"ffn_hidden_size", NULL, SHOALI_HUB_TAKEN, "ffn-hidden-size", 0, NULL},
    {"max_position_embeddings", NULL, SHOALI_HUB_TAKEN, "max-position-embeddings", 2048, NULL},
    {"layer_norm_epsilon", NULL, SHOALI_HUB_TAKEN, "norm-epsilon", 1e-5, NULL},
    {"initializer_range", NULL, SHOALI_HUB_TAKEN, "init-method-std", 0.02, NULL},
    {"attention_dropout", NULL, SHOALI_HUB_TAKEN, "attention-dropout", 0, NULL},
    {"hidden_dropout", NULL, SHOALI_HUB_TAKEN, "hidden-dropout", 0, NULL},
    {"bias", NULL, SHOALI_HUB_NOT, "disable-bias-linear", 0, NULL},
    {"tie_word_embeddings", NULL, SHOALI_HUB_NOT, "untie-embeddings-and-output-weights", 1, NULL},
    {"alibi", NULL, SHOALI_HUB_ONLY, NULL, 0, "false"},
    {"apply_residual_connection_post_layernorm", NULL, SHOALI_HUB_ONLY, NULL, 0, "false"},
    {"new_decoder_architecture", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"parallel_attn", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"multi_query", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"num_kv_heads", "n_head_kv", SHOALI_HUB_OWN, NULL, 0, NULL},
    {"num_ln_in_parallel_attn", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"activation", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"rope_theta", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"rope_scaling", "rope_parameters", SHOALI_HUB_OWN, NULL, 0, NULL},
    {"partial_rotary_factor", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"ff_factor", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
};
static const struct shoali_hub_fixed fixed[] = {{"normalization", LAYER_NORM},
                                                {"position-embedding-type", ROPE}};
static const char *const seen[] = {"use-parallel-residual", "shared-input-norm", NULL};

/* A key of true or false; *value is `absent` where it is not there. */
static shoal_status read_bool(const struct shoali_hub_reader *reader, const char *key, bool absent,
                              bool *value)
{
    const json_t *given = shoali_hub_get(reader, key);
    *value = given ? json_is_true(given) : absent;
    if (given && !json_is_boolean(given))
        return shoali_hub_refuse(reader, key, given, "it must be true or false");
    return SHOAL_OK;
}

/* Of the new architecture num_kv_heads, else one or all. */
static shoal_status read_groups(struct shoali_hub_reader *reader, bool is_new)
{
    shoal_status status;
    bool one;
    const double heads = shoali_hub_option(reader->config, "num-attention-heads");
    const char *key = shoali_hub_get(reader, "n_head_kv") ? "n_head_kv" : "num_kv_heads";
    const json_t *given = shoali_hub_get(reader, key);
    SHOAL_TRY(status, read_bool(reader, "multi_query", true, &one), done);
    if (given && !json_is_number(given))
        return shoali_hub_refuse(reader, key, given, "it must be a number");
    if (is_new)
        return shoali_hub_read_heads(reader, key);
    SHOAL_TRY(status,
              shoali_hub_set(reader, "multi_query", "group-query-attention", one && heads > 1),
              done);
    SHOAL_TRY(status, shoali_hub_set(reader, "multi_query", "num-query-groups", one ? 1 : 0), done);
done:
    return status;
}

/* A factor of the feed-forward size, which ffn_hidden_size gives too. */
static shoal_status check_factor(const struct shoali_hub_reader *reader)
{
    const json_t *factor = shoali_hub_get(reader, "ff_factor");
    const double hidden = shoali_hub_option(reader->config, "hidden-size");
    const double ffn = shoali_hub_option(reader->config, "ffn-hidden-size");
    if (factor && json_number_value(factor) * hidden != (ffn > 0 ? ffn : 4 * hidden))
        return shoali_hub_refuse(reader, "ff_factor", factor,
                                 "which does not make `ffn_hidden_size`");
    return SHOAL_OK;
}

static shoal_status read(struct shoali_hub_reader *reader)
{
    shoal_status status;
    bool is_new, parallel;
    const json_t *norms = shoali_hub_get(reader, "num_ln_in_parallel_attn");
    SHOAL_TRY(status, read_bool(reader, "new_decoder_architecture", false, &is_new), done);
    SHOAL_TRY(status, read_bool(reader, "parallel_attn", true, &parallel), done);
    if (norms && json_number_value(norms) != 1 && json_number_value(norms) != 2)
        return shoali_hub_refuse(reader, "num_ln_in_parallel_attn", norms,
                                 "and only 1 and 2 are computed");
    if (is_new && !parallel)
        return shoali_hub_refuse(reader, "parallel_attn", shoali_hub_get(reader, "parallel_attn"),
                                 "and with new_decoder_architecture only true is computed");
    const bool two = is_new && (!norms || json_number_value(norms) == 2);
    if (norms && !is_new && json_number_value(norms) != 1)
        return shoali_hub_refuse(reader, "num_ln_in_parallel_attn", norms,
                                 "and without new_decoder_architecture only 1 is computed");
    SHOAL_TRY(status, read_groups(reader, is_new), done);
    SHOAL_TRY(status, check_factor(reader), done);
    SHOAL_TRY(status, shoali_hub_set(reader, "parallel_attn", "use-parallel-residual", parallel),
              done);
    SHOAL_TRY(status,
              shoali_hub_set(reader, "parallel_attn", "shared-input-norm", parallel && !two), done);
    SHOAL_TRY(status,
              shoali_hub_set(reader, "model_type", "weight-names", two ? FALCON_LN2 : FALCON),
              done);
done:
    return status;
}

/* As the source has it, where it says nothing here. */
static void keep(struct shoali_hub_writer *writer, const char *key)
{
    json_t *value = json_object_get(writer->source, key);
    if (value)
        shoali_hub_put(writer, key, json_incref(value));
}

/* The new architecture says any number of heads, the old one only one or all. */
static void write(struct shoali_hub_writer *writer)
{
    const shoal_model_config *config = writer->config;
    const double groups = shoali_hub_option(config, "num-query-groups");
    const double heads = shoali_hub_option(config, "num-attention-heads");
    const bool two = shoali_hub_option(config, "weight-names") == FALCON_LN2;
    const bool parallel = shoali_hub_option(config, "use-parallel-residual") != 0;
    const bool is_new =
        two ||
        (parallel && (json_is_true(json_object_get(writer->source, "new_decoder_architecture")) ||
                      (groups != 1 && groups != heads)));
    shoali_hub_put(writer, "new_decoder_architecture", json_boolean(is_new));
    shoali_hub_put(writer, "parallel_attn", json_boolean(parallel));
    shoali_hub_put(writer, "multi_query", json_boolean(groups == 1));
    shoali_hub_put(writer, "num_kv_heads", json_integer((json_int_t)groups));
    shoali_hub_put(writer, "num_ln_in_parallel_attn",
                   is_new ? json_integer(two ? 2 : 1) : json_null());
    shoali_hub_put(writer, "alibi", json_false());
    keep(writer, "ff_factor");
    keep(writer, is_new ? "multi_query" : "num_kv_heads");
    if (is_new)
        return;
    keep(writer, "n_head_kv");
    keep(writer, "num_ln_in_parallel_attn");
}

static bool says(const shoal_model_config *config)
{
    const double groups = shoali_hub_option(config, "num-query-groups");
    const double names = shoali_hub_option(config, "weight-names");
    const bool two = names == FALCON_LN2;
    const bool parallel = shoali_hub_option(config, "use-parallel-residual") != 0;
    if (!two && names != FALCON)
        return false;
    const bool shared = shoali_hub_option(config, "shared-input-norm") != 0;
    const bool simple = groups == 1 || groups == shoali_hub_option(config, "num-attention-heads");
    return two ? parallel && !shared : parallel == shared && (parallel || simple);
}

const struct shoali_hub_family shoali_hub_falcon = {
    .type = "falcon",
    .row = "llama",
    .architecture = "FalconForCausalLM",
    .keys = SHOALI_HUB_KEYS(keys),
    .fixed = SHOALI_HUB_KEYS(fixed),
    .seen = seen,
    .decoder =
        &(const struct shoali_hub_decoder){
            .activation = "activation", .activation_absent = "gelu", .rope = true, .names = FALCON},
    .read = read,
    .write = write,
    .says = says,
};
