/* GPT-2 row by row with a KV cache. */
#include "inference/inference.h"

#include <math.h>
#include <stdio.h>

static const void *find(const shoal_generator *generator, const char *layer, int64_t index,
                        const char *name)
{
    char full[160];
    if (index >= 0)
        snprintf(full, sizeof full, "%s.h.%lld.%s", layer, (long long)index, name);
    else
        snprintf(full, sizeof full, "%s%s%s", layer, *layer ? "." : "", name);
    const struct shoal_param *param = shoali_module_find(&generator->module, full);
    return param ? param->data : NULL;
}

static void find_pair(const shoal_generator *generator, int64_t index, const char *name,
                      const void *pair[2])
{
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    pair[0] = find(generator, "transformer", index, part);
    snprintf(part, sizeof part, "%s.bias", name);
    pair[1] = find(generator, "transformer", index, part);
}

static void find_weights(shoal_generator *generator)
{
    for (int64_t i = 0; i < generator->config->num_layers; i++) {
        struct shoali_block_weights *block = &generator->block[i];
        find_pair(generator, i, "ln_1", block->ln_1);
        find_pair(generator, i, "attn.c_attn", block->attn);
        find_pair(generator, i, "attn.c_proj", block->attn_proj);
        find_pair(generator, i, "ln_2", block->ln_2);
        find_pair(generator, i, "mlp.c_fc", block->fc);
        find_pair(generator, i, "mlp.c_proj", block->proj);
    }
    generator->wte = find(generator, "transformer", -1, "wte.weight");
    generator->wpe = find(generator, "transformer", -1, "wpe.weight");
    find_pair(generator, -1, "ln_f", generator->ln_f);
    generator->head = generator->config->untie_embeddings ? find(generator, "lm_head", -1, "weight")
                                                          : generator->wte;
}

/* A block and how much of it is given away; base NULL only measures. */
struct cutter {
    char *base;
    size_t used;
};

/* The next `count` floats, in steps of 64 bytes. */
static float *cut(struct cutter *cutter, int64_t count)
{
    float *memory = cutter->base ? (float *)(void *)(cutter->base + cutter->used) : NULL;
    cutter->used += ((size_t)count * sizeof(float) + 63) / 64 * 64;
    return memory;
}

static void lay_out(shoal_generator *generator, struct cutter *at)
{
    const shoal_gpt_config *config = generator->config;
    const int64_t rows = config->max_position_embeddings, hidden = config->hidden_size;
    generator->x = cut(at, rows * hidden);
    generator->y = cut(at, rows * hidden);
    generator->qkv = cut(at, rows * 3 * hidden);
    generator->wide = cut(at, rows * config->ffn_hidden_size);
    generator->logits = cut(at, shoali_gpt_of(generator->model)->padded_vocab);
    generator->mean = cut(at, rows);
    generator->rstd = cut(at, rows);
    generator->lse = cut(at, rows * config->num_attention_heads);
    generator->ids = (int32_t *)(void *)cut(at, rows);
    generator->bad_id = (int64_t *)(void *)cut(at, 16);
    for (int64_t i = 0; i < config->num_layers; i++) {
        generator->key[i] = cut(at, rows * hidden);
        generator->value[i] = cut(at, rows * hidden);
    }
}

shoal_status shoali_generator_prepare(shoal_generator *generator)
{
    shoal_status status = SHOAL_ENOMEM;
    const size_t layers = (size_t)generator->config->num_layers;
    generator->block = shoali_calloc(layers, sizeof *generator->block, "block weights");
    generator->key = shoali_calloc(layers, sizeof *generator->key, "the key cache");
    generator->value = shoali_calloc(layers, sizeof *generator->value, "the value cache");
    generator->host_logits = shoali_calloc((size_t)shoali_gpt_of(generator->model)->padded_vocab,
                                           sizeof(float), "logits");
    if (!generator->block || !generator->key || !generator->value || !generator->host_logits)
        goto done;
    struct cutter at = {0};
    lay_out(generator, &at);
    SHOAL_TRY(status, shoali_device_alloc(generator->device, at.used, &generator->memory), done);
    at = (struct cutter){.base = generator->memory};
    lay_out(generator, &at);
    SHOAL_TRY(status,
              shoali_fill(generator->exec.stream, generator->bad_id, 0, sizeof *generator->bad_id),
              done);
    find_weights(generator);
done:
    return status;
}

