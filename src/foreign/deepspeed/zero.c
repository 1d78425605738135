/* Stages 1 to 3: the vectors of the ranks, file after file. */
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 64 };

struct reading {
    struct shoali_deepspeed *checkpoint;
    int32_t stage, ranks;
    int32_t group_end[GROUPS_MAX], groups; /* parameters */
    int64_t *padding;                      /* [params] elements behind each in its group's vector */
    int64_t *flat_begin;                   /* [params] where each begins in its group's vector */
    int64_t group_at[GROUPS_MAX];          /* stages 1, 2: elements of the ranks so far */
    int32_t rank, file;
    struct shoali_tensor_file *open; /* of the rank */
    const struct shoali_value *optimizer;
};

#define REFUSE(reading, ...) shoali_input_fail(&(reading)->open->input, -1, __VA_ARGS__)

/* A stage is a number, or an enumeration's member. */
static bool read_stage(const struct shoali_value *value, int64_t *stage)
{
    return shoali_value_int(value, stage) || (value && value->kind == SHOALI_VALUE_OBJECT &&
                                              shoali_value_int(shoali_value_at(value, 0), stage));
}

/* Per group, the largest counts. */
static bool read_count(const struct shoali_value *value, int64_t *count)
{
    if (shoali_value_int(value, count))
        return true;
    int64_t largest = 0, own = 0;
    for (int64_t i = 0; i < shoali_value_count(value); i++)
        if (shoali_value_int(shoali_value_at(value, i), &own) && own > largest)
            largest = own;
    *count = largest;
    return largest > 0;
}

/* ---- stages 1 and 2 ---- */

/* Where each parameter begins. */
static void lay_out(struct reading *reading)
{
    const struct shoali_value *paddings =
        shoali_value_get(reading->optimizer, "param_alignment_paddings");
    int32_t p = 0;
    for (int32_t g = 0; g < reading->groups; g++) {
        int64_t at = 0;
        const int32_t first = p;
        for (; p < reading->group_end[g]; p++) {
            int64_t padding = 0;
            (void)shoali_value_int(shoali_value_at(shoali_value_at(paddings, g), p - first),
                                   &padding);
            reading->flat_begin[p] = at;
            at += reading->checkpoint->param[p].count +
                  (padding > 0 && padding < INT32_MAX ? padding : 0);
        }
    }
}

/* The rank's vector of one kind and group has elements from group_at on. */
static shoal_status place_vector(struct reading *reading, int32_t group, int32_t kind,
                                 const struct shoali_file_tensor *vector, int64_t length)
{
    shoal_status status = SHOAL_OK;
    const int64_t begin = reading->group_at[group], end = begin + length;
    for (int32_t p = group > 0 ? reading->group_end[group - 1] : 0; p < reading->group_end[group];
         p++) {
        struct shoali_deepspeed_param *param = &reading->checkpoint->param[p];
        const int64_t first = reading->flat_begin[p], last = first + param->count;
        const int64_t low = first > begin ? first : begin, high = last < end ? last : end;
        const struct shoali_deepspeed_place place = {.file = reading->file,
                                                     .kind = kind,
                                                     .tensor = vector,
                                                     .from = low - begin,
                                                     .begin = low - first,
                                                     .count = high - low};
        if (low < high)
            SHOAL_TRY(status, shoali_deepspeed_place(reading->checkpoint, param, &place), done);
    }
done:
    return status;
}

/* The states of group g: {"state": {g: {...}}}, or in elastic checkpoints a list of them. */
static const struct shoali_value *states_of(const struct shoali_value *base, int64_t g)
{
    const struct shoali_value *state = shoali_value_get(base, "state");
    if (shoali_value_is_sequence(base))
        return shoali_value_at(base, g);
    for (int64_t i = 0; i < shoali_value_count(state); i++) {
        int64_t key;
        if (shoali_value_int(state->as.list.item[2 * i], &key) && key == g)
            return state->as.list.item[2 * i + 1];
    }
    return NULL;
}

/* Every tensor among the states that is as long as the masters is a kind. */
static shoal_status each_state(struct reading *reading, const struct shoali_value *states,
                               int32_t group, int64_t length,
                               shoal_status (*place)(struct reading *, int32_t, int32_t,
                                                     const struct shoali_file_tensor *, int64_t))
{
    shoal_status status = SHOAL_OK;
    for (int64_t i = 0; i < shoali_value_count(states); i++) {
        const char *name = shoali_value_text(states->as.list.item[2 * i]);
        const struct shoali_value *value = states->as.list.item[2 * i + 1];
        const struct shoali_file_tensor *tensor = shoali_value_tensor(value);
        if (name && strcmp(name, "step") == 0)
            SHOAL_TRY(status, shoali_deepspeed_step(reading->checkpoint, reading->open, value),
                      done);
        if (!name || !tensor || tensor->count < length || strcmp(name, "step") == 0)
            continue;
        const int32_t kind = shoali_deepspeed_kind(reading->checkpoint, name);
        if (kind < 0)
            return REFUSE(reading, "its optimizer has more than %d states per parameter",
                          SHOALI_DEEPSPEED_KINDS - 1);
        SHOAL_TRY(status, place(reading, group, kind, tensor, length), done);
    }
done:
    return status;
}

