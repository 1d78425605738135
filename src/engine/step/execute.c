/* execute.c - a list of instructions, one after the other. A chunk of layers does each of
 * them: one of a pipeline's stage, or the whole model. */
#include "engine/engine.h"

/* An instruction at work. */
struct work {
    struct shoal_engine *engine;
    const struct shoali_execution *execution;
    const struct shoali_instruction *one;
    struct shoali_micro *micro;
    const struct shoali_chunk *chunk;
    int64_t number; /* of the micro-batch */
};

static double ns_since(int64_t begin_ns)
{
    return (double)(shoali_now_ns() - begin_ns);
}

/* ---- what comes in -------------------------------------------------------------------------- */

/* Asks the source. */
static shoal_status ask(const struct work *work, shoal_batch *batch)
{
    struct shoal_engine *engine = work->engine;
    const struct shoali_execution *execution = work->execution;
    *batch = (shoal_batch){.data = engine->step.batch_arrays};
    for (int32_t i = 0; i < engine->model->input_count; i++)
        batch->data[i] = NULL;
    struct shoali_status_page *page = engine->meta ? NULL : shoali_status_page_get();
    shoali_status_page_io_begin(page);
    const shoal_status status =
        execution->source(execution->user, execution->step, work->number, batch);
    shoali_status_page_io_end(page);
    return status;
}

static struct shoali_micro_load describe_micro(const struct shoal_engine *engine, int64_t step,
                                               int64_t number)
{
    const bool training = step >= 0 && !engine->inference;
    return (struct shoali_micro_load){.samples = engine->step.batch.micro,
                                      .step = step,
                                      .first_sample = number * engine->step.batch.micro,
                                      .training = training,
                                      .needs_grad = training};
}

static shoal_status begin(struct shoali_micro *micro, const struct shoali_micro_load *how)
{
    if (micro->begun)
        return SHOAL_OK;
    micro->begun = true;
    return shoali_micro_begin(micro->tape, how);
}

shoal_status shoali_engine_load(struct shoal_engine *engine, struct shoali_micro *micro,
                                const shoal_batch *batch, int64_t step, int64_t number)
{
    shoal_status status;
    struct shoali_micro_load how = describe_micro(engine, step, number);
    how.batch = batch;
    if (batch->samples)
        how.samples = batch->samples;
    if (how.samples != engine->step.batch.micro && (step >= 0 || engine->stages.count > 1))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a micro-batch has %lld samples, but train_micro_batch_size_per_gpu is "
                          "%lld, and training and pipelines take no other number: pad a short one "
                          "with masked samples",
                          (long long)how.samples, (long long)engine->step.batch.micro);
    SHOAL_TRY(status, begin(micro, &how), done);
    SHOAL_TRY(status, shoali_micro_add_batch(engine, micro->tape, &how), done);
done:
    return status;
}

/* The source's own time is not the forward pass's. */
static shoal_status load(const struct work *work, shoal_batch *batch)
{
    shoal_status status;
    SHOAL_TRY(status, ask(work, batch), done);
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(
        status,
        shoali_engine_load(work->engine, work->micro, batch, work->execution->step, work->number),
        done);
    work->engine->step.forward_ns += ns_since(begin_ns);
done:
    return status;
}

/* What has come is the chunk's input. */
static shoal_status take_activation(const struct work *work)
{
    shoal_status status;
    const struct shoali_micro_load how =
        describe_micro(work->engine, work->execution->step, work->number);
    SHOAL_TRY(status, begin(work->micro, &how), done);
    SHOAL_TRY(status, shoali_chunk_add_inputs(work->micro, work->chunk, how.first_sample), done);
done:
    return status;
}

/* ---- what is computed ----------------------------------------------------------------------- */

/* An evaluation's slot is given back at once: what it made waits in a buffer. */
static shoal_status keep_outputs(const struct work *work)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_stage_boundary *boundary = work->chunk->out;
    for (int32_t i = 0; i < boundary->count; i++) {
        const struct shoali_crossing *crossing = &boundary->crossing[i];
        if (shoali_crossing_travels(crossing, false))
            SHOAL_TRY(
                status,
                shoali_copy(work->engine->exec.stream,
                            shoali_stages_buffer(work->engine, work->one->buffer) + crossing->at,
                            work->micro->out[i]->data,
                            (size_t)shoal_shape_count(&crossing->shape) *
                                shoal_dtype_bytes(crossing->dtype),
                            SHOALI_DEVICE_TO_DEVICE),
                done);
    }
done:
    return status;
}

static shoal_status forward(const struct work *work, shoal_batch *batch)
{
    shoal_status status;
    const struct shoali_execution *execution = work->execution;
    if (work->chunk->in && work->chunk->out && work->chunk->reads_batch)
        SHOAL_TRY(status, load(work, batch), done);
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_chunk_forward(work->engine, work->micro, work->chunk), done);
    work->engine->step.forward_ns += ns_since(begin_ns);
    if (!work->chunk->out && execution->forwarded)
        SHOAL_TRY(status, execution->forwarded(execution->state, batch, work->micro->loss), done);
    if (execution->step >= 0)
        return SHOAL_OK;
    if (work->chunk->out)
        SHOAL_TRY(status, keep_outputs(work), done);
    shoali_micro_end(work->micro);
