/* The three kinds of layers of llama.h. */
#include "transformer/llama.h"

#include <math.h>

/* A weight [out, in] and its bias, or a norm's gamma [size] and beta. */
struct pair {
    const char *weight, *bias; /* bias NULL: none */
    shoal_shape shape;
    shoal_init_kind init;
    double std;
    shoal_param_split split;
    int64_t fine;
};

static shoal_status declare(shoal_declaration *declaration, const struct pair *pair)
{
    shoal_status status;
    const shoal_param_spec weight = {.name = pair->weight,
                                     .shape = pair->shape,
                                     .init = pair->init,
                                     .init_b = pair->std,
                                     .split = {pair->split},
                                     .split_fine = {{pair->fine}}};
    SHOAL_TRY(status, shoal_declare_param(declaration, &weight), done);
    if (!pair->bias)
        return SHOAL_OK;
    shoal_param_spec bias = {
        .name = pair->bias, .shape = shoal_shape_1(pair->shape.dim[0]), .init = SHOAL_INIT_ZEROS};
    if (pair->split.dim == 0) {
        bias.split[0] = pair->split;
        bias.split_fine[0][0] = pair->fine;
    }
    SHOAL_TRY(status, shoal_declare_param(declaration, &bias), done);
done:
    return status;
}

static struct pair norm_pair(const struct shoali_llama_config *config, const char *weight,
                             const char *bias, int64_t size)
{
    return (struct pair){.weight = weight,
                         .bias = config->normalization == SHOALI_NORM_LAYER ? bias : NULL,
                         .shape = shoal_shape_1(size),
                         .init = config->apply_layernorm_1p ? SHOAL_INIT_ZEROS : SHOAL_INIT_ONES};
}

/* [out, in], cut along `dim` in units; ranks that outnumber them share one in pieces of `fine`. */
static struct pair linear_pair(const char *weight, const char *bias, int64_t out, int64_t in,
                               double std, int32_t dim, int64_t unit, int64_t fine)
{
    return (struct pair){
        .weight = weight,
        .bias = bias,
        .shape = shoal_shape_2(out, in),
        .init = SHOAL_INIT_NORMAL,
        .std = std,
        .split = {.axis = SHOAL_AXIS_TP,
                  .dim = dim,
                  .part_count = 1,
                  .part = {dim == 0 ? out : in},
                  .unit = {unit}},
        .fine = fine,
    };
}

/* The parameters of a norm, from the index-th of the layer on; *index goes behind them. */
static shoal_tensor *norm(const struct shoali_llama_config *config, const shoal_layer *layer,
                          int32_t *index, shoal_tape *tape, shoal_tensor *x)
{
    const bool rms = config->normalization == SHOALI_NORM_RMS;
    shoal_param *gamma = shoal_layer_param(layer, (*index)++);
    shoal_param *beta = rms ? NULL : shoal_layer_param(layer, (*index)++);
    return shoal_norm(tape, x,
                      &(shoal_norm_args){.gamma = gamma,
                                         .beta = beta,
                                         .eps = config->norm_epsilon,
                                         .rms = rms,
                                         .gamma_plus_one = config->apply_layernorm_1p});
}

/* ---- embedding ------------------------------------------------------------------------------- */

static shoal_param_split vocabulary_split(const struct shoali_llama_config *config)
{
    return (shoal_param_split){
        .axis = SHOAL_AXIS_TP, .part_count = 1, .part = {shoali_llama_padded_vocab(config)}};
}

