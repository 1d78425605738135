/* What is done with a row of the table. */
#include "autograd/autograd.h"
#include "base/json.h"
#include "base/plain.h"
#include "base/str.h"
#include "transformer/transformer.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 256 };

/* ---- names ---------------------------------------------------------------------------------- */

const char *shoal_model_name(int32_t index)
{
    for (int32_t i = 0; i <= index; i++)
        if (shoali_model_rows[i] == NULL)
            return NULL;
    return index < 0 ? NULL : shoali_model_rows[index]->name;
}

/* The index-th of all rows; NULL: there are fewer. */
static const struct shoali_model_preset *preset_at(int32_t index,
                                                   const struct shoali_model_row **row)
{
    for (int32_t i = 0; shoali_model_rows[i] != NULL; i++) {
        *row = shoali_model_rows[i];
        if (index >= 0 && index < (*row)->preset_count)
            return &(*row)->presets[index];
        index -= (*row)->preset_count;
    }
    return NULL;
}

const char *shoal_model_preset_name(int32_t index)
{
    const struct shoali_model_row *row;
    const struct shoali_model_preset *preset = preset_at(index, &row);
    return preset ? preset->name : NULL;
}

static const struct shoali_model_row *find_row(const char *name)
{
    for (int32_t i = 0; shoali_model_rows[i] != NULL; i++)
        if (strcmp(shoali_model_rows[i]->name, name) == 0)
            return shoali_model_rows[i];
    return NULL;
}

static shoal_status fail_unknown(const char *name)
{
    const char *names[NAMES_MAX], *each;
    struct shoali_str list = {0};
    size_t count = 0;
    for (int32_t i = 0; (each = shoal_model_name(i)) != NULL && count < NAMES_MAX; i++)
        names[count++] = each;
    for (int32_t i = 0; (each = shoal_model_preset_name(i)) != NULL && count < NAMES_MAX; i++)
        names[count++] = each;
    for (size_t i = 0; i < count; i++)
        shoali_str_append(&list, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = shoali_nearest(name, names, count);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_EINVAL, "there is no model \"%s\"%s%s; there are: %s", name,
                   nearest ? "; nearest is " : "", nearest ? nearest : "", shoali_str_get(&list));
    shoali_str_fini(&list);
    return status;
}

/* ---- values --------------------------------------------------------------------------------- */

static double read_value(const struct shoali_model_option *option, const void *values)
{
    const void *at = (const char *)values + option->offset;
    if (option->option.type == SHOAL_MODEL_INT || option->option.type == SHOAL_MODEL_CHOICE)
        return (double)*(const int64_t *)at;
    return option->option.type == SHOAL_MODEL_FLOAT ? *(const double *)at
                                                    : (double)*(const bool *)at;
}

static void write_value(const struct shoali_model_option *option, double value, void *values)
{
    void *at = (char *)values + option->offset;
    if (option->option.type == SHOAL_MODEL_INT || option->option.type == SHOAL_MODEL_CHOICE)
        *(int64_t *)at = (int64_t)value;
    else if (option->option.type == SHOAL_MODEL_FLOAT)
        *(double *)at = value;
    else
        *(bool *)at = value != 0;
}

const void *shoali_model_share(const void *configs, int32_t i, size_t bytes)
{
    const char *config = configs, *last = config + (size_t)i * bytes;
    while (memcmp(config, last, bytes) != 0)
        config += bytes;
    return config;
}

void shoali_model_defaults(const struct shoali_model_row *row, void *values)
{
    memset(values, 0, row->values_bytes);
    for (int32_t i = 0; i < row->option_count; i++)
        write_value(&row->options[i], row->options[i].option.default_value, values);
}

static const struct shoali_model_option *find_option(const shoal_model_config *config,
                                                     const char *name)
{
    for (int32_t i = 0; i < config->row->option_count; i++)
        if (strcmp(config->row->options[i].option.name, name) == 0)
            return &config->row->options[i];
    return NULL;
}

static shoal_status require_option(const shoal_model_config *config, const char *name,
                                   const struct shoali_model_option **option)
{
    *option = find_option(config, name);
    return *option ? SHOAL_OK
                   : SHOAL_FAIL(SHOAL_EINVAL, "a model `%s` has no option `%s`", config->row->name,
                                name);
}

