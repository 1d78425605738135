/* Rotary positions: rope_theta, rope_scaling and rope_parameters, both ways. */
#include "hub/hub.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------- */

static shoal_status check_scaling_keys(const struct shoali_hub_reader *reader, json_t *scaling,
                                       const char *place, const char *type)
{
    static const char *const always[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor",
                                         NULL};
    static const char *const more[] = {"low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings", NULL};
    const bool llama3 = strcmp(type, "llama3") == 0, scales = strcmp(type, "default") != 0;
    const char *key;
    json_t *value;
    char path[96];
    json_object_foreach(scaling, key, value)
    {
        const bool factor = strcmp(key, "factor") == 0;
        const bool none = factor && json_number_value(value) == 1; /* says what holds anyway */
        snprintf(path, sizeof path, "%s.%.60s", place, key);
        if (!json_is_null(value) && !shoali_hub_is_one_of(key, always) &&
            !(llama3 && shoali_hub_is_one_of(key, more)) && !(factor && scales) && !none)
            return shoali_hub_refuse(reader, path, value,
                                     "and nothing is known of this key for such positions");
    }
    return SHOAL_OK;
}

/* Of linear and dynamic. Without a number, or with 0, nothing would be scaled. */
static shoal_status check_factor(const struct shoali_hub_reader *reader, const json_t *scaling,
                                 const char *place)
{
    char path[96];
    const json_t *factor = json_object_get(scaling, "factor");
    snprintf(path, sizeof path, "%s.factor", place);
    if (json_is_number(factor) && json_number_value(factor) >= 1)
        return SHOAL_OK;
    return shoali_hub_refuse(reader, factor ? path : place, factor ? factor : scaling,
                             factor ? "it must be a number of at least 1"
                                    : "and such a type needs a number factor");
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
        SHOAL_TRY(status, shoali_hub_read_number(reader, scaling, place, pairs[i][0], pairs[i][1]),
                  done);
    }
done:
    return status;
}

/* What the type says. `dynamic` changes nothing up to max_position_embeddings, and no further is a
 * text read; whoever reads further finds it in what is written (write_dynamic). */
static shoal_status read_scaling(struct shoali_hub_reader *reader, const json_t *scaling,
                                 const char *place, const char *type)
{
    shoal_status status = SHOAL_OK;
    const bool linear = strcmp(type, "linear") == 0;
    if (strcmp(type, "llama3") == 0)
        return read_llama3(reader, scaling, place);
    if (linear || strcmp(type, "dynamic") == 0)
        SHOAL_TRY(status, check_factor(reader, scaling, place), done);
    if (linear)
        SHOAL_TRY(status,
                  shoali_hub_read_number(reader, scaling, place, "factor",
                                         "rotary-seq-len-interpolation-factor"),
                  done);
done:
    return status;
}

/* Old files: rope_theta and rope_scaling {type}; new ones: rope_parameters {rope_type, rope_theta}.
 * With both, transformers reads the new one. */
shoal_status shoali_hub_read_positions(struct shoali_hub_reader *reader)
{
    static const char *const types[] = {"default", "linear", "dynamic", "llama3", NULL};
    shoal_status status;
    const char *place =
        shoali_hub_get(reader, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    json_t *scaling = json_object_get(reader->root, place);
    const json_t *named = json_object_get(scaling, "rope_type");
    const json_t *type = named ? named : json_object_get(scaling, "type");
    const char *name = type ? json_string_value(type) : "default";
    const json_t *old = json_object_get(scaling, "type");
    char path[64];
    SHOAL_TRY(status, shoali_hub_read_number(reader, reader->root, "", "rope_theta", "rotary-base"),
              done);
    SHOAL_TRY(
        status,
        shoali_hub_read_number(reader, reader->root, "", "partial_rotary_factor", "rotary-percent"),
        done);
    if (!scaling || json_is_null(scaling))
        return SHOAL_OK;
    if (!json_is_object(scaling))
        return shoali_hub_refuse(reader, place, scaling, "it must be an object {...}");
    SHOAL_TRY(status, shoali_hub_read_number(reader, scaling, place, "rope_theta", "rotary-base"),
              done);
    SHOAL_TRY(
        status,
        shoali_hub_read_number(reader, scaling, place, "partial_rotary_factor", "rotary-percent"),
        done);
    snprintf(path, sizeof path, "%s.%s", place, named ? "rope_type" : "type");
    if (!name || !shoali_hub_is_one_of(name, types))
        return shoali_hub_refuse(reader, path, type,
                                 "and only default, linear, dynamic and llama3 are computed");
    if (old && !json_is_null(old) && !json_equal(old, type)) {
        snprintf(path, sizeof path, "%s.type", place);
        return shoali_hub_refuse(reader, path, old, "and rope_type has another value");
    }
    SHOAL_TRY(status, read_scaling(reader, scaling, place, name), done);
    SHOAL_TRY(status, check_scaling_keys(reader, scaling, place, name), done);
done:
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

static double option(const struct shoali_hub_writer *writer, const char *name)
{
    return shoali_hub_option(writer->config, name);
}

/* Of the folder that the model came from: {"rope_type": "dynamic", "factor": ...}; NULL: not
 * dynamic. */
static json_t *write_dynamic(struct shoali_hub_writer *writer)
{
    const json_t *parameters = json_object_get(writer->source, "rope_parameters");
    const json_t *from =
        json_is_object(parameters) ? parameters : json_object_get(writer->source, "rope_scaling");
    const json_t *named = json_object_get(from, "rope_type");
    const char *type = json_string_value(named ? named : json_object_get(from, "type"));
    if (!type || strcmp(type, "dynamic") != 0)
        return NULL;
    json_t *scaling = json_pack("{s:s}", "rope_type", type);
    writer->failed |=
        !scaling || json_object_set(scaling, "factor", json_object_get(from, "factor")) != 0;
    return scaling;
}

/* As old and new versions of transformers read it. */
void shoali_hub_write_positions(struct shoali_hub_writer *writer)
{
    const double linear = option(writer, "rotary-seq-len-interpolation-factor");
    const double part = option(writer, "rotary-percent");
    json_t *scaling = NULL;
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
    else
        scaling = write_dynamic(writer);
    shoali_hub_put(writer, "rope_theta", json_real(option(writer, "rotary-base")));
    shoali_hub_put(writer, "rope_scaling", scaling ? scaling : json_null());
    const struct shoali_hub_decoder *decoder = writer->family->decoder;
    if (part != 1 || json_object_get(writer->source, "partial_rotary_factor") ||
        (decoder && decoder->rotary_percent > 0))
        shoali_hub_put(writer, "partial_rotary_factor", json_real(part));
}
