/* Parts that config.json of several decoders has: heads, activation, window, both ways. */
#include "hub/hub.h"

#include <jansson.h>
#include <string.h>

/* ---- heads ---------------------------------------------------------------------------------- */

shoal_status shoali_hub_read_heads(struct shoali_hub_reader *reader, const char *key)
{
    shoal_status status;
    const json_t *value = shoali_hub_get(reader, key);
    const double heads = shoali_hub_option(reader->config, "num-attention-heads");
    const bool shared = value && json_number_value(value) != heads;
    if (json_is_number(value) && json_number_value(value) < 1)
        return shoali_hub_refuse(reader, key, value, "it must be 1 or more");
    SHOAL_TRY(status, shoali_hub_set(reader, key, "group-query-attention", shared), done);
    SHOAL_TRY(status, shoali_hub_read_number(reader, reader->root, "", key, "num-query-groups"),
              done);
done:
    return status;
}

/* ---- activation ----------------------------------------------------------------------------- */

/* Words of transformers, and the options that say the same. The first of equal ones is written. */
static const struct activation {
    const char *name, *option; /* NULL: a GELU */
    bool gated, plain;         /* where it is computed: with a gate, without one */
    bool tanh_form;
} activations[] = {
    {"silu", "swiglu", true, false, false},        {"swish", "swiglu", true, false, false},
    {"gelu_pytorch_tanh", NULL, true, true, true}, {"gelu_new", NULL, true, true, true},
    {"gelu_fast", NULL, true, true, true},         {"gelu", NULL, true, true, false},
    {"gelu_python", NULL, true, true, false},      {"relu", "relu", false, true, false},
    {"relu2", "squared-relu", false, true, false},
};
enum { ACTIVATIONS = sizeof activations / sizeof activations[0] };

static const struct activation *find_activation(const char *name, bool gated)
{
    for (int i = 0; name && i < ACTIVATIONS; i++)
        if (strcmp(activations[i].name, name) == 0 &&
            (gated ? activations[i].gated : activations[i].plain))
            return &activations[i];
    return NULL;
}

static bool is(const struct activation *found, const char *option)
{
    return found->option && strcmp(found->option, option) == 0;
}

shoal_status shoali_hub_read_activation(struct shoali_hub_reader *reader, const char *key,
                                        const char *absent, bool gated)
{
    shoal_status status;
    const json_t *value = shoali_hub_get(reader, key);
    const struct activation *found =
        find_activation(value ? json_string_value(value) : absent, gated);
    if (!found)
        return shoali_hub_refuse(
            reader, key, value,
            gated ? "and only silu, gelu and gelu_pytorch_tanh are computed"
                  : "and only relu, relu2, gelu, gelu_new and gelu_pytorch_tanh are computed");
    SHOAL_TRY(status, shoali_hub_set(reader, key, "swiglu", is(found, "swiglu")), done);
    SHOAL_TRY(status, shoali_hub_set(reader, key, "geglu", gated && !found->option), done);
    SHOAL_TRY(status, shoali_hub_set(reader, key, "relu", is(found, "relu")), done);
    SHOAL_TRY(status, shoali_hub_set(reader, key, "squared-relu", is(found, "squared-relu")), done);
    SHOAL_TRY(status, shoali_hub_set(reader, key, "openai-gelu", found->tanh_form), done);
done:
    return status;
}

const char *shoali_hub_activation_name(const shoal_model_config *config)
{
    const bool tanh_form = shoali_hub_option(config, "openai-gelu") != 0;
    for (int i = 0; i < ACTIVATIONS; i++)
        if (activations[i].option && shoali_hub_option(config, activations[i].option) != 0)
            return activations[i].name;
    return tanh_form ? "gelu_pytorch_tanh" : "gelu";
}

/* ---- window --------------------------------------------------------------------------------- */

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

shoal_status shoali_hub_read_layer_types(struct shoali_hub_reader *reader, bool *sliding)
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

shoal_status shoali_hub_refuse_sliding(struct shoali_hub_reader *reader, const char *why)
{
    shoal_status status;
    bool sliding = false;
    SHOAL_TRY(status, shoali_hub_read_layer_types(reader, &sliding), done);
    if (sliding)
        status =
            shoali_hub_refuse(reader, "layer_types", shoali_hub_get(reader, "layer_types"), why);
done:
    return status;
}

shoal_status shoali_hub_read_window(struct shoali_hub_reader *reader, bool sliding)
{
    if (!sliding)
        return shoali_hub_set(reader, "sliding_window", "window-size", 0);
    const json_t *value = shoali_hub_get(reader, "sliding_window");
    if (json_is_number(value) && json_number_value(value) < 1)
        return shoali_hub_refuse(reader, "sliding_window", value, "it must be 1 or more, or null");
    return shoali_hub_read_number(reader, reader->root, "", "sliding_window", "window-size");
}

