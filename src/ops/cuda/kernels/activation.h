/* activation - functions of one element, and their derivatives: ops/ref/functions.c. */
#ifndef SHOALI_OPS_CUDA_ACTIVATION_H
#define SHOALI_OPS_CUDA_ACTIVATION_H

#include "ops/cuda/kernels/elements.h"

/* Kinds as in enum shoali_unary. */
enum {
    NEG,
    EXP,
    LOG,
    SQRT,
    TANH,
    SIGMOID,
    RELU,
    GELU_ERF,
    GELU_TANH,
    SILU,
    SQUARE,
    RELU_SQUARED,
    SCALE,
    ADD_SCALAR
};

DEVICE float function_of(int32_t kind, float x, float alpha)
{
    switch (kind) {
    case NEG:
        return -x;
    case EXP:
        return v1_exp(x);
    case LOG:
        return v1_log(x);
    case SQRT:
        return v1_sqrt(x);
    case TANH:
        return v1_tanh(x);
    case SIGMOID:
        return v1_sigmoid(x);
    case RELU:
        return v1_relu(x);
    case GELU_ERF:
        return v1_gelu_erf(x);
    case GELU_TANH:
        return v1_gelu_tanh(x);
    case SILU:
        return v1_silu(x);
    case SQUARE:
        return x * x;
    case RELU_SQUARED:
        return v1_relu(x) * v1_relu(x);
    case SCALE:
        return alpha * x;
    default: /* ADD_SCALAR */
        return x + alpha;
    }
}

DEVICE float derivative_of(int32_t kind, float x, float alpha)
{
    switch (kind) {
    case EXP:
        return v1_exp(x);
    case SQRT:
        return 0.5f / v1_sqrt(x);
    case TANH:
        return v1_tanh_derivative(x);
    case SIGMOID:
        return v1_sigmoid_derivative(x);
    case RELU:
        return v1_relu_derivative(x);
    case GELU_ERF:
        return v1_gelu_erf_derivative(x);
    case GELU_TANH:
        return v1_gelu_tanh_derivative(x);
    case SILU:
        return v1_silu_derivative(x);
    case SQUARE:
        return x + x;
    case RELU_SQUARED:
        return v1_relu(x) + v1_relu(x);
    default: /* SCALE */
        return alpha;
    }
}

#endif
