/* A batch that changes: more or fewer micro-batches of a step, and what is counted in samples. */
#include "engine/engine.h"

int64_t shoal_engine_consumed_samples(const shoal_engine *engine)
{
    return engine->step.consumed_samples;
}

double shoali_engine_lr(const struct shoal_engine *engine)
{
    const int64_t behind =
        engine->step.applied_steps * engine->step.largest.train - engine->step.applied_samples;
    if (behind == 0)
        return shoali_schedule_lr(&engine->step.schedule, engine->step.applied_steps - 1);
    return shoali_schedule_lr_at(&engine->step.schedule, engine->step.applied_steps - 1,
                                 (double)engine->step.applied_steps -
                                     (double)behind / (double)engine->step.largest.train);
}

void shoali_engine_count_samples(struct shoal_engine *engine, bool applied)
{
    engine->step.consumed_samples += engine->step.batch.train;
    engine->step.applied_samples += applied ? engine->step.batch.train : 0;
}

void shoali_engine_log_batch(const struct shoal_engine *engine, int64_t stored)
{
    if (stored != engine->step.largest.train)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with train_batch_size %lld, this run uses %lld: it "
                    "continues after the %lld samples that were consumed",
                    (long long)stored, (long long)engine->step.largest.train,
                    (long long)engine->step.consumed_samples);
}

/* The list of a step of so many micro-batches; made once for each number. */
static shoal_status find_list(struct shoal_engine *engine, int64_t accumulation,
                              struct shoali_instructions *list)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < engine->step.list_count; i++)
        if (engine->step.lists[i].accumulation == accumulation) {
            *list = engine->step.lists[i].list;
            return SHOAL_OK;
        }
    const int32_t count = engine->step.list_count;
    struct shoali_step_list *grown =
        shoali_calloc((size_t)count + 1, sizeof *grown, "lists of instructions");
    if (!grown)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < count; i++)
        grown[i] = engine->step.lists[i];
    shoali_free(engine->step.lists);
    engine->step.lists = grown;
    SHOAL_TRY(status, shoali_engine_make_step_list(engine, accumulation, &grown[count].list), done);
    grown[count].accumulation = accumulation;
    *list = grown[count].list;
    engine->step.list_count++;
done:
    return status;
}

static shoal_status check_samples(const struct shoal_engine *engine, int64_t samples)
{
    const int64_t unit = engine->step.batch.micro * engine->place.data_ranks;
    if (engine->inference)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "this engine was created for inference: it has no training batch");
    if (samples < 1 || samples % unit)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a training batch of %lld samples is not a multiple of %lld, which is "
                          "train_micro_batch_size_per_gpu %lld * %d data-parallel ranks",
                          (long long)samples, (long long)unit, (long long)engine->step.batch.micro,
                          (int)engine->place.data_ranks);
    if (samples > engine->step.largest.train)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a training batch of %lld samples is larger than the one that the engine "
                          "was created with, %lld: give the largest as train_batch_size",
                          (long long)samples, (long long)engine->step.largest.train);
    return SHOAL_OK;
}

shoal_status shoal_engine_set_train_batch_size(shoal_engine *engine, int64_t samples)
{
    shoal_status status;
    SHOAL_TRY(status, check_samples(engine, samples), done);
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "another batch size"), done);
    if (samples == engine->step.batch.train)
        return SHOAL_OK;
    const int64_t accumulation = samples / (engine->step.batch.micro * engine->place.data_ranks);
    SHOAL_TRY(status, find_list(engine, accumulation, &engine->step.train_list), done);
    engine->step.batch.train = samples;
    engine->step.batch.accumulation = accumulation;
    shoali_zero_set_accumulation(engine->zero, accumulation);
done:
    return status;
}
