/* What is asked of the table of Megatron's flags (known.c) beside parsing. */
#include "pretrain/pretrain.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* The row of a flag; `value`: the word behind it. */
static const struct shoali_option *find_row(const char *name, const char *value)
{
    const struct shoali_section *section = &pretrain_known_section;
    for (int32_t pass = 0; pass < 2; pass++) /* rows about this value first */
        for (int32_t i = 0; i < section->row_count; i++) {
            const struct shoali_option *row = &section->rows[i];
            if (shoali_flags_same_name(row->key, name) && (pass == 0) == (row->when != NULL) &&
                (!row->when || strcmp(row->when, value) == 0))
                return row;
        }
    return NULL;
}

/* The models that flags tell apart. */
struct models {
    shoal_model_config *gpt, *llama;
};

static bool has_flag(const shoal_model_config *config, const char *name)
{
    const shoal_model_option *option;
    for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++)
        if (shoali_flags_same_name(option->flag ? option->flag : option->name, name))
            return true;
    return false;
}

/* A flag that llama has and gpt does not, with another value than gpt always has. */
static bool is_of_llama(const struct models *models, const char *name, const char *value)
{
    double number;
    const struct shoali_option *row = find_row(name, value);
    if (!has_flag(models->llama, name) || has_flag(models->gpt, name))
        return false;
    if (!row || row->state != SHOALI_ELSEWHERE || row->type == SHOALI_BOOL)
        return true;
    if (row->default_text)
        return strcmp(value, row->default_text) != 0;
    return !shoali_parse_f64(value, &number) || number != row->default_number;
}

/* The same for a word "--name" or "--name=value" and the word behind it. */
static bool means_llama(const struct models *models, const char *word, const char *next)
{
    char name[64], other[64];
    const size_t length = strcspn(word, "=");
    if (strncmp(word, "--", 2) != 0 || length - 2 >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)length - 2, word + 2);
    const char *value = word[length] ? word + length + 1 : next ? next : "";
    const struct shoali_option *row = find_row(name, value);
    if (shoali_flags_same_name("no-position-embedding", name))
        return true;
    if (!row || row->state != SHOALI_REPLACED)
        return is_of_llama(models, name, value);
    /* of what it stands for, the first flag and its value */
    const char *flag = row->becomes + 2;
    const size_t end = strcspn(flag, " ");
    snprintf(other, sizeof other, "%.*s", (int)end, flag);
    const char *its = flag + end + strspn(flag + end, " ");
    if (*flag == '$')
        return is_of_llama(models, value, "");
    return is_of_llama(models, other, strchr(its, '$') ? value : its);
}

void pretrain_choose_model(struct pretrain_command *command, int argc, char *const *argv)
{
    struct models models = {0};
    if (strcmp(command->model, "gpt") != 0 || command->any_model)
        return;
    if (shoal_model_config_create("gpt", &models.gpt) == SHOAL_OK &&
        shoal_model_config_create("llama", &models.llama) == SHOAL_OK)
        for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
            command->megatron |= means_llama(&models, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    shoali_error_clear(); /* without memory the parser says so */
    shoal_model_config_destroy(models.gpt);
    shoal_model_config_destroy(models.llama);
    if (!command->megatron)
        return;
    command->model = "llama";
    SHOALI_INFO("config",
                "%s: the flags are those of a llama model; it has the defaults of "
                "Megatron's GPT",
                command->name);
}

/* LEFT,0 of --window-size: LEFT earlier positions and its own; -1: all. NULL: another form. */
static char *window_of(const char *value, struct shoali_arena *arena)
{
    char *end;
    const long long left = strtoll(value, &end, 10);
    if (end == value || strcmp(end, ",0") != 0 || left < -1 || left > INT32_MAX)
        return NULL;
    return shoali_arena_printf(arena, "%lld", left + 1);
}

shoal_status pretrain_take_windows(int argc, char **argv, struct shoali_arena *arena, char ***words)
{
    *words = shoali_arena_alloc(arena, ((size_t)argc + 1) * sizeof **words);
    if (!*words)
        return SHOAL_ENOMEM;
    for (int i = 0; i < argc; i++) {
        const bool follows = i > 0 && strncmp(argv[i - 1], "--", 2) == 0 &&
                             shoali_flags_same_name("window-size", argv[i - 1] + 2);
        char *window = follows ? window_of(argv[i], arena) : NULL;
        (*words)[i] = window ? window : argv[i];
    }
    return SHOAL_OK;
}

static void append_row(const struct shoali_option *row, struct shoali_str *out)
{
    shoali_str_append(out, "--%s%s%s  ", row->key, row->when ? " " : "",
                      row->when ? row->when : "");
    switch (row->state) {
    case SHOALI_NOEFFECT:
        shoali_str_append(out, "no effect: %s\n", row->help);
        break;
    case SHOALI_REPLACED:
        shoali_str_append(out, "stands for %s\n", row->becomes);
        break;
    case SHOALI_PENDING:
        shoali_str_append(out, "not supported, see %s: %s\n", row->see, row->help);
        break;
    default:
        shoali_str_append(out, "%s\n", row->help);
        break;
    }
}

void pretrain_known_help(struct shoali_str *out)
{
    for (int32_t i = 0; i < pretrain_known_section.row_count; i++)
        append_row(&pretrain_known_section.rows[i], out);
}
