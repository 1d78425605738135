/* The training step. */
#include "engine/save/checkpoint.h"

#include <math.h>

static double ms_since(int64_t begin_ns)
{
    return (double)(shoali_now_ns() - begin_ns) * 1e-6;
}

/* A forward that had no backward. */
static void drop_forward(struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->step.micro_count; i++)
        if (engine->step.micro[i].loss || engine->step.micro[i].begun)
            shoali_micro_end(&engine->step.micro[i]);
}

/* ---- one micro-batch, as the caller says it ------------------------------------------------- */

static int64_t first_micro(const struct shoal_engine *engine)
{
    int64_t first, count;
    shoal_engine_get_micro_range(engine, &first, &count);
    return first;
}

/* A pipeline's stages need to know what comes next. */
static shoal_status refuse_pipeline(const struct shoal_engine *engine, const char *call)
{
    if (engine->stages.count == 1)
        return SHOAL_OK;
    return SHOAL_FAIL(
        SHOAL_EUNSUPPORTED,
        "%s does one micro-batch, and the %d stages of this engine's pipeline work on "
        "several: use shoal_engine_train_batch or shoal_engine_eval_batch",
        call, (int)engine->stages.count);
}

shoal_status shoal_engine_forward(shoal_engine *engine, const shoal_batch *batch,
                                  shoal_tensor **loss)
{
    shoal_status status;
    const uint32_t fp = shoali_fp_enter();
    const int64_t begin = shoali_now_ns();
    shoali_context_get()->step = engine->step.global_steps;
    SHOAL_TRY(status, refuse_pipeline(engine, "shoal_engine_forward"), done);
    SHOAL_TRY(status, shoali_engine_need_micros(engine), done);
    struct shoali_micro *micro = &engine->step.micro[0];
    drop_forward(engine);
    if (engine->step.micros_done == 0)
        engine->step.begin_ns = begin;
    SHOAL_TRY(status,
              shoali_engine_load(engine, micro, batch, engine->step.global_steps,
                                 first_micro(engine) + engine->step.micros_done),
              done);
    SHOAL_TRY(status, shoali_chunk_forward(engine, micro, engine->stages.chunk), done);
    engine->step.forward_ns += (double)(shoali_now_ns() - begin);
    if (loss)
        *loss = micro->loss;
done:
    shoali_fp_leave(fp);
    return status;
}

static shoal_status run_backward(struct shoal_engine *engine)
{
    shoal_status status;
    SHOAL_TRY(status, refuse_pipeline(engine, "shoal_engine_backward"), done);
    if (!engine->step.micro || !engine->step.micro[0].loss)
        return SHOAL_FAIL(SHOAL_EINVAL, "backward without a forward before it: call "
                                        "shoal_engine_forward first");
    if (engine->step.micros_done >= engine->step.batch.accumulation)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "backward was called %lld times for this step: call shoal_engine_step "
                          "after each backward",
                          (long long)engine->step.micros_done + 1);
    status =
        shoali_engine_backward(engine, &engine->step.micro[0], engine->stages.chunk, NULL, false);
done:
    return status;
}

shoal_status shoal_engine_backward(shoal_engine *engine)
{
    const uint32_t fp = shoali_fp_enter();
    const shoal_status status = run_backward(engine);
    shoali_fp_leave(fp);
    return status;
}

shoal_status shoali_engine_between_steps(struct shoal_engine *engine, const char *what)
{
    if (engine->step.micros_done)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s is possible only between steps: %lld of %lld micro-batches of this "
                          "one are done; finish them first, shoal_engine_step after each backward",
                          what, (long long)engine->step.micros_done,
                          (long long)engine->step.batch.accumulation);
    drop_forward(engine);
    return SHOAL_OK;
}

bool shoal_engine_is_gradient_accumulation_boundary(const shoal_engine *engine)
{
    const bool forwarded = engine->step.micro && engine->step.micro[0].loss;
    return engine->step.micros_done >= engine->step.batch.accumulation - forwarded;
}

/* Without a scale to lower, skipping for ever would hide a broken run. */
static shoal_status check_overflow(struct shoal_engine *engine,
                                   const struct shoali_zero_verdict *verdict)
{
    shoal_status status;
    engine->step.skipped_in_a_row = verdict->overflow ? engine->step.skipped_in_a_row + 1 : 0;
    if (engine->step.scaler.dynamic || !verdict->overflow || engine->step.skipped_in_a_row < 3) {
        SHOAL_TRY(status, shoali_loss_scaler_update(&engine->step.scaler, verdict->overflow), done);
        return status;
    }
    if (engine->step.scaler.scale > 1 && isfinite(verdict->loss))
        status =
            SHOAL_FAIL(SHOAL_ENUMERIC,
                       "three steps in a row were skipped because gradients overflowed, and "
                       "the loss (%g) is finite: fp16.loss_scale %g is too large; give a "
                       "lower one, such as %g, or 0 for a dynamic scale",
                       verdict->loss, engine->step.scaler.scale,
                       engine->step.scaler.scale > 65536 ? 65536 : engine->step.scaler.scale / 16);
    else if (verdict->rejected_param >= 0)
        status =
            SHOAL_FAIL(SHOAL_ENUMERIC,
                       "three steps in a row were skipped: the gradient of `%s` has NaN, infinity "
                       "or values beyond the exact range at unit 2^-%lld; lower the learning rate, "
                       "or give a smaller `exact_unit_log2` (range doubles with each step down)",
                       engine->module.param[verdict->rejected_param]->name,
                       (long long)engine->config.exact_unit_log2);
    else
        status = SHOAL_FAIL(SHOAL_ENUMERIC,
                            "three steps in a row were skipped because gradients had NaN or "
                            "infinity (loss %g): lower the learning rate or check the data",
                            verdict->loss);
done:
    return status;
}

