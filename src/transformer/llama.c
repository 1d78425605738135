/* The three kinds of layers of llama.h. */
#include "transformer/llama.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A weight [out, in] and its bias, or a norm's gamma [size] and beta. name: without the endings. */
struct pair {
    const char *name;
    bool weight, bias; /* which there are */
    shoal_shape shape;
    shoal_init_kind init;
    double std;
    shoal_param_split split;
    int64_t fine[SHOAL_SPLIT_PARTS];
};

static shoal_status declare(shoal_declaration *declaration, const struct pair *pair)
{
    shoal_status status = SHOAL_OK;
    char name[96];
    shoal_param_spec weight = {.name = name,
                               .shape = pair->shape,
                               .init = pair->init,
                               .init_b = pair->std,
                               .split = {pair->split}};
    memcpy(weight.split_fine[0], pair->fine, sizeof pair->fine);
    snprintf(name, sizeof name, "%s.weight", pair->name);
    if (pair->weight)
        SHOAL_TRY(status, shoal_declare_param(declaration, &weight), done);
    if (!pair->bias)
        return SHOAL_OK;
    shoal_param_spec bias = {
        .name = name, .shape = shoal_shape_1(pair->shape.dim[0]), .init = SHOAL_INIT_ZEROS};
    snprintf(name, sizeof name, "%s.bias", pair->name);
    if (pair->split.dim == 0) {
        bias.split[0] = pair->split;
        memcpy(bias.split_fine[0], pair->fine, sizeof pair->fine);
    }
    SHOAL_TRY(status, shoal_declare_param(declaration, &bias), done);
done:
    return status;
}

static bool norm_has_bias(const struct shoali_llama_config *config)
{
    return config->normalization == SHOALI_NORM_LAYER && !config->disable_norm_bias &&
           !config->disable_norm_weight;
}

static struct pair norm_pair(const struct shoali_llama_config *config, const char *name,
                             int64_t size)
{
    return (struct pair){.name = name,
                         .weight = !config->disable_norm_weight,
                         .bias = norm_has_bias(config),
                         .shape = shoal_shape_1(size),
                         .init = config->apply_layernorm_1p ? SHOAL_INIT_ZEROS : SHOAL_INIT_ONES};
}

/* [out, in], cut along `dim` in units; ranks that outnumber them share one in pieces of `fine`. */
static struct pair linear_pair(const char *name, bool bias, int64_t out, int64_t in, double std,
                               int32_t dim, int64_t unit, int64_t fine)
{
    return (struct pair){
        .name = name,
        .weight = true,
        .bias = bias,
        .shape = shoal_shape_2(out, in),
        .init = SHOAL_INIT_NORMAL,
        .std = std,
        .split = {.axis = SHOAL_AXIS_TP,
                  .dim = dim,
                  .part_count = 1,
                  .part = {dim == 0 ? out : in},
                  .unit = {unit}},
        .fine = {fine},
    };
}

