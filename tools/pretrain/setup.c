/* From flags to a model and the engine's arguments. */
#include "pretrain/pretrain.h"

#include "shoal/hub.h"

#include <stdlib.h>

/* The vocabulary of the folder's model, which --finetune may change. */
static int64_t stored_rows(const struct pretrain_options *options)
{
    double rows = 0;
    const bool changed = options->finetune && model_flags_given(&options->model, "vocab-size") &&
                         !tokenizer_flags_take_vocab_size(&options->tokenizer);
    const shoal_status status = shoal_model_config_get(options->hub.config, "vocab-size", &rows);
    SHOAL_ASSERT(status == SHOAL_OK);
    return changed && options->vocab_size ? options->vocab_size : (int64_t)rows;
}

shoal_status pretrain_make_model(const struct pretrain_options *options, int64_t vocab_size,
                                 shoal_model **model)
{
    shoal_status status;
    if (options->hub.config) { /* whose tables have as many rows as they have */
        const int64_t rows = stored_rows(options);
        if (vocab_size > rows)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "the data have a vocabulary of %lld tokens, and the model of --load %s knows "
                "%lld: give its own tokenizer with --tokenizer-type and --tokenizer-model",
                (long long)vocab_size, options->load, (long long)rows);
        vocab_size = rows;
    }
    SHOAL_TRY(status,
              shoal_model_config_set(options->model.config, "vocab-size", (double)vocab_size),
              done);
    SHOAL_TRY(status, shoal_model_create(options->model.config, model), done);
done:
    return status;
}

/* The same model in less memory, if it has such an option that is not given already, and that its
 * other options allow. */
static shoal_status make_lean(struct pretrain_setup *setup, shoal_model_config *config)
{
    shoal_status status = SHOAL_OK;
    double value = 1;
    const shoal_model_option *option;
    for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++)
        if (option->lean)
            break;
    if (!option)
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_model_config_get(config, option->name, &value), done);
    if (value != 0)
        return SHOAL_OK;
    snprintf(setup->lean_flag, sizeof setup->lean_flag, "--%s", option->name);
    SHOAL_TRY(status, shoal_model_config_set(config, option->name, 1), done);
    status = shoal_model_create(config, &setup->lean);
    const shoal_status reset = shoal_model_config_set(config, option->name, 0);
    if (status == SHOAL_EINVAL) {
        shoali_error_clear();
        status = SHOAL_OK;
    }
    status = status < 0 ? status : reset;
done:
    return status;
}

static shoal_status list_modules(const struct shoali_strings *given, const char ***modules)
{
    if (!given->count)
        return SHOAL_OK;
    *modules = shoali_calloc((size_t)given->count + 1, sizeof **modules, "module names");
    if (!*modules)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < given->count; i++)
        (*modules)[i] = given->value[i];
    return SHOAL_OK;
}

shoal_status pretrain_setup_init(struct pretrain_setup *setup,
                                 const struct pretrain_options *options, const shoal_model *model,
                                 shoal_mesh *mesh)
{
    shoal_status status;
    const char *path;
    *setup = (struct pretrain_setup){0};
    SHOAL_TRY(status, list_modules(&options->recompute_modules, &setup->modules), done);
    SHOAL_TRY(status, make_lean(setup, options->model.config), done);
    SHOAL_TRY(status, pretrain_config(options, &path, &setup->text), done);
    setup->args =
        (shoal_engine_args){.model = model,
                            .config_path = path,
                            .config_text = setup->text,
                            .mesh = mesh,
                            .group = mesh ? shoal_mesh_world(mesh) : NULL,
                            .seed = (uint64_t)options->shared.seed,
                            .threads = (int32_t)options->shared.threads,
                            .output_path = options->save,
                            .saves = options->save != NULL,
                            .override_existing_checkpoint = options->override_existing_checkpoint,
                            .recompute_granularity = options->recompute_granularity,
                            .recompute_method = options->recompute_method,
                            .recompute_num_layers = options->recompute_num_layers,
                            .recompute_modules = setup->modules};
    mesh_flags_fill(&options->mesh, &setup->args);
done:
    return status;
}

void pretrain_setup_fini(struct pretrain_setup *setup)
{
    free(setup->text);
    shoali_free(setup->modules);
    shoal_model_destroy(setup->lean);
}
