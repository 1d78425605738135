/* tape.c - a tape's life: create, begin, end, and the lists that grow with a recording. */
#include "autograd/tape/tape.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

shoal_status shoali_grow(void *list_address, int32_t *capacity, size_t entry_bytes, int32_t needed,
                         const char *what)
{
    if (needed <= *capacity)
        return SHOAL_OK;
    int32_t wanted = *capacity > 0 ? *capacity : 64;
    while (wanted < needed)
        wanted *= 2;
    void *list;
    memcpy(&list, list_address, sizeof list);
    void *grown = shoali_fault("alloc") ? NULL : realloc(list, (size_t)wanted * entry_bytes);
    if (grown == NULL)
        return SHOAL_FAIL(SHOAL_ENOMEM, "tape: cannot allocate a list of %d %s", (int)wanted, what);
    memcpy(list_address, &grown, sizeof grown);
    *capacity = wanted;
    return SHOAL_OK;
}

shoal_status shoali_tape_event(struct shoal_tape *tape, int32_t event)
{
    shoal_status status;
    SHOAL_TRY(status,
              shoali_grow(&tape->event, &tape->event_capacity, sizeof(*tape->event),
                          tape->event_count + 1, "events"),
              done);
    tape->event[tape->event_count++] = event;
done:
    return status;
}

shoal_status shoali_tape_new_tensor(struct shoal_tape *tape, shoal_dtype dtype,
                                    const shoal_shape *shape, int64_t bound,
                                    struct shoali_tape_tensor **tensor)
{
    shoal_status status;
    const size_t width = shoal_dtype_bytes(dtype);
    char text[128];
    if (bound < 0 || width == 0 || (uint64_t)bound > SIZE_MAX / 8 / width)
        return SHOAL_FAIL(SHOAL_EINVAL, "a tensor of type %s and shape %s cannot be made",
                          shoal_dtype_name(dtype), shoali_shape_format(shape, text));
    SHOAL_TRY(status,
              shoali_grow(&tape->tensor, &tape->tensor_capacity, sizeof(*tape->tensor),
                          tape->tensor_count + 1, "tensors"),
              done);
    struct shoali_tape_tensor *made = shoali_arena_alloc(&tape->arena, sizeof(*made));
    if (made == NULL)
        return SHOAL_ENOMEM;
    shoali_tensor_describe(&made->tensor, dtype, shape);
    made->tensor.stream = tape->args.exec.stream;
    made->tensor.tape = tape;
    made->tensor.arrive = shoali_tensor_arrive;
    made->tensor.node = -1;
    made->tensor.id = tape->tensor_count;
    made->tensor.bound = bound;
    made->root = made;
    made->bytes = (size_t)bound * width;
    made->segment = SHOALI_NO_SEGMENT;
    made->grad_segment = SHOALI_NO_SEGMENT;
    made->kept_segment = SHOALI_NO_SEGMENT;
    made->scope = tape->open_scope;
    tape->tensor[tape->tensor_count++] = made;
    *tensor = made;
done:
    return status;
}

/* ---- parameters of this tape ---- */

