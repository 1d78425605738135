/* What each instruction of a pipeline's list does; its messages are in engine_transfers.c. */
#include "engine/engine.h"

/* An instruction at work. */
struct shoali_step_of {
    struct shoal_engine *engine;
    const struct shoali_execution *execution;
    const struct shoali_instruction *one;
    struct shoali_micro *micro;
    const struct shoali_chunk *chunk;
    int64_t number; /* of the micro-batch */
    bool training;
};

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
    if (!chunk->out) {
        SHOAL_TRY(status, shoali_micro_find_loss(engine, &boundary, &micro->loss), done);
        return SHOAL_OK;
    }
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

/* ---- instructions --------------------------------------------------------------------------- */

static struct shoali_micro_load describe_micro(const struct shoali_step_of *of)
{
    return (struct shoali_micro_load){.samples = of->engine->batch.micro,
                                      .step = of->execution->step,
                                      .first_sample = of->number * of->engine->batch.micro,
                                      .training = of->training,
                                      .needs_grad = of->training};
}

static shoal_status begin(const struct shoali_step_of *of)
{
    const struct shoali_micro_load load = describe_micro(of);
    if (of->micro->begun)
        return SHOAL_OK;
    of->micro->begun = true;
    return shoali_micro_begin(of->micro->tape, &load);
}

static shoal_status load(const struct shoali_step_of *of, shoal_batch *batch)
{
    shoal_status status;
    struct shoal_engine *engine = of->engine;
    struct shoali_micro_load how = describe_micro(of);
    SHOAL_TRY(status, shoali_engine_ask(engine, of->execution, of->number, batch), done);
    if (batch->samples != 0 && batch->samples != engine->batch.micro) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "a micro-batch has %lld samples, but train_micro_batch_size_per_gpu is "
                            "%lld, and the stages of a pipeline wait for tensors of so many: pad a "
                            "short one with masked samples",
                            (long long)batch->samples, (long long)engine->batch.micro);
        goto done;
    }
    how.batch = batch;
    SHOAL_TRY(status, begin(of), done);
    SHOAL_TRY(status, shoali_micro_add_batch(engine, of->micro->tape, &how), done);
done:
    return status;
}

/* What has come is the chunk's input. */
static shoal_status take_activation(const struct shoali_step_of *of)
{
    shoal_status status;
    SHOAL_TRY(status, begin(of), done);
    SHOAL_TRY(status,
              shoali_chunk_add_inputs(of->micro, of->chunk, of->number * of->engine->batch.micro),
              done);
done:
    return status;
}

/* An evaluation's slot is given back at once: what it made waits in a buffer. */
static shoal_status keep_outputs(const struct shoali_step_of *of)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_boundary *boundary = of->chunk->out;
    for (int32_t i = 0; i < boundary->count; i++) {
        const struct shoali_crossing *crossing = &boundary->crossing[i];
        if (shoali_crossing_travels(crossing, false))
            SHOAL_TRY(status,
                      shoali_copy(of->engine->exec.stream,
                                  shoali_stages_buffer(of->engine, of->one->buffer) + crossing->at,
                                  of->micro->out[i]->data,
                                  (size_t)shoal_shape_count(&crossing->shape) *
                                      shoal_dtype_bytes(crossing->dtype),
                                  SHOALI_DEVICE_TO_DEVICE),
                      done);
    }
done:
    return status;
}

static shoal_status forward(const struct shoali_step_of *of, shoal_batch *batch)
{
    shoal_status status;
    struct shoal_engine *engine = of->engine;
    const bool between = of->chunk->in && of->chunk->out;
    if (between && of->chunk->reads_batch)
        SHOAL_TRY(status, load(of, batch), done);
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_chunk_forward(engine, of->micro, of->chunk), done);
    engine->forward_ns += (double)(shoali_now_ns() - begin_ns);
    if (!of->chunk->out && of->execution->forwarded)
        SHOAL_TRY(status, of->execution->forwarded(of->execution->state, batch, of->micro->loss),
                  done);
    if (of->training)
        return SHOAL_OK;
    if (of->chunk->out)
        SHOAL_TRY(status, keep_outputs(of), done);
    shoali_micro_end(of->micro);
