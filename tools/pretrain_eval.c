/* Validation during and after training. */
#include "pretrain.h"

#include "tool.h"

#include <math.h>

shoal_status pretrain_next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    const struct pretrain_source *source = user;
    struct pretrain *run = source->run;
    /* an evaluation asks by micro-batch alone: the loader's steps follow each other */
    if (step < 0) {
        step = micro / source->per_step;
        micro %= source->per_step;
    }
    batch->data[0] = run->tokens;
    batch->data[1] = run->targets;
    return shoal_loader_get(source->loader, step, micro, run->tokens, run->targets);
}

shoal_status pretrain_evaluate(struct pretrain *run, const char *where, double *loss)
{
    shoal_status status = SHOAL_OK;
    *loss = (double)NAN;
    if (!run->valid)
        return SHOAL_OK;
    struct pretrain_source source = {run, run->valid, shoal_loader_micro_batches(run->valid)};
    const int64_t steps = run->options.full_validation ? shoal_loader_step_count(run->valid)
                                                       : run->options.eval_iters;
    char line[256];
    SHOAL_TRY(
        status,
        shoal_engine_eval_batch(run->engine, pretrain_next, &source, steps * source.per_step, loss),
        done);
    if (run->progress)
        shoal_progress_message(run->progress, shoal_format_validation_line(where, "lm loss", *loss,
                                                                           line, sizeof line));
done:
    return status;
}
