/* micro.c - a micro-batch through the layers and back. */
#include "engine/micro.h"
#include "engine/engine.h"

static shoal_status check_batch(const shoal_model *model, const shoal_batch *batch)
{
    shoal_status status;
    SHOAL_TRY(
        status,
        shoali_check_reserved("shoal_batch.reserved", batch->reserved, sizeof batch->reserved),
        done);
    for (int32_t i = 0; i < model->input_count; i++)
        if (!batch->data || !batch->data[i])
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "the batch has no array for input %d of model `%s`, `%s`: set "
                              "shoal_batch.data[%d]",
                              (int)i, model->name, model->inputs[i].name, (int)i);
done:
    return status;
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
    struct shoal_tensor **inputs = engine->batch_inputs;
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

shoal_status shoali_micro_find_loss(const struct shoal_engine *engine,
                                    const shoal_boundary *boundary, struct shoal_tensor **loss)
{
    if (boundary->count != 1 || shoal_shape_count(&boundary->tensor[0]->shape) != 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the last layer of model `%s` must leave exactly one tensor of one "
                          "element, the loss; it left %d tensors",
                          engine->model->name, (int)boundary->count);
    *loss = boundary->tensor[0];
    return SHOAL_OK;
}

shoal_status shoali_micro_forward(struct shoal_engine *engine, struct shoal_tape *tape,
                                  struct shoal_tensor **loss)
{
    shoal_status status;
    shoal_boundary boundary = {0};
    SHOAL_TRY(
        status,
        shoali_tape_forward_layers(tape, &engine->module, 0, engine->module.layer_count, &boundary),
        done);
    SHOAL_TRY(status, shoali_micro_find_loss(engine, &boundary, loss), done);
done:
    return status;
}

shoal_status shoali_micro_backward(struct shoal_engine *engine, struct shoali_micro *micro,
                                   int64_t index)
{
    shoal_status status;
    const double seed = shoali_zero_seed(engine->zero, engine->scaler.scale);
    SHOAL_TRY(status, shoali_zero_micro_begin(engine->zero, index), done);
    SHOAL_TRY(status, shoali_zero_add_loss(engine->zero, micro->loss->data), done);
    SHOAL_TRY(status,
              shoali_tape_backward(micro->tape, &(struct shoali_backward){.outputs = &micro->loss,
                                                                          .output_count = 1,
                                                                          .seed_value = seed}),
              done);
    shoali_micro_end(micro);
done:
    return status;
}

void shoali_micro_end(struct shoali_micro *micro)
{
    shoali_tape_end(micro->tape);
    micro->loss = NULL;
    micro->begun = false;
    micro->in_count = micro->out_count = 0;
}
