/* --load of a folder that describes its model: our checkpoints by their description, a Hugging Face
 * folder by its config.json. The description gives the values of the model's flags. A flag that is
 * given too must have the same value, unless only training needs it; --finetune of a checkpoint may
 * change the model by a flag. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/str.h"
#include "shoal/hub.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The last value of a flag, as the parser of flags takes it; NULL: none. */
static const char *find_value(const char *flag, int argc, char *const *argv)
{
    const char *value = NULL;
    const size_t length = strlen(flag);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0)
            break;
        if (strncmp(argv[i], flag, length) == 0 && argv[i][length] == '=')
            value = argv[i] + length + 1;
        else if (strcmp(argv[i], flag) == 0 && i + 1 < argc)
            value = argv[++i];
    }
    return value;
}

static bool find_switch(const char *flag, int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], flag) == 0)
            return true;
    return false;
}

/* The words of the command that say which checkpoint, and what if there is none. */
struct words {
    const char *load, *save, *tag;
    char step_tag[64];
    bool args, must; /* --use-checkpoint-args; a fresh start is not what is meant */
};

/* False: --ckpt-step is no number, which the parser says. */
static bool read_words(struct words *words, int argc, char *const *argv)
{
    const char *step = find_value("--ckpt-step", argc, argv);
    char *end = NULL;
    const long long number = step ? strtoll(step, &end, 10) : 0;
    *words = (struct words){.load = find_value("--load", argc, argv),
                            .save = find_value("--save", argc, argv),
                            .tag = find_value("--load-tag", argc, argv),
                            .args = find_switch("--use-checkpoint-args", argc, argv)};
    if (step && (end == step || *end || number < 0))
        return false;
    snprintf(words->step_tag, sizeof words->step_tag, "global_step%lld", number);
    if (step && !words->tag)
        words->tag = words->step_tag;
    words->must = words->tag || words->args || find_switch("--finetune", argc, argv) ||
                  find_switch("--exit-on-missing-checkpoint", argc, argv);
    return true;
}

/* Also of folders that do not exist yet. */
static bool same_folder(const char *a, const char *b)
{
    struct stat of_a, of_b;
    if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0)
        return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
    while (strncmp(a, "./", 2) == 0)
        a += 2;
    while (strncmp(b, "./", 2) == 0)
        b += 2;
    size_t m = strlen(a), n = strlen(b);
    while (m > 1 && a[m - 1] == '/')
        m--;
    while (n > 1 && b[n - 1] == '/')
        n--;
    return m == n && strncmp(a, b, m) == 0;
}

/* There is no checkpoint: scripts that start a job again and again begin so. */
static shoal_status may_begin(const struct words *words)
{
    if (!words->must && words->save && same_folder(words->load, words->save))
        return SHOAL_OK;
    if (words->must)
        return SHOAL_ENOENT;
    return SHOAL_FAIL(SHOAL_ENOENT,
                      "there is no checkpoint in %s: give --load the folder of one, or --save the "
                      "same folder to start there at step 0",
                      words->load);
}

/* The model as the checkpoint's description says it. Without one the flags say it. */
static shoal_status read_checkpoint(struct pretrain_hub *hub, const struct words *words)
{
    shoal_status status;
    char *model = NULL, *found = NULL;
    json_t *root = NULL;
    status = shoal_checkpoint_peek(words->load, words->tag, &hub->client, NULL);
    if (status == SHOAL_ENOENT)
        return may_begin(words);
    SHOAL_TRY(status, status, done);
    SHOAL_TRY(status, shoal_checkpoint_find(words->load, words->tag, &found), done);
    snprintf(hub->source, sizeof hub->source, "the checkpoint %s", found);
    if (hub->client)
        SHOAL_TRY(status, shoali_json_read(hub->client, strlen(hub->client), &root, NULL), done);
    const json_t *stored = json_object_get(root, "model");
    if (!stored && words->args)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--use-checkpoint-args: %s has no description of its model (another "
                            "program wrote it): give the model's flags",
                            hub->source);
    if (!stored)
        goto done;
    SHOAL_TRY(status, shoali_json_write(stored, JSON_COMPACT, "the model", &model), done);
    SHOAL_TRY(status, shoal_model_config_from_json(model, &hub->config), done);
    hub->checkpoint = true;
done:
    if (status < 0 && *hub->source && status != SHOAL_EINVAL)
        shoali_error_prefix(status, "%s", hub->source);
    free(model);
    free(found);
    json_decref(root);
    return status;
}

