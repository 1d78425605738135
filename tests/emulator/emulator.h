/* emulator - runs kernels for GPUs, which are C, on the host. Tests only.
 *
 * A library that stands in for NVIDIA's driver: SHOAL_CUDA_DRIVER names it, and the product calls
 * it as it would call libcuda.so.1. Kernels are compiled into it from the text that nvcc takes too
 * (src/ops/cuda/kernels/).
 *
 *   driver.c       the driver's functions: memory, streams, events, launches, errors
 *   threads.c      a launch: each thread of a block is a fiber
 *   operations.c   what the threads of a warp do together
 *   matrices.c     the same for tensor cores: products and fragments of matrices
 *   blas.c         stands in for cuBLASLt
 *   checked/       a second build that looks at each access of a kernel: emulator_checks.h
 *
 * THREADS. A fiber runs until it meets the others: all threads of the block at a barrier, all lanes
 * of a warp at a warp operation. The last lane that arrives does the operation for all of them.
 * Blocks run one after the other. SHOAL_EMULATOR_ORDER says in which order threads run: forward,
 * reverse or random. A result that depends on it is a mistake of the kernel.
 *
 * A finding is one line on stderr and the end of the process. What is found:
 *
 *   deadlock     Threads wait for each other for ever.
 *   barrier      Some threads never reach a barrier, or they reach it on another line.
 *   warp         A warp operation has other lanes than it names.
 *   copy         Nobody waited for a copy to shared memory, which arrives at the wait.
 *   shared       A kernel reads shared memory that nobody wrote. The value is NaN.
 *
 * STREAMS run late (when the host waits or asks) or, with SHOAL_EMULATOR_STREAMS=random, at any
 * time. Memory of the device is closed to the host except while a kernel or a copy runs. As a GPU's
 * driver, it waits for all streams when memory is freed, holds a caller whose stream is full, and
 * refuses calls of a thread without a context. It copies pageable memory with its lock held.
 *
 * SHOAL_EMULATOR_FAIL=FUNCTION[:SKIP]=CODE makes a call of a function of the driver or of cuBLASLt
 * return a code, after so many that do not. Codes that a GPU does not recover from are returned by
 * all later calls.
 * SHOAL_EMULATOR_SLOW=FUNCTION makes calls of a function begin a millisecond late, for races.
 */
#ifndef SHOAL_TEST_EMULATOR_H
#define SHOAL_TEST_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A kernel as the text for the emulator declares it. */
struct emulator_kernel {
    void (*run)(const void *args);
    size_t args_bytes;
    int threads; /* of a block, at most */
};
struct emulator_launch {
    const struct emulator_kernel *kernel;
    const void *args;
    unsigned grid[3], block[3];
    size_t shared_bytes;
};
/* Runs all blocks. One launch at a time. */
void emulator_run(const struct emulator_launch *launch);

/* ---- what the text of a kernel sees (src/ops/cuda/kernels/device.h) ---- */

struct emulator_place {
    unsigned thread, block, block_y;
};
extern struct emulator_place emulator_here; /* of the running thread */
extern unsigned emulator_threads, emulator_blocks, emulator_blocks_y;
void *emulator_shared(size_t bytes, const char *where);
void emulator_barrier(const char *where);
/* A warp operation: called once, with what each lane of the mask gave. */
typedef void (*emulator_operation)(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_warp(emulator_operation operation, uint32_t mask, const void *in, void *out,
                   const char *where);
/* Copies to shared memory that arrive when the thread waits for their group. */
void emulator_copy_later(void *to, const void *from, size_t bytes, const char *where);
/* The same with zeros, which arrive when a copy would. */
void emulator_zeros_later(void *to, size_t bytes, const char *where);
void emulator_commit(void);
void emulator_wait(int groups);
/* Operations: lanes exchange values by xor of their number, or take lane `in.lane`'s. */
struct emulator_lane_f32 {
    float x;
    int lanes;
};
struct emulator_lane_i64 {
    int64_t x;
    int lanes;
};
struct emulator_lane_f64 {
    double x;
    int lanes;
};
void emulator_xor_f32(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_xor_i64(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_xor_f64(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_ballot(const void *const in[32], void *const out[32], uint32_t mask);
/* out: the lane's registers of C, which become those of D. */
struct emulator_mma {
    const uint32_t *a, *b;
};
void emulator_mma_bf16(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_mma_f16(const void *const in[32], void *const out[32], uint32_t mask);
/* in: where a row of a matrix lies in shared memory; out: a register for each matrix. */
void emulator_matrices4(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_matrices4_transposed(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_matrices2(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_matrices2_transposed(const void *const in[32], void *const out[32], uint32_t mask);
void emulator_nothing(const void *const in[32], void *const out[32], uint32_t mask);
/* For an operation that reads shared memory: an access of one of its lanes, aligned to its size. */
void emulator_lane_reads(int lane, const void *address, size_t bytes);
_Noreturn void emulator_finding(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
