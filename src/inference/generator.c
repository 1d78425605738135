/* Opening a checkpoint for generation, and the loop. */
#include "checkpoint/checkpoint.h"
#include "inference/inference.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The parts of the client JSON that `shoal pretrain` writes: {"model": {...}, "tokenizer": {...}}.
 */
static shoal_status make_model(shoal_generator *generator, const char *client_json)
{
    shoal_status status;
    shoal_gpt_config config;
    char *model = NULL, *tokenizer = NULL;
    json_t *client = client_json ? json_loads(client_json, 0, NULL) : NULL;
    model = json_dumps(json_object_get(client, "model"), JSON_COMPACT);
    tokenizer = json_dumps(json_object_get(client, "tokenizer"), JSON_COMPACT);
    if (!model || !tokenizer) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the checkpoint does not say which model and tokenizer it is of: only "
                            "checkpoints written by `shoal pretrain` can generate");
        goto done;
    }
    SHOAL_TRY(status, shoal_gpt_config_from_json(model, &config), done);
    SHOAL_TRY(status, shoal_gpt_create(&config, &generator->model), done);
    generator->config = shoal_gpt_get_config(generator->model);
    SHOAL_TRY(status,
              shoal_tokenizer_from_json(tokenizer, strlen(tokenizer), &generator->tokenizer), done);
done:
    json_decref(client);
    free(model);
    free(tokenizer);
    return status;
}

static shoal_status open_device(shoal_generator *generator, const shoal_generator_args *args)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    SHOAL_TRY(status, shoali_pool_create(args->threads, &generator->pool), done);
    SHOAL_TRY(status, shoali_accelerator_select(args->accelerator, &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, 0, generator->pool, &generator->device),
              done);
    SHOAL_TRY(status, shoali_stream_create(generator->device, &generator->exec.stream), done);
    SHOAL_TRY(status, shoali_ops_select(args->ops, &generator->ops), done);
    generator->exec.ops = &generator->ops;
done:
    return status;
}

static shoal_status write_weights(void *user, int64_t first, int64_t count, const void *in)
{
    return shoali_zero_write(user, 0, first, count, in);
}

/* fp32 weights: the masters of a 16-bit run, else the model itself. */
static const char *weight_kind(const struct shoali_checkpoint_info *info)
{
    for (int32_t i = 0; i < info->kind_count; i++)
        if (strcmp(info->kind_name[i], "master") == 0)
            return "master";
    return "model";
}

static shoal_status load_weights(shoal_generator *generator, const char *dir,
                                 const struct shoali_checkpoint_info *info)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_module *module = &generator->module;
    const char **names = shoali_calloc((size_t)module->param_count, sizeof *names, "tensor names");
    shoal_shape *shapes =
        shoali_calloc((size_t)module->param_count, sizeof *shapes, "tensor shapes");
    if (!names || !shapes)
        goto done;
    for (int32_t i = 0; i < module->param_count; i++) {
        names[i] = module->param[i]->name;
        shapes[i] = module->param[i]->shape;
    }
    const struct shoali_checkpoint_kind kind = {.name = weight_kind(info),
                                                .dtype = SHOAL_F32,
                                                .count = shoali_zero_flat_count(generator->zero),
                                                .replicated = true,
                                                .user = generator->zero,
                                                .write = write_weights};
    SHOAL_TRY(
        status,
        shoali_checkpoint_load(&(struct shoali_checkpoint_args){.dir = dir,
                                                                .tag = info->tag,
                                                                .names = names,
                                                                .shapes = shapes,
                                                                .tensor_count = module->param_count,
                                                                .kinds = &kind,
                                                                .kind_count = 1}),
        done);
done:
    shoali_free(names);
    shoali_free(shapes);
    return status;
}

shoal_status shoal_generator_create(const shoal_generator_args *args,
                                    shoal_generator **generator_out)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_checkpoint_info info = {0};
    *generator_out = NULL;
    shoal_generator *generator = shoali_calloc(1, sizeof *generator, "a generator");
    if (!generator)
        return status;
    SHOAL_TRY(status, shoali_checkpoint_open(args->load, args->tag, &info), done);
    generator->step = info.step;
    SHOAL_TRY(status, make_model(generator, info.client_json), done);
    SHOAL_TRY(status, open_device(generator, args), done);
    SHOAL_TRY(status, shoali_module_init(&generator->module, generator->model, SHOAL_F32), done);
    SHOAL_TRY(status,
              shoali_zero_create(&(struct shoali_zero_args){.module = &generator->module,
                                                            .device = generator->device,
                                                            .exec = generator->exec,
                                                            .gas = 1,
                                                            .gradient_predivide_factor = 1.0},
                                 &generator->zero),
              done);
    SHOAL_TRY(status, load_weights(generator, args->load, &info), done);
    SHOAL_TRY(status, shoali_generator_prepare(generator), done);
    *generator_out = generator;