json_t *shoali_hub_window(const shoal_model_config *config)
{
    const json_int_t window = (json_int_t)shoali_hub_option(config, "window-size");
    return window > 0 ? json_integer(window) : json_null();
}

/* ---- the row -------------------------------------------------------------------------------- */

static const char *const always_seen[] = {
    "group-query-attention", "num-query-groups", "swiglu",       "geglu", "relu",
    "squared-relu",          "openai-gelu",      "weight-names", NULL};
static const char *const rope_seen[] = {"rotary-base",
                                        "rotary-percent",
                                        "rotary-seq-len-interpolation-factor",
                                        "use-rope-scaling",
                                        "rope-scaling-factor",
                                        "rope-scaling-low-freq-factor",
                                        "rope-scaling-high-freq-factor",
                                        "rope-scaling-original-max-position",
                                        NULL};

bool shoali_hub_decoder_sees(const struct shoali_hub_decoder *decoder, const char *option)
{
    return shoali_hub_is_one_of(option, always_seen) || strcmp(option, "kv-channels") == 0 ||
           (decoder->rope && shoali_hub_is_one_of(option, rope_seen)) ||
           (decoder->window && strcmp(option, "window-size") == 0);
}

static bool has_key(const struct shoali_hub_family *family, const char *option)
{
    for (int32_t i = 0; i < family->key_count; i++)
        if (family->keys[i].option && strcmp(family->keys[i].option, option) == 0)
            return true;
    return false;
}

static shoal_status read_decoder_window(struct shoali_hub_reader *reader)
{
    shoal_status status;
    bool sliding = shoali_hub_get(reader, "sliding_window") != NULL;
    SHOAL_TRY(status, shoali_hub_read_layer_types(reader, &sliding), done);
    SHOAL_TRY(status, shoali_hub_read_window(reader, sliding), done);
done:
    return status;
}

shoal_status shoali_hub_read_decoder(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const struct shoali_hub_decoder *decoder = reader->family->decoder;
    SHOAL_TRY(status, shoali_hub_set(reader, "model_type", "weight-names", decoder->names), done);
    if (decoder->heads)
        SHOAL_TRY(status, shoali_hub_read_heads(reader, decoder->heads), done);
    SHOAL_TRY(status,
              shoali_hub_read_activation(reader, decoder->activation, decoder->activation_absent,
                                         decoder->gated),
              done);
    if (decoder->rotary_percent > 0 && !has_key(reader->family, "rotary-percent"))
        SHOAL_TRY(status,
                  shoali_hub_set(reader, "model_type", "rotary-percent", decoder->rotary_percent),
                  done);
    if (decoder->rotary_base > 0)
        SHOAL_TRY(status, shoali_hub_set(reader, "model_type", "rotary-base", decoder->rotary_base),
                  done);
    if (decoder->rope)
        SHOAL_TRY(status, shoali_hub_read_positions(reader), done);
    if (decoder->window)
        SHOAL_TRY(status, read_decoder_window(reader), done);
    else
        SHOAL_TRY(status, shoali_hub_refuse_sliding(reader, "and such a model has no window"),
                  done);
done:
    return status;
}

void shoali_hub_write_decoder(struct shoali_hub_writer *writer)
{
    const struct shoali_hub_decoder *decoder = writer->family->decoder;
    const json_int_t groups = (json_int_t)shoali_hub_option(writer->config, "num-query-groups");
    if (decoder->heads)
        shoali_hub_put(writer, decoder->heads, json_integer(groups));
    shoali_hub_put(writer, decoder->activation,
                   json_string(shoali_hub_activation_name(writer->config)));
    if (decoder->rope)
        shoali_hub_write_positions(writer);
    if (decoder->window)
        shoali_hub_put(writer, "sliding_window", shoali_hub_window(writer->config));
}

bool shoali_hub_decoder_says(const struct shoali_hub_family *family,
                             const shoal_model_config *config)
{
    const struct shoali_hub_decoder *decoder = family->decoder;
    const bool gated =
        shoali_hub_option(config, "swiglu") != 0 || shoali_hub_option(config, "geglu") != 0;
    const double heads = shoali_hub_option(config, "num-attention-heads");
    const double size = shoali_hub_option(config, "kv-channels");
    const double names = shoali_hub_option(config, "weight-names");
    if ((names != decoder->names && !family->says) || gated != decoder->gated)
        return false;
    if (!decoder->heads && !family->says && shoali_hub_option(config, "num-query-groups") != heads)
        return false;
    return has_key(family, "kv-channels") || size == 0 ||
           size * heads == shoali_hub_option(config, "hidden-size");
}
