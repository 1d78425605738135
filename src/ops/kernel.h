/* kernel - the description of a kernel: all that is said of it once, beside its argument block.
 *
 * A row `const struct shoali_kernel shoali_kernel_NAME` in ops/kernels/ says which members of
 * struct shoali_NAME_args are device pointers, how many elements each one has, which members are
 * sizes and element types, and what else must hold. From it come
 *   the checks of every call: sizes, element types, NULL pointers, and the row's own check;
 *   the question whether there is anything to do: no output has an element, so nothing is launched;
 *   what an accelerator copies, checks and translates (accelerator.h);
 *   the choice of a table's function by element types (table.h);
 *   the conformance test's watch over inputs that must not change and ends of arrays.
 * The row's address is the kernel's identity: tables, tests and reports know a kernel by it, so a
 * new kernel needs no number, slot or list here.
 */
#ifndef SHOALI_OPS_KERNEL_H
#define SHOALI_OPS_KERNEL_H

#include "ops/ops.h"

#include <stddef.h>

enum {
    SHOALI_KERNEL_MAX_DTYPES = 3,
    SHOALI_KERNEL_MAX_PRODUCTS = 4,
    SHOALI_KERNEL_MAX_FACTORS = 4
};

/* A member of the argument block, of type int64_t. */
struct shoali_kernel_size {
    const char *name; /* NULL ends a list */
    uint16_t offset;
};
/* Sizes that are at least 0 and whose product is an int64. */
struct shoali_kernel_product {
    struct shoali_kernel_size factor[SHOALI_KERNEL_MAX_FACTORS];
};
/* A member that names an element type. */
enum shoali_kernel_dtypes { SHOALI_DTYPE_ANY, SHOALI_DTYPE_FLOAT, SHOALI_DTYPE_HALF };
struct shoali_kernel_dtype {
    const char *name; /* NULL ends a list */
    uint16_t offset;
    enum shoali_kernel_dtypes allowed; /* F32, BF16, F16, F64; BF16 and F16 */
    uint16_t of_optional; /* offset of an optional pointer: counts when that is given */
    bool beside;          /* checked, but what a table has to hold for is said by other members */
};

struct shoali_kernel {
    struct shoali_kernel_type type; /* name, size of the block, pointers */
    struct shoali_kernel_dtype dtypes[SHOALI_KERNEL_MAX_DTYPES + 1];
    struct shoali_kernel_product products[SHOALI_KERNEL_MAX_PRODUCTS];
    shoal_status (*check)(const void *args); /* optional: what the lists cannot say */
};

/* ---- to write a row with, inside one whose block is struct shoali_<block>_args -------------- */

#define SHOALI_AT(block, member) (uint16_t) offsetof(struct shoali_##block##_args, member)
/* clang-format off */
/* Elements: of the type that a member names; F64 if it says so, else F32; always of one type. */
#define SHOALI_OF(block, member) {SHOALI_AT(block, member), false, SHOAL_F32}
#define SHOALI_REAL_OF(block, member) {SHOALI_AT(block, member), true, SHOAL_F32}
#define SHOALI_ALWAYS(dtype) {0, false, dtype}
/* How many there are: a product of members, or what a function of the block says. */
#define SHOALI_COUNT(block, a) {{SHOALI_AT(block, a)}, NULL}
#define SHOALI_COUNT2(block, a, b) {{SHOALI_AT(block, a), SHOALI_AT(block, b)}, NULL}
#define SHOALI_COUNT3(block, a, b, c) \
    {{SHOALI_AT(block, a), SHOALI_AT(block, b), SHOALI_AT(block, c)}, NULL}