static int64_t count_choices(const shoal_model_option *option)
{
    int64_t count = 0;
    while (option->choices[count])
        count++;
    return count;
}

/* Its index; -1: there is none of that name. */
static int64_t find_choice(const shoal_model_option *option, const char *name)
{
    for (int64_t i = 0; name && option->choices[i]; i++)
        if (shoali_strcasecmp(option->choices[i], name) == 0)
            return i;
    return -1;
}

shoal_status shoal_model_config_set_choice(shoal_model_config *config, const char *name,
                                           const char *choice)
{
    shoal_status status;
    const struct shoali_model_option *option;
    struct shoali_str list = {0};
    SHOAL_TRY(status, require_option(config, name, &option), done);
    if (option->option.type != SHOAL_MODEL_CHOICE) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--%s has no named choices", name);
        goto done;
    }
    const int64_t index = find_choice(&option->option, choice);
    if (index >= 0) {
        write_value(option, (double)index, config->values);
        goto done;
    }
    for (int64_t i = 0; option->option.choices[i]; i++)
        shoali_str_append(&list, "%s%s", i ? ", " : "", option->option.choices[i]);
    status = SHOAL_FAIL(SHOAL_EINVAL, "--%s is \"%s\"; give one of %s", name, choice,
                        shoali_str_get(&list));
done:
    shoali_str_fini(&list);
    return status;
}

shoal_status shoal_model_config_set(shoal_model_config *config, const char *name, double value)
{
    shoal_status status;
    const struct shoali_model_option *option;
    SHOAL_TRY(status, require_option(config, name, &option), done);
    const bool choice = option->option.type == SHOAL_MODEL_CHOICE;
    const double most = choice ? (double)(count_choices(&option->option) - 1) : option->option.max;
    const bool bounded = choice || option->option.min != 0 || option->option.max != 0;
    const bool fits = !bounded || (value >= option->option.min && value <= most);
    if (option->option.type == SHOAL_MODEL_BOOL && value != 0 && value != 1)
        status = SHOAL_FAIL(SHOAL_EINVAL, "--%s is %g; give 0 or 1", name, value);
    else if ((choice || option->option.type == SHOAL_MODEL_INT) && value != floor(value))
        status = SHOAL_FAIL(SHOAL_EINVAL, "--%s is %g; give a whole number", name, value);
    else if (!fits)
        status = SHOAL_FAIL(SHOAL_EINVAL, "--%s is %.17g; give a number from %g to %g", name, value,
                            option->option.min, most);
    else
        write_value(option, value, config->values);
done:
    return status;
}

shoal_status shoal_model_config_get(const shoal_model_config *config, const char *name,
                                    double *value)
{
    shoal_status status;
    const struct shoali_model_option *option;
    SHOAL_TRY(status, require_option(config, name, &option), done);
    *value = read_value(option, config->values);
done:
    return status;
}

/* ---- configurations ------------------------------------------------------------------------- */

static shoal_status make_config(const struct shoali_model_row *row, shoal_model_config **config)
{
    shoal_model_config *made = shoali_calloc(1, sizeof *made, "a model's configuration");
    *config = NULL;
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->row = row;
    made->values = shoali_calloc(1, row->values_bytes, "a model's configuration");
    if (made->values == NULL) {
        shoal_model_config_destroy(made);
        return SHOAL_ENOMEM;
    }
    shoali_model_defaults(row, made->values);
    *config = made;
    return SHOAL_OK;
}

shoal_status shoal_model_config_create(const char *name, shoal_model_config **config)
{
    shoal_status status;
    const struct shoali_model_preset *preset = NULL;
    const struct shoali_model_row *row = find_row(name), *of = NULL;
    *config = NULL;
    for (int32_t i = 0; row == NULL && (preset = preset_at(i, &of)) != NULL; i++)
        if (strcmp(preset->name, name) == 0)
            row = of;
    if (row == NULL)
        return fail_unknown(name);
    SHOAL_TRY(status, make_config(row, config), done);
    (*config)->preset = preset;
    if (preset != NULL)
        memcpy((*config)->values, preset->values, row->values_bytes);
done:
    return status;
}

