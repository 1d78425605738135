/* generator.c - opening a checkpoint, or an engine, for generation. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_folder.h"
#include "checkpoint/weight_source.h"
#include "inference/inference.h"
#include "transformer/model_folder.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a folder's weights are opened with. */
struct opening {
    const shoal_generator_args *args;
    shoal_dtype dtype; /* that it computes in */
};

static shoal_status make_table_model(shoal_generator *generator, const shoal_model_config *config)
{
    if (!config->row->max_length)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the model `%s` writes no text, because it predicts masked words and not "
                          "the next token: give --load a model that does, such as gpt or llama",
                          config->row->name);
    return shoal_model_create(config, &generator->model);
}

/* The parts of the client JSON that `shoal pretrain` writes: {"model": {...}, "tokenizer": {...}}.
 */
static shoal_status make_model(shoal_generator *generator, const char *client_json)
{
    shoal_status status;
    shoal_model_config *config = NULL;
    char *model = NULL, *tokenizer = NULL;
    json_t *client = NULL;
    if (client_json)
        SHOAL_TRY(status, shoali_json_read(client_json, strlen(client_json), &client, NULL), done);
    const json_t *model_part = json_object_get(client, "model");
    const json_t *tokenizer_part = json_object_get(client, "tokenizer");
    if (!model_part) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the checkpoint has no description of its model: only checkpoints "
                            "written by `shoal pretrain` can generate text");
        goto done;
    }
    SHOAL_TRY(status, shoali_json_write(model_part, JSON_COMPACT, "a model's options", &model),
              done);
    SHOAL_TRY(status, shoal_model_config_from_json(model, &config), done);
    SHOAL_TRY(status, make_table_model(generator, config), done);
    if (!tokenizer_part) /* trained on random tokens */
        goto done;
    SHOAL_TRY(status, shoali_json_write(tokenizer_part, JSON_COMPACT, "a tokenizer", &tokenizer),
              done);
    SHOAL_TRY(status,
              shoal_tokenizer_from_json(tokenizer, strlen(tokenizer), &generator->tokenizer), done);
done:
    shoal_model_config_destroy(config);
    json_decref(client);
    free(model);
    free(tokenizer);
    return status;
}

/* The type of the weights, which generation computes in unless it is told another. */
static shoal_dtype weight_type(const struct shoali_checkpoint_info *info)
{
    for (int32_t i = 0; i < info->kind_count; i++)
        if (strcmp(info->kind_name[i], "model") == 0)
            return info->kind_dtype[i];
    return SHOAL_F32;
}

static shoal_status take_dtype(struct opening *opening)
{
    static const struct {
        const char *name;
        shoal_dtype dtype;
    } names[] = {{"fp32", SHOAL_F32}, {"bf16", SHOAL_BF16}, {"fp16", SHOAL_F16}};
    const char *name = opening->args->dtype;
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0) {
            opening->dtype = names[i].dtype;
            return SHOAL_OK;
        }
    return name ? SHOAL_FAIL(SHOAL_EINVAL, "type \"%s\" is not supported: give fp32, bf16 or fp16",
                             name)
                : SHOAL_OK;
}

/* Weights are packed later, where they lie (shoali_packed_place): not beside themselves. */
static shoal_status open_engine(shoal_generator *generator, struct opening *opening)
{
    shoal_status status;
    char config[256];
    SHOAL_TRY(status, take_dtype(opening), done);
    const shoal_dtype dtype = opening->dtype;
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\":1,\"packed_weights\":false,"
             "\"bf16\":{\"enabled\":%s},\"fp16\":{\"enabled\":%s}}",
             dtype == SHOAL_BF16 ? "true" : "false", dtype == SHOAL_F16 ? "true" : "false");
    SHOAL_TRY(status,
              shoal_engine_create(&(shoal_engine_args){.model = generator->model,
                                                       .config_text = config,
                                                       .threads = opening->args->threads,
                                                       .accelerator = opening->args->accelerator,
                                                       .ops = opening->args->ops,
                                                       .mesh = opening->args->mesh,
                                                       .inference = 1,
                                                       .blank_weights = true},
                                  &generator->owned),
              done);
