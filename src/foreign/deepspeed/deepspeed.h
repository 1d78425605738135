/* deepspeed - checkpoints that DeepSpeed wrote, as tensors under their names.
 *
 *   DIR/latest                                              the tag
 *   DIR/TAG/mp_rank_00_model_states.pt                      weights and numbers (stages 0 to 2)
 *   DIR/TAG/zero_pp_rank_R_mp_rank_00_model_states.pt       of rank R (stage 3)
 *   DIR/TAG/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt   masters and states of rank R (1 to 3)
 *   DIR/latest_universal, DIR/TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt   universal
 *
 * Where the elements of a parameter lie:
 *   stages 1, 2   the parameters of a group, in the order of param_shapes, behind each other, each
 *                 followed by the padding that param_alignment_paddings says (newer versions), are
 * one
 *                 vector; rank R has the R-th part of it. States are cut alike.
 *   stage 3       each parameter is cut into as many parts as there are ranks, of equal size, the last
 *                 one padded; a rank's parts, in the order of param_shapes over all groups, are one
 *                 vector that is cut into sub-groups.
 *   stage 0       whole tensors in the order of the optimizer's groups. The file does not say which
 *                 parameters those are: plain.c finds it out by their shapes, or refuses.
 *   universal     a file for each.
 * Frozen parameters have weights (stage 3: cut as above) and no states, shared ones the name of
 * another. Ranks of tensor or pipeline parallelism are refused: DeepSpeed's ds_to_universal joins
 * them.
 *
 * Opening reads what the files say of themselves, one file after the other. What stays is a list of
 * places: {file, byte, elements}; reading elements opens the file again.
 *
 *   folder.c       the folder, and what all stages share; zero.c, plain.c, universal.c: one each
 *   optimizer.c    numbers of an optimizer
 *   load.c         into an engine: the row of the engine's table
 *   weights.c      weights as tensors: the row of weight_source.h
 *   export.c       a checkpoint of Shoal as a universal one
 */
#ifndef SHOALI_DEEPSPEED_H
#define SHOALI_DEEPSPEED_H

#include "formats/formats.h"

enum { SHOALI_DEEPSPEED_KINDS = 8 };
/* The key of an optimizer's file by which an export of Shoal says which optimizer it is of. */
#define SHOALI_DEEPSPEED_FORMULA "shoal_optimizer_formula"

/* Elements [begin, begin + count) of a parameter. */
struct shoali_deepspeed_piece {
    int32_t file;
    enum shoali_element type;
    int64_t at; /* byte of the file */
    int64_t begin, count;
};
struct shoali_deepspeed_pieces {
    struct shoali_deepspeed_piece *piece; /* rising; from the arena */
    int32_t count, capacity;
    int64_t covered; /* elements */
};
struct shoali_deepspeed_param {
    const char *name;
    shoal_shape shape;
    int64_t count; /* elements */
    bool frozen;   /* not trained: no states */
    struct shoali_deepspeed_pieces kind[SHOALI_DEEPSPEED_KINDS];
};
struct shoali_deepspeed_shared {
    const char *name, *source;
};
/* What is not known is -1; texts NULL. */
struct shoali_deepspeed_numbers {
    int64_t global_steps, skipped_steps, global_samples, train_batch_size;
    int64_t optimizer_step;       /* t of Adam */
    int64_t last_batch_iteration; /* of the learning-rate schedule: steps it has seen, less one */
    double loss_scale;
    bool dynamic_loss_scale;
    int64_t scaler_iteration, scaler_last_overflow, scaler_hysteresis_left;
    int32_t stage; /* -1: universal */
    int32_t ranks;
    const char *version, *dtype; /* "F32", "BF16", "F16" */
    const char *optimizer;       /* "adam" for both of its kinds, "lamb", "sgd", "adafactor" */
    int32_t decoupled;           /* Adam's weight decay: 1 yes, 0 no */
    const char *formula;         /* of states that Shoal has written */
};
struct shoali_deepspeed {
    struct shoali_arena arena;
    const char *folder, *tag; /* DIR/TAG */
    struct shoali_deepspeed_param *param;
    int32_t param_count, param_capacity;
    struct shoali_deepspeed_shared *shared;
    int32_t shared_count;
    const char *kind[SHOALI_DEEPSPEED_KINDS]; /* "master", "exp_avg", ... */
    int32_t kind_count;
    struct shoali_deepspeed_numbers numbers;
    const char **path; /* of files */
    int32_t path_count, path_capacity;
    struct shoali_input open; /* the file that was read last */
    int32_t open_file;        /* -1: none */
};

