/* hashes - fingerprints: what each tensor of a run was after each step, in a few numbers that do
 * not depend on who held which part of it. Level L1.
 *
 * A *fingerprint* is a struct of sums of 64-bit integers over the elements (index, value) of a
 * tensor. Sums wrap, so they have no order: ranks add what they hold, one all-reduce adds the
 * ranks, and the result is the same bits for any layout. Its members are
 *
 * - hash: of all (index, bits).
 * - square: of the norm; mantissas squared, one counter per 4 exponents.
 * - sketch: 8 counters; each element is added to one of them, with a sign, both chosen by its index
 *   alone (a count sketch). The sum of the squares of the counters of A minus those of B is on
 *   average the square of the norm of A - B, within a factor of 2 or so, and exact for a difference
 *   in one element. One word per 16 exponents, so nothing is rounded.
 * - nonfinite: how many are NaN or infinite; those are left out of square, sketch and largest.
 *
 * The file (JSON lines, written by one rank) begins with a line that says what the format is. Each
 * step adds: a line of numbers (loss, norm, lr); a line per tensor and kind, in the order in which
 * they come about: "gradient", optimizer states, "weight". Before the first step of a run stand the
 * weights that it began with ("start"). Two runs are compared in this order: of the first line that
 * differs, all that it was computed from was equal, so one step's rounding bounds the difference.
 */
#ifndef SHOALI_HASHES_H
#define SHOALI_HASHES_H

#include "base/base.h"
#include "base/str.h"

enum {
    SHOALI_SKETCH_COUNTERS = 8,
    SHOALI_SKETCH_WORDS = 16, /* of a counter: 256 exponents */
    SHOALI_SQUARE_WORDS = 64
};
struct shoali_fingerprint { /* all members are words to be added */
    uint64_t hash, nonfinite;
    uint64_t sketch[SHOALI_SKETCH_COUNTERS][SHOALI_SKETCH_WORDS];
    uint64_t square[SHOALI_SQUARE_WORDS];
};
#define SHOALI_FINGERPRINT_WORDS ((int64_t)(sizeof(struct shoali_fingerprint) / sizeof(uint64_t)))

/* Adds elements [first, first + count) of a tensor. *largest: the bits of the largest magnitude,
 * to be combined by maximum; begin with 0. */
void shoali_fingerprint_add(struct shoali_fingerprint *sums, int64_t *largest, int64_t first,
                            const float *values, int64_t count);

/* What is written of it. */
struct shoali_hash {
    uint64_t hash;
    int64_t nonfinite;
    double norm, largest;
    double sketch[SHOALI_SKETCH_COUNTERS];
};
void shoali_fingerprint_finish(const struct shoali_fingerprint *sums, int64_t largest,
                               struct shoali_hash *hash);

/* ---- lines ---- */

/* What bounds rounding; of exact sums the same for all layouts. */
struct shoali_hashes_facts {
    const char *dtype;     /* of weights and activations: "F32" */
    const char *kernels;   /* which ones computed: "cpu-avx2" */
    int64_t micro_batches; /* of a step */
    int64_t tensors, elements;
    int64_t tensor_splits, sequence_splits; /* of exact sums (exact_splits); 1 are not written */
    /* Of fast sums: micro-batches of a rank, by which losses are divided before backward; ranks
     * that share a matrix. 1 are not written. */
    int64_t accumulation, tensor_ranks;
};
struct shoali_hashes_step {
    int64_t step;      /* from 1 */
    const char *dtype; /* as in the facts; a run that is continued may have another one */
    double loss, grad_norm, lr, loss_scale;
    bool applied;
};
void shoali_hashes_append_step(struct shoali_str *out, const struct shoali_hashes_step *step);
void shoali_hashes_append_tensor(struct shoali_str *out, int64_t step, const char *kind,
                                 const char *tensor, int64_t count, const struct shoali_hash *hash);

/* The file's name in a run's output folder. */
#define SHOALI_HASHES_FILE "hashes.jsonl"

/* Appends to FOLDER/hashes.jsonl (FOLDER NULL or "": the current one; it is made); `fresh` begins
 * the file anew. A new file begins with the facts. All is written or nothing; what a run that died
 * has left of a line is cut off. SHOAL_EIO names the file. */
SHOAL_CHECKED shoal_status shoali_hashes_write(const char *folder, bool fresh,
                                               const struct shoali_hashes_facts *facts,
                                               const struct shoali_str *text);

/* ---- comparing ---- */

/* Compares the steps that both files have, and says in lines of text what was found. A last step
 * that is not whole does not count. rounding: the difference is within it. */
struct shoali_hashes_verdict {
    bool equal, rounding;
};
SHOAL_CHECKED shoal_status shoali_hashes_diff(const char *path_a, const char *path_b,
                                              struct shoali_str *out,
                                              struct shoali_hashes_verdict *verdict);

#endif