/* The parameters of a norm, from the index-th of the layer on; *index goes behind them. */
static shoal_tensor *norm(const struct shoali_llama_config *config, const shoal_layer *layer,
                          int32_t *index, shoal_tape *tape, shoal_tensor *x)
{
    const bool rms = config->normalization == SHOALI_NORM_RMS;
    shoal_param *gamma = config->disable_norm_weight ? NULL : shoal_layer_param(layer, (*index)++);
    shoal_param *beta = norm_has_bias(config) ? shoal_layer_param(layer, (*index)++) : NULL;
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
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    const int64_t rows = shoali_llama_padded_vocab(config), hidden = config->hidden_size;
    const int64_t places = config->max_position_embeddings + names->spare_positions;
    char tokens_name[64], positions_name[64];
    snprintf(tokens_name, sizeof tokens_name, "%s.weight", names->tokens);
    snprintf(positions_name, sizeof positions_name, "%s.weight", names->positions);
    const shoal_param_spec tokens = {.name = tokens_name,
                                     .shape = shoal_shape_2(rows, hidden),
                                     .init = SHOAL_INIT_NORMAL,
                                     .init_b = config->init_method_std,
                                     .split = {vocabulary_split(config)}};
    const shoal_param_spec positions = {.name = positions_name,
                                        .shape = shoal_shape_2(places, hidden),
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
    shoal_tensor *x =
        shoal_embedding_from(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0),
                             learned ? shoal_layer_param(layer, 1) : NULL,
                             shoali_llama_names_of(config)->spare_positions);
    if (config->embedding_multiplier != 1)
        x = shoal_scale(tape, x, config->embedding_multiplier);
    if (config->hidden_dropout > 0)
        x = shoal_dropout(tape, x, config->hidden_dropout, NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* ---- block ----------------------------------------------------------------------------------- */

static bool has_qkv_bias(const struct shoali_llama_config *config)
{
    return !config->disable_bias_linear || config->add_qkv_bias;
}

static bool has_output_bias(const struct shoali_llama_config *config)
{
    return !config->disable_bias_linear || config->add_attention_output_bias;
}

static bool has_mlp_bias(const struct shoali_llama_config *config)
{
    return !config->disable_bias_linear || config->add_mlp_bias;
}

/* Whether rows of one matrix of q, k and v are of each group together. With one group the order is
 * the other one. */
static bool is_grouped(const struct shoali_llama_config *config)
{
    return shoali_llama_names_of(config)->grouped && config->num_query_groups > 1;
}

/* One matrix of q, k and v. */
static struct pair fused_pair(const struct shoali_llama_config *config)
{
    const int64_t hidden = config->hidden_size, size = config->kv_channels;
    const int64_t q = config->num_attention_heads * size, kv = config->num_query_groups * size;
    const int64_t group = q / config->num_query_groups;
    struct pair pair =
        linear_pair(shoali_llama_names_of(config)->qkv, has_qkv_bias(config), q + 2 * kv, hidden,
                    config->init_method_std, 0, group + 2 * size, 0);
    if (is_grouped(config))
        return pair;
    pair.split.part_count = 3;
    for (int i = 0; i < 3; i++) {
        pair.split.part[i] = i == 0 ? q : kv;
        pair.split.unit[i] = i == 0 ? group : size;
        pair.fine[i] = size;
    }
    return pair;
}

static shoal_status declare_qkv(const struct shoali_llama_config *config,
                                shoal_declaration *declaration)
{
    shoal_status status;
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    const int64_t hidden = config->hidden_size, size = config->kv_channels;
    const int64_t q = config->num_attention_heads * size, kv = config->num_query_groups * size;
    const int64_t group = q / config->num_query_groups;
    const double std = config->init_method_std;
    const bool bias = has_qkv_bias(config);
    const struct pair three[] = {linear_pair(names->q, bias, q, hidden, std, 0, group, size),
                                 linear_pair(names->k, bias, kv, hidden, std, 0, size, size),
                                 linear_pair(names->v, bias, kv, hidden, std, 0, size, size)};
    const struct pair one = names->qkv ? fused_pair(config) : three[0];
    SHOAL_TRY(status, declare(declaration, &one), done);
    for (int i = 1; i < 3 && !names->qkv; i++)
        SHOAL_TRY(status, declare(declaration, &three[i]), done);
done:
    return status;
}

static shoal_status declare_attention(const struct shoali_llama_config *config,
                                      shoal_declaration *declaration)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    const int64_t hidden = config->hidden_size, size = config->kv_channels;
    const int64_t q = config->num_attention_heads * size, kv = config->num_query_groups * size;
    const double deep = sqrt(2.0 * (double)config->num_layers);
    const bool whole = config->qk_layernorm_whole;
    const struct pair before = norm_pair(config, names->input_norm, hidden);
    const struct pair out =
        linear_pair(names->o, has_output_bias(config), hidden, q, config->init_method_std / deep, 1,
                    q / config->num_query_groups, size);
    const struct pair norms[] = {norm_pair(config, names->q_norm, whole ? q : size),
                                 norm_pair(config, names->k_norm, whole ? kv : size)};
    const struct pair behind = norm_pair(config, names->post_attention_norm, hidden);
    if (!config->post_layernorm)
        SHOAL_TRY(status, declare(declaration, &before), done);
    SHOAL_TRY(status, declare_qkv(config, declaration), done);
    SHOAL_TRY(status, declare(declaration, &out), done);
    for (size_t i = 0; (config->qk_layernorm || whole) && i < 2; i++)
        SHOAL_TRY(status, declare(declaration, &norms[i]), done);
    if (config->post_layernorm)
        SHOAL_TRY(status, declare(declaration, &behind), done);
done:
    return status;
}

/* Gate and up; in one matrix they are its two halves. */
static shoal_status declare_up(const struct shoali_llama_config *config,
                               shoal_declaration *declaration)
{
    shoal_status status;
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    const int64_t hidden = config->hidden_size, ffn = config->ffn_hidden_size;
    const double std = config->init_method_std;
    const bool bias = has_mlp_bias(config), gated = shoali_llama_gated(config);
    const struct pair gate = linear_pair(names->gate, bias, ffn, hidden, std, 0, 1, 0);
    const struct pair up = linear_pair(names->up, bias, ffn, hidden, std, 0, 1, 0);
    struct pair both = linear_pair(names->gate_up, bias, 2 * ffn, hidden, std, 0, 1, 0);
    both.split.part_count = 2;
    both.split.part[0] = both.split.part[1] = ffn;
    both.split.unit[1] = 1;
    if (gated && names->gate_up)
        return declare(declaration, &both);
    if (gated)
        SHOAL_TRY(status, declare(declaration, &gate), done);
    SHOAL_TRY(status, declare(declaration, &up), done);
done:
    return status;
}

static shoal_status declare_mlp(const struct shoali_llama_config *config,
                                shoal_declaration *declaration)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    const int64_t hidden = config->hidden_size, ffn = config->ffn_hidden_size;
    const double deep = sqrt(2.0 * (double)config->num_layers);
    const struct pair before = norm_pair(config, names->mlp_norm, hidden);
    const struct pair down = linear_pair(names->down, has_mlp_bias(config), hidden, ffn,
                                         config->init_method_std / deep, 1, 1, 0);
    const struct pair behind = norm_pair(config, names->post_mlp_norm, hidden);
    if (!config->post_layernorm && !config->shared_input_norm)
        SHOAL_TRY(status, declare(declaration, &before), done);
    SHOAL_TRY(status, declare_up(config, declaration), done);
    SHOAL_TRY(status, declare(declaration, &down), done);
    if (config->post_layernorm)
        SHOAL_TRY(status, declare(declaration, &behind), done);
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

/* What a branch leaves: x + multiplier * dropout(norm(y w^T + b)), of which the norm is there with
 * post_layernorm. In the plain case x is added in the product. *index is that of the norm. */
static shoal_tensor *project_into(const struct shoali_llama_config *config,
                                  const shoal_layer *layer, int32_t *index, shoal_tape *tape,
                                  shoal_tensor *y, const shoal_linear_args *linear,
                                  shoal_param *weight, shoal_tensor *x)
{
    shoal_linear_args args = *linear;
    const bool drops = config->hidden_dropout > 0 && shoal_tape_training(tape);
    const bool plain = !config->post_layernorm && config->residual_multiplier == 1;
    args.weight_out_in = true;
    if (plain && !drops) {
        args.residual = x;
        return shoal_linear(tape, y, weight, &args);
    }
    y = shoal_linear(tape, y, weight, &args);
    if (config->post_layernorm)
        y = norm(config, layer, index, tape, y);
    if (config->residual_multiplier != 1)
        y = shoal_scale(tape, y, config->residual_multiplier);
    return drops ? shoal_dropout(tape, y, config->hidden_dropout, x) : shoal_add(tape, x, y);
}

/* [B, T, G (Q + 2) D], of each group its queries, key and value, to all queries, keys, values. */
static shoal_tensor *ungroup(const struct shoali_llama_config *config, shoal_tape *tape,
                             shoal_tensor *y)
{
    const int64_t groups = config->num_query_groups, size = config->kv_channels;
    const int64_t queries = config->num_attention_heads / groups;
    const int64_t begin[] = {0, queries * size, (queries + 1) * size};
    const int64_t count[] = {queries * size, size, size};
    shoal_tensor *part[3];
    if (y == NULL)
        return NULL;
    const shoal_shape whole = *shoal_tensor_shape(y);
    const int64_t batch = whole.dim[0], length = whole.dim[1];
    y = shoal_reshape(tape, y, shoal_shape_4(batch, length, groups, (queries + 2) * size));
    for (int i = 0; i < 3; i++)
        part[i] = shoal_reshape(tape, shoal_slice(tape, y, 3, begin[i], count[i]),
                                shoal_shape_3(batch, length, groups * count[i]));
    return shoal_concat(tape, part, 3, 2);
}

/* One norm over all query heads together, and one over all key heads. */
static shoal_tensor *norm_whole(const struct shoali_llama_config *config, const shoal_layer *layer,
                                int32_t *index, shoal_tape *tape, shoal_tensor *qkv)
{
    const int64_t size = config->kv_channels;
    const int64_t q = config->num_attention_heads * size, kv = config->num_query_groups * size;
    shoal_tensor *part[] = {shoal_slice(tape, qkv, 2, 0, q), shoal_slice(tape, qkv, 2, q, kv),
                            shoal_slice(tape, qkv, 2, q + kv, kv)};
    part[0] = norm(config, layer, index, tape, part[0]);
    part[1] = norm(config, layer, index, tape, part[1]);
    return shoal_concat(tape, part, 3, 2);
}

/* Packed qkv with norms and positions. */
static shoal_tensor *queries_and_keys(const struct shoali_llama_block *block,
                                      const shoal_layer *layer, int32_t *index, shoal_tape *tape,
                                      shoal_tensor *qkv)
{
    const struct shoali_llama_config *config = block->model;
    const int64_t heads = config->num_attention_heads, kv_heads = config->num_query_groups;
    const bool bias = norm_has_bias(config);
    shoal_qk_norm_args norms = {.heads = heads,
                                .kv_heads = kv_heads,
                                .eps = config->norm_epsilon,
                                .rms = config->normalization == SHOALI_NORM_RMS,
                                .gamma_plus_one = config->apply_layernorm_1p};
    if (config->qk_layernorm_whole) {
        qkv = norm_whole(config, layer, index, tape, qkv);
    } else if (config->qk_layernorm) {
        take(layer, index, bias, &norms.q_gamma, &norms.q_beta);
        take(layer, index, bias, &norms.k_gamma, &norms.k_beta);
        qkv = shoal_qk_norm(tape, qkv, &norms);
    }
    if (config->rotary_size == 0 || !block->rope)
        return qkv;
    return shoal_rotary(tape, qkv,
                        &(shoal_rotary_args){.heads = heads,
                                             .kv_heads = kv_heads,
                                             .rotary_size = config->rotary_size,
                                             .inverse_frequency = config->inverse_frequency,
                                             .interleaved = config->rotary_interleaved});
}

/* x + attention(y), of normalised y. */
static shoal_tensor *forward_attention(const struct shoali_llama_block *block,
                                       const shoal_layer *layer, int32_t *index, shoal_tape *tape,
                                       shoal_tensor *y, shoal_tensor *x)
{
    const struct shoali_llama_config *config = block->model;
    const bool fused = shoali_llama_names_of(config)->qkv != NULL;
    shoal_param *out;
    shoal_linear_args out_args = {0};
    shoal_linears_args three = {.weight_out_in = true};
    for (int i = 0; i < (fused ? 1 : 3); i++)
        take(layer, index, has_qkv_bias(config), &three.weight[i], &three.bias[i]);
    take(layer, index, has_output_bias(config), &out, &out_args.bias);
    y = shoal_linears(tape, y, &three); /* [B, T, (H + 2 KV) D] */
    if (fused && is_grouped(config))
        y = ungroup(config, tape, y);
    y = queries_and_keys(block, layer, index, tape, y);
    y = shoal_attention(tape, y,
                        &(shoal_attention_args){
                            .heads = config->num_attention_heads,
                            .kv_heads = config->num_query_groups,
                            .scale = config->softmax_scale,
                            .dropout = shoal_tape_training(tape) ? config->attention_dropout : 0,
                            .window = block->window});
    return project_into(config, layer, index, tape, y, &out_args, out, x);
}

static shoal_activation activation_of(const struct shoali_llama_config *config)
{
    if (config->swiglu)
        return SHOAL_ACTIVATION_SILU;
    if (config->squared_relu)
        return SHOAL_ACTIVATION_RELU_SQUARED;
    if (config->relu)
        return SHOAL_ACTIVATION_RELU;
    return config->openai_gelu ? SHOAL_ACTIVATION_GELU_TANH : SHOAL_ACTIVATION_GELU;
}

/* x + feed-forward(y), of normalised y. */
static shoal_tensor *forward_mlp(const struct shoali_llama_config *config, const shoal_layer *layer,
                                 int32_t *index, shoal_tape *tape, shoal_tensor *y, shoal_tensor *x)
{
    const bool has_bias = has_mlp_bias(config), gated = shoali_llama_gated(config);
    const bool fused = shoali_llama_names_of(config)->gate_up != NULL;
    const shoal_activation activation = activation_of(config);
    shoal_linears_args two = {.weight_out_in = true};
    shoal_param *down;
    shoal_linear_args down_args = {0};
    for (int i = 0; i < (gated && !fused ? 2 : 1); i++)
        take(layer, index, has_bias, &two.weight[i], &two.bias[i]);
    take(layer, index, has_bias, &down, &down_args.bias);
    if (gated)
        y = shoal_glu(tape, shoal_linears(tape, y, &two), activation); /* [B, T, F] of [B, T, 2F] */
    else
        y = shoal_linear(tape, y, two.weight[0],
                         &(shoal_linear_args){
                             .bias = two.bias[0], .activation = activation, .weight_out_in = true});
    return project_into(config, layer, index, tape, y, &down_args, down, x);
}

static void forward_block(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_llama_block *block = shoal_layer_config(layer);
    const struct shoali_llama_config *config = block->model;
    shoal_tensor *input = shoal_boundary_get(tape, boundary, 0); /* [B, T, C] */
    shoal_tensor *y = input, *x;
    int32_t index = 0;
    shoal_scope_begin(tape, "attn");
    if (!config->post_layernorm)
        y = norm(config, layer, &index, tape, input);
    x = forward_attention(block, layer, &index, tape, y, input);
    shoal_scope_end(tape, (shoal_tensor *[]){x, y}, config->shared_input_norm ? 2 : 1);
    shoal_scope_begin(tape, "mlp");
    if (!config->shared_input_norm)
        y = config->use_parallel_residual ? input : x;
    if (!config->shared_input_norm && !config->post_layernorm)
        y = norm(config, layer, &index, tape, y);
    x = forward_mlp(config, layer, &index, tape, y, x);
    shoal_scope_end(tape, &x, 1);
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* ---- head ------------------------------------------------------------------------------------ */

static shoal_status declare_head(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_llama_config *config = opaque;
    const struct shoali_llama_names *names = shoali_llama_names_of(config);
    char last_name[64], out_name[64], bias_name[64], tied[96];
    snprintf(last_name, sizeof last_name, "/%s", names->norm);
    snprintf(out_name, sizeof out_name, "/%s.weight", names->head);
    snprintf(bias_name, sizeof bias_name, "/%s.bias", names->head);
    snprintf(tied, sizeof tied, "%s.%s.weight", names->model, names->tokens);
    const struct pair last = norm_pair(config, last_name, config->hidden_size);
    const shoal_param_spec out = {
        .name = out_name,
        .shape = shoal_shape_2(shoali_llama_padded_vocab(config), config->hidden_size),
        .init = SHOAL_INIT_NORMAL,
        .init_b = config->init_method_std,
        .tied_to = config->untie_embeddings ? NULL : tied,
        .split = {vocabulary_split(config)}};
    const shoal_param_spec bias = {.name = bias_name,
                                   .shape = shoal_shape_1(shoali_llama_padded_vocab(config)),
                                   .init = SHOAL_INIT_ZEROS,
                                   .split = {vocabulary_split(config)}};
    shoal_status status;
    SHOAL_TRY(status, declare(declaration, &last), done);
    SHOAL_TRY(status, shoal_declare_param(declaration, &out), done);
    if (config->add_lm_head_bias)
        SHOAL_TRY(status, shoal_declare_param(declaration, &bias), done);
done:
    return status;
}

static void forward_head(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_llama_config *config = shoal_layer_config(layer);
    int32_t index = 0;
    shoal_param *weight, *bias;
    shoal_tensor *x = norm(config, layer, &index, tape, shoal_boundary_get(tape, boundary, 0));
    take(layer, &index, config->add_lm_head_bias, &weight, &bias);
    if (config->logits_multiplier != 1)
        x = shoal_scale(tape, x, config->logits_multiplier);
    shoal_tensor *out =
        shoali_next_token_head(tape, x,
                               &(struct shoali_head){.weight = weight,
                                                     .bias = bias,
                                                     .fused = config->cross_entropy_loss_fusion,
                                                     .label_smoothing = config->label_smoothing});
    shoal_boundary_set(tape, boundary, &out, 1);
}

const shoal_layer_type shoali_llama_embedding = {
    .name = "llama_embedding", .declare = declare_embedding, .forward = forward_embedding};
const shoal_layer_type shoali_llama_block_type = {
    .name = "llama_block", .declare = declare_block, .forward = forward_block};
const shoal_layer_type shoali_llama_head = {
    .name = "llama_head", .declare = declare_head, .forward = forward_head};