static shoal_status find(struct pretrain_hub *hub, int argc, char *const *argv)
{
    shoal_status status = SHOAL_OK;
    struct words words;
    if (!read_words(&words, argc, argv))
        return SHOAL_OK;
    if (words.args && !words.load)
        return SHOAL_FAIL(SHOAL_EINVAL, "--use-checkpoint-args without --load: name the folder "
                                        "with checkpoints");
    if (!words.load || !*words.load)
        return SHOAL_OK;
    if (!shoal_hub_is_folder(words.load))
        return read_checkpoint(hub, &words);
    const bool allow = find_switch("--allow-unknown-config-keys", argc, argv);
    SHOAL_TRY(status, shoal_hub_read(words.load, allow, &hub->config, NULL), done);
    hub->folder = words.load;
    snprintf(hub->source, sizeof hub->source, "%s/config.json", words.load);
done:
    return status;
}

shoal_status pretrain_hub_find(struct pretrain_hub *hub, int argc, char *const *argv)
{
    *hub = (struct pretrain_hub){0};
    const shoal_status status = find(hub, argc, argv);
    const bool asks = find_switch("--help", argc, argv) || find_switch("-h", argc, argv) ||
                      find_switch("--help-all", argc, argv);
    if (status >= 0 || !asks)
        return status;
    shoali_error_clear();
    return SHOAL_OK;
}

void pretrain_hub_fini(struct pretrain_hub *hub)
{
    shoal_model_config_destroy(hub->config);
    free(hub->client);
}

shoal_status pretrain_hub_tokenizer(const char *client, const char *folder,
                                    shoal_tokenizer **tokenizer)
{
    shoal_status status;
    char *text = NULL;
    json_t *root = NULL;
    *tokenizer = NULL;
    SHOAL_TRY(status, shoali_json_read(client, strlen(client), &root, NULL), done);
    const json_t *stored = json_object_get(root, "tokenizer");
    if (!stored) /* of another program, or trained on random tokens */
        goto done;
    SHOAL_TRY(status, shoali_json_write(stored, JSON_COMPACT, "the checkpoint's tokenizer", &text),
              done);
    SHOAL_TRY(status, shoal_tokenizer_from_json(text, strlen(text), tokenizer), done);
done:
    if (status < 0)
        shoali_error_prefix(status, "%s: the checkpoint's description", folder);
    free(text);
    json_decref(root);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------ */

static shoal_status copy_config(const shoal_model_config *from, shoal_model_config **to)
{
    shoal_status status;
    const shoal_model_option *option;
    double value;
    SHOAL_TRY(status, shoal_model_config_create(shoal_model_config_name(from), to), done);
    for (int32_t i = 0; (option = shoal_model_config_option(from, i)) != NULL; i++) {
        SHOAL_TRY(status, shoal_model_config_get(from, option->name, &value), done);
        SHOAL_TRY(status, shoal_model_config_set(*to, option->name, value), done);
    }
done:
    return status;
}

/* With the values that others give filled in. */
static shoal_status complete_config(const shoal_model_config *config, shoal_model_config **complete)
{
    shoal_status status;
    shoal_model *model = NULL;
    *complete = NULL;
    SHOAL_TRY(status, shoal_model_create(config, &model), done);
    SHOAL_TRY(status, copy_config(shoal_model_get_config(model), complete), done);
done:
    shoal_model_destroy(model);
    return status;
}

/* A word that names another model than the folder has. */
static shoal_status check_row(const struct pretrain_hub *hub, const char *name)
{
    shoal_status status;
    shoal_model_config *config = NULL;
    SHOAL_TRY(status, shoal_model_config_create(name, &config), done);
    const char *row = shoal_model_config_name(config);
    const char *theirs = shoal_model_config_name(hub->config);
    if (strcmp(row, theirs) != 0)
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s is a model `%s`, but %s describes a `%s`: name this one",
                       name, row, hub->source, theirs);
done:
    shoal_model_config_destroy(config);
    return status;
}

