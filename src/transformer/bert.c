/* BERT: the three kinds of layers. Linear weights are [out, in], as published. */
#include "transformer/bert.h"

#include <math.h>

/* ---- declarations ---- */

static shoal_status declare_norm(shoal_declaration *declaration, const char *weight,
                                 const char *bias, int64_t size)
{
    shoal_status status;
    SHOAL_TRY(status,
              shoal_declare_param(declaration, &(shoal_param_spec){.name = weight,
                                                                   .shape = shoal_shape_1(size),
                                                                   .init = SHOAL_INIT_ONES}),
              done);
    SHOAL_TRY(status,
              shoal_declare_param(declaration, &(shoal_param_spec){.name = bias,
                                                                   .shape = shoal_shape_1(size),
                                                                   .init = SHOAL_INIT_ZEROS}),
              done);
done:
    return status;
}

/* Along tp, in units of `unit` indices of a dim; 0: all ranks have it. */
static shoal_param_split split_of(int32_t dim, int64_t size, int64_t unit)
{
    if (unit == 0)
        return (shoal_param_split){0};
    return (shoal_param_split){
        .axis = SHOAL_AXIS_TP, .dim = dim, .part_count = 1, .part = {size}, .unit = {unit}};
}

/* [out, in]. bias NULL: none. out_unit: the outputs are divided along tp; in_unit: the inputs. */
struct matrix {
    const char *weight, *bias;
    int64_t out, in;
    double std;
    int64_t out_unit, in_unit;
};

static shoal_status declare_matrix(shoal_declaration *declaration, const struct matrix *matrix)
{
    shoal_status status;
    const shoal_param_split by_out = split_of(0, matrix->out, matrix->out_unit);
    const shoal_param_spec weight = {
        .name = matrix->weight,
        .shape = shoal_shape_2(matrix->out, matrix->in),
        .init = SHOAL_INIT_NORMAL,
        .init_b = matrix->std,
        .split = {matrix->in_unit ? split_of(1, matrix->in, matrix->in_unit) : by_out}};
    const shoal_param_spec bias = {.name = matrix->bias,
                                   .shape = shoal_shape_1(matrix->out),
                                   .init = SHOAL_INIT_ZEROS,
                                   .split = {by_out}};
    SHOAL_TRY(status, shoal_declare_param(declaration, &weight), done);
    if (matrix->bias)
        SHOAL_TRY(status, shoal_declare_param(declaration, &bias), done);
done:
    return status;
}

/* ---- embeddings ---- */

enum { WORDS, POSITIONS, TYPES, EMBEDDING_NORM };

static shoal_status declare_embedding(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_bert_config *config = opaque;
    const int64_t hidden = config->hidden_size;
    const double std = config->init_method_std;
    shoal_status status;
    SHOAL_TRY(status,
              declare_matrix(declaration, &(struct matrix){.weight = "word_embeddings.weight",
                                                           .out = shoali_bert_padded_vocab(config),
                                                           .in = hidden,
                                                           .std = std,
                                                           .out_unit = 1}),
              done);
    SHOAL_TRY(status,
              declare_matrix(declaration, &(struct matrix){.weight = "position_embeddings.weight",
                                                           .out = config->max_position_embeddings,
                                                           .in = hidden,
                                                           .std = std}),
              done);
    SHOAL_TRY(status,
              declare_matrix(declaration, &(struct matrix){.weight = "token_type_embeddings.weight",
                                                           .out = 2,
                                                           .in = hidden,
                                                           .std = std}),
              done);
    if (!config->pre_norm)
        SHOAL_TRY(status, declare_norm(declaration, "LayerNorm.weight", "LayerNorm.bias", hidden),
                  done);
done:
    return status;
}