done:
    return status;
}

static shoal_status open_checkpoint(shoal_generator *generator, struct opening *opening)
{
    shoal_status status;
    struct shoali_checkpoint_info info = {0};
    const char *dir = opening->args->load;
    SHOAL_TRY(status, shoali_checkpoint_open(dir, opening->args->tag, &info), done);
    generator->step = info.step;
    opening->dtype = weight_type(&info);
    SHOAL_TRY(status, make_model(generator, info.client_json), done);
    SHOAL_TRY(status, open_engine(generator, opening), done);
    SHOAL_TRY(status, shoal_engine_load_checkpoint(generator->owned, dir, info.tag, 1, NULL), done);
    SHOAL_TRY(status, shoali_end_tokens_read(dir, info.tag, generator), done);
done:
    shoali_checkpoint_info_fini(&info);
    return status;
}

/* A folder of another program, such as the Hub's. A pass of generation has its own memory. The
 * length of samples, which would be planned for the engine's, is of no use here. */
static shoal_status open_foreign(shoal_generator *generator, struct opening *opening,
                                 const struct shoali_model_folder *folder)
{
    shoal_status status;
    shoal_model_config *config = NULL;
    const char *dir = opening->args->load;
    const char *describer = opening->args->model_config ? opening->args->model_config : dir;
    double vocabulary;
    SHOAL_TRY(
        status,
        folder->read_config(describer, opening->args->allow_unknown_keys, &config, &opening->dtype),
        done);
    SHOAL_TRY(status, shoal_model_config_get(config, "vocab-size", &vocabulary), done);
    if (config->row->max_length)
        SHOAL_TRY(status, shoal_model_config_set(config, "seq-length", 1), done);
    SHOAL_TRY(status, make_table_model(generator, config), done);
    SHOAL_TRY(status, folder->open_tokenizer(describer, &generator->tokenizer), done);
    SHOAL_TRY(status, shoali_end_tokens_read(describer, NULL, generator), done);
    SHOAL_TRY(status, open_engine(generator, opening), done);
    SHOAL_TRY(status,
              shoal_engine_load_weights(
                  generator->owned,
                  &(shoal_load_weights_args){.path = dir, .vocab_rows = (int64_t)vocabulary}),
              done);
done:
    shoal_model_config_destroy(config);
    return status;
}

/* A checkpoint by its own folder, wherever that was moved: the folder that it is in, and its
 * name. */
static shoal_status open_itself(shoal_generator *generator, const shoal_generator_args *args)
{
    shoal_status status = SHOAL_ENOMEM;
    shoal_generator_args own = *args;
    struct opening opening = {.args = &own};
    char *path = realpath(args->load, NULL);
    char *name = path ? strrchr(path, '/') : NULL;
    if (!path)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: %s", args->load, strerror(errno));
    if (!name || !name[1]) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s cannot be the folder of a checkpoint: give a "
                            "folder below the root",
                            args->load);
    } else {
        *name = '\0';
        own.load = *path ? path : "/";
        own.tag = name + 1;
        status = open_checkpoint(generator, &opening);
    }
    free(path);
    return status;
}