shoal_status pretrain_hub_flags(const struct pretrain_hub *hub,
                                const struct pretrain_command *command, struct model_flags *flags,
                                struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    shoal_model_config *config = NULL;
    if (!command->any_model)
        SHOAL_TRY(status, check_row(hub, command->model), done);
    SHOAL_TRY(status, copy_config(hub->config, &config), done);
    status = model_flags_init_of(flags, config, arena);
    config = NULL;
done:
    shoal_model_config_destroy(config);
    return status;
}

/* ---- after parsing: comparing --------------------------------------------------------------- */

static const char *flag_of(const shoal_model_option *option)
{
    return option->flag ? option->flag : option->name;
}

static bool is_given(const struct pretrain_options *options, const shoal_model_option *option)
{
    return model_flags_given(&options->model, flag_of(option));
}

static double value_of(const shoal_model_config *config, const shoal_model_option *option)
{
    double value = 0;
    const shoal_status status = shoal_model_config_get(config, option->name, &value);
    SHOAL_ASSERT(status == SHOAL_OK);
    return value;
}

/* As on the command line: "--norm-epsilon 1e-05" has the value 1e-05, a switch true or false. */
static const char *format_value(const shoal_model_option *option, double value, bool exact,
                                char *text, size_t bytes)
{
    if (option->type == SHOAL_MODEL_BOOL)
        snprintf(text, bytes, "%s", (value != 0) != (option->flag != NULL) ? "true" : "false");
    else if (option->type == SHOAL_MODEL_CHOICE)
        snprintf(text, bytes, "%s", option->choices[(int64_t)value]);
    else if (option->type == SHOAL_MODEL_INT)
        snprintf(text, bytes, "%lld", (long long)value);
    else
        snprintf(text, bytes, exact ? "%.17g" : "%g", value);
    return text;
}

enum { VALUE_BYTES = 64 };
static void format_values(const shoal_model_option *option, double ours, double theirs,
                          char *our_text, char *their_text)
{
    format_value(option, ours, false, our_text, VALUE_BYTES);
    format_value(option, theirs, false, their_text, VALUE_BYTES);
    if (strcmp(our_text, their_text) != 0)
        return;
    format_value(option, ours, true, our_text, VALUE_BYTES);
    format_value(option, theirs, true, their_text, VALUE_BYTES);
}

/* An option that may have another value with the same weights. The head of sentence order has
 * weights of its own. With rotations, or none, there is no table of positions. */
static bool is_free(const struct pretrain_options *options, const shoal_model_option *option)
{
    const struct pretrain_hub *hub = &options->hub;
    double positions;
    if (!hub->checkpoint)
        return shoal_hub_option_is_free(option->name);
    if (strcmp(option->name, "vocab-size") == 0) /* here the tokenizer's */
        return tokenizer_flags_take_vocab_size(&options->tokenizer);
    if (strcmp(option->name, "bert-binary-head") == 0)
        return false;
    if (strcmp(option->name, "max-position-embeddings") != 0)
        return shoal_hub_option_is_free(option->name);
    const shoal_status has =
        shoal_model_config_get(hub->config, "position-embedding-type", &positions);
    shoali_error_clear();
    return has == SHOAL_OK && positions != 0;
}

static const char *refuse_advice(const struct pretrain_hub *hub, const char *word, bool several)
{
    if (word)
        return "leave the model's name out, or name the right one";
    if (hub->checkpoint)
        return several ? "leave these flags out, or give --finetune to change the model"
                       : "leave the flag out, or give --finetune to change the model";
    return several ? "leave these flags out, or give the same values"
                   : "leave the flag out, or give the same value";
}

/* `word`: the known model that has the value; NULL: a flag has. `more`: the other differences. */
static shoal_status refuse(const struct pretrain_hub *hub, const char *word,
                           const shoal_model_option *option, double ours, double theirs,
                           const char *more)
{
    char own[VALUE_BYTES], their[VALUE_BYTES];
    format_values(option, ours, theirs, own, their);
    return SHOAL_FAIL(SHOAL_EINVAL, "%s%s--%s %s: %s has %s%s; %s", word ? word : "",
                      word ? ": " : "", flag_of(option), own, hub->source, their, more,
                      refuse_advice(hub, word, *more));
}

