/* test_ops - every op of the public header as a function of inputs and parameters, with odd sizes.
 * Used by gradients_test.c alone, which differentiates them.
 */
#ifndef SHOALI_AUTOGRAD_TEST_OPS_H
#define SHOALI_AUTOGRAD_TEST_OPS_H

#include "autograd/test_op_case.h"

static shoal_tensor *linear_plain(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], NULL);
}
static shoal_tensor *linear_bias(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.bias = p[1], .weight_out_in = 1});
}
static shoal_tensor *linear_gelu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0],
                        &(shoal_linear_args){
                            .bias = p[1], .activation = SHOAL_ACTIVATION_GELU, .weight_out_in = 1});
}
static shoal_tensor *linear_gelu_tanh(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(
        t, in[0], p[0],
        &(shoal_linear_args){.residual = in[1], .activation = SHOAL_ACTIVATION_GELU_TANH});
}
static shoal_tensor *linear_relu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.activation = SHOAL_ACTIVATION_RELU});
}
static shoal_tensor *linear_residual(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.bias = p[1], .residual = in[1]});
}
static shoal_tensor *linear_relu_squared(shoal_tape *t, shoal_tensor *const *in,
                                         shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0],
                        &(shoal_linear_args){.activation = SHOAL_ACTIVATION_RELU_SQUARED});
}
static shoal_tensor *linear_silu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.activation = SHOAL_ACTIVATION_SILU});
}
static shoal_tensor *linears(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linears(t, in[0],
                         &(shoal_linears_args){.weight = {p[0], p[1], p[2]},
                                               .bias = {p[3], p[4], p[5]},
                                               .weight_out_in = 1});
}
/* Without biases but one, and x is read once more. */
static shoal_tensor *linears_shared(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *y = shoal_linears(
        t, in[0], &(shoal_linears_args){.weight = {p[0], p[1]}, .bias = {NULL, p[2]}});
    return shoal_mul(t, shoal_slice(t, y, 1, 0, 5), in[0]);
}
/* x is its own residual, and read once more. */
static shoal_tensor *linear_self(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *y = shoal_linear(t, in[0], p[0], &(shoal_linear_args){.residual = in[0]});
    return shoal_add(t, y, in[0]);
}
static shoal_tensor *embedding(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_embedding(t, in[0], p[0], p[1]);
}
static shoal_tensor *embedding_table(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_embedding(t, in[0], p[0], NULL);
}
static shoal_tensor *embedding_from(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_embedding_from(t, in[0], p[0], p[1], 2);
}
static shoal_tensor *layer_norm_bare(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_norm(t, in[0], &(shoal_norm_args){.eps = 1e-5});
}
static shoal_tensor *rms_norm_bare(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_norm(t, in[0], &(shoal_norm_args){.eps = 1e-5, .rms = true});
}
static shoal_tensor *layer_norm(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_layer_norm(t, in[0], p[0], p[1], 1e-5);
}
static shoal_tensor *layer_norm_plain(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_layer_norm(t, in[0], p[0], NULL, 1e-5);
}
static shoal_tensor *rms_norm(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_rms_norm(t, in[0], p[0], 1e-5);
}
static shoal_tensor *norm_plus_one(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_norm(
        t, in[0], &(shoal_norm_args){.gamma = p[0], .eps = 1e-6, .rms = 1, .gamma_plus_one = 1});
}
static shoal_tensor *norm_beta(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_norm(
        t, in[0],
        &(shoal_norm_args){.gamma = p[0], .beta = p[1], .eps = 1e-5, .gamma_plus_one = 1});
}
static shoal_tensor *qk_norm_rms(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_qk_norm(
        t, in[0],
        &(shoal_qk_norm_args){
            .heads = 2, .kv_heads = 1, .q_gamma = p[0], .k_gamma = p[1], .eps = 1e-5, .rms = 1});
}
/* qkv is read once more, and one gamma serves both. */
static shoal_tensor *qk_norm_beta(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *y = shoal_qk_norm(t, in[0],
                                    &(shoal_qk_norm_args){.heads = 1,
                                                          .q_gamma = p[0],
                                                          .q_beta = p[1],
                                                          .k_gamma = p[0],
                                                          .k_beta = p[2],
                                                          .eps = 1e-5});
    return shoal_add(t, y, in[0]);
}
static shoal_tensor *rotary(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    const float frequency[] = {1.0f, 0.3f};
    (void)p;
    return shoal_rotary(
        t, in[0],
        &(shoal_rotary_args){
            .heads = 2, .kv_heads = 1, .rotary_size = 4, .inverse_frequency = frequency});
}
/* A part of each head, and qkv is read once more. */
static shoal_tensor *rotary_interleaved(shoal_tape *t, shoal_tensor *const *in,
                                        shoal_param *const *p)
{
    const float frequency[] = {0.7f};
    (void)p;
    shoal_tensor *y = shoal_rotary(
        t, in[0],
        &(shoal_rotary_args){
            .heads = 1, .rotary_size = 2, .inverse_frequency = frequency, .interleaved = 1});
    return shoal_add(t, y, in[0]);
}
static shoal_tensor *attention(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_attention(t, in[0], &(shoal_attention_args){.heads = 2});
}
static shoal_tensor *attention_grouped(shoal_tape *t, shoal_tensor *const *in,
                                       shoal_param *const *p)
{
    (void)p;
    return shoal_attention(
        t, in[0], &(shoal_attention_args){.heads = 4, .kv_heads = 2, .scale = 0.7, .full = 1});
}
static shoal_tensor *attention_dropout(shoal_tape *t, shoal_tensor *const *in,
                                       shoal_param *const *p)
{
    (void)p;
    return shoal_attention(t, in[0], &(shoal_attention_args){.heads = 2, .dropout = 0.3});
}
static shoal_tensor *attention_window(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_attention(
        t, in[0], &(shoal_attention_args){.heads = 2, .kv_heads = 1, .window = 3, .dropout = 0.2});
}
static shoal_tensor *attention_padded(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_attention(t, in[0],
                           &(shoal_attention_args){.heads = 2, .full = 1, .key_count = in[1]});
}
/* Two readers of qkv: attention's gradient, which cannot accumulate, meets another. */
static shoal_tensor *attention_twice(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *a = attention(t, in, p), *b = attention_dropout(t, in, p);
    return shoal_mul(t, a, b);
}
static shoal_tensor *dropout(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_dropout(t, in[0], 0.4, NULL);
}
static shoal_tensor *dropout_residual(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_dropout(t, in[0], 0.4, in[1]);
}
static shoal_tensor *dropout_off(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_dropout(t, in[0], 0, in[1]);
}
static shoal_tensor *cross_entropy(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_cross_entropy(t, in[0], in[1]);
}
/* The logits come from an op, in a scope that ends: their memory takes the gradient. */
static shoal_tensor *cross_entropy_over(shoal_tape *t, shoal_tensor *const *in,
                                        shoal_param *const *p)
{
    shoal_scope_begin(t, "head");
    shoal_tensor *logits = shoal_linear(t, in[0], p[0], NULL);
    shoal_tensor *loss = shoal_cross_entropy(t, logits, in[1]);
    shoal_scope_end(t, &loss, 1);
    return loss;
}
/* ... which it must not when another backward still reads them. */
static shoal_tensor *cross_entropy_shared(shoal_tape *t, shoal_tensor *const *in,
                                          shoal_param *const *p)
{
    shoal_scope_begin(t, "head");
    shoal_tensor *logits = shoal_linear(t, in[0], p[0], NULL);
    shoal_tensor *penalty = shoal_mean(t, shoal_square(t, logits), SHOAL_ALL_DIMS);
    shoal_tensor *loss = shoal_add(t, shoal_cross_entropy(t, logits, in[1]),
                                   shoal_reshape(t, penalty, (shoal_shape){0}));
    shoal_scope_end(t, &loss, 1);
    return loss;
}
static shoal_tensor *linear_cross_entropy(shoal_tape *t, shoal_tensor *const *in,
                                          shoal_param *const *p)
{
    return shoal_linear_cross_entropy(t, in[0], p[0], in[1]);
}
/* x and the weight have further uses, and the loss is not the tape's end. */
static shoal_tensor *linear_cross_entropy_shared(shoal_tape *t, shoal_tensor *const *in,
                                                 shoal_param *const *p)
{
    shoal_tensor *x = shoal_square(t, in[0]);
    shoal_tensor *logits = shoal_linear(t, x, p[0], &(shoal_linear_args){.weight_out_in = 1});
    shoal_tensor *loss = shoal_linear_cross_entropy(t, x, p[0], in[1]);
    shoal_tensor *again = shoal_linear_cross_entropy(t, in[0], p[0], in[1]);
    return shoal_mul(t, shoal_add(t, loss, shoal_scale(t, again, 0.5)),
                     shoal_reshape(t, shoal_mean(t, logits, SHOAL_ALL_DIMS), (shoal_shape){0}));
}
static shoal_tensor *cross_entropy_smoothed(shoal_tape *t, shoal_tensor *const *in,
                                            shoal_param *const *p)
{
    (void)p;
    return shoal_cross_entropy_smoothed(t, in[0], in[1], 0.3);
}
static shoal_tensor *linear_cross_entropy_smoothed(shoal_tape *t, shoal_tensor *const *in,
                                                   shoal_param *const *p)
{
    return shoal_linear_cross_entropy_smoothed(t, in[0], p[0], in[1], 0.3);
}
static shoal_tensor *mse(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mse(t, in[0], in[1]);
}
static shoal_tensor *softmax(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_softmax(t, in[0]);
}
static shoal_tensor *gelu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_gelu(t, in[0], SHOAL_ACTIVATION_GELU);
}
static shoal_tensor *gelu_tanh(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_gelu(t, in[0], SHOAL_ACTIVATION_GELU_TANH);
}
static shoal_tensor *glu_silu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_glu(t, in[0], SHOAL_ACTIVATION_SILU);
}
static shoal_tensor *glu_gelu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_glu(t, in[0], SHOAL_ACTIVATION_GELU);
}
static shoal_tensor *glu_gelu_tanh(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_glu(t, in[0], SHOAL_ACTIVATION_GELU_TANH);
}
static shoal_tensor *glu_relu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mul(t, shoal_glu(t, in[0], SHOAL_ACTIVATION_RELU),
                     shoal_glu(t, in[0], SHOAL_ACTIVATION_RELU_SQUARED));
}
static shoal_tensor *relu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_relu(t, in[0]);
}
static shoal_tensor *tanh_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_tanh(t, in[0]);
}
static shoal_tensor *sigmoid(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sigmoid(t, in[0]);
}
static shoal_tensor *silu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_silu(t, in[0]);
}
static shoal_tensor *exp_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_exp(t, in[0]);
}
static shoal_tensor *ln(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_ln(t, in[0]);
}
static shoal_tensor *sqrt_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sqrt(t, in[0]);
}
static shoal_tensor *square(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_square(t, in[0]);
}
static shoal_tensor *scale(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_add(t, shoal_scale(t, in[0], -1.75), shoal_scale(t, in[0], 0.5));
}
static shoal_tensor *add_scalar(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_square(t, shoal_add_scalar(t, in[0], 0.75));
}
static shoal_tensor *add(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_add(t, in[0], in[1]);
}
/* The same tensor on both sides of a hand-over. */
static shoal_tensor *add_self(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *x = shoal_square(t, in[0]);
    return shoal_mul(t, shoal_add(t, x, x), x);
}
/* ... whose first contribution it is. */
static shoal_tensor *add_both(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *x = shoal_square(t, in[0]);
    return shoal_square(t, shoal_add(t, x, x));
}
static shoal_tensor *sub(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sub(t, in[0], in[1]);
}
static shoal_tensor *mul(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mul(t, in[0], in[1]);
}
static shoal_tensor *div_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_div(t, in[0], in[1]);
}
static shoal_tensor *sum_0(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sum(t, in[0], 0);
}
static shoal_tensor *sum_last(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sum(t, in[0], -1);
}
static shoal_tensor *mean_1(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mean(t, in[0], 1);
}
static shoal_tensor *mean_all(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mean(t, shoal_square(t, in[0]), SHOAL_ALL_DIMS);
}
static shoal_tensor *reshape(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *x = shoal_square(t, in[0]);
    return shoal_reshape(t,
                         shoal_mul(t, shoal_reshape(t, x, shoal_shape_2(5, 6)),
                                   shoal_reshape(t, in[0], shoal_shape_2(5, 6))),
                         shoal_shape_1(30));
}
static shoal_tensor *slice(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *a = shoal_slice(t, in[0], 1, 1, 3), *b = shoal_slice(t, in[0], 1, 2, 3);
    return shoal_mul(t, a, b);
}
static shoal_tensor *concat(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *const parts[] = {in[0], in[1], in[0], in[2], in[1], in[0]};
    return shoal_square(t, shoal_concat(t, parts, 6, -2));
}
static shoal_tensor *transpose(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_square(t, shoal_transpose(t, in[0], 0, -1));
}
static shoal_tensor *param_tensor(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *w = shoal_param_tensor(t, p[0]);
    return shoal_mul(t, shoal_mul(t, in[0], w), w);
}
static shoal_tensor *gather_rows(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mul(t, shoal_gather_rows(t, in[0], in[1]), shoal_gather_rows(t, in[0], in[2]));
}
static shoal_tensor *select_rows(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, shoal_select_rows(t, shoal_square(t, in[0]), in[1]), p[0], NULL);
}

