/* Evaluation: the mean loss over global micro-batches, the same bits for any number of ranks. */
#include "engine/engine.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

#define EVAL_UNIT_LOG2 \
    24 /* loss sums in units of 2^-24: 2^39 nats of head-room for the whole evaluation */

/* How many targets of the batch count: those >= 0 of the input called "targets", else its samples.
 */
static int64_t weight_of(const struct shoal_engine *engine, const shoal_batch *batch,
                         int64_t samples)
{
    const shoal_model *model = engine->model;
    for (int32_t i = 0; i < model->input_count; i++) {
        if (strcmp(model->inputs[i].name, "targets") != 0 || model->inputs[i].dtype != SHOAL_I32)
            continue;
        const int32_t *target = batch->data[i];
        const int64_t count = samples * shoal_shape_count(&model->inputs[i].sample_shape);
        int64_t valid = 0;
        for (int64_t t = 0; t < count; t++)
            valid += target[t] >= 0;
        return valid;
    }
    return samples;
}

#define STOP_EVERY_NS 2000000000 /* how often the ranks ask each other whether to stop */
#define STOP_ROUNDS_MAX 100000

struct evaluation {
    const struct shoal_engine *engine;
    int64_t sums[3]; /* loss, weight, micro-batches without a finite loss */
};

static shoal_status add_loss(void *state, const shoal_batch *batch, struct shoal_tensor *loss)
{
    shoal_status status;
    struct evaluation *evaluation = state;
    double mean;
    if (evaluation->engine->place.loss_elsewhere)
        return SHOAL_OK;
    const int64_t samples = batch->samples ? batch->samples : evaluation->engine->step.batch.micro;
    const int64_t weight = weight_of(evaluation->engine, batch, samples);
    SHOAL_TRY(status, shoal_tensor_get_scalar(loss, &mean), done);
    const double total = mean * (double)weight;
    if (fabs(total) < ldexp(1.0, 38))
        evaluation->sums[0] += (int64_t)rint(ldexp(total, EVAL_UNIT_LOG2));
    else
        evaluation->sums[2]++;
    evaluation->sums[1] += weight;
done:
    return status;
}

static shoal_status evaluate_micro(struct shoal_engine *engine,
                                   const struct shoali_execution *execution)
{
    const double forward_ns = engine->step.forward_ns; /* of a step, which this is none */
    const shoal_status status = shoali_engine_execute(engine, execution);
    engine->step.forward_ns = forward_ns;
    shoali_micro_end(&engine->step.micro[0]); /* over already, unless it failed */
    return status;
}

/* When an evaluation ends early: every rank has to leave it before the same round. The ranks
 * compare after a number of rounds that all of them derive from the slowest rank. */
struct early_end {
    int64_t round, compared, begin_ns; /* rounds that are over, those at the last comparison */
    int64_t every;                     /* rounds between two comparisons */
};

/* A comparison drains a pipeline, so that there are several rounds a stage between two. */
static int64_t fewest_rounds(const struct shoal_engine *engine)
{
    return engine->place.world > 1 ? 4 * (int64_t)engine->stages.count : 1;
}

/* Sets step.stop, on all ranks alike, if one was asked to stop since the last step. */
static shoal_status compare_stops(struct shoal_engine *engine, struct early_end *end)
{
    shoal_status status = SHOAL_OK;
    if (end->round - end->compared < end->every)
        return SHOAL_OK;
    const int64_t spent_ns = shoali_now_ns() - end->begin_ns;
    int64_t values[2] = {engine->step.stop_asked != 0, spent_ns / (end->round - end->compared) + 1};
    if (engine->place.world > 1)
        SHOAL_TRY(
            status,
            shoal_all_reduce(engine->place.group, values, values, 2, SHOAL_I64, SHOAL_MAX, NULL),
            done);
    engine->step.stop = values[0] != 0;
    const int64_t fewest = fewest_rounds(engine), wished = STOP_EVERY_NS / values[1];
    end->every = engine->place.world == 1 || wished < fewest ? fewest
                 : wished > STOP_ROUNDS_MAX                  ? STOP_ROUNDS_MAX
                                                             : wished;
    end->compared = end->round;
    end->begin_ns = shoali_now_ns();
done:
    return status;
}

shoal_status shoal_engine_eval_batch(shoal_engine *engine, shoal_batch_source source, void *user,
                                     int64_t micro_batches, double *loss)
{
    shoal_status status;
    const uint32_t fp = shoali_fp_enter();
    struct evaluation evaluation = {.engine = engine};
    struct early_end end = {.begin_ns = shoali_now_ns(), .every = fewest_rounds(engine)};
    const bool stops = engine->step.stop; /* a program that stops may evaluate once more */
    int64_t *sums = evaluation.sums;
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "evaluation"), done);
    SHOAL_TRY(status, shoali_engine_need_micros(engine), done);
    struct shoali_execution execution = {.instructions = &engine->step.eval_list,
                                         .source = source,
                                         .user = user,
                                         .step = -1,
                                         .forwarded = add_loss,
                                         .state = &evaluation};
    for (int64_t first = 0; first < micro_batches; first += engine->place.data_ranks, end.round++) {
        if (!stops) {
            SHOAL_TRY(status, compare_stops(engine, &end), done);
            if (engine->step.stop) {
                *loss = (double)NAN;
                status = SHOAL_SKIPPED;
                goto done;
            }
        }
        execution.first = first + engine->place.data_rank;
        if (execution.first >= micro_batches) { /* some ranks only help to fetch weights */
            SHOAL_TRY(status, shoali_zero_idle_forward(engine->zero), done);
            break;
        }
        SHOAL_TRY(status, evaluate_micro(engine, &execution), done);
    }
    if (engine->place.world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(engine->place.group, sums, sums, 3, SHOAL_I64, SHOAL_SUM, NULL),
                  done);
    *loss = sums[2] || !sums[1] ? (double)NAN
                                : ldexp((double)sums[0], -EVAL_UNIT_LOG2) / (double)sums[1];
done:
    shoali_fp_leave(fp);
    return status;
}
