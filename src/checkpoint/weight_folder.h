/* weight_folder - weights that others have written, or that a checkpoint of ours is for others.
 *
 *   DIR/model.safetensors               all tensors; or
 *   DIR/model.safetensors.index.json    {"weight_map": {NAME: FILE, ...}}, and the files of it; or
 *   DIR/pytorch_model.bin, DIR/pytorch_model.bin.index.json     the same in torch.save's form
 *   otherwise what a row of weight_source.h reads: fp32 weights of DeepSpeed's checkpoints
 *
 * The first of these that is there is meant. Opening reads what files say of their tensors, and no
 * elements (formats/formats.h). Any range of elements is then read as fp32, bf16 or fp16, whatever
 * the file has, in pieces of at most 16 MiB. Each rank reads what it holds.
 *
 * NAMES. The models of the Hub are published under several names for one thing. A name of ours is
 * looked for as it is; else
 *   - without the model's own name in front ("transformer.", "model.", "bert."): files of a model
 *     without its head have none; or with what a wrapper puts there ("module.", "_orig_mod.");
 *   - of a norm in old files: gamma and beta instead of weight and bias.
 * Which of the first two holds is one decision for the whole folder: the one that finds most.
 *
 * WHAT IS LEFT. Buffers that follow from the model's options (causal masks, inverse frequencies,
 * position numbers) are no parameters and are passed over, and so are BERT's heads for pairs of
 * texts where the model has none. A further name of a tied tensor may be there, if it says the
 * same. Everything else that one side has and the other does not, or in another shape, is listed in
 * one sentence; what is missing or extra is a line of the log with `not_strict`.
 *
 * A VOCABULARY is often padded here and not there. A tensor whose first dimension is vocab_rows in
 * the file may have more rows here, those that the file does not have are zeros, or fewer: the last
 * ones of the file are left out.
 */
#ifndef SHOALI_CHECKPOINT_WEIGHT_FOLDER_H
#define SHOALI_CHECKPOINT_WEIGHT_FOLDER_H

#include "checkpoint/checkpoint.h"
#include "formats/formats.h"

enum { SHOALI_WEIGHT_PIECE_BYTES = 16 << 20 };

struct shoali_folder_tensor {
    const struct shoali_file_tensor *weight; /* of the file's view */
    shoal_shape shape;                       /* ndim -1: of more dimensions than this project has */
    shoal_dtype dtype;                       /* F32, BF16, F16 or F64; SHOAL_DTYPE_COUNT: another */
    int32_t file;                            /* of a source: the index of the tensor there */
    int64_t lost; /* finite numbers that reading in a narrower type made infinite */
};
struct shoali_folder_file {
    const char *name;
    struct shoali_tensor_file view;
};
struct shoali_weight_folder {
    struct shoali_arena arena;
    const char *dir;
    struct shoali_folder_file *file;
    int32_t file_count;
    struct shoali_folder_tensor *tensor; /* by name */
    int32_t tensor_count;
    const struct shoali_weight_source *source; /* NULL: of files */
    void *opened;                              /* by the source */
    char *raw;                                 /* SHOALI_WEIGHT_PIECE_BYTES */
};
/* SHOAL_ENOENT: DIR has no such files. SHOAL_EINVAL, SHOAL_ECONFIG: a sentence with file and
 * tensor. `close` in any case. */
SHOAL_CHECKED shoal_status shoali_weight_folder_open(struct shoali_weight_folder *folder,
                                                     const char *dir);
/* The tensors of one kind of a checkpoint of ours, whose folder DIR/TAG is `dir`. SHOAL_ENOENT: it
 * is no checkpoint, or has no such kind. */
SHOAL_CHECKED shoal_status shoali_weight_folder_open_kind(struct shoali_weight_folder *folder,
                                                          const char *dir, const char *kind);
/* Also of one that is all zero. */
void shoali_weight_folder_close(struct shoali_weight_folder *folder);
/* -1: none. */
int32_t shoali_weight_folder_find(const struct shoali_weight_folder *folder, const char *name);
/* Elements [first, first + count) of a tensor of F32, BF16, F16 or F64, as `dtype`: F32, BF16 or
 * F16. 16 bits are made of others by rounding to nearest even. What the type does not hold becomes
 * infinite and is counted in `lost`. */
SHOAL_CHECKED shoal_status shoali_weight_folder_read(struct shoali_weight_folder *folder,
                                                     int32_t tensor, int64_t first, int64_t count,
                                                     shoal_dtype dtype, void *out);