/* A new training may begin with another model, and log_all takes the tensors that fit. */
static bool may_change_model(const struct pretrain_options *options)
{
    return options->finetune || options->dist_ckpt_strictness == PRETRAIN_LOG_ALL;
}

enum { MORE_MOST = 3 }; /* differences that a sentence has room for */

/* Flags whose value is not the folder's. In `ours` a number of 0 may stand for what others give,
 * unless it is complete. */
static shoal_status compare_flags(const struct pretrain_options *options,
                                  const shoal_model_config *ours, bool complete)
{
    const struct pretrain_hub *hub = &options->hub;
    const shoal_model_option *option, *first = NULL;
    char own_text[VALUE_BYTES], their_text[VALUE_BYTES];
    struct shoali_str more = {0};
    int32_t count = 0;
    for (int32_t i = 0; (option = shoal_model_config_option(ours, i)) != NULL; i++) {
        const double own = value_of(ours, option), theirs = value_of(hub->config, option);
        const bool unsaid = !complete && own == 0 && option->type == SHOAL_MODEL_INT;
        if (!is_given(options, option) || own == theirs || unsaid || is_free(options, option))
            continue;
        first = first ? first : option;
        format_values(option, own, theirs, own_text, their_text);
        if (first != option && ++count <= MORE_MOST)
            shoali_str_append(&more, ", and --%s %s is %s there", flag_of(option), own_text,
                              their_text);
    }
    const shoal_status status = first ? refuse(hub, NULL, first, value_of(ours, first),
                                               value_of(hub->config, first), shoali_str_get(&more))
                                      : SHOAL_OK;
    shoali_str_fini(&more);
    return status;
}

/* A model that is known by name must be the folder's, but for options that flags give. The
 * vocabulary is that of the data. */
static shoal_status compare_preset(const struct pretrain_options *options, const char *name)
{
    shoal_status status;
    const struct pretrain_hub *hub = &options->hub;
    shoal_model_config *config = NULL;
    const shoal_model_option *option;
    SHOAL_TRY(status, shoal_model_config_create(name, &config), done);
    const bool preset = strcmp(shoal_model_config_name(config), name) != 0;
    for (int32_t i = 0; preset && (option = shoal_model_config_option(config, i)) != NULL; i++) {
        const double own = value_of(config, option), theirs = value_of(hub->config, option);
        const bool unsaid = (own == 0 || theirs == 0) && option->type == SHOAL_MODEL_INT;
        if (own != theirs && !unsaid && !is_given(options, option) && !is_free(options, option) &&
            strcmp(option->name, "vocab-size") != 0) {
            status = refuse(hub, name, option, own, theirs, "");
            goto done;
        }
    }
done:
    shoal_model_config_destroy(config);
    return status;
}

/* Where a flag changes the model, values that followed from others follow from them again. The
 * table of positions stays as long as it is. */
static shoal_status derive_again(struct pretrain_options *options)
{
    shoal_status status = SHOAL_OK;
    shoal_model_config *without = NULL, *complete = NULL;
    const shoal_model_option *option;
    const shoal_model_config *stored = options->hub.config;
    for (int32_t i = 0; (option = shoal_model_config_option(stored, i)) != NULL; i++) {
        const double theirs = value_of(stored, option);
        if (option->type != SHOAL_MODEL_INT || option->required || option->default_value != 0 ||
            theirs == 0 || is_given(options, option) || strcmp(option->name, "vocab-size") == 0 ||
            strcmp(option->name, "max-position-embeddings") == 0)
            continue;
        SHOAL_TRY(status, copy_config(stored, &without), done);
        SHOAL_TRY(status, shoal_model_config_set(without, option->name, 0), done);
        if (complete_config(without, &complete) == SHOAL_OK && value_of(complete, option) == theirs)
            SHOAL_TRY(status, shoal_model_config_set(options->model.config, option->name, 0), done);
        shoal_model_config_destroy(without);
        shoal_model_config_destroy(complete);
        without = complete = NULL;
    }
done:
    shoal_model_config_destroy(without);
    shoal_model_config_destroy(complete);
    return status;
}