static shoal_status update(struct shoal_engine *engine, const struct shoali_zero_verdict *verdict)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_now now = {.lr = engine->step.info.lr,
                                  .t = engine->step.applied_steps + engine->step.optimizer_ahead +
                                       1};
    if (verdict->overflow)
        return SHOAL_OK;
    now.cycle_momentum = shoali_schedule_momentum(&engine->step.schedule,
                                                  engine->step.applied_steps - 1, &now.momentum);
    SHOAL_TRY(status, shoali_zero_step(engine->zero, &now), done);
    engine->step.applied_steps++;
done:
    return status;
}

shoal_status shoali_engine_finish_step(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_zero_verdict verdict;
    shoal_step_info *info = &engine->step.info;
    int64_t begin;
    SHOAL_TRY(status, shoali_engine_hash_start(engine), done);
    begin = shoali_now_ns();
    drop_forward(engine); /* one more than the step has micro-batches */
    SHOAL_TRY(status,
              shoali_zero_reduce(engine->zero, engine->step.scaler.scale,
                                 shoali_engine_asks(engine), &verdict),
              done);
    SHOAL_TRY(status, shoali_engine_receive_verdict(engine, &verdict), done);
    SHOAL_TRY(status, shoali_engine_check_unused(engine), done);
    info->reduce_ms = ms_since(begin) + engine->stages.reduce_ns * 1e-6;
    info->step = engine->step.global_steps;
    info->loss = verdict.loss;
    info->grad_norm = verdict.norm;
    info->lr = shoali_engine_lr(engine);
    info->loss_scale = engine->step.scaler.scale;
    info->applied = !verdict.overflow;
    info->skipped_steps += verdict.overflow;
    SHOAL_TRY(status, check_overflow(engine, &verdict), done);
    begin = shoali_now_ns();
    SHOAL_TRY(status, update(engine, &verdict), done);
    info->update_ms = ms_since(begin);
    info->forward_ms = engine->step.forward_ns * 1e-6;
    info->backward_ms = engine->step.backward_ns * 1e-6;
    info->step_ms = ms_since(engine->step.begin_ns);
    engine->step.forward_ns = engine->step.backward_ns = 0;
    SHOAL_TRY(status, shoali_engine_hash_step(engine), done);
    engine->step.micros_done = 0;
    engine->step.global_steps++;
    shoali_engine_count_samples(engine, info->applied);
    info->train_batch_size = engine->step.batch.train;
    info->consumed_samples = shoal_engine_consumed_samples(engine);
    SHOAL_TRY(status, shoali_engine_report_step(engine), done);
    SHOAL_TRY(status, shoali_engine_profile_step(engine), done);
    status = verdict.overflow ? SHOAL_SKIPPED : SHOAL_OK;
done:
    return status;
}

shoal_status shoal_engine_step(shoal_engine *engine)
{
    const uint32_t fp = shoali_fp_enter();
    shoal_status status = refuse_pipeline(engine, "shoal_engine_step");
    if (status < 0)
        goto done;
    if (engine->inference)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "this engine was created for inference: it has no optimizer to step");
    else if (engine->step.micros_done == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "step without a backward before it: call "
                                          "shoal_engine_forward and shoal_engine_backward first");
    else if (engine->step.micros_done >= engine->step.batch.accumulation)
        status = shoali_engine_finish_step(engine);
done:
    shoali_fp_leave(fp);
    return status;
}

shoal_status shoal_engine_train_batch(shoal_engine *engine, shoal_batch_source source, void *user,
                                      shoal_step_info *info)
{
    shoal_status status;
    const uint32_t fp = shoali_fp_enter();
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "train_batch"), done);
    SHOAL_TRY(status, shoali_engine_need_micros(engine), done);
    SHOAL_TRY(status,
              shoali_engine_execute(
                  engine, &(struct shoali_execution){.instructions = &engine->step.train_list,
                                                     .source = source,
                                                     .user = user,
                                                     .step = engine->step.global_steps,
                                                     .first = first_micro(engine)}),
              done);
    if (info)
        *info = engine->step.info;
done:
    shoali_fp_leave(fp);
    return status;
}