static shoal_status read_parts(struct reading *reading)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_value *vectors =
        shoali_value_get(reading->optimizer, "single_partition_of_fp32_groups");
    const struct shoali_value *base = shoali_value_get(reading->optimizer, "base_optimizer_state");
    if (shoali_value_count(vectors) != reading->groups)
        return REFUSE(reading, "it has fp32 weights of %lld groups, but param_shapes of %d",
                      (long long)shoali_value_count(vectors), (int)reading->groups);
    if (reading->rank == 0)
        lay_out(reading);
    for (int32_t g = 0; g < reading->groups; g++) {
        const struct shoali_file_tensor *vector = shoali_value_tensor(shoali_value_at(vectors, g));
        if (!vector)
            return REFUSE(reading, "its fp32 weights of group %d are not a tensor", (int)g);
        SHOAL_TRY(status, place_vector(reading, g, 0, vector, vector->count), done);
        SHOAL_TRY(status, each_state(reading, states_of(base, g), g, vector->count, place_vector),
                  done);
        reading->group_at[g] += vector->count;
    }
done:
    return status;
}

/* ---- stage 3 ---- */

/* Sub-group `group` of the rank's vector begins at group_at[0] of it; parameter p has its part of
 * it from flat_begin[p] on. */
static shoal_status place_parts(struct reading *reading, int32_t group, int32_t kind,
                                const struct shoali_file_tensor *vector, int64_t length)
{
    shoal_status status = SHOAL_OK;
    const int64_t begin = reading->group_at[0], end = begin + length;
    (void)group;
    for (int32_t p = 0; p < reading->group_end[reading->groups - 1]; p++) {
        struct shoali_deepspeed_param *param = &reading->checkpoint->param[p];
        const int64_t part = (param->count + reading->ranks - 1) / reading->ranks;
        const int64_t own = part * reading->rank; /* its first element is the rank's first */
        const int64_t left = param->count - own, held = left < part ? left : part;
        const int64_t first = reading->flat_begin[p], last = first + (held > 0 ? held : 0);
        const int64_t low = first > begin ? first : begin, high = last < end ? last : end;
        const struct shoali_deepspeed_place place = {.file = reading->file,
                                                     .kind = kind,
                                                     .tensor = vector,
                                                     .from = low - begin,
                                                     .begin = own + low - first,
                                                     .count = high - low};
        if (low < high)
            SHOAL_TRY(status, shoali_deepspeed_place(reading->checkpoint, param, &place), done);
    }
done:
    return status;
}

static shoal_status read_sub_groups(struct reading *reading)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_value *vectors = shoali_value_get(reading->optimizer, "fp32_flat_groups");
    const struct shoali_value *base = shoali_value_get(reading->optimizer, "optimizer_state_dict");
    int64_t at = 0;
    for (int32_t p = 0; p < reading->group_end[reading->groups - 1]; p++) {
        reading->flat_begin[p] = at;
        at += (reading->checkpoint->param[p].count + reading->ranks - 1) / reading->ranks;
    }
    reading->group_at[0] = 0;
    for (int64_t g = 0; g < shoali_value_count(vectors); g++) {
        const struct shoali_file_tensor *vector = shoali_value_tensor(shoali_value_at(vectors, g));
        if (!vector || g == INT32_MAX)
            return REFUSE(reading, "its fp32 weights of sub-group %lld are not a tensor",
                          (long long)g);
        SHOAL_TRY(status, place_parts(reading, 0, 0, vector, vector->count), done);
        SHOAL_TRY(status, each_state(reading, states_of(base, g), 0, vector->count, place_parts),
                  done);
        reading->group_at[0] += vector->count;
    }
    if (reading->group_at[0] != at)
        status = REFUSE(reading,
                        "its vectors have %lld elements, but param_shapes needs %lld of rank %d",
                        (long long)reading->group_at[0], (long long)at, (int)reading->rank);
done:
    return status;
}

/* ---- frozen parameters ---- */

/* In model states: whole tensors, or each rank's part. */
static shoal_status read_frozen(struct reading *reading, const struct shoali_value *root)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_value *fragments = shoali_value_get(root, "frozen_param_fragments");
    struct shoali_deepspeed *checkpoint = reading->checkpoint;
    for (int32_t p = reading->groups > 0 ? reading->group_end[reading->groups - 1] : 0;
         p < checkpoint->param_count; p++) {
        struct shoali_deepspeed_param *param = &checkpoint->param[p];
        const struct shoali_file_tensor *tensor =
            shoali_value_tensor(shoali_value_get(fragments, param->name));
        const int64_t left = param->count - param->kind[0].covered;
        if (!tensor)
            return shoali_input_fail(&reading->open->input, -1,
                                     "the frozen parameter `%s` is missing", param->name);
        const struct shoali_deepspeed_place place = {.file = reading->file,
                                                     .tensor = tensor,
                                                     .begin = param->kind[0].covered,
                                                     .count = tensor->count < left ? tensor->count
                                                                                   : left};
        if (place.count > 0)
            SHOAL_TRY(status, shoali_deepspeed_place(checkpoint, param, &place), done);
    }