/* Finite fp32 numbers that would become infinite in `dtype`. */
int64_t shoali_weight_lost(const float *values, int64_t count, shoal_dtype dtype);
/* Counts them for a tensor. */
void shoali_weight_count_lost(struct shoali_weight_folder *folder, int32_t tensor,
                              const float *values, int64_t count, shoal_dtype dtype);
/* What `found` lost (count entries, -1: none), in words: "3 numbers are beyond the range of fp16
 * (65504): `a` (2), `b` (1)". False: nothing. */
bool shoali_weight_describe_lost(const struct shoali_weight_folder *folder, const int32_t *found,
                                 int32_t count, shoal_dtype dtype, struct shoali_str *out);

/* The same of tensors that are added one by one; an end releases `names`. */
struct shoali_weight_lost {
    int64_t lost;
    int32_t tensors;
    struct shoali_str names;
};
void shoali_weight_lost_add(struct shoali_weight_lost *sum, const char *name, int64_t lost);
bool shoali_weight_lost_end(struct shoali_weight_lost *sum, shoal_dtype dtype,
                            struct shoali_str *out);

/* What a model wants of a folder. */
struct shoali_weight_want {
    const char *const *names;
    const shoal_shape *shapes; /* of the wholes */
    int32_t count;
    const struct shoali_checkpoint_alias *aliases;
    int32_t alias_count;
    int64_t vocab_rows; /* see above; 0: nothing is padded */
    bool not_strict;
    bool quiet; /* what `not_strict` lets pass is not said */
};
/* found[i]: the tensor of the folder for name i; -1: none (not_strict). SHOAL_EINVAL lists what is
 * wrong. */
SHOAL_CHECKED shoal_status shoali_weight_match(const struct shoali_weight_folder *folder,
                                               const struct shoali_weight_want *want,
                                               int32_t *found);
/* Tied tensors that the folder has under both names must be equal: SHOAL_EINVAL names them. Reads
 * them. */
SHOAL_CHECKED shoal_status shoali_weight_compare_tied(struct shoali_weight_folder *folder,
                                                      const struct shoali_weight_want *want,
                                                      const int32_t *found);
/* ---- two folders (weight_diff.c) ------------------------------------------------------------- */

/* Whether PATH is a folder of weights, or a checkpoint of another program. */
bool shoali_weight_folder_probe(const char *path);
/* Compares the weights of two folders as fp32, of which each may also be a checkpoint of ours. */
SHOAL_CHECKED shoal_status shoali_weight_diff(const char *const paths[2], struct shoali_str *out,
                                              bool *equal);

/* ---- writing -------------------------------------------------------------------------------- */

/* A folder that is written beside its place, OUT.partial, and moved there when it is whole. */
struct shoali_weight_output {
    struct shoali_arena arena;
    const char *final, *partial;
    bool begun; /* partial is this one's */
};
/* SHOAL_EINVAL: OUT is there, and not an empty folder. An OUT.partial that died is replaced. */
SHOAL_CHECKED shoal_status shoali_weight_output_begin(struct shoali_weight_output *output,
                                                      const char *out);
/* With what went before: moves the folder into place, or removes it. */
SHOAL_CHECKED shoal_status shoali_weight_output_end(struct shoali_weight_output *output,
                                                    shoal_status status);
/* A file of the folder that is no weights. */
SHOAL_CHECKED shoal_status shoali_weight_output_file(struct shoali_weight_output *output,
                                                     const char *name, const void *data,
                                                     size_t bytes);
struct shoali_weight_write_args {
    const char *const *names;
    const shoal_shape *shapes;
    int32_t count;
    shoal_dtype dtype;       /* of all of them */
    int64_t max_shard_bytes; /* 0: 5 GB */
    void *user;
    /* Elements [first, first + count) of a tensor, at most 16 MiB of them. */
    shoal_status (*read)(void *user, int32_t tensor, int64_t first, int64_t count, void *out);
};
/* model.safetensors, or several files and their index, in the order of `names`. */
SHOAL_CHECKED shoal_status shoali_weight_write(struct shoali_weight_output *output,
                                               const struct shoali_weight_write_args *args);

/* All ranks of the group (NULL: one) get the status of the lowest failing one, and its sentence:
 * the one call of this header that is
 * collective. */
SHOAL_CHECKED shoal_status shoali_weight_agree(shoal_group *group, shoal_status status);

#endif