static shoal_status declare_embedding(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_llama_config *config = opaque;
    const int64_t rows = shoali_llama_padded_vocab(config), hidden = config->hidden_size;
    const shoal_param_spec tokens = {.name = "embed_tokens.weight",
                                     .shape = shoal_shape_2(rows, hidden),
                                     .init = SHOAL_INIT_NORMAL,
                                     .init_b = config->init_method_std,
                                     .split = {vocabulary_split(config)}};
    const shoal_param_spec positions = {.name = "embed_positions.weight",
                                        .shape =
                                            shoal_shape_2(config->max_position_embeddings, hidden),
                                        .init = SHOAL_INIT_NORMAL,
                                        .init_b = config->init_method_std};
    shoal_status status;
    SHOAL_TRY(status, shoal_declare_param(declaration, &tokens), done);
    if (config->position_embedding_type == SHOALI_POSITIONS_LEARNED)
        SHOAL_TRY(status, shoal_declare_param(declaration, &positions), done);
done:
    return status;
}

static void forward_embedding(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_llama_config *config = shoal_layer_config(layer);
    const bool learned = config->position_embedding_type == SHOALI_POSITIONS_LEARNED;
    shoal_tensor *x = shoal_embedding(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0),
                                      learned ? shoal_layer_param(layer, 1) : NULL);
    if (config->embedding_multiplier != 1)
        x = shoal_scale(tape, x, config->embedding_multiplier);
    if (config->hidden_dropout > 0)
        x = shoal_dropout(tape, x, config->hidden_dropout, NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* ---- block ----------------------------------------------------------------------------------- */

static shoal_status declare_attention(const struct shoali_llama_config *config,
                                      shoal_declaration *declaration)
{
    const int64_t hidden = config->hidden_size, size = config->kv_channels;
    const int64_t q = config->num_attention_heads * size, kv = config->num_query_groups * size;
    const double std = config->init_method_std, deep = sqrt(2.0 * (double)config->num_layers);
    const int64_t group = q / config->num_query_groups;
    const bool all = !config->disable_bias_linear, qkv = all || config->add_qkv_bias;
    const bool out = all || config->add_attention_output_bias;
    const struct pair pairs[] = {
        norm_pair(config, "input_layernorm.weight", "input_layernorm.bias", hidden),
        linear_pair("self_attn.q_proj.weight", qkv ? "self_attn.q_proj.bias" : NULL, q, hidden, std,
                    0, group, size),
        linear_pair("self_attn.k_proj.weight", qkv ? "self_attn.k_proj.bias" : NULL, kv, hidden,
                    std, 0, size, size),
        linear_pair("self_attn.v_proj.weight", qkv ? "self_attn.v_proj.bias" : NULL, kv, hidden,
                    std, 0, size, size),
        linear_pair("self_attn.o_proj.weight", out ? "self_attn.o_proj.bias" : NULL, hidden, q,
                    std / deep, 1, group, size),
    };
    const struct pair norms[] = {
        norm_pair(config, "self_attn.q_norm.weight", "self_attn.q_norm.bias", size),
        norm_pair(config, "self_attn.k_norm.weight", "self_attn.k_norm.bias", size),
    };
    shoal_status status;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        SHOAL_TRY(status, declare(declaration, &pairs[i]), done);
    for (size_t i = 0; config->qk_layernorm && i < 2; i++)
        SHOAL_TRY(status, declare(declaration, &norms[i]), done);
done:
    return status;
}

static shoal_status declare_mlp(const struct shoali_llama_config *config,
                                shoal_declaration *declaration)
{
    const int64_t hidden = config->hidden_size, ffn = config->ffn_hidden_size;
    const double std = config->init_method_std, deep = sqrt(2.0 * (double)config->num_layers);
    const bool bias = !config->disable_bias_linear;
    const struct pair before = norm_pair(config, "post_attention_layernorm.weight",
                                         "post_attention_layernorm.bias", hidden);
    const struct pair gate = linear_pair("mlp.gate_proj.weight", bias ? "mlp.gate_proj.bias" : NULL,
                                         ffn, hidden, std, 0, 1, 0);
    const struct pair up = linear_pair("mlp.up_proj.weight", bias ? "mlp.up_proj.bias" : NULL, ffn,
                                       hidden, std, 0, 1, 0);
    const struct pair down = linear_pair("mlp.down_proj.weight", bias ? "mlp.down_proj.bias" : NULL,
                                         hidden, ffn, std / deep, 1, 1, 0);
    shoal_status status;
    SHOAL_TRY(status, declare(declaration, &before), done);
    if (shoali_llama_gated(config))
        SHOAL_TRY(status, declare(declaration, &gate), done);
    SHOAL_TRY(status, declare(declaration, &up), done);
    SHOAL_TRY(status, declare(declaration, &down), done);
done:
    return status;
}

static shoal_status declare_block(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_llama_block *block = opaque;
    shoal_status status;
    SHOAL_TRY(status, declare_attention(block->model, declaration), done);
    SHOAL_TRY(status, declare_mlp(block->model, declaration), done);
done:
    return status;
}

/* The next weight of the layer, and its bias if it has one. */
static void take(const shoal_layer *layer, int32_t *index, bool has_bias, shoal_param **weight,
                 shoal_param **bias)
{
    *weight = shoal_layer_param(layer, (*index)++);
    *bias = has_bias ? shoal_layer_param(layer, (*index)++) : NULL;
}

/* x + dropout(y w^T + b): fused into the product when there is no dropout. */
static shoal_tensor *project_into(const struct shoali_llama_config *config, shoal_tape *tape,
                                  shoal_tensor *y, shoal_param *weight, shoal_param *bias,
                                  shoal_tensor *x)
{
    shoal_linear_args args = {.bias = bias, .weight_out_in = true};
    if (config->hidden_dropout > 0 && shoal_tape_training(tape))
        return shoal_dropout(tape, shoal_linear(tape, y, weight, &args), config->hidden_dropout, x);
    args.residual = x;
    return shoal_linear(tape, y, weight, &args);
}

/* Packed qkv with norms and positions. */
static shoal_tensor *queries_and_keys(const struct shoali_llama_config *config,
                                      const shoal_layer *layer, int32_t *index, shoal_tape *tape,
                                      shoal_tensor *qkv)
{
    const int64_t heads = config->num_attention_heads, kv_heads = config->num_query_groups;
    const bool rms = config->normalization == SHOALI_NORM_RMS;
    shoal_qk_norm_args norms = {.heads = heads,
                                .kv_heads = kv_heads,
                                .eps = config->norm_epsilon,
                                .rms = rms,
                                .gamma_plus_one = config->apply_layernorm_1p};
    if (config->qk_layernorm) {
        take(layer, index, !rms, &norms.q_gamma, &norms.q_beta);
        take(layer, index, !rms, &norms.k_gamma, &norms.k_beta);
        qkv = shoal_qk_norm(tape, qkv, &norms);
    }
    if (config->rotary_size == 0)
        return qkv;
    return shoal_rotary(tape, qkv,
                        &(shoal_rotary_args){.heads = heads,
                                             .kv_heads = kv_heads,
                                             .rotary_size = config->rotary_size,
                                             .inverse_frequency = config->inverse_frequency,
                                             .interleaved = config->rotary_interleaved});
}

static shoal_tensor *forward_attention(const struct shoali_llama_block *block,
                                       const shoal_layer *layer, int32_t *index, shoal_tape *tape,
                                       shoal_tensor *x)
{
    const struct shoali_llama_config *config = block->model;
    const bool all = !config->disable_bias_linear, qkv = all || config->add_qkv_bias;
    shoal_param *out, *out_bias;
    shoal_linears_args three = {.weight_out_in = true};
    shoal_tensor *y = norm(config, layer, index, tape, x);
    for (int i = 0; i < 3; i++)
        take(layer, index, qkv, &three.weight[i], &three.bias[i]);
    take(layer, index, all || config->add_attention_output_bias, &out, &out_bias);
    y = shoal_linears(tape, y, &three); /* [B, T, (H + 2 KV) D] */
    y = queries_and_keys(config, layer, index, tape, y);
    y = shoal_attention(tape, y,
                        &(shoal_attention_args){
                            .heads = config->num_attention_heads,
                            .kv_heads = config->num_query_groups,
                            .dropout = shoal_tape_training(tape) ? config->attention_dropout : 0,
                            .window = block->window});
    return project_into(config, tape, y, out, out_bias, x);
}

static shoal_activation activation_of(const struct shoali_llama_config *config)
{
    if (config->swiglu)
        return SHOAL_ACTIVATION_SILU;
    if (config->squared_relu)
        return SHOAL_ACTIVATION_RELU_SQUARED;
    return config->openai_gelu ? SHOAL_ACTIVATION_GELU_TANH : SHOAL_ACTIVATION_GELU;
}

static shoal_tensor *forward_mlp(const struct shoali_llama_config *config, const shoal_layer *layer,
                                 int32_t *index, shoal_tape *tape, shoal_tensor *x)
{
    const bool has_bias = !config->disable_bias_linear, gated = shoali_llama_gated(config);
    const shoal_activation activation = activation_of(config);
    shoal_linears_args two = {.weight_out_in = true};
    shoal_param *down, *down_bias;
    shoal_tensor *y = norm(config, layer, index, tape, x);
    for (int i = 0; i < (gated ? 2 : 1); i++)
        take(layer, index, has_bias, &two.weight[i], &two.bias[i]);
    take(layer, index, has_bias, &down, &down_bias);
    if (gated)
        y = shoal_glu(tape, shoal_linears(tape, y, &two), activation); /* [B, T, F] of [B, T, 2F] */
    else
        y = shoal_linear(tape, y, two.weight[0],
                         &(shoal_linear_args){
                             .bias = two.bias[0], .activation = activation, .weight_out_in = true});
    return project_into(config, tape, y, down, down_bias, x);
}

static void forward_block(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_llama_block *block = shoal_layer_config(layer);
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0); /* [B, T, C] */
    int32_t index = 0;
    shoal_scope_begin(tape, "attn");
    x = forward_attention(block, layer, &index, tape, x);
    shoal_scope_end(tape, &x, 1);
    shoal_scope_begin(tape, "mlp");
    x = forward_mlp(block->model, layer, &index, tape, x);
    shoal_scope_end(tape, &x, 1);
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* ---- head ------------------------------------------------------------------------------------ */

static shoal_status declare_head(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_llama_config *config = opaque;
    const struct pair last =
        norm_pair(config, "/model.norm.weight", "/model.norm.bias", config->hidden_size);
    const shoal_param_spec out = {
        .name = "/lm_head.weight",
        .shape = shoal_shape_2(shoali_llama_padded_vocab(config), config->hidden_size),
        .init = SHOAL_INIT_NORMAL,
        .init_b = config->init_method_std,
        .tied_to = config->untie_embeddings ? NULL : "model.embed_tokens.weight",
        .split = {vocabulary_split(config)}};
    shoal_status status;
    SHOAL_TRY(status, declare(declaration, &last), done);
    SHOAL_TRY(status, shoal_declare_param(declaration, &out), done);
done:
    return status;
}

static void forward_head(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_llama_config *config = shoal_layer_config(layer);
    int32_t index = 0;
    shoal_tensor *x = norm(config, layer, &index, tape, shoal_boundary_get(tape, boundary, 0));
    shoal_param *weight = shoal_layer_param(layer, index);
    shoal_tensor *out = shoali_next_token_head(tape, x, weight, config->cross_entropy_loss_fusion,
                                               config->label_smoothing);
    shoal_boundary_set(tape, boundary, &out, 1);
}

const shoal_layer_type shoali_llama_embedding = {
    .name = "llama_embedding", .declare = declare_embedding, .forward = forward_embedding};
const shoal_layer_type shoali_llama_block_type = {
    .name = "llama_block", .declare = declare_block, .forward = forward_block};
const shoal_layer_type shoali_llama_head = {
    .name = "llama_head", .declare = declare_head, .forward = forward_head};
