/* GPT-2: the three kinds of layers. */
#include "transformer/transformer.h"

#include <math.h>

/* Index of each parameter in its layer; without biases the second of each pair does not exist. */
struct block_params {
    shoal_param *ln_1_w, *ln_1_b, *attn_w, *attn_b, *attn_proj_w, *attn_proj_b;
    shoal_param *ln_2_w, *ln_2_b, *fc_w, *fc_b, *proj_w, *proj_b;
};

/* How tp divides it, and its bias, if that is along the dim. */
static shoal_param_split split_of(int32_t dim, int32_t parts, int64_t part, int64_t unit)
{
    shoal_param_split split = {.axis = SHOAL_AXIS_TP, .dim = dim, .part_count = parts};
    for (int32_t p = 0; p < parts; p++) {
        split.part[p] = part;
        split.unit[p] = unit;
    }
    return split;
}

static shoal_status declare_pair(shoal_declaration *declaration, const shoal_gpt_config *config,
                                 const char *weight, const char *bias, shoal_shape shape,
                                 shoal_init_kind init, double std, shoal_param_split split)
{
    shoal_status status;
    const int32_t last = shape.ndim - 1;
    const shoal_param_spec matrix = {
        .name = weight, .shape = shape, .init = init, .init_b = std, .split = {split}};
    shoal_param_spec vector = {
        .name = bias, .shape = shoal_shape_1(shape.dim[last]), .init = SHOAL_INIT_ZEROS};
    if (split.axis != 0 && split.dim == last) {
        vector.split[0] = split;
        vector.split[0].dim = 0;
    }
    SHOAL_TRY(status, shoal_declare_param(declaration, &matrix), done);
    if (config->add_bias_linear)
        SHOAL_TRY(status, shoal_declare_param(declaration, &vector), done);
done:
    return status;
}

static shoal_param_split vocabulary_split(const shoal_gpt_config *config)
{
    return split_of(0, 1, shoali_gpt_padded_vocab(config), 1);
}

static shoal_status declare_embedding(const void *opaque, shoal_declaration *declaration)
{
    const shoal_gpt_config *config = opaque;
    shoal_status status;
    SHOAL_TRY(
        status,
        shoal_declare_param(
            declaration, &(shoal_param_spec){.name = "wte.weight",
                                             .shape = shoal_shape_2(shoali_gpt_padded_vocab(config),
                                                                    config->hidden_size),
                                             .init = SHOAL_INIT_NORMAL,
                                             .init_b = config->init_method_std,
                                             .split = {vocabulary_split(config)}}),
        done);
    SHOAL_TRY(
        status,
        shoal_declare_param(
            declaration, &(shoal_param_spec){.name = "wpe.weight",
                                             .shape = shoal_shape_2(config->max_position_embeddings,
                                                                    config->hidden_size),
                                             .init = SHOAL_INIT_NORMAL,
                                             .init_b = config->init_method_std}),
        done);
done:
    return status;
}