/* Weights whose model is described by a folder of its own, or by the same one. */
static shoal_status open_described(shoal_generator *generator, const shoal_generator_args *given)
{
    shoal_status status = SHOAL_ENOMEM;
    shoal_generator_args args = *given;
    struct opening opening = {.args = &args};
    struct shoali_str path = {0};
    const char *describer = args.model_config ? args.model_config : args.load;
    if (!shoali_model_folders[0] || !shoali_has_file(describer, "config.json")) {
        status =
            args.model_config
                ? SHOAL_FAIL(SHOAL_EINVAL, "--model-config %s: there is no config.json", describer)
                : SHOAL_FAIL(SHOAL_EINVAL,
                             "%s does not say which model it has: give --model-config, a "
                             "folder with the model's config.json",
                             describer);
        goto done;
    }
    if (args.tag) {
        shoali_str_append(&path, "%s/%s", args.load, args.tag);
        if (path.failed)
            goto done;
        args.model_config = describer;
        args.load = path.text;
    }
    status = open_foreign(generator, &opening, shoali_model_folders[0]);
done:
    shoali_str_fini(&path);
    return status;
}

/* Whether DIR/TAG (tag NULL: DIR) was written by a program that describes no model. */
static bool is_foreign(const char *dir, const char *tag)
{
    char path[PATH_MAX]; /* no file has a longer one */
    return snprintf(path, sizeof path, "%s%s%s", dir, tag ? "/" : "", tag ? tag : "") <
               (int)sizeof path &&
           shoali_weight_source_find(path) != NULL;
}

static shoal_status open_folder(shoal_generator *generator, const shoal_generator_args *args)
{
    struct opening opening = {.args = args};
    if (!args->tag && shoali_has_file(args->load, "manifest.json"))
        return open_itself(generator, args);
    if (is_foreign(args->load, args->tag) ||
        (args->model_config && shoali_weight_folder_probe(args->load)))
        return open_described(generator, args);
    if (args->model_config)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "--model-config %s has no effect: %s is neither a folder of weights nor a "
            "checkpoint of DeepSpeed",
            args->model_config, args->load);
    for (int32_t i = 0; !args->tag && shoali_model_folders[i]; i++)
        if (shoali_model_folders[i]->probe(args->load))
            return open_foreign(generator, &opening, shoali_model_folders[i]);
    const shoal_status status = open_checkpoint(generator, &opening);
    if (status == SHOAL_ENOENT && !args->tag && shoali_has_file(args->load, "config.json"))
        return SHOAL_FAIL(status,
                          "%s has a config.json, and this build has no reader of Hugging Face "
                          "folders (SHOAL_WITH_HUB=OFF): give a folder of checkpoints with --load",
                          args->load);
    if (status == SHOAL_ENOENT && !args->tag)
        return SHOAL_FAIL(status,
                          "there is no checkpoint in %s, and no config.json: give another "
                          "folder with --load",
                          args->load);
    return status;
}

static shoal_status check_args(const shoal_generator_args *args)
{
    if ((args->load != NULL) == (args->engine != NULL))
        return SHOAL_FAIL(SHOAL_EINVAL, "a generator needs a checkpoint folder or an engine, not "
                                        "both");
    if (args->sequences < 0 || args->max_length < 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a generator cannot have %d sequences of %lld tokens: "
                          "give numbers of at least 0",
                          (int)args->sequences, (long long)args->max_length);
    if (args->engine != NULL && args->max_length == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "a generator of an engine needs max_length: give at "
                                        "least 1");
    if (args->engine != NULL && args->engine->stages.count > 1)
        return SHOAL_FAIL(
            SHOAL_EUNSUPPORTED,
            "this engine has %d pipeline stages, and a generator needs all layers on each rank: "
            "save a checkpoint and generate from its folder",
            (int)args->engine->stages.count);
    return SHOAL_OK;
}