/* ---- one pass ------------------------------------------------------------------------------- */

static shoal_status normalise(shoal_generator *generator, const void *const pair[2], const float *x,
                              float *y, int64_t rows)
{
    return shoali_op_norm(&generator->exec,
                          &(struct shoali_norm_args){.x = x,
                                                     .gamma = pair[0],
                                                     .beta = pair[1],
                                                     .y = y,
                                                     .mean = generator->mean,
                                                     .rstd = generator->rstd,
                                                     .rows = rows,
                                                     .columns = generator->config->hidden_size,
                                                     .eps = generator->config->norm_epsilon,
                                                     .dtype = SHOAL_F32});
}

struct product {
    const float *x;
    const void *const *pair;
    float *y;
    const float *residual;
    int64_t rows, in, out;
    enum shoali_activation activation;
};

static shoal_status multiply(shoal_generator *generator, const struct product *product)
{
    return shoali_op_gemm(&generator->exec,
                          &(struct shoali_gemm_args){.a = product->x,
                                                     .b = product->pair[0],
                                                     .c = product->y,
                                                     .bias = product->pair[1],
                                                     .residual = product->residual,
                                                     .m = product->rows,
                                                     .n = product->out,
                                                     .k = product->in,
                                                     .lda = product->in,
                                                     .ldb = product->out,
                                                     .ldc = product->out,
                                                     .activation = product->activation,
                                                     .dtype_ab = SHOAL_F32,
                                                     .dtype_c = SHOAL_F32,
                                                     .dtype_bias = SHOAL_F32});
}

/* Copies the third `part` of each qkv row into the cache at the current position. */
static shoal_status remember(shoal_generator *generator, int32_t part, float *cache, int64_t rows)
{
    const int64_t hidden = generator->config->hidden_size;
    return shoali_op_copy_strided(&generator->exec, &(struct shoali_copy_strided_args){
                                                        .x = generator->qkv + part * hidden,
                                                        .y = cache + generator->cached * hidden,
                                                        .ndim = 2,
                                                        .dim = {rows, hidden},
                                                        .x_stride = {3 * hidden, 1},
                                                        .y_stride = {hidden, 1},
                                                        .dtype = SHOAL_F32});
}

static shoal_status attend(shoal_generator *generator, int64_t layer, int64_t rows)
{
    const shoal_gpt_config *config = generator->config;
    const int64_t hidden = config->hidden_size, size = hidden / config->num_attention_heads;
    shoal_status status;
    SHOAL_TRY(status, remember(generator, 1, generator->key[layer], rows), done);
    SHOAL_TRY(status, remember(generator, 2, generator->value[layer], rows), done);
    SHOAL_TRY(
        status,
        shoali_op_attention(&generator->exec,
                            &(struct shoali_attention_args){.q = generator->qkv,
                                                            .k = generator->key[layer],
                                                            .v = generator->value[layer],
                                                            .out = generator->y,
                                                            .lse = generator->lse,
                                                            .batch = 1,
                                                            .q_len = rows,
                                                            .kv_len = generator->cached + rows,
                                                            .heads = config->num_attention_heads,
                                                            .kv_heads = config->num_attention_heads,
                                                            .head_size = size,
                                                            .q_stride = 3 * hidden,
                                                            .kv_stride = hidden,
                                                            .out_stride = hidden,
                                                            .scale = 1.0 / sqrt((double)size),
                                                            .causal = 1,
                                                            .dtype = SHOAL_F32}),
        done);
done:
    return status;
}

