/* kernels - the list of kernels, what a launch must know of each, and the checks of the fronts. For
 * the files of this folder only. */
#ifndef SHOALI_OPS_KERNELS_H
#define SHOALI_OPS_KERNELS_H

#include "ops/ops.h"

enum shoali_kernel {
    SHOALI_KERNEL_GEMM,
    SHOALI_KERNEL_PACK_B,
    SHOALI_KERNEL_NORM,
    SHOALI_KERNEL_NORM_BACKWARD,
    SHOALI_KERNEL_ATTENTION,
    SHOALI_KERNEL_ATTENTION_BACKWARD,
    SHOALI_KERNEL_EMBEDDING,
    SHOALI_KERNEL_EMBEDDING_BACKWARD,
    SHOALI_KERNEL_CROSS_ENTROPY,
    SHOALI_KERNEL_LOSS_MEAN,
    SHOALI_KERNEL_CROSS_ENTROPY_BACKWARD,
    SHOALI_KERNEL_CROSS_ENTROPY_TILE,
    SHOALI_KERNEL_CROSS_ENTROPY_TILE_BACKWARD,
    SHOALI_KERNEL_SOFTMAX,
    SHOALI_KERNEL_DROPOUT,
    SHOALI_KERNEL_UNARY,
    SHOALI_KERNEL_BINARY,
    SHOALI_KERNEL_AXPY,
    SHOALI_KERNEL_REDUCE,
    SHOALI_KERNEL_BROADCAST,
    SHOALI_KERNEL_COPY_STRIDED,
    SHOALI_KERNEL_CONVERT,
    SHOALI_KERNEL_SET,
    SHOALI_KERNEL_RANDOM_FILL,
    SHOALI_KERNEL_TO_FIXED,
    SHOALI_KERNEL_FROM_FIXED,
    SHOALI_KERNEL_NORM2,
    SHOALI_KERNEL_CLIP,
    SHOALI_KERNEL_ADAM,
    SHOALI_KERNEL_SGD,
    SHOALI_KERNEL_REDUCE_SOURCES,
    SHOALI_KERNEL_QUANTIZE,
    SHOALI_KERNEL_DEQUANTIZE,
    SHOALI_KERNEL_COUNT
};

struct shoali_kernel_row {
    size_t table_offset; /* of the function in struct shoali_ops_table */
    struct shoali_kernel_type type;
};
extern const struct shoali_kernel_row shoali_kernel_rows[SHOALI_KERNEL_COUNT];

/* The bit of a dtype in struct shoali_ops_table. */
static inline uint32_t shoali_dtype_bit(shoal_dtype dtype)
{
    return 1u << (uint32_t)dtype;
}
/* The table's function, NULL when the table has none or does not hold for all of `dtypes`. */
shoali_kernel_fn shoali_kernel_in(const struct shoali_ops_table *table, enum shoali_kernel kernel,
                                  uint32_t dtypes);
/* The first table of the chain that has the kernel for all of `dtypes`; ref has every one. */
const struct shoali_ops_table *shoali_kernel_table(const struct shoali_ops *ops,
                                                   enum shoali_kernel kernel, uint32_t dtypes);
SHOAL_CHECKED shoal_status shoali_kernel_launch(const struct shoali_exec *exec,
                                                enum shoali_kernel kernel, uint32_t dtypes,
                                                const void *args);

/* ---- checks: SHOAL_EINVAL with the kernel's and the argument's name ---- */

struct shoali_named_size {
    const char *name;
    int64_t value;
};
struct shoali_named_pointer {
    const char *name;
    const void *value;
};
/* All >= 0, and their product an int64; the product goes to *product when that is not NULL. */
SHOAL_CHECKED shoal_status shoali_check_sizes(enum shoali_kernel kernel,
                                              const struct shoali_named_size *sizes, size_t count,
                                              int64_t *product);
SHOAL_CHECKED shoal_status shoali_check_pointers(enum shoali_kernel kernel,
                                                 const struct shoali_named_pointer *pointers,
                                                 size_t count);
SHOAL_CHECKED shoal_status shoali_check_float(enum shoali_kernel kernel, const char *name,
                                              shoal_dtype dtype);
SHOAL_CHECKED shoal_status shoali_check_known(enum shoali_kernel kernel, const char *name,
                                              shoal_dtype dtype);
/* value >= least */
SHOAL_CHECKED shoal_status shoali_check_at_least(enum shoali_kernel kernel, const char *name,
                                                 int64_t value, int64_t least);
/* 0 <= value < end, for enumerations */
SHOAL_CHECKED shoal_status shoali_check_kind(enum shoali_kernel kernel, const char *name,
                                             int64_t value, int64_t end);
/* 0 <= probability < 1 */
SHOAL_CHECKED shoal_status shoali_check_probability(enum shoali_kernel kernel, float probability);

#define SHOALI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
/* Braces of {"name", value} pairs. */
#define SHOALI_CHECK_SIZES(kernel, product, ...)                                           \
    shoali_check_sizes(kernel, (const struct shoali_named_size[]){__VA_ARGS__},            \
                       SHOALI_COUNT_OF(((const struct shoali_named_size[]){__VA_ARGS__})), \
                       product)
#define SHOALI_CHECK_POINTERS(kernel, ...)                                            \
    shoali_check_pointers(kernel, (const struct shoali_named_pointer[]){__VA_ARGS__}, \
                          SHOALI_COUNT_OF(((const struct shoali_named_pointer[]){__VA_ARGS__})))

/* The common end of a front with exec, kernel, args, status and done: nothing to do for no
 * elements, else the required pointers, as braces of {"name", value}, and the launch. */
#define SHOALI_LAUNCH_UNLESS_EMPTY(elements, dtypes, ...)                          \
    do {                                                                           \
        if ((elements) == 0)                                                       \
            goto done;                                                             \
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, __VA_ARGS__), done);       \
        SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, dtypes, args), done); \
    } while (0)

#endif
