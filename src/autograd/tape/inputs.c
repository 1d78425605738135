/* inputs.c - tensors that come from outside: host arrays and memory of others. */
#include "autograd/tape/tape.h"

#include <string.h>

/* ---- staging ---- */

void shoali_input_staging_fini(struct shoali_input_staging *staging, struct shoali_device *device)
{
    if (staging->pending)
        (void)!shoali_device_accelerator(device)->event_synchronize(staging->event);
    shoali_device_host_free(device, staging->memory);
    shoali_event_destroy(staging->event);
    *staging = (struct shoali_input_staging){0};
}

/* A wait for the reuse of staging memory, not for a result: it goes to the table directly and is no
 * counted synchronisation. The copies are long done by then. */
shoal_status shoali_input_staging_begin(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    struct shoali_input_staging *staging = &tape->staging;
    struct shoali_device *device = shoali_stream_device(tape->args.exec.stream);
    if (staging->pending)
        SHOAL_TRY(status, shoali_device_accelerator(device)->event_synchronize(staging->event),
                  done);
    staging->pending = false;
    staging->used = 0;
done:
    return status;
}

static shoal_status staging_reserve(struct shoal_tape *tape, size_t bytes, void **memory)
{
    shoal_status status = SHOAL_OK;
    struct shoali_input_staging *staging = &tape->staging;
    struct shoali_device *device = shoali_stream_device(tape->args.exec.stream);
    bytes = (bytes + 63) / 64 * 64;
    if (staging->event == NULL)
        SHOAL_TRY(status, shoali_event_create(device, &staging->event), done);
    if (staging->capacity - staging->used < bytes) {
        SHOAL_TRY(status, shoali_input_staging_begin(tape), done);
        const size_t wanted = staging->capacity * 2 > bytes ? staging->capacity * 2 : bytes;
        shoali_device_host_free(device, staging->memory);
        staging->memory = NULL;
        staging->capacity = 0;
        SHOAL_TRY(status, shoali_device_host_alloc(device, wanted, &staging->memory), done);
        staging->capacity = wanted;
    }
    *memory = (char *)staging->memory + staging->used;
    staging->used += bytes;
done:
    return status;
}

static void convert_host(shoal_dtype dtype, const float *from, uint16_t *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(from[i]) : shoali_f32_to_f16(from[i]);
}

static void find_id_range(struct shoali_tape_tensor *tensor, const int32_t *ids, int64_t count)
{
    int32_t low = count > 0 ? ids[0] : 0, high = low;
    for (int64_t i = 1; i < count; i++) {
        low = ids[i] < low ? ids[i] : low;
        high = ids[i] > high ? ids[i] : high;
    }
    tensor->ids_known = true;
    tensor->id_min = low;
    tensor->id_max = high;
}

static void stage_host_data(struct shoali_tape_tensor *tensor, const void *host_data, void *staged)
{
    const shoal_dtype dtype = tensor->tensor.dtype;
    if (dtype == SHOAL_BF16 || dtype == SHOAL_F16)
        convert_host(dtype, host_data, staged, tensor->tensor.bound);
    else
        memcpy(staged, host_data, tensor->bytes);
    if (dtype == SHOAL_I32)
        find_id_range(tensor, host_data, tensor->tensor.bound);
}

static shoal_status send_host_data(struct shoal_tape *tape, struct shoali_tape_tensor *tensor,
                                   const void *host_data)
{
    shoal_status status;
    void *staged;
    const shoal_dtype dtype = tensor->tensor.dtype;
    SHOAL_TRY(status, staging_reserve(tape, tensor->bytes, &staged), done);
    /* in a plan neither the batch nor the staging memory exists */
    if (shoali_device_is_meta(shoali_stream_device(tape->args.exec.stream)))
        tensor->ids_known = dtype == SHOAL_I32;
    else
        stage_host_data(tensor, host_data, staged);
    SHOAL_TRY(status,
              shoali_copy(tape->args.exec.stream, tensor->tensor.data, staged, tensor->bytes,
                          SHOALI_HOST_TO_DEVICE),
              done);
    SHOAL_TRY(status, shoali_event_record(tape->staging.event, tape->args.exec.stream), done);
    tape->staging.pending = true;
done:
    return status;
}