void shoal_model_config_destroy(shoal_model_config *config)
{
    if (config == NULL)
        return;
    shoali_free(config->values);
    shoali_free(config);
}

const char *shoal_model_config_name(const shoal_model_config *config)
{
    return config->row->name;
}

const shoal_model_option *shoal_model_config_option(const shoal_model_config *config, int32_t index)
{
    return index >= 0 && index < config->row->option_count ? &config->row->options[index].option
                                                           : NULL;
}

const char *shoal_model_config_describe(const shoal_model_config *config, char *text, size_t bytes)
{
    config->row->describe(config->values, text, bytes);
    return text;
}

void shoal_model_config_bench_batch(const shoal_model_config *config, int64_t *micro_batch,
                                    int64_t *seq_length)
{
    *micro_batch = config->preset ? config->preset->bench_micro_batch : 1;
    *seq_length = config->preset
                      ? config->preset->bench_seq_length
                      : (int64_t)read_value(find_option(config, "seq-length"), config->values);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *value_to_json(const struct shoali_model_option *option, const void *values)
{
    const double value = read_value(option, values);
    if (option->option.type == SHOAL_MODEL_INT)
        return json_integer((json_int_t)value);
    if (option->option.type == SHOAL_MODEL_CHOICE)
        return json_string(option->option.choices[(int64_t)value]);
    return option->option.type == SHOAL_MODEL_FLOAT ? json_real(value) : json_boolean(value != 0);
}

shoal_status shoal_model_config_to_json(const shoal_model_config *config, char **json)
{
    shoal_status status;
    const struct shoali_model_row *row = config->row;
    json_t *object = json_object();
    int failed = json_object_set_new(object, "model_type", json_string(row->name));
    *json = NULL;
    for (int32_t i = 0; i < row->option_count; i++)
        failed |= json_object_set_new(object, row->options[i].option.name,
                                      value_to_json(&row->options[i], config->values));
    status = failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the model configuration")
                    : shoali_json_write(object, JSON_COMPACT, "the model configuration", json);
    json_decref(object);
    return status;
}

static bool value_from_json(const struct shoali_model_option *option, const json_t *value,
                            void *values)
{
    const shoal_model_option_type type = option->option.type;
    if (type == SHOAL_MODEL_CHOICE) {
        const int64_t index = find_choice(&option->option, json_string_value(value));
        if (index >= 0)
            write_value(option, (double)index, values);
        return index >= 0;
    }
    if (type == SHOAL_MODEL_BOOL  ? !json_is_boolean(value)
        : type == SHOAL_MODEL_INT ? !json_is_integer(value)
                                  : !json_is_number(value))
        return false;
    write_value(option, type == SHOAL_MODEL_BOOL ? json_is_true(value) : json_number_value(value),
                values);
    return true;
}

/* Descriptions from before there was a table are of GPT-2. */
static shoal_status row_of_json(const json_t *object, const struct shoali_model_row **row)
{
    const json_t *type = json_object_get(object, "model_type");
    const char *name = type ? json_string_value(type) : shoali_model_gpt.name;
    *row = name ? find_row(name) : NULL;
    if (*row)
        return SHOAL_OK;
    return SHOAL_FAIL(
        SHOAL_ECORRUPT,
        "the stored model configuration is of a model \"%s\", which this version does "
        "not have",
        name ? name : "without a name");
}

static shoal_status options_from_json(json_t *object, shoal_model_config *config)
{
    const struct shoali_model_row *row = config->row;
    const char *key;
    json_t *value;
    for (int32_t i = 0; i < row->option_count; i++) {
        value = json_object_get(object, row->options[i].option.name);
        if (!value && row->options[i].newer)
            continue;
        if (!value || !value_from_json(&row->options[i], value, config->values))
            return SHOAL_FAIL(SHOAL_ECORRUPT, "the stored model configuration has no valid `%s`",
                              row->options[i].option.name);
    }
    json_object_foreach(
        object, key,
        value) if (strcmp(key, "model_type") != 0 &&
                   !find_option(config,
                                key)) return SHOAL_FAIL(SHOAL_ECORRUPT,
                                                        "the stored model configuration has `%s`, "
                                                        "which this version's `%s` "
                                                        "does not know",
                                                        key, row->name);
    return SHOAL_OK;
}

shoal_status shoal_model_config_from_json(const char *json, shoal_model_config **config)
{
    shoal_status status;
    struct shoali_json_error error;
    const struct shoali_model_row *row;
    json_t *object = NULL;
    *config = NULL;
    status = shoali_json_read(json, strlen(json), &object, &error);
    if (status == SHOAL_ENOMEM)
        goto done;
    if (!json_is_object(object)) {
        status =
            SHOAL_FAIL(SHOAL_ECORRUPT, "the stored model configuration is not a JSON object (%s)",
                       object ? "another type" : error.text);
        goto done;
    }
    SHOAL_TRY(status, row_of_json(object, &row), done);
    SHOAL_TRY(status, make_config(row, config), done);
    SHOAL_TRY(status, options_from_json(object, *config), done);
done:
    if (status < 0) {
        shoal_model_config_destroy(*config);
        *config = NULL;
    }
    json_decref(object);
    return status;
}

/* ---- models --------------------------------------------------------------------------------- */

static struct shoali_model *model_of(const shoal_model *model)
{
    return (struct shoali_model *)(uintptr_t)model;
}

shoal_status shoali_model_create(const struct shoali_model_row *row, const void *values,
                                 shoal_model **model)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_model *made = shoali_calloc(1, sizeof *made, "a model");
    *model = NULL;
    if (made == NULL)
        return status;
    shoali_arena_init(&made->arena);
    made->config = (shoal_model_config){
        .row = row, .values = shoali_arena_alloc(&made->arena, row->values_bytes)};
    if (made->config.values == NULL)
        goto done;
    memcpy(made->config.values, values, row->values_bytes);
    SHOAL_TRY(status, row->complete(made->config.values), done);
    SHOAL_TRY(status, row->build(made), done);
    *model = &made->model;
done:
    if (status < 0)
        shoal_model_destroy(&made->model);
    return status;
}

