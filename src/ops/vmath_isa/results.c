#include "ops/vmath_isa/results.h"

#include "ops/vmath.h"

#define PASTE_(isa) vmath_results_##isa
#define PASTE(isa) PASTE_(isa)

/* All NaNs count as one: their payload is free. */
static void put(uint32_t out[16], v16 x)
{
    v16i_store(out, v16i_select(v16_isnan(x), v16i_set1(0x7fc00000u), v16_bits(x)));
}

static int functions(v16 x, uint32_t out[][16])
{
    int i = 0;
    put(out[i++], v16_exp(x));
    put(out[i++], v16_log(x));
    put(out[i++], v16_tanh(x));
    put(out[i++], v16_sigmoid(x));
    put(out[i++], v16_sigmoid_derivative(x));
    put(out[i++], v16_tanh_derivative(x));
    put(out[i++], v16_gelu_erf(x));
    put(out[i++], v16_gelu_erf_derivative(x));
    put(out[i++], v16_gelu_tanh(x));
    put(out[i++], v16_gelu_tanh_derivative(x));
    put(out[i++], v16_relu(x));
    put(out[i++], v16_relu_derivative(x));
    put(out[i++], v16_silu(x));
    put(out[i++], v16_silu_derivative(x));
    put(out[i++], v16_floor(x));
    put(out[i++], v16_rint(x));
    put(out[i++], v16_sqrt(x));
    put(out[i++], v16_neg(x));
    put(out[i++], v16_abs(x));
    return i;
}

static int memory(v16 x, int64_t n, uint32_t out[][16])
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    int i = 0;
    for (int d = 0; d < 3; d++) {
        uint32_t bytes[16] = {0};
        put(out[i++], v16_round_as(x, dtypes[d]));
        v16_store_as_n(bytes, 0, n, x, dtypes[d]);
        put(out[i++], v16_load_as(bytes, 0, dtypes[d]));
        v16_store_as(bytes, 0, x, dtypes[d]);
        put(out[i++], v16_load_as_n(bytes, 0, n, dtypes[d]));
    }
    return i;
}

void PASTE(VMATH_ISA)(const uint32_t xs[16], const uint32_t ys[16], int64_t n,
                      const struct shoali_stream *random, uint64_t index,
                      uint32_t out[VMATH_RESULTS][16])
{
    float values[16];
    memcpy(values, xs, sizeof values);
    const v16 x = v16_load(values);
    memcpy(values, ys, sizeof values);
    const v16 y = v16_load(values);
    int i = functions(x, out);
    i += memory(x, n, out + i);
    put(out[i++], v16_min(x, y));
    put(out[i++], v16_max(x, y));
    put(out[i++], v16_copysign(x, y));
    put(out[i++], v16_set1(v16_sum(v16_div(x, y))));
    const v16m mask = v16m_or(v16m_and(v16_lt(x, y), v16m_not(v16_eq(y, x))), v16m_first(n));
    put(out[i++], v16_select(mask, v16_fma(x, y, x), v16_fnma(x, y, y)));
    v16i_store(out[i++], v16_random_u32(random, index));
    put(out[i++], v16_select(v16m_from_bits(v16m_bits(mask)), x, y));
    const uint64_t keeps = v16_dropout_keep(random, index + (uint64_t)n, 64, 0x40000000u);
    memcpy(out[i], &keeps, sizeof keeps);
    memset(out[i++] + 2, 0, 14 * sizeof out[0][0]);
}
