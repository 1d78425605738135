/* checkpoint_model - a made-up model, held by any number of thread ranks, for the checkpoint tests.
 *
 * Every byte of every kind is a function of (content, kind, element), so any rank can fill its part
 * and check it after a load under another layout.
 */
#ifndef CHECKPOINT_MODEL_H
#define CHECKPOINT_MODEL_H

#include "checkpoint/checkpoint.h"

enum { MODEL_TENSORS_MAX = 64, MODEL_KINDS_MAX = 4, MODEL_RANKS_MAX = 4, MODEL_PIECES_MAX = 4 };

struct model_kind {
    const char *name;
    shoal_dtype dtype;
    bool replicated;
};
struct model {
    char name_text[MODEL_TENSORS_MAX][32];
    const char *names[MODEL_TENSORS_MAX];
    shoal_shape shapes[MODEL_TENSORS_MAX];
    int32_t tensor_count;
    struct shoali_checkpoint_alias aliases[4];
    int32_t alias_count;
    struct model_kind kinds[MODEL_KINDS_MAX];
    int32_t kind_count;
    int64_t flat_count, max_shard_bytes;
};
/* Random shapes: scalars, empty tensors and up to 5 dims; tensors of at most `dim_max` per dim. */
void model_random(struct model *model, uint64_t seed, int64_t dim_max);
void model_add(struct model *model, const char *name, shoal_shape shape);
void model_add_kind(struct model *model, const char *name, shoal_dtype dtype, bool replicated);

/* One save or load by `ranks` thread ranks (1: without a group). */
struct model_run {
    const struct model *model;
    const char *dir, *tag;
    int32_t ranks;
    int32_t pieces;   /* ranges that each rank holds of a kind; 0: one, given as begin and count */
    uint64_t layout;  /* seed of where the parts are cut, and in which order ranks hold them */
    uint64_t content; /* seed of the values */
    int64_t step;
    const char *client_json;
    bool default_tag;       /* the tag is not the user's choice */
    bool override_existing; /* later steps may be replaced */
    struct shoali_checkpoint_keep keep;
    const char *fault;     /* armed on every rank ("@1" names one); NULL none */
    double timeout_s;      /* of collectives; 0: a minute */
    int32_t refusing_rank; /* whose read or write fails; -1 none */
    /* results */
    shoal_status status[MODEL_RANKS_MAX];
    bool fired[MODEL_RANKS_MAX]; /* the fault did, on this rank */
    char message[MODEL_RANKS_MAX][2048];
};
void model_save(struct model_run *run);
/* Loads and, where that succeeds, asserts every byte. */
void model_load(struct model_run *run);
/* Both assert that all ranks left with this status. */
void model_save_expect(struct model_run *run, shoal_status status);
void model_load_expect(struct model_run *run, shoal_status status);

/* A folder, a small model and a run on it, for tests that save and load it again and again. */
struct fixture {
    char dir[64];
    struct model model;
    struct model_run run;
};
/* cmocka's set-up and tear-down of a test: *state is a struct fixture with the tensors a, b and c,
 * and a run of two ranks that saves the tag "one". */
int model_set_up(void **state);
int model_tear_down(void **state);
/* Asserts that the message has the part. */
void model_expect_text(const char *message, const char *part);

/* A fresh folder, removed with everything in it by model_folder_remove. */
void model_folder_make(char path[64]);
void model_folder_remove(const char *path);
/* Whole file; asserts that it can be read. Owned by the caller (free()). */
char *model_read_file(const char *dir, const char *name, size_t *bytes);

#endif