shoal_status shoal_generator_create(const shoal_generator_args *given,
                                    shoal_generator **generator_out)
{
    shoal_status status;
    shoal_generator_args own = {0};
    const shoal_generator_args *const args = &own;
    *generator_out = NULL;
    shoal_generator *generator = shoali_calloc(1, sizeof *generator, "a generator");
    if (!generator)
        return SHOAL_ENOMEM;
    if (given)
        own = *given;
    SHOAL_TRY(status, check_args(args), done);
    if (args->load)
        SHOAL_TRY(status, open_folder(generator, args), done);
    const shoal_model_config *config = shoal_generator_config(generator);
    const int64_t most = config ? config->row->max_length(config->values) : INT64_MAX;
    const int64_t positions =
        args->max_length > 0 && args->max_length < most ? args->max_length : most;
    double vocabulary = 0;
    if (config)
        SHOAL_TRY(status, shoal_model_config_get(config, "vocab-size", &vocabulary), done);
    if (generator->owned) /* the decoder's passes count who reads which weight, and no other's */
        shoali_packed_forget(&generator->owned->module);
    SHOAL_TRY(status,
              shoali_decoder_init(&generator->decoder, args->load ? generator->owned : args->engine,
                                  args->sequences > 0 ? args->sequences : 1, positions),
              done);
    if (generator->owned) /* nobody else reads its weights */
        SHOAL_TRY(status, shoali_packed_place(&generator->owned->module, &generator->owned->exec),
                  done);
    generator->known = config ? (int64_t)vocabulary : generator->decoder.vocab;
    generator->logits =
        shoali_calloc((size_t)generator->decoder.vocab, sizeof *generator->logits, "logits");
    if (!generator->logits) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    *generator_out = generator;
done:
    if (status < 0)
        shoal_generator_destroy(generator);
    return status;
}

void shoal_generator_destroy(shoal_generator *generator)
{
    if (!generator)
        return;
    shoali_decoder_fini(&generator->decoder);
    shoal_engine_destroy(generator->owned);
    shoal_tokenizer_destroy(generator->tokenizer);
    shoal_model_destroy(generator->model);
    shoali_free(generator->end_tokens);
    shoali_free(generator->logits);
    shoali_free(generator);
}

const shoal_tokenizer *shoal_generator_tokenizer(const shoal_generator *generator)
{
    return generator->tokenizer;
}

const shoal_model_config *shoal_generator_config(const shoal_generator *generator)
{
    return generator->model ? shoal_model_get_config(generator->model) : NULL;
}

const int32_t *shoal_generator_end_tokens(const shoal_generator *generator, int32_t *count)
{
    *count = generator->end_count;
    return generator->end_tokens;
}

int64_t shoal_generator_step(const shoal_generator *generator)
{
    return generator->owned ? generator->step
                            : shoal_engine_global_steps(generator->decoder.engine);
}

int64_t shoal_generator_known_tokens(const shoal_generator *generator)
{
    return generator->known;
}

int64_t shoal_generator_vocab_size(const shoal_generator *generator)
{
    return generator->decoder.vocab;
}

/* ---- sequences ------------------------------------------------------------------------------ */

shoal_status shoal_generator_forward(shoal_generator *generator,
                                     const shoal_generator_input *inputs, int32_t count, bool all,
                                     float *logits)
{
    const uint32_t fp = shoali_fp_enter();
    const shoal_status status =
        shoali_decoder_forward(&generator->decoder, inputs, count, all, logits);
    shoali_fp_leave(fp);
    return status;
}

int64_t shoal_generator_length(const shoal_generator *generator, int32_t sequence)
{
    const struct shoali_decoder *decoder = &generator->decoder;
    return sequence >= 0 && sequence < decoder->sequences ? decoder->length[sequence] : 0;
}

shoal_status shoal_generator_truncate(shoal_generator *generator, int32_t sequence, int64_t length)
{
    struct shoali_decoder *decoder = &generator->decoder;
    if (sequence < 0 || sequence >= decoder->sequences || length < 0 ||
        length > decoder->length[sequence])
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "sequence %d cannot be truncated to %lld tokens: there are %d "
                          "sequences, and this one has %lld tokens",
                          (int)sequence, (long long)length, (int)decoder->sequences,
                          (long long)shoal_generator_length(generator, sequence));
    decoder->length[sequence] = length;
    return SHOAL_OK;
}