static int32_t use_home(const struct shoal_tape *tape, const struct shoal_param *param)
{
    const uint64_t mixed = ((uint64_t)(uintptr_t)param >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (int32_t)((mixed >> 32) & (uint64_t)(tape->use_table_capacity - 1));
}

static int32_t *use_place(struct shoal_tape *tape, const struct shoal_param *param)
{
    int32_t at = use_home(tape, param);
    while (tape->use_table[at] >= 0 && tape->use[tape->use_table[at]].param != param)
        at = (at + 1) & (tape->use_table_capacity - 1);
    return &tape->use_table[at];
}

struct shoali_param_use *shoali_tape_find_use(struct shoal_tape *tape, struct shoal_param *param)
{
    if (tape->use_table_capacity == 0)
        return NULL;
    const int32_t index = *use_place(tape, param);
    return index >= 0 ? &tape->use[index] : NULL;
}

/* Keeps the table at most half full. */
static shoal_status reserve_use(struct shoal_tape *tape)
{
    shoal_status status;
    SHOAL_TRY(status,
              shoali_grow(&tape->use, &tape->use_capacity, sizeof(*tape->use), tape->use_count + 1,
                          "parameters"),
              done);
    if (tape->use_table_capacity >= 2 * tape->use_capacity)
        goto done;
    SHOAL_TRY(status,
              shoali_grow(&tape->use_table, &tape->use_table_capacity, sizeof(*tape->use_table),
                          2 * tape->use_capacity, "parameters"),
              done);
    memset(tape->use_table, 0xFF, (size_t)tape->use_table_capacity * sizeof(*tape->use_table));
    for (int32_t i = 0; i < tape->use_count; i++)
        *use_place(tape, tape->use[i].param) = i;
done:
    return status;
}

int32_t shoali_tape_add_use(struct shoal_tape *tape, struct shoal_param *param)
{
    if (reserve_use(tape) < 0)
        return -1;
    int32_t *place = use_place(tape, param);
    if (*place >= 0)
        return *place;
    *place = tape->use_count;
    tape->use[tape->use_count] = (struct shoali_param_use){.param = param, .first_scope = -1};
    if (!shoali_tape_is_meta(tape))
        param->reader_tapes++;
    return tape->use_count++;
}

static void forget_uses(struct shoal_tape *tape)
{
    for (int32_t i = 0; i < tape->use_count; i++)
        if (!shoali_tape_is_meta(tape))
            tape->use[i].param->reader_tapes--;
    tape->use_count = 0;
    if (tape->use_table_capacity > 0)
        memset(tape->use_table, 0xFF, (size_t)tape->use_table_capacity * sizeof(*tape->use_table));
}

/* ---- life ---- */

shoal_status shoali_tape_create(const struct shoali_tape_args *args, struct shoal_tape **tape)
{
    *tape = NULL;
    if (args->slot == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "tape: needs a slot for its tensors");
    if (args->keep.where != SHOALI_KEEP_SLOT && args->keep.slot == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "tape: needs a slot for what it keeps");
    if (args->exec.stream != NULL && args->exec.ops == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "tape: needs kernels (exec.ops) when it has a stream");
    struct shoal_tape *made = shoali_calloc(1, sizeof(*made), "a tape");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->args = *args;
    made->open_scope = -1;
    shoali_arena_init(&made->arena);
    *tape = made;
    return SHOAL_OK;
}

void shoali_tape_destroy(struct shoal_tape *tape)
{
    if (tape == NULL)
        return;
    shoali_tape_end(tape);
    shoali_comm_side_fini(&tape->side);
    shoali_keeper_fini(tape);
    if (!shoali_tape_is_meta(tape))
        shoali_input_staging_fini(&tape->staging, shoali_stream_device(tape->args.exec.stream));
    shoali_arena_fini(&tape->arena);
    free(tape->node);
    free(tape->tensor);
    free(tape->scope);
    free(tape->event);
    free(tape->use);
    free(tape->use_table);
    shoali_free(tape);
}

shoal_status shoali_tape_begin(struct shoal_tape *tape, const struct shoali_tape_begin *begin)
{
    shoal_status status = SHOAL_OK;
    shoali_tape_end(tape);
    tape->step = begin->step;
    tape->first_sample = begin->first_sample;
    tape->batch_rows = begin->samples;
    tape->training = begin->training;
    tape->needs_grad = begin->needs_grad;
    tape->generation = begin->generation;
    if (tape->generation != NULL)
        shoali_kv_cache_rewind(tape->generation->cache);
    if (!shoali_tape_is_meta(tape))
        SHOAL_TRY(status, shoali_input_staging_begin(tape), done);
done:
    return status;
}

void shoali_tape_end(struct shoal_tape *tape)
{
    if (tape->open_scope >= 0)
        shoali_context_get()->scope = ""; /* its path goes with the arena */
    shoali_pending_abandon(tape);
    forget_uses(tape);
    shoali_keeper_end(tape);
    shoali_slot_reset(tape->args.slot);
    shoali_arena_reset(&tape->arena);
    tape->status = SHOAL_OK;
    tape->generation = NULL;
    tape->node_count = 0;
    tape->tensor_count = 0;
    tape->scope_count = 0;
    tape->event_count = 0;
    tape->open_scope = -1;
    tape->root_ordinals = 0;
    tape->batch_count = 0;
    tape->batch_reads = 0;
    tape->batch_rows = 0;
    tape->ran_layers = false;
    tape->backward_done = false;
    tape->defer_weight = false;
    tape->weights_done = false;
    tape->ids_unchecked = false;
    tape->bad_id = NULL;
    tape->flops_forward = 0;
    tape->flops_backward = 0;
    tape->cost_bytes = 0;
    memset(tape->workspace, 0, sizeof tape->workspace);
    memset(tape->grad_temp, 0, sizeof tape->grad_temp);
    memset(tape->param_temp, 0, sizeof tape->param_temp);
}

shoal_status shoali_tape_status(const struct shoal_tape *tape)
{
    return tape->status;
}

struct shoal_tensor *shoali_tape_poison(struct shoal_tape *tape, shoal_status status)
{
    if (tape->status >= 0 && status < 0)
        tape->status = status;
    return NULL;
}

/* ---- what the recording says of itself ---- */

bool shoali_tape_is_meta(const struct shoal_tape *tape)
{
    return tape->args.exec.stream == NULL;
}

const struct shoali_exec *shoali_tape_exec(const struct shoal_tape *tape)
{
    return &tape->args.exec;
}

bool shoal_tape_training(const shoal_tape *tape)
{
    return tape->training;
}

bool shoal_tape_generating(const shoal_tape *tape)
{
    return tape->generation != NULL;
}

shoal_dtype shoal_tape_dtype(const shoal_tape *tape)
{
    return tape->args.dtype;
}

int32_t shoali_tape_scope_count(const struct shoal_tape *tape)
{
    return tape->scope_count;
}

const struct shoali_scope *shoali_tape_scope(const struct shoal_tape *tape, int32_t index)
{
    return index >= 0 && index < tape->scope_count ? &tape->scope[index]->scope : NULL;
}

void shoali_tape_totals(const struct shoal_tape *tape, int64_t *flops_forward,
                        int64_t *flops_backward, int64_t *bytes)
{
    *flops_forward = tape->flops_forward;
    *flops_backward = tape->flops_backward;
    *bytes = tape->cost_bytes;
}

shoal_status shoali_tape_zero(struct shoal_tape *tape, void *memory, size_t bytes)
{
    return SHOALI_LAUNCH(tape, shoali_fill(tape->args.exec.stream, memory, 0, bytes));
}

shoal_status shoali_tape_bad_id(struct shoal_tape *tape, int64_t **bad_id)
{
    shoal_status status = SHOAL_OK;
    int32_t segment;
    if (tape->bad_id == NULL) {
        SHOAL_TRY(status, shoali_slot_alloc(tape->args.slot, sizeof(int64_t), &segment), done);
        tape->bad_id = shoali_slot_address(tape->args.slot, segment);
        SHOAL_TRY(status, shoali_tape_zero(tape, tape->bad_id, sizeof(int64_t)), done);
    }
    *bad_id = tape->bad_id;
done:
    return status;
}

shoal_status shoali_tape_check_ids(struct shoal_tape *tape)
{
    shoal_status status = tape->status;
    int64_t bad = 0;
    if (status < 0 || !tape->ids_unchecked || tape->bad_id == NULL || shoali_tape_is_meta(tape))
        return status;
    SHOAL_TRY(status, shoali_download(tape->args.exec.stream, &bad, tape->bad_id, sizeof bad),
              done);
    if (bad != 0)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "embedding: the id in row %lld of the micro-batch is outside its "
                            "table; check the tokens against the vocabulary size",
                            (long long)(bad - 1));
done:
    return status;
}
