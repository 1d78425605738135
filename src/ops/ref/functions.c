/* functions - element-wise functions and derivatives; the float ones are one lane of ops/vmath.h.
 */
#include "ops/ref/ref.h"
#include "ops/scalars.h"

static float relu_squared_f32(float x)
{
    return v1_relu(x) * v1_relu(x);
}
static float relu_squared_slope_f32(float x)
{
    return v1_relu(x) + v1_relu(x);
}

float shoali_ref_function_f32(enum shoali_unary kind, float x, float alpha)
{
    switch (kind) {
    case SHOALI_NEG:
        return -x;
    case SHOALI_EXP:
        return v1_exp(x);
    case SHOALI_LOG:
        return v1_log(x);
    case SHOALI_SQRT:
        return v1_sqrt(x);
    case SHOALI_TANH:
        return v1_tanh(x);
    case SHOALI_SIGMOID:
        return v1_sigmoid(x);
    case SHOALI_RELU:
        return v1_relu(x);
    case SHOALI_GELU_ERF:
        return v1_gelu_erf(x);
    case SHOALI_GELU_TANH:
        return v1_gelu_tanh(x);
    case SHOALI_SILU:
        return v1_silu(x);
    case SHOALI_SQUARE:
        return x * x;
    case SHOALI_RELU_SQUARED:
        return relu_squared_f32(x);
    case SHOALI_SCALE:
        return alpha * x;
    case SHOALI_ADD_SCALAR:
        return x + alpha;
    }
    return x;
}

float shoali_ref_derivative_f32(enum shoali_unary kind, float x, float alpha)
{
    switch (kind) {
    case SHOALI_NEG:
        return -1;
    case SHOALI_EXP:
        return v1_exp(x);
    case SHOALI_LOG:
        return 1 / x;
    case SHOALI_SQRT:
        return 0.5f / v1_sqrt(x);
    case SHOALI_TANH:
        return v1_tanh_derivative(x);
    case SHOALI_SIGMOID:
        return v1_sigmoid_derivative(x);
    case SHOALI_RELU:
        return v1_relu_derivative(x);
    case SHOALI_GELU_ERF:
        return v1_gelu_erf_derivative(x);
    case SHOALI_GELU_TANH:
        return v1_gelu_tanh_derivative(x);
    case SHOALI_SILU:
        return v1_silu_derivative(x);
    case SHOALI_SQUARE:
        return x + x;
    case SHOALI_RELU_SQUARED:
        return relu_squared_slope_f32(x);
    case SHOALI_SCALE:
        return alpha;
    case SHOALI_ADD_SCALAR:
        return 1;
    }
    return 1;
}

static double sigmoid(double x)
{
    const double e = shoali_exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}
static double sigmoid_derivative(double x)
{
    const double e = shoali_exp(-fabs(x));
    return e / (1 + e) / (1 + e);
}
static double normal_cdf(double x)
{
    return 0.5 + 0.5 * shoali_erf(x * 0.70710678118654752440);
}
static double relu_squared_f64(double x)
{
    return 0 > x ? 0 : x * x;
}
static double relu_squared_slope_f64(double x)
{
    return 0 > x ? 0 : x + x;
}
/* As in vmath.h: twice sqrt(2/pi) (x + 0.044715 x^3), and its derivative. */
static const double twice_root = 1.59576912160573071176;
static double gelu_argument(double x)
{
    return twice_root * (x + 0.044715 * x * x * x);
}
static double gelu_slope(double x)
{
    return twice_root * (1 + 3 * 0.044715 * x * x);
}

double shoali_ref_function_f64(enum shoali_unary kind, double x, double alpha)
{
    switch (kind) {
    case SHOALI_NEG:
        return -x;
    case SHOALI_EXP:
        return shoali_exp(x);
    case SHOALI_LOG:
        return shoali_ln(x);
    case SHOALI_SQRT:
        return sqrt(x);
    case SHOALI_TANH:
        return shoali_tanh(x);
    case SHOALI_SIGMOID:
        return sigmoid(x);
    case SHOALI_RELU:
        return 0 > x ? 0 : x;
    case SHOALI_GELU_ERF:
        return x * normal_cdf(x);
    case SHOALI_GELU_TANH:
        return x * sigmoid(gelu_argument(x));
    case SHOALI_SILU:
        return x * sigmoid(x);
    case SHOALI_SQUARE:
        return x * x;
    case SHOALI_RELU_SQUARED:
        return relu_squared_f64(x);
    case SHOALI_SCALE:
        return alpha * x;
    case SHOALI_ADD_SCALAR:
        return x + alpha;
    }
    return x;
}

double shoali_ref_derivative_f64(enum shoali_unary kind, double x, double alpha)
{
    switch (kind) {
    case SHOALI_NEG:
        return -1;
    case SHOALI_EXP:
        return shoali_exp(x);
    case SHOALI_LOG:
        return 1 / x;
    case SHOALI_SQRT:
        return 0.5 / sqrt(x);
    case SHOALI_TANH:
        return 4 * sigmoid_derivative(x + x);
    case SHOALI_SIGMOID:
        return sigmoid_derivative(x);
    case SHOALI_RELU:
        return x > 0 ? 1 : 0;
    case SHOALI_GELU_ERF:
        return normal_cdf(x) + x * shoali_exp(-0.5 * x * x) * 0.39894228040143267794;
    case SHOALI_GELU_TANH:
        return sigmoid(gelu_argument(x)) + x * gelu_slope(x) * sigmoid_derivative(gelu_argument(x));
    case SHOALI_SILU:
        return sigmoid(x) + x * sigmoid_derivative(x);
    case SHOALI_SQUARE:
        return x + x;
    case SHOALI_RELU_SQUARED:
        return relu_squared_slope_f64(x);
    case SHOALI_SCALE:
        return alpha;
    case SHOALI_ADD_SCALAR:
        return 1;
    }
    return 1;
}
