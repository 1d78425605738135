/* tensor.h - element types and shapes.
 *
 * A tensor is a dense row-major array. It is a block of a whole: it knows the global shape and its
 * offset in it. Everything random or positional is a function of these global coordinates. The
 * memory belongs to a device and is opaque. shoal_tensor_read reads it explicitly, and each read is
 * counted.
 *
 * Shape letters in all of Shoal
 *   B batch   T time (sequence)   C channels (hidden)   H heads   D head size   V vocabulary
 *   R rows (B*T)   M N K dims of a matrix product
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
/* ndim 0 is a scalar (one element). A dim of 0 is valid: the tensor is empty. */
typedef struct shoal_shape {
    int32_t ndim;
    int64_t dim[SHOAL_MAX_DIMS];
} shoal_shape;

typedef struct shoal_tensor shoal_tensor;

/* Returns the bytes of one element. */
SHOAL_API size_t shoal_dtype_bytes(shoal_dtype dtype);
/* Returns the name as in safetensors: "F32", "BF16", ... Static. */
SHOAL_API const char *shoal_dtype_name(shoal_dtype dtype);
/* Returns the product of the dims; -1 on overflow or for a negative dim. */
SHOAL_API int64_t shoal_shape_count(const shoal_shape *shape);

/* Return the type of the elements, and the shape of this rank's block. */
SHOAL_API shoal_dtype shoal_tensor_dtype(const shoal_tensor *tensor);
SHOAL_API const shoal_shape *shoal_tensor_shape(const shoal_tensor *tensor); /* borrowed */
/* Copies count elements from element `first` on to host memory and waits. Counts one host
 * synchronisation. SHOAL_EINVAL: the range is outside, or the tensor has no memory (meta mode). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tensor_read(const shoal_tensor *tensor, int64_t first,
                                                       int64_t count, void *out);
/* Reads a one-element floating-point tensor of any type as double. Synchronises. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tensor_get_scalar(const shoal_tensor *tensor,
                                                             double *value);

/* Make shapes of one to four dims. */
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
