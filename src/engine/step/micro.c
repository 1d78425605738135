/* micro.c - a micro-batch through the layers of a chunk and back. */
#include "engine/step/micro.h"
#include "engine/engine.h"

static shoal_status check_batch(const shoal_model *model, const shoal_batch *batch)
{
    for (int32_t i = 0; i < model->input_count; i++)
        if (!batch->data || !batch->data[i])
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "the batch has no array for input %d of model `%s`, `%s`: set "
                              "shoal_batch.data[%d]",
                              (int)i, model->name, model->inputs[i].name, (int)i);
    return SHOAL_OK;
}

/* Floats of a batch are of the type that the model computes in. */
static shoal_dtype input_dtype(const struct shoal_engine *engine, int32_t input)
{
    const shoal_dtype dtype = engine->model->inputs[input].dtype;
    return dtype == SHOAL_F32 ? engine->module.dtype : dtype;
}

shoal_status shoali_micro_begin(struct shoal_tape *tape, const struct shoali_micro_load *load)
{
    return shoali_tape_begin(tape, &(struct shoali_tape_begin){.step = load->step,
                                                               .first_sample = load->first_sample,
                                                               .samples = load->samples,
                                                               .training = load->training,
                                                               .needs_grad = load->needs_grad});
}

shoal_status shoali_micro_add_batch(struct shoal_engine *engine, struct shoal_tape *tape,
                                    const struct shoali_micro_load *load)
{
    shoal_status status;
    struct shoal_tensor **inputs = engine->step.batch_inputs;
    const shoal_model *model = engine->model;
    if (load->batch)
        SHOAL_TRY(status, check_batch(model, load->batch), done);
    for (int32_t i = 0; i < model->input_count; i++) {
        shoal_shape shape = {.ndim = model->inputs[i].sample_shape.ndim + 1,
                             .dim = {load->samples}};
        for (int32_t d = 1; d < shape.ndim; d++)
            shape.dim[d] = model->inputs[i].sample_shape.dim[d - 1];
        inputs[i] = shoali_tape_add_input(tape, input_dtype(engine, i), &shape,
                                          load->batch ? load->batch->data[i] : NULL, false);
    }
    shoali_tape_set_batch(tape, inputs, model->input_count);
    status = shoali_tape_status(tape);
done:
    return status;
}

shoal_status shoali_micro_load(struct shoal_engine *engine, struct shoal_tape *tape,
                               const struct shoali_micro_load *load)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_micro_begin(tape, load), done);
    SHOAL_TRY(status, shoali_micro_add_batch(engine, tape, load), done);
done:
    return status;
}

/* ---- the layers of a chunk ------------------------------------------------------------------ */

shoal_status shoali_chunk_add_inputs(struct shoali_micro *micro, const struct shoali_chunk *chunk,
                                     int64_t first_sample)
{
    micro->in_count = chunk->in->count;
    for (int32_t i = 0; i < chunk->in->count; i++) {
        const struct shoali_crossing *crossing = &chunk->in->crossing[i];
        if (crossing->same_as >= 0) {
            micro->in[i] = micro->in[crossing->same_as];
            continue;
        }
        micro->in[i] =
            shoali_tape_add_device_input(micro->tape, crossing->dtype, &crossing->shape,
                                         micro->received + crossing->at, crossing->needs_grad);
        if (!micro->in[i])
            break;
        micro->in[i]->columns = crossing->columns;
        micro->in[i]->sequence_part = crossing->sequence_part;
        micro->in[i]->block = crossing->block;
        for (int32_t d = 0; d < crossing->block.ndim; d++)
            micro->in[i]->block.offset[d] += crossing->per_sample[d] * first_sample;
    }
    return shoali_tape_status(micro->tape);
}

static shoal_status find_loss(const struct shoal_engine *engine, const shoal_boundary *boundary,
                              struct shoal_tensor **loss)
{
    if (boundary->count != 1 || shoal_shape_count(&boundary->tensor[0]->shape) != 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the last layer of model `%s` must leave exactly one tensor of one "
                          "element, the loss; it left %d tensors",
                          engine->model->name, (int)boundary->count);
    *loss = boundary->tensor[0];
    return SHOAL_OK;
}

