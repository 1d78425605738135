/* What a step works with: the lists of its instructions, and the micro-batches in flight, each with
 * its tape and the memory that was measured for it. */
#include "engine/engine.h"

/* kept NULL: nothing is kept elsewhere. */
shoal_status shoali_engine_create_tape(struct shoal_engine *engine, struct shoali_slot *slot,
                                       struct shoali_slot *kept, bool meta,
                                       struct shoal_tape **tape)
{
    /* a meta run fetches nothing, but it drops and replays like the real one */
    int32_t observers = 0;
    if (engine->step.watch)
        engine->step.observers[observers++] = *engine->step.watch;
    if (!meta && engine->zero)
        engine->step.observers[observers++] = *shoali_zero_observer(engine->zero);
    engine->step.observers[observers++] = shoali_recompute_observer(&engine->step.recompute);
    struct shoali_tape_args args = {
        .exec = engine->exec,
        .module = &engine->module,
        .slot = slot,
        .keep = shoali_recompute_keep(&engine->step.recompute, kept),
        .dtype = engine->module.dtype,
        .seed = engine->seed,
        .observers = engine->step.observers,
        .observer_count = observers,
        .tensor_parallel = engine->place.tensor_parallel,
    };
    if (meta)
        args.exec.stream = NULL;
    return shoali_tape_create(&args, tape);
}

static shoal_status create_micro(struct shoal_engine *engine, struct shoali_micro *micro)
{
    shoal_status status;
    const size_t bytes = (size_t)engine->step.micro_cost.slot_bytes;
    const size_t kept = (size_t)engine->step.micro_cost.kept_bytes;
    SHOAL_TRY(status, shoali_slot_create(engine->device, bytes, &micro->slot), done);
    if (engine->step.recompute.cpu)
        SHOAL_TRY(status, shoali_slot_create_pinned(engine->device, kept, &micro->kept_slot), done);
    else if (engine->step.recompute.contiguous)
        SHOAL_TRY(status, shoali_slot_create(engine->device, kept, &micro->kept_slot), done);
    SHOAL_TRY(status,
              shoali_engine_create_tape(engine, micro->slot, micro->kept_slot, false, &micro->tape),
              done);
done:
    return status;
}

static void destroy_micro(struct shoali_micro *micro)
{
    shoali_tape_destroy(micro->tape);
    shoali_slot_destroy(micro->kept_slot);
    shoali_slot_destroy(micro->slot);
}

void shoali_engine_drop_micros(struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->step.micro_count; i++)
        destroy_micro(&engine->step.micro[i]);
    shoali_free(engine->step.micro);
}

shoal_status shoali_engine_make_step_list(struct shoal_engine *engine, int64_t micro_batches,
                                          struct shoali_instructions *list)
{
    struct shoali_pipeline_args args = engine->stages.args;
    if (micro_batches > INT32_MAX / 8)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "gradient_accumulation_steps %lld: at most %d are possible",
                          (long long)micro_batches, INT32_MAX / 8);
    args.micro_batches = (int32_t)micro_batches;
    args.training = !engine->inference;
    return shoali_instructions_make(&args, engine->stages.index, &engine->config.arena, list);
}

/* What a step does, and an evaluation of one micro-batch. */
shoal_status shoali_engine_make_lists(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_pipeline_args args = engine->stages.args;
    const bool alone = engine->stages.count == 1;
    /* A plan runs a few micro-batches by hand, of however many there are. */
    const int64_t micro_batches =
        (engine->meta && alone) || engine->inference ? 1 : engine->step.batch.accumulation;
    SHOAL_TRY(status, shoali_engine_make_step_list(engine, micro_batches, &engine->step.train_list),
              done);
    args.micro_batches = 1;
    args.training = false;
    SHOAL_TRY(status,
              shoali_instructions_make(&args, engine->stages.index, &engine->config.arena,
                                       &engine->step.eval_list),
              done);
done:
    return status;
}

