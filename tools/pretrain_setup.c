/* From flags to a data set, a model and the engine's arguments. */
#include "pretrain.h"

#include <stdlib.h>

shoal_dataset_args pretrain_data_args(const struct pretrain_options *options,
                                      const shoal_tokenizer *stored)
{
    return (shoal_dataset_args){.paths = options->data_path.value,
                                .path_count = options->data_path.count,
                                .cache_path = options->data_cache_path,
                                .tokenizer = options->tokenizer_type,
                                .use_tokenizer = stored,
                                .split = options->split,
                                .mock = options->mock_data,
                                .mock_vocab_size = (int32_t)options->vocab_size,
                                .seed = (uint64_t)options->shared.seed};
}

shoal_status pretrain_make_model(const struct pretrain_options *options, int64_t vocab_size,
                                 shoal_model **model)
{
    shoal_gpt_config config;
    shoal_gpt_config_defaults(&config);
    config.num_layers = options->num_layers;
    config.hidden_size = options->hidden_size;
    config.num_attention_heads = options->num_attention_heads;
    config.seq_length = options->seq_length;
    config.max_position_embeddings = options->max_position_embeddings;
    config.ffn_hidden_size = options->ffn_hidden_size;
    config.vocab_size = vocab_size;
    config.make_vocab_size_divisible_by = options->make_vocab_size_divisible_by;
    config.attention_dropout = options->attention_dropout;
    config.hidden_dropout = options->hidden_dropout;
    config.init_method_std = options->init_method_std;
    config.norm_epsilon = options->norm_epsilon;
    config.add_bias_linear = !options->disable_bias_linear;
    config.openai_gelu = options->openai_gelu;
    config.untie_embeddings = options->untie;
    config.cross_entropy_loss_fusion = options->cross_entropy_loss_fusion;
    return shoal_gpt_create(&config, model);
}

/* The same model without logits in memory; none when it has none. */
static shoal_status make_lean(const shoal_model *model, shoal_model **lean)
{
    shoal_gpt_config config;
    shoal_gpt_get_config(model, &config);
    if (config.cross_entropy_loss_fusion)
        return SHOAL_OK;
    config.cross_entropy_loss_fusion = true;
    return shoal_gpt_create(&config, lean);
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
                                 shoal_group *group)
{
    shoal_status status;
    const char *path;
    *setup = (struct pretrain_setup){0};
    SHOAL_TRY(status, list_modules(&options->recompute_modules, &setup->modules), done);
    SHOAL_TRY(status, make_lean(model, &setup->lean), done);
    SHOAL_TRY(status, pretrain_config(options, &path, &setup->text), done);
    setup->args =
        (shoal_engine_args){.model = model,
                            .config_path = path,
                            .config_text = setup->text,
                            .group = group,
                            .seed = (uint64_t)options->shared.seed,
                            .threads = (int32_t)options->shared.threads,
                            .output_path = options->save,
                            .saves = options->save != NULL,
                            .override_existing_checkpoint = options->override_existing_checkpoint,
                            .recompute_granularity = options->recompute_granularity,
                            .recompute_method = options->recompute_method,
                            .recompute_num_layers = options->recompute_num_layers,
                            .recompute_modules = setup->modules};
done:
    return status;
}

void pretrain_setup_fini(struct pretrain_setup *setup)
{
    free(setup->text);
    shoali_free(setup->modules);
    shoal_gpt_destroy(setup->lean);
}
