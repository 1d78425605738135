/* The options of a model as flags. */
#include "flags/model.h"

#include <stdio.h>
#include <string.h>

/* What the flags are stored in: each option's value in the form of its row. */
union value {
    int64_t whole;
    double real;
    bool flag;
    int32_t choice;
};
struct values {
    uint64_t given[SHOALI_GIVEN_WORDS];
    union value value[];
};

static struct shoali_option make_row(const shoal_model_option *option, int32_t index, bool preset,
                                     double value)
{
    static const enum shoali_option_type types[] = {[SHOAL_MODEL_INT] = SHOALI_INT,
                                                    [SHOAL_MODEL_FLOAT] = SHOALI_FLOAT,
                                                    [SHOAL_MODEL_BOOL] = SHOALI_BOOL,
                                                    [SHOAL_MODEL_CHOICE] = SHOALI_ENUM};
    struct shoali_option row = {.key = option->name,
                                .type = types[option->type],
                                .offset = offsetof(struct values, value) +
                                          (size_t)index * sizeof(union value),
                                .default_number = value,
                                .min = option->min,
                                .max = option->max,
                                .choices = option->choices,
                                .unit = option->unit,
                                .help = option->help};
    if (option->required)
        row.flags = preset ? SHOALI_OPTION_COMMON : SHOALI_OPTION_REQUIRED;
    if (option->type == SHOAL_MODEL_BOOL && value != 0 && !option->flag)
        row.flags |= SHOALI_OPTION_NO_PREFIX;
    if (option->flag) {
        row.key = option->flag;
        row.default_number = value == 0;
    }
    return row;
}

static int32_t count_options(const shoal_model_config *config)
{
    int32_t count = 0;
    while (shoal_model_config_option(config, count))
        count++;
    return count;
}

static shoal_status make_rows(struct model_flags *flags, bool preset, struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    const int32_t count = count_options(flags->config);
    const size_t bytes = sizeof(struct values) + (size_t)count * sizeof(union value);
    struct shoali_option *rows = shoali_arena_alloc(arena, (size_t)count * sizeof *rows);
    struct values *values = shoali_arena_alloc(arena, bytes);
    if (!rows || !values) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < count; i++) {
        const shoal_model_option *option = shoal_model_config_option(flags->config, i);
        double value;
        SHOAL_TRY(status, shoal_model_config_get(flags->config, option->name, &value), done);
        rows[i] = make_row(option, i, preset, value);
    }
    flags->section = (struct shoali_section){.name = "model",
                                             .instead = "a known size as MODEL, such as "
                                                        "gpt2-124m, or the checkpoint of --load",
                                             .rows = rows,
                                             .row_count = count,
                                             .struct_bytes = bytes,
                                             .given_offset = offsetof(struct values, given)};
    flags->table = (struct shoali_flags){&flags->section, values};
    SHOAL_TRY(status, shoali_config_defaults(&flags->section, values, arena), done);
done:
    return status;
}

shoal_status model_flags_init(struct model_flags *flags, const char *name,
                              struct shoali_arena *arena)
{
    shoal_status status;
    *flags = (struct model_flags){0};
    SHOAL_TRY(status, shoal_model_config_create(name, &flags->config), done);
    const bool preset = strcmp(shoal_model_config_name(flags->config), name) != 0;
    SHOAL_TRY(status, make_rows(flags, preset, arena), done);
done:
    return status;
}

shoal_status model_flags_init_megatron(struct model_flags *flags, struct shoali_arena *arena)
{
    static const struct {
        const char *option;
        double value;
    } defaults[] = {{"swiglu", 0},
                    {"disable-bias-linear", 0},
                    {"untie-embeddings-and-output-weights", 0},
                    {"attention-dropout", 0.1},
                    {"hidden-dropout", 0.1}};
    shoal_status status;
    *flags = (struct model_flags){0};
    SHOAL_TRY(status, shoal_model_config_create("llama", &flags->config), done);
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        SHOAL_TRY(status,
                  shoal_model_config_set(flags->config, defaults[i].option, defaults[i].value),
                  done);
    SHOAL_TRY(status, shoal_model_config_set_choice(flags->config, "normalization", "LayerNorm"),
              done);
    SHOAL_TRY(
        status,
        shoal_model_config_set_choice(flags->config, "position-embedding-type", "learned_absolute"),
        done);
    SHOAL_TRY(status, make_rows(flags, false, arena), done);
done:
    return status;
}

shoal_status model_flags_init_of(struct model_flags *flags, shoal_model_config *config,
                                 struct shoali_arena *arena)
{
    *flags = (struct model_flags){.config = config};
    return make_rows(flags, true, arena);
}

shoal_status model_flags_word(const char *tool, int argc, char **argv, const char **model,
                              int *skip, char *command, size_t bytes)
{
    shoal_status status = SHOAL_OK;
    shoal_model_config *config = NULL;
    *skip = argc > 1 && argv[1][0] != '-';
    *model = *skip ? argv[1] : shoal_model_name(0);
    if (argc < 2)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: name a model, such as %s or %s; see %s --help", tool,
                          shoal_model_name(0), shoal_model_preset_name(0), tool);
    status = shoal_model_config_create(*model, &config);
    shoal_model_config_destroy(config);
    snprintf(command, bytes, "%s %s", tool, *model);
    return status < 0 ? shoali_error_prefix(status, "%s", tool) : status;
}

void model_flags_fini(struct model_flags *flags)
{
    shoal_model_config_destroy(flags->config);
}

shoal_status model_flags_take(struct model_flags *flags)
{
    shoal_status status = SHOAL_OK;
    const struct values *values = flags->table.config;
    for (int32_t i = 0; i < flags->section.row_count; i++) {
        const shoal_model_option *option = shoal_model_config_option(flags->config, i);
        const union value *at = &values->value[i];
        const double value = option->type == SHOAL_MODEL_INT      ? (double)at->whole
                             : option->type == SHOAL_MODEL_FLOAT  ? at->real
                             : option->type == SHOAL_MODEL_CHOICE ? (double)at->choice
                                                                  : at->flag != (option->flag != 0);
        if (shoali_config_given(&flags->section, values, flags->section.rows[i].key))
            SHOAL_TRY(status, shoal_model_config_set(flags->config, option->name, value), done);
    }
done:
    return status;
}

bool model_flags_given(const struct model_flags *flags, const char *option)
{
    return shoali_config_given(&flags->section, flags->table.config, option);
}

int64_t model_flags_int(const struct model_flags *flags, const char *option)
{
    double value = 0;
    const shoal_status status = shoal_model_config_get(flags->config, option, &value);
    SHOAL_ASSERT(status == SHOAL_OK);
    return (int64_t)value;
}
