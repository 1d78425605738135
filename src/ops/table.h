/* table - what backends offer, and which of it a rank uses.
 *
 * A backend is a table: a name, a probe, and one entry for each kernel that it has. It need not
 * have all. An entry says for which element types its function holds and, where that is not all,
 * asks a predicate about the arguments. For each kernel the tables are asked in the fixed order of
 * shoali_ops_all(), best first; `ref` is last, has every kernel, and takes all arguments. What a
 * CPU can run and is not good at is left out (cpu_rules.h). So the choice is a function of the
 * processor, which is asked once, and of the arguments of the call.
 *
 * MEMORY. A table's kernels take addresses of one memory: the host's, or that of an accelerator
 * whose memory the host does not reach. A rank's chain begins with the tables of its accelerator's
 * memory; those of the host stand behind them. Where the accelerator cannot run kernels of the host
 * (accelerator.h: host_kernels), such a kernel runs *staged* (staged.c): what it may touch is
 * copied to pinned memory, the kernel runs there in the order of the stream, what it wrote is
 * copied back. The host's part of the chain alone serves calls on host memory: shoali_ops_run, and
 * the chain that shoali_ops_host_of makes of it.
 */
#ifndef SHOALI_OPS_TABLE_H
#define SHOALI_OPS_TABLE_H

#include "accelerator/accelerator.h"

struct shoali_kernel; /* kernel.h */
struct shoali_exec;   /* ops.h */

/* Behind the argument block struct shoali_<name>_args: declares the kernel's description and its
 * front, which checks, chooses a table's function, and launches it. */
#define SHOALI_KERNEL(name)                                                     \
    extern const struct shoali_kernel shoali_kernel_##name;                     \
    SHOAL_CHECKED shoal_status shoali_op_##name(const struct shoali_exec *exec, \
                                                const struct shoali_##name##_args *args)

enum { SHOALI_OPS_MAX_KERNELS = 64, SHOALI_OPS_MAX_TABLES = 10 };

struct shoali_ops_entry {
    const struct shoali_kernel *kernel;
    shoali_kernel_fn fn;
    uint32_t dtypes; /* bits 1 << dtype: of what a call names (shoali_kernel_dtypes_of) */
    /* Optional: whether it takes all that the arguments ask for (a product's sums as integers, say,
     * or in another type than its operands'); must not depend on what pointers point to. */
    bool (*supports)(const void *args);
    /* Optional: bytes that each of so many threads takes from base/scratch.h for such a call, for
     * plans. Likewise. */
    size_t (*workspace)(const void *args, int32_t threads);
};
#define SHOALI_ALL_DTYPES ((1u << SHOAL_DTYPE_COUNT) - 1u)
#define SHOALI_SHORT_FLOATS (1u << SHOAL_F32 | 1u << SHOAL_BF16 | 1u << SHOAL_F16)
static inline uint32_t shoali_dtype_bit(shoal_dtype dtype)
{
    return 1u << (uint32_t)dtype;
}

/* One global constant per backend, shoali_ops_<name>. */
struct shoali_ops_table {
    uint32_t abi;     /* SHOALI_OPS_ABI */
    size_t bytes;     /* sizeof the table */
    const char *name; /* "ref", "cpu-avx512" */
    bool (*probe)(void);
    const struct shoali_ops_entry *entries;
    int32_t entry_count;
    /* Optional, of a table with gemm and pack_b: see shoali_op_packed_b_bytes. */
    size_t (*packed_b_bytes)(int64_t n, int64_t k, shoal_dtype dtype);
    /* Optional: how so many threads cut a product (struct shoali_gemm_args), in a line. */
    void (*explain_gemm)(const void *args, int32_t threads, struct shoali_str *text);
    bool by_name;       /* never chosen unless asked for */
    const char *memory; /* an accelerator's memory_name; NULL: the host's */
    /* The rest is optional, of a table for a device's memory. */
    /* Bytes that a call takes from shoali_stream_workspace, for plans: always the same, or 0. */
    size_t (*stream_workspace)(const struct shoali_kernel *kernel, const void *args);
    /* A part of a sentence: why the device is there and the probe false; "": it is not there. Who
     * chooses the device then gets this error, not all kernels on the host. */
    const char *(*why_not)(void);
    /* What its results depend on besides its name: a library that the program has opened. */
    void (*describe)(struct shoali_str *text);
    /* A hash of the same and of what the library chooses, for ranks to compare. The calling thread
     * has a device. */
    uint64_t (*digest)(void);
};
#define SHOALI_OPS_ABI 11u
extern const struct shoali_ops_table shoali_ops_ref;
/* NULL-terminated list of all built tables, best first. */
const struct shoali_ops_table *const *shoali_ops_all(void);
/* NULL when the table has no such kernel. */
const struct shoali_ops_entry *shoali_ops_entry(const struct shoali_ops_table *table,
                                                const struct shoali_kernel *kernel);

