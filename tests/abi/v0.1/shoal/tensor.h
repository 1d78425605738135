/* tensor.h - element types and shapes.
 *
 * A tensor is a dense row-major block. Its memory belongs to a device and is opaque: read it with
 * shoal_tensor_read (explicit, counted). A tensor knows the global shape it is a block of and the
 * block's offset, so that everything random or positional is a function of global coordinates.
 *
 * Shape letters used all over the project: B batch, T time (sequence), C channels (hidden),
 * H heads, D head size, V vocabulary, R rows (B*T), M N K the dims of a matrix product.
 */
#ifndef SHOAL_TENSOR_H
#define SHOAL_TENSOR_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_dtype {
    SHOAL_F32 = 0,
    SHOAL_BF16 = 1,
    SHOAL_F16 = 2,
    SHOAL_F64 = 3, /* reference kernels and tests only */
    SHOAL_I32 = 4,
    SHOAL_I64 = 5,
    SHOAL_U8 = 6,
    SHOAL_DTYPE_COUNT = 7
} shoal_dtype;

#define SHOAL_MAX_DIMS 5
/* ndim 0 is a scalar (one element); a dim of 0 is an empty tensor and valid. */
typedef struct shoal_shape {
    int32_t ndim;
    int64_t dim[SHOAL_MAX_DIMS];
} shoal_shape;

typedef struct shoal_tensor shoal_tensor;

/* Bytes of one element. */
SHOAL_API size_t shoal_dtype_bytes(shoal_dtype dtype);
/* "F32", "BF16", ... as safetensors names them. */
SHOAL_API const char *shoal_dtype_name(shoal_dtype dtype);
/* Product of the dims, -1 on overflow or a negative dim. */
SHOAL_API int64_t shoal_shape_count(const shoal_shape *shape);

/* The type its elements are stored in. */
SHOAL_API shoal_dtype shoal_tensor_dtype(const shoal_tensor *tensor);
SHOAL_API const shoal_shape *shoal_tensor_shape(const shoal_tensor *tensor); /* borrowed */
/* Copies count elements from element `first` to host memory and waits for them: one counted host
 * synchronisation. SHOAL_EINVAL when the range is outside; SHOAL_EINVAL in meta mode (no memory).
 */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tensor_read(const shoal_tensor *tensor, int64_t first,
                                                       int64_t count, void *out);
/* Reads a one-element floating tensor of any type as double; synchronises. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tensor_get_scalar(const shoal_tensor *tensor,
                                                             double *value);

/* Shapes of one to four dims. */
static inline shoal_shape shoal_shape_1(int64_t a)
{
    shoal_shape s = {1, {a, 0, 0, 0, 0}};
    return s;
}
static inline shoal_shape shoal_shape_2(int64_t a, int64_t b)
{
    shoal_shape s = {2, {a, b, 0, 0, 0}};
    return s;
}
static inline shoal_shape shoal_shape_3(int64_t a, int64_t b, int64_t c)
{
    shoal_shape s = {3, {a, b, c, 0, 0}};
    return s;
}
static inline shoal_shape shoal_shape_4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    shoal_shape s = {4, {a, b, c, d, 0}};
    return s;
}

#ifdef __cplusplus
}
#endif
#endif
