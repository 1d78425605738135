/* Attention by tensor cores, for the sizes of heads and the types that have it: attention_mma.h. */
#include "ops/cuda/kernels/attention_mma.h"

#define HEAD 64
#define MULTIPLY mma_bf16
#define PAIR bf16_pair
#define WIDEN f32_of_bf16
#define SIZED(name) name##_bf16_64
#include "ops/cuda/kernels/attention_rows.h"

#include "ops/cuda/kernels/attention_dkv.h"
#include "ops/cuda/kernels/attention_dq.h"
#include "ops/cuda/kernels/attention_forward.h"
#undef HEAD
#undef SIZED

#define HEAD 128
#define SIZED(name) name##_bf16_128
#include "ops/cuda/kernels/attention_rows.h"

#include "ops/cuda/kernels/attention_dkv.h"
#include "ops/cuda/kernels/attention_dq.h"
#include "ops/cuda/kernels/attention_forward.h"
#undef HEAD
#undef MULTIPLY
#undef PAIR
#undef WIDEN
#undef SIZED

#define HEAD 64
#define MULTIPLY mma_f16
#define PAIR f16_pair
#define WIDEN f32_of_f16
#define SIZED(name) name##_f16_64
#include "ops/cuda/kernels/attention_rows.h"

#include "ops/cuda/kernels/attention_dkv.h"
#include "ops/cuda/kernels/attention_dq.h"
#include "ops/cuda/kernels/attention_forward.h"
#undef HEAD
#undef SIZED

#define HEAD 128
#define SIZED(name) name##_f16_128
#include "ops/cuda/kernels/attention_rows.h"

#include "ops/cuda/kernels/attention_dkv.h"
#include "ops/cuda/kernels/attention_dq.h"
#include "ops/cuda/kernels/attention_forward.h"
#undef HEAD
#undef MULTIPLY
#undef PAIR
#undef WIDEN
#undef SIZED
