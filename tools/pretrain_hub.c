/* --load of a folder that says which model it has: one as the Hugging Face Hub has it, by its
 * config.json, or with --use-checkpoint-args our checkpoints, by their description. What it says are
 * the values of the model's flags; a flag that is given all the same must say the same, unless only
 * training needs it. */
#include "pretrain.h"

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

/* --use-checkpoint-args: the model as the checkpoint's description says it. */
static shoal_status read_checkpoint(struct pretrain_hub *hub, const char *folder, int argc,
                                    char *const *argv)
{
    shoal_status status;
    const char *given = find_value("--load-tag", argc, argv);
    const char *step = find_value("--ckpt-step", argc, argv);
    char *client = NULL, *model = NULL, tag[64];
    json_t *root = NULL;
    snprintf(tag, sizeof tag, "global_step%s", step ? step : "");
    const char *name = given ? given : step ? tag : NULL;
    if (!folder)
        return SHOAL_FAIL(SHOAL_EINVAL, "--use-checkpoint-args takes the model from a checkpoint: "
                                        "give its folder with --load");
    SHOAL_TRY(status, shoal_checkpoint_peek(folder, name, &client, NULL), done);
    if (client)
        SHOAL_TRY(status, shoali_json_read(client, strlen(client), &root, NULL), done);
    const json_t *said = json_object_get(root, "model");
    if (!said) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--use-checkpoint-args: the checkpoint in %s does not say which model "
                            "it has (another program wrote it): give the model's flags",
                            folder);
        goto done;
    }
    SHOAL_TRY(status, shoali_json_write(said, JSON_COMPACT, "the model", &model), done);
    SHOAL_TRY(status, shoal_model_config_from_json(model, &hub->config), done);
    snprintf(hub->said_by, sizeof hub->said_by, "the checkpoint in %s", folder);
done:
    free(client);
    free(model);
    json_decref(root);
    return status;
}

shoal_status pretrain_hub_find(struct pretrain_hub *hub, int argc, char *const *argv)
{
    shoal_status status = SHOAL_OK;
    const char *folder = find_value("--load", argc, argv);
    *hub = (struct pretrain_hub){0};
    if (find_switch("--use-checkpoint-args", argc, argv) &&
        !(folder && shoal_hub_is_folder(folder)))
        return read_checkpoint(hub, folder, argc, argv);
    if (!folder || !*folder || !shoal_hub_is_folder(folder))
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_hub_read_config(folder, &hub->config, NULL), done);
    hub->folder = folder;
    snprintf(hub->said_by, sizeof hub->said_by, "%s/config.json", folder);
done:
    return status;
}

void pretrain_hub_fini(struct pretrain_hub *hub)
{
    shoal_model_config_destroy(hub->config);
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Options of two configurations of one row. */
static shoal_status compare(const struct pretrain_hub *hub, const shoal_model_config *other,
                            const char *other_name, const shoal_model_option *option)
{
    shoal_status status;
    double ours, theirs;
    char flag[96];
    SHOAL_TRY(status, shoal_model_config_get(other, option->name, &ours), done);
    SHOAL_TRY(status, shoal_model_config_get(hub->config, option->name, &theirs), done);
    if (ours == theirs || shoal_hub_option_is_free(option->name))
        return SHOAL_OK;
    /* 0 stands for what others give */
    if ((ours == 0 || theirs == 0) && option->type != SHOAL_MODEL_BOOL && !option->required)
        return SHOAL_OK;
    snprintf(flag, sizeof flag, "--%s", option->flag ? option->flag : option->name);
    status =
        option->type == SHOAL_MODEL_BOOL
            ? SHOAL_FAIL(SHOAL_EINVAL, "%s is %s %s, and not in %s", flag,
                         (ours != 0) != (option->flag != NULL) ? "given" : "not given",
                         other_name ? other_name : "here", hub->said_by)
            : SHOAL_FAIL(SHOAL_EINVAL, "%s%s%s is %g, and %s says %g", other_name ? other_name : "",
                         other_name ? ": " : "", flag, ours, hub->said_by, theirs);
done:
    return status;
}

/* A model that is known by name must be the one of the folder. */
static shoal_status compare_preset(const struct pretrain_hub *hub, const char *name)
{
    shoal_status status;
    shoal_model_config *config = NULL;
    const shoal_model_option *option;
    SHOAL_TRY(status, shoal_model_config_create(name, &config), done);
    const char *row = shoal_model_config_name(config);
    const char *theirs = shoal_model_config_name(hub->config);
    if (strcmp(row, theirs) != 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s is a model `%s`, and %s is of a `%s`", name, row,
                            hub->said_by, theirs);
        goto done;
    }
    const bool preset = strcmp(row, name) != 0;
    for (int32_t i = 0; preset && (option = shoal_model_config_option(config, i)) != NULL; i++)
        SHOAL_TRY(status, compare(hub, config, name, option), done);
done:
    shoal_model_config_destroy(config);
    return status;
}

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

shoal_status pretrain_hub_flags(const struct pretrain_hub *hub,
                                const struct pretrain_command *command, struct model_flags *flags,
                                struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    shoal_model_config *config = NULL;
    if (!command->any_model)
        SHOAL_TRY(status, compare_preset(hub, command->model), done);
    SHOAL_TRY(status, copy_config(hub->config, &config), done);
    status = model_flags_init_of(flags, config, arena);
    config = NULL;
done:
    shoal_model_config_destroy(config);
    return status;
}

/* ---- after parsing -------------------------------------------------------------------------- */

static shoal_status check_flags(const struct pretrain_options *options)
{
    shoal_status status = SHOAL_OK;
    const shoal_model_option *option;
    const shoal_model_config *config = options->model.config;
    for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++)
        if (model_flags_given(&options->model, option->flag ? option->flag : option->name))
            SHOAL_TRY(status, compare(&options->hub, config, NULL, option), done);
done:
    return status;
}

/* Also such a folder has a config.json. */
static bool is_checkpoint(const char *folder)
{
    struct stat info;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s/manifest.json", folder);
    const bool there = !path.failed && stat(path.text, &info) == 0;
    shoali_str_fini(&path);
    return there;
}

shoal_status pretrain_hub_check(const struct pretrain_options *options, bool trains)
{
    shoal_status status;
    const char *folder = options->hub.folder;
    if (!options->hub.config)
        return SHOAL_OK;
    SHOAL_TRY(status, check_flags(options), done);
    if (!trains || !folder)
        goto done;
    if (options->load_tag)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--load %s has the weights of one model and no checkpoints: leave "
                            "--load-tag and --ckpt-step out",
                            folder);
    else if (!options->finetune && is_checkpoint(folder))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s is itself a checkpoint: to continue its training give the folder "
                            "that it is in, and its name with --load-tag; --finetune begins "
                            "another one with its weights",
                            folder);
    else if (!options->finetune)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--load %s has weights, and no training to continue: --finetune begins "
                            "one with them",
                            folder);
    else if (options->save && strcmp(options->save, folder) == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--save and --load are one folder, whose weights are no checkpoint: "
                            "name another one to save in");
done:
    return status;
}