/* ---- inputs ---- */

static shoal_status new_input(struct shoal_tape *tape, shoal_dtype dtype, const shoal_shape *shape,
                              bool needs_grad, struct shoali_tape_tensor **input)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_tape_new_tensor(tape, dtype, shape, shoal_shape_count(shape), input),
              done);
    struct shoali_tape_tensor *made = *input;
    made->tensor.needs_grad = needs_grad && tape->needs_grad;
    made->tensor.block = shoali_block_of_input(tape, &made->tensor);
    made->scope = -1;
    made->open = true;
    made->refs = 1;
    if (tape->batch_rows == 0 && shape->ndim > 0)
        tape->batch_rows = shape->dim[0];
done:
    return status;
}

static shoal_status fill_input(struct shoal_tape *tape, struct shoali_tape_tensor *input,
                               const void *host_data)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_tensor_place(tape, input), done);
    if (host_data == NULL || shoali_tape_is_meta(tape))
        SHOAL_TRY(status, shoali_tape_zero(tape, input->tensor.data, input->bytes), done);
    else
        SHOAL_TRY(status, send_host_data(tape, input, host_data), done);
done:
    return status;
}

struct shoal_tensor *shoali_tape_add_input(struct shoal_tape *tape, shoal_dtype dtype,
                                           const shoal_shape *shape, const void *host_data,
                                           bool needs_grad)
{
    shoal_status status;
    struct shoali_tape_tensor *made;
    if (tape->status < 0)
        return NULL;
    SHOAL_TRY(status, new_input(tape, dtype, shape, needs_grad, &made), done);
    SHOAL_TRY(status, fill_input(tape, made, host_data), done);
done:
    return status < 0 ? shoali_tape_poison(tape, status) : &made->tensor;
}

struct shoal_tensor *shoali_tape_add_device_input(struct shoal_tape *tape, shoal_dtype dtype,
                                                  const shoal_shape *shape, void *data,
                                                  bool needs_grad)
{
    shoal_status status;
    struct shoali_tape_tensor *made;
    if (tape->status < 0)
        return NULL;
    SHOAL_TRY(status, new_input(tape, dtype, shape, needs_grad, &made), done);
    made->external = true;
    made->tensor.data = data;
done:
    return status < 0 ? shoali_tape_poison(tape, status) : &made->tensor;
}

void shoali_tape_set_batch(struct shoal_tape *tape, struct shoal_tensor *const *inputs,
                           int32_t count)
{
    tape->batch = shoali_arena_alloc(&tape->arena, (size_t)count * sizeof(struct shoal_tensor *));
    if (count > 0 && tape->batch == NULL) {
        (void)shoali_tape_poison(tape, SHOAL_ENOMEM);
        return;
    }
    for (int32_t i = 0; i < count; i++)
        tape->batch[i] = inputs[i];
    tape->batch_count = count;
    if (count > 0 && inputs[0] != NULL && inputs[0]->shape.ndim > 0)
        tape->batch_rows = inputs[0]->shape.dim[0];
}

struct shoal_tensor *shoal_tape_input(shoal_tape *tape, int32_t index)
{
    if (tape->status < 0)
        return NULL;
    if (index < 0 || index >= tape->batch_count)
        return shoali_tape_poison(
            tape, SHOAL_FAIL(SHOAL_EINVAL, "tape input %d does not exist; the batch has %d arrays",
                             (int)index, (int)tape->batch_count));
    tape->batch_reads++;
    return tape->batch[index];
}

int64_t shoali_tape_batch_reads(const struct shoal_tape *tape)
{
    return tape->batch_reads;
}