#define SHOALI_COUNT_BY(function) {{0}, function}
/* Pointers. INOUT: may read what it writes, as with `accumulate`. OPTIONAL: may be NULL. */
#define SHOALI_IN(block, member, element, count) \
    {#member, SHOALI_AT(block, member), SHOALI_READS, false, element, count}
#define SHOALI_OPTIONAL_IN(block, member, element, count) \
    {#member, SHOALI_AT(block, member), SHOALI_READS, true, element, count}
#define SHOALI_OUT(block, member, element, count) \
    {#member, SHOALI_AT(block, member), SHOALI_WRITES, false, element, count}
#define SHOALI_OPTIONAL_OUT(block, member, element, count) \
    {#member, SHOALI_AT(block, member), SHOALI_WRITES, true, element, count}
#define SHOALI_INOUT(block, member, element, count) \
    {#member, SHOALI_AT(block, member), SHOALI_UPDATES, false, element, count}
#define SHOALI_OPTIONAL_INOUT(block, member, element, count) \
    {#member, SHOALI_AT(block, member), SHOALI_UPDATES, true, element, count}
#define SHOALI_SIZE(block, member) {#member, SHOALI_AT(block, member)}
#define SHOALI_DTYPE(block, member, allowed) {#member, SHOALI_AT(block, member), allowed, 0, false}
#define SHOALI_DTYPE_OF_OPTIONAL(block, member, allowed, pointer) \
    {#member, SHOALI_AT(block, member), allowed, SHOALI_AT(block, pointer), false}
#define SHOALI_DTYPE_BESIDE(block, member, allowed, pointer) \
    {#member, SHOALI_AT(block, member), allowed, SHOALI_AT(block, pointer), true}
/* clang-format on */

/* rows x columns elements in a matrix whose rows begin `stride` apart; INT64_MAX beyond that. */
int64_t shoali_extent(int64_t rows, int64_t stride, int64_t columns);

/* ---- for checks of their own: SHOAL_EINVAL with the kernel's and the argument's name --------- */

/* value >= least */
SHOAL_CHECKED shoal_status shoali_check_at_least(const char *kernel, const char *name,
                                                 int64_t value, int64_t least);
/* 0 <= value < end, for enumerations */
SHOAL_CHECKED shoal_status shoali_check_kind(const char *kernel, const char *name, int64_t value,
                                             int64_t end);
/* 0 <= probability < 1 */
SHOAL_CHECKED shoal_status shoali_check_probability(const char *kernel, float probability);
/* A stored matrix of more than one row needs a row stride of at least its columns. */
SHOAL_CHECKED shoal_status shoali_check_stride(const char *kernel, const char *name, int64_t stride,
                                               int64_t rows, int64_t columns);
/* A number below the limit, in units of 2^-unit_log2, fits 63 bits. */
SHOAL_CHECKED shoal_status shoali_check_fixed(const char *kernel, int32_t unit_log2, double limit);
/* Runs, when there are any, are those of `count` elements. */
SHOAL_CHECKED shoal_status shoali_check_runs(const char *kernel, const struct shoali_runs *runs,
                                             int64_t count);

/* ---- what is done with a row ---------------------------------------------------------------- */

/* Everything that must hold for a call; *empty: there is nothing to do. */
SHOAL_CHECKED shoal_status shoali_kernel_check(const struct shoali_kernel *kernel, const void *args,
                                               bool *empty);
/* The bits (1 << dtype) of the element types for which a table has to hold. */
uint32_t shoali_kernel_dtypes_of(const struct shoali_kernel *kernel, const void *args);
/* staged.c: runs an entry of the host on memory that the host does not reach, in the order of the
 * stream. Copies what the row says, so a row that says too little gives wrong results here. */
SHOAL_CHECKED shoal_status shoali_kernel_stage(const struct shoali_exec *exec,
                                               const struct shoali_kernel *kernel,
                                               const struct shoali_ops_entry *entry,
                                               const void *args);
/* Checks, chooses, launches: the whole of a front. */
SHOAL_CHECKED shoal_status shoali_kernel_launch(const struct shoali_exec *exec,
                                                const struct shoali_kernel *kernel,
                                                const void *args);

#endif