static shoal_status run_block(shoal_generator *generator, int64_t layer, int64_t rows)
{
    const shoal_gpt_config *config = generator->config;
    const struct shoali_block_weights *block = &generator->block[layer];
    const int64_t hidden = config->hidden_size, ffn = config->ffn_hidden_size;
    const enum shoali_activation gelu =
        config->openai_gelu ? SHOALI_ACT_GELU_TANH : SHOALI_ACT_GELU_ERF;
    float *x = generator->x, *y = generator->y;
    shoal_status status;
    SHOAL_TRY(status, normalise(generator, block->ln_1, x, y, rows), done);
    SHOAL_TRY(status,
              multiply(generator, &(struct product){y, block->attn, generator->qkv, NULL, rows,
                                                    hidden, 3 * hidden, SHOALI_ACT_NONE}),
              done);
    SHOAL_TRY(status, attend(generator, layer, rows), done);
    SHOAL_TRY(status,
              multiply(generator, &(struct product){y, block->attn_proj, x, x, rows, hidden, hidden,
                                                    SHOALI_ACT_NONE}),
              done);
    SHOAL_TRY(status, normalise(generator, block->ln_2, x, y, rows), done);
    SHOAL_TRY(status,
              multiply(generator, &(struct product){y, block->fc, generator->wide, NULL, rows,
                                                    hidden, ffn, gelu}),
              done);
    SHOAL_TRY(status,
              multiply(generator, &(struct product){generator->wide, block->proj, x, x, rows, ffn,
                                                    hidden, SHOALI_ACT_NONE}),
              done);
done:
    return status;
}

shoal_status shoali_generator_append(shoal_generator *generator, const int32_t *tokens,
                                     int64_t count)
{
    const shoal_gpt_config *config = generator->config;
    const int64_t hidden = config->hidden_size,
                  vocab = shoali_gpt_of(generator->model)->padded_vocab;
    shoal_status status;
    SHOAL_TRY(status,
              shoali_upload(generator->exec.stream, generator->ids, tokens,
                            (size_t)count * sizeof *tokens),
              done);
    SHOAL_TRY(status,
              shoali_op_embedding(
                  &generator->exec,
                  &(struct shoali_embedding_args){.ids = generator->ids,
                                                  .table = generator->wte,
                                                  .positions = generator->wpe,
                                                  .out = generator->x,
                                                  .bad_id = generator->bad_id,
                                                  .rows = count,
                                                  .columns = hidden,
                                                  .table_rows = vocab,
                                                  .period = config->max_position_embeddings,
                                                  .first_position = generator->cached,
                                                  .dtype = SHOAL_F32}),
              done);
    for (int64_t layer = 0; layer < config->num_layers; layer++)
        SHOAL_TRY(status, run_block(generator, layer, count), done);
    SHOAL_TRY(
        status,
        normalise(generator, generator->ln_f, generator->x + (count - 1) * hidden, generator->y, 1),
        done);
    SHOAL_TRY(status,
              shoali_op_gemm(&generator->exec, &(struct shoali_gemm_args){.a = generator->y,
                                                                          .b = generator->head,
                                                                          .c = generator->logits,
                                                                          .m = 1,
                                                                          .n = vocab,
                                                                          .k = hidden,
                                                                          .lda = hidden,
                                                                          .ldb = hidden,
                                                                          .ldc = vocab,
                                                                          .trans_b = 1,
                                                                          .dtype_ab = SHOAL_F32,
                                                                          .dtype_c = SHOAL_F32}),
              done);
    SHOAL_TRY(status,
              shoali_download(generator->exec.stream, generator->host_logits, generator->logits,
                              (size_t)vocab * sizeof(float)),
              done);
    generator->cached += count;
done:
    return status;
}