done:
    return status;
}

static bool has_frozen(const struct reading *reading)
{
    return reading->checkpoint->param_count >
           (reading->groups > 0 ? reading->group_end[reading->groups - 1] : 0);
}

/* Model states of the rank: beside its optimizer states, under the same number. */
static shoal_status read_frozen_of(struct reading *reading)
{
    shoal_status status;
    struct shoali_tensor_file file = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/zero_pp_rank_%d_mp_rank_00_model_states.pt",
             reading->checkpoint->folder, (int)reading->rank);
    SHOAL_TRY(status, shoali_tensor_file_open(path, &file), done);
    reading->open = &file;
    reading->file = shoali_deepspeed_path(reading->checkpoint, path);
    if (reading->file < 0)
        status = SHOAL_ENOMEM;
    else
        SHOAL_TRY(status, read_frozen(reading, file.root), done);
done:
    reading->open = NULL;
    shoali_tensor_file_close(&file);
    return status;
}

/* ---- all ranks ---- */

static shoal_status check_rank(struct reading *reading)
{
    int64_t stage = -1, count = -1;
    const struct shoali_value *optimizer = reading->optimizer;
    /* the bf16 optimizer of stage 1 does not always name its stage */
    if (!read_stage(shoali_value_get(optimizer, "zero_stage"), &stage) &&
        shoali_value_get(optimizer, "single_partition_of_fp32_groups"))
        stage = 1;
    if (stage < 1 || stage > 3)
        return REFUSE(reading, "its optimizer states are not of ZeRO stage 1, 2 or 3");
    if (!read_count(shoali_value_get(optimizer, "partition_count"), &count) ||
        count != reading->ranks)
        return REFUSE(
            reading,
            "it is one of %lld files, but %d exist: a rank's file is missing, or from another save",
            (long long)count, (int)reading->ranks);
    if (reading->rank > 0 && stage != reading->stage)
        return REFUSE(reading, "it is of stage %lld, the file of rank 0 of stage %d",
                      (long long)stage, (int)reading->stage);
    reading->stage = (int32_t)stage;
    return SHOAL_OK;
}

static shoal_status read_rank(struct reading *reading, const char *path)
{
    shoal_status status;
    struct shoali_tensor_file file = {0};
    SHOAL_TRY(status, shoali_tensor_file_open(path, &file), done);
    reading->open = &file;
    reading->file = shoali_deepspeed_path(reading->checkpoint, path);
    reading->optimizer = shoali_value_get(file.root, "optimizer_state_dict");
    if (reading->file < 0) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, check_rank(reading), done);
    if (reading->rank == 0)
        shoali_deepspeed_optimizer_numbers(reading->checkpoint, reading->optimizer);
    status = reading->stage == 3 ? read_sub_groups(reading) : read_parts(reading);
done:
    reading->open = NULL;
    reading->optimizer = NULL;
    shoali_tensor_file_close(&file);
    return status;
}

shoal_status shoali_deepspeed_open_zero(struct shoali_deepspeed *checkpoint,
                                        struct shoali_tensor_file *model, const char *const *files,
                                        int32_t count)
{
    shoal_status status;
    struct reading reading = {.checkpoint = checkpoint, .ranks = count};
    SHOAL_TRY(status,
              shoali_deepspeed_take_shapes(checkpoint, model, model->root, reading.group_end,
                                           &reading.groups),
              done);
    if (reading.groups == 0) {
        status = shoali_input_fail(&model->input, -1, "it does not have param_shapes");
        goto done;
    }
    reading.flat_begin = shoali_arena_alloc(
        &checkpoint->arena, ((size_t)checkpoint->param_count + 1) * sizeof *reading.flat_begin);
    if (!reading.flat_begin) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t r = 0; r < count; r++) {
        reading.rank = r;
        SHOAL_TRY(status, read_rank(&reading, files[r]), done);
        if (reading.stage == 3 && has_frozen(&reading))
            SHOAL_TRY(status, read_frozen_of(&reading), done);
    }
    if (reading.stage < 3 && has_frozen(&reading)) {
        reading.open = model;
        reading.file = shoali_deepspeed_path(checkpoint, model->input.path);
        SHOAL_TRY(status, reading.file < 0 ? SHOAL_ENOMEM : read_frozen(&reading, model->root),
                  done);
    }
    checkpoint->numbers.stage = reading.stage;
    checkpoint->numbers.ranks = count;
done:
    return status;
}