/* Whether DIR/TAG (tag NULL: what latest or latest_universal says, or DIR itself) is of
 * DeepSpeed. */
bool shoali_deepspeed_is(const char *dir, const char *tag);
/* DIR/TAG of such a checkpoint: owned (free()); NULL: no memory, or there is none. */
char *shoali_deepspeed_folder(const char *dir, const char *tag);
/* SHOAL_EINVAL: something is missing or damaged, named. SHOAL_EUNSUPPORTED: its layout. Closed in
 * any case by `close`. */
SHOAL_CHECKED shoal_status shoali_deepspeed_open(const char *dir, const char *tag,
                                                 struct shoali_deepspeed *checkpoint);
void shoali_deepspeed_close(struct shoali_deepspeed *checkpoint);
/* -1: none of that name. A shared name gives the parameter it stands for. */
int32_t shoali_deepspeed_find(const struct shoali_deepspeed *checkpoint, const char *name);
int32_t shoali_deepspeed_find_kind(const struct shoali_deepspeed *checkpoint, const char *kind);
/* Elements [first, first + count) of a parameter; of a frozen one's states zeros. */
SHOAL_CHECKED shoal_status shoali_deepspeed_read(struct shoali_deepspeed *checkpoint, int32_t param,
                                                 int32_t kind, int64_t first, int64_t count,
                                                 float *out);

/* ---- between its files ---------------------------------------------------------------------- */

struct shoali_value;
/* The index of a path; -1: no memory. */
int32_t shoali_deepspeed_path(struct shoali_deepspeed *checkpoint, const char *path);
/* NULL: no memory. */
struct shoali_deepspeed_param *shoali_deepspeed_add(struct shoali_deepspeed *checkpoint,
                                                    const char *name, const shoal_shape *shape);
/* The index of a kind, which is added; -1: too many. */
int32_t shoali_deepspeed_kind(struct shoali_deepspeed *checkpoint, const char *name);
/* `count` elements of a tensor, from its element `from` on, are those from `begin` on of a
 * parameter's kind. Pieces come in order. */
struct shoali_deepspeed_place {
    int32_t file, kind;
    const struct shoali_file_tensor *tensor;
    int64_t from, begin, count;
};
SHOAL_CHECKED shoal_status shoali_deepspeed_place(struct shoali_deepspeed *checkpoint,
                                                  struct shoali_deepspeed_param *param,
                                                  const struct shoali_deepspeed_place *place);
/* A shape that a value holds; false: it is none. */
bool shoali_deepspeed_shape(const struct shoali_value *value, shoal_shape *shape);
/* An integer of a dictionary, if it is there. */
void shoali_deepspeed_take_int(const struct shoali_value *root, const char *key, int64_t *number);
/* Numbers of model states, and of an optimizer's; what is there is taken. */
void shoali_deepspeed_optimizer_numbers(struct shoali_deepspeed *checkpoint,
                                        const struct shoali_value *optimizer);
/* An optimizer's `step`: a number, or a tensor of one. */
SHOAL_CHECKED shoal_status shoali_deepspeed_step(struct shoali_deepspeed *checkpoint,
                                                 struct shoali_tensor_file *file,
                                                 const struct shoali_value *step);
/* Parameters of param_shapes and frozen_param_shapes, in their order; group_end[g]: of group g. */
SHOAL_CHECKED shoal_status shoali_deepspeed_take_shapes(struct shoali_deepspeed *checkpoint,
                                                        const struct shoali_tensor_file *file,
                                                        const struct shoali_value *root,
                                                        int32_t group_end[64], int32_t *groups);

/* zero.c: stages 1 to 3. model: the first file of model states, open. */
SHOAL_CHECKED shoal_status shoali_deepspeed_open_zero(struct shoali_deepspeed *checkpoint,
                                                      struct shoali_tensor_file *model,
                                                      const char *const *files, int32_t count);
/* plain.c: stage 0. */
SHOAL_CHECKED shoal_status shoali_deepspeed_open_plain(struct shoali_deepspeed *checkpoint,
                                                       struct shoali_tensor_file *model);
/* universal.c; model as above. */
SHOAL_CHECKED shoal_status shoali_deepspeed_open_universal(struct shoali_deepspeed *checkpoint,
                                                           struct shoali_tensor_file *model);

#endif
