/* checkpoint - what the files of this room share (save.h has the list). */
#ifndef SHOALI_ENGINE_CHECKPOINT_H
#define SHOALI_ENGINE_CHECKPOINT_H

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"

enum { SHOALI_ENGINE_KINDS = 8 };

/* narrowing.c: how many numbers the 16-bit type of the computation does not hold. */
struct shoali_narrowing {
    const struct shoal_engine *engine;
    int64_t *lost; /* of each parameter; NULL: the type holds all */
};
SHOAL_CHECKED shoal_status shoali_narrowing_init(struct shoali_narrowing *narrowing,
                                                 const struct shoal_engine *engine);
/* Also of zeros. */
void shoali_narrowing_fini(struct shoali_narrowing *narrowing);
/* Elements [first, first + count) of the flat space. */
void shoali_narrowing_count(struct shoali_narrowing *narrowing, int64_t first, const float *values,
                            int64_t count);
/* SHOAL_EINVAL: there are some; the sentence names tensors. Collective. */
SHOAL_CHECKED shoal_status shoali_narrowing_check(const struct shoali_narrowing *narrowing,
                                                  const char *where);

/* One kind of zero's, as checkpoint/ sees it. */
struct shoali_kind_access {
    const struct shoal_engine *engine;
    struct shoali_zero *zero;
    int32_t kind;
    shoal_dtype rounded; /* of the file, when its elements are only compared with kind 0's */
    struct shoali_narrowing *narrowing; /* of fp32 weights; NULL: not counted */
};

/* Everything checkpoint/ needs to know of this engine's tensors. */
struct shoali_engine_tensors {
    const char **names;
    shoal_shape *shapes;
    const struct shoali_shard **shards;
    struct shoali_checkpoint_kind kind[SHOALI_ENGINE_KINDS];
    struct shoali_kind_access access[SHOALI_ENGINE_KINDS];
    struct shoali_checkpoint_range *ranges[SHOALI_ENGINE_KINDS]; /* owned */
    shoal_shape *kind_shapes[SHOALI_ENGINE_KINDS];     /* owned; NULL: those of the parameters */
    struct shoali_shard *nothing[SHOALI_ENGINE_KINDS]; /* owned: of kind_shapes, for kind_shards */
    const struct shoali_shard **kind_shards[SHOALI_ENGINE_KINDS]; /* owned */
    int32_t kind_count;
    struct shoali_checkpoint_alias *aliases; /* owned */
    struct shoali_narrowing narrowing;       /* owned */
};

SHOAL_CHECKED shoal_status shoali_engine_tensors_init(struct shoali_engine_tensors *tensors,
                                                      const struct shoal_engine *engine);
/* Also after an init that failed, and of zeros. */
void shoali_engine_tensors_fini(struct shoali_engine_tensors *tensors);
/* All kinds of this engine. Snapshot: as they are in zero's, read by another thread. */
SHOAL_CHECKED shoal_status shoali_engine_tensors_add_all(struct shoali_engine_tensors *tensors,
                                                         const struct shoal_engine *engine,
                                                         bool snapshot);
/* One of zero's kinds, under another name than its own, or NULL. */
SHOAL_CHECKED shoal_status shoali_engine_tensors_add(struct shoali_engine_tensors *tensors,
                                                     const struct shoal_engine *engine,
                                                     int32_t index, const char *name);
/* Borrows from tensors and engine. */
struct shoali_checkpoint_args
shoali_engine_checkpoint_args(const struct shoali_engine_tensors *tensors,
                              const struct shoal_engine *engine, const char *dir, const char *tag);
/* The manifest's `engine` object; *text is owned (free()). */
SHOAL_CHECKED shoal_status shoali_engine_numbers(const struct shoal_engine *engine, char **text);

/* ---- states.c ---- */

struct shoali_stored_states {
    const char *where;     /* for sentences: "the checkpoint DIR/TAG" */
    const char *optimizer; /* name; NULL: not known */
    const char *formula;   /* as shoali_optimizer_formula; NULL: not known */
    const char *const *kind;
    int32_t kind_count;
    bool all_states; /* each kind but the weights is a state of the optimizer */
};
/* SHOAL_EINVAL: this run's optimizer would take them for something else, or lose some. */
SHOAL_CHECKED shoal_status shoali_engine_check_states(const struct shoal_engine *engine,
                                                      const struct shoali_stored_states *stored);
/* What the manifest has of the optimizer beside its name: into `engine`. False: no memory. */
bool shoali_engine_add_optimizer(struct json_t *object, const struct shoali_optimizer *optimizer);
/* Lines about numbers of the optimizer that are not the checkpoint's. */
void shoali_engine_log_optimizer(const struct shoal_engine *engine, const struct json_t *object);
/* The same as check_states of a checkpoint of Shoal in `folder`. */
SHOAL_CHECKED shoal_status shoali_engine_check_stored(const struct shoal_engine *engine,
                                                      const struct shoali_checkpoint_info *info,
                                                      const char *folder);
/* After a load: begins anew what lives across steps and is in no checkpoint. `warn`: a line names
 * it. */
void shoali_engine_forget_unsaved(struct shoal_engine *engine, bool warn);

/* ---- options.c ---- */

/* Adds `options` to the manifest's `engine` object. */
SHOAL_CHECKED shoal_status shoali_engine_add_options(struct json_t *object,
                                                     const struct shoal_engine *engine);
/* Appends to `other` the keys with other values than the checkpoint's, "gradient_clipping 1 (not
 * 0), ...". `optimizer`: those of optimizer and schedule, too. */
SHOAL_CHECKED shoal_status shoali_engine_compare_options(const struct shoal_engine *engine,
                                                         const struct json_t *object,
                                                         bool optimizer, struct shoali_str *other);

/* ---- background.c ---- */

struct shoali_save_request {
    const char *dir, *tag, *client_json; /* client_json NULL: none */
    bool tag_chosen;                     /* by the caller */
};
/* Saves beside the training: a thread with a group of its own. Zero's snapshot keeps what it has
 * not read yet. */
struct shoali_engine_saver;
/* Collective; makes zero's snapshot, too. In a plan both are only counted. */
SHOAL_CHECKED shoal_status shoali_engine_saver_create(struct shoal_engine *engine);
/* Waits for the save before this one, and returns when this one is at work. Collective. */
SHOAL_CHECKED shoal_status shoali_engine_saver_begin(struct shoal_engine *engine,
                                                     const struct shoali_save_request *request);
/* Waits for the save at work. NULL is fine. */
void shoali_engine_saver_destroy(struct shoali_engine_saver *saver);
/* The bits of SHOALI_ZERO_... that a step passes on. Not collective. */
uint32_t shoali_engine_asks(struct shoal_engine *engine);
/* After the verdict. An error: the save at work has failed on some rank, and so on this one. */
SHOAL_CHECKED shoal_status shoali_engine_receive_verdict(struct shoal_engine *engine,
                                                         const struct shoali_zero_verdict *verdict);

#endif