/* The next stage waits for what the model left when the engine was made. */
static shoal_status check_boundary(const struct shoal_engine *engine,
                                   const struct shoali_chunk *chunk, const shoal_boundary *left)
{
    char made[128], now[128];
    const char *layer = engine->module.layer[chunk->first + chunk->count - 1].name;
    if (left->count != chunk->out->count)
        return SHOAL_FAIL(SHOAL_EMISMATCH,
                          "layer %s, the last of its pipeline stage, left %d tensors; when the "
                          "engine was created it left %d, and the next stage waits for these",
                          layer, (int)left->count, (int)chunk->out->count);
    for (int32_t i = 0; i < left->count; i++) {
        const struct shoali_crossing *crossing = &chunk->out->crossing[i];
        const struct shoal_tensor *tensor = left->tensor[i];
        if (crossing->dtype != tensor->dtype ||
            !shoali_shape_equal(&crossing->shape, &tensor->shape))
            return SHOAL_FAIL(
                SHOAL_EMISMATCH,
                "layer %s, the last of its pipeline stage, left a tensor %s of shape "
                "%s; when the engine was created it was %s of shape %s, and the next "
                "stage waits for that",
                layer, shoal_dtype_name(tensor->dtype), shoali_shape_format(&tensor->shape, now),
                shoal_dtype_name(crossing->dtype), shoali_shape_format(&crossing->shape, made));
    }
    return SHOAL_OK;
}

shoal_status shoali_chunk_forward(struct shoal_engine *engine, struct shoali_micro *micro,
                                  const struct shoali_chunk *chunk)
{
    shoal_status status;
    shoal_boundary boundary = {.count = micro->in_count, .tensor = micro->in};
    SHOAL_TRY(status,
              shoali_tape_forward_layers(micro->tape, &engine->module, chunk->first, chunk->count,
                                         &boundary),
              done);
    if (!chunk->out)
        return find_loss(engine, &boundary, &micro->loss);
    SHOAL_TRY(status, check_boundary(engine, chunk, &boundary), done);
    micro->out_count = boundary.count;
    for (int32_t i = 0; i < boundary.count; i++)
        micro->out[i] = boundary.tensor[i];
done:
    return status;
}

shoal_status shoali_chunk_backward(struct shoali_micro *micro, const struct shoali_chunk *chunk,
                                   double seed, char *buffer, bool defer_weight)
{
    struct shoal_tensor *outputs[SHOALI_CROSSINGS_MAX], *inputs[SHOALI_CROSSINGS_MAX];
    const void *seeds[SHOALI_CROSSINGS_MAX];
    void *gradients[SHOALI_CROSSINGS_MAX];
    struct shoali_backward backward = {.outputs = chunk->out ? outputs : &micro->loss,
                                       .seeds = chunk->out ? seeds : NULL,
                                       .output_count = chunk->out ? 0 : 1,
                                       .seed_value = seed,
                                       .inputs = inputs,
                                       .input_grads = gradients,
                                       .defer_weight = defer_weight};
    for (int32_t i = 0; chunk->out && i < chunk->out->count; i++) {
        const struct shoali_crossing *crossing = &chunk->out->crossing[i];
        if (!shoali_crossing_travels(crossing, true))
            continue;
        outputs[backward.output_count] = micro->out[i];
        seeds[backward.output_count++] = micro->gradient + crossing->gradient_at;
    }
    for (int32_t i = 0; chunk->in && i < chunk->in->count; i++) {
        const struct shoali_crossing *crossing = &chunk->in->crossing[i];
        if (!shoali_crossing_travels(crossing, true))
            continue;
        inputs[backward.input_count] = micro->in[i];
        gradients[backward.input_count++] = buffer + crossing->gradient_at;
    }
    return shoali_tape_backward(micro->tape, &backward);
}

void shoali_micro_end(struct shoali_micro *micro)
{
    shoali_tape_end(micro->tape);
    micro->loss = NULL;
    micro->begun = false;
    micro->in_count = micro->out_count = 0;
}