shoal_sample_kind shoal_model_config_samples(const shoal_model_config *config)
{
    return config->row->samples ? config->row->samples(config->values) : SHOAL_SAMPLE_NEXT_TOKEN;
}

shoal_status shoali_model_of_tokens(struct shoali_model *made, const shoal_layer_spec *layers,
                                    int32_t count, int64_t length)
{
    shoal_input_spec *input = shoali_arena_alloc(&made->arena, 2 * sizeof *input);
    if (!input)
        return SHOAL_ENOMEM;
    for (int i = 0; i < 2; i++)
        input[i] = (shoal_input_spec){.name = i == 0 ? "tokens" : "targets",
                                      .dtype = SHOAL_I32,
                                      .sample_shape = shoal_shape_1(length)};
    made->model = (shoal_model){.name = made->config.row->name,
                                .layers = layers,
                                .layer_count = count,
                                .inputs = input,
                                .input_count = 2,
                                .tokens_per_sample = length};
    return SHOAL_OK;
}

shoal_status shoal_model_create(const shoal_model_config *config, shoal_model **model)
{
    return shoali_model_create(config->row, config->values, model);
}

void shoal_model_destroy(shoal_model *model)
{
    if (model == NULL)
        return;
    struct shoali_model *made = model_of(model);
    shoali_arena_fini(&made->arena);
    shoali_free(made);
}

const shoal_model_config *shoal_model_get_config(const shoal_model *model)
{
    return &model_of(model)->config;
}

shoal_status shoal_model_param_count(const shoal_model *model, int64_t *count)
{
    shoal_status status;
    struct shoali_module module;
    SHOAL_TRY(status, shoali_module_init(&module, model, SHOAL_F32, NULL, 0), done);
    *count = module.element_count;
    shoali_module_fini(&module);
done:
    return status;
}

shoal_status shoal_model_flops_per_token(const shoal_model *model, double *flops)
{
    shoal_status status;
    int64_t count;
    const shoal_model_config *config = shoal_model_get_config(model);
    SHOAL_TRY(status, shoal_model_param_count(model, &count), done);
    *flops = 6.0 * (double)count;
    if (config->row->attention_flops)
        *flops += config->row->attention_flops(config->values);
done:
    return status;
}