/* As many micro-batches in flight as the lists need. */
shoal_status shoali_engine_need_micros(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    if (engine->step.micro)
        return SHOAL_OK;
    if (engine->step.train_list.count == 0)
        SHOAL_TRY(status, shoali_engine_make_lists(engine), done);
    const int32_t train = engine->step.train_list.slots, eval = engine->step.eval_list.slots;
    const int32_t slots = train > eval ? train : eval;
    engine->step.micro =
        shoali_calloc((size_t)slots, sizeof *engine->step.micro, "slots of micro-batches");
    if (!engine->step.micro) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    engine->step.micro_count = slots;
    for (int32_t i = 0; i < slots; i++)
        SHOAL_TRY(status, create_micro(engine, &engine->step.micro[i]), done);
    SHOAL_TRY(status, shoali_stages_place(engine), done);
done:
    return status;
}

/* ---- what a micro-batch takes --------------------------------------------------------------- */

static void read_cost(const struct shoal_tape *tape, struct shoali_micro_cost *cost)
{
    int64_t forward, backward, bytes;
    shoali_tape_totals(tape, &forward, &backward, &bytes);
    cost->flops_forward += forward;
    cost->flops_backward += backward;
    cost->forward_bytes += bytes;
    for (int32_t i = 0; i < shoali_tape_scope_count(tape); i++) {
        const struct shoali_scope *scope = shoali_tape_scope(tape, i);
        cost->flops_replay += scope->recompute ? scope->flops_forward : 0;
    }
}

/* Forward, and in training backward, of the layers of a chunk. */
static shoal_status measure_pass(struct shoal_engine *engine, struct shoali_micro *micro,
                                 const struct shoali_chunk *chunk, bool training)
{
    shoal_status status;
    const struct shoali_micro_load load = {
        .samples = engine->step.batch.micro, .training = training, .needs_grad = training};
    const bool defer = engine->stages.args.schedule == SHOALI_ZB_H1;
    shoali_packed_forget(&engine->module);
    SHOAL_TRY(status, shoali_micro_begin(micro->tape, &load), done);
    if (!chunk->in || !chunk->out || chunk->reads_batch)
        SHOAL_TRY(status, shoali_micro_add_batch(engine, micro->tape, &load), done);
    if (chunk->in)
        SHOAL_TRY(status, shoali_chunk_add_inputs(micro, chunk, 0), done);
    SHOAL_TRY(status, shoali_chunk_forward(engine, micro, chunk), done);
    if (training) {
        SHOAL_TRY(status, shoali_chunk_backward(micro, chunk, 1.0, NULL, defer), done);
        if (defer)
            SHOAL_TRY(status, shoali_tape_backward_weight(micro->tape), done);
        read_cost(micro->tape, &engine->step.micro_cost);
    }
    shoali_micro_end(micro);
done:
    return status;
}

/* The slot's bytes are the peak of the same forward (and backward) without memory; of a pipeline's
 * stage the largest peak of its chunks. */
shoal_status shoali_engine_measure_micro(struct shoal_engine *engine)
{
    shoal_status status;
    const struct shoali_engine_stages *stages = &engine->stages;
    struct shoal_tensor *in[SHOALI_CROSSINGS_MAX], *out[SHOALI_CROSSINGS_MAX];
    struct shoali_micro micro = {.in = in, .out = out};
    /* zero places the sinks later; what they cost in workspace depends on their type alone */
    for (int32_t i = 0; i < engine->module.param_count; i++)
        if (engine->config.reduction == SHOALI_REDUCTION_EXACT)
            engine->module.param[i]->sink.dtype = SHOAL_I64;
    SHOAL_TRY(status, shoali_slot_create(NULL, 0, &micro.slot), done);
    SHOAL_TRY(status, shoali_slot_create(NULL, 0, &micro.kept_slot), done);
    SHOAL_TRY(status,
              shoali_engine_create_tape(engine, micro.slot, micro.kept_slot, true, &micro.tape),
              done);
    for (int32_t c = 0; c < stages->args.chunks; c++) {
        const struct shoali_chunk *chunk = &stages->chunk[c];
        SHOAL_TRY(status, measure_pass(engine, &micro, chunk, false), done);
        if (!engine->inference)
            SHOAL_TRY(status, measure_pass(engine, &micro, chunk, true), done);
    }
    engine->step.micro_cost.slot_bytes = (int64_t)shoali_slot_peak_bytes(micro.slot);
    engine->step.micro_cost.kept_bytes = (int64_t)shoali_slot_peak_bytes(micro.kept_slot);
done:
    destroy_micro(&micro);
    return status;
}