static bool changes_model(const struct pretrain_options *options)
{
    const shoal_model_option *option;
    const shoal_model_config *config = options->model.config;
    for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++)
        if (is_given(options, option) && !is_free(options, option) &&
            value_of(config, option) != value_of(options->hub.config, option))
            return true;
    return false;
}

static shoal_status copy_vocab_size(const shoal_model_config *from, shoal_model_config *to)
{
    shoal_status status;
    double rows;
    SHOAL_TRY(status, shoal_model_config_get(from, "vocab-size", &rows), done);
    SHOAL_TRY(status, shoal_model_config_set(to, "vocab-size", rows), done);
done:
    return status;
}

static shoal_status check_flags(struct pretrain_options *options,
                                const struct pretrain_command *command)
{
    shoal_status status = SHOAL_OK;
    shoal_model_config *complete = NULL;
    const struct pretrain_hub *hub = &options->hub;
    const bool may_change = hub->checkpoint && may_change_model(options);
    if (!may_change)
        SHOAL_TRY(status, compare_flags(options, options->model.config, false), done);
    if (!command->any_model)
        SHOAL_TRY(status, compare_preset(options, command->model), done);
    if (model_flags_int(&options->model, "vocab-size") == 0) /* as the folder says */
        SHOAL_TRY(status, copy_vocab_size(hub->config, options->model.config), done);
    if (!hub->checkpoint)
        goto done;
    if (may_change && changes_model(options))
        SHOAL_TRY(status, derive_again(options), done);
    status = complete_config(options->model.config, &complete);
    if (status < 0)
        shoali_error_prefix(status, "%s with these flags", hub->source);
    else if (!may_change)
        status = compare_flags(options, complete, true);
done:
    shoal_model_config_destroy(complete);
    return status;
}

void pretrain_hub_say(const struct pretrain_options *options)
{
    const struct pretrain_hub *hub = &options->hub;
    const shoal_model_option *option;
    char own[VALUE_BYTES], their[VALUE_BYTES];
    struct shoali_str changed[2] = {{0}}; /* the model, its training */
    for (int32_t i = 0;
         hub->checkpoint && (option = shoal_model_config_option(hub->config, i)) != NULL; i++) {
        const double ours = value_of(options->model.config, option);
        const double theirs = value_of(hub->config, option);
        struct shoali_str *text = &changed[is_free(options, option)];
        if (!is_given(options, option) || ours == theirs)
            continue;
        format_values(option, ours, theirs, own, their);
        shoali_str_append(text, "%s--%s %s (not %s)", text->length ? ", " : "", flag_of(option),
                          own, their);
    }
    if (changed[0].length)
        fprintf(stderr, "shoal pretrain: %s changes the model of %s: %s\n",
                options->finetune ? "--finetune" : "--dist-ckpt-strictness log_all", hub->source,
                shoali_str_get(&changed[0]));
    if (changed[1].length)
        fprintf(stderr, "shoal pretrain: options that %s was not trained with: %s\n", hub->source,
                shoali_str_get(&changed[1]));
    shoali_str_fini(&changed[0]);
    shoali_str_fini(&changed[1]);
}

/* Also such a folder has a config.json. */
static bool is_checkpoint(const char *folder)
{
    return shoali_has_file(folder, "manifest.json");
}

shoal_status pretrain_hub_check(struct pretrain_options *options,
                                const struct pretrain_command *command)
{
    shoal_status status;
    const char *folder = options->hub.folder;
    if (!options->hub.config)
        return SHOAL_OK;
    SHOAL_TRY(status, check_flags(options, command), done);
    if (!command->trains || !folder)
        goto done;
    if (options->load_tag)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--load %s is a Hugging Face folder without checkpoints: leave "
                            "--load-tag and --ckpt-step out",
                            folder);
    else if (!options->finetune && is_checkpoint(folder))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s is itself a checkpoint: to continue its training give its parent "
                            "folder and --load-tag NAME; to start a new training with its "
                            "weights add --finetune",
                            folder);
    else if (!options->finetune)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--load %s has weights and no training to continue: add --finetune "
                            "to start one",
                            folder);
    else if (options->save && strcmp(options->save, folder) == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--save and --load are the same Hugging Face folder: give --save "
                            "another folder");
done:
    return status;
}
