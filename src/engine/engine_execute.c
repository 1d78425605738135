/* engine_execute.c - a list of instructions, one after the other. */
#include "engine/engine.h"

static double ns_since(int64_t begin_ns)
{
    return (double)(shoali_now_ns() - begin_ns);
}

static shoal_status load_evaluated(struct shoal_engine *engine, struct shoali_micro *micro,
                                   const shoal_batch *batch, int64_t number)
{
    return shoali_micro_load(engine, micro->tape,
                             &(struct shoali_micro_load){
                                 .batch = batch,
                                 .samples = batch->samples ? batch->samples : engine->batch.micro,
                                 .step = -1,
                                 .first_sample = number * engine->batch.micro});
}

shoal_status shoali_engine_ask(struct shoal_engine *engine,
                               const struct shoali_execution *execution, int64_t number,
                               shoal_batch *batch)
{
    *batch = (shoal_batch){.data = engine->batch_arrays};
    for (int32_t i = 0; i < engine->model->input_count; i++)
        batch->data[i] = NULL;
    struct shoali_board *board = engine->meta ? NULL : shoali_board_get();
    shoali_board_io_begin(board);
    const shoal_status status = execution->source(execution->user, execution->step, number, batch);
    shoali_board_io_end(board);
    return status;
}

/* The source's own time is not the forward pass's. */
static shoal_status load(struct shoal_engine *engine, const struct shoali_execution *execution,
                         const struct shoali_instruction *one, shoal_batch *batch)
{
    shoal_status status;
    const int64_t number = execution->first + one->micro;
    struct shoali_micro *micro = &engine->micro[one->slot];
    SHOAL_TRY(status, shoali_engine_ask(engine, execution, number, batch), done);
    const int64_t begin = shoali_now_ns();
    if (execution->step >= 0)
        SHOAL_TRY(status, shoali_engine_load(engine, micro, batch, number), done);
    else
        SHOAL_TRY(status, load_evaluated(engine, micro, batch, number), done);
    engine->forward_ns += ns_since(begin);
done:
    return status;
}

static shoal_status execute_one(struct shoal_engine *engine,
                                const struct shoali_execution *execution,
                                const struct shoali_instruction *one, shoal_batch *batch)
{
    shoal_status status = SHOAL_OK;
    struct shoali_micro *micro = &engine->micro[one->slot];
    const int64_t begin = shoali_now_ns();
    switch (one->kind) {
    case SHOALI_DO_LOAD:
        SHOAL_TRY(status, load(engine, execution, one, batch), done);
        break;
    case SHOALI_DO_FORWARD:
        SHOAL_TRY(status, shoali_micro_forward(engine, micro->tape, &micro->loss), done);
        engine->forward_ns += ns_since(begin);
        if (execution->forwarded)
            SHOAL_TRY(status, execution->forwarded(execution->state, batch, micro->loss), done);
        break;
    case SHOALI_DO_BACKWARD:
        SHOAL_TRY(status, shoali_engine_backward(engine, micro), done);
        break;
    case SHOALI_DO_STEP:
        SHOAL_TRY(status, shoali_engine_finish_step(engine), done);
        break;
    default:
        status = SHOAL_FAIL(SHOAL_EINTERNAL, "an engine of one stage has nothing to %s",
                            shoali_instruction_name(one->kind));
        break;
    }
done:
    return status;
}

shoal_status shoali_engine_execute(struct shoal_engine *engine,
                                   const struct shoali_execution *execution)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_instructions *made = execution->instructions;
    const bool alone = engine->stages.count == 1;
    struct shoali_context *context = shoali_context_get();
    struct shoali_board *board = engine->meta ? NULL : context->board;
    shoal_batch batch = {0};
    context->step = engine->global_steps;
    shoali_board_say_step(board, context->step);
    if (execution->step >= 0)
        engine->step_begin_ns = shoali_now_ns();
    shoali_transfers_begin(engine, execution);
    for (int32_t i = 0; i < made->count; i++) {
        const struct shoali_instruction *one = &made->list[i];
        context->instruction = shoali_instruction_name(one->kind);
        context->micro = one->micro;
        shoali_board_say_doing(board, context->instruction, one->micro);
        SHOAL_TRY(status,
                  alone ? execute_one(engine, execution, one, &batch)
                        : shoali_pipeline_execute(engine, execution, one, &batch),
                  done);
    }
done:
    status = shoali_transfers_end(engine, status);
    context->instruction = NULL;
    context->micro = -1;
    if (status >= 0) /* else it is what the rank failed in */
        shoali_board_say_doing(board, NULL, -1);
    return status;
}
