/* A folder of weights into another one, for transformers. */
#include "autograd/autograd.h"
#include "base/waiting.h"
#include "checkpoint/weight_folder.h"
#include "checkpoint/weight_source.h"
#include "hub/hub.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct conversion {
    shoal_convert_args args;
    const char *source;    /* the folder that has weights */
    const char *describer; /* the folder that has config.json and the tokenizer */
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

/* DIR, or DIR/TAG, where another program wrote it; NULL: none did. */
static const char *find_foreign(struct conversion *conversion)
{
    const shoal_convert_args *args = &conversion->args;
    const char *dir = args->tag
                          ? shoali_arena_printf(&conversion->arena, "%s/%s", args->in, args->tag)
                          : args->in;
    return dir && shoali_weight_source_find(dir) ? dir : NULL;
}

/* Where config.json is: only our checkpoints say themselves which model they have. */
static shoal_status find_describer(struct conversion *conversion)
{
    const char *given = conversion->args.model_config;
    conversion->describer = given             ? given
                            : conversion->own ? conversion->source
                                              : conversion->args.in;
    if (conversion->own && given)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--model-config %s has no effect: the checkpoint %s describes its model",
                          given, conversion->source);
    if (conversion->own || shoali_has_file(conversion->describer, "config.json"))
        return SHOAL_OK;
    return given ? SHOAL_FAIL(SHOAL_EINVAL, "--model-config %s: there is no config.json", given)
                 : SHOAL_FAIL(SHOAL_EINVAL,
                              "%s does not say which model it has: give --model-config, a folder "
                              "with the model's config.json",
                              conversion->args.in);
}

static shoal_status find_source(struct conversion *conversion)
{
    shoal_status status = SHOAL_OK;
    const char *foreign = find_foreign(conversion);
    struct shoali_checkpoint_info info = {0};
    const shoal_convert_args *args = &conversion->args;
    if (foreign) {
        conversion->source = foreign;
    } else if (!args->tag && (shoal_hub_is_folder(args->in) ||
                              (args->model_config && shoali_weight_folder_probe(args->in)))) {
        conversion->source = args->in;
    } else {
        status = shoali_checkpoint_open(args->in, args->tag, &info);
        if (status == SHOAL_ENOENT && !args->tag)
            status = SHOAL_FAIL(SHOAL_ENOENT,
                                "%s is neither a Hugging Face folder (config.json and weights) "
                                "nor a folder of checkpoints",
                                args->in);
        SHOAL_TRY(status, status, done);
        conversion->source = shoali_arena_printf(&conversion->arena, "%s/%s", args->in, info.tag);
        if (!conversion->source)
            status = SHOAL_ENOMEM;
    }
    if (status == SHOAL_OK)
        conversion->own = shoali_has_file(conversion->source, "manifest.json");
    if (status == SHOAL_OK)
        status = find_describer(conversion);
done:
    shoali_checkpoint_info_fini(&info);
    return status;
}

/* The files that are copied must be of the tokenizer that the checkpoint was trained with. */
static shoal_status check_tokenizer(const struct conversion *conversion, const json_t *stored)
{
    shoal_status status;
    char *text = NULL, why[200];
    shoal_tokenizer *own = NULL, *files = NULL;
    shoal_tokenizer_likeness likeness;
    SHOAL_TRY(status, shoal_hub_open_tokenizer(conversion->source, &files), done);
    if (!files || !stored)
        goto done;
    SHOAL_TRY(status, shoali_json_write(stored, JSON_COMPACT, "a tokenizer", &text), done);
    SHOAL_TRY(status, shoal_tokenizer_from_json(text, strlen(text), &own), done);
    SHOAL_TRY(status, shoal_tokenizer_compare(own, files, &likeness, why, sizeof why), done);
    if (likeness == SHOAL_TOKENIZER_OTHER)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: the tokenizer's files are of another tokenizer than the one that "
                            "the checkpoint was trained with (%s): put the right files there",
                            conversion->source, why);
done:
    shoal_tokenizer_destroy(own);
    shoal_tokenizer_destroy(files);
    free(text);
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
                            "%s has no description of its model: only checkpoints that `shoal "
                            "pretrain` wrote can be converted",
                            conversion->source);
        goto done;
    }
    SHOAL_TRY(status, shoali_json_write(model, JSON_COMPACT, "a model's options", &text), done);
    SHOAL_TRY(status, shoal_model_config_from_json(text, &conversion->stored), done);
    SHOAL_TRY(status, check_tokenizer(conversion, json_object_get(client, "tokenizer")), done);
done:
    free(text);
    json_decref(client);
    shoali_checkpoint_info_fini(&info);
    return status;
}

static shoal_status read_config(struct conversion *conversion)
{
    return conversion->own
               ? read_own_config(conversion)
               : shoal_hub_read(conversion->describer, conversion->args.allow_unknown_keys,
                                &conversion->stored, NULL);
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
            shoali_has_file(conversion->describer, "config.json") ? conversion->describer : NULL};
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
        if (!shoali_has_file(conversion->describer, name))
            continue;
        const char *path =
            shoali_arena_printf(&conversion->arena, "%s/%s", conversion->describer, name);
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

/* Infinite weights make NaN of every text. */
static shoal_status check_lost(const struct conversion *conversion)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str text = {0};
    if (!shoali_weight_describe_lost(&conversion->folder, conversion->found,
                                     conversion->module.param_count, conversion->dtype, &text))
        goto done;
    if (conversion->args.allow_overflow)
        SHOALI_WARN("hub", "%s: they became infinite", shoali_str_get(&text));
    else
        status = SHOAL_FAIL(
            SHOAL_ENUMERIC, "%s: give --dtype %s, or --allow-overflow to write infinities",
            shoali_str_get(&text), conversion->dtype == SHOAL_F16 ? "bf16 or fp32" : "fp32");
done:
    shoali_str_fini(&text);
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
    SHOAL_TRY(status, check_lost(conversion), done);
done:
    return shoali_weight_output_end(&conversion->output, status);
}

shoal_status shoal_convert(const shoal_convert_args *given)
{
    shoal_status status;
    struct conversion conversion = {0};
    struct shoali_waiting_aloud *aloud = NULL;
    shoali_arena_init(&conversion.arena);
    if (given)
        conversion.args = *given;
    if (!conversion.args.in || !conversion.args.out) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "a conversion needs a folder to read and one to write");
        goto done;
    }
    aloud = shoali_waiting_files_begin("converting", conversion.args.in);
    SHOAL_TRY(status, take_dtype(&conversion), done);
    SHOAL_TRY(status, find_source(&conversion), done);
    SHOAL_TRY(status, read_config(&conversion), done);
    SHOAL_TRY(status, make_model(&conversion), done);
    SHOAL_TRY(status, open_weights(&conversion), done);
    SHOAL_TRY(status, match(&conversion), done);
    for (int32_t i = 0; i < conversion.folder.tensor_count; i++)
        conversion.folder.tensor[i].lost = 0; /* of what was compared */
    SHOAL_TRY(status, write_folder(&conversion), done);
done:
    shoali_waiting_aloud_end(aloud);
    shoali_weight_folder_close(&conversion.folder);
    shoali_module_fini(&conversion.module);
    shoal_model_destroy(conversion.model);
    shoal_model_config_destroy(conversion.stored);
    shoali_arena_fini(&conversion.arena);
    return status;
}