done:
    return status;
}

static shoal_status backward(const struct shoali_step_of *of)
{
    shoal_status status;
    struct shoal_engine *engine = of->engine;
    const bool defer = of->one->kind == SHOALI_DO_BACKWARD_INPUT;
    const int64_t begin_ns = shoali_now_ns();
    const double seed = shoali_zero_seed(engine->zero, engine->scaler.scale);
    if (engine->stages.backwards == 0)
        shoali_engine_forget_touched(engine);
    SHOAL_TRY(status, shoali_zero_micro_begin(engine->zero, engine->stages.backwards), done);
    if (!of->chunk->out)
        SHOAL_TRY(status, shoali_zero_add_loss(engine->zero, of->micro->loss->data), done);
    SHOAL_TRY(status,
              shoali_chunk_backward(
                  of->micro, of->chunk, seed,
                  of->one->buffer >= 0 ? shoali_stages_buffer(of->engine, of->one->buffer) : NULL,
                  defer),
              done);
    if (!defer)
        shoali_micro_end(of->micro);
    engine->stages.backwards++;
    engine->micros_done = engine->stages.backwards; /* a step is under way */
    engine->backward_ns += (double)(shoali_now_ns() - begin_ns);
done:
    return status;
}

static shoal_status backward_weight(const struct shoali_step_of *of)
{
    shoal_status status;
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_tape_backward_weight(of->micro->tape), done);
    shoali_micro_end(of->micro);
    of->engine->backward_ns += (double)(shoali_now_ns() - begin_ns);
done:
    return status;
}

static shoal_status reduce_tied(struct shoal_engine *engine)
{
    shoal_status status;
    const int64_t begin_ns = shoali_now_ns();
    engine->stages.backwards = 0;
    SHOAL_TRY(status, shoali_zero_reduce_tied(engine->zero), done);
    engine->stages.reduce_ns = (double)(shoali_now_ns() - begin_ns);
done:
    return status;
}

shoal_status shoali_pipeline_execute(struct shoal_engine *engine,
                                     const struct shoali_execution *execution,
                                     const struct shoali_instruction *one, shoal_batch *batch)
{
    shoal_status status;
    const struct shoali_step_of of = {.engine = engine,
                                      .execution = execution,
                                      .one = one,
                                      .micro = one->slot >= 0 ? &engine->micro[one->slot] : NULL,
                                      .chunk = &engine->stages.chunk[one->chunk],
                                      .number = execution->first + one->micro,
                                      .training = execution->step >= 0};
    SHOAL_TRY(status, shoali_transfers_reach(engine, execution, one), done);
    switch (one->kind) {
    case SHOALI_DO_LOAD:
        return load(&of, batch);
    case SHOALI_DO_RECV_ACTIVATION:
        return take_activation(&of);
    case SHOALI_DO_FORWARD:
        return forward(&of, batch);
    case SHOALI_DO_SEND_ACTIVATION:
    case SHOALI_DO_RECV_GRADIENT:
    case SHOALI_DO_SEND_GRADIENT:
        return SHOAL_OK;
    case SHOALI_DO_BACKWARD:
    case SHOALI_DO_BACKWARD_INPUT:
        return backward(&of);
    case SHOALI_DO_BACKWARD_WEIGHT:
        return backward_weight(&of);
    case SHOALI_DO_REDUCE_TIED:
        return reduce_tied(engine);
    case SHOALI_DO_STEP:
        return shoali_engine_finish_step(engine);
    }
    status =
        SHOAL_FAIL(SHOAL_EINTERNAL, "no instruction of a pipeline is number %d", (int)one->kind);
done:
    return status;
}