done:
    return status;
}

shoal_status shoali_engine_backward(struct shoal_engine *engine, struct shoali_micro *micro,
                                    const struct shoali_chunk *chunk, char *buffer,
                                    bool defer_weight)
{
    shoal_status status;
    const int64_t begin_ns = shoali_now_ns();
    const double seed = shoali_zero_seed(engine->zero, engine->step.scaler.scale);
    if (engine->step.micros_done == 0)
        shoali_engine_reset_unused(engine);
    SHOAL_TRY(status, shoali_zero_micro_begin(engine->zero, engine->step.micros_done), done);
    if (!chunk->out)
        SHOAL_TRY(status, shoali_zero_add_loss(engine->zero, micro->loss->data), done);
    SHOAL_TRY(status, shoali_chunk_backward(micro, chunk, seed, buffer, defer_weight), done);
    if (!defer_weight)
        shoali_micro_end(micro);
    engine->step.micros_done++;
    engine->step.backward_ns += ns_since(begin_ns);
done:
    return status;
}

static shoal_status backward(const struct work *work)
{
    const int32_t buffer = work->one->buffer;
    return shoali_engine_backward(work->engine, work->micro, work->chunk,
                                  buffer >= 0 ? shoali_stages_buffer(work->engine, buffer) : NULL,
                                  work->one->kind == SHOALI_DO_BACKWARD_INPUT);
}

static shoal_status backward_weight(const struct work *work)
{
    shoal_status status;
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_tape_backward_weight(work->micro->tape), done);
    shoali_micro_end(work->micro);
    work->engine->step.backward_ns += ns_since(begin_ns);
done:
    return status;
}

static shoal_status reduce_tied(struct shoal_engine *engine)
{
    shoal_status status;
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_zero_reduce_tied(engine->zero), done);
    engine->stages.reduce_ns = ns_since(begin_ns);
done:
    return status;
}

/* ---- the list ------------------------------------------------------------------------------- */

static shoal_status execute(const struct work *work, shoal_batch *batch)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_transfers_reach(work->engine, work->execution, work->one), done);
    switch (work->one->kind) {
    case SHOALI_DO_LOAD:
        return load(work, batch);
    case SHOALI_DO_RECV_ACTIVATION:
        return take_activation(work);
    case SHOALI_DO_FORWARD:
        return forward(work, batch);
    case SHOALI_DO_SEND_ACTIVATION:
    case SHOALI_DO_RECV_GRADIENT:
    case SHOALI_DO_SEND_GRADIENT:
        return SHOAL_OK;
    case SHOALI_DO_BACKWARD:
    case SHOALI_DO_BACKWARD_INPUT:
        return backward(work);
    case SHOALI_DO_BACKWARD_WEIGHT:
        return backward_weight(work);
    case SHOALI_DO_REDUCE_TIED:
        return reduce_tied(work->engine);
    case SHOALI_DO_STEP:
        return shoali_engine_finish_step(work->engine);
    }
    status = SHOAL_FAIL(SHOAL_EINTERNAL, "no instruction is number %d", (int)work->one->kind);
done:
    return status;
}

shoal_status shoali_engine_execute(struct shoal_engine *engine,
                                   const struct shoali_execution *execution)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_instructions *made = execution->instructions;
    struct shoali_context *context = shoali_context_get();
    struct shoali_status_page *page = engine->meta ? NULL : context->page;
    shoal_batch batch = {0};
    context->step = engine->step.global_steps;
    shoali_status_page_say_step(page, context->step);
    if (execution->step >= 0)
        engine->step.begin_ns = shoali_now_ns();
    shoali_transfers_begin(engine, execution);
    for (int32_t i = 0; i < made->count; i++) {
        const struct shoali_instruction *one = &made->list[i];
        context->instruction = shoali_instruction_name(one->kind);
        context->micro = one->micro;
        shoali_status_page_say_doing(page, context->instruction, one->micro);
        shoali_comm_say_place(engine->place.group);
        const struct work work = {.engine = engine,
                                  .execution = execution,
                                  .one = one,
                                  .micro = one->slot >= 0 ? &engine->step.micro[one->slot] : NULL,
                                  .chunk = &engine->stages.chunk[one->chunk],
                                  .number = execution->first + one->micro};
        SHOAL_TRY(status, execute(&work, &batch), done);
    }
done:
    status = shoali_transfers_end(engine, status);
    context->instruction = NULL;
    context->micro = -1;
    if (status >= 0) { /* else it is what the rank failed in */
        shoali_status_page_say_doing(page, NULL, -1);
        shoali_comm_say_place(engine->place.group);
    }
    return status;
}