/* What a rank uses: chosen once, borrowed by everything. */
struct shoali_ops {
    const struct shoali_ops_table *chain[SHOALI_OPS_MAX_TABLES + 1]; /* best first, then NULL */
    const char *name;  /* of the best table: ranks compare it at init */
    int32_t host_from; /* in the chain: the first table of the host's memory */
    bool staged;       /* the device's memory is another: kernels of the host run staged */
    _Atomic int64_t *staged_calls; /* [kernel_count] counts them; borrowed, NULL: nobody asks */
    int32_t kernel_count;
    const struct shoali_kernel *kernels[SHOALI_OPS_MAX_KERNELS]; /* those of the chain's last */
    /* Of each kernel and table of the chain; NULL: the table does not have it. */
    const struct shoali_ops_entry *entries[SHOALI_OPS_MAX_KERNELS][SHOALI_OPS_MAX_TABLES];
    /* For which types each of them serves: its own, less what a rule says. */
    uint32_t dtypes[SHOALI_OPS_MAX_KERNELS][SHOALI_OPS_MAX_TABLES];
    /* Of the tables' names and of what rules take from them: ranks with equal digests use the same
     * functions. */
    uint64_t digest;
};
/* For an accelerator's memory. NULL: the host's, beside an accelerator; a name that means a table
 * of the accelerator's memory is passed over then. `name` NULL: SHOAL_OPS, else the best whose
 * probe is true and that no rule refuses. "ref" gives the oracle alone; "cpu-avx2" at most that.
 * SHOAL_ECONFIG lists the names when unknown; SHOAL_EUNSUPPORTED when the CPU lacks it, or when the
 * table is for another memory. */
SHOAL_CHECKED shoal_status shoali_ops_select(const char *name,
                                             const struct shoali_accelerator *accelerator,
                                             struct shoali_ops *ops);
/* The same from another list than shoali_ops_all(); its last table has every kernel. */
SHOAL_CHECKED shoal_status shoali_ops_select_from(const struct shoali_ops_table *const *tables,
                                                  const char *name,
                                                  const struct shoali_accelerator *accelerator,
                                                  struct shoali_ops *ops);
/* The part of a chain that works on the host's memory, as a chain of its own. */
void shoali_ops_host_of(const struct shoali_ops *ops, struct shoali_ops *host);

/* The first entry of the chain that takes these arguments. *table, unless NULL: whose it is. */
const struct shoali_ops_entry *shoali_ops_choose(const struct shoali_ops *ops,
                                                 const struct shoali_kernel *kernel,
                                                 const void *args,
                                                 const struct shoali_ops_table **table);
/* A kernel runs staged once more. */
void shoali_ops_count_staged(const struct shoali_ops *ops, const struct shoali_kernel *kernel);
/* The first table of the chain that has the kernel for a type, whatever its predicate says. */
const struct shoali_ops_table *shoali_ops_table_for(const struct shoali_ops *ops,
                                                    const struct shoali_kernel *kernel,
                                                    shoal_dtype dtype);

/* A hash for ranks to compare: ops->digest, and what the tables of a device's memory have chosen.
 * Appends what it is of, unless text is NULL. Ranks with equal hashes have equal bits. */
uint64_t shoali_ops_digest(const struct shoali_ops *ops, struct shoali_str *text);
/* For `shoal report`: whether a table of the list is used, and if not, why; the kernels by name,
 * which table serves them for a dtype (for all arguments of it or, *partly, for some), and in one
 * line which ones another serves than the best of those tables that have most kernels. */
void shoali_ops_describe_table(const struct shoali_ops *ops, const struct shoali_ops_table *table,
                               struct shoali_str *text);
const char *shoali_ops_kernel_name(const struct shoali_ops *ops, int32_t index);
const char *shoali_ops_kernel_source(const struct shoali_ops *ops, int32_t index, shoal_dtype dtype,
                                     bool *partly);
/* How the kernel that serves a product (struct shoali_gemm_args) cuts it; "" where it has nothing
 * to say. */
void shoali_ops_explain_gemm(const struct shoali_ops *ops, const void *args, int32_t threads,
                             struct shoali_str *text);
void shoali_ops_describe_fallbacks(const struct shoali_ops *ops, struct shoali_str *text);
/* The kernels that run staged for F32 or BF16, by name; "": none. */
void shoali_ops_describe_staged(const struct shoali_ops *ops, struct shoali_str *text);

/* Runs a kernel directly on host memory, on the calling thread, without a device. The arguments are
 * right: a mistake is ours. */
void shoali_ops_run(const struct shoali_ops *ops, const struct shoali_kernel *kernel,
                    const void *args);

#endif