static const struct op_case cases[] = {
    {"linear", linear_plain, {R3(2, 3, 5)}, 1, {0}, 0, {R2(5, 7)}, 1, 0, 0},
    {"linear bias out_in", linear_bias, {R2(3, 5)}, 1, {0}, 0, {R2(7, 5), R1(7)}, 2, 0, 0},
    {"linear gelu", linear_gelu, {R2(3, 5)}, 1, {0}, 0, {R2(7, 5), R1(7)}, 2, 0, 0},
    {"linear gelu_tanh residual",
     linear_gelu_tanh,
     {R2(3, 5), R2(3, 7)},
     2,
     {0},
     0,
     {R2(5, 7)},
     1,
     0,
     0},
    {"linear relu", linear_relu, {R2(3, 5)}, 1, {0}, 0, {R2(5, 3)}, 1, 0, 0},
    {"linear relu squared", linear_relu_squared, {R2(3, 5)}, 1, {0}, 0, {R2(5, 3)}, 1, 0, 0},
    {"linear silu", linear_silu, {R2(3, 5)}, 1, {0}, 0, {R2(5, 3)}, 1, 0, 0},
    {"linears",
     linears,
     {R3(2, 3, 5)},
     1,
     {0},
     0,
     {R2(4, 5), R2(1, 5), R2(3, 5), R1(4), R1(1), R1(3)},
     6,
     0,
     0},
    {"linears shared", linears_shared, {R2(3, 5)}, 1, {0}, 0, {R2(5, 2), R2(5, 3), R1(3)}, 3, 0, 0},
    {"linear residual",
     linear_residual,
     {R2(3, 5), R2(3, 7)},
     2,
     {0},
     0,
     {R2(5, 7), R1(7)},
     2,
     0,
     0},
    {"linear self residual", linear_self, {R2(3, 5)}, 1, {0}, 0, {R2(5, 5)}, 1, 0, 0},
    {"embedding", embedding, {R2(2, 5)}, 1, {7}, 0, {R2(7, 3), R2(6, 3)}, 2, 0, 0},
    {"embedding table", embedding_table, {R2(3, 5)}, 1, {4}, 0, {R2(4, 3)}, 1, 0, 0},
    {"embedding from", embedding_from, {R2(2, 4)}, 1, {7}, 0, {R2(7, 3), R2(6, 3)}, 2, 0, 0},
    {"layer_norm bare", layer_norm_bare, {R3(2, 3, 17)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"rms_norm bare", rms_norm_bare, {R2(3, 19)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"layer_norm", layer_norm, {R3(2, 3, 17)}, 1, {0}, 0, {R1(17), R1(17)}, 2, 0, 0},
    {"layer_norm no beta", layer_norm_plain, {R2(3, 5)}, 1, {0}, 0, {R1(5)}, 1, 0, 0},
    {"rms_norm", rms_norm, {R2(3, 19)}, 1, {0}, 0, {R1(19)}, 1, 0, 0},
    {"norm plus one", norm_plus_one, {R2(3, 19)}, 1, {0}, 0, {R1(19)}, 1, 0, 0},
    {"norm beta", norm_beta, {R2(3, 5)}, 1, {0}, 0, {R1(5), R1(5)}, 2, 0, 0},
    {"qk_norm rms", qk_norm_rms, {R3(2, 3, 20)}, 1, {0}, 0, {R1(5), R1(5)}, 2, 0, 0},
    {"qk_norm beta", qk_norm_beta, {R3(1, 3, 9)}, 1, {0}, 0, {R1(3), R1(3), R1(3)}, 3, 0, 0},
    {"rotary", rotary, {R3(2, 5, 16)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"rotary interleaved", rotary_interleaved, {R3(2, 3, 9)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention", attention, {R3(2, 5, 18)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention grouped full", attention_grouped, {R3(1, 5, 24)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention dropout", attention_dropout, {R3(2, 3, 18)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention window", attention_window, {R3(2, 5, 16)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention padded", attention_padded, {R3(3, 5, 18), R1(3)}, 2, {0, 6}, 0, {{0}}, 0, 0, 0},
    {"attention twice", attention_twice, {R3(1, 3, 18)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"dropout", dropout, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"dropout residual", dropout_residual, {R2(3, 7), R2(3, 7)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"dropout off", dropout_off, {R2(3, 7), R2(3, 7)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"cross_entropy", cross_entropy, {R3(2, 3, 11), R2(2, 3)}, 2, {0, 11}, -1, {{0}}, 0, 0, 0},
    {"cross_entropy in place",
     cross_entropy_over,
     {R2(3, 5), R1(3)},
     2,
     {0, 9},
     -1,
     {R2(5, 9)},
     1,
     0,
     0},
    {"cross_entropy of shared logits",
     cross_entropy_shared,
     {R2(3, 5), R1(3)},
     2,
     {0, 9},
     -1,
     {R2(5, 9)},
     1,
     0,
     0},
    {"linear_cross_entropy",
     linear_cross_entropy,
     {R3(2, 3, 5), R2(2, 3)},
     2,
     {0, 11},
     -1,
     {R2(11, 5)},
     1,
     0,
     0},
    {"linear_cross_entropy in two tiles",
     linear_cross_entropy,
     {R2(3, 2), R1(3)},
     2,
     {0, 1030},
     -1,
     {R2(1030, 2)},
     1,
     -3,
     3},
    {"linear_cross_entropy shared",
     linear_cross_entropy_shared,
     {R2(3, 5), R1(3)},
     2,
     {0, 9},
     -1,
     {R2(9, 5)},
     1,
     0,
     0},
    {"cross_entropy smoothed",
     cross_entropy_smoothed,
     {R3(2, 3, 11), R2(2, 3)},
     2,
     {0, 11},
     -1,
     {{0}},
     0,
     0,
     0},
    {"linear_cross_entropy smoothed, in two tiles",
     linear_cross_entropy_smoothed,
     {R2(3, 2), R1(3)},
     2,
     {0, 1030},
     -1,
     {R2(1030, 2)},
     1,
     -3,
     3},
    {"mse", mse, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"softmax", softmax, {R2(3, 19)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"gelu", gelu, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"gelu_tanh", gelu_tanh, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"glu silu", glu_silu, {R2(3, 14)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"glu gelu", glu_gelu, {R2(3, 14)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"glu gelu_tanh", glu_gelu_tanh, {R2(3, 14)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"glu relu", glu_relu, {R2(3, 14)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"relu", relu, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"tanh", tanh_, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"sigmoid", sigmoid, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"silu", silu, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"exp", exp_, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"ln", ln, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0.2, 2},
    {"sqrt", sqrt_, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0.2, 2},
    {"square", square, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"scale", scale, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"add_scalar", add_scalar, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"add", add, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"add broadcast", add, {R3(2, 3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"add self", add_self, {R2(3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"add both sides", add_both, {R2(3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"sub", sub, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"sub broadcast", sub, {R3(2, 3, 5), R1(5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"mul", mul, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"mul broadcast", mul, {R3(2, 3, 5), R1(5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"mul by one", mul, {R2(3, 5), R1(1)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"div", div_, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0.4, 2},
    {"div broadcast", div_, {R3(2, 3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0.4, 2},
    {"sum dim 0", sum_0, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"sum last dim", sum_last, {R2(3, 17)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"mean dim 1", mean_1, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"mean all", mean_all, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"reshape", reshape, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"slice", slice, {R3(2, 5, 3)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"concat", concat, {R3(2, 2, 3), R3(2, 1, 3), R3(2, 3, 3)}, 3, {0}, 0, {{0}}, 0, 0, 0},
    {"transpose", transpose, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"param_tensor", param_tensor, {R2(3, 5)}, 1, {0}, 0, {R1(5)}, 1, 0, 0},
    {"gather_rows", gather_rows, {R2(5, 3), R1(7), R1(7)}, 3, {0, 5, 5}, 0, {{0}}, 0, 0, 0},
    {"select_rows", select_rows, {R2(5, 3), R1(5)}, 2, {0, 2}, 0, {R2(3, 2)}, 1, 0, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

#endif