static void forward_embedding(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const shoal_gpt_config *config = shoal_layer_config(layer);
    shoal_tensor *x = shoal_embedding(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0),
                                      shoal_layer_param(layer, 1));
    if (config->hidden_dropout > 0)
        x = shoal_dropout(tape, x, config->hidden_dropout, NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static shoal_status declare_block(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_gpt_block_config *block = opaque;
    const shoal_gpt_config *config = block->model;
    const int64_t hidden = config->hidden_size, ffn = config->ffn_hidden_size;
    const double std = config->init_method_std;
    const double scaled = std / sqrt(2.0 * (double)config->num_layers);
    const int64_t head = hidden / config->num_attention_heads;
    const shoal_param_split none = {0};
    shoal_status status;
    SHOAL_TRY(status,
              declare_pair(declaration, config, "ln_1.weight", "ln_1.bias", shoal_shape_1(hidden),
                           SHOAL_INIT_ONES, 0, none),
              done);
    SHOAL_TRY(status,
              declare_pair(declaration, config, "attn.c_attn.weight", "attn.c_attn.bias",
                           shoal_shape_2(hidden, 3 * hidden), SHOAL_INIT_NORMAL, std,
                           split_of(1, 3, hidden, head)),
              done);
    SHOAL_TRY(status,
              declare_pair(declaration, config, "attn.c_proj.weight", "attn.c_proj.bias",
                           shoal_shape_2(hidden, hidden), SHOAL_INIT_NORMAL, scaled,
                           split_of(0, 1, hidden, head)),
              done);
    SHOAL_TRY(status,
              declare_pair(declaration, config, "ln_2.weight", "ln_2.bias", shoal_shape_1(hidden),
                           SHOAL_INIT_ONES, 0, none),
              done);
    SHOAL_TRY(status,
              declare_pair(declaration, config, "mlp.c_fc.weight", "mlp.c_fc.bias",
                           shoal_shape_2(hidden, ffn), SHOAL_INIT_NORMAL, std,
                           split_of(1, 1, ffn, 1)),
              done);
    SHOAL_TRY(status,
              declare_pair(declaration, config, "mlp.c_proj.weight", "mlp.c_proj.bias",
                           shoal_shape_2(ffn, hidden), SHOAL_INIT_NORMAL, scaled,
                           split_of(0, 1, ffn, 1)),
              done);
done:
    return status;
}

static struct block_params block_params_of(const shoal_layer *layer, bool bias)
{
    shoal_param *weight[6], *biases[6];
    for (int32_t i = 0; i < 6; i++) {
        weight[i] = shoal_layer_param(layer, bias ? 2 * i : i);
        biases[i] = bias ? shoal_layer_param(layer, 2 * i + 1) : NULL;
    }
    return (struct block_params){weight[0], biases[0], weight[1], biases[1], weight[2], biases[2],
                                 weight[3], biases[3], weight[4], biases[4], weight[5], biases[5]};
}

/* x + dropout(y w + b): fused into the product when there is no dropout. */
static shoal_tensor *project_into(shoal_tape *tape, shoal_tensor *y, shoal_param *weight,
                                  shoal_param *bias, shoal_tensor *x, double dropout)
{
    if (dropout <= 0 || !shoal_tape_training(tape))
        return shoal_linear(tape, y, weight, &(shoal_linear_args){.bias = bias, .residual = x});
    return shoal_dropout(tape, shoal_linear(tape, y, weight, &(shoal_linear_args){.bias = bias}),
                         dropout, x);
}

static void forward_block(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_gpt_block_config *block = shoal_layer_config(layer);
    const shoal_gpt_config *config = block->model;
    const struct block_params p = block_params_of(layer, config->add_bias_linear);
    const shoal_activation activation = config->relu          ? SHOAL_ACTIVATION_RELU
                                        : config->openai_gelu ? SHOAL_ACTIVATION_GELU_TANH
                                                              : SHOAL_ACTIVATION_GELU;
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0); /* [B, T, C] */

    shoal_scope_begin(tape, "attn");
    shoal_tensor *y = shoal_layer_norm(tape, x, p.ln_1_w, p.ln_1_b, config->norm_epsilon);
    y = shoal_linear(tape, y, p.attn_w, &(shoal_linear_args){.bias = p.attn_b}); /* [B, T, 3C] */
    y = shoal_attention(tape, y,
                        &(shoal_attention_args){
                            .heads = config->num_attention_heads,
                            .scale = block->softmax_scale,
                            .dropout = shoal_tape_training(tape) ? config->attention_dropout : 0});
    x = project_into(tape, y, p.attn_proj_w, p.attn_proj_b, x, config->hidden_dropout);
    shoal_scope_end(tape, &x, 1);

    shoal_scope_begin(tape, "mlp");
    y = shoal_layer_norm(tape, x, p.ln_2_w, p.ln_2_b, config->norm_epsilon);
    y = shoal_linear(
        tape, y, p.fc_w,
        &(shoal_linear_args){.bias = p.fc_b, .activation = activation}); /* [B, T, 4C] */
    x = project_into(tape, y, p.proj_w, p.proj_b, x, config->hidden_dropout);
    shoal_scope_end(tape, &x, 1);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static shoal_status declare_head(const void *opaque, shoal_declaration *declaration)
{
    const shoal_gpt_config *config = opaque;
    const int64_t hidden = config->hidden_size;
    shoal_status status;
    SHOAL_TRY(status,
              declare_pair(declaration, config, "/transformer.ln_f.weight",
                           "/transformer.ln_f.bias", shoal_shape_1(hidden), SHOAL_INIT_ONES, 0,
                           (shoal_param_split){0}),
              done);
    const bool untied = config->untie_embeddings;
    SHOAL_TRY(
        status,
        shoal_declare_param(
            declaration,
            &(shoal_param_spec){.name = "/lm_head.weight",
                                .shape = shoal_shape_2(shoali_gpt_padded_vocab(config), hidden),
                                .init = SHOAL_INIT_NORMAL,
                                .init_b = config->init_method_std,
                                .tied_to = untied ? NULL : "transformer.wte.weight",
                                .split = {vocabulary_split(config)}}),
        done);
done:
    return status;
}

static void forward_head(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const shoal_gpt_config *config = shoal_layer_config(layer);
    const int32_t bias = config->add_bias_linear;
    shoal_tensor *x =
        shoal_layer_norm(tape, shoal_boundary_get(tape, boundary, 0), shoal_layer_param(layer, 0),
                         bias ? shoal_layer_param(layer, 1) : NULL, config->norm_epsilon);
    shoal_param *weight = shoal_layer_param(layer, 1 + bias);
    shoal_tensor *out =
        shoali_next_token_head(tape, x,
                               &(struct shoali_head){.weight = weight,
                                                     .fused = config->cross_entropy_loss_fusion,
                                                     .label_smoothing = config->label_smoothing});
    shoal_boundary_set(tape, boundary, &out, 1);
}

const shoal_layer_type shoali_gpt_embedding = {
    .name = "gpt_embedding", .declare = declare_embedding, .forward = forward_embedding};
const shoal_layer_type shoali_gpt_block = {
    .name = "gpt_block", .declare = declare_block, .forward = forward_block};
const shoal_layer_type shoali_gpt_head = {
    .name = "gpt_head", .declare = declare_head, .forward = forward_head};
