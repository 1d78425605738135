/* A folder of weights into another one, for transformers. */
#include "autograd/autograd.h"
#include "checkpoint/weight_folder.h"
#include "hub/hub.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct conversion {
    shoal_convert_args args;
    const char *source; /* the folder that has weights */
    struct shoali_arena arena;
    bool own;                    /* it is a checkpoint of ours */
    shoal_model_config *stored;  /* as the source has it */
    shoal_model *model;          /* as it will be: without padding */
    struct shoali_module module; /* its names and shapes */
    struct shoali_weight_folder folder;
    const char **names;
    shoal_shape *shapes;
    struct shoali_checkpoint_alias *aliases;
    int32_t *found;
    shoal_dtype dtype;
    struct shoali_weight_output output;
};

/* ---- where it comes from -------------------------------------------------------------------- */

static shoal_status find_source(struct conversion *conversion)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_info info = {0};
    const shoal_convert_args *args = &conversion->args;
    if (!args->tag && shoal_hub_is_folder(args->in)) {
        conversion->source = args->in;
    } else {
        status = shoali_checkpoint_open(args->in, args->tag, &info);
        if (status == SHOAL_ENOENT && !args->tag)
            status = SHOAL_FAIL(SHOAL_ENOENT,
                                "%s is neither a folder with config.json and weights nor one of "
                                "checkpoints",
                                args->in);
        SHOAL_TRY(status, status, done);
        conversion->source = shoali_arena_printf(&conversion->arena, "%s/%s", args->in, info.tag);
        if (!conversion->source)
            status = SHOAL_ENOMEM;
    }
    if (status == SHOAL_OK)
        conversion->own = shoali_hub_has_file(conversion->source, "manifest.json");
done:
    shoali_checkpoint_info_fini(&info);
    return status;
}

/* A checkpoint says itself which model it has. */
static shoal_status read_own_config(struct conversion *conversion)
{
    shoal_status status;
    struct shoali_checkpoint_info info = {0};
    json_t *client = NULL;
    char *text = NULL;
    SHOAL_TRY(status, shoali_checkpoint_peek_folder(conversion->source, &info), done);
    if (info.client_json)
        SHOAL_TRY(status,
                  shoali_json_read(info.client_json, strlen(info.client_json), &client, NULL),
                  done);
    const json_t *model = json_object_get(client, "model");
    if (!model) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s does not say which model it has: only checkpoints that `shoal "
                            "pretrain` wrote can be converted",
                            conversion->source);
        goto done;
    }
    SHOAL_TRY(status, shoali_json_write(model, JSON_COMPACT, "a model's options", &text), done);
    SHOAL_TRY(status, shoal_model_config_from_json(text, &conversion->stored), done);
done:
    free(text);
    json_decref(client);
    shoali_checkpoint_info_fini(&info);
    return status;
}

static shoal_status read_config(struct conversion *conversion)
{
    return conversion->own ? read_own_config(conversion)
                           : shoal_hub_read_config(conversion->source, &conversion->stored, NULL);
}

/* ---- what it becomes ------------------------------------------------------------------------ */

static shoal_status take_dtype(struct conversion *conversion)
{
    static const struct {
        const char *name;
        shoal_dtype dtype;
    } names[] = {{"fp32", SHOAL_F32}, {"bf16", SHOAL_BF16}, {"fp16", SHOAL_F16}};
    const char *name = conversion->args.dtype;
    conversion->dtype = SHOAL_DTYPE_COUNT;
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            conversion->dtype = names[i].dtype;
    if (name && conversion->dtype == SHOAL_DTYPE_COUNT)
        return SHOAL_FAIL(SHOAL_EINVAL, "--dtype is %s: give fp32, bf16 or fp16", name);
    return SHOAL_OK;
}

/* fp32 weights beside 16-bit ones are the masters. */
static shoal_status open_weights(struct conversion *conversion)
{
    shoal_status status;
    if (!conversion->own)
        return shoali_weight_folder_open(&conversion->folder, conversion->source);
    status = SHOAL_ENOENT;
    if (conversion->dtype == SHOAL_F32)
        status = shoali_weight_folder_open_kind(&conversion->folder, conversion->source, "master");
    if (status != SHOAL_ENOENT)
        return status;
    shoali_weight_folder_close(&conversion->folder);
    return shoali_weight_folder_open_kind(&conversion->folder, conversion->source, "model");
}

/* Without --dtype it is that of the first weight. */
static void choose_dtype(struct conversion *conversion)
{
    for (int32_t i = 0; i < conversion->module.param_count; i++) {
        if (conversion->dtype != SHOAL_DTYPE_COUNT)
            return;
        conversion->dtype = conversion->folder.tensor[conversion->found[i]].dtype;
    }
    if (conversion->dtype == SHOAL_F64 || conversion->dtype == SHOAL_DTYPE_COUNT)
        conversion->dtype = SHOAL_F32;
}

static shoal_status make_model(struct conversion *conversion)
{
    shoal_status status;
    shoal_model_config *config = NULL;
    char *text = NULL;
    SHOAL_TRY(status, shoal_model_config_to_json(conversion->stored, &text), done);
    SHOAL_TRY(status, shoal_model_config_from_json(text, &config), done);
    SHOAL_TRY(status, shoal_model_config_set(config, "make-vocab-size-divisible-by", 1), done);
    SHOAL_TRY(status, shoal_model_create(config, &conversion->model), done);
    SHOAL_TRY(status,
              shoali_module_init(&conversion->module, conversion->model, SHOAL_F32, NULL, 0), done);
done:
    shoal_model_config_destroy(config);
    free(text);
    return status;
}