static void forward_embedding(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_bert_config *config = shoal_layer_config(layer);
    shoal_tensor *x =
        shoal_embedding(tape, shoal_tape_input(tape, SHOALI_BERT_TOKENS),
                        shoal_layer_param(layer, WORDS), shoal_layer_param(layer, POSITIONS));
    x = shoal_add(tape, x,
                  shoal_embedding(tape, shoal_tape_input(tape, SHOALI_BERT_TYPES),
                                  shoal_layer_param(layer, TYPES), NULL));
    if (!config->pre_norm)
        x = shoal_layer_norm(tape, x, shoal_layer_param(layer, EMBEDDING_NORM),
                             shoal_layer_param(layer, EMBEDDING_NORM + 1), config->norm_epsilon);
    if (config->hidden_dropout > 0)
        x = shoal_dropout(tape, x, config->hidden_dropout, NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* ---- blocks ---- */

/* Pairs of weight and bias, by the number of the first. */
enum {
    QUERY = 0, /* then key and value */
    ATTENTION_OUT = 6,
    ATTENTION_NORM = 8,
    INTERMEDIATE = 10,
    OUT = 12,
    OUT_NORM = 14
};

static shoal_status declare_block(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_bert_config *config = opaque;
    const int64_t hidden = config->hidden_size, ffn = config->ffn_hidden_size;
    const double std = config->init_method_std;
    /* without a norm behind each sum the residual stream would grow with the layers */
    const double out_std = config->pre_norm ? std / sqrt(2.0 * (double)config->num_layers) : std;
    const bool pre = config->pre_norm;
    const int64_t head = hidden / config->num_attention_heads;
    shoal_status status;
    static const char *const self[][2] = {
        {"attention.self.query.weight", "attention.self.query.bias"},
        {"attention.self.key.weight", "attention.self.key.bias"},
        {"attention.self.value.weight", "attention.self.value.bias"}};
    for (int i = 0; i < 3; i++)
        SHOAL_TRY(status,
                  declare_matrix(declaration, &(struct matrix){.weight = self[i][0],
                                                               .bias = self[i][1],
                                                               .out = hidden,
                                                               .in = hidden,
                                                               .std = std,
                                                               .out_unit = head}),
                  done);
    SHOAL_TRY(
        status,
        declare_matrix(declaration, &(struct matrix){.weight = "attention.output.dense.weight",
                                                     .bias = "attention.output.dense.bias",
                                                     .out = hidden,
                                                     .in = hidden,
                                                     .std = out_std,
                                                     .in_unit = head}),
        done);
    SHOAL_TRY(status,
              declare_norm(declaration,
                           pre ? "attention.ln.weight" : "attention.output.LayerNorm.weight",
                           pre ? "attention.ln.bias" : "attention.output.LayerNorm.bias", hidden),
              done);
    SHOAL_TRY(status,
              declare_matrix(declaration, &(struct matrix){.weight = "intermediate.dense.weight",
                                                           .bias = "intermediate.dense.bias",
                                                           .out = ffn,
                                                           .in = hidden,
                                                           .std = std,
                                                           .out_unit = 1}),
              done);
    SHOAL_TRY(status,
              declare_matrix(declaration, &(struct matrix){.weight = "output.dense.weight",
                                                           .bias = "output.dense.bias",
                                                           .out = hidden,
                                                           .in = ffn,
                                                           .std = out_std,
                                                           .in_unit = 1}),
              done);
    SHOAL_TRY(status,
              declare_norm(declaration, pre ? "ln.weight" : "output.LayerNorm.weight",
                           pre ? "ln.bias" : "output.LayerNorm.bias", hidden),
              done);
done:
    return status;
}

static shoal_tensor *linear(const shoal_layer *layer, shoal_tape *tape, shoal_tensor *x,
                            int32_t pair, shoal_activation activation)
{
    return shoal_linear(tape, x, shoal_layer_param(layer, pair),
                        &(shoal_linear_args){.bias = shoal_layer_param(layer, pair + 1),
                                             .activation = activation,
                                             .weight_out_in = true});
}

static shoal_tensor *norm(const shoal_layer *layer, shoal_tape *tape, shoal_tensor *x, int32_t pair)
{
    const struct shoali_bert_config *config = shoal_layer_config(layer);
    return shoal_layer_norm(tape, x, shoal_layer_param(layer, pair),
                            shoal_layer_param(layer, pair + 1), config->norm_epsilon);
}

/* x + dropout(y w + b): fused into the product when there is no dropout. */
static shoal_tensor *project_into(const shoal_layer *layer, shoal_tape *tape, shoal_tensor *y,
                                  int32_t pair, shoal_tensor *x)
{
    const struct shoali_bert_config *config = shoal_layer_config(layer);
    if (config->hidden_dropout > 0 && shoal_tape_training(tape))
        return shoal_dropout(tape, linear(layer, tape, y, pair, SHOAL_ACTIVATION_NONE),
                             config->hidden_dropout, x);
    return shoal_linear(tape, y, shoal_layer_param(layer, pair),
                        &(shoal_linear_args){.bias = shoal_layer_param(layer, pair + 1),
                                             .residual = x,
                                             .weight_out_in = true});
}

static shoal_activation gelu(const struct shoali_bert_config *config)
{
    return config->openai_gelu ? SHOAL_ACTIVATION_GELU_TANH : SHOAL_ACTIVATION_GELU;
}

static shoal_tensor *attend(const shoal_layer *layer, shoal_tape *tape, shoal_tensor *x)
{
    const struct shoali_bert_config *config = shoal_layer_config(layer);
    shoal_linears_args qkv = {.weight_out_in = true};
    for (int32_t i = 0; i < 3; i++) {
        qkv.weight[i] = shoal_layer_param(layer, QUERY + 2 * i);
        qkv.bias[i] = shoal_layer_param(layer, QUERY + 2 * i + 1);
    }
    return shoal_attention(
        tape, shoal_linears(tape, x, &qkv), /* [B, T, 3C] */
        &(shoal_attention_args){.heads = config->num_attention_heads,
                                .full = true,
                                .key_count = shoal_tape_input(tape, SHOALI_BERT_KEY_COUNT),
                                .dropout =
                                    shoal_tape_training(tape) ? config->attention_dropout : 0});
}

static void forward_block(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_bert_config *config = shoal_layer_config(layer);
    const bool pre = config->pre_norm;
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0); /* [B, T, C] */

    shoal_scope_begin(tape, "attn");
    shoal_tensor *y = attend(layer, tape, pre ? norm(layer, tape, x, ATTENTION_NORM) : x);
    x = project_into(layer, tape, y, ATTENTION_OUT, x);
    if (!pre)
        x = norm(layer, tape, x, ATTENTION_NORM);
    shoal_scope_end(tape, &x, 1);

    shoal_scope_begin(tape, "mlp");
    y = linear(layer, tape, pre ? norm(layer, tape, x, OUT_NORM) : x, INTERMEDIATE, gelu(config));
    x = project_into(layer, tape, y, OUT, x);
    if (!pre)
        x = norm(layer, tape, x, OUT_NORM);
    shoal_scope_end(tape, &x, 1);
    shoal_boundary_set(tape, boundary, &x, 1);
}

/* ---- head ---- */

enum { TRANSFORM = 0, TRANSFORM_NORM = 2, DECODER = 4, POOLER = 6, RELATION = 8 };

/* The norm behind the last block comes after all others. */
static int32_t final_norm(const struct shoali_bert_config *config)
{
    return config->binary_head ? RELATION + 2 : POOLER;
}

static shoal_status declare_decoder(const struct shoali_bert_config *config,
                                    shoal_declaration *declaration)
{
    const int64_t vocabulary = shoali_bert_padded_vocab(config);
    shoal_status status;
    SHOAL_TRY(status,
              shoal_declare_param(
                  declaration,
                  &(shoal_param_spec){.name = "predictions.decoder.weight",
                                      .shape = shoal_shape_2(vocabulary, config->hidden_size),
                                      .init = SHOAL_INIT_NORMAL,
                                      .init_b = config->init_method_std,
                                      .tied_to = "bert.embeddings.word_embeddings.weight",
                                      .split = {split_of(0, vocabulary, 1)}}),
              done);
    SHOAL_TRY(status,
              shoal_declare_param(declaration,
                                  &(shoal_param_spec){.name = "predictions.bias",
                                                      .shape = shoal_shape_1(vocabulary),
                                                      .init = SHOAL_INIT_ZEROS,
                                                      .split = {split_of(0, vocabulary, 1)}}),
              done);
done:
    return status;
}

static shoal_status declare_head(const void *opaque, shoal_declaration *declaration)
{
    const struct shoali_bert_config *config = opaque;
    const int64_t hidden = config->hidden_size;
    const double std = config->init_method_std;
    shoal_status status;
    SHOAL_TRY(
        status,
        declare_matrix(declaration, &(struct matrix){.weight = "predictions.transform.dense.weight",
                                                     .bias = "predictions.transform.dense.bias",
                                                     .out = hidden,
                                                     .in = hidden,
                                                     .std = std}),
        done);
    SHOAL_TRY(status,
              declare_norm(declaration, "predictions.transform.LayerNorm.weight",
                           "predictions.transform.LayerNorm.bias", hidden),
              done);
    SHOAL_TRY(status, declare_decoder(config, declaration), done);
    if (config->binary_head) {
        SHOAL_TRY(
            status,
            declare_matrix(declaration, &(struct matrix){.weight = "/bert.pooler.dense.weight",
                                                         .bias = "/bert.pooler.dense.bias",
                                                         .out = hidden,
                                                         .in = hidden,
                                                         .std = std}),
            done);
        SHOAL_TRY(status,
                  declare_matrix(declaration, &(struct matrix){.weight = "seq_relationship.weight",
                                                               .bias = "seq_relationship.bias",
                                                               .out = 2,
                                                               .in = hidden,
                                                               .std = std}),
                  done);
    }
    if (config->pre_norm)
        SHOAL_TRY(
            status,
            declare_norm(declaration, "/bert.encoder.ln.weight", "/bert.encoder.ln.bias", hidden),
            done);
done:
    return status;
}

/* Which of the two texts came first, by what became of [CLS]. */
static shoal_tensor *order_loss(const shoal_layer *layer, shoal_tape *tape, shoal_tensor *x)
{
    shoal_tensor *first = shoal_slice(tape, x, 1, 0, 1); /* [B, 1, C] */
    first = shoal_tanh(tape, linear(layer, tape, first, POOLER, SHOAL_ACTIVATION_NONE));
    return shoal_cross_entropy(tape, linear(layer, tape, first, RELATION, SHOAL_ACTIVATION_NONE),
                               shoal_tape_input(tape, SHOALI_BERT_IS_RANDOM));
}

static void forward_head(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct shoali_bert_config *config = shoal_layer_config(layer);
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0);
    if (config->pre_norm)
        x = norm(layer, tape, x, final_norm(config));
    shoal_tensor *y =
        norm(layer, tape, linear(layer, tape, x, TRANSFORM, gelu(config)), TRANSFORM_NORM);
    y = linear(layer, tape, y, DECODER, SHOAL_ACTIVATION_NONE); /* [B, T, V] */
    shoal_tensor *loss = shoal_cross_entropy(tape, y, shoal_tape_input(tape, SHOALI_BERT_TARGETS));
    if (config->binary_head)
        loss = shoal_add(tape, loss, order_loss(layer, tape, x));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

const shoal_layer_type shoali_bert_embedding = {
    .name = "bert_embedding", .declare = declare_embedding, .forward = forward_embedding};
const shoal_layer_type shoali_bert_block = {
    .name = "bert_block", .declare = declare_block, .forward = forward_block};
const shoal_layer_type shoali_bert_head = {
    .name = "bert_head", .declare = declare_head, .forward = forward_head};