done:
    shoali_checkpoint_info_fini(&info);
    if (status < 0)
        shoal_generator_destroy(generator);
    return status;
}

void shoal_generator_destroy(shoal_generator *generator)
{
    if (!generator)
        return;
    if (generator->memory)
        shoali_device_free(generator->device, generator->memory);
    shoali_free(generator->block);
    shoali_free(generator->key);
    shoali_free(generator->value);
    shoali_free(generator->host_logits);
    shoali_zero_destroy(generator->zero);
    shoali_module_fini(&generator->module);
    if (generator->exec.stream)
        shoali_stream_destroy(generator->exec.stream);
    shoali_device_destroy(generator->device);
    shoali_pool_destroy(generator->pool);
    shoal_tokenizer_destroy(generator->tokenizer);
    shoal_gpt_destroy(generator->model);
    shoali_free(generator);
}

const shoal_tokenizer *shoal_generator_tokenizer(const shoal_generator *generator)
{
    return generator->tokenizer;
}

const shoal_gpt_config *shoal_generator_config(const shoal_generator *generator)
{
    return generator->config;
}

int64_t shoal_generator_step(const shoal_generator *generator)
{
    return generator->step;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static shoal_status check_sample_args(const shoal_generator *generator,
                                      const shoal_sample_args *args)
{
    if (args->prompt_count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the prompt is empty: give at least one character with --prompt");
    if (args->num_tokens < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--num-tokens is %lld; give 0 or more",
                          (long long)args->num_tokens);
    if (args->top_k < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--top-k is %lld; give 0 (all tokens) or more",
                          (long long)args->top_k);
    if (args->top_k != 1 && !(args->temperature > 0))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "--temperature is %g; give a number above 0, or --top-k 1 for the most likely token",
            args->temperature);
    for (int64_t i = 0; i < args->prompt_count; i++)
        if (args->prompt[i] < 0 || args->prompt[i] >= generator->config->vocab_size)
            return SHOAL_FAIL(SHOAL_EINVAL, "prompt token %lld is %d; the model knows 0 to %lld",
                              (long long)i, (int)args->prompt[i],
                              (long long)generator->config->vocab_size - 1);
    return SHOAL_OK;
}

/* Feeds the newest tokens; a full context restarts from its last half. */
static shoal_status feed(shoal_generator *generator, const int32_t *text, int64_t count,
                         int64_t fresh)
{
    const int64_t room = generator->config->max_position_embeddings;
    if (generator->cached + fresh > room) {
        const int64_t keep = count < room ? count : (room + 1) / 2;
        generator->cached = 0;
        return shoali_generator_append(generator, text + count - keep, keep);
    }
    return shoali_generator_append(generator, text + count - fresh, fresh);
}

shoal_status shoal_generate(shoal_generator *generator, const shoal_sample_args *args,
                            shoal_token_sink sink, void *user)
{
    shoal_status status;
    int32_t *text = NULL;
    const uint32_t fp = shoali_fp_enter();
    SHOAL_TRY(status, check_sample_args(generator, args), done);
    int64_t count = args->prompt_count, fresh = count;
    text = shoali_malloc((size_t)(count + args->num_tokens) * sizeof *text, "the generated text");
    if (!text) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memcpy(text, args->prompt, (size_t)count * sizeof *text);
    generator->cached = 0;
    for (int64_t i = 0; i < args->num_tokens; i++) {
        SHOAL_TRY(status, feed(generator, text, count, fresh), done);
        const int32_t token = shoali_sample_token(generator->host_logits,
                                                  generator->config->vocab_size, args, (uint64_t)i);
        text[count++] = token;
        fresh = 1;
        SHOAL_TRY(status, sink(user, token), done);
    }
done:
    shoali_free(text);
    shoali_fp_leave(fp);
    return status;
}