static shoal_status match(struct conversion *conversion)
{
    shoal_status status;
    const struct shoali_module *module = &conversion->module;
    struct shoali_arena *arena = &conversion->arena;
    const size_t count = (size_t)module->param_count + 1;
    conversion->names = shoali_arena_alloc(arena, count * sizeof *conversion->names);
    conversion->shapes = shoali_arena_alloc(arena, count * sizeof *conversion->shapes);
    conversion->found = shoali_arena_alloc(arena, count * sizeof *conversion->found);
    conversion->aliases =
        shoali_arena_alloc(arena, ((size_t)module->alias_count + 1) * sizeof *conversion->aliases);
    if (!conversion->names || !conversion->shapes || !conversion->found || !conversion->aliases)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->param_count; i++) {
        conversion->names[i] = module->param[i]->name;
        conversion->shapes[i] = *shoal_param_shape(module->param[i]);
    }
    for (int32_t i = 0; i < module->alias_count; i++)
        conversion->aliases[i] = (struct shoali_checkpoint_alias){
            module->alias[i].name, module->param[module->alias[i].param]->name};
    const struct shoali_weight_want want = {.names = conversion->names,
                                            .shapes = conversion->shapes,
                                            .count = module->param_count,
                                            .aliases = conversion->aliases,
                                            .alias_count = module->alias_count,
                                            .vocab_rows =
                                                shoali_hub_vocab_rows(conversion->stored)};
    SHOAL_TRY(status, shoali_weight_match(&conversion->folder, &want, conversion->found), done);
    SHOAL_TRY(status, shoali_weight_compare_tied(&conversion->folder, &want, conversion->found),
              done);
    choose_dtype(conversion);
done:
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

static shoal_status read_piece(void *user, int32_t tensor, int64_t first, int64_t count, void *out)
{
    struct conversion *conversion = user;
    return shoali_weight_folder_read(&conversion->folder, conversion->found[tensor], first, count,
                                     conversion->dtype, out);
}

static shoal_status write_configs(struct conversion *conversion)
{
    shoal_status status;
    char *config = NULL, *generation = NULL;
    const shoal_hub_write_args args = {
        .config = shoal_model_get_config(conversion->model),
        .dtype = conversion->dtype,
        .source =
            shoali_hub_has_file(conversion->source, "config.json") ? conversion->source : NULL};
    SHOAL_TRY(status, shoal_hub_write_config(&args, &config), done);
    SHOAL_TRY(status, shoal_hub_write_generation(&args, &generation), done);
    SHOAL_TRY(status,
              shoali_weight_output_file(&conversion->output, "config.json", config, strlen(config)),
              done);
    SHOAL_TRY(status,
              shoali_weight_output_file(&conversion->output, "generation_config.json", generation,
                                        strlen(generation)),
              done);
done:
    free(config);
    free(generation);
    return status;
}

static shoal_status copy_tokenizer(struct conversion *conversion)
{
    shoal_status status = SHOAL_OK;
    const char *name;
    char *data = NULL;
    size_t bytes;
    for (int32_t i = 0; (name = shoal_hub_tokenizer_file(i)) != NULL; i++) {
        if (!shoali_hub_has_file(conversion->source, name))
            continue;
        const char *path =
            shoali_arena_printf(&conversion->arena, "%s/%s", conversion->source, name);
        if (!path)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, shoali_read_file(path, &data, &bytes), done);
        SHOAL_TRY(status, shoali_weight_output_file(&conversion->output, name, data, bytes), done);
        free(data);
        data = NULL;
    }
done:
    free(data);
    return status;
}

static shoal_status write_folder(struct conversion *conversion)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_weight_output_begin(&conversion->output, conversion->args.out), done);
    SHOAL_TRY(status, write_configs(conversion), done);
    SHOAL_TRY(status, copy_tokenizer(conversion), done);
    SHOAL_TRY(status,
              shoali_weight_write(&conversion->output,
                                  &(struct shoali_weight_write_args){
                                      .names = conversion->names,
                                      .shapes = conversion->shapes,
                                      .count = conversion->module.param_count,
                                      .dtype = conversion->dtype,
                                      .max_shard_bytes = conversion->args.max_shard_bytes,
                                      .user = conversion,
                                      .read = read_piece}),
              done);
done:
    return shoali_weight_output_end(&conversion->output, status);
}

shoal_status shoal_convert_sized(const shoal_convert_args *given, size_t given_size)
{
    shoal_status status;
    struct conversion conversion = {0};
    shoali_arena_init(&conversion.arena);
    SHOAL_TRY(
        status,
        SHOALI_SIZED_READ(shoal_convert_args, max_shard_bytes, given, given_size, &conversion.args),
        done);
    if (!conversion.args.in || !conversion.args.out) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "a conversion needs a folder to read and one to write");
        goto done;
    }
    SHOAL_TRY(status, take_dtype(&conversion), done);
    SHOAL_TRY(status, find_source(&conversion), done);
    SHOAL_TRY(status, read_config(&conversion), done);
    SHOAL_TRY(status, make_model(&conversion), done);
    SHOAL_TRY(status, open_weights(&conversion), done);
    SHOAL_TRY(status, match(&conversion), done);
    SHOAL_TRY(status, write_folder(&conversion), done);
done:
    shoali_weight_folder_close(&conversion.folder);
    shoali_module_fini(&conversion.module);
    shoal_model_destroy(conversion.model);
    shoal_model_config_destroy(conversion.stored);
    shoali_arena_fini(&conversion.arena);
    return status;
}
