/* Micro-batches from loaders to the engine; validation during and after training. */
#include "pretrain/pretrain.h"

#include "tool.h"

#include <math.h>

shoal_status pretrain_make_batch(struct pretrain *run)
{
    int64_t numbers, all = 0;
    int32_t count = 0;
    while (shoal_loader_array(run->train, count, &numbers)) {
        all += run->micro_batch * numbers;
        count++;
    }
    run->batch_bytes = all * (int64_t)sizeof(int32_t);
    run->batch = shoali_calloc((size_t)all, sizeof(int32_t), "a micro-batch");
    run->arrays = shoali_calloc((size_t)count, sizeof *run->arrays, "a micro-batch");
    if (!run->batch || !run->arrays)
        return SHOAL_ENOMEM;
    int32_t *at = run->batch;
    for (int32_t i = 0; shoal_loader_array(run->train, i, &numbers); i++) {
        run->arrays[i] = at;
        at += run->micro_batch * numbers;
    }
    return SHOAL_OK;
}

void pretrain_free_batch(struct pretrain *run)
{
    shoali_free(run->batch);
    shoali_free(run->arrays);
}

shoal_status pretrain_next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    const struct pretrain_source *source = user;
    struct pretrain *run = source->run;
    /* an evaluation begins with sample 0, a step behind all that were consumed */
    const int64_t before = step >= 0 ? shoal_engine_consumed_samples(run->engine) : 0;
    for (int32_t i = 0; i < run->model->input_count; i++)
        batch->data[i] = run->arrays[i];
    return shoal_loader_get_samples(source->loader, before + micro * run->micro_batch, run->arrays);
}

shoal_status pretrain_evaluate(struct pretrain *run, const char *where, double *loss)
{
    shoal_status status = SHOAL_OK;
    *loss = (double)NAN;
    if (!run->validates)
        return SHOAL_OK;
    struct pretrain_source source = {run, run->valid};
    const bool pairs = pretrain_samples(&run->options) == SHOAL_SAMPLE_MASKED_PAIRS;
    const char *name = pairs ? "lm + sop loss" : "lm loss";
    char line[256];
    SHOAL_TRY(status,
              shoal_engine_eval_batch(run->engine, pretrain_next, &source,
                                      run->valid_steps * run->micro_per_step, loss),
              done);
    if (status == SHOAL_SKIPPED) {
        if (run->progress)
            shoal_progress_message(run->progress, "validation: not finished, the run stops");
        return SHOAL_OK;
    }
    if (run->progress)
        shoal_progress_message(run->progress,
                               shoal_format_validation_line(where, name, *loss, line, sizeof line));
    SHOAL_TRY(status, pretrain_board_validation(run, *loss), done);
done:
    return status;
}
